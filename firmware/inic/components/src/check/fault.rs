//! What can be wrong with an assembly, where, and how to fix it.

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

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

/// What a fault is about; numbers are places in the assembly's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The assembly.
    Whole,
    /// A component.
    Component(usize),
    /// A parameter of a component.
    Parameter(usize, Parameter),
    /// A connection.
    Connection(usize),
}

/// A port as sources name it: `component.port`.
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

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// A component that every assembly has once is missing, or is there more than once.
    #[error("{found} components are of kind {kind}; an assembly has exactly one")]
    Number {
        /// The kind's name.
        kind: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A value is out of its limits.
    #[error("`{component}`: {} is {value}, and must be {}", parameter.name(), Limits(*values))]
    Value {
        /// The component.
        component: String,
        /// The parameter.
        parameter: Parameter,
        /// Its value.
        value: u32,
        /// What it may be.
        values: Values,
    },
    /// The limit of outstanding packets is too small for the threshold of acknowledgements (section 3).
    #[error(
        "`{genp}`: outstanding_limit is {limit}, less than twice the threshold of `{build_acks}`, {threshold}: the sender could stop before an acknowledgement is forced"
    )]
    BelowThreshold {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
        /// The builder of acknowledgements.
        build_acks: String,
        /// Its threshold.
        threshold: u32,
    },
    /// The limit is larger than the mask of a selective acknowledgement.
    #[error(
        "`{genp}`: outstanding_limit is {limit}, and the mask of a header acknowledges {ACK_MASK_BITS} packets"
    )]
    BeyondMask {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
    },
    /// The limit is not below half of the numbers that packets can have.
    #[error(
        "`{genp}`: outstanding_limit is {limit}, not below half of the {numbers} numbers that packets have in the format of `{xmit}`: new packets could not be told from old ones"
    )]
    BeyondSequence {
        /// The generator.
        genp: String,
        /// Its limit.
        limit: u32,
        /// How many numbers there are.
        numbers: u64,
        /// The component that forms packets.
        xmit: String,
    },
    /// Packets are formed in one format and taken apart in another.
    #[error("`{xmit}` and `{split_packet}` have different formats: no packet would be understood")]
    Formats {
        /// Forms packets.
        xmit: String,
        /// Takes them apart.
        split_packet: String,
    },
    /// Placement words are sent and not expected, or expected and not sent.
    #[error(
        "`{generator}` and `{host_receive}` differ in placement: one takes for data what the other does not"
    )]
    Placements {
        /// Makes packets.
        generator: String,
        /// Places them.
        host_receive: String,
    },
    /// With the placement word, a packet is longer than its header can say.
    #[error(
        "`{generator}`: {bytes} bytes and a placement word of {PLACEMENT_BYTES} are more than the {MAX_DATA_BYTES} that a header can say"
    )]
    TooLong {
        /// Makes packets.
        generator: String,
        /// Of how many bytes.
        bytes: u32,
    },
    /// An input or output leads nowhere.
    #[error("`{port}` is not connected")]
    Unconnected {
        /// The port.
        port: PortName,
        /// Its row.
        row: &'static Port,
    },
    /// Two ends of a connection are of different types.
    #[error("`{from}` carries {from_type}, and `{to}` takes {to_type}")]
    Types {
        /// The output.
        from: PortName,
        /// What it carries.
        from_type: &'static str,
        /// The input.
        to: PortName,
        /// What it takes.
        to_type: &'static str,
    },
    /// Two outputs lead to one input, or one output twice.
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
    /// A stub closes a port without which its component is of no use, or is stuck.
    #[error("`{port}` is closed by a stub, and its component cannot do without it")]
    Closed {
        /// The port.
        port: PortName,
    },
    /// Components wait for each other within one cycle.
    #[error("a circle without a FIFO: {}", .0.join(" -> "))]
    Circle(
        /// The components, by name; the first one again at the end.
        Vec<String>,
    ),
    /// What comes to an input does not come from where it must.
    #[error("what comes to `{port}` does not come from {source_kind}")]
    Astray {
        /// The input.
        port: PortName,
        /// The kind that makes it.
        source_kind: &'static str,
    },
    /// A component is useless, or stuck, without one of another kind.
    #[error("`{component}` needs a {kind}: {why}")]
    Needs {
        /// The component.
        component: String,
        /// The kind that is missing.
        kind: &'static str,
        /// Why.
        why: &'static str,
    },
    /// `order_pkts` drops for ever what is sent again.
    #[error(
        "`{component}` drops what is older than the newest packet, and `{genp}` sends such packets again for ever"
    )]
    DropsRepeats {
        /// The component that drops.
        component: String,
        /// The generator.
        genp: String,
    },
    /// Packets would be acknowledged that another component drops.
    #[error("`{build_acks}` acknowledges packets that `{component}` drops: they would not be sent again")]
    Acknowledged {
        /// The builder of acknowledgements.
        build_acks: String,
        /// The component that drops.
        component: String,
    },
    /// `dup_find` remembers packets that `order_pkts` has dropped.
    #[error("`{dup_find}` takes for a duplicate what `{order_pkts}` has dropped, when it is sent again")]
    Remembers {
        /// Finds duplicates.
        dup_find: String,
        /// Drops what is out of order.
        order_pkts: String,
    },
    /// `dup_find` cannot remember all that is sent again.
    #[error(
        "`{dup_find}` remembers {beyond} packets behind one that is missing, and `{genp}` sends {needed}: it drops what it cannot remember, or lets it come twice"
    )]
    Forgets {
        /// Finds duplicates.
        dup_find: String,
        /// How many it remembers.
        beyond: u32,
        /// The generator.
        genp: String,
        /// How many it can send behind one that is missing.
        needed: u32,
    },
    /// Verdicts or headers are about other packets than the data that they come with.
    #[error(
        "`{component}`: `{with}` does not speak of the same packets as the data: something before them drops or reorders"
    )]
    Apart {
        /// The component where they meet.
        component: String,
        /// Where the verdicts or headers come from.
        with: String,
    },
    /// Packets can be missing or in any order, and nothing says where they belong.
    #[error(
        "packets can be missing or in any order, and `{generator}` sends no placement words: nothing says where one belongs"
    )]
    Unplaced {
        /// Makes packets.
        generator: String,
    },
}

