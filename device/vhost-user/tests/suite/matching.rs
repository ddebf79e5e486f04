//! The Match NIC through the daemon's sockets: messages of all sizes, and guests that violate the rules.

use niclab_device::shell::idle::deadlines;
use niclab_device::shell::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Stop, TIMEOUT, lab_with, stats, until, violations};
use niclab_abi::control::{STATUS_BAD_ADDRESS, STATUS_BAD_PORT, STATUS_BAD_VALUE, STATUS_NOT_FOUND};
use niclab_abi::region::{Extent, MAX_EXTENTS, OP_REGION_OPEN, RegionOpen};
use niclab_device::frontend::matching::ListPort;
use niclab_device::frontend::{ClusterGuest, FrontendError};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_port::matching::{Append, Command, Event, EventKind, Get, Handle, Outcome, Part, Put, Target};
use niclab_port::{Address, BadValue};
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{Faults, NicModel};
use proptest::prelude::*;

/// Size of the registered memory of each side. The same size is free after it for a second registration.
pub const BYTES: u64 = 1 << 20;

pub fn match_lab(nodes: u16, mtu_bytes: u32) -> Lab {
    lab_with(nodes, |config| {
        for node in &mut config.nodes {
            node.nic.model = NicModel::named("match").unwrap();
            node.link.mtu_bytes = mtu_bytes;
        }
    })
}

/// A guest with an open port and one registered mebibyte.
pub struct Side {
    node: u16,
    pub port: ListPort,
    pub address: u64,
    region: u32,
}

impl Side {
    pub fn new(lab: &Lab, node: u16) -> Self {
        Self::on(&lab.guest(node.into()).unwrap(), node)
    }

    fn on(guest: &Arc<ClusterGuest>, node: u16) -> Self {
        let port = ListPort::open(guest, 64).unwrap();
        let address = guest.memory().allocate(BYTES, 4096).unwrap();
        let region = port.register(address, BYTES).unwrap();
        Self { node, port, address, region }
    }

    fn number(&self) -> u32 {
        self.port.port().number()
    }

    /// The first `bytes` bytes of the memory.
    pub const fn part(&self, bytes: u64) -> Part {
        Part { region: self.region, offset: 0, bytes }
    }

    /// The first portal.
    pub fn portal(&self) -> Target {
        Target { port: Address { node: self.node.into(), port: self.number() }, portal: 0 }
    }

    fn fill(&self, seed: u8, bytes: usize) {
        let data: Vec<u8> = pattern(seed, bytes);
        self.port.port().guest().memory().slice(self.address, bytes).unwrap().copy_from(&data);
    }

    fn holds(&self, seed: u8, offset: u64, bytes: usize) -> bool {
        let mut data = vec![0; bytes];
        self.port.port().guest().memory().slice(self.address + offset, bytes).unwrap().copy_to(&mut data);
        data == pattern(seed, bytes)
    }

    /// An entry for all of the memory.
    pub fn entry(&self) -> Append<Part> {
        Append::put(0, self.part(BYTES))
    }

    /// A put of the first `bytes` bytes of the memory to `to`.
    pub fn put_to(&self, to: &Self, bytes: u64) -> Put<Part> {
        Put::new(to.portal(), self.part(bytes))
    }

    pub fn launch(&mut self, command: &impl Command<(), BadValue>) -> Handle {
        let handle = self.port.try_launch(command).expect("a free slot");
        self.port.announce();
        handle
    }

    /// The next event.
    pub fn event(&mut self) -> Event {
        let mut event = None;
        until("an event", || {
            event = self.port.try_event();
            event.is_some()
        });
        event.unwrap()
    }

    pub fn expect(&mut self, kind: EventKind, outcome: Outcome) -> Event {
        let event = self.event();
        assert_eq!((event.kind, event.outcome), (kind, outcome), "{event:?}");
        event
    }

    /// Waits until the device has taken all posts and applied their immediate effects.
    pub fn settle(&self) {
        self.port.port().guest().statistics().unwrap();
    }
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ seed).collect()
}

