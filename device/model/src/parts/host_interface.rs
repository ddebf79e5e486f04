//! What one master on a node's bus does there: its crossings, priced and entered in a ledger of its own.
//!
//! Host and bus are the node's ([`NodeBus`]), which other masters use as well; the card's own bus and processor are its
//! own.

use alloc::sync::Arc;

use crate::platform::ledger::{Cost, Crossing, Ledger, Place, Resource, Series, Stage, Sums};
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::{BusPrices, MachineCycles, Passing, Price, Profile, WORD_BYTES};
use crate::time::{Passage, Span, Time};

/// Transfers over the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusTransfer {
    /// The host stores; posted, and combined where the processor does.
    PioWrite,
    /// The host stores into a region where nothing is combined; posted.
    PioWriteUncombined,
    /// The host loads, and waits.
    PioRead,
    /// The host stores to tell that there is work; posted.
    Doorbell,
    /// The NIC stores data.
    DmaWrite,
    /// The NIC loads data.
    DmaRead,
    /// The NIC loads descriptors.
    DescriptorFetch,
    /// The NIC stores descriptors.
    DescriptorWriteBack,
    /// This master stores into another card's memory.
    DeviceToDevice,
}

impl BusTransfer {
    const fn crossing(self) -> Crossing {
        match self {
            Self::PioWrite | Self::PioWriteUncombined => Crossing::PioWrite,
            Self::PioRead => Crossing::PioRead,
            Self::Doorbell => Crossing::Doorbell,
            Self::DmaWrite => Crossing::DmaWrite,
            Self::DmaRead => Crossing::DmaRead,
            Self::DescriptorFetch => Crossing::DescriptorFetch,
            Self::DescriptorWriteBack => Crossing::DescriptorWriteBack,
            Self::DeviceToDevice => Crossing::DeviceToDevice,
        }
    }

    const fn price(self, bus: &BusPrices) -> &Price {
        match self {
            Self::PioWrite => &bus.pio_write,
            Self::PioWriteUncombined => &bus.pio_write_uncombined,
            Self::PioRead => &bus.pio_read,
            Self::Doorbell => &bus.doorbell,
            Self::DmaWrite => &bus.dma_write,
            Self::DmaRead => &bus.dma_read,
            Self::DescriptorFetch => &bus.descriptor_fetch,
            Self::DescriptorWriteBack => &bus.descriptor_write_back,
            Self::DeviceToDevice => &bus.device_to_device,
        }
    }

    /// Whether a card begins it.
    const fn is_outward(self) -> bool {
        !matches!(self, Self::PioWrite | Self::PioWriteUncombined | Self::PioRead | Self::Doorbell)
    }
}

/// A machine of a card: it does one thing at a time, at the price that the profile has under its name.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    resource: Resource,
    cycles: MachineCycles,
    /// What it takes before a packet's first word, for each word, and behind the last.
    before: Span,
    pace: Span,
    closing: Span,
}

impl Machine {
    /// When it has nothing more to do.
    pub const fn idle_at(&self) -> Time {
        self.resource.busy_until()
    }

    /// Lets it do nothing before `at`.
    pub fn rest_until(&mut self, at: Time) {
        self.resource.hold_until(at);
    }
}

/// What a machine did with a packet that it passes on.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// What it was busy with, and when it was done. What it waited for words is in what the stage waited.
    pub stage: Stage,
    /// When the word before the packet's first has left the machine: what its own states make, as a header.
    pub opened: Time,
    /// When the first and the last of the packet's words are the next machine's.
    pub words: Passage,
    /// How long a word takes.
    pub pace: Span,
}

/// Transfers over the bus that cost the same, entered together.
#[derive(Debug)]
pub struct Transfers {
    transfer: BusTransfer,
    series: Series,
    /// From a transfer's begin until its first word is at the other end.
    first_word: Span,
    per_word: Span,
    occupancy: Span,
}

impl Transfers {
    /// [`HostInterface::words_of`] of one of them.
    #[inline(always)]
    pub fn words_of(&self, stage: &Stage) -> Passage {
        Passage { head: (stage.start + self.first_word).min(stage.end), tail: stage.end }
    }

    /// [`HostInterface::earliest`] for one of them.
    #[inline(always)]
    pub fn earliest(&self, come: Passage) -> Time {
        let last = come.tail + self.per_word;
        come.head.max(last.before(self.occupancy)).min(come.tail)
    }

    /// What they come to so far.
    #[inline(always)]
    pub const fn sums(&self) -> Sums {
        self.series.sums()
    }

    /// As many times more the same are carried out that have been since `earlier`
    /// ([`steady`](crate::platform::steady)), but for how long that takes.
    #[inline(always)]
    pub const fn carry_again(&mut self, earlier: &Sums, times: u64) {
        self.series.cross_again(earlier, times);
    }
}

