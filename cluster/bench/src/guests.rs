//! Two guests with three paths between them: requester pages, TCP over the NIC's Ethernet function, and TCP over QEMU's
//! own network.

use std::collections::BTreeMap;

use anyhow::Result;
use niclab_cluster::{arguments::ClusterArgs, boot::running::RunningCluster, host::runtime::RuntimeRoot};

use super::{
    Measured, Options, baseline,
    figure::{Clock, Figure, Goal},
    memory::{self, ResidentMemory},
    perf::{self, Pair, Path},
};

/// Payload of a round trip, in bytes.
const MESSAGE_BYTES: usize = 16;

/// Round trips of one sample through requester pages.
const NIC_ROUND_TRIPS: u64 = 5_000;

/// Round trips of one sample over TCP, which is many times slower.
const TCP_ROUND_TRIPS: u64 = 1_000;

/// Bytes of one write of the bandwidth measurement: common tools use this or twice this size.
const WRITE_BYTES: usize = 64 * 1024;

/// Writes of one sample: 64 MiB.
const WRITES: u64 = 1_024;

/// Minimum speed-up of a message through requester pages over TCP on QEMU's own network.
const NIC_GOAL: Goal = Goal::AtLeast(20.0);

/// TCP over the Ethernet function must be at least as fast.
const ETHERNET_GOAL: Goal = Goal::AtLeast(1.0);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    NicRoundTrip,
    EthernetRoundTrip,
    BaselineRoundTrip,
    EthernetBandwidth,
    BaselineBandwidth,
}

impl Sample {
    const ALL: [Self; 5] = [
        Self::NicRoundTrip,
        Self::EthernetRoundTrip,
        Self::BaselineRoundTrip,
        Self::EthernetBandwidth,
        Self::BaselineBandwidth,
    ];

    fn take(self, running: &mut RunningCluster) -> Result<f64> {
        let pair = Pair::from(match self {
            Self::NicRoundTrip => Path::Nic,
            Self::EthernetRoundTrip | Self::EthernetBandwidth => {
                Path::Tcp(running.plan().nodes.iter().map(|node| node.address).collect())
            }
            Self::BaselineRoundTrip | Self::BaselineBandwidth => Path::Tcp(baseline::ADDRESSES.to_vec()),
        });
        match self {
            Self::NicRoundTrip => perf::round_trip_us(running, &pair, MESSAGE_BYTES, NIC_ROUND_TRIPS),
            Self::EthernetRoundTrip | Self::BaselineRoundTrip => {
                perf::round_trip_us(running, &pair, MESSAGE_BYTES, TCP_ROUND_TRIPS)
            }
            Self::EthernetBandwidth | Self::BaselineBandwidth => {
                perf::bandwidth_mb_per_s(running, &pair, WRITE_BYTES, WRITES)
            }
        }
    }

    /// `nic` is the name of the cards' model.
    fn figure(self, nic: &str, samples: Vec<f64>) -> Figure {
        let (name, what, unit) = match self {
            Self::NicRoundTrip => {
                let name = format!("{nic}_round_trip");
                return Figure::new(
                    &name,
                    "requester pages, 16 bytes, p50 round trip",
                    Clock::Wall,
                    "us",
                    samples,
                );
            }
            Self::EthernetRoundTrip => {
                ("ethernet_round_trip", "TCP over Ethernet function, 16 bytes, p50 round trip", "us")
            }
            Self::BaselineRoundTrip => {
                ("baseline_round_trip", "TCP over -netdev stream, 16 bytes, p50 round trip", "us")
            }
            Self::EthernetBandwidth => {
                ("ethernet_bandwidth", "TCP over Ethernet function, 64 KiB writes", "MB/s")
            }
            Self::BaselineBandwidth => {
                ("baseline_bandwidth", "TCP over -netdev stream, 64 KiB writes", "MB/s")
            }
        };
        Figure::new(name, what, Clock::Wall, unit, samples)
    }
}

/// Boots two guests and compares.
///
/// # Errors
/// When the cluster does not boot, or a measurement fails.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    // Templates do not have the added cards.
    let args = ClusterArgs { nodes: Some(2), cold: true, ..options.cluster.clone() };
    let booted = super::boot(options, root, &args, |plan| {
        let folder = root.folder(&plan.name);
        baseline::STREAM.add(plan, &folder);
    })?;
    booted.finish(|running| {
        baseline::STREAM.set_up(running)?;
        let samples = super::rounds(options.rounds, Sample::ALL, |sample| sample.take(running))?;
        let mut figures = compare(&running.plan().nic, samples);
        let memory = ResidentMemory::of(running.pids().1)?;
        figures.extend(memory::figures(&memory, "after these runs"));
        Ok(Measured { figures, ..Measured::default() })
    })
}

fn compare(nic: &str, mut samples: BTreeMap<Sample, Vec<f64>>) -> Vec<Figure> {
    let [cards, ethernet, baseline, ethernet_bandwidth, baseline_bandwidth] =
        Sample::ALL.map(|sample| sample.figure(nic, samples.remove(&sample).unwrap_or_default()));
    let ratios = [
        Figure::ratio(
            &format!("{nic}_speedup"),
            "round trip: -netdev stream over requester pages",
            &baseline,
            &cards,
        )
        .with_goal(NIC_GOAL),
        Figure::ratio(
            "ethernet_round_trip_ratio",
            "round trip: -netdev stream over Ethernet function",
            &baseline,
            &ethernet,
        )
        .with_goal(ETHERNET_GOAL),
        Figure::ratio(
            "ethernet_bandwidth_ratio",
            "bandwidth: Ethernet function over -netdev stream",
            &ethernet_bandwidth,
            &baseline_bandwidth,
        )
        .with_goal(ETHERNET_GOAL),
    ];
    [cards, ethernet, baseline, ethernet_bandwidth, baseline_bandwidth].into_iter().chain(ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_gives_a_higher_ratio_for_times_and_bandwidths() {
        let samples = Sample::ALL.into_iter().zip([
            [10.0, 20.0],
            [50.0, 100.0],
            [400.0, 800.0],
            [90.0, 45.0],
            [60.0, 60.0],
        ]);
        let figures = compare("ultra", samples.map(|(sample, values)| (sample, values.to_vec())).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("ultra_speedup").samples, [40.0, 40.0]);
        assert_eq!(of("ethernet_round_trip_ratio").samples, [8.0, 8.0]);
        assert_eq!(of("ethernet_bandwidth_ratio").samples, [1.5, 0.75]);
        assert_eq!(of("ethernet_bandwidth_ratio").reached, Some(true));
        assert!(figures.iter().all(|figure| figure.clock == Clock::Wall));
    }
}
