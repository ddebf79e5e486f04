//! The ledger: every crossing counted by kind and priced, and nothing else prices anything.
//!
//! A crossing waits until its [`Resource`] is free, occupies it, and takes effect after a pipelined latency. Waiting is
//! entered beside the price, so that the price of a run does not depend on who met whom.
//!
//! A ledger sums by kind. On demand it also keeps each single stage ([`Ledger::record_stages`]), by which a timeline is
//! drawn: the stages are the lines' parts, exactly. Whoever crosses says first whose message it is
//! ([`Ledger::attribute`]), and the receiving end says when a message is over ([`Ledger::complete`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::platform::histogram::Histogram;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// Kinds of crossings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Crossing {
    /// Programmed-I/O write, host to NIC.
    PioWrite,
    /// Programmed-I/O read by the host.
    PioRead,
    /// A store whose only purpose is to tell the NIC that there is work.
    Doorbell,
    /// DMA write of data, NIC to host memory.
    DmaWrite,
    /// DMA read of data, NIC from host memory.
    DmaRead,
    /// DMA read of descriptors.
    DescriptorFetch,
    /// DMA write of descriptors.
    DescriptorWriteBack,
    /// From one card on the node's bus to another, past host and host memory.
    DeviceToDevice,
    /// The NIC's interrupt reaching the host.
    Interrupt,
    /// A transfer over the card's own bus.
    LocalBus,
    /// Cycles of the NIC's own state machines or processor.
    NiCycles,
    /// Host software before a message is handed to the NIC.
    HostSend,
    /// Host software after a message became visible.
    HostReceive,
    /// The host's interrupt handler.
    HostInterrupt,
    /// A copy in host memory.
    HostCopy,
    /// A frame on one direction of a link.
    Serialization,
    /// A frame's way through a switch.
    SwitchFallThrough,
}

impl Crossing {
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

/// What one kind of crossing has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Crossings; a transfer of several bursts counts each.
    pub count: u64,
    /// Bytes carried, without headers of the bus.
    pub bytes: u64,
    /// Price: occupancy and latency, picoseconds.
    pub price_ps: u64,
    /// Time spent waiting for the resource, picoseconds.
    pub waited_ps: u64,
}

impl Line {
    /// Wraps, so that sums stay the sums of their parts, whatever the numbers.
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
    /// Crossings that it takes.
    pub count: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// How long it keeps the resource busy.
    pub occupancy: Span,
    /// How long after that its effect is seen.
    pub latency: Span,
}

impl Cost {
    /// One crossing that occupies its resource for `occupancy`.
    pub const fn once(bytes: u64, occupancy: Span) -> Self {
        Self { count: 1, bytes, occupancy, latency: Span::ZERO }
    }
}

/// One transfer as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What it was.
    pub crossing: Crossing,
    /// When it got the resource.
    pub start: Time,
    /// When the resource was free again.
    pub released: Time,
    /// When its effect was seen. Price is `end - start`.
    pub end: Time,
}

/// Where a crossing takes place, within one node or one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
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
    /// The switch, which passes any number of frames at a time.
    Switch,
}

/// Something that does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    place: Place,
    busy_until: Time,
}

impl Resource {
    /// An idle resource.
    pub const fn new(place: Place) -> Self {
        Self { place, busy_until: Time::ZERO }
    }

    /// The end of the last thing it has to do.
    pub const fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Lets it do nothing before `at`.
    pub fn hold_until(&mut self, at: Time) {
        self.busy_until = self.busy_until.max(at);
    }
}

/// One transfer as a timeline shows it: a part of its ledger's [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRecord {
    /// What it was.
    pub crossing: Crossing,
    /// Where.
    pub place: Place,
    /// When it could have begun.
    pub ready: Time,
    /// When it got the resource.
    pub start: Time,
    /// When the resource was free again.
    pub released: Time,
    /// When its effect was seen.
    pub end: Time,
    /// Crossings: bursts of one transfer.
    pub count: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Whose it was; none for what no message caused alone.
    pub message: Option<TraceTag>,
}

impl StageRecord {
    /// What this stage has entered in its line.
    pub const fn line(&self) -> Line {
        Line {
            count: self.count,
            bytes: self.bytes,
            price_ps: self.end.since(self.start).as_ps(),
            waited_ps: self.start.since(self.ready).as_ps(),
        }
    }
}

