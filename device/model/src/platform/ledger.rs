//! The ledger counts every transaction by kind and prices it; no other module prices anything.
//!
//! A transaction waits until its [`Resource`] is free, occupies it, and takes effect after a pipelined latency. The
//! ledger records waiting separately from the price, so that the price of a run does not depend on contention.
//!
//! A ledger sums by kind. On demand it also records each single stage ([`Ledger::record_stages`]), from which
//! timelines are drawn; the stages add up exactly to the sums. Callers first name the message of their transactions
//! ([`Ledger::attribute`]), and the receiver reports its end ([`Ledger::complete`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::platform::histogram::Histogram;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// Kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Transaction {
    /// Programmed-I/O write, host to NIC.
    PioWrite,
    /// Programmed-I/O read by the host.
    PioRead,
    /// A store whose only purpose is to notify the NIC of work.
    Doorbell,
    /// DMA write of data, NIC to host memory.
    DmaWrite,
    /// DMA read of data, NIC from host memory.
    DmaRead,
    /// DMA read of descriptors.
    DescriptorFetch,
    /// DMA write of descriptors.
    DescriptorWriteBack,
    /// From one card on the node's bus to another, without host memory.
    DeviceToDevice,
    /// The NIC's interrupt reaching the host.
    Interrupt,
    /// A transfer over the card's own bus.
    LocalBus,
    /// Cycles of the NIC's own state machines or processor.
    NiCycles,
    /// Host software before it posts a message to the NIC.
    HostSend,
    /// Host software after a message became visible.
    HostReceive,
    /// The host's interrupt handler.
    HostInterrupt,
    /// A copy in host memory.
    HostCopy,
    /// A frame on one direction of a link.
    Serialization,
    /// A frame that crosses a switch.
    SwitchFallThrough,
}

impl Transaction {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::PioWrite,
        Self::PioRead,
        Self::Doorbell,
        Self::DmaWrite,
        Self::DmaRead,
        Self::DescriptorFetch,
        Self::DescriptorWriteBack,
        Self::DeviceToDevice,
        Self::Interrupt,
        Self::LocalBus,
        Self::NiCycles,
        Self::HostSend,
        Self::HostReceive,
        Self::HostInterrupt,
        Self::HostCopy,
        Self::Serialization,
        Self::SwitchFallThrough,
    ];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PioWrite => "pio_write",
            Self::PioRead => "pio_read",
            Self::Doorbell => "doorbell",
            Self::DmaWrite => "dma_write",
            Self::DmaRead => "dma_read",
            Self::DescriptorFetch => "descriptor_fetch",
            Self::DescriptorWriteBack => "descriptor_write_back",
            Self::DeviceToDevice => "device_to_device",
            Self::Interrupt => "interrupt",
            Self::LocalBus => "local_bus",
            Self::NiCycles => "ni_cycles",
            Self::HostSend => "host_send",
            Self::HostReceive => "host_receive",
            Self::HostInterrupt => "host_interrupt",
            Self::HostCopy => "host_copy",
            Self::Serialization => "serialization",
            Self::SwitchFallThrough => "switch_fall_through",
        }
    }
}

/// The cost of one kind of transaction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Transactions; a transfer of several bursts counts each burst.
    pub count: u64,
    /// Bytes carried, without headers of the bus.
    pub bytes: u64,
    /// Price: occupancy and latency, picoseconds.
    pub price_ps: u64,
    /// Time spent waiting for the resource, picoseconds.
    pub waited_ps: u64,
}

impl Line {
    /// Sums wrap, so that a sum always equals the sum of its parts, for any numbers.
    #[inline]
    const fn add(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.price_ps = self.price_ps.wrapping_add(other.price_ps);
        self.waited_ps = self.waited_ps.wrapping_add(other.waited_ps);
    }
}

/// The price of one transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of transactions.
    pub count: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// How long it occupies the resource.
    pub occupancy: Span,
    /// Time from then until its effect is visible.
    pub latency: Span,
}

