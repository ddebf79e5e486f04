//! A platform's prices: the cost of each transaction on one testbed.
//!
//! Plain numbers: picoseconds, bytes, thousandths of a cycle. Other modules read them from a file, and check their
//! sources and plausibility. Pricing saturates and never fails, for any numbers.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::time::Span;

/// Bytes of a bus word in all prices. Ours: prices are for words of 64 bits.
pub const WORD_BYTES: u64 = 8;

/// The price of a transaction on a resource. A transaction of `n` words in `b` bursts occupies the resource for `b *
/// fixed_ps + n * per_word_ps`, and takes effect `latency_ps` after that. The latency is pipelined: it delays this
/// transaction and no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Pipelined delay, picoseconds: once for each transaction, occupies nothing.
    pub latency_ps: u64,
    /// Arbitration, address phase or packet header, picoseconds for each burst.
    pub fixed_ps: u64,
    /// Data phase, picoseconds for each word of 64 bits.
    pub per_word_ps: u64,
    /// Max bytes of one burst; longer transactions are split. Zero: unlimited.
    pub burst_bytes: u64,
}

impl Price {
    /// No cost: for resources that a platform does not have.
    pub const FREE: Self = Self { latency_ps: 0, fixed_ps: 0, per_word_ps: 0, burst_bytes: 0 };

    /// Number of bursts for `bytes`: at least one.
    pub const fn bursts(&self, bytes: u64) -> u64 {
        if self.burst_bytes == 0 || bytes <= self.burst_bytes { 1 } else { bytes.div_ceil(self.burst_bytes) }
    }

    /// How long `bytes` occupy the resource.
    pub const fn occupancy(&self, bytes: u64) -> Span {
        let fixed = self.fixed_ps.saturating_mul(self.bursts(bytes));
        let data = self.per_word_ps.saturating_mul(bytes.div_ceil(WORD_BYTES));
        Span::from_ps(fixed.saturating_add(data))
    }

    /// This price with bursts of at most one word.
    #[must_use]
    pub const fn word_by_word(self) -> Self {
        Self { burst_bytes: WORD_BYTES, ..self }
    }

    /// The pipelined delay.
    pub const fn latency(&self) -> Span {
        Span::from_ps(self.latency_ps)
    }
}

/// The host's own overheads: processor time, charged only to the host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostPrices {
    /// Software before the first store or the doorbell of a message, picoseconds per message.
    pub send_ps: u64,
    /// Software from the moment a message is visible in memory until the program has it, picoseconds per message.
    pub receive_ps: u64,
    /// From the interrupt line to the handler's end, picoseconds per interrupt.
    pub interrupt_ps: u64,
    /// One copy in host memory, picoseconds per byte.
    pub copy_per_byte_ps: u64,
}

/// The I/O bus between host and NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusPrices {
    /// Whether the two directions are separate resources (HyperTransport, PCI Express) or one (PCI).
    pub full_duplex: bool,
    /// Programmed-I/O write, host to NIC, into a region with write combining. Its burst limit is the size of the
    /// write-combining buffer; a limit of one word disables combining.
    pub pio_write: Price,
    /// Programmed-I/O write into a region without write combining, such as registers.
    pub pio_write_uncombined: Price,
    /// Programmed-I/O read: the host waits until it is complete.
    pub pio_read: Price,
    /// A store whose only purpose is to notify the NIC of work.
    pub doorbell: Price,
    /// DMA write, NIC to host memory.
    pub dma_write: Price,
    /// DMA read, NIC from host memory: the NIC waits until it is complete.
    pub dma_read: Price,
    /// DMA read of descriptors.
    pub descriptor_fetch: Price,
    /// DMA write of descriptors.
    pub descriptor_write_back: Price,
    /// A write by one card on the bus into the memory of another.
    pub device_to_device: Price,
    /// From the NIC's decision to the host's interrupt line, picoseconds.
    pub interrupt_ps: u64,
}