/// A put of `bytes` into a posted entry, checked at both ends.
pub fn exchange(from: &mut Side, to: &mut Side, seed: u8, bytes: u64) {
    from.fill(seed, bytes as usize);
    to.launch(&to.entry());
    to.settle();
    from.launch(&from.put_to(to, bytes).ack());
    let put = to.expect(EventKind::Put, Outcome::Done);
    assert_eq!((put.requested_bytes, put.moved_bytes), (bytes, bytes));
    to.expect(EventKind::Unlinked, Outcome::Done);
    assert!(to.holds(seed, 0, bytes as usize), "{bytes}");
    assert_eq!(from.expect(EventKind::Acknowledged, Outcome::Done).moved_bytes, bytes);
}

pub fn set_faults(lab: &Lab, node: usize, faults: Faults) {
    let request = Request::SetFaults { node: lab.config().nodes[node].name.clone(), faults };
    assert_eq!(answer(lab.daemon().shell(), &request), Answer::Done);
}

#[test]
fn puts_of_all_sizes_arrive_complete() {
    for mtu_bytes in [256, 1500, 9000] {
        let lab = match_lab(2, mtu_bytes);
        let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
        for (seed, bytes) in (1..).zip([0, 1, 7, 8, 64, 1_411, 1_412, 1_413, 8_999, 65_536, BYTES - 1, BYTES])
        {
            exchange(&mut a, &mut b, seed, bytes);
            exchange(&mut b, &mut a, !seed, bytes);
        }
        assert!(violations(&lab, 0).is_empty() && violations(&lab, 1).is_empty());
        let counts = stats(&lab, 1).nic_counts;
        assert_eq!((counts["expected"], counts["headers"]), (12, 12), "{counts:?}");
        let locked = lab.daemon().shell().lock_all();
        assert!(!deadlines::is_waiting(&locked), "a timer runs although all frames are acknowledged");
    }
}

#[test]
fn get_reads_the_memory_of_an_entry() {
    let lab = match_lab(2, 1500);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    for (seed, bytes) in [(1, 0), (2, 64), (3, 100_000), (4, BYTES)] {
        b.fill(seed, bytes as usize);
        b.launch(&Append::get(0, b.part(BYTES)));
        b.settle();
        a.launch(&Get::new(b.portal(), a.part(bytes)).user(5));
        let reply = a.expect(EventKind::Reply, Outcome::Done);
        assert_eq!((reply.user, reply.moved_bytes), (5, bytes));
        assert!(a.holds(seed, 0, bytes as usize), "{bytes}");
        b.expect(EventKind::Get, Outcome::Done);
        b.expect(EventKind::Unlinked, Outcome::Done);
    }
    a.launch(&Get::new(b.portal(), a.part(8)));
    a.expect(EventKind::Reply, Outcome::NoMatch);
}

#[test]
fn unexpected_message_waits_for_its_receive() {
    let lab = match_lab(2, 1500);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    b.launch(&b.entry().overflow().threshold(2).match_bits(0, !0));
    b.settle();
    for tag in [1, 2] {
        a.fill(tag, 5_000);
        a.launch(&a.put_to(&b, 5_000).match_bits(tag.into()));
        b.expect(EventKind::Unexpected, Outcome::Done);
    }
    b.expect(EventKind::Unlinked, Outcome::Done);
    for tag in [2, 1] {
        b.launch(&b.entry().match_bits(tag.into(), 0).user(40 + u64::from(tag)));
        let event = b.event();
        assert!(matches!(event.kind, EventKind::Claimed { .. }), "{event:?}");
        let found = (event.outcome, event.user, event.match_bits);
        assert_eq!(found, (Outcome::Done, 40 + u64::from(tag), tag.into()));
        assert!(b.holds(tag, event.offset, 5_000));
        b.expect(EventKind::Unlinked, Outcome::Done);
    }
}

