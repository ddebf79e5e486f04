//! The nodes of one simulation, the network between them, and the loop that processes events in order.

use std::sync::Arc;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::faults::Faults;
use niclab_model::fabric::link::LinkError;
use niclab_model::fabric::{Fabric, FabricConfig};
use niclab_model::nic::adversarial::{Adversarial, AdversarialNic};
use niclab_model::nic::fault_injector::{FaultInjector, FaultyNic, Rates};
use niclab_model::nic::firmware_reload::{FirmwareReloadStep, Switch};
use niclab_model::nic::registry::{self, AnyNic, BuildError, Promises};
use niclab_model::platform::profile::Profile;
use niclab_model::time::{EndOfTime, Passage, Span, Time};
use niclab_observe::timeline::Owner;
use niclab_spec::sim::SimNode;
use niclab_spec::{Forwarding, Function, SimConfig, WorkloadKind};
use niclab_workloads::{ChannelTerms, Flow, Plan, PostTerms, Script, Terms, Workload as Programs};
use thiserror::Error;

use crate::bound::{Bound, FUTILE, Progress, Rounds};
use crate::checker::{Check, Checker, Promise};
use crate::firmware_reload::FirmwareReloads;
use crate::host::ethernet::EthernetHost;
use crate::host::tcp::{Prices, TcpHost};
use crate::host::{Host, HostSeat, Refused, maker_of};
use crate::medium::Medium;
use crate::observer::Observer;
use crate::part::{Node, Part};
use crate::queue::Event;
use crate::threads;

/// Maximum number of nodes: node numbers have 16 bits.
pub const MAX_NODES: usize = 1 << u16::BITS;

/// How long programs wait, in model time, when no event is pending because something that they wait for was lost.
const SILENCE: Span = Span::from_ns(1_000_000);

/// Events of an endless run that are counted, to report which events repeat.
const LOOKED_AT: u64 = 100_000;

/// A simulation cannot be set up.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// There are no nodes, or more than an address can name.
    #[error("a cluster of {0} nodes is not supported; give 1 to 65536 nodes")]
    Nodes(usize),
    /// A card's parameters are invalid.
    #[error("node {node}: {error}; correct the cluster's [nic] table")]
    Nic {
        /// Name of the node.
        node: String,
        /// The cause.
        #[source]
        error: BuildError,
    },
    /// A model whose host the simulator does not have.
    #[error("node {node}: the simulator has no host for a `{model}` card; run it live")]
    NoHost {
        /// Name of the node.
        node: String,
        /// Name of the model.
        model: &'static str,
    },
    /// The platform profile has no prices of a protocol stack.
    #[error(
        "the profile `{profile}` has no prices of a TCP/IP stack; use one with [host.stack], or function = \"ethernet\""
    )]
    NoStack {
        /// Its name.
        profile: String,
    },
    /// A device fault that only drivers in guests see. The simulator has no such drivers.
    #[error(
        "node {node}: the device fault `invalid_value` needs drivers in guests, and the simulator has none; \
         remove it, or run the cluster live"
    )]
    InvalidValue {
        /// Name of the node.
        node: String,
    },
    /// A link's parameters are invalid.
    #[error("{0}; correct the cluster's [[link]] tables")]
    Link(#[from] LinkError),
    /// A card refused an operation that the workload needs.
    #[error(
        "node {node}: its card refuses operation {operation} with status {status} (docs/driver/DEVICE.md lists both); \
         use fewer partners or larger receive queues"
    )]
    Refused {
        /// Name of the node.
        node: String,
        /// The operation.
        operation: u32,
        /// The status.
        status: u32,
    },
}

/// Wraps the card of a node, for tests that break a card on purpose.
pub type Wrap<'a> = &'a dyn Fn(u16, AnyNic) -> AnyNic;

