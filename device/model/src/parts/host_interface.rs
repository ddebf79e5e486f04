//! One master's transactions on a node's bus, priced and recorded in the master's own ledger.
//!
//! Host and bus belong to the node ([`NodeBus`]), and other masters use them as well. The card's own bus and processor
//! belong to the master.

use alloc::sync::Arc;

use crate::platform::ledger::{Cost, Ledger, Resource, ResourceName, Stage, Transaction, Transactions};
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::{BusPrices, MachineCycles, Passing, Price, Profile, WORD_BYTES};
use crate::time::{Passage, Span, Time};

/// Transfers over the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusTransfer {
    /// The host stores; posted, with write combining if the processor has it.
    PioWrite,
    /// The host stores into a region without write combining; posted.
    PioWriteUncombined,
    /// The host loads, and waits.
    PioRead,
    /// The host stores to notify the card of work; posted.
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
    const fn transaction(self) -> Transaction {
        match self {
            Self::PioWrite | Self::PioWriteUncombined => Transaction::PioWrite,
            Self::PioRead => Transaction::PioRead,
            Self::Doorbell => Transaction::Doorbell,
            Self::DmaWrite => Transaction::DmaWrite,
            Self::DmaRead => Transaction::DmaRead,
            Self::DescriptorFetch => Transaction::DescriptorFetch,
            Self::DescriptorWriteBack => Transaction::DescriptorWriteBack,
            Self::DeviceToDevice => Transaction::DeviceToDevice,
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

/// A machine of a card. It serves one packet at a time, at the profile's price for its name.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    resource: Resource,
    cycles: MachineCycles,
    /// Time before a packet's first word, for each word, and after the last.
    before: Span,
    pace: Span,
    closing: Span,
}

impl Machine {
    /// When it becomes idle.
    pub const fn idle_at(&self) -> Time {
        self.resource.busy_until()
    }

    /// Occupies it until `at`.
    pub fn rest_until(&mut self, at: Time) {
        self.resource.hold_until(at);
    }
}

/// The times of a packet that a machine passes on.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// When the machine was busy. The stage's wait includes the machine's waits for words.
    pub stage: Stage,
    /// When the machine has passed on what precedes the packet's words, such as a header.
    pub opened: Time,
    /// When the next machine has the first and the last word of the packet.
    pub words: Passage,
    /// Time for each word.
    pub pace: Span,
}

/// Bus transfers of equal cost, recorded together.
#[derive(Debug)]
pub struct Transfers {
    transfer: BusTransfer,
    transactions: Transactions,
    /// From a transfer's start until its first word arrives.
    first_word: Span,
    per_word: Span,
    occupancy: Span,
}

impl Transfers {
    /// [`HostInterface::words_of`] for one of them.
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
}

/// A machine while consecutive packets of one length pass it, each as in [`HostInterface::pass`].
#[derive(Debug)]
pub struct Passes {
    /// Whether it passes a packet on only when it has processed all of it.
    is_whole: bool,
    has_words: bool,
    before: Span,
    /// From the first word to the last.
    all: Span,
    pace: Span,
    closing: Span,
    /// From before the first word until after the last.
    span: Span,
    busy_until: Time,
    transactions: Transactions,
}

impl Passes {
    /// Passes the next packet, whose words arrive at `come`.
    #[inline(always)]
    pub fn pass(&mut self, come: Passage) -> Passed {
        let &mut Self { is_whole, has_words, before, all, pace, closing, span, .. } = self;
        let (busy_until, transactions) = (&mut self.busy_until, &mut self.transactions);
        if is_whole {
            let stage = transactions.cross(busy_until, come.tail);
            return Passed { stage, opened: stage.end, words: stage.end.into(), pace: Span::ZERO };
        }
        let opened = come.head.max(*busy_until) + before;
        let last = (opened + all).max(come.tail + pace);
        let first = if has_words { last.min(opened + pace) } else { last };
        *busy_until = (*busy_until).max((last + closing).before(span));
        let stage = transactions.cross(busy_until, come.head);
        Passed { stage, opened, words: Passage { head: first, tail: last }, pace }
    }
}

