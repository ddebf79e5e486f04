//! One simulation, from its configuration to its report.

use std::path::PathBuf;

use niclab_model::time::EndOfTime;
use niclab_spec::monitor::DaemonStats;
use niclab_spec::report::{Mode, REPORT_VERSION, Report, nic_names};
use niclab_spec::{RecordingError, SimConfig, WorkloadProblem};
use niclab_workloads::Plan;
use thiserror::Error;

use crate::figures;
use crate::observer::Observer;
use crate::simulation::{Simulation, SimulationError, Wrap};

/// A simulation cannot be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The workload does not fit these nodes.
    #[error("{}", problems(.0))]
    Workload(Vec<WorkloadProblem>),
    /// The simulation cannot be set up.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The recording cannot be replayed.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Model time has reached its end, so results are not exact.
    #[error(
        "{0}; shorten the run: see `pause_ns` of the workload, and rates, latencies and timeouts of the links"
    )]
    EndOfTime(#[from] EndOfTime),
    /// The timeline or the capture cannot be written.
    #[error("cannot write the timeline or the capture: {0}; check the free space of the file system")]
    Observer(#[from] std::io::Error),
}

fn problems(problems: &[WorkloadProblem]) -> String {
    let line = |p: &WorkloadProblem| format!("`workload.{}`: {}\n  fix: {}", p.key, p.what, p.remedy);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The report of the measured part.
    pub report: Report,
    /// Number of events processed, including set-up and warm-up.
    pub events: u64,
    /// Number of messages that programs received in total.
    pub received: u64,
    /// Number of threads that processed it by phases; 0 if one thread processed it event by event.
    pub threads: usize,
}

impl Outcome {
    /// Whether every check held.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.report.checks.iter().all(|checked| checked.held)
    }
}

/// Options of a run.
#[derive(Clone)]
pub struct Options<'a> {
    /// Wraps each card, for tests that break a card on purpose.
    pub wrap: Wrap<'a>,
    /// Whether, at the end, all faults are removed and the workload runs once more, without loss.
    pub heals: bool,
    /// The folder to which the path of a recording is relative.
    pub folder: PathBuf,
    /// The text of the recording to replay; if none, it is read from its path.
    pub recording: Option<&'a str>,
    /// Number of threads that process one simulation by phases. The outcome is the same for any number. With 0, one
    /// thread processes it event by event. Runs with an observer, and runs whose nodes share state, are always
    /// processed so.
    pub threads: usize,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { wrap: &|_, nic| nic, heals: false, folder: PathBuf::new(), recording: None, threads: 1 }
    }
}

/// Runs a simulation to its end.
///
/// # Errors
/// [`RunError`], if it cannot begin, or model time reaches its end. A failed check is no error: see
/// [`Outcome::is_sound`].
pub fn run(config: &SimConfig, options: &Options<'_>) -> Result<Outcome, RunError> {
    run_observed(config, options, None)
}

/// Runs a simulation to its end. `observer` records its measured part.
///
/// # Errors
/// [`RunError`], also if the observer cannot write.
pub fn run_observed(
    config: &SimConfig,
    options: &Options<'_>,
    observer: Option<Observer<'_>>,
) -> Result<Outcome, RunError> {
    let found = config.workload.problems(&config.workload_nodes());
    if !found.is_empty() {
        return Err(RunError::Workload(found));
    }
    let recorded = match (options.recording, &config.workload.recording) {
        (Some(text), Some(path)) => config.recorded_in(path, text),
        _ => config.recorded(&options.folder),
    };
    let programs = config.programs(recorded?);
    if observer.is_none()
        && let Some(outcome) = carry_out(config, options, &programs, None)?
    {
        return Ok(outcome);
    }
    let undivided = Options { threads: 0, ..options.clone() };
    let outcome = carry_out(config, &undivided, &programs, observer)?;
    Ok(outcome.unwrap_or_else(|| unreachable!("one thread can process every simulation")))
}

/// None, if the simulation cannot be processed by phases.
fn carry_out(
    config: &SimConfig,
    options: &Options<'_>,
    programs: &niclab_workloads::Workload,
    observer: Option<Observer<'_>>,
) -> Result<Option<Outcome>, RunError> {
    let plan = Plan::new(programs);
    let mut simulation = Simulation::new(config, programs, &plan, (options.wrap, options.threads))?;
    let Plan { warmup, measured, .. } = plan;
    simulation.perform(warmup);
    if simulation.is_entangled() {
        return Ok(None);
    }
    simulation.check_time()?;
    simulation.begin_measurement();
    let before = figures::stats(&simulation, config);
    let received_before = (simulation.checker().received, simulation.checker().received_bytes);
    let healed = options.heals.then(|| measured.clone());
    if let Some(observer) = observer {
        simulation.observe(observer);
    }
    simulation.perform(measured);
    if simulation.is_entangled() {
        return Ok(None);
    }
    simulation.check_time()?;
    simulation.take_observer().map_or(Ok(()), Observer::finish)?;
    let mut since = figures::stats(&simulation, config).since(&before);
    let received = simulation.checker().received - received_before.0;
    let received_bytes = simulation.checker().received_bytes - received_before.1;
    if let Some(scripts) = healed {
        simulation.heal();
        simulation.perform(scripts);
    }
    if simulation.is_entangled() {
        return Ok(None);
    }
    simulation.check_time()?;
    simulation.finish();
    figures::check_sums(&mut simulation);
    let time_ps = since.model.time_ps;
    since.model.set_rates(received, received_bytes, time_ps);
    let (events, received) = (simulation.events(), simulation.checker().received);
    let threads = simulation.threads();
    let outcome = Outcome { report: report(config, since, &simulation), events, received, threads };
    // Failures are reported in the order of one thread.
    Ok((threads <= 1 || outcome.is_sound()).then_some(outcome))
}

fn report(config: &SimConfig, stats: DaemonStats, simulation: &Simulation) -> Report {
    let mut report = Report {
        version: REPORT_VERSION,
        niclab_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Mode::Sim,
        cluster: config.cluster.clone(),
        seed: config.seed,
        profile: config.profile.name.clone(),
        nic: nic_names(config.nodes.iter().map(|node| node.nic.model)),
        accelerator: None,
        qemu_version: None,
        kernel_release: None,
        workload: Some(config.workload.clone()),
        exit_code: None,
        wall: None,
        model: stats.model,
        nodes: stats.nodes,
        fabric: stats.fabric,
        total: Vec::new(),
        checks: simulation.checker().verdict(),
    };
    report.add_up();
    report
}
