//! The same seed gives the same faults, frame by frame, in the live shell and in the simulator.

use niclab_device::shell::observers;
use std::time::{Duration, Instant};

use niclab_device::ethernet::Negotiated;
use niclab_device::lab::Lab;
use niclab_device::watch::write::write;
use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, run_observed};
use niclab_spec::watch::{WatchRequest, WatchSubject};
use niclab_spec::{ClusterFile, Faults, Function, SimConfig, Source, Workload, WorkloadKind};

/// The limit of each wait, after which the test fails.
const TIMEOUT: Duration = Duration::from_secs(120);
const SEED: u64 = 0x5eed;
const FRAMES: usize = 300;

/// All faults of frames, each with a high probability.
const TROUBLE: Faults = Faults {
    loss: 0.2,
    duplicate: 0.3,
    corrupt: 0.2,
    bit_errors: 1e-5,
    reorder: 0.3,
    delay_ns: 700,
    partition: false,
};

/// The faults of both nodes' links. Only one link is faulty at a time: the first link decides which of two frames
/// reaches the second link first, and a daemon does not keep the order of model time there.
type Links = [Faults; 2];

/// So fast that frames which a fault brings close together do not wait for each other.
const BANDWIDTH_BITS_PER_S: u64 = 1_000_000_000_000_000;

/// A frame in a capture.
#[derive(Clone, Debug)]
struct Captured {
    is_to_node: bool,
    at_ps: u64,
    bytes: Vec<u8>,
    comment: String,
}

/// The fate of a sent frame: what happened on its sender's link, and each arrival with the time since the frame was
/// sent, its bytes, and its comment.
#[derive(Debug, PartialEq, Eq)]
struct Fate {
    on_first_link: String,
    arrivals: Vec<(u64, Vec<u8>, String)>,
}

/// The frames from node 0 to node 1 in a capture, in the order of the file.
fn captured(mut file: &[u8]) -> Vec<Captured> {
    const ENHANCED_PACKET: u32 = 6;
    const COMMENT: u8 = 1;
    const INBOUND: u32 = 1;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    while !file.is_empty() {
        let block = &file[..word(file, 4) as usize];
        file = &file[block.len()..];
        if word(block, 0) != ENHANCED_PACKET {
            continue;
        }
        let length = word(block, 20) as usize;
        let options = &block[28 + length.next_multiple_of(4)..];
        let comment = if options[8] == COMMENT { &options[12..12 + usize::from(options[10])] } else { &[] };
        let is_to_node = word(options, 4) == INBOUND;
        // Keeps frames on node 0's link to the switch, and on node 1's link from the switch.
        if word(block, 8) != u32::from(is_to_node) {
            continue;
        }
        found.push(Captured {
            is_to_node,
            at_ps: u64::from(word(block, 12)) << 32 | u64::from(word(block, 16)),
            bytes: block[28..28 + length].to_vec(),
            comment: String::from_utf8(comment.to_vec()).unwrap(),
        });
    }
    found
}

/// The fate of each frame, in the order of sending. Payloads differ in far more bits than faults flip.
fn fates(capture: &[Captured]) -> Vec<Fate> {
    let flipped = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let sent = capture.iter().filter(|frame| !frame.is_to_node);
    let fate = |sent: &Captured| {
        let is_it = |frame: &&Captured| frame.is_to_node && flipped(&frame.bytes, &sent.bytes) <= 2;
        let arrival =
            |frame: &Captured| (frame.at_ps - sent.at_ps, frame.bytes.clone(), frame.comment.clone());
        let mut arrivals: Vec<_> = capture.iter().filter(is_it).map(arrival).collect();
        arrivals.sort();
        Fate { on_first_link: sent.comment.clone(), arrivals }
    };
    sent.map(fate).collect()
}

