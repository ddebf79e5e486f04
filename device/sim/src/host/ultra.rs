//! A program and the user library with an ULTRA card: slots of the requester page, slices of the receive queue, credits,
//! and the interval at which slices are released, as in the library that guests use.

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::bar::{CODE_INTERRUPT, CODE_LENGTH_SHIFT, PAYLOAD_WORDS, SLOT_TAG_WORD, SLOTS, TAG_WORDS};
use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_PORT_OPEN, OP_ROUTE, PortOpen, Reply, Request, Route, STATUS_OK,
};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE, CAUSE_UNAUTHORIZED};
use niclab_abi::receive::STATUS_LINE_INTERVAL;
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::nic::{DmaWords, Input, Nic, Output, PageStore, Register};
use niclab_model::parts::ledger::Ledger;
use niclab_model::parts::mischief::{Fault, Rates, Record, Saboteur};
use niclab_model::time::Time;
use niclab_spec::report::NodeFigures;

use super::memory::{Memory, Place, STATUS_WORDS};
use super::tally::{Interrupts, Tally};
use super::{Effects, Host, Parcel, PortPlan, Refused, Sum};
use crate::figures;
use crate::judge::{Check, Judge, Mark};
use crate::plan::{End, FlowId};
use crate::script::Script;

/// Word of the status line with the launches that the card has taken.
const STATUS_LAUNCHED: usize = 0;
/// Words of the status line that only grow.
const STATUS_COUNTS: usize = 5;

/// An open port, as the library sees it.
#[derive(Debug)]
struct Port {
    end: End,
    number: u32,
    slices: u64,
    launched: u64,
    received: u64,
    released: u64,
    release_interval: u64,
    /// The highest number that a slice was written with.
    stored: u64,
    /// Launches that the card has reported, whether or not the host saw it.
    reported: u64,
    /// The highest number that the card wanted to write a slice with.
    made: u64,
    /// The slices to come that a fault of the device befell, by number, and what the card wanted to write.
    spoiled: BTreeMap<u64, Mark>,
    /// Status lines that a fault of the device befell, as the card wanted them.
    spoiled_lines: VecDeque<DmaWords>,
    /// Launches that the card has not taken out of the page yet, because its FIFO is full, and when the program made them.
    page: VecDeque<(Time, PageStore)>,
    interrupts: Interrupts,
}

impl Port {
    /// The card wants to write the slice of this number: it must be free.
    fn check_slice(&mut self, number: u64, judge: &mut Judge) {
        self.made = self.made.max(number);
        if number > self.released + self.slices {
            let (end, released) = (self.end, self.released);
            judge.fail(Check::FlowControl, || {
                format!("{end:?}: slice {number} written when {released} were released")
            });
        }
    }

    /// The host sees a status line, or what a fault left of it. Lines that a fault befell before it are checked first, as
    /// the card wanted them.
    fn on_status(&mut self, line: &[u64], judge: &mut Judge) {
        let launched = line.first().copied().unwrap_or(0);
        let mut is_spoiled = false;
        while self.spoiled_lines.front().is_some_and(|wanted| wanted.first() <= Some(&launched)) {
            let Some(wanted) = self.spoiled_lines.pop_front() else { break };
            is_spoiled = true;
            self.check_status(&wanted, judge);
        }
        if line.len() == STATUS_WORDS || !is_spoiled {
            self.check_status(line, judge);
        }
    }

    /// Whether a fault of the device keeps the program from seeing that there are free slots.
    fn is_stuck(&self, seen: u64) -> bool {
        let is_full = |taken: u64| self.launched.saturating_sub(taken) >= u64::from(SLOTS);
        is_full(seen) && !is_full(self.reported)
    }