#[test]
fn memory_in_many_extents_is_one_region() {
    let lab = match_lab(2, 9000);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    // In reverse order, so that no two extents touch. One request cannot carry all of them.
    let pages = BYTES / 4096 / 2;
    let mut extents: Vec<Extent> =
        (0..pages).map(|page| Extent { address: b.address + page * 8192, bytes: 4096 }).collect();
    extents.reverse();
    // All are whole pages, except at both ends.
    extents[0].address += 4096 - 100;
    extents[0].bytes = 100;
    extents.last_mut().unwrap().bytes = 3;
    assert!(extents.len() > MAX_EXTENTS as usize - 1);
    let bytes: u64 = extents.iter().map(|extent| extent.bytes).sum();
    let region = b.port.register_extents(&extents).unwrap();
    a.fill(9, bytes as usize);
    b.launch(&Append::put(0, Part { region, offset: 0, bytes }));
    b.settle();
    a.launch(&a.put_to(&b, bytes));
    b.expect(EventKind::Put, Outcome::Done);
    let memory = b.port.port().guest().memory();
    let mut found = vec![0; bytes as usize];
    let mut rest = &mut found[..];
    for extent in &extents {
        let (place, remaining) = rest.split_at_mut(extent.bytes as usize);
        memory.slice(extent.address, place.len()).unwrap().copy_to(place);
        rest = remaining;
    }
    assert!(found == pattern(9, bytes as usize));
}

/// One poll of a page processes only a part of a long message. Posts of other nodes need not wait for the end of the
/// message.
#[test]
fn long_message_shares_the_daemon_with_other_messages() {
    let lab = match_lab(4, 1500);
    let mut sides: Vec<Side> = (0..4).map(|node| Side::new(&lab, node)).collect();
    let [a, b, c, d] = sides.as_mut_slice() else { unreachable!() };
    b.launch(&b.entry());
    d.launch(&d.entry().persistent().remote_offset());
    b.settle();
    d.settle();
    a.fill(7, BYTES as usize);
    // No doorbell is rung: only this thread polls the pages.
    let shell = lab.daemon().shell();
    a.port.try_launch(&a.put_to(b, BYTES)).unwrap();
    assert!(wait::poll_once(shell, 0).more, "one poll sent the whole message");
    c.port.try_launch(&c.put_to(d, 8)).unwrap();
    wait::poll_once(shell, 2);
    assert!(d.port.try_event().is_some(), "the other message waits for the long one");
    assert!(b.port.try_event().is_none());
    // A budget is half a millisecond by estimate, and a megabyte in frames of 1,500 bytes takes about as long.
    let mut turns = 2;
    while wait::poll_once(shell, 0).more {
        turns += 1;
    }
    assert!((2..100).contains(&turns), "{turns}");
    b.expect(EventKind::Put, Outcome::Done);
    assert!(!deadlines::is_waiting(&shell.lock_all()));
}

#[test]
fn messages_survive_loss_duplication_corruption_and_reordering() {
    let lab = match_lab(2, 1500);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    let faults = Faults { loss: 0.1, duplicate: 0.1, corrupt: 0.1, reorder: 0.1, ..Faults::default() };
    set_faults(&lab, 0, faults);
    set_faults(&lab, 1, faults);
    for (seed, bytes) in (1..).zip([0, 64, 3_000, 20_000, 100_000]) {
        exchange(&mut a, &mut b, seed, bytes);
        exchange(&mut b, &mut a, !seed, bytes);
    }
    let counts = stats(&lab, 0).nic_counts;
    assert!(counts["retransmissions"] > 0 && counts["frames_discarded"] > 0, "{counts:?}");
    until("all is acknowledged", || !deadlines::is_waiting(&lab.daemon().shell().lock_all()));
}

/// A lab of four nodes: node 0 is hostile, node 1 its partner, and nodes 2 and 3 must not be affected.
struct Scene {
    lab: Lab,
    hostile: Side,
    partner: Side,
    others: [Side; 2],
}

impl Scene {
    fn new() -> Self {
        let lab = match_lab(4, 1500);
        let [hostile, partner] = [0, 1].map(|node| Side::new(&lab, node));
        let others = [2, 3].map(|node| Side::new(&lab, node));
        Self { lab, hostile, partner, others }
    }

    fn assert_others_go_on(&mut self) {
        let [a, b] = &mut self.others;
        for (seed, bytes) in [(1, 64), (2, 100_000)] {
            exchange(a, b, seed, bytes);
            exchange(b, a, seed, bytes);
        }
        assert!(violations(&self.lab, 2).is_empty() && violations(&self.lab, 3).is_empty());
    }
}