impl Cost {
    /// One transaction that occupies its resource for `occupancy`.
    pub const fn once(bytes: u64, occupancy: Span) -> Self {
        Self { count: 1, bytes, occupancy, latency: Span::ZERO }
    }
}

/// The times of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its kind.
    pub transaction: Transaction,
    /// When it got the resource.
    pub start: Time,
    /// When it released the resource.
    pub released: Time,
    /// When its effect was visible. The price is `end - start`.
    pub end: Time,
}

/// The resource of a transaction, within one node or one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceName {
    /// The host's processor.
    Host,
    /// The bus towards the NIC; on a bus with one direction at a time, the whole bus.
    BusInward,
    /// The bus towards the host.
    BusOutward,
    /// The NIC's interrupt line or message.
    InterruptLine,
    /// The card's own bus.
    LocalBus,
    /// A state machine or processor of the NIC, by its name in the paper.
    Machine(&'static str),
    /// The direction of a node's link that leads to the switch.
    LinkToSwitch(u16),
    /// The direction of a node's link that leads to the node.
    LinkToNode(u16),
    /// The switch, which forwards any number of frames at a time.
    Switch,
}

/// A resource that serves one transaction at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    name: ResourceName,
    busy_until: Time,
}

impl Resource {
    /// An idle resource.
    pub const fn new(name: ResourceName) -> Self {
        Self { name, busy_until: Time::ZERO }
    }

    /// The end of its last transaction.
    pub const fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Occupies it until `at`.
    pub fn hold_until(&mut self, at: Time) {
        self.busy_until = self.busy_until.max(at);
    }
}

/// One transfer as a timeline shows it: a part of its ledger's [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRecord {
    /// Its kind.
    pub transaction: Transaction,
    /// Its resource.
    pub resource: ResourceName,
    /// When it could have begun.
    pub ready: Time,
    /// When it got the resource.
    pub start: Time,
    /// When it released the resource.
    pub released: Time,
    /// When its effect was visible.
    pub end: Time,
    /// Transactions: bursts of one transfer.
    pub count: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Its message; none if no single message caused it.
    pub message: Option<TraceTag>,
}

impl StageRecord {
    /// This stage's share of its line.
    pub const fn line(&self) -> Line {
        Line {
            count: self.count,
            bytes: self.bytes,
            price_ps: self.end.since(self.start).as_ps(),
            waited_ps: self.start.since(self.ready).as_ps(),
        }
    }
}

/// The stages recorded so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Recorder {
    most: usize,
    stages: VecDeque<StageRecord>,
    lost: u64,
}

/// Transactions of one kind, one for each event of a batch, which are recorded together at the end: the same sums as
/// if each had been charged alone ([`Ledger::charge_at`]).
#[derive(Debug)]
pub struct Transactions {
    transaction: Transaction,
    cost: Cost,
    is_on: bool,
    crossed: u64,
    /// Sum of the prices minus count times [`Transactions::price`]; it wraps.
    price_beside_ps: u64,
    waited_ps: u64,
}

impl Transactions {
    /// The price of each transaction with the batch's occupancy, before the end of model time.
    const fn price(&self) -> u64 {
        self.cost.occupancy.as_ps().wrapping_add(self.cost.latency.as_ps())
    }

    /// Charges the next transaction, ready at `ready`, on a resource that is busy until `busy_until`.
    #[inline(always)]
    pub fn cross(&mut self, busy_until: &mut Time, ready: Time) -> Stage {
        self.cross_for(busy_until, ready, self.cost.occupancy)
    }

