//! The parts of the wall time of a round trip between two guests: processor time of the daemon and of QEMU's threads
//! other than virtual processors. Also doorbells, interrupts, and how often threads sleep.
//!
//! Two ping-pongs run, the second with more round trips. The differences, divided by the additional round trips,
//! exclude the start of programs.

use anyhow::{Context as _, Result};
use niclab_cluster::{
    boot::running::RunningCluster,
    daemon::monitor,
    host::{
        runtime::RuntimeRoot,
        threads::{Usage, VIRTUAL_PROCESSOR},
    },
};

use super::{
    Measured, Options,
    figure::{Clock, Figure},
    perf::{self, Pair, Path},
};

/// Memory of a node, in MiB.
const MEMORY_MIB: u32 = 128;
/// Largest Ethernet payload of the links.
const MTU_BYTES: u32 = 9_000;
/// Payload of a round trip, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Round trips of the shorter ping-pong, and of the longer one.
const ROUND_TRIPS: [u64; 2] = [2_000, 12_000];

/// The round trip to analyse: of a model, with the way in which its ends wait.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// The beginning of its figures' names.
    pub key: &'static str,
    /// The same in words.
    pub words: &'static str,
    /// The model.
    pub model: &'static str,
    /// The path between the programs.
    pub path: Path,
}

/// Resources that all nodes have used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    daemon: Usage,
    virtual_processors: Usage,
    other_qemu: Usage,
    doorbells: u64,
    spared_doorbells: u64,
    interrupts: u64,
}

impl Counts {
    fn now(running: &RunningCluster) -> Result<Self> {
        let (guests, daemon) = running.pids();
        let usage = |pid, is_wanted: fn(&str) -> bool| {
            Usage::of(pid, is_wanted).with_context(|| format!("cannot read what process {pid} has used"))
        };
        let mut counts = Self { daemon: usage(daemon, |_| true)?, ..Self::default() };
        for guest in guests {
            let of_processors = usage(guest, |name| name.starts_with(VIRTUAL_PROCESSOR))?;
            let of_others = usage(guest, |name| !name.starts_with(VIRTUAL_PROCESSOR))?;
            counts.virtual_processors = counts.virtual_processors.plus(&of_processors);
            counts.other_qemu = counts.other_qemu.plus(&of_others);
        }
        for node in monitor::stats(&running.plan().monitor_socket)?.nodes {
            counts.doorbells += node.doorbells;
            counts.spared_doorbells += node.spared_doorbells;
            counts.interrupts += node.interrupts.values().sum::<u64>();
        }
        Ok(counts)
    }

    const fn since(&self, earlier: &Self) -> Self {
        Self {
            daemon: self.daemon.since(&earlier.daemon),
            virtual_processors: self.virtual_processors.since(&earlier.virtual_processors),
            other_qemu: self.other_qemu.since(&earlier.other_qemu),
            doorbells: self.doorbells.saturating_sub(earlier.doorbells),
            spared_doorbells: self.spared_doorbells.saturating_sub(earlier.spared_doorbells),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
        }
    }
}

/// Quantities of a round trip, in the order of the table.
const ROWS: [(&str, &str, Clock, &str); 10] = [
    ("round_trip", "p50 round trip", Clock::Wall, "us"),
    ("daemon", "the daemon's processor time", Clock::Wall, "us"),
    ("daemon_queued", "the daemon woken, but waiting for a core", Clock::Wall, "us"),
    ("processors_queued", "guests' processors waiting for a core", Clock::Wall, "us"),
    ("other_qemu", "processor time of QEMU's other threads", Clock::Wall, "us"),
    ("daemon_sleeps", "sleeps of the daemon's threads", Clock::None, "times"),
    ("processors_sleeps", "sleeps of guests' processors", Clock::None, "times"),
    ("other_qemu_sleeps", "sleeps of QEMU's other threads", Clock::None, "times"),
    ("doorbells", "doorbells, each with an exit of the guest", Clock::None, "times"),
    ("interrupts", "interrupts", Clock::None, "times"),
];

/// The quantities of one round trip, in the order of [`ROWS`].
type Quantities = [f64; ROWS.len()];

