//! A driver put to the test: one command over everything that the manual allows a device, and that happens to drivers.
//!
//! * [`case`]: which cases there are;
//! * [`laboratory`]: the cluster of a case, and what can be done to it;
//! * [`conduct`]: what is done in each case;
//! * [`verdict`]: what became of them, as data.
//!
//! Each case has a cluster of its own, which comes out of a template: none knows of what another did.

pub mod case;
pub mod conduct;
pub mod laboratory;
pub mod verdict;

use std::time::{Duration, Instant};

use anyhow::Result;
use niclab_spec::{Cluster, ClusterName};

use self::{
    case::{Case, Kind},
    conduct::Conduct,
    laboratory::{Laboratory, OURS, Trouble},
    verdict::{CONFORMANCE_VERSION, Conformance, Named, Verdict},
};
use crate::{
    arguments::ClusterArgs,
    boot::{
        prepare,
        running::{Failure, RunningCluster},
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

/// Messages over niclab's own driver, whatever the card: there and back with sleeping receivers, and as fast as they go.
const OWN_WORKLOAD: &str = "niclab-perf pingpong -s 16 -n 100 --interrupt-every 4 --poll block --timeout 20 && \
                            niclab-perf stream -s 16 -n 500 --timeout 20";

/// What is asked for.
pub struct Request<'a> {
    /// How to boot.
    pub args: &'a ClusterArgs,
    /// The cluster of every case.
    pub cluster: Cluster,
    /// The command that runs on every node.
    pub command: Vec<String>,
    /// The cases.
    pub cases: Vec<Case>,
    /// How long the command may take where it is judged.
    pub limit: Duration,
    /// Whether to end with the first case that failed.
    pub fail_fast: bool,
    /// The command line that repeats a case.
    pub repeat: &'a dyn Fn(&Case) -> String,
}

/// The command of a run for which none is given: messages over niclab's own driver, changed or not.
///
/// # Errors
/// A node's driver has another name.
pub fn own_workload(cluster: &Cluster) -> Result<Vec<String>, String> {
    let named = |path: &std::path::Path| {
        let is_ours = path.join("niclab.h").is_file() || path.file_stem().is_some_and(|stem| stem == OURS);
        (!is_ours).then(|| path.display().to_string())
    };
    let other = cluster.nodes.iter().filter_map(|node| named(&node.driver.as_ref()?.path)).next();
    match other {
        Some(other) => Err(format!(
            "{other} is not niclab's own driver, so say which command passes messages over it: niclab conform ... -- COMMAND"
        )),
        None => Ok(["sh", "-c", OWN_WORKLOAD].map(str::to_owned).to_vec()),
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
    for case in &request.cases {
        let begin = Instant::now();
        let outcome = one(request, *case, &root);
        // From here on nobody hears of signals but the one that ends this program.
        signals::release();
        let found = match outcome {
            Ok(note) => Found { note, ..Found::default() },
            Err(Failed::Driver(named)) => Found { named, ..Found::default() },
            Err(Failed::NotRun(why)) => Found { not_run: Some(why), ..Found::default() },
            Err(Failed::Plan(error)) => return Err(error),
            Err(Failed::Signal(signal)) => {
                conformance.ended_by_signal = Some(signal);
                break;
            }
        };
        let verdict = found.verdict(*case, begin.elapsed(), (request.repeat)(case));
        on_verdict(&verdict);
        let has_failed = !verdict.passed;
        conformance.cases.push(verdict);
        if has_failed && request.fail_fast {
            break;
        }
    }
    Ok(conformance)
}

/// Why a case has no good end.
enum Failed {
    /// The cluster cannot be planned, and no other one could.
    Plan(anyhow::Error),
    /// A signal asks niclab to end.
    Signal(i32),
    /// It could not be carried out, which is nothing of the driver's.
    NotRun(String),
    /// The driver.
    Driver(Vec<Named>),
}

fn one(request: &Request<'_>, case: Case, root: &RuntimeRoot) -> Result<Option<String>, Failed> {
    let mut cluster = request.cluster.clone();
    cluster.seed = case.seed;
    if case.kind == Kind::Reboot {
        // So that the guest has what it boots; a guest that resets itself still ends its QEMU, until it is let.
        cluster.qemu_args.extend(["-action", "reboot=shutdown"].map(str::to_owned));
    }
    let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
    let plan = prepare::plan(request.args, &cluster, &name, root, request.args.offline);
    let plan = plan.map_err(Failed::Plan)?;
    let folder = root.claim(&name).map_err(|error| Failed::NotRun(error.to_string()))?;
    let timeout = request.args.boot_timeout(plan.nodes.len(), plan.patience);
    let has_own = plan.nodes.iter().any(|node| node.driver.is_some());
    let mut running = RunningCluster::boot(plan, folder, timeout, &mut |_| {})
        .map_err(|failure| of_failure(failure, has_own))?;
    let mut laboratory = Laboratory::new(&mut running);
    let conduct = Conduct::new(&mut laboratory, case, &request.command, request.limit);
    let result = conduct.carry_out(case.kind);
    running.shut_down(false);
    result.map_err(|trouble| of_trouble(trouble, has_own))
}

/// What a case brought.
#[derive(Default)]
struct Found {
    named: Vec<Named>,
    note: Option<String>,
    not_run: Option<String>,
}

impl Found {
    fn verdict(self, case: Case, wall: Duration, repeat: String) -> Verdict {
        let Self { named, note, not_run } = self;
        let passed = named.is_empty() && not_run.is_none();
        let wall_s = wall.as_secs_f64();
        Verdict { case: case.kind, seed: case.seed, passed, named, note, not_run, wall_s, repeat }
    }
}

fn of_trouble(trouble: Trouble, has_own: bool) -> Failed {
    let named = match trouble {
        Trouble::Ended(failure) => return of_failure(failure, has_own),
        Trouble::Monitor(error) => return Failed::NotRun(error.to_string()),
        Trouble::Qemu(error) => return Failed::NotRun(error.to_string()),
        Trouble::Hang(what) => Named::Hang { what },
        Trouble::Step { step, said } => Named::Step { step, said },
        Trouble::Exit { node, code, said } => Named::Exit { node, code, said },
    };
    Failed::Driver(vec![named])
}

/// Whose fault it is that a cluster ended. `has_own`: it has a driver of the user's own, which may be why a guest is not healthy.
fn of_failure(failure: Failure, has_own: bool) -> Failed {
    let named = match failure {
        Failure::Signal(signal) => return Failed::Signal(signal),
        Failure::Panicked { node, driver, console } => {
            let places: Vec<String> = driver.iter().map(ToString::to_string).collect();
            let said = if places.is_empty() { console } else { format!("{}\n{console}", places.join("\n")) };
            Named::Panic { node, said }
        }
        Failure::Driver { node, error, .. } => {
            Named::Step { step: format!("loading the driver on {node}"), said: error.to_string() }
        }
        Failure::SwitchedOff { node, console } => {
            Named::Step { step: format!("keeping {node} up"), said: console }
        }
        failure @ Failure::NotHealthy { .. } if has_own => Named::Hang { what: failure.to_string() },
        failure => return Failed::NotRun(failure.to_string()),
    };
    Failed::Driver(vec![named])
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
        let panic = Failure::Panicked { node: node.clone(), driver: Vec::new(), console: console.clone() };
        assert_eq!(named(panic, false).as_deref(), Some("panic on node1"));
        assert_eq!(named(Failure::DaemonEnded { how: "x".into(), log: String::new() }, true), None);
        let late = || Failure::NotHealthy { timeout: Duration::from_secs(1), details: "d".into() };
        assert!(named(late(), true).is_some_and(|named| named.starts_with("hang: ")));
        assert_eq!(named(late(), false), None, "without a driver of the user's the host is too slow");
        assert_eq!(named(Failure::Signal(2), true).as_deref(), Some("signal"));
        assert!(named(Failure::SwitchedOff { node, console }, true).is_some());
    }

    #[test]
    fn a_case_is_passed_failed_or_neither() {
        let case = Case { kind: Kind::Plain, seed: 7 };
        let of = |found: Found| found.verdict(case, Duration::from_secs(1), "again".into());
        assert!(of(Found { note: Some("n".into()), ..Found::default() }).passed);
        let hang = Named::Hang { what: "x".into() };
        let failed = of(Found { named: vec![hang.clone()], ..Found::default() });
        assert_eq!((failed.passed, &failed.named, failed.not_run.is_some()), (false, &vec![hang], false));
        let neither = of(Found { not_run: Some("no memory".into()), ..Found::default() });
        assert_eq!((neither.passed, neither.named.len(), neither.not_run.is_some()), (false, 0, true));
    }
}
