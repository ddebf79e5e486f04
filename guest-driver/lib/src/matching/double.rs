//! A test double of a cluster of Match NICs: the other side of each port's memory, driven step by step.
//!
//! It carries each command out at once, and loses nothing. What is missing against the real one is time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use niclab_abi::bar::{
    COMPLETER_ARMED_OFFSET, COMPLETER_RELEASED_OFFSET, LAUNCH_SEQUENCE_SHIFT, SLOT_LAUNCH_WORD, SLOT_WORDS,
    slot_of,
};
use niclab_abi::lists::*;
use niclab_abi::receive::{REFUSED_COMMAND, SLICE_WORDS, STATUS_LINE_INTERVAL};

use super::{Parts, Port, Progress};
use crate::{Address, Backing, Error, Memory};
use niclab_port::atomic::{load, store};

/// Events of the queue that a command must find free.
const RESERVE: u64 = 3;

/// What a port and its NIC share besides memory.
#[derive(Default)]
pub(super) struct Wires {
    pub(super) dead: AtomicBool,
    interrupts: Mutex<u64>,
    interrupted: Condvar,
    regions: Mutex<(u32, HashMap<u32, Memory>)>,
    /// The network that goes on while this port sleeps.
    pump: Mutex<Weak<Mutex<Network>>>,
}

impl Wires {
    fn interrupt(&self) {
        *self.interrupts.lock().unwrap() += 1;
        self.interrupted.notify_all();
    }

    /// Regions that are registered.
    pub(super) fn regions(&self) -> usize {
        self.regions.lock().unwrap().1.len()
    }

    fn region(&self, name: u64) -> Option<Memory> {
        self.regions.lock().unwrap().1.get(&(name as u32)).cloned()
    }
}

struct PortEnd(Arc<Wires>);

impl Backing for PortEnd {
    fn name(&self) -> &str {
        "double"
    }

    fn ring(&self) {}

    fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error> {
        let network = self.0.pump.lock().unwrap().upgrade();
        let moved = network.is_some_and(|network| network.lock().unwrap().run());
        let timeout = if moved { Duration::ZERO } else { timeout };
        let none = self.0.interrupts.lock().unwrap();
        let (mut count, _) =
            self.0.interrupted.wait_timeout_while(none, timeout, |count| *count == 0).unwrap();
        Ok(std::mem::take(&mut count))
    }

    fn check(&self) -> Result<(), Error> {
        if self.0.dead.load(Ordering::SeqCst) {
            Err(Error::DeviceGone { device: "double".into() })
        } else {
            Ok(())
        }
    }

    fn route(&self, _: Address) -> Result<(), Error> {
        unreachable!("Match has no routes")
    }

    fn authorize(&self, _: Address, _: u32) -> Result<(), Error> {
        unreachable!("Match has no authorizations")
    }

    fn revoke(&self, _: Address) -> Result<(), Error> {
        unreachable!("Match has no authorizations")
    }

    fn register(&self, memory: &Memory) -> Result<u32, Error> {
        self.check()?;
        let (last, regions) = &mut *self.0.regions.lock().unwrap();
        *last += 1;
        regions.insert(*last, memory.clone());
        Ok(*last)
    }