/// What a value may be, in words.
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
    /// What they may be, in words.
    #[must_use]
    pub fn in_words(self) -> String {
        format!("{}", Limits(self))
    }
}

/// The ports that one can be connected to, by their kinds' names.
fn partners(of: &Port) -> Vec<String> {
    let direction = if of.direction == Direction::In { Direction::Out } else { Direction::In };
    let fits = |port: &&Port| port.carries == of.carries && port.leads(direction);
    let found =
        KINDS.iter().flat_map(|row| row.ports.iter().filter(fits).map(move |port| (row.name, port.name)));
    found.map(|(kind, port)| format!("{kind}.{port}")).collect()
}

impl Problem {
    /// What to do about it.
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
                "lower outstanding_limit to {ACK_MASK_BITS}, or acknowledge in order: order_pkts with policy = \"go_back_n\""
            ),
            Self::BeyondSequence { numbers, .. } => {
                format!(
                    "lower outstanding_limit to {}, or take a format with longer numbers",
                    numbers / 2 - 1
                )
            }
            Self::Formats { .. } => "give both the same format".to_owned(),
            Self::Placements { .. } => "give both the same placement".to_owned(),
            Self::TooLong { .. } => format!("lower packet_bytes to {}", MAX_DATA_BYTES - PLACEMENT_BYTES),
            Self::Unconnected { row, .. } => {
                let closed = if row.may_be_closed { ", or close it by a stub" } else { "" };
                format!("connect it to {}{closed}", partners(row).join(" or "))
            }
            Self::Types { to_type, .. } => format!("connect an output that carries {to_type}"),
            Self::TwoDrivers { to, .. } => format!("leave one of the connections to `{to}` away"),
            Self::BusyStub { .. } => "take one stub for each port".to_owned(),
            Self::Closed { port } => format!("connect `{port}`, or leave `{}` away", port.component),
            Self::Circle(_) => "give one of these connections a depth of 1 or more".to_owned(),
            Self::Astray { port, source_kind } => format!("lead what {source_kind} gives to `{port}`"),
            Self::Needs { kind, component, .. } => format!("add a {kind}, or leave `{component}` away"),
            Self::DropsRepeats { .. } => "take policy = \"go_back_n\", or genp_unreliable".to_owned(),
            Self::Acknowledged { build_acks, component } => {
                format!("lead the headers to `{build_acks}` through `{component}`")
            }
            Self::Remembers { dup_find, .. } => format!("set beyond = 0 for `{dup_find}`"),
            Self::Forgets { needed, .. } => {
                format!("raise beyond to {needed}, or lower outstanding_limit")
            }
            Self::Apart { .. } => {
                "lead to both what split_packet gives, at most through dup_find or mitigate".to_owned()
            }
            Self::Unplaced { .. } => "set placement = true here and for host_receive".to_owned(),
        }
    }
}
