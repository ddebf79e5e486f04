//! GRIM cards in guests, beside ULTRA and Match cards in the same boot: what a short message costs, what a bulk message carries of
//! what a put does, and what many channels carry of what one does.

use std::collections::BTreeMap;

use anyhow::Result;
use niclab_cluster::{boot::running::RunningCluster, host::runtime::RuntimeRoot};
use niclab_spec::Cluster;

use crate::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    perf::{self, Pair, Path},
};

/// The models, each on two nodes, in the order of their ranks.
const MODELS: [&str; 6] = ["ultra", "ultra", "match", "match", "grim", "grim"];
/// Memory of a node: six must fit beside whatever else this machine does.
const MEMORY_MIB: u32 = 128;
/// Largest Ethernet payload of the links, so that a long message is cut into few frames.
const MTU_BYTES: u32 = 9_000;

/// A short message of GRIM has four integers, which are the tag of these programs.
const SHORT_BYTES: usize = 0;
const ROUND_TRIPS: u64 = 2_000;
/// The longest bulk message, and so many of them.
const BULK: (usize, u64) = (49_152, 1_000);
const PUT: (usize, u64) = (1 << 20, 100);

/// How many times as long as ULTRA's a round trip of GRIM may take.
const ROUND_TRIP_GOAL: Goal = Goal::Below(1.3);
/// What of a put's bandwidth bulk messages must reach.
const BULK_GOAL: Goal = Goal::AtLeast(0.5);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    UltraRoundTrip,
    GrimRoundTrip,
    MatchPuts,
    GrimBulk,
}

impl Sample {
    const ALL: [Self; 4] = [Self::UltraRoundTrip, Self::GrimRoundTrip, Self::MatchPuts, Self::GrimBulk];

    /// The model that it is taken of.
    const fn model(self) -> &'static str {
        match self {
            Self::UltraRoundTrip => "ultra",
            Self::MatchPuts => "match",
            Self::GrimRoundTrip | Self::GrimBulk => "grim",
        }
    }

    fn take(self, running: &mut RunningCluster) -> Result<f64> {
        let first = MODELS.iter().position(|model| *model == self.model()).unwrap_or_default();
        let pair = Pair { first, path: Path::Nic };
        match self {
            Self::UltraRoundTrip | Self::GrimRoundTrip => {
                perf::round_trip_us(running, &pair, SHORT_BYTES, ROUND_TRIPS)
            }
            Self::MatchPuts => perf::bandwidth_mb_per_s(running, &pair, PUT.0, PUT.1),
            Self::GrimBulk => perf::bandwidth_mb_per_s(running, &pair, BULK.0, BULK.1),
        }
    }

    fn figure(self, samples: Vec<f64>) -> Figure {
        let (name, what, unit) = match self {
            Self::UltraRoundTrip => ("ultra_round_trip_short", "ULTRA, tag alone, p50 round trip", "us"),
            Self::GrimRoundTrip => ("grim_round_trip_short", "GRIM, short messages, p50 round trip", "us"),
            Self::MatchPuts => ("match_bandwidth_1m", "Match, puts of 1 MiB to posted receives", "MB/s"),
            Self::GrimBulk => ("grim_bandwidth_48k", "GRIM, bulk messages of 48 KiB", "MB/s"),
        };
        Figure::new(name, what, Clock::Wall, unit, samples)
    }
}

/// Boots six guests and compares.
///
/// # Errors
/// When the cluster does not boot, or a measurement fails.
pub(super) fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let booted = crate::boot_cluster(options, root, &cluster()?, |_| {})?;
    booted.finish(|running| {
        let samples = crate::rounds(options.rounds, Sample::ALL, |sample| sample.take(running))?;
        Ok(Measured { figures: compare(samples), ..Measured::default() })
    })
}

/// Two nodes of each model on one switch.
fn cluster() -> Result<Cluster> {
    crate::side_by_side(&MODELS, MEMORY_MIB, MTU_BYTES)
}

fn compare(mut samples: BTreeMap<Sample, Vec<f64>>) -> Vec<Figure> {
    let [ultra, short, puts, bulk] =
        Sample::ALL.map(|sample| sample.figure(samples.remove(&sample).unwrap_or_default()));
    let latency =
        Figure::ratio("grim_over_ultra", "round trip of a short message: GRIM over ULTRA", &short, &ultra)
            .with_goal(ROUND_TRIP_GOAL);
    let bandwidth = Figure::ratio(
        "grim_bulk_over_puts",
        "bandwidth: bulk messages of 48 KiB over puts of 1 MiB",
        &bulk,
        &puts,
    )
    .with_goal(BULK_GOAL);
    vec![ultra, short, latency, puts, bulk, bandwidth]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_the_model_that_they_are_measured_as_and_take_the_messages() {
        let cluster = cluster().unwrap();
        let models: Vec<&str> = cluster.nodes.iter().map(|node| node.nic.model.name).collect();
        assert_eq!(models, MODELS);
        let places = Sample::ALL.map(|sample| MODELS.iter().position(|model| *model == sample.model()));
        assert_eq!(places, [Some(0), Some(4), Some(2), Some(4)], "even ranks");
        assert!(cluster.nodes[4].nic.limits().max_message_bytes >= BULK.0 as u64);
    }

    #[test]
    fn less_time_and_more_bandwidth_are_what_the_goals_want() {
        let samples = Sample::ALL.into_iter().zip([20.0, 30.0, 100.0, 60.0]);
        let figures = compare(samples.map(|(sample, value)| (sample, vec![value])).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!((of("grim_over_ultra").median, of("grim_over_ultra").reached), (1.5, Some(false)));
        assert_eq!((of("grim_bulk_over_puts").median, of("grim_bulk_over_puts").reached), (0.6, Some(true)));
    }
}