    /// A status line is whole, no count in it falls, and none was left out.
    fn check_status(&mut self, line: &[u64], judge: &mut Judge) {
        let (end, before) = (self.end, self.reported);
        let Some(&launched) = line.first().filter(|_| line.len() == STATUS_WORDS) else {
            return judge
                .fail(Check::RightMemory, || format!("{end:?}: a status line of {} words", line.len()));
        };
        if launched < before || launched > self.launched {
            judge.fail(Check::FlowControl, || {
                format!("{end:?}: {launched} launches reported after {before}, of {}", self.launched)
            });
        } else if launched - before > u64::from(STATUS_LINE_INTERVAL) {
            judge.fail(Check::FlowControl, || {
                format!("{end:?}: {launched} launches reported after {before}: a status line is missing")
            });
        }
        self.reported = launched;
    }
}

/// A flow that a port sends over.
#[derive(Clone, Copy, Debug)]
struct Sender {
    flow: FlowId,
    /// The port's place.
    place: u32,
    /// Slots of its requester page that are known to be free: the status line is only looked at where there is none.
    free_slots: u32,
}

/// A host with an ULTRA card.
pub struct UltraHost {
    node: u16,
    nic: Box<dyn Nic>,
    ports: Vec<Port>,
    /// What the program looks through to find a flow that it can send over.
    senders: Vec<Sender>,
    memory: Memory,
    /// When the host has each message in hand, and the place of its port in `ports`.
    arrivals: VecDeque<(Time, usize)>,
    tally: Tally,
    replies: VecDeque<u32>,
    /// Faults of the device that are known.
    faults: u64,
    /// Launches in the pages of all ports that the card has not taken yet.
    waiting: usize,
    /// The latest instant at which the card wanted something done.
    latest: Time,
    /// The program does nothing before this instant.
    not_before: Time,
}

impl UltraHost {
    /// A host whose card has no port open.
    #[must_use]
    pub fn new(node: u16, nic: Box<dyn Nic>) -> Self {
        Self {
            node,
            nic,
            ports: Vec::new(),
            senders: Vec::new(),
            memory: Memory::default(),
            arrivals: VecDeque::new(),
            tally: Tally::default(),
            replies: VecDeque::new(),
            faults: 0,
            waiting: 0,
            latest: Time::ZERO,
            not_before: Time::ZERO,
        }
    }

    /// The card.
    #[must_use]
    pub fn nic(&self) -> &dyn Nic {
        &*self.nic
    }

