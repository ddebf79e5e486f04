//! The command line, and the pairing of ranks.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use niclab_user::WaitPolicy;
use niclab_user::inic::{Element, Operator};

use crate::Failure;
use crate::bench::{End, FlagPlan};
use crate::matching::{Matcher, Matching};
use crate::task::{ELEMENTS, OPERATORS, Task};

/// Measures latency and throughput between the nodes of a cluster. Both nodes of a pair run the same command.
///
/// Ranks communicate in pairs: 0 with 1, 2 with 3 and so on. The lower rank of a pair measures and prints. Every time
/// is wall time of the guest; `niclab` on the host reports model time.
#[derive(Debug, Parser)]
#[command(name = "niclab-perf", version, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Request and reply: the round-trip time with its percentiles
    Pingpong(RunArguments),
    /// Messages from the lower rank to the higher: the bandwidth
    Stream(RunArguments),
    /// Messages in both directions at once: the message rate
    Rate(RunArguments),
    /// Bursts that fit the send window: the time that the lower rank's program spends on each message
    Inject(RunArguments),
    /// A ping-pong that sleeps for the interrupt of each k-th message, and counts them exactly
    ///
    /// The program, /proc/interrupts and the device must all count one interrupt for each k-th message received. If one
    /// count differs, the command exits with 1.
    Interrupts(InterruptArguments),
    /// A short ping-pong and stream, as `niclab run` without a command shows them
    Demo(DemoArguments),
    /// Barriers, multicasts and reductions that cards carry out among themselves
    ///
    /// The command compares every result with one that it computes itself. Before it measures, the last member joins
    /// each operation late. The device's counters must then show that no other host was woken. If a check fails, the
    /// command exits with 1.
    Collective(CollectiveArguments),
    /// Run this rank's part of a workload, as the simulator's hosts do; `niclab check` releases it at each cue
    Workload(WorkloadArguments),
}

/// Options of the benchmarks.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// The peer, and the means of communication.
    #[command(flatten)]
    pub world: WorldArguments,
    /// Payload bytes of a message, without its tag of 16 bytes. The limit depends on the transport and on the node's
    /// card; the error for a longer payload names it
    #[arg(short, long, default_value_t = 16, value_name = "BYTES")]
    pub size: usize,
    /// Sweep the payload: 8, 16, 32 and 64 bytes
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,
    /// Messages to measure, for each size
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: Option<u64>,
    /// Warm-up messages, which are not measured
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    pub warmup: Option<u64>,
    /// Request an interrupt with each K-th message; 0: with no message
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub interrupt_every: u64,
    /// Request a notification with each message: the NIC reports to the sender that the message left
    #[arg(long)]
    pub notify: bool,
    /// Request an acknowledgement with each message: the NIC reports to the sender that the message was stored
    #[arg(long)]
    pub acknowledge: bool,
    /// `stream` and `rate`: ring one doorbell for this many messages; 1: for each [default: for all that are ready]
    #[arg(long, value_name = "MESSAGES")]
    pub batch: Option<NonZeroU64>,
    /// Match cards: post this many receives that match no message before those that match
    #[arg(
        long,
        default_value_t = 0,
        value_name = "RECEIVES",
        value_parser = clap::value_parser!(u32).range(..=1_000_000)
    )]
    pub depth: u32,
    /// Match cards: where to search for the receive of a message; `host` is the baseline
    #[arg(long, value_enum, default_value_t = Matcher::Card)]
    pub match_on: Matcher,
    /// GRIM cards: send through this many channels, round robin
    #[arg(long, default_value_t = 1, value_name = "CHANNELS", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub channels: u32,
    /// Wait for a coordinator: print each cue as a line on standard error, then wait for a line on standard input
    ///
    /// The cues are `connected`, `warm` and `measured`. Between two cues the program sends only the benchmark's own
    /// messages, so the coordinator (`niclab check`) can count exactly these.
    #[arg(long, conflicts_with = "all")]
    pub coordinated: bool,
}

impl RunArguments {
    /// Payload sizes to run.
    pub fn sizes(&self) -> Vec<usize> {
        if self.all { vec![8, 16, 32, 64] } else { vec![self.size] }
    }

    /// Where messages are matched, and the number of receives to search past.
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
    /// The peer, and the means of communication.
    #[command(flatten)]
    pub world: WorldArguments,
    /// Messages in each direction
    #[arg(
        short = 'n',
        long,
        default_value_t = 100,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    pub iterations: u64,
    /// Request an interrupt with each K-th message; 0: with no message, and none must arrive
    #[arg(short = 'k', long, default_value_t = 10, value_name = "K")]
    pub interrupt_every: u64,
}

