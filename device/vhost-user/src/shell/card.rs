//! One node's cluster function as the shell holds it: the model, and all that the model's inputs and outputs need.

mod adversarial;
mod counts;
mod series;
pub mod stopped;

use std::ops::Range;
use std::sync::Arc;

use niclab_abi::bar::{DOORBELL_SPARED, DOORBELL_WANTED};
use niclab_abi::control::{OP_RESET, Reply, Request, STATUS_BAD_ADDRESS};
use niclab_abi::event::CAUSE_LINK;
use niclab_abi::{
    FromBytes, QUEUE_CONTROL, QUEUE_DOORBELL, QUEUE_EVENT, QUEUE_RECEIVE, QUEUE_TRANSMIT, ToBytes,
};
use niclab_model::nic::adversarial::{Adversarial, AdversarialNic};
use niclab_model::nic::fault_injector::{FaultInjector, FaultyNic};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::host_values::{CardLimits, HostValues};
use niclab_model::nic::packet::InlinePacket;
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{
    DescriptorQueue, FrameBytes, HostRange, HostRanges, Input, Nic, Observed, Output, ShellCounts,
    Statistics, WindowRange,
};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_spec::DeviceFaults;

pub use self::counts::{CardCounts, Traffic, Violations, violation};
use self::stopped::Stopped;
use super::adversary::AdversaryState;
use super::control::{Control, Next};
use super::descriptors::{self, Descriptors, virtqueue};
use super::events::Events;
use super::lent::{LentFrame, Loan};
use super::pages::{Launch, Pages};
use super::rules::Rules;
use super::rules::book::Book;
use crate::memory::DmaMemory;
use crate::ring::{Burst, RingError};
use crate::vring::Vring;

/// A node's cluster function.
pub struct Card {
    /// The model.
    pub nic: AnyNic,
    /// The BAR.
    pub pages: Pages,
    /// The guest's memory.
    pub memory: Arc<DmaMemory>,
    /// The queues of the connection; empty when there is none.
    pub vrings: Vec<Vring>,
    /// The event queue.
    pub events: Events,
    /// The control queue.
    pub control: Control,
    /// The descriptor queues.
    pub descriptors: Descriptors,
    /// Counts.
    pub counts: CardCounts,
    /// Doorbells of connections that are gone.
    pub earlier_doorbells: u64,
    /// Guests are told that no doorbell is needed.
    is_polled: bool,
    /// What goes wrong in it.
    pub device_faults: DeviceFaults,
    /// Values that it gives its host, for faults that put them out of their ranges, and these.
    pub host_values: HostValues,
    /// The ranges.
    pub limits: CardLimits,
    /// What it keeps back, where it is adversarial.
    pub adversary: Option<Box<AdversaryState>>,
    /// The driver has sent a request since the last reset: until then nothing may be written into its memory.
    pub is_running: bool,
    /// Its front end has stopped the device, and may start it again where it stopped.
    pub stopped: Option<Box<Stopped>>,
    /// Its last request was `OP_RESET`.
    pub is_quiesced: bool,
    /// The driver was told that its link is cut.
    is_told_cut: bool,
    /// A launched slot was left in its page, because the model could not take it.
    pub is_stalled: bool,
    /// Which ports were open after the last request.
    open: Vec<bool>,
    /// How many ports are open.
    open_ports: u32,
    /// The node from which a message came last.
    last_sender: Option<u16>,
    /// Work of the model that was taken out of turns.
    work_seen: u64,
    /// Its driver and programs are held to the manual's rules.
    pub rules: Option<Box<Rules>>,
    /// What they had broken when they were held to them last.
    pub broken_before: Option<Book>,
    /// When the node acted last, or something came to it.
    acted: Time,
    /// The latest that the model has done by itself.
    went_on: Time,
}

