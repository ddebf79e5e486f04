//! The figures of the GRIM paper's section 6: latency, overhead and gap of short messages, latency over channels,
//! bandwidth over message size.
//!
//! As in the paper, latency and bandwidth are from round trips. A gap is the time between two posts, from the first to
//! the last of a burst. The time of the last post follows from its message's arrival and latency. So the error of a gap
//! is at most the duration of the processor's round over the channels, divided by the length of the burst.
//!
//! In a simulation, the card's processor is always at the same position of its round when a message arrives; on real
//! hosts the position is random. So latencies of short messages are means over runs in which software takes a fraction
//! of a round longer; this time is subtracted again.

mod claims;
mod guests;
mod live;
mod text;

use anyhow::{Context, Result, ensure};
use niclab_cluster::programs::simulator::Simulator;
use niclab_spec::{
    ClusterFile, NicConfig, NicModel, Report, SimConfig, Source, Value, Workload, WorkloadKind,
};
use serde::Serialize;

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
            name: "grim",
            help: "GRIM: latency, overhead and gap of short messages, latency over channels, bandwidth over size",
            file: "grim.txt",
            make: |offline| {
                let simulator = Simulator::locate(offline)?;
                let figures = GrimFigures::measure(&mut |config| simulator.run(config))?;
                let compared = claims::compared(&figures);
                Made::new(&figures, text::text(&figures), &figures.panels(), compared, true)
            },
        },
        PaperFigures {
            name: "grim-live",
            help: "GRIM cards in guests: short messages, bandwidth over size with both kinds of injection, interrupts",
            file: "grim-live.txt",
            make: |offline| {
                let figures = live::LiveFigures::measure(offline)?;
                Made::new(&figures, figures.text(), &figures.panels(), Vec::new(), figures.hold())
            },
        },
    ],
    sections: &[BenchSection {
        name: "grim-guests",
        help: "Six guests: GRIM cards compared with ULTRA's round trip of a short message and Match's puts",
        what: "six guests, two of each model: GRIM compared with ULTRA and Match",
        boots_guests: true,
        measure: guests::measure,
    }],
    ..Benches::NONE
};

/// The version of [`GrimFigures`].
pub const GRIM_FIGURES_VERSION: u32 = 1;

/// The paper's platform, and a current one.
const PROFILES: [&str; 2] = ["lanai4-pci", "pcie4-100g"];
/// Default number of channels: that of the paper's card.
const CHANNELS: u64 = 4;
const CHANNEL_COUNTS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Payload region of a channel, small enough for 64 channels in 1 MB.
const CHANNEL_PAYLOAD: u64 = 4_096;
/// Numbers of runs over which the processor's round is spread.
const PHASES: (u64, u64) = (8, 32);
const ROUND_TRIPS: u64 = 20;
const WARMUP: u64 = 2;
const BURSTS: [u64; 10] = [10, 50, 100, 200, 300, 400, 600, 1_000, 1_500, 2_000];
/// The injection of such a burst takes only the overhead.
const OVERHEAD_BURST: u64 = 100;
const SIZES: [u32; 11] = [4, 16, 64, 256, 1_024, 4_096, 8_192, 16_384, 24_576, 32_768, 49_152];
const LONGEST: u32 = 49_152;
const MTU_BYTES: u32 = 4_096;
/// Length of a program's receive queue, in messages.
const SLICES: u32 = 64;
/// First segment of a message with cut-through (section 5.2), and 0 for a message that is stored completely.
const CUT_THROUGH: u64 = 32;
const STORED: u64 = 0;
const PS_PER_S: u128 = 1_000_000_000_000;

type Simulate<'a> = &'a mut dyn FnMut(&SimConfig) -> Result<Report>;

/// All figures. Times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrimFigures {
    /// [`GRIM_FIGURES_VERSION`].
    pub version: u32,
    /// Bursts of short messages.
    pub bursts: Vec<Burst>,
    /// Latency of short messages over channels.
    pub channels: Vec<Latency>,
    /// Bandwidth over size.
    pub sizes: Vec<Size>,
    /// Messages between a host and another node's I/O card.
    pub io_card: Vec<IoCard>,
    /// Bandwidth of the host's stores, in the paper's profile only.
    pub stores: Stores,
    /// Gap and bandwidth with additional assumptions, on the paper's platform.
    pub assumed: Assumed,
}

