//! GRIM cards in guests, next to ULTRA and Match cards in the same boot: the cost of a short message, the bandwidth of
//! bulk messages compared with puts, and the rate of many channels compared with one. A second boot, whose device
//! always polls, measures the time of a program to send a short message without a doorbell.

use std::collections::BTreeMap;

use anyhow::Result;
use niclab_cluster::{boot::running::RunningCluster, host::runtime::RuntimeRoot};
use niclab_spec::{Cluster, Value, WaitPolicy};

use crate::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    perf::{self, Pair, Path},
};

/// The models, each on two nodes, in the order of their ranks.
const MODELS: [&str; 6] = ["ultra", "ultra", "match", "match", "grim", "grim"];
/// The models of the second boot. A device that always polls needs a core for each node.
const POLLED: [&str; 2] = ["grim", "grim"];
/// Memory of a node, in MiB: six nodes must fit into a machine that is in use.
const MEMORY_MIB: u32 = 128;
/// Largest Ethernet payload of the links, so that a long message needs few frames.
const MTU_BYTES: u32 = 9_000;

/// A short message of GRIM has four integers and no payload; they are the tag of these programs.
const SHORT_BYTES: usize = 0;
const ROUND_TRIPS: u64 = 2_000;
/// Number of short messages of bursts that fit the queues, and of streams.
const INJECTIONS: u64 = 8_000;
const MESSAGES: u64 = 20_000;
/// Size of the longest bulk message, and number of messages.
const BULK: (usize, u64) = (49_152, 1_000);
const PUT: (usize, u64) = (1 << 20, 100);
/// Number of channels that a stream uses in turn.
const CHANNELS: u32 = 16;
/// Bytes of a channel's outbound queue, for four of the longest messages; and bytes of the card's memory, enough for
/// all queues.
const PAYLOAD_BYTES: u64 = 192 << 10;
const CARD_MEMORY_BYTES: u64 = 4 << 20;
/// Each message is pushed completely, with one post.
const SEGMENT_BYTES: u64 = 0;

/// Maximum ratio of GRIM's round trip to ULTRA's.
const ROUND_TRIP_GOAL: Goal = Goal::Below(1.3);
/// Maximum time of a program to send a short message, in ns.
const INJECTION_GOAL: Goal = Goal::Below(200.0);
/// Minimum ratios of the bandwidth of memory messages, and of bulk messages, to that of puts.
const MEMORY_GOAL: Goal = Goal::AtLeast(1.0);
const BULK_GOAL: Goal = Goal::AtLeast(0.5);
/// Minimum ratio of the rate of many channels to that of one.
const CHANNELS_GOAL: Goal = Goal::AtLeast(0.9);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    UltraRoundTrip,
    GrimRoundTrip,
    GrimInjection,
    MatchPuts,
    GrimMemory,
    GrimBulk,
    OneChannel,
    ManyChannels,
}

impl Sample {
    const ALL: [Self; 8] = [
        Self::UltraRoundTrip,
        Self::GrimRoundTrip,
        Self::GrimInjection,
        Self::MatchPuts,
        Self::GrimMemory,
        Self::GrimBulk,
        Self::OneChannel,
        Self::ManyChannels,
    ];

    /// The samples with doorbells: all but one.
    const RUNG: [Self; 7] = [
        Self::UltraRoundTrip,
        Self::GrimRoundTrip,
        Self::MatchPuts,
        Self::GrimMemory,
        Self::GrimBulk,
        Self::OneChannel,
        Self::ManyChannels,
    ];

    /// The model of the sample's nodes.
    const fn model(self) -> &'static str {
        match self {
            Self::UltraRoundTrip => "ultra",
            Self::MatchPuts => "match",
            _ => "grim",
        }
    }

    fn take(self, running: &mut RunningCluster, models: &[&str]) -> Result<f64> {
        let first = models.iter().position(|model| *model == self.model()).unwrap_or_default();
        let pair = Pair { first, path: Path::Nic };
        match self {
            Self::UltraRoundTrip | Self::GrimRoundTrip => {
                perf::round_trip_us(running, &pair, SHORT_BYTES, ROUND_TRIPS)
            }
            Self::GrimInjection => perf::injection_ns(running, &pair, INJECTIONS),
            Self::MatchPuts | Self::GrimMemory => perf::bandwidth_mb_per_s(running, &pair, PUT.0, PUT.1),
            Self::GrimBulk => perf::bandwidth_mb_per_s(running, &pair, BULK.0, BULK.1),
            Self::OneChannel => Ok(perf::messages_per_s(running, &pair, MESSAGES, 1)? / 1e3),
            Self::ManyChannels => Ok(perf::messages_per_s(running, &pair, MESSAGES, CHANNELS)? / 1e3),
        }
    }

    fn figure(self, samples: Vec<f64>) -> Figure {
        let (name, what, unit) = match self {
            Self::UltraRoundTrip => ("ultra_round_trip_short", "ULTRA, tag alone, p50 round trip", "us"),
            Self::GrimRoundTrip => ("grim_round_trip_short", "GRIM, short messages, p50 round trip", "us"),
            Self::GrimInjection => {
                ("grim_injection", "GRIM, sending a short message without a doorbell, p50", "ns")
            }
            Self::MatchPuts => ("match_bandwidth_1m", "Match, puts of 1 MiB to posted receives", "MB/s"),
            Self::GrimMemory => ("grim_memory_1m", "GRIM, 1 MiB in memory messages", "MB/s"),
            Self::GrimBulk => ("grim_bandwidth_48k", "GRIM, bulk messages of 48 KiB", "MB/s"),
            Self::OneChannel => ("grim_one_channel", "GRIM, short messages by one channel", "k/s"),
            Self::ManyChannels => ("grim_16_channels", "GRIM, short messages by 16 channels in turn", "k/s"),
        };
        let figure = Figure::new(name, what, Clock::Wall, unit, samples);
        if self == Self::GrimInjection { figure.with_goal(INJECTION_GOAL) } else { figure }
    }
}

