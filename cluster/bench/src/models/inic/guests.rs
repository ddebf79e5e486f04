//! An INIC card between two guests, compared with TCP over QEMU's own network: bandwidth, and the guests' processor
//! time.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use niclab_cluster::{boot::running::RunningCluster, host::runtime::RuntimeRoot, report::kernels};
use niclab_spec::{BootChoice, Cluster, ClusterFile, NicConfig, NicModel, Source, Value};

use crate::{
    Measured, Options, baseline,
    figure::{Clock, Figure, Goal},
    perf::{self, Pair, Path},
};

/// Bytes of a write of TCP, and of a message of the card.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Messages of a sample (64 MiB), after a quarter as many for warm-up.
const MESSAGES: u64 = 1_024;

/// Minimum ratio to TCP's bandwidth, and maximum ratio to its processor time for the same bytes.
const BANDWIDTH_GOAL: Goal = Goal::AtLeast(5.0);
const TIME_GOAL: Goal = Goal::Below(1.0 / 3.0);

/// One kind of sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SampleKind {
    /// Both ends poll for events.
    Polling,
    /// Both ends sleep until an interrupt.
    Sleeping,
    Tcp,
}

impl SampleKind {
    const ALL: [Self; 3] = [Self::Polling, Self::Sleeping, Self::Tcp];

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Polling => ("inic_polling", "INIC, CONF4, messages of 64 KiB, polled"),
            Self::Sleeping => ("inic_sleeping", "INIC, CONF4, messages of 64 KiB, ends that sleep"),
            Self::Tcp => ("baseline", "TCP over -netdev stream, writes of 64 KiB"),
        }
    }

    fn path(self) -> Path {
        match self {
            Self::Polling => Path::Nic,
            Self::Sleeping => Path::SleepingNic,
            Self::Tcp => Path::Tcp(baseline::ADDRESSES.to_vec()),
        }
    }

    /// 10^6 bytes per second; and processor time of both guests in milliseconds per 10^6 bytes.
    fn take(self, running: &mut RunningCluster) -> Result<[f64; 2]> {
        let what = "a guest did not report its processor time";
        let before = kernels::read(running)?.context(what)?;
        let rate = perf::bandwidth_mb_per_s(running, &Pair::from(self.path()), MESSAGE_BYTES, MESSAGES)?;
        let after = kernels::read(running)?.context(what)?;
        let guests = before.iter().zip(&after).map(|(before, after)| kernels::difference(before, after).time);
        let busy_ns: u64 = guests.map(|time| time.busy_ns()).sum();
        let messages = MESSAGES + MESSAGES / 4;
        Ok([rate, busy_ns as f64 / (messages * MESSAGE_BYTES as u64) as f64])
    }
}

/// Boots two guests and compares.
///
/// # Errors
/// When the cluster does not boot, or a measurement fails.
pub(super) fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let booted = crate::boot_cluster(options, root, &cluster()?, |plan| {
        let folder = root.folder(&plan.name);
        baseline::STREAM.add(plan, &folder);
    })?;
    booted.finish(|running| {
        baseline::STREAM.set_up(running)?;
        let mut times = BTreeMap::new();
        let rates = crate::rounds(options.rounds, SampleKind::ALL, |kind| {
            let [rate, time] = kind.take(running)?;
            times.entry(kind).or_insert_with(Vec::new).push(time);
            Ok(rate)
        })?;
        Ok(Measured { figures: compare(rates, times), ..Measured::default() })
    })
}

/// Two nodes.
fn cluster() -> Result<Cluster> {
    let mut nic = NicConfig::of(NicModel::named("inic").context("there is no model `inic`")?);
    nic.set("assembly", Value::Word("conf4".to_owned()))?;
    // Room for the tag, in whole cache lines.
    nic.set("max_message_bytes", Value::Number(2 * MESSAGE_BYTES as u64))?;
    // Templates do not have the added cards.
    let file = ClusterFile { nodes: Some(2), nic, boot: BootChoice::Cold, ..ClusterFile::default() };
    Ok(Source::default().resolve_booted(&file)?)
}

fn compare(
    mut rates: BTreeMap<SampleKind, Vec<f64>>,
    mut times: BTreeMap<SampleKind, Vec<f64>>,
) -> Vec<Figure> {
    let figures = SampleKind::ALL.map(|kind| {
        let ((name, what), rate) = (kind.names(), rates.remove(&kind).unwrap_or_default());
        let time = times.remove(&kind).unwrap_or_default();
        let named = |end: &str| format!("{name}_{end}");
        let rate = Figure::new(&named("bandwidth"), what, Clock::Wall, "MB/s", rate);
        let what = format!("{what}: both guests' processors");
        [rate, Figure::new(&named("processor_time"), &what, Clock::Wall, "ms/MB", time)]
    });
    let [polling, sleeping, tcp] = &figures;
    let mut ratios = Vec::new();
    for (name, way, [rate, time]) in [("polling", "polled", polling), ("sleeping", "sleeping", sleeping)] {
        ratios.push(
            Figure::ratio(
                &format!("inic_{name}_bandwidth_ratio"),
                &format!("bandwidth: INIC, {way}, over -netdev stream"),
                rate,
                &tcp[0],
            )
            .with_goal(BANDWIDTH_GOAL),
        );
        ratios.push(
            Figure::ratio(
                &format!("inic_{name}_processor_time_ratio"),
                &format!("guests' processors, the same bytes: INIC, {way}, over -netdev stream"),
                time,
                &tcp[1],
            )
            .with_goal(TIME_GOAL),
        );
    }
    figures.into_iter().flatten().chain(ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_conf4_and_carry_the_messages() {
        let cluster = cluster().unwrap();
        assert_eq!(cluster.nodes.len(), 2);
        assert!(cluster.nodes.iter().all(|node| node.nic.limits().max_message_bytes > MESSAGE_BYTES as u64));
    }

    #[test]
    fn goals_want_more_bandwidth_and_less_time() {
        let of =
            |values: [f64; 3]| SampleKind::ALL.into_iter().zip(values.map(|value| vec![value])).collect();
        let figures = compare(of([600.0, 200.0, 50.0]), of([3.0, 6.0, 12.0]));
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("inic_polling_bandwidth_ratio").median, 12.0);
        assert_eq!(of("inic_sleeping_bandwidth_ratio").reached, Some(false));
        assert_eq!(of("inic_polling_processor_time_ratio").reached, Some(true));
        assert_eq!(of("inic_sleeping_processor_time_ratio").median, 0.5);
    }
}
