//! Ordinary frames of MAC endpoints, and peer devices on a node's bus.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use niclab_model::fabric::ethernet::{BROADCAST, Header, Mac, mac_of_endpoint, mac_of_node};
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
use niclab_model::parts::host_interface::{BusTransfer, HostInterface};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Span, Time};
use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, Outcome, run, run_observed};
use niclab_spec::report::{LedgerEntry, NodeFigures};
use niclab_spec::{ClusterFile, Faults, SimConfig, Source, Workload, WorkloadKind};
use serde_json::Value;

const FRAME_BYTES: usize = 60;

/// A received frame: node, destination, and arrival time in picoseconds.
type Heard = Arc<Mutex<Vec<(u16, Mac, u64)>>>;

/// A card with a MAC endpoint on a peer device. Node 0's endpoint sends these frames, one for each message that its
/// program posts.
struct EndpointCard {
    node: u16,
    nic: AnyNic,
    peripheral: HostInterface,
    to_send: VecDeque<Mac>,
    frames: VecDeque<Output>,
    heard: Heard,
    sent: u64,
}

impl Nic for EndpointCard {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        if let Input::Frame { frame, .. } = &input
            && frame[12..14] == [8, 0]
        {
            self.heard.lock().unwrap().push((self.node, frame[..6].try_into().unwrap(), now.as_ps()));
            self.peripheral.enter(node);
            self.peripheral.transfer(BusTransfer::DeviceToDevice, now, frame.len() as u64);
            self.peripheral.leave(node);
            return;
        }
        if matches!(input, Input::PageStore(_))
            && let Some(destination) = self.to_send.pop_front()
        {
            let header = Header { destination, source: mac_of_endpoint(self.node, 0), ether_type: 0x0800 };
            let mut frame = header.emit().to_vec();
            frame.resize(FRAME_BYTES, 0);
            self.sent += 1;
            // The last byte leaves later than the first. The receiver has the frame when the last byte arrives.
            let (at, tail) = (now, now + Span::from_ns(100));
            let (node, number) = (self.node, self.sent);
            let message = Some(TraceTag { node, port: 0, number, launched: now, bytes: FRAME_BYTES as u32 });
            self.frames.push_back(Output::Frame { at, tail, frame: (&*frame).into(), message });
        }
        self.nic.handle(now, input, node);
    }
    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        self.nic.memory_named_by(request)
    }
    fn poll_output(&mut self) -> Option<Output> {
        self.frames.pop_front().or_else(|| self.nic.poll_output())
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }
    fn accepts_store(&self, port: u32) -> bool {
        self.nic.accepts_store(port)
    }
    fn is_open(&self, port: u32) -> bool {
        self.nic.is_open(port)
    }
    fn has_mac_endpoints(&self) -> bool {
        true
    }
}

impl Observed for EndpointCard {
    fn delivered(&self, port: u32) -> u64 {
        self.nic.delivered(port)
    }
    fn unordered(&self) -> u64 {
        self.nic.unordered()
    }
    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }
    fn ledger_mut(&mut self) -> &mut Ledger {
        self.nic.ledger_mut()
    }
    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        vec![("io-card", self.peripheral.ledger())]
    }
    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        vec![self.peripheral.ledger_mut()]
    }
    fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.nic.statistics(shell)
    }
}

/// Runs four nodes, of which the last has a card without MAC endpoints. Node 0's endpoint sends to these addresses.
fn outcome(
    to_send: &[Mac],
    faults: Faults,
    observer: Option<Observer<'_>>,
) -> (Outcome, Vec<(u16, Mac, u64)>) {
    let workload = Workload { count: 20, warmup: 0, ..Workload::new(WorkloadKind::AllToAll) };
    let file = ClusterFile { nodes: Some(4), ..ClusterFile::default() };
    let mut config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    config.nodes[1].link.faults = faults;
    let heard = Heard::default();
    let wrap = |node: u16, nic: AnyNic| -> AnyNic {
        if node == 3 {
            return nic;
        }
        let peripheral = HostInterface::new(Profile::ultra_200mhz_htx());
        let to_send = if node == 0 { to_send.iter().copied().collect() } else { VecDeque::new() };
        let (frames, heard, sent) = (VecDeque::new(), Arc::clone(&heard), 0);
        Box::new(EndpointCard { node, nic, peripheral, to_send, frames, heard, sent })
    };
    let options = Options { wrap: &wrap, ..Options::default() };
    let outcome = run_observed(&config, &options, observer).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
    let heard = heard.lock().unwrap().clone();
    (outcome, heard)
}

fn line<'a>(ledger: &'a [LedgerEntry], transaction: &str) -> Option<&'a LedgerEntry> {
    ledger.iter().find(|entry| entry.transaction == transaction)
}