    /// As [`Self::cross`], with another occupancy than the batch's.
    #[inline(always)]
    pub fn cross_for(&mut self, busy_until: &mut Time, ready: Time, occupancy: Span) -> Stage {
        let transaction = self.transaction;
        if !self.is_on {
            return Stage { transaction, start: ready, released: ready, end: ready };
        }
        let latency = self.cost.latency;
        let start = ready.max(*busy_until);
        let released = start + occupancy;
        *busy_until = released;
        let end = released + latency;
        let mut beside = occupancy.as_ps().wrapping_sub(self.cost.occupancy.as_ps());
        if end == Time::END {
            beside = beside.wrapping_sub(cut_off(start, occupancy, latency));
        }
        self.crossed += 1;
        self.price_beside_ps = self.price_beside_ps.wrapping_add(beside);
        self.waited_ps = self.waited_ps.wrapping_add(start.as_ps() - ready.as_ps());
        Stage { transaction, start, released, end }
    }
}

/// The part of a transaction's price that lies after the end of model time.
#[cold]
fn cut_off(start: Time, occupancy: Span, latency: Span) -> u64 {
    let whole = occupancy.as_ps().wrapping_add(latency.as_ps());
    whole.wrapping_sub(Time::END.since(start).as_ps())
}

/// Counts, bytes and picoseconds by kind of transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    is_on: bool,
    /// Whether the recorder is on. Each transaction reads only this flag, not the recorder.
    is_recording: bool,
    lines: [Line; Transaction::ALL.len()],
    current: Option<TraceTag>,
    latency: Histogram,
    recorder: Recorder,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            is_on: true,
            is_recording: false,
            lines: Default::default(),
            current: None,
            latency: Histogram::default(),
            recorder: Recorder::default(),
        }
    }
}

impl Ledger {
    /// Turns the ledger on, as it is at first, or off. While it is off, nothing is priced or counted and every
    /// transaction takes no time. This serves to measure the cost of the ledger itself.
    pub fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Whether it is on.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Names the message of the next transactions, until the next call.
    #[inline]
    pub fn attribute(&mut self, message: Option<TraceTag>) {
        self.current = message;
    }

    /// The message of the current transactions.
    #[inline]
    pub const fn attributed(&self) -> Option<TraceTag> {
        self.current
    }

    /// Records the next stages, at most `most`; zero, the initial value, records none. Earlier records stay.
    pub fn record_stages(&mut self, most: usize) {
        self.recorder.most = most;
        self.is_recording = most > 0;
    }

    /// The stages recorded since the last call, in the order of their charges, and the number of stages that were not
    /// recorded.
    pub fn take_stages(&mut self) -> (Vec<StageRecord>, u64) {
        let stages = core::mem::take(&mut self.recorder.stages).into();
        (stages, core::mem::take(&mut self.recorder.lost))
    }

    /// A message is complete: its receiving program has it at `end`. Later transactions belong to no message until the
    /// next [`Ledger::attribute`].
    #[inline]
    pub fn complete(&mut self, message: &TraceTag, end: Time) {
        if self.is_on {
            self.latency.enter(end.since(message.launched).as_ps());
        }
        self.current = None;
    }

    /// Latencies of the messages that ended here, from the sender's software to the receiver's, picoseconds.
    pub const fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Discards the latencies so far.
    pub fn restart_latency(&mut self) {
        self.latency = Histogram::default();
    }

    #[cold]
    fn record(&mut self, stage: &Stage, resource: ResourceName, ready: Time, cost: &Cost) {
        if self.recorder.stages.len() >= self.recorder.most {
            self.recorder.lost += 1;
            return;
        }
        self.recorder.stages.push_back(StageRecord {
            transaction: stage.transaction,
            resource,
            ready,
            start: stage.start,
            released: stage.released,
            end: stage.end,
            count: cost.count,
            bytes: cost.bytes,
            message: self.current,
        });
    }

    /// Charges a transfer that is ready at `ready` and waits until `resource` is free.
    ///
    /// Always inlined, as its callees: the caller knows the kind, and reads only one or two instants of the stage.
    #[inline(always)]
    pub fn charge(
        &mut self,
        transaction: Transaction,
        resource: &mut Resource,
        ready: Time,
        cost: Cost,
    ) -> Stage {
        self.charge_at(transaction, resource.name, &mut resource.busy_until, ready, cost)
    }

