//! GAMMA cards in guests, with drivers that poll, with an interrupt per frame, and with mitigation: round trips on both
//! clocks, and interrupts of a stream.
//!
//! In a ping-pong the order of operations is known, so model time is exact; a stream runs freely. The cards use no
//! window, so there are no frames with acknowledgements. `niclab bench gamma-guests` measures TCP with GAMMA traffic
//! and over QEMU's `tulip`.

use anyhow::{Context, Result, ensure};
use niclab_cluster::{check::live::LiveCluster, output::table};
use niclab_spec::{
    ClusterFile, NicConfig, NicModel, Report, Scenario, ScenarioMode, Source, Value, Workload, WorkloadKind,
};
use serde::Serialize;

use super::PLATFORMS;
use crate::figures::plot::{Legend, Panel, Scale, Series, Style};

/// The version of [`LiveFigures`].
pub const LIVE_FIGURES_VERSION: u32 = 1;

/// The paper's shortest message, and a message that almost fills a frame.
const SHORT_BYTES: u32 = 16;
const LONG_BYTES: u32 = 1_400;
const ROUND_TRIPS: u64 = 200;
const WARMUP: u64 = 20;
const MESSAGES: u64 = 400;
/// Rounds of each measurement; the figures are medians.
const ROUNDS: usize = 3;

/// When a card interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    name: &'static str,
    frames: u64,
    delay_us: u64,
}

const RULES: [Rule; 3] = [
    Rule { name: "polled", frames: 0, delay_us: 0 },
    Rule { name: "an interrupt per frame", frames: 1, delay_us: 0 },
    Rule { name: "after 8 frames or 20 us", frames: 8, delay_us: 20 },
];

/// All figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveFigures {
    /// [`LIVE_FIGURES_VERSION`].
    pub version: u32,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// The platform profile for model times.
    pub profile: &'static str,
    /// Number of rounds of each measurement.
    pub rounds: usize,
    /// The results, one for each rule.
    pub ways: Vec<RuleFigures>,
}

/// The results with one rule: medians.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleFigures {
    /// The rule.
    pub name: &'static str,
    /// Round trips of messages of 16 bytes.
    pub short: Trips,
    /// Round trips of messages of 1,400 bytes.
    pub long: Trips,
    /// A stream of messages of 1,400 bytes.
    pub stream: Stream,
    /// Whether each message of a ping-pong must cause an interrupt; otherwise none may.
    pub interrupts_each: bool,
}

/// Round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trips {
    /// Number of round trips.
    pub count: u64,
    /// Model time one way.
    pub model_ps: u64,
    /// Whether the model time is exact.
    pub is_exact: bool,
    /// Wall time of a round trip.
    pub wall_ns: u64,
    /// Interrupts that the first node's card raised.
    pub interrupts: u64,
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// Received frames, one for each message.
    pub frames: u64,
    /// Interrupts that the receiver's card raised.
    pub interrupts: u64,
    /// Interrupts of `cluster` that its guest counted.
    pub guest_interrupts: u64,
}

/// Two guests whose cards use one rule.
struct Guests {
    scenario: Scenario,
    cluster: LiveCluster,
    accelerator: String,
}

impl Guests {
    fn run(&mut self, kind: WorkloadKind, bytes: u32, count: u64) -> Result<Report> {
        self.scenario.workload =
            Workload { message_bytes: bytes, count, warmup: WARMUP, ..Workload::new(kind) };
        self.cluster.change_workload(&self.scenario)?;
        let report = self.cluster.measure()?;
        if let Some(accelerator) = &report.accelerator {
            self.accelerator.clone_from(&accelerator.name);
        }
        Ok(report)
    }

    fn trips(&mut self, bytes: u32) -> Result<Trips> {
        let report = self.run(WorkloadKind::PingPong, bytes, ROUND_TRIPS)?;
        let wall = report.wall.as_ref().context("a live report has wall times")?;
        let wall_ns = wall.results.first().context("niclab-perf measured nothing")?.elapsed_ns;
        let latency = &report.model.latency;
        ensure!(latency.count == 2 * ROUND_TRIPS, "some messages were lost");
        Ok(Trips {
            count: ROUND_TRIPS,
            model_ps: latency.sum_ps / latency.count,
            is_exact: report.model.is_exact,
            wall_ns: wall_ns / ROUND_TRIPS,
            interrupts: interrupts(&report, 0)?.0,
        })
    }