    fn deregister(&self, region: u32) -> Result<(), Error> {
        self.check()?;
        let found = self.0.regions.lock().unwrap().1.remove(&region);
        found.map(drop).ok_or_else(|| Error::Refused {
            device: "double".into(),
            operation: "deregister".into(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }
}

/// A match entry.
#[derive(Clone, Debug)]
struct Entry {
    handle: u32,
    words: [u64; 10],
    flags: u32,
    threshold: u64,
    offset: u64,
}

/// A header on its way.
#[derive(Clone, Debug)]
struct Header {
    source: Address,
    operation: u32,
    words: [u64; 10],
}

impl Entry {
    /// Where and how much, when the entry takes the message.
    fn takes(&self, header: &Header) -> Option<(u64, u64)> {
        let [bits, ignore, _, place, _, bytes, ..] = self.words;
        let [match_bits, .., length, remote_offset, _, _, _] = header.words;
        let (port, node) = (place >> 40 & 0xff, place >> 48);
        let wanted = if header.operation == COMMAND_PUT { ENTRY_PUT } else { ENTRY_GET };
        if self.threshold == 0
            || (bits ^ match_bits) & !ignore != 0
            || (node != ANY_NODE && node != u64::from(header.source.node))
            || (port != ANY_PORT && port != u64::from(header.source.port))
            || self.flags & wanted == 0
        {
            return None;
        }
        let is_remote = self.flags & ENTRY_REMOTE_OFFSET != 0;
        let offset = if is_remote { remote_offset.min(bytes) } else { self.offset };
        let left = bytes - offset;
        if self.is_limited() && left < self.words[8] {
            return None;
        }
        if length <= left {
            return Some((offset, length));
        }
        (self.flags & ENTRY_TRUNCATE != 0).then_some((offset, left))
    }

    /// Whether the room that must be left counts: an entry that truncates takes messages whatever is left.
    fn is_limited(&self) -> bool {
        self.flags & (ENTRY_MAX_SIZE | ENTRY_TRUNCATE) == ENTRY_MAX_SIZE
    }

    /// It has taken a message; whether it is to be unlinked.
    fn on_taken(&mut self, offset: u64, length: u64) -> bool {
        if self.flags & ENTRY_REMOTE_OFFSET == 0 {
            self.offset = offset + length;
        }
        if self.threshold != THRESHOLD_INFINITE {
            self.threshold -= 1;
        }
        let is_own = self.flags & ENTRY_REMOTE_OFFSET == 0;
        if is_own && self.is_limited() && self.words[5] - self.offset < self.words[8] {
            self.threshold = 0;
        }
        self.threshold == 0
    }
}

/// A message in an overflow entry, with that entry's handle and user value.
struct Unexpected {
    header: Header,
    overflow: u32,
    overflow_user: u64,
    offset: u64,
    moved: u64,
}

/// What an event says, but for its number.
#[derive(Default)]
struct Record {
    kind: u32,
    result: u32,
    portal: u64,
    handle: u32,
    user: u64,
    initiator: Option<Address>,
    header: [u64; 10],
    moved: u64,
    offset: u64,
    overflow: u32,
    overflow_user: u64,
}

pub(super) struct Nic {
    pub(super) wires: Arc<Wires>,
    address: Address,
    requester: Memory,
    completer: Memory,
    page: Memory,
    events: Memory,
    capacity: u64,
    taken: u64,
    refused: u64,
    stored: u64,
    waiting: VecDeque<Record>,
    armed: u64,
    armed_counters: HashMap<u64, u64>,
    /// Posted entries and, behind them, overflow entries of each portal.
    lists: [[Vec<Entry>; 2]; PORTALS as usize],
    unexpected: [VecDeque<Unexpected>; PORTALS as usize],
}

/// A cluster: port 0 of each node.
pub(crate) struct Network {
    pub(super) nics: Vec<Nic>,
}

fn zeroed(words: usize) -> Memory {
    Memory::from_words((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// So many nodes, each with an event queue of that size.
pub(crate) fn network(nodes: u32, events: u32) -> (Vec<Port>, Network) {
    let (ports, nics) = (0..nodes).map(|node| port(node, events)).unzip();
    (ports, Network { nics })
}

fn port(node: u32, events: u32) -> (Port, Nic) {
    let nic = Nic {
        wires: Arc::default(),
        address: Address { node, port: 0 },
        requester: zeroed(512),
        completer: zeroed(512),
        page: zeroed(512),
        events: zeroed(SLICE_WORDS * events as usize),
        capacity: events.into(),
        taken: 0,
        refused: 0,
        stored: 0,
        waiting: VecDeque::new(),
        armed: 0,
        armed_counters: HashMap::new(),
        lists: Default::default(),
        unexpected: Default::default(),
    };
    let port = Port::from_parts(Parts {
        address: nic.address,
        info: zeroed(512),
        requester: nic.requester.clone(),
        completer: nic.completer.clone(),
        status: nic.page.clone(),
        slices: nic.events.clone(),
        backing: Box::new(PortEnd(Arc::clone(&nic.wires))),
        progress: Progress::default(),
    })
    .expect("all parts are large enough");
    (port, nic)
}

impl Network {
    /// From now on the network goes on by itself whenever a port sleeps.
    pub(super) fn pumped(self) -> Arc<Mutex<Self>> {
        let wires: Vec<Arc<Wires>> = self.nics.iter().map(|nic| Arc::clone(&nic.wires)).collect();
        let network = Arc::new(Mutex::new(self));
        for wires in wires {
            *wires.pump.lock().unwrap() = Arc::downgrade(&network);
        }
        network
    }

    /// Carries out what was launched, until nothing can go on. Whether anything did.
    pub(crate) fn run(&mut self) -> bool {
        let mut has_moved = false;
        while (0..self.nics.len()).map(|node| self.step(node)).fold(false, |any, moved| any | moved) {
            has_moved = true;
        }
        has_moved
    }

    /// Regions that are registered, of all ports together.
    pub(crate) fn regions(&self) -> usize {
        self.nics.iter().map(|nic| nic.wires.regions()).sum()
    }

    /// Takes at most one command of a node.
    pub(super) fn step(&mut self, node: usize) -> bool {
        self.nics[node].flush();
        let Some((code, words)) = self.nics[node].take() else { return false };
        match code & COMMAND_MASK {
            COMMAND_PUT | COMMAND_GET => self.transfer(node, code, words),
            COMMAND_APPEND => self.nics[node].append(code, words),
            COMMAND_UNLINK => self.nics[node].unlink(words[0]),
            COMMAND_ARM_COUNTER => self.nics[node].arm_counter(words[0], words[1]),
            _ => self.nics[node].refuse(RESULT_BAD_COMMAND),
        }
        self.nics.iter_mut().for_each(Nic::flush);
        true
    }

    fn transfer(&mut self, node: usize, code: u32, words: [u64; 10]) {
        let initiator = &mut self.nics[node];
        let memory = initiator.wires.region(words[3] & 0xffff_ffff);
        let (offset, bytes) = (words[4], words[5]);
        let Some(memory) = memory else { return initiator.refuse(RESULT_BAD_REGION) };
        if offset.checked_add(bytes).is_none_or(|end| end > memory.bytes() as u64) {
            return initiator.refuse(RESULT_BAD_RANGE);
        }
        let header = Header { source: initiator.address, operation: code & COMMAND_MASK, words };
        let (target, port) = ((words[3] >> 48) as usize, words[3] >> 40 & 0xff);
        let mut data = vec![0; bytes as usize];
        assert!(memory.copy_out(offset as usize, &mut data));
        let (result, moved) = match self.nics.get_mut(target).filter(|_| port == 0) {
            Some(nic) => nic.arrive(&header, code, &mut data),
            None => (RESULT_NO_TARGET, 0),
        };
        let initiator = &mut self.nics[node];
        let handle = initiator.taken as u32;
        let done = Record {
            handle,
            user: words[2],
            initiator: Some(initiator.address),
            portal: words[3] >> 32 & 0xff,
            header: words,
            moved,
            ..Record::default()
        };
        if code & COMMAND_MASK == COMMAND_GET {
            assert!(memory.copy_in(offset as usize, &data[..moved as usize]));
            initiator.tell(Record { kind: EVENT_REPLY, result, ..done }, words[7], code);
            return;
        }
        if code & COMMAND_SENT != 0 {
            let sent =
                Record { kind: EVENT_SENT, user: words[2], header: words, handle, ..Record::default() };
            initiator.tell(sent, words[7], code);
        }
        if code & COMMAND_ACK != 0 {
            initiator.tell(Record { kind: EVENT_ACK, result, ..done }, words[7], code);
        }
    }
}

impl Nic {
    /// The next launched command, if there is room for its events.
    fn take(&mut self) -> Option<(u32, [u64; 10])> {
        let sequence = self.taken.wrapping_add(1) as u32;
        let (slots, _) = self.requester.words().as_chunks::<SLOT_WORDS>();
        let slot = &slots[slot_of(sequence) as usize];
        let launch = load(&slot[SLOT_LAUNCH_WORD]);
        if (launch >> LAUNCH_SEQUENCE_SHIFT) as u32 != sequence || self.room() < RESERVE {
            return None;
        }
        fence(Ordering::Acquire);
        let words = std::array::from_fn(|word| load(&slot[word]));
        self.taken += 1;
        if self.taken.is_multiple_of(STATUS_LINE_INTERVAL.into()) {
            self.write_status();
        }
        Some((launch as u32, words))
    }

    fn room(&self) -> u64 {
        let released = load(&self.completer.words()[(COMPLETER_RELEASED_OFFSET / 8) as usize]);
        fence(Ordering::Acquire);
        assert!(released <= self.stored, "released {released} of {}", self.stored);
        (self.capacity - (self.stored - released)).saturating_sub(self.waiting.len() as u64)
    }

    /// A header is matched; what became of it, and how many bytes were moved into or out of `data`.
    fn arrive(&mut self, header: &Header, code: u32, data: &mut [u8]) -> (u32, u64) {
        let portal = (header.words[3] >> 32 & 0xff) as usize;
        self.forget_regions();
        if self.room() < 2 {
            return (RESULT_NO_ROOM, 0);
        }
        let lists = &mut self.lists[portal];
        let found = lists.iter().enumerate().find_map(|(list, entries)| {
            let taken = entries.iter().enumerate().find_map(|(at, entry)| Some((at, entry.takes(header)?)));
            taken.map(|(at, (offset, length))| (list, at, offset, length))
        });
        let Some((list, at, offset, length)) = found else { return (RESULT_NO_MATCH, 0) };
        let entry = &mut lists[list][at];
        let is_done = entry.on_taken(offset, length);
        let entry = if is_done { lists[list].remove(at) } else { lists[list][at].clone() };
        let is_put = header.operation == COMMAND_PUT;
        let memory = self.wires.region(entry.words[3] & 0xffff_ffff).expect("entries go with their region");
        let begin = (entry.words[4] + offset) as usize;
        let moved = &mut data[..length as usize];
        assert!(if is_put { memory.copy_in(begin, moved) } else { memory.copy_out(begin, moved) });
        let kind = match (is_put, list) {
            (false, _) => EVENT_GET,
            (true, 0) => EVENT_PUT,
            (true, _) => EVENT_PUT_UNEXPECTED,
        };
        if kind == EVENT_PUT_UNEXPECTED {
            self.unexpected[portal].push_back(Unexpected {
                header: header.clone(),
                overflow: entry.handle,
                overflow_user: entry.words[2],
                offset,
                moved: length,
            });
        }
        let result = if length < header.words[5] { RESULT_TRUNCATED } else { RESULT_OK };
        self.tell_of_entry(&entry, Record { kind, result, ..of_message(header, portal, length, offset) });
        self.unlinked(&entry, is_done, portal);
        if code & COMMAND_INTERRUPT != 0 {
            self.wires.interrupt();
        }
        (result, length)
    }

    fn append(&mut self, code: u32, words: [u64; 10]) {
        let portal = (words[3] >> 32 & 0xff) as usize;
        let Some(memory) = self.wires.region(words[3] & 0xffff_ffff) else {
            return self.refuse(RESULT_BAD_REGION);
        };
        if words[4].checked_add(words[5]).is_none_or(|end| end > memory.bytes() as u64) {
            return self.refuse(RESULT_BAD_RANGE);
        }
        if words[6] == 0 {
            return self.refuse(RESULT_BAD_VALUE);
        }
        let mut entry =
            Entry { handle: self.taken as u32, words, flags: code, threshold: words[6], offset: 0 };
        if code & ENTRY_OVERFLOW != 0 {
            return self.lists[portal][1].push(entry);
        }
        let mut at = 0;
        while let Some(message) = self.unexpected[portal].get(at) {
            let Some((offset, length)) = entry.takes(&message.header) else {
                at += 1;
                continue;
            };
            let message = self.unexpected[portal].remove(at).expect("it was just looked at");
            let is_done = entry.on_taken(offset, length);
            let record = Record {
                kind: EVENT_PUT_OVERFLOW,
                result: if length < message.header.words[5] { RESULT_TRUNCATED } else { RESULT_OK },
                overflow: message.overflow,
                overflow_user: message.overflow_user,
                ..of_message(&message.header, portal, message.moved, message.offset)
            };
            self.tell_of_entry(&entry, record);
            if is_done {
                return self.unlinked(&entry, true, portal);
            }
        }
        self.lists[portal][0].push(entry);
    }

    fn unlink(&mut self, handle: u64) {
        let handle = handle as u32;
        let mut result = RESULT_NOT_FOUND;
        for list in self.lists.iter_mut().flatten() {
            let before = list.len();
            list.retain(|entry| entry.handle != handle);
            if list.len() < before {
                result = RESULT_OK;
            }
        }
        self.push(Record { kind: EVENT_UNLINKED, result, handle, ..Record::default() });
    }

    fn arm_counter(&mut self, counter: u64, successes: u64) {
        self.armed_counters.insert(counter, successes);
        self.look_at_counter(counter);
    }

    fn look_at_counter(&mut self, counter: u64) {
        let now = load(&self.counter_words(counter)[1]);
        if self.armed_counters.get(&counter).is_some_and(|&wanted| wanted != 0 && now >= wanted) {
            self.armed_counters.remove(&counter);
            self.wires.interrupt();
        }
    }

    fn counter_words(&self, counter: u64) -> &[AtomicU64] {
        let first = COUNTERS_OFFSET as usize / 8 + 2 * counter as usize;
        &self.page.words()[first..first + 2]
    }

    /// Refuses the command that was taken last.
    fn refuse(&mut self, result: u32) {
        self.refused += 1;
        self.write_status();
        self.push(Record { kind: EVENT_REFUSED, result, handle: self.taken as u32, ..Record::default() });
    }

    fn write_status(&self) {
        fence(Ordering::Release);
        let refusal = if self.refused > 0 { REFUSED_COMMAND } else { 0 };
        for (word, value) in self.page.words().iter().zip([self.taken, 0, 0, 0, self.refused, refusal]) {
            store(word, value);
        }
    }

    fn tell_of_entry(&mut self, entry: &Entry, record: Record) {
        let record = Record { handle: entry.handle, user: entry.words[2], ..record };
        self.tell(record, entry.words[7], entry.flags);
    }

    fn unlinked(&mut self, entry: &Entry, is_done: bool, portal: usize) {
        if is_done && entry.flags & ENTRY_NO_UNLINK_EVENT == 0 {
            let (handle, user) = (entry.handle, entry.words[2]);
            let portal = portal as u64;
            self.push(Record { kind: EVENT_UNLINKED, handle, user, portal, ..Record::default() });
        }
    }

    /// Tells by event, counter, or both.
    fn tell(&mut self, record: Record, counter: u64, flags: u32) {
        let is_done = matches!(record.result, RESULT_OK | RESULT_TRUNCATED);
        if counter != 0 {
            let word = &self.counter_words(counter - 1)[usize::from(is_done)];
            store(word, load(word) + 1);
            self.look_at_counter(counter - 1);
        }
        if !is_done || flags & COMMAND_COUNT_ONLY == 0 {
            self.push(record);
        }
    }

    fn push(&mut self, record: Record) {
        self.waiting.push_back(record);
        self.flush();
    }

    /// Stores events while there is room, and interrupts when one was waited for.
    fn flush(&mut self) {
        let released = load(&self.completer.words()[(COMPLETER_RELEASED_OFFSET / 8) as usize]);
        fence(Ordering::Acquire);
        while self.stored - released < self.capacity {
            let Some(record) = self.waiting.pop_front() else { break };
            self.store_event(&record);
        }
        let armed = load(&self.completer.words()[(COMPLETER_ARMED_OFFSET / 8) as usize]);
        if armed != self.armed && armed <= self.stored {
            self.armed = armed;
            self.wires.interrupt();
        }
    }

    fn store_event(&mut self, record: &Record) {
        let (slices, _) = self.events.words().as_chunks::<SLICE_WORDS>();
        let slice = &slices[(self.stored % self.capacity) as usize];
        self.stored += 1;
        let source = record.initiator.unwrap_or(Address { node: 0, port: 0 });
        let [match_bits, header_data, _, _, _, requested, ..] = record.header;
        let words = [
            record.user,
            match_bits,
            header_data,
            requested,
            record.moved,
            record.offset,
            u64::from(source.node) << 48 | u64::from(source.port) << 32 | u64::from(record.handle),
            record.overflow.into(),
            record.overflow_user,
            0,
        ];
        for (word, value) in slice.iter().zip(words) {
            store(word, value);
        }
        fence(Ordering::Release);
        let status = event_status(record.kind, record.result, record.portal as u32, self.stored as u32);
        store(&slice[SLICE_WORDS - 1], status);
    }

    /// Unlinks the entries whose region was deregistered.
    fn forget_regions(&mut self) {
        let wires = Arc::clone(&self.wires);
        for list in self.lists.iter_mut().flatten() {
            list.retain(|entry| wires.region(entry.words[3] & 0xffff_ffff).is_some());
        }
    }

    /// Entries linked, posted and overflow.
    pub(super) fn linked(&mut self) -> usize {
        self.forget_regions();
        self.lists.iter().flatten().map(Vec::len).sum()
    }
}

fn of_message(header: &Header, portal: usize, moved: u64, offset: u64) -> Record {
    Record {
        portal: portal as u64,
        initiator: Some(header.source),
        header: header.words,
        moved,
        offset,
        ..Record::default()
    }
}
