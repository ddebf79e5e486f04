//! Tests a driver: runs one command against everything that the manual allows a device, and against events in a
//! driver's life.
//!
//! * [`case`]: the cases;
//! * [`laboratory`]: the cluster of a case, and the actions on it;
//! * [`conduct`]: the steps of each case;
//! * [`series`]: several seeds of an adversarial device in one boot;
//! * [`findings`]: findings about a driver that come from elsewhere than the command;
//! * [`traffic`]: what the cards did for the driver; without traffic a case has exercised nothing;
//! * [`verdict`]: the results, as data.
//!
//! Each case has its own cluster, restored from a template, so no case affects another. Seeds of one boot are the
//! exception.

pub mod case;
pub mod conduct;
pub mod findings;
pub mod laboratory;
mod series;
pub mod traffic;
pub mod verdict;

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::Result;
use niclab_images::Cache;
use niclab_spec::{Cluster, ClusterName, GuestKernel, RuleChecking};

use self::{
    case::{Case, CaseKind},
    conduct::{Conduct, Did},
    laboratory::{Laboratory, OURS, Trouble},
    series::Series,
    traffic::{Moment, Traffic},
    verdict::{CONFORMANCE_VERSION, Conformance, Named, Verdict},
};
use crate::{
    arguments::ClusterArgs,
    boot::{
        prepare,
        running::{Failure, KernelPanic, RunningCluster},
    },
    host::{runtime::RuntimeRoot, signals},
};

/// Exit code: no finding.
pub const PASSED: u8 = 0;
/// Exit code: a case failed.
pub const FAILED: u8 = 1;
/// Exit code: invalid arguments.
pub const WRONG_USE: u8 = 2;
/// Exit code: a case could not be run.
pub const NOT_RUN: u8 = 3;
/// Exit code: no finding, but a case exercised nothing: its cards did nothing that it could have disturbed.
pub const NOT_EXERCISED: u8 = 4;

/// Messages over niclab's own driver, for every card: round trips with sleeping receivers, and at full rate.
const OWN_WORKLOAD: [&str; 6] = ["niclab-perf", "demo", "--poll", "block", "--timeout", "20"];

/// The same over an adversarial device. A round trip there takes 10 ms and more, because each message may wait until
/// the cluster is idle. The number of messages suffices to meet each kind of behaviour; more seeds find more than more
/// messages do.
const OWN_ADVERSARIAL_WORKLOAD: [&str; 3] = [
    "sh",
    "-c",
    "niclab-perf pingpong --poll block -n 24 -w 2 --timeout 20 && \
     niclab-perf stream --poll block -s 48 -n 100 -w 2 --timeout 20",
];

/// The commands that run on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// With a normal or faulty device.
    pub usual: Vec<String>,
    /// With an adversarial device.
    pub adversarial: Vec<String>,
}

impl Commands {
    /// The same command for all cases.
    #[must_use]
    pub fn same(command: Vec<String>) -> Self {
        Self { usual: command.clone(), adversarial: command }
    }

    fn of(&self, kind: CaseKind) -> &[String] {
        if kind.is_adversarial() { &self.adversarial } else { &self.usual }
    }
}

/// What the user asked for.
pub struct Request<'a> {
    /// The cluster's command line.
    pub args: &'a ClusterArgs,
    /// The cluster of every case.
    pub cluster: Cluster,
    /// The command that runs on every node.
    pub commands: Commands,
    /// The cases.
    pub cases: Vec<Case>,
    /// Time limit of the command where its result counts.
    pub limit: Duration,
    /// Whether to end after the first failed case.
    pub fail_fast: bool,
    /// Whether consecutive seeds of an adversarial device share one boot, as long as they pass.
    pub is_one_boot: bool,
    /// Makes the command line that repeats a case and this number of seeds from its own on.
    pub repeat: &'a dyn Fn(&Case, u64) -> String,
}

/// The number of these cases, from the first on, that may share one boot.
fn in_one_boot(cases: &[Case]) -> Option<usize> {
    let first = cases.first().filter(|first| first.kind == CaseKind::Adversarial)?;
    let is_alike = |case: &&Case| (case.kind, case.on_debug_kernel) == (first.kind, first.on_debug_kernel);
    Some(cases.iter().take_while(is_alike).count())
}

/// Whether a debug kernel is available for a cluster that uses the stock kernel.
#[must_use]
pub fn has_debug_kernel(cluster: &Cluster) -> bool {
    let is_built = || Cache::locate().is_ok_and(|cache| niclab_images::current_kernel(&cache).is_ok());
    cluster.kernel == GuestKernel::Stock && is_built()
}

