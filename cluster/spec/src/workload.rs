//! The messages that the nodes of a run send.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use niclab_abi::config::{
    FEATURE_CHANNELS, FEATURE_COLLECTIVES, FEATURE_LISTS, FEATURE_POSTS, FEATURE_RINGS,
};
use niclab_abi::inic::{POST_MAX_COLLECTIVE_BYTES, POST_MAX_MEMBERS};
use niclab_workloads::{Pattern, Recorded};

use crate::{Cluster, NicConfig, NicModel, Problem, Source};

/// Messages between the nodes of a cluster. Only `kind` is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "niclab workload")]
pub struct Workload {
    /// Senders, receivers and order of the messages.
    pub kind: WorkloadKind,
    /// The function of the card that carries the messages.
    #[serde(default)]
    pub function: Function,
    /// Payload of a message, in bytes. The NIC's model has a maximum and a unit, of which it must be a multiple; on the
    /// Ethernet function message and headers must fit the MTU. `random` samples each message's size up to this.
    #[serde(default = "default_message_bytes")]
    pub message_bytes: u32,
    /// Number of measured messages: round trips of a ping-pong pair, else the messages from a sender to each of its
    /// partners (`random`: to all together).
    #[serde(default = "default_count")]
    #[schemars(range(min = 1))]
    pub count: u64,
    /// Number of messages before the measurement.
    #[serde(default)]
    pub warmup: u64,
    /// Each n-th message interrupts its receiver, counted from 1 in each direction; 0: none.
    #[serde(default)]
    pub interrupt_every: u64,
    /// For NICs with descriptor rings: after each n-th message, its sender sends an ordinary network datagram of full
    /// frame length over the same rings to the same node; 0: never. Only in the simulator.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub datagram_every: u64,
    /// Slices of each receive queue, shared equally by its senders, or events of each event queue: a power of two.
    #[serde(default = "default_slices")]
    #[schemars(range(min = 8, max = 4096))]
    pub slices: u32,
    /// How programs receive, if the NIC has lists of posted receives, or memory that other nodes may write.
    #[serde(default, skip_serializing_if = "Receive::is_posted")]
    pub receive: Receive,
    /// Number of partners of each node, for `neighbour-exchange` and `random`. Default: 2, or all other nodes if there
    /// are fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub neighbours: Option<u32>,
    /// Rank of the receiver of `incast`. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<u32>,
    /// For `replay`: the recording of a run, relative to the folder of the file that names it. `niclab run --record`
    /// writes recordings; docs/use/SIMULATOR.md describes their format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
    /// Parameters of TCP, for `function = "tcp"`.
    #[serde(default, skip_serializing_if = "TcpTerms::is_default")]
    pub tcp: TcpTerms,
    /// For `program`: the command to run on every node, as after `niclab run --`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// For `program`: environment variables, in addition to those that `niclab run` sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// For `program`: the folder that the guests mount and run the command in, relative to the folder of this file.
    /// Default: the folder in which `niclab` was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// For `program`: seconds of wall time until the command must have ended on every node. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604800))]
    pub timeout_s: Option<u64>,
}

/// Parameters of TCP at both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TcpTerms {
    /// Whether a segment that is not full waits while another is unacknowledged (Nagle's algorithm, RFC 896).
    pub nagle: bool,
    /// Whether acknowledgements wait for a second full segment, for data in the other direction, or for 200 ms (RFC
    /// 1122, 4.2.3.2).
    pub delayed_acks: bool,
    /// Maximum bytes in flight to a receiver, and the size of the receiver's buffer.
    #[schemars(range(min = 4096, max = 65535))]
    pub window_bytes: u32,
    /// Whether the processor drives each transfer of the card and waits for it, as an earlier driver of the 3C905 did.
    /// Otherwise the card processes descriptors by itself.
    pub cpu_driven: bool,
}

impl Default for TcpTerms {
    /// Programs have switched Nagle's algorithm off, on Linux 2.0, whose windows have 15 bits.
    fn default() -> Self {
        Self { nagle: false, delayed_acks: true, window_bytes: 32_767, cpu_driven: false }
    }
}