/// Boots six guests and compares.
///
/// # Errors
/// When the cluster does not boot, or a measurement fails.
pub(super) fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let mut samples = boot(options, root, &MODELS, false, Sample::RUNG)?;
    samples.append(&mut boot(options, root, &POLLED, true, [Sample::GrimInjection])?);
    Ok(Measured { figures: compare(samples), ..Measured::default() })
}

/// Boots nodes of these models, and takes the samples.
fn boot<const KINDS: usize>(
    options: &Options,
    root: &RuntimeRoot,
    models: &[&str],
    polls: bool,
    kinds: [Sample; KINDS],
) -> Result<BTreeMap<Sample, Vec<f64>>> {
    let booted = crate::boot_cluster(options, root, &cluster(models, polls)?, |_| {})?;
    booted.finish(|running| crate::rounds(options.rounds, kinds, |sample| sample.take(running, models)))
}

/// Nodes of these models on one switch, whose device blocks on doorbells or always polls.
fn cluster(models: &[&str], polls: bool) -> Result<Cluster> {
    let mut cluster = crate::side_by_side(models, MEMORY_MIB, MTU_BYTES)?;
    if polls {
        cluster.nodes.iter_mut().for_each(|node| node.nic.wait = WaitPolicy::Poll);
    }
    for node in cluster.nodes.iter_mut().filter(|node| node.nic.model.name == "grim") {
        for (key, value) in [
            ("channels", CHANNELS.into()),
            ("payload_bytes_per_channel", PAYLOAD_BYTES),
            ("card_memory_bytes", CARD_MEMORY_BYTES),
            ("first_segment_bytes", SEGMENT_BYTES),
        ] {
            node.nic.set(key, Value::Number(value))?;
        }
    }
    Ok(cluster)
}

fn compare(mut samples: BTreeMap<Sample, Vec<f64>>) -> Vec<Figure> {
    let [ultra, short, injection, puts, memory, bulk, one, many] =
        Sample::ALL.map(|sample| sample.figure(samples.remove(&sample).unwrap_or_default()));
    let ratio = |name, what, over, under, goal| Figure::ratio(name, what, over, under).with_goal(goal);
    let latency = ratio(
        "grim_over_ultra",
        "round trip of a short message: GRIM over ULTRA",
        &short,
        &ultra,
        ROUND_TRIP_GOAL,
    );
    let of_memory = ratio(
        "grim_memory_over_puts",
        "bandwidth: 1 MiB in memory messages over puts of 1 MiB",
        &memory,
        &puts,
        MEMORY_GOAL,
    );
    let of_bulk = ratio(
        "grim_bulk_over_puts",
        "bandwidth: bulk messages of 48 KiB over puts of 1 MiB",
        &bulk,
        &puts,
        BULK_GOAL,
    );
    let of_channels =
        ratio("grim_16_over_one", "message rate: 16 channels over one", &many, &one, CHANNELS_GOAL);
    vec![ultra, short, latency, injection, puts, memory, of_memory, bulk, of_bulk, one, many, of_channels]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_the_measured_models_and_carry_the_messages() {
        let polled = cluster(&POLLED, true).unwrap();
        let is_polled =
            |node: &niclab_spec::Node| (node.nic.model.name, node.nic.wait) == ("grim", WaitPolicy::Poll);
        assert!(polled.nodes.iter().all(is_polled));
        let cluster = cluster(&MODELS, false).unwrap();
        let models: Vec<&str> = cluster.nodes.iter().map(|node| node.nic.model.name).collect();
        assert_eq!(models, MODELS);
        assert!(!cluster.nodes.iter().any(is_polled));
        let rung = Sample::ALL.into_iter().filter(|sample| *sample != Sample::GrimInjection);
        assert_eq!(rung.collect::<Vec<_>>(), Sample::RUNG);
        let places = Sample::ALL.map(|sample| MODELS.iter().position(|model| *model == sample.model()));
        let (ultra, of_match, grim) = (Some(0), Some(2), Some(4));
        assert_eq!(places, [ultra, grim, grim, of_match, grim, grim, grim, grim], "even ranks");
        let limits = cluster.nodes[4].nic.limits();
        assert!(limits.max_message_bytes >= BULK.0 as u64 && limits.payload_bytes == PAYLOAD_BYTES);
        assert_eq!(limits.open_ports.len(), CHANNELS as usize);
    }

    #[test]
    fn goals_want_less_time_and_more_bandwidth() {
        let values = [20.0, 30.0, 150.0, 100.0, 90.0, 60.0, 50.0, 46.0];
        let samples = Sample::ALL.into_iter().zip(values);
        let figures = compare(samples.map(|(sample, value)| (sample, vec![value])).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        let reached = |name: &str| (of(name).median, of(name).reached);
        assert_eq!(reached("grim_over_ultra"), (1.5, Some(false)));
        assert_eq!(reached("grim_injection"), (150.0, Some(true)));
        assert_eq!(reached("grim_memory_over_puts"), (0.9, Some(false)));
        assert_eq!(reached("grim_bulk_over_puts"), (0.6, Some(true)));
        assert_eq!(reached("grim_16_over_one"), (0.92, Some(true)));
    }
}