fn status<T: std::fmt::Debug>(result: Result<T, FrontendError>) -> u32 {
    match result {
        Err(FrontendError::Refused { status, .. }) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_outside_of_the_guest_cannot_be_registered() {
    let mut scene = Scene::new();
    let Side { port, address, .. } = &scene.hostile;
    let end = port.port().guest().memory().end();
    for (address, bytes) in [(end - 8, 16), (end, 1), (0, 8), (*address, u64::MAX), (u64::MAX, 1)] {
        let refused = status(port.register(address, bytes));
        assert!([STATUS_BAD_ADDRESS, STATUS_BAD_VALUE].contains(&refused), "{address:#x} {bytes}: {refused}");
    }
    let good = Extent { address: *address, bytes: 4096 };
    let bad = Extent { address: end, bytes: 8 };
    assert_eq!(status(port.register_extents(&[good, bad])), STATUS_BAD_ADDRESS);
    let single_bytes: Vec<_> = (0..64).map(|byte| Extent { address: address + 2 * byte, bytes: 1 }).collect();
    assert_eq!(status(port.register_extents(&single_bytes)), STATUS_BAD_ADDRESS);
    assert_eq!(status(port.register(*address, 0)), STATUS_BAD_VALUE);
    assert_eq!(status(port.deregister(77)), STATUS_NOT_FOUND);
    let of_closed_port = RegionOpen { port: 5, extents: 1, bytes: 8, reserved: 0 };
    let mut body = vec![0; 24 + 16];
    niclab_abi::ToBytes::to_bytes(&of_closed_port, &mut body);
    niclab_abi::ToBytes::to_bytes(&good, &mut body[24..]);
    assert_eq!(status(port.port().guest().request(OP_REGION_OPEN, &body)), STATUS_BAD_PORT);
    scene.assert_others_go_on();
}

#[test]
fn closed_regions_are_not_accessed() {
    let mut scene = Scene::new();
    let Scene { hostile, partner, .. } = &mut scene;
    let before = hostile.put_to(partner, 64);
    hostile.launch(&hostile.entry());
    hostile.settle();
    hostile.port.deregister(hostile.region).unwrap();
    assert_eq!(status(hostile.port.deregister(hostile.region)), STATUS_NOT_FOUND);
    hostile.launch(&before);
    hostile.expect(EventKind::Refused, Outcome::BadRegion);
    hostile.launch(&hostile.entry());
    hostile.expect(EventKind::Refused, Outcome::BadRegion);
    // The entry was unlinked with its memory.
    hostile.fill(0x55, 64);
    partner.launch(&partner.put_to(hostile, 64).ack());
    partner.expect(EventKind::Acknowledged, Outcome::NoMatch);
    assert!(hostile.holds(0x55, 0, 64));
    // The old name stays invalid, even when its number is in use again.
    let again = hostile.port.register(hostile.address, BYTES).unwrap();
    assert_ne!(again, hostile.region);
    hostile.launch(&before);
    hostile.expect(EventKind::Refused, Outcome::BadRegion);
    scene.assert_others_go_on();
}

#[test]
fn closing_a_region_ends_its_transfers() {
    let lab = match_lab(2, 1500);
    let (mut a, mut b) = (Side::new(&lab, 0), Side::new(&lab, 1));
    b.launch(&b.entry());
    b.settle();
    // The link is cut, so that the put stays in flight.
    set_faults(&lab, 1, Faults { partition: true, ..Faults::default() });
    a.launch(&a.put_to(&b, BYTES).ack().sent());
    a.settle();
    a.port.deregister(a.region).unwrap();
    set_faults(&lab, 1, Faults::default());
    let event = a.event();
    assert_eq!(event.outcome, Outcome::BadRegion, "{event:?}");
    // The connection between the cards continues.
    a.region = a.port.register(a.address, BYTES).unwrap();
    a.fill(3, 500);
    b.launch(&b.entry().match_bits(8, 0));
    b.settle();
    a.launch(&a.put_to(&b, 500).match_bits(8));
    until("the second put", || {
        b.port.try_event().is_some_and(|event| (event.kind, event.match_bits) == (EventKind::Put, 8))
    });
    assert!(b.holds(3, 0, 500));
}

#[test]
fn ranges_beyond_a_region_are_refused() {
    let mut scene = Scene::new();
    let Scene { hostile, partner, .. } = &mut scene;
    let (portal, part) = (partner.portal(), hostile.part(8));
    for (offset, bytes) in [(BYTES, 1), (0, BYTES + 1), (u64::MAX, 8), (BYTES - 7, 8)] {
        hostile.launch(&Put::new(portal, Part { offset, bytes, ..part }));
        hostile.expect(EventKind::Refused, Outcome::BadRange);
        hostile.launch(&Append::put(0, Part { offset, bytes, ..part }));
        hostile.expect(EventKind::Refused, Outcome::BadRange);
    }
    let nowhere = Target { port: Address { node: 4, ..portal.port }, ..portal };
    hostile.launch(&Put::new(nowhere, part));
    hostile.expect(EventKind::Refused, Outcome::NoTarget);
    hostile.launch(&Put::new(portal, Part { bytes: u64::MAX, ..part }));
    hostile.expect(EventKind::Refused, Outcome::BadValue);
    hostile.launch(&Put::new(portal, Part { region: partner.region ^ 0xffff_0000, ..part }));
    hostile.expect(EventKind::Refused, Outcome::BadRegion);
    assert_eq!(stats(&scene.lab, 0).nic_counts["commands_refused"], 11);
    scene.assert_others_go_on();
}

#[test]
fn flood_of_long_messages_does_not_stall_other_nodes() {
    let mut scene = Scene::new();
    let put = scene.hostile.put_to(&scene.partner, BYTES);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let Scene { hostile, others, .. } = &mut scene;
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // The target has no entry for them, and no program reads the events.
                hostile.port.try_launch(&put);
                hostile.port.port().guest().ring();
            }
        });
        let _stop = Stop(stop);
        let [a, b] = others;
        for seed in 0..20 {
            exchange(a, b, seed, 10_000);
        }
    });
    scene.assert_others_go_on();
}

