//! The INIC paper's Table 1, its interrupts, the limit of its local bus; and unpublished figures: latency and bandwidth
//! of its assemblies, and their behaviour on links that lose, duplicate, reorder and damage frames.
//!
//! Values are counted where possible: interrupts are those of the component `mitigate` while 100 MB pass through a
//! card. A rate is the difference of two streams of different length, which excludes filling and draining.

mod claims;
mod guests;
mod host_time;
mod live;
mod speed;
mod text;

use anyhow::{Context, Result, ensure};
use niclab_cluster::programs::simulator::Simulator;
use niclab_components::kinds::{KINDS, Source as Origin, TABLE_1};
use niclab_components::{BUNDLED, Bundled};
use niclab_spec::{
    ClusterFile, Faults, NicConfig, NicModel, Report, SimConfig, Source, Value, Workload, WorkloadKind,
};
use serde::Serialize;

use self::host_time::HostTime;
use super::Benches;
use crate::{
    figures::{
        Made, PaperFigures,
        plot::{Legend, Panel, Scale, Series, Style},
    },
    section::BenchSection,
};

pub(super) const BENCHES: Benches = Benches {
    figures: &[
        PaperFigures {
            name: "inic",
            help: "INIC: resources, interrupts, hosts' time, latency and bandwidth, and the effect of faulty links on \
                   each assembly",
            file: "inic.txt",
            make: |offline| {
                let simulator = Simulator::locate(offline)?;
                let figures = InicFigures::measure(&mut |config| simulator.run(config))?;
                let compared = claims::compared(&figures);
                Made::new(&figures, text::text(&figures), &figures.panels(), compared, true)
            },
        },
        PaperFigures {
            name: "inic-live",
            help: "UDP, TCP, MPI and INIC cards in guests: real, user and system time, and interrupts, for 100 MB",
            file: "inic-live.txt",
            make: |offline| {
                let figures = live::LiveFigures::measure(offline)?;
                Made::new(&figures, figures.text(), &[], Vec::new(), figures.hold())
            },
        },
    ],
    sections: &[BenchSection {
        name: "inic-guests",
        help: "Two guests with INIC cards: bandwidth and processor time compared with TCP over QEMU's -netdev stream",
        what: "two guests: INIC cards, CONF4, compared with TCP over QEMU's -netdev stream",
        boots_guests: true,
        measure: guests::measure,
    }],
    simulated: speed::LOADS,
    ..Benches::NONE
};

/// The version of [`InicFigures`].
pub const INIC_FIGURES_VERSION: u32 = 1;

/// The paper's platform, and a current one.
const PROFILES: [&str; 2] = ["i960-32-33", "pcie4-100g"];
const ASSEMBLIES: [(&str, &str); 4] = [
    ("conf1", "#1f77b4"),
    ("conf4", "#d62728"),
    ("unreliable_ordered", "#2ca02c"),
    ("selective_repeat", "#9467bd"),
];
/// Bytes of the tag at the beginning of each message of a workload.
const TAG_BYTES: u32 = 16;
const SIZES: [u32; 8] = [16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144];
/// The transfer for the paper's interrupt counts (section 5.2), and its packet size, in bytes.
const TRANSFER_BYTES: u32 = 100_000_000;
const PACKET_BYTES: u32 = 1_408;
/// `rcv_chunk_size`, and the number of interrupts by the paper's rule; 1: an interrupt per packet.
const CHUNKS: [(u32, u64); 5] =
    [(1, 71_023), (4 << 10, 24_415), (16 << 10, 6_104), (64 << 10, 1_526), (1 << 20, 96)];
/// The bandwidth that four crossings of the local bus allow, by the paper (section 5.3): 264 Mb/s.
const LIMIT_BYTES_PER_S: u64 = 33_000_000;
const FAULT_PERCENTS: [u32; 5] = [1, 5, 10, 20, 30];
const FAULT_KINDS: [&str; 4] = ["loss", "duplicate", "reorder", "corrupt"];
/// Number of messages of a stream over a faulty link; each has three packets.
const FAULTY_MESSAGES: u64 = 100;
const FAULTY_BYTES: u32 = 4_096;
const ROUND_TRIPS: u64 = 20;
const PS_PER_S: u128 = 1_000_000_000_000;

type Simulate<'a> = &'a mut dyn FnMut(&SimConfig) -> Result<Report>;