impl Card {
    /// A card with nobody connected.
    pub fn new(mut nic: AnyNic, pages: Pages, ports: u32) -> Self {
        nic.effect_queue().into_iter().for_each(|effect_queue| effect_queue.set_open(true));
        Self {
            nic,
            pages,
            memory: Arc::default(),
            vrings: Vec::new(),
            events: Events::default(),
            control: Control::default(),
            descriptors: Descriptors::default(),
            counts: CardCounts { launches: vec![0; ports as usize], ..CardCounts::default() },
            earlier_doorbells: 0,
            is_polled: false,
            device_faults: DeviceFaults::default(),
            host_values: &[],
            limits: CardLimits::default(),
            adversary: None,
            is_running: false,
            stopped: None,
            is_quiesced: false,
            is_told_cut: false,
            is_stalled: false,
            open: vec![false; ports as usize],
            open_ports: 0,
            last_sender: None,
            work_seen: 0,
            rules: None,
            broken_before: None,
            acted: Time::ZERO,
            went_on: Time::ZERO,
        }
    }

    /// The card is adversarial from now on. What device faults befall is what it does then: they come later.
    pub fn make_adversarial(&mut self, adversary: AdversaryState, adversarial: Adversarial) {
        let nic = std::mem::replace(&mut self.nic, Box::new(NoCard::default()));
        self.nic = Box::new(AdversarialNic::new(nic, adversarial));
        self.adversary = Some(Box::new(adversary));
    }

    /// Device faults befall the model from now on.
    pub fn inject(&mut self, fault_injector: FaultInjector) {
        let nic = std::mem::replace(&mut self.nic, Box::new(NoCard::default()));
        self.nic = Box::new(FaultyNic::new(nic, fault_injector));
    }

    /// What the model has done since the last call, in units of [`Nic::work_done`].
    #[inline]
    pub fn take_work(&mut self) -> u64 {
        let done = self.nic.work_done();
        done.wrapping_sub(std::mem::replace(&mut self.work_seen, done))
    }

    /// A measured part begins: whom the card dealt with earlier is no matter.
    pub fn begin(&mut self, at: Time) {
        self.last_sender = None;
        self.nic.begin_part(at);
    }

    /// How often wall time decided in which order the node did things.
    pub fn unordered(&self) -> u64 {
        (self.counts.unordered + self.nic.unordered() + self.nic.unreported())
            .saturating_sub(self.counts.ordered_by_turns)
    }

    /// Doorbells rung for pages, and for descriptors, since the daemon started.
    pub fn doorbells(&self) -> u64 {
        let queues = [QUEUE_DOORBELL, QUEUE_TRANSMIT, QUEUE_RECEIVE];
        let kicks = queues.iter().filter_map(|queue| self.vrings.get(*queue as usize)).map(Vring::kicks);
        kicks.fold(self.earlier_doorbells, u64::wrapping_add)
    }

    /// Tells guests whether a store into a page must be followed by a doorbell.
    pub fn want_doorbell(&mut self, is_wanted: bool) {
        self.is_polled = !is_wanted;
        self.pages.set_doorbell(if is_wanted { DOORBELL_WANTED } else { DOORBELL_SPARED });
    }

    /// Whether guests are told that no doorbell is needed.
    pub const fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Tells guests that no doorbell is needed while the device looks. Slots that it takes then are counted as spared
    /// if they were launched after guests could see that.
    pub fn suppress_doorbell(&mut self, is_counted: bool) {
        self.is_polled = is_counted;
        self.pages.set_doorbell(DOORBELL_SPARED);
    }

    /// Whether a program has launched what the model takes now, or stored a register, since the last look.
    pub fn has_news(&self, port: u32) -> bool {
        self.pages.has_registers(port) || self.pages.is_launched(port) && self.nic.accepts_store(port)
    }

    /// What only the shell can count.
    fn shell_counts(&self) -> ShellCounts {
        ShellCounts {
            doorbells: self.doorbells(),
            doorbells_spared: self.counts.doorbells_spared,
            events_merged: self.events.merged,
            control_refused: self.counts.control_refused,
        }
    }

    /// The model's counters, with those of the shell.
    pub fn statistics(&self) -> Statistics {
        self.nic.statistics(&self.shell_counts())
    }