/// One master's prices and ledger, and, while it acts, its node's host and bus.
#[derive(Clone, Debug)]
pub struct HostInterface {
    /// Shared between all cards of a cluster; there may be thousands.
    profile: Arc<Profile>,
    ledger: Ledger,
    /// A copy of the node's state, between [`Self::enter`] and [`Self::leave`].
    node: NodeBus,
    /// The card's own bus, if it has one.
    local: Resource,
    /// Whether the card's transfers have priority over others.
    goes_first: bool,
}

impl HostInterface {
    /// An idle master with these prices.
    pub fn new(profile: impl Into<Arc<Profile>>) -> Self {
        Self {
            profile: profile.into(),
            ledger: Ledger::default(),
            node: NodeBus::default(),
            local: Resource::new(ResourceName::LocalBus),
            goes_first: false,
        }
    }

    /// Copies the node's host and bus state; transactions until [`Self::leave`] act on this node. A model calls it
    /// first in [`Nic::handle`](crate::nic::Nic::handle). (A copy instead of a reference: the code that acts on the
    /// bus is nested deeply in a model, and would need a lifetime at every level.)
    #[inline]
    pub const fn enter(&mut self, node: &NodeBus) {
        self.node = *node;
    }

    /// Writes the node's host and bus state back. A model calls it last.
    #[inline]
    pub const fn leave(&self, node: &mut NodeBus) {
        *node = self.node;
    }

    /// The prices.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The cost of all transactions.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger, to name the message of the next transactions, or to record stages.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The end of the host's last operation or of its last delivery, the later of both.
    pub const fn host_clock(&self) -> Time {
        self.node.host
    }

    /// Sets whether the card's transfers have priority on the bus.
    pub const fn go_first(&mut self, goes_first: bool) {
        self.goes_first = goes_first;
    }

    /// Charges a transfer with priority. It waits for the current burst and for other transfers with priority, but for
    /// no other transfer, even one that began earlier in wall time. The interrupted transfer continues after it.
    #[inline(never)]
    fn transfer_first(&mut self, transfer: BusTransfer, ready: Time, cost: Cost) -> Stage {
        let NodeBus { begun, first, .. } = self.node;
        let bus = &self.profile.bus;
        let (place, direction) = if bus.full_duplex {
            (ResourceName::BusOutward, &mut self.node.outward)
        } else {
            (ResourceName::BusInward, &mut self.node.inward)
        };
        let others_until = *direction;
        let mut free = ready.max(first);
        let is_met = begun <= free && free < others_until;
        if is_met {
            let burst = bus.dma_read.occupancy(bus.dma_read.burst_bytes);
            // Without a burst limit a transfer is one burst.
            let is_unlimited = bus.dma_read.burst_bytes == 0;
            free = if is_unlimited { others_until } else { others_until.min(free + burst) };
        }
        let stage = self.ledger.charge_at(transfer.transaction(), place, &mut free, ready, cost);
        self.node.first = stage.released;
        // A transfer that began later in model time had a free bus before it.
        *direction = if begun <= stage.start {
            others_until.max(stage.start) + cost.occupancy
        } else {
            others_until.max(stage.released)
        };
        stage
    }

    /// Charges a transfer of `bytes` over the bus. The host's own transfers occupy the host: a posted store until the
    /// bus has taken it, a load until the data has arrived.
    ///
    /// Always inlined: callers pass a constant kind, so that the compiler resolves all branches.
    #[inline(always)]
    pub fn transfer(&mut self, transfer: BusTransfer, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(transfer.price(&self.profile.bus), bytes);
        if self.goes_first && transfer.is_outward() {
            return self.transfer_first(transfer, ready, cost);
        }
        let is_outward = transfer.is_outward() && self.profile.bus.full_duplex;
        let (place, direction) = if is_outward {
            (ResourceName::BusOutward, &mut self.node.outward)
        } else {
            (ResourceName::BusInward, &mut self.node.inward)
        };
        let stage = self.ledger.charge_at(transfer.transaction(), place, direction, ready, cost);
        self.moved(transfer, &stage);
        stage
    }

