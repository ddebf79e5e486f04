//! Faults of the device itself, for authors of drivers: a NIC's violations of the specification in its host's memory
//! and interrupts.
//!
//! [`FaultyNic`] wraps any model and passes inputs on unchanged. The [`FaultInjector`] corrupts some of the outputs:
//!
//! * [`Fault::Stale`]: a completion arrives without its last word, by which the host sees that it is new. Its data is
//!   in memory; ownership and status are unchanged. A write of counts is left out completely;
//! * [`Fault::Short`]: the data of a write ends early. After it the host reads the old content of memory, although the
//!   last word of a completion reports success;
//! * [`Fault::BadStatus`]: one status bit of a completion is flipped, its ownership is valid;
//! * [`Fault::Delay`]: a completion becomes visible later. The writes, interrupts and replies after it wait, as posted
//!   writes on a bus do. So nothing overtakes it, and no write for a port follows the reply that the port is closed;
//! * [`Fault::LostInterrupt`], [`Fault::DuplicatedInterrupt`];
//! * [`Fault::InvalidValue`]: one of the values that the model declares ([`crate::nic::host_values`]) is out of its
//!   range: a length, an index, a handle, a count. Ownership is valid, so that a driver reads it.
//!
//! Each fault has its own generator and its own count of opportunities. So the fate of the n-th completion depends
//! only on seed, node and n: it is the same in every shell, and a change of one fault's rate does not affect the other
//! faults. A shell without faults makes no [`FaultyNic`], and has no cost from this module.
//!
//! The model's counts and prices stay: the card has done its work, only the host does not see it. Only a delay moves
//! the host's clock, because no consequence of a completion can precede it. The model prices the host's part of a
//! delayed message as if it were in time.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use niclab_abi::FromBytes;
use niclab_abi::control::{Reply, Request, STATUS_OK};

use super::wrapper::{delegate_nic, delegate_observed};
use crate::nic::adversarial::Adversarial;
use crate::nic::host_values::{CardLimits, HostValue, HostValues, ValueLocation};
use smallvec::SmallVec;

use crate::nic::{Content, DmaWords, Input, Nic, Observed, Output};
use crate::platform::node_bus::NodeBus;
use crate::random::{Chance, Random};
use crate::time::{Span, Time};

const WORD_BYTES: u64 = 8;

/// First of the random streams of a seed for device faults, one for each fault of each node.
const FIRST_STREAM: u64 = 1 << 45;

/// Faults that [`FaultInjector::records`] remembers.
pub const MAX_RECORDS: usize = 64;

/// A violation of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The ownership of a completion stays old.
    Stale,
    /// The data of a write ends early.
    Short,
    /// A status bit is flipped.
    BadStatus,
    /// A completion is late.
    Delay,
    /// An interrupt is not raised.
    LostInterrupt,
    /// An interrupt is raised twice.
    DuplicatedInterrupt,
    /// A value is out of its range.
    InvalidValue,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Stale,
        Self::Short,
        Self::BadStatus,
        Self::Delay,
        Self::LostInterrupt,
        Self::DuplicatedInterrupt,
        Self::InvalidValue,
    ];

    /// The name in cluster files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Short => "short",
            Self::BadStatus => "bad_status",
            Self::Delay => "delay",
            Self::LostInterrupt => "lost_interrupt",
            Self::DuplicatedInterrupt => "duplicated_interrupt",
            Self::InvalidValue => "invalid_value",
        }
    }
}

/// How often a fault happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    chance: Chance,
    /// Sorted.
    at: Vec<u64>,
}

impl Rate {
    /// Happens with this chance at every opportunity, and always at the opportunities whose numbers are in `at`; the
    /// first is 1.
    pub fn new(chance: Chance, mut at: Vec<u64>) -> Self {
        at.sort_unstable();
        Self { chance, at }
    }
}

/// The fault rates of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The rate of each fault, by its number.
    pub of: [Rate; Fault::ALL.len()],
    /// How late a delayed completion is.
    pub delay: Span,
}

/// The opportunities of one fault.
#[derive(Clone, Debug)]
struct Lot {
    random: Random,
    seen: u64,
}

impl Lot {
    fn new(seed: u64, node: u16, fault: Fault) -> Self {
        let stream = FIRST_STREAM + (u64::from(node) << 3) + fault as u64;
        Self { random: Random::new(seed, stream), seen: 0 }
    }

    /// Whether the fault happens at this opportunity, and a number below `choices` for how. Every call samples the
    /// same number of values.
    fn draw(&mut self, rate: &Rate, choices: u32) -> Option<u32> {
        self.seen += 1;
        let happens = self.random.happens(rate.chance);
        let choice = self.random.below(choices);
        (happens || rate.at.binary_search(&self.seen).is_ok()).then_some(choice)
    }
}