/// Cycles of one state machine of the NIC for a packet of `n` words (payload and tag): `fixed_millicycles + n *
/// per_word_millicycles + closing_millicycles`. The machine is busy for this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCycles {
    /// Thousandths of a cycle for each packet, before its first word.
    pub fixed_millicycles: u64,
    /// Thousandths of a cycle for each word of 64 bits.
    pub per_word_millicycles: u64,
    /// Thousandths of a cycle for each packet, after its last word: the next machine does not wait for them.
    pub closing_millicycles: u64,
}

/// When a machine passes a packet on to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// Once it has processed the whole packet.
    #[default]
    StoreAndForward,
    /// Word by word.
    CutThrough,
}

impl MachineCycles {
    /// No cycles: for a machine that a platform does not have.
    pub const NONE: Self = Self { fixed_millicycles: 0, per_word_millicycles: 0, closing_millicycles: 0 };
}

/// The prices of a card's machines, by the names that its model gives them: the state machines of an FPGA, components
/// of a protocol, scans of channels, firmware for a message. A platform may price more machines than one model has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines(BTreeMap<String, MachineCycles>);

impl Machines {
    /// The cycles of the machine with this name; [`MachineCycles::NONE`] if the platform does not have it.
    pub fn get(&self, name: &str) -> MachineCycles {
        self.0.get(name).copied().unwrap_or(MachineCycles::NONE)
    }

    /// Whether the platform prices a machine with this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl<S: Into<String>> FromIterator<(S, MachineCycles)> for Machines {
    fn from_iter<I: IntoIterator<Item = (S, MachineCycles)>>(machines: I) -> Self {
        Self(machines.into_iter().map(|(name, cycles)| (name.into(), cycles)).collect())
    }
}

/// The NIC's own logic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NiPrices {
    /// One cycle, picoseconds.
    pub clock_ps: u64,
    /// Its machines and the firmware of its processor, by name.
    pub machines: Machines,
    /// When one machine passes a packet on to the next, for models that support both ways.
    pub passing: Passing,
    /// The card's own bus, between its memory, its processor and its units. Data may cross it more than once.
    pub local_bus: Price,
}

impl NiPrices {
    /// How long a machine processes a packet of `words` words, rounded up to the picosecond.
    pub const fn span(&self, machine: MachineCycles, words: u64) -> Span {
        let millicycles = machine
            .fixed_millicycles
            .saturating_add(machine.per_word_millicycles.saturating_mul(words))
            .saturating_add(machine.closing_millicycles);
        self.of_millicycles(millicycles)
    }

    /// Duration of `millicycles` thousandths of a cycle, rounded up to the picosecond.
    pub const fn of_millicycles(&self, millicycles: u64) -> Span {
        Span::from_ps(millicycles.saturating_mul(self.clock_ps).div_ceil(1_000))
    }
}

/// The network's own prices. Bandwidth and latency of a link belong to the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkPrices {
    /// From the first bit into an idle switch to the first bit out of it, picoseconds.
    pub switch_fall_through_ps: u64,
}

/// All prices of one platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The host processor.
    pub host: HostPrices,
    /// The bus.
    pub bus: BusPrices,
    /// The NIC.
    pub ni: NiPrices,
    /// The network.
    pub network: NetworkPrices,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_transactions_are_split_into_bursts() {
        let price = Price { latency_ps: 7, fixed_ps: 100, per_word_ps: 10, burst_bytes: 32 };
        assert_eq!(price.bursts(0), 1);
        assert_eq!(price.bursts(32), 1);
        assert_eq!(price.bursts(33), 2);
        assert_eq!(price.occupancy(80), Span::from_ps(3 * 100 + 10 * 10));
    }

    #[test]
    fn absurd_prices_saturate() {
        let price = Price { latency_ps: u64::MAX, fixed_ps: u64::MAX, per_word_ps: u64::MAX, burst_bytes: 1 };
        assert_eq!(price.occupancy(u64::MAX), Span::from_ps(u64::MAX));
    }
}
