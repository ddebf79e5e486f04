//! The simulator's speed and memory for several numbers of nodes, in wall time of one thread and of two. Also the speed
//! of any one configuration, in a core's time.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use niclab_spec::sim::{SIM_CONFIG_VERSION, SimNode};
use niclab_spec::{DeviceFaults, Faults, LinkConfig, NicConfig, Profile, SimConfig, Workload, WorkloadKind};
use niclab_spec::{Forwarding, Framing};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::run::{Options, Outcome, RunError, run};

/// Partners of each node: the maximum number of ports of a program.
const NEIGHBOURS: u32 = Workload::MAX_PORTS;
/// Numbers of nodes and threads.
const ROWS: [(u32, usize); 9] =
    [(16, 1), (64, 1), (256, 1), (1_024, 1), (1_024, 2), (4_096, 1), (4_096, 2), (MANY, 1), (MANY, 2)];
/// The maximum number of addresses. These nodes exchange a few messages each.
const MANY: u32 = 65_536;
/// Maximum number of messages to each partner with [`MANY`] nodes.
const FEW: u64 = 4;
/// Slices of each receive queue. It is small, because the programs exchange short bursts.
const SLICES: u32 = 64;

/// Maximum number of simulations for each number of nodes; the table shows the median. Short simulations need more.
const ROUNDS: u32 = 15;

/// The results for one number of nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number of nodes. Each exchanges messages of 16 bytes with 8 others.
    pub nodes: u32,
    /// Number of threads that simulated them.
    pub threads: usize,
    /// Number of messages received.
    pub messages: u64,
    /// Number of events processed, with the ledger on.
    pub events: u64,
    /// Wall time of the whole simulation: the median of several.
    pub wall_ms: u64,
    /// Events for each second of wall time.
    pub events_per_wall_s: u64,
    /// Wall time over `events * log2(events)`, as a multiple of the first row's. It is at most 1 if the simulator's
    /// time grows no faster than n log n.
    pub wall_over_n_log_n: f64,
    /// Maximum memory of the process so far.
    pub peak_bytes: u64,
    /// Memory over `events * log2(events)`, as a multiple of the first row's.
    pub memory_over_n_log_n: f64,
}

/// The table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// In rising order of nodes.
    pub rows: Vec<Row>,
}

/// The measurement of one number of nodes.
struct Measured {
    nodes: u32,
    threads: usize,
    messages: u64,
    events: u64,
    wall: Duration,
    peak_bytes: u64,
}

impl Measured {
    fn n_log_n(&self) -> f64 {
        let events = self.events.max(2) as f64;
        events * events.log2()
    }

    fn wall_over_n_log_n(&self) -> f64 {
        self.wall.as_secs_f64() / self.n_log_n()
    }

    fn memory_over_n_log_n(&self) -> f64 {
        self.peak_bytes as f64 / self.n_log_n()
    }

    fn row(&self, first: &Self) -> Row {
        Row {
            nodes: self.nodes,
            threads: self.threads,
            messages: self.messages,
            events: self.events,
            wall_ms: self.wall.as_millis() as u64,
            events_per_wall_s: (self.events as f64 / self.wall.as_secs_f64()) as u64,
            wall_over_n_log_n: self.wall_over_n_log_n() / first.wall_over_n_log_n(),
            peak_bytes: self.peak_bytes,
            memory_over_n_log_n: self.memory_over_n_log_n() / first.memory_over_n_log_n(),
        }
    }
}

/// The speed of one configuration, for each second of a core's time. This is wall time without the time that other
/// programs use the core.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Number of frames that nodes sent in the measured part.
    pub frames: u64,
    /// Number of events processed, including set-up.
    pub events: u64,
    /// Frames for each second of a core's time, for each round.
    pub frames_per_processor_s: Vec<f64>,
    /// Events for each second of a core's time, for each round.
    pub events_per_processor_s: Vec<f64>,
    /// Failed checks.
    pub failed_checks: Vec<String>,
}

/// Simulates a configuration `rounds` times.
///
/// # Errors
/// [`RunError`].
pub fn speed(config: &SimConfig, rounds: u32) -> Result<Speed, RunError> {
    let mut speed = Speed {
        frames: 0,
        events: 0,
        frames_per_processor_s: Vec::new(),
        events_per_processor_s: Vec::new(),
        failed_checks: Vec::new(),
    };
    for _ in 0..rounds {
        let begin = processor_time();
        let Outcome { events, report, .. } = run(config, &Options::default())?;
        let took = processor_time().saturating_sub(begin).max(Duration::from_nanos(1)).as_secs_f64();
        (speed.frames, speed.events) = (report.fabric.frames_in, events);
        speed.frames_per_processor_s.push(speed.frames as f64 / took);
        speed.events_per_processor_s.push(events as f64 / took);
        let failed = report.checks.into_iter().filter(|check| !check.held);
        speed.failed_checks = failed.map(|check| format!("{}: {}", check.name, check.detail)).collect();
    }
    Ok(speed)
}

/// The processor time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Measures every number of nodes up to `most`, with `count` messages from each node to each partner.
///
/// # Errors
/// [`RunError`].
pub fn measure(most: u32, count: u64) -> Result<Table, RunError> {
    let rows = ROWS.into_iter().filter(|&(nodes, _)| nodes <= most);
    let measured = rows.map(|row| measured(row, count));
    let measured: Vec<Measured> = measured.collect::<Result<_, RunError>>()?;
    let row = |of_row: &Measured| measured.first().map(|first| of_row.row(first));
    Ok(Table { rows: measured.iter().filter_map(row).collect() })
}

