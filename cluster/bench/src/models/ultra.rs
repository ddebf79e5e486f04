//! The ULTRA paper's figure 7, and the other numbers of its section 4.
//!
//! The paper measured the card alone: requester and completer connected to each other, and nothing else. So does this:
//!
//! * latency at the card: the cycles of Load, TX, RX and Store that one message of a ping-pong takes;
//! * bandwidth at the card: what a stream carries between hosts whose software costs nothing, over links that limit
//!   nothing, so that the card is what limits it. Packets are counted as the paper counts them, payload and tag.
//!
//! "End to end" is the whole way, from one program to the other, with software, bus, link and switch. One port has all of
//! the FIFO RAM, as the only one that is used.
//!
//! A rate is taken between two streams of different length, so that neither filling nor draining is in it.

use anyhow::{Context, Result, ensure};
use niclab_cluster::{output::table, programs::simulator::Simulator};
use niclab_spec::{
    ClusterFile, Report, SimConfig, Source, Value, Workload, WorkloadKind, report::LedgerEntry,
};
use serde::Serialize;

use super::Benches;
use crate::{
    device::Row,
    figure::Goal,
    figures::{
        Made, PaperFigures,
        compared::{self, Compared, Published},
        plot::{Legend, Panel, Scale, Series, Style},
    },
};

pub(super) const BENCHES: Benches = Benches {
    figures: &[PaperFigures {
        name: "ultra",
        help: "ULTRA: latency and bandwidth over packet size",
        file: "ultra.txt",
        make: |offline| {
            let simulator = Simulator::locate(offline)?;
            let figures = UltraFigures::measure(&mut |config| simulator.run(config))?;
            let compared = figures.compared();
            Made::new(&figures, figures.text(&compared), &figures.panels(), compared, true)
        },
    }],
    sections: &[],
    device: &[
        Row {
            name: "device_message_rate",
            what: "requester pages, 16 bytes, one core, ledger on",
            unit: ("M messages/s", 1e-6),
            pointer: "/ultra/wall_messages_per_s",
            goal: Some(Goal::AtLeast(3.0)),
        },
        Row {
            name: "device_ledger_rate",
            what: "message rate: ledger on over off, in turns",
            unit: ("times", 1.0),
            pointer: "/ultra/wall_rate_ledger_on_over_off",
            goal: Some(Goal::AtLeast(0.9)),
        },
        Row {
            name: "device_one_way",
            what: "requester pages, 16 bytes, p50 one way",
            unit: ("ns", 1.0),
            pointer: "/ultra/wall_one_way_p50_ns",
            goal: Some(Goal::Below(1_000.0)),
        },
    ],
    simulated: &[],
};

/// The version of [`UltraFigures`].
pub const ULTRA_FIGURES_VERSION: u32 = 2;

const PROFILE: &str = "htx-200mhz-fitted";
const WORD_BYTES: u64 = 8;
/// Words of the tag, which every packet carries (section 4).
const TAG_WORDS: u64 = 2;
/// Words of the largest packet: a cache line and the tag (section 4).
const MAX_WORDS: u64 = 10;
/// Words of the FIFO RAM: 1 KB (section 3.1).
const FIFO_WORDS: u64 = 128;
/// So fast that the longest packet passes within a few picoseconds: requester and completer connected to each other.
const UNLIMITED_BITS_PER_S: u64 = 1_000_000_000_000_000;
const ROUND_TRIPS: u64 = 100;
const SHORT_STREAM: u64 = 1_000;
const LONG_STREAM: u64 = 3_000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// Figure 7, and what the paper says in numbers. All times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UltraFigures {
    /// [`ULTRA_FIGURES_VERSION`].
    pub version: u32,
    /// The platform profile.
    pub profile: String,
    /// One for each size of a packet.
    pub sizes: Vec<Size>,
}

/// Packets of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Payload and tag.
    pub packet_bytes: u64,
    /// What the program sends.
    pub payload_bytes: u64,
    /// Load, TX, RX and Store.
    pub model_card_latency_ps: u64,
    /// Payload and tag, where the card is the limit.
    pub model_card_bytes_per_s: u64,
    /// From the start of the sender's software to the end of the receiver's.
    pub model_end_to_end_latency_ps: u64,
    /// Payload and tag, where the sender's software takes its time as well.
    pub model_end_to_end_bytes_per_s: u64,
}