    fn stream(&mut self) -> Result<Stream> {
        let report = self.run(WorkloadKind::Stream, LONG_BYTES, MESSAGES)?;
        let receiver = report.nodes.get(1).context("the report lacks a node")?;
        ensure!(receiver.messages_received == MESSAGES, "some messages were lost");
        let (interrupts, guest_interrupts) = interrupts(&report, 1)?;
        Ok(Stream { frames: MESSAGES, interrupts, guest_interrupts })
    }

    fn figures(&mut self, rule: Rule) -> Result<RuleFigures> {
        let (mut short, mut long, mut streams) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            short.push(self.trips(SHORT_BYTES)?);
            long.push(self.trips(LONG_BYTES)?);
            streams.push(self.stream()?);
        }
        streams.sort_unstable_by_key(|stream| stream.interrupts);
        let stream = *streams.get(ROUNDS / 2).context("at least one round is needed")?;
        let (short, long) = (median(&short)?, median(&long)?);
        Ok(RuleFigures { name: rule.name, short, long, stream, interrupts_each: rule.frames > 0 })
    }
}

/// Interrupts of a node's card, and those that its guest counted.
fn interrupts(report: &Report, node: usize) -> Result<(u64, u64)> {
    let node = report.nodes.get(node).context("the report lacks a node")?;
    let guest = node.guest_interrupts.as_ref().and_then(|counts| counts.get("cluster"));
    Ok((node.interrupts.values().sum(), guest.copied().unwrap_or(0)))
}

/// Medians of the wall times. Model time and interrupts are those of the round with the longest model time, so that a
/// deviating round shows.
fn median(samples: &[Trips]) -> Result<Trips> {
    let worst = samples.iter().max_by_key(|trips| (!trips.is_exact, trips.model_ps));
    let worst = *worst.context("at least one round is needed")?;
    let mut walls: Vec<u64> = samples.iter().map(|trips| trips.wall_ns).collect();
    walls.sort_unstable();
    Ok(Trips { wall_ns: walls[walls.len() / 2], ..worst })
}

impl LiveFigures {
    /// Boots two guests for each rule, and measures.
    ///
    /// # Errors
    /// When a cluster cannot be booted, or a run fails.
    pub fn measure(offline: bool) -> Result<Self> {
        let (mut ways, mut name) = (Vec::new(), String::new());
        for rule in RULES {
            let scenario = scenario(rule)?;
            let cluster = LiveCluster::boot(&scenario, offline)?;
            let mut guests = Guests { scenario, cluster, accelerator: String::new() };
            let figures = guests.figures(rule);
            guests.cluster.shut_down();
            ways.push(figures?);
            name = guests.accelerator;
        }
        let version = LIVE_FIGURES_VERSION;
        Ok(Self { version, accelerator: name, profile: PLATFORMS[0].0, rounds: ROUNDS, ways })
    }

    /// Whether the model time of ping-pongs is exact, cards interrupt there for each message or never, and no guest
    /// counted more interrupts than its card raised.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.ways.iter().all(|figures| {
            let of_trips = |trips: &Trips| {
                trips.is_exact && trips.interrupts == if figures.interrupts_each { trips.count } else { 0 }
            };
            of_trips(&figures.short)
                && of_trips(&figures.long)
                && figures.stream.guest_interrupts <= figures.stream.interrupts
                && (figures.interrupts_each || figures.stream.interrupts == 0)
        })
    }

    /// The figures as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let heading = [
            "",
            "16 bytes: one way, model us",
            "round trip, wall us",
            "interrupts per message",
            "1,400 bytes: one way, model us",
            "round trip, wall us",
            "interrupts per message",
            "stream: interrupts per frame",
            "guest's",
        ];
        let us = |ps: u64| format!("{:.2}", ps as f64 / 1e6);
        let each = |count: u64, of: u64| format!("{:.3}", count as f64 / of as f64);
        let trips = |trips: &Trips| {
            let model = us(trips.model_ps);
            let model = if trips.is_exact { model } else { format!("~{model}") };
            [model, us(trips.wall_ns * 1_000), each(trips.interrupts, trips.count)]
        };
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.ways.iter().map(|figures| {
            let Stream { frames, interrupts, guest_interrupts } = figures.stream;
            let stream = [each(interrupts, frames), each(guest_interrupts, frames)];
            let name = std::iter::once(figures.name.to_owned());
            name.chain(trips(&figures.short)).chain(trips(&figures.long)).chain(stream).collect()
        }));
        format!(
            "GAMMA in guests ({}), profile {}: active ports without a window. Medians of {} rounds; model time and \
             interrupts of the round trips\n\
             are those of the slowest round. Streams run freely.\n\n\
             {}",
            self.accelerator,
            self.profile,
            self.rounds,
            table(&rows)
        )
    }

    /// The time of a round trip, on each clock.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        let colours = ["#1f77b4", "#d62728", "#2ca02c"];
        let line = |(figures, colour): (&RuleFigures, &'static str), of: fn(&Trips) -> f64| Series {
            name: figures.name.to_owned(),
            style: Style::Line(colour),
            points: vec![(SHORT_BYTES.into(), of(&figures.short)), (LONG_BYTES.into(), of(&figures.long))],
        };
        let panel = |label: &str, of: fn(&Trips) -> f64| Panel {
            title: "GAMMA in guests: round trips".to_owned(),
            x_label: "bytes of a message".to_owned(),
            y_label: label.to_owned(),
            scale: Scale::Linear,
            legend: Legend::Inside,
            series: self.ways.iter().zip(colours).map(|figures| line(figures, of)).collect(),
        };
        vec![
            panel("one way, model time (us)", |trips| trips.model_ps as f64 / 1e6),
            panel("round trip, wall time (us)", |trips| trips.wall_ns as f64 / 1e3),
        ]
    }
}

