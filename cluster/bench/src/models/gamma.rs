//! The GAMMA paper's figures: TCP; throughput over message size on both processors, without flow control, with windows
//! of several sizes, and with the earlier card, whose transfers the processor drives. Also section 3's hundred nodes,
//! and bit errors on links.
//!
//! As in the paper, all values are from round trips of a polling program. A message of the simulator begins with a tag
//! of 16 bytes, which counts as a part of the message.

mod claims;
mod guests;
mod live;
mod tcp;
mod text;

use anyhow::{Context, Result, ensure};
use niclab_cluster::programs::simulator::Simulator;
use niclab_spec::{
    ClusterFile, NicConfig, NicModel, Report, SimConfig, Source, Value, Workload, WorkloadKind,
};
use serde::Serialize;

use super::Benches;
use crate::figures::{
    Made, PaperFigures,
    plot::{Legend, Panel, Scale, Series, Style},
};
use crate::section::BenchSection;

pub(super) const BENCHES: Benches = Benches {
    figures: &[
        PaperFigures {
            name: "gamma",
            help: "GAMMA: throughput over size, CPU-driven and with windows of 4 to 32 frames, on two processors; a \
                   hundred nodes; bit errors",
            file: "gamma.txt",
            make: |offline| {
                let simulator = Simulator::locate(offline)?;
                let figures = GammaFigures::measure(&mut |config| simulator.run(config))?;
                let compared = claims::compared(&figures);
                Made::new(&figures, text::text(&figures), &figures.panels(), compared, true)
            },
        },
        PaperFigures {
            name: "gamma-live",
            help: "GAMMA cards in guests, polled, with an interrupt per frame, and with mitigation: round trips, \
                   interrupts",
            file: "gamma-live.txt",
            make: |offline| {
                let figures = live::LiveFigures::measure(offline)?;
                Made::new(&figures, figures.text(), &figures.panels(), Vec::new(), figures.hold())
            },
        },
    ],
    sections: &[BenchSection {
        name: "gamma-guests",
        help: "Four guests: GAMMA cards, polled and with interrupts, compared with TCP over QEMU's network and over \
               its tulip",
        what: "four guests: GAMMA compared with TCP over -netdev stream and over tulip",
        boots_guests: true,
        measure: guests::measure,
    }],
    ..Benches::NONE
};

/// The version of [`GammaFigures`].
pub const GAMMA_FIGURES_VERSION: u32 = 3;

/// The processors of figures 2 and 3, each with the paper's time of the shortest message in us.
const PLATFORMS: [(&str, f64); 2] = [("fast-ethernet-p133", 17.0), ("fast-ethernet-pii350", 14.0)];
/// The same processors with the earlier card, whose transfers the processors drive.
const DRIVEN: [&str; 2] = ["fast-ethernet-3c595-p133", "fast-ethernet-3c595-pii350"];
/// The earlier card's time of the shortest message in us, and the throughput of long messages in MB/s (section 1).
const DRIVEN_PAPER: (f64, f64) = (12.7, 12.2);
/// Length of messages that hide the overhead at both ends, and their number of round trips.
const LONG_BYTES: u32 = 1 << 20;
const LONG_ROUND_TRIPS: u64 = 3;
/// A message that fills one frame.
const FULL_BYTES: u32 = 1_480;
/// Bit error rates: the paper's, and the simulation's, which would otherwise take too long. And the simulation's number
/// of frames.
const PAPER_BIT_ERRORS: f64 = 1e-10;
const BIT_ERRORS: f64 = 1e-7;
const DAMAGED_OF: u64 = 10_000;
/// Bits of a full message on the wire that a check sequence covers: Ethernet's header, the driver's header, data, and
/// the check sequence.
const FULL_BITS: u32 = 8 * (14 + 8 + FULL_BYTES + 4);
/// Windows of both figures, in frames; 0: no flow control.
const WINDOWS: [u64; 5] = [0, 4, 8, 16, 32];
/// Bytes of a message's tag, which is no payload.
const TAG_BYTES: u32 = 16;
const SIZES: [u32; 13] = [16, 32, 64, 128, 256, 512, 1_024, 1_480, 2_048, 4_096, 8_192, 16_384, 32_768];
const ROUND_TRIPS: u64 = 40;
const WARMUP: u64 = 4;
/// Receiver's software that takes longer for a frame than the wire does.
const SLOW_RECEIVE_PS: u64 = 150_000_000;
/// Number of nodes in section 3's cluster.
const NODES: u32 = 100;
const MESSAGES_OF_EACH: u64 = 100;
/// Each node sends a datagram after this number of messages. A sender has at most one datagram in flight per window, 99
/// of 133 in total.
const DATAGRAM_EVERY: u64 = 8;
const PS_PER_S: u128 = 1_000_000_000_000;

