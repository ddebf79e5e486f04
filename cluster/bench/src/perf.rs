//! Runs `niclab-perf` on two nodes: its arguments, and the figure in its JSON.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::Result;
use niclab_cluster::boot::command::{self, NodeCommand};
use niclab_cluster::boot::running::RunningCluster;
use serde_json::Value;
use thiserror::Error;

/// Time limit of one measurement: many times its duration on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The output of `niclab-perf` lacks a number.
#[derive(Debug, Error)]
#[error(
    "niclab-perf's report has no number at {pointer}; build niclab and its guest programs together: {text}"
)]
pub struct NoSuchNumber {
    pointer: &'static str,
    text: String,
}

/// The path between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// Messages of the nodes' cards, of any model. Both ends poll.
    Nic,
    /// Messages of the nodes' cards. Both ends sleep until an interrupt.
    SleepingNic,
    /// TCP between these addresses, by rank.
    Tcp(Vec<Ipv4Addr>),
    /// UDP between these addresses.
    Udp(Vec<Ipv4Addr>),
}

impl Path {
    fn arguments(&self) -> Vec<String> {
        match self {
            Self::Nic => Vec::new(),
            Self::SleepingNic => ["--poll", "block"].map(str::to_owned).to_vec(),
            Self::Tcp(addresses) => Self::of_sockets("tcp", addresses),
            Self::Udp(addresses) => Self::of_sockets("udp", addresses),
        }
    }

    fn of_sockets(transport: &str, addresses: &[Ipv4Addr]) -> Vec<String> {
        let list: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
        vec!["--transport".to_owned(), transport.to_owned(), "--addresses".to_owned(), list.join(",")]
    }
}

/// Two communicating nodes: `first` and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Rank of the first node, which is even: programs communicate in such pairs.
    pub first: usize,
    /// The path between them.
    pub path: Path,
}

impl From<Path> for Pair {
    fn from(path: Path) -> Self {
        Self { first: 0, path }
    }
}

/// Median round trip of `iterations` messages of `size_bytes` between two nodes, in microseconds of wall time.
///
/// # Errors
/// When the command fails on a node.
pub fn round_trip_us(
    running: &mut RunningCluster,
    pair: &Pair,
    size_bytes: usize,
    iterations: u64,
) -> Result<f64> {
    let counts =
        ["--size".to_owned(), size_bytes.to_string(), "--iterations".to_owned(), iterations.to_string()];
    let text = run(running, "pingpong", pair, &counts)?;
    Ok(number(&text, "/sections/0/rows/0/round_trip/p50_wall_ns")? / 1e3)
}

/// Bandwidth of `iterations` messages or writes of `size_bytes` from the lower rank to the higher, in 10^6 bytes per
/// second of wall time.
///
/// # Errors
/// When the command fails on a node.
pub fn bandwidth_mb_per_s(
    running: &mut RunningCluster,
    pair: &Pair,
    size_bytes: usize,
    iterations: u64,
) -> Result<f64> {
    let counts = [
        ["--size".to_owned(), size_bytes.to_string()],
        ["--iterations".to_owned(), iterations.to_string()],
        // Enough for the connection's window to open.
        ["--warmup".to_owned(), (iterations / 4).to_string()],
    ];
    let text = run(running, "stream", pair, counts.as_flattened())?;
    Ok(number(&text, "/sections/0/rows/0/payload_bytes_per_s_wall")? / 1e6)
}

/// Short messages per second of wall time, from the lower rank to the higher, over this number of channels in turn.
///
/// # Errors
/// When the command fails on a node.
pub fn messages_per_s(
    running: &mut RunningCluster,
    pair: &Pair,
    iterations: u64,
    channels: u32,
) -> Result<f64> {
    let counts = [
        ["--size".to_owned(), "0".to_owned()],
        ["--iterations".to_owned(), iterations.to_string()],
        ["--channels".to_owned(), channels.to_string()],
    ];
    let text = run(running, "stream", pair, counts.as_flattened())?;
    Ok(number(&text, "/sections/0/rows/0/messages_per_s_wall")?)
}

