//! Each model declares its values as one table ([`crate::nic::registry::Model::host_values`]). The fault
//! [`crate::nic::fault_injector::Fault::InvalidValue`] sets one of them out of its range. So the same code finds a
//! driver that trusts the device, with every model.

use niclab_abi::control::{COUNTERS_PER_REPLY, MAX_COUNTERS, OP_COUNTERS, OP_PORT_OPEN};
use niclab_abi::firmware::OP_FIRMWARE_LOAD;
use niclab_abi::receive::{REFUSED_MEMORY, SLICE_NODE_SHIFT, SLICE_PORT_SHIFT};
use niclab_abi::region::OP_REGION_OPEN;

/// A value that a card gives its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostValue {
    /// What it is, in the words of the manual.
    pub name: &'static str,
    /// What contains it.
    pub location: ValueLocation,
    /// Its lowest bit, in the word or in the answer's body.
    pub first_bit: u32,
    /// Number of bits.
    pub bits: u32,
    /// The least value that is out of its range.
    pub bound: Bound,
}

/// Tables of values: those of every card, those of parts that several models share, and those of one model.
pub type HostValues = &'static [&'static [HostValue]];

/// What contains a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLocation {
    /// A completion: this many words before the last word, which has the status.
    Completion(usize),
    /// A write of counts of `words` words.
    Counts {
        /// The word.
        word: usize,
        /// Words of the write.
        words: usize,
    },
    /// The body of a successful answer to this control request.
    Answer(u32),
    /// The status of the answer to any control request.
    AnswerStatus,
    /// The length that the used ring has for an answer or an event.
    UsedLength,
    /// The cause of an event.
    EventCause,
    /// The port of an event.
    EventPort,
}

/// The least value that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This one, for every card.
    Fixed(u64),
    /// The number of the cluster's nodes.
    Nodes,
    /// The number of the card's ports.
    Ports,
    /// One byte more than the longest message.
    MessageBytes,
    /// Every value but the one that the host gave: the card returns it unchanged, and a driver must not use it as an
    /// address.
    Unknown,
}

/// Limits of one card, by which [`Bound`]s become numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardLimits {
    /// Nodes of the cluster.
    pub nodes: u64,
    /// Ports of the card.
    pub ports: u64,
    /// The longest message, in bytes.
    pub max_message_bytes: u64,
}

impl HostValue {
    /// A value of these bits.
    pub const fn new(
        name: &'static str,
        location: ValueLocation,
        first_bit: u32,
        bits: u32,
        bound: Bound,
    ) -> Self {
        Self { name, location, first_bit, bits, bound }
    }

    /// The word of an answer's body that contains it. No value crosses two words.
    pub const fn word(&self) -> usize {
        (self.first_bit / u64::BITS) as usize
    }

    /// The value in its word.
    pub const fn read(&self, word: u64) -> u64 {
        (word >> (self.first_bit % u64::BITS)) & self.mask()
    }

    /// Its word with another value in it.
    pub const fn write(&self, word: u64, value: u64) -> u64 {
        let shift = self.first_bit % u64::BITS;
        (word & !(self.mask() << shift)) | (value & self.mask()) << shift
    }

    const fn mask(&self) -> u64 {
        if self.bits >= u64::BITS { u64::MAX } else { (1 << self.bits) - 1 }
    }

    /// Number of values out of range to choose from.
    pub const CHOICES: usize = 4;

    /// A value out of range in place of `valid`; none if all values of these bits are valid.
    pub fn invalid(&self, valid: u64, choice: usize, limits: &CardLimits) -> Option<u64> {
        let mask = self.mask();
        let least = match self.bound {
            Bound::Fixed(least) => least,
            Bound::Nodes => limits.nodes,
            Bound::Ports => limits.ports,
            Bound::MessageBytes => limits.max_message_bytes.saturating_add(1),
            // Some low, some high, and none equal to the valid one.
            Bound::Unknown => return Some(valid ^ mask ^ (mask >> (8 * choice as u32 + 1).min(63))),
        };
        if least > mask {
            return None;
        }
        // The first value out of range; one further (an index that is scaled); the middle of the bits (a sign); all
        // bits set.
        Some(match choice % Self::CHOICES {
            0 => least,
            1 => least.saturating_mul(2).min(mask),
            2 => least.max(mask ^ mask >> 1),
            _ => mask,
        })
    }
}

