//! `niclab compare`: runs one workload over the cards of every model and over the Ethernet function, simulated and in
//! guests.
//!
//! The models come from the registry. All use the same platform profile. If a card or the function cannot carry the
//! messages (they are too long, or the platform has no price for it), its row has the reason. The Ethernet function
//! carries datagrams in the simulator. In guests it carries TCP, which programs use there.

mod text;

use anyhow::{Result, bail};
use niclab_cluster::{
    boot::running::Failure,
    check::{budget::in_ledger, live::LiveCluster},
    programs::simulator::Simulator,
};
use niclab_spec::{
    ClusterFile, Function, NicConfig, NicModel, Report, Scenario, ScenarioMode, SimConfig, Source, Workload,
    WorkloadKind, explain,
    report::{GuestTime, Mode, NodeFigures},
};
use serde::Serialize;

/// The version of [`Comparison`].
pub const COMPARISON_VERSION: u32 = 1;

/// A platform profile with prices for every model.
pub const DEFAULT_PROFILE: &str = "pcie4-100g";

const PS_PER_S: u128 = 1_000_000_000_000;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where it runs.
    pub mode: ScenarioMode,
    /// A ping-pong or a stream. [`compare`] sets its function.
    pub workload: Workload,
    /// Name or path of the platform's profile.
    pub profile: String,
}

/// Runs simulations and guests. Guests use the Ethernet function if the workload's function is that.
pub trait Runner {
    /// Simulates, and returns the report.
    ///
    /// # Errors
    /// When the simulation cannot be run.
    fn simulate(&mut self, config: &SimConfig) -> Result<Report>;

    /// Runs guests, and returns their report.
    ///
    /// # Errors
    /// When the guests cannot be booted, or a measurement fails.
    fn boot(&mut self, scenario: &Scenario) -> Result<Report>;
}

/// Runs the simulator, and guests on this machine.
#[derive(Debug)]
pub struct Here {
    /// Whether the network may not be used.
    pub offline: bool,
}

impl Runner for Here {
    fn simulate(&mut self, config: &SimConfig) -> Result<Report> {
        Simulator::locate(self.offline)?.run(config)
    }

    fn boot(&mut self, scenario: &Scenario) -> Result<Report> {
        let mut cluster = LiveCluster::boot(scenario, self.offline)?;
        let report = match scenario.workload.function {
            Function::Cluster => cluster.measure(),
            Function::Ethernet | Function::Tcp => cluster.benchmark(&["--transport", "tcp"]),
        };
        cluster.shut_down();
        report
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// `niclab compare`.
    pub tool: &'static str,
    /// The platform's profile.
    pub profile: String,
    /// The messages that were sent.
    pub workload: Workload,
    /// A row for each carrier and mode; for each carrier, first simulated, then live.
    pub rows: Vec<Row>,
}

/// The result of one carrier in one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of a NIC model, or `ethernet`.
    pub carrier: &'static str,
    /// Simulated or live.
    pub mode: Mode,
    /// The measured values.
    pub figures: Option<Figures>,
    /// Why there are no values, or what is wrong with them.
    pub problem: Option<String>,
}

/// The values of a run. A value per message is the sum over both nodes, divided by the number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Median latency of a message (on the Ethernet function: of a frame) from program to program.
    pub model_latency_p50_ps: u64,
    /// Payload per second.
    pub model_bytes_per_s: u64,
    /// Whether the model time is exact.
    pub model_is_exact: bool,
    /// Median round trip of a live ping-pong.
    pub wall_round_trip_p50_ns: Option<u64>,
    /// Payload per second, both directions together; live only.
    pub wall_bytes_per_s: Option<u64>,
    /// Interrupts per message.
    pub interrupts: f64,
    /// Doorbells per message. The simulator's cards see every store and need none.
    pub doorbells: f64,
    /// Reads and writes of data and descriptors, per message.
    pub dma_operations: f64,
    /// Bytes on the host's bus in all transactions, per message.
    pub bus_bytes: f64,
    /// Time of the guests' processors per message; live only.
    pub wall_guest_ns: Option<f64>,
}

/// A NIC model, or the Ethernet function.
struct Carrier {
    name: &'static str,
    nic: NicConfig,
    function: Function,
}