    /// What crossed the boundary.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Launches and interrupts of each open port, by its number.
    pub fn ports(&self) -> impl Iterator<Item = (u32, u64, Interrupts)> + '_ {
        self.ports.iter().map(|port| (port.number, port.launched, port.interrupts))
    }

    /// Interrupts of all ports.
    #[must_use]
    pub fn interrupts(&self) -> Interrupts {
        let mut sum = Interrupts::default();
        self.ports.iter().for_each(|port| sum.add(&port.interrupts));
        sum
    }

    fn control(
        &mut self,
        operation: u32,
        body: &impl ToBytes,
        judge: &mut Judge,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let request = request(operation, body);
        self.handle(self.clock(), Input::Control { token: 0, request: &request }, judge, effects);
        match self.replies.pop_front() {
            Some(STATUS_OK) => Ok(()),
            status => Err(Refused { operation, status: status.unwrap_or(u32::MAX) }),
        }
    }

    /// Tells the card something, and then of launches that it has room for by now.
    fn handle(&mut self, now: Time, input: Input<'_>, judge: &mut Judge, effects: &mut Effects) {
        self.feed(now, input, judge, effects);
        while let Some((launched, store)) = self.next_launch() {
            self.tally.launches += 1;
            self.tally.pio_bytes += burst_bytes(&store);
            // The program launches one after the other: it does not wait for itself.
            self.feed(launched.max(self.clock()), Input::PageStore(store), judge, effects);
        }
    }

    /// The next launch of a page from which the card can take one.
    fn next_launch(&mut self) -> Option<(Time, PageStore)> {
        let Self { ports, nic, waiting, .. } = self;
        // Most often none waits, and the ports need not be looked at.
        *waiting = waiting.checked_sub(1)?;
        let next = ports
            .iter_mut()
            .find(|port| !port.page.is_empty() && nic.accepts_store(port.number))
            .and_then(|port| port.page.pop_front());
        *waiting += usize::from(next.is_none());
        next
    }

    fn feed(&mut self, now: Time, input: Input<'_>, judge: &mut Judge, effects: &mut Effects) {
        self.nic.handle(now, input);
        loop {
            let output = self.nic.poll_output();
            self.note_faults(judge);
            let Some(output) = output else { break };
            self.latest = self.latest.max(output.at());
            match output {
                Output::Frame { at, frame, message } => {
                    self.tally.sent_frames += 1;
                    self.tally.sent_bytes += frame.len() as u64;
                    effects.frames.push((at, (frame, message)));
                }
                Output::DmaWrite { at, address, words, .. } => self.on_write(at, address, words, judge),
                Output::Interrupt { cause, port, .. } => self.on_interrupt(cause, port, judge),
                Output::Reply { bytes, .. } => {
                    self.replies.extend(Reply::from_bytes(&bytes).map(|reply| reply.status));
                }
                Output::DmaFrame { .. } | Output::DmaRead { .. } => {
                    judge.fail(Check::RightMemory, || "a card without regions touched one".to_owned());
                }
            }
        }
    }

    /// Looks up what faults of the device have befallen, before their effects are seen.
    fn note_faults(&mut self, judge: &mut Judge) {
        let news = |saboteur: &Saboteur| -> Vec<Record> {
            saboteur.records().filter(|record| record.number > self.faults).cloned().collect()
        };
        for record in self.nic.saboteur().map(news).unwrap_or_default() {
            self.faults = record.number;
            if let (Fault::Stale | Fault::Short | Fault::BadStatus, Output::DmaWrite { address, words, .. }) =
                (record.fault, record.intended)
            {
                self.on_spoiled(address, words, judge);
            }
        }
    }

    /// The card wanted to write this and a fault befell it: the card is judged by what it wanted.
    fn on_spoiled(&mut self, address: u64, words: DmaWords, judge: &mut Judge) {
        let Some((place, what)) = self.memory.place_of(address, words.len()) else { return };
        let Some(port) = self.ports.get_mut(place) else { return };
        match (what, words.as_slice()) {
            (Place::Slice { ends_with_status: true, .. }, [.., first, second, status]) => {
                let (number, mark) = (status >> 32, Mark::from_tag([*first, *second]));
                port.check_slice(number, judge);
                port.spoiled.insert(number, mark);
                judge.on_spoiled(&mark);
            }
            (Place::Status, _) => port.spoiled_lines.push_back(words),
            _ => {}
        }
    }

    fn on_interrupt(&mut self, cause: u32, number: u32, judge: &mut Judge) {
        let node = self.node;
        let Some(port) = self.ports.iter_mut().find(|port| port.number == number) else {
            return judge
                .fail(Check::RightPort, || format!("node {node}: an interrupt for closed port {number}"));
        };
        match cause {
            CAUSE_MESSAGE => port.interrupts.message += 1,
            CAUSE_ARMED => port.interrupts.armed += 1,
            CAUSE_UNAUTHORIZED => port.interrupts.unauthorized += 1,
            other => {
                let end = port.end;
                judge.fail(Check::RightPort, || format!("{end:?}: an interrupt of unknown cause {other}"));
            }
        }
    }

    /// The card writes: whole status lines whose counts do not fall, or the end of a slice that is free.
    fn on_write(&mut self, at: Time, address: u64, words: DmaWords, judge: &mut Judge) {
        self.tally.dma_writes += 1;
        self.tally.dma_bytes += words.len() as u64 * 8;
        let node = self.node;
        let Some((place, what)) = self.memory.place_of(address, words.len()) else {
            let count = words.len();
            return judge.fail(Check::RightMemory, || {
                format!("node {node}: {count} words written to {address:#x}, which was not given")
            });
        };
        let Some(port) = self.ports.get_mut(place) else { return };
        if let Place::Slice { ends_with_status: true, .. } = what {
            let number = words.last().map_or(0, |status| status >> 32);
            port.stored = port.stored.max(number);
            port.check_slice(number, judge);
            // The card has charged the host for the delivery.
            let in_hand = self.nic.host_clock().max(at);
            let after = self.arrivals.iter().rposition(|(earlier, _)| *earlier <= in_hand);
            self.arrivals.insert(after.map_or(0, |last| last + 1), (in_hand, place));
        } else if what == Place::Status {
            port.on_status(&words, judge);
        }
        self.memory.write(at, place, what, &words);
    }

    fn is_any_page_full(&self) -> bool {
        self.senders.iter().any(|sender| sender.free_slots == 0)
    }

    /// Whether the page of a flow's port is full.
    fn is_blocked(&self, flow: FlowId) -> bool {
        let Some(sender) = self.senders.iter().find(|sender| sender.flow == flow) else { return true };
        sender.free_slots == 0 && self.free_slots(sender.place as usize) == 0
    }

    /// Free slots of a port's page, as its status line has it.
    fn free_slots(&self, place: usize) -> u32 {
        let launched = self.ports.get(place).map_or(0, |port| port.launched);
        let used = launched.wrapping_sub(self.memory.status_word(place, STATUS_LAUNCHED));
        u64::from(SLOTS).saturating_sub(used) as u32
    }

    fn launch(&mut self, now: Time, mark: &Mark, interrupts: bool, judge: &mut Judge, effects: &mut Effects) {
        let Some(index) = self.senders.iter().position(|sender| sender.flow == mark.flow) else { return };
        let Sender { place, free_slots, .. } = self.senders[index];
        let free_slots = if free_slots == 0 { self.free_slots(place as usize) } else { free_slots };
        self.senders[index].free_slots = free_slots.saturating_sub(1);
        let Some(port) = self.ports.get_mut(place as usize) else { return };
        port.launched += 1;
        let number = port.number;
        let count = (mark.bytes.div_ceil(8) as usize).min(PAYLOAD_WORDS);
        let mut store = PageStore { port: number, code: 0, words: [0; PAYLOAD_WORDS + 2] };
        let begin = SLOT_TAG_WORD - count;
        store.code = (begin as u32) << CODE_LENGTH_SHIFT;
        store.code |= if interrupts { u32::from(CODE_INTERRUPT) } else { 0 };
        let words = mark.payload().take(count).chain(mark.tag());
        store.words[begin..].iter_mut().zip(words).for_each(|(place, word)| *place = word);
        // What waits in the page is taken first.
        if !port.page.is_empty() || !self.nic.accepts_store(number) {
            port.page.push_back((now, store));
            self.waiting += 1;
            return;
        }
        self.tally.launches += 1;
        self.tally.pio_bytes += burst_bytes(&store);
        self.handle(now, Input::PageStore(store), judge, effects);
    }

    /// Reads the next slice of a port, if it is there. One that a fault of the device made unreadable is passed over, as the
    /// library does once it sees that the card has gone on.
    fn receive(&mut self, now: Time, place: usize, judge: &mut Judge, effects: &mut Effects) -> bool {
        while let Some(port) = self.ports.get_mut(place) {
            let number = port.received + 1;
            let spoiled = port.spoiled.remove(&number);
            let slice = self.memory.slice(place, number);
            let is_there = slice.is_some();
            match (slice, spoiled) {
                (None, None) => return false,
                (None, Some(_)) => {}
                (Some(_), Some(mark)) => judge.on_received_spoiled(port.end, &mark),
                (Some(slice), None) => {
                    let mark = Mark::from_tag(slice.tag);
                    let from = End { node: slice.status.source_node, port: slice.status.source_port.into() };
                    judge.on_received(port.end, from, &mark, slice.payload.iter().copied());
                }
            }
            self.consume(now, place, judge, effects);
            if is_there {
                return true;
            }
        }
        false
    }

    /// The next slice of a port is read: releases slices when it is time.
    fn consume(&mut self, now: Time, place: usize, judge: &mut Judge, effects: &mut Effects) {
        let Some(port) = self.ports.get_mut(place) else { return };
        port.received += 1;
        self.memory.forget(place, port.received);
        if port.received - port.released >= port.release_interval {
            port.released = port.received;
            let (number, released) = (port.number, port.released);
            self.tally.pio_bytes += 8;
            let register = Register::Released(released);
            self.handle(now, Input::Register { port: number, register }, judge, effects);
        }
    }
}