/// The default command: messages over niclab's own driver, modified or not.
///
/// # Errors
/// If a node's driver has another name.
pub fn own_workload(cluster: &Cluster) -> Result<Commands, String> {
    let named = |path: &std::path::Path| {
        let is_ours = path.join("niclab.h").is_file() || path.file_stem().is_some_and(|stem| stem == OURS);
        (!is_ours).then(|| path.display().to_string())
    };
    let other = cluster.nodes.iter().filter_map(|node| named(&node.driver.as_ref()?.path)).next();
    match other {
        Some(other) => Err(format!(
            "{other} is not niclab's own driver; give the command that sends messages over it: \
             niclab conform ... -- COMMAND"
        )),
        None => Ok(Commands {
            usual: OWN_WORKLOAD.map(str::to_owned).to_vec(),
            adversarial: OWN_ADVERSARIAL_WORKLOAD.map(str::to_owned).to_vec(),
        }),
    }
}

/// Runs the cases in order, and calls `on_verdict` for each.
///
/// # Errors
/// Only if the first cluster cannot be planned, for example because a driver does not compile.
pub fn conform(request: &Request<'_>, on_verdict: &mut dyn FnMut(&Verdict)) -> Result<Conformance> {
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let drivers = request.cluster.nodes.iter().filter_map(|node| node.driver.as_ref());
    let driver = drivers.map(|driver| driver.path.display().to_string()).next();
    let mut conformance = Conformance {
        version: CONFORMANCE_VERSION,
        nic: request.cluster.nodes.first().map(|node| node.nic.model.name.to_owned()).unwrap_or_default(),
        driver: driver.unwrap_or_else(|| OURS.to_owned()),
        cases: Vec::new(),
        ended_by_signal: None,
    };
    let mut left = &request.cases[..];
    while !left.is_empty() {
        let mut has_failed = false;
        let mut report = |verdict: Verdict| {
            on_verdict(&verdict);
            has_failed |= !verdict.passed;
            conformance.cases.push(verdict);
        };
        let done = match in_one_boot(left).filter(|_| request.is_one_boot) {
            Some(many) => {
                Series::new(request, left.get(..many).unwrap_or(left), &mut report).carry_out(&root)
            }
            None => alone(request, left, &root, &mut report),
        };
        // From here on no cluster handles signals; they end this program.
        signals::release();
        match done {
            Ok(done) => left = left.get(done..).unwrap_or_default(),
            Err(Halt::Plan(error)) => return Err(error),
            Err(Halt::Signal(signal)) => {
                conformance.ended_by_signal = Some(signal);
                break;
            }
        }
        if has_failed && request.fail_fast {
            break;
        }
    }
    Ok(conformance)
}

/// Why the run stops.
enum Halt {
    /// The cluster cannot be planned, so no other cluster can.
    Plan(anyhow::Error),
    /// A signal ends niclab.
    Signal(i32),
}

/// Why a case failed.
enum Failed {
    /// The whole run stops.
    Halt(Halt),
    /// The case could not be run, for a reason that is not the driver's.
    NotRun(String),
    /// Findings about the driver.
    Driver(Vec<Named>),
}

/// The cluster of one or several cases.
struct Booted {
    running: RunningCluster,
    /// Time limit until the guests are healthy.
    timeout: Duration,
    /// Whether a node has a driver of the user's own.
    has_own: bool,
    /// Time limit of the command where its result counts.
    limit: Duration,
}

impl Booted {
    /// Starts the processes.
    fn begin(request: &Request<'_>, case: Case, root: &RuntimeRoot) -> Result<Self, Failed> {
        let mut cluster = request.cluster.clone();
        cluster.seed = case.seed;
        cluster.rules = RuleChecking::Report;
        cluster.make_adversarial(case.kind.is_adversarial().then_some(case.seed));
        if case.on_debug_kernel {
            cluster.set_kernel(GuestKernel::Debug);
        }
        if case.kind == CaseKind::Reboot {
            // With extra arguments for QEMU the plan passes a kernel, so that the guest can boot again. A guest that
            // resets itself still ends its QEMU, until the case allows the reset.
            cluster.qemu_args.extend(["-action", "reboot=shutdown"].map(str::to_owned));
        }
        let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
        let plan = prepare::plan(request.args, &cluster, &name, root, request.args.offline);
        let plan = plan.map_err(|error| Failed::Halt(Halt::Plan(error)))?;
        let folder = root.claim(&name).map_err(not_run)?;
        let timeout = request.args.boot_timeout(plan.nodes.len(), plan.timeout_factor);
        let has_own = plan.nodes.iter().any(|node| node.driver.is_some());
        let limit = request.limit * plan.timeout_factor;
        let running = RunningCluster::begin(plan, folder, mpsc::channel()).map_err(not_run)?;
        Ok(Self { running, timeout, has_own, limit })
    }

