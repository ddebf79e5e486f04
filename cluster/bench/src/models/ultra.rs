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
        plot::{Legend, Panel, Scale, Series, Style},
    },
};

pub(super) const BENCHES: Benches = Benches {
    figures: &[PaperFigures {
        name: "ultra",
        help: "ULTRA: latency and bandwidth over packet size",
        make: |offline| {
            let simulator = Simulator::locate(offline)?;
            let figures = UltraFigures::measure(&mut |config| simulator.run(config))?;
            Made::new(&figures, figures.text(), &figures.panels(), figures.hold())
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
pub const ULTRA_FIGURES_VERSION: u32 = 1;

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
    /// The paper's numbers beside these.
    pub compared: Vec<Compared>,
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

/// A number of the paper beside the simulator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Which.
    pub figure: String,
    /// Picoseconds, or bytes a second.
    pub unit: Unit,
    /// What the paper says of it.
    pub claim: Claim,
    /// The paper's number.
    pub paper: u64,
    /// The simulator's, in model time.
    pub model: u64,
    /// How far the simulator's is above the paper's, in thousandths of a percent of the paper's.
    pub difference_millipercent: i64,
    /// Whether the claim holds; a number that is given holds within 1 %.
    pub holds: bool,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Time.
    Ps,
    /// Rate.
    BytesPerS,
}

/// How the paper puts a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// It is this.
    Equal,
    /// It is less.
    Below,
    /// It is more.
    Above,
}

impl Compared {
    fn new(figure: &str, unit: Unit, claim: Claim, paper: u64, model: u64) -> Self {
        let difference = (i128::from(model) - i128::from(paper)) * 100_000 / i128::from(paper.max(1));
        let difference_millipercent = i64::try_from(difference).unwrap_or(i64::MAX);
        let holds = match claim {
            Claim::Equal => difference_millipercent.abs() <= 1_000,
            Claim::Below => model < paper,
            Claim::Above => model > paper,
        };
        Self { figure: figure.to_owned(), unit, claim, paper, model, difference_millipercent, holds }
    }
}

impl UltraFigures {
    /// Measures them with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report lacks what belongs in it.
    pub fn measure(simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>) -> Result<Self> {
        let sizes: Vec<Size> =
            (TAG_WORDS..=MAX_WORDS).map(|words| Size::measure(words, simulate)).collect::<Result<_>>()?;
        let compared = sizes.first().zip(sizes.last()).map(|(least, most)| compare(least, most));
        Ok(Self {
            version: ULTRA_FIGURES_VERSION,
            profile: PROFILE.to_owned(),
            sizes,
            compared: compared.unwrap_or_default(),
        })
    }

    /// Whether every claim of the paper holds.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.compared.iter().all(|compared| compared.holds)
    }

    /// Both as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let mut rows = vec![
            ["packet bytes", "payload bytes", "card ns", "card MB/s", "end-to-end ns", "end-to-end MB/s"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for size in &self.sizes {
            rows.push(vec![
                size.packet_bytes.to_string(),
                size.payload_bytes.to_string(),
                number(size.model_card_latency_ps, Unit::Ps),
                number(size.model_card_bytes_per_s, Unit::BytesPerS),
                number(size.model_end_to_end_latency_ps, Unit::Ps),
                number(size.model_end_to_end_bytes_per_s, Unit::BytesPerS),
            ]);
        }
        let mut claims =
            vec![["section 4", "unit", "paper", "simulator", "difference", ""].map(str::to_owned).to_vec()];
        claims.extend(self.compared.iter().map(row));
        format!(
            "ULTRA in the simulator, profile {}; all times are model time\n\n{}\n{}",
            self.profile,
            table(&rows),
            table(&claims)
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
        let ns = |ps: u64| ps as f64 / 1e3;
        let mb = |bytes: u64| bytes as f64 / 1e6;
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
                    line("at the card", "#1f77b4", &|size| mb(size.model_card_bytes_per_s)),
                    line("end to end, one program that sends", "#7f7f7f", &|size| {
                        mb(size.model_end_to_end_bytes_per_s)
                    }),
                    rings(&[(16.0, 325.0), (80.0, 700.0)]),
                ],
            ),
        ]
    }
}

/// Section 4.
fn compare(least: &Size, most: &Size) -> Vec<Compared> {
    use {Claim::*, Unit::*};
    let latency =
        |figure, claim, paper_ns: u64, model| Compared::new(figure, Ps, claim, paper_ns * 1_000, model);
    let rate = |figure, claim, paper_mb: u64, model| {
        Compared::new(figure, BytesPerS, claim, paper_mb * 1_000_000, model)
    };
    vec![
        latency("latency at the card, 2 words", Equal, 115, least.model_card_latency_ps),
        latency("latency at the card, 10 words", Equal, 380, most.model_card_latency_ps),
        rate("bandwidth at the card, 16 bytes", Equal, 325, least.model_card_bytes_per_s),
        rate("bandwidth at the card, 80 bytes", Above, 700, most.model_card_bytes_per_s),
        latency("end to end with core and switch, 2 words", Below, 1_000, least.model_end_to_end_latency_ps),
        latency("end to end with core and switch, 10 words", Below, 1_000, most.model_end_to_end_latency_ps),
    ]
}

fn row(compared: &Compared) -> Vec<String> {
    let sign = match compared.claim {
        Claim::Equal => "",
        Claim::Below => "< ",
        Claim::Above => "> ",
    };
    let unit = match compared.unit {
        Unit::Ps => "ns",
        Unit::BytesPerS => "MB/s",
    };
    vec![
        compared.figure.clone(),
        unit.to_owned(),
        format!("{sign}{}", number(compared.paper, compared.unit)),
        number(compared.model, compared.unit),
        format!("{:+.2}%", compared.difference_millipercent as f64 / 1e3),
        if compared.holds { "holds" } else { "does not hold" }.to_owned(),
    ]
}

/// Nanoseconds, or megabytes a second.
fn number(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Ps => format!("{:.3}", value as f64 / 1e3),
        Unit::BytesPerS => format!("{:.1}", value as f64 / 1e6),
    }
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
    fn a_claim_holds_within_one_percent_or_on_its_side() {
        let compared = |claim, paper, model| Compared::new("", Unit::Ps, claim, paper, model);
        for (claim, paper, model, difference, holds) in [
            (Claim::Equal, 115_000, 115_000, 0, true),
            (Claim::Equal, 100_000, 101_000, 1_000, true),
            (Claim::Equal, 100_000, 98_900, -1_100, false),
            (Claim::Below, 1_000_000, 1_000_000, 0, false),
            (Claim::Below, 1_000_000, 600_000, -40_000, true),
            (Claim::Above, 700, 732, 4_571, true),
            (Claim::Above, 700, 699, -142, false),
        ] {
            let found = compared(claim, paper, model);
            assert_eq!((found.difference_millipercent, found.holds), (difference, holds), "{found:?}");
        }
    }

    #[test]
    fn a_report_without_the_cards_cycles_is_an_error() {
        let error = card_latency_ps(&[], 5).unwrap_err().to_string();
        assert!(error.contains("no cycles of the card"), "{error}");
    }
}