/// One simulation.
pub struct Simulation<'a> {
    part: Part,
    /// Number of threads that process events by phases; 0 if the simulation cannot be divided.
    threads: usize,
    /// Whether one thread must process it event by event instead, from the beginning.
    is_entangled: bool,
    /// The wire that all nodes share, if there is no switch.
    medium: Option<Medium>,
    /// The limit that ends an endless run.
    bound: Bound,
    /// The events that repeat in an endless run.
    rounds: Rounds,
    /// Whether the limit ended the run.
    is_endless: bool,
    /// Firmware reloads of the cards.
    firmware_reloads: FirmwareReloads,
    observer: Option<Observer<'a>>,
}

impl<'a> Simulation<'a> {
    /// A simulation with every port of the plan open and all set-up events processed. `threads` threads share it; with
    /// 0, one thread processes it event by event.
    ///
    /// # Errors
    /// [`SimulationError`], if the configuration is invalid or not supported.
    pub fn new(
        config: &SimConfig,
        programs: &Programs,
        plan: &Plan,
        (wrap, threads): (Wrap<'_>, usize),
    ) -> Result<Self, SimulationError> {
        let count = config.nodes.len();
        if !(1..=MAX_NODES).contains(&count) {
            return Err(SimulationError::Nodes(count));
        }
        let flows: Arc<[Flow]> = plan.flows.as_slice().into();
        let all = Common {
            config,
            profile: Arc::new(niclab_assembly::profile(&config.profile)),
            mtu_bytes: niclab_assembly::least_mtu_bytes(config.nodes.iter().map(|node| &node.link)),
            terms: programs.terms(plan.max_partners()),
            posts: programs.post_terms(),
            channels: programs.channel_terms(),
            flows: &flows,
            wrap,
        };
        let nodes = (0..=u16::MAX).zip(&config.nodes);
        let nodes = nodes.map(|(number, node)| Ok(Node::new(all.host(number, node)?)));
        let nodes: Vec<Node> = nodes.collect::<Result<_, SimulationError>>()?;
        let fabric = fabric(config)?;
        let medium = config.forwarding.is_shared().then(|| {
            let avoids_capture = config.forwarding == Forwarding::RepeaterWithoutCapture;
            Medium::new(count, avoids_capture, config.seed, |bytes| fabric.span_of_bytes(0, bytes))
        });
        let can_be_divided = medium.is_none()
            && config.firmware_reloads.is_empty()
            && fabric.min_latency().to_node > Span::ZERO
            && nodes.iter().all(|node| node.host.stands_alone());
        let checker = Checker::new(&flows, promise(config, plan));
        let mut simulation = Self {
            part: Part::new(nodes, fabric, checker, medium.is_some()),
            threads: if can_be_divided { threads.min(count) } else { 0 },
            is_entangled: false,
            medium,
            bound: Bound::new(config.nodes.len(), programs.message_bytes),
            rounds: Rounds::default(),
            is_endless: false,
            firmware_reloads: FirmwareReloads::new(&config.firmware_reloads),
            observer: None,
        };
        simulation.open_ports(config, plan)?;
        for (number, node) in (0..=u16::MAX).zip(&config.nodes) {
            simulation.part.fabric.set_faults(number, node.link.faults.to_model());
            let rates = niclab_assembly::device_faults(&node.device_faults);
            if let Some(node) = simulation.part.node(number) {
                node.host.set_device_faults(rates);
            }
        }
        Ok(simulation)
    }

    /// Opens every port on fault-free links, and processes all events of the set-up.
    fn open_ports(&mut self, config: &SimConfig, plan: &Plan) -> Result<(), SimulationError> {
        let slices = config.workload.slices;
        for (number, ports) in (0..=u16::MAX).zip(&plan.ports) {
            for port in ports {
                let host = &mut self.part.nodes[usize::from(number)].host;
                let opened = host.open(port, slices, &mut self.part.checker, &mut self.part.effects);
                opened.map_err(|Refused { operation, status }| {
                    let node = config.nodes[usize::from(number)].name.clone();
                    SimulationError::Refused { node, operation, status }
                })?;
                self.part.settle(self.part.clock, number);
            }
        }
        self.run_until_silent();
        Ok(())
    }

    /// Runs every node's script to its end.
    pub fn perform(&mut self, scripts: Vec<Script>) {
        let begin = self.rest();
        self.part.clock = begin;
        for (number, script) in (0..=u16::MAX).zip(scripts) {
            let Some(node) = self.part.nodes.get_mut(usize::from(number)) else { break };
            node.script = script;
            node.script.begin(begin.as_ps());
            self.part.settle(begin, number);
        }
        loop {
            self.run_until_silent();
            let later = self.rest() + SILENCE;
            let mut goes_on = false;
            for number in self.part.fabric.ports() {
                if self.part.nodes[usize::from(number)].script.on_silence() {
                    self.part.wake(number, later);
                    goes_on = true;
                }
            }
            if !goes_on || self.is_endless || self.part.queue.past_end().is_some() {
                break;
            }
        }
        self.part.clock = self.rest();
    }

    /// The earliest time at which no host is busy.
    fn rest(&self) -> Time {
        self.part.nodes.iter().map(|node| node.host.rest()).fold(self.part.clock, Time::max)
    }

    /// Checks that model time has not reached its end, so that all results until now are exact.
    ///
    /// # Errors
    /// [`EndOfTime`], if an event was due after the end, or a host or card is busy until then.
    pub fn check_time(&self) -> Result<(), EndOfTime> {
        self.part.queue.past_end().map_or(Ok(()), Err)?;
        self.rest().within_limit().map(drop)
    }

    /// Processes events until only timeouts without effect are left, or none.
    fn run_until_silent(&mut self) {
        if self.threads > 0 {
            if !self.is_entangled && !threads::run(&mut self.part, self.threads, &mut self.bound) {
                (self.is_entangled, self.is_endless) = (true, true);
            }
            return;
        }
        let mut progress = (self.part.clock, self.progress());
        while !self.is_endless
            && self.part.queue.past_end().is_none()
            && let Some((at, node, event)) = self.part.queue.pop()
        {
            if event == Event::Timeout {
                if progress.1 != self.progress() {
                    progress = (at, self.progress());
                }
                if at.since(progress.0) > FUTILE && !self.part.queue.is_lively() {
                    // No program waits for this timeout any more. The node's next event sets it again.
                    self.part.nodes[usize::from(node)].timeout_at = None;
                    self.part.events += 1;
                    continue;
                }
            }
            self.part.events += 1;
            match event {
                Event::Depart { frame } => self.set_off(at, node, frame),
                Event::Silence => self.begin_frame(at),
                Event::Cross { frame } => self.part.cross(at, node, frame, self.observer.as_mut()),
                Event::Arrive { frame } => self.part.arrive(at, node, frame),
                Event::Host => self.part.step(at, node),
                Event::Timeout => self.part.expire(at, node),
                Event::FirmwareReload => self.firmware_reloads.on_time(),
            }
            self.advance_firmware_reload(at);
            if self.observer.is_some() {
                self.show(node);
            }
            let Checker { progress: messages, stored_bytes, .. } = self.part.checker;
            if !self.bound.allows(Progress { messages, stored_bytes }) {
                self.look(at, node, event);
            }
        }
    }

    /// Advances the firmware reload of all cards: begins the next one if it is due, or switches.
    fn advance_firmware_reload(&mut self, now: Time) {
        if let Some((image, epoch)) = self.firmware_reloads.begin() {
            self.part.clock = self.part.clock.max(now);
            self.tell_all(now, FirmwareReloadStep::Begin { image: &image, switch: Switch::Told { epoch } });
        }
        if self.firmware_reloads.is_loading() {
            let progress = self.part.nodes.iter().map(|node| node.host.progress());
            if self.firmware_reloads.go_on(self.part.flights.count() == 0, progress) {
                self.tell_all(now, FirmwareReloadStep::Switch);
            }
        }
    }

    fn tell_all(&mut self, now: Time, step: FirmwareReloadStep<'_>) {
        for number in self.part.fabric.ports() {
            let host = &mut self.part.nodes[usize::from(number)].host;
            if let Err(error) =
                host.reload_firmware(now, step, &mut self.part.checker, &mut self.part.effects)
            {
                self.part
                    .checker
                    .fail(Check::Drained, || format!("node {number}: the firmware reload failed: {error}"));
            }
            self.part.settle(now, number);
        }
    }

    /// Counts an event of a run that seems endless. Ends the run when enough events are counted.
    #[cold]
    fn look(&mut self, at: Time, node: u16, event: Event) {
        self.rounds.add(at, node, event);
        if self.rounds.count() < LOOKED_AT {
            return;
        }
        self.is_endless = true;
        let (most, frames, rounds) = (self.bound.most(), self.part.flights.count(), &self.rounds);
        self.part.checker.fail(Check::Drained, || {
            format!("no end: no message was sent or received in {most} events; {frames} frames are in flight; {rounds}")
        });
    }

    /// Messages sent and received so far.
    const fn progress(&self) -> u64 {
        self.part.checker.sent + self.part.checker.received
    }

    /// A frame is ready for its sender's link, or for the shared wire.
    fn set_off(&mut self, now: Time, node: u16, place: u32) {
        let Some(medium) = &mut self.medium else { return self.depart(now, node, place) };
        let Some(flight) = self.part.flights.get(place) else { return };
        medium.offer(flight.from, place);
        self.await_silence(now);
    }

    /// A station may begin to send on the shared wire.
    fn begin_frame(&mut self, now: Time) {
        let begun = self.medium.as_mut().and_then(|medium| medium.begin(now));
        if let Some((node, place)) = begun
            && let Some(flight) = self.part.flights.get_mut(place)
        {
            let passage = &mut flight.packet.passage;
            *passage = Passage { head: passage.head.max(now), tail: passage.tail.max(now) };
            // A card that begins before it has the complete frame holds the wire until it has.
            let held = passage.tail.since(passage.head);
            let slot = self.part.fabric.slot(node, flight.packet.frame.len());
            let until = now + slot.max(held);
            self.medium.iter_mut().for_each(|medium| medium.hold(until));
            self.depart(now, node, place);
        }
        self.await_silence(now);
    }

    fn depart(&mut self, now: Time, node: u16, place: u32) {
        self.part.depart(now, node, place, self.observer.as_mut());
    }

    fn await_silence(&mut self, now: Time) {
        if let Some(at) = self.medium.as_mut().and_then(|medium| medium.wake(now)) {
            self.part.queue.push(at, 0, 0, Event::Silence);
        }
    }

    /// Removes the faults of all links and NICs.
    pub fn heal(&mut self) {
        for port in self.part.fabric.ports() {
            self.part.fabric.set_faults(port, Faults::NONE);
        }
        self.part.nodes.iter_mut().for_each(|node| node.host.set_device_faults(Rates::default()));
        self.part.checker.on_healed();
    }

    /// Begins the measured part: all programs begin at the same time, and latencies are reset.
    pub fn begin_measurement(&mut self) {
        self.part.clock = self.rest();
        for node in &mut self.part.nodes {
            node.host.begin_at(self.part.clock);
            node.host.visit_ledgers(&mut |_, ledger| ledger.restart_latency());
        }
        for at in self.firmware_reloads.times(self.part.clock) {
            self.part.queue.push(at, 0, 0, Event::FirmwareReload);
        }
    }

    /// Attaches an observer.
    pub fn observe(&mut self, observer: Observer<'a>) {
        self.record_stages(observer.max_stages());
        self.observer = Some(observer);
    }

    /// Has all ledgers keep up to `most` stages.
    fn record_stages(&mut self, most: usize) {
        for node in &mut self.part.nodes {
            node.host.visit_ledgers(&mut |_, ledger| ledger.record_stages(most));
        }
        self.part.fabric.ledgers_mut().for_each(|ledger| ledger.record_stages(most));
    }

    /// Detaches the observer and returns it.
    pub fn take_observer(&mut self) -> Option<Observer<'a>> {
        let mut observer = self.observer.take()?;
        for node in &mut self.part.nodes {
            node.host.visit_ledgers(&mut |owner, ledger| observer.on_stages(owner, || ledger.take_stages()));
        }
        observer.on_stages(Owner::Network, || self.part.fabric.take_stages());
        self.record_stages(0);
        Some(observer)
    }

