//! The measurements of `niclab bench`: messages and TCP between guests next to QEMU's own network, boots, memory, a
//! large cluster, the device in process, the simulator and the match unit.
//!
//! A wall time on a shared machine means little by itself. So values that are compared are measured alternately in the
//! same boot, and a ratio is of one round. A goal that is not reached is a result; only a measurement that could not be
//! made is a failure.
//!
//! [`guests`], [`profile`], [`mod@boot`], [`scale`], [`device`], [`hostile`], [`sim`] and [`instructions`] are
//! sections, and a model can have sections of its own. Their results are [`figure`]s in a [`report`]; [`earlier`]
//! compares it with an earlier report. [`baseline`] adds QEMU's own network to guests, and [`memory`] reads the memory
//! of a process. [`program`] runs benchmarks that are separate programs. [`interference`] measures how much other
//! processes use the machine. [`figures`] compares models with papers; [`compare`] compares models with each other.

pub mod baseline;
pub mod boot;
pub mod compare;
pub mod device;
pub mod earlier;
pub mod figure;
pub mod figures;
pub mod guests;
pub mod hostile;
pub mod instructions;
pub mod interference;
pub mod memory;
mod models;
pub mod perf;
pub mod profile;
pub mod program;
pub mod report;
pub mod scale;
mod section;
pub mod sim;
pub mod validation;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use niclab_cluster::{
    arguments::ClusterArgs,
    boot::{
        prepare,
        running::{Failure, RunningCluster},
    },
    host::{runtime::RuntimeRoot, signals},
    plan::Plan,
};
use niclab_output::eprintln;
use niclab_spec::{
    Cluster, ClusterFile, ClusterName, LinkEntry, NicConfig, NicModel, NodeEntry, Source, explain,
};

pub use self::section::BenchSection;
use self::{
    interference::ProcessorTime,
    report::{BenchReport, GuestPlatform, Machine, SectionReport},
};

/// The sections that belong to no single model.
const SECTIONS: &[BenchSection] = &[
    BenchSection {
        name: "guests",
        help: "Two guests: messages, TCP over the Ethernet function, TCP over QEMU's -netdev stream",
        what: "two guests: messages, and TCP over the NIC's Ethernet function and over QEMU's -netdev stream",
        boots_guests: true,
        measure: guests::measure,
    },
    BenchSection {
        name: "profile",
        help: "Two guests: the parts of the wall time of messages, streams and TCP, and how often threads sleep",
        what: "two guests: the parts of the wall time of a message",
        boots_guests: true,
        measure: profile::measure,
    },
    BenchSection {
        name: "boot",
        help: "Two guests: time to healthy, restored and booted, stage by stage; the daemon's memory",
        what: "two guests: restored and booted, stage by stage, and the daemon's memory",
        boots_guests: true,
        measure: boot::measure,
    },
    BenchSection {
        name: "scale",
        help: "16 and 64 guests of 128 MiB: time to healthy, memory of a node, ping between all pairs of 16",
        what: "16 and 64 guests of 128 MiB: start, memory, and ping between all pairs of 16",
        boots_guests: true,
        measure: scale::measure,
    },
    BenchSection {
        name: "device",
        help: "The device in process, without QEMU",
        what: "the device in process, without QEMU",
        boots_guests: false,
        measure: |options, _| device::measure(options, models::device_rows()),
    },
    BenchSection {
        name: "hostile",
        help: "Attacks by one guest: how long another guest's control requests wait; in process, without QEMU",
        what: "attacks by one guest: how long another guest's control request waits",
        boots_guests: false,
        measure: |options, _| hostile::measure(options),
    },
    BenchSection {
        name: "sim",
        help: "The simulator, over numbers of nodes, and with models' loads",
        what: "the simulator, over numbers of nodes, and with models' loads",
        boots_guests: false,
        measure: |options, _| sim::measure(options, models::loads()),
    },
    BenchSection {
        name: "instructions",
        help: "Instructions per message, frame, event and cycle, by valgrind: --baseline can judge these on any \
               machine",
        what: "instructions per unit of work, counted by valgrind's callgrind",
        boots_guests: false,
        measure: |options, _| instructions::measure(options, models::works()),
    },
];

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The sections, in the order in which they run.
    pub sections: Vec<BenchSection>,
    /// Number of rounds of each comparison; at least 1.
    pub rounds: usize,
    /// DPDK's `testpmd`, to compare with the device's Ethernet function.
    pub testpmd: Option<PathBuf>,
    /// The valgrind that counts instructions.
    pub valgrind: Option<PathBuf>,
    /// Common settings of clusters of guests: source of packages, use of the network, and queue pairs.
    pub cluster: ClusterArgs,
}

/// A section's result.
#[derive(Debug, Default)]
pub struct Measured {
    /// The figures.
    pub figures: Vec<figure::Figure>,
    /// The report of another program, unchanged.
    pub details: Option<serde_json::Value>,
    /// What could not be measured because it is not installed, and why.
    pub left_out: Vec<String>,
}

