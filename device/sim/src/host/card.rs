//! A program and its library with a modelled card, whatever its kind: the library's own code ([`niclab_port`]) and the
//! workload's ([`niclab_workloads`]) over memory that is visible at instants of model time.

mod descriptors;
mod end;
mod faults;
mod figures;
mod listener;

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_PORT_OPEN, OP_ROUTE, PortOpen, Reply, Request, Route, STATUS_OK,
};
use niclab_abi::event::CAUSE_HANDED_OVER;
use niclab_abi::region::Extent;
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::conventional::Conventional;
use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::fault_injector::Rates;
use niclab_model::nic::hand_over::{self, HandOver, HandOverError};
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{DmaWords, FrameBytes, HostRanges, Input, Nic, Output, Register};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_observe::timeline::Owner;
use niclab_port::open_region;
use niclab_port::{Fault as PortFault, Loss, Queue, Requester};
use niclab_spec::report::NodeFigures;
use niclab_workloads::{End, FlowId, PortPlan, Read, Script, Transport};
use smallvec::SmallVec;

use self::descriptors::Chains;
use self::listener::CheckedReads;
use super::ethernet::Function;
use super::memory::{COUNTER_WORDS, Glance, Launch, Memory, Place};
use super::oracle::{Oracle, Progress, STATUS_SENT};
use super::tally::{Interrupts, Tally};
use super::{Effects, Host, InlinePacket, Refused, Sum};
use crate::checker::{Check, Checker};

/// Word of the status line with the launches that the card has taken.
const STATUS_LAUNCHED: usize = 0;

/// An open port.
struct Port<T: Transport> {
    end: End,
    number: u32,
    requester: Requester,
    queue: Queue<T::Records>,
    transport: T,
    oracle: Oracle,
    /// Launches that the card has not taken out of the page yet, because it has no room, and when the program made
    /// them.
    page: VecDeque<(Time, Launch)>,
}

impl<T: Transport> Port<T> {
    const fn progress(&self) -> Progress {
        Progress {
            launched: self.requester.launched(),
            received: self.queue.received(),
            released: self.queue.released(),
        }
    }
}

/// Makes what a port is opened for.
type MakeTransport<T> = Box<dyn Fn(&PortPlan) -> Option<T> + Send>;

/// A host with a modelled card.
pub struct CardHost<T: Transport> {
    node: u16,
    nic: AnyNic,
    /// It only receives: what stations send.
    ethernet: Function,
    bus: NodeBus,
    /// How messages go over a port that is opened for this.
    transport: MakeTransport<T>,
    ports: Vec<Port<T>>,
    /// What the program looks through to find the port of a flow.
    senders: Vec<(FlowId, u32)>,
    memory: Memory,
    /// What its program posts into the descriptor queues.
    chains: Chains,
    /// When the host has each record in hand, and the place of its port in `ports`.
    arrivals: VecDeque<(Time, usize)>,
    tally: Tally,
    /// Interrupts that are about no port.
    of_no_port: Interrupts,
    replies: VecDeque<FrameBytes>,
    /// When the last data of a message is visible, of those whose record is to come.
    stored: BTreeMap<TraceTag, Time>,
    /// Whether faults can befall the card: most have none, and need not be asked after each effect.
    is_faulty: bool,
    /// Faults of the device that are known.
    faults: u64,
    /// Whether one of them has held a completion up, or the card is adversarial and does so itself.
    is_late: bool,
    /// Launches in the pages of all ports that the card has not taken yet.
    waiting: usize,
    /// The latest instant at which the card wanted something done.
    latest: Time,
    /// The program does nothing before this instant.
    not_before: Time,
}