    /// All that the card is, but for how many messages took which way, to hold two against one another.
    #[cfg(test)]
    pub fn whole(&mut self) -> String {
        let CardCounts { fast_path, batched, extrapolated, .. } = &mut self.counts;
        let paths = [fast_path, batched, extrapolated].map(std::mem::take);
        let Self { nic, counts, open, last_sender, work_seen, acted, went_on, events, .. } = &*self;
        let model = nic.whole().map_or_else(String::new, |whole| format!("{whole:#?}"));
        let ports: Vec<u64> = (0..self.ports()).map(|port| nic.delivered(port)).collect();
        let seen =
            (nic.ledger(), nic.statistics(&self.shell_counts()), nic.counters(), nic.unordered(), ports);
        let own = (counts, open, last_sender, work_seen, acted, went_on, events, self.is_stalled);
        let whole = format!("{model}\n{seen:#?}\n{own:#?}");
        [self.counts.fast_path, self.counts.batched, self.counts.extrapolated] = paths;
        whole
    }

    /// Ports of the card.
    pub fn ports(&self) -> u32 {
        self.open.len() as u32
    }

    /// Whether `port` was open after the last request.
    #[inline]
    pub fn is_open(&self, port: u32) -> bool {
        self.open.get(port as usize).is_some_and(|open| *open)
    }

    /// Takes the next launched slot of `port` out of its page.
    #[inline]
    pub fn take(&mut self, port: u32) -> Option<Launch> {
        let launch = self.pages.take(port);
        if let Some(rules) = &mut self.rules {
            rules.on_look(&self.pages, &self.vrings, port, launch.as_ref().map(|launch| &launch.store));
        }
        launch
    }

    /// Feeds one slot to the model. The program says what it had received when it launched; if the device has stored
    /// more for it meanwhile, then wall time decided that these came before the launch. What a host does for several
    /// ports is done in the order in which the device looks at their pages.
    #[inline]
    pub fn store(&mut self, launch: Launch, bus: &mut NodeBus) {
        let Launch { store, received } = launch;
        if let Some(launches) = self.counts.launches.get_mut(store.port as usize) {
            *launches += 1;
        }
        self.counts.doorbells_spared += u64::from(self.is_polled);
        self.acts_at(bus.clock());
        let is_in_order = received == Some(self.nic.delivered(store.port) as u32) && self.open_ports == 1;
        self.counts.unordered += u64::from(!is_in_order);
        self.nic.handle(bus.clock(), Input::PageStore(store), bus);
    }

    /// Feeds a frame to the model, at its arrival.
    #[inline]
    pub fn arrive(
        &mut self,
        passage: Passage,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        bus: &mut NodeBus,
    ) {
        let Passage { head, tail } = passage;
        self.note_arrival(tail, frame.len(), message);
        self.nic.handle(tail, Input::Frame { frame, head, message }, bus);
    }

    /// The same of one that nobody encoded.
    #[inline]
    pub fn arrive_packet(&mut self, passage: Passage, packet: &InlinePacket, bus: &mut NodeBus) {
        let Passage { head, tail } = passage;
        self.note_arrival(tail, packet.bytes, packet.message);
        self.nic.handle(tail, Input::InlinePacket { packet, head }, bus);
    }

    /// A frame of so many bytes comes to the model.
    #[inline]
    fn note_arrival(&mut self, tail: Time, frame_bytes: usize, message: Option<TraceTag>) {
        self.acts_at(tail);
        self.counts.traffic.received_frames += 1;
        self.counts.traffic.received_bytes += frame_bytes as u64;
        if let Some(message) = message {
            // Messages of several senders meet on the way in the order in which they are fed.
            let other = self.last_sender.replace(message.node).is_some_and(|last| last != message.node);
            self.counts.unordered += u64::from(other);
        }
    }

    /// Fires the model's deadline, because all was quiet for a while of wall time, or others got that far.
    pub fn expire(&mut self, deadline: Time, bus: &mut NodeBus) {
        self.counts.unordered += 1;
        self.nic.handle(deadline, Input::Timeout, bus);
    }

    /// Lets the model go on with what it has in hand, which guests cannot precede but by what they had not done yet.
    pub fn go_on(&mut self, due: Time, bus: &mut NodeBus) {
        self.counts.unordered += u64::from(due < self.acted);
        self.went_on = self.went_on.max(due);
        self.nic.handle(due, Input::Timeout, bus);
    }

    /// The node acts, or something comes to it. If the card has gone on with something meanwhile that is later in model
    /// time, then wall time decided that it came first.
    fn acts_at(&mut self, at: Time) {
        self.counts.unordered += u64::from(at < self.went_on);
        self.acted = self.acted.max(at);
    }

