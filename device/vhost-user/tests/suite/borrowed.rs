//! Borrowed payload stays in its sender's memory until it is stored. Every observer sees the same as with copied
//! payload.

use niclab_device::shell::settings;
use niclab_device::shell::wait;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use niclab_abi::region::Extent;
use niclab_device::frontend::ClusterGuest;
use niclab_device::frontend::matching::ListPort;
use niclab_device::lab::Lab;
use niclab_model::fabric::ethernet::HEADER_BYTES;
use niclab_model::models::matching::wire::{FIRST_HEAD_BYTES, Frame, MORE_HEAD_BYTES};
use niclab_model::platform::ledger::Ledger;
use niclab_model::time::Time;
use niclab_port::Address;
use niclab_port::matching::{Append, Event, EventKind, Get, Outcome, Part, Put, Target};
use niclab_spec::Faults;
use niclab_spec::watch::WatchSubject;
use proptest::prelude::*;

use crate::common::{Stop, until};
use crate::matching::{BYTES, Side, exchange, match_lab, set_faults};
use crate::watch::{Watching, frames};

/// Regions consist of pieces of memory, the last one first, so that frames of 9,000 bytes cross from one piece to the
/// next.
const PIECE: u64 = 3 * 4096;
const PIECES: u64 = 86;
const REGION: u64 = PIECE * PIECES;

/// A transfer from one node to the other.
#[derive(Clone, Debug)]
struct Transfer {
    from: usize,
    is_get: bool,
    bytes: u64,
    offset: u64,
    remote_offset: u64,
}

fn any_transfer() -> impl Strategy<Value = Transfer> {
    let bytes = prop_oneof![0..200_u64, 0..20_000_u64, 0..400_000_u64];
    (0..2_usize, any::<bool>(), bytes, any::<[u64; 2]>()).prop_map(|(from, is_get, bytes, places)| {
        let [offset, remote_offset] = places.map(|place| place % (REGION - bytes));
        Transfer { from, is_get, bytes, offset, remote_offset }
    })
}

/// A guest whose pages this thread polls itself.
struct Host {
    port: ListPort,
    region: u32,
    address: u64,
}

struct Pair {
    lab: Lab,
    hosts: [Host; 2],
}

/// All results that an observer can see.
#[derive(Debug, PartialEq)]
struct Seen {
    ledgers: Vec<Ledger>,
    counters: Vec<Vec<(&'static str, u64)>>,
    frames: Vec<[u64; 4]>,
    unordered: Vec<u64>,
    model_time: Time,
}

impl Pair {
    fn new(mtu_bytes: u32, is_borrowing: bool) -> Self {
        let lab = match_lab(2, mtu_bytes);
        settings::set_fast_path(&mut lab.daemon().shell().lock_all(), is_borrowing);
        let hosts = [0, 1].map(|node| {
            let guest = ClusterGuest::connect(lab.cluster_socket(node).unwrap(), REGION + (1 << 20));
            let port = ListPort::open(&guest.unwrap().into(), 64).unwrap();
            let memory = port.port().guest().memory();
            let address = memory.allocate(REGION, 4096).unwrap();
            let places = (0..PIECES).rev().map(|place| address + place * PIECE);
            let pieces: Vec<_> = places.map(|address| Extent { address, bytes: PIECE }).collect();
            let region = port.register_extents(&pieces).unwrap();
            let data: Vec<u8> =
                (0..REGION).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ node as u8).collect();
            memory.slice(address, REGION as usize).unwrap().copy_from(&data);
            Host { port, region, address }
        });
        let mut this = Self { lab, hosts };
        for node in [0, 1] {
            wait::start_polling(this.lab.daemon().shell(), node);
            let memory = this.part(node, 0, REGION);
            let [puts, gets] = [Append::put(0, memory), Append::get(1, memory)];
            this.hosts[node].port.try_launch(&puts.persistent().remote_offset()).unwrap();
            this.hosts[node].port.try_launch(&gets.persistent().remote_offset()).unwrap();
        }
        this.settle();
        this
    }

    fn part(&self, node: usize, offset: u64, bytes: u64) -> Part {
        Part { region: self.hosts[node].region, offset, bytes }
    }

    /// Polls all pages until there is no more work.
    fn settle(&self) {
        let shell = self.lab.daemon().shell();
        while [0, 1].into_iter().fold(false, |any, node| {
            let found = wait::poll_once(shell, node);
            any | (found.work > 0 || found.more)
        }) {}
    }