/// The stages kept so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Recorder {
    most: usize,
    stages: VecDeque<StageRecord>,
    lost: u64,
}

/// Crossings of one kind, one for each of a series of equal things, which are entered together when all have crossed:
/// the same sums as if each had been charged by itself ([`Ledger::charge_at`]).
#[derive(Debug)]
pub struct Series {
    crossing: Crossing,
    cost: Cost,
    is_on: bool,
    sums: Sums,
}

/// What the crossings of a series come to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    crossed: u64,
    /// What the prices are together beside as many times [`Series::price`]; it wraps.
    price_beside_ps: u64,
    waited_ps: u64,
}

impl Sums {
    /// Adds as many times what has been added since `earlier`.
    #[inline(always)]
    const fn add_again(&mut self, earlier: &Self, times: u64) {
        const fn add(sum: u64, earlier: u64, times: u64) -> u64 {
            sum.wrapping_add(sum.wrapping_sub(earlier).wrapping_mul(times))
        }
        self.crossed = add(self.crossed, earlier.crossed, times);
        self.price_beside_ps = add(self.price_beside_ps, earlier.price_beside_ps, times);
        self.waited_ps = add(self.waited_ps, earlier.waited_ps, times);
    }
}

impl Series {
    /// What it comes to so far.
    #[inline(always)]
    pub const fn sums(&self) -> Sums {
        self.sums
    }

    /// As many times more, the same crosses that has since `earlier`: it waits as long, and keeps its place busy as
    /// long ([`steady`](crate::platform::steady)).
    #[inline(always)]
    pub const fn cross_again(&mut self, earlier: &Sums, times: u64) {
        self.sums.add_again(earlier, times);
    }

    /// What each costs that keeps its place busy as long as the others, before the end of model time.
    const fn price(&self) -> u64 {
        self.cost.occupancy.as_ps().wrapping_add(self.cost.latency.as_ps())
    }

    /// Lets the next one that is ready at `ready` cross a place that is busy until `busy_until`, as soon as that is
    /// free.
    #[inline(always)]
    pub fn cross(&mut self, busy_until: &mut Time, ready: Time) -> Stage {
        self.cross_for(busy_until, ready, self.cost.occupancy)
    }

    /// The same of one that keeps the place busy for another while than the others.
    #[inline(always)]
    pub fn cross_for(&mut self, busy_until: &mut Time, ready: Time, occupancy: Span) -> Stage {
        let crossing = self.crossing;
        if !self.is_on {
            return Stage { crossing, start: ready, released: ready, end: ready };
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
        let Sums { crossed, price_beside_ps, waited_ps } = &mut self.sums;
        *crossed += 1;
        *price_beside_ps = price_beside_ps.wrapping_add(beside);
        *waited_ps = waited_ps.wrapping_add(start.as_ps() - ready.as_ps());
        Stage { crossing, start, released, end }
    }
}

/// What a crossing that begins at `start` costs less because model time ends.
#[cold]
fn cut_off(start: Time, occupancy: Span, latency: Span) -> u64 {
    let whole = occupancy.as_ps().wrapping_add(latency.as_ps());
    whole.wrapping_sub(Time::END.since(start).as_ps())
}

/// Counts, bytes and picoseconds by kind of crossing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    is_on: bool,
    /// Whether the recorder keeps anything: looked at with each crossing, and the recorder then is not.
    is_recording: bool,
    lines: [Line; Crossing::ALL.len()],
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
    /// Turns the ledger on, as it is made, or off: then nothing is priced or counted and every crossing takes no time.
    /// That serves to measure what the ledger itself costs.
    pub fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Whether it is on.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Says whose crossings follow, until the next call.
    #[inline]
    pub fn attribute(&mut self, message: Option<TraceTag>) {
        self.current = message;
    }

    /// Whose crossings these are.
    #[inline]
    pub const fn attributed(&self) -> Option<TraceTag> {
        self.current
    }

    /// Keeps the next stages, `most` at a time; zero keeps none, as at first. What was kept before stays.
    pub fn record_stages(&mut self, most: usize) {
        self.recorder.most = most;
        self.is_recording = most > 0;
    }