impl Host for UltraHost {
    fn open(
        &mut self,
        plan: &PortPlan,
        slices: u32,
        judge: &mut Judge,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let place = self.ports.len();
        self.memory.open(place, slices);
        let sender = |(flow, _): (FlowId, End)| Sender { flow, place: place as u32, free_slots: SLOTS };
        self.senders.extend(plan.sends.map(sender));
        let share = slices.checked_div(plan.partners.len() as u32).unwrap_or(slices).max(1);
        let quarter = u64::from(slices / 4).max(1);
        self.ports.push(Port {
            end: End { node: self.node, port: plan.number as u16 },
            number: plan.number,
            slices: slices.into(),
            launched: 0,
            received: 0,
            released: 0,
            release_interval: quarter.min(u64::from(share / 2).max(1)),
            stored: 0,
            reported: 0,
            made: 0,
            spoiled: BTreeMap::new(),
            spoiled_lines: VecDeque::new(),
            page: VecDeque::new(),
            interrupts: Interrupts::default(),
        });
        let open = PortOpen {
            port: plan.number,
            slices,
            slices_address: Memory::slices_address(place),
            status_address: Memory::status_address(place),
            ..PortOpen::default()
        };
        self.control(OP_PORT_OPEN, &open, judge, effects)?;
        for &(_, End { node, port }) in &plan.partners {
            let entry =
                Authorize { port: plan.number, node: node.into(), node_port: port.into(), credits: share };
            self.control(OP_AUTHORIZE, &entry, judge, effects)?;
        }
        // The card charges the host for each release when its last slice is consumed.
        let interval = self.ports.last().map_or(0, |port| port.release_interval);
        let register = Register::ReleaseInterval(interval);
        let input = Input::Register { port: plan.number, register };
        self.handle(self.clock(), input, judge, effects);
        if let Some((_, End { node, port })) = plan.sends {
            let route = Route { port: plan.number, node: node.into(), node_port: port.into(), reserved: 0 };
            self.control(OP_ROUTE, &route, judge, effects)?;
        }
        Ok(())
    }