/// Datagrams from node 0 to node 1 in the simulator.
fn simulate(links: Links) -> Vec<Captured> {
    let workload = Workload {
        function: Function::Ethernet,
        count: FRAMES as u64,
        warmup: 0,
        message_bytes: 128,
        ..Workload::new(WorkloadKind::Stream)
    };
    let file = ClusterFile { nodes: Some(2), seed: SEED, ..ClusterFile::default() };
    let mut config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "faults", &workload);
    for (node, faults) in config.nodes.iter_mut().zip(links) {
        (node.link.faults, node.link.bandwidth_bits_per_s) = (faults, BANDWIDTH_BITS_PER_S);
    }
    let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
    let mut file = Vec::new();
    let observer = Observer::new(&names, None, Some(Box::new(&mut file))).unwrap();
    run_observed(&config, &Options::default(), Some(observer)).unwrap();
    captured(&file)
}

/// Sends the same frames through a daemon, from its start.
fn send_live(links: Links, frames: &[Vec<u8>]) -> Vec<Captured> {
    let lab = Lab::new(2, |config| {
        config.seed = SEED;
        for (node, faults) in config.nodes.iter_mut().zip(links) {
            (node.link.faults, node.link.bandwidth_bits_per_s) = (faults, BANDWIDTH_BITS_PER_S);
        }
    });
    let lab = lab.unwrap();
    let shell = lab.daemon().shell();
    let request =
        WatchRequest { subject: WatchSubject::Capture, links: Vec::new(), messages: None, live: false };
    let watch = observers::begin(shell, &request).unwrap();
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let _to = lab.ethernet(1, Negotiated::OFFERED).unwrap();
    let begin = Instant::now();
    let sent = || shell.lock_all().common.ethernet.states[0].traffic.sent_frames;
    for (number, frame) in (1..).zip(frames) {
        assert!(from.send(frame).unwrap());
        while sent() < number {
            assert!(begin.elapsed() < TIMEOUT, "frame {number}");
            std::thread::yield_now();
        }
    }
    observers::end(shell, &watch);
    let names = ["node0".to_owned(), "node1".to_owned()];
    let (file, summary) = write(&watch, &names, Vec::new()).unwrap();
    assert_eq!(summary.lost, 0);
    captured(&file)
}

/// The fate of each frame, which must be the same in both shells.
fn same_fates(links: Links) -> Vec<Fate> {
    let simulated = simulate(links);
    let sent: Vec<Vec<u8>> =
        simulated.iter().filter(|frame| !frame.is_to_node).map(|frame| frame.bytes.clone()).collect();
    assert_eq!(sent.len(), FRAMES);
    let (simulated, live) = (fates(&simulated), fates(&send_live(links, &sent)));
    assert_eq!(simulated.len(), live.len());
    for (number, (simulated, live)) in simulated.iter().zip(&live).enumerate() {
        assert_eq!(simulated, live, "frame {number}");
    }
    live
}

#[test]
fn a_senders_link_has_the_simulators_faults_in_a_daemon() {
    // Without reordering: at the switch a daemon passes frames on in the order in which they were sent.
    let fates = same_fates([Faults { reorder: 0.0, ..TROUBLE }, Faults::default()]);
    let count = |is: fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
    assert!(count(|fate| fate.on_first_link.contains("never arrived")) > 30);
    assert!(count(|fate| fate.arrivals.len() == 2) > 40);
    let flipped = |fate: &Fate| fate.arrivals.iter().any(|(.., comment)| comment.contains("corrupted"));
    assert!(fates.iter().filter(|fate| flipped(fate)).count() > 30);
    let mut arrivals = fates.iter().flat_map(|fate| &fate.arrivals);
    assert!(arrivals.all(|(after_ps, ..)| *after_ps > 700_000), "delayed");
}

#[test]
fn a_receivers_link_has_the_simulators_faults_in_a_daemon() {
    let fates = same_fates([Faults::default(), TROUBLE]);
    let arrivals = || fates.iter().flat_map(|fate| &fate.arrivals);
    let count = |part: &str| arrivals().filter(|(.., comment)| comment.contains(part)).count();
    assert!(count("never arrived") > 30 && count("duplicated") > 40 && count("corrupted") > 30);
    let after = || {
        arrivals().filter(|(.., comment)| !comment.contains("never arrived")).map(|(after_ps, ..)| *after_ps)
    };
    assert!(after().min().unwrap() > 700_000, "delayed");
    assert!(after().max().unwrap() >= after().min().unwrap() + 2_000_000, "some are overtaken");
}
