//! The GAMMA paper's figures 2 and 3: throughput over size, without flow control and with windows of several sizes, on both of its
//! processors; and what section 3 says of a hundred nodes.
//!
//! As the paper did, all is taken from round trips of a polling program. A message of the simulator begins with 16 bytes by which
//! programs know their messages: they count as the message's.

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

pub(super) const BENCHES: Benches = Benches {
    figures: &[PaperFigures {
        name: "gamma",
        help: "GAMMA: throughput over size with windows of 4 to 32 frames, on two processors; buffers of a hundred nodes",
        make: |offline| {
            let simulator = Simulator::locate(offline)?;
            let figures = GammaFigures::measure(&mut |config| simulator.run(config))?;
            Made::new(&figures, text::text(&figures), &figures.panels(), figures.hold())
        },
    }],
    sections: &[],
    device: &[],
    simulated: &[],
};

/// The version of [`GammaFigures`].
pub const GAMMA_FIGURES_VERSION: u32 = 1;

/// The processors of figures 2 and 3, the paper's shortest message on each, and the colour of its line.
const PLATFORMS: [(&str, f64); 2] = [("fast-ethernet-p133", 17.0), ("fast-ethernet-pii350", 14.0)];
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
            for bytes in SIZES {
                let mut config = configuration(profile, 0, bytes, 2)?;
                let model_one_way_ps = one_way(&config, simulate)?;
                config.profile.host.copy_per_byte_ps.value = 0;
                let without_model_one_way_ps = one_way(&config, simulate)?;
                copies.push(Copy { profile, bytes, model_one_way_ps, without_model_one_way_ps });
            }
        }
        let kinds = [
            ("incast", WorkloadKind::Incast, None),
            ("incast, slow receiver", WorkloadKind::Incast, Some(SLOW_RECEIVE_PS)),
            ("random", WorkloadKind::Random, None),
            ("all to all", WorkloadKind::AllToAll, None),
        ];
        let mut crowds = Vec::new();
        for (workload, kind, slow) in kinds {
            for window in [8, 0] {
                crowds.push(crowd(workload, kind, slow, window, simulate)?);
            }
        }
        Ok(Self { version: GAMMA_FIGURES_VERSION, sizes, copies, crowds })
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

    /// Whether what the paper says without numbers holds: a window of 4 substantially affects throughput, one of 8 less, some tens
    /// hardly; a quicker processor diminishes the copy's share; with windows nothing is lost by a hundred nodes.
    #[must_use]
    pub fn hold(&self) -> bool {
        let windows = PLATFORMS.iter().all(|(profile, _)| self.do_windows_hold(profile));
        let crowds = self.crowds.iter().filter(|crowd| crowd.window > 0);
        let is_lossless =
            crowds.into_iter().all(|crowd| crowd.missed_frames == 0 && crowd.sent == crowd.received);
        windows && is_lossless && self.does_the_copy_diminish()
    }

    fn do_windows_hold(&self, profile: &str) -> bool {
        let lost = [4, 8, 32].map(|window| self.lost_permille(profile, window));
        lost[0] > lost[1] && lost[1] > lost[2] && lost[2] < 30
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
        let mut panels = Vec::new();
        for (profile, _) in PLATFORMS {
            let mut series = vec![Series {
                name: "theory: 7 us, 12.5 MB/s".to_owned(),
                style: Style::Line("#7f7f7f"),
                points: SIZES.map(|bytes| (f64::from(bytes), theory(bytes))).to_vec(),
            }];
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
    nic.set("window_frames", Value::Number(window))?;
    let profile = Some(profile.to_owned());
    let file = ClusterFile { nodes: Some(nodes), profile, nic, ..ClusterFile::default() };
    let mut workload = Workload::new(WorkloadKind::PingPong);
    workload.message_bytes = bytes - TAG_BYTES;
    Ok(SimConfig::new(&Source::default().resolve(&file)?, "figures-gamma", &workload))
}

/// Half of a round trip.
fn one_way(config: &SimConfig, simulate: Simulate<'_>) -> Result<u64> {
    let workload = Workload { count: ROUND_TRIPS, warmup: WARMUP, ..config.workload.clone() };
    let report = simulate(&SimConfig { workload, ..config.clone() })?;
    let receiver = report.nodes.get(1).context("the simulator's report lacks the receiver")?;
    ensure!(receiver.messages_received >= ROUND_TRIPS, "{} came", receiver.messages_received);
    Ok(report.model.time_ps / (2 * ROUND_TRIPS))
}

fn crowd(
    workload: &'static str,
    kind: WorkloadKind,
    slow_model_receive_ps: Option<u64>,
    window: u64,
    simulate: Simulate<'_>,
) -> Result<Crowd> {
    let mut config = configuration(PLATFORMS[1].0, window, 1_024, NODES)?;
    config.workload.kind = kind;
    config.workload.count = if kind == WorkloadKind::AllToAll { 4 } else { MESSAGES_OF_EACH };
    config.workload.warmup = 0;
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
    })
}

/// Bytes a second, where a message takes so long.
#[must_use]
pub fn rate(bytes: u32, one_way_ps: u64) -> u64 {
    u64::try_from(u128::from(bytes) * PS_PER_S / u128::from(one_way_ps.max(1))).unwrap_or(u64::MAX)
}
