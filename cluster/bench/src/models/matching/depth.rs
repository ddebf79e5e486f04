//! Match in guests: latency over the position of the receive in the list. Either the card matches, or the program, by
//! the same rule and in the same guests.
//!
//! There are no published numbers: the paper had no hosts. Two programs run a ping-pong over posted receives; a number
//! of entries that do not match precede the one that does. If the host matches, the card has one entry that accepts
//! everything, and the program walks the list.
//!
//! Both clocks are shown. Model time includes transactions of the host interface and the match unit's time, but not the
//! guests' computing. So if the host matches, model time is that of a list with one entry and says nothing about the
//! host; there, only wall time counts.

use anyhow::{Context, Result, bail};
use niclab_cluster::{check::live::LiveCluster, output::table};
use niclab_spec::{
    ClusterFile, NicModel, Scenario, Source, Workload, WorkloadKind,
    report::{Histogram, WallResult},
};
use serde::Serialize;

use crate::figures::plot::{Legend, Panel, Scale, Series, Style};

/// The version of [`DepthFigures`].
pub const DEPTH_FIGURES_VERSION: u32 = 1;

/// Numbers of entries before the one that matches.
const DEPTHS: [u64; 7] = [0, 3, 10, 30, 100, 300, 1000];
const MESSAGE_BYTES: u32 = 64;
const ROUND_TRIPS: u64 = 500;
const WARMUP: u64 = 100;
/// Rounds of each measurement.
const ROUNDS: usize = 5;

/// Where messages are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchLocation {
    Card,
    Host,
}

impl MatchLocation {
    const ALL: [Self; 2] = [Self::Card, Self::Host];

    const fn argument(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Host => "host",
        }
    }
}

/// Latency over depth, on both clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DepthFigures {
    /// [`DEPTH_FIGURES_VERSION`].
    pub version: u32,
    /// The platform profile.
    pub profile: String,
    /// Number of rounds of each measurement; the figures are medians.
    pub rounds: usize,
    /// Payload of a message.
    pub message_bytes: u32,
    /// One for each depth.
    pub depths: Vec<Depth>,
}

/// A ping-pong with a number of entries before the one that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// Number of entries before the one that matches.
    pub entries_in_front: u64,
    /// Matched by the match unit.
    pub on_card: Measured,
    /// Matched by the program.
    pub on_host: Measured,
}

/// The result of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Median latency of a message, from the sender's software to the receiver's.
    pub model_latency_p50_ps: u64,
    /// Median round trip in the guests.
    pub wall_round_trip_p50_ns: u64,
}

impl DepthFigures {
    /// Boots two guests and measures, alternating in each round.
    ///
    /// # Errors
    /// When the cluster cannot be booted, or a run measures nothing.
    pub fn measure(offline: bool) -> Result<Self> {
        let scenario = scenario()?;
        let profile = scenario.cluster.profile.name.clone();
        let mut cluster = LiveCluster::boot(&scenario, offline)?;
        let depths = sweep(ROUNDS, &mut |depth, location| {
            let depth = depth.to_string();
            let more = ["--depth", &depth, "--match-on", location.argument()];
            let report = cluster.benchmark(&more)?;
            measured(&report.model.latency, report.wall.as_ref().map_or(&[], |wall| &wall.results))
        });
        cluster.shut_down();
        Ok(Self {
            version: DEPTH_FIGURES_VERSION,
            profile,
            rounds: ROUNDS,
            message_bytes: MESSAGE_BYTES,
            depths: depths?,
        })
    }

    /// The figures as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let head = [
            "entries in front",
            "card: model ns",
            "card: wall us",
            "host: model ns",
            "host: wall us",
            "wall, host over card",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for Depth { entries_in_front, on_card, on_host } in &self.depths {
            rows.push(vec![
                entries_in_front.to_string(),
                ns(on_card.model_latency_p50_ps),
                us(on_card.wall_round_trip_p50_ns),
                ns(on_host.model_latency_p50_ps),
                us(on_host.wall_round_trip_p50_ns),
                format!(
                    "{:.2}",
                    on_host.wall_round_trip_p50_ns as f64 / on_card.wall_round_trip_p50_ns.max(1) as f64
                ),
            ]);
        }
        format!(
            "Match in guests, profile {}, ping-pong of {} bytes: model time of a message one way, wall time of a round \
             trip; medians of {} rounds. Model time does not include the guests' computing.\n\n{}",
            self.profile,
            self.message_bytes,
            self.rounds,
            table(&rows)
        )
    }

    /// A drawing for each clock.
    #[must_use]
    pub fn panels(&self) -> [Panel; 2] {
        let line = |name: &str, colour, of: &dyn Fn(&Depth) -> f64| Series {
            name: name.to_owned(),
            style: Style::Line(colour),
            points: self.depths.iter().map(|depth| (depth.entries_in_front as f64, of(depth))).collect(),
        };
        let panel = |title: &str, y_label: &str, series| Panel {
            title: format!("Posted receives in guests: {title}"),
            x_label: "entries in front of the one that matches".to_owned(),
            y_label: y_label.to_owned(),
            scale: Scale::Linear,
            legend: Legend::Inside,
            series,
        };
        let model =
            line("matched on the card", "#1f77b4", &|depth| depth.on_card.model_latency_p50_ps as f64 / 1e3);
        let wall = vec![
            line("matched on the card", "#1f77b4", &|depth| {
                depth.on_card.wall_round_trip_p50_ns as f64 / 1e3
            }),
            line("matched on the host", "#d62728", &|depth| {
                depth.on_host.wall_round_trip_p50_ns as f64 / 1e3
            }),
        ];
        [
            panel("message, one way", "model time (ns)", vec![model]),
            panel("round trip", "wall time (us)", wall),
        ]
    }
}

