//! Batches of equal frames of an Ethernet function: every observer sees the same as with single frames.

use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Checksum, Offload};
use niclab_device::frontend::EthernetGuest;
use niclab_device::lab::Lab;
use niclab_device::shell::locks::LockedNodes;
use niclab_device::shell::service::ethernet_function;
use niclab_device::shell::settings;
use niclab_model::platform::ledger::Transaction;
use niclab_model::time::Time;
use niclab_spec::Faults;
use niclab_spec::monitor::Request;
use proptest::prelude::*;

use crate::common::tcp::{long_offload, tcp};
use crate::common::{frame, lab_with, stats, until};
use crate::report::ask;

const NODES: usize = 3;
const QUEUE_SIZE: u16 = 64;

/// A step of a script at node 0, 1 or 2. No guest is connected at node 2.
#[derive(Clone, Debug)]
enum Step {
    /// Queues frames.
    Queue { from: usize, to: Whom, kind: FrameKind, count: usize },
    /// The device polls the queued frames.
    Transmit { from: usize },
    /// A guest receives up to `most` frames, and adds buffers for more. With `is_seen`, the device polls these buffers.
    Receive { at: usize, most: usize, is_seen: bool },
    /// Changes link faults, which exclude batches.
    Lose { at: u16, is_lossy: bool },
    /// Keeps up to `most` single stages at a node, or none.
    Keep { at: usize, most: usize },
    /// Takes a link down or up.
    Link { at: usize, is_up: bool },
}

#[derive(Clone, Debug)]
enum Whom {
    Node(usize),
    All,
    Unknown,
}

#[derive(Clone, Debug)]
enum FrameKind {
    /// A frame with this number of bytes.
    Plain(usize),
    /// A frame whose checksum the device completes.
    Summed(usize),
    /// A frame that the device segments.
    Long(usize),
    /// A frame that claims to be from a card.
    Forged,
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    let whom = prop_oneof![8 => node().prop_map(Whom::Node), 1 => Just(Whom::All), 1 => Just(Whom::Unknown)];
    let bytes = || prop_oneof![4 => Just(64_usize), 2 => 54..1_600_usize, 1 => Just(1_514_usize)];
    let kind = prop_oneof![
        10 => bytes().prop_map(FrameKind::Plain),
        3 => bytes().prop_map(FrameKind::Summed),
        1 => (1_000..9_000_usize).prop_map(FrameKind::Long),
        1 => Just(FrameKind::Forged),
    ];
    let queue = (0..2_usize, whom, kind, 1..40_usize);
    prop_oneof![
        12 => queue.prop_map(|(from, to, kind, count)| Step::Queue { from, to, kind, count }),
        8 => (0..2_usize).prop_map(|from| Step::Transmit { from }),
        6 => (0..2_usize, 1..80_usize, any::<bool>())
            .prop_map(|(at, most, is_seen)| Step::Receive { at, most, is_seen }),
        1 => (0..2_u16, any::<bool>()).prop_map(|(at, is_lossy)| Step::Lose { at, is_lossy }),
        2 => (0..2_usize, 0..40_usize).prop_map(|(at, most)| Step::Keep { at, most }),
        1 => (0..2_usize, prop::bool::weighted(0.7)).prop_map(|(at, is_up)| Step::Link { at, is_up }),
    ]
}

/// A daemon whose guests only this thread serves.
struct Bench {
    lab: Lab,
    guests: [EthernetGuest; 2],
    received: Vec<(usize, [u8; 64], u32)>,
}

impl Bench {
    fn new(features: [u64; 2], queue_frames: u32, goes_together: bool) -> Self {
        let lab = lab_with(NODES as u16, |config| {
            config.nodes.iter_mut().for_each(|node| node.link.queue_frames = queue_frames);
        });
        let guests = [0, 1].map(|node| {
            let mut guest = lab.ethernet_with(node, QUEUE_SIZE, 2048, features[node]).unwrap();
            settle_doorbells(&lab, node, &mut guest);
            guest
        });
        lab.daemon().shell().lock_all().common.goes_alone = !goes_together;
        Self { lab, guests, received: Vec::new() }
    }

    fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Queue { from, ref to, ref kind, count } => self.queue(from, to, kind, count),
            Step::Transmit { from } => {
                ethernet_function::transmit(&mut self.lab.daemon().shell().lock_all(), from, 0);
            }
            Step::Receive { at, most, is_seen } => {
                for _ in 0..most {
                    let Some((first, bytes)) =
                        self.guests[at].receive_short(|first, bytes| (*first, bytes)).unwrap()
                    else {
                        break;
                    };
                    self.received.push((at, first, bytes));
                }
                self.guests[at].show().unwrap();
                if is_seen {
                    ethernet_function::refill(&mut self.lab.daemon().shell().lock_all(), at, 0);
                }
            }
            Step::Lose { at, is_lossy } => {
                let faults =
                    if is_lossy { Faults { loss: 0.3, ..Faults::default() } } else { Faults::default() };
                settings::set_link_faults(&mut self.lab.daemon().shell().lock_all(), at, &faults);
            }
            Step::Keep { at, most } => {
                let mut locked = self.lab.daemon().shell().lock_all();
                // Of its function, of its link, or of both.
                if most % 3 != 1 {
                    locked.common.ethernet.states[at].nic.ledger_mut().record_stages(most);
                }
                if most % 3 != 2 {
                    locked.nodes[at].port.ledger_mut().record_stages(most);
                }
            }
            Step::Link { at, is_up } => {
                settings::set_link_up(&mut self.lab.daemon().shell().lock_all(), at, is_up)
            }
        }
    }

    fn queue(&mut self, from: usize, to: &Whom, kind: &FrameKind, count: usize) {
        let own = self.lab.mac(from);
        let to = match *to {
            Whom::Node(node) => self.lab.mac(node),
            Whom::All => [0xff; 6],
            Whom::Unknown => [0x52, 0x54, 0, 0, 0, 9],
        };
        for number in 0..count {
            let (offload, mut frame) = match *kind {
                FrameKind::Plain(bytes) => (Offload::default(), frame(own, to, bytes)),
                FrameKind::Summed(bytes) => {
                    let checksum = Some(Checksum { start: 34, offset: 6 });
                    (Offload { checksum, segmentation: None }, frame(own, to, bytes))
                }
                FrameKind::Long(bytes) => {
                    let (frame, checksum) = tcp(own, to, bytes);
                    (long_offload(checksum), frame)
                }
                FrameKind::Forged => {
                    let mut forged = frame(own, to, 64);
                    forged[12..14].copy_from_slice(&[0x88, 0xb5]);
                    (Offload::default(), forged)
                }
            };
            // Equal frames differ in their payload.
            if let Some(last) = frame.last_mut() {
                *last = number as u8;
            }
            if !self.guests[from].queue(&offload, &frame).unwrap() {
                break;
            }
        }
        self.guests[from].show().unwrap();
    }

    /// All results that an observer can see, except the number of batches.
    fn seen(&self) -> Vec<String> {
        let locked = self.lab.daemon().shell().lock_all();
        let node = |number: usize| {
            let state = &locked.common.ethernet.states[number];
            let node = &locked.nodes[number];
            format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                state.nic.ledger(),
                state.traffic,
                state.violations,
                [state.receive_interrupts, state.transmit_interrupts],
                node.bus,
                node.port,
                node.card.nic.ledger(),
            )
        };
        let network = locked.common.network.latest();
        let nodes = (0..NODES).map(node);
        nodes.chain([format!("{network:?}"), format!("{:?}", self.received)]).collect()
    }

    fn batched(&self) -> u64 {
        self.lab.daemon().shell().lock_all().common.ethernet.states.iter().map(|state| state.batched).sum()
    }
}

/// A guest rings after its first buffers, unless the device has seen them already, and a daemon thread prices the
/// doorbell later. To give all daemons the same begin, each node gets the maximum number of doorbells that it can then
/// have.
fn settle_doorbells(lab: &Lab, node: usize, guest: &mut EthernetGuest) {
    const MORE: u64 = 5;
    guest.receive_ring().kick.write(MORE).unwrap();
    let priced = |locked: &LockedNodes<'_>| {
        locked.common.ethernet.states[node].nic.ledger().line(Transaction::Doorbell).count
    };
    until("the first doorbells", || priced(&lab.daemon().shell().lock_all()) >= MORE);
    let mut locked = lab.daemon().shell().lock_all();
    let missing = MORE + 1 - priced(&locked);
    let LockedNodes { nodes, common } = &mut locked;
    let bus = nodes.bus_mut(node).unwrap();
    (0..missing).for_each(|_| {
        common.ethernet.states[node].nic.doorbell(bus.clock(), bus);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn batched_frames_have_the_results_of_single_frames(
        steps in prop::collection::vec(any_step(), 1..40),
        takes_offloads: [bool; 2],
        queue_frames in prop_oneof![Just(64_u32), 1..4_u32],
    ) {
        let features = takes_offloads.map(|takes| if takes { Negotiated::OFFERED } else { 1 << 15 });
        let [mut together, mut singly] = [true, false].map(|together| Bench::new(features, queue_frames, together));
        for step in &steps {
            together.carry_out(step);
            singly.carry_out(step);
            prop_assert_eq!(together.seen(), singly.seen());
        }
        prop_assert_eq!(singly.batched(), 0);
    }
}

#[test]
fn bursts_of_equal_frames_are_batched_and_counted_so() {
    let mut bench = Bench::new([1 << 15; 2], 64, true);
    for from in [0, 1] {
        for (bytes, count) in [(64, 30), (1_514, 20), (64, 1)] {
            bench.carry_out(&Step::Queue {
                from,
                to: Whom::Node(1 - from),
                kind: FrameKind::Plain(bytes),
                count,
            });
        }
        bench.carry_out(&Step::Transmit { from });
        bench.carry_out(&Step::Receive { at: 1 - from, most: 64, is_seen: true });
    }
    assert_eq!((bench.batched(), bench.received.len()), (102, 102));
    let figures = stats(&bench.lab, 0);
    assert_eq!((figures.shortcuts["ethernet_batched"], figures.ethernet.sent_frames), (51, 51));
    assert!(
        figures.model_time_ps > 0
            && bench.lab.daemon().shell().lock_all().common.network.latest() > Time::ZERO
    );
    // Frames that were not requested are not received.
    let before = ask(&bench.lab, &Request::Stats);
    assert!(
        ask(&bench.lab, &Request::Stats).since(&before).nodes.iter().all(|node| node.shortcuts.is_empty())
    );
}

#[test]
fn incomplete_checksum_stays_incomplete_in_a_batch() {
    let mut bench = Bench::new([Negotiated::OFFERED; 2], 64, true);
    let (own, to) = (bench.lab.mac(0), bench.lab.mac(1));
    bench.carry_out(&Step::Queue { from: 0, to: Whom::Node(1), kind: FrameKind::Summed(100), count: 3 });
    bench.carry_out(&Step::Transmit { from: 0 });
    assert_eq!(bench.batched(), 3);
    for number in 0..3 {
        let (offload, received) = bench.guests[1].try_receive().unwrap().unwrap();
        let mut sent = frame(own, to, 100);
        sent[99] = number;
        assert_eq!((offload.checksum, received), (Some(Checksum { start: 34, offset: 6 }), sent));
    }
}