/// A burst of short messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Burst {
    /// The platform.
    pub profile: &'static str,
    /// Number of messages.
    pub messages: u64,
    /// Average time from one post to the next.
    pub model_gap_ps: u64,
}

/// Short messages of a card with a number of channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The platform.
    pub profile: &'static str,
    /// Channels of each card.
    pub channels: u64,
    /// One-way latency, averaged over the processor's round.
    pub model_latency_ps: u64,
}

/// Round trips of messages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The platform.
    pub profile: &'static str,
    /// Bytes of payload.
    pub bytes: u32,
    /// Payload over half of a round trip, with segments that grow from 32 bytes.
    pub cut_through_model_bytes_per_s: u64,
    /// Payload over half of a round trip, with each message pushed completely before it leaves.
    pub stored_model_bytes_per_s: u64,
}

/// Messages between a host and the I/O card of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoCard {
    /// The platform.
    pub profile: &'static str,
    /// A short message, from the host's program until the card has processed it.
    pub model_latency_ps: u64,
    /// A short message back, from the card's handler to the program.
    pub back_model_latency_ps: u64,
    /// Payload of 48 KiB over half of a round trip.
    pub model_bytes_per_s: u64,
}

/// Bandwidth of the host's stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stores {
    /// Without write combining.
    pub model_bytes_per_s: u64,
    /// With write combining.
    pub combined_model_bytes_per_s: u64,
}

/// The paper's numbers that the model does not reproduce, with additional assumptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assumed {
    /// The gap of the longest burst, if each frame waits for the acknowledgement of the previous one.
    pub one_frame_gap_ps: u64,
    /// The gap of the longest burst, if the receiving program takes 20 us per message and its card has memory for 312.
    pub slow_receiver_gap_ps: u64,
    /// The longest messages, if combined stores reach 125 MB/s, no other master interrupts a DMA burst, and firmware
    /// takes no time: in segments, and stored completely.
    pub free_model_bytes_per_s: [u64; 2],
    /// A stream of messages of 16 KiB, several of them in flight: in segments, and stored completely.
    pub stream_model_bytes_per_s: [u64; 2],
}

impl GrimFigures {
    /// Measures all figures with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report is incomplete.
    pub fn measure(simulate: Simulate<'_>) -> Result<Self> {
        let (mut bursts, mut channels, mut sizes, mut io_card) = (vec![], vec![], vec![], vec![]);
        for profile in PROFILES {
            let config = configuration(profile, &[], 0)?;
            for messages in BURSTS {
                bursts.push(Burst { profile, messages, model_gap_ps: gap(&config, messages, simulate)? });
            }
            for count in CHANNEL_COUNTS {
                let model_latency_ps = latency(profile, count, simulate)?;
                channels.push(Latency { profile, channels: count, model_latency_ps });
            }
            io_card.push(IoCard::measure(profile, simulate)?);
            for bytes in SIZES {
                let mut rate = |segment| round_trips(&segmented(profile, segment, bytes)?, simulate);
                sizes.push(Size {
                    profile,
                    bytes,
                    cut_through_model_bytes_per_s: rate(CUT_THROUGH)?,
                    stored_model_bytes_per_s: rate(STORED)?,
                });
            }
        }
        let (stores, assumed) = (Stores::of_paper()?, Assumed::measure(simulate)?);
        Ok(Self { version: GRIM_FIGURES_VERSION, bursts, channels, sizes, io_card, stores, assumed })
    }

    /// The gap of a burst on a platform.
    fn gap_ps(&self, profile: &str, messages: u64) -> u64 {
        let mut bursts = self.bursts.iter();
        let burst = bursts.find(|burst| (burst.profile, burst.messages) == (profile, messages));
        burst.map_or(0, |burst| burst.model_gap_ps)
    }