    /// Updates the node after a transfer: the host's own transfers occupy the host.
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

    /// Begins a batch of transfers of `bytes` each, for a master without priority.
    #[inline(always)]
    pub fn transfers(&self, transfer: BusTransfer, bytes: u64) -> Transfers {
        debug_assert!(!self.goes_first, "a batch cannot have priority");
        let price = transfer.price(&self.profile.bus);
        let cost = cost_of(price, bytes);
        Transfers {
            transfer,
            transactions: self.ledger.transactions(transfer.transaction(), cost),
            first_word: price.occupancy(WORD_BYTES) + price.latency(),
            per_word: Span::from_ps(price.per_word_ps),
            occupancy: cost.occupancy,
        }
    }

    /// Charges the next transfer of a batch, as [`Self::transfer`] does. [`Self::enter_transfers`] records the batch
    /// in the ledger.
    #[inline(always)]
    pub fn carry(&mut self, transfers: &mut Transfers, ready: Time) -> Stage {
        let Transfers { transfer, transactions, .. } = transfers;
        let is_outward = transfer.is_outward() && self.profile.bus.full_duplex;
        let direction = if is_outward { &mut self.node.outward } else { &mut self.node.inward };
        let stage = transactions.cross(direction, ready);
        self.moved(*transfer, &stage);
        stage
    }

    /// Records a batch of transfers.
    pub fn enter_transfers(&mut self, transfers: &Transfers) {
        self.ledger.enter(&transfers.transactions);
    }

    /// Records a batch of host software.
    pub fn enter_works(&mut self, works: &Transactions) {
        self.ledger.enter(works);
    }

    /// Begins a batch of pieces of the host's software that take `ps` each.
    #[inline]
    pub const fn works(&self, transaction: Transaction, bytes: u64, ps: u64) -> Transactions {
        self.ledger.transactions(transaction, Cost::once(bytes, Span::from_ps(ps)))
    }

    /// Begins a batch of copies in host memory.
    #[inline]
    pub fn copies(&self, bytes: u64) -> Transactions {
        self.works(Transaction::HostCopy, bytes, self.profile.host.copy_per_byte_ps.saturating_mul(bytes))
    }

    /// Begins a batch of the host's software before messages ([`Self::host_send`]).
    #[inline]
    pub fn sends(&self, bytes: u64) -> Transactions {
        self.works(Transaction::HostSend, bytes, self.profile.host.send_ps)
    }

    /// Begins a batch of the host's software after messages ([`Self::host_receive`]).
    #[inline]
    pub fn receives(&self, bytes: u64) -> Transactions {
        self.works(Transaction::HostReceive, bytes, self.profile.host.receive_ps)
    }

    /// Charges the next piece of a batch. Returns its end.
    #[inline(always)]
    pub fn occupy(&mut self, transactions: &mut Transactions, ready: Time) -> Time {
        transactions.cross(&mut self.node.host, ready).end
    }

    /// When the host can begin its next operation.
    #[inline]
    pub fn clock(&self) -> Time {
        self.node.clock()
    }

    /// The host's software before a message. Returns its end.
    #[inline]
    pub fn host_send(&mut self, ready: Time, bytes: u64) -> Time {
        self.occupy_host(Transaction::HostSend, ready, bytes, self.profile.host.send_ps)
    }

    /// The host's software after a message of `bytes` became visible. Returns when the program has it.
    #[inline]
    pub fn host_receive(&mut self, visible: Time, bytes: u64) -> Time {
        self.occupy_host(Transaction::HostReceive, visible, bytes, self.profile.host.receive_ps)
    }

    /// Host software that takes `ps`, where the shell knows the duration: a protocol stack. Returns its end.
    pub fn software(&mut self, transaction: Transaction, ready: Time, bytes: u64, ps: u64) -> Time {
        self.occupy_host(transaction, ready, bytes, ps)
    }

