//! tshark with the dissector reads back the frames of a capture. `ci/dissector` runs these tests.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "dissector/gamma.rs"]
mod gamma;
#[path = "dissector/grim.rs"]
mod grim;
#[path = "dissector/inic.rs"]
mod inic;
#[path = "dissector/mailbox.rs"]
mod mailbox;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use niclab_model::models::matching::wire::{self, Link, Operation};
use niclab_model::models::ultra::wire::{Address, FLIT_BYTES, Header, PacketKind};
use niclab_model::time::Time;
use niclab_observe::{Capture, Fate, Heading};

const FIELDS: [&str; 15] = [
    "frame.time_epoch",
    "frame.interface_name",
    "frame.packet_flags_direction",
    "frame.comment",
    "niclab_ultra.source_node",
    "niclab_ultra.source_port",
    "niclab_ultra.destination_node",
    "niclab_ultra.target_port",
    "niclab_ultra.flits",
    "niclab_ultra.kind",
    "niclab_ultra.interrupt",
    "niclab_ultra.acknowledge",
    "niclab_ultra.connection",
    "niclab_ultra.number",
    "niclab_ultra.crc_ok",
];

/// These fields of each frame in `capture`, as tshark prints them.
fn dissect(capture: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/wireshark/niclab.lua");
    let mut tshark = Command::new(std::env::var_os("NICLAB_TSHARK").unwrap_or_else(|| "tshark".into()));
    if let Some(folder) = std::env::var_os("NICLAB_TSHARK_LIBRARIES") {
        tshark.env("LD_LIBRARY_PATH", folder);
    }
    tshark.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(capture);
    tshark.args(["-n", "-T", "fields", "-E", "separator=;"]);
    fields.iter().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let output = tshark.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

#[test]
fn fields_and_times_are_read_back() {
    let source = Address { node: 0, port: 3 };
    let target = Address { node: 1, port: 5 };
    let data = PacketKind::Data { interrupt: true, acknowledge: false };
    let data = Header { target, source, kind: data, connection: 77, number: 4_000_000_000 };
    let credit =
        Header { target: source, source: target, kind: PacketKind::Credit, connection: 9, number: 12 };
    let mut damaged = data.emit(&[1, 2, 3]).to_vec();
    damaged[14 + 2 * FLIT_BYTES] ^= 1;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let links = ["alpha".to_owned(), "beta".to_owned()];
    let mut capture = Capture::new(File::create(&path).unwrap(), &links).unwrap();
    let at = Time::from_ps(1_000_000_123_456_000);
    capture.frame(0, Heading::ToSwitch, at, &data.emit(&[1, 2, 3]), Fate::Passed).unwrap();
    let fate = Fate::Corrupted { bit: 8 * (14 + 2 * FLIT_BYTES as u32) };
    capture.frame(1, Heading::ToNode, at, &damaged, fate).unwrap();
    capture.frame(1, Heading::ToSwitch, at, &credit.emit(&[]), Fate::Dropped).unwrap();
    capture.finish().unwrap();

    let frames = dissect(&path, &FIELDS);
    // tshark keeps nanoseconds.
    let time = "1000.000123456";
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| frame[0] == time), "{frames:?}");
    let [sent, corrupted, dropped] = &frames[..] else { unreachable!() };
    let head = ["0", "3", "1", "5", "5", "1", "1", "0", "77", "4000000000"];
    assert_eq!(sent[1..4], ["alpha", "0x00000002", ""]);
    assert_eq!(sent[4..14], head);
    assert_eq!(sent[14], "1,1,1,1,1");
    assert_eq!(corrupted[1..4], ["beta", "0x00000001", "niclab: corrupted, bit 0 of byte 34 flipped"]);
    assert_eq!(corrupted[4..14], head);
    assert_eq!(corrupted[14], "1,1,0,1,1");
    assert_eq!(dropped[1..4], ["beta", "0x00000002", "niclab: dropped on this link, never arrived"]);
    assert_eq!(dropped[4..14], ["1", "5", "0", "3", "2", "4", "", "", "9", "12"]);
}

#[test]
fn an_unknown_protocol_is_named_by_its_number() {
    let address = Address { node: 0, port: 0 };
    let header =
        Header { target: address, source: address, kind: PacketKind::Credit, connection: 0, number: 0 };
    let mut frame = header.emit(&[]).to_vec();
    frame[14] = 0xfe;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
    capture.finish().unwrap();
    assert_eq!(dissect(&path, &["niclab.protocol", "niclab_ultra.number"]), [["254", ""]]);
}

#[test]
fn frames_of_a_match_card_are_read_back() {
    let link = Link { destination: 1, source: 0, sequence: 5, acknowledged: 7, asks: true };
    let header = wire::Header {
        operation: Operation::Get,
        match_bits: 0xabc,
        source_port: 3,
        target_port: 2,
        portal: 4,
        bytes: 1_000_000,
        message: 12,
        ..wire::Header::default()
    };
    let emit = |kind, data: &[u8]| {
        let mut frame = wire::head(&link, &kind, data.len());
        frame.extend_from_slice(data);
        wire::seal(&mut frame);
        frame
    };
    let first = emit(wire::FrameKind::First(header), b"");
    let more = emit(wire::FrameKind::More { source_port: 3, message: 12, offset: 1_412 }, &[0xff; 1_455]);
    let mut damaged = more.clone();
    damaged[900] ^= 4;
    let acknowledgement = emit(wire::FrameKind::Acknowledgement, b"");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.pcapng");
    let mut capture = Capture::new(File::create(&path).unwrap(), &["alpha".to_owned()]).unwrap();
    for frame in [first, more, damaged, acknowledgement] {
        capture.frame(0, Heading::ToSwitch, Time::ZERO, &frame, Fate::Passed).unwrap();
    }
    capture.finish().unwrap();

    let fields = ["kind", "sequence", "acknowledged", "check_ok", "operation", "bytes", "message", "offset"];
    let fields = fields.map(|field| format!("niclab_match.{field}"));
    let frames = dissect(&path, &fields.each_ref().map(String::as_str));
    assert_eq!(frames[0], ["1", "5", "7", "1", "2", "1000000", "12", "0"]);
    assert_eq!(frames[1], ["2", "5", "7", "1", "", "", "12", "1412"]);
    assert_eq!(frames[2], ["2", "5", "7", "0", "", "", "12", "1412"]);
    assert_eq!(frames[3], ["3", "5", "7", "1", "", "", "", ""]);
}