    fn latency_ps(&self, profile: &str, channels: u64) -> u64 {
        let mut rows = self.channels.iter();
        let row = rows.find(|row| (row.profile, row.channels) == (profile, channels));
        row.map_or(0, |row| row.model_latency_ps)
    }

    /// Bandwidth of the longest messages on the paper's platform: cut-through, and stored completely.
    fn longest(&self) -> [u64; 2] {
        let mut sizes = self.sizes.iter();
        let size = sizes.find(|size| (size.profile, size.bytes) == (PROFILES[0], LONGEST));
        size.map_or([0; 2], |size| [size.cut_through_model_bytes_per_s, size.stored_model_bytes_per_s])
    }

    /// Whether the latency of a short message grows with the number of channels, on the paper's platform (figure 6).
    fn does_latency_grow(&self) -> bool {
        let of_paper = self.channels.iter().filter(|row| row.profile == PROFILES[0]);
        of_paper.map(|row| row.model_latency_ps).is_sorted()
    }

    /// Whether the gap of a burst of 200 equals that of half as many messages, within 1 %.
    fn is_gap_negligible(&self) -> bool {
        let [gap, overhead] = [200, OVERHEAD_BURST].map(|messages| self.gap_ps(PROFILES[0], messages));
        gap <= overhead + overhead / 100
    }

    /// Gap, latency over channels, and bandwidth over size.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        let both = |points: &dyn Fn(&str) -> Vec<(f64, f64)>| -> Vec<Series> {
            let colours = ["#1f77b4", "#2ca02c"];
            let line = |(profile, colour): (&str, _)| line(profile, colour, points(profile));
            PROFILES.into_iter().zip(colours).map(line).collect()
        };
        let mut gap = both(&|profile| {
            let bursts = self.bursts.iter().filter(|burst| burst.profile == profile);
            bursts.map(|burst| (burst.messages as f64, burst.model_gap_ps as f64 / 1e6)).collect()
        });
        gap.push(rings(&[(1_000.0, 20.0), (2_000.0, 20.0)]));
        let latency = both(&|profile| {
            let rows = self.channels.iter().filter(|row| row.profile == profile);
            rows.map(|row| (row.channels as f64, row.model_latency_ps as f64 / 1e6)).collect()
        });
        let mut panels = vec![
            panel("gap of short messages", "messages of a burst", "model time (us)", gap),
            panel("latency of short messages", "channels", "model time (us)", latency),
        ];
        for profile in PROFILES {
            let points = |of: fn(&Size) -> u64| {
                let sizes = self.sizes.iter().filter(|size| size.profile == profile);
                sizes.map(|size| (f64::from(size.bytes), of(size) as f64 / 1e6)).collect()
            };
            let mut series = vec![
                line("cut-through", "#1f77b4", points(|size| size.cut_through_model_bytes_per_s)),
                line("store-and-forward", "#ff7f0e", points(|size| size.stored_model_bytes_per_s)),
            ];
            if profile == PROFILES[0] {
                series.push(rings(&[(f64::from(LONGEST), 106.0), (f64::from(LONGEST), 74.0)]));
            }
            let what = format!("bandwidth of round trips, {profile}");
            panels.push(panel(&what, "message (bytes)", "MB/s of model time", series));
        }
        panels
    }
}

fn line(name: &str, colour: &'static str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), style: Style::Line(colour), points }
}

fn rings(points: &[(f64, f64)]) -> Series {
    let name = "the paper's numbers".to_owned();
    Series { name, style: Style::Rings("#d62728"), points: points.to_vec() }
}

