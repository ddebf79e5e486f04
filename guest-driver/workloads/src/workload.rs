//! A workload as plain data: what the nodes of a run send to each other. Every node has the same data and derives its
//! part from it.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use serde::{Deserialize, Serialize};

use crate::{ChannelTerms, Limits, PostTerms, Promise, Receive, Terms};

/// The data from which a run's scripts are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Which node sends to which, and when.
    pub pattern: Pattern,
    /// Payload of a message, or the maximum if sizes are drawn or recorded.
    pub message_bytes: u32,
    /// Measured messages: the round trips of a pair, or the messages of a sender to each partner. If partners are
    /// drawn, the messages of a sender to all partners together.
    pub count: u64,
    /// Messages before the measurement.
    pub warmup: u64,
    /// Each n-th message of a flow interrupts its receiver. If receivers request interrupts, each n-th arrival does. 0:
    /// none does.
    pub interrupt_every: u64,
    /// Records of each receive queue.
    pub slices: u32,
    /// How messages are received, if the NIC has lists of posted receives or memory that other nodes may write.
    pub receive: Receive,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The cards' numbers of the usable ports, one list for each node.
    pub ports: Vec<Vec<u16>>,
    /// Whether a port sends to any number of other ports; otherwise it sends to one.
    pub sends_to_many: bool,
    /// List entries that fit into the smallest card, per port.
    pub entries: u64,
    /// Unexpected messages that the smallest card stores.
    pub unexpected_messages: u64,
    /// Payload that a port's outbound queue holds in the smallest card with such a queue.
    pub payload_bytes: u64,
    /// The first segment of a pushed message, followed by segments that double in size; zero: whole messages.
    pub first_segment_bytes: u64,
    /// What the cards guarantee for messages on this network.
    pub promise: Promise,
}

/// Which node sends to which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Nodes 0 and 1, 2 and 3, …: the first sends, the second answers.
    PingPong,
    /// Nodes 0 and 1, 2 and 3, …: the first sends as fast as it can, the second receives.
    Stream,
    /// Every node sends to every other.
    AllToAll,
    /// Every node sends to this number of nodes next to it on a ring.
    NeighbourExchange(u32),
    /// Every node sends messages of random sizes to randomly chosen partners. This is the number of its partners, which
    /// are also random.
    Random(u32),
    /// Every node sends to the node of this rank.
    Incast(u16),
    /// The cards of all nodes add the values of all nodes. Empty messages are a barrier.
    Reduce,
    /// Every node sends to a peripheral of the next node that has one, and receives each message back before it sends
    /// the next. The list gives the peripheral's port for each node.
    Echo(Vec<Option<u16>>),
    /// Every node sends recorded messages.
    Replay(Vec<Recorded>),
}

/// A message of a recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedTuple", into = "RecordedTuple")]
pub struct Recorded {
    /// When its program began to send it, counted from the start of the recording.
    pub model_time_ps: u64,
    /// Its ends, by the cards' numbers of ports.
    pub route: Route,
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupts its receiver.
    pub interrupts: bool,
}

/// The ends of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Rank of the sender.
    pub node: u16,
    /// Port of the sender.
    pub port: u16,
    /// Rank of the receiver.
    pub to: u16,
    /// Port of the receiver.
    pub to_port: u16,
}

/// The serialized form of a recorded message: a tuple, because recordings are long.
type RecordedTuple = (u64, u16, u16, u16, u16, u32, bool);

impl From<RecordedTuple> for Recorded {
    fn from((model_time_ps, node, port, to, to_port, bytes, interrupts): RecordedTuple) -> Self {
        Self { model_time_ps, route: Route { node, port, to, to_port }, bytes, interrupts }
    }
}

impl From<Recorded> for RecordedTuple {
    fn from(message: Recorded) -> Self {
        let Recorded { model_time_ps, route: Route { node, port, to, to_port }, bytes, interrupts } = message;
        (model_time_ps, node, port, to, to_port, bytes, interrupts)
    }
}

impl Workload {
    /// The maximum number of ports that an incast's senders share at their receiver, and that a recording may name.
    pub const MAX_PORTS: u32 = 8;

