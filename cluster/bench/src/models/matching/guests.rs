//! Match cards in guests, next to ULTRA cards in the same boot: the cost of matching on the card for a short message,
//! and the bandwidth of long ones.

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
const MODELS: [&str; 4] = ["ultra", "ultra", "match", "match"];
/// Rank of the first node with a Match card.
const FIRST_MATCH: usize = 2;

/// Memory of a node, in MiB: four nodes must fit into a machine that is in use.
const MEMORY_MIB: u32 = 192;

/// Payload of the short message: the maximum of a packet of ULTRA.
const SHORT_BYTES: usize = 64;
const ROUND_TRIPS: u64 = 2_000;

/// Payload of the long message, in bytes.
const LONG_BYTES: usize = 1 << 20;
const LONG_MESSAGES: u64 = 200;

/// Largest Ethernet payload of the links, so that a long message needs few frames.
const MTU_BYTES: u32 = 9_000;

/// Maximum ratio of Match's round trip to ULTRA's.
const ROUND_TRIP_GOAL: Goal = Goal::Below(1.5);
/// Minimum bandwidth of long messages, in 10^6 bytes per second.
const BANDWIDTH_GOAL: Goal = Goal::AtLeast(4_000.0);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    UltraRoundTrip,
    MatchRoundTrip,
    MatchBandwidth,
}

impl Sample {
    const ALL: [Self; 3] = [Self::UltraRoundTrip, Self::MatchRoundTrip, Self::MatchBandwidth];

    fn take(self, running: &mut RunningCluster) -> Result<f64> {
        let on_match = Pair { first: FIRST_MATCH, path: Path::Nic };
        match self {
            Self::UltraRoundTrip => perf::round_trip_us(running, &Path::Nic.into(), SHORT_BYTES, ROUND_TRIPS),
            Self::MatchRoundTrip => perf::round_trip_us(running, &on_match, SHORT_BYTES, ROUND_TRIPS),
            Self::MatchBandwidth => perf::bandwidth_mb_per_s(running, &on_match, LONG_BYTES, LONG_MESSAGES),
        }
    }

    fn figure(self, samples: Vec<f64>) -> Figure {
        let (name, what, unit) = match self {
            Self::UltraRoundTrip => ("ultra_round_trip_64", "ULTRA, 64 bytes, p50 round trip", "us"),
            Self::MatchRoundTrip => {
                ("match_round_trip_64", "Match, 64-byte put to a posted receive, p50 round trip", "us")
            }
            Self::MatchBandwidth => ("match_bandwidth_1m", "Match, puts of 1 MiB to posted receives", "MB/s"),
        };
        Figure::new(name, what, Clock::Wall, unit, samples)
    }
}

/// Boots four guests and compares.
///
/// # Errors
/// When the cluster does not boot, or a measurement fails.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
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
    let [ultra, short, long] =
        Sample::ALL.map(|sample| sample.figure(samples.remove(&sample).unwrap_or_default()));
    let ratio = Figure::ratio("match_over_ultra", "round trip of 64 bytes: Match over ULTRA", &short, &ultra)
        .with_goal(ROUND_TRIP_GOAL);
    vec![ultra, short, ratio, long.with_goal(BANDWIDTH_GOAL)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_the_measured_models() {
        let cluster = cluster().unwrap();
        let models: Vec<&str> = cluster.nodes.iter().map(|node| node.nic.model.name).collect();
        assert_eq!(models, MODELS);
        assert_eq!(MODELS.iter().position(|model| *model == "match"), Some(FIRST_MATCH));
        assert!(cluster.nodes.iter().all(|node| node.link.mtu_bytes == MTU_BYTES));
    }

    #[test]
    fn slower_match_gives_a_higher_ratio_and_misses_the_goal() {
        let samples = Sample::ALL.into_iter().zip([[20.0, 20.0], [24.0, 40.0], [4_100.0, 4_200.0]]);
        let figures = compare(samples.map(|(sample, values)| (sample, values.to_vec())).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("match_over_ultra").samples, [1.2, 2.0]);
        assert_eq!(of("match_over_ultra").reached, Some(false));
        assert_eq!(of("match_bandwidth_1m").reached, Some(true));
    }
}
