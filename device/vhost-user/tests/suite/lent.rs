//! Data that stays in its sender's memory until it is stored: what anybody sees is as if it had been copied on the way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use niclab_abi::region::Extent;
use niclab_device::frontend::ClusterGuest;
use niclab_device::frontend::lists::ListPort;
use niclab_device::lab::Lab;
use niclab_model::fabric::ethernet::HEADER_BYTES;
use niclab_model::models::matching::wire::{FIRST_HEAD_BYTES, Frame, MORE_HEAD_BYTES};
use niclab_model::platform::ledger::Ledger;
use niclab_model::time::Time;
use niclab_port::Address;
use niclab_port::lists::{Append, Event, Get, Kind, Outcome, Part, Put, Target};
use niclab_spec::Faults;
use niclab_spec::watch::WatchSubject;
use proptest::prelude::*;

use crate::common::{Stop, until};
use crate::matching::{BYTES, Side, exchange, match_lab, set_faults};
use crate::watch::{Watching, frames};

/// Pieces of memory in which regions lie, the last one first: frames of 9,000 bytes cross from one to the next.
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

/// A guest whose pages this thread looks at itself.
struct Host {
    port: ListPort,
    region: u32,
    address: u64,
}

struct Pair {
    lab: Lab,
    hosts: [Host; 2],
}

/// Everything that anybody can see.
#[derive(Debug, PartialEq)]
struct Seen {
    ledgers: Vec<Ledger>,
    counters: Vec<Vec<(&'static str, u64)>>,
    frames: Vec<[u64; 4]>,
    unordered: Vec<u64>,
    model_time: Time,
}

impl Pair {
    fn new(mtu_bytes: u32, is_lending: bool) -> Self {
        let lab = match_lab(2, mtu_bytes);
        lab.daemon().shell().world().set_lending(is_lending);
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
            this.lab.daemon().shell().start_polling(node);
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

    /// Looks at all pages until there is nothing more.
    fn settle(&self) {
        let shell = self.lab.daemon().shell();
        while [0, 1].into_iter().fold(false, |any, node| {
            let found = shell.poll_once(node);
            any | (found.work > 0 || found.more)
        }) {}
    }

    /// Carries out a transfer; the events of both.
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
        let world = self.lab.daemon().shell().world();
        let nodes = || (0..2).map(|node| &world.nodes[node]);
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
            model_time: world.model_time(),
        }
    }