    fn clock(&self) -> Time {
        self.nic.host_clock().max(self.not_before)
    }

    fn rest(&self) -> Time {
        self.clock().max(self.latest)
    }

    fn begin_at(&mut self, begin: Time) {
        self.not_before = begin;
    }

    fn deadline(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }

    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.nic.ledger_mut()
    }

    fn sent_frames(&self) -> u64 {
        self.tally.sent_frames
    }

    fn arrive(&mut self, now: Time, parcel: &Parcel, judge: &mut Judge, effects: &mut Effects) {
        let (frame, message) = parcel;
        self.tally.received_frames += 1;
        self.tally.received_bytes += frame.len() as u64;
        self.handle(now, Input::Frame { frame, message: *message }, judge, effects);
    }

    fn timeout(&mut self, now: Time, judge: &mut Judge, effects: &mut Effects) {
        self.handle(now, Input::Timeout, judge, effects);
    }

    fn step(&mut self, now: Time, script: &mut Script, judge: &mut Judge, effects: &mut Effects) {
        self.memory.advance(now);
        while let Some(&(at, place)) = self.arrivals.front().filter(|(at, _)| *at <= now) {
            self.arrivals.pop_front();
            if self.receive(at, place, judge, effects) {
                script.on_received();
                return;
            }
        }
        if self.clock() > now {
            return;
        }
        let may_send = script.next(|flow| self.is_blocked(flow)).filter(|next| next.not_before <= now);
        let Some(outgoing) = may_send else { return };
        let mark = judge.on_sent(outgoing.flow, outgoing.bytes);
        self.launch(now, &mark, outgoing.interrupts, judge, effects);
        script.on_sent(outgoing.flow);
    }

    fn soonest(&self) -> Time {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        arrival.into_iter().chain(self.memory.next_visible()).fold(self.clock(), Time::min)
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        let clock = self.clock();
        let send = script.next(|flow| self.is_blocked(flow)).map(|next| next.not_before.max(clock));
        // Blocked for want of slots: the next status line may free some.
        let slots = if send.is_none() && script.unsent() > 0 && self.is_any_page_full() {
            self.memory.next_visible()
        } else {
            None
        };
        [arrival, send, slots].into_iter().flatten().min()
    }

    fn is_stuck(&self) -> bool {
        let ports = self.ports.iter().enumerate();
        ports.into_iter().any(|(place, port)| port.is_stuck(self.memory.status_word(place, STATUS_LAUNCHED)))
    }

    fn set_device_faults(&mut self, rates: Rates) {
        if let Some(saboteur) = self.nic.saboteur_mut() {
            saboteur.set_rates(rates);
        }
    }

    fn figures(&self) -> NodeFigures {
        figures::ultra(self)
    }

    fn sums(&self) -> Vec<Sum> {
        figures::ultra_sums(self)
    }

    fn finish(&mut self, judge: &mut Judge) {
        self.memory.advance(Time::from_ps(u64::MAX));
        for (place, port) in self.ports.iter_mut().enumerate() {
            let end = port.end;
            while let Some(wanted) = port.spoiled_lines.pop_front() {
                port.check_status(&wanted, judge);
            }
            if port.spoiled.contains_key(&(port.received + 1)) {
                judge.on_stalled(end);
                // The card charged for stores that the program never comes to.
                let batches = |slices: u64| slices.checked_div(port.release_interval).unwrap_or(0);
                self.tally.pio_bytes += 8 * (batches(port.made) - batches(port.received));
            }
            if self.memory.slice(place, port.received + 1).is_some() || port.stored > port.received {
                let (stored, received) = (port.stored, port.received);
                judge.fail(Check::Drained, || format!("{end:?}: {stored} slices stored, {received} read"));
            }
            let interval = u64::from(STATUS_LINE_INTERVAL);
            let taken = port.launched - port.page.len() as u64;
            if !port.page.is_empty() {
                let waiting = port.page.len();
                judge.fail(Check::Drained, || format!("{end:?}: {waiting} launches were left in the page"));
            }
            if taken - port.reported.min(taken) >= interval {
                let (launched, reported) = (taken, port.reported);
                judge.fail(Check::FlowControl, || {
                    format!("{end:?}: {reported} of {launched} launches reported")
                });
            }
            let refused = self.memory.status_word(place, STATUS_COUNTS - 1);
            if refused != 0 {
                judge.fail(Check::FlowControl, || format!("{end:?}: the card refused {refused} stores"));
            }
        }
    }
}

/// Bytes of the burst that launches a slot: payload and tag.
const fn burst_bytes(store: &PageStore) -> u64 {
    let begin = (store.code >> CODE_LENGTH_SHIFT) as u64 & 15;
    8 * (SLOT_TAG_WORD as u64 + TAG_WORDS as u64 - begin)
}

/// A request as a driver writes it.
fn request(operation: u32, body: &impl ToBytes) -> Vec<u8> {
    fn append<T: ToBytes>(bytes: &mut Vec<u8>, value: &T) {
        let begin = bytes.len();
        bytes.resize(begin + T::BYTES, 0);
        // Exactly as long as the value.
        let _ = bytes.get_mut(begin..).and_then(|place| value.to_bytes(place));
    }
    let mut bytes = Vec::new();
    append(&mut bytes, &Request { operation, body_bytes: body_bytes(body) });
    append(&mut bytes, body);
    bytes
}

const fn body_bytes<T: ToBytes>(_: &T) -> u32 {
    T::BYTES as u32
}
