//! A driver put to the test: one command over everything that the manual allows a device, and that happens to drivers.
//!
//! * [`case`]: which cases there are;
//! * [`laboratory`]: the cluster of a case, and what can be done to it;
//! * [`conduct`]: what is done in each case;
//! * [`series`]: several seeds of an adversarial device in one boot;
//! * [`findings`]: what others than the command see of a driver;
//! * [`traffic`]: what the cards did for it, without which a case has tried nothing;
//! * [`verdict`]: what became of them, as data.
//!
//! Each case has a cluster of its own, which comes out of a template: none knows of what another did, but for seeds
//! that are asked for in one boot.

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
    case::{Case, Kind},
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

/// Exit code: nothing was found.
pub const PASSED: u8 = 0;
/// Exit code: a case failed.
pub const FAILED: u8 = 1;
/// Exit code: what is asked for makes no sense.
pub const WRONG_USE: u8 = 2;
/// Exit code: a case could not be run.
pub const NOT_RUN: u8 = 3;
/// Exit code: nothing was found, and a case tried nothing: its cards did nothing that it could have disturbed.
pub const NOT_EXERCISED: u8 = 4;

/// Messages over niclab's own driver, whatever the card: there and back with sleeping receivers, and as fast as they
/// go.
const OWN_WORKLOAD: [&str; 6] = ["niclab-perf", "demo", "--poll", "block", "--timeout", "20"];

/// The same over an adversarial device, where a message there and back takes 10 ms and more, as each may wait until nobody
/// does anything any more: so many that they meet each kind, and what is found is found by other seeds rather than by
/// more messages.
const OWN_ADVERSARIAL_WORKLOAD: [&str; 3] = [
    "sh",
    "-c",
    "niclab-perf pingpong --poll block -n 24 -w 2 --timeout 20 && niclab-perf stream --poll block -s 48 -n 100 -w 2 --timeout 20",
];

/// The command that runs on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Over a device that is kind, or faulty.
    pub usual: Vec<String>,
    /// Over one that is adversarial.
    pub adversarial: Vec<String>,
}

impl Commands {
    /// The same for all cases.
    #[must_use]
    pub fn same(command: Vec<String>) -> Self {
        Self { usual: command.clone(), adversarial: command }
    }

    fn of(&self, kind: Kind) -> &[String] {
        if kind.is_adversarial() { &self.adversarial } else { &self.usual }
    }
}

/// What is asked for.
pub struct Request<'a> {
    /// How to boot.
    pub args: &'a ClusterArgs,
    /// The cluster of every case.
    pub cluster: Cluster,
    /// The command that runs on every node.
    pub commands: Commands,
    /// The cases.
    pub cases: Vec<Case>,
    /// How long the command may take where it is judged.
    pub limit: Duration,
    /// Whether to end with the first case that failed.
    pub fail_fast: bool,
    /// Whether seeds of an adversarial device that come one after the other have one boot, as long as they pass.
    pub is_one_boot: bool,
    /// The command line that repeats a case, and so many seeds from its own on.
    pub repeat: &'a dyn Fn(&Case, u64) -> String,
}

/// How many of these cases, from the first on, may have one boot.
fn in_one_boot(cases: &[Case]) -> Option<usize> {
    let first = cases.first().filter(|first| first.kind == Kind::Adversarial)?;
    let is_alike = |case: &&Case| (case.kind, case.on_debug_kernel) == (first.kind, first.on_debug_kernel);
    Some(cases.iter().take_while(is_alike).count())
}

/// Whether a debug kernel can be had, for a cluster whose own is the usual one.
#[must_use]
pub fn has_debug_kernel(cluster: &Cluster) -> bool {
    let is_built = || Cache::locate().is_ok_and(|cache| niclab_images::current_kernel(&cache).is_ok());
    cluster.kernel == GuestKernel::Stock && is_built()
}

/// The command of a run for which none is given: messages over niclab's own driver, changed or not.
///
/// # Errors
/// A node's driver has another name.
pub fn own_workload(cluster: &Cluster) -> Result<Commands, String> {
    let named = |path: &std::path::Path| {
        let is_ours = path.join("niclab.h").is_file() || path.file_stem().is_some_and(|stem| stem == OURS);
        (!is_ours).then(|| path.display().to_string())
    };
    let other = cluster.nodes.iter().filter_map(|node| named(&node.driver.as_ref()?.path)).next();
    match other {
        Some(other) => Err(format!(
            "{other} is not niclab's own driver, so say which command passes messages over it: niclab conform ... -- COMMAND"
        )),
        None => Ok(Commands {
            usual: OWN_WORKLOAD.map(str::to_owned).to_vec(),
            adversarial: OWN_ADVERSARIAL_WORKLOAD.map(str::to_owned).to_vec(),
        }),
    }
}

