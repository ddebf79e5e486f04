//! A program and its library with a modelled card of any kind. It runs the library's code ([`niclab_port`]) and the
//! workload's ([`niclab_workloads`]) over memory that changes at instants of model time.

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
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::fault_injector::Rates;
use niclab_model::nic::firmware_reload::{self, FirmwareReloadError, FirmwareReloadStep};
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
use super::memory::{COUNTER_WORDS, Glance, HostMemory, Launch, MemoryLocation};
use super::oracle::{Oracle, Progress, STATUS_SENT};
use super::tally::{Interrupts, Tally};
use super::{Effects, FrameInFlight, Host, Refused, Sum};
use crate::checker::{Check, Checker};

/// Word of the status line: the number of posts that the card has accepted.
const STATUS_LAUNCHED: usize = 0;

/// An open port.
struct SimPort<T: Transport> {
    end: End,
    number: u32,
    requester: Requester,
    queue: Queue<T::Records>,
    transport: T,
    oracle: Oracle,
    /// Posts in the page that the card has not accepted yet, because it has no room, with the times of the posts.
    page: VecDeque<(Time, Launch)>,
}

impl<T: Transport> SimPort<T> {
    const fn progress(&self) -> Progress {
        Progress {
            launched: self.requester.launched(),
            received: self.queue.received(),
            released: self.queue.released(),
        }
    }
}

/// Makes the transport of a port.
type MakeTransport<T> = Box<dyn Fn(&PortPlan) -> Option<T> + Send>;

/// A host with a modelled card.
pub struct CardHost<T: Transport> {
    node: u16,
    nic: AnyNic,
    /// The Ethernet function. It only receives frames of MAC endpoints.
    ethernet: Function,
    bus: NodeBus,
    /// Makes the transport of each port.
    transport: MakeTransport<T>,
    ports: Vec<SimPort<T>>,
    /// The flows that the program sends on, with their ports.
    senders: Vec<(FlowId, u32)>,
    memory: HostMemory,
    /// The chains that its program posts to the descriptor queues.
    chains: Chains,
    /// Times at which the host has received each record, with the index of its port in `ports`.
    arrivals: VecDeque<(Time, usize)>,
    tally: Tally,
    /// Interrupts that belong to no port.
    of_no_port: Interrupts,
    replies: VecDeque<FrameBytes>,
    /// For each message whose record is pending: the time at which its last data is visible.
    stored: BTreeMap<TraceTag, Time>,
    /// Whether the card has a fault injector. Most cards have none, so the host skips the check after each effect.
    is_faulty: bool,
    /// Number of the latest device fault that the host has processed.
    faults: u64,
    /// Whether a completion was delayed, by a fault or by an adversarial card.
    is_late: bool,
    /// Number of posts in the pages of all ports that the card has not accepted yet.
    waiting: usize,
    /// The latest time of an output of the card.
    latest: Time,
    /// The program does nothing before this time.
    not_before: Time,
}

impl<T: Transport> CardHost<T> {
    /// A host whose card has no open port. `transport` makes a port's transport, or returns none if the card has too
    /// little room.
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
            memory: HostMemory::default(),
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

