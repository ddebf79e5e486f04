//! Timelines, captures and recordings of a live cluster, over the monitor's socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::common::endpoint_card::{EndpointCard, PERIPHERAL, send};
use crate::common::{TIMEOUT, frame, lab, lab_with, pair, stats, stream, until};
use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Checksum, Family, Offload, Segmentation};
use niclab_device::frontend::ClusterGuest;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::models::ultra::wire::{Header, Packet, PacketKind};
use niclab_model::platform::ledger::Transaction;
use niclab_observe::recording::{Recorded, Tail};
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::report::LedgerEntry;
use niclab_spec::watch::{ChunkReader, WatchRequest, WatchSubject, WatchSummary};
use serde_json::Value;

/// A connection of an observer.
pub struct Watching(BufReader<UnixStream>);

impl Watching {
    fn ask(lab: &Lab, request: WatchRequest) -> (Self, Answer) {
        let stream = UnixStream::connect(&lab.config().monitor_socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let line = serde_json::to_string(&Request::Watch(request)).unwrap() + "\n";
        (&stream).write_all(line.as_bytes()).unwrap();
        let mut watching = Self(BufReader::new(stream));
        let answer = watching.answer();
        (watching, answer)
    }

    pub fn begin(lab: &Lab, subject: WatchSubject, links: &[&str], messages: Option<u64>) -> Self {
        let links = links.iter().map(|link| (*link).to_owned()).collect();
        let (watching, answer) = Self::ask(lab, WatchRequest { subject, links, messages, live: false });
        assert_eq!(answer, Answer::Watching);
        watching
    }

    fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The file and its summary, when the daemon ends it.
    fn file(mut self) -> (Vec<u8>, WatchSummary) {
        let mut file = Vec::new();
        ChunkReader::new(&mut self.0).read_to_end(&mut file).unwrap();
        match self.answer() {
            Answer::Watched(summary) => (file, summary),
            other => panic!("{other:?}"),
        }
    }

    /// Ends the observation.
    pub fn end(self) -> (Vec<u8>, WatchSummary) {
        self.0.get_ref().shutdown(Shutdown::Write).unwrap();
        self.file()
    }
}

fn all_stats(lab: &Lab) -> DaemonStats {
    match answer(lab.daemon().shell(), &Request::Stats) {
        Answer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn is_watched(lab: &Lab) -> bool {
    lab.daemon().shell().lock_all().common.network.observers.is_any()
}

/// Waits until all stores of these guests are processed: a request is answered after earlier stores.
fn settle(guests: &[Arc<ClusterGuest>]) {
    for guest in guests {
        guest.statistics().unwrap();
    }
}

/// Waits until all doorbells of Ethernet functions are processed.
fn until_ethernet_is_quiet(lab: &Lab) {
    until("all doorbells", || {
        let locked = lab.daemon().shell().lock_all();
        let states = locked.common.ethernet.states.iter().enumerate();
        let priced = states.map(|(node, state)| (node, state.nic.ledger().line(Transaction::Doorbell).count));
        priced.into_iter().all(|(node, priced)| priced == locked.common.ethernet.doorbells(node))
    });
}

/// Count, bytes, price and waiting time, by process and kind of transaction.
type Sums = BTreeMap<(String, String), [u64; 4]>;

fn sums_of(timeline: &Value) -> Sums {
    let events = timeline["traceEvents"].as_array().unwrap();
    let names = events.iter().filter(|event| event["name"] == "process_name");
    let names: BTreeMap<u64, &str> = names
        .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    let mut sums = Sums::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let process = names[&event["pid"].as_u64().unwrap()].replace(" (model time)", "");
        let sum = sums.entry((process, event["name"].as_str().unwrap().to_owned())).or_default();
        let keys = ["count", "bytes", "model_price_ps", "model_waited_ps"];
        for (sum, key) in sum.iter_mut().zip(keys) {
            *sum += event["args"][key].as_u64().unwrap();
        }
    }
    sums
}

fn expected_sums(stats: &DaemonStats) -> Sums {
    let nodes = stats.nodes.iter().flat_map(|node| {
        let functions = [
            (node.name.clone(), &*node.ledger),
            (format!("{}, Ethernet function", node.name), &*node.ethernet_ledger),
        ];
        functions.into_iter().chain(node.peripheral_ledgers())
    });
    let ledgers = nodes.chain([("network".to_owned(), &*stats.fabric.ledger)]);
    let entries = |(name, ledger): (String, &[LedgerEntry])| {
        let sum = |e: &LedgerEntry| [e.count, e.bytes, e.model_price_ps, e.model_waited_ps];
        ledger.iter().map(|e| ((name.clone(), e.transaction.clone()), sum(e))).collect::<Vec<_>>()
    };
    ledgers.flat_map(entries).filter(|(_, sum)| sum[0] > 0).collect()
}

#[test]
fn trace_sums_to_the_ledgers_of_both_functions() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let mut ethernet = [lab.ethernet(0, 0).unwrap(), lab.ethernet(1, 0).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 200);
    settle(&guests);
    until_ethernet_is_quiet(&lab);
    let before = all_stats(&lab);
    let watching = Watching::begin(&lab, WatchSubject::Trace, &[], None);
    stream(&mut a, &mut b, 300);
    stream(&mut b, &mut a, 100);
    for _ in 0..5 {
        assert!(ethernet[0].send(&frame(lab.mac(0), lab.mac(1), 1000)).unwrap());
        ethernet[1].receive(TIMEOUT).unwrap();
    }
    settle(&guests);
    until_ethernet_is_quiet(&lab);
    let (file, summary) = watching.end();
    let timeline: Value = serde_json::from_slice(&file).unwrap();
    let since = all_stats(&lab).since(&before);
    let sums = sums_of(&timeline);
    assert_eq!(sums, expected_sums(&since));
    assert_eq!(sums[&("node1".to_owned(), "host_receive".to_owned())][0], 300);
    assert_eq!(sums[&("node0, Ethernet function".to_owned(), "host_send".to_owned())][0], 5);
    let other = &timeline["otherData"];
    assert_eq!((&other["stages_lost"], &other["stages"]), (&0.into(), &summary.written.into()));
    assert_eq!((summary.lost, summary.messages), (0, 405));
    let flows = timeline["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "f");
    assert_eq!(flows.count(), 405, "one flow for each message");
    assert!(!is_watched(&lab));
}

/// The frames of a capture: interface, whether the frame goes to the node, bytes, comment. The file must be well
/// formed.
pub fn frames(mut file: &[u8]) -> Vec<(u32, bool, Vec<u8>, String)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    while !file.is_empty() {
        let (kind, length) = (word(file, 0), word(file, 4) as usize);
        assert_eq!(word(file, length - 4) as usize, length);
        if kind == 6 {
            let body = &file[8..length - 4];
            let bytes = word(body, 12) as usize;
            let options = &body[20 + bytes.next_multiple_of(4)..];
            assert_eq!(options[..4], [2, 0, 4, 0], "flags");
            let comment = if options[8] == 1 { &options[12..12 + usize::from(options[10])] } else { &[] };
            let comment = String::from_utf8(comment.to_vec()).unwrap();
            found.push((word(body, 0), word(options, 4) == 1, body[20..20 + bytes].to_vec(), comment));
        }
        file = &file[length..];
    }
    found
}

/// Reads the next block of a capture completely. Returns its kind.
fn next_block(capture: &mut impl Read) -> u32 {
    let mut head = [0; 8];
    capture.read_exact(&mut head).unwrap();
    let [kind, length] = [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
    capture.read_exact(&mut vec![0; length as usize - head.len()]).unwrap();
    kind
}

#[test]
fn live_capture_sends_frames_before_it_ends() {
    const FRAME: u32 = 6;
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let request =
        WatchRequest { subject: WatchSubject::Capture, links: Vec::new(), messages: None, live: true };
    let (mut watching, answer) = Watching::ask(&lab, request);
    assert_eq!(answer, Answer::Watching);
    let mut capture = ChunkReader::new(&mut watching.0);
    // The head arrives without any traffic: the section and two interfaces.
    for kind in [0x0a0d_0d0a, 1, 1] {
        assert_eq!(next_block(&mut capture), kind);
    }
    for _ in 0..2 {
        stream(&mut a, &mut b, 1);
        assert_eq!(next_block(&mut capture), FRAME);
    }
}

#[test]
fn capture_has_complete_frames_of_its_links_in_both_directions() {
    let lab = lab(3);
    let guests = [lab.guest(0).unwrap(), lab.guest(2).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    settle(&guests);
    let before = all_stats(&lab);
    let all = Watching::begin(&lab, WatchSubject::Capture, &[], None);
    let one = Watching::begin(&lab, WatchSubject::Capture, &["node2"], None);
    stream(&mut a, &mut b, 300);
    settle(&guests);
    let (all, summary) = all.end();
    let (one, _) = one.end();
    let since = all_stats(&lab).since(&before);
    let found = frames(&all);
    assert_eq!(found.len() as u64, summary.written);
    for (rank, node) in (0_u32..).zip(&since.nodes) {
        let count = |to_node| found.iter().filter(|(link, way, ..)| (*link, *way) == (rank, to_node)).count();
        let traffic = &node.cluster;
        let counts = (count(false) as u64, count(true) as u64);
        assert_eq!(counts, (traffic.sent_frames, traffic.received_frames), "{}", node.name);
    }
    let of_two = |frames: Vec<(u32, bool, Vec<u8>, String)>, link| -> Vec<_> {
        frames.into_iter().filter(|frame| frame.0 == link).map(|(_, way, bytes, _)| (way, bytes)).collect()
    };
    assert_eq!(of_two(frames(&one), 0), of_two(found, 2), "a capture of one link has the same frames");
    let mut numbers = 0..;
    for (_, bytes) in of_two(frames(&one), 0) {
        let packet = Packet::new_checked(&bytes).unwrap();
        if let PacketKind::Data { .. } = Header::parse(&packet).unwrap().kind {
            let number = numbers.next().unwrap();
            assert!(packet.words().any(|word| word == number), "message {number} has the sent payload");
        }
    }
    assert_eq!(numbers.next(), Some(300));
}

#[test]
fn capture_comments_on_faults_as_the_link_counts_them() {
    let lab = lab_with(2, |config| {
        config.nodes[1].link.faults =
            niclab_spec::Faults { loss: 0.2, duplicate: 0.2, corrupt: 0.2, ..Default::default() };
    });
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let _to = lab.ethernet(1, Negotiated::OFFERED).unwrap();
    let watching = Watching::begin(&lab, WatchSubject::Capture, &["node1"], None);
    for _ in 0..200 {
        until("room to send", || from.send(&frame(lab.mac(0), lab.mac(1), 100)).unwrap());
    }
    until("all frames", || stats(&lab, 0).ethernet.sent_frames == 200);
    let (file, _) = watching.end();
    let found = frames(&file);
    let count = |part: &str| found.iter().filter(|(.., comment)| comment.contains(part)).count() as u64;
    let events = stats(&lab, 1).link_events;
    assert_eq!(count("never arrived"), events["lost"]);
    // Of a frame and its duplicate only the first can be damaged.
    assert_eq!(count("corrupted"), events["corrupted"]);
    let undamaged_duplicates = count("duplicated");
    assert!(undamaged_duplicates >= events["duplicated"] && undamaged_duplicates <= 2 * events["duplicated"]);
    assert_eq!(found.len() as u64, 200 + events["duplicated"]);
}

#[test]
fn ordinary_frames_are_captured_as_on_the_wire() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let mut to = lab.ethernet(1, Negotiated::OFFERED).unwrap();
    let watching = Watching::begin(&lab, WatchSubject::Capture, &["node1"], None);
    let short = frame(lab.mac(0), lab.mac(1), 77);
    assert!(from.send(&short).unwrap());
    to.receive(TIMEOUT).unwrap();
    // A long TCP frame passes as one frame. On the wire it is three frames, each with its checksum.
    let mut long = [lab.mac(1), lab.mac(0)].concat();
    long.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    long.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    long.extend((0..3_000).map(|index| index as u8));
    let segmentation = Some(Segmentation { family: Family::V4, payload_bytes: 1400 });
    let offload = Offload { checksum: Some(Checksum { start: 34, offset: 16 }), segmentation };
    assert!(from.queue(&offload, &long).unwrap());
    from.flush().unwrap();
    assert_eq!(to.receive(TIMEOUT).unwrap(), (offload, long.clone()), "an observer changes nothing");
    let (file, _) = watching.end();
    let found = frames(&file);
    let bytes: Vec<&[u8]> = found.iter().map(|(.., bytes, _)| bytes.as_slice()).collect();
    assert_eq!(bytes.iter().map(|bytes| bytes.len()).collect::<Vec<_>>(), [77, 1454, 1454, 254]);
    assert_eq!(bytes[0], short);
    let payload: Vec<u8> = bytes[1..].iter().flat_map(|bytes| bytes[54..].to_vec()).collect();
    assert_eq!(payload, long[54..]);
    assert!(bytes[1..].iter().all(|bytes| bytes[50..52] != [0, 0]), "checksums are complete");
}

fn recorded(file: &[u8]) -> (Vec<Recorded>, Tail) {
    let text = std::str::from_utf8(file).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.remove(0), r#"{"niclab_recording":2,"nodes":2}"#);
    let tail = serde_json::from_str(lines.pop().unwrap()).unwrap();
    (lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect(), tail)
}

#[test]
fn recording_ends_after_the_requested_number_of_messages() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 10);
    let watching = Watching::begin(&lab, WatchSubject::Recording, &[], Some(25));
    stream(&mut a, &mut b, 20);
    stream(&mut b, &mut a, 20);
    let (file, summary) = watching.file();
    let (messages, tail) = recorded(&file);
    assert_eq!((summary.messages, summary.written, summary.lost), (25, 25, 0));
    assert_eq!(tail, Tail { messages: 25, lost: 0 });
    let of = |node| messages.iter().filter(|message| message.node == node).collect::<Vec<_>>();
    let (from_a, from_b) = (of(0), of(1));
    assert_eq!((from_a.len(), from_b.len()), (20, 5));
    assert!(from_a.iter().all(|m| (m.port, m.to, m.to_port) == (a.number() as u16, 1, b.number() as u16)));
    assert!(from_a.is_sorted_by_key(|message| message.model_time_ps));
    until("the end of the observation", || !is_watched(&lab));
}

