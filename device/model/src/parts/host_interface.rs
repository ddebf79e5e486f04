//! What one master on a node's bus does there: its crossings, priced and entered in a ledger of its own.
//!
//! Host and bus are the node's ([`NodeBus`]), which other masters use as well; the card's own bus and processor are its own.

use alloc::sync::Arc;

use crate::platform::ledger::{Cost, Crossing, Ledger, Place, Resource, Stage};
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::{BusPrices, MachineCycles, Price, Profile, WORD_BYTES};
use crate::time::{Span, Time};

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
}

impl HostInterface {
    /// An idle master with these prices.
    pub fn new(profile: impl Into<Arc<Profile>>) -> Self {
        Self {
            profile: profile.into(),
            ledger: Ledger::default(),
            node: NodeBus::default(),
            local: Resource::new(Place::LocalBus),
        }
    }

    /// Takes the node's host and bus over: what is done before [`Self::leave`] is done on that node. A model calls it first in
    /// [`Nic::handle`](crate::nic::Nic::handle). (A copy and no reference: what acts on the bus is deep inside of a model, and a
    /// lifetime would have to be carried there.)
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

    /// Carries `bytes` over the bus. What the host starts keeps it busy: a posted store until the bus has taken it, a
    /// load until the data is back.
    #[inline]
    pub fn transfer(&mut self, transfer: BusTransfer, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(transfer.price(&self.profile.bus), bytes);
        let is_outward = transfer.is_outward() && self.profile.bus.full_duplex;
        let (place, direction) = if is_outward {
            (Place::BusOutward, &mut self.node.outward)
        } else {
            (Place::BusInward, &mut self.node.inward)
        };
        let stage = self.ledger.charge_at(transfer.crossing(), place, direction, ready, cost);
        match transfer {
            BusTransfer::PioWrite | BusTransfer::PioWriteUncombined | BusTransfer::Doorbell => {
                self.node.host = self.node.host.max(stage.released);
            }
            BusTransfer::PioRead => self.node.host = self.node.host.max(stage.end),
            _ => {}
        }
        stage
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
        let cycles = self.profile.ni.machines.get(name);
        Machine { resource: Resource::new(Place::Machine(track)), cycles }
    }

    /// Lets a machine work on a packet of `bytes`, in whole words.
    #[inline]
    pub fn work(&mut self, machine: &mut Machine, ready: Time, bytes: u64) -> Stage {
        let span = self.profile.ni.span(machine.cycles, bytes.div_ceil(WORD_BYTES));
        self.work_for(machine, ready, bytes, span)
    }

    /// Lets a machine work for as long as its model has worked out.
    #[inline]
    pub fn work_for(&mut self, machine: &mut Machine, ready: Time, bytes: u64, span: Span) -> Stage {
        self.ledger.charge(Crossing::NiCycles, &mut machine.resource, ready, Cost::once(bytes, span))
    }

    /// Carries `bytes` once over the card's own bus.
    pub fn local_bus(&mut self, ready: Time, bytes: u64) -> Stage {
        let cost = cost_of(&self.profile.ni.local_bus, bytes);
        self.ledger.charge(Crossing::LocalBus, &mut self.local, ready, cost)
    }

    fn occupy_host(&mut self, crossing: Crossing, ready: Time, bytes: u64, ps: u64) -> Time {
        let cost = Cost::once(bytes, Span::from_ps(ps));
        self.ledger.charge_at(crossing, Place::Host, &mut self.node.host, ready, cost).end
    }
}

const fn cost_of(price: &Price, bytes: u64) -> Cost {
    Cost { count: price.bursts(bytes), bytes, occupancy: price.occupancy(bytes), latency: price.latency() }
}

#[cfg(test)]
mod tests {
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
        let send = MachineCycles { fixed_millicycles: 80_000, per_word_millicycles: 500 };
        let receive = MachineCycles { fixed_millicycles: 10_000, per_word_millicycles: 0 };
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
