//! A program and the user library with a Match card: commands in the slots of the requester page, events in the event queue,
//! messages put into posted entries, into overflow entries, or fetched by gets ([`port`]).

pub mod command;
pub mod memory;
pub mod port;

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::control::{OP_PORT_OPEN, PortOpen, Reply, Request, STATUS_NO_SPACE, STATUS_OK};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE};
use niclab_abi::matching::{
    Extent, MAX_EXTENTS, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen, RegionOpened,
};
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, STATUS_LINE_INTERVAL};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::nic::{DmaWords, FrameBytes, HostRanges, Input, Nic, Output, PageStore, Register};
use niclab_model::parts::ledger::Ledger;
use niclab_model::parts::message::Message;
use niclab_model::parts::mischief::Rates;
use niclab_model::time::Time;
use niclab_spec::report::NodeFigures;

use self::memory::{Memory, Place};
use self::port::{Port, Said, Terms};
use super::tally::{Interrupts, Tally};
use super::{Effects, Host, Parcel, PortPlan, Refused, Sum};
use crate::figures;
use crate::judge::{Check, Judge};
use crate::plan::End;
use crate::script::Script;

/// Bytes of a command's words.
const COMMAND_BYTES: u64 = 8 * (niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS) as u64;
/// Word of the status line with what was refused.
const STATUS_REFUSED: usize = 4;

/// A host with a Match card.
pub struct MatchHost {
    node: u16,
    nic: Box<dyn Nic>,
    terms: Terms,
    ports: Vec<Port>,
    /// When the host has each event in hand, and the place of its port in `ports`.
    arrivals: VecDeque<(Time, usize)>,
    tally: Tally,
    replies: VecDeque<FrameBytes>,
    /// When the last data of a message is visible, of those whose event is to come.
    stored: BTreeMap<Message, Time>,
    /// Launches in the pages of all ports that the card has not taken yet.
    waiting: usize,
    /// The latest instant at which the card wanted something done.
    latest: Time,
    /// The program does nothing before this instant.
    not_before: Time,
}