type Simulate<'a> = &'a mut dyn FnMut(&SimConfig) -> Result<Report>;

/// All figures. Times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GammaFigures {
    /// [`GAMMA_FIGURES_VERSION`].
    pub version: u32,
    /// Throughput over size.
    pub sizes: Vec<Size>,
    /// The same messages without the time of the copy.
    pub copies: Vec<Copy>,
    /// A hundred nodes at the same time.
    pub crowds: Vec<Crowd>,
    /// Processor time for a message of one full frame.
    pub labours: Vec<Labour>,
    /// Bit errors.
    pub damage: Damage,
    /// Figure 1.
    pub tcp: tcp::Streams,
}

/// Round trips of messages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The platform.
    pub profile: &'static str,
    /// Frames of the window; 0: no flow control.
    pub window: u64,
    /// Bytes of the message.
    pub bytes: u32,
    /// Half of a round trip.
    pub model_one_way_ps: u64,
}

/// The effect of the receiver's copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Copy {
    /// The platform.
    pub profile: &'static str,
    /// Bytes of the message.
    pub bytes: u32,
    /// Half of a round trip.
    pub model_one_way_ps: u64,
    /// Half of a round trip if copies took no time.
    pub without_model_one_way_ps: u64,
}

/// Time of both processors for one message, the same in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Labour {
    /// The platform.
    pub profile: &'static str,
    /// System call, driver and handler.
    pub model_software_ps: u64,
    /// The copy.
    pub model_copy_ps: u64,
    /// Programmed I/O: stores, and loads that the processor waits for.
    pub model_programmed_ps: u64,
    /// Transfers that the processor waits for.
    pub model_transfers_ps: u64,
}

/// Frames on a link with bit errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Number of sent frames; each is a message.
    pub sent: u64,
    /// Frames that arrived intact.
    pub received: u64,
    /// Frames that arrived damaged, as the driver reported.
    pub damaged: u64,
    /// Frames that the driver reported as lost, because a later one arrived.
    pub lost: u64,
}

/// Messages among a hundred nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crowd {
    /// The workload.
    pub workload: &'static str,
    /// Time of the receiver's software for each frame; `None`: as in the profile.
    pub slow_model_receive_ps: Option<u64>,
    /// Frames of the window; 0: no flow control.
    pub window: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Frames without a receive buffer, at all nodes.
    pub missed_frames: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Datagrams sent over the same rings as the messages.
    pub datagrams: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
}

impl Crowd {
    /// Whether all messages and datagrams arrived, and all frames had a buffer.
    const fn is_whole(&self) -> bool {
        self.missed_frames == 0 && self.sent == self.received && self.datagrams == self.datagrams_received
    }
}