    /// Shows the observer the stages that an event has added.
    fn show(&mut self, number: u16) {
        let Some(observer) = &mut self.observer else { return };
        observer.on_time(self.part.queue.horizon());
        if let Some(node) = self.part.nodes.get_mut(usize::from(number)) {
            node.host.visit_ledgers(&mut |owner, ledger| observer.on_stages(owner, || ledger.take_stages()));
        }
        observer.on_stages(Owner::Network, || self.part.fabric.take_stages());
    }

    /// Runs the checks at the end.
    pub fn finish(&mut self) {
        self.part.nodes.iter_mut().for_each(|node| node.host.finish(&mut self.part.checker));
        for (number, node) in (0..=u16::MAX).zip(&self.part.nodes) {
            let unsent = node.script.unsent();
            let is_excused =
                node.host.is_stuck(&self.part.checker) || self.part.checker.is_kept_from_sending(number);
            if unsent > 0 && !is_excused {
                self.part
                    .checker
                    .fail(Check::Drained, || format!("node {number}: {unsent} messages were never sent"));
            }
        }
        if self.firmware_reloads.is_loading() {
            self.part.checker.fail(Check::Drained, || "a firmware reload did not complete".to_owned());
        }
        let in_flight = self.part.flights.count();
        if in_flight > 0 {
            self.part.checker.fail(Check::Drained, || format!("{in_flight} frames are still in flight"));
        }
        self.part.checker.on_end();
    }

