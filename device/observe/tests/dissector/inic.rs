//! Frames of an INIC card, in both formats.

use std::fs::File;
use std::path::Path;

use niclab_model::models::inic::wire::{Ack, Dialect, Format, Header, head_bytes};
use niclab_model::nic::FrameBytes;
use niclab_model::time::Time;
use niclab_observe::{Capture, Fate, Heading};

use crate::dissect;

const FIELDS: [&str; 15] = [
    "format",
    "assembly",
    "length",
    "kind",
    "has_ack",
    "is_last",
    "is_again",
    "sequence",
    "source_node",
    "destination_node",
    "ack_base",
    "ack_mask",
    "received",
    "missing",
    "check_ok",
];

fn frame(format: Format, header: &Header, bytes: usize) -> FrameBytes {
    let mut frame = FrameBytes::from_elem(7, head_bytes(format) + bytes);
    header.finish(Dialect { format, assembly: 0xbeef }, &mut frame);
    frame
}

#[test]
fn frames_of_an_inic_card_are_read_back() {
    let data = Header {
        source: 9,
        destination: 14,
        sequence: 0xab_cdef,
        has_data: true,
        is_last: true,
        is_again: false,
        for_card: false,
        ack: Some(Ack { base: 0xff_fffd, mask: 0b1_0010 }),
    };
    let again = Header { is_last: false, is_again: true, ack: None, ..data };
    let acknowledgement = Header {
        source: 4_095,
        destination: 258,
        sequence: 0,
        has_data: false,
        is_last: false,
        is_again: false,
        for_card: false,
        ack: Some(Ack { base: 200, mask: 1 << 31 | 2 }),
    };
    let void = Header { is_last: true, sequence: 77, ack: None, ..acknowledgement };
    let (paper, wide) = (Format::Seq24Node4, Format::Seq8Node12);
    let mut damaged = frame(paper, &data, 100);
    damaged[60] ^= 8;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    for frame in [
        frame(paper, &data, 1_408),
        frame(paper, &again, 4),
        damaged,
        frame(wide, &acknowledgement, 0),
        frame(wide, &void, 0),
    ] {
        capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
    }
    capture.finish().unwrap();

    let fields = FIELDS.map(|field| format!("niclab_inic.{field}"));
    let frames = dissect(&path, &fields.each_ref().map(String::as_str));
    let sequence = "11259375";
    // Numbers wrap: 0xfffffd is followed by 0xfffffe, 0xffffff, 0.
    let (received, missing) = ("16777215,2", "16777214,0,1");
    let head =
        |length, kind, bits: [&'static str; 3]| ["1", "0xbeef", length, kind, bits[0], bits[1], bits[2]];
    assert_eq!(frames[0][..7], head("1408", "packet", ["1", "1", "0"]));
    let link = [sequence, "9", "14", "16777213", "0x00000012", received, missing, "1"];
    assert_eq!(frames[0][7..], link);
    assert_eq!(frames[1][..7], head("4", "packet, again", ["0", "0", "1"]));
    assert_eq!(frames[1][7..], [sequence, "9", "14", "", "", "", "", "1"]);
    assert_eq!(frames[2][14], "0");
    assert_eq!(frames[3][..7], ["2", "0xbeef", "0", "acknowledgement", "1", "0", "0"]);
    assert_eq!(frames[3][7..13], ["", "4095", "258", "200", "0x80000002", "202,232"]);
    let missing: Vec<String> =
        std::iter::once(201).chain(203..232).map(|number| number.to_string()).collect();
    assert_eq!(frames[3][13..], [missing.join(","), "1".to_owned()]);
    assert_eq!(frames[4][..8], ["2", "0xbeef", "0", "void packet", "0", "1", "0", "77"]);
}

/// Offset of an image's check sequence, by which frames name their assembly.
const CHECK_AT: usize = 16;
/// Each firmware reload adds this to a number that is XORed to the assembly's id (`models/inic/settings.rs`).
const EPOCH: u16 = 0x9e37;

#[test]
fn assembly_reloads_and_collective_packets_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware/inic/assemblies");
    let files = std::fs::read_dir(bundled).unwrap().flatten().map(|entry| entry.path());
    let images = files.filter(|path| path.extension().is_some_and(|extension| extension == "inic"));
    let mut expected = Vec::new();
    for (firmware_reloads, path) in (0..).zip(images) {
        let image = std::fs::read(&path).unwrap();
        let id = u16::from_le_bytes([image[CHECK_AT], image[CHECK_AT + 1]]);
        let assembly = id ^ (3 * firmware_reloads as u16).wrapping_mul(EPOCH);
        let header = Header {
            source: 1,
            destination: 2,
            sequence: 5,
            has_data: true,
            is_last: true,
            is_again: false,
            for_card: true,
            ack: None,
        };
        let format = if firmware_reloads % 2 == 0 { Format::Seq24Node4 } else { Format::Seq8Node12 };
        let mut frame = FrameBytes::from_elem(0, head_bytes(format));
        // UP, the sum of doubles, of group 7, between the memberships 2 and 3: message 4, operation 5, 16 bytes.
        for word in [0x0315_0000_u32, 7, 2, 3, 4, 5, 16, 0, 0, 0, 0] {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        header.finish(Dialect { format, assembly }, &mut frame);
        capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let said = ["3", "0x15", "0", "7", "2", "3", "4", "5", "16", "1"].map(str::to_owned);
        let of_assembly = ["1".to_owned(), name.to_owned(), (3 * firmware_reloads).to_string()];
        expected.push(of_assembly.into_iter().chain(said).collect::<Vec<String>>());
    }
    capture.finish().unwrap();
    assert!(expected.len() >= 7, "{expected:?}");

    let fields = [
        "for_card",
        "assembly_name",
        "hand_overs",
        "said",
        "code",
        "root",
        "group",
        "to_membership",
        "from_membership",
        "message",
        "operation",
        "operation_bytes",
        "check_ok",
    ];
    let fields = fields.map(|field| format!("niclab_inic.{field}"));
    assert_eq!(dissect(&path, &fields.each_ref().map(String::as_str)), expected);
}