impl UltraFigures {
    /// Measures them with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report lacks what belongs in it.
    pub fn measure(simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>) -> Result<Self> {
        let sizes: Vec<Size> =
            (TAG_WORDS..=MAX_WORDS).map(|words| Size::measure(words, simulate)).collect::<Result<_>>()?;
        Ok(Self { version: ULTRA_FIGURES_VERSION, profile: PROFILE.to_owned(), sizes })
    }

    /// Section 4 beside these.
    #[must_use]
    pub fn compared(&self) -> Vec<Compared> {
        let ends = self.sizes.first().zip(self.sizes.last());
        ends.map(|(least, most)| compare(least, most)).unwrap_or_default()
    }

    /// Both as tables.
    #[must_use]
    pub fn text(&self, compared: &[Compared]) -> String {
        let mut rows = vec![
            ["packet bytes", "payload bytes", "card ns", "card MB/s", "end-to-end ns", "end-to-end MB/s"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for size in &self.sizes {
            rows.push(vec![
                size.packet_bytes.to_string(),
                size.payload_bytes.to_string(),
                format!("{:.3}", ns(size.model_card_latency_ps)),
                format!("{:.1}", megabytes(size.model_card_bytes_per_s)),
                format!("{:.3}", ns(size.model_end_to_end_latency_ps)),
                format!("{:.1}", megabytes(size.model_end_to_end_bytes_per_s)),
            ]);
        }
        format!(
            "ULTRA in the simulator, profile {}; all times are model time\n\n{}\n{}",
            self.profile,
            table(&rows),
            compared::text(compared)
        )
    }

    /// The paper's figure 7, and the way end to end in the same areas.
    #[must_use]
    pub fn panels(&self) -> [Panel; 2] {
        let line = |name: &str, colour, of: &dyn Fn(&Size) -> f64| Series {
            name: name.to_owned(),
            style: Style::Line(colour),
            points: self.sizes.iter().map(|size| (size.packet_bytes as f64, of(size))).collect(),
        };
        let rings = |points: &[(f64, f64)]| Series {
            name: "the paper's numbers".to_owned(),
            style: Style::Rings("#d62728"),
            points: points.to_vec(),
        };
        let panel = |title: &str, y_label: &str, series| Panel {
            title: format!("ULTRA at 200 MHz: {title}, in the simulator"),
            x_label: "packet, payload and tag (bytes)".to_owned(),
            y_label: y_label.to_owned(),
            scale: Scale::Linear,
            legend: Legend::Inside,
            series,
        };
        [
            panel(
                "latency",
                "model time (ns)",
                vec![
                    line("at the card", "#1f77b4", &|size| ns(size.model_card_latency_ps)),
                    line("end to end, with software, bus and switch", "#7f7f7f", &|size| {
                        ns(size.model_end_to_end_latency_ps)
                    }),
                    rings(&[(16.0, 115.0), (80.0, 380.0)]),
                ],
            ),
            panel(
                "bandwidth",
                "MB/s of model time",
                vec![
                    line("at the card", "#1f77b4", &|size| megabytes(size.model_card_bytes_per_s)),
                    line("end to end, one program that sends", "#7f7f7f", &|size| {
                        megabytes(size.model_end_to_end_bytes_per_s)
                    }),
                    rings(&[(16.0, 325.0), (80.0, 700.0)]),
                ],
            ),
        ]
    }
}

/// What was chosen so that Load, TX, RX and Store come to 23 and 76 cycles, and to 325 MB/s.
const MACHINES: &str = "cycles of the card's four machines";

/// Section 4.
fn compare(least: &Size, most: &Size) -> Vec<Compared> {
    let latency = |what: &str, paper, model| Compared::new("section 4", what, "ns", paper).ours(ns(model), 2);
    let rate =
        |what: &str, paper, model| Compared::new("section 4", what, "MB/s", paper).ours(megabytes(model), 1);
    let below = || Published::Below(1_000.0);
    vec![
        latency("latency at the card, 2 words", Published::number(115.0), least.model_card_latency_ps)
            .fitted(MACHINES),
        latency("latency at the card, 10 words", Published::number(380.0), most.model_card_latency_ps)
            .fitted(MACHINES),
        rate("bandwidth at the card, 16 bytes", Published::number(325.0), least.model_card_bytes_per_s)
            .fitted(MACHINES),
        rate("bandwidth at the card, 80 bytes", Published::Above(700.0), most.model_card_bytes_per_s)
            .follows(MACHINES),
        latency("end to end with core and switch, 2 words", below(), least.model_end_to_end_latency_ps)
            .follows(MACHINES),
        latency("end to end with core and switch, 10 words", below(), most.model_end_to_end_latency_ps)
            .follows(MACHINES),
    ]
}

fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Size {
    fn measure(words: u64, simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>) -> Result<Self> {
        let packet_bytes = words * WORD_BYTES;
        let payload_bytes = (words - TAG_WORDS) * WORD_BYTES;
        let whole = configuration(payload_bytes)?;
        let ping_pong = simulate(&with(&whole, WorkloadKind::PingPong, ROUND_TRIPS))?;
        let latency = &ping_pong.model.latency;
        ensure!(latency.count > 0, "no message of {payload_bytes} bytes arrived in the ping-pong");
        let messages = ping_pong.nodes.iter().map(|node| node.messages_received).sum();
        Ok(Self {
            packet_bytes,
            payload_bytes,
            model_card_latency_ps: card_latency_ps(&ping_pong.total, messages)?,
            model_card_bytes_per_s: rate(&card_alone(&whole), packet_bytes, simulate)?,
            model_end_to_end_latency_ps: latency.sum_ps / latency.count,
            model_end_to_end_bytes_per_s: rate(&whole, packet_bytes, simulate)?,
        })
    }
}

/// Two nodes on the paper's platform.
fn configuration(payload_bytes: u64) -> Result<SimConfig> {
    let mut file =
        ClusterFile { nodes: Some(2), profile: Some(PROFILE.to_owned()), ..ClusterFile::default() };
    for fifo in ["fifo_words_per_port", "completer_fifo_words_per_port"] {
        let all_of_it = vec![FIFO_WORDS, 0, 0, 0, 0, 0, 0, 0];
        file.nic.set(fifo, Value::Numbers(all_of_it))?;
    }
    let cluster = Source::default().resolve(&file)?;
    let mut workload = Workload::new(WorkloadKind::PingPong);
    workload.message_bytes = u32::try_from(payload_bytes)?;
    // So many that none of a ping-pong's has to be released, which the cards would tell each other.
    workload.slices = 4096;
    Ok(SimConfig::new(&cluster, "figures-ultra", &workload))
}

/// The same with nothing but the cards to limit it.
fn card_alone(config: &SimConfig) -> SimConfig {
    let mut config = config.clone();
    let host = &mut config.profile.host;
    for price in [&mut host.send_ps, &mut host.receive_ps, &mut host.copy_per_byte_ps] {
        price.value = 0;
    }
    for node in &mut config.nodes {
        node.link.bandwidth_bits_per_s = UNLIMITED_BITS_PER_S;
    }
    config
}

fn with(config: &SimConfig, kind: WorkloadKind, count: u64) -> SimConfig {
    let workload = Workload { kind, count, ..config.workload.clone() };
    SimConfig { workload, ..config.clone() }
}

/// The cycles of the cards' machines, for each message.
fn card_latency_ps(ledger: &[LedgerEntry], messages: u64) -> Result<u64> {
    let cycles = ledger.iter().find(|entry| entry.crossing == "ni_cycles");
    let cycles = cycles.context("the simulator's report prices no cycles of the card")?;
    ensure!(messages > 0, "no message arrived in the ping-pong");
    Ok((cycles.model_price_ps + cycles.model_waited_ps) / messages)
}

fn rate(
    config: &SimConfig,
    packet_bytes: u64,
    simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>,
) -> Result<u64> {
    let mut time_ps =
        |count| simulate(&with(config, WorkloadKind::Stream, count)).map(|report| report.model.time_ps);
    let (short_ps, long_ps) = (time_ps(SHORT_STREAM)?, time_ps(LONG_STREAM)?);
    ensure!(long_ps > short_ps, "a longer stream took no longer: {long_ps} ps after {short_ps} ps");
    let bytes = u128::from((LONG_STREAM - SHORT_STREAM) * packet_bytes);
    Ok(u64::try_from(bytes * PS_PER_S / u128::from(long_ps - short_ps))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_the_cards_cycles_is_an_error() {
        let error = card_latency_ps(&[], 5).unwrap_err().to_string();
        assert!(error.contains("no cycles of the card"), "{error}");
    }
}