    /// The traffic at the model's interface.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Number of posts, and interrupts, of each open port, with the port's number.
    pub fn ports(&self) -> impl Iterator<Item = (u32, u64, Interrupts)> + '_ {
        self.ports.iter().map(|port| (port.number, port.requester.launched(), port.oracle.interrupts))
    }

    /// Interrupts of all ports, and those that belong to no port.
    #[must_use]
    pub fn interrupts(&self) -> Interrupts {
        let mut sum = self.of_no_port;
        self.ports.iter().for_each(|port| sum.add(&port.oracle.interrupts));
        sum
    }

    /// Sends a control request to the card and returns its reply.
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

    /// Registers a port's region, if it needs one, and returns the card's key for it.
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

    /// Authorizes a port's partners to send to it, if its queue has credits.
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
        // The card charges the host for each release when the last record of its interval is consumed.
        let register = Register::ReleaseInterval(interval);
        let input = Input::Register { port: plan.number, register };
        self.handle(self.clock(), input, checker, effects);
        Ok(())
    }

    /// Gives an input to the card, and then the posts and chains for which it has room by now.
    fn handle(&mut self, now: Time, input: Input<'_>, checker: &mut Checker, effects: &mut Effects) {
        self.feed(now, input, checker, effects);
        while let Some((launched, launch)) = self.next_launch() {
            self.tally.launches += 1;
            self.tally.pio_bytes += launch.bytes;
            // The program's posts take effect one after the other, even if the program does not wait for the card.
            self.feed(launched.max(self.clock()), Input::PageStore(launch.store), checker, effects);
        }
        while let Some(chain) = self.chains.next(&*self.nic) {
            self.feed(self.clock(), Input::Descriptor(chain), checker, effects);
        }
    }

    /// The next post that the card can accept from a page.
    fn next_launch(&mut self) -> Option<(Time, Launch)> {
        let Self { ports, nic, waiting, .. } = self;
        // Usually no post waits, and the ports need not be checked.
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

    /// Applies the card's outputs.
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
                    let (passage, class) = (Passage { head, tail }, FrameClass::of(&frame));
                    effects.frames.push_back(FrameInFlight { frame, message, passage, class });
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
                Output::BorrowedFrame { .. } | Output::DmaBorrowed { .. } => {
                    checker.fail(Check::RightMemory, || {
                        "the card returned borrowed memory that the host never lent".to_owned()
                    });
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
                    format!("node {node}: the card read {range:x?}, which is in no region")
                }),
            }
        }
        bytes
    }

    /// The card stores data into posted memory.
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
                        port.oracle.is_misled || port.transport.is_posted(begin, range.bytes)
                    })
            });
            if !is_right {
                checker.fail(Check::RightMemory, || {
                    format!("node {node}: the card stored data to {range:x?}, where no memory is posted")
                });
            }
        }
        if let Some(message) = message {
            let last = self.stored.entry(message).or_insert(at);
            *last = at.max(*last);
        }
    }

    /// The card writes words: a status line whose counts do not decrease, a counter, or the end of the next record.
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
        let place = self.memory.location_of(address, words.len());
        let Some((place, what)) = place else {
            let count = words.len();
            return checker.fail(Check::RightMemory, || {
                format!("node {node}: the card wrote {count} words to {address:#x}, which is no memory of the host")
            });
        };
        let Some(port) = self.ports.get_mut(place) else { return };
        let progress = port.progress();
        match what {
            MemoryLocation::Status => port.oracle.on_status(words, progress, checker),
            // A fault of the device may shorten the write.
            MemoryLocation::Counter(_) if words.len() != COUNTER_WORDS && !port.oracle.is_misled => {
                let (end, count) = (port.end, words.len());
                checker.fail(Check::RightMemory, || {
                    format!("{end:?}: the card wrote {count} words to a counter")
                });
            }
            MemoryLocation::Counter(_) => {}
            MemoryLocation::Record { index, word, ends_with_status } => {
                let number = words.last().map_or(0, |status| status >> 32);
                let end = port.end;
                let is_part = word != 0 || !ends_with_status;
                if T::HAS_WHOLE_RECORDS && is_part && !port.oracle.is_misled {
                    let count = words.len();
                    checker.fail(Check::RightMemory, || {
                        format!("{end:?}: the card wrote {count} words of a record of eleven")
                    });
                }
                if ends_with_status {
                    port.oracle.on_record(number, index, progress, checker);
                    let data = message.and_then(|message| self.stored.remove(&message));
                    // After a delayed completion data continues to arrive: data of other messages, and of this one
                    // again.
                    let is_excused = port.oracle.is_misled || self.is_late;
                    if data.is_some_and(|data| data > at) && !is_excused {
                        checker.fail(Check::RightMemory, || {
                            format!("{end:?}: the record at {at:?} arrived before its data")
                        });
                    }
                    // The card has charged the host for the delivery.
                    let received_at = self.bus.clock().max(at);
                    let after = self.arrivals.iter().rposition(|(earlier, _)| *earlier <= received_at);
                    self.arrivals.insert(after.map_or(0, |last| last + 1), (received_at, place));
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
            None => checker.fail(Check::RightPort, || {
                format!("node {node}: the card raised an interrupt for the closed port {number}")
            }),
        }
    }

    /// The port for a flow that the program sends on.
    fn sender(&self, flow: FlowId) -> Option<usize> {
        self.senders.iter().find(|(sends, _)| *sends == flow).map(|(_, place)| *place as usize)
    }

    /// Whether the program can see that a port has a slot for another post.
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

    /// A port with a pending post of its transport, and a slot for it.
    fn ready_port(&self) -> Option<usize> {
        if !T::OWES_LAUNCHES {
            return None;
        }
        let mut ports = self.ports.iter().enumerate();
        ports
            .find(|(place, port)| port.transport.has_launches() && self.has_slot(*place))
            .map(|found| found.0)
    }

    /// The program posts the next slot of a port.
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
        // The card accepts waiting posts of the page first.
        if !port.page.is_empty() || !self.nic.accepts_store(port.number) {
            port.page.push_back((now, launch));
            self.waiting += 1;
            return;
        }
        self.tally.launches += 1;
        self.tally.pio_bytes += launch.bytes;
        self.handle(now, Input::PageStore(launch.store), checker, effects);
    }

    /// Reads the next record of a port, if there is one. It skips records that a device fault made unreadable. The
    /// library skips them, too, when it sees later records.
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
            let is_spoiled = spoiled.is_some() || port.oracle.is_misled;
            let is_peer_misled = self
                .senders
                .iter()
                .any(|(flow, from)| *from as usize == place && checker.is_receiver_misled(*flow));
            let wanted = spoiled.flatten();
            let mut reads = CheckedReads { checker: &mut *checker, is_spoiled, is_peer_misled, wanted };
            let read = port.transport.read(&mut port.queue, &mut view, &mut reads);
            if read.is_none() {
                spoiled?;
                // The library learns of the loss from later records, if there are any.
                let Err(PortFault::Lost { count, .. }) = port.queue.check(&mut view) else {
                    port.queue.pass_over(1, Loss::Skipped(before + 2), &mut view);
                    let registers = view.registers;
                    self.consumed(now, place, before, registers, checker, effects);
                    continue;
                };
                let end = port.end;
                for number in before + 2..=before + count {
                    if port.oracle.pass(number).is_none() {
                        checker.fail(Check::NothingLost, || {
                            format!(
                                "{end:?}: the program skipped record {number}, although no fault affected it"
                            )
                        });
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

    /// The program of a port has read the records after `before`, and stored to registers.
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
        // Faults of a card excuse failures of other nodes.
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
        self.ports.push(SimPort {
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
            slices_address: HostMemory::records_address(place),
            status_address: HostMemory::status_address(place),
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

    fn arrive(&mut self, now: Time, packet: &FrameInFlight, checker: &mut Checker, effects: &mut Effects) {
        if packet.class != FrameClass::Card && !self.is_for_mac_endpoints(now, packet) {
            return;
        }
        let FrameInFlight { frame, message, passage, .. } = packet;
        self.tally.received_frames += 1;
        self.tally.received_bytes += frame.len() as u64;
        let input = Input::Frame { frame, head: passage.head, message: *message };
        self.handle(now, input, checker, effects);
    }

    fn timeout(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects) {
        self.handle(now, Input::Timeout, checker, effects);
    }

    fn reload_firmware(
        &mut self,
        now: Time,
        step: FirmwareReloadStep<'_>,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), FirmwareReloadError> {
        let begun = self.nic.reload_firmware(now, step, &mut self.bus);
        self.carry_out(checker, effects);
        begun
    }

    fn progress(&self) -> firmware_reload::Progress {
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
        // The library's own posts come before those of the program.
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
        // No slots or credits: the next visible write may bring some.
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
            checker.fail(Check::Drained, || format!("node {node}: the card never sent {unsent} chains"));
        }
    }
}

impl<T: Transport> CardHost<T> {
    /// An ordinary frame. Delivers it to the Ethernet function if it is for it. Returns whether MAC endpoints get it,
    /// too.
    #[cold]
    fn is_for_mac_endpoints(&mut self, now: Time, packet: &FrameInFlight) -> bool {
        let class = packet.class;
        let is_for_host = class.is_for_host(self.node);
        let is_for_mac_endpoints = class.is_for_mac_endpoints(self.node) && self.nic.has_mac_endpoints();
        if is_for_host {
            self.ethernet.take(now, packet, &mut self.bus);
        }
        self.ethernet.tally.dropped_frames += u64::from(!is_for_host && !is_for_mac_endpoints);
        is_for_mac_endpoints
    }
}

fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    // The buffer has exactly the length of the value.
    let _ = value.to_bytes(&mut bytes);
    bytes
}