    /// Whether the program of `port` stored a completer register since the last look.
    #[inline]
    pub fn has_registers(&self, port: u32) -> bool {
        self.pages.has_registers(port)
    }

    /// Feeds the completer registers of `port` that were stored since the last look; true when there was one.
    pub fn registers(&mut self, port: u32, bus: &mut NodeBus) -> bool {
        let mut any = false;
        for register in self.pages.take_registers(port).into_iter().flatten() {
            self.acts_at(bus.clock());
            if let Some(rules) = &mut self.rules {
                rules.at(bus.clock());
                rules.on_register(port, register, self.nic.delivered(port));
            }
            self.nic.handle(bus.clock(), Input::Register { port, register }, bus);
            any = true;
        }
        any
    }

    /// Whether the driver has made a chain of the control queue available that can be taken now.
    pub fn has_request(&self) -> bool {
        let Some(vring) = self.vrings.get(QUEUE_CONTROL as usize) else { return false };
        !self.stands_still()
            && !self.control.is_full()
            // Looked at, not taken: the indices go back as they were. An error is counted when it is taken.
            && match Burst::open(vring, &self.memory) {
                Ok(mut burst) => !matches!(burst.available(), Ok(0)),
                Err(error) => error != RingError::NotReady,
            }
    }

    /// Takes one chain of the control queue, and feeds it to the model when it is a request. False when there was none.
    pub fn next_request(&mut self, bus: &mut NodeBus) -> bool {
        let Some(vring) = self.vrings.get(QUEUE_CONTROL as usize) else { return false };
        let (token, request) = match self.control.next(vring, &self.memory) {
            Ok(Next::Request { token, bytes, is_again }) => {
                if let Some(rules) = &mut self.rules {
                    rules.at(bus.clock());
                    rules.on_request(&self.memory, token, &bytes, is_again);
                }
                (token, bytes)
            }
            Ok(Next::Unanswerable) => {
                self.rules.iter_mut().for_each(|rules| rules.on_unanswerable());
                return true;
            }
            Ok(Next::Nothing) | Err(RingError::NotReady) => return false,
            Err(error) => {
                self.on_ring_error(error);
                // A ring that is broken as a whole stays so until the driver resets it.
                return !matches!(error, RingError::AvailableIndex { .. } | RingError::Memory(_));
            }
        };
        self.is_running = true;
        let ranges = self.nic.memory_named_by(&request);
        if self.memory.check(&ranges).is_err() {
            self.counts.control_refused += 1;
            violation(&mut self.counts.violations, "control_outside_memory");
            self.rules.iter_mut().for_each(|rules| rules.on_outside_memory(token));
            let mut refusal = [0; Reply::BYTES];
            Reply { status: STATUS_BAD_ADDRESS, body_bytes: 0 }.to_bytes(&mut refusal);
            self.reply(token, &refusal);
            return true;
        }
        self.apply(token, &request, bus);
        true
    }

    fn apply(&mut self, token: u64, request: &[u8], bus: &mut NodeBus) {
        let now = bus.clock();
        self.nic.handle(now, Input::ShellCounts(self.shell_counts()), bus);
        self.nic.handle(now, Input::Control { token, request }, bus);
        let operation = Request::from_bytes(request).map_or(0, |header| header.operation);
        self.is_quiesced = operation == OP_RESET;
        self.follow_ports();
        log::debug!("control request {operation} on {} bytes", request.len());
    }

    /// Zeroes what ports have in the BAR that were just opened or closed, before the reply says so.
    pub fn follow_ports(&mut self) {
        for (port, was_open) in (0..).zip(&mut self.open) {
            let is_open = self.nic.is_open(port);
            if is_open != *was_open {
                self.pages.clear(port);
            }
            *was_open = is_open;
        }
        self.open_ports = self.open.iter().map(|open| u32::from(*open)).sum();
        self.rules.iter_mut().for_each(|rules| rules.follow(&self.open));
    }

    /// The driver has notified a descriptor queue.
    pub fn poll_demand(&mut self, queue: DescriptorQueue, bus: &mut NodeBus) {
        self.acts_at(bus.clock());
        self.nic.handle(bus.clock(), Input::PollDemand { queue }, bus);
    }

