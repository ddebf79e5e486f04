//! Match cards compared with a plain implementation of Portals. Programs post, send and unlink at random, and the
//! network loses, duplicates, damages and reorders frames. Every message must match as the rule says, once and in the
//! order of sending.

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::firmware::*;
use niclab_abi::matching::*;
use niclab_model::models::matching::item::{self, Item};
use niclab_model::models::matching::program;
use niclab_model::models::matching::wire::{Frame, FrameKind, Header, Operation};
use niclab_model::nic::{Input, Nic, Observed};
use niclab_model::random::Random;
use proptest::prelude::*;

use crate::support::matching::{Cluster, Event, Posted, Transfer, pattern};

const NODES: usize = 3;
const PORTS: u32 = 2;
const EVENTS: u32 = 512;
/// The registered memory. Its extents are in the reverse order of their addresses.
const MEMORY: u64 = 0x20_0000;
const EXTENT: u64 = 0x8000;
const EXTENTS: u64 = 32;
/// Address of the driver's firmware image.
const IMAGE: u64 = 0x2_0000;
/// Offset of the entries' memory: the lower half of a region holds the data of puts and gets, the upper half the
/// entries.
const ENTRIES: u64 = EXTENTS * EXTENT / 2;

/// A port of a node.
type End = (usize, u32);

/// An entry of the plain rule.
#[derive(Clone, Debug)]
struct Entry {
    handle: u32,
    item: Item,
    is_overflow: bool,
    memory: u64,
}

/// A message that no posted entry matched.
#[derive(Clone, Debug)]
struct Unexpected {
    header: Header,
    offset: u64,
    length: u64,
    entry: Entry,
}

/// The expected event of a message at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    kind: u32,
    result: u32,
    handle: u32,
    offset: u64,
    moved: u64,
    overflow_handle: u64,
}

/// The plain Portals state of one port, and the expected events.
#[derive(Default)]
struct Portals {
    entries: Vec<Entry>,
    unexpected: Vec<Unexpected>,
    /// Expected events, by message and kind.
    due: BTreeMap<(u64, u32), Outcome>,
    /// Handles of unlinked entries, and whether an event must report the unlinking.
    unlinked: BTreeMap<u32, bool>,
    /// Offset of each entry's memory, and whether the sender names the offset in it.
    memory: BTreeMap<u32, (u64, bool)>,
    region: u32,
    launched: u32,
    next_source: u64,
    next_entry: u64,
}

/// A put or get at its initiator.
#[derive(Clone, Copy, Debug)]
struct Launched {
    from: End,
    to: End,
    is_get: bool,
    bytes: u64,
    memory: u64,
    flags: u32,
    /// The target's decision: result, bytes moved, offset, and the entry's memory.
    decided: Option<(u32, u64, u64, u64)>,
    acks: u32,
    sents: u32,
    replies: u32,
}

impl Launched {
    fn decide(&mut self, result: u32, moved: u64, offset: u64, memory: u64) {
        assert!(self.decided.replace((result, moved, offset, memory)).is_none(), "decided twice");
    }
}

struct Simulation {
    cluster: Cluster,
    random: Random,
    portals: BTreeMap<End, Portals>,
    launched: Vec<Launched>,
    /// Next sequence number of frames, by sender and receiver.
    next_frame: BTreeMap<(u16, u16), u32>,
    /// The last message that arrived, by sending port and receiving node.
    last: BTreeMap<(u16, u8, u16), u64>,
    faults: u64,
}

impl Portals {
    fn list(&self) -> impl Iterator<Item = &Entry> {
        let posted = self.entries.iter().filter(|entry| !entry.is_overflow);
        posted.chain(self.entries.iter().filter(|entry| entry.is_overflow))
    }

    fn consume(&mut self, handle: u32, length: u64) {
        let place = self.entries.iter().position(|entry| entry.handle == handle).unwrap();
        if crate::plain_rule::uses_up(&mut self.entries[place].item, length) {
            self.entries.remove(place);
            self.unlinked.insert(handle, true);
        }
    }