/// Measures all selected sections. If a section fails, the report has its error.
///
/// # Errors
/// When nothing can be measured, or a signal ends it.
pub fn run(options: &Options) -> Result<BenchReport> {
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let machine = Machine::this();
    let boots_guests = options.sections.iter().any(|section| section.boots_guests);
    // Builds missing parts now, so that no section's time includes the build.
    let platform = boots_guests
        .then(|| plan(options, &root, &options.cluster).map(|plan| GuestPlatform::of(&plan)))
        .transpose()?;
    let mut sections = Vec::new();
    for &section in &options.sections {
        eprintln!("niclab: measuring: {}", section.what);
        let (begin, processor) = (Instant::now(), ProcessorTime::now());
        let measured = (section.measure)(options, &root);
        // Until the next boot, signals have their default effect.
        signals::release();
        if let Err(error) = &measured
            && let Some(Failure::Signal(signal)) = error.downcast_ref()
        {
            return Err(Failure::Signal(*signal).into());
        }
        let failure = measured.as_ref().err().map(|error| explain(error.as_ref()));
        let Measured { figures, details, left_out } = measured.unwrap_or_default();
        sections.push(SectionReport {
            section,
            what: section.what,
            wall_s: begin.elapsed().as_secs_f64(),
            others_cores: others_since(processor, machine.cores),
            figures,
            details,
            left_out,
            failure,
        });
    }
    Ok(BenchReport::new(machine, platform, sections))
}

fn others_since(earlier: Option<ProcessorTime>, cores: usize) -> Option<f64> {
    ProcessorTime::now()?.others_since(&earlier?, cores)
}

/// Takes a sample of each kind in each round. Each round begins with another kind than the previous one, so no kind
/// always follows the same other kind.
fn rounds<Kind: Copy + Ord + fmt::Debug, Value: fmt::Debug, const KINDS: usize>(
    rounds: usize,
    kinds: [Kind; KINDS],
    mut take: impl FnMut(Kind) -> Result<Value>,
) -> Result<BTreeMap<Kind, Vec<Value>>> {
    let mut samples: BTreeMap<Kind, Vec<Value>> = BTreeMap::new();
    for round in 0..rounds {
        let mut order = kinds;
        order.rotate_left(round % KINDS);
        for kind in order {
            let value = take(kind)?;
            log::info!("round {round}: {kind:?} {value:.2?}");
            samples.entry(kind).or_default().push(value);
        }
    }
    Ok(samples)
}

/// A running cluster, and the times of its start.
struct Booted {
    running: RunningCluster,
    /// From the arguments to the plan: reads the cluster file, checks cache and accelerator.
    preparation: Duration,
    /// From the first process to all nodes healthy.
    boot: Duration,
}

impl Booted {
    /// Measures, and shuts the cluster down in any case.
    fn finish<T>(mut self, measure: impl FnOnce(&mut RunningCluster) -> Result<T>) -> Result<T> {
        let result = measure(&mut self.running);
        self.running.shut_down(false);
        result
    }
}

/// Boots the cluster of `args`; `adjust` may change the plan first.
fn boot(
    options: &Options,
    root: &RuntimeRoot,
    args: &ClusterArgs,
    adjust: impl FnOnce(&mut Plan),
) -> Result<Booted> {
    let begin = Instant::now();
    let mut plan = plan(options, root, args)?;
    adjust(&mut plan);
    start(root, args, plan, begin)
}

/// A cluster with one node of each of these models, by rank, on one switch, with this MTU.
fn side_by_side(models: &[&str], memory_mib: u32, mtu_bytes: u32) -> Result<Cluster> {
    let node = |name: &&str| -> Result<NodeEntry> {
        let model = NicModel::named(name).with_context(|| format!("there is no model `{name}`"))?;
        Ok(NodeEntry { nic: Some(NicConfig::of(model)), ..NodeEntry::default() })
    };
    let file = ClusterFile {
        node: models.iter().map(node).collect::<Result<_>>()?,
        memory_mib,
        link: vec![LinkEntry { mtu_bytes: Some(mtu_bytes), ..LinkEntry::default() }],
        ..ClusterFile::default()
    };
    Ok(Source::default().resolve_booted(&file)?)
}

/// Boots `cluster`; `adjust` may change the plan first.
fn boot_cluster(
    options: &Options,
    root: &RuntimeRoot,
    cluster: &Cluster,
    adjust: impl FnOnce(&mut Plan),
) -> Result<Booted> {
    let begin = Instant::now();
    let mut plan = plan_cluster(options, root, &options.cluster, cluster)?;
    adjust(&mut plan);
    start(root, &options.cluster, plan, begin)
}

fn start(root: &RuntimeRoot, args: &ClusterArgs, plan: Plan, begin: Instant) -> Result<Booted> {
    let preparation = begin.elapsed();
    let folder = root.claim(&plan.name)?;
    let timeout = args.boot_timeout(plan.nodes.len(), plan.timeout_factor);
    let begin = Instant::now();
    let running = RunningCluster::boot(plan, folder, timeout, &mut |node| {
        log::info!("{} is healthy", node.name);
    })?;
    Ok(Booted { running, preparation, boot: begin.elapsed() })
}

fn plan(options: &Options, root: &RuntimeRoot, args: &ClusterArgs) -> Result<Plan> {
    plan_cluster(options, root, args, &prepare::cluster(args)?)
}

fn plan_cluster(
    options: &Options,
    root: &RuntimeRoot,
    args: &ClusterArgs,
    cluster: &Cluster,
) -> Result<Plan> {
    let name = ClusterName::of_run(std::process::id());
    prepare::plan(args, cluster, &name, root, options.cluster.offline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_takes_each_kind_in_rotated_order() {
        let mut order = Vec::new();
        let mut take = |kind: char| {
            order.push(kind);
            Ok(order.len() as f64)
        };
        let samples = rounds(2, ['a', 'b', 'c'], &mut take).unwrap();
        assert_eq!(order, ['a', 'b', 'c', 'b', 'c', 'a']);
        assert_eq!(samples[&'a'], [1.0, 6.0]);
        let failed = rounds::<_, f64, 1>(1, ['a'], |_| anyhow::bail!("gone"));
        assert!(failed.is_err());
    }
}
