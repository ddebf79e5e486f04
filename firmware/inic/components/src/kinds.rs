//! The kinds of components ("A Configurable Network Protocol for Cluster Based Communications", section 4), in one
//! table, [`KINDS`]: name, block, ports, parameters, and resources of the card's two FPGAs.
//!
//! The paper gives the components, their functions and interfaces. The names of ports and parameters, and the limits,
//! are this project's choice.

mod table;

use alloc::format;
use alloc::string::{String, ToString as _};

pub use table::KINDS;

/// A kind of component. Images contain its number, so new kinds are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Source of the host's messages.
    HostSend,
    /// Destination of messages for the host.
    HostReceive,
    /// Source of packets from the network.
    WireIn,
    /// Destination of packets to the network.
    WireOut,
    /// Cuts messages into packets, numbers them, and retransmits them until they are acknowledged.
    Genp,
    /// Cuts messages into packets, without retransmission.
    GenpUnreliable,
    /// Generates acknowledgements.
    BuildAcks,
    /// Detects that a node has been silent for too long.
    Timer,
    /// Finds packets that have arrived before.
    DupFind,
    /// Finds packets that are out of order.
    OrderPkts,
    /// Drops the data of packets that checking components reject.
    DropPkt,
    /// Stores early packets until the earlier ones have arrived.
    SelectiveRepeat,
    /// Decides which messages interrupt the host.
    Mitigate,
    /// Forms packets: it writes the header.
    Xmit,
    /// Passes at most one packet in each interval.
    RateControl,
    /// Moves packets from the network interface into the card's memory.
    RcvPkt,
    /// Drops damaged packets.
    BadPktFilter,
    /// Splits packets: it reads the header.
    SplitPacket,
    /// Closes an unused port.
    Stub,
}

impl Kind {
    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &KINDS[self as usize]
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its number in images.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        KINDS.get(usize::from(code)).map(|row| row.kind)
    }
}

/// The table's row of a kind.
#[derive(Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Its name in sources.
    pub name: &'static str,
    /// The block that it belongs to.
    pub block: Block,
    /// Its ports; connections name them by index.
    pub ports: &'static [Port],
    /// Its parameters.
    pub parameters: &'static [Setting],
    /// Its FPGA resources.
    pub resources: Resources,
    /// Source of the resource numbers.
    pub source: Source,
    /// How many of it an assembly must have.
    pub number: Number,
}

impl Row {
    /// The index of the input or output with this name; several kinds have both.
    #[must_use]
    pub fn port(&self, name: &str, direction: Direction) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name && port.leads(direction))
    }

    /// The index of a parameter.
    #[must_use]
    pub fn place_of(&self, parameter: Parameter) -> Option<usize> {
        self.parameters.iter().position(|setting| setting.parameter == parameter)
    }
}

/// A group of components that is replaced as a whole (section 4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block {
    /// Forming packets.
    A,
    /// Flow control.
    B,
    /// Receiving packets.
    C,
    /// None: the edges of an assembly to host and network, and stubs.
    None,
}

/// How many components of a kind an assembly must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Exactly one.
    One,
    /// Any number.
    Any,
}

/// Type of a port's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortType {
    /// A message of the host.
    Message,
    /// A packet's data, towards the host.
    Data,
    /// A packet.
    Packet,
    /// A packet's header.
    Header,
    /// Whether to drop a packet's data.
    Verdict,
    /// Location, length and destination of a packet's data.
    Pinfo,
    /// An acknowledgement, and whether it needs a separate packet.
    Ack,
    /// The number and destination of a sent packet.
    Next,
    /// The node whose timer must stop.
    Disable,
    /// The node whose timer has expired.
    Expiry,
    /// Any type, for stubs.
    Any,
}

impl PortType {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Data => "data",
            Self::Packet => "packet",
            Self::Header => "header",
            Self::Verdict => "verdict",
            Self::Pinfo => "pinfo",
            Self::Ack => "ack",
            Self::Next => "next",
            Self::Disable => "disable",
            Self::Expiry => "expiry",
            Self::Any => "any",
        }
    }

    /// Whether an output of this type can be connected to an input of the other type.
    #[must_use]
    pub fn fits(self, other: Self) -> bool {
        self == other || self == Self::Any || other == Self::Any
    }
}

/// Direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the component.
    In,
    /// Out of it.
    Out,
    /// Either, for stubs.
    Either,
}

/// A port.
#[derive(Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in sources.
    pub name: &'static str,
    /// Its direction.
    pub direction: Direction,
    /// Its type.
    pub carries: PortType,
    /// Whether a stub may close it. Otherwise the component cannot work without it.
    pub may_be_closed: bool,
    /// Whether several outputs may be connected to it.
    pub takes_many: bool,
}

impl Port {
    /// Whether it can be used in this direction.
    #[must_use]
    pub fn leads(&self, direction: Direction) -> bool {
        self.direction == direction || self.direction == Direction::Either
    }
}

/// A parameter of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    /// Bytes of a message in a packet.
    PacketBytes,
    /// Max unacknowledged packets to a node.
    OutstandingLimit,
    /// Whether to acknowledge the last packet of a message at once.
    AcknowledgeLast,
    /// Whether each packet begins with a word that gives its message and position.
    Placement,
    /// Packets after which an acknowledgement must be sent.
    Threshold,
    /// Silence after which a timer expires.
    TimeoutUs,
    /// Consecutive expiries after which a node counts as gone; 0: never.
    Retries,
    /// Number of packets after a missing one that are remembered.
    Beyond,
    /// What counts as out of order: a [`Policy`].
    Policy,
    /// Max packets of a node that wait for an earlier one.
    BufferPackets,
    /// Bytes after which the host is interrupted; 0: disabled.
    RcvChunkSize,
    /// Minimum length of a message that interrupts; 0: disabled.
    MinMessageBytes,
    /// Whether the end of a message interrupts for the bytes since the last interrupt.
    AtEnd,
    /// The node whose messages interrupt, or [`ANY_NODE`].
    Source,
    /// The format of the header: a [`Format`].
    Format,
    /// Time between two packets.
    IntervalUs,
    /// Card memory for packets that have arrived.
    MemoryBytes,
}

impl Parameter {
    /// Its name in sources.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketBytes => "packet_bytes",
            Self::OutstandingLimit => "outstanding_limit",
            Self::AcknowledgeLast => "acknowledge_last",
            Self::Placement => "placement",
            Self::Threshold => "threshold",
            Self::TimeoutUs => "timeout_us",
            Self::Retries => "retries",
            Self::Beyond => "beyond",
            Self::Policy => "policy",
            Self::BufferPackets => "buffer_packets",
            Self::RcvChunkSize => "rcv_chunk_size",
            Self::MinMessageBytes => "min_message_bytes",
            Self::AtEnd => "at_end",
            Self::Source => "source",
            Self::Format => "format",
            Self::IntervalUs => "interval_us",
            Self::MemoryBytes => "memory_bytes",
        }
    }
}

/// A parameter of a kind. Every value is a number: a flag is 0 or 1, a choice is an index into its names.
#[derive(Debug)]
pub struct Setting {
    /// The parameter.
    pub parameter: Parameter,
    /// Its range.
    pub values: Values,
    /// Its default.
    pub default: u32,
}

/// Range of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A number in a range, and a multiple of something.
    Number {
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
        /// Divisor of all valid values.
        step: u32,
    },
    /// Yes or no.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A node, or [`ANY_NODE`].
    Node,
}

impl Values {
    /// A value in source notation.
    #[must_use]
    pub fn text(self, value: u32) -> String {
        match self {
            Self::Number { .. } => value.to_string(),
            Self::Flag => (value != 0).to_string(),
            Self::Choice(words) => format!("\"{}\"", words.get(value as usize).unwrap_or(&"?")),
            Self::Node if value == ANY_NODE => "\"any\"".to_string(),
            Self::Node => value.to_string(),
        }
    }

    /// Whether the number is valid.
    #[must_use]
    pub fn contain(self, value: u32) -> bool {
        match self {
            Self::Number { least, most, step } => {
                (least..=most).contains(&value) && value.is_multiple_of(step)
            }
            Self::Flag => value < 2,
            Self::Choice(words) => (value as usize) < words.len(),
            Self::Node => value < MAX_NODES || value == ANY_NODE,
        }
    }
}

/// Max nodes that the larger of the two formats can name.
pub const MAX_NODES: u32 = 1 << 12;

