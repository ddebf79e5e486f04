//! What a NIC may do to its host and kind hardware seldom does, for those who write drivers.
//!
//! [`AdversarialNic`] stands around any model, as [`super::fault_injector::FaultyNic`] does, and passes on all that the
//! model wants done; of what the host sees it holds some back ([`Adversarial`]), by rules of the manual (docs/driver/DEVICE.md):
//!
//! * completions of one port keep their order, and so do its status lines and counters. Beside that every order is
//!   allowed: of different ports, and of a port's completions and its counts;
//! * an interrupt comes behind what it tells of, and behind all that was written for its port before;
//! * data is there before the completion that tells of it: data is never held back;
//! * behind the answer to a request nothing is written that was due before it: the answer pushes all of it out, and so
//!   does a read of a word that is held back, as reads on a bus do;
//! * what belongs to no port that is open (descriptors in rings of the driver's) is not held back: there a card says by
//!   its own rules when its host need not be told.
//!
//! Each kind has its own generator and its own count of opportunities ([`Dice`]). A shell that wants nothing of this
//! makes no [`AdversarialNic`], and nothing of it costs it anything. What the model has counted and priced stays. The kinds
//! that are a shell's own, such as the order of events, are drawn by the same dice there.

mod kinds;

pub use kinds::{Dice, Kind};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::control::{OP_PORT_OPEN, PortOpen, PortOpened, Reply, Request, STATUS_OK};
use niclab_abi::receive::SLICE_BYTES;
use niclab_abi::{FromBytes, PAGE_BYTES};
use smallvec::SmallVec;

use crate::nic::hand_over::{HandOver, HandOverError, Progress};
use crate::nic::{
    Content, DescriptorQueue, HostRange, HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics,
};
use crate::platform::ledger::Ledger;
use crate::platform::node_bus::NodeBus;
use crate::time::{Span, Time};

/// Most that is held back at a time: a guest can have a card tell it of launches without end. What comes beyond it goes
/// out with all that is held.
const MAX_HELD: usize = 64;

/// In how many ways something can be late.
const WAYS: u32 = 1024;
/// So many of them are for a moment: until nothing is under way.
const SHORT_WAYS: u32 = 960;
/// From one way to the next, where it is for a moment.
const SHORT_STEP: Span = Span::from_ns(2);
/// The same, where it is for long.
const LONG_STEP: Span = Span::from_ns(750);

/// What keeps its order.
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

/// Something that is held back.
#[derive(Clone, Debug)]
struct Held {
    lane: Lane,
    /// From when on it goes out.
    due: Time,
    /// It waits for no guest, and for no time of a live run: until nothing is under way.
    is_short: bool,
    output: Output,
}

/// Decides what is held back, does it, and keeps account.
#[derive(Clone, Debug)]
pub struct Adversarial {
    dice: Dice,
    areas: Vec<Area>,
    /// Requests for a port that are not answered.
    opening: Vec<(u64, PortOpen)>,
    /// In the order in which the model wanted it.
    held: Vec<Held>,
    /// When the last of each lane is visible that was held back.
    visible: SmallVec<[(Lane, Time); 4]>,
    ready: VecDeque<Output>,
    /// The latest instant that the model was told.
    now: Time,
}

impl Adversarial {
    /// For the device of node `node`.
    pub fn new(seed: u64, node: u16) -> Self {
        Self {
            dice: Dice::new(seed, node),
            areas: Vec::new(),
            opening: Vec::new(),
            held: Vec::new(),
            visible: SmallVec::new(),
            ready: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    /// How often each kind happened.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        self.dice.counts()
    }

    /// Draws by this seed from here on, as a new one does. What is held stays so, for as long as was drawn for it.
    pub fn reseed(&mut self, seed: u64) {
        self.dice.reseed(seed);
    }

    /// The seed in force.
    pub const fn seed(&self) -> u64 {
        self.dice.seed()
    }

    /// How often another seed was given.
    pub const fn reseeds(&self) -> u64 {
        self.dice.reseeds()
    }

    /// When the first of what is held goes out.
    pub fn due(&self) -> Option<Time> {
        self.held.iter().map(|held| held.due).min()
    }

    /// The same, of what waits for nothing but that nothing is under way.
    fn due_soon(&self) -> Option<Time> {
        self.held.iter().filter(|held| held.is_short).map(|held| held.due).min()
    }

    /// When the last of what goes out at `now` was due: the host cannot have seen it before.
    fn last_due(&self, now: Time) -> Option<Time> {
        self.held.iter().map(|held| held.due).filter(|due| *due <= now).max()
    }

    /// The port whose memory a word is, and what of it.
    fn lane_of(&self, address: u64, content: Content) -> Option<Lane> {
        if let Content::Completion { .. } = content {
            let area = self.areas.iter().find(|area| area.records.contains(&address));
            return area.map(|area| Lane::Records(area.port));
        }
        // The lines of several ports may be on one page.
        let before = self.areas.iter().filter(|area| area.status <= address);
        let area = before.max_by_key(|area| area.status)?;
        (address - area.status < PAGE_BYTES).then_some(Lane::Counts(area.port))
    }

    /// Takes an output of the model that is for its host.
    fn take(&mut self, output: Output) {
        match &output {
            Output::DmaWrite { content: Content::Data, .. } => self.ready.push_back(output),
            Output::DmaWrite { address, content, .. } => {
                let is_counts = *content == Content::Counts;
                let kind = if is_counts { Kind::StatusLate } else { Kind::CompletionLate };
                match self.lane_of(*address, *content) {
                    Some(lane) => self.delay(kind, lane, output),
                    None => self.ready.push_back(output),
                }
            }
            Output::Interrupt { port, .. } => {
                let is_known = self.areas.iter().any(|area| area.port == *port);
                let lane = if is_known { Lane::Records(*port) } else { Lane::Card };
                self.delay(Kind::InterruptLate, lane, output);
            }
            Output::Reply { token, bytes, .. } => {
                self.push_out();
                self.on_reply(*token, bytes);
                self.ready.push_back(output);
            }
            _ => self.ready.push_back(output),
        }
    }

    /// The last that is held of what may not be overtaken by `output`, which is of `lane`.
    fn before(&self, lane: Lane, output: &Output) -> Option<(Time, bool)> {
        let is_before = |held: &&Held| match (output, lane) {
            // An interrupt may tell of a counter.
            (Output::Interrupt { .. }, Lane::Records(port)) => {
                [lane, Lane::Counts(port)].contains(&held.lane)
            }
            _ => held.lane == lane,
        };
        let before = self.held.iter().filter(is_before);
        before.max_by_key(|held| held.due).map(|held| (held.due, held.is_short))
    }

    /// Lets an output go, or holds it back.
    fn delay(&mut self, kind: Kind, lane: Lane, output: Output) {
        let drawn = self.dice.draw(kind, WAYS);
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
            self.dice.count(kind);
        }
        let is_short = is_short && before.is_none_or(|(_, is_short)| is_short);
        self.held.push(Held { lane, due, is_short, output });
    }