impl TcpTerms {
    /// Range of a window in bytes: at least two full segments, at most what a header can express without scaling.
    pub const WINDOW_BYTES: std::ops::RangeInclusive<u32> = 4_096..=65_535;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Senders, receivers and order of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Nodes 0 and 1, 2 and 3, …: the first node sends, the second answers.
    #[default]
    PingPong,
    /// Nodes 0 and 1, 2 and 3, …: the first node sends as fast as it can, the second receives.
    Stream,
    /// Every node sends to every other node as fast as it can.
    AllToAll,
    /// Every node sends to its neighbours on a ring: the nearest in each direction, then the next.
    NeighbourExchange,
    /// All other nodes send to one node as fast as they can.
    Incast,
    /// Every node sends messages of random sizes to random partners; its set of partners is random, too.
    Random,
    /// The cards of all nodes add the nodes' 64-bit integers, in each round in which all nodes have posted a request.
    /// Without bytes this is a barrier. A message is one such request; the cards' own frames for it are not counted.
    Reduce,
    /// Every node sends to a peripheral of the next node that has one, and receives each message back before it sends
    /// the next. A peripheral is a card on the same bus that needs no host; the NIC's table gives it a port.
    Echo,
    /// Every node sends the messages of a recorded run, no earlier than in that run.
    Replay,
    /// Every node runs a command of yours, in guests only.
    Program,
}

impl WorkloadKind {
    /// All kinds of messages that niclab sends itself: all but [`Self::Program`].
    pub const ALL: [Self; 9] = [
        Self::PingPong,
        Self::Stream,
        Self::AllToAll,
        Self::NeighbourExchange,
        Self::Incast,
        Self::Random,
        Self::Reduce,
        Self::Echo,
        Self::Replay,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Stream => "stream",
            Self::AllToAll => "all-to-all",
            Self::NeighbourExchange => "neighbour-exchange",
            Self::Incast => "incast",
            Self::Random => "random",
            Self::Reduce => "reduce",
            Self::Echo => "echo",
            Self::Replay => "replay",
            Self::Program => "program",
        }
    }

    const fn has_neighbours(self) -> bool {
        matches!(self, Self::NeighbourExchange | Self::Random)
    }
}

/// How a program receives messages from a card with lists of posted receives, or with memory that other nodes may
/// write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// The program posts a match entry for each message before the message is sent.
    #[default]
    Posted,
    /// The program posts no entry: messages go to overflow entries, and it posts a receive when a message has arrived.
    Unexpected,
    /// Senders announce messages by puts without data, and the receiver fetches the data by gets.
    Get,
    /// For a ping-pong over channels: the sender writes messages into memory that the receiver has exposed, and a short
    /// message reports each.
    Exposed,
}

impl Receive {
    /// The ways of cards with lists.
    pub const OF_LISTS: [Self; 3] = [Self::Posted, Self::Unexpected, Self::Get];
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Posted, Self::Unexpected, Self::Get, Self::Exposed];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::Unexpected => "unexpected",
            Self::Get => "get",
            Self::Exposed => "exposed",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    const fn is_posted(&self) -> bool {
        matches!(self, Self::Posted)
    }

    /// The feature that a card needs for it, if any.
    const fn feature(self) -> u64 {
        match self {
            Self::Posted => 0,
            Self::Unexpected | Self::Get => FEATURE_LISTS,
            Self::Exposed => FEATURE_CHANNELS,
        }
    }
}

impl From<Receive> for niclab_workloads::Receive {
    fn from(receive: Receive) -> Self {
        match receive {
            Receive::Posted => Self::Posted,
            Receive::Unexpected => Self::Unexpected,
            Receive::Get => Self::Get,
            Receive::Exposed => Self::Exposed,
        }
    }
}

/// A function of the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// The modelled cluster NIC.
    #[default]
    Cluster,
    /// The Ethernet function, a conventional NIC: descriptors, DMA, an interrupt for each notification, copies.
    Ethernet,
    /// TCP over the Ethernet function: streams of segments, with a stack's processor time at the profile's prices. Only
    /// in the simulator: in guests, programs open sockets themselves.
    Tcp,
}