/// Compares all carriers. If a carrier cannot be run, its row has the reason.
///
/// # Errors
/// Only when a signal ends niclab.
pub fn compare(request: &Request, runner: &mut dyn Runner) -> Result<Comparison> {
    let modes = match request.mode {
        ScenarioMode::Sim => &[Mode::Sim][..],
        ScenarioMode::Live => &[Mode::Live],
        ScenarioMode::Both => &[Mode::Sim, Mode::Live],
    };
    let mut rows = Vec::new();
    for carrier in carriers() {
        for &mode in modes {
            let run = run(request, &carrier, mode, runner);
            if let Err(error) = &run
                && let Some(Failure::Signal(signal)) = error.downcast_ref()
            {
                return Err(Failure::Signal(*signal).into());
            }
            rows.push(Row::new(&carrier, mode, &request.workload, run));
        }
    }
    Ok(Comparison {
        version: COMPARISON_VERSION,
        tool: "niclab compare",
        profile: request.profile.clone(),
        workload: request.workload.clone(),
        rows,
    })
}

/// Every model of the registry, and the Ethernet function.
fn carriers() -> impl Iterator<Item = Carrier> {
    let cards = NicModel::all().map(|model| Carrier {
        name: model.name,
        nic: NicConfig::of(model),
        function: Function::Cluster,
    });
    let ethernet = Function::Ethernet;
    cards.chain([Carrier { name: ethernet.name(), nic: NicConfig::default(), function: ethernet }])
}

fn run(request: &Request, carrier: &Carrier, mode: Mode, runner: &mut dyn Runner) -> Result<Report> {
    let file = ClusterFile {
        nodes: Some(2),
        profile: Some(request.profile.clone()),
        nic: carrier.nic.clone(),
        ..ClusterFile::default()
    };
    // No file describes this cluster, so the profile's path is relative to the current folder.
    let source = Source::default();
    let cluster = match mode {
        Mode::Sim => source.resolve(&file)?,
        Mode::Live => source.resolve_booted(&file)?,
    };
    let mut workload = Workload { function: carrier.function, ..request.workload.clone() };
    if carrier.function == Function::Ethernet {
        // The Ethernet function interrupts as usual.
        workload.interrupt_every = 0;
    }
    let config = SimConfig::new(&cluster, carrier.name, &workload);
    if let Some(problem) = workload.problems(&config.workload_nodes()).first() {
        bail!("{}; {}", problem.what, problem.remedy);
    }
    match mode {
        Mode::Sim => runner.simulate(&config),
        Mode::Live => runner.boot(&Scenario {
            mode: ScenarioMode::Live,
            repeat: 1,
            cluster,
            workload,
            budgets: Vec::new(),
            ratios: Vec::new(),
        }),
    }
}

impl Row {
    fn new(carrier: &Carrier, mode: Mode, workload: &Workload, report: Result<Report>) -> Self {
        let row = Self { carrier: carrier.name, mode, figures: None, problem: None };
        match report {
            Err(error) => Self { problem: Some(explain(error.as_ref())), ..row },
            Ok(report) => Self {
                figures: Some(Figures::of(&report, carrier.function, workload)),
                problem: wrong(&report),
                ..row
            },
        }
    }
}