/// Options of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// The peer, and the means of communication.
    #[command(flatten)]
    pub world: WorldArguments,
}

/// Options of `workload`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArguments {
    /// The workload, a JSON document; `-`: the first line of standard input, followed by the answers to cues
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
    /// Rank of this node; without it, the NIC's node number is taken
    #[arg(long, env = "NICLAB_RANK")]
    pub rank: Option<u32>,
    /// Character device of the NIC; the first one when not given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// Longest wait for anything to happen, in seconds
    #[arg(
        long,
        default_value_t = 30,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `collective`.
#[derive(Clone, Debug, Args)]
pub struct CollectiveArguments {
    /// Nodes of a group, the root of its tree first; repeat the option for more groups, which run at the same time
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
    /// Measured repetitions of each operation
    #[arg(
        short = 'n',
        long,
        default_value_t = 100,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=100_000_000)
    )]
    pub iterations: u64,
    /// Character device of the NIC; the first one when not given
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// How to wait
    #[arg(long, value_enum, default_value = "spin")]
    pub poll: Poll,
    /// Longest wait for anything to happen, in seconds
    #[arg(
        long,
        default_value_t = 30,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Collective {
    /// Wait until all members have reached it
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
    /// The nodes of each group, in a cluster of `nodes` nodes.
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

    /// The operations to run, in order.
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

/// The peer, and the means of communication.
#[derive(Clone, Debug, Args)]
pub struct WorldArguments {
    /// How to send [default: the transport of the NIC's model]
    #[arg(short, long, value_enum)]
    pub transport: Option<Transport>,
    /// Rank of this node; without it, the NIC's node number is taken
    #[arg(long, env = "NICLAB_RANK")]
    pub rank: Option<u32>,
    /// Number of ranks in the cluster; without it, the NIC's node count is taken
    #[arg(long, env = "NICLAB_SIZE")]
    pub ranks: Option<u32>,
    /// Rank of the peer, instead of the neighbour
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
    /// Slices of the receive queue, or events of a card with lists: a power of two [default: 1024 with slices, 256
    /// with other cards]
    #[arg(long)]
    pub slices: Option<u32>,
    /// How to wait: `spin` needs a core for each spinning end and one for the daemon [default: spin with a NIC, block
    /// with TCP and UDP]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,
    /// Longest wait for the peer, and for any message, in seconds
    #[arg(
        long,
        default_value_t = 30,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
    /// Print a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

/// How to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Slices of an ULTRA card
    #[value(name = "ultra")]
    Slices,
    /// Receives posted in lists of a Match card
    #[value(name = "match")]
    Lists,
    /// Receives posted for any message, on an INIC card
    #[value(name = "inic", alias = "posts")]
    Posts,
    /// Messages pushed through a logical channel of a GRIM card
    #[value(name = "grim")]
    Channels,
    /// Active ports over descriptor rings of a GAMMA card
    #[value(name = "gamma")]
    Active,
    /// A TCP connection with TCP_NODELAY: the baseline
    Tcp,
    /// UDP datagrams, which may be lost: `stream` only
    Udp,
}

impl Transport {
    /// The name in reports.
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

    /// Whether messages use sockets on the Ethernet function instead of the cluster function.
    pub fn is_of_sockets(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Poll continuously
    Spin,
    /// Sleep until an interrupt
    Block,
    /// Poll for 100 us, then sleep until an interrupt
    Adaptive,
}

impl Poll {
    /// The library's policy.
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

    /// The pair that this rank belongs to; `None` if the peer's rank is not below `ranks`.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`].
    pub fn pair(&self, rank: u32, ranks: Option<u32>) -> Result<Option<Pair>, Failure> {
        let peer = self.peer.unwrap_or(rank ^ 1);
        if peer == rank {
            return Err(Failure::Usage(format!("--peer {peer} is this rank itself: give another rank")));
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

/// Two ranks that communicate.
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
    fn the_command_line_is_valid() {
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
    fn ranks_pair_with_neighbours_and_an_odd_rank_has_none() {
        let world = world("");
        let pair = |rank, ranks| world.pair(rank, ranks).expect("a pair").map(|pair| (pair.peer, pair.end));
        assert_eq!(pair(2, Some(4)), Some((3, End::First)));
        assert_eq!(pair(3, Some(4)), Some((2, End::Second)));
        assert_eq!(pair(2, Some(3)), None);
    }

    #[test]
    fn a_rank_cannot_be_its_own_peer() {
        assert!(world("--peer 1").pair(1, Some(2)).is_err());
    }

    #[test]
    fn a_missing_address_is_named() {
        let error = world("--addresses 10.0.0.1").address(1).expect_err("one address");
        assert!(error.to_string().contains("rank 1"), "{error}");
    }
}
