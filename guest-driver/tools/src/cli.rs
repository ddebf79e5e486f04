//! The command line, and who talks to whom.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use niclab_user::WaitPolicy;
use niclab_user::posts::{Element, Operator};

use crate::Failure;
use crate::bench::{End, FlagPlan};
use crate::lists::{Matcher, Matching};
use crate::task::{ELEMENTS, OPERATORS, Task};

/// Measures latency and throughput between the nodes of a cluster. Both nodes of a pair run the same command.
///
/// Ranks talk in pairs, 0 with 1, 2 with 3 and so on; the lower one of a pair measures and prints. Every time is wall
/// time of the guest; what the modelled hardware would have taken, `niclab` reports.
#[derive(Debug, Parser)]
#[command(name = "niclab-perf", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One message there, one back: the round trip with its percentiles
    Pingpong(RunArguments),
    /// Messages from the lower rank to the higher: the bandwidth
    Stream(RunArguments),
    /// Messages in both directions at once: the message rate
    Rate(RunArguments),
    /// Messages in bursts that have room: what sending one takes the lower rank's program
    Inject(RunArguments),
    /// A ping-pong that sleeps for the interrupt of each k-th message, and counts them exactly
    ///
    /// The interrupts counted by the program, by /proc/interrupts and by the device must all be those of the formula:
    /// one for each k-th message received. Exits with 1 when they are not.
    Interrupts(InterruptArguments),
    /// A short ping-pong and stream, as `niclab run` without a command shows them
    Demo(DemoArguments),
    /// Barriers, multicasts and reductions that cards carry out among themselves
    ///
    /// Every result is held to a plain computation. Before anything is measured the last member comes late to each
    /// operation, and the device's counters must show that no other host was woken meanwhile. Exits with 1 where either
    /// does not hold.
    Collective(CollectiveArguments),
    /// Perform this rank's part of a workload as the simulator's hosts do, held at cues by a conductor: `niclab check`
    Workload(WorkloadArguments),
}

/// Options of the benchmarks.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// With whom, and by what means.
    #[command(flatten)]
    pub world: WorldArguments,
    /// Payload bytes of a message; each carries a tag of 16 bytes besides. How long a message may be depends on the
    /// transport and on the node's card: a payload that is too long is refused, and the message names the limit
    #[arg(short, long, default_value_t = 16, value_name = "BYTES")]
    pub size: usize,
    /// Sweep the payload: 8, 16, 32 and 64 bytes
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// Messages to measure, for each size
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: Option<u64>,
    /// Messages before these that are not measured
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    pub warmup: Option<u64>,
    /// Ask for an interrupt with each K-th message; 0: with none
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub interrupt_every: u64,
    /// Ask for a notification with each message: the NIC tells the sender when it left
    #[arg(long)]
    pub notify: bool,
    /// Ask for an acknowledgement with each message: the NIC tells the sender when it was stored
    #[arg(long)]
    pub acknowledge: bool,
    /// With lists: post so many receives that match nothing in front of those that do
    #[arg(long, default_value_t = 0, value_name = "RECEIVES", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub depth: u32,
    /// With lists: who looks for the receive of a message; `host` is the baseline
    #[arg(long, value_enum, default_value_t = Matcher::Card)]
    pub match_on: Matcher,
    /// Through a card with channels: send by so many of them in turn
    #[arg(long, default_value_t = 1, value_name = "CHANNELS", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub channels: u32,
    /// Be coordinated: stop at each cue, which is a line on standard error, until a line comes on standard input
    ///
    /// The cues are `connected`, `warm` and `measured`. Between two cues nothing is sent but the benchmark's own
    /// messages, so that a conductor (`niclab check`) can count exactly those.
    #[arg(long, conflicts_with = "all")]
    pub coordinated: bool,
}

impl RunArguments {
    /// Payload sizes to run.
    pub fn sizes(&self) -> Vec<usize> {
        if self.all { vec![8, 16, 32, 64] } else { vec![self.size] }
    }

    /// Who matches, and against how many receives that match nothing.
    pub fn matching(&self) -> Matching {
        Matching { depth: self.depth, on: self.match_on }
    }

    /// Flags of the messages.
    pub fn flags(&self) -> FlagPlan {
        FlagPlan { interrupt_every: self.interrupt_every, notify: self.notify, acknowledge: self.acknowledge }
    }
}

/// Options of `interrupts`.
#[derive(Clone, Debug, Args)]
pub struct InterruptArguments {
    /// With whom, and by what means.
    #[command(flatten)]
    pub world: WorldArguments,
    /// Messages in each direction
    #[arg(short = 'n', long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub iterations: u64,
    /// Ask for an interrupt with each K-th message; 0: with none, and exactly none must come
    #[arg(short = 'k', long, default_value_t = 10, value_name = "K")]
    pub interrupt_every: u64,
}

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// With whom, and by what means.
    #[command(flatten)]
    pub world: WorldArguments,
}