/// A machine while packets of one length pass it one behind the other: what [`HostInterface::pass`] does with each.
#[derive(Debug)]
pub struct Passes {
    /// It passes a packet on when it has done all of it.
    is_whole: bool,
    has_words: bool,
    before: Span,
    /// From the first word to the last.
    all: Span,
    pace: Span,
    closing: Span,
    /// From before the first word until behind the last.
    span: Span,
    busy_until: Time,
    series: Series,
}

impl Passes {
    /// Lets the machine take the next packet, whose words `come`.
    #[inline(always)]
    pub fn pass(&mut self, come: Passage) -> Passed {
        let &mut Self { is_whole, has_words, before, all, pace, closing, span, .. } = self;
        let (busy_until, series) = (&mut self.busy_until, &mut self.series);
        if is_whole {
            let stage = series.cross(busy_until, come.tail);
            return Passed { stage, opened: stage.end, words: stage.end.into(), pace: Span::ZERO };
        }
        let opened = come.head.max(*busy_until) + before;
        let last = (opened + all).max(come.tail + pace);
        let first = if has_words { last.min(opened + pace) } else { last };
        *busy_until = (*busy_until).max((last + closing).before(span));
        let stage = series.cross(busy_until, come.head);
        Passed { stage, opened, words: Passage { head: first, tail: last }, pace }
    }

    /// Until when the machine is busy.
    #[inline(always)]
    pub const fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// What its packets come to so far.
    #[inline(always)]
    pub const fn sums(&self) -> Sums {
        self.series.sums()
    }

    /// As many times more the same packets pass that have since `earlier` ([`steady`](crate::platform::steady)), but
    /// for how long that takes.
    #[inline(always)]
    pub const fn pass_again(&mut self, earlier: &Sums, times: u64) {
        self.series.cross_again(earlier, times);
    }

    /// The machine is busy so much longer, with packets that pass again.
    #[inline(always)]
    pub fn keep_busy_longer(&mut self, longer: Span) {
        self.busy_until += longer;
    }
}

/// One master's prices and ledger, and, while it acts, its node's host and bus.
#[derive(Clone, Debug)]
pub struct HostInterface {
    /// Shared between the cards of a cluster, where there may be thousands.
    profile: Arc<Profile>,
    ledger: Ledger,
    /// On loan, between [`Self::enter`] and [`Self::leave`].
    node: NodeBus,
    /// The card's own bus, where it has one.
    local: Resource,
    /// What the card begins goes before what waits for its turn.
    goes_first: bool,
}

impl HostInterface {
    /// An idle master with these prices.
    pub fn new(profile: impl Into<Arc<Profile>>) -> Self {
        Self {
            profile: profile.into(),
            ledger: Ledger::default(),
            node: NodeBus::default(),
            local: Resource::new(Place::LocalBus),
            goes_first: false,
        }
    }

    /// Takes the node's host and bus over: what is done before [`Self::leave`] is done on that node. A model calls it
    /// first in [`Nic::handle`](crate::nic::Nic::handle). (A copy and no reference: what acts on the bus is deep inside
    /// of a model, and a lifetime would have to be carried there.)
    #[inline]
    pub const fn enter(&mut self, node: &NodeBus) {
        self.node = *node;
    }

    /// Gives the node's host and bus back. A model calls it last.
    #[inline]
    pub const fn leave(&self, node: &mut NodeBus) {
        *node = self.node;
    }

    /// The prices.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What everything has cost.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// To say whose crossings follow, and what is to be kept of them.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The later of the end of the host's last operation and its last delivery.
    pub const fn host_clock(&self) -> Time {
        self.node.host
    }

    /// From now on what the card begins on the bus goes first, or waits for its turn again.
    pub const fn go_first(&mut self, goes_first: bool) {
        self.goes_first = goes_first;
    }

    /// Carries `bytes` over the bus for who goes first: it waits for the burst that is on the bus, and for others that
    /// go first, but for nothing that waits, were it begun before in wall time. What it meets goes on behind it.
    #[inline(never)]
    fn transfer_first(&mut self, transfer: BusTransfer, ready: Time, cost: Cost) -> Stage {
        let NodeBus { begun, first, .. } = self.node;
        let bus = &self.profile.bus;
        let (place, direction) = if bus.full_duplex {
            (Place::BusOutward, &mut self.node.outward)
        } else {
            (Place::BusInward, &mut self.node.inward)
        };
        let others_until = *direction;
        let mut free = ready.max(first);
        let is_met = begun <= free && free < others_until;
        if is_met {
            let burst = bus.dma_read.occupancy(bus.dma_read.burst_bytes);
            // Without a limit of bursts a transfer is one.
            let is_unlimited = bus.dma_read.burst_bytes == 0;
            free = if is_unlimited { others_until } else { others_until.min(free + burst) };
        }
        let stage = self.ledger.charge_at(transfer.crossing(), place, &mut free, ready, cost);
        self.node.first = stage.released;
        // What was begun later in model time has room before it.
        *direction = if begun <= stage.start {
            others_until.max(stage.start) + cost.occupancy
        } else {
            others_until.max(stage.released)
        };
        stage
    }

