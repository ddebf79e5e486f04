//! Two guests with three paths between them: the cards' messages, TCP and UDP over the NIC's Ethernet function, and
//! both over QEMU's own network.

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

/// Messages of one sample of a stream. The payload is that of a round trip.
const MESSAGES: u64 = 50_000;

/// Payload of a datagram, in bytes.
const DATAGRAM_BYTES: usize = 64;

/// Datagrams of one sample.
const DATAGRAMS: u64 = 20_000;

/// Minimum speed-up of a message through requester pages over TCP on QEMU's own network.
const NIC_GOAL: Goal = Goal::AtLeast(20.0);

/// TCP over the Ethernet function must be at least as fast.
const ETHERNET_GOAL: Goal = Goal::AtLeast(1.0);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    NicRoundTrip,
    NicStream,
    NicStreamOneByOne,
    EthernetRoundTrip,
    BaselineRoundTrip,
    EthernetBandwidth,
    BaselineBandwidth,
    EthernetDatagrams,
    BaselineDatagrams,
}

impl Sample {
    const ALL: [Self; 9] = [
        Self::NicRoundTrip,
        Self::NicStream,
        Self::NicStreamOneByOne,
        Self::EthernetRoundTrip,
        Self::BaselineRoundTrip,
        Self::EthernetBandwidth,
        Self::BaselineBandwidth,
        Self::EthernetDatagrams,
        Self::BaselineDatagrams,
    ];

    fn take(self, running: &mut RunningCluster) -> Result<f64> {
        let ethernet = running.plan().nodes.iter().map(|node| node.address).collect();
        let pair = Pair::from(match self {
            Self::NicRoundTrip | Self::NicStream | Self::NicStreamOneByOne => Path::Nic,
            Self::EthernetRoundTrip | Self::EthernetBandwidth => Path::Tcp(ethernet),
            Self::EthernetDatagrams => Path::Udp(ethernet),
            Self::BaselineRoundTrip | Self::BaselineBandwidth => Path::Tcp(baseline::ADDRESSES.to_vec()),
            Self::BaselineDatagrams => Path::Udp(baseline::ADDRESSES.to_vec()),
        });
        match self {
            Self::NicRoundTrip => perf::round_trip_us(running, &pair, MESSAGE_BYTES, NIC_ROUND_TRIPS),
            Self::NicStream => perf::stream_million_per_s(running, &pair, MESSAGE_BYTES, MESSAGES, None),
            Self::NicStreamOneByOne => {
                perf::stream_million_per_s(running, &pair, MESSAGE_BYTES, MESSAGES, Some(1))
            }
            Self::EthernetDatagrams | Self::BaselineDatagrams => {
                perf::stream_million_per_s(running, &pair, DATAGRAM_BYTES, DATAGRAMS, None)
            }
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
        let of_nic = match self {
            Self::NicRoundTrip => Some(("round_trip", "the card's messages, 16 bytes, p50 round trip", "us")),
            Self::NicStream => Some(("stream", "the card's messages, 16 bytes, in batches", "M/s")),
            Self::NicStreamOneByOne => {
                Some(("stream_one_by_one", "the card's messages, 16 bytes, one doorbell for each", "M/s"))
            }
            _ => None,
        };
        if let Some((name, what, unit)) = of_nic {
            return Figure::new(&format!("{nic}_{name}"), what, Clock::Wall, unit, samples);
        }
        let (name, what, unit) = match self {
            Self::NicRoundTrip | Self::NicStream | Self::NicStreamOneByOne => unreachable!("named above"),
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
            Self::EthernetDatagrams => {
                ("ethernet_datagrams", "UDP over Ethernet function, 64 bytes, datagrams that arrive", "M/s")
            }
            Self::BaselineDatagrams => {
                ("baseline_datagrams", "UDP over -netdev stream, 64 bytes, datagrams that arrive", "M/s")
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
    let figures = Sample::ALL.map(|sample| sample.figure(nic, samples.remove(&sample).unwrap_or_default()));
    let of = |sample: Sample| &figures[sample as usize];
    let ratios = [
        Figure::ratio(
            &format!("{nic}_speedup"),
            "round trip: -netdev stream over the card's messages",
            of(Sample::BaselineRoundTrip),
            of(Sample::NicRoundTrip),
        )
        .with_goal(NIC_GOAL),
        Figure::ratio(
            &format!("{nic}_batch_speedup"),
            "messages per second: in batches over one by one",
            of(Sample::NicStream),
            of(Sample::NicStreamOneByOne),
        ),
        Figure::ratio(
            "ethernet_round_trip_ratio",
            "round trip: -netdev stream over Ethernet function",
            of(Sample::BaselineRoundTrip),
            of(Sample::EthernetRoundTrip),
        )
        .with_goal(ETHERNET_GOAL),
        Figure::ratio(
            "ethernet_bandwidth_ratio",
            "bandwidth: Ethernet function over -netdev stream",
            of(Sample::EthernetBandwidth),
            of(Sample::BaselineBandwidth),
        )
        .with_goal(ETHERNET_GOAL),
        Figure::ratio(
            "ethernet_datagrams_ratio",
            "datagrams per second: Ethernet function over -netdev stream",
            of(Sample::EthernetDatagrams),
            of(Sample::BaselineDatagrams),
        )
        .with_goal(ETHERNET_GOAL),
    ];
    figures.into_iter().chain(ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_gives_a_higher_ratio_for_times_and_bandwidths() {
        let samples = Sample::ALL.into_iter().zip([
            [10.0, 20.0],
            [4.0, 8.0],
            [0.5, 2.0],
            [50.0, 100.0],
            [400.0, 800.0],
            [90.0, 45.0],
            [60.0, 60.0],
            [3.0, 1.0],
            [2.0, 2.0],
        ]);
        let figures = compare("ultra", samples.map(|(sample, values)| (sample, values.to_vec())).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("ultra_speedup").samples, [40.0, 40.0]);
        assert_eq!(of("ethernet_round_trip_ratio").samples, [8.0, 8.0]);
        assert_eq!(of("ethernet_bandwidth_ratio").samples, [1.5, 0.75]);
        assert_eq!(of("ultra_batch_speedup").samples, [8.0, 4.0]);
        assert_eq!(of("ethernet_datagrams_ratio").samples, [1.5, 0.5]);
        assert_eq!(of("ethernet_bandwidth_ratio").reached, Some(true));
        assert!(figures.iter().all(|figure| figure.clock == Clock::Wall));
    }
}