    /// Whether the simulation cannot be processed by phases: one thread must process it event by event, from the
    /// beginning.
    #[must_use]
    pub const fn is_entangled(&self) -> bool {
        self.is_entangled
    }

    /// Number of threads that process events by phases; 0 if one thread processes them event by event.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Model time of the latest event.
    #[must_use]
    pub const fn clock(&self) -> Time {
        self.part.clock
    }

    /// Number of events processed so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.part.events
    }

    /// The network.
    #[must_use]
    pub const fn fabric(&self) -> &Fabric {
        &self.part.fabric
    }

    /// The nodes, by rank.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.part.nodes
    }

    /// The checker.
    #[must_use]
    pub const fn checker(&self) -> &Checker {
        &self.part.checker
    }

    /// The checker, mutable.
    pub const fn checker_mut(&mut self) -> &mut Checker {
        &mut self.part.checker
    }
}

/// What the hosts of all nodes share. It is computed once, because there may be thousands of nodes.
struct Common<'a> {
    config: &'a SimConfig,
    profile: Arc<Profile>,
    flows: &'a Arc<[Flow]>,
    mtu_bytes: u32,
    /// Terms with which ports are opened on cards with lists.
    terms: Terms,
    /// Terms with which ports are opened on cards with posts.
    posts: PostTerms,
    channels: ChannelTerms,
    wrap: Wrap<'a>,
}