    /// Carries `bytes` over the bus. What the host starts keeps it busy: a posted store until the bus has taken it, a
    /// load until the data is back.
    ///
    /// Inlined always: callers name the kind, of which all choices below then are made by the compiler.
    #[inline(always)]
    pub fn transfer(&mut self, transfer: BusTransfer, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(transfer.price(&self.profile.bus), bytes);
        if self.goes_first && transfer.is_outward() {
            return self.transfer_first(transfer, ready, cost);
        }
        let is_outward = transfer.is_outward() && self.profile.bus.full_duplex;
        let (place, direction) = if is_outward {
            (Place::BusOutward, &mut self.node.outward)
        } else {
            (Place::BusInward, &mut self.node.inward)
        };
        let stage = self.ledger.charge_at(transfer.crossing(), place, direction, ready, cost);
        self.moved(transfer, &stage);
        stage
    }

    /// What a transfer leaves behind at the node: what the host started keeps it busy.
    #[inline(always)]
    fn moved(&mut self, transfer: BusTransfer, stage: &Stage) {
        if transfer.is_outward() {
            self.node.begun = stage.start;
        }
        match transfer {
            BusTransfer::PioWrite | BusTransfer::PioWriteUncombined | BusTransfer::Doorbell => {
                self.node.host = self.node.host.max(stage.released);
            }
            BusTransfer::PioRead => self.node.host = self.node.host.max(stage.end),
            _ => {}
        }
    }

    /// Begins a series of transfers of `bytes` each, for a master that waits for its turn.
    #[inline(always)]
    pub fn transfers(&self, transfer: BusTransfer, bytes: u64) -> Transfers {
        debug_assert!(!self.goes_first, "a series has no way to go first");
        let price = transfer.price(&self.profile.bus);
        let cost = cost_of(price, bytes);
        Transfers {
            transfer,
            series: self.ledger.series(transfer.crossing(), cost),
            first_word: price.occupancy(WORD_BYTES) + price.latency(),
            per_word: Span::from_ps(price.per_word_ps),
            occupancy: cost.occupancy,
        }
    }

    /// Until when the host is busy, and the way over the bus of these transfers.
    #[inline(always)]
    pub fn busy_until(&self, transfers: &Transfers) -> [Time; 2] {
        let is_outward = transfers.transfer.is_outward() && self.profile.bus.full_duplex;
        [self.node.host, if is_outward { self.node.outward } else { self.node.inward }]
    }

    /// Whether the host does something of its own as soon as it is free: what it waited for is over
    /// ([`NodeBus::wait_until`]).
    #[inline]
    pub fn is_host_on_its_own(&self) -> bool {
        self.node.clock() == self.node.host
    }

    /// The host is busy so much longer, and the way over the bus of these transfers, with what is done again
    /// ([`steady`](crate::platform::steady)).
    #[inline(always)]
    pub fn keep_busy_longer(&mut self, transfers: &Transfers, longer: Span) {
        let is_outward = transfers.transfer.is_outward();
        let NodeBus { host, inward, outward, begun, .. } = &mut self.node;
        *host += longer;
        *(if is_outward && self.profile.bus.full_duplex { outward } else { inward }) += longer;
        if is_outward {
            *begun += longer;
        }
    }

    /// Carries out the next transfer of a series: as [`Self::transfer`], but for what its ledger is told by
    /// [`Self::enter_transfers`].
    #[inline(always)]
    pub fn carry(&mut self, transfers: &mut Transfers, ready: Time) -> Stage {
        let Transfers { transfer, series, .. } = transfers;
        let is_outward = transfer.is_outward() && self.profile.bus.full_duplex;
        let direction = if is_outward { &mut self.node.outward } else { &mut self.node.inward };
        let stage = series.cross(direction, ready);
        self.moved(*transfer, &stage);
        stage
    }

    /// Enters a series of transfers that is over.
    pub fn enter_transfers(&mut self, transfers: &Transfers) {
        self.ledger.enter(&transfers.series);
    }

    /// Enters a series of the host's software that is over.
    pub fn enter_works(&mut self, works: &Series) {
        self.ledger.enter(works);
    }

    /// Begins a series of pieces of the host's software that take `ps` each.
    #[inline]
    pub const fn works(&self, crossing: Crossing, bytes: u64, ps: u64) -> Series {
        self.ledger.series(crossing, Cost::once(bytes, Span::from_ps(ps)))
    }

    /// The same of copies in host memory.
    #[inline]
    pub fn copies(&self, bytes: u64) -> Series {
        self.works(Crossing::HostCopy, bytes, self.profile.host.copy_per_byte_ps.saturating_mul(bytes))
    }

    /// The same of the host's software before messages ([`Self::host_send`]).
    #[inline]
    pub fn sends(&self, bytes: u64) -> Series {
        self.works(Crossing::HostSend, bytes, self.profile.host.send_ps)
    }

    /// The same of the host's software behind messages ([`Self::host_receive`]).
    #[inline]
    pub fn receives(&self, bytes: u64) -> Series {
        self.works(Crossing::HostReceive, bytes, self.profile.host.receive_ps)
    }

