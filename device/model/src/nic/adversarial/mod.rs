//! Adversarial NICs: behaviour that the specification allows and most hardware seldom shows, for authors of drivers.
//!
//! [`AdversarialNic`] wraps any model, as [`super::fault_injector::FaultyNic`] does, and passes on every effect of the
//! model. It delays some effects that the host sees ([`Adversarial`]), by rules of the manual (docs/driver/DEVICE.md):
//!
//! * completions of one port keep their order, and so do its status lines and counters. Any other order is allowed:
//!   between ports, and between a port's completions and its counts;
//! * an interrupt follows the event that it reports, and all earlier writes for its port;
//! * data precedes the completion that reports it: data is never delayed;
//! * no write that was due before a reply follows it: the reply flushes all delayed effects. A read of a delayed word
//!   does the same, as reads on a bus do;
//! * writes for no open port (descriptors in the driver's rings) are not delayed: there the card's own rules say when
//!   it may omit a notification.
//!
//! Each kind has its own generator and its own count of opportunities ([`Sampler`]). A shell without adversarial
//! behaviour makes no [`AdversarialNic`], and has no cost from this module. The model's counts and prices stay. For
//! kinds in the shell itself, such as the order of events, the shell samples its own [`Sampler`].

mod kinds;

pub use kinds::{AdversarialKind, Sampler};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::control::{OP_PORT_OPEN, PortOpen, PortOpened, Reply, Request, STATUS_OK};
use niclab_abi::receive::SLICE_BYTES;
use niclab_abi::{FromBytes, PAGE_BYTES};
use smallvec::SmallVec;

use super::wrapper::{delegate_nic, delegate_observed};
use crate::nic::{Content, HostRange, Input, Nic, Observed, Output};
use crate::platform::node_bus::NodeBus;
use crate::time::{Span, Time};

/// Max delayed effects: a guest can post without limit, and each post has the card write a report. When the limit is
/// reached, all delayed effects go out.
const MAX_HELD: usize = 64;

/// Number of different delays.
const WAYS: u32 = 1024;
/// The first of them are short: such an effect waits at most until nothing is in flight.
const SHORT_WAYS: u32 = 960;
/// Step between short delays.
const SHORT_STEP: Span = Span::from_ns(2);
/// Step between long delays.
const LONG_STEP: Span = Span::from_ns(750);

/// Effects of one lane keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Slices or events of a port, and its interrupts.
    Records(u32),
    /// Its status line and counters.
    Counts(u32),
    /// Interrupts for no port.
    Card,
}

/// Memory of an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    port: u32,
    records: Range<u64>,
    status: u64,
}

impl Area {
    fn of(port: u32, open: &PortOpen) -> Self {
        let bytes = u64::from(open.slices) * SLICE_BYTES;
        let records = open.slices_address..open.slices_address.saturating_add(bytes);
        Self { port, records, status: open.status_address }
    }
}

/// A delayed effect.
#[derive(Clone, Debug)]
struct Held {
    lane: Lane,
    /// When it goes out.
    due: Time,
    /// A short delay, which ends as soon as nothing is in flight. It waits neither for a guest nor for time in a live
    /// run.
    is_short: bool,
    output: Output,
}

/// Chooses which effects to delay, delays them, and counts.
#[derive(Clone, Debug)]
pub struct Adversarial {
    sampler: Sampler,
    areas: Vec<Area>,
    /// Requests to open a port that are not yet answered.
    opening: Vec<(u64, PortOpen)>,
    /// In the order of the model's outputs.
    held: Vec<Held>,
    /// For each lane, when its last delayed effect becomes visible.
    visible: SmallVec<[(Lane, Time); 4]>,
    ready: VecDeque<Output>,
    /// The latest instant of an input.
    now: Time,
}

