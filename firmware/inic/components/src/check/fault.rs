//! Faults of an assembly, with place and fix.

use core::fmt;

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::assembly::{Assembly, End};
use crate::kinds::{
    ACK_MASK_BITS, Direction, KINDS, MAX_DATA_BYTES, PLACEMENT_BYTES, Parameter, Port, Values,
};

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct Fault {
    /// Its place.
    pub place: Place,
    /// The problem.
    pub problem: Problem,
}

/// Place of a fault; numbers are indices into the assembly's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole assembly.
    Whole,
    /// A component.
    Component(usize),
    /// A parameter of a component.
    Parameter(usize, Parameter),
    /// A connection.
    Connection(usize),
}

/// A port in source notation: `component.port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName {
    /// The component's name.
    pub component: String,
    /// The port's name.
    pub port: &'static str,
}

impl PortName {
    /// The name of an end.
    pub(crate) fn of(assembly: &Assembly, end: End) -> Self {
        let (component, port) =
            assembly.port(end).map_or(("", ""), |(component, port)| (component.name(), port.name));
        Self { component: component.to_owned(), port }
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}", self.component, self.port)
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// A component that every assembly has exactly once is missing or duplicated.
    #[error("{found} components are of kind {kind}; an assembly has exactly one")]
    Number {
        /// The kind's name.
        kind: &'static str,
        /// Number of such components.
        found: usize,
    },
    /// A value is out of range.
    #[error("`{component}`: {} is {value}, and must be {}", parameter.name(), Limits(*values))]
    Value {
        /// The component.
        component: String,
        /// The parameter.
        parameter: Parameter,
        /// Its value.
        value: u32,
        /// Its range.
        values: Values,
    },
    /// The limit of unacknowledged packets is too small for the threshold of acknowledgements (section 3).
    #[error(
        "`{genp}`: outstanding_limit is {limit}, less than twice the threshold of `{build_acks}`, {threshold}: \
         the sender could stop before an acknowledgement is forced"
    )]
    BelowThreshold {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
        /// The component that builds acknowledgements.
        build_acks: String,
        /// Its threshold.
        threshold: u32,
    },
    /// The limit is larger than the mask of a selective acknowledgement.
    #[error(
        "`{genp}`: outstanding_limit is {limit}, but the mask of a header acknowledges {ACK_MASK_BITS} packets"
    )]
    BeyondMask {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
    },
    /// The limit is not below half of the range of packet numbers.
    #[error(
        "`{genp}`: outstanding_limit is {limit}, not below half of the {numbers} numbers that packets have in the \
         format of `{xmit}`: the receiver could not distinguish new packets from old ones"
    )]
    BeyondSequence {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
        /// Range of packet numbers.
        numbers: u64,
        /// The component that forms packets.
        xmit: String,
    },
    /// Packets are written in one format and read in another.
    #[error(
        "`{xmit}` and `{split_packet}` have different formats, so cards could not read each other's packets"
    )]
    Formats {
        /// Forms packets.
        xmit: String,
        /// Takes them apart.
        split_packet: String,
    },
    /// Only one of both components uses placement words.
    #[error(
        "`{generator}` and `{host_receive}` differ in placement: the receiver would take placement words for data, \
         or data for placement words"
    )]
    Placements {
        /// The generator.
        generator: String,
        /// The component that places packets.
        host_receive: String,
    },
    /// With the placement word, a packet is longer than the header can describe.
    #[error(
        "`{generator}`: {bytes} bytes and a placement word of {PLACEMENT_BYTES} exceed the {MAX_DATA_BYTES} bytes \
         that a header can describe"
    )]
    TooLong {
        /// The generator.
        generator: String,
        /// Its bytes for each packet.
        bytes: u32,
    },
    /// A port is not connected.
    #[error("`{port}` is not connected")]
    Unconnected {
        /// The port.
        port: PortName,
        /// The port's row.
        row: &'static Port,
    },
    /// The ends of a connection have different types.
    #[error("`{from}` carries {from_type}, but `{to}` takes {to_type}")]
    Types {
        /// The output.
        from: PortName,
        /// Its type.
        from_type: &'static str,
        /// The input.
        to: PortName,
        /// Its type.
        to_type: &'static str,
    },
    /// Two outputs lead to one input, or one output leads there twice.
    #[error("`{to}` has two drivers: `{first}` and `{second}`")]
    TwoDrivers {
        /// The input.
        to: PortName,
        /// The first.
        first: PortName,
        /// The second.
        second: PortName,
    },
    /// A stub is connected more than once.
    #[error("the stub `{stub}` closes more than one port")]
    BusyStub {
        /// The stub.
        stub: String,
    },
    /// A stub closes a port that its component needs.
    #[error("`{port}` is closed by a stub, but its component needs it")]
    Closed {
        /// The port.
        port: PortName,
    },
    /// Components wait for each other within one cycle of wires.
    #[error("a cycle without a FIFO: {}", .0.join(" -> "))]
    Circle(
        /// The components, by name; the first one again at the end.
        Vec<String>,
    ),
    /// The tokens of an input come from the wrong component.
    #[error("the input of `{port}` does not come from {source_kind}")]
    WrongSource {
        /// The input.
        port: PortName,
        /// The kind that must produce them.
        source_kind: &'static str,
    },
    /// A component is useless, or blocks, without one of another kind.
    #[error("`{component}` needs a {kind}: {why}")]
    Needs {
        /// The component.
        component: String,
        /// The kind that is missing.
        kind: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// `order_pkts` drops retransmissions for ever.
    #[error(
        "`{component}` drops packets older than the newest one, and `{genp}` would retransmit them for ever"
    )]
    DropsRepeats {
        /// The component that drops.
        component: String,
        /// The generator.
        genp: String,
    },
    /// Packets are acknowledged that another component drops.
    #[error(
        "`{build_acks}` acknowledges packets that `{component}` drops, so they would not be retransmitted"
    )]
    Acknowledged {
        /// The component that builds acknowledgements.
        build_acks: String,
        /// The component that drops.
        component: String,
    },
    /// `dup_find` remembers packets that `order_pkts` has dropped.
    #[error("`{dup_find}` takes retransmissions of packets that `{order_pkts}` has dropped for duplicates")]
    Remembers {
        /// Finds duplicates.
        dup_find: String,
        /// Drops packets out of order.
        order_pkts: String,
    },
    /// `dup_find` cannot remember all packets that are retransmitted.
    #[error(
        "`{dup_find}` remembers {beyond} packets after a missing one, but `{genp}` sends {needed}: it would drop the \
         others, or deliver them twice"
    )]
    Forgets {
        /// Finds duplicates.
        dup_find: String,
        /// Packets that it remembers.
        beyond: u32,
        /// The generator.
        genp: String,
        /// Packets that the generator can send after a missing one.
        needed: u32,
    },
    /// Verdicts or headers are about other packets than the data that they arrive with.
    #[error(
        "`{component}`: `{with}` does not see the same packets as the data: a component before them drops or \
         reorders packets"
    )]
    Apart {
        /// The component where they meet.
        component: String,
        /// The source of the verdicts or headers.
        with: String,
    },
    /// Packets can be missing or in any order, without placement words.
    #[error(
        "packets can be missing or in any order, but `{generator}` sends no placement words: the receiver could not \
         place them"
    )]
    Unplaced {
        /// The generator.
        generator: String,
    },
}

