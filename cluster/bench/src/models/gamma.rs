//! The GAMMA paper's figures: TCP; throughput over size, without flow control and with windows of several sizes, and of
//! the earlier card whose transfers the processor drives, on both processors; what section 3 says of a hundred nodes;
//! and of damage on links.
//!
//! As the paper did, all is taken from round trips of a polling program. A message of the simulator begins with 16
//! bytes by which programs know their messages: they count as the message's.

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
            help: "GAMMA: throughput over size, CPU-driven and with windows of 4 to 32 frames, on two processors; a hundred nodes; bit errors",
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
            help: "GAMMA cards in guests that are booted for it, polled, interrupting for each frame, and mitigating: round trips, interrupts",
            file: "gamma-live.txt",
            make: |offline| {
                let figures = live::LiveFigures::measure(offline)?;
                Made::new(&figures, figures.text(), &figures.panels(), Vec::new(), figures.hold())
            },
        },
    ],
    sections: &[BenchSection {
        name: "gamma-guests",
        help: "Four guests: GAMMA cards, polled and interrupting, beside TCP over QEMU's network and over its tulip",
        what: "four guests: GAMMA beside TCP over -netdev stream and over tulip",
        boots_guests: true,
        measure: guests::measure,
    }],
    ..Benches::NONE
};

/// The version of [`GammaFigures`].
pub const GAMMA_FIGURES_VERSION: u32 = 3;

/// The processors of figures 2 and 3, the paper's shortest message on each, and the colour of its line.
const PLATFORMS: [(&str, f64); 2] = [("fast-ethernet-p133", 17.0), ("fast-ethernet-pii350", 14.0)];
/// The same processors with the earlier card, whose transfers they drive.
const DRIVEN: [&str; 2] = ["fast-ethernet-3c595-p133", "fast-ethernet-3c595-pii350"];
/// The shortest message on it, and the throughput of long ones in MB/s (section 1).
const DRIVEN_PAPER: (f64, f64) = (12.7, 12.2);
/// Messages that take so long that what they take at either end does not show, and how many of them go back and forth.
const LONG_BYTES: u32 = 1 << 20;
const LONG_ROUND_TRIPS: u64 = 3;
/// A message that fills one frame.
const FULL_BYTES: u32 = 1_480;
/// Bits in 10^10 that are wrong, in the paper and in the simulation, which would be long otherwise; and frames of the
/// latter.
const PAPER_BIT_ERRORS: f64 = 1e-10;
const BIT_ERRORS: f64 = 1e-7;
const DAMAGED_OF: u64 = 10_000;
/// Bits of such a message on the wire that a check sequence covers: Ethernet's header, that of the driver, and both
/// sequences.
const FULL_BITS: u32 = 8 * (14 + 8 + FULL_BYTES + 4);
/// Windows of both figures; 0: no flow control.
const WINDOWS: [u64; 5] = [0, 4, 8, 16, 32];
/// Bytes of a message that no payload is.
const TAG_BYTES: u32 = 16;
const SIZES: [u32; 13] = [16, 32, 64, 128, 256, 512, 1_024, 1_480, 2_048, 4_096, 8_192, 16_384, 32_768];
const ROUND_TRIPS: u64 = 40;
const WARMUP: u64 = 4;
/// Receiving software that takes longer for a frame than the wire does.
const SLOW_RECEIVE_PS: u64 = 150_000_000;
/// Section 3's cluster.
const NODES: u32 = 100;
const MESSAGES_OF_EACH: u64 = 100;
/// Messages behind which each node sends a datagram: of each sender one is under way with its window, 99 of 133.
const DATAGRAM_EVERY: u64 = 8;
const PS_PER_S: u128 = 1_000_000_000_000;

type Simulate<'a> = &'a mut dyn FnMut(&SimConfig) -> Result<Report>;

/// All of it. Times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GammaFigures {
    /// [`GAMMA_FIGURES_VERSION`].
    pub version: u32,
    /// Throughput over size.
    pub sizes: Vec<Size>,
    /// The same messages, with nothing charged for the copy.
    pub copies: Vec<Copy>,
    /// A hundred nodes at once.
    pub crowds: Vec<Crowd>,
    /// What the processors do for a message of one full frame.
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

/// What the receiver's copy takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Copy {
    /// The platform.
    pub profile: &'static str,
    /// Bytes of the message.
    pub bytes: u32,
    /// Half of a round trip.
    pub model_one_way_ps: u64,
    /// The same if copies took no time.
    pub without_model_one_way_ps: u64,
}

/// What both processors do for one message, in both directions of a round trip alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Labour {
    /// The platform.
    pub profile: &'static str,
    /// System call, driver and handler.
    pub model_software_ps: u64,
    /// The copy.
    pub model_copy_ps: u64,
    /// Programmed I/O: stores, and loads for which the processor waits.
    pub model_programmed_ps: u64,
    /// Transfers for which the processor waits.
    pub model_transfers_ps: u64,
}