    /// A copy in host memory. Returns its end.
    pub fn host_copy(&mut self, ready: Time, bytes: u64) -> Time {
        let copy_ps = self.profile.host.copy_per_byte_ps.saturating_mul(bytes);
        self.occupy_host(Transaction::HostCopy, ready, bytes, copy_ps)
    }

    /// An interrupt: over the bus, then the handler. Returns when the host's line is raised.
    pub fn interrupt(&mut self, ready: Time) -> Time {
        // A separate line or a posted message: it does not wait for the data path, and delays no transfer.
        let mut line = Resource::new(ResourceName::InterruptLine);
        let cost = Cost::once(0, Span::from_ps(self.profile.bus.interrupt_ps));
        let raised = self.ledger.charge(Transaction::Interrupt, &mut line, ready, cost).end;
        self.occupy_host(Transaction::HostInterrupt, raised, 0, self.profile.host.interrupt_ps);
        raised
    }

    /// A machine of this card, as the profile prices it; `track` is its name in timelines.
    pub fn machine(&self, name: &str, track: &'static str) -> Machine {
        let ni = &self.profile.ni;
        let cycles = ni.machines.get(name);
        Machine {
            resource: Resource::new(ResourceName::Machine(track)),
            cycles,
            before: ni.of_millicycles(cycles.fixed_millicycles),
            pace: ni.of_millicycles(cycles.per_word_millicycles),
            closing: ni.of_millicycles(cycles.closing_millicycles),
        }
    }

    /// Charges a machine for a packet of `bytes`, in whole words.
    #[inline]
    pub fn work(&mut self, machine: &mut Machine, ready: Time, bytes: u64) -> Stage {
        let span = self.profile.ni.span(machine.cycles, bytes.div_ceil(WORD_BYTES));
        self.work_for(machine, ready, bytes, span)
    }