impl MatchHost {
    /// A host whose card has no port open.
    #[must_use]
    pub fn new(node: u16, nic: Box<dyn Nic>, terms: Terms) -> Self {
        Self {
            node,
            nic,
            terms,
            ports: Vec::new(),
            arrivals: VecDeque::new(),
            tally: Tally::default(),
            replies: VecDeque::new(),
            stored: BTreeMap::new(),
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
        self.ports.iter().map(|port| (port.end.port.into(), port.launched, port.interrupts))
    }

    /// Interrupts of all ports.
    #[must_use]
    pub fn interrupts(&self) -> Interrupts {
        let mut sum = Interrupts::default();
        self.ports.iter().for_each(|port| sum.add(&port.interrupts));
        sum
    }

    /// A control request, and what the card answers.
    fn control(
        &mut self,
        operation: u32,
        body: Vec<u8>,
        judge: &mut Judge,
        effects: &mut Effects,
    ) -> Result<FrameBytes, Refused> {
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend(body);
        self.handle(self.clock(), Input::Control { token: 0, request: &request }, judge, effects);
        let reply = self.replies.pop_front().unwrap_or_default();
        let (head, body) = reply.split_at_checked(Reply::BYTES).unwrap_or_default();
        match Reply::from_bytes(head).map(|reply| reply.status) {
            Some(STATUS_OK) => Ok(FrameBytes::from_slice(body)),
            status => Err(Refused { operation, status: status.unwrap_or(u32::MAX) }),
        }
    }

    /// Registers the region of the port that was opened last.
    fn open_region(&mut self, judge: &mut Judge, effects: &mut Effects) -> Result<(), Refused> {
        let Some(port) = self.ports.last() else { return Ok(()) };
        let number = port.end.port.into();
        let extents: Vec<Extent> = port.memory.extents().collect();
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        let mut parts = extents.chunks(MAX_EXTENTS as usize);
        let first = parts.next().unwrap_or_default();
        let open = RegionOpen { port: number, extents: first.len() as u32, bytes, reserved: 0 };
        let reply = self.control(OP_REGION_OPEN, with_extents(&open, first), judge, effects)?;
        let region = RegionOpened::from_bytes(&reply).map_or(0, |opened| opened.region);
        for part in parts {
            let name = RegionName { port: number, region, extents: part.len() as u32, reserved: 0 };
            self.control(OP_REGION_EXTEND, with_extents(&name, part), judge, effects)?;
        }
        if let Some(port) = self.ports.last_mut() {
            port.region = region;
        }
        Ok(())
    }

    /// Tells the card something, and then of the launches that it can take by now.
    fn handle(&mut self, now: Time, input: Input<'_>, judge: &mut Judge, effects: &mut Effects) {
        self.feed(now, input, judge, effects);
        while let Some((launched, store)) = self.next_launch() {
            self.tally.launches += 1;
            self.tally.pio_bytes += COMMAND_BYTES;
            // The program launches one after the other: it does not wait for itself.
            self.feed(launched.max(self.clock()), Input::PageStore(store), judge, effects);
        }
    }

    /// The next launch of a page from which the card can take one.
    fn next_launch(&mut self) -> Option<(Time, PageStore)> {
        let Self { ports, nic, waiting, .. } = self;
        *waiting = waiting.checked_sub(1)?;
        let next = ports
            .iter_mut()
            .find(|port| !port.page.is_empty() && nic.accepts_store(port.end.port.into()))
            .and_then(|port| port.page.pop_front());
        *waiting += usize::from(next.is_none());
        next
    }

    fn feed(&mut self, now: Time, input: Input<'_>, judge: &mut Judge, effects: &mut Effects) {
        let given = match &input {
            Input::Frame { frame, .. } => *frame,
            _ => &[],
        };
        self.nic.handle(now, input);
        while let Some(output) = self.nic.poll_output() {
            self.latest = self.latest.max(output.at());
            match output {
                Output::Frame { at, frame, message } => {
                    self.tally.sent_frames += 1;
                    self.tally.sent_bytes += frame.len() as u64;
                    effects.frames.push((at, (frame, message)));
                }
                Output::DmaWrite { at, address, words, message, .. } => {
                    self.on_write(at, address, &words, message, judge);
                }
                Output::DmaFrame { at, bytes, ranges, message } => {
                    self.on_data(at, given.get(bytes).unwrap_or_default(), &ranges, message, judge);
                }
                Output::DmaRead { at, token, ranges, into, .. } => {
                    let bytes = self.load(&ranges, into, judge);
                    self.nic.handle(at, Input::DmaData { token, bytes, is_whole: true });
                }
                Output::Interrupt { cause, port, .. } => self.on_interrupt(cause, port, judge),
                Output::Reply { bytes, .. } => self.replies.push_back(FrameBytes::from_slice(&bytes)),
            }
        }
    }

    /// The card reads host memory.
    fn load(&mut self, ranges: &HostRanges, into: FrameBytes, judge: &mut Judge) -> FrameBytes {
        let node = self.node;
        let mut bytes = into;
        for range in ranges {
            self.tally.read_bytes += range.bytes;
            let port = Memory::port_of(range.address).and_then(|place| self.ports.get(place));
            match port.and_then(|port| port.memory.load(range)) {
                Some(part) => bytes.extend_from_slice(part),
                None => judge.fail(Check::RightMemory, || {
                    format!("node {node}: {range:x?} was read, which is in no region")
                }),
            }
        }
        bytes
    }

    /// The card stores data: into a place that was posted.
    fn on_data(
        &mut self,
        at: Time,
        data: &[u8],
        ranges: &HostRanges,
        message: Option<Message>,
        judge: &mut Judge,
    ) {
        let node = self.node;
        self.tally.dma_writes += 1;
        self.tally.dma_bytes += data.len() as u64;
        let mut data = data;
        for range in ranges {
            let (part, rest) = data.split_at_checked(range.bytes as usize).unwrap_or_default();
            data = rest;
            let port = Memory::port_of(range.address).and_then(|place| self.ports.get_mut(place));
            let is_right = port.is_some_and(|port| {
                port.memory.store(range, part).is_some_and(|begin| port.is_posted(begin, range.bytes))
            });
            if !is_right {
                judge.fail(Check::RightMemory, || {
                    format!("node {node}: data was stored to {range:x?}, where nothing is posted")
                });
            }
        }
        if let Some(message) = message {
            let last = self.stored.entry(message).or_insert(at);
            *last = at.max(*last);
        }
    }

    /// The card writes words: a whole status line whose counts do not fall, a counter, or the next event.
    fn on_write(
        &mut self,
        at: Time,
        address: u64,
        words: &DmaWords,
        message: Option<Message>,
        judge: &mut Judge,
    ) {
        self.tally.dma_writes += 1;
        self.tally.dma_bytes += words.len() as u64 * 8;
        let node = self.node;
        let number = Memory::port_of(address);
        let place = number.and_then(|number| self.ports.get(number)?.memory.place_of(address, words.len()));
        let Some((number, place)) = number.zip(place) else {
            let count = words.len();
            return judge.fail(Check::RightMemory, || {
                format!("node {node}: {count} words written to {address:#x}, which was not given")
            });
        };
        let Some(port) = self.ports.get_mut(number) else { return };
        match place {
            Place::Status => check_status(port, words, judge),
            Place::Counter(_) => {}
            Place::Event(index) => {
                check_event(port, index, words, judge);
                let data = message.and_then(|message| self.stored.remove(&message));
                if data.is_some_and(|data| data > at) {
                    let end = port.end;
                    judge.fail(Check::RightMemory, || format!("{end:?}: an event at {at:?} before its data"));
                }
                // The card has charged the host for the delivery.
                let in_hand = self.nic.host_clock().max(at);
                let after = self.arrivals.iter().rposition(|(earlier, _)| *earlier <= in_hand);
                self.arrivals.insert(after.map_or(0, |last| last + 1), (in_hand, number));
            }
        }
        port.memory.write(at, place, words);
    }

    fn on_interrupt(&mut self, cause: u32, number: u32, judge: &mut Judge) {
        let node = self.node;
        let Some(port) = self.ports.iter_mut().find(|port| u32::from(port.end.port) == number) else {
            return judge
                .fail(Check::RightPort, || format!("node {node}: an interrupt for closed port {number}"));
        };
        match cause {
            CAUSE_MESSAGE => port.interrupts.message += 1,
            CAUSE_ARMED => port.interrupts.armed += 1,
            other => {
                let end = port.end;
                judge.fail(Check::RightPort, || format!("{end:?}: an interrupt of unknown cause {other}"));
            }
        }
    }

    /// The program stores a command into a slot.
    fn launch(&mut self, now: Time, place: usize, judge: &mut Judge, effects: &mut Effects) {
        let Some(port) = self.ports.get_mut(place) else { return };
        let Some(command) = port.next_command() else { return };
        port.launched += 1;
        let number = port.end.port.into();
        let store = PageStore { port: number, code: command.code, words: command.words };
        // What waits in the page is taken first.
        if !port.page.is_empty() || !self.nic.accepts_store(number) {
            port.page.push_back((now, store));
            self.waiting += 1;
            return;
        }
        self.tally.launches += 1;
        self.tally.pio_bytes += COMMAND_BYTES;
        self.handle(now, Input::PageStore(store), judge, effects);
    }

    /// Reads the next event of a port; whether that was a message.
    fn receive(&mut self, now: Time, place: usize, judge: &mut Judge, effects: &mut Effects) -> bool {
        let Some(port) = self.ports.get_mut(place) else { return false };
        let Some(event) = port.memory.event(port.received + 1).copied() else { return false };
        let said = port.on_event(&event, judge);
        port.received += 1;
        if port.received - port.released >= port.release_interval {
            port.released = port.received;
            let (port, register) = (port.end.port.into(), Register::Released(port.released));
            self.tally.pio_bytes += 8;
            self.handle(now, Input::Register { port, register }, judge, effects);
        }
        said == Said::Received
    }

    /// The port with a command that it can launch.
    fn ready_port(&self) -> Option<usize> {
        self.ports.iter().position(|port| port.has_commands() && port.free_slots() > 0)
    }

    fn is_blocked(&self, flow: u32) -> bool {
        self.ports.iter().find(|port| port.sends() == Some(flow)).is_none_or(Port::is_blocked)
    }

    fn next_visible(&self) -> Option<Time> {
        self.ports.iter().filter_map(|port| port.memory.next_visible()).min()
    }
}

impl Host for MatchHost {
    /// Opens a port, registers its region, and posts what is there from the beginning.
    fn open(
        &mut self,
        plan: &PortPlan,
        slices: u32,
        judge: &mut Judge,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        if self.terms.window == 0 {
            return Err(Refused { operation: OP_PORT_OPEN, status: STATUS_NO_SPACE });
        }
        let end = End { node: self.node, port: plan.number as u16 };
        let port = Port::new(self.ports.len(), end, plan, slices, self.terms);
        let open = PortOpen {
            port: plan.number,
            slices,
            slices_address: port.memory.events_address(),
            status_address: port.memory.status_address(),
            ..PortOpen::default()
        };
        // The card charges the host for each release when its last event is consumed.
        let register = Register::ReleaseInterval(port.release_interval);
        self.ports.push(port);
        self.control(OP_PORT_OPEN, bytes_of(&open), judge, effects)?;
        self.handle(self.clock(), Input::Register { port: plan.number, register }, judge, effects);
        self.open_region(judge, effects)?;
        self.ports.iter_mut().rev().take(1).for_each(Port::set_up);
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

    fn arrive(&mut self, now: Time, (frame, message): &Parcel, judge: &mut Judge, effects: &mut Effects) {
        self.tally.received_frames += 1;
        self.tally.received_bytes += frame.len() as u64;
        self.handle(now, Input::Frame { frame, message: *message }, judge, effects);
    }

    fn timeout(&mut self, now: Time, judge: &mut Judge, effects: &mut Effects) {
        self.handle(now, Input::Timeout, judge, effects);
    }

    fn step(&mut self, now: Time, script: &mut Script, judge: &mut Judge, effects: &mut Effects) {
        self.ports.iter_mut().for_each(|port| port.memory.advance(now));
        if let Some(&(at, place)) = self.arrivals.front().filter(|(at, _)| *at <= now) {
            self.arrivals.pop_front();
            if self.receive(at, place, judge, effects) {
                script.on_received();
            }
            return;
        }
        if self.clock() > now {
            return;
        }
        // What the library owes to others comes before what the program wants.
        if let Some(place) = self.ready_port() {
            return self.launch(now, place, judge, effects);
        }
        let may_send = script.next(|flow| self.is_blocked(flow)).filter(|next| next.not_before <= now);
        let Some(outgoing) = may_send else { return };
        let sends = |port: &Port| port.sends() == Some(outgoing.flow);
        let Some(place) = self.ports.iter().position(sends) else { return };
        let mark = judge.on_sent(outgoing.flow, outgoing.bytes);
        self.ports.iter_mut().skip(place).take(1).for_each(|port| port.send(&mark, outgoing.interrupts));
        self.launch(now, place, judge, effects);
        script.on_sent(outgoing.flow);
    }

    fn soonest(&self) -> Time {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        arrival.into_iter().chain(self.next_visible()).fold(self.clock(), Time::min)
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        let clock = self.clock();
        let command = self.ready_port().map(|_| clock);
        let send = script.next(|flow| self.is_blocked(flow)).map(|next| next.not_before.max(clock));
        // Blocked for want of slots or credits: what becomes visible next may bring some.
        let is_waiting = script.unsent() > 0 || self.ports.iter().any(Port::has_commands);
        let news = self.next_visible().filter(|_| is_waiting && send.is_none() && command.is_none());
        [arrival, command, send, news].into_iter().flatten().min()
    }

    fn is_stuck(&self) -> bool {
        false
    }

    /// The world lets no such faults into this host's card.
    fn set_device_faults(&mut self, _: Rates) {}

    fn figures(&self) -> NodeFigures {
        figures::matching(self)
    }

    fn sums(&self) -> Vec<Sum> {
        figures::matching_sums(self)
    }

    fn finish(&mut self, judge: &mut Judge) {
        for port in &self.ports {
            let end = port.end;
            if port.stored > port.received {
                let (stored, received) = (port.stored, port.received);
                judge.fail(Check::Drained, || format!("{end:?}: {stored} events stored, {received} read"));
            }
            if port.has_commands() || !port.page.is_empty() {
                judge.fail(Check::Drained, || format!("{end:?}: commands were left in the page"));
            }
            let taken = port.launched - port.page.len() as u64;
            if taken.saturating_sub(port.reported) >= STATUS_LINE_INTERVAL.into() {
                let reported = port.reported;
                judge
                    .fail(Check::FlowControl, || format!("{end:?}: {reported} of {taken} launches reported"));
            }
        }
    }
}

/// A status line counts launches that do not fall, leaves none out, and refuses nothing.
fn check_status(port: &mut Port, line: &[u64], judge: &mut Judge) {
    let (end, before) = (port.end, port.reported);
    let launched = line.first().copied().unwrap_or(0);
    let is_next = (before..=before + u64::from(STATUS_LINE_INTERVAL)).contains(&launched);
    if !is_next || launched > port.launched {
        judge.fail(Check::FlowControl, || format!("{end:?}: {launched} launches reported after {before}"));
    }
    let refused = line.get(STATUS_REFUSED).copied().unwrap_or(0);
    if refused != 0 {
        judge.fail(Check::FlowControl, || format!("{end:?}: the card refused {refused} commands"));
    }
    port.reported = launched;
}

/// An event is the next one, and its place is free.
fn check_event(port: &mut Port, index: usize, words: &[u64], judge: &mut Judge) {
    let (end, released, places) = (port.end, port.released, port.places);
    let number = words.last().map_or(0, |status| status >> SLICE_NUMBER_SHIFT);
    let is_next = number == port.stored + 1 && (number - 1) % places == index as u64;
    if !is_next || number > released + places {
        judge.fail(Check::FlowControl, || {
            format!("{end:?}: event {number} written at place {index} when {released} were released")
        });
    }
    port.stored = port.stored.max(number);
}

fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    // Exactly as long as the value.
    let _ = value.to_bytes(&mut bytes);
    bytes
}

fn with_extents(body: &impl ToBytes, extents: &[Extent]) -> Vec<u8> {
    let mut bytes = bytes_of(body);
    bytes.extend(extents.iter().flat_map(bytes_of));
    bytes
}
