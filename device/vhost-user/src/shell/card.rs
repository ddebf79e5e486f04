//! One node's cluster function as the shell holds it: the model, its host port, and what is counted of both.

pub mod adversarial;
pub mod batch;
mod counts;
pub mod host_port;
pub mod order;
pub mod rule_check;
pub mod stopped;

use niclab_abi::control::{OP_RESET, Reply, Request, STATUS_BAD_ADDRESS};
use niclab_abi::event::CAUSE_LINK;
use niclab_abi::{FromBytes, QUEUE_CONTROL, ToBytes};
use niclab_model::nic::host_values::{CardLimits, HostValues};
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{DescriptorQueue, HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;
use niclab_spec::DeviceFaults;

pub use self::counts::{CardCounts, Traffic, Violations, violation};
use self::host_port::HostPort;
use self::order::InputOrder;
use super::control::Next;
use super::descriptors::{self, virtqueue};
use super::pages::{Launch, Pages};
use super::rules::book::Book;
use crate::ring::RingError;

/// A node's cluster function.
pub struct Card {
    /// The model.
    pub nic: AnyNic,
    /// Its host's side.
    pub host: HostPort,
    /// Counts.
    pub counts: CardCounts,
    /// How often wall time decided the order of inputs.
    pub order: InputOrder,
    /// The faults of the card.
    pub device_faults: DeviceFaults,
    /// Values that the card gives its host, for faults that change them.
    pub host_values: HostValues,
    /// The valid ranges of these values.
    pub limits: CardLimits,
    /// A posted slot waits in its page, because the model could not accept it.
    pub is_stalled: bool,
    /// The driver was notified that its link is cut.
    is_cut_reported: bool,
    /// Which ports were open after the last request.
    open: Vec<bool>,
    /// The number of open ports.
    open_ports: u32,
    /// Work of the model that has been spent from budgets.
    work_seen: u64,
}

impl Card {
    /// A card without a connection.
    pub fn new(nic: AnyNic, pages: Pages, ports: u32) -> Self {
        Self {
            nic,
            host: HostPort::new(pages),
            counts: CardCounts { launches: vec![0; ports as usize], ..CardCounts::default() },
            order: InputOrder::default(),
            device_faults: DeviceFaults::default(),
            host_values: &[],
            limits: CardLimits::default(),
            is_stalled: false,
            is_cut_reported: false,
            open: vec![false; ports as usize],
            open_ports: 0,
            work_seen: 0,
        }
    }

    /// Wraps the model: an adversarial card, or device faults. Later wrappers apply to the effects of earlier ones.
    pub fn wrap_nic(&mut self, wrap: impl FnOnce(AnyNic) -> AnyNic) {
        let nic = std::mem::replace(&mut self.nic, Box::new(NoCard::default()));
        self.nic = wrap(nic);
    }

    /// The work of the model since the last call, in units of [`Nic::work_done`].
    #[inline]
    pub fn take_work(&mut self) -> u64 {
        let done = self.nic.work_done();
        done.wrapping_sub(std::mem::replace(&mut self.work_seen, done))
    }

    /// How often wall time decided the order in which the node did things.
    pub fn unordered(&self) -> u64 {
        (self.order.race_decided + self.nic.unordered() + self.nic.unreported())
            .saturating_sub(self.order.ordered_by_lockstep)
    }

    /// Whether a port has a posted slot that the model accepts now, or a stored register, since the last poll.
    pub fn has_news(&self, port: u32) -> bool {
        let pages = &self.host.pages;
        pages.has_registers(port) || pages.is_launched(port) && self.nic.accepts_store(port)
    }

    /// Counts that only the shell has.
    fn shell_counts(&self) -> ShellCounts {
        ShellCounts {
            doorbells: self.host.doorbells(),
            doorbells_spared: self.counts.doorbells_spared,
            events_merged: self.host.events.merged,
            control_refused: self.counts.control_refused,
        }
    }

    /// The model's counters, with those of the shell.
    pub fn statistics(&self) -> Statistics {
        self.nic.statistics(&self.shell_counts())
    }

    /// The complete state of the card, except for the number of messages on each path: for comparison.
    #[cfg(test)]
    pub fn whole(&mut self) -> String {
        let batched = std::mem::take(&mut self.counts.batched);
        let Self { nic, counts, order, open, work_seen, host, .. } = &*self;
        let model = nic.whole().map_or_else(String::new, |whole| format!("{whole:#?}"));
        let ports: Vec<u64> = (0..self.ports()).map(|port| nic.delivered(port)).collect();
        let seen =
            (nic.ledger(), nic.statistics(&self.shell_counts()), nic.counters(), nic.unordered(), ports);
        let own = (counts, &host.violations, order, open, work_seen, &host.events, self.is_stalled);
        let whole = format!("{model}\n{seen:#?}\n{own:#?}");
        self.counts.batched = batched;
        whole
    }

    /// The number of ports.
    pub fn ports(&self) -> u32 {
        self.open.len() as u32
    }

    /// Whether `port` was open after the last request.
    #[inline]
    pub fn is_open(&self, port: u32) -> bool {
        self.open.get(port as usize).is_some_and(|open| *open)
    }

    /// Whether exactly one port is open.
    #[inline]
    pub const fn has_one_port(&self) -> bool {
        self.open_ports == 1
    }

    /// Turns the rules on with an empty book, or off. `features` are those of the card's configuration space.
    pub fn set_rules(&mut self, new: Option<Book>, features: u64) {
        let HostPort { rule_check, pages, state, .. } = &mut self.host;
        rule_check.set(new, pages, &self.open, state.is_running, features);
    }

    /// Takes the next posted slot of `port` out of its page.
    #[inline]
    pub fn take(&mut self, port: u32) -> Option<Launch> {
        let HostPort { pages, vrings, rule_check, .. } = &mut self.host;
        let launch = pages.take(port);
        if let Some(rules) = &mut rule_check.rules {
            rules.on_look(pages, vrings, port, launch.as_ref().map(|launch| &launch.store));
        }
        launch
    }

    /// Feeds one slot to the model.
    ///
    /// The slot says what the program had received when it posted. If the device has stored more for it since, wall
    /// time decided that this came before the post. With several open ports wall time decides in which order the device
    /// polls them.
    #[inline]
    pub fn store(&mut self, launch: Launch, bus: &mut NodeBus) {
        let Launch { store, received } = launch;
        if let Some(launches) = self.counts.launches.get_mut(store.port as usize) {
            *launches += 1;
        }
        self.counts.doorbells_spared += u64::from(self.host.is_polled());
        self.order.acts_at(bus.clock());
        let is_in_order = received == Some(self.nic.delivered(store.port) as u32) && self.has_one_port();
        self.order.race_decided += u64::from(!is_in_order);
        self.nic.handle(bus.clock(), Input::PageStore(store), bus);
    }

    /// Feeds a frame of `bytes` to the model when it arrives at `at`.
    #[inline]
    pub fn arrive(
        &mut self,
        at: Time,
        bytes: usize,
        message: Option<TraceTag>,
        input: Input<'_>,
        bus: &mut NodeBus,
    ) {
        self.order.receives(at, message);
        self.counts.traffic.receive(bytes);
        self.nic.handle(at, input, bus);
    }

    /// Fires the model's deadline: all nodes were idle for a while of wall time, or others passed it in model time.
    pub fn expire(&mut self, deadline: Time, bus: &mut NodeBus) {
        self.order.race_decided += 1;
        self.nic.handle(deadline, Input::Timeout, bus);
    }

    /// Lets the model continue with pending work.
    pub fn resume(&mut self, due: Time, bus: &mut NodeBus) {
        self.order.continues_at(due);
        self.nic.handle(due, Input::Timeout, bus);
    }

    /// Feeds the completer registers of `port` that were stored since the last poll. True when there was one.
    pub fn registers(&mut self, port: u32, bus: &mut NodeBus) -> bool {
        let mut any = false;
        for register in self.host.pages.take_registers(port).into_iter().flatten() {
            self.order.acts_at(bus.clock());
            if let Some(rules) = &mut self.host.rule_check.rules {
                rules.at(bus.clock());
                rules.on_register(port, register, self.nic.delivered(port));
            }
            self.nic.handle(bus.clock(), Input::Register { port, register }, bus);
            any = true;
        }
        any
    }

    /// Takes one chain of the control queue, and feeds a request to the model. False when there was none.
    pub fn next_request(&mut self, bus: &mut NodeBus) -> bool {
        let HostPort { vrings, control, memory, rule_check, pages, .. } = &mut self.host;
        let Some(vring) = vrings.get(QUEUE_CONTROL as usize) else { return false };
        let (token, request) = match control.next(vring, memory) {
            Ok(Next::Request { token, bytes, is_again }) => {
                if let Some(rules) = &mut rule_check.rules {
                    rules.at(bus.clock());
                    rules.on_request(memory, (pages, vrings), token, &bytes, is_again);
                }
                (token, bytes)
            }
            Ok(Next::Unanswerable) => {
                rule_check.rules.iter_mut().for_each(|rules| rules.on_unanswerable());
                return true;
            }
            Ok(Next::Nothing) | Err(RingError::NotReady) => return false,
            Err(error) => {
                self.host.on_ring_error(error);
                // A ring that is invalid as a whole stays so until the driver resets it.
                return !matches!(error, RingError::AvailableIndex { .. } | RingError::Memory(_));
            }
        };
        self.host.state.is_running = true;
        let ranges = self.nic.memory_named_by(&request);
        if self.host.memory.check(&ranges).is_err() {
            self.counts.control_refused += 1;
            violation(&mut self.host.violations, "control_outside_memory");
            self.host.rule_check.rules.iter_mut().for_each(|rules| rules.on_outside_memory(token));
            let mut refusal = [0; Reply::BYTES];
            Reply { status: STATUS_BAD_ADDRESS, body_bytes: 0 }.to_bytes(&mut refusal);
            self.host.reply(token, &refusal, self.nic.fault_injector_mut());
            return true;
        }
        self.apply(token, &request, bus);
        true
    }

    /// Feeds a request to the model.
    fn apply(&mut self, token: u64, request: &[u8], bus: &mut NodeBus) {
        let now = bus.clock();
        self.nic.handle(now, Input::ShellCounts(self.shell_counts()), bus);
        self.nic.handle(now, Input::Control { token, request }, bus);
        let operation = Request::from_bytes(request).map_or(0, |header| header.operation);
        self.host.state.is_quiesced = operation == OP_RESET;
        self.follow_ports();
        log::debug!("control request {operation} on {} bytes", request.len());
    }

    /// Clears the pages of ports that were just opened or closed, before the reply says so.
    pub fn follow_ports(&mut self) {
        for (port, was_open) in (0..).zip(&mut self.open) {
            let is_open = self.nic.is_open(port);
            if is_open != *was_open {
                self.host.pages.clear(port);
            }
            *was_open = is_open;
        }
        self.open_ports = self.open.iter().map(|open| u32::from(*open)).sum();
        self.host.rule_check.rules.iter_mut().for_each(|rules| rules.follow(&self.open));
    }

    /// Takes one chain of a descriptor queue, if the model wants one, and feeds it to the model. False when there was
    /// none.
    pub fn next_descriptor(&mut self, queue: DescriptorQueue, bus: &mut NodeBus) -> bool {
        if self.host.state.is_stopped() || self.nic.descriptors_wanted(queue).unwrap_or(0) == 0 {
            return false;
        }
        let HostPort { vrings, descriptors, memory, .. } = &mut self.host;
        let Some(vring) = vrings.get(virtqueue(queue) as usize) else { return false };
        match descriptors.next(queue, vring, memory) {
            Ok(descriptors::Next::Descriptor(descriptor)) => {
                self.host.state.is_running = true;
                self.order.acts_at(bus.clock());
                self.nic.handle(bus.clock(), Input::Descriptor(descriptor), bus);
                true
            }
            Ok(descriptors::Next::OutsideMemory) => {
                violation(&mut self.host.violations, "descriptor_outside_memory");
                self.host.rule_check.rules.iter_mut().for_each(|rules| rules.on_chain_outside());
                true
            }
            Ok(descriptors::Next::Nothing) | Err(RingError::NotReady) => false,
            Err(error) => {
                self.host.on_ring_error(error);
                // A ring that is invalid as a whole stays so until the driver resets it.
                !matches!(error, RingError::AvailableIndex { .. } | RingError::Memory(_))
            }
        }
    }

    /// Notifies the driver of a card with MAC endpoints if its link was cut or restored.
    pub fn report_link(&mut self, is_cut: bool) {
        if !self.nic.has_mac_endpoints() || is_cut == self.is_cut_reported {
            return;
        }
        self.is_cut_reported = is_cut;
        self.host.events.withdraw(CAUSE_LINK, u32::from(!is_cut));
        self.host.raise(CAUSE_LINK, is_cut.into(), self.nic.fault_injector_mut());
    }

    /// The host is gone, or resets its device: its ports are closed. `was_stopped`: the device was stopped before.
    pub fn reset(&mut self, bus: &mut NodeBus, was_stopped: bool) {
        self.host.reset(was_stopped);
        self.is_cut_reported = false;
        self.is_stalled = false;
        self.nic.handle(bus.clock(), Input::HostReset, bus);
        self.follow_ports();
        if let Err(error) = self.host.pages.renew() {
            log::warn!("the memory of a BAR cannot be given back: {error}");
        }
    }
}

/// Takes the place of a card's model while that is wrapped.
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