    /// Lets the host do the next piece of a series. Returns when it is done.
    #[inline(always)]
    pub fn occupy(&mut self, series: &mut Series, ready: Time) -> Time {
        series.cross(&mut self.node.host, ready).end
    }

    /// When the host can begin its next operation.
    #[inline]
    pub fn clock(&self) -> Time {
        self.node.clock()
    }

    /// The host's software before a message. Returns when it is done.
    #[inline]
    pub fn host_send(&mut self, ready: Time, bytes: u64) -> Time {
        self.occupy_host(Crossing::HostSend, ready, bytes, self.profile.host.send_ps)
    }

    /// The host's software after a message of `bytes` became visible. Returns when the program has it.
    #[inline]
    pub fn host_receive(&mut self, visible: Time, bytes: u64) -> Time {
        self.occupy_host(Crossing::HostReceive, visible, bytes, self.profile.host.receive_ps)
    }

    /// The host's software that takes `ps`, where the shell says how long: a protocol stack's. Returns when it is done.
    pub fn software(&mut self, crossing: Crossing, ready: Time, bytes: u64, ps: u64) -> Time {
        self.occupy_host(crossing, ready, bytes, ps)
    }

    /// A copy in host memory. Returns when it is done.
    pub fn host_copy(&mut self, ready: Time, bytes: u64) -> Time {
        let copy_ps = self.profile.host.copy_per_byte_ps.saturating_mul(bytes);
        self.occupy_host(Crossing::HostCopy, ready, bytes, copy_ps)
    }

    /// An interrupt: over the bus, then the handler. Returns when the host's line is raised.
    pub fn interrupt(&mut self, ready: Time) -> Time {
        // A line of its own or a posted message: it never waits for the data path, and delays nobody.
        let mut line = Resource::new(Place::InterruptLine);
        let cost = Cost::once(0, Span::from_ps(self.profile.bus.interrupt_ps));
        let raised = self.ledger.charge(Crossing::Interrupt, &mut line, ready, cost).end;
        self.occupy_host(Crossing::HostInterrupt, raised, 0, self.profile.host.interrupt_ps);
        raised
    }

    /// A machine of this card, as the profile prices it; `track` is its name in timelines.
    pub fn machine(&self, name: &str, track: &'static str) -> Machine {
        let ni = &self.profile.ni;
        let cycles = ni.machines.get(name);
        Machine {
            resource: Resource::new(Place::Machine(track)),
            cycles,
            before: ni.of_millicycles(cycles.fixed_millicycles),
            pace: ni.of_millicycles(cycles.per_word_millicycles),
            closing: ni.of_millicycles(cycles.closing_millicycles),
        }
    }

    /// Lets a machine work on a packet of `bytes`, in whole words.
    #[inline]
    pub fn work(&mut self, machine: &mut Machine, ready: Time, bytes: u64) -> Stage {
        let span = self.profile.ni.span(machine.cycles, bytes.div_ceil(WORD_BYTES));
        self.work_for(machine, ready, bytes, span)
    }

    /// Lets a machine take a packet of `bytes`, in whole words, whose words `come`, and pass it on: all of it at once,
    /// when it is done, or word after word.
    ///
    /// Word after word, the machine begins with the first word, has its states before the words, and takes each when it
    /// is done with the one before and the word is there. Machines and links have a pace that does not change within a
    /// packet, so that the words that come are no later than on the straight lines through the first and the last. So
    /// the first and the last say all, and nothing is counted word by word: a test holds this to a machine that does.
    ///
    /// Inlined always: of the many things that it says, callers use few.
    #[inline(always)]
    pub fn pass(&mut self, machine: &mut Machine, passing: Passing, come: Passage, bytes: u64) -> Passed {
        if passing == Passing::StoreAndForward || !self.ledger.is_on() {
            return self.pass_whole(machine, come.tail, bytes);
        }
        let Machine { before, pace, closing, .. } = *machine;
        let words = bytes.div_ceil(WORD_BYTES);
        let all = pace.times(words);
        let opened = come.head.max(machine.resource.busy_until()) + before;
        let last = (opened + all).max(come.tail + pace);
        let first = if words == 0 { last } else { last.min(opened + pace) };
        // It waits for words in between; the ledger has that as if it had waited before.
        let span = before + all + closing;
        machine.resource.hold_until((last + closing).before(span));
        let stage = self.work_for(machine, come.head, bytes, span);
        Passed { stage, opened, words: Passage { head: first, tail: last }, pace }
    }

    /// All of it at once. Lets a machine take packets of `bytes` one behind the other, as [`Self::pass`] lets it take
    /// each, but for what machine and ledger are told by [`Self::enter_passes`].
    #[inline]
    pub fn passes(&self, machine: &Machine, passing: Passing, bytes: u64) -> Passes {
        let Machine { resource, cycles, before, pace, closing } = *machine;
        let is_whole = passing == Passing::StoreAndForward || !self.ledger.is_on();
        let words = bytes.div_ceil(WORD_BYTES);
        let all = pace.times(words);
        let span = if is_whole { self.profile.ni.span(cycles, words) } else { before + all + closing };
        Passes {
            is_whole,
            has_words: words > 0,
            before,
            all,
            pace,
            closing,
            span,
            busy_until: resource.busy_until(),
            series: self.ledger.series(Crossing::NiCycles, Cost::once(bytes, span)),
        }
    }