#[test]
fn observer_that_disconnects_does_not_disturb_others() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let gone = Watching::begin(&lab, WatchSubject::Trace, &[], None);
    let stays = Watching::begin(&lab, WatchSubject::Trace, &[], None);
    stream(&mut a, &mut b, 100);
    drop(gone);
    stream(&mut a, &mut b, 100);
    let (file, summary) = stays.end();
    assert_eq!(summary.messages, 200);
    assert!(serde_json::from_slice::<Value>(&file).is_ok());
    until("the end of both observers", || !is_watched(&lab));
}

#[test]
fn slow_observer_stops_no_node_and_gets_the_lost_count() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let watching = Watching::begin(&lab, WatchSubject::Trace, &[], None);
    // Far more than the capacity of the queue and the socket.
    stream(&mut a, &mut b, 20_000);
    let (file, summary) = watching.end();
    let timeline: Value = serde_json::from_slice(&file).unwrap();
    assert!(summary.lost > 0 && summary.written > 0, "{summary:?}");
    assert_eq!(timeline["otherData"]["stages_lost"], summary.lost);
    assert_eq!(timeline["otherData"]["stages"], summary.written);
}

#[test]
fn daemon_that_ends_completes_the_files() {
    let lab = lab(2);
    let watching = Watching::begin(&lab, WatchSubject::Capture, &[], None);
    let reading = std::thread::spawn(|| watching.file());
    drop(lab);
    let (file, _) = reading.join().unwrap();
    assert!(frames(&file).is_empty() && !file.is_empty());
}

