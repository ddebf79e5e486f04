//! The parts of the wall time of a message between two guests: processor time of the guests' processors, of QEMU's
//! other threads and of the daemon. Also how long they wait for a core, how often they sleep, and how many doorbells
//! and interrupts there are.
//!
//! Each exchange runs twice, the second time with more messages. The differences, divided by the additional messages,
//! exclude the start of programs.

use anyhow::{Context as _, Result};
use niclab_cluster::{
    arguments::ClusterArgs,
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

/// What two guests exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exchange {
    PingPong,
    SleepingPingPong,
    Stream,
    StreamOneByOne,
    TcpPingPong,
    TcpStream,
}

impl Exchange {
    const ALL: [Self; 6] = [
        Self::PingPong,
        Self::SleepingPingPong,
        Self::Stream,
        Self::StreamOneByOne,
        Self::TcpPingPong,
        Self::TcpStream,
    ];

    /// The beginning of the figures' names, and the same in words.
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::PingPong => ("pingpong", "round trip of 16 bytes, ends poll"),
            Self::SleepingPingPong => ("pingpong_sleeping", "round trip of 16 bytes, ends sleep"),
            Self::Stream => ("stream", "message of 16 bytes of a stream in batches"),
            Self::StreamOneByOne => ("stream_one_by_one", "the same with one doorbell for each"),
            Self::TcpPingPong => ("tcp_pingpong", "round trip of 16 bytes over TCP, Ethernet function"),
            Self::TcpStream => ("tcp_stream", "write of 64 KiB over TCP, Ethernet function"),
        }
    }

    /// Payload in bytes, and the units of the shorter and of the longer run.
    const fn counts(self) -> (usize, [u64; 2]) {
        match self {
            Self::PingPong => (16, [2_000, 12_000]),
            Self::SleepingPingPong | Self::TcpPingPong => (16, [200, 1_200]),
            Self::Stream | Self::StreamOneByOne => (16, [10_000, 60_000]),
            Self::TcpStream => (64 << 10, [64, 512]),
        }
    }

    /// Runs it. Returns microseconds for each unit.
    fn run(self, running: &mut RunningCluster, units: u64) -> Result<f64> {
        let tcp = || Path::Tcp(running.plan().nodes.iter().map(|node| node.address).collect());
        let pair = Pair::from(match self {
            Self::PingPong | Self::Stream | Self::StreamOneByOne => Path::Nic,
            Self::SleepingPingPong => Path::SleepingNic,
            Self::TcpPingPong | Self::TcpStream => tcp(),
        });
        let (bytes, _) = self.counts();
        match self {
            Self::PingPong | Self::SleepingPingPong | Self::TcpPingPong => {
                perf::round_trip_us(running, &pair, bytes, units)
            }
            Self::Stream | Self::TcpStream => {
                Ok(1.0 / perf::stream_million_per_s(running, &pair, bytes, units, None)?)
            }
            Self::StreamOneByOne => {
                Ok(1.0 / perf::stream_million_per_s(running, &pair, bytes, units, Some(1))?)
            }
        }
    }

    fn take(self, running: &mut RunningCluster) -> Result<Quantities> {
        let (_, [short, long]) = self.counts();
        let mut counts = Vec::new();
        let mut unit_us = 0.0;
        for units in [short, long] {
            let before = Counts::now(running)?;
            unit_us = self.run(running, units)?;
            counts.push(Counts::now(running)?.since(&before));
        }
        let more = counts.last().zip(counts.first()).map(|(long, short)| long.since(short));
        Ok(quantities(unit_us, &more.unwrap_or_default(), long - short))
    }
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

/// Quantities of a unit, in the order of the table.
const ROWS: [(&str, &str, Clock, &str); 11] = [
    ("wall", "wall time", Clock::Wall, "us"),
    ("processors", "both guests' processors run", Clock::Wall, "us"),
    ("processors_queued", "they wait for a core", Clock::Wall, "us"),
    ("other_qemu", "QEMU's other threads run", Clock::Wall, "us"),
    ("daemon", "the daemon runs", Clock::Wall, "us"),
    ("daemon_queued", "it waits for a core", Clock::Wall, "us"),
    ("processors_sleeps", "sleeps of the guests' processors", Clock::None, "times"),
    ("other_qemu_sleeps", "sleeps of QEMU's other threads", Clock::None, "times"),
    ("daemon_sleeps", "sleeps of the daemon's threads", Clock::None, "times"),
    ("doorbells", "doorbells, each with an exit of the guest", Clock::None, "times"),
    ("interrupts", "interrupts", Clock::None, "times"),
];

/// The quantities of one unit, in the order of [`ROWS`].
type Quantities = [f64; ROWS.len()];

fn quantities(unit_us: f64, counts: &Counts, units: u64) -> Quantities {
    let per = |count: u64| count as f64 / units.max(1) as f64;
    let us = |wall_ns: u64| per(wall_ns) / 1e3;
    [
        unit_us,
        us(counts.virtual_processors.wall_ran_ns),
        us(counts.virtual_processors.wall_queued_ns),
        us(counts.other_qemu.wall_ran_ns),
        us(counts.daemon.wall_ran_ns),
        us(counts.daemon.wall_queued_ns),
        per(counts.virtual_processors.sleeps),
        per(counts.other_qemu.sleeps),
        per(counts.daemon.sleeps),
        per(counts.doorbells),
        per(counts.interrupts),
    ]
}

/// Boots two guests, and analyses each exchange.
///
/// # Errors
/// When the cluster does not boot, the kernel does not report the threads' resources, or a measurement fails.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let args = ClusterArgs { nodes: Some(2), ..options.cluster.clone() };
    let booted = super::boot(options, root, &args, |_| {})?;
    booted.finish(|running| {
        let taken = super::rounds(options.rounds, Exchange::ALL, |exchange| exchange.take(running))?;
        let nic = &running.plan().nic;
        let figures = taken.iter().flat_map(|(exchange, taken)| figures(nic, *exchange, taken));
        Ok(Measured { figures: figures.collect(), ..Measured::default() })
    })
}

fn figures(nic: &str, exchange: Exchange, taken: &[Quantities]) -> Vec<Figure> {
    let (key, words) = exchange.name();
    let rows = ROWS.iter().enumerate().map(|(row, (name, what, clock, unit))| {
        let values = taken.iter().filter_map(|quantities| quantities.get(row).copied()).collect();
        let (name, what) = (format!("{nic}_{key}_{name}"), format!("{words}: {what}"));
        Figure::new(&name, &what, *clock, unit, values)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_the_difference_of_two_runs_per_unit() {
        let usage = |wall_ran_ns, sleeps| Usage { wall_ran_ns, wall_queued_ns: 0, sleeps };
        let short = Counts { daemon: usage(900_000, 70), doorbells: 50, ..Counts::default() };
        let long = Counts { daemon: usage(1_900_000, 270), doorbells: 250, ..Counts::default() };
        let [wall, .., daemon, _, _, _, sleeps, doorbells, interrupts] =
            quantities(12.5, &long.since(&short), 100);
        assert_eq!((wall, daemon, sleeps, doorbells, interrupts), (12.5, 10.0, 2.0, 2.0, 0.0));
    }

    #[test]
    fn every_row_of_every_exchange_has_a_unique_name() {
        let found: Vec<Figure> = Exchange::ALL
            .iter()
            .flat_map(|exchange| figures("ultra", *exchange, &[[1.0; ROWS.len()]]))
            .collect();
        let names: std::collections::BTreeSet<&str> =
            found.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names.len(), Exchange::ALL.len() * ROWS.len());
    }
}