/// Two nodes.
fn scenario(rule: Rule) -> Result<Scenario> {
    let mut nic = NicConfig::of(NicModel::named("gamma").context("there is no model `gamma`")?);
    for (key, value) in
        [("window_frames", 0), ("interrupt_frames", rule.frames), ("interrupt_delay_us", rule.delay_us)]
    {
        nic.set(key, Value::Number(value))?;
    }
    let profile = Some(PLATFORMS[0].0.to_owned());
    let file = ClusterFile { nodes: Some(2), profile, nic, ..ClusterFile::default() };
    let cluster = Source::default().resolve_booted(&file)?;
    let workload = Workload::new(WorkloadKind::PingPong);
    let (budgets, ratios) = (Vec::new(), Vec::new());
    Ok(Scenario { mode: ScenarioMode::Live, repeat: 1, cluster, workload, budgets, ratios })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(interrupts: u64) -> Trips {
        Trips { count: ROUND_TRIPS, model_ps: 17_000_000, is_exact: true, wall_ns: 90_000, interrupts }
    }

    fn figures() -> LiveFigures {
        let stream = |interrupts| Stream { frames: MESSAGES, interrupts, guest_interrupts: interrupts };
        let figures = |name, interrupts, interrupts_each| {
            let (short, long) = (trips(interrupts), trips(interrupts));
            RuleFigures { name, short, long, stream: stream(interrupts / 2), interrupts_each }
        };
        let ways = vec![figures("polled", 0, false), figures("interrupted", ROUND_TRIPS, true)];
        let accelerator = "tcg".to_owned();
        LiveFigures { version: 1, accelerator, profile: PLATFORMS[0].0, rounds: ROUNDS, ways }
    }

    #[test]
    fn figures_hold_only_if_times_are_exact_and_counts_match() {
        let broken = |change: &dyn Fn(&mut LiveFigures)| {
            let mut figures = figures();
            change(&mut figures);
            !figures.hold()
        };
        assert!(figures().hold());
        assert!(
            broken(&|figures| figures.ways[0].short.interrupts = 1),
            "a polling program gets no interrupt"
        );
        assert!(broken(&|figures| figures.ways[0].stream.interrupts = 1));
        assert!(broken(&|figures| figures.ways[1].long.interrupts -= 1));
        assert!(broken(&|figures| figures.ways[1].long.is_exact = false));
        assert!(broken(&|figures| figures.ways[1].stream.guest_interrupts += 1));
    }

    #[test]
    fn deviating_round_is_shown() {
        let rounds = [trips(5), Trips { model_ps: 18_000_000, wall_ns: 1, ..trips(6) }, trips(5)];
        assert_eq!(median(&rounds).unwrap(), Trips { wall_ns: 90_000, ..rounds[1] });
        assert!(median(&[]).is_err());
        let mut figures = figures();
        figures.ways[1].short.is_exact = false;
        assert!(figures.text().contains("~17.00") && figures.text().contains("0.250"), "{}", figures.text());
    }

    #[test]
    fn cards_use_the_interrupt_rules() {
        for rule in RULES {
            let Scenario { cluster, .. } = scenario(rule).unwrap();
            let number = |key| cluster.nodes[1].nic.values().number(key);
            assert_eq!(
                (number("interrupt_frames"), number("interrupt_delay_us")),
                (rule.frames, rule.delay_us)
            );
        }
    }
}
