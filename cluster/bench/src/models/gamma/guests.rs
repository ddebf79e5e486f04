//! GAMMA cards in guests, polled and with interrupts, compared with TCP over QEMU's own network and over QEMU's `tulip`
//! with Linux's stock driver. `tulip` is of the same family of chips as the paper's card. All run in one boot.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use anyhow::{Result, ensure};
use niclab_cluster::{
    boot::{
        command::{self, NodeCommand},
        running::RunningCluster,
    },
    host::runtime::RuntimeRoot,
};
use niclab_spec::{BootChoice, Cluster, Node, Value};

use crate::{
    Measured, Options,
    baseline::{Card, STREAM, TULIP},
    figure::{Clock, Figure, Goal},
    perf::{self, Pair, Path},
};

/// The programs of the first two nodes poll, and their cards never interrupt. The cards of the other two interrupt
/// after each frame.
const MODELS: [&str; 4] = ["gamma"; 4];
const INTERRUPTED: usize = 2;
const MEMORY_MIB: u32 = 160;
/// Fast Ethernet's MTU.
const MTU_BYTES: u32 = 1_500;

/// Payload of a round trip, in bytes.
const SHORT_BYTES: usize = 16;
const ROUND_TRIPS: u64 = 2_000;
const TCP_ROUND_TRIPS: u64 = 500;
/// Messages and writes of the bandwidth measurement.
const LONG_BYTES: usize = 64 << 10;
const MESSAGES: u64 = 400;
const WRITES: u64 = 200;

/// Minimum speed-up of a round trip over TCP on QEMU's own network.
const POLLED_GOAL: Goal = Goal::AtLeast(10.0);
const INTERRUPTED_GOAL: Goal = Goal::AtLeast(3.0);
/// Minimum ratio of the card's bandwidth to that of the card with the stock driver.
const BANDWIDTH_GOAL: Goal = Goal::AtLeast(5.0);
/// If messages and TCP share cards, each must keep this part of its bandwidth alone: neither starves.
const SHARE_GOAL: Goal = Goal::AtLeast(0.1);

/// Counters of the drivers that must be 0 on all nodes.
const LOSSES: [&str; 5] =
    ["lost_frames", "damaged_frames", "incomplete_messages", "messages_without_buffer", "stalled_windows"];
const COUNTS_LIMIT: Duration = Duration::from_secs(20);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sample {
    Polled,
    Interrupted,
    Stream,
    Tulip,
    Bandwidth,
    TulipBandwidth,
    InterruptedBandwidth,
    /// TCP over the network interface that shares the cards' rings.
    CardTcp,
    /// Messages while TCP uses the same cards, and that TCP.
    BesideTcp,
    TcpBeside,
}

impl Sample {
    const ALL: [Self; 10] = [
        Self::Polled,
        Self::Interrupted,
        Self::Stream,
        Self::Tulip,
        Self::Bandwidth,
        Self::TulipBandwidth,
        Self::InterruptedBandwidth,
        Self::CardTcp,
        Self::BesideTcp,
        Self::TcpBeside,
    ];

    fn pair(self, addresses: &[Ipv4Addr]) -> Pair {
        let tcp = |card: &Card| Pair::from(Path::Tcp(card.addresses().to_vec()));
        match self {
            Self::Polled | Self::Bandwidth => Pair::from(Path::Nic),
            Self::Interrupted | Self::InterruptedBandwidth | Self::BesideTcp | Self::TcpBeside => {
                Pair { first: INTERRUPTED, path: Path::SleepingNic }
            }
            Self::CardTcp => Pair { first: INTERRUPTED, path: Path::Tcp(addresses.to_vec()) },
            Self::Stream => tcp(&STREAM),
            Self::Tulip | Self::TulipBandwidth => tcp(&TULIP),
        }
    }

    fn take(self, running: &mut RunningCluster, addresses: &[Ipv4Addr]) -> Result<f64> {
        let pair = self.pair(addresses);
        match self {
            Self::Polled | Self::Interrupted => perf::round_trip_us(running, &pair, SHORT_BYTES, ROUND_TRIPS),
            Self::Stream | Self::Tulip => perf::round_trip_us(running, &pair, SHORT_BYTES, TCP_ROUND_TRIPS),
            Self::Bandwidth | Self::InterruptedBandwidth => {
                perf::bandwidth_mb_per_s(running, &pair, LONG_BYTES, MESSAGES)
            }
            Self::TulipBandwidth | Self::CardTcp => {
                perf::bandwidth_mb_per_s(running, &pair, LONG_BYTES, WRITES)
            }
            Self::BesideTcp | Self::TcpBeside => {
                let [own, tcp] =
                    perf::bandwidths_beside_mb_per_s(running, pair.first, LONG_BYTES, MESSAGES, WRITES)?;
                Ok(if self == Self::BesideTcp { own } else { tcp })
            }
        }
    }

    fn figure(self, samples: Vec<f64>) -> Figure {
        let (name, what, unit) = match self {
            Self::Polled => ("gamma_round_trip", "GAMMA, polled, 16 bytes, p50 round trip", "us"),
            Self::Interrupted => (
                "gamma_interrupted_round_trip",
                "GAMMA, an interrupt per frame, 16 bytes, p50 round trip",
                "us",
            ),
            Self::Stream => {
                ("gamma_stream_round_trip", "TCP over -netdev stream, 16 bytes, p50 round trip", "us")
            }
            Self::Tulip => ("tulip_round_trip", "TCP over tulip, 16 bytes, p50 round trip", "us"),
            Self::Bandwidth => ("gamma_bandwidth", "GAMMA, polled, messages of 64 KiB", "MB/s"),
            Self::TulipBandwidth => ("tulip_bandwidth", "TCP over tulip, 64 KiB writes", "MB/s"),
            Self::InterruptedBandwidth => {
                ("gamma_interrupted_bandwidth", "GAMMA, an interrupt per frame, messages of 64 KiB", "MB/s")
            }
            Self::CardTcp => {
                ("gamma_tcp_bandwidth", "TCP over the rings of GAMMA cards, 64 KiB writes", "MB/s")
            }
            Self::BesideTcp => ("gamma_beside_tcp", "GAMMA, messages of 64 KiB, with TCP traffic", "MB/s"),
            Self::TcpBeside => ("tcp_beside_gamma", "that TCP traffic, with GAMMA messages", "MB/s"),
        };
        Figure::new(name, what, Clock::Wall, unit, samples)
    }
}