    /// Passes a packet of `bytes`, in whole words, through a machine. The words arrive at `come`. The machine passes
    /// the packet on as a whole, or word by word.
    ///
    /// In cut-through, the machine starts with the first word, spends its cycles before the words, and takes each word
    /// after the one before, once it has arrived. Machines and links have a constant rate within a packet. So no word
    /// arrives later than on the straight line between the first and the last word, and these two determine all times.
    /// A test compares this with a machine that counts word by word.
    ///
    /// Always inlined: callers use few of the results.
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
        // The machine may wait between words; the ledger records this wait as if it came before the packet.
        let span = before + all + closing;
        machine.resource.hold_until((last + closing).before(span));
        let stage = self.work_for(machine, come.head, bytes, span);
        Passed { stage, opened, words: Passage { head: first, tail: last }, pace }
    }

    /// Begins a batch of packets of `bytes` through a machine, each as in [`Self::pass`]. [`Self::enter_passes`]
    /// updates machine and ledger.
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
            transactions: self.ledger.transactions(Transaction::NiCycles, Cost::once(bytes, span)),
        }
    }

    /// Records a batch of packets that a machine has passed.
    pub fn enter_passes(&mut self, machine: &mut Machine, passes: &Passes) {
        machine.rest_until(passes.busy_until);
        self.ledger.enter(&passes.transactions);
    }

    #[inline(never)]
    fn pass_whole(&mut self, machine: &mut Machine, ready: Time, bytes: u64) -> Passed {
        let stage = self.work(machine, ready, bytes);
        Passed { stage, opened: stage.end, words: stage.end.into(), pace: Span::ZERO }
    }

    /// When the first and the last word of the transfer `stage` have arrived.
    #[inline]
    pub fn words_of(&self, transfer: BusTransfer, stage: &Stage) -> Passage {
        let price = transfer.price(&self.profile.bus);
        let first = stage.start + price.occupancy(WORD_BYTES) + price.latency();
        Passage { head: first.min(stage.end), tail: stage.end }
    }

    /// The earliest start of a transfer of `bytes` whose words arrive at `come`, without waits between words.
    #[inline]
    pub fn earliest(&self, transfer: BusTransfer, come: Passage, bytes: u64) -> Time {
        let price = transfer.price(&self.profile.bus);
        let last = come.tail + Span::from_ps(price.per_word_ps);
        come.head.max(last.before(price.occupancy(bytes))).min(come.tail)
    }

    /// Charges a machine for a duration that its model computed.
    #[inline(always)]
    pub fn work_for(&mut self, machine: &mut Machine, ready: Time, bytes: u64, span: Span) -> Stage {
        self.ledger.charge(Transaction::NiCycles, &mut machine.resource, ready, Cost::once(bytes, span))
    }

    /// Charges a transfer of `bytes` over the card's own bus.
    pub fn local_bus(&mut self, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(&self.profile.ni.local_bus, bytes);
        self.ledger.charge(Transaction::LocalBus, &mut self.local, ready, cost)
    }

    #[inline(always)]
    fn occupy_host(&mut self, transaction: Transaction, ready: Time, bytes: u64, ps: u64) -> Time {
        let cost = Cost::once(bytes, Span::from_ps(ps));
        self.ledger.charge_at(transaction, ResourceName::Host, &mut self.node.host, ready, cost).end
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

    const NAMES: [(BusTransfer, Transaction); 8] = [
        (BusTransfer::PioWrite, Transaction::PioWrite),
        (BusTransfer::PioRead, Transaction::PioRead),
        (BusTransfer::Doorbell, Transaction::Doorbell),
        (BusTransfer::DmaWrite, Transaction::DmaWrite),
        (BusTransfer::DmaRead, Transaction::DmaRead),
        (BusTransfer::DescriptorFetch, Transaction::DescriptorFetch),
        (BusTransfer::DescriptorWriteBack, Transaction::DescriptorWriteBack),
        (BusTransfer::DeviceToDevice, Transaction::DeviceToDevice),
    ];

    #[test]
    fn price_of_a_length_does_not_depend_on_earlier_lengths() {
        let mut interface = interface(true);
        for bytes in [0, 64, 64, 0, 8, 64, 9] {
            let ready = interface.host_clock();
            let stage = interface.transfer(BusTransfer::PioWrite, ready, bytes);
            assert_eq!(stage.released.since(stage.start), PRICE.occupancy(bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn transfers_are_recorded_by_kind_with_their_bursts() {
        for (transfer, transaction) in NAMES {
            let mut interface = interface(true);
            let stage = interface.transfer(transfer, Time::ZERO, 24);
            assert_eq!(stage.end.as_ps(), 2 * 100 + 3 * 10 + 1_000, "{transfer:?}");
            let line = interface.ledger().line(transaction);
            assert_eq!((line.count, line.bytes), (2, 24), "{transfer:?}");
            assert_eq!(interface.ledger().total(), line);
        }
    }

    #[test]
    fn directions_share_only_a_half_duplex_bus() {
        for full_duplex in [false, true] {
            let mut interface = interface(full_duplex);
            let inward = interface.transfer(BusTransfer::PioWrite, Time::ZERO, 8);
            let outward = interface.transfer(BusTransfer::DmaWrite, Time::ZERO, 8);
            let expected = if full_duplex { Time::ZERO } else { inward.released };
            assert_eq!(outward.start, expected);
        }
    }

    #[test]
    fn posted_store_frees_the_host_early_and_a_load_blocks_it() {
        let mut interface = interface(true);
        interface.transfer(BusTransfer::PioWrite, Time::ZERO, 8);
        assert_eq!(interface.host_clock().as_ps(), 110);
        interface.transfer(BusTransfer::PioRead, interface.host_clock(), 8);
        assert_eq!(interface.host_clock().as_ps(), 110 + 1_110);
        interface.transfer(BusTransfer::DmaWrite, Time::from_ps(1_000_000), 8);
        assert_eq!(interface.host_clock().as_ps(), 110 + 1_110);
    }

    /// Bytes per second of one kind of transfer, repeated.
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
    fn uncombined_stores_take_one_burst_per_word() {
        let mut interface = interface(true);
        let stage = interface.transfer(BusTransfer::PioWriteUncombined, Time::ZERO, 32);
        assert_eq!(stage.released.as_ps(), 4 * (100 + 10));
        assert_eq!(interface.ledger().line(Transaction::PioWrite).count, 4);
        assert_eq!(interface.host_clock(), stage.released, "posted");
        let off = BusPrices { pio_write: PRICE.word_by_word(), ..interface.profile().bus };
        let mut interface = HostInterface::new(Profile { bus: off, ..interface.profile().clone() });
        interface.transfer(BusTransfer::PioWrite, Time::ZERO, 32);
        assert_eq!(interface.ledger().line(Transaction::PioWrite).count, 4, "write combining is off");
    }

    /// The same machine, word by word: when the next machine has each word of `come`, and when the machine becomes
    /// idle.
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
        /// A batch of packets of one length leaves a machine as the packets do one by one, and so do words of bus
        /// transfers.
        #[test]
        fn batch_of_packets_passes_as_its_packets_one_by_one(
            [before, pace, closing, words] in prop::array::uniform4(0..12_u64),
            (is_on, is_whole) in (prop::bool::weighted(0.9), prop::bool::weighted(0.3)),
            packets in prop::collection::vec((0..60_u64, 0..90_u64), 1..12),
        ) {
            let cycles = MachineCycles {
                fixed_millicycles: before * 1_000,
                per_word_millicycles: pace * 1_000,
                closing_millicycles: closing * 1_000,
            };
            let machines = [("a", cycles)].into_iter().collect();
            let ni = NiPrices { clock_ps: 1, machines, ..NiPrices::default() };
            let dma_write = Price { burst_bytes: 0, ..PRICE };
            let bus = BusPrices { pio_write: PRICE, dma_write, ..BusPrices::default() };
            let passing = if is_whole { Passing::StoreAndForward } else { Passing::CutThrough };
            let [mut single, mut batch] = [(); 2].map(|()| {
                let mut card = HostInterface::new(Profile { ni: ni.clone(), bus, ..Profile::default() });
                card.ledger_mut().set_on(is_on);
                (card.machine("a", "machine"), card)
            });
            let bytes = words * WORD_BYTES;
            let mut passes = batch.1.passes(&batch.0, passing, bytes);
            let mut transfers = [BusTransfer::PioWrite, BusTransfer::DmaWrite]
                .map(|transfer| batch.1.transfers(transfer, bytes));
            let mut begin = 0;
            for (later, longer) in packets {
                begin += later;
                let come = Passage { head: Time::from_ps(begin), tail: Time::from_ps(begin + longer) };
                let (here, there) = (single.1.pass(&mut single.0, passing, come, bytes), passes.pass(come));
                prop_assert_eq!(
                    (here.stage, here.opened, here.words, here.pace),
                    (there.stage, there.opened, there.words, there.pace)
                );
                for transfers in &mut transfers {
                    let transfer = transfers.transfer;
                    let ready = single.1.earliest(transfer, come, bytes);
                    prop_assert_eq!(transfers.earliest(come), ready);
                    let (here, there) = (single.1.transfer(transfer, ready, bytes), batch.1.carry(transfers, ready));
                    prop_assert_eq!(here, there);
                    prop_assert_eq!(transfers.words_of(&there), single.1.words_of(transfer, &here));
                }
            }
            batch.1.enter_passes(&mut batch.0, &passes);
            transfers.iter().for_each(|transfers| batch.1.enter_transfers(transfers));
            prop_assert_eq!(alloc::format!("{batch:?}"), alloc::format!("{single:?}"));
        }

        /// Consecutive machines, packets of any length, words at any rate: first and last word match a machine that
        /// counts each word.
        #[test]
        fn first_and_last_word_determine_the_times_of_all_words(
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
    fn store_and_forward_passes_a_packet_on_at_its_end() {
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
    fn transfer_starts_at_the_earliest_instant_without_waits() {
        let interface = interface(true);
        // Two words take 100 + 20 ps, the last of them 10.
        let at = |head, tail| {
            let come = Passage { head: Time::from_ps(head), tail: Time::from_ps(tail) };
            interface.earliest(BusTransfer::DmaWrite, come, 16).as_ps()
        };
        assert_eq!((at(500, 500), at(500, 550), at(500, 1_000)), (500, 500, 890));
    }

    #[test]
    fn local_bus_crossed_four_times_limits_the_rate_of_inic() {
        // INIC, section 5: 32 bits at 33 MHz, crossed four times by each packet: 264 Mb/s, counting only data cycles.
        let local_bus = Price { per_word_ps: 2 * 30_303, ..Price::FREE };
        let ni = NiPrices { local_bus, ..NiPrices::default() };
        let mut card = HostInterface::new(Profile { ni, ..Profile::default() });
        let packet_bytes = 1_408;
        let bits_per_s = 8 * rate(&mut card, packet_bytes, |card| {
            let crossings = (0..4).map(|_| card.local_bus(Time::ZERO, packet_bytes));
            crossings.last().unwrap()
        });
        assert_eq!(bits_per_s / 1_000_000, 264);
        assert_eq!(card.ledger().line(Transaction::LocalBus).bytes, 4 * 1_000 * packet_bytes);
    }

    #[test]
    fn machine_serves_one_packet_at_a_time_and_counts_cycles() {
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
        assert_eq!(card.ledger().line(Transaction::NiCycles).waited_ps, first.end.as_ps());
        assert_eq!(processor.idle_at(), second.end);
        let mut absent = card.machine("scan", "scan");
        assert_eq!(card.work(&mut absent, Time::ZERO, 28).end, Time::ZERO, "no such machine, no time");
    }

    #[test]
    fn priority_transfer_waits_only_for_the_current_burst() {
        for full_duplex in [false, true] {
            let mut interface = interface(full_duplex);
            // 16 bytes per burst: four bursts of 120 ps each, which occupy the bus until 480.
            interface.transfer(BusTransfer::DmaRead, Time::ZERO, 64);
            interface.go_first(true);
            let first = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(10), 8);
            assert_eq!((first.start.as_ps(), first.released.as_ps()), (130, 240), "after one burst");
            let second = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(10), 8);
            assert_eq!(second.start.as_ps(), 360, "after another burst, and the first priority transfer");
            interface.go_first(false);
            let behind = interface.transfer(BusTransfer::DmaRead, Time::ZERO, 8);
            assert_eq!(behind.start.as_ps(), 480 + 2 * 110, "the interrupted transfer continues after it");
            interface.transfer(BusTransfer::DmaRead, Time::from_ps(1_000_000), 8);
            interface.go_first(true);
            let early = interface.transfer(BusTransfer::DmaWrite, Time::from_ps(5_000), 8);
            assert_eq!(early.start.as_ps(), 5_000, "the bus was free then");
            interface.go_first(false);
            let late = interface.transfer(BusTransfer::DmaRead, Time::ZERO, 8);
            assert_eq!(late.start.as_ps(), 1_000_110, "the bus was idle");
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
    fn masters_of_a_node_contend_and_each_records_its_own_wait() {
        let mut node = NodeBus::default();
        let mut masters = [interface(false), interface(false)];
        let mut end = Time::ZERO;
        for (number, master) in masters.iter_mut().enumerate() {
            master.enter(&node);
            assert_eq!(master.host_clock().as_ps(), number as u64 * 110, "the host belongs to the node");
            end = master.transfer(BusTransfer::PioWrite, Time::ZERO, 8).released;
            master.leave(&mut node);
        }
        let waited = masters.each_ref().map(|master| master.ledger().total().waited_ps);
        assert_eq!(waited, [0, 110], "the second waits until the first has left the bus");
        assert_eq!((node.clock(), node.rest()), (end, end));
        node.wait_until(Time::from_ps(1_000));
        assert_eq!(node.clock().as_ps(), 1_000);
        masters[0].enter(&node);
        assert_eq!(masters[0].host_clock(), end, "a waiting host is not busy");
    }
}