    /// Waits until all guests are healthy.
    fn bring_up(&mut self) -> Result<(), Trouble> {
        self.running.bring_up(self.timeout, &mut |_| {}).map_err(Trouble::from)
    }
}

/// Runs the first of these cases, with a cluster of its own.
fn alone(
    request: &Request<'_>,
    cases: &[Case],
    root: &RuntimeRoot,
    on_verdict: &mut dyn FnMut(Verdict),
) -> Result<usize, Halt> {
    let Some(case) = cases.first() else { return Ok(0) };
    let begin = Instant::now();
    let found = one(request, *case, root)?;
    on_verdict(found.verdict(*case, begin.elapsed(), (request.repeat)(case, 1)));
    Ok(1)
}

fn one(request: &Request<'_>, case: Case, root: &RuntimeRoot) -> Result<Found, Halt> {
    let mut booted = match Booted::begin(request, case, root) {
        Ok(booted) => booted,
        Err(failed) => return Found::of(Err(failed)),
    };
    let mut did = Did::default();
    let result = booted.bring_up().and_then(|()| {
        let mut laboratory = Laboratory::new(&mut booted.running);
        let command = request.commands.of(case.kind);
        let (done, result) = Conduct::new(&mut laboratory, case, command, booted.limit).carry_out(case.kind);
        did = done;
        result
    });
    // A guest that hangs or has ended is not queried; its console has its messages.
    let is_answering = !matches!(result, Err(Trouble::Ended(_) | Trouble::Hang(_)));
    let mut named = findings::of(&mut booted.running, is_answering);
    let seen = findings::activity(&booted.running);
    let found = Found::of(result.map_err(|trouble| of_trouble(trouble, booted.has_own)));
    let is_found = !named.is_empty() || found.as_ref().is_ok_and(|found| !found.named.is_empty());
    let consoles = if is_found { booted.running.keep_consoles() } else { None };
    booted.running.shut_down(false);
    let of_command = found?;
    named.extend(of_command.named);
    // Findings are reported instead of the reason why the case could not continue.
    let not_run = of_command.not_run.filter(|_| named.is_empty());
    let not_exercised = seen.not_exercised(case.kind, &did.moments);
    let note = did.note.filter(|_| named.is_empty());
    let (traffic, moments) = (seen.traffic, did.moments);
    Ok(Found { named, note, not_run, not_exercised, traffic, moments, consoles, ..Found::default() })
}

fn not_run(error: impl Display) -> Failed {
    Failed::NotRun(error.to_string())
}

/// The result of a case, before its verdict.
#[derive(Default)]
struct Found {
    named: Vec<Named>,
    note: Option<String>,
    not_run: Option<String>,
    /// Why the case exercised nothing, if nothing else is wrong.
    not_exercised: Option<String>,
    traffic: Traffic,
    moments: Vec<Moment>,
    adversarial: BTreeMap<String, u64>,
    consoles: Option<PathBuf>,
}

impl Found {
    fn of(outcome: Result<(), Failed>) -> Result<Self, Halt> {
        match outcome {
            Ok(()) => Ok(Self::default()),
            Err(Failed::Driver(named)) => Ok(Self { named, ..Self::default() }),
            Err(Failed::NotRun(why)) => Ok(Self { not_run: Some(why), ..Self::default() }),
            Err(Failed::Halt(halt)) => Err(halt),
        }
    }

    fn verdict(self, case: Case, wall: Duration, repeat: String) -> Verdict {
        let Self { named, note, not_run, not_exercised, traffic, moments, adversarial, consoles } = self;
        let not_exercised = not_exercised.filter(|_| named.is_empty() && not_run.is_none());
        let passed = named.is_empty() && not_run.is_none() && not_exercised.is_none();
        let wall_s = wall.as_secs_f64();
        let (seed, debug_kernel) = (case.seed, case.on_debug_kernel);
        Verdict {
            case: case.kind,
            seed,
            debug_kernel,
            passed,
            believed_device: case.kind.is_believed() && !named.is_empty(),
            named,
            note,
            not_run,
            consoles,
            not_exercised,
            traffic,
            moments,
            wall_s,
            adversarial,
            booted_with: None,
            repeat,
            repeat_boot: None,
        }
    }
}

fn of_trouble(trouble: Trouble, has_own: bool) -> Failed {
    let named = match trouble {
        Trouble::Ended(failure) => return of_failure(failure, has_own),
        Trouble::Monitor(error) => return not_run(error),
        Trouble::Qemu(error) => return not_run(error),
        Trouble::Hang(what) => Named::Hang { what },
        Trouble::Step { step, said } => Named::Step { step, said },
        Trouble::Exit { node, code, said } => Named::Exit { node, code, said },
    };
    Failed::Driver(vec![named])
}