/// One fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of this fault among all faults of the device, from 1.
    pub number: u64,
    /// The kind of fault.
    pub fault: Fault,
    /// The number of its opportunity, from 1: [`Rate::new`] with this number makes it happen again.
    pub opportunity: u64,
    /// The model's output, complete and in time. Its message is the one that the fault was applied to.
    pub intended: Output,
}

/// The faults of one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    /// Its ownership stays old.
    is_stale: bool,
    /// Words of data after which it ends early, if it does.
    data_end: Option<usize>,
    /// The status bit that is flipped, or zero.
    flipped: u64,
    /// How late it is.
    late: Option<Span>,
}

/// Chooses faults, applies them, and counts.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    rates: Rates,
    lots: [Lot; Fault::ALL.len()],
    counts: [u64; Fault::ALL.len()],
    withheld_bytes: u64,
    records: VecDeque<Record>,
    /// The latest instant of an input.
    now: Time,
    ready: SmallVec<[Output; 2]>,
    /// Late completions and the effects that wait for them, each with the instant when it goes out.
    held: VecDeque<(Time, Output)>,
    /// Values that can be out of range, and their limits.
    values: HostValues,
    limits: CardLimits,
    /// Unanswered control requests: token and operation. At most [`MAX_ASKED`]. (Attack: a host that sends requests
    /// without limit.)
    asked: VecDeque<(u64, u32)>,
}

/// Unanswered requests whose operations are remembered: more than a shell has pending.
const MAX_ASKED: usize = 1 << 10;

/// Bytes of a word of an answer's body.
const BODY_WORD: usize = size_of::<u64>();

/// The word of an answer that contains a value.
fn body_word(bytes: &[u8], value: &HostValue) -> Option<[u8; BODY_WORD]> {
    bytes.get(Reply::BYTES + value.word() * BODY_WORD..)?.first_chunk().copied()
}

impl FaultInjector {
    /// For the device of node `node`.
    pub fn new(rates: Rates, seed: u64, node: u16) -> Self {
        Self {
            rates,
            lots: Fault::ALL.map(|fault| Lot::new(seed, node, fault)),
            counts: [0; Fault::ALL.len()],
            withheld_bytes: 0,
            records: VecDeque::new(),
            now: Time::ZERO,
            ready: SmallVec::new(),
            held: VecDeque::new(),
            values: &[],
            limits: CardLimits::default(),
            asked: VecDeque::new(),
        }
    }

    /// For a card with these host values.
    #[must_use]
    pub fn with_host_values(self, values: HostValues, limits: CardLimits) -> Self {
        Self { values, limits, ..self }
    }

    /// Sets other fault rates. Generators and counts of opportunities continue, and delayed effects stay delayed.
    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// How often each fault happened.
    pub fn counts(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.into_iter().zip(self.counts)
    }