    /// Carries out a transfer. Returns the events of both sides.
    fn transfer(&mut self, transfer: &Transfer) -> Vec<Event> {
        let &Transfer { from, is_get, bytes, offset, remote_offset } = transfer;
        let node = 1 - from as u32;
        let port = Address { node, port: self.hosts[1 - from].port.port().number() };
        let part = self.part(from, offset, bytes);
        let launched = if is_get {
            let get = Get::new(Target { port, portal: 1 }, part).remote_offset(remote_offset);
            self.hosts[from].port.try_launch(&get)
        } else {
            let put = Put::new(Target { port, portal: 0 }, part).remote_offset(remote_offset).ack();
            self.hosts[from].port.try_launch(&put)
        };
        assert!(launched.is_some());
        self.settle();
        let hosts = self.hosts.iter_mut();
        let events = hosts.flat_map(|host| std::iter::from_fn(|| host.port.try_event()).collect::<Vec<_>>());
        let events = events.collect();
        self.settle();
        events
    }

    fn memory(&self, node: usize) -> Vec<u8> {
        let Host { port, address, .. } = &self.hosts[node];
        let mut data = vec![0; REGION as usize];
        port.port().guest().memory().slice(*address, data.len()).unwrap().copy_to(&mut data);
        data
    }

    fn seen(&self) -> Seen {
        let locked = self.lab.daemon().shell().lock_all();
        let nodes = || (0..2).map(|node| &locked.nodes[node]);
        let traffic = |node: &niclab_device::shell::node::Node| {
            let it = &node.card.counts.traffic;
            [it.sent_frames, it.sent_bytes, it.received_frames, it.received_bytes]
        };
        let ledgers = nodes().flat_map(|node| [node.card.nic.ledger().clone(), node.port.ledger().clone()]);
        Seen {
            ledgers: ledgers.collect(),
            counters: nodes().map(|node| node.card.nic.counters()).collect(),
            frames: nodes().map(traffic).collect(),
            unordered: nodes().map(|node| node.card.unordered()).collect(),
            model_time: locked.model_time(),
        }
    }