/// Whether the end of a cluster is the driver's fault. `has_own`: a node has a driver of the user's own, which may keep
/// a guest from becoming healthy.
fn of_failure(failure: Failure, has_own: bool) -> Failed {
    // Each case keeps the folder of the consoles itself.
    let named = match failure.into_parts().0 {
        Failure::Signal(signal) => return Failed::Halt(Halt::Signal(signal)),
        Failure::Panicked(panics) => return Failed::Driver(panics.into_iter().map(of_panic).collect()),
        Failure::Driver { node, error, .. } => {
            Named::Step { step: format!("loading the driver on {node}"), said: error.to_string() }
        }
        Failure::SwitchedOff { node, console } => {
            Named::Step { step: format!("keeping {node} up"), said: console }
        }
        failure @ Failure::NotHealthy { .. } if has_own => Named::Hang { what: failure.to_string() },
        failure => return not_run(failure),
    };
    Failed::Driver(vec![named])
}

fn of_panic(panic: KernelPanic) -> Named {
    let KernelPanic { node, reason, locations: places, text } = panic;
    Named::Panic { node, reason, places: places.iter().map(ToString::to_string).collect(), said: text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_that_a_driver_can_cause_count_against_it() {
        let named = |failure, has_own| match of_failure(failure, has_own) {
            Failed::Driver(named) => Some(named[0].to_string()),
            Failed::NotRun(_) => None,
            _ => Some("signal".to_owned()),
        };
        let (node, console) = ("node1".to_owned(), "Kernel panic - not syncing".to_owned());
        let panic = |node: &str| KernelPanic {
            node: node.to_owned(),
            reason: "Oops: 0002 [#1] SMP".to_owned(),
            locations: Vec::new(),
            text: console.clone(),
        };
        let panicked = || Failure::Panicked(vec![panic("node0"), panic("node1")]);
        let kept = Failure::Kept { failure: Box::new(panicked()), folder: "/f".into() };
        assert_eq!(named(kept, false).as_deref(), Some("panic on node0: Oops: 0002 [#1] SMP"));
        let Failed::Driver(all) = of_failure(panicked(), true) else { panic!("not the driver's") };
        assert_eq!(all.len(), 2, "each node's panic is named: {all:?}");
        assert_eq!(named(Failure::DaemonEnded { how: "x".into(), log: String::new() }, true), None);
        let late = || Failure::NotHealthy { timeout: Duration::from_secs(1), details: "d".into() };
        assert!(named(late(), true).is_some_and(|named| named.starts_with("hang: ")));
        assert_eq!(named(late(), false), None, "without a driver of the user's the host is too slow");
        assert_eq!(named(Failure::Signal(2), true).as_deref(), Some("signal"));
        assert!(named(Failure::SwitchedOff { node, console }, true).is_some());
    }

    #[test]
    fn adversarial_seeds_on_the_same_kernel_share_one_boot() {
        let choice = case::Choice { from: 1, with_debug_kernel: true, ..case::Choice::default() };
        let cases = choice.cases();
        assert_eq!(in_one_boot(&cases), None, "{:?}", cases[0]);
        let adversarial = |on_debug_kernel| {
            move |case: &Case| (case.kind, case.on_debug_kernel) == (CaseKind::Adversarial, on_debug_kernel)
        };
        let first = |on_debug_kernel| cases.iter().position(adversarial(on_debug_kernel)).unwrap();
        assert_eq!(in_one_boot(&cases[first(false)..]), Some(case::DEFAULT_SEEDS as usize));
        assert_eq!(in_one_boot(&cases[first(true)..]), Some(1));
        assert_eq!(in_one_boot(&[]), None);
    }

    #[test]
    fn a_case_is_passed_failed_or_neither() {
        let case = Case { kind: CaseKind::Plain, seed: 7, on_debug_kernel: false };
        let of = |found: Found| found.verdict(case, Duration::from_secs(1), "again".into());
        assert!(of(Found { note: Some("n".into()), ..Found::default() }).passed);
        let hang = Named::Hang { what: "x".into() };
        let failed = of(Found { named: vec![hang.clone()], ..Found::default() });
        assert_eq!(
            (failed.passed, &failed.named, failed.not_run.is_some()),
            (false, &vec![hang.clone()], false)
        );
        let neither = of(Found { not_run: Some("no memory".into()), ..Found::default() });
        assert_eq!((neither.passed, neither.named.len(), neither.not_run.is_some()), (false, 0, true));
        let idle = |named| of(Found { not_exercised: Some("nothing".into()), named, ..Found::default() });
        assert!(!idle(Vec::new()).passed && idle(Vec::new()).not_exercised.is_some());
        assert_eq!(idle(vec![hang]).not_exercised, None, "a finding comes first");
    }
}