#[test]
fn invalid_observations_are_refused_by_name() {
    let lab = lab(2);
    for (subject, links, messages, part) in [
        (
            WatchSubject::Capture,
            vec!["node7".to_owned()],
            None,
            "`node7`; links have the names of their nodes: node0, node1",
        ),
        (WatchSubject::Trace, vec!["node1".to_owned()], None, "only a capture"),
        (WatchSubject::Recording, Vec::new(), Some(0), "give 1 or more"),
    ] {
        match Watching::ask(&lab, WatchRequest { subject, links, messages, live: false }).1 {
            Answer::Error { message } => assert!(message.contains(part), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(!is_watched(&lab));
}

#[test]
fn peer_devices_have_separate_tracks() {
    let lab = lab(2);
    let wires = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    // Earlier frames are not part of the timeline.
    let sent = frame(EndpointCard::mac(0), EndpointCard::mac(1), 60);
    send(&lab, &wires[0], &sent);
    let before = all_stats(&lab);
    let watching = Watching::begin(&lab, WatchSubject::Trace, &[], None);
    send(&lab, &wires[0], &sent);
    send(&lab, &wires[0], &frame(EndpointCard::mac(0), EndpointCard::mac(0), 60));
    let stats = all_stats(&lab).since(&before);
    let timeline: Value = serde_json::from_slice(&watching.end().0).unwrap();
    let sums = sums_of(&timeline);
    assert_eq!(sums, expected_sums(&stats));
    for node in &stats.nodes {
        let track = (format!("{} {PERIPHERAL}", node.name), "device_to_device".to_owned());
        assert_eq!(sums[&track][..2], [1, 60]);
    }
}