/// What is wrong with a run.
fn wrong(report: &Report) -> Option<String> {
    let broken = report.checks.iter().filter(|check| !check.held);
    let broken = broken.map(|check| format!("{}: {}", check.name, check.detail));
    let failed = report.nodes.iter().filter(|node| node.exit_code.is_some_and(|code| code != 0));
    let failed = failed.map(|node| format!("{}: exit code {}", node.name, node.exit_code.unwrap_or(0)));
    let ended =
        report.nodes.iter().filter_map(|node| Some(format!("{}: {}", node.name, node.error.as_ref()?)));
    let all: Vec<String> = broken.chain(failed).chain(ended).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Number of the workload's messages, without the final message of a stream's receiver.
const fn messages(workload: &Workload) -> u64 {
    match workload.kind {
        WorkloadKind::PingPong => workload.count.saturating_mul(2),
        _ => workload.count,
    }
}

impl Figures {
    fn of(report: &Report, function: Function, workload: &Workload) -> Self {
        let messages = messages(workload);
        let of_message = |sum: u64| sum as f64 / messages.max(1) as f64;
        let sum = |count: &dyn Fn(&NodeFigures) -> u64| of_message(report.nodes.iter().map(count).sum());
        let is_of_function = |cause: &str| cause.starts_with("ethernet_") == (function != Function::Cluster);
        let in_ledgers =
            |what: &str| sum(&|node| node.ledgers().map(|(_, ledger)| in_ledger(what, ledger)).sum());
        let latency = match function {
            Function::Cluster => report.model.latency,
            // The second node receives the measured messages.
            Function::Ethernet | Function::Tcp => {
                report.nodes.get(1).map(|node| node.ethernet_model_latency).unwrap_or_default()
            }
        };
        let bytes = u128::from(messages) * u128::from(workload.message_bytes);
        let per_s = (bytes * PS_PER_S).checked_div(report.model.time_ps.into()).unwrap_or(0);
        let result = report.wall.as_ref().and_then(|wall| wall.results.first());
        let guests =
            report.wall.as_ref().map(|wall| wall.guests.as_slice()).filter(|guests| !guests.is_empty());
        Self {
            model_latency_p50_ps: latency.p50_ps,
            model_bytes_per_s: u64::try_from(per_s).unwrap_or(u64::MAX),
            model_is_exact: report.model.is_exact,
            wall_round_trip_p50_ns: result.and_then(|result| Some(result.round_trip?.p50_ns)),
            wall_bytes_per_s: result.map(|result| result.payload_bytes_per_s),
            interrupts: sum(&|node| {
                let counts = node.interrupts.iter().filter(|(cause, _)| is_of_function(cause));
                counts.map(|(_, count)| count).sum()
            }),
            doorbells: sum(&|node| node.doorbells),
            dma_operations: in_ledgers("dma_operations"),
            bus_bytes: in_ledgers("crossing_bytes"),
            wall_guest_ns: guests.map(|guests| of_message(guests.iter().map(GuestTime::busy_ns).sum())),
        }
    }
}

impl Comparison {
    /// Whether every carrier was measured without an error.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.rows.iter().all(|row| row.problem.is_none())
    }

    /// The comparison as tables.
    #[must_use]
    pub fn text(&self) -> String {
        text::text(self)
    }
}

#[cfg(test)]
mod tests {
    use niclab_spec::report::{LedgerEntry, ModelFigures, WallFigures, WallLatency, WallResult};

    use super::*;

    /// Records the requests of all runs.
    #[derive(Default)]
    struct Recorder {
        runs: Vec<String>,
        report: Report,
        /// Whether a signal ends the first boot.
        is_ended: bool,
    }

    impl Runner for Recorder {
        fn simulate(&mut self, config: &SimConfig) -> Result<Report> {
            let model = config.nodes[0].nic.model.name;
            self.runs.push(format!("sim {model} {}", config.workload.function.name()));
            Ok(self.report.clone())
        }

        fn boot(&mut self, scenario: &Scenario) -> Result<Report> {
            if self.is_ended {
                return Err(Failure::Signal(2).into());
            }
            assert!(!scenario.cluster.lockstep, "lockstep would distort wall times");
            let model = scenario.cluster.nodes[0].nic.model.name;
            self.runs.push(format!("live {model} {}", scenario.workload.function.name()));
            Ok(self.report.clone())
        }
    }

    fn request(mode: ScenarioMode, workload: Workload) -> Request {
        Request { mode, workload, profile: DEFAULT_PROFILE.to_owned() }
    }

    fn ping_pong() -> Workload {
        Workload { count: 5, ..Workload::new(WorkloadKind::PingPong) }
    }

    fn report() -> Report {
        let entry = |transaction: &str, count: u64, bytes: u64| LedgerEntry {
            transaction: transaction.to_owned(),
            count,
            bytes,
            ..LedgerEntry::default()
        };
        let node = |name: &str| NodeFigures {
            doorbells: 10,
            interrupts: [("message".to_owned(), 5), ("ethernet_receive".to_owned(), 50)].into(),
            ledger: vec![entry("pio_write", 5, 80), entry("dma_write", 10, 240), entry("local_bus", 9, 900)],
            ..NodeFigures::new(name)
        };
        Report {
            model: ModelFigures { time_ps: 16_000_000, is_exact: true, ..ModelFigures::default() },
            nodes: vec![node("node0"), node("node1")],
            wall: Some(WallFigures {
                results: vec![WallResult {
                    payload_bytes_per_s: 1_000_000,
                    round_trip: Some(WallLatency { p50_ns: 12_000, ..WallLatency::default() }),
                    ..WallResult::default()
                }],
                guests: vec![
                    GuestTime {
                        user_ns: 700,
                        system_ns: 200,
                        interrupts_ns: 50,
                        idle_ns: 9_000,
                        ..GuestTime::default()
                    },
                    GuestTime { user_ns: 50, ..GuestTime::default() },
                ],
                ..WallFigures::default()
            }),
            ..Report::default()
        }
    }