impl GammaFigures {
    /// Measures all figures with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report is incomplete.
    pub fn measure(simulate: Simulate<'_>) -> Result<Self> {
        let (mut sizes, mut copies) = (Vec::new(), Vec::new());
        for (profile, _) in PLATFORMS {
            for window in WINDOWS {
                for bytes in SIZES {
                    let config = configuration(profile, window, bytes, 2)?;
                    let model_one_way_ps = one_way(&config, simulate)?;
                    sizes.push(Size { profile, window, bytes, model_one_way_ps });
                }
            }
            sizes.push(long(profile, simulate)?);
            for bytes in SIZES {
                let mut config = configuration(profile, 0, bytes, 2)?;
                let model_one_way_ps = one_way(&config, simulate)?;
                config.profile.host.copy_per_byte_ps.value = 0;
                let without_model_one_way_ps = one_way(&config, simulate)?;
                copies.push(Copy { profile, bytes, model_one_way_ps, without_model_one_way_ps });
            }
        }
        for profile in DRIVEN {
            for bytes in SIZES {
                let model_one_way_ps = one_way(&configuration(profile, 0, bytes, 2)?, simulate)?;
                sizes.push(Size { profile, window: 0, bytes, model_one_way_ps });
            }
            sizes.push(long(profile, simulate)?);
        }
        let profiles = PLATFORMS.into_iter().map(|(profile, _)| profile).chain(DRIVEN);
        let labours: Result<Vec<Labour>> = profiles.map(|profile| labour(profile, simulate)).collect();
        let damage = damage(simulate)?;
        let tcp = tcp::Streams::measure(simulate)?;
        let kinds = [
            ("incast", WorkloadKind::Incast, None),
            ("incast, slow receiver", WorkloadKind::Incast, Some(SLOW_RECEIVE_PS)),
            ("random", WorkloadKind::Random, None),
            ("all to all", WorkloadKind::AllToAll, None),
        ];
        let mut crowds = Vec::new();
        for (workload, kind, slow) in kinds {
            for (window, datagram_every) in [(8, 0), (8, DATAGRAM_EVERY), (0, 0)] {
                crowds.push(crowd((workload, kind, slow), window, datagram_every, simulate)?);
            }
        }
        Ok(Self { version: GAMMA_FIGURES_VERSION, sizes, copies, crowds, labours: labours?, damage, tcp })
    }

    /// Half of a round trip.
    fn one_way_ps(&self, profile: &str, window: u64, bytes: u32) -> u64 {
        let mut sizes = self.sizes.iter();
        let size = sizes.find(|size| (size.profile, size.window, size.bytes) == (profile, window, bytes));
        size.map_or(0, |size| size.model_one_way_ps)
    }

    /// How much a window reduces the throughput of the longest messages, in thousandths of that without flow control.
    fn lost_permille(&self, profile: &str, window: u64) -> u64 {
        let [without, with] =
            [0, window].map(|window| self.one_way_ps(profile, window, SIZES[SIZES.len() - 1]));
        1_000_u64.saturating_sub((without * 1_000).checked_div(with).unwrap_or(0))
    }

    /// Throughput of the 1 MiB messages, in MB/s.
    fn long_rate(&self, profile: &str) -> f64 {
        megabytes_per_s(LONG_BYTES, self.one_way_ps(profile, 0, LONG_BYTES))
    }

    /// Whether the faster processor reduces the latency of CPU-driven cards by less than a tenth (section 5: virtually
    /// insensitive).
    fn does_a_quick_processor_hardly_help(&self) -> bool {
        let [slow, quick] = DRIVEN.map(|profile| self.one_way_ps(profile, 0, SIZES[0]));
        quick <= slow && (slow - quick) * 10 < slow
    }

    /// Throughput of a full frame with descriptors, in thousandths of that of the CPU-driven card on the same
    /// processor.
    fn of_driven_permille(&self, place: usize) -> u64 {
        let [descriptors, driven] =
            [PLATFORMS[place].0, DRIVEN[place]].map(|profile| self.one_way_ps(profile, 0, FULL_BYTES));
        (driven * 1_000).checked_div(descriptors).unwrap_or(0)
    }

    /// Whether the driver reported each lost message once, and nothing else.
    const fn is_damage_raised(&self) -> bool {
        let Damage { sent, received, damaged, lost } = self.damage;
        // The last message may be lost without a report, because no later one reveals the loss.
        damaged > 0 && damaged <= lost + 1 && (received + lost == sent || received + lost + 1 == sent)
    }

    /// Whether the copy's share of a full frame's time is smaller on the faster processor.
    fn does_the_copy_diminish(&self) -> bool {
        let share = |profile: &str| {
            let mut copies = self.copies.iter();
            let copy = copies.find(|copy| (copy.profile, copy.bytes) == (profile, 1_480));
            copy.map_or(0.0, |copy| {
                copy.without_model_one_way_ps as f64 / copy.model_one_way_ps.max(1) as f64
            })
        };
        share(PLATFORMS[0].0) < share(PLATFORMS[1].0)
    }