    fn lent_frames(&self) -> u64 {
        self.lab.daemon().shell().world().lent_frames()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The twin: the same transfers, with data that is lent and with data that is copied on the way.
    #[test]
    fn what_is_lent_arrives_as_what_is_copied(
        mtu_bytes in prop::sample::select(vec![256_u32, 1_500, 9_000]),
        transfers in prop::collection::vec(any_transfer(), 1..8),
    ) {
        let (mut lending, mut copying) = (Pair::new(mtu_bytes, true), Pair::new(mtu_bytes, false));
        for transfer in &transfers {
            let events = lending.transfer(transfer);
            prop_assert_eq!(&events, &copying.transfer(transfer));
            prop_assert_eq!(events.len(), 2);
            prop_assert!(events.iter().all(|event| event.outcome == Outcome::Done));
            for node in 0..2 {
                prop_assert!(lending.memory(node) == copying.memory(node), "the memory of node {}", node);
            }
        }
        prop_assert_eq!(lending.seen(), copying.seen());
        prop_assert_eq!(copying.lent_frames(), 0);
        prop_assert_eq!(lending.lent_frames() > 0, transfers.iter().any(|transfer| transfer.bytes > 0));
    }
}

/// Others have the world between two turns: what is under way then is not lent any more, whatever becomes of the
/// memory.
#[test]
fn what_is_under_way_when_a_turn_ends_is_kept() {
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
    // Until a turn ends with frames under way.
    while ends_with_frames == 0 {
        assert!(shell.poll_once(0).more, "the turn was long enough for all of it");
        let world = shell.world();
        let [sent, arrived] = [0, 1].map(|node| world.nodes[node].card.counts.traffic);
        ends_with_frames = sent.sent_frames - arrived.received_frames;
    }
    let sent_frames = shell.world().nodes[0].card.counts.traffic.sent_frames;
    fill(&pair, 0, 2);
    pair.settle();
    let old = pair.memory(1).iter().filter(|byte| **byte == 1).count() as u64;
    let whole = u64::from(mtu_bytes) + HEADER_BYTES as u64;
    let of_first = whole - FIRST_HEAD_BYTES as u64;
    assert_eq!(old, of_first + (sent_frames - 1) * (whole - MORE_HEAD_BYTES as u64));
    assert!(pair.lent_frames() > sent_frames);
}

/// Frames that came to a card and were not sound, or not next, and frames that it sent again.
fn mishaps(lab: &Lab, node: usize) -> u64 {
    let counters = lab.daemon().shell().world().nodes[node].card.nic.counters();
    let is_it = |name: &str| ["frames_discarded", "retransmissions"].contains(&name);
    counters.iter().filter(|(name, _)| is_it(name)).map(|(_, count)| count).sum()
}

/// Whether data is lent that passes from one of the two to the other.
fn lends(lab: &Lab, from: &mut Side, to: &mut Side, seed: u8) -> bool {
    let before = lab.daemon().shell().world().lent_frames();
    exchange(from, to, seed, 50_000);
    lab.daemon().shell().world().lent_frames() > before
}

#[test]
fn nothing_is_lent_where_frames_are_kept_or_damaged() {
    let lab = match_lab(2, 9_000);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    assert!(lends(&lab, &mut a, &mut b, 1));
    set_faults(&lab, 1, Faults { corrupt: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() });
    for seed in 2..12 {
        assert!(!lends(&lab, &mut a, &mut b, seed));
    }
    assert!((0..2).any(|node| mishaps(&lab, node) > 0));
    set_faults(&lab, 1, Faults::default());
    until("data that is lent again", || lends(&lab, &mut a, &mut b, 20));
}

#[test]
fn whoever_watches_sees_frames_whole() {
    let lab = match_lab(2, 9_000);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    let watching = Watching::begin(&lab, WatchSubject::Capture, &[], None);
    assert!(!lends(&lab, &mut a, &mut b, 1));
    let (file, _) = watching.end();
    let data = |(_, _, bytes, _): &(u32, bool, Vec<u8>, String)| Frame::parse(bytes).unwrap().data.len();
    let bytes: usize = frames(&file).iter().map(data).sum();
    assert_eq!(bytes, 2 * 50_000, "on both links");
    until("data that is lent again", || lends(&lab, &mut a, &mut b, 2));
}

/// A guest stores while the card reads: what arrives is what was there at some time, and nothing is taken for damaged.
#[test]
fn a_sender_may_store_while_its_memory_is_lent() {
    // Frames of many sizes: with short ones the turn ends while some are under way, and these are kept.
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
                assert_eq!(b.expect(Kind::Put, Outcome::Done).moved_bytes, BYTES);
                b.expect(Kind::Unlinked, Outcome::Done);
                a.expect(Kind::Acknowledged, Outcome::Done);
                let mut data = vec![0_u8; BYTES as usize];
                b.port.port().guest().memory().slice(b.address, data.len()).unwrap().copy_to(&mut data);
                // Zeros were there before the first round had come by.
                let other = data.iter().position(|byte| ![0, 0x55, 0xff].contains(byte));
                assert_eq!(other.map(|at| (at, data[at])), None);
            }
        });
        for node in 0..2 {
            assert_eq!(mishaps(&lab, node), 0);
        }
        assert!(lab.daemon().shell().world().lent_frames() > 0);
    }
}