    /// Takes one chain of a descriptor queue, if the model wants one, and feeds it to it. False when there was none.
    pub fn next_descriptor(&mut self, queue: DescriptorQueue, bus: &mut NodeBus) -> bool {
        if self.stands_still() || self.nic.descriptors_wanted(queue).unwrap_or(0) == 0 {
            return false;
        }
        let Some(vring) = self.vrings.get(virtqueue(queue) as usize) else { return false };
        match self.descriptors.next(queue, vring, &self.memory) {
            Ok(descriptors::Next::Descriptor(descriptor)) => {
                self.is_running = true;
                self.acts_at(bus.clock());
                self.nic.handle(bus.clock(), Input::Descriptor(descriptor), bus);
                true
            }
            Ok(descriptors::Next::OutsideMemory) => {
                violation(&mut self.counts.violations, "descriptor_outside_memory");
                self.rules.iter_mut().for_each(|rules| rules.on_chain_outside());
                true
            }
            Ok(descriptors::Next::Nothing) | Err(RingError::NotReady) => false,
            Err(error) => {
                self.on_ring_error(error);
                // A ring that is broken as a whole stays so until the driver resets it.
                !matches!(error, RingError::AvailableIndex { .. } | RingError::Memory(_))
            }
        }
    }

    /// Gives a chain of a descriptor queue back.
    pub fn complete(&mut self, token: u64, bytes: u32) {
        let queue = self.descriptors.queue_of(token).map(virtqueue);
        let Some(vring) = queue.and_then(|queue| self.vrings.get(queue as usize)) else { return };
        let completed = self.descriptors.complete(vring, &self.memory, token, bytes);
        self.note_ring(completed);
    }

    /// Gives the chain of a request back: [`Card::reply`] says when.
    pub(super) fn reply_now(&mut self, token: u64, bytes: &[u8]) {
        let Some(vring) = self.vrings.get(QUEUE_CONTROL as usize) else { return };
        if let Some(rules) = &mut self.rules {
            let now = self.control.now(&self.memory, token);
            rules.on_reply(&self.pages, token, now.as_ref(), bytes);
        }
        let adversary = self.adversary.as_deref_mut();
        let injector = self.nic.fault_injector_mut();
        if let Err(error) = self.control.reply(vring, &self.memory, token, bytes, adversary, injector) {
            self.on_ring_error(error);
        }
        self.raise_spurious(QUEUE_CONTROL);
    }

    /// Interrupts the host with one event.
    pub fn raise(&mut self, cause: u32, port: u32) {
        if let Some(rules) = &mut self.rules {
            rules.on_event(&self.memory, &self.vrings, cause, port);
        }
        let is_merged = self.events.note(cause, port);
        if !self.adversary.as_mut().is_some_and(|adversary| adversary.keeps_event(is_merged)) {
            self.deliver_events();
        }
    }

    /// Tells the driver of a card with stations whether its link is cut, where it was told otherwise.
    pub fn report_link(&mut self, needs_more_locks: bool) {
        if !self.nic.has_stations() || needs_more_locks == self.is_told_cut {
            return;
        }
        self.is_told_cut = needs_more_locks;
        self.events.withdraw(CAUSE_LINK, u32::from(!needs_more_locks));
        self.raise(CAUSE_LINK, needs_more_locks.into());
    }

    /// Hands out the events that wait, as far as the driver has left buffers and none are kept back.
    pub fn deliver_events(&mut self) {
        if self.adversary.as_ref().is_some_and(|adversary| adversary.has_kept_events()) {
            return;
        }
        let vring = self.vrings.get(QUEUE_EVENT as usize);
        let unusable = self.events.unusable_buffers;
        let (adversary, injector) = (self.adversary.as_deref_mut(), self.nic.fault_injector_mut());
        let delivered = self.events.deliver(vring, &self.memory, adversary, injector);
        self.note_events(delivered, unusable);
        self.raise_spurious(QUEUE_EVENT);
    }

    /// Says that the BAR stands in the guest's address space, now or later.
    pub fn publish(&mut self) {
        if !self.adversary.as_mut().is_some_and(|adversary| adversary.keeps_magic()) {
            self.pages.publish();
        }
    }

