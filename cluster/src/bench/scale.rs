//! A cluster of many small nodes: it boots, and every node reaches every other.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{
    Measured, Options,
    command::{self, NodeCommand},
    figure::{Clock, Figure, Goal},
};
use crate::{cli::ClusterArgs, running::RunningCluster, runtime::RuntimeRoot};

const NODES: u32 = 16;
const MEMORY_MIB: u32 = 128;

/// How long all pings together may take.
const PING_TIMEOUT: Duration = Duration::from_secs(300);

/// Prints the addresses of `NICLAB_ADDRESSES` that answer, but for the node's own, `$1`. On a busy host a guest may wait
/// seconds for its turn.
const PING_ALL: &str = r#"
IFS=,
for peer in $NICLAB_ADDRESSES; do
    [ "$peer" = "$1" ] && continue
    ping -c 1 -W 20 "$peer" >/dev/null 2>&1 && echo "$peer"
done
true
"#;

/// Boots the cluster and pings all pairs.
///
/// # Errors
/// When the cluster does not boot, or a node cannot run `ping`.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let args = ClusterArgs { nodes: Some(NODES), memory: Some(MEMORY_MIB), ..options.cluster.clone() };
    let booted = super::boot(options, root, &args, |_| {})?;
    let boot_s = booted.boot.as_secs_f64();
    let (answered, ping_s) = booted.finish(|running| {
        let begin = Instant::now();
        let answered = ping_all(running)?;
        Ok((answered, begin.elapsed().as_secs_f64()))
    })?;
    let pairs = f64::from(NODES * (NODES - 1));
    let figures = vec![
        Figure::new("boot_16", "first process to all 16 nodes healthy", Clock::Wall, "s", vec![boot_s]),
        Figure::new("ping_16", "all nodes ping all others", Clock::Wall, "s", vec![ping_s]),
        Figure::new("ping_16_answered", "ordered pairs that answered", Clock::None, "pairs", vec![answered])
            .with_goal(Goal::AtLeast(pairs)),
    ];
    Ok(Measured { figures, ..Measured::default() })
}

/// How many ordered pairs of nodes reach each other.
fn ping_all(running: &mut RunningCluster) -> Result<f64> {
    let addresses: Vec<String> = running.plan().nodes.iter().map(|node| node.address.to_string()).collect();
    let commands: Vec<NodeCommand> = addresses
        .iter()
        .enumerate()
        .map(|(rank, own)| NodeCommand::shell(rank, PING_ALL, std::slice::from_ref(own)))
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