/// Frames on a link with bit errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Frames sent, each a message.
    pub sent: u64,
    /// Those that came sound.
    pub received: u64,
    /// Those that came damaged, as the driver raised them.
    pub damaged: u64,
    /// Those that it raised as lost, since a later one has come.
    pub lost: u64,
}

/// Messages among a hundred nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crowd {
    /// Who sends to whom.
    pub workload: &'static str,
    /// What the receiving software takes for each frame; none: what the profile says.
    pub slow_model_receive_ps: Option<u64>,
    /// Frames of the window; 0: no flow control.
    pub window: u64,
    /// Messages sent.
    pub sent: u64,
    /// Those that came.
    pub received: u64,
    /// Frames that found no buffer, at all nodes.
    pub missed_frames: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Datagrams sent beside the messages, over the same rings.
    pub datagrams: u64,
    /// Those that came.
    pub datagrams_received: u64,
}

impl Crowd {
    /// Whether all came, and found a buffer.
    const fn is_whole(&self) -> bool {
        self.missed_frames == 0 && self.sent == self.received && self.datagrams == self.datagrams_received
    }
}

impl GammaFigures {
    /// Measures them with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report lacks what belongs in it.
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

    /// What a window takes of the throughput of the longest messages without flow control, in thousandths.
    fn lost_permille(&self, profile: &str, window: u64) -> u64 {
        let [without, with] =
            [0, window].map(|window| self.one_way_ps(profile, window, SIZES[SIZES.len() - 1]));
        1_000_u64.saturating_sub((without * 1_000).checked_div(with).unwrap_or(0))
    }

    /// Throughput of the longest messages, in MB/s.
    fn long_rate(&self, profile: &str) -> f64 {
        megabytes_per_s(LONG_BYTES, self.one_way_ps(profile, 0, LONG_BYTES))
    }

    /// Whether the quicker processor takes less than a tenth of the latency of CPU-driven cards (section 5: virtually
    /// insensitive).
    fn does_a_quick_processor_hardly_help(&self) -> bool {
        let [slow, quick] = DRIVEN.map(|profile| self.one_way_ps(profile, 0, SIZES[0]));
        quick <= slow && (slow - quick) * 10 < slow
    }

    /// Throughput of a full frame by descriptors, in thousandths of what it is CPU-driven on the same processor.
    fn of_driven_permille(&self, place: usize) -> u64 {
        let [descriptors, driven] =
            [PLATFORMS[place].0, DRIVEN[place]].map(|profile| self.one_way_ps(profile, 0, FULL_BYTES));
        (driven * 1_000).checked_div(descriptors).unwrap_or(0)
    }

    /// Whether each message that did not come was raised once, and nothing else was.
    const fn is_damage_raised(&self) -> bool {
        let Damage { sent, received, damaged, lost } = self.damage;
        // The last one may be missing, with none after it by which anybody would know.
        damaged > 0 && damaged <= lost + 1 && (received + lost == sent || received + lost + 1 == sent)
    }

    /// Whether the copy of a full frame takes a smaller part of its way on the quicker processor.
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

/// What the paper's lower bound of 7 us and 12.5 MB/s give, in MB/s.
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

/// The longest messages, without flow control.
fn long(profile: &'static str, simulate: Simulate<'_>) -> Result<Size> {
    let config = configuration(profile, 0, LONG_BYTES, 2)?;
    let report = round_trips(&config, LONG_ROUND_TRIPS, simulate)?;
    let model_one_way_ps = report.model.time_ps / (2 * LONG_ROUND_TRIPS);
    Ok(Size { profile, window: 0, bytes: LONG_BYTES, model_one_way_ps })
}

/// What the processors do for a message of one full frame, without flow control.
fn labour(profile: &'static str, simulate: Simulate<'_>) -> Result<Labour> {
    let report = round_trips(&configuration(profile, 0, FULL_BYTES, 2)?, ROUND_TRIPS, simulate)?;
    let entries = || report.nodes.iter().flat_map(|node| &node.ledger);
    let of = |kinds: &[&str]| {
        let sum: u64 = entries()
            .filter(|entry| kinds.contains(&&*entry.crossing))
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
        // Cards with descriptors transfer by themselves.
        model_transfers_ps: if is_driven { of(&["dma_read", "dma_write"]) } else { 0 },
    })
}

/// Frames over a link with more bit errors than the paper's.
fn damage(simulate: Simulate<'_>) -> Result<Damage> {
    let mut config = configuration(PLATFORMS[1].0, 0, FULL_BYTES, 2)?;
    config.workload = Workload { kind: WorkloadKind::Stream, count: DAMAGED_OF, ..config.workload };
    for node in &mut config.nodes {
        // A frame goes over two links.
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

/// The part of full frames of which a bit is wrong.
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

/// Bytes a second, where a message takes so long.
#[must_use]
pub fn rate(bytes: u32, one_way_ps: u64) -> u64 {
    u64::try_from(u128::from(bytes) * PS_PER_S / u128::from(one_way_ps.max(1))).unwrap_or(u64::MAX)
}