    /// The BAR stands nowhere any more.
    pub fn retract(&mut self) {
        self.adversary.iter_mut().for_each(|adversary| adversary.drop_magic());
        self.pages.retract();
    }

    /// Events were told, or not; so many buffers were of no use before.
    fn note_events(&mut self, result: Result<(), RingError>, unusable_before: u64) {
        let unusable = self.events.unusable_buffers.wrapping_sub(unusable_before);
        self.rules.iter_mut().for_each(|rules| rules.on_event_buffers(unusable));
        self.note_ring(result);
    }

    /// A queue is not sound.
    fn on_ring_error(&mut self, error: RingError) {
        violation(&mut self.counts.violations, error.name());
        self.rules.iter_mut().for_each(|rules| rules.on_ring_error(error));
    }

    fn note_ring(&mut self, result: Result<(), RingError>) {
        if let Err(error) = result
            && error != RingError::NotReady
        {
            self.on_ring_error(error);
        }
    }

    /// Writes into the guest's memory, unless the guest is not there to expect it.
    #[inline]
    pub fn write(&mut self, address: u64, words: &[u64]) {
        if !self.is_running {
            return;
        }
        let Self { memory, pages, rules, counts, .. } = self;
        store_words(memory, pages, rules, counts, address, words);
    }

    /// Does the store that the model wants done first, if that is one. False when it is none.
    #[inline]
    pub fn inline_write(&mut self, latest: &mut Time) -> bool {
        let Self { nic, memory, pages, rules, counts, is_running, .. } = self;
        let Some(effect_queue) = nic.effect_queue() else { return false };
        let Some(inline_write) = effect_queue.inline_write() else { return false };
        *latest = inline_write.at.max(*latest);
        if *is_running {
            store_words(memory, pages, rules, counts, inline_write.address, inline_write.words());
        }
        effect_queue.clear_first();
        true
    }

    /// Stores bytes of a frame into the guest's memory, unless the guest is not there to expect it.
    pub fn store_bytes(&mut self, bytes: &[u8], ranges: &[HostRange]) {
        if self.is_running && self.memory.store_bytes(bytes, ranges).is_err() {
            violation(&mut self.counts.violations, "dma_outside_memory");
        }
        self.rules.iter_mut().for_each(|rules| rules.on_bytes(&self.memory, ranges));
    }

    /// Feeds a frame to the model whose data is lent, at its arrival.
    #[inline]
    pub fn arrive_lent(
        &mut self,
        passage: Passage,
        frame: &LentFrame,
        message: Option<TraceTag>,
        bus: &mut NodeBus,
    ) {
        self.note_arrival(passage.tail, frame.frame_bytes(), message);
        let input = Input::LentFrame { lent: frame.head(), head: passage.head, message };
        self.nic.handle(passage.tail, input, bus);
    }

    /// Stores bytes of a frame's data, which is lent, into the guest's memory, unless the guest is not there to expect
    /// it.
    #[inline]
    pub fn store_lent(&mut self, frame: &LentFrame, bytes: &Range<usize>, ranges: &[HostRange]) {
        if self.is_running && frame.store(bytes, &self.memory, ranges).is_err() {
            violation(&mut self.counts.violations, "dma_outside_memory");
        }
        self.rules.iter_mut().for_each(|rules| rules.on_bytes(&self.memory, ranges));
    }

    /// What is lent to the card of what its model asked for, to be appended to this, if it can be. The head of a frame
    /// comes first: words are looked at.
    #[inline]
    pub fn loan(&self, ranges: &HostRanges, into: &FrameBytes) -> Option<Loan> {
        let finish = self.nic.lends().filter(|_| self.is_running && !into.is_empty())?;
        Loan::new(&self.memory, ranges, finish)
    }

    /// Loads what the model asked for, and gives it to the model.
    pub fn load(&mut self, at: Time, token: u64, ranges: &[HostRange], into: FrameBytes, bus: &mut NodeBus) {
        let mut bytes = into;
        let have = bytes.len();
        let is_whole = self.is_running && self.memory.load_bytes(ranges, &mut bytes).is_ok();
        if !is_whole {
            violation(&mut self.counts.violations, "dma_outside_memory");
        } else if let Some(rules) = &mut self.rules {
            rules.on_read(ranges, bytes.get(have..).unwrap_or_default());
        }
        self.nic.handle(at, Input::DmaData { token, bytes, is_whole }, bus);
    }