impl Common<'_> {
    /// The host of a node, with its card.
    fn host(&self, number: u16, node: &SimNode) -> Result<Box<dyn Host>, SimulationError> {
        let &Self { config, flows, mtu_bytes, terms, posts, channels, wrap, .. } = self;
        let (count, profile) = (config.nodes.len() as u32, Arc::clone(&self.profile));
        match config.workload.function {
            Function::Cluster => {}
            Function::Ethernet => {
                return Ok(Box::new(EthernetHost::new(
                    number,
                    Conventional::new(profile),
                    Arc::clone(flows),
                )));
            }
            Function::Tcp => {
                let stack = config.profile.host.stack.as_ref();
                let stack =
                    stack.ok_or_else(|| SimulationError::NoStack { profile: config.profile.name.clone() })?;
                let (nic, flows, prices) =
                    (Conventional::new(profile), Arc::clone(flows), Prices::new(stack));
                let terms = (config.workload.tcp, mtu_bytes);
                return Ok(Box::new(TcpHost::new(number, nic, flows, prices, terms)));
            }
        }
        let (name, model) = (|| node.name.clone(), node.nic.model.name);
        let maker = maker_of(node.nic.model.descriptor());
        let maker = maker.ok_or_else(|| SimulationError::NoHost { node: name(), model })?;
        let ethernet = Conventional::new(Arc::clone(&profile));
        let nic = niclab_assembly::card(&node.nic, number, count, mtu_bytes, profile)
            .map_err(|error| SimulationError::Nic { node: name(), error })?;
        if node.device_faults.invalid_value > 0.0 || !node.device_faults.invalid_value_at.is_empty() {
            return Err(SimulationError::InvalidValue { node: name() });
        }
        let nic = wrap(number, nic);
        let nic = match node.adversarial {
            Some(seed) => Box::new(AdversarialNic::new(nic, Adversarial::new(seed, number))),
            None => nic,
        };
        let nic = if node.device_faults.is_none() {
            nic
        } else {
            // As with links, faults begin only when all ports are open.
            Box::new(FaultyNic::new(nic, FaultInjector::new(Rates::default(), config.seed, number)))
        };
        let datagram_every = config.workload.datagram_every;
        Ok((maker.make)(HostSeat { number, nic, ethernet, terms, posts, channels, datagram_every }))
    }
}