impl<T: Transport> CardHost<T> {
    /// A host whose card has no port open. `transport` makes what a port is opened for, unless the card has too little
    /// room.
    #[must_use]
    pub fn new(
        node: u16,
        nic: AnyNic,
        ethernet: Conventional,
        transport: impl Fn(&PortPlan) -> Option<T> + Send + 'static,
    ) -> Self {
        Self {
            node,
            is_faulty: nic.fault_injector().is_some(),
            is_late: nic.adversarial().is_some(),
            nic,
            ethernet: Function::new(ethernet),
            bus: NodeBus::default(),
            transport: Box::new(transport),
            ports: Vec::new(),
            senders: Vec::new(),
            memory: Memory::default(),
            chains: Chains::default(),
            arrivals: VecDeque::new(),
            tally: Tally::default(),
            of_no_port: Interrupts::default(),
            replies: VecDeque::new(),
            stored: BTreeMap::new(),
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
        self.ports.iter().map(|port| (port.number, port.requester.launched(), port.oracle.interrupts))
    }

    /// Interrupts of all ports, and those that are about none.
    #[must_use]
    pub fn interrupts(&self) -> Interrupts {
        let mut sum = self.of_no_port;
        self.ports.iter().for_each(|port| sum.add(&port.oracle.interrupts));
        sum
    }

    /// A control request, and what the card answers.
    fn control(
        &mut self,
        operation: u32,
        body: Vec<u8>,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<FrameBytes, Refused> {
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend(body);
        self.handle(self.clock(), Input::Control { token: 0, request: &request }, checker, effects);
        let reply = self.replies.pop_front().unwrap_or_default();
        let (head, body) = reply.split_at_checked(Reply::BYTES).unwrap_or_default();
        match Reply::from_bytes(head).map(|reply| reply.status) {
            Some(STATUS_OK) => Ok(FrameBytes::from_slice(body)),
            status => Err(Refused { operation, status: status.unwrap_or(u32::MAX) }),
        }
    }

    /// Registers the region of a port, if it needs one; the card's name of it.
    fn open_region(
        &mut self,
        place: usize,
        number: u32,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<u32, Refused> {
        let extents: Vec<Extent> = self.memory.extents(place).collect();
        if extents.is_empty() {
            return Ok(0);
        }
        let ask = |operation, body| self.control(operation, body, checker, effects);
        Ok(open_region(number, &extents, ask)?.unwrap_or_default())
    }

    /// Lets the partners of a port send to it, where senders are held back by their shares of its queue.
    fn authorize(
        &mut self,
        place: usize,
        plan: &PortPlan,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let Some(port) = self.ports.get_mut(place) else { return Ok(()) };
        let mut view = self.memory.view(place, port.number);
        let interval = port.transport.release_interval(port.queue.capacity());
        port.queue.set_release_interval(interval, &mut view);
        let credits = port.transport.credits(port.queue.capacity());
        if let Some(credits) = credits {
            port.queue.narrow_release_interval(credits, &mut view);
        }
        let interval = port.queue.release_interval();
        for &(_, End { node, port }) in plan.partners.iter().filter(|_| credits.is_some()) {
            let credits = credits.unwrap_or_default();
            let entry = Authorize { port: plan.number, node: node.into(), node_port: port.into(), credits };
            self.control(OP_AUTHORIZE, bytes_of(&entry), checker, effects)?;
        }
        // The card charges the host for each release when its last record is consumed.
        let register = Register::ReleaseInterval(interval);
        let input = Input::Register { port: plan.number, register };
        self.handle(self.clock(), input, checker, effects);
        Ok(())
    }

    /// Tells the card something, and then of launches and chains that it has room for by now.
    fn handle(&mut self, now: Time, input: Input<'_>, checker: &mut Checker, effects: &mut Effects) {
        self.feed(now, input, checker, effects);
        while let Some((launched, launch)) = self.next_launch() {
            self.tally.launches += 1;
            self.tally.pio_bytes += launch.bytes;
            // The program launches one after the other: it does not wait for itself.
            self.feed(launched.max(self.clock()), Input::PageStore(launch.store), checker, effects);
        }
        while let Some(chain) = self.chains.next(&*self.nic) {
            self.feed(self.clock(), Input::Descriptor(chain), checker, effects);
        }
    }

    /// The next launch of a page from which the card can take one.
    fn next_launch(&mut self) -> Option<(Time, Launch)> {
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

    fn feed(&mut self, now: Time, input: Input<'_>, checker: &mut Checker, effects: &mut Effects) {
        self.nic.handle(now, input, &mut self.bus);
        self.carry_out(checker, effects);
    }

    /// Carries out what the card wants done.
    fn carry_out(&mut self, checker: &mut Checker, effects: &mut Effects) {
        loop {
            let output = self.nic.poll_output();
            if self.is_faulty {
                self.note_faults(checker);
            }
            let Some(output) = output else { break };
            self.latest = self.latest.max(output.at());
            match output {
                Output::Frame { at: head, tail, frame, message } => {
                    self.tally.sent_frames += 1;
                    self.tally.sent_bytes += frame.len() as u64;
                    let (passage, concern) = (Passage { head, tail }, Concern::of(&frame));
                    effects.frames.push_back(InlinePacket { frame, message, passage, concern });
                }
                Output::DmaWrite { at, address, words, message, .. } => {
                    self.on_write(at, address, &words, message, checker);
                }
                Output::DmaFrame { at, frame, bytes, ranges, message } => {
                    self.on_data(at, frame.get(bytes).unwrap_or_default(), &ranges, message, checker);
                }
                Output::DmaRead { at, token, ranges, into, .. } => {
                    let bytes = self.load(&ranges, into, checker);
                    let data = Input::DmaData { token, bytes, is_whole: true };
                    self.nic.handle(at, data, &mut self.bus);
                }
                Output::WindowRead { at, token, range, into, .. } => {
                    let place = self.ports.iter().position(|port| port.number == range.port);
                    let mut bytes = into;
                    let pushed = place.and_then(|place| self.memory.pushed(place, &range.bytes));
                    bytes.extend_from_slice(pushed.unwrap_or_default());
                    let data = Input::DmaData { token, bytes, is_whole: pushed.is_some() };
                    self.nic.handle(at, data, &mut self.bus);
                }
                Output::LentFrame { .. } | Output::DmaLent { .. } => {
                    checker.fail(Check::RightMemory, || "a card was lent nothing".to_owned());
                }
                Output::Interrupt { cause, port, .. } => self.on_interrupt(cause, port, checker),
                Output::Complete { at, token, bytes } => self.on_complete(at, token, bytes, checker),
                Output::Reply { bytes, .. } => self.replies.push_back(FrameBytes::from_slice(&bytes)),
            }
        }
    }

    /// The card reads host memory.
    fn load(&mut self, ranges: &HostRanges, into: FrameBytes, checker: &mut Checker) -> FrameBytes {
        let node = self.node;
        let mut bytes = into;
        for range in ranges {
            self.tally.read_bytes += range.bytes;
            match self.memory.load(range) {
                Some(part) => bytes.extend_from_slice(part),
                None => checker.fail(Check::RightMemory, || {
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
        message: Option<TraceTag>,
        checker: &mut Checker,
    ) {
        let node = self.node;
        self.tally.dma_writes += 1;
        self.tally.dma_bytes += data.len() as u64;
        checker.stored_bytes += data.len() as u64;
        let mut data = data;
        for range in ranges {
            let (part, rest) = data.split_at_checked(range.bytes as usize).unwrap_or_default();
            data = rest;
            let is_right = self.memory.store(range, part).is_some_and(|(place, begin)| {
                let port = self.ports.get(place);
                self.chains.may_write(range)
                    || port.is_some_and(|port| {
                        port.oracle.is_astray || port.transport.is_posted(begin, range.bytes)
                    })
            });
            if !is_right {
                checker.fail(Check::RightMemory, || {
                    format!("node {node}: data was stored to {range:x?}, where nothing is posted")
                });
            }
        }
        if let Some(message) = message {
            let last = self.stored.entry(message).or_insert(at);
            *last = at.max(*last);
        }
    }

    /// The card writes words: a status line whose counts do not fall, a counter, or the end of the next record.
    fn on_write(
        &mut self,
        at: Time,
        address: u64,
        words: &DmaWords,
        message: Option<TraceTag>,
        checker: &mut Checker,
    ) {
        self.tally.dma_writes += 1;
        self.tally.dma_bytes += words.len() as u64 * 8;
        let node = self.node;
        let place = self.memory.place_of(address, words.len());
        let Some((place, what)) = place else {
            let count = words.len();
            return checker.fail(Check::RightMemory, || {
                format!("node {node}: {count} words written to {address:#x}, which was not given")
            });
        };
        let Some(port) = self.ports.get_mut(place) else { return };
        let progress = port.progress();
        match what {
            Place::Status => port.oracle.on_status(words, progress, checker),
            // What is cut short is, where a fault of the device cuts it.
            Place::Counter(_) if words.len() != COUNTER_WORDS && !port.oracle.is_astray => {
                let (end, count) = (port.end, words.len());
                checker.fail(Check::RightMemory, || format!("{end:?}: a counter of {count} words"));
            }
            Place::Counter(_) => {}
            Place::Record { index, word, ends_with_status } => {
                let number = words.last().map_or(0, |status| status >> 32);
                let end = port.end;
                let is_part = word != 0 || !ends_with_status;
                if T::HAS_WHOLE_RECORDS && is_part && !port.oracle.is_astray {
                    let count = words.len();
                    checker
                        .fail(Check::RightMemory, || format!("{end:?}: {count} words of a record of eleven"));
                }
                if ends_with_status {
                    port.oracle.on_record(number, index, progress, checker);
                    let data = message.and_then(|message| self.stored.remove(&message));
                    // Behind a completion that is held up, data goes on: of other messages, and of this one once more.
                    let is_excused = port.oracle.is_astray || self.is_late;
                    if data.is_some_and(|data| data > at) && !is_excused {
                        checker.fail(Check::RightMemory, || {
                            format!("{end:?}: a record at {at:?} before its data")
                        });
                    }
                    // The card has charged the host for the delivery.
                    let in_hand = self.bus.clock().max(at);
                    let after = self.arrivals.iter().rposition(|(earlier, _)| *earlier <= in_hand);
                    self.arrivals.insert(after.map_or(0, |last| last + 1), (in_hand, place));
                }
            }
        }
        self.memory.write(at, place, what, words);
    }

    fn on_interrupt(&mut self, cause: u32, number: u32, checker: &mut Checker) {
        let node = self.node;
        match self.ports.iter_mut().find(|port| port.number == number) {
            _ if cause == CAUSE_HANDED_OVER => self.of_no_port.handed_over += 1,
            Some(port) => port.oracle.on_interrupt(cause, checker),
            None => checker
                .fail(Check::RightPort, || format!("node {node}: an interrupt for closed port {number}")),
        }
    }

    /// The port of a flow that the program sends over.
    fn sender(&self, flow: FlowId) -> Option<usize> {
        self.senders.iter().find(|(sends, _)| *sends == flow).map(|(_, place)| *place as usize)
    }

    /// Whether a port has a slot for another launch, for all that its program can see.
    fn has_slot(&self, place: usize) -> bool {
        let glance = Glance { memory: &self.memory, port: place };
        self.ports.get(place).is_some_and(|port| port.requester.would_have_slot(&glance))
    }

    fn is_blocked(&self, flow: FlowId) -> bool {
        let port = self.sender(flow).and_then(|place| Some((place, self.ports.get(place)?)));
        let Some((place, port)) = port else { return true };
        let glance = Glance { memory: &self.memory, port: place };
        !port.requester.would_have_slot(&glance) || port.transport.is_blocked(&glance)
    }

    /// The port with something to launch that it owes to others, and a slot for it.
    fn ready_port(&self) -> Option<usize> {
        if !T::OWES_LAUNCHES {
            return None;
        }
        let mut ports = self.ports.iter().enumerate();
        ports
            .find(|(place, port)| port.transport.has_launches() && self.has_slot(*place))
            .map(|found| found.0)
    }

    /// The program launches from the next slot of a port.
    fn launch(&mut self, now: Time, place: usize, checker: &mut Checker, effects: &mut Effects) {
        let Some(port) = self.ports.get_mut(place) else { return };
        let end = port.end;
        match port.requester.has_slot(&Glance { memory: &self.memory, port: place }) {
            Ok(true) => {}
            Ok(false) => return,
            Err(fault) => return checker.fail(Check::FlowControl, || format!("{end:?}: {fault}")),
        }
        let mut view = self.memory.view(place, port.number);
        let received = port.queue.received();
        port.transport.launch(&mut port.requester, &mut view, received);
        let Some(launch) = view.launched else { return };
        // What waits in the page is taken first.
        if !port.page.is_empty() || !self.nic.accepts_store(port.number) {
            port.page.push_back((now, launch));
            self.waiting += 1;
            return;
        }
        self.tally.launches += 1;
        self.tally.pio_bytes += launch.bytes;
        self.handle(now, Input::PageStore(launch.store), checker, effects);
    }

    /// Reads the next record of a port, if it is there. Those that a fault of the device made unreadable are passed
    /// over, as the library does once it sees that the card has gone on.
    fn receive(
        &mut self,
        now: Time,
        place: usize,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Option<Read> {
        loop {
            let port = self.ports.get_mut(place)?;
            let before = port.queue.received();
            let mut view = self.memory.view(place, port.number);
            let spoiled = port.oracle.pass(before + 1);
            let is_spoiled = spoiled.is_some() || port.oracle.is_astray;
            let is_peer_astray = self
                .senders
                .iter()
                .any(|(flow, from)| *from as usize == place && checker.is_receiver_astray(*flow));
            let wanted = spoiled.flatten();
            let mut told = CheckedReads { checker: &mut *checker, is_spoiled, is_peer_astray, wanted };
            let read = port.transport.read(&mut port.queue, &mut view, &mut told);
            if read.is_none() {
                spoiled?;
                // The library learns it from what lies behind, if anything does.
                let Err(PortFault::Lost { count, .. }) = port.queue.check(&mut view) else {
                    port.queue.pass_over(1, Loss::Skipped(before + 2), &mut view);
                    let registers = view.registers;
                    self.consumed(now, place, before, registers, checker, effects);
                    continue;
                };
                let end = port.end;
                for number in before + 2..=before + count {
                    if port.oracle.pass(number).is_none() {
                        checker
                            .fail(Check::NothingLost, || format!("{end:?}: record {number} was passed over"));
                    }
                }
            }
            let registers = view.registers;
            self.consumed(now, place, before, registers, checker, effects);
            if read.is_some() {
                return read;
            }
        }
    }

    /// The program of a port has read what came after `before`, and stored to registers.
    fn consumed(
        &mut self,
        now: Time,
        place: usize,
        before: u64,
        registers: SmallVec<[Register; 2]>,
        checker: &mut Checker,
        effects: &mut Effects,
    ) {
        let Some(port) = self.ports.get(place) else { return };
        let (number, received) = (port.number, port.queue.received());
        (before + 1..=received).for_each(|read| self.memory.forget(place, read));
        for register in registers {
            self.tally.pio_bytes += 8;
            self.handle(now, Input::Register { port: number, register }, checker, effects);
        }
    }
}

impl<T: Transport> Host for CardHost<T> {
    fn stands_alone(&self) -> bool {
        // What befalls a faulty card excuses others.
        !self.is_faulty
    }

    fn open(
        &mut self,
        plan: &PortPlan,
        records: u32,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        let place = self.ports.len();
        let transport = (self.transport)(plan);
        let no_space = Refused { operation: OP_PORT_OPEN, status: niclab_abi::control::STATUS_NO_SPACE };
        let transport = transport.ok_or(no_space)?;
        self.memory.open(records, transport.region_bytes());
        self.senders.extend(plan.sends.iter().map(|(flow, _)| (*flow, place as u32)));
        let end = End { node: self.node, port: plan.number as u16 };
        self.ports.push(Port {
            end,
            number: plan.number,
            requester: Requester::new(0),
            queue: Queue::new(records, 0),
            transport,
            oracle: Oracle::new(end, records),
            page: VecDeque::new(),
        });
        let open = PortOpen {
            port: plan.number,
            slices: records,
            slices_address: Memory::records_address(place),
            status_address: Memory::status_address(place),
            ..PortOpen::default()
        };
        self.control(OP_PORT_OPEN, bytes_of(&open), checker, effects)?;
        self.authorize(place, plan, checker, effects)?;
        let region = self.open_region(place, plan.number, checker, effects)?;
        let Some(port) = self.ports.get_mut(place) else { return Ok(()) };
        port.transport.begin(region);
        for (operation, body) in port.transport.requests() {
            self.control(operation, body, checker, effects)?;
        }
        let Some(port) = self.ports.get(place) else { return Ok(()) };
        let is_routed = port.transport.credits(records).is_some();
        for &(_, End { node, port }) in plan.sends.iter().filter(|_| is_routed) {
            let route = Route { port: plan.number, node: node.into(), node_port: port.into(), reserved: 0 };
            self.control(OP_ROUTE, bytes_of(&route), checker, effects)?;
        }
        Ok(())
    }

    fn clock(&self) -> Time {
        self.bus.clock().max(self.not_before)
    }

    fn rest(&self) -> Time {
        self.clock().max(self.latest)
    }

    fn begin_at(&mut self, begin: Time) {
        self.not_before = begin;
        self.nic.begin_part(begin);
    }

    fn deadline(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }

    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }

    fn visit_ledgers(&mut self, visit: &mut dyn FnMut(Owner, &mut Ledger)) {
        Owner::visit(self.node, &mut *self.nic, &mut *visit);
        visit(Owner::Ethernet(self.node), self.ethernet.nic.ledger_mut());
    }

    fn sent_frames(&self) -> u64 {
        self.tally.sent_frames
    }

    fn arrive(&mut self, now: Time, packet: &InlinePacket, checker: &mut Checker, effects: &mut Effects) {
        if packet.concern != Concern::Card && !self.is_for_stations(now, packet) {
            return;
        }
        let InlinePacket { frame, message, passage, .. } = packet;
        self.tally.received_frames += 1;
        self.tally.received_bytes += frame.len() as u64;
        let input = Input::Frame { frame, head: passage.head, message: *message };
        self.handle(now, input, checker, effects);
    }

    fn timeout(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects) {
        self.handle(now, Input::Timeout, checker, effects);
    }

    fn hand_over(
        &mut self,
        now: Time,
        step: HandOver<'_>,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), HandOverError> {
        let begun = self.nic.hand_over(now, step, &mut self.bus);
        self.carry_out(checker, effects);
        begun
    }

    fn progress(&self) -> hand_over::Progress {
        self.nic.progress()
    }

    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects) {
        self.memory.advance(now);
        while let Some(&(at, place)) = self.arrivals.front().filter(|(at, _)| *at <= now) {
            self.arrivals.pop_front();
            match self.receive(at, place, checker, effects) {
                Some(Read::Message) => return script.on_received(),
                Some(Read::Other) => return,
                None => {}
            }
        }
        if self.clock() > now {
            return;
        }
        // What the library owes to others comes before what the program wants.
        if let Some(place) = self.ready_port() {
            return self.launch(now, place, checker, effects);
        }
        let may_send = script.next(|flow| self.is_blocked(flow));
        let Some(outgoing) = may_send.filter(|next| next.not_before_ps <= now.as_ps()) else { return };
        let Some(place) = self.sender(outgoing.flow) else { return };
        let mark = checker.on_sent(outgoing.flow, outgoing.bytes);
        if let Some(port) = self.ports.get_mut(place) {
            let mut view = self.memory.view(place, port.number);
            port.transport.send(&mark, outgoing.interrupts, &mut view);
        }
        self.launch(now, place, checker, effects);
        script.on_sent(outgoing.flow);
    }

    fn soonest(&self) -> Time {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        arrival.into_iter().chain(self.memory.next_visible()).fold(self.clock(), Time::min)
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let arrival = self.arrivals.front().map(|(at, _)| *at);
        let clock = self.clock();
        let launch = self.ready_port().map(|_| clock);
        let next = script.next(|flow| self.is_blocked(flow));
        let send = next.map(|next| Time::from_ps(next.not_before_ps).max(clock));
        // Blocked for want of slots or credits: what becomes visible next may bring some.
        let news = if send.is_none() && launch.is_none() && self.waits_for_news(script) {
            self.memory.next_visible()
        } else {
            None
        };
        [arrival, launch, send, news].into_iter().flatten().min()
    }

    fn is_stuck(&self, _: &Checker) -> bool {
        let ports = self.ports.iter().enumerate();
        ports.into_iter().any(|(place, port)| {
            let seen = |word| self.memory.status_word(place, word);
            let glance = Glance { memory: &self.memory, port: place };
            let is_blocked = port.transport.is_blocked(&glance);
            port.oracle.is_stuck(port.requester.launched(), seen(STATUS_LAUNCHED))
                || (is_blocked && port.oracle.is_kept_from_seeing(seen(STATUS_SENT)))
        })
    }

    fn set_device_faults(&mut self, rates: Rates) {
        if let Some(fault_injector) = self.nic.fault_injector_mut() {
            fault_injector.set_rates(rates);
        }
    }

    fn figures(&self) -> NodeFigures {
        figures::node(self)
    }

    fn sums(&self) -> Vec<Sum> {
        figures::sums(self)
    }

    fn finish(&mut self, checker: &mut Checker) {
        self.memory.advance(Time::from_ps(u64::MAX));
        for place in 0..self.ports.len() {
            self.finish_port(place, checker);
        }
        let (node, unsent) = (self.node, self.chains.unsent());
        if unsent > 0 {
            checker.fail(Check::Drained, || format!("node {node}: {unsent} chains were never sent"));
        }
    }
}

impl<T: Transport> CardHost<T> {
    /// An ordinary frame: the Ethernet function gets what is its own. Whether stations get it, too.
    #[cold]
    fn is_for_stations(&mut self, now: Time, packet: &InlinePacket) -> bool {
        let concern = packet.concern;
        let is_for_host = concern.is_for_host(self.node);
        let is_for_stations = concern.is_for_stations(self.node) && self.nic.has_stations();
        if is_for_host {
            self.ethernet.take(now, packet, &mut self.bus);
        }
        self.ethernet.tally.dropped_frames += u64::from(!is_for_host && !is_for_stations);
        is_for_stations
    }
}

fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    // Exactly as long as the value.
    let _ = value.to_bytes(&mut bytes);
    bytes
}