    /// Throughput over size, a panel for each processor.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        const COLOURS: [&str; 5] = ["#1f77b4", "#d62728", "#ff7f0e", "#2ca02c", "#9467bd"];
        let mut panels = vec![self.tcp.panel()];
        for ((profile, _), driven) in PLATFORMS.into_iter().zip(DRIVEN) {
            let mut series = vec![Series {
                name: "theory: 7 us, 12.5 MB/s".to_owned(),
                style: Style::Line("#7f7f7f"),
                points: SIZES.map(|bytes| (f64::from(bytes), theory(bytes))).to_vec(),
            }];
            series.push(Series {
                name: "the earlier card, CPU-driven".to_owned(),
                style: Style::Line("#000000"),
                points: SIZES
                    .map(|bytes| {
                        (f64::from(bytes), megabytes_per_s(bytes, self.one_way_ps(driven, 0, bytes)))
                    })
                    .to_vec(),
            });
            for (window, colour) in WINDOWS.into_iter().zip(COLOURS) {
                let name =
                    if window == 0 { "no flow control".to_owned() } else { format!("window of {window}") };
                let points = SIZES.map(|bytes| {
                    (f64::from(bytes), megabytes_per_s(bytes, self.one_way_ps(profile, window, bytes)))
                });
                series.push(Series { name, style: Style::Line(colour), points: points.to_vec() });
            }
            panels.push(Panel {
                title: format!("GAMMA: throughput over size, {profile}, in the simulator"),
                x_label: "message (bytes)".to_owned(),
                y_label: "MB/s of model time".to_owned(),
                scale: Scale::Logarithmic,
                legend: Legend::Inside,
                series,
            });
        }
        panels
    }
}

/// The paper's lower bound of 7 us and 12.5 MB/s, in MB/s.
fn theory(bytes: u32) -> f64 {
    f64::from(bytes) / (7.0 + f64::from(bytes) / 12.5)
}

fn megabytes_per_s(bytes: u32, one_way_ps: u64) -> f64 {
    f64::from(bytes) / (one_way_ps.max(1) as f64 / 1e6)
}

fn configuration(profile: &str, window: u64, bytes: u32, nodes: u32) -> Result<SimConfig> {
    let model = NicModel::named("gamma").context("there is no model `gamma`")?;
    let mut nic = NicConfig::of(model);
    if DRIVEN.contains(&profile) {
        nic.set("transfer", Value::Word("cpu-driven".to_owned()))?;
    }
    nic.set("window_frames", Value::Number(window))?;
    let profile = Some(profile.to_owned());
    let file = ClusterFile { nodes: Some(nodes), profile, nic, ..ClusterFile::default() };
    let mut workload = Workload::new(WorkloadKind::PingPong);
    workload.message_bytes = bytes - TAG_BYTES;
    Ok(SimConfig::new(&Source::default().resolve(&file)?, "figures-gamma", &workload))
}

/// Half of a round trip.
fn one_way(config: &SimConfig, simulate: Simulate<'_>) -> Result<u64> {
    Ok(round_trips(config, ROUND_TRIPS, simulate)?.model.time_ps / (2 * ROUND_TRIPS))
}

fn round_trips(config: &SimConfig, count: u64, simulate: Simulate<'_>) -> Result<Report> {
    let workload = Workload { count, warmup: WARMUP.min(count), ..config.workload.clone() };
    let report = simulate(&SimConfig { workload, ..config.clone() })?;
    let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
    ensure!(receiver.messages_received >= count, "{} came", receiver.messages_received);
    Ok(report)
}

/// The 1 MiB messages, without flow control.
fn long(profile: &'static str, simulate: Simulate<'_>) -> Result<Size> {
    let config = configuration(profile, 0, LONG_BYTES, 2)?;
    let report = round_trips(&config, LONG_ROUND_TRIPS, simulate)?;
    let model_one_way_ps = report.model.time_ps / (2 * LONG_ROUND_TRIPS);
    Ok(Size { profile, window: 0, bytes: LONG_BYTES, model_one_way_ps })
}

