//! The components there are ("A Configurable Network Protocol for Cluster Based Communications", section 4), in one
//! table, [`KINDS`]: name, block, ports, parameters, and what each takes of the card's two FPGAs.
//!
//! The paper gives the components, what each does and which interfaces it has; the names of ports and parameters, and
//! the limits, are this project's choice.

mod table;

use alloc::format;
use alloc::string::{String, ToString as _};

pub use table::KINDS;

/// A kind of component. Its number stands in images: a new one is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Where messages of the host come from.
    HostSend,
    /// Where the host's messages go.
    HostReceive,
    /// Where packets come from the network.
    WireIn,
    /// Where packets go to the network.
    WireOut,
    /// Makes packets of messages, numbers them, and sends them again until they are acknowledged.
    Genp,
    /// Makes packets of messages, and forgets them.
    GenpUnreliable,
    /// Says which packets have arrived.
    BuildAcks,
    /// Says when nothing was sent to a node for long.
    Timer,
    /// Finds packets that have arrived before.
    DupFind,
    /// Finds packets that are out of order.
    OrderPkts,
    /// Drops the data of the packets that others found.
    DropPkt,
    /// Keeps packets that are early until those before them are there.
    SelectiveRepeat,
    /// Says of which messages the host is interrupted.
    Mitigate,
    /// Forms packets: it knows the header.
    Xmit,
    /// Lets one packet pass in each interval.
    RateControl,
    /// Takes packets from the network interface into the card's memory.
    RcvPkt,
    /// Drops packets that were damaged.
    BadPktFilter,
    /// Takes packets apart: it knows the header.
    SplitPacket,
    /// Closes a port that is not used.
    Stub,
}

impl Kind {
    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &KINDS[self as usize]
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its number in images.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind of this number.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        KINDS.get(usize::from(code)).map(|row| row.kind)
    }
}

/// All that is known of a kind.
#[derive(Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Its name in sources.
    pub name: &'static str,
    /// The block that it belongs to.
    pub block: Block,
    /// Its ports; connections name them by their places in here.
    pub ports: &'static [Port],
    /// Its parameters.
    pub parameters: &'static [Setting],
    /// What it takes of the FPGAs.
    pub resources: Resources,
    /// Where that number comes from.
    pub source: Source,
    /// How many of it an assembly must have.
    pub number: Number,
}

impl Row {
    /// The place of the input or output of this name; several kinds have both.
    #[must_use]
    pub fn port(&self, name: &str, direction: Direction) -> Option<usize> {
        self.ports.iter().position(|port| port.name == name && port.leads(direction))
    }

    /// The place of a parameter.
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
    /// None: the edges, where an assembly meets host and network, and stubs.
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

/// What passes through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortType {
    /// A message of the host.
    Message,
    /// A packet's data, on its way to the host.
    Data,
    /// A packet.
    Packet,
    /// A packet's header.
    Header,
    /// Whether a packet's data is to be dropped.
    Verdict,
    /// Where a packet's data is, how long it is, and where it goes.
    Pinfo,
    /// What is acknowledged, and whether by a packet of its own.
    Ack,
    /// The number of the packet that is sent next, and where it goes.
    Next,
    /// The node whose timer is to stop.
    Disable,
    /// The node whose timer expired.
    Expiry,
    /// Anything: a stub's.
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

    /// Whether an output of this type can lead to an input of the other.
    #[must_use]
    pub fn fits(self, other: Self) -> bool {
        self == other || self == Self::Any || other == Self::Any
    }
}

/// Which way a port leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the component.
    In,
    /// Out of it.
    Out,
    /// Either: a stub's.
    Either,
}

/// A port.
#[derive(Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in sources.
    pub name: &'static str,
    /// Which way it leads.
    pub direction: Direction,
    /// What passes.
    pub carries: PortType,
    /// Whether a stub may close it. Without that, what the component is there for does not happen.
    pub may_be_closed: bool,
    /// Whether several outputs may lead to it.
    pub takes_many: bool,
}

impl Port {
    /// Whether it can be used in this direction.
    #[must_use]
    pub fn leads(&self, direction: Direction) -> bool {
        self.direction == direction || self.direction == Direction::Either
    }
}