    /// The stages kept since the last call, in the order in which they were charged, and how many more there were.
    pub fn take_stages(&mut self) -> (Vec<StageRecord>, u64) {
        let stages = core::mem::take(&mut self.recorder.stages).into();
        (stages, core::mem::take(&mut self.recorder.lost))
    }

    /// A message is over: its receiving program has it at `end`. What follows is nobody's until the next
    /// [`Ledger::attribute`].
    #[inline]
    pub fn complete(&mut self, message: &TraceTag, end: Time) {
        if self.is_on {
            self.latency.enter(end.since(message.launched).as_ps());
        }
        self.current = None;
    }

    /// How long the messages took that ended here, from the sender's software to the receiver's, picoseconds.
    pub const fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Begins the latencies anew, with none.
    pub fn restart_latency(&mut self) {
        self.latency = Histogram::default();
    }

    #[cold]
    fn record(&mut self, stage: &Stage, place: Place, ready: Time, cost: &Cost) {
        if self.recorder.stages.len() >= self.recorder.most {
            self.recorder.lost += 1;
            return;
        }
        self.recorder.stages.push_back(StageRecord {
            crossing: stage.crossing,
            place,
            ready,
            start: stage.start,
            released: stage.released,
            end: stage.end,
            count: cost.count,
            bytes: cost.bytes,
            message: self.current,
        });
    }

    /// Lets a transfer that is ready at `ready` cross `resource` as soon as that is free, and enters it.
    ///
    /// Inlined always, as what it stands on: who crosses knows the kind, and looks at one instant or two of the stage.
    #[inline(always)]
    pub fn charge(&mut self, crossing: Crossing, resource: &mut Resource, ready: Time, cost: Cost) -> Stage {
        self.charge_at(crossing, resource.place, &mut resource.busy_until, ready, cost)
    }

    /// The same at a place of which somebody else keeps until when it is busy.
    #[inline(always)]
    pub fn charge_at(
        &mut self,
        crossing: Crossing,
        place: Place,
        busy_until: &mut Time,
        ready: Time,
        cost: Cost,
    ) -> Stage {
        if !self.is_on {
            return Stage { crossing, start: ready, released: ready, end: ready };
        }
        let start = ready.max(*busy_until);
        let released = start + cost.occupancy;
        *busy_until = released;
        let end = released + cost.latency;
        self.lines[crossing as usize].add(&Line {
            count: cost.count,
            bytes: cost.bytes,
            price_ps: end.since(start).as_ps(),
            waited_ps: start.since(ready).as_ps(),
        });
        let stage = Stage { crossing, start, released, end };
        if self.is_recording {
            self.record(&stage, place, ready, &cost);
        }
        stage
    }

    /// Whether single stages are kept: each crossing is then to be charged by itself, for a series has none.
    #[inline]
    pub const fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Begins a series of crossings that cost the same.
    #[inline]
    pub const fn series(&self, crossing: Crossing, cost: Cost) -> Series {
        Series {
            crossing,
            cost,
            is_on: self.is_on,
            sums: Sums { crossed: 0, price_beside_ps: 0, waited_ps: 0 },
        }
    }

    /// Enters a series that was begun here.
    #[inline]
    pub fn enter(&mut self, series: &Series) {
        let &Series { crossing, cost, sums: Sums { crossed, price_beside_ps, waited_ps }, .. } = series;
        self.lines[crossing as usize].add(&Line {
            count: cost.count.wrapping_mul(crossed),
            bytes: cost.bytes.wrapping_mul(crossed),
            price_ps: series.price().wrapping_mul(crossed).wrapping_add(price_beside_ps),
            waited_ps,
        });
    }

    /// As many messages are over as `took` has elements, each of which says how long one took. What follows is
    /// nobody's.
    #[inline]
    pub fn complete_all(&mut self, took: impl Iterator<Item = Span>) {
        if self.is_on {
            self.latency.enter_all(took.map(Span::as_ps));
        }
        self.current = None;
    }

    /// As many messages are over as the numbers in `took` say together: so many took so long. What follows is nobody's.
    #[inline]
    pub fn complete_runs(&mut self, took: impl Iterator<Item = (Span, usize)>) {
        if self.is_on {
            took.for_each(|(took, times)| self.latency.enter_times(took.as_ps(), times as u64));
        }
        self.current = None;
    }