    /// How often `fault` happened.
    pub const fn count(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    /// Bytes of the model's writes that never reached memory.
    pub const fn withheld_bytes(&self) -> u64 {
        self.withheld_bytes
    }

    /// The last [`MAX_RECORDS`] faults, earliest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// When the first delayed effect goes out.
    pub fn due(&self) -> Option<Time> {
        self.held.front().map(|(due, _)| *due)
    }

    /// Whether `fault` happens at this opportunity, and how: a number below `choices`.
    fn draw(&mut self, fault: Fault, choices: usize) -> Option<usize> {
        let choice = self.lots[fault as usize].draw(&self.rates.of[fault as usize], choices as u32);
        choice.map(|choice| choice as usize)
    }

    /// Records that `fault` was applied to `intended`, at its last opportunity.
    fn record(&mut self, fault: Fault, intended: &Output) {
        self.counts[fault as usize] += 1;
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(Record {
            number: self.counts.iter().sum(),
            fault,
            opportunity: self.lots[fault as usize].seen,
            intended: intended.clone(),
        });
    }

    /// Remembers a request's operation.
    fn on_request(&mut self, token: u64, request: &[u8]) {
        let Some(request) = Request::from_bytes(request) else { return };
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((token, request.operation));
    }

    /// The value in an output, if the output contains it.
    fn value_in(&self, value: &HostValue, output: &Output, operation: Option<u32>) -> Option<u64> {
        let word = match (output, value.location) {
            (
                Output::DmaWrite { content: Content::Completion { .. }, words, .. },
                ValueLocation::Completion(before),
            ) => *words.iter().rev().nth(before)?,
            (
                Output::DmaWrite { content: Content::Counts, words: found, .. },
                ValueLocation::Counts { word, words },
            ) => *found.get(word).filter(|_| found.len() == words)?,
            (Output::Reply { bytes, .. }, ValueLocation::AnswerStatus) => {
                Reply::from_bytes(bytes)?.status.into()
            }
            (Output::Reply { bytes, .. }, ValueLocation::Answer(of)) if operation == Some(of) => {
                let is_granted = Reply::from_bytes(bytes)?.status == STATUS_OK;
                u64::from_le_bytes(body_word(bytes, value).filter(|_| is_granted)?)
            }
            (Output::Interrupt { cause, .. }, ValueLocation::EventCause) => (*cause).into(),
            (Output::Interrupt { port, .. }, ValueLocation::EventPort) => (*port).into(),
            (Output::Complete { bytes, .. }, ValueLocation::UsedLength) => (*bytes).into(),
            _ => return None,
        };
        Some(value.read(word))
    }

    /// Chooses a value in an output and an invalid value for it, if the fault happens.
    fn draw_invalid(&mut self, output: &Output, operation: Option<u32>) -> Option<(HostValue, u64)> {
        let found: SmallVec<[(HostValue, u64); 16]> = self
            .values
            .iter()
            .copied()
            .flatten()
            .filter_map(|value| Some((*value, self.value_in(value, output, operation)?)))
            // Skips values whose bits have no invalid value.
            .filter(|(value, valid)| value.invalid(*valid, 0, &self.limits).is_some())
            .collect();
        if found.is_empty() {
            return None;
        }
        let choice = self.draw(Fault::InvalidValue, found.len() * HostValue::CHOICES)?;
        let (value, valid) = found.get(choice / HostValue::CHOICES)?;
        Some((*value, value.invalid(*valid, choice % HostValue::CHOICES, &self.limits)?))
    }

    /// Sets one of the values in an output out of its range, if the fault happens.
    fn spoil_value(&mut self, output: Output) -> Output {
        let mut operation = None;
        if let Output::Reply { token, .. } = &output
            && let Some(index) = self.asked.iter().position(|(asked, _)| asked == token)
        {
            operation = self.asked.remove(index).map(|(_, operation)| operation);
        }
        let Some((value, invalid)) = self.draw_invalid(&output, operation) else { return output };
        self.record(Fault::InvalidValue, &output);
        let mut spoiled = output;
        match &mut spoiled {
            Output::DmaWrite { words, .. } => {
                let at = match value.location {
                    ValueLocation::Counts { word, .. } => Some(word),
                    ValueLocation::Completion(before) => words.len().checked_sub(before + 1),
                    _ => None,
                };
                if let Some(word) = at.and_then(|at| words.get_mut(at)) {
                    *word = value.write(*word, invalid);
                }
            }
            Output::Interrupt { cause, .. } if value.location == ValueLocation::EventCause => {
                *cause = invalid as u32
            }
            Output::Interrupt { port, .. } => *port = invalid as u32,
            Output::Complete { bytes, .. } => *bytes = invalid as u32,
            Output::Reply { bytes, .. } if value.location == ValueLocation::AnswerStatus => {
                bytes.iter_mut().zip((invalid as u32).to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            Output::Reply { bytes, .. } => {
                let word = body_word(bytes, &value).map_or(0, u64::from_le_bytes);
                let new = value.write(word, invalid).to_le_bytes();
                let body = bytes.iter_mut().skip(Reply::BYTES + value.word() * BODY_WORD);
                body.zip(new).for_each(|(byte, new)| *byte = new);
            }
            _ => {}
        }
        spoiled
    }

    /// The length in the used ring of a buffer into which a shell wrote `bytes` bytes: an answer, or an event.
    pub fn used_length(&mut self, bytes: u32) -> u32 {
        let output = Output::Complete { at: self.now, token: 0, bytes };
        match self.spoil_value(output) {
            Output::Complete { bytes, .. } => bytes,
            _ => bytes,
        }
    }

    /// Takes an output of the model for its host.
    fn take(&mut self, output: Output) {
        let output = self.spoil_value(output);
        match &output {
            Output::DmaWrite { content, words, .. } => {
                let fate = self.fate(*content, words.len());
                self.write(&output, &fate);
            }
            Output::Interrupt { .. } => {
                let mut times = 1;
                if self.draw(Fault::LostInterrupt, 1).is_some() {
                    self.record(Fault::LostInterrupt, &output);
                    times -= 1;
                }
                if self.draw(Fault::DuplicatedInterrupt, 1).is_some() {
                    self.record(Fault::DuplicatedInterrupt, &output);
                    times += 1;
                }
                (0..times).for_each(|_| self.pass(output.clone(), None));
            }
            _ => self.pass(output, None),
        }
    }

    /// Samples the faults of a write of `words` words.
    fn fate(&mut self, content: Content, words: usize) -> Fate {
        let mut fate = Fate::default();
        let data_words = match content {
            Content::Data => words,
            // The last word reports the others.
            Content::Completion { .. } => words.saturating_sub(1),
            // Without its first word the write would be stale.
            Content::Counts => words.saturating_sub(1),
        };
        let first = usize::from(content == Content::Counts);
        if data_words > 0 {
            fate.data_end = self.draw(Fault::Short, data_words).map(|choice| first + choice);
        }
        if content != Content::Data {
            fate.is_stale = self.draw(Fault::Stale, 1).is_some();
            fate.late = self.draw(Fault::Delay, 1).map(|_| self.rates.delay);
        }
        if let Content::Completion { status } = content
            && status != 0
        {
            let choice = self.draw(Fault::BadStatus, status.count_ones() as usize);
            fate.flipped = choice.map_or(0, |choice| nth_bit(status, choice));
        }
        fate
    }

    /// Writes with these faults.
    fn write(&mut self, output: &Output, fate: &Fate) {
        let Output::DmaWrite { at, address, words, content, message } = output else { return };
        if fate.is_stale {
            self.record(Fault::Stale, output);
            if *content == Content::Counts {
                self.withheld_bytes += words.len() as u64 * WORD_BYTES;
                return;
            }
        } else if fate.flipped != 0 {
            self.record(Fault::BadStatus, output);
        }
        if fate.data_end.is_some() {
            self.record(Fault::Short, output);
        }
        if fate.late.is_some() {
            self.record(Fault::Delay, output);
        }
        let has_sign = matches!(content, Content::Completion { .. });
        let sign_at = words.len() - usize::from(has_sign && !words.is_empty());
        let mut data = words.clone();
        data.truncate(fate.data_end.unwrap_or(sign_at));
        let missing = sign_at - data.len();
        let sign = words.get(sign_at).filter(|_| !fate.is_stale).map(|sign| sign ^ fate.flipped);
        let written = data.len() + usize::from(sign.is_some());
        self.withheld_bytes += (words.len() - written) as u64 * WORD_BYTES;
        let part = |first: usize, words: DmaWords| Output::DmaWrite {
            at: *at,
            address: address + first as u64 * WORD_BYTES,
            words,
            content: *content,
            message: *message,
        };
        if missing == 0 {
            // One write, as the model requested it.
            data.extend(sign);
            return self.pass(part(0, data), fate.late);
        }
        if !data.is_empty() {
            self.pass(part(0, data), fate.late);
        }
        if sign.is_some() {
            self.pass(part(sign_at, sign.into_iter().collect()), fate.late);
        }
    }

    /// Sends an output, `late` after its time, and after all delayed effects.
    fn pass(&mut self, mut output: Output, late: Option<Span>) {
        let before = self.held.back().map(|(due, _)| *due);
        let due = late.map(|late| output.at() + late).max(before);
        let Some(due) = due else { return self.ready.push(output) };
        let at = output.at_mut();
        *at = due.max(*at);
        self.held.push_back((due, output));
    }

    /// The next output to release now.
    fn next(&mut self) -> Option<Output> {
        if !self.ready.is_empty() {
            return Some(self.ready.remove(0));
        }
        self.due().filter(|due| *due <= self.now)?;
        self.held.pop_front().map(|(_, output)| output)
    }

    /// The latest due time of the effects that go out at `now`: the host cannot have seen them before.
    fn last_due(&self, now: Time) -> Option<Time> {
        self.held.iter().map(|(due, _)| *due).take_while(|due| *due <= now).last()
    }

    /// The host is gone: the card writes nothing more.
    fn forget(&mut self) {
        self.ready.clear();
        self.held.clear();
        self.asked.clear();
    }
}

/// The bit of `mask` with exactly `n` set bits below it; zero if there is none.
const fn nth_bit(mut mask: u64, n: usize) -> u64 {
    let mut below = n;
    while below > 0 && mask != 0 {
        mask &= mask - 1;
        below -= 1;
    }
    mask & mask.wrapping_neg()
}

/// A NIC with faults: the model `N` as its host sees it through a [`FaultInjector`].
#[derive(Debug)]
pub struct FaultyNic<N: ?Sized> {
    fault_injector: FaultInjector,
    nic: Box<N>,
}

impl<N: Nic + ?Sized> FaultyNic<N> {
    /// Puts `fault_injector` between `nic` and its host.
    pub const fn new(nic: Box<N>, fault_injector: FaultInjector) -> Self {
        Self { fault_injector, nic }
    }
}

impl<N: Nic + ?Sized> Nic for FaultyNic<N> {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.fault_injector.now = self.fault_injector.now.max(now);
        if let Some(due) = self.fault_injector.last_due(self.fault_injector.now) {
            node.wait_until(due);
        }
        match input {
            // The deadline may be that of a delayed effect, not the model's.
            Input::Timeout if self.nic.poll_timeout().is_none_or(|deadline| deadline > now) => {}
            Input::Control { token, request } => {
                self.fault_injector.on_request(token, request);
                self.nic.handle(now, input, node);
            }
            Input::HostReset => {
                self.fault_injector.forget();
                self.nic.handle(now, input, node);
            }
            input => self.nic.handle(now, input, node),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.fault_injector.next() {
                return Some(output);
            }
            match self.nic.poll_output()? {
                // The host does not see these: a later write announces the data.
                output @ (Output::Frame { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaFrame { .. }
                | Output::DmaBorrowed { .. }
                | Output::DmaRead { .. }
                | Output::WindowRead { .. }) => {
                    return Some(output);
                }
                output => self.fault_injector.take(output),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout().into_iter().chain(self.fault_injector.due()).min()
    }

    fn poll_work(&self) -> Option<Time> {
        self.nic.poll_work()
    }

    delegate_nic!();
}

impl<N: Nic + ?Sized> Observed for FaultyNic<N> {
    delegate_observed!();

    fn fault_injector(&self) -> Option<&FaultInjector> {
        Some(&self.fault_injector)
    }

    fn adversarial(&self) -> Option<&Adversarial> {
        self.nic.adversarial()
    }

    fn adversarial_mut(&mut self) -> Option<&mut Adversarial> {
        self.nic.adversarial_mut()
    }

    fn fault_injector_mut(&mut self) -> Option<&mut FaultInjector> {
        Some(&mut self.fault_injector)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use niclab_abi::control::{OP_COUNTERS, OP_PORT_OPEN};
    use proptest::prelude::*;

    use super::*;
    use crate::nic::alone::Alone;
    use crate::nic::frame::SharedFrame;
    use crate::nic::host_values::Bound;
    use crate::nic::{HostRange, ShellCounts, Statistics};
    use crate::platform::ledger::Ledger;
    use crate::platform::trace_tag::TraceTag;

    /// A model whose outputs the test provides.
    #[derive(Default)]
    struct Wishes {
        outputs: VecDeque<Output>,
        deadline: Option<Time>,
        timeouts: u64,
        ledger: Ledger,
    }

    impl Nic for Wishes {
        fn handle(&mut self, _: Time, input: Input<'_>, _: &mut NodeBus) {
            self.timeouts += u64::from(matches!(input, Input::Timeout));
        }
        fn memory_named_by(&self, _: &[u8]) -> SmallVec<[HostRange; 2]> {
            SmallVec::new()
        }
        fn poll_output(&mut self) -> Option<Output> {
            self.outputs.pop_front()
        }
        fn poll_timeout(&self) -> Option<Time> {
            self.deadline
        }
        fn accepts_store(&self, _: u32) -> bool {
            true
        }
        fn is_open(&self, _: u32) -> bool {
            true
        }
        fn work_done(&self) -> u64 {
            3 * self.timeouts
        }
    }

    impl Observed for Wishes {
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

    const STATUS: u64 = 0xff;
    const SLOT: Content = Content::Completion { status: STATUS };

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    fn write(content: Content, address: u64, words: &[u64]) -> Output {
        Output::DmaWrite { at: at(50), address, words: DmaWords::from_slice(words), content, message: None }
    }

    fn interrupt(port: u32) -> Output {
        Output::Interrupt { at: at(60), cause: 1, port, message: None }
    }

    /// Each of these faults at the given opportunities.
    fn at_opportunities(faults: &[(Fault, &[u64])]) -> Rates {
        let mut rates = Rates { delay: Span::from_ps(1_000), ..Rates::default() };
        for (fault, at) in faults {
            rates.of[*fault as usize] = Rate::new(Chance::NEVER, at.to_vec());
        }
        rates
    }

    fn always(fault: Fault) -> Rates {
        let mut rates = Rates::default();
        rates.of[fault as usize] = Rate::new(Chance::ALWAYS, Vec::new());
        rates
    }

    fn faulty(wishes: Wishes, fault_injector: FaultInjector) -> Alone<FaultyNic<Wishes>> {
        Alone::new(FaultyNic::new(Box::new(wishes), fault_injector))
    }

    fn nic(rates: Rates, outputs: impl IntoIterator<Item = Output>) -> Alone<FaultyNic<Wishes>> {
        let wishes = Wishes { outputs: outputs.into_iter().collect(), ..Wishes::default() };
        faulty(wishes, FaultInjector::new(rates, 1, 0))
    }

    fn drain(nic: &mut Alone<FaultyNic<Wishes>>) -> Vec<Output> {
        core::iter::from_fn(|| nic.poll_output()).collect()
    }

    /// Memory as the host sees it after these outputs.
    fn memory(outputs: &[Output]) -> [u64; 8] {
        let mut memory = [0; 8];
        for output in outputs {
            let Output::DmaWrite { address, words, .. } = output else { continue };
            for (index, word) in words.iter().enumerate() {
                memory[*address as usize / 8 + index] = *word;
            }
        }
        memory
    }

    #[test]
    fn without_faults_outputs_pass_unchanged() {
        let wanted = vec![write(SLOT, 0, &[1, 2, 3]), interrupt(0), write(Content::Data, 8, &[4])];
        let mut nic = nic(Rates::default(), wanted.clone());
        assert_eq!(drain(&mut nic), wanted);
        assert_eq!(
            (nic.fault_injector.records().count(), nic.host_clock(), nic.poll_timeout()),
            (0, at(0), None)
        );
    }

    #[test]
    fn work_done_of_the_model_is_passed_on() {
        let wishes = Wishes { deadline: Some(at(1)), ..Wishes::default() };
        let mut nic = faulty(wishes, FaultInjector::new(Rates::default(), 1, 0));
        nic.handle(at(1), Input::Timeout);
        assert_eq!(nic.work_done(), 3);
    }

    #[test]
    fn stale_slot_has_its_data_and_its_old_owner() {
        let wanted = [write(SLOT, 0, &[1, 2, 3]), write(SLOT, 24, &[4, 5])];
        let mut nic = nic(at_opportunities(&[(Fault::Stale, &[1])]), wanted.clone());
        assert_eq!(memory(&drain(&mut nic)), [1, 2, 0, 4, 5, 0, 0, 0]);
        assert_eq!((nic.fault_injector.count(Fault::Stale), nic.fault_injector.withheld_bytes()), (1, 8));
        let record = nic.fault_injector.records().next().unwrap();
        assert_eq!((record.opportunity, &record.intended), (1, &wanted[0]));
    }

    #[test]
    fn stale_counts_are_those_of_the_previous_write() {
        let wanted = [1, 2].map(|count| write(Content::Counts, 0, &[count, count]));
        let mut nic = nic(at_opportunities(&[(Fault::Stale, &[2]), (Fault::Short, &[2])]), wanted);
        assert_eq!(memory(&drain(&mut nic))[..2], [1, 1]);
        assert_eq!((nic.fault_injector.withheld_bytes(), nic.fault_injector.count(Fault::Short)), (16, 0));
    }

    #[test]
    fn short_slot_reports_success() {
        for seed in 0..50 {
            let wishes = Wishes { outputs: [write(SLOT, 0, &[1, 2, 3, 9])].into(), ..Wishes::default() };
            let mut nic = faulty(wishes, FaultInjector::new(always(Fault::Short), seed, 0));
            let memory = memory(&drain(&mut nic));
            assert_eq!((memory[2], memory[3]), (0, 9), "the last data is missing, the status is not");
            let missing = memory[..3].iter().filter(|word| **word == 0).count() as u64;
            assert_eq!(nic.fault_injector.withheld_bytes(), 8 * missing);
        }
    }

    #[test]
    fn short_data_and_counts_lose_their_end() {
        for seed in 0..50 {
            let outputs = [write(Content::Data, 0, &[1, 2, 3]), write(Content::Counts, 32, &[4, 5, 6])];
            let wishes = Wishes { outputs: outputs.into(), ..Wishes::default() };
            let mut nic = faulty(wishes, FaultInjector::new(always(Fault::Short), seed, 0));
            let memory = memory(&drain(&mut nic));
            assert_eq!((memory[2], memory[4], memory[6]), (0, 4, 0), "seed {seed}");
        }
    }

    #[test]
    fn bad_status_has_one_status_bit_flipped() {
        for seed in 0..50 {
            let wishes = Wishes { outputs: [write(SLOT, 0, &[1, 0xab00])].into(), ..Wishes::default() };
            let mut nic = faulty(wishes, FaultInjector::new(always(Fault::BadStatus), seed, 0));
            let memory = memory(&drain(&mut nic));
            let difference: u64 = memory[1] ^ 0xab00;
            assert_eq!((memory[0], difference.count_ones(), difference & !STATUS), (1, 1, 0));
        }
    }

    #[test]
    fn only_frames_overtake_a_late_completion() {
        let frame = Output::Frame { at: at(1), tail: at(1), frame: SharedFrame::default(), message: None };
        let reply = Output::Reply { at: at(2), token: 7, bytes: SmallVec::new() };
        let wanted = [write(SLOT, 0, &[1]), interrupt(3), reply.clone(), frame.clone()];
        let mut nic = nic(at_opportunities(&[(Fault::Delay, &[1])]), wanted);
        assert_eq!(drain(&mut nic), [frame]);
        assert_eq!(nic.poll_timeout(), Some(at(1_050)));
        nic.handle(at(1_049), Input::Timeout);
        assert_eq!(drain(&mut nic), []);
        nic.handle(at(1_050), Input::Timeout);
        let outputs = drain(&mut nic);
        let at_due: Vec<Time> = outputs.iter().map(Output::at).collect();
        assert_eq!(at_due, [at(1_050); 3]);
        assert!(matches!(
            outputs[..],
            [Output::DmaWrite { .. }, Output::Interrupt { port: 3, .. }, Output::Reply { token: 7, .. }]
        ));
        assert_eq!((nic.host_clock(), nic.poll_timeout()), (at(1_050), None));
        assert_eq!(nic.nic.nic.timeouts, 0, "no deadline was the model's");
    }

    #[test]
    fn deadline_of_the_model_reaches_the_model() {
        let mut nic = nic(at_opportunities(&[(Fault::Delay, &[1])]), [write(SLOT, 0, &[1])]);
        nic.nic.nic.deadline = Some(at(20));
        assert!(drain(&mut nic).is_empty());
        assert_eq!(nic.poll_timeout(), Some(at(20)));
        nic.handle(at(20), Input::Timeout);
        assert_eq!(nic.nic.nic.timeouts, 1);
    }

    #[test]
    fn host_that_is_gone_gets_no_more_writes() {
        let mut nic = nic(at_opportunities(&[(Fault::Delay, &[1])]), [write(SLOT, 0, &[1])]);
        assert!(drain(&mut nic).is_empty());
        nic.handle(at(1), Input::HostReset);
        nic.handle(at(5_000), Input::Timeout);
        assert!(drain(&mut nic).is_empty() && nic.poll_timeout().is_none());
    }

    #[test]
    fn interrupts_are_lost_and_duplicated() {
        let rates = at_opportunities(&[(Fault::LostInterrupt, &[1]), (Fault::DuplicatedInterrupt, &[3])]);
        let mut nic = nic(rates, (0..3).map(interrupt));
        assert_eq!(drain(&mut nic), [1, 2, 2].map(interrupt));
    }

    #[test]
    fn a_record_names_the_message() {
        let message = TraceTag { node: 4, port: 2, number: 77, launched: at(0), bytes: 16 };
        let Output::DmaWrite { at, address, words, content, .. } = write(SLOT, 0, &[1, 2]) else { return };
        let output = Output::DmaWrite { at, address, words, content, message: Some(message) };
        let mut nic = nic(always(Fault::Stale), [output]);
        drain(&mut nic);
        let record = nic.fault_injector.records().next().unwrap();
        assert!(matches!(record.intended, Output::DmaWrite { message: Some(found), .. } if found == message));
    }

    const VALUES: HostValues = &[&[
        HostValue::new("length", ValueLocation::Completion(0), 0, 4, Bound::Fixed(9)),
        HostValue::new("handle", ValueLocation::Completion(1), 0, 32, Bound::Unknown),
        HostValue::new("launched", ValueLocation::Counts { word: 0, words: 2 }, 0, 64, Bound::Fixed(1 << 40)),
        HostValue::new("port", ValueLocation::Answer(OP_PORT_OPEN), 32, 32, Bound::Ports),
        HostValue::new("event port", ValueLocation::EventPort, 0, 32, Bound::Ports),
        HostValue::new("used length", ValueLocation::UsedLength, 0, 32, Bound::Unknown),
    ]];

    fn with_values(seed: u64, outputs: impl IntoIterator<Item = Output>) -> Alone<FaultyNic<Wishes>> {
        let limits = CardLimits { nodes: 2, ports: 8, max_message_bytes: 64 };
        let wishes = Wishes { outputs: outputs.into_iter().collect(), ..Wishes::default() };
        let injector = FaultInjector::new(always(Fault::InvalidValue), seed, 0);
        faulty(wishes, injector.with_host_values(VALUES, limits))
    }

    #[test]
    fn invalid_value_is_out_of_range_and_the_rest_is_unchanged() {
        let mut lengths = 0;
        for seed in 0..50 {
            let outputs = [write(SLOT, 0, &[5, 6, 0x0700_0003]), write(Content::Counts, 32, &[7, 8])];
            let mut nic = with_values(seed, outputs);
            let memory = memory(&drain(&mut nic));
            assert!(memory[4] >= 1 << 40 && memory[5] == 8, "{memory:x?}");
            let is_length = memory[2] & 0xf > 8 && memory[2] & !0xf == 0x0700_0000 && memory[1] == 6;
            let is_handle = memory[1] != 6 && memory[2] == 0x0700_0003;
            assert!(memory[0] == 5 && (is_length != is_handle), "{memory:x?}");
            assert_eq!(nic.fault_injector.count(Fault::InvalidValue), 2);
            lengths += u32::from(is_length);
        }
        assert!((10..40).contains(&lengths), "each value is chosen: {lengths} of 50");
    }

    #[test]
    fn invalid_values_reach_answers_events_and_used_lengths() {
        let answer = |status: u32| {
            let body = [7_u32, 3].map(u32::to_le_bytes).concat();
            let bytes = [status, 8].map(u32::to_le_bytes).concat().into_iter().chain(body).collect();
            Output::Reply { at: at(1), token: 9, bytes }
        };
        let port_of = |nic: &mut Alone<FaultyNic<Wishes>>| match &drain(nic)[..] {
            [Output::Reply { bytes, .. }] => u32::from_le_bytes(bytes[12..16].try_into().unwrap()),
            other => panic!("{other:?}"),
        };
        let asks = |nic: &mut Alone<FaultyNic<Wishes>>, operation: u32| {
            let request = [operation, 0].map(u32::to_le_bytes).concat();
            nic.handle(at(0), Input::Control { token: 9, request: &request });
        };
        for (operation, status, is_invalid) in
            [(OP_PORT_OPEN, STATUS_OK, true), (OP_PORT_OPEN, 3, false), (OP_COUNTERS, STATUS_OK, false)]
        {
            let mut nic = with_values(1, [answer(status)]);
            asks(&mut nic, operation);
            assert_eq!(port_of(&mut nic) >= 8, is_invalid, "operation {operation}, status {status}");
        }
        let mut nic = with_values(1, [interrupt(3)]);
        assert!(matches!(drain(&mut nic)[..], [Output::Interrupt { cause: 1, port: 8.., .. }]));
        assert_ne!(nic.nic.fault_injector.used_length(16), 16);
    }

    #[test]
    fn records_are_the_last_ones_and_numbered() {
        let mut nic = nic(always(Fault::LostInterrupt), (0..100).map(interrupt));
        assert!(drain(&mut nic).is_empty());
        let numbers: Vec<u64> = nic.fault_injector.records().map(|record| record.number).collect();
        assert_eq!(numbers, (37..=100).collect::<Vec<_>>());
    }

    fn outputs() -> impl Strategy<Value = Vec<Output>> {
        let content = prop::sample::select(vec![Content::Data, Content::Counts, SLOT]);
        let write_of = (content, 0..60_u64, prop::collection::vec(any::<u64>(), 0..6))
            .prop_map(|(content, word, words)| write(content, word * 8, &words));
        prop::collection::vec(prop_oneof![3 => write_of, 1 => any::<u32>().prop_map(interrupt)], 0..80)
    }

    fn rates() -> impl Strategy<Value = Rates> {
        (prop::array::uniform7(0.0..1.0_f64), 0..10_000_u64).prop_map(|(chances, delay)| Rates {
            of: chances.map(|chance| Rate::new(Chance::from_probability(chance), Vec::new())),
            delay: Span::from_ps(delay),
        })
    }

    proptest! {
        /// Every byte that the model wrote reached memory or was withheld. Every interrupt was raised, lost or
        /// duplicated. Memory that the model did not write is unchanged.
        #[test]
        fn bytes_and_interrupts_are_accounted_for(outputs in outputs(), rates in rates(), seed: u64) {
            let bytes_of = |outputs: &[Output]| -> (u64, u64) {
                outputs.iter().fold((0, 0), |(bytes, interrupts), output| match output {
                    Output::DmaWrite { words, .. } => (bytes + 8 * words.len() as u64, interrupts),
                    _ => (bytes, interrupts + 1),
                })
            };
            let places = |outputs: &[Output]| -> alloc::collections::BTreeSet<u64> {
                outputs.iter().flat_map(|output| match output {
                    Output::DmaWrite { address, words, .. } => {
                        (0..words.len() as u64).map(|w| address + 8 * w).collect()
                    }
                    _ => Vec::new(),
                }).collect()
            };
            let wishes = Wishes { outputs: outputs.clone().into(), ..Wishes::default() };
            let mut nic = faulty(wishes, FaultInjector::new(rates, seed, 3));
            let mut seen = drain(&mut nic);
            while let Some(deadline) = nic.poll_timeout() {
                nic.handle(deadline, Input::Timeout);
                seen.extend(drain(&mut nic));
            }
            let (bytes, interrupts) = bytes_of(&outputs);
            let (seen_bytes, seen_interrupts) = bytes_of(&seen);
            let fault_injector = nic.fault_injector().unwrap();
            prop_assert_eq!(bytes, seen_bytes + fault_injector.withheld_bytes());
            prop_assert_eq!(
                interrupts + fault_injector.count(Fault::DuplicatedInterrupt),
                seen_interrupts + fault_injector.count(Fault::LostInterrupt)
            );
            prop_assert!(places(&seen).is_subset(&places(&outputs)));
        }

        /// The fate of the n-th opportunity of a fault does not depend on the other faults.
        #[test]
        fn faults_do_not_disturb_one_another(outputs in outputs(), rates in rates(), seed: u64) {
            let fates = |rates: Rates, fault: Fault| -> u64 {
                let wishes = Wishes { outputs: outputs.clone().into(), ..Wishes::default() };
                let mut nic = faulty(wishes, FaultInjector::new(rates, seed, 3));
                drain(&mut nic);
                nic.fault_injector.count(fault)
            };
            for fault in [Fault::Delay, Fault::LostInterrupt, Fault::DuplicatedInterrupt] {
                let mut alone = Rates { delay: rates.delay, ..Rates::default() };
                alone.of[fault as usize] = rates.of[fault as usize].clone();
                if fault == Fault::Delay {
                    // A write of counts that is left out cannot be late.
                    alone.of[Fault::Stale as usize] = rates.of[Fault::Stale as usize].clone();
                }
                prop_assert_eq!(fates(alone, fault), fates(rates.clone(), fault));
            }
        }
    }
}