    fn borrowed_frames(&self) -> u64 {
        settings::borrowed_frames(&self.lab.daemon().shell().lock_all())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the same transfers with borrowed and with copied payload.
    #[test]
    fn borrowed_payload_arrives_like_copied_payload(
        mtu_bytes in prop::sample::select(vec![256_u32, 1_500, 9_000]),
        transfers in prop::collection::vec(any_transfer(), 1..8),
    ) {
        let (mut borrowing, mut copying) = (Pair::new(mtu_bytes, true), Pair::new(mtu_bytes, false));
        for transfer in &transfers {
            let events = borrowing.transfer(transfer);
            prop_assert_eq!(&events, &copying.transfer(transfer));
            prop_assert_eq!(events.len(), 2);
            prop_assert!(events.iter().all(|event| event.outcome == Outcome::Done));
            for node in 0..2 {
                prop_assert!(borrowing.memory(node) == copying.memory(node), "the memory of node {}", node);
            }
        }
        prop_assert_eq!(borrowing.seen(), copying.seen());
        prop_assert_eq!(copying.borrowed_frames(), 0);
        prop_assert_eq!(borrowing.borrowed_frames() > 0, transfers.iter().any(|transfer| transfer.bytes > 0));
    }
}

/// Other threads may run between two budgets. Frames in flight at that time are copied, and later stores into the
/// sender's memory do not change them.
#[test]
fn payload_in_flight_at_the_end_of_a_budget_is_copied() {
    let mtu_bytes = 256;
    let mut pair = Pair::new(mtu_bytes, true);
    let fill = |pair: &Pair, node: usize, byte: u8| {
        let Host { port, address, .. } = &pair.hosts[node];
        let memory = port.port().guest().memory().slice(*address, REGION as usize).unwrap();
        memory.copy_from(&vec![byte; REGION as usize]);
    };
    fill(&pair, 0, 1);
    let to = Address { node: 1, port: pair.hosts[1].port.port().number() };
    let put = Put::new(Target { port: to, portal: 0 }, pair.part(0, 0, REGION));
    pair.hosts[0].port.try_launch(&put).unwrap();
    let shell = pair.lab.daemon().shell();
    let mut ends_with_frames = 0;
    // Until a budget ends with frames in flight.
    while ends_with_frames == 0 {
        assert!(wait::poll_once(shell, 0).more, "one budget was enough for the whole message");
        let locked = shell.lock_all();
        let [sent, arrived] = [0, 1].map(|node| locked.nodes[node].card.counts.traffic);
        ends_with_frames = sent.sent_frames - arrived.received_frames;
    }
    let sent_frames = shell.lock_all().nodes[0].card.counts.traffic.sent_frames;
    fill(&pair, 0, 2);
    pair.settle();
    let old = pair.memory(1).iter().filter(|byte| **byte == 1).count() as u64;
    let whole = u64::from(mtu_bytes) + HEADER_BYTES as u64;
    let of_first = whole - FIRST_HEAD_BYTES as u64;
    assert_eq!(old, of_first + (sent_frames - 1) * (whole - MORE_HEAD_BYTES as u64));
    assert!(pair.borrowed_frames() > sent_frames);
}

/// Number of frames that arrived damaged or out of order at a card, and of frames that it retransmitted.
fn mishaps(lab: &Lab, node: usize) -> u64 {
    let counters = lab.daemon().shell().lock_all().nodes[node].card.nic.counters();
    let is_it = |name: &str| ["frames_discarded", "retransmissions"].contains(&name);
    counters.iter().filter(|(name, _)| is_it(name)).map(|(_, count)| count).sum()
}

/// Whether payload from one side to the other is borrowed.
fn borrows(lab: &Lab, from: &mut Side, to: &mut Side, seed: u8) -> bool {
    let before = settings::borrowed_frames(&lab.daemon().shell().lock_all());
    exchange(from, to, seed, 50_000);
    settings::borrowed_frames(&lab.daemon().shell().lock_all()) > before
}

#[test]
fn payload_is_not_borrowed_on_faulty_links() {
    let lab = match_lab(2, 9_000);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    assert!(borrows(&lab, &mut a, &mut b, 1));
    set_faults(&lab, 1, Faults { corrupt: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() });
    for seed in 2..12 {
        assert!(!borrows(&lab, &mut a, &mut b, seed));
    }
    assert!((0..2).any(|node| mishaps(&lab, node) > 0));
    set_faults(&lab, 1, Faults::default());
    until("payload that is borrowed again", || borrows(&lab, &mut a, &mut b, 20));
}

#[test]
fn observer_sees_complete_frames() {
    let lab = match_lab(2, 9_000);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    let watching = Watching::begin(&lab, WatchSubject::Capture, &[], None);
    assert!(!borrows(&lab, &mut a, &mut b, 1));
    let (file, _) = watching.end();
    let data = |(_, _, bytes, _): &(u32, bool, Vec<u8>, String)| Frame::parse(bytes).unwrap().data.len();
    let bytes: usize = frames(&file).iter().map(data).sum();
    assert_eq!(bytes, 2 * 50_000, "the capture has both links");
    until("payload that is borrowed again", || borrows(&lab, &mut a, &mut b, 2));
}

/// A guest stores while the card reads. Each received word was in memory at some time, and no frame counts as damaged.
#[test]
fn sender_may_store_while_its_payload_is_borrowed() {
    // Frames of several sizes: with short ones, the budget ends with frames in flight, which are then copied.
    for mtu_bytes in [256, 9_000] {
        let lab = match_lab(2, mtu_bytes);
        let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
        let guest = std::sync::Arc::clone(a.port.port().guest());
        let address = a.address;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                let words = guest.memory().atomics::<AtomicU64>(address, BYTES as usize / 8).unwrap();
                let mut round = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let value = if round.is_multiple_of(2) { 0x5555_5555_5555_5555 } else { !0 };
                    words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                }
            });
            let _stop = Stop(stop);
            for _ in 0..6 {
                b.launch(&b.entry());
                b.settle();
                let put = a.put_to(&b, BYTES).ack();
                a.launch(&put);
                assert_eq!(b.expect(EventKind::Put, Outcome::Done).moved_bytes, BYTES);
                b.expect(EventKind::Unlinked, Outcome::Done);
                a.expect(EventKind::Acknowledged, Outcome::Done);
                let mut data = vec![0_u8; BYTES as usize];
                b.port.port().guest().memory().slice(b.address, data.len()).unwrap().copy_to(&mut data);
                // The zeros are from before the first round.
                let other = data.iter().position(|byte| ![0, 0x55, 0xff].contains(byte));
                assert_eq!(other.map(|at| (at, data[at])), None);
            }
        });
        for node in 0..2 {
            assert_eq!(mishaps(&lab, node), 0);
        }
        assert!(settings::borrowed_frames(&lab.daemon().shell().lock_all()) > 0);
    }
}