fn measured((nodes, threads): (u32, usize), count: u64) -> Result<Measured, RunError> {
    let config = exchange(nodes, if nodes == MANY { count.min(FEW) } else { count });
    // An odd number has a median.
    let rounds = (1_024 / nodes).clamp(1, ROUNDS) | 1;
    let mut walls = Vec::new();
    let mut last = None;
    for _ in 0..rounds {
        let begin = Instant::now();
        let Outcome { events, received, .. } = run(&config, &on(threads))?;
        walls.push(begin.elapsed().max(Duration::from_nanos(1)));
        last = Some((events, received));
    }
    walls.sort_unstable();
    let wall = walls.get(walls.len() / 2).copied().unwrap_or_default();
    let (events, messages) = last.unwrap_or_default();
    Ok(Measured { nodes, threads, messages, events, wall, peak_bytes: peak_bytes() })
}

/// Options for this number of threads.
fn on(threads: usize) -> Options<'static> {
    Options { threads, ..Options::default() }
}

/// Simulates the benchmark's exchange once on `threads` threads. Returns the number of events.
///
/// # Errors
/// [`RunError`].
pub fn work(nodes: u32, count: u64, threads: usize) -> Result<u64, RunError> {
    Ok(run(&exchange(nodes, count), &on(threads))?.events)
}

/// Nodes on a ring, each with eight partners.
fn exchange(nodes: u32, count: u64) -> SimConfig {
    // A test of the profiles' crate reads the default NIC's profile.
    let name = NicConfig::default().model.default_profile;
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
        adversarial: None,
        link,
    };
    SimConfig {
        version: SIM_CONFIG_VERSION,
        cluster: "bench".to_owned(),
        seed: 1,
        profile,
        forwarding: Forwarding::default(),
        framing: Framing::default(),
        nodes: (0..nodes).map(node).collect(),
        workload: Workload {
            count,
            slices: SLICES,
            neighbours: Some(NEIGHBOURS),
            ..Workload::new(WorkloadKind::NeighbourExchange)
        },
        firmware_reloads: Vec::new(),
    }
}

/// Maximum memory of this process, or 0 if the kernel does not report it.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} frames, {} events; for each second of a core's time, round by round:",
            self.frames, self.events
        )?;
        for (frames, events) in self.frames_per_processor_s.iter().zip(&self.events_per_processor_s) {
            writeln!(f, "{frames:>12.0} frames {events:>12.0} events")?;
        }
        self.failed_checks.iter().try_for_each(|failed| writeln!(f, "FAILED: {failed}"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NEIGHBOURS} partners a node, 16 bytes a message, ledger on; wall time")?;
        writeln!(f, "growth: over events * log2(events), first row = 1")?;
        writeln!(
            f,
            "{:>6} {:>7} {:>9} {:>9} {:>8} {:>9} {:>8} {:>12} {:>9} {:>14}",
            "nodes",
            "threads",
            "messages",
            "events",
            "wall ms",
            "events/s",
            "ns/event",
            "time growth",
            "peak MiB",
            "memory growth"
        )?;
        for row in &self.rows {
            let Row { nodes, threads, messages, events, wall_ms, events_per_wall_s, .. } = row;
            let ns_per_event = 1e9 / row.events_per_wall_s.max(1) as f64;
            let (time, memory) = (row.wall_over_n_log_n, row.memory_over_n_log_n);
            let peak_mib = row.peak_bytes >> 20;
            write!(
                f,
                "{nodes:>6} {threads:>7} {messages:>9} {events:>9} {wall_ms:>8} {events_per_wall_s:>9} "
            )?;
            writeln!(f, "{ns_per_event:>8.0} {time:>12.2} {peak_mib:>9} {memory:>14.3}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_grow_linearly_with_the_nodes() {
        let table = measure(64, 20).unwrap();
        let [small, large] = table.rows.as_slice() else { panic!("{table}") };
        assert_eq!((small.messages, large.messages), (16 * 8 * 20, 64 * 8 * 20));
        let (a, b) = (small.events / 16, large.events / 64);
        assert!(a.abs_diff(b) * 10 <= a, "events a node: {a} and {b}");
        assert!(large.peak_bytes > 0);
        assert!((small.wall_over_n_log_n - 1.0).abs() < f64::EPSILON, "the first row is the reference");
        let grown = |row: &Row| row.peak_bytes as f64 / (row.events as f64 * (row.events as f64).log2());
        assert!((large.memory_over_n_log_n - grown(large) / grown(small)).abs() < 1e-9);
    }

    #[test]
    fn one_configuration_is_measured_in_each_round() {
        let measured = speed(&exchange(16, 20), 3).unwrap();
        assert!(measured.frames >= 16 * 8 * 20 && measured.events > measured.frames, "{measured}");
        assert!(measured.failed_checks.is_empty(), "{measured}");
        let rates = [&measured.frames_per_processor_s, &measured.events_per_processor_s];
        assert!(
            rates.iter().all(|rates| rates.len() == 3 && rates.iter().all(|rate| *rate > 0.0)),
            "{measured}"
        );
    }
}