    /// Enters packets that a machine has taken one behind the other.
    pub fn enter_passes(&mut self, machine: &mut Machine, passes: &Passes) {
        machine.rest_until(passes.busy_until);
        self.ledger.enter(&passes.series);
    }

    #[inline(never)]
    fn pass_whole(&mut self, machine: &mut Machine, ready: Time, bytes: u64) -> Passed {
        let stage = self.work(machine, ready, bytes);
        Passed { stage, opened: stage.end, words: stage.end.into(), pace: Span::ZERO }
    }

    /// When the first and the last word of a transfer are across that was carried out as `stage`.
    #[inline]
    pub fn words_of(&self, transfer: BusTransfer, stage: &Stage) -> Passage {
        let price = transfer.price(&self.profile.bus);
        let first = stage.start + price.occupancy(WORD_BYTES) + price.latency();
        Passage { head: first.min(stage.end), tail: stage.end }
    }

    /// When a transfer of `bytes` whose words `come` may begin, so that it need not wait for words before it is over.
    #[inline]
    pub fn earliest(&self, transfer: BusTransfer, come: Passage, bytes: u64) -> Time {
        let price = transfer.price(&self.profile.bus);
        let last = come.tail + Span::from_ps(price.per_word_ps);
        come.head.max(last.before(price.occupancy(bytes))).min(come.tail)
    }

    /// Lets a machine work for as long as its model has worked out.
    #[inline(always)]
    pub fn work_for(&mut self, machine: &mut Machine, ready: Time, bytes: u64, span: Span) -> Stage {
        self.ledger.charge(Crossing::NiCycles, &mut machine.resource, ready, Cost::once(bytes, span))
    }

    /// Carries `bytes` once over the card's own bus.
    pub fn local_bus(&mut self, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(&self.profile.ni.local_bus, bytes);
        self.ledger.charge(Crossing::LocalBus, &mut self.local, ready, cost)
    }

    #[inline(always)]
    fn occupy_host(&mut self, crossing: Crossing, ready: Time, bytes: u64, ps: u64) -> Time {
        let cost = Cost::once(bytes, Span::from_ps(ps));
        self.ledger.charge_at(crossing, Place::Host, &mut self.node.host, ready, cost).end
    }
}