fn fabric(config: &SimConfig) -> Result<Fabric, LinkError> {
    let profile = niclab_assembly::profile(&config.profile);
    let fabric = Fabric::new(&FabricConfig {
        links: config.nodes.iter().map(|node| niclab_assembly::link(&node.link, config.framing)).collect(),
        forwarding: niclab_assembly::forwarding(config.forwarding),
        switch_fall_through: Span::from_ps(profile.network.switch_fall_through_ps),
        seed: config.seed,
    })?;
    Ok(fabric.routed_by(niclab_assembly::routing(config.framing)))
}

/// What this configuration promises of every message. A switch queue that may overflow counts as a faulty network. A
/// link that is cut delivers nothing.
fn promise(config: &SimConfig, plan: &Plan) -> Promise {
    let is_parted = config.nodes.iter().any(|node| node.link.faults.partition);
    let (promises, is_deep) = match config.workload.function {
        Function::Ethernet => (ETHERNET_PROMISES, max_datagrams(config, plan) <= config.least_queue_frames()),
        // TCP retransmits lost data without a limit.
        Function::Tcp => (TCP_PROMISES, config.has_deep_queues()),
        Function::Cluster => (config.promises(), config.has_deep_queues()),
    };
    let now = promises.on(config.has_faulty_links(), is_deep);
    Promise {
        is_lossless: now.is_delivered && !is_parted,
        is_lossless_when_healed: promises.on(false, is_deep).is_delivered,
        // Frames that a network fault duplicated or reordered may arrive after the faults end.
        is_once: now.is_once,
        is_in_order: now.is_in_order,
    }
}

/// Datagrams have no flow control, and link faults apply to them.
const ETHERNET_PROMISES: Promises = Promises {
    sound: registry::Promise::ALL,
    faulty: registry::Promise { is_delivered: false, is_once: false, is_in_order: false },
};

/// TCP keeps every promise on any link.
const TCP_PROMISES: Promises = Promises { sound: registry::Promise::ALL, faulty: registry::Promise::ALL };

/// Maximum number of datagrams that may wait for one link, if all are sent at once.
fn max_datagrams(config: &SimConfig, plan: &Plan) -> u64 {
    if config.workload.kind == WorkloadKind::Replay {
        return plan.measured.iter().map(Script::unsent).sum();
    }
    let per_node =
        config.workload.count.saturating_mul(config.workload.partners(config.nodes.len() as u32).into());
    per_node.saturating_mul(config.nodes.len() as u64)
}