    /// Loads what a program stored into a window of the card, and gives it to the model.
    pub fn read_window(
        &mut self,
        at: Time,
        token: u64,
        range: &WindowRange,
        into: FrameBytes,
        bus: &mut NodeBus,
    ) {
        let mut bytes = into;
        let is_whole = self.pages.append(range, &mut bytes);
        self.nic.handle(at, Input::DmaData { token, bytes, is_whole }, bus);
    }

    /// Holds driver and programs to the manual's rules from now on, or does not. What they have broken stays; `new` is
    /// an empty book; `features` are those of the card's configuration space.
    pub fn set_rules(&mut self, new: Option<Book>, features: u64) {
        if new.is_some() == self.rules.is_some() {
            return;
        }
        match (new, self.rules.take()) {
            (Some(new), _) => {
                let book = self.broken_before.take().unwrap_or(new);
                let rules = Rules::begin(book, &self.pages, &self.open, self.is_running, features);
                self.rules = Some(Box::new(rules));
            }
            (None, rules) => self.broken_before = rules.map(|rules| rules.end()),
        }
    }

    /// What driver and programs have broken, where they are or were held to rules.
    pub fn broken(&self) -> Option<&Book> {
        self.rules.as_ref().map(|rules| rules.book()).or(self.broken_before.as_ref())
    }

    /// Keeps where the guest was when it broke a rule.
    pub fn place_broken(&mut self, number: u64, guest_at: &str) {
        let book = self.rules.as_mut().map(|rules| rules.book_mut()).or(self.broken_before.as_mut());
        if let Some(book) = book {
            book.place(number, guest_at);
        }
    }

    /// Looks through memory that nobody in the guest is to touch.
    pub fn check_memory(&mut self) {
        if let Some(rules) = self.rules.as_mut().filter(|_| self.stopped.is_none()) {
            rules.check_memory(&self.memory);
        }
    }

    /// The host is gone or starts anew: no port of it lives on, and nothing more is written into its memory.
    /// `was_stopped` says that the device had stopped before: the driver may have freed the memory of its ports since.
    pub fn host_reset(&mut self, bus: &mut NodeBus, was_stopped: bool) {
        self.is_running = false;
        self.is_told_cut = false;
        self.is_stalled = false;
        self.control.forget();
        self.descriptors.forget();
        self.events.forget();
        self.adversary.iter_mut().for_each(|adversary| adversary.forget());
        // Until now, in which the driver waits for its reset, the memory of open ports was the card's.
        if !was_stopped {
            self.check_memory();
        }
        self.rules.iter_mut().for_each(|rules| rules.on_reset());
        self.nic.handle(bus.clock(), Input::HostReset, bus);
        self.follow_ports();
        if let Err(error) = self.pages.renew() {
            log::warn!("the memory of a BAR cannot be given back: {error}");
        }
    }
}

/// Stores what the card of a guest that is there writes into its memory.
#[inline]
fn store_words(
    memory: &DmaMemory,
    pages: &Pages,
    rules: &mut Option<Box<Rules>>,
    counts: &mut CardCounts,
    address: u64,
    words: &[u64],
) {
    if let Some(rules) = rules {
        rules.on_write(memory, pages, address, words);
    }
    if memory.store_words(address, words).is_err() {
        violation(&mut counts.violations, "dma_outside_memory");
    }
}

/// What stands in a card's place while it is changed.
#[derive(Default)]
struct NoCard {
    ledger: Ledger,
}

impl Nic for NoCard {
    fn handle(&mut self, _: Time, _: Input<'_>, _: &mut NodeBus) {}

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn memory_named_by(&self, _: &[u8]) -> HostRanges {
        HostRanges::new()
    }

    fn poll_output(&mut self) -> Option<Output> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }
}

impl Observed for NoCard {
    fn delivered(&self, _: u32) -> u64 {
        0
    }

    fn unordered(&self) -> u64 {
        0
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    fn statistics(&self, _: &ShellCounts) -> Statistics {
        Statistics::default()
    }
}