/// The model of the cards.
const MODEL: &str = "match";

/// Two nodes with Match cards.
fn scenario() -> Result<Scenario> {
    let mut file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    file.nic.model = NicModel::named(MODEL).with_context(|| format!("there is no model `{MODEL}`"))?;
    let cluster = Source::default().resolve_booted(&file)?;
    let workload = Workload {
        message_bytes: MESSAGE_BYTES,
        count: ROUND_TRIPS,
        warmup: WARMUP,
        ..Workload::new(WorkloadKind::PingPong)
    };
    Ok(Scenario {
        mode: niclab_spec::ScenarioMode::Live,
        repeat: 1,
        cluster,
        workload,
        budgets: Vec::new(),
        ratios: Vec::new(),
    })
}

/// Measures all depths and places in each round, each round beginning with another depth; returns medians.
fn sweep(rounds: usize, run: &mut dyn FnMut(u64, MatchLocation) -> Result<Measured>) -> Result<Vec<Depth>> {
    let mut samples = vec![[Vec::new(), Vec::new()]; DEPTHS.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..DEPTHS.len()).collect();
        order.rotate_left(round % DEPTHS.len());
        for index in order {
            for (location, of_location) in MatchLocation::ALL.into_iter().zip(&mut samples[index]) {
                of_location.push(run(DEPTHS[index], location)?);
            }
        }
    }
    DEPTHS
        .into_iter()
        .zip(&samples)
        .map(|(entries_in_front, [card, host])| {
            Ok(Depth { entries_in_front, on_card: median(card)?, on_host: median(host)? })
        })
        .collect()
}

fn median(samples: &[Measured]) -> Result<Measured> {
    let of = |value: fn(&Measured) -> u64| {
        let mut values: Vec<u64> = samples.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().context("at least one round is needed")
    };
    Ok(Measured {
        model_latency_p50_ps: of(|sample| sample.model_latency_p50_ps)?,
        wall_round_trip_p50_ns: of(|sample| sample.wall_round_trip_p50_ns)?,
    })
}

fn measured(latency: &Histogram, results: &[WallResult]) -> Result<Measured> {
    if latency.count == 0 {
        bail!("no message arrived; see niclab-perf's messages above");
    }
    let round_trip = results.first().and_then(|result| result.round_trip);
    let round_trip = round_trip.context("niclab-perf reported no round trip; see its messages above")?;
    Ok(Measured { model_latency_p50_ps: latency.p50_ps, wall_round_trip_p50_ns: round_trip.p50_ns })
}

fn ns(ps: u64) -> String {
    format!("{:.1}", ps as f64 / 1e3)
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_per_depth_for_any_order_of_rounds() {
        let mut calls = 0;
        let depths = sweep(3, &mut |depth, location| {
            calls += 1;
            let noise = if calls % 13 == 0 { 1_000_000 } else { 0 };
            let model_latency_p50_ps = 1_000 + depth * u64::from(location == MatchLocation::Card);
            Ok(Measured { model_latency_p50_ps, wall_round_trip_p50_ns: depth + noise })
        })
        .unwrap();
        assert_eq!(calls, 3 * 2 * DEPTHS.len());
        for (depth, entries) in depths.iter().zip(DEPTHS) {
            assert_eq!(depth.entries_in_front, entries);
            assert_eq!(depth.on_card.model_latency_p50_ps, 1_000 + entries);
            assert_eq!(
                (depth.on_host.model_latency_p50_ps, depth.on_host.wall_round_trip_p50_ns),
                (1_000, entries)
            );
        }
    }

    #[test]
    fn a_run_that_measured_nothing_is_an_error() {
        let error = measured(&Histogram::default(), &[]).unwrap_err().to_string();
        assert!(error.contains("no message arrived"), "{error}");
    }
}
