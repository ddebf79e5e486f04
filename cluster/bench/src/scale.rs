//! Clusters of many small nodes: their start time, whether every node reaches every other, and the host's memory for a
//! node.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use niclab_cluster::{
    arguments::ClusterArgs,
    boot::{
        command::{self, NodeCommand},
        running::RunningCluster,
    },
    host::runtime::RuntimeRoot,
};

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    memory::{MemoryError, ResidentMemory},
};

/// Numbers of nodes, each with its maximum wall time in seconds.
const SIZES: [(u32, Goal); 2] = [(16, Goal::Below(7.0)), (64, Goal::Below(30.0))];

const MEMORY_MIB: u32 = 128;

/// Number of nodes that ping each other.
const PINGING: usize = 16;

/// Maximum memory that a node may take from the host, in 10^6 bytes.
const MEMORY_GOAL: Goal = Goal::Below(60.0);

/// Time limit of all pings together.
const PING_TIMEOUT: Duration = Duration::from_secs(300);

/// Shell script: prints which of the addresses `$2`, `$3` and so on answer, without the node's own, `$1`. On a busy
/// host, a guest may wait for seconds until it runs.
const PING_ALL: &str = r#"
own=$1
shift
for peer in "$@"; do
    [ "$peer" = "$own" ] && continue
    ping -c 1 -W 20 "$peer" >/dev/null 2>&1 && echo "$peer"
done
true
"#;

/// Starts clusters of each size, measures their memory, and pings all pairs.
///
/// # Errors
/// When a cluster does not come up, or a node cannot run `ping`.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let mut measured = Measured::default();
    for (nodes, goal) in SIZES {
        let args = ClusterArgs { nodes: Some(nodes), memory: Some(MEMORY_MIB), ..options.cluster.clone() };
        // Makes the template, which is not a part of a start.
        super::plan(options, root, &args)?;
        let before = available_bytes()?;
        let booted = super::boot(options, root, &args, |_| {})?;
        let start_s = (booted.preparation + booted.boot).as_secs_f64();
        let (added, parts, (answered, ping_s)) = booted.finish(|running| {
            let added = before - available_bytes()?;
            let parts = memory_parts(running)?;
            let begin = Instant::now();
            let answered = ping_all(running)?;
            Ok((added, parts, (answered, begin.elapsed().as_secs_f64())))
        })?;
        let name = |what: &str| format!("{what}_{nodes}");
        let per_node = |bytes: f64| vec![bytes / 1e6 / f64::from(nodes)];
        let megabytes =
            |key: &str, what: &str, bytes| Figure::new(&name(key), what, Clock::None, "MB", per_node(bytes));
        let pairs = (PINGING * (PINGING - 1)) as f64;
        let what = format!("command line to all {nodes} nodes healthy");
        measured.figures.extend([
            Figure::new(&name("start"), &what, Clock::Wall, "s", vec![start_s]).with_goal(goal),
            megabytes("memory", "decrease of the host's available memory per node", added)
                .with_goal(MEMORY_GOAL),
            megabytes("memory_guest", "of this: the guest's memory, copied or written", parts.guest),
            megabytes("memory_qemu", "of this: QEMU's own memory", parts.qemu),
            Figure::new(&name("ping"), "the first 16 nodes ping each other", Clock::Wall, "s", vec![ping_s]),
            Figure::new(
                &name("ping_answered"),
                "ordered pairs that answered",
                Clock::None,
                "pairs",
                vec![answered],
            )
            .with_goal(Goal::AtLeast(pairs)),
        ]);
    }
    Ok(measured)
}

/// The host's available memory, in bytes.
fn available_bytes() -> Result<f64, MemoryError> {
    let path = PathBuf::from("/proc/meminfo");
    let text = fs::read_to_string(&path).map_err(|error| MemoryError::Read { path: path.clone(), error })?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    let kib = value.and_then(|kib| kib.trim().parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or(MemoryError::Missing { path, line: "MemAvailable" })
}

/// Memory of all nodes, in bytes.
struct Parts {
    guest: f64,
    qemu: f64,
}

fn memory_parts(running: &RunningCluster) -> Result<Parts, MemoryError> {
    let mut parts = Parts { guest: 0.0, qemu: 0.0 };
    for pid in running.pids().0 {
        let resident = ResidentMemory::of(pid)?;
        parts.qemu += resident.anonymous_bytes as f64;
        // A restored node's memory is its QEMU's standard input; pages that were never written use no memory.
        let path = PathBuf::from(format!("/proc/{pid}/fd/0"));
        let about = fs::metadata(&path).map_err(|error| MemoryError::Read { path, error })?;
        parts.guest += (about.blocks() * 512) as f64;
    }
    Ok(parts)
}

/// Number of ordered pairs of the first nodes that reach each other.
fn ping_all(running: &mut RunningCluster) -> Result<f64> {
    let nodes = running.plan().nodes.iter().take(PINGING);
    let addresses: Vec<String> = nodes.map(|node| node.address.to_string()).collect();
    let commands: Vec<NodeCommand> = addresses
        .iter()
        .enumerate()
        .map(|(rank, own)| {
            let arguments: Vec<String> = [own].into_iter().chain(&addresses).cloned().collect();
            NodeCommand::shell(rank, PING_ALL, &arguments)
        })
        .collect();
    let outputs = command::run(running, &commands, PING_TIMEOUT)?;
    for (own, output) in addresses.iter().zip(&outputs) {
        for peer in addresses.iter().filter(|peer| *peer != own && !output.lines().any(|line| line == *peer))
        {
            log::warn!("{peer} does not answer {own}");
        }
    }
    Ok(outputs.iter().map(|output| output.lines().count()).sum::<usize>() as f64)
}