    /// Processes an arriving header. Returns result, bytes, offset, and the beginning of the entry's memory.
    fn arrive(&mut self, header: &Header) -> (u32, u64, u64, u64) {
        let wanted = header.for_matching();
        let taker =
            self.list().find_map(|entry| Some((entry, crate::plain_rule::takes(&entry.item, &wanted)?)));
        let Some((entry, (offset, moved))) = taker else {
            return (RESULT_NO_MATCH, 0, 0, 0);
        };
        let entry = entry.clone();
        let result = if moved < header.bytes { RESULT_TRUNCATED } else { RESULT_OK };
        let kind = match (header.operation, entry.is_overflow) {
            (Operation::Get, _) => EVENT_GET,
            (_, true) => EVENT_PUT_UNEXPECTED,
            (_, false) => EVENT_PUT,
        };
        let outcome = Outcome { kind, result, handle: entry.handle, offset, moved, overflow_handle: 0 };
        self.due.insert((header.header_data, kind), outcome);
        self.consume(entry.handle, moved);
        let memory = entry.memory;
        if entry.is_overflow {
            self.unexpected.push(Unexpected { header: *header, offset, length: moved, entry });
        }
        (result, moved, offset, memory)
    }

    fn append(&mut self, entry: Entry) {
        let handle = entry.handle;
        self.memory.insert(handle, (entry.memory, entry.item.has(item::flag::REMOTE_OFFSET)));
        let searches = !entry.is_overflow;
        self.entries.push(entry);
        let mut place = 0;
        while searches && place < self.unexpected.len() {
            let Some(entry) = self.entries.iter().find(|entry| entry.handle == handle) else { break };
            let unexpected = &self.unexpected[place];
            let Some((_, length)) = crate::plain_rule::takes(&entry.item, &unexpected.header.for_matching())
            else {
                place += 1;
                continue;
            };
            let Unexpected { header, offset, length: moved, entry: overflow } = self.unexpected.remove(place);
            let kind = EVENT_PUT_OVERFLOW;
            let result = if moved < header.bytes { RESULT_TRUNCATED } else { RESULT_OK };
            let overflow_handle = overflow.handle.into();
            let outcome = Outcome { kind, result, handle, offset, moved, overflow_handle };
            self.due.insert((header.header_data, kind), outcome);
            self.consume(handle, length);
        }
    }
}

/// The address of an offset in a region.
fn address(offset: u64) -> u64 {
    MEMORY + (EXTENTS - 1 - offset / EXTENT) * EXTENT + offset % EXTENT
}

