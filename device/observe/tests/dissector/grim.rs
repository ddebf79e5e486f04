//! Frames of a GRIM card.

use std::fs::File;

use niclab_model::models::grim::wire::{Failures, Fragment, FrameKind, Header, Purpose, seal};
use niclab_model::nic::FrameBytes;
use niclab_model::parts::sequence::Sequence;
use niclab_model::time::Time;
use niclab_observe::{Capture, Fate, Heading};

use crate::dissect;

const FIELDS: [&str; 20] = [
    "kind",
    "asks",
    "interrupt",
    "channel",
    "destination_node",
    "source_node",
    "sequence",
    "failures",
    "reason",
    "endpoint",
    "handler",
    "integer",
    "region",
    "place",
    "offset",
    "bytes",
    "check_ok",
    "bad_fragment",
    "refused",
    "owner",
];

fn frame(header: &Header, payload: &[u8]) -> FrameBytes {
    let mut frame = header.head();
    frame.extend_from_slice(payload);
    seal(&mut frame);
    frame
}

#[test]
fn frames_of_a_grim_card_are_read_back() {
    let purpose = Purpose::Handler { handler: 77, arguments: [1, 2, 3, u32::MAX] };
    let short = Fragment { endpoint: 9, purpose, interrupt: true, offset: 0, bytes: 0, owner: 200 };
    let header =
        |kind, asks| Header { source: 258, destination: 14, channel: 63, kind, asks, sequence: 0xabcd_ef01 };
    let memory = Fragment {
        purpose: Purpose::Memory { region: 0x1_0002, place: 5 << 32 | 6 },
        interrupt: false,
        offset: 1_440,
        bytes: 2_000,
        ..short
    };
    let failures = Failures { owner: 5, count: Sequence::new(0x1_0003), reason: 12 };
    let mut damaged = frame(&header(FrameKind::Message(memory), false), &[7; 100]);
    damaged[80] ^= 4;
    let beyond = Fragment { offset: 1_990, ..memory };

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    for frame in [
        frame(&header(FrameKind::Message(short), true), &[]),
        frame(&header(FrameKind::Message(memory), false), &[7; 100]),
        damaged,
        frame(&header(FrameKind::Message(beyond), false), &[7; 100]),
        frame(&header(FrameKind::Void, true), &[]),
        frame(&header(FrameKind::Acknowledgement(failures), false), &[]),
        frame(&header(FrameKind::Refusal(failures), false), &[]),
        frame(&header(FrameKind::Report(failures), true), &[]),
    ] {
        capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
    }
    capture.finish().unwrap();

    let fields = FIELDS.map(|field| format!("niclab_grim.{field}"));
    let frames = dissect(&path, &fields.each_ref().map(String::as_str));
    let link = |kind, asks, interrupt| [kind, asks, interrupt, "63", "14", "258", "2882400001"];
    assert_eq!(frames[0][..7], link("1", "1", "1"));
    let short = ["", "", "9", "77", "1,2,3,4294967295", "", "", "0", "0", "1", "", "", "200"];
    assert_eq!(frames[0][7..], short);
    assert_eq!(frames[1][..7], link("2", "0", "0"));
    let place = (5_u64 << 32 | 6).to_string();
    assert_eq!(frames[1][7..17], ["", "", "9", "", "", "0x00010002", &place, "1440", "2000", "1"]);
    assert_eq!((&*frames[1][17], &*frames[2][16], &*frames[3][16]), ("", "0", "1"));
    assert_ne!(frames[3][17], "", "it exceeds its message");
    assert_eq!(frames[4][..7], link("3", "1", "0"));
    assert_eq!(frames[5][..7], link("4", "0", "0"));
    assert_eq!(frames[6][..7], link("5", "0", "0"));
    assert_eq!(frames[7][..7], link("6", "1", "0"));
    for telling in &frames[5..] {
        assert_eq!([&telling[7], &telling[8], &telling[19]], ["65539", "12", "5"]);
    }
    let marked = [5, 6, 7].map(|number: usize| !frames[number][18].is_empty());
    assert_eq!(marked, [false, true, false], "a refusal is marked");
}