#[test]
fn endpoint_frames_reach_their_unicast_and_broadcast_receivers() {
    let to_send = [
        mac_of_node(1),
        mac_of_endpoint(1, 7),
        BROADCAST,
        mac_of_node(0),
        mac_of_endpoint(0, 1),
        mac_of_endpoint(3, 0),
        [0x52, 0x54, 0, 0, 0, 1],
    ];
    let (outcome, heard) = outcome(&to_send, Faults::default(), None);
    let whom: Vec<(u16, Mac)> = heard.iter().map(|(node, mac, _)| (*node, *mac)).collect();
    for expected in [(1, to_send[1]), (1, BROADCAST), (2, BROADCAST), (0, to_send[4])] {
        assert_eq!(whom.iter().filter(|one| **one == expected).count(), 1, "{expected:?}: {whom:?}");
    }
    assert_eq!(whom.len(), 4, "{whom:?}");
    let nodes = &outcome.report.nodes;
    let received = |node: &NodeFigures| (node.ethernet.received_frames, node.ethernet.dropped_frames);
    // Node 0 receives the broadcast and the frame to its own function. The others receive the broadcast and the frame
    // to an unknown address; node 1 also receives the frame to its own function.
    let counts: Vec<_> = nodes.iter().map(received).collect();
    assert_eq!(counts, [(2, 0), (3, 0), (2, 0), (2, 1)]);
    for node in nodes {
        let frames = node.ethernet.received_frames;
        assert_eq!(line(&node.ethernet_ledger, "host_receive").map(|entry| entry.count), Some(frames));
        assert_eq!(line(&node.ethernet_ledger, "dma_write").map(|entry| entry.bytes), Some(60 * frames));
        assert_eq!(node.ethernet_model_latency.count, frames);
        let interrupts = node.interrupts["ethernet_receive"];
        assert!((1..=frames).contains(&interrupts), "{interrupts}");
        assert_eq!(node.ethernet.received_bytes, 60 * frames);
        assert_eq!(node.ethernet.sent_frames, 0);
    }
    // The function on the endpoint's own node gets the broadcast as soon as its last byte has left, without the link.
    let least = |node: usize| nodes[node].ethernet_model_latency.min_ps;
    assert!(least(0) < least(1), "{} and {}", least(0), least(1));
    // The link counts each of these seven frames once: the own node's copy of the broadcast never crosses it.
    let (plain, _) = self::outcome(&[], Faults::default(), None);
    let frames_in = |outcome: &Outcome| outcome.report.fabric.frames_in;
    assert_eq!(frames_in(&outcome) - frames_in(&plain), 7);
}

#[test]
fn damaged_frames_of_endpoints_are_dropped() {
    let to_send = [mac_of_node(1), mac_of_endpoint(1, 0), BROADCAST];
    let (outcome, heard) = outcome(&to_send, Faults { corrupt: 1.0, ..Faults::default() }, None);
    assert!(heard.iter().all(|(node, ..)| *node == 2), "{heard:?}");
    let node = &outcome.report.nodes[1];
    assert_eq!((node.ethernet.received_frames, node.ethernet.dropped_frames), (0, 3));
}

#[test]
fn peer_devices_appear_in_reports_and_timelines() {
    let names: Vec<String> = (0..4).map(|node| format!("node{node}")).collect();
    let mut timeline = Vec::new();
    let observer = Observer::new(&names, Some(Box::new(&mut timeline)), None).unwrap();
    let to_send = [mac_of_endpoint(1, 0), BROADCAST];
    let (outcome, _) = outcome(&to_send, Faults::default(), Some(observer));
    let report = &outcome.report;
    let counts: Vec<Vec<(&str, u64)>> = (report.nodes.iter())
        .map(|node| {
            let count = |ledger| line(ledger, "device_to_device").map_or(0, |entry| entry.count);
            node.peripherals.iter().map(|card| (&*card.name, count(&card.ledger))).collect()
        })
        .collect();
    assert_eq!(counts, [vec![("io-card", 0)], vec![("io-card", 2)], vec![("io-card", 1)], vec![]]);
    assert_eq!(
        line(&report.total, "device_to_device").map(|entry| (entry.count, entry.bytes)),
        Some((3, 180))
    );
    let timeline: Value = serde_json::from_slice(&timeline).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let process = |name: &str| {
        let name = format!("{name} (model time)");
        let found = events.iter().find(|event| event["args"]["name"] == *name);
        found.map(|event| event["pid"].as_u64().unwrap())
    };
    let slices = |name: &str, transaction: &str| {
        let pid = process(name);
        let of = |event: &&Value| event["pid"].as_u64() == pid && event["name"] == *transaction;
        events.iter().filter(|event| event["ph"] == "X").filter(of).count()
    };
    assert_eq!(slices("node1 io-card", "device_to_device"), 2);
    assert_eq!(slices("node2 io-card", "device_to_device"), 1);
    assert_eq!(slices("node3, Ethernet function", "host_receive"), 1);
    assert!(process("node0 io-card").is_none() && process("node3 io-card").is_none());
}

#[test]
fn report_without_endpoints_has_no_fields_for_them() {
    let (outcome, heard) = outcome(&[], Faults::default(), None);
    assert!(heard.is_empty());
    for node in &outcome.report.nodes {
        assert!(node.ethernet_ledger.is_empty() && !node.interrupts.contains_key("ethernet_receive"));
        assert_eq!(node.ethernet, NodeFigures::default().ethernet);
    }
    let workload = Workload { count: 20, warmup: 0, ..Workload::new(WorkloadKind::AllToAll) };
    let file = ClusterFile { nodes: Some(4), ..ClusterFile::default() };
    let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    let plain = run(&config, &Options::default()).unwrap().report.to_json();
    assert!(!plain.contains("peripherals"));
}