fn take(pair: &Pair, running: &mut RunningCluster) -> Result<Quantities> {
    let mut counts = Vec::new();
    let mut p50_us = 0.0;
    for round_trips in ROUND_TRIPS {
        let before = Counts::now(running)?;
        p50_us = perf::round_trip_us(running, pair, MESSAGE_BYTES, round_trips)?;
        counts.push(Counts::now(running)?.since(&before));
    }
    let [short, long] = ROUND_TRIPS;
    let more = counts.last().zip(counts.first()).map(|(long, short)| long.since(short)).unwrap_or_default();
    Ok(quantities(p50_us, &more, long - short))
}

fn quantities(p50_us: f64, counts: &Counts, round_trips: u64) -> Quantities {
    let per = |count: u64| count as f64 / round_trips.max(1) as f64;
    let us = |wall_ns: u64| per(wall_ns) / 1e3;
    [
        p50_us,
        us(counts.daemon.wall_ran_ns),
        us(counts.daemon.wall_queued_ns),
        us(counts.virtual_processors.wall_queued_ns),
        us(counts.other_qemu.wall_ran_ns),
        per(counts.daemon.sleeps),
        per(counts.virtual_processors.sleeps),
        per(counts.other_qemu.sleeps),
        per(counts.doorbells),
        per(counts.interrupts),
    ]
}

/// Boots two guests of each model, and analyses each round trip.
///
/// # Errors
/// When the cluster does not boot, the kernel does not report the threads' resources, or a measurement fails.
pub(crate) fn measure(
    options: &Options,
    root: &RuntimeRoot,
    of_models: impl Iterator<Item = &'static RoundTrip>,
) -> Result<Measured> {
    let trips: Vec<&RoundTrip> = of_models.collect();
    let mut models: Vec<&str> = trips.iter().map(|trip| trip.model).collect();
    models.dedup();
    let nodes: Vec<&str> = models.iter().flat_map(|model| [*model; 2]).collect();
    let cluster = super::side_by_side(&nodes, MEMORY_MIB, MTU_BYTES)?;
    let booted = super::boot_cluster(options, root, &cluster, |_| {})?;
    let mut taken: Vec<Vec<Quantities>> = vec![Vec::new(); trips.len()];
    booted.finish(|running| {
        for round in 0..options.rounds {
            // Each round begins with another trip, so no trip always follows the same other one.
            for turn in 0..trips.len() {
                let which = (turn + round) % trips.len();
                let (Some(trip), Some(taken)) = (trips.get(which), taken.get_mut(which)) else { continue };
                let first = nodes.iter().position(|model| *model == trip.model).unwrap_or_default();
                taken.push(take(&Pair { first, path: trip.path.clone() }, running)?);
            }
        }
        Ok(())
    })?;
    let figures = trips.iter().zip(&taken).flat_map(|(trip, taken)| figures(trip, taken)).collect();
    Ok(Measured { figures, ..Measured::default() })
}

fn figures(trip: &RoundTrip, taken: &[Quantities]) -> impl Iterator<Item = Figure> {
    ROWS.iter().enumerate().map(move |(row, (name, what, clock, unit))| {
        let values = taken.iter().filter_map(|quantities| quantities.get(row).copied()).collect();
        let (name, what) = (format!("{}_{name}", trip.key), format!("{}: {what}", trip.words));
        Figure::new(&name, &what, *clock, unit, values)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_is_the_difference_of_two_runs_per_round_trip() {
        let usage = |wall_ran_ns, sleeps| Usage { wall_ran_ns, wall_queued_ns: 0, sleeps };
        let short = Counts { daemon: usage(900_000, 70), doorbells: 50, ..Counts::default() };
        let long = Counts { daemon: usage(1_900_000, 270), doorbells: 250, ..Counts::default() };
        let [p50, daemon, .., doorbells, interrupts] = quantities(12.5, &long.since(&short), 100);
        assert_eq!((p50, daemon, doorbells, interrupts), (12.5, 10.0, 2.0, 0.0));
    }

    #[test]
    fn every_row_of_every_pair_has_a_unique_name() {
        let trips: Vec<&RoundTrip> = crate::models::round_trips().collect();
        let found: Vec<Figure> = trips.iter().flat_map(|trip| figures(trip, &[[1.0; ROWS.len()]])).collect();
        let names: std::collections::BTreeSet<&str> =
            found.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names.len(), trips.len() * ROWS.len());
    }
}