/// All figures. Times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InicFigures {
    /// [`INIC_FIGURES_VERSION`].
    pub version: u32,
    /// Table 1.
    pub configurations: Vec<Configuration>,
    /// The components in Table 1's sums.
    pub components: Vec<Component>,
    /// Interrupts over [`TRANSFER_BYTES`].
    pub interrupts: Vec<Interrupts>,
    /// Hosts' time for the same transfer.
    pub hosts: Vec<HostTime>,
    /// The local bus's limit, for each interpretation of the paper.
    pub limits: Vec<Limit>,
    /// Latency and bandwidth.
    pub sizes: Vec<Size>,
    /// Streams over faulty links.
    pub faulty: Vec<Faulty>,
}

/// A row of Table 1: flip-flops and look-up tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Its name.
    pub name: String,
    /// The paper's numbers.
    pub paper: [u32; 2],
    /// The sums of the components.
    pub sum: [u32; 2],
    /// The shares that the paper prints, in hundredths of a percent.
    pub printed_share: [u32; 2],
    /// The shares by the numbers, in hundredths of a percent.
    pub computed_share: [u32; 2],
}

/// The resources of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Flip-flops and look-up tables.
    pub resources: [u32; 2],
    /// Derived, allotted or own.
    pub origin: &'static str,
}

/// Interrupts at one `rcv_chunk_size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupts {
    /// Bytes before the host is interrupted.
    pub chunk_bytes: u32,
    /// The paper's rule: bytes above the chunk size count for the next interrupt.
    pub paper: u64,
    /// Interrupts that the card raised.
    pub counted: u64,
    /// Interrupts that the card raised with a count that restarts from 0 at each interrupt.
    pub counted_restarted: u64,
}

/// The local bus under one interpretation of the four crossings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Crossings of a sent packet.
    pub send_crossings: u64,
    /// Crossings of a received packet.
    pub receive_crossings: u64,
    /// Whether both nodes send.
    pub both_ways: bool,
    /// Data rate in one direction.
    pub model_bytes_per_s: u64,
    /// The paper's limit, if the paper states it for this case.
    pub paper_bytes_per_s: Option<u64>,
}

/// Messages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The platform.
    pub profile: &'static str,
    /// The assembly.
    pub assembly: &'static str,
    /// Bytes of a message, including its tag.
    pub message_bytes: u32,
    /// From the start of the sender's software to the end of the receiver's.
    pub model_latency_ps: u64,
    /// Data rate in one direction.
    pub model_bytes_per_s: u64,
}

/// A stream over a faulty link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Faulty {
    /// The platform.
    pub profile: &'static str,
    /// The kind of fault.
    pub fault: &'static str,
    /// Percentage of faulty frames.
    pub percent: u32,
    /// The assembly.
    pub assembly: &'static str,
    /// Received messages of [`FAULTY_MESSAGES`].
    pub messages: u64,
    /// Received data over the total time.
    pub model_bytes_per_s: u64,
    /// Retransmitted packets.
    pub retransmissions: u64,
}

impl InicFigures {
    /// Measures all figures with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report is incomplete.
    pub fn measure(simulate: Simulate<'_>) -> Result<Self> {
        let interrupts = CHUNKS.iter().map(|(chunk, paper)| Interrupts::measure(*chunk, *paper, simulate));
        let interrupts = interrupts.collect::<Result<_>>()?;
        let hosts = host_time::measure(simulate)?;
        let mut limits = Vec::new();
        for (crossings, both_ways, paper) in [
            ([2, 2], true, Some(LIMIT_BYTES_PER_S)),
            ([2, 2], false, None),
            ([4, 0], false, Some(LIMIT_BYTES_PER_S)),
            ([4, 0], true, None),
        ] {
            limits.push(Limit::measure(crossings, both_ways, paper, simulate)?);
        }
        let mut sizes = Vec::new();
        for profile in PROFILES {
            for (assembly, _) in ASSEMBLIES {
                for bytes in SIZES {
                    sizes.push(Size::measure(profile, assembly, bytes, simulate)?);
                }
            }
        }
        let mut faulty = Vec::new();
        for profile in PROFILES {
            for bundled in &BUNDLED {
                let mut measure =
                    |fault, percent| Faulty::measure(profile, fault, percent, bundled.name, simulate);
                faulty.push(measure("none", 0)?);
                for fault in FAULT_KINDS {
                    for percent in FAULT_PERCENTS {
                        faulty.push(measure(fault, percent)?);
                    }
                }
            }
        }
        let version = INIC_FIGURES_VERSION;
        let (configurations, components) = (configurations()?, components());
        Ok(Self { version, configurations, components, interrupts, hosts, limits, sizes, faulty })
    }