    /// As [`Self::charge`], on a resource whose end of occupation the caller keeps.
    #[inline(always)]
    pub fn charge_at(
        &mut self,
        transaction: Transaction,
        resource: ResourceName,
        busy_until: &mut Time,
        ready: Time,
        cost: Cost,
    ) -> Stage {
        if !self.is_on {
            return Stage { transaction, start: ready, released: ready, end: ready };
        }
        let start = ready.max(*busy_until);
        let released = start + cost.occupancy;
        *busy_until = released;
        let end = released + cost.latency;
        self.lines[transaction as usize].add(&Line {
            count: cost.count,
            bytes: cost.bytes,
            price_ps: end.since(start).as_ps(),
            waited_ps: start.since(ready).as_ps(),
        });
        let stage = Stage { transaction, start, released, end };
        if self.is_recording {
            self.record(&stage, resource, ready, &cost);
        }
        stage
    }

    /// Whether single stages are recorded. Then each transaction must be charged alone, because a batch records no
    /// stages.
    #[inline]
    pub const fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Begins a batch of transactions with the same price.
    #[inline]
    pub const fn transactions(&self, transaction: Transaction, cost: Cost) -> Transactions {
        Transactions { transaction, cost, is_on: self.is_on, crossed: 0, price_beside_ps: 0, waited_ps: 0 }
    }

    /// Records a batch that was begun with [`Self::transactions`].
    #[inline]
    pub fn enter(&mut self, transactions: &Transactions) {
        let &Transactions { transaction, cost, crossed, price_beside_ps, waited_ps, .. } = transactions;
        self.lines[transaction as usize].add(&Line {
            count: cost.count.wrapping_mul(crossed),
            bytes: cost.bytes.wrapping_mul(crossed),
            price_ps: transactions.price().wrapping_mul(crossed).wrapping_add(price_beside_ps),
            waited_ps,
        });
    }

    /// Messages are complete, one for each element of `took`, which is its latency. Later transactions belong to no
    /// message.
    #[inline]
    pub fn complete_all(&mut self, took: impl Iterator<Item = Span>) {
        if self.is_on {
            self.latency.enter_all(took.map(Span::as_ps));
        }
        self.current = None;
    }

    /// The cost of this kind.
    pub const fn line(&self, transaction: Transaction) -> Line {
        self.lines[transaction as usize]
    }