impl Function {
    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Ethernet => "ethernet",
            Self::Tcp => "tcp",
        }
    }
}

const fn default_message_bytes() -> u32 {
    16
}

/// As the default of `niclab-perf`.
const fn default_slices() -> u32 {
    256
}

const fn default_count() -> u64 {
    1000
}

/// A value of a workload that is invalid on these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadProblem {
    /// The key of [`Workload`].
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

/// The properties of a node that a workload depends on.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadNode<'a> {
    /// The node's NIC.
    pub nic: &'a NicConfig,
    /// Largest Ethernet payload of the node's link, in bytes.
    pub mtu_bytes: u32,
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Workload {
    /// Maximum number of ports that an incast's senders share at their receiver, and that a recording may name.
    pub const MAX_PORTS: u32 = niclab_workloads::Workload::MAX_PORTS;

    /// A recording may always have messages of this size, one cache line, even if the workload's own are smaller.
    pub const RECORDED_BYTES: u32 = 64;
    /// Headers in front of a message on the Ethernet function: IPv4 and UDP.
    pub const ETHERNET_HEADERS_BYTES: u32 = 28;
    /// Headers in front of a segment's data: IPv4 and TCP.
    pub const TCP_HEADERS_BYTES: u32 = 40;
    /// Minimum MTU: every host must accept datagrams of this size (RFC 1122, section 3.3.3).
    pub const TCP_LEAST_MTU_BYTES: u32 = 576;
    /// The longest message over TCP, which has no limit of its own.
    pub const MAX_STREAM_BYTES: u32 = 16 << 20;
    /// Maximum time limit of a program, in seconds: a week.
    pub const MAX_TIMEOUT_S: u64 = 604_800;
    /// Maximum number of messages: with 2^40, every sum of picoseconds fits 64 bits for prices of microseconds.
    pub const MAX_COUNT: u64 = 1 << 40;

    /// A workload of this kind with all other values at their defaults.
    #[must_use]
    pub const fn new(kind: WorkloadKind) -> Self {
        Self {
            kind,
            function: Function::Cluster,
            message_bytes: default_message_bytes(),
            count: default_count(),
            warmup: 0,
            interrupt_every: 0,
            datagram_every: 0,
            slices: default_slices(),
            receive: Receive::Posted,
            neighbours: None,
            receiver: None,
            recording: None,
            tcp: TcpTerms { nagle: false, delayed_acks: true, window_bytes: 32_767, cpu_driven: false },
            command: Vec::new(),
            environment: BTreeMap::new(),
            folder: None,
            timeout_s: None,
        }
    }

    /// Number of partners of a node among `nodes` nodes; for an incast, the number of a sender's partners.
    #[must_use]
    pub fn partners(&self, nodes: u32) -> u32 {
        let others = nodes.saturating_sub(1);
        match self.kind {
            WorkloadKind::PingPong | WorkloadKind::Stream | WorkloadKind::Incast => 1.min(others),
            WorkloadKind::AllToAll => others,
            WorkloadKind::NeighbourExchange | WorkloadKind::Random => {
                self.neighbours.unwrap_or_else(|| 2.min(others))
            }
            WorkloadKind::Reduce | WorkloadKind::Echo | WorkloadKind::Replay | WorkloadKind::Program => 0,
        }
    }

    /// Size of the longest message. A recording may have messages of [`Self::RECORDED_BYTES`].
    #[must_use]
    pub fn max_bytes(&self) -> u32 {
        match self.kind {
            WorkloadKind::Replay => self.message_bytes.max(Self::RECORDED_BYTES),
            _ => self.message_bytes,
        }
    }

    /// The pattern of messages among `nodes` nodes, with peripherals at these ports.
    pub(crate) fn pattern(
        &self,
        nodes: u32,
        peripherals: Vec<Option<u16>>,
        recorded: Vec<Recorded>,
    ) -> Pattern {
        match self.kind {
            WorkloadKind::PingPong => Pattern::PingPong,
            WorkloadKind::Stream => Pattern::Stream,
            WorkloadKind::AllToAll => Pattern::AllToAll,
            WorkloadKind::NeighbourExchange => Pattern::NeighbourExchange(self.partners(nodes)),
            WorkloadKind::Incast => Pattern::Incast(self.receiver.unwrap_or(0) as u16),
            WorkloadKind::Random => Pattern::Random(self.partners(nodes)),
            WorkloadKind::Reduce => Pattern::Reduce,
            WorkloadKind::Echo => Pattern::Echo(peripherals),
            WorkloadKind::Replay => Pattern::Replay(recorded),
            // niclab sends nothing: the program does.
            WorkloadKind::Program => Pattern::Replay(Vec::new()),
        }
    }

    /// The invalid values of the workload on these nodes. A recording is checked when it is read.
    #[must_use]
    pub fn problems(&self, nodes: &[WorkloadNode<'_>]) -> Vec<WorkloadProblem> {
        let mut problems = Problems(Vec::new());
        self.check_program(&mut problems);
        if self.kind == WorkloadKind::Program {
            return problems.0;
        }
        self.check_keys(&mut problems);
        self.check_counts(&mut problems);
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        self.check_nodes(count, &mut problems);
        let has_peripheral = |node: &WorkloadNode<'_>| !node.nic.limits().peripheral_ports.is_empty();
        if self.kind == WorkloadKind::Echo && !nodes.iter().any(has_peripheral) {
            let remedy = "give a node a peripheral in its NIC's table (`niclab schema` describes the keys), or use \
                          another kind";
            problems.add("kind", "no node has a peripheral that sends messages back".to_owned(), remedy);
        }
        for node in nodes {
            let before = problems.0.len();
            self.check_node(node, count, &mut problems);
            if problems.0.len() > before {
                break;
            }
        }
        problems.0
    }

    /// The keys of a program belong to that kind, and other keys do not.
    fn check_program(&self, problems: &mut Problems) {
        if self.kind != WorkloadKind::Program {
            let of_program = [
                ("command", !self.command.is_empty()),
                ("environment", !self.environment.is_empty()),
                ("folder", self.folder.is_some()),
                ("timeout_s", self.timeout_s.is_some()),
            ];
            for (key, _) in of_program.into_iter().filter(|(_, is_given)| *is_given) {
                let what = format!("`{}` runs no command of yours", self.kind.name());
                problems.add(key, what, "omit it, or use kind = \"program\"");
            }
            return;
        }
        if self.command.first().is_none_or(String::is_empty) {
            let remedy = "set `command` to a list, such as [\"./my-program\", \"--rounds\", \"100\"]";
            problems.add("command", "a program needs a command", remedy);
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        for name in self.environment.keys().filter(|name| !is_name(name)) {
            let what = format!("`{name}` is not valid as the name of an environment variable");
            problems.add("environment", what, "use a name without `=`");
        }
        if self.timeout_s.is_some_and(|seconds| !(1..=Self::MAX_TIMEOUT_S).contains(&seconds)) {
            let remedy = format!("use 1 to {}", Self::MAX_TIMEOUT_S);
            problems.add("timeout_s", "the time limit is not valid", &remedy);
        }
        let usual = Self::new(WorkloadKind::Program);
        let of_messages = [
            ("function", self.function != usual.function),
            ("message_bytes", self.message_bytes != usual.message_bytes),
            ("count", self.count != usual.count),
            ("warmup", self.warmup != usual.warmup),
            ("interrupt_every", self.interrupt_every != usual.interrupt_every),
            ("datagram_every", self.datagram_every != usual.datagram_every),
            ("slices", self.slices != usual.slices),
            ("receive", self.receive != usual.receive),
            ("neighbours", self.neighbours.is_some()),
            ("receiver", self.receiver.is_some()),
            ("recording", self.recording.is_some()),
            ("tcp", !self.tcp.is_default()),
        ];
        for (key, _) in of_messages.into_iter().filter(|(_, is_given)| *is_given) {
            let what = "the program itself decides which messages it sends";
            problems.add(key, what, "omit it; give the program an argument in `command`");
        }
    }

    /// Keys without a meaning for this kind are errors.
    fn check_keys(&self, problems: &mut Problems) {
        let kind = self.kind.name();
        if self.neighbours.is_some() && !self.kind.has_neighbours() {
            let what = format!("`{kind}` has no neighbours");
            problems.add("neighbours", what, "omit it, or use kind = \"neighbour-exchange\"");
        }
        if self.receiver.is_some() && self.kind != WorkloadKind::Incast {
            let what = format!("`{kind}` does not have a single receiver");
            problems.add("receiver", what, "omit it, or use kind = \"incast\"");
        }
        if self.receive == Receive::Exposed && self.kind != WorkloadKind::PingPong {
            let what =
                format!("senders of `{kind}` do not know when they may write the receiver's memory again");
            problems.add("receive", what, "omit it, or use kind = \"ping-pong\"");
        }
        match (self.kind, &self.recording) {
            (WorkloadKind::Replay, None) => {
                let remedy = "set `recording` to the path of one; docs/use/SIMULATOR.md describes its format";
                problems.add("recording", "a replay needs a recording", remedy);
            }
            (WorkloadKind::Replay, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                let what = format!("`{kind}` does not use a recording");
                problems.add("recording", what, "omit it, or use kind = \"replay\"");
            }
        }
        if self.interrupt_every != 0 && self.function != Function::Cluster {
            let what = "the Ethernet function interrupts for each notification, not for selected messages";
            problems.add("interrupt_every", what, "omit it, or use function = \"cluster\"");
        }
        if !self.tcp.is_default() && self.function != Function::Tcp {
            problems.add("tcp", "the workload does not use TCP", "omit it, or use function = \"tcp\"");
        }
        if !TcpTerms::WINDOW_BYTES.contains(&self.tcp.window_bytes) {
            let what = format!("a window of {} bytes is not supported", self.tcp.window_bytes);
            problems.add("tcp.window_bytes", what, "use 4096 to 65535");
        }
    }

    fn check_counts(&self, problems: &mut Problems) {
        if self.count == 0 {
            problems.add("count", "a workload without messages measures nothing", "use at least 1");
        }
        let limits = [("count", self.count), ("warmup", self.warmup)];
        for (key, value) in limits.into_iter().filter(|&(_, value)| value > Self::MAX_COUNT) {
            let remedy = format!("use at most {}", Self::MAX_COUNT);
            problems.add(key, format!("{value} messages overflow the clock"), &remedy);
        }
    }

    fn check_nodes(&self, nodes: u32, problems: &mut Problems) {
        let kind = self.kind.name();
        if nodes < 2 {
            let what = format!("`{kind}` needs 2 nodes, but the cluster has {nodes}");
            problems.add("kind", what, "raise `nodes` of the cluster");
            return;
        }
        if let Some(receiver) = self.receiver.filter(|&rank| rank >= nodes) {
            let what = format!("there is no node of rank {receiver}: the cluster has {nodes} nodes");
            problems.add("receiver", what, &format!("use 0 to {}", nodes - 1));
        }
        if let Some(neighbours) = self.neighbours.filter(|count| !(1..nodes).contains(count)) {
            let what = format!("in a cluster of {nodes} nodes, a node cannot have {neighbours} neighbours");
            problems.add("neighbours", what, &format!("use 1 to {}, or raise `nodes`", nodes - 1));
        }
        let is_odd = self.kind.has_neighbours() && self.partners(nodes) % 2 == 1 && nodes % 2 == 1;
        if is_odd {
            let what = format!(
                "{nodes} nodes cannot have {} neighbours each: one of the two numbers must be even",
                self.partners(nodes)
            );
            problems.add("neighbours", what, "use an even number");
        }
    }

    fn check_node(&self, node: &WorkloadNode<'_>, nodes: u32, problems: &mut Problems) {
        if self.datagram_every != 0
            && (self.function != Function::Cluster || !node.nic.model.has(FEATURE_RINGS))
        {
            let what = "this NIC carries no ordinary network traffic next to its messages";
            problems.add("datagram_every", what, "omit it, or use a NIC with descriptor rings");
        }
        match (self.function, node.nic.model) {
            (Function::Ethernet | Function::Tcp, _)
                if matches!(self.kind, WorkloadKind::Reduce | WorkloadKind::Echo) =>
            {
                let what = "the Ethernet function supports neither `reduce` nor `echo`";
                problems.add("function", what, "use function = \"cluster\", or another kind");
            }
            (Function::Ethernet, _) => {
                let most = node.mtu_bytes.saturating_sub(Self::ETHERNET_HEADERS_BYTES);
                if self.message_bytes > most {
                    let what = format!(
                        "a message of {} bytes and its headers do not fit an MTU of {}",
                        self.message_bytes, node.mtu_bytes
                    );
                    problems.add("message_bytes", what, &format!("use at most {most}"));
                }
            }
            (Function::Tcp, _) => {
                let most = Self::MAX_STREAM_BYTES;
                if self.message_bytes > most {
                    let what = format!("a message of {} bytes is not supported", self.message_bytes);
                    problems.add("message_bytes", what, &format!("use at most {most}"));
                }
                if node.mtu_bytes < Self::TCP_LEAST_MTU_BYTES {
                    let what = format!("an MTU of {} bytes is too small for TCP", node.mtu_bytes);
                    let remedy =
                        format!("use links with an mtu_bytes of at least {}", Self::TCP_LEAST_MTU_BYTES);
                    problems.add("function", what, &remedy);
                }
            }
            (Function::Cluster, model) => {
                if !model.has(self.receive.feature()) {
                    self.cannot_receive(model, problems);
                }
                if self.kind == WorkloadKind::Reduce {
                    self.check_group(model, nodes, problems);
                }
                self.check_card(node.nic, nodes, problems);
            }
        }
    }

    fn cannot_receive(&self, model: NicModel, problems: &mut Problems) {
        let what = format!("{} cannot receive by `{}`", model.a_card(), self.receive.name());
        let those_that_can = NicModel::all().filter(|model| model.has(self.receive.feature()));
        let names: Vec<_> = those_that_can.map(|model| format!("`model = \"{}\"`", model.name)).collect();
        let remedy = format!("omit it, or use {} in the cluster's [nic]", names.join(" or "));
        problems.add("receive", what, &remedy);
    }

    /// Checks the limits of reductions by a group of cards of this model.
    fn check_group(&self, model: NicModel, nodes: u32, problems: &mut Problems) {
        if !model.has(FEATURE_COLLECTIVES) {
            let what = format!("{} cannot reduce", model.a_card());
            let names = NicModel::all().filter(|model| model.has(FEATURE_COLLECTIVES));
            let names: Vec<_> = names.map(|model| format!("`model = \"{}\"`", model.name)).collect();
            let remedy = format!("use another kind, or {} in the cluster's [nic]", names.join(" or "));
            problems.add("kind", what, &remedy);
        } else if nodes > POST_MAX_MEMBERS {
            let remedy = format!("use at most {POST_MAX_MEMBERS} nodes");
            problems.add("kind", format!("a group of {nodes} nodes is too large"), &remedy);
        } else if u64::from(self.message_bytes) > POST_MAX_COLLECTIVE_BYTES
            || !self.message_bytes.is_multiple_of(8)
        {
            let what =
                format!("a vector of {} bytes of 64-bit integers is not supported", self.message_bytes);
            let remedy = format!("use at most {POST_MAX_COLLECTIVE_BYTES}, in multiples of 8");
            problems.add("message_bytes", what, &remedy);
        }
    }

    /// Checks the limits of a card of this model: the message size, and the number of partners.
    fn check_card(&self, nic: &NicConfig, nodes: u32, problems: &mut Problems) {
        let (card, limits) = (nic.model.a_card(), nic.limits());
        let (bytes, unit) = (self.message_bytes, limits.message_unit_bytes);
        if u64::from(bytes) > limits.max_message_bytes || !bytes.is_multiple_of(unit.max(1)) {
            let what = format!("{card} cannot send a message of {bytes} bytes");
            let mut remedy = format!("use at most {}", limits.max_message_bytes);
            if unit > 1 {
                remedy += &format!(", in multiples of {unit}");
            }
            if let Some(key) = limits.message_raised_by {
                remedy += &format!(", or raise `{key}`");
            }
            problems.add("message_bytes", what, &remedy);
        }
        self.check_slices(problems);
        let ports = limits.open_ports.len() as u32;
        if ![FEATURE_POSTS, FEATURE_RINGS].iter().any(|any| nic.model.has(*any)) {
            self.check_ports(&card, ports, nodes, problems);
        }
        let senders = u64::from(nodes.saturating_sub(1));
        if let Some(each) = limits.senders_per_port
            && self.kind == WorkloadKind::Incast
            && senders > u64::from(ports) * u64::from(each)
        {
            let room = u64::from(ports) * u64::from(each);
            let what = format!(
                "{senders} nodes would send to one whose {ports} ports authorize {each} partners each"
            );
            let mut remedy = format!("use at most {} nodes", room + 1);
            if let Some(key) = limits.senders_raised_by {
                remedy += &format!(", or raise `{key}`");
            }
            problems.add("kind", what, &remedy);
        }
    }

    /// Checks the number of ports. A program uses one port for each partner.
    fn check_ports(&self, card: &str, ports: u32, nodes: u32, problems: &mut Problems) {
        let partners = self.partners(nodes);
        if partners <= ports {
            return;
        }
        let key = if self.kind.has_neighbours() { "neighbours" } else { "kind" };
        let what = format!(
            "each node would send to {partners} others, but {card} has ports for only {ports} destinations"
        );
        let remedy = match self.kind {
            WorkloadKind::AllToAll => format!("use at most {} nodes, or another kind", ports + 1),
            _ => format!("use at most {ports}"),
        };
        problems.add(key, what, &remedy);
    }

    fn check_slices(&self, problems: &mut Problems) {
        if !self.slices.is_power_of_two() || !(8..=4096).contains(&self.slices) {
            let what = format!("a receive queue of {} slices is not supported", self.slices);
            problems.add("slices", what, "use a power of two from 8 to 4096");
        }
    }
}

struct Problems(Vec<WorkloadProblem>);

impl Problems {
    fn add(&mut self, key: &'static str, what: impl Into<String>, remedy: &str) {
        self.0.push(WorkloadProblem { key, what: what.into(), remedy: remedy.to_owned() });
    }
}

impl Source {
    /// The invalid values of `workload` on `cluster`, each with its location. `path` is the table of the workload in
    /// this text.
    #[must_use]
    pub fn workload_problems(&self, path: &str, workload: &Workload, cluster: &Cluster) -> Vec<Problem> {
        let nodes: Vec<WorkloadNode<'_>> = cluster
            .nodes
            .iter()
            .map(|node| WorkloadNode { nic: &node.nic, mtu_bytes: node.link.mtu_bytes })
            .collect();
        let place = |p: WorkloadProblem| self.problem(&format!("{path}.{}", p.key), p.what, p.remedy);
        workload.problems(&nodes).into_iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterFile;

    fn problems(nodes: u32, workload: &str) -> Vec<Problem> {
        problems_of(ClusterFile { nodes: Some(nodes), ..ClusterFile::default() }, workload)
    }

    fn problems_of(file: ClusterFile, workload: &str) -> Vec<Problem> {
        #[derive(serde::Deserialize)]
        struct File {
            workload: Workload,
        }
        let source = Source::from_text("s.toml", format!("[workload]\n{workload}"));
        let cluster = Source::default().resolve(&file).unwrap();
        let File { workload } = source.parse().unwrap();
        source.workload_problems("workload", &workload, &cluster)
    }

    #[test]
    fn valid_workloads_have_no_problems() {
        for (nodes, text) in [
            (2, "kind = 'ping-pong'"),
            (9, "kind = 'all-to-all'\nmessage_bytes = 64"),
            (64, "kind = 'neighbour-exchange'\nneighbours = 8"),
            (64, "kind = 'incast'\nreceiver = 63"),
            (3, "kind = 'stream'\nfunction = 'ethernet'\nmessage_bytes = 1472"),
            (2, "kind = 'replay'\nrecording = 'x.jsonl'"),
            (1, "kind = 'program'\ncommand = ['./x', '-n', '3']\ntimeout_s = 5\nenvironment = { A = 'b' }"),
        ] {
            assert_eq!(problems(nodes, text), [], "{text}");
        }
    }

    #[test]
    fn invalid_workloads_are_refused_at_their_line() {
        for (nodes, text, line, key, part) in [
            (1, "kind = 'ping-pong'", 2, "workload.kind", "needs 2 nodes"),
            (10, "kind = 'all-to-all'", 2, "workload.kind", "at most 9 nodes"),
            (3, "kind = 'incast'\nreceiver = 3", 3, "workload.receiver", "no node of rank 3"),
            (4, "kind = 'stream'\nmessage_bytes = 12", 3, "workload.message_bytes", "12 bytes"),
            (4, "kind = 'stream'\nneighbours = 1", 3, "workload.neighbours", "no neighbours"),
            (4, "kind = 'random'\nneighbours = 4", 3, "workload.neighbours", "4 neighbours"),
            (5, "kind = 'random'\nneighbours = 3", 3, "workload.neighbours", "even"),
            (4, "kind = 'stream'\ncount = 0", 3, "workload.count", "without messages"),
            (4, "kind = 'stream'\nslices = 100", 3, "workload.slices", "power of two"),
            (4, "kind = 'replay'", 1, "workload.recording", "needs a recording"),
            (2, "kind = 'program'", 1, "workload.command", "needs a command"),
            (2, "kind = 'program'\ncommand = ['']", 3, "workload.command", "needs a command"),
            (2, "kind = 'program'\ncommand = ['x']\ncount = 7", 4, "workload.count", "the program itself"),
            (2, "kind = 'program'\ncommand = ['x']\ntimeout_s = 0", 4, "workload.timeout_s", "1 to 604800"),
            (2, "kind = 'stream'\ncommand = ['x']", 3, "workload.command", "kind = \"program\""),
            (4, "kind = 'ping-pong'\nreceive = 'exposed'", 3, "workload.receive", "`model = \"grim\"`"),
            (4, "kind = 'reduce'", 2, "workload.kind", "`model = \"inic\"`"),
            (4, "kind = 'reduce'\nfunction = 'ethernet'", 3, "workload.function", "another kind"),
            (
                4,
                "kind = 'stream'\nfunction = 'ethernet'\nmessage_bytes = 1473",
                4,
                "workload.message_bytes",
                "at most 1472",
            ),
        ] {
            let found = problems(nodes, text);
            let [problem] = found.as_slice() else { panic!("{text}: {found:?}") };
            assert_eq!(
                (problem.location.as_ref().unwrap().line, problem.key.as_str()),
                (line, key),
                "{text}"
            );
            assert!(problem.to_string().contains(part), "{problem}");
        }
    }

    #[test]
    fn match_card_accepts_messages_up_to_its_limit() {
        let nic = NicConfig::of(NicModel::named("match").unwrap());
        let file = ClusterFile { nic, ..ClusterFile::default() };
        assert_eq!(problems_of(file.clone(), "kind = 'stream'\nmessage_bytes = 1000001"), []);
        let found = problems_of(file, "kind = 'stream'\nmessage_bytes = 16777217\nslices = 7");
        let keys: Vec<_> = found.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["workload.message_bytes", "workload.slices"]);
    }

    #[test]
    fn unknown_kinds_and_keys_are_refused_at_their_line() {
        for text in
            ["kind = 'ping-pongg'", "kind = 'stream'\nmesage_bytes = 3", "kind = 'stream'\ncount = -1"]
        {
            let source = Source::from_text("s.toml", text);
            let error = source.parse::<Workload>().unwrap_err().to_string();
            assert!(error.starts_with("s.toml:"), "{error}");
        }
    }

    #[test]
    fn names_match_those_in_files() {
        for kind in WorkloadKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