    /// Latency and bandwidth over size, on each platform.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        let panel = |profile: &str, what: &str, y_label: &str, of: fn(&Size) -> f64| {
            let series = ASSEMBLIES.iter().map(|(assembly, colour)| {
                let sizes = self.sizes.iter();
                let of_this = sizes.filter(|size| size.profile == profile && size.assembly == *assembly);
                let points = of_this.map(|size| (f64::from(size.message_bytes), of(size))).collect();
                Series { name: (*assembly).to_owned(), style: Style::Line(colour), points }
            });
            Panel {
                title: format!("INIC, {profile}: {what}, in the simulator"),
                x_label: "message, its tag included (bytes)".to_owned(),
                y_label: y_label.to_owned(),
                scale: Scale::Logarithmic,
                legend: Legend::Inside,
                series: series.collect(),
            }
        };
        let both = |profile: &&str| {
            [
                panel(profile, "latency", "model time (us)", |size| size.model_latency_ps as f64 / 1e6),
                panel(profile, "bandwidth", "Mb/s of model time", |size| {
                    size.model_bytes_per_s as f64 * 8.0 / 1e6
                }),
            ]
        };
        PROFILES.iter().flat_map(both).collect()
    }
}

fn configurations() -> Result<Vec<Configuration>> {
    let row = |row: &niclab_components::kinds::Configuration| {
        let name = row.name.to_lowercase();
        let bundled = Bundled::named(&name).with_context(|| format!("{name} is not bundled"))?;
        let sum = bundled.assembly().resources();
        Ok(Configuration {
            name: row.name.to_owned(),
            paper: [row.resources.flip_flops, row.resources.luts],
            sum: [sum.flip_flops, sum.luts],
            printed_share: row.printed,
            computed_share: sum.shares(),
        })
    };
    TABLE_1.iter().map(row).collect()
}

fn components() -> Vec<Component> {
    let taking = KINDS.iter().filter(|row| row.resources.luts > 0);
    let component = |row: &niclab_components::kinds::Row| Component {
        name: row.name.to_owned(),
        resources: [row.resources.flip_flops, row.resources.luts],
        origin: match row.source {
            Origin::Derived => "derived",
            Origin::Allotted => "allotted",
            Origin::Own => "own",
        },
    };
    taking.map(component).collect()
}

impl Interrupts {
    fn measure(chunk_bytes: u32, paper: u64, simulate: Simulate<'_>) -> Result<Self> {
        // With chunks of whole packets, no bytes are left over: the count restarts from 0 at each interrupt.
        let whole_packets = chunk_bytes.next_multiple_of(PACKET_BYTES);
        let mut count = |chunk: u32| -> Result<u64> {
            let most = Value::Number(TRANSFER_BYTES.into());
            let values = [("rcv_chunk_size", Value::Number(chunk.into())), ("max_message_bytes", most)];
            let mut config = configuration(PROFILES[0], "unreliable_ordered", 2, &values, TRANSFER_BYTES)?;
            config.workload.slices = 8;
            let report = simulate(&with(&config, WorkloadKind::Stream, 1))?;
            let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
            ensure!(receiver.bytes_received == u64::from(TRANSFER_BYTES), "{chunk}: not all of it came");
            Ok(receiver.interrupts.values().sum())
        };
        Ok(Self {
            chunk_bytes,
            paper,
            counted: count(chunk_bytes)?,
            counted_restarted: count(whole_packets)?,
        })
    }
}

impl Limit {
    fn measure(
        [send_crossings, receive_crossings]: [u64; 2],
        both_ways: bool,
        paper_bytes_per_s: Option<u64>,
        simulate: Simulate<'_>,
    ) -> Result<Self> {
        let values = [
            ("send_crossings", Value::Number(send_crossings)),
            ("receive_crossings", Value::Number(receive_crossings)),
        ];
        let config = configuration(PROFILES[0], "unreliable_ordered", 2, &values, 65_536)?;
        let kind = if both_ways { WorkloadKind::AllToAll } else { WorkloadKind::Stream };
        let model_bytes_per_s = rate(&config, kind, simulate)?;
        Ok(Self { send_crossings, receive_crossings, both_ways, model_bytes_per_s, paper_bytes_per_s })
    }
}

