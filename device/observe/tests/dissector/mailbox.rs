//! Frames of a Mailbox card.

use std::fs::File;

use niclab_model::models::mailbox::wire::{FrameKind, Header};
use niclab_model::nic::Address;
use niclab_model::time::Time;
use niclab_observe::{Capture, Fate, Heading};

use crate::dissect;

#[test]
fn frames_of_a_mailbox_card_are_read_back() {
    let (source, target) = (Address { node: 2, port: 3 }, Address { node: 258, port: 5 });
    let kind = FrameKind::Letter { interrupt: false, acknowledge: true };
    let letter = Header { kind, source, target, number: 1 << 33 };
    let answer = Header { kind: FrameKind::Acknowledgement, source: target, target: source, number: 7 };
    let mut damaged = letter.emit(&[1, 2, 3]).to_vec();
    damaged[30] ^= 8;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    for frame in [&letter.emit(&[1, 2, 3])[..], &damaged, &answer.emit(&[])] {
        capture.frame(0, Heading::ToSwitch, Time::ZERO, frame, Fate::Passed).unwrap();
    }
    capture.finish().unwrap();

    let fields =
        ["kind", "source_node", "target_port", "destination_node", "acknowledge", "number", "check_ok"];
    let fields = fields.map(|field| format!("niclab_mailbox.{field}"));
    let frames = dissect(&path, &fields.each_ref().map(String::as_str));
    assert_eq!(frames[0], ["1", "2", "5", "258", "1", "8589934592", "1"]);
    assert_eq!(frames[1][6], "0");
    assert_eq!(frames[2], ["2", "258", "3", "2", "", "7", "1"]);
}