/// Options of `workload`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArguments {
    /// The workload, a JSON document; `-`: the first line of standard input, behind which the answers to cues come
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
    /// Rank of this node; without it, the NIC's node number is taken
    #[arg(long, env = "NICLAB_RANK")]
    pub rank: Option<u32>,
    /// Character device of the NIC; the first one when not given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// Longest wait for anything to happen, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `collective`.
#[derive(Clone, Debug, Args)]
pub struct CollectiveArguments {
    /// Nodes of a group, the root of its tree first; repeated for more groups, which are asked all at once
    /// [default: all nodes]
    #[arg(long = "group", value_name = "NODE,NODE,...")]
    pub groups: Vec<String>,
    /// Bytes of a reduction's values, and of a multicast's payload
    #[arg(short, long, default_value_t = 64, value_name = "BYTES")]
    pub size: usize,
    /// Only barriers, multicasts or reductions
    #[arg(long, value_enum)]
    pub only: Option<Collective>,
    /// Only reductions by these operators: sum, min, max
    #[arg(long, value_delimiter = ',', value_parser = |name: &str| named(&OPERATORS, name))]
    pub operator: Vec<Operator>,
    /// Only reductions of these: i32, i64, u32, u64, f64
    #[arg(long, value_delimiter = ',', value_parser = |name: &str| named(&ELEMENTS, name))]
    pub element: Vec<Element>,
    /// How often each is measured
    #[arg(short = 'n', long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: u64,
    /// Character device of the NIC; the first one when not given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// How to wait
    #[arg(long, value_enum, default_value = "spin")]
    pub poll: Poll,
    /// Longest wait for anything to happen, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What groups can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Collective {
    /// Until all members have come
    Barrier,
    /// From each member to all others
    Multicast,
    /// Values of all members, combined at each
    Reduce,
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(own, _)| *own == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(own, _)| *own).collect();
        format!("give one of {}", names.join(", "))
    })
}

impl CollectiveArguments {
    /// The nodes of each group, in a cluster of so many.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`].
    pub fn groups_of(&self, nodes: u32) -> Result<Vec<Vec<u32>>, Failure> {
        if self.groups.is_empty() {
            return Ok(vec![(0..nodes).collect()]);
        }
        let group = |text: &String| {
            let members = text.split(',').map(|node| node.trim().parse().ok().filter(|node| *node < nodes));
            let members: Option<Vec<u32>> = members.collect();
            members
                .ok_or_else(|| Failure::Usage(format!("--group {text}: give nodes from 0 to {}", nodes - 1)))
        };
        self.groups.iter().map(group).collect()
    }

    /// What to do, in this order.
    pub fn tasks(&self) -> Vec<Task> {
        fn or_all<T: Copy>(chosen: &[T], all: &[(&str, T)]) -> Vec<T> {
            if chosen.is_empty() { all.iter().map(|(_, value)| *value).collect() } else { chosen.to_vec() }
        }
        let elements = or_all(&self.element, &ELEMENTS);
        let reductions = or_all(&self.operator, &OPERATORS)
            .into_iter()
            .flat_map(|operator| elements.iter().map(move |element| Task::Reduce(operator, *element)));
        let of =
            |kind, tasks: Vec<Task>| if self.only.is_none_or(|only| only == kind) { tasks } else { vec![] };
        let barrier = of(Collective::Barrier, vec![Task::Barrier]);
        let multicast = of(Collective::Multicast, vec![Task::Multicast]);
        [barrier, multicast, of(Collective::Reduce, reductions.collect())].concat()
    }
}

/// With whom to talk, and by what means.
#[derive(Clone, Debug, Args)]
pub struct WorldArguments {
    /// How to send [default: as the NIC can]
    #[arg(short, long, value_enum)]
    pub transport: Option<Transport>,
    /// Rank of this node; without it, the NIC's node number is taken
    #[arg(long, env = "NICLAB_RANK")]
    pub rank: Option<u32>,
    /// Ranks of the cluster; without it, what the NIC says
    #[arg(long, env = "NICLAB_SIZE")]
    pub ranks: Option<u32>,
    /// Rank to talk to, instead of the neighbour
    #[arg(long)]
    pub peer: Option<u32>,
    /// IP addresses of the ranks in their order, for TCP and UDP
    #[arg(long, env = "NICLAB_ADDRESSES", value_delimiter = ',', value_name = "IP,IP,...")]
    pub addresses: Vec<IpAddr>,
    /// First TCP port: the lower rank r of a pair listens at this port plus r
    #[arg(long, default_value_t = 18_515, value_name = "PORT")]
    pub tcp_port: u16,
    /// Character device of the NIC; the first one when not given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// Port of the NIC, the same at both ends
    #[arg(long, default_value_t = 0)]
    pub port: u32,
    /// Slices of the receive queue, or events of a card with lists: a power of two
    #[arg(long, default_value_t = 256)]
    pub slices: u32,
    /// How to wait: `spin` wants a core for each spinning end, and one for the daemon [default: spin with a NIC,
    /// block with TCP and UDP]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,
    /// Longest wait for the peer, and for any message, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// How to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Slices, as of an ULTRA card
    #[value(name = "ultra")]
    Slices,
    /// Receives that are posted in lists, as of a Match card
    #[value(name = "match")]
    Lists,
    /// Room that is posted for any message, as of an INIC card
    #[value(name = "inic", alias = "posts")]
    Posts,
    /// Messages that are pushed through a logical channel, as of a GRIM card
    #[value(name = "grim")]
    Channels,
    /// Active ports over descriptor rings, as of a GAMMA card
    #[value(name = "gamma")]
    Active,
    /// A TCP connection with TCP_NODELAY: the baseline
    Tcp,
    /// UDP datagrams, of which some may be lost: a stream only
    Udp,
}