fn panel(what: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Panel {
    Panel {
        title: format!("GRIM: {what}, in the simulator"),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        scale: Scale::Logarithmic,
        legend: Legend::Inside,
        series,
    }
}

impl IoCard {
    fn measure(profile: &'static str, simulate: Simulate<'_>) -> Result<Self> {
        let mut config = configuration(profile, &[], 0)?;
        let second = config.nodes.get_mut(1).context("a cluster of two nodes")?;
        second.nic.set("io_card_channel", Value::Number(CHANNELS - 1))?;
        let [latency, back] = spread(&config, WorkloadKind::Echo, CHANNELS, simulate)?;
        config.workload.message_bytes = LONGEST;
        let time_ps = run(&config, WorkloadKind::Echo, ROUND_TRIPS, WARMUP, simulate)?.model.time_ps;
        Ok(Self {
            profile,
            model_latency_ps: latency,
            back_model_latency_ps: back,
            model_bytes_per_s: per_s(u64::from(LONGEST) * 2 * ROUND_TRIPS, time_ps)?,
        })
    }
}

impl Stores {
    /// For a cache line, and for a single word that is not combined.
    fn of_paper() -> Result<Self> {
        let bus = configuration(PROFILES[0], &[], 0)?.profile.bus;
        let single = bus.pio_write_uncombined.as_ref().context("the profile prices no single stores")?;
        let rate = |price: &niclab_spec::profile::Price| {
            let (bytes, words) = (price.burst_bytes.value, price.burst_bytes.value / 8);
            let burst_ps = price.fixed_ps.value + words * price.per_word_ps.value;
            u64::try_from(u128::from(bytes) * PS_PER_S / u128::from(burst_ps.max(1)))
        };
        Ok(Self { model_bytes_per_s: rate(single)?, combined_model_bytes_per_s: rate(&bus.pio_write)? })
    }
}

impl Assumed {
    fn measure(simulate: Simulate<'_>) -> Result<Self> {
        const SLOW_PS: u64 = 20_000_000;
        /// Memory for the queues of a card with 4 channels, and for 312 frames of short messages of 74 bytes: 256 in
        /// their queue, and 56 in the space of the longest frame, which a card must have.
        const SMALL_MEMORY: u64 = CHANNELS * (256 * 32 + (48 << 10)) + 312 * 74;
        let longest_burst = BURSTS[BURSTS.len() - 1];
        let one_frame = configuration(PROFILES[0], &[("window_frames", 1)], 0)?;
        let mut slow = configuration(PROFILES[0], &[("card_memory_bytes", SMALL_MEMORY)], 0)?;
        slow.profile.host.receive_ps.value = SLOW_PS;
        let mut free = [0; 2];
        let mut stream = [0; 2];
        for (place, segment) in [CUT_THROUGH, STORED].into_iter().enumerate() {
            let mut config = segmented(PROFILES[0], segment, LONGEST)?;
            // 32 bytes in 256 ns.
            config.profile.bus.pio_write.fixed_ps.value = 16_000;
            config.profile.bus.dma_write.burst_bytes.value = MTU_BYTES.into();
            for (name, machine) in &mut config.profile.ni.machines {
                if name.starts_with("processor_") || name == "scan" {
                    machine.fixed_millicycles.value = 0;
                }
            }
            free[place] = round_trips(&config, simulate)?;
            stream[place] = streamed(&segmented(PROFILES[0], segment, 16 << 10)?, simulate)?;
        }
        Ok(Self {
            one_frame_gap_ps: gap(&one_frame, longest_burst, simulate)?,
            slow_receiver_gap_ps: gap(&slow, longest_burst, simulate)?,
            free_model_bytes_per_s: free,
            stream_model_bytes_per_s: stream,
        })
    }
}

fn configuration(profile: &str, values: &[(&str, u64)], message_bytes: u32) -> Result<SimConfig> {
    let model = NicModel::named("grim").context("there is no model `grim`")?;
    let mut nic = NicConfig::of(model);
    nic.set("channels", Value::Number(CHANNELS))?;
    for (key, value) in values {
        nic.set(key, Value::Number(*value))?;
    }
    let file =
        ClusterFile { nodes: Some(2), profile: Some(profile.to_owned()), nic, ..ClusterFile::default() };
    let mut workload = Workload::new(WorkloadKind::Stream);
    workload.message_bytes = message_bytes;
    workload.slices = SLICES;
    let mut config = SimConfig::new(&Source::default().resolve(&file)?, "figures-grim", &workload);
    for node in &mut config.nodes {
        node.link.mtu_bytes = MTU_BYTES;
    }
    Ok(config)
}

fn segmented(profile: &str, segment: u64, message_bytes: u32) -> Result<SimConfig> {
    configuration(profile, &[("first_segment_bytes", segment)], message_bytes)
}

fn run(
    config: &SimConfig,
    kind: WorkloadKind,
    count: u64,
    warmup: u64,
    simulate: Simulate<'_>,
) -> Result<Report> {
    let workload = Workload { kind, count, warmup, ..config.workload.clone() };
    let report = simulate(&SimConfig { workload, ..config.clone() })?;
    let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
    ensure!(receiver.messages_received >= count, "{} of {count} came", receiver.messages_received);
    Ok(report)
}

/// The average time from one post of a burst to the next.
fn gap(config: &SimConfig, messages: u64, simulate: Simulate<'_>) -> Result<u64> {
    // The last message has the longest latency. What follows it is the same for all bursts.
    let mut last_launch = |count| -> Result<u64> {
        let model = run(config, WorkloadKind::Stream, count, 0, simulate)?.model;
        Ok(model.time_ps.saturating_sub(model.latency.max_ps))
    };
    let (first, last) = (last_launch(1)?, last_launch(messages)?);
    Ok(last.saturating_sub(first) / messages.saturating_sub(1).max(1))
}

/// The average latency of short messages over the processor's round.
fn latency(profile: &str, channels: u64, simulate: Simulate<'_>) -> Result<u64> {
    let values = [("channels", channels), ("payload_bytes_per_channel", CHANNEL_PAYLOAD)];
    let config = configuration(profile, &values, 0)?;
    let [there, back] = spread(&config, WorkloadKind::PingPong, channels, simulate)?;
    Ok(there.midpoint(back))
}

/// Latencies of short messages, averaged over the processor's round: to the second node, and to the first.
fn spread(config: &SimConfig, kind: WorkloadKind, channels: u64, simulate: Simulate<'_>) -> Result<[u64; 2]> {
    let ni = &config.profile.ni;
    let scan = ni.machines.get("scan").context("the profile does not price the search of channels")?;
    let round_ps = channels * scan.fixed_millicycles.value * ni.clock_ps.value / 1_000;
    let phases = channels.clamp(PHASES.0, PHASES.1);
    let mut sums_ps = [0; 2];
    for phase in 0..phases {
        let later_ps = phase * round_ps / phases;
        let mut config = config.clone();
        config.profile.host.receive_ps.value += later_ps;
        let report = run(&config, kind, ROUND_TRIPS, WARMUP, simulate)?;
        for (place, sum_ps) in [1, 0].into_iter().zip(&mut sums_ps) {
            let node = report.nodes.get(place).context("the simulator's report lacks a node")?;
            let latency = &node.model_latency;
            ensure!(latency.count == ROUND_TRIPS, "a ping-pong over {channels} channels lost some");
            // The additional time of the node's program is no part of the latency; an I/O card has no such program.
            let is_of_host = node.ledger.iter().any(|entry| entry.transaction == "host_receive");
            *sum_ps += (latency.sum_ps / latency.count).saturating_sub(if is_of_host { later_ps } else { 0 });
        }
    }
    Ok(sums_ps.map(|sum_ps| sum_ps / phases))
}

/// Payload over half of a round trip.
fn round_trips(config: &SimConfig, simulate: Simulate<'_>) -> Result<u64> {
    let time_ps = run(config, WorkloadKind::PingPong, ROUND_TRIPS, WARMUP, simulate)?.model.time_ps;
    per_s(u64::from(config.workload.message_bytes) * 2 * ROUND_TRIPS, time_ps)
}

/// Payload rate of a stream, from two streams of different length.
fn streamed(config: &SimConfig, simulate: Simulate<'_>) -> Result<u64> {
    let mut time_ps =
        |count| -> Result<u64> { Ok(run(config, WorkloadKind::Stream, count, 0, simulate)?.model.time_ps) };
    let (few, many) = (time_ps(20)?, time_ps(60)?);
    per_s(u64::from(config.workload.message_bytes) * 40, many.saturating_sub(few))
}

fn per_s(bytes: u64, time_ps: u64) -> Result<u64> {
    ensure!(time_ps > 0, "{bytes} bytes took no time");
    Ok(u64::try_from(u128::from(bytes) * PS_PER_S / u128::from(time_ps))?)
}