/// A range in words.
struct Limits(Values);

impl fmt::Display for Limits {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Values::Number { least, most, step: 1 } => write!(to, "{least} to {most}"),
            Values::Number { least, most, step } => write!(to, "{least} to {most}, a multiple of {step}"),
            Values::Flag => write!(to, "true or false"),
            Values::Choice(words) => write!(to, "one of {}", words.join(", ")),
            Values::Node => write!(to, "a node's number, 0 to 4095, or \"any\""),
        }
    }
}

impl Values {
    /// The range in words.
    #[must_use]
    pub fn in_words(self) -> String {
        format!("{}", Limits(self))
    }
}

/// The ports that one can be connected to, with the names of their kinds.
fn partners(of: &Port) -> Vec<String> {
    let direction = if of.direction == Direction::In { Direction::Out } else { Direction::In };
    let fits = |port: &&Port| port.carries == of.carries && port.leads(direction);
    let found =
        KINDS.iter().flat_map(|row| row.ports.iter().filter(fits).map(move |port| (row.name, port.name)));
    found.map(|(kind, port)| format!("{kind}.{port}")).collect()
}

impl Problem {
    /// The fix.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Number { kind, found: 0 } => format!("add `{kind} = {{}}` to the components"),
            Self::Number { kind, .. } => format!("keep one {kind}"),
            Self::Value { values, .. } => format!("say {}", values.in_words()),
            Self::BelowThreshold { threshold, .. } => {
                format!(
                    "raise outstanding_limit to {} or more, or lower the threshold",
                    threshold.saturating_mul(2)
                )
            }
            Self::BeyondMask { .. } => format!(
                "lower outstanding_limit to {ACK_MASK_BITS}, or acknowledge in order: order_pkts with policy = \
                 \"go_back_n\""
            ),
            Self::BeyondSequence { numbers, .. } => {
                format!("lower outstanding_limit to {}, or use a format with longer numbers", numbers / 2 - 1)
            }
            Self::Formats { .. } => "give both the same format".to_owned(),
            Self::Placements { .. } => "give both the same placement".to_owned(),
            Self::TooLong { .. } => format!("lower packet_bytes to {}", MAX_DATA_BYTES - PLACEMENT_BYTES),
            Self::Unconnected { row, .. } => {
                let closed = if row.may_be_closed { ", or close it by a stub" } else { "" };
                format!("connect it to {}{closed}", partners(row).join(" or "))
            }
            Self::Types { to_type, .. } => format!("connect an output that carries {to_type}"),
            Self::TwoDrivers { to, .. } => format!("remove one of the connections to `{to}`"),
            Self::BusyStub { .. } => "use one stub for each port".to_owned(),
            Self::Closed { port } => format!("connect `{port}`, or remove `{}`", port.component),
            Self::Circle(_) => "give one of these connections a depth of 1 or more".to_owned(),
            Self::WrongSource { port, source_kind } => {
                format!("connect the output of {source_kind} to `{port}`")
            }
            Self::Needs { kind, component, .. } => format!("add a {kind}, or remove `{component}`"),
            Self::DropsRepeats { .. } => "use policy = \"go_back_n\", or genp_unreliable".to_owned(),
            Self::Acknowledged { build_acks, component } => {
                format!("connect the headers to `{build_acks}` through `{component}`")
            }
            Self::Remembers { dup_find, .. } => format!("set beyond = 0 for `{dup_find}`"),
            Self::Forgets { needed, .. } => {
                format!("raise beyond to {needed}, or lower outstanding_limit")
            }
            Self::Apart { .. } => {
                "connect both to split_packet, at most through dup_find or mitigate".to_owned()
            }
            Self::Unplaced { .. } => "set placement = true here and for host_receive".to_owned(),
        }
    }
}