/// Bits of the mask in which a header acknowledges packets after a missing one (section 3).
pub const ACK_MASK_BITS: u32 = 32;

/// Max message length of any card.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 30;

/// Bytes of the word that gives the position of a packet's data.
pub const PLACEMENT_BYTES: u32 = 8;

/// Max bytes after a header: its length has nine bits, in words of 32 bits (section 3).
pub const MAX_DATA_BYTES: u32 = 511 * 4;

/// Instead of a node: all nodes.
pub const ANY_NODE: u32 = 65_535;

/// Format of the header; the paper has two (section 3). Both have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 24 bits of sequence number, 4 bits for each node.
    Seq24Node4,
    /// 8 bits of sequence number, 12 bits for each node.
    Seq8Node12,
}

impl Format {
    /// The format with this value of [`Parameter::Format`].
    #[must_use]
    pub const fn of(value: u32) -> Self {
        if value == 0 { Self::Seq24Node4 } else { Self::Seq8Node12 }
    }

    /// Bits of a packet's number.
    #[must_use]
    pub const fn sequence_bits(self) -> u32 {
        match self {
            Self::Seq24Node4 => 24,
            Self::Seq8Node12 => 8,
        }
    }

    /// Bits of a node's number.
    #[must_use]
    pub const fn node_bits(self) -> u32 {
        match self {
            Self::Seq24Node4 => 4,
            Self::Seq8Node12 => 12,
        }
    }
}

/// Which packets `order_pkts` drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All packets except the next one, with their headers: they are retransmitted.
    GoBackN,
    /// Packets that are older than the newest one.
    Newer,
}

impl Policy {
    /// The policy with this value of [`Parameter::Policy`].
    #[must_use]
    pub const fn of(value: u32) -> Self {
        if value == 0 { Self::GoBackN } else { Self::Newer }
    }
}

/// FPGA resources of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Flip-flops.
    pub flip_flops: u32,
    /// Look-up tables with four inputs.
    pub luts: u32,
}

/// Number of flip-flops, and of look-up tables, of the prototype's two XC4085XLA (Table 1: its shares are of this
/// number).
pub const CARD_RESOURCES: u32 = 12_544;

impl Resources {
    /// The shares of the card, in hundredths of a percent: flip-flops and look-up tables.
    #[must_use]
    pub fn shares(self) -> [u32; 2] {
        [self.flip_flops, self.luts].map(|number| (number * 10_000 + CARD_RESOURCES / 2) / CARD_RESOURCES)
    }
}

/// A row of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name in the paper.
    pub name: &'static str,
    /// Its resources.
    pub resources: Resources,
    /// The printed shares, in hundredths of a percent. Those of CONF3's and CONF4's look-up tables do not match the
    /// numbers: 30.17 and 31.35 %.
    pub printed: [u32; 2],
}

/// Table 1.
pub const TABLE_1: [Configuration; 4] = [
    configuration("CONF1", 1643, 1977, [1310, 1576]),
    configuration("CONF2", 2165, 3380, [1726, 2695]),
    configuration("CONF3", 2534, 3784, [2020, 3015]),
    configuration("CONF4", 2650, 3933, [2113, 3114]),
];

const fn configuration(name: &'static str, flip_flops: u32, luts: u32, printed: [u32; 2]) -> Configuration {
    Configuration { name, resources: Resources { flip_flops, luts }, printed }
}

/// Source of the resource numbers of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The difference of two rows of Table 1.
    Derived,
    /// Part of a row, or of such a difference, that several components share; this project chose the division.
    Allotted,
    /// This project's estimate: the paper has no such component, or did not build it.
    Own,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_kinds_numbers() {
        for (place, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, place, "{}", row.name);
            assert_eq!(
                (Kind::named(row.name), Kind::of_code(row.kind.code())),
                (Some(row.kind), Some(row.kind))
            );
            for (place, port) in row.ports.iter().enumerate() {
                assert_eq!(row.port(port.name, port.direction), Some(place), "{}.{}", row.name, port.name);
            }
            for setting in row.parameters {
                let name = setting.parameter.name();
                assert!(setting.values.contain(setting.default), "{}.{name}", row.name);
            }
        }
        assert_eq!(Kind::of_code(KINDS.len() as u8), None);
    }
}