/// What a component is set by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    /// Bytes of a message in a packet.
    PacketBytes,
    /// Packets that may be sent to a node before the first of them is acknowledged.
    OutstandingLimit,
    /// Whether the last packet of a message is acknowledged at once.
    AcknowledgeLast,
    /// Whether each packet begins with a word that says where it belongs.
    Placement,
    /// Packets after which an acknowledgement is forced.
    Threshold,
    /// Silence after which a timer expires.
    TimeoutUs,
    /// Expiries in a row after which a node counts as gone; 0: never.
    Retries,
    /// Packets behind the consecutive ones that are remembered to have arrived.
    Beyond,
    /// What counts as out of order: a [`Policy`].
    Policy,
    /// Packets of a node that wait for one before them.
    BufferPackets,
    /// Bytes after which the host is interrupted; 0: no such rule.
    RcvChunkSize,
    /// Bytes from which on a message interrupts; 0: no such rule.
    MinMessageBytes,
    /// Whether a message's end interrupts where bytes are pooled.
    AtEnd,
    /// The node whose messages interrupt, or [`ANY_NODE`].
    Source,
    /// The header's form: a [`Format`].
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

/// A parameter of a kind. Every value is a number: a flag is 0 or 1, a choice its place in the list of names.
#[derive(Debug)]
pub struct Setting {
    /// Which.
    pub parameter: Parameter,
    /// What it may be.
    pub values: Values,
    /// What it is where nothing is said.
    pub default: u32,
}

/// What the values of a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A number within limits, and a multiple of something.
    Number {
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
        /// What it is a multiple of.
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
    /// A value as sources have it.
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

    /// Whether the number is one of them.
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

/// Nodes that the larger of the two formats can name.
pub const MAX_NODES: u32 = 1 << 12;

/// Bits of the mask in which a header acknowledges packets behind the consecutive ones (section 3).
pub const ACK_MASK_BITS: u32 = 32;

/// The longest message that any card takes.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 30;

/// Bytes of the word that says where a packet's data belongs.
pub const PLACEMENT_BYTES: u32 = 8;

/// Most bytes behind a header: its length has nine bits, in words of 32 bits (section 3).
pub const MAX_DATA_BYTES: u32 = 511 * 4;

/// In the place of a node: every one.
pub const ANY_NODE: u32 = 65_535;

/// The form of the header, of which the paper has two (section 3). Both take the same room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 24 bits of sequence, 4 of each node.
    Seq24Node4,
    /// 8 bits of sequence, 12 of each node.
    Seq8Node12,
}

impl Format {
    /// The form that a value of [`Parameter::Format`] means.
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

/// What `order_pkts` drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Whatever is not the next packet, its header as well: it is sent again.
    GoBackN,
    /// What is older than the newest packet.
    Newer,
}

impl Policy {
    /// The policy that a value of [`Parameter::Policy`] means.
    #[must_use]
    pub const fn of(value: u32) -> Self {
        if value == 0 { Self::GoBackN } else { Self::Newer }
    }
}

/// What a component takes of the FPGAs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Flip-flops.
    pub flip_flops: u32,
    /// Look-up tables with four inputs.
    pub luts: u32,
}

/// Flip-flops, and as many look-up tables, of the prototype's two XC4085XLA (Table 1: its shares are of this number).
pub const CARD_RESOURCES: u32 = 12_544;

impl Resources {
    /// Their shares of the card, in hundredths of a percent: flip-flops and look-up tables.
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
    /// What it takes.
    pub resources: Resources,
    /// The shares that the paper prints, in hundredths of a percent. Those of CONF3's and CONF4's look-up tables are
    /// not what the numbers give: 30.17 and 31.35 %.
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

/// Where the resources of a kind come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The difference of two rows of Table 1.
    Derived,
    /// A share of a row, or of such a difference, that several components have together; how it is divided is this
    /// project's choice.
    Allotted,
    /// This project's estimate: the paper has no such component, or did not build it.
    Own,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_kinds_numbers() {
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
