//! How fast the simulator is, and how much memory it takes, over numbers of nodes. Wall time of one thread.

use std::fmt;
use std::fs;
use std::time::Instant;

use niclab_spec::sim::{Forwarding, SIM_CONFIG_VERSION, SimNode};
use niclab_spec::{DeviceFaults, Faults, LinkConfig, NicConfig, Profile, SimConfig, Workload, WorkloadKind};
use serde::Serialize;

use crate::run::{Options, RunError, run};

/// Partners of each node: as many as an ULTRA card has ports.
const NEIGHBOURS: u32 = Workload::ULTRA_PORTS;
/// The numbers of nodes.
const NODES: [u32; 5] = [16, 64, 256, 1_024, 4_096];
/// Slices of each receive queue: the programs of so many nodes exchange short bursts.
const SLICES: u32 = 64;

/// One number of nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Nodes, each of which exchanges messages of 16 bytes with 8 others.
    pub nodes: u32,
    /// Messages received.
    pub messages: u64,
    /// Events carried out, with the ledger on.
    pub events: u64,
    /// Wall time of the whole simulation.
    pub wall_ms: u64,
    /// Events for each second of wall time.
    pub events_per_wall_s: u64,
    /// Most memory that the process had so far.
    pub peak_bytes: u64,
}

/// The table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// By rising number of nodes.
    pub rows: Vec<Row>,
}

/// Measures every number of nodes up to `most`, with `count` messages from each node to each partner.
///
/// # Errors
/// [`RunError`].
pub fn measure(most: u32, count: u64) -> Result<Table, RunError> {
    let rows = NODES.into_iter().filter(|&nodes| nodes <= most).map(|nodes| row(nodes, count));
    Ok(Table { rows: rows.collect::<Result<_, _>>()? })
}

fn row(nodes: u32, count: u64) -> Result<Row, RunError> {
    let config = exchange(nodes, count);
    let begin = Instant::now();
    let outcome = run(&config, &Options::default())?;
    let elapsed = begin.elapsed();
    let nanoseconds = elapsed.as_nanos().max(1);
    Ok(Row {
        nodes,
        messages: outcome.received,
        events: outcome.events,
        wall_ms: elapsed.as_millis() as u64,
        events_per_wall_s: (u128::from(outcome.events) * 1_000_000_000 / nanoseconds) as u64,
        peak_bytes: peak_bytes(),
    })
}

/// Nodes on a ring, each with eight partners.
fn exchange(nodes: u32, count: u64) -> SimConfig {
    // The profile of the default NIC, which a test of its own crate reads.
    let name = NicConfig::default().model.default_profile();
    let profile = Profile::bundled(name).unwrap_or_else(|| unreachable!("the default profile is bundled"));
    let link = LinkConfig {
        bandwidth_bits_per_s: profile.network.link_bandwidth_bits_per_s.value,
        latency_ns: profile.network.link_latency_ns.value,
        mtu_bytes: LinkConfig::DEFAULT_MTU_BYTES,
        queue_frames: LinkConfig::DEFAULT_QUEUE_FRAMES,
        faults: Faults::default(),
    };
    let node = |rank: u32| SimNode {
        name: format!("node{rank}"),
        nic: NicConfig::default(),
        device_faults: DeviceFaults::default(),
        link,
    };
    SimConfig {
        version: SIM_CONFIG_VERSION,
        cluster: "bench".to_owned(),
        seed: 1,
        profile,
        forwarding: Forwarding::default(),
        nodes: (0..nodes).map(node).collect(),
        workload: Workload {
            count,
            slices: SLICES,
            neighbours: Some(NEIGHBOURS),
            ..Workload::new(WorkloadKind::NeighbourExchange)
        },
    }
}

/// The most memory that this process had, or 0 where the kernel does not say.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NEIGHBOURS} partners a node, 16 bytes a message, ledger on, one thread; wall time")?;
        writeln!(
            f,
            "{:>6} {:>10} {:>11} {:>9} {:>11} {:>9}",
            "nodes", "messages", "events", "wall ms", "events/s", "peak MiB"
        )?;
        for row in &self.rows {
            let Row { nodes, messages, events, wall_ms, events_per_wall_s, peak_bytes } = row;
            let peak_mib = peak_bytes >> 20;
            writeln!(
                f,
                "{nodes:>6} {messages:>10} {events:>11} {wall_ms:>9} {events_per_wall_s:>11} {peak_mib:>9}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_grow_as_the_nodes_do() {
        let table = measure(64, 20).unwrap();
        let [small, large] = table.rows.as_slice() else { panic!("{table}") };
        assert_eq!((small.messages, large.messages), (16 * 8 * 20, 64 * 8 * 20));
        let (a, b) = (small.events / 16, large.events / 64);
        assert!(a.abs_diff(b) * 10 <= a, "events a node: {a} and {b}");
        assert!(large.peak_bytes > 0);
    }
}