impl Simulation {
    fn new(seed: u64, faults: u64) -> Self {
        let mut cluster = Cluster::with(NODES as u32, |config| {
            config.match_entries = 4;
            config.window_frames = 6;
            config.mtu_bytes = 400;
        });
        let mut portals = BTreeMap::new();
        for node in 0..NODES {
            let spill = SpillOpen { address: 0x1_0000, bytes: 0x8000 };
            assert_eq!(cluster.control(node, &crate::support::request(OP_SPILL_OPEN, &spill)).0, 0);
            for port in 0..PORTS {
                assert_eq!(cluster.open_with(node, EVENTS), port);
                let extents: Vec<_> = (0..EXTENTS).map(|place| (address(place * EXTENT), EXTENT)).collect();
                // Both ports of a node register the same memory. Each uses one half of the lower and of the upper half.
                let region = cluster.register(node, port, &extents);
                let share = u64::from(port) * ENTRIES / 2;
                let of_port =
                    Portals { region, next_source: share, next_entry: ENTRIES + share, ..Portals::default() };
                portals.insert((node, port), of_port);
            }
        }
        Self {
            cluster,
            random: Random::new(seed, 0),
            portals,
            launched: Vec::new(),
            next_frame: BTreeMap::new(),
            last: BTreeMap::new(),
            faults,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn end(&mut self) -> End {
        (self.below(NODES as u64) as usize, self.below(PORTS.into()) as u32)
    }

    fn write(&mut self, node: usize, offset: u64, bytes: &[u8]) {
        for (place, byte) in bytes.iter().enumerate() {
            self.cluster.write(node, address(offset + place as u64), &[*byte]);
        }
    }

    fn read(&self, node: usize, offset: u64, bytes: u64) -> Vec<u8> {
        (offset..offset + bytes).map(|at| self.cluster.read(node, address(at), 1)[0]).collect()
    }

    fn accepts(&self, end: End) -> bool {
        self.cluster.hosts[end.0].nic.accepts_store(end.1)
    }

    fn launch_transfer(&mut self) {
        let (from, to) = (self.end(), self.end());
        let number = self.launched.len() as u64;
        let bytes = [0, 1, 40, 300, 301, 1_500][self.below(6) as usize];
        let is_get = self.below(5) == 0;
        let flags = if is_get {
            0
        } else {
            [0, COMMAND_ACK, COMMAND_SENT, COMMAND_ACK | COMMAND_SENT][self.below(4) as usize]
        };
        let (match_bits, remote_offset) = (self.below(3), self.below(3) * 50);
        let source = self.portals.get_mut(&from).unwrap();
        if !self.cluster.hosts[from.0].nic.accepts_store(from.1)
            || source.next_source % (ENTRIES / 2) + bytes >= ENTRIES / 2 - 2_000
        {
            return;
        }
        let memory = source.next_source;
        source.next_source += bytes;
        source.launched += 1;
        let transfer = Transfer {
            match_bits,
            header_data: number,
            user: number,
            node: to.0 as u64,
            port: to.1.into(),
            region: source.region,
            offset: memory,
            bytes,
            remote_offset,
            ..Transfer::default()
        };
        let (decided, acks, sents, replies) = (None, 0, 0, 0);
        self.launched.push(Launched {
            from,
            to,
            is_get,
            bytes,
            memory,
            flags,
            decided,
            acks,
            sents,
            replies,
        });
        if is_get {
            self.cluster.get(from.0, from.1, 0, &transfer);
        } else {
            self.write(from.0, memory, &pattern(number, bytes as usize));
            self.cluster.put(from.0, from.1, flags, &transfer);
        }
    }

    fn append(&mut self) {
        let end = self.end();
        let bytes = [0, 40, 300, 3_000][self.below(4) as usize];
        let draws: [u64; 8] = core::array::from_fn(|_| self.random.next());
        if !self.accepts(end) {
            return;
        }
        let portals = self.portals.get_mut(&end).unwrap();
        if portals.next_entry % (ENTRIES / 2) + bytes >= ENTRIES / 2 - 4_000 {
            return;
        }
        portals.launched += 1;
        let memory = portals.next_entry;
        portals.next_entry += bytes;
        let happens = |place: usize, of: u64| draws[place].is_multiple_of(of);
        let is_overflow = happens(0, 3);
        let is_for_gets = !is_overflow && happens(1, 4);
        let mut flags = if is_for_gets { ENTRY_GET } else { ENTRY_PUT };
        for (place, of, flag) in [(2, 4, ENTRY_REMOTE_OFFSET), (3, 3, ENTRY_TRUNCATE), (4, 4, ENTRY_MAX_SIZE)]
        {
            flags |= if happens(place, of) { flag } else { 0 };
        }
        flags |= if is_overflow { ENTRY_OVERFLOW } else { 0 };
        let posted = Posted {
            match_bits: draws[5] % 3,
            ignore_bits: if is_overflow { u64::MAX } else { draws[5] >> 8 & 1 },
            user: 1_000_000 + memory,
            node: if happens(6, 3) { draws[6] >> 8 & 1 } else { ANY_NODE },
            port: if happens(7, 3) { draws[7] >> 8 & 1 } else { ANY_PORT },
            region: portals.region,
            offset: memory,
            bytes,
            threshold: [1, 1, 3, THRESHOLD_INFINITE][(draws[1] >> 8) as usize % 4],
            max_size: if flags & ENTRY_MAX_SIZE != 0 { bytes / 2 } else { 0 },
            ..Posted::default()
        };
        let flag = |of: u32, is: u16| if flags & of != 0 { is } else { 0 };
        let item = Item {
            match_bits: posted.match_bits,
            dont_ignore_bits: !posted.ignore_bits,
            node: if posted.node == ANY_NODE { item::ANY_NODE } else { posted.node as u32 },
            process: if posted.port == ANY_PORT { item::ANY_PROCESS } else { posted.port as u16 },
            flags: item::flag::VALID
                | flag(ENTRY_PUT, item::flag::PUT)
                | flag(ENTRY_GET, item::flag::GET)
                | flag(ENTRY_REMOTE_OFFSET, item::flag::REMOTE_OFFSET)
                | flag(ENTRY_TRUNCATE, item::flag::TRUNCATE)
                | flag(ENTRY_MAX_SIZE, item::flag::MAX_SIZE),
            length: bytes,
            max_size: posted.max_size,
            threshold: posted.threshold as u32,
            ..Item::default()
        };
        portals.append(Entry { handle: portals.launched, item, is_overflow, memory });
        if is_for_gets {
            self.write(end.0, memory, &pattern(memory, bytes as usize));
        }
        self.cluster.append(end.0, end.1, flags, &posted);
    }

    fn unlink(&mut self) {
        let end = self.end();
        let draw = self.random.next();
        if !self.accepts(end) {
            return;
        }
        let portals = self.portals.get_mut(&end).unwrap();
        let Some(handle) = portals.entries.get(draw as usize % 8).map(|entry| entry.handle) else { return };
        portals.entries.retain(|entry| entry.handle != handle);
        portals.unlinked.insert(handle, true);
        portals.launched += 1;
        let mut words = [0; 10];
        words[0] = handle.into();
        self.cluster.launch(end.0, end.1, COMMAND_UNLINK, words);
    }

    /// Loads the same program again while messages are in flight.
    fn load_firmware(&mut self) {
        let (node, _) = self.end();
        self.cluster.write(node, IMAGE, program::PORTALS);
        let load = FirmwareLoad { address: IMAGE, bytes: program::PORTALS.len() as u32, reserved: 0 };
        assert_eq!(self.cluster.control(node, &crate::support::request(OP_FIRMWARE_LOAD, &load)).0, 0);
    }

    /// Delivers, loses, duplicates or damages one of the frames on the wire.
    fn deliver(&mut self) -> bool {
        let waiting = self.cluster.wire.len();
        if waiting == 0 {
            return false;
        }
        let draw = self.below(100);
        let is_any = draw < self.faults;
        let place = if is_any && draw.is_multiple_of(5) { self.below(waiting as u64) as usize } else { 0 };
        let mut flying = self.cluster.wire.remove(place).unwrap();
        match draw % 5 {
            1 if is_any => return true,
            2 if is_any => self.cluster.wire.push_back(flying.clone()),
            3 if is_any => {
                let bit = self.below(flying.frame.len() as u64 * 8) as usize;
                flying.frame.flip(bit as u32);
            }
            _ => {}
        }
        let to = usize::from(u16::from_be_bytes([flying.frame[4], flying.frame[5]]));
        if to >= NODES {
            return true;
        }
        self.watch(to, &flying.frame);
        self.cluster.deliver(&flying);
        true
    }

    /// Applies a frame to the plain rule, if it is the next one of its link.
    fn watch(&mut self, to: usize, frame: &[u8]) {
        let Ok(Frame { link, kind, .. }) = Frame::parse(frame) else { return };
        let next = self.next_frame.entry((link.source, link.destination)).or_default();
        if link.destination as usize != to
            || matches!(kind, FrameKind::Acknowledgement)
            || link.sequence != *next
        {
            return;
        }
        *next += 1;
        let FrameKind::First(header) = kind else { return };
        if matches!(header.operation, Operation::Ack | Operation::Reply) {
            return;
        }
        let number = header.header_data;
        let before = self.last.insert((link.source, header.source_port, to as u16), number);
        assert!(before.is_none_or(|before| before < number), "in the order of the posts");
        let portals = self.portals.get_mut(&(to, header.target_port.into())).unwrap();
        let (result, moved, offset, memory) = portals.arrive(&header);
        self.launched[number as usize].decide(result, moved, offset, memory);
    }

    /// Lets the earliest deadline of all cards expire.
    fn expire(&mut self) -> bool {
        let deadlines = self.cluster.hosts.iter().enumerate();
        let next = deadlines.filter_map(|(node, host)| Some((host.nic.poll_timeout()?, node))).min();
        let Some((at, node)) = next else { return false };
        self.cluster.hosts[node].nic.handle(at, Input::Timeout);
        self.cluster.carry(node);
        true
    }

    /// Every program reads its events and compares them with the expected ones.
    fn read_events(&mut self) {
        for node in 0..NODES {
            for port in 0..PORTS {
                let mut any = false;
                while let Some(event) = self.cluster.event(node, port) {
                    any = true;
                    self.on_event((node, port), &event);
                }
                if any {
                    self.cluster.release(node, port);
                }
            }
        }
    }

    fn on_event(&mut self, end: End, event: &Event) {
        let number = event.words.header_data;
        match event.kind {
            EVENT_PUT | EVENT_PUT_UNEXPECTED | EVENT_PUT_OVERFLOW | EVENT_GET => {
                let portals = self.portals.get_mut(&end).unwrap();
                let due = portals.due.remove(&(number, event.kind));
                let found = Outcome {
                    kind: event.kind,
                    result: event.result,
                    handle: event.handle,
                    offset: event.words.offset,
                    moved: event.words.moved_bytes,
                    overflow_handle: event.words.overflow_handle,
                };
                assert_eq!(Some(found), due, "message {number}");
                let launched = self.launched[number as usize];
                assert_eq!((event.node as usize, event.port), launched.from);
                let holder = if event.kind == EVENT_PUT_OVERFLOW {
                    found.overflow_handle as u32
                } else {
                    event.handle
                };
                let (memory, is_remote) = portals.memory[&holder];
                if event.kind != EVENT_GET && !is_remote {
                    let data = self.read(end.0, memory + found.offset, found.moved);
                    assert_eq!(data, &pattern(number, launched.bytes as usize)[..found.moved as usize]);
                }
            }
            EVENT_UNLINKED => {
                let portals = self.portals.get_mut(&end).unwrap();
                assert_eq!(portals.unlinked.remove(&event.handle), Some(true), "{event:?}");
                assert!(
                    portals.due.values().all(|due| due.handle != event.handle),
                    "its last operation has completed"
                );
            }
            EVENT_ACK | EVENT_SENT | EVENT_REPLY => self.on_end(end, event),
            _ => panic!("{event:?}"),
        }
    }

    fn on_end(&mut self, end: End, event: &Event) {
        let number = event.words.user;
        let data = self.launched[number as usize];
        let launched = &mut self.launched[number as usize];
        assert_eq!(launched.from, end);
        let decided = launched.decided;
        match event.kind {
            EVENT_SENT => launched.sents += 1,
            EVENT_ACK => launched.acks += 1,
            _ => launched.replies += 1,
        }
        if event.kind == EVENT_SENT {
            // The program owns the memory again and overwrites it.
            self.write(end.0, data.memory, &vec![0xee; data.bytes as usize]);
            return;
        }
        let (result, moved, offset, memory) = decided.unwrap();
        assert_eq!((event.result, event.words.moved_bytes, event.words.offset), (result, moved, offset));
        if event.kind == EVENT_REPLY && moved > 0 {
            let there = self.read(data.to.0, memory + offset, moved);
            assert_eq!(self.read(end.0, data.memory, moved), there);
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..=4 => self.launch_transfer(),
            5..=7 => self.append(),
            8 => self.unlink(),
            9..=17 => drop(self.deliver()),
            18 if self.cluster.wire.is_empty() => drop(self.expire()),
            18 => self.load_firmware(),
            _ => self.read_events(),
        }
    }

    /// Ends all faults and lets everything arrive.
    fn settle(&mut self) {
        self.faults = 0;
        loop {
            while self.deliver() {}
            self.read_events();
            if self.cluster.wire.is_empty() && !self.expire() {
                break;
            }
        }
        self.read_events();
    }

    fn check_end(&mut self) {
        for (number, launched) in self.launched.iter().enumerate() {
            let wants = |flag| u32::from(launched.flags & flag != 0);
            let told = (launched.sents, launched.acks, launched.replies);
            let due = (wants(COMMAND_SENT), wants(COMMAND_ACK), u32::from(launched.is_get));
            assert_eq!(told, due, "message {number}: {launched:?}");
            assert!(launched.decided.is_some(), "message {number} never arrived");
        }
        for (end, portals) in &self.portals {
            assert!(portals.due.is_empty(), "{end:?}: {:?}", portals.due);
            assert!(portals.unlinked.is_empty(), "{end:?}: {:?}", portals.unlinked);
        }
        for node in 0..NODES {
            let linked: usize = (0..PORTS).map(|port| self.portals[&(node, port)].entries.len()).sum();
            assert_eq!(self.cluster.statistics(node)["entries"], linked as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_match_as_the_plain_rule_says(
        seed: u64,
        faults in prop_oneof![Just(0_u64), Just(5), Just(40)],
        steps in 1..600_usize,
    ) {
        let mut simulation = Simulation::new(seed, faults);
        for _ in 0..steps {
            simulation.step();
        }
        simulation.settle();
        simulation.check_end();
        // The same run with cards that borrow the data of frames must have the same frames, memory and counts.
        let mut twin = Simulation::new(seed, faults);
        twin.cluster.borrows = true;
        for _ in 0..steps {
            twin.step();
        }
        twin.settle();
        twin.check_end();
        prop_assert_eq!(simulation.cluster.borrowed, 0);
        let (copied, borrowed) = (simulation.cluster, twin.cluster);
        prop_assert_eq!(borrowed.borrowed > 0, copied.sent.iter().any(|(_, frame)| has_data(frame)));
        prop_assert!(copied.sent == borrowed.sent, "the same frames at the same times, check words included");
        for (node, (copied, borrowed)) in copied.hosts.iter().zip(&borrowed.hosts).enumerate() {
            prop_assert!(copied.memory == borrowed.memory, "the memory of node {}", node);
            prop_assert_eq!(copied.nic.ledger(), borrowed.nic.ledger());
            prop_assert_eq!(copied.nic.nic.counters(), borrowed.nic.nic.counters());
            prop_assert_eq!(&copied.nic.node, &borrowed.nic.node);
            prop_assert_eq!(&copied.interrupts, &borrowed.interrupts);
        }
    }
}

fn has_data(frame: &[u8]) -> bool {
    Frame::parse(frame).is_ok_and(|frame| !frame.data.is_empty())
}

#[test]
fn random_runs_reach_every_checked_case() {
    let mut simulation = Simulation::new(1, 20);
    for _ in 0..3_000 {
        simulation.step();
    }
    simulation.settle();
    simulation.check_end();
    let mut sums = VecDeque::new();
    for node in 0..NODES {
        let it = simulation.cluster.statistics(node);
        sums.push_back([
            it["expected"],
            it["unexpected"],
            it["claimed"],
            it["unmatched"],
            it["truncated"],
            it["spill_reads"],
            it["retransmissions"],
            it["frames_discarded"],
        ]);
    }
    assert!(sums.iter().flatten().all(|sum| *sum > 0), "{sums:?}");
}