/// Messages or datagrams of `size_bytes` that arrive at the higher rank per second of wall time, in 10^6. With `batch`,
/// that number of messages shares a doorbell; without, all that are ready.
///
/// # Errors
/// When the command fails on a node.
pub fn stream_million_per_s(
    running: &mut RunningCluster,
    pair: &Pair,
    size_bytes: usize,
    iterations: u64,
    batch: Option<u64>,
) -> Result<f64> {
    let mut counts =
        vec!["--size".to_owned(), size_bytes.to_string(), "--iterations".to_owned(), iterations.to_string()];
    counts.extend(batch.into_iter().flat_map(|batch| ["--batch".to_owned(), batch.to_string()]));
    let text = run(running, "stream", pair, &counts)?;
    Ok(number(&text, "/sections/0/rows/0/messages_per_s_wall")? / 1e6)
}

/// Median wall time in nanoseconds in which the lower rank's program sends a short message for which there is space.
/// If the NIC polls, no doorbell is included.
///
/// # Errors
/// When the command fails on a node.
pub fn injection_ns(running: &mut RunningCluster, pair: &Pair, iterations: u64) -> Result<f64> {
    let counts = [["--size".to_owned(), "0".to_owned()], ["--iterations".to_owned(), iterations.to_string()]];
    let text = run(running, "inject", pair, counts.as_flattened())?;
    Ok(number(&text, "/sections/0/rows/0/injection/p50_wall_ns")?)
}

/// Shell script: a stream over the cards' own messages, and at the same time a TCP stream over their network
/// interfaces.
const BESIDE: &str = r#"
niclab-perf stream --json --transport tcp --addresses "$NICLAB_NIC_ADDRESSES" --size "$1" --iterations "$3" \
    >/tmp/beside.json 2>/tmp/beside.log &
niclab-perf stream --json --size "$1" --iterations "$2" || exit
echo ===
wait $! || { cat /tmp/beside.log >&2; exit 1; }
cat /tmp/beside.json
"#;

/// Bandwidth of `messages` of `size_bytes` from the lower rank to the higher, and of `writes` of the same size over
/// TCP. Both streams use the same cards at the same time. In 10^6 bytes per second of wall time.
///
/// # Errors
/// When the command fails on a node.
pub fn bandwidths_beside_mb_per_s(
    running: &mut RunningCluster,
    first: usize,
    size_bytes: usize,
    messages: u64,
    writes: u64,
) -> Result<[f64; 2]> {
    let arguments = [size_bytes.to_string(), messages.to_string(), writes.to_string()];
    let commands: Vec<NodeCommand> =
        (first..first + 2).map(|rank| NodeCommand::shell(rank, BESIDE, &arguments)).collect();
    let text = command::run(running, &commands, LIMIT)?.into_iter().next().unwrap_or_default();
    let (own, tcp) = text.split_once("===\n").unwrap_or_default();
    let rate = |text: &str| number(text, "/sections/0/rows/0/payload_bytes_per_s_wall");
    Ok([rate(own)? / 1e6, rate(tcp)? / 1e6])
}

/// Runs the same command at both ends; returns the report of the first.
fn run(running: &mut RunningCluster, benchmark: &str, pair: &Pair, arguments: &[String]) -> Result<String> {
    let mut argv = vec!["niclab-perf".to_owned(), benchmark.to_owned(), "--json".to_owned()];
    argv.extend(pair.path.arguments());
    argv.extend_from_slice(arguments);
    let ranks = pair.first..pair.first + 2;
    let commands: Vec<NodeCommand> = ranks.map(|rank| NodeCommand { rank, argv: argv.clone() }).collect();
    Ok(command::run(running, &commands, LIMIT)?.into_iter().next().unwrap_or_default())
}

fn number(text: &str, pointer: &'static str) -> Result<f64, NoSuchNumber> {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let number = document.pointer(pointer).and_then(Value::as_f64);
    number.ok_or_else(|| NoSuchNumber { pointer, text: text.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_and_missing_ones_are_named() {
        let text = r#"{"sections": [{"rows": [{"round_trip": {"p50_wall_ns": 12500}}]}]}"#;
        assert_eq!(number(text, "/sections/0/rows/0/round_trip/p50_wall_ns").unwrap(), 12500.0);
        let error = number("nonsense", "/sections/0").unwrap_err().to_string();
        assert!(error.contains("/sections/0") && error.contains("nonsense"), "{error}");
    }

    #[test]
    fn tcp_uses_the_given_addresses() {
        let path = Path::Tcp(vec![Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)]);
        assert_eq!(path.arguments().join(" "), "--transport tcp --addresses 10.78.0.1,10.78.0.2");
    }
}