#[inline]
const fn cost_of(price: &Price, bytes: u64) -> Cost {
    Cost { count: price.bursts(bytes), bytes, occupancy: price.occupancy(bytes), latency: price.latency() }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::platform::profile::{HostPrices, Machines, NiPrices};

    const PRICE: Price = Price { latency_ps: 1_000, fixed_ps: 100, per_word_ps: 10, burst_bytes: 16 };

    fn interface(full_duplex: bool) -> HostInterface {
        let bus = BusPrices {
            full_duplex,
            pio_write: PRICE,
            pio_write_uncombined: PRICE.word_by_word(),
            pio_read: PRICE,
            doorbell: PRICE,
            dma_write: PRICE,
            dma_read: PRICE,
            descriptor_fetch: PRICE,
            descriptor_write_back: PRICE,
            device_to_device: PRICE,
            interrupt_ps: 7,
        };
        let host = HostPrices { send_ps: 1, receive_ps: 2, interrupt_ps: 3, copy_per_byte_ps: 4 };
        HostInterface::new(Profile { host, bus, ..Profile::default() })
    }

    const NAMES: [(BusTransfer, Crossing); 8] = [
        (BusTransfer::PioWrite, Crossing::PioWrite),
        (BusTransfer::PioRead, Crossing::PioRead),
        (BusTransfer::Doorbell, Crossing::Doorbell),
        (BusTransfer::DmaWrite, Crossing::DmaWrite),
        (BusTransfer::DmaRead, Crossing::DmaRead),
        (BusTransfer::DescriptorFetch, Crossing::DescriptorFetch),
        (BusTransfer::DescriptorWriteBack, Crossing::DescriptorWriteBack),
        (BusTransfer::DeviceToDevice, Crossing::DeviceToDevice),
    ];

    #[test]
    fn lengths_in_any_order_are_priced_as_each_by_itself() {
        let mut interface = interface(true);
        for bytes in [0, 64, 64, 0, 8, 64, 9] {
            let ready = interface.host_clock();
            let stage = interface.transfer(BusTransfer::PioWrite, ready, bytes);
            assert_eq!(stage.released.since(stage.start), PRICE.occupancy(bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn each_transfer_is_entered_under_its_own_name_with_its_bursts() {
        for (transfer, crossing) in NAMES {
            let mut interface = interface(true);
            let stage = interface.transfer(transfer, Time::ZERO, 24);
            assert_eq!(stage.end.as_ps(), 2 * 100 + 3 * 10 + 1_000, "{transfer:?}");
            let line = interface.ledger().line(crossing);
            assert_eq!((line.count, line.bytes), (2, 24), "{transfer:?}");
            assert_eq!(interface.ledger().total(), line);
        }
    }

    #[test]
    fn directions_share_the_bus_only_when_it_has_one() {
        for full_duplex in [false, true] {
            let mut interface = interface(full_duplex);
            let inward = interface.transfer(BusTransfer::PioWrite, Time::ZERO, 8);
            let outward = interface.transfer(BusTransfer::DmaWrite, Time::ZERO, 8);
            let expected = if full_duplex { Time::ZERO } else { inward.released };
            assert_eq!(outward.start, expected);
        }
    }

    #[test]
    fn a_posted_store_frees_the_host_early_and_a_load_keeps_it() {
        let mut interface = interface(true);
        interface.transfer(BusTransfer::PioWrite, Time::ZERO, 8);
        assert_eq!(interface.host_clock().as_ps(), 110);
        interface.transfer(BusTransfer::PioRead, interface.host_clock(), 8);
        assert_eq!(interface.host_clock().as_ps(), 110 + 1_110);
        interface.transfer(BusTransfer::DmaWrite, Time::from_ps(1_000_000), 8);
        assert_eq!(interface.host_clock().as_ps(), 110 + 1_110);
    }

    /// Bytes a second of one kind of transfer that is done again and again.
    fn rate(
        interface: &mut HostInterface,
        bytes: u64,
        mut once: impl FnMut(&mut HostInterface) -> Stage,
    ) -> u64 {
        const TIMES: u64 = 1_000;
        let last = (0..TIMES).map(|_| once(interface)).last();
        TIMES * bytes * 1_000_000_000_000 / last.map_or(1, |stage| stage.released.as_ps())
    }

    #[test]
    fn stores_that_are_not_combined_take_a_burst_a_word() {
        let mut interface = interface(true);
        let stage = interface.transfer(BusTransfer::PioWriteUncombined, Time::ZERO, 32);
        assert_eq!(stage.released.as_ps(), 4 * (100 + 10));
        assert_eq!(interface.ledger().line(Crossing::PioWrite).count, 4);
        assert_eq!(interface.host_clock(), stage.released, "posted");
        let off = BusPrices { pio_write: PRICE.word_by_word(), ..interface.profile().bus };
        let mut interface = HostInterface::new(Profile { bus: off, ..interface.profile().clone() });
        interface.transfer(BusTransfer::PioWrite, Time::ZERO, 32);
        assert_eq!(interface.ledger().line(Crossing::PioWrite).count, 4, "write combining is off");
    }

    /// The same machine, word by word: when each word of `come` is the next machine's, and when the machine is free
    /// again.
    fn word_by_word(states: &[u64; 3], words_come: &[u64], busy_until: u64, begin: u64) -> (Vec<u64>, u64) {
        let [before, pace, closing] = *states;
        let mut at = begin.max(busy_until) + before;
        let passed = words_come.iter().map(|&come| {
            at = at.max(come) + pace;
            at
        });
        let passed: Vec<_> = passed.collect();
        (passed, at + closing)
    }

    proptest! {
        /// Packets of one length that a machine takes as a series leave it as one by one, and so are bus transfers'
        /// words.
        #[test]
        fn packets_of_a_series_pass_as_each_does(
            [before, pace, closing, words] in prop::array::uniform4(0..12_u64),
            (is_on, is_whole) in (prop::bool::weighted(0.9), prop::bool::weighted(0.3)),
            packets in prop::collection::vec((0..60_u64, 0..90_u64), 1..12),
        ) {
            let cycles = MachineCycles {
                fixed_millicycles: before * 1_000,
                per_word_millicycles: pace * 1_000,
                closing_millicycles: closing * 1_000,
            };
            let ni = NiPrices { clock_ps: 1, machines: [("a", cycles)].into_iter().collect(), ..NiPrices::default() };
            let bus = BusPrices { pio_write: PRICE, dma_write: Price { burst_bytes: 0, ..PRICE }, ..BusPrices::default() };
            let passing = if is_whole { Passing::StoreAndForward } else { Passing::CutThrough };
            let [mut single, mut series] = [(); 2].map(|()| {
                let mut card = HostInterface::new(Profile { ni: ni.clone(), bus, ..Profile::default() });
                card.ledger_mut().set_on(is_on);
                (card.machine("a", "machine"), card)
            });
            let bytes = words * WORD_BYTES;
            let mut passes = series.1.passes(&series.0, passing, bytes);
            let mut transfers = [BusTransfer::PioWrite, BusTransfer::DmaWrite].map(|transfer| series.1.transfers(transfer, bytes));
            let mut begin = 0;
            for (later, longer) in packets {
                begin += later;
                let come = Passage { head: Time::from_ps(begin), tail: Time::from_ps(begin + longer) };
                let (here, there) = (single.1.pass(&mut single.0, passing, come, bytes), passes.pass(come));
                prop_assert_eq!((here.stage, here.opened, here.words, here.pace), (there.stage, there.opened, there.words, there.pace));
                for transfers in &mut transfers {
                    let transfer = transfers.transfer;
                    let ready = single.1.earliest(transfer, come, bytes);
                    prop_assert_eq!(transfers.earliest(come), ready);
                    let (here, there) = (single.1.transfer(transfer, ready, bytes), series.1.carry(transfers, ready));
                    prop_assert_eq!(here, there);
                    prop_assert_eq!(transfers.words_of(&there), single.1.words_of(transfer, &here));
                }
            }
            series.1.enter_passes(&mut series.0, &passes);
            transfers.iter().for_each(|transfers| series.1.enter_transfers(transfers));
            prop_assert_eq!(alloc::format!("{series:?}"), alloc::format!("{single:?}"));
        }

        /// Machines in a row, packets of any length one after another, words that come at any pace: the first and the
        /// last word are where a machine that counts each of them has them.
        #[test]
        fn first_and_last_word_say_what_each_word_would(
            states in prop::collection::vec(prop::array::uniform3(0..9_u64), 1..5),
            packets in prop::collection::vec((1..12_u64, 0..60_u64, 0..12_u64), 1..6),
        ) {
            let names = ["a", "b", "c", "d"];
            let machines = names.into_iter().zip(&states).map(|(name, [before, pace, closing])| {
                (name, MachineCycles {
                    fixed_millicycles: before * 1_000,
                    per_word_millicycles: pace * 1_000,
                    closing_millicycles: closing * 1_000,
                })
            });
            let ni = NiPrices { clock_ps: 1, machines: machines.collect(), ..NiPrices::default() };
            let mut card = HostInterface::new(Profile { ni, ..Profile::default() });
            let mut own: Vec<_> =
                names.iter().take(states.len()).map(|name| card.machine(name, "machine")).collect();
            let mut busy = vec![0; states.len()];
            let mut begin = 0;
            for (words, later, apart) in packets {
                begin += later;
                let mut expected: Vec<u64> = (0..words).map(|word| begin + word * apart).collect();
                let mut come = Passage { head: Time::from_ps(begin), tail: Time::from_ps(begin + (words - 1) * apart) };
                for ((machine, states), busy) in own.iter_mut().zip(&states).zip(&mut busy) {
                    let passed = card.pass(machine, Passing::CutThrough, come, words * WORD_BYTES);
                    (expected, *busy) = word_by_word(states, &expected, *busy, expected[0]);
                    prop_assert_eq!(passed.words.head.as_ps(), expected[0]);
                    prop_assert_eq!(Some(&passed.words.tail.as_ps()), expected.last());
                    prop_assert_eq!((passed.stage.end.as_ps(), machine.idle_at().as_ps()), (*busy, *busy));
                    let price = states[0] + states[1] * words + states[2];
                    prop_assert_eq!(passed.stage.end.since(passed.stage.start).as_ps(), price);
                    prop_assert!(passed.stage.start >= come.head);
                    come = passed.words;
                }
            }
        }
    }

    #[test]
    fn whole_packets_are_passed_on_when_all_is_done() {
        let cycles = MachineCycles {
            fixed_millicycles: 3_000,
            per_word_millicycles: 1_000,
            closing_millicycles: 1_000,
        };
        let machines = Machines::from_iter([("transmit", cycles)]);
        let ni = NiPrices { clock_ps: 5, machines, ..NiPrices::default() };
        let mut card = HostInterface::new(Profile { ni, ..Profile::default() });
        let mut machine = card.machine("transmit", "tx");
        let come = Passage { head: Time::from_ps(100), tail: Time::from_ps(200) };
        let whole = card.pass(&mut machine, Passing::StoreAndForward, come, 16);
        assert_eq!((whole.stage.start, whole.words), (come.tail, Time::from_ps(200 + 6 * 5).into()));
        let mut machine = card.machine("transmit", "tx");
        let none = card.pass(&mut machine, Passing::CutThrough, come.head.into(), 0);
        assert_eq!(
            (none.opened, none.words),
            (Time::from_ps(115), Time::from_ps(115).into()),
            "nothing but its head"
        );
        card.ledger_mut().set_on(false);
        let free = card.pass(&mut machine, Passing::CutThrough, come, 16);
        assert_eq!(free.words, come.tail.into(), "with the ledger off nothing takes time");
    }

    #[test]
    fn a_transfer_of_words_that_come_begins_as_early_as_it_can_without_a_wait() {
        let interface = interface(true);
        // Two words take 100 + 20 ps, the last of them 10.
        let at = |head, tail| {
            let come = Passage { head: Time::from_ps(head), tail: Time::from_ps(tail) };
            interface.earliest(BusTransfer::DmaWrite, come, 16).as_ps()
        };
        assert_eq!((at(500, 500), at(500, 550), at(500, 1_000)), (500, 500, 890));
    }

    #[test]
    fn a_local_bus_that_each_packet_crosses_four_times_caps_inic() {
        // INIC, section 5: 32 bits at 33 MHz, crossed four times a packet: 264 Mb/s, counting data cycles alone.
        let local_bus = Price { per_word_ps: 2 * 30_303, ..Price::FREE };
        let ni = NiPrices { local_bus, ..NiPrices::default() };
        let mut card = HostInterface::new(Profile { ni, ..Profile::default() });
        let packet_bytes = 1_408;
        let bits_per_s = 8 * rate(&mut card, packet_bytes, |card| {
            let crossings = (0..4).map(|_| card.local_bus(Time::ZERO, packet_bytes));
            crossings.last().unwrap()
        });
        assert_eq!(bits_per_s / 1_000_000, 264);
        assert_eq!(card.ledger().line(Crossing::LocalBus).bytes, 4 * 1_000 * packet_bytes);
    }

    #[test]
    fn a_cards_processor_does_one_thing_at_a_time_and_its_cycles_count() {
        let send =
            MachineCycles { fixed_millicycles: 80_000, per_word_millicycles: 500, ..MachineCycles::NONE };
        let receive =
            MachineCycles { fixed_millicycles: 10_000, per_word_millicycles: 0, ..MachineCycles::NONE };
        let machines = Machines::from_iter([("processor_send", send), ("processor_receive", receive)]);
        let ni = NiPrices { clock_ps: 30_000, machines, ..NiPrices::default() };
        let mut card = HostInterface::new(Profile { ni, ..Profile::default() });
        let mut processor = card.machine("processor_send", "processor");
        let first = card.work(&mut processor, Time::ZERO, 28);
        let span = card.profile().ni.span(card.profile().ni.machines.get("processor_receive"), 4);
        let second = card.work_for(&mut processor, Time::ZERO, 28, span);
        assert_eq!(first.end.as_ps(), (80_000 + 4 * 500) * 30);
        assert_eq!((second.start, second.end.since(second.start).as_ps()), (first.end, 300_000));
        assert_eq!(card.ledger().line(Crossing::NiCycles).waited_ps, first.end.as_ps());
        assert_eq!(processor.idle_at(), second.end);
        let mut absent = card.machine("scan", "scan");
        assert_eq!(card.work(&mut absent, Time::ZERO, 28).end, Time::ZERO, "no such machine, no time");
    }

    #[test]
    fn who_goes_first_waits_for_a_burst_and_for_nothing_that_was_begun_later() {
        for full_duplex in [false, true] {
            let mut interface = interface(full_duplex);
            // 16 bytes a burst: four of 120 ps each, which keep the bus until 480.
            interface.transfer(BusTransfer::DmaRead, Time::ZERO, 64);
            interface.go_first(true);
            let first = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(10), 8);
            assert_eq!((first.start.as_ps(), first.released.as_ps()), (130, 240), "behind one burst");
            let second = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(10), 8);
            assert_eq!(second.start.as_ps(), 360, "behind another, and the one before");
            interface.go_first(false);
            let behind = interface.transfer(BusTransfer::DmaRead, Time::ZERO, 8);
            assert_eq!(behind.start.as_ps(), 480 + 2 * 110, "what it met goes on behind it");
            interface.transfer(BusTransfer::DmaRead, Time::from_ps(1_000_000), 8);
            interface.go_first(true);
            let early = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(5_000), 8);
            assert_eq!(early.start.as_ps(), 5_000, "the bus was free then");
            interface.go_first(false);
            let late = interface.transfer(BusTransfer::DmaRead, Time::ZERO, 8);
            assert_eq!(late.start.as_ps(), 1_000_110, "nobody was met");
        }
    }

    #[test]
    fn host_work_is_serial() {
        let mut interface = interface(true);
        assert_eq!(interface.host_send(Time::from_ps(10), 8).as_ps(), 11);
        assert_eq!(interface.host_receive(Time::from_ps(10), 8).as_ps(), 13);
        assert_eq!(interface.host_copy(Time::ZERO, 5).as_ps(), 33);
        assert_eq!(interface.interrupt(Time::from_ps(100)).as_ps(), 107);
        assert_eq!(interface.host_clock().as_ps(), 110);
    }

    #[test]
    fn masters_of_one_node_wait_for_each_other_and_each_enters_its_own_wait() {
        let mut node = NodeBus::default();
        let mut masters = [interface(false), interface(false)];
        let mut end = Time::ZERO;
        for (number, master) in masters.iter_mut().enumerate() {
            master.enter(&node);
            assert_eq!(master.host_clock().as_ps(), number as u64 * 110, "the host is the node's");
            end = master.transfer(BusTransfer::PioWrite, Time::ZERO, 8).released;
            master.leave(&mut node);
        }
        let waited = masters.each_ref().map(|master| master.ledger().total().waited_ps);
        assert_eq!(waited, [0, 110], "the second waits until the first has left the bus");
        assert_eq!((node.clock(), node.rest()), (end, end));
        node.wait_until(Time::from_ps(1_000));
        assert_eq!(node.clock().as_ps(), 1_000);
        masters[0].enter(&node);
        assert_eq!(masters[0].host_clock(), end, "who waits is not busy");
    }
}