    /// The maximum number of nodes of a run of real programs.
    const MAX_NODES: usize = 1024;
    /// The maximum length of a message.
    const MAX_MESSAGE_BYTES: u32 = 64 << 20;
    /// The maximum number of messages of a sender.
    const MAX_COUNT: u64 = 100_000_000;

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.ports.len() as u32
    }

    /// The ranks of the nodes.
    pub fn ranks(&self) -> impl Iterator<Item = u16> + Clone + use<> {
        (0..self.nodes()).map(|rank| rank as u16)
    }

    /// The settings that every port is opened with if the NIC has lists. No port has more than `partners` flows.
    #[must_use]
    pub fn terms(&self, partners: u64) -> Terms {
        let limits = Limits {
            events: self.slices,
            entries: self.entries,
            unexpected_messages: self.unexpected_messages,
            partners,
        };
        Terms::new(self.receive, self.message_bytes.into(), &limits)
    }

    /// The settings that every port is opened with if the NIC posts messages.
    #[must_use]
    pub fn post_terms(&self) -> PostTerms {
        PostTerms::new(self.slices, self.message_bytes, self.interrupt_every)
    }

    /// The settings that every port is opened with if the NIC has channels.
    #[must_use]
    pub fn channel_terms(&self) -> ChannelTerms {
        ChannelTerms::new(
            self.slices,
            self.message_bytes.into(),
            self.payload_bytes,
            self.first_segment_bytes,
            matches!(self.pattern, Pattern::Echo(_)),
            self.receive == Receive::Exposed,
        )
    }

    /// Checks that a program can run this workload. A caller that reads the workload from outside must call this.
    ///
    /// # Errors
    /// The violated limit.
    pub fn check(&self) -> Result<(), String> {
        let nodes = self.ports.len();
        let within = |what: &str, value: u64, least: u64, most: u64| {
            let is_within = (least..=most).contains(&value);
            is_within.then_some(()).ok_or_else(|| format!("{what} is {value}: give {least} to {most}"))
        };
        within("`ports`, one list for each node,", nodes as u64, 2, Self::MAX_NODES as u64)?;
        within("`message_bytes`", self.message_bytes.into(), 0, Self::MAX_MESSAGE_BYTES.into())?;
        within("`count`", self.count, 1, Self::MAX_COUNT)?;
        within("`warmup`", self.warmup, 0, Self::MAX_COUNT)?;
        within("`slices`", self.slices.into(), 8, 4096)?;
        if !self.slices.is_power_of_two() {
            return Err(format!("`slices` is {}: give a power of two", self.slices));
        }
        let least = self.ports.iter().map(Vec::len).min().unwrap_or(0) as u64;
        let most = self.ports.iter().map(Vec::len).max().unwrap_or(0) as u64;
        within("a list of `ports`", least, 1, Self::MAX_PORTS.into())?;
        within("a list of `ports`", most, 1, Self::MAX_PORTS.into())?;
        let others = nodes as u64 - 1;
        let partners = if self.sends_to_many { others } else { others.min(least) };
        match &self.pattern {
            Pattern::PingPong | Pattern::Stream | Pattern::Reduce => Ok(()),
            Pattern::Echo(peripherals) => within(
                "the length of the list of peripherals",
                peripherals.len() as u64,
                nodes as u64,
                nodes as u64,
            ),
            Pattern::AllToAll => within("the number of partners", others, 1, partners),
            Pattern::NeighbourExchange(count) | Pattern::Random(count) => {
                within("the number of partners", u64::from(*count), 1, partners)
            }
            Pattern::Incast(receiver) => within("the receiver's rank", u64::from(*receiver), 0, others),
            Pattern::Replay(messages) => messages.iter().try_for_each(|message| self.check_recorded(message)),
        }
    }

    fn check_recorded(&self, message: &Recorded) -> Result<(), String> {
        let Route { node, port, to, to_port } = message.route;
        let is_end =
            |node: u16, port: u16| u32::from(node) < self.nodes() && u32::from(port) < Self::MAX_PORTS;
        if !is_end(node, port) || !is_end(to, to_port) {
            return Err(format!("{message:?} is not between ports of these nodes"));
        }
        if message.bytes > self.message_bytes {
            return Err("a recorded message is longer than `message_bytes`".to_owned());
        }
        Ok(())
    }
}