impl Transport {
    /// As the report names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slices => "ultra",
            Self::Lists => "match",
            Self::Posts => "inic",
            Self::Channels => "grim",
            Self::Active => "gamma",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Whether messages go by the Ethernet function and not by the NIC.
    pub fn is_of_sockets(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Look again and again
    Spin,
    /// Sleep until an interrupt
    Block,
    /// Look for 100 us, then sleep
    Adaptive,
}

impl Poll {
    /// As the library says it.
    pub const fn policy(self) -> WaitPolicy {
        match self {
            Self::Spin => WaitPolicy::Spin,
            Self::Block => WaitPolicy::Block,
            Self::Adaptive => WaitPolicy::ADAPTIVE,
        }
    }
}

impl WorldArguments {
    /// How to wait.
    pub fn policy(&self) -> WaitPolicy {
        match self.poll {
            Some(poll) => poll.policy(),
            None if self.transport.is_some_and(Transport::is_of_sockets) => WaitPolicy::Block,
            None => WaitPolicy::Spin,
        }
    }

    /// Longest wait.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// This rank's place among `ranks`; `None` when it has no neighbour to talk to.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`].
    pub fn pair(&self, rank: u32, ranks: Option<u32>) -> Result<Option<Pair>, Failure> {
        let peer = self.peer.unwrap_or(rank ^ 1);
        if peer == rank {
            return Err(Failure::Usage(format!("--peer {peer} is this rank itself: name another one")));
        }
        if ranks.is_some_and(|ranks| peer >= ranks) {
            return Ok(None);
        }
        let end = if rank < peer { End::First } else { End::Second };
        Ok(Some(Pair { rank, peer, end }))
    }

    /// The address of `rank`.
    ///
    /// # Errors
    ///
    /// [`Failure::NoAddress`].
    pub fn address(&self, rank: u32) -> Result<IpAddr, Failure> {
        let address = self.addresses.get(rank as usize).copied();
        address.ok_or(Failure::NoAddress { rank, listed: self.addresses.len() })
    }
}

/// Two ranks that talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// This rank.
    pub rank: u32,
    /// The other.
    pub peer: u32,
    /// Which end this is.
    pub end: End,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn documented_commands_are_valid() {
        let exceptions = [
            ("niclab-perf … --json", "names an option of all its benchmarks"),
            ("niclab-perf --json", "names an option of all its benchmarks"),
        ];
        let wrong = niclab_harness::invalid::<Cli>(&niclab_harness::documented("niclab-perf"), &exceptions);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn help_promises_no_limit_that_depends_on_the_card() {
        let mut command = Cli::command();
        for benchmark in command.get_subcommands_mut() {
            let help = benchmark.render_long_help().to_string();
            assert!(!help.contains("MiB") && !help.contains("KiB"), "{help}");
        }
    }

    fn world(line: &str) -> WorldArguments {
        let line = format!("niclab-perf demo {line}");
        match Cli::try_parse_from(line.split_whitespace()).expect("a valid line").command {
            Command::Demo(demo) => demo.world,
            other => panic!("{other:?} is not demo"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn tcp_blocks_and_a_nic_is_polled() {
        assert_eq!(world("--transport tcp").policy(), WaitPolicy::Block);
        assert_eq!(world("--transport udp").policy(), WaitPolicy::Block);
        assert_eq!(world("--transport match").policy(), WaitPolicy::Spin);
        assert_eq!(world("").policy(), WaitPolicy::Spin);
        assert_eq!(world("--transport tcp --poll spin").policy(), WaitPolicy::Spin);
    }

    #[test]
    fn neighbours_talk_and_an_odd_one_has_nobody() {
        let world = world("");
        let pair = |rank, ranks| world.pair(rank, ranks).expect("a pair").map(|pair| (pair.peer, pair.end));
        assert_eq!(pair(2, Some(4)), Some((3, End::First)));
        assert_eq!(pair(3, Some(4)), Some((2, End::Second)));
        assert_eq!(pair(2, Some(3)), None);
    }

    #[test]
    fn a_rank_does_not_talk_to_itself() {
        assert!(world("--peer 1").pair(1, Some(2)).is_err());
    }

    #[test]
    fn a_missing_address_is_named() {
        let error = world("--addresses 10.0.0.1").address(1).expect_err("one address");
        assert!(error.to_string().contains("rank 1"), "{error}");
    }
}