/// Boots four guests and compares.
///
/// # Errors
/// When the cluster does not boot, a measurement fails, or a driver of GAMMA cards has counted a loss.
pub(super) fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let cluster = cluster()?;
    let addresses: Vec<Ipv4Addr> = cluster.nodes.iter().filter_map(Node::nic_address).collect();
    let booted = crate::boot_cluster(options, root, &cluster, |plan| {
        let folder = root.folder(&plan.name);
        for card in [&STREAM, &TULIP] {
            card.add(plan, &folder);
        }
    })?;
    booted.finish(|running| {
        for card in [&STREAM, &TULIP] {
            card.set_up(running)?;
        }
        let samples = crate::rounds(options.rounds, Sample::ALL, |sample| sample.take(running, &addresses))?;
        nothing_is_lost(running)?;
        Ok(Measured { figures: compare(samples), ..Measured::default() })
    })
}

fn nothing_is_lost(running: &mut RunningCluster) -> Result<()> {
    let script = "cd /sys/class/niclab/niclab0/active && for count; do echo \"$count $(cat $count)\"; done";
    let names = LOSSES.map(str::to_owned);
    let commands: Vec<NodeCommand> =
        (0..MODELS.len()).map(|rank| NodeCommand::shell(rank, script, &names)).collect();
    for (rank, text) in command::run(running, &commands, COUNTS_LIMIT)?.into_iter().enumerate() {
        let none = LOSSES.iter().all(|name| text.lines().any(|line| line == format!("{name} 0")));
        ensure!(none, "a counter of losses is not 0 on node {rank}: {text}");
    }
    Ok(())
}

fn cluster() -> Result<Cluster> {
    let mut cluster = crate::side_by_side(&MODELS, MEMORY_MIB, MTU_BYTES)?;
    // Templates do not have the added cards.
    cluster.boot = BootChoice::Cold;
    for node in &mut cluster.nodes[INTERRUPTED..] {
        for (key, value) in [("interrupt_frames", 1), ("interrupt_delay_us", 0)] {
            node.nic.set(key, Value::Number(value))?;
        }
    }
    Ok(cluster)
}

fn compare(mut samples: BTreeMap<Sample, Vec<f64>>) -> Vec<Figure> {
    let measured = Sample::ALL.map(|sample| sample.figure(samples.remove(&sample).unwrap_or_default()));
    let [polled, interrupted, stream, _, bandwidth, tulip, alone, card_tcp, beside, tcp_beside] = &measured;
    let ratio = |name, what, over, under, goal| Figure::ratio(name, what, over, under).with_goal(goal);
    let ratios = [
        ratio(
            "gamma_speedup",
            "round trip: TCP over -netdev stream over GAMMA, polled",
            stream,
            polled,
            POLLED_GOAL,
        ),
        ratio(
            "gamma_interrupted_speedup",
            "round trip: TCP over -netdev stream over GAMMA, interrupted",
            stream,
            interrupted,
            INTERRUPTED_GOAL,
        ),
        ratio("gamma_over_tulip", "bandwidth: GAMMA over TCP over tulip", bandwidth, tulip, BANDWIDTH_GOAL),
        ratio("gamma_share", "bandwidth: GAMMA with TCP traffic over GAMMA alone", beside, alone, SHARE_GOAL),
        ratio(
            "tcp_share",
            "bandwidth: TCP with GAMMA messages over TCP alone",
            tcp_beside,
            card_tcp,
            SHARE_GOAL,
        ),
    ];
    measured.into_iter().chain(ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_poll_and_two_get_interrupts() {
        let cluster = cluster().unwrap();
        let frames = |rank: usize| cluster.nodes[rank].nic.values().number("interrupt_frames");
        assert_eq!([0, 1, 2, 3].map(frames), [0, 0, 1, 1]);
        assert_eq!(Sample::Interrupted.pair(&[]).first, 2);
        assert_ne!(Sample::Stream.pair(&[]), Sample::Tulip.pair(&[]));
        assert!(cluster.nodes.iter().all(|node| node.nic_address().is_some()));
    }

    #[test]
    fn goals_want_less_time_and_more_bandwidth() {
        let values = [40.0, 200.0, 600.0, 900.0, 55.0, 10.0, 50.0, 20.0, 25.0, 1.0];
        let samples = Sample::ALL.into_iter().zip(values);
        let figures = compare(samples.map(|(sample, value)| (sample, vec![value])).collect());
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        let reached = |name: &str| (of(name).median, of(name).reached);
        assert_eq!(reached("gamma_speedup"), (15.0, Some(true)));
        assert_eq!(reached("gamma_interrupted_speedup"), (3.0, Some(true)));
        assert_eq!(reached("gamma_over_tulip"), (5.5, Some(true)));
        assert_eq!(reached("gamma_share"), (0.5, Some(true)));
        assert_eq!(reached("tcp_share"), (0.05, Some(false)));
    }
}