    /// What this kind has cost.
    pub const fn line(&self, crossing: Crossing) -> Line {
        self.lines[crossing as usize]
    }

    /// Every kind with what it has cost.
    pub fn lines(&self) -> impl Iterator<Item = (Crossing, Line)> + '_ {
        Crossing::ALL.into_iter().map(|crossing| (crossing, self.line(crossing)))
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
    fn a_busy_resource_makes_the_next_wait() {
        let mut ledger = Ledger::default();
        let mut bus = Resource::new(Place::BusInward);
        let cost = Cost { count: 1, bytes: 8, occupancy: span(100), latency: span(50) };
        let first = ledger.charge(Crossing::PioWrite, &mut bus, Time::from_ps(10), cost);
        assert_eq!((first.start.as_ps(), first.released.as_ps(), first.end.as_ps()), (10, 110, 160));
        let second = ledger.charge(Crossing::DmaWrite, &mut bus, Time::from_ps(20), cost);
        assert_eq!((second.start.as_ps(), second.end.as_ps()), (110, 260));
        assert_eq!(ledger.line(Crossing::DmaWrite).waited_ps, 90);
        assert_eq!(ledger.line(Crossing::PioWrite).waited_ps, 0);
        assert_eq!(ledger.total().price_ps, 300);
    }

    #[test]
    fn names_are_distinct_and_numbers_are_places() {
        for (place, crossing) in Crossing::ALL.into_iter().enumerate() {
            assert_eq!(crossing as usize, place);
            assert!(Crossing::ALL.into_iter().skip(place + 1).all(|other| other.name() != crossing.name()));
        }
    }

    proptest! {
        /// Wherever in model time, and where it stops, too.
        #[test]
        fn a_series_is_what_each_is_charged_by_itself(
            is_on in prop::bool::weighted(0.9),
            (occupancy, latency) in (prop_oneof![3 => 0..2_000_u64, 1 => any::<u64>()], 0..2_000_u64),
            begin in prop_oneof![Just(0), any::<u64>(), u64::MAX - 20_000..=u64::MAX],
            crossings in prop::collection::vec((0..3_000_u64, prop::option::of(0..3_000_u64)), 0..20),
        ) {
            let (mut one_by_one, mut together) = (Ledger::default(), Ledger::default());
            one_by_one.set_on(is_on);
            together.set_on(is_on);
            let cost = Cost { count: 3, bytes: 7, occupancy: span(occupancy), latency: span(latency) };
            let mut series = together.series(Crossing::NiCycles, cost);
            let (mut busy, mut busy_together) = (Time::from_ps(begin), Time::from_ps(begin));
            let mut ready = Time::from_ps(begin);
            for (later, longer) in crossings {
                ready += span(later);
                let occupancy = longer.map_or(cost.occupancy, |longer| cost.occupancy + span(longer));
                let cost = Cost { occupancy, ..cost };
                let stage = one_by_one.charge_at(Crossing::NiCycles, Place::Host, &mut busy, ready, cost);
                prop_assert_eq!(series.cross_for(&mut busy_together, ready, occupancy), stage);
                prop_assert_eq!(busy_together, busy);
            }
            together.enter(&series);
            prop_assert_eq!(together, one_by_one);
        }

        #[test]
        fn totals_are_the_sums_of_their_parts(
            transfers in prop::collection::vec(
                (0..Crossing::ALL.len(), 0..3_usize, 0..1_000_000_u64, 1..4_u64, 0..4096_u64, 0..10_000_u64, 0..500_u64),
                0..200,
            ),
        ) {
            let mut halves = [Ledger::default(), Ledger::default()];
            let mut resources = [Resource::new(Place::Host); 3];
            let mut sum = Line::default();
            for (i, (kind, resource, ready, count, bytes, occupancy, latency)) in transfers.into_iter().enumerate() {
                let cost = Cost { count, bytes, occupancy: span(occupancy), latency: span(latency) };
                let before = resources[resource].busy_until();
                let ready = Time::from_ps(ready);
                let stage = halves[i % 2].charge(Crossing::ALL[kind], &mut resources[resource], ready, cost);
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