#[test]
fn vanished_guest_leaves_no_posted_receives() {
    let mut scene = Scene::new();
    let mut partner = scene.partner;
    scene.hostile.launch(&scene.hostile.entry());
    scene.hostile.settle();
    let number = scene.hostile.number();
    let put = partner.put_to(&scene.hostile, 100_000);
    for _ in 0..8 {
        scene.hostile.launch(&scene.hostile.put_to(&partner, BYTES));
    }
    drop(scene.hostile);
    until("node 0 is gone", || !scene.lab.daemon().shell().connected()[0].cluster);
    partner.launch(&put.ack());
    // A new guest has the same card, and none of the posted entries.
    let mut hostile = Side::new(&scene.lab, 0);
    assert_eq!(hostile.number(), number);
    // Timing decides whether the new port is already open when the put is retransmitted.
    let event = partner.event();
    assert_eq!((event.kind, event.moved_bytes), (EventKind::Acknowledged, 0));
    assert!([Outcome::NoTarget, Outcome::NoMatch].contains(&event.outcome), "{event:?}");
    exchange(&mut partner, &mut hostile, 5, 3_000);
    scene.partner = partner;
    scene.hostile = hostile;
    scene.assert_others_go_on();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Commands of random words: each is refused or executed, and the daemon and the other nodes continue.
    #[test]
    fn random_commands_are_answered(
        commands in prop::collection::vec((any::<u32>(), 0..8_u32, any::<[u64; 10]>()), 1..100),
    ) {
        let mut scene = Scene::new();
        for (code, command, mut words) in commands {
            // Half of them are nearly valid.
            let code = if command == 0 { code } else { command | (code & 0xff << 8) };
            if code & 1 == 1 {
                words[3] = u64::from(scene.hostile.region) | (words[3] & 7) << 40 | (words[3] >> 3 & 1) << 48;
                words[4] &= 0xf_ffff;
                words[5] &= 0xf_ffff;
                words[7..].fill(0);
            }
            let begin = std::time::Instant::now();
            while scene.hostile.port.port_mut().try_command(code, &words).is_none() {
                while scene.hostile.port.try_event().is_some() {}
                assert!(begin.elapsed() < TIMEOUT, "the card takes no more commands");
            }
            scene.hostile.port.announce();
            while scene.hostile.port.try_event().is_some() {}
        }
        scene.hostile.settle();
        scene.assert_others_go_on();
        prop_assert!(!violations(&scene.lab, 0).contains_key("dma_outside_memory"));
    }
}