impl Adversarial {
    /// For the device of node `node`.
    pub fn new(seed: u64, node: u16) -> Self {
        Self {
            sampler: Sampler::new(seed, node),
            areas: Vec::new(),
            opening: Vec::new(),
            held: Vec::new(),
            visible: SmallVec::new(),
            ready: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    /// How often each kind happened.
    pub fn counts(&self) -> impl Iterator<Item = (AdversarialKind, u64)> + '_ {
        self.sampler.counts()
    }

    /// Samples by this seed from now on, as a new state does. Delayed effects keep their delays.
    pub fn reseed(&mut self, seed: u64) {
        self.sampler.reseed(seed);
    }

    /// The current seed.
    pub const fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// Number of calls of [`Adversarial::reseed`].
    pub const fn reseeds(&self) -> u64 {
        self.sampler.reseeds()
    }

    /// When the first delayed effect goes out.
    pub fn due(&self) -> Option<Time> {
        self.held.iter().map(|held| held.due).min()
    }

    /// When the first effect with a short delay goes out.
    fn due_soon(&self) -> Option<Time> {
        self.held.iter().filter(|held| held.is_short).map(|held| held.due).min()
    }

    /// The latest due time of the effects that go out at `now`: the host cannot have seen them before.
    fn last_due(&self, now: Time) -> Option<Time> {
        self.held.iter().map(|held| held.due).filter(|due| *due <= now).max()
    }

    /// The lane of a written word: its port, and records or counts.
    fn lane_of(&self, address: u64, content: Content) -> Option<Lane> {
        if let Content::Completion { .. } = content {
            let area = self.areas.iter().find(|area| area.records.contains(&address));
            return area.map(|area| Lane::Records(area.port));
        }
        // The lines of several ports may share a page.
        let before = self.areas.iter().filter(|area| area.status <= address);
        let area = before.max_by_key(|area| area.status)?;
        (address - area.status < PAGE_BYTES).then_some(Lane::Counts(area.port))
    }

    /// Takes an output of the model for its host.
    fn take(&mut self, output: Output) {
        match &output {
            Output::DmaWrite { content: Content::Data, .. } => self.ready.push_back(output),
            Output::DmaWrite { address, content, .. } => {
                let is_counts = *content == Content::Counts;
                let kind =
                    if is_counts { AdversarialKind::StatusLate } else { AdversarialKind::CompletionLate };
                match self.lane_of(*address, *content) {
                    Some(lane) => self.delay(kind, lane, output),
                    None => self.ready.push_back(output),
                }
            }
            Output::Interrupt { port, .. } => {
                let is_known = self.areas.iter().any(|area| area.port == *port);
                let lane = if is_known { Lane::Records(*port) } else { Lane::Card };
                self.delay(AdversarialKind::InterruptLate, lane, output);
            }
            Output::Reply { token, bytes, .. } => {
                self.push_out();
                self.on_reply(*token, bytes);
                self.ready.push_back(output);
            }
            _ => self.ready.push_back(output),
        }
    }

    /// The last delayed effect that `output`, of lane `lane`, must not overtake.
    fn before(&self, lane: Lane, output: &Output) -> Option<(Time, bool)> {
        let is_before = |held: &&Held| match (output, lane) {
            // An interrupt may report a counter.
            (Output::Interrupt { .. }, Lane::Records(port)) => {
                [lane, Lane::Counts(port)].contains(&held.lane)
            }
            _ => held.lane == lane,
        };
        let before = self.held.iter().filter(is_before);
        before.max_by_key(|held| held.due).map(|held| (held.due, held.is_short))
    }

    /// Sends an output, or delays it.
    fn delay(&mut self, kind: AdversarialKind, lane: Lane, output: Output) {
        let drawn = self.sampler.draw(kind, WAYS);
        if self.held.len() >= MAX_HELD {
            self.push_out();
        }
        let (late, is_short) = match drawn {
            Some(way @ ..SHORT_WAYS) => (Some(span(SHORT_STEP, way + 1)), true),
            Some(way) => (Some(span(SHORT_STEP, SHORT_WAYS) + span(LONG_STEP, way - SHORT_WAYS)), false),
            None => (None, true),
        };
        let before = self.before(lane, &output);
        let own = late.map(|late| output.at().max(self.now) + late);
        let Some(due) = own.max(before.map(|(due, _)| due)) else {
            let output = self.in_order(lane, output);
            return self.ready.push_back(output);
        };
        if late.is_some() {
            self.sampler.count(kind);
        }
        let is_short = is_short && before.is_none_or(|(_, is_short)| is_short);
        self.held.push(Held { lane, due, is_short, output });
    }

    /// Releases an output of a lane: not visible before earlier outputs of the lane.
    fn in_order(&mut self, lane: Lane, mut output: Output) -> Output {
        if let Some((_, visible)) = self.visible.iter().find(|(of, _)| *of == lane) {
            let at = output.at_mut();
            *at = (*at).max(*visible);
        }
        output
    }

    /// Releases all delayed effects now, at the times that the model requested.
    fn push_out(&mut self) {
        let mut held = core::mem::take(&mut self.held);
        held.sort_by_key(|held| held.due);
        for Held { lane, output, .. } in held {
            let output = self.in_order(lane, output);
            self.ready.push_back(output);
        }
    }

    /// The next output to release now.
    fn next(&mut self) -> Option<Output> {
        if let Some(output) = self.ready.pop_front() {
            return Some(output);
        }
        let due = self.due().filter(|due| *due <= self.now)?;
        let first = self.held.iter().position(|held| held.due == due)?;
        let Held { lane, mut output, .. } = self.held.remove(first);
        let at = output.at_mut();
        *at = (*at).max(due);
        let output = self.in_order(lane, output);
        let visible = output.at();
        match self.visible.iter_mut().find(|(of, _)| *of == lane) {
            Some((_, last)) => *last = visible,
            None => self.visible.push((lane, visible)),
        }
        Some(output)
    }

    /// A request was answered. If it opened a port, the port's memory is known from now on.
    fn on_reply(&mut self, token: u64, reply: &[u8]) {
        let Some(place) = self.opening.iter().position(|(of, _)| *of == token) else { return };
        let (_, open) = self.opening.swap_remove(place);
        let Some((head, body)) = reply.split_at_checked(Reply::BYTES) else { return };
        let is_open = Reply::from_bytes(head).is_some_and(|reply| reply.status == STATUS_OK);
        if let Some(opened) = PortOpened::from_bytes(body).filter(|_| is_open) {
            self.areas.retain(|area| area.port != opened.port);
            self.areas.push(Area::of(opened.port, &open));
        }
    }

    /// The card reads host memory: delayed writes to that memory go out first.
    fn on_read(&mut self, ranges: &[HostRange]) {
        let is_read = |held: &Held| match &held.output {
            Output::DmaWrite { address, words, .. } => {
                let end = address.saturating_add(8 * words.len() as u64);
                ranges
                    .iter()
                    .any(|range| *address < range.address.saturating_add(range.bytes) && range.address < end)
            }
            _ => false,
        };
        if self.held.iter().any(is_read) {
            self.push_out();
        }
    }

    /// The host is gone: the card writes nothing more.
    fn forget(&mut self) {
        self.areas.clear();
        self.opening.clear();
        self.held.clear();
        self.visible.clear();
        self.ready.clear();
    }
}

/// `count` steps.
const fn span(step: Span, count: u32) -> Span {
    Span::from_ps(step.as_ps() * count as u64)
}

/// The port open request in a control request, if it is one.
fn opened_by(request: &[u8]) -> Option<PortOpen> {
    let (head, body) = request.split_at_checked(Request::BYTES)?;
    Request::from_bytes(head).filter(|head| head.operation == OP_PORT_OPEN)?;
    PortOpen::from_bytes(body)
}

/// An adversarial NIC: the model `N` as its host sees it through an [`Adversarial`].
#[derive(Debug)]
pub struct AdversarialNic<N: ?Sized> {
    adversarial: Adversarial,
    nic: Box<N>,
}

impl<N: Nic + ?Sized> AdversarialNic<N> {
    /// Puts `adversarial` between `nic` and its host.
    pub const fn new(nic: Box<N>, adversarial: Adversarial) -> Self {
        Self { adversarial, nic }
    }