    /// An output of a lane goes out: not visible before those that went out of it before.
    fn in_order(&mut self, lane: Lane, mut output: Output) -> Output {
        if let Some((_, visible)) = self.visible.iter().find(|(of, _)| *of == lane) {
            let at = output.at_mut();
            *at = (*at).max(*visible);
        }
        output
    }

    /// All that is held goes out now, as soon as the model wanted it.
    fn push_out(&mut self) {
        let mut held = core::mem::take(&mut self.held);
        held.sort_by_key(|held| held.due);
        for Held { lane, output, .. } in held {
            let output = self.in_order(lane, output);
            self.ready.push_back(output);
        }
    }

    /// The next output that may go out now.
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

    /// A request is answered: the port may be open that it was for, and the memory of that is known from now on.
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

    /// A card reads host memory: what is held back of that goes out before.
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

    /// The host is gone: nothing more is written.
    fn forget(&mut self) {
        self.areas.clear();
        self.opening.clear();
        self.held.clear();
        self.visible.clear();
        self.ready.clear();
    }
}

/// So many steps.
const fn span(step: Span, count: u32) -> Span {
    Span::from_ps(step.as_ps() * count as u64)
}

/// The port that a request asks to have opened.
fn opened_by(request: &[u8]) -> Option<PortOpen> {
    let (head, body) = request.split_at_checked(Request::BYTES)?;
    Request::from_bytes(head).filter(|head| head.operation == OP_PORT_OPEN)?;
    PortOpen::from_bytes(body)
}

/// A NIC that is adversarial: the model `N` as its host sees it through an [`Adversarial`].
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

    /// The host asks for something, for a port perhaps.
    fn ask(&mut self, now: Time, token: u64, request: &[u8], node: &mut NodeBus) {
        let Self { adversarial, nic } = self;
        // What an earlier port had may be memory of the next one.
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
            // What is held goes out, and no timer of the model's is due for that.
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

    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        self.nic.memory_named_by(request)
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.adversarial.next() {
                return Some(output);
            }
            match self.nic.poll_output()? {
                // Not for the host to see: what tells of the data comes later.
                output @ (Output::Frame { .. }
                | Output::LentFrame { .. }
                | Output::DmaFrame { .. }
                | Output::DmaLent { .. }
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

    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        self.nic.descriptors_wanted(queue)
    }

    fn accepts_store(&self, port: u32) -> bool {
        self.nic.accepts_store(port)
    }

    fn is_open(&self, port: u32) -> bool {
        self.nic.is_open(port)
    }

    fn has_stations(&self) -> bool {
        self.nic.has_stations()
    }

    fn hand_over(&mut self, now: Time, step: HandOver<'_>, node: &mut NodeBus) -> Result<(), HandOverError> {
        self.nic.hand_over(now, step, node)
    }

    fn progress(&self) -> Progress {
        self.nic.progress()
    }

    fn epoch(&self) -> u16 {
        self.nic.epoch()
    }

    fn work_done(&self) -> u64 {
        self.nic.work_done()
    }
}

impl<N: Nic + ?Sized> Observed for AdversarialNic<N> {
    fn delivered(&self, port: u32) -> u64 {
        self.nic.delivered(port)
    }

    fn unordered(&self) -> u64 {
        self.nic.unordered()
    }

    fn unreported(&self) -> u64 {
        self.nic.unreported()
    }

    fn begin_part(&mut self, at: Time) {
        self.nic.begin_part(at);
    }

    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.nic.ledger_mut()
    }

    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        self.nic.peripherals()
    }

    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        self.nic.peripheral_ledgers_mut()
    }

    fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.nic.statistics(shell)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.nic.counters()
    }

    fn adversarial(&self) -> Option<&Adversarial> {
        Some(&self.adversarial)
    }

    fn adversarial_mut(&mut self) -> Option<&mut Adversarial> {
        Some(&mut self.adversarial)
    }
}
