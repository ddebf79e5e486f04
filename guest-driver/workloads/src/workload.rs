//! A workload, as plain data: what the nodes of a run send to whom. Every node has the same, and derives its part from
//! it.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use serde::{Deserialize, Serialize};

use crate::{ChannelTerms, Limits, PostTerms, Promise, Receive, Terms};

/// All that the scripts of a run are made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Who sends to whom, and when.
    pub pattern: Pattern,
    /// Payload of a message, or the most where sizes are drawn or recorded.
    pub message_bytes: u32,
    /// Measured messages: round trips of a pair, else what a sender sends to each partner, or to all of them together
    /// where they are drawn.
    pub count: u64,
    /// Messages before these that are not measured.
    pub warmup: u64,
    /// Each n-th message of a flow interrupts its receiver, or where receivers ask for it, each n-th that comes; 0:
    /// none does.
    pub interrupt_every: u64,
    /// Records of each receive queue.
    pub slices: u32,
    /// How messages are received, where the NIC has lists of posted receives, or memory that others may write.
    pub receive: Receive,
    /// Of all that is drawn.
    pub seed: u64,
    /// The cards' numbers of the ports that can be opened, by node: there are as many nodes.
    pub ports: Vec<Vec<u16>>,
    /// Whether a port sends to any number of others; otherwise it sends to one.
    pub sends_to_many: bool,
    /// List entries that fit into the smallest card, for each of its ports.
    pub entries: u64,
    /// Unexpected messages that the smallest card keeps in mind.
    pub unexpected_messages: u64,
    /// Payload that a port's outbound queue holds, in the smallest card that payload is pushed into.
    pub payload_bytes: u64,
    /// How it is pushed: so much first, then segments that double; zero: whole messages.
    pub first_segment_bytes: u64,
    /// What the cards promise of messages, on this network.
    pub promise: Promise,
}

/// Who sends to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Nodes 0 and 1, 2 and 3, …: the first sends, the second answers.
    PingPong,
    /// Nodes 0 and 1, 2 and 3, …: the first sends as fast as it can, the second receives.
    Stream,
    /// Every node sends to every other.
    AllToAll,
    /// Every node sends to so many nodes next to it on a ring.
    NeighbourExchange(u32),
    /// Every node sends messages of random sizes to random ones of so many partners, who are random, too.
    Random(u32),
    /// Every node sends to the one of this rank.
    Incast(u16),
    /// The cards of all nodes add what every node has, or where messages are empty wait for each other.
    Reduce,
    /// Every node sends to a peripheral of the next node that has one, whose port is said by node, and gets each
    /// message back before it sends another.
    Echo(Vec<Option<u16>>),
    /// Every node sends what was recorded.
    Replay(Vec<Recorded>),
}

/// A message of a recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedTuple", into = "RecordedTuple")]
pub struct Recorded {
    /// When its program began to send it, from the begin of the recording.
    pub model_time_ps: u64,
    /// Where it came from, by the cards' numbers of ports.
    pub route: Route,
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupted its receiver.
    pub interrupts: bool,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Rank of the sender.
    pub node: u16,
    /// Its port.
    pub port: u16,
    /// Rank of the receiver.
    pub to: u16,
    /// Its port.
    pub to_port: u16,
}

/// How a recorded message is written: short, for there are many.
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
    /// Ports that an incast's senders share at their receiver, and that a recording may name, at most.
    pub const MAX_PORTS: u32 = 8;

    /// Nodes of a run of real programs, at most.
    const MAX_NODES: usize = 1024;
    /// The longest message.
    const MAX_MESSAGE_BYTES: u32 = 64 << 20;
    /// The most messages of a sender.
    const MAX_COUNT: u64 = 100_000_000;

    /// How many nodes take part.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.ports.len() as u32
    }

    /// Their ranks.
    pub fn ranks(&self) -> impl Iterator<Item = u16> + Clone + use<> {
        (0..self.nodes()).map(|rank| rank as u16)
    }

    /// What every port is opened with, where the NIC has lists; no port has more than so many flows at its end.
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

    /// What every port is opened with, where the NIC posts messages.
    #[must_use]
    pub fn post_terms(&self) -> PostTerms {
        PostTerms::new(self.slices, self.message_bytes, self.interrupt_every)
    }

    /// What every port is opened with, where the NIC has channels.
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

    /// What a program cannot perform of it, for who gets it from elsewhere.
    ///
    /// # Errors
    /// What is wrong, in words.
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
                "the number of nodes that may have a peripheral",
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