    #[test]
    fn every_carrier_runs_in_each_mode() {
        let mut recorder = Recorder { report: report(), ..Recorder::default() };
        let found = compare(&request(ScenarioMode::Both, ping_pong()), &mut recorder).unwrap();
        let mut expected: Vec<String> = NicModel::names()
            .iter()
            .flat_map(|model| [format!("sim {model} cluster"), format!("live {model} cluster")])
            .collect();
        let default = NicConfig::default().model.name;
        expected.extend([format!("sim {default} ethernet"), format!("live {default} ethernet")]);
        assert_eq!(recorder.runs, expected);
        assert!(found.is_whole() && found.rows.len() == expected.len());
        let mut recorder = Recorder { report: report(), ..Recorder::default() };
        compare(&request(ScenarioMode::Sim, ping_pong()), &mut recorder).unwrap();
        assert!(recorder.runs.iter().all(|run| run.starts_with("sim ")));
    }

    #[test]
    fn values_per_message_sum_both_nodes_of_one_function() {
        let figures = Figures::of(&report(), Function::Cluster, &ping_pong());
        // 10 messages; 160 bytes in 16 us.
        assert_eq!((figures.interrupts, figures.doorbells), (1.0, 2.0));
        assert_eq!((figures.dma_operations, figures.bus_bytes), (2.0, 64.0));
        assert_eq!(figures.model_bytes_per_s, 10_000_000);
        assert_eq!(figures.wall_guest_ns, Some(100.0));
        assert_eq!(
            (figures.wall_round_trip_p50_ns, figures.wall_bytes_per_s),
            (Some(12_000), Some(1_000_000))
        );
        assert_eq!(Figures::of(&report(), Function::Ethernet, &ping_pong()).interrupts, 10.0);
        let stream = Workload { kind: WorkloadKind::Stream, ..ping_pong() };
        assert_eq!(Figures::of(&report(), Function::Cluster, &stream).doorbells, 4.0);
    }

    #[test]
    fn carrier_that_cannot_run_has_a_row_with_the_reason() {
        let long = Workload { message_bytes: 1_024, interrupt_every: 2, ..ping_pong() };
        let mut recorder = Recorder { report: report(), ..Recorder::default() };
        let found = compare(&request(ScenarioMode::Sim, long), &mut recorder).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = found.rows.iter().partition(|row| row.problem.is_none());
        assert!(
            good.iter().any(|row| row.carrier == "ethernet"),
            "the function ignores interrupt_every: {found:?}"
        );
        assert!(!bad.is_empty() && bad.iter().all(|row| row.figures.is_none()), "{found:?}");
        assert!(
            !found.is_whole() && found.text().contains("cannot send a message of 1024 bytes"),
            "{}",
            found.text()
        );
        let wrong = Request { profile: "no-such".to_owned(), ..request(ScenarioMode::Sim, ping_pong()) };
        let found = compare(&wrong, &mut recorder).unwrap();
        assert!(
            found.rows.iter().all(|row| row.problem.as_ref().is_some_and(|what| what.contains("no-such")))
        );
    }

    #[test]
    fn failed_run_is_reported_and_a_signal_ends_the_comparison() {
        let mut broken = report();
        broken.nodes[1].exit_code = Some(3);
        broken.model.is_exact = false;
        let mut recorder = Recorder { report: broken, ..Recorder::default() };
        let found = compare(&request(ScenarioMode::Live, ping_pong()), &mut recorder).unwrap();
        let text = found.text();
        assert!(!found.is_whole() && text.contains("node1: exit code 3"), "{text}");
        assert!(text.contains("~10.00") && text.contains("an estimate"), "{text}");
        recorder.is_ended = true;
        let error = compare(&request(ScenarioMode::Live, ping_pong()), &mut recorder).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Failure::Signal(2))), "{error}");
    }
}