impl Size {
    fn measure(
        profile: &'static str,
        assembly: &'static str,
        message_bytes: u32,
        simulate: Simulate<'_>,
    ) -> Result<Self> {
        let config = configuration(profile, assembly, 2, &[], message_bytes)?;
        let latency = simulate(&with(&config, WorkloadKind::PingPong, ROUND_TRIPS))?.model.latency;
        ensure!(
            latency.count == 2 * ROUND_TRIPS,
            "{assembly}: a ping-pong of {message_bytes} bytes lost some"
        );
        let model_latency_ps = latency.sum_ps / latency.count;
        let model_bytes_per_s = rate(&config, WorkloadKind::Stream, simulate)?;
        Ok(Self { profile, assembly, message_bytes, model_latency_ps, model_bytes_per_s })
    }
}

impl Faulty {
    fn measure(
        profile: &'static str,
        fault: &'static str,
        percent: u32,
        assembly: &'static str,
        simulate: Simulate<'_>,
    ) -> Result<Self> {
        let mut config = configuration(profile, assembly, 2, &[], FAULTY_BYTES)?;
        let share = f64::from(percent) / 100.0;
        // Faults on only one of the two links, so that each frame meets them once.
        let link = &mut config.nodes.get_mut(1).context("there are two nodes")?.link;
        link.faults = match fault {
            "loss" => Faults { loss: share, ..Faults::default() },
            "duplicate" => Faults { duplicate: share, ..Faults::default() },
            "reorder" => Faults { reorder: share, ..Faults::default() },
            "corrupt" => Faults { corrupt: share, ..Faults::default() },
            _ => Faults::default(),
        };
        let report = simulate(&with(&config, WorkloadKind::Stream, FAULTY_MESSAGES))?;
        let again = |node: &niclab_spec::report::NodeFigures| {
            node.nic_counts.get("retransmissions").copied().unwrap_or_default()
        };
        let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
        Ok(Self {
            profile,
            fault,
            percent,
            assembly,
            messages: receiver.messages_received,
            model_bytes_per_s: report.model.bandwidth_bytes_per_s,
            retransmissions: report.nodes.iter().map(again).sum(),
        })
    }
}

fn configuration(
    profile: &str,
    assembly: &str,
    nodes: u32,
    values: &[(&str, Value)],
    message_bytes: u32,
) -> Result<SimConfig> {
    let model = NicModel::named("inic").context("there is no model `inic`")?;
    let mut nic = NicConfig::of(model);
    nic.set("assembly", Value::Word(assembly.to_owned()))?;
    for (key, value) in values {
        nic.set(key, value.clone())?;
    }
    let file =
        ClusterFile { nodes: Some(nodes), profile: Some(profile.to_owned()), nic, ..ClusterFile::default() };
    let cluster = Source::default().resolve(&file)?;
    let mut workload = Workload::new(WorkloadKind::Stream);
    workload.message_bytes = message_bytes.saturating_sub(TAG_BYTES);
    workload.slices = 64;
    Ok(SimConfig::new(&cluster, "figures-inic", &workload))
}

fn with(config: &SimConfig, kind: WorkloadKind, count: u64) -> SimConfig {
    let workload = Workload { kind, count, ..config.workload.clone() };
    SimConfig { workload, ..config.clone() }
}

/// The data rate at the second node.
fn rate(config: &SimConfig, kind: WorkloadKind, simulate: Simulate<'_>) -> Result<u64> {
    let short = u64::from((1 << 18) / (config.workload.message_bytes + TAG_BYTES)).clamp(8, 400);
    let mut run = |count| -> Result<(u64, u64)> {
        let report = simulate(&with(config, kind, count))?;
        let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
        ensure!(
            receiver.messages_received == count,
            "{} of {count} messages came",
            receiver.messages_received
        );
        Ok((receiver.bytes_received, report.model.time_ps))
    };
    let ((few, short_ps), (many, long_ps)) = (run(short)?, run(3 * short)?);
    ensure!(long_ps > short_ps, "a longer stream took no longer: {long_ps} ps after {short_ps} ps");
    Ok(u64::try_from(u128::from(many - few) * PS_PER_S / u128::from(long_ps - short_ps))?)
}