    /// Handles a control request, which may open a port.
    fn ask(&mut self, now: Time, token: u64, request: &[u8], node: &mut NodeBus) {
        let Self { adversarial, nic } = self;
        // The next port's memory may be the memory of an earlier port.
        adversarial.areas.retain(|area| nic.is_open(area.port));
        adversarial.opening.extend(opened_by(request).map(|open| (token, open)));
        nic.handle(now, Input::Control { token, request }, node);
    }
}

impl<N: Nic + ?Sized> Nic for AdversarialNic<N> {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.adversarial.now = self.adversarial.now.max(now);
        let last_due = self.adversarial.last_due(self.adversarial.now);
        if let Some(due) = last_due {
            node.wait_until(due);
        }
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        match input {
            // A delayed effect is due, but no timer of the model.
            Input::Timeout if last_due.is_some() && !is_due(self.nic.poll_work()) => {}
            Input::Timeout if !is_due(self.nic.poll_timeout()) => {}
            Input::Control { token, request } => self.ask(now, token, request, node),
            Input::HostReset => {
                self.adversarial.forget();
                self.nic.handle(now, input, node);
            }
            input => self.nic.handle(now, input, node),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.adversarial.next() {
                return Some(output);
            }
            match self.nic.poll_output()? {
                // The host does not see these: a later write announces the data.
                output @ (Output::Frame { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaFrame { .. }
                | Output::DmaBorrowed { .. }
                | Output::WindowRead { .. }) => return Some(output),
                Output::DmaRead { at, token, ranges, into, message } => {
                    self.adversarial.on_read(&ranges);
                    self.adversarial.ready.push_back(Output::DmaRead { at, token, ranges, into, message });
                }
                output => self.adversarial.take(output),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout().into_iter().chain(self.adversarial.due()).min()
    }

    fn poll_work(&self) -> Option<Time> {
        self.nic.poll_work().into_iter().chain(self.adversarial.due_soon()).min()
    }

    delegate_nic!();
}

impl<N: Nic + ?Sized> Observed for AdversarialNic<N> {
    delegate_observed!();

    fn adversarial(&self) -> Option<&Adversarial> {
        Some(&self.adversarial)
    }

    fn adversarial_mut(&mut self) -> Option<&mut Adversarial> {
        Some(&mut self.adversarial)
    }
}