const fn status_line(name: &'static str, word: usize, bound: u64) -> HostValue {
    HostValue::new(name, ValueLocation::Counts { word, words: 8 }, 0, 64, Bound::Fixed(bound))
}

/// More than any program ever posts, sends or counts.
pub const NEVER_COUNTED: u64 = 1 << 40;

/// Values that every card gives its driver.
pub const OF_EVERY_CARD: &[HostValue] = &[
    HostValue::new("answer status", ValueLocation::AnswerStatus, 0, 32, Bound::Fixed(64)),
    HostValue::new("used length", ValueLocation::UsedLength, 0, 32, Bound::Unknown),
    HostValue::new("event cause", ValueLocation::EventCause, 0, 32, Bound::Fixed(64)),
    HostValue::new("event port", ValueLocation::EventPort, 0, 32, Bound::Ports),
    HostValue::new(
        "counters",
        ValueLocation::Answer(OP_COUNTERS),
        0,
        32,
        Bound::Fixed(MAX_COUNTERS as u64 + 1),
    ),
    HostValue::new(
        "counters of an answer",
        ValueLocation::Answer(OP_COUNTERS),
        32,
        32,
        Bound::Fixed(COUNTERS_PER_REPLY as u64 + 1),
    ),
];

/// Values of a card with pages: the opened port, and its status line.
pub const OF_PORTS: &[HostValue] = &[
    HostValue::new("opened port", ValueLocation::Answer(OP_PORT_OPEN), 0, 32, Bound::Ports),
    status_line("launched", 0, NEVER_COUNTED),
    status_line("notified", 1, NEVER_COUNTED),
    status_line("acknowledged", 2, NEVER_COUNTED),
    status_line("sent", 3, NEVER_COUNTED),
    status_line("refusal", 4, REFUSED_MEMORY + 1),
    status_line("refused", 5, NEVER_COUNTED),
];

/// Values of a card with registered memory.
pub const OF_REGIONS: &[HostValue] =
    &[HostValue::new("region", ValueLocation::Answer(OP_REGION_OPEN), 0, 32, Bound::Unknown)];

/// Values of a card that takes firmware.
pub const OF_FIRMWARE: &[HostValue] = &[HostValue::new(
    "firmware words",
    ValueLocation::Answer(OP_FIRMWARE_LOAD),
    0,
    32,
    Bound::Fixed(1 << 20),
)];

/// Values in the status word of a slice.
pub const OF_SLICES: &[HostValue] = &[
    HostValue::new("payload words", ValueLocation::Completion(0), 0, 4, Bound::Fixed(9)),
    HostValue::new("source port", ValueLocation::Completion(0), SLICE_PORT_SHIFT, 8, Bound::Ports),
    HostValue::new("source node", ValueLocation::Completion(0), SLICE_NODE_SHIFT, 16, Bound::Nodes),
];

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CardLimits = CardLimits { nodes: 2, ports: 8, max_message_bytes: 64 };

    #[test]
    fn invalid_values_begin_at_the_bound_and_fit_the_bits() {
        let words = OF_SLICES[0];
        let values: [_; 4] = core::array::from_fn(|choice| words.invalid(3, choice, &LIMITS));
        assert_eq!(values, [9, 15, 9, 15].map(Some));
        let node = OF_SLICES[2];
        assert_eq!(node.invalid(0, 0, &LIMITS), Some(2));
        assert_eq!(
            node.invalid(0, 0, &CardLimits { nodes: 1 << 16, ..LIMITS }),
            None,
            "all values are node numbers"
        );
    }
}