/// Carries the cases out, one after the other; `on_verdict` is told of each.
///
/// # Errors
/// Only where the first cluster cannot even be planned: a driver that does not compile, say.
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
        let mut tell = |verdict: Verdict| {
            on_verdict(&verdict);
            has_failed |= !verdict.passed;
            conformance.cases.push(verdict);
        };
        let done = match in_one_boot(left).filter(|_| request.is_one_boot) {
            Some(many) => Series::new(request, left.get(..many).unwrap_or(left), &mut tell).carry_out(&root),
            None => alone(request, left, &root, &mut tell),
        };
        // From here on nobody hears of signals but the one that ends this program.
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

/// Why no other case is carried out.
enum Halt {
    /// The cluster cannot be planned, and no other one could.
    Plan(anyhow::Error),
    /// A signal asks niclab to end.
    Signal(i32),
}

/// Why a case has no good end.
enum Failed {
    /// No other one would.
    Halt(Halt),
    /// It could not be carried out, which is nothing of the driver's.
    NotRun(String),
    /// The driver.
    Driver(Vec<Named>),
}

/// The cluster of a case, or of several.
struct Booted {
    running: RunningCluster,
    /// How long guests may take to be healthy.
    timeout: Duration,
    /// Whether it has a driver of the user's own.
    has_own: bool,
    /// How long the command may take where it is judged.
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
        if case.kind == Kind::Reboot {
            // So that the guest has what it boots; a guest that resets itself still ends its QEMU, until it is let.
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

/// The first of these cases, with a cluster of its own.
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
    // A guest that hangs or is gone is not asked: what it said stands on its console.
    let is_answering = !matches!(result, Err(Trouble::Ended(_) | Trouble::Hang(_)));
    let mut named = findings::of(&mut booted.running, is_answering);
    let seen = findings::activity(&booted.running);
    let found = Found::of(result.map_err(|trouble| of_trouble(trouble, booted.has_own)));
    let is_found = !named.is_empty() || found.as_ref().is_ok_and(|found| !found.named.is_empty());
    let consoles = if is_found { booted.running.keep_consoles() } else { None };
    booted.running.shut_down(false);
    let of_command = found?;
    named.extend(of_command.named);
    // What was found is worth more than why nothing more could be.
    let not_run = of_command.not_run.filter(|_| named.is_empty());
    let not_exercised = seen.not_exercised(case.kind, &did.moments);
    let note = did.note.filter(|_| named.is_empty());
    let (traffic, moments) = (seen.traffic, did.moments);
    Ok(Found { named, note, not_run, not_exercised, traffic, moments, consoles, ..Found::default() })
}

fn not_run(error: impl Display) -> Failed {
    Failed::NotRun(error.to_string())
}

/// What a case brought.
#[derive(Default)]
struct Found {
    named: Vec<Named>,
    note: Option<String>,
    not_run: Option<String>,
    /// Why nothing was tried, where nothing else is wrong.
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

/// Whose fault it is that a cluster ended. `has_own`: it has a driver of the user's own, which may be why a guest is
/// not healthy.
fn of_failure(failure: Failure, has_own: bool) -> Failed {
    // A case keeps the folder of the consoles by itself.
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
    let KernelPanic { node, reason, places, text } = panic;
    Named::Panic { node, reason, places: places.iter().map(ToString::to_string).collect(), said: text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_driver_can_do_is_held_against_it() {
        let named = |failure, has_own| match of_failure(failure, has_own) {
            Failed::Driver(named) => Some(named[0].to_string()),
            Failed::NotRun(_) => None,
            _ => Some("signal".to_owned()),
        };
        let (node, console) = ("node1".to_owned(), "Kernel panic - not syncing".to_owned());
        let panic = |node: &str| KernelPanic {
            node: node.to_owned(),
            reason: "Oops: 0002 [#1] SMP".to_owned(),
            places: Vec::new(),
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
    fn seeds_of_an_adversarial_device_on_the_same_kernel_have_one_boot() {
        let choice = case::Choice { from: 1, with_debug_kernel: true, ..case::Choice::default() };
        let cases = choice.cases();
        assert_eq!(in_one_boot(&cases), None, "{:?}", cases[0]);
        let adversarial = |on_debug_kernel| {
            move |case: &Case| (case.kind, case.on_debug_kernel) == (Kind::Adversarial, on_debug_kernel)
        };
        let first = |on_debug_kernel| cases.iter().position(adversarial(on_debug_kernel)).unwrap();
        assert_eq!(in_one_boot(&cases[first(false)..]), Some(case::DEFAULT_SEEDS as usize));
        assert_eq!(in_one_boot(&cases[first(true)..]), Some(1));
        assert_eq!(in_one_boot(&[]), None);
    }

    #[test]
    fn a_case_is_passed_failed_or_neither() {
        let case = Case { kind: Kind::Plain, seed: 7, on_debug_kernel: false };
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
        assert_eq!(idle(vec![hang]).not_exercised, None, "a failure is worth more");
    }
}
