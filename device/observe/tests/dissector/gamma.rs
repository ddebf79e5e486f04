//! Frames of a GAMMA card.

use std::fs::File;

use niclab_abi::gamma::{FRAME_ACKNOWLEDGEMENT, FRAME_DATA, FRAME_FIRST, FRAME_LAST, FrameHead};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::fabric::ethernet::{ETHER_TYPE_CLUSTER, Header, mac_of_node};
use niclab_model::models::gamma::wire::{PROTOCOL, seal};
use niclab_model::nic::FrameBytes;
use niclab_model::time::Time;
use niclab_observe::{Capture, Fate, Heading};

use crate::dissect;

/// A frame from node 258 to node 14, as the card sends it.
fn frame(kind: u8, ports: [u8; 2], part: &[u8]) -> FrameBytes {
    let [source_port, target_port] = ports;
    let head = FrameHead { protocol: PROTOCOL, kind, source_port, target_port, number: 0xabcd_ef01 };
    let (destination, source) = (mac_of_node(14), mac_of_node(258));
    let header = Header { destination, source, ether_type: ETHER_TYPE_CLUSTER };
    let mut frame = FrameBytes::from_slice(&header.emit());
    let mut bytes = [0; FrameHead::BYTES];
    head.to_bytes(&mut bytes).unwrap();
    frame.extend_from_slice(&bytes);
    frame.extend_from_slice(part);
    seal(frame, 258).unwrap()
}

#[test]
fn frames_of_a_gamma_card_are_read_back() {
    let part = [7; 100];
    let mut damaged = frame(FRAME_DATA | FRAME_LAST, [3, 5], &part);
    damaged[80] ^= 4;
    // The check sequence covers the addresses, too. This frame's destination is changed to node 15.
    let mut misled = frame(FRAME_DATA | FRAME_LAST, [3, 5], &part);
    misled[5] ^= 1;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    for frame in [
        frame(FRAME_DATA | FRAME_FIRST, [0x13, 0x25], &part),
        damaged,
        misled,
        frame(FRAME_ACKNOWLEDGEMENT, [0, 0], &[]),
        frame(9, [3, 5], &part),
    ] {
        capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
    }
    capture.finish().unwrap();

    let fields = [
        "kind",
        "source_node",
        "destination_node",
        "number",
        "first",
        "last",
        "source_port",
        "target_port",
        "payload",
        "check_ok",
        "bad_length",
        "source_driver",
        "target_driver",
    ];
    let fields = fields.map(|field| format!("niclab_gamma.{field}"));
    let frames = dissect(&path, &fields.each_ref().map(String::as_str));
    let payload = "07".repeat(100);
    assert_eq!(frames[0], ["1", "258", "14", "2882400001", "1", "0", "3", "5", &payload, "1", "", "1", "2"]);
    assert_eq!((&*frames[1][4], &*frames[1][5], &*frames[1][9]), ("0", "1", "0"));
    assert_eq!((&*frames[2][2], &*frames[2][9]), ("15", "0"));
    assert_eq!(frames[3], ["2", "258", "14", "2882400001", "", "", "", "", "", "1", "", "0", "0"]);
    assert_ne!(frames[4][10], "", "its kind is unknown");
}
