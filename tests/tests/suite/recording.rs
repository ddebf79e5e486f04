//! The simulator replays what a live cluster recorded.

use niclab_device::shell::observers;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::bar::CODE_INTERRUPT;
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::{Lab, connect_ports};
use niclab_device::watch::write::write;
use niclab_model::models::ultra::wire::{Header, MIN_WORDS, Packet, PacketKind};
use niclab_observe::recording::Recorded;
use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, run_observed};
use niclab_spec::watch::{WatchRequest, WatchSubject};
use niclab_spec::{ClusterFile, SimConfig, Source, Workload, WorkloadKind};

/// The limit of each wait, after which the test fails.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A sending port: rank and port number.
type From = (u16, u16);
/// A message as its receiver sees it: target rank and port, payload, and whether it interrupts.
type Sent = (u16, u16, u32, bool);

/// Sends and receives `count` messages of growing sizes; every third one interrupts.
fn send(from: &mut GuestPort, to: &mut GuestPort, count: usize) {
    let begin = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < count {
        let flags = if sent % 3 == 0 { CODE_INTERRUPT } else { 0 };
        if sent < count && from.try_launch(&[7; 8][..sent % 9], [sent as u64, 0], flags) {
            sent += 1;
        }
        from.announce();
        while to.try_receive().is_some() {
            received += 1;
            if to.release_lazily() {
                to.announce();
            }
        }
        assert!(begin.elapsed() < TIMEOUT, "sent {sent}, received {received}");
        std::thread::yield_now();
    }
}

/// The recording of a live cluster of three nodes: two ports of node 0 send alternately, and the others answer.
fn record() -> String {
    let lab = Lab::new(3, |_| ()).unwrap();
    let guests: Vec<Arc<ClusterGuest>> = (0..3).map(|node| lab.guest(node).unwrap()).collect();
    let [mut a, mut b] = connect_ports([&guests[0], &guests[1]], 64).unwrap();
    let [mut c, mut d] = connect_ports([&guests[0], &guests[2]], 64).unwrap();
    send(&mut a, &mut b, 10);
    let shell = lab.daemon().shell();
    let request =
        WatchRequest { subject: WatchSubject::Recording, links: Vec::new(), messages: None, live: false };
    let watch = observers::begin(shell, &request).unwrap();
    send(&mut a, &mut b, 40);
    send(&mut c, &mut d, 30);
    send(&mut b, &mut a, 20);
    send(&mut d, &mut c, 50);
    send(&mut a, &mut b, 10);
    observers::end(shell, &watch);
    let names: Vec<String> = (0..3).map(|node| format!("node{node}")).collect();
    let (file, summary) = write(&watch, &names, Vec::new()).unwrap();
    assert_eq!((summary.written, summary.lost), (150, 0));
    String::from_utf8(file).unwrap()
}

/// The messages of each port in a recording.
fn recorded(text: &str) -> BTreeMap<From, Vec<Sent>> {
    let mut messages: Vec<Recorded> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    messages.sort_by_key(|message| message.model_time_ps);
    let mut by_port: BTreeMap<From, Vec<Sent>> = BTreeMap::new();
    for m in messages {
        by_port.entry((m.node, m.port)).or_default().push((m.to, m.to_port, m.bytes, m.interrupt));
    }
    by_port
}

/// The messages of each port in a capture of all links.
fn captured(mut capture: &[u8]) -> BTreeMap<From, Vec<Sent>> {
    const ENHANCED_PACKET: u32 = 6;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut by_port: BTreeMap<From, Vec<Sent>> = BTreeMap::new();
    while !capture.is_empty() {
        let block = &capture[..word(capture, 4) as usize];
        capture = &capture[block.len()..];
        if word(block, 0) != ENHANCED_PACKET {
            continue;
        }
        let (interface, bytes) = (word(block, 8), word(block, 20) as usize);
        let packet = Packet::new_checked(&block[28..28 + bytes]).unwrap();
        let header = Header::parse(&packet).unwrap();
        // The capture has each frame twice: on its sender's link, and on its receiver's link.
        if let PacketKind::Data { interrupt, .. } = header.kind
            && interface == u32::from(header.source.node)
        {
            let payload = 8 * (packet.words().len() - MIN_WORDS) as u32;
            let message = (header.target.node, u16::from(header.target.port), payload, interrupt);
            by_port.entry((header.source.node, header.source.port.into())).or_default().push(message);
        }
    }
    by_port
}

#[test]
fn a_live_recording_is_replayed_from_the_same_ports() {
    let text = record();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    std::fs::write(&path, &text).unwrap();
    let workload = Workload { recording: Some(path), ..Workload::new(WorkloadKind::Replay) };
    let file = ClusterFile { nodes: Some(3), ..ClusterFile::default() };
    let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "replay", &workload);
    let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
    let mut capture = Vec::new();
    let observer = Observer::new(&names, None, Some(Box::new(&mut capture))).unwrap();
    let outcome = run_observed(&config, &Options::default(), Some(observer)).unwrap();
    assert!(outcome.is_sound(), "{:#?}", outcome.report.checks);
    assert_eq!(outcome.received, 150);

    let expected = recorded(&text);
    let counts: Vec<usize> = expected.values().map(Vec::len).collect();
    assert_eq!(counts, [50, 30, 20, 50], "two ports of node 0, one of each other node");
    assert_eq!(captured(&capture), expected);
}