/// Processor time for a message of one full frame, without flow control.
fn labour(profile: &'static str, simulate: Simulate<'_>) -> Result<Labour> {
    let report = round_trips(&configuration(profile, 0, FULL_BYTES, 2)?, ROUND_TRIPS, simulate)?;
    let entries = || report.nodes.iter().flat_map(|node| &node.ledger);
    let of = |kinds: &[&str]| {
        let sum: u64 = entries()
            .filter(|entry| kinds.contains(&&*entry.transaction))
            .map(|entry| entry.model_price_ps)
            .sum();
        sum / (2 * ROUND_TRIPS)
    };
    let is_driven = DRIVEN.contains(&profile);
    Ok(Labour {
        profile,
        model_software_ps: of(&["host_send", "host_receive"]),
        model_copy_ps: of(&["host_copy"]),
        model_programmed_ps: of(&["pio_write", "pio_read", "doorbell"]),
        // Cards with descriptors transfer without the processor.
        model_transfers_ps: if is_driven { of(&["dma_read", "dma_write"]) } else { 0 },
    })
}

/// Frames over a link with more bit errors than the paper's.
fn damage(simulate: Simulate<'_>) -> Result<Damage> {
    let mut config = configuration(PLATFORMS[1].0, 0, FULL_BYTES, 2)?;
    config.workload = Workload { kind: WorkloadKind::Stream, count: DAMAGED_OF, ..config.workload };
    for node in &mut config.nodes {
        // A frame crosses two links.
        node.link.faults.bit_errors = BIT_ERRORS / 2.0;
    }
    let report = simulate(&config)?;
    let [sender, receiver] = &report.nodes[..] else { anyhow::bail!("a report without its two nodes") };
    let named = |name: &str| receiver.nic_counts.get(name).copied().unwrap_or(0);
    Ok(Damage {
        sent: sender.messages_sent,
        received: receiver.messages_received,
        damaged: named("driver_damaged_frames"),
        lost: named("driver_lost_frames"),
    })
}

/// The fraction of full frames with at least one wrong bit.
fn frame_errors(bit_errors: f64) -> f64 {
    -(f64::from(FULL_BITS) * (-bit_errors).ln_1p()).exp_m1()
}

fn crowd(
    (workload, kind, slow_model_receive_ps): (&'static str, WorkloadKind, Option<u64>),
    window: u64,
    datagram_every: u64,
    simulate: Simulate<'_>,
) -> Result<Crowd> {
    let mut config = configuration(PLATFORMS[1].0, window, 1_024, NODES)?;
    config.workload.kind = kind;
    config.workload.count = if kind == WorkloadKind::AllToAll { 4 } else { MESSAGES_OF_EACH };
    config.workload.warmup = 0;
    config.workload.datagram_every = datagram_every;
    slow_model_receive_ps.into_iter().for_each(|ps| config.profile.host.receive_ps.value = ps);
    let report = simulate(&config)?;
    let sum = |count: &dyn Fn(&niclab_spec::report::NodeFigures) -> u64| report.nodes.iter().map(count).sum();
    let named = |name: &str| sum(&|node| node.nic_counts.get(name).copied().unwrap_or(0));
    Ok(Crowd {
        workload,
        slow_model_receive_ps,
        window,
        sent: sum(&|node| node.messages_sent),
        received: sum(&|node| node.messages_received),
        missed_frames: named("missed_frames") + named("fifo_overflows"),
        acknowledgements: named("driver_acknowledgements"),
        datagrams: named("driver_datagrams_out"),
        datagrams_received: named("driver_datagrams_in"),
    })
}

/// Bytes per second, if a message takes this time.
#[must_use]
pub fn rate(bytes: u32, one_way_ps: u64) -> u64 {
    u64::try_from(u128::from(bytes) * PS_PER_S / u128::from(one_way_ps.max(1))).unwrap_or(u64::MAX)
}