    /// Every kind with its cost.
    pub fn lines(&self) -> impl Iterator<Item = (Transaction, Line)> + '_ {
        Transaction::ALL.into_iter().map(|transaction| (transaction, self.line(transaction)))
    }

    /// The sum over all kinds.
    pub fn total(&self) -> Line {
        let mut total = Line::default();
        self.lines.iter().for_each(|line| total.add(line));
        total
    }

    /// Adds another ledger, kind by kind: a cluster's ledger is the sum of its nodes' and its fabric's.
    pub fn add(&mut self, other: &Self) {
        for (line, more) in self.lines.iter_mut().zip(&other.lines) {
            line.add(more);
        }
        self.latency.merge(&other.latency);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(ps: u64) -> Span {
        Span::from_ps(ps)
    }

    #[test]
    fn transaction_waits_for_a_busy_resource() {
        let mut ledger = Ledger::default();
        let mut bus = Resource::new(ResourceName::BusInward);
        let cost = Cost { count: 1, bytes: 8, occupancy: span(100), latency: span(50) };
        let first = ledger.charge(Transaction::PioWrite, &mut bus, Time::from_ps(10), cost);
        assert_eq!((first.start.as_ps(), first.released.as_ps(), first.end.as_ps()), (10, 110, 160));
        let second = ledger.charge(Transaction::DmaWrite, &mut bus, Time::from_ps(20), cost);
        assert_eq!((second.start.as_ps(), second.end.as_ps()), (110, 260));
        assert_eq!(ledger.line(Transaction::DmaWrite).waited_ps, 90);
        assert_eq!(ledger.line(Transaction::PioWrite).waited_ps, 0);
        assert_eq!(ledger.total().price_ps, 300);
    }

    #[test]
    fn names_are_distinct_and_numbers_are_indices() {
        for (place, transaction) in Transaction::ALL.into_iter().enumerate() {
            assert_eq!(transaction as usize, place);
            assert!(
                Transaction::ALL.into_iter().skip(place + 1).all(|other| other.name() != transaction.name())
            );
        }
    }

    proptest! {
        /// At any instant of model time, including its end.
        #[test]
        fn batch_equals_its_transactions_charged_one_by_one(
            is_on in prop::bool::weighted(0.9),
            (occupancy, latency) in (prop_oneof![3 => 0..2_000_u64, 1 => any::<u64>()], 0..2_000_u64),
            begin in prop_oneof![Just(0), any::<u64>(), u64::MAX - 20_000..=u64::MAX],
            requests in prop::collection::vec((0..3_000_u64, prop::option::of(0..3_000_u64)), 0..20),
        ) {
            let (mut one_by_one, mut together) = (Ledger::default(), Ledger::default());
            one_by_one.set_on(is_on);
            together.set_on(is_on);
            let cost = Cost { count: 3, bytes: 7, occupancy: span(occupancy), latency: span(latency) };
            let mut transactions = together.transactions(Transaction::NiCycles, cost);
            let (mut busy, mut busy_together) = (Time::from_ps(begin), Time::from_ps(begin));
            let mut ready = Time::from_ps(begin);
            for (later, longer) in requests {
                ready += span(later);
                let occupancy = longer.map_or(cost.occupancy, |longer| cost.occupancy + span(longer));
                let cost = Cost { occupancy, ..cost };
                let stage = one_by_one.charge_at(Transaction::NiCycles, ResourceName::Host, &mut busy, ready, cost);
                prop_assert_eq!(transactions.cross_for(&mut busy_together, ready, occupancy), stage);
                prop_assert_eq!(busy_together, busy);
            }
            together.enter(&transactions);
            prop_assert_eq!(together, one_by_one);
        }

        #[test]
        fn totals_are_the_sums_of_their_parts(
            transfers in prop::collection::vec(
                (
                    0..Transaction::ALL.len(), 0..3_usize, 0..1_000_000_u64, 1..4_u64, 0..4096_u64,
                    0..10_000_u64, 0..500_u64,
                ),
                0..200,
            ),
        ) {
            let mut halves = [Ledger::default(), Ledger::default()];
            let mut resources = [Resource::new(ResourceName::Host); 3];
            let mut sum = Line::default();
            for (i, (kind, resource, ready, count, bytes, occupancy, latency)) in transfers.into_iter().enumerate() {
                let cost = Cost { count, bytes, occupancy: span(occupancy), latency: span(latency) };
                let before = resources[resource].busy_until();
                let ready = Time::from_ps(ready);
                let stage = halves[i % 2].charge(Transaction::ALL[kind], &mut resources[resource], ready, cost);
                prop_assert!(stage.start >= ready && stage.start >= before, "two at a time");
                prop_assert_eq!(stage.end.since(stage.start).as_ps(), occupancy + latency);
                sum.add(&Line {
                    count,
                    bytes,
                    price_ps: stage.end.since(stage.start).as_ps(),
                    waited_ps: stage.start.since(ready).as_ps(),
                });
            }
            let mut whole = halves[0].clone();
            whole.add(&halves[1]);
            prop_assert_eq!(whole.total(), sum);
            let mut by_kind = Line::default();
            whole.lines().for_each(|(_, line)| by_kind.add(&line));
            prop_assert_eq!(by_kind, sum);
        }
    }
}
