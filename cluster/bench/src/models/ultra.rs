//! The ULTRA paper's figure 7, and the other numbers of its section 4.
//!
//! The paper measured the card alone: requester and completer connected to each other, and nothing else. These figures
//! do the same: hosts, buses, links and switch take no time, so only the card's time remains:
//!
//! * latency at the card: from the first word of a burst at Load to the last word of the slice at Store, in a
//!   ping-pong;
//! * bandwidth at the card: the rate of a stream. As in the paper, a packet counts with payload and tag.
//!
//! "End to end" is the path from one program to the other, with software, bus, link and switch. The switch has both
//! values of the paper: about 90 ns (section 2) and 27 cycles (section 4), here of 200 MHz. One port has all of the
//! FIFO RAM, because only one is used.
//!
//! There are three cards, and the two that the paper announces. The first has states from the text, which were fixed
//! before their results were known. The second has the same states, and machines that process whole packets. The third
//! has the eight fitted constants.
//!
//! A rate is the difference of two streams of different length, which excludes filling and draining.

use anyhow::{Result, ensure};
use niclab_cluster::{output::table, programs::simulator::Simulator};
use niclab_spec::{ClusterFile, Report, SimConfig, Source, Value, Workload, WorkloadKind};
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
    instructions::{Program, Work},
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
            what: "message rate: ledger on over off, alternating",
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
        Row {
            name: "device_two_pairs",
            what: "message rate: two disjoint pairs on two cores over one pair, alternating",
            unit: ("times", 1.0),
            pointer: "/ultra/wall_rate_two_pairs_over_one",
            goal: Some(Goal::AtLeast(1.8)),
        },
        Row {
            name: "device_two_pairs_apart",
            what: "message rate: two disjoint pairs over two separate devices, alternating",
            unit: ("times", 1.0),
            pointer: "/ultra/wall_rate_two_pairs_over_apart",
            goal: Some(Goal::AtLeast(0.9)),
        },
    ],
    counted: &[
        Work {
            name: "ultra_message",
            unit: "a message of 16 bytes through requester pages, from store to load",
            program: Program::Device,
            arguments: &["slices"],
            units: 10_000,
        },
        Work {
            name: "ultra_message_rules",
            unit: "the same, with both ends checked for the rules for drivers",
            program: Program::Device,
            arguments: &["slices-rules"],
            units: 10_000,
        },
    ],
    ..Benches::NONE
};

/// The version of [`UltraFigures`].
pub const ULTRA_FIGURES_VERSION: u32 = 3;

/// The cards: description, platform profile, and how machines pass packets on, if not as in the profile.
const CARDS: [(&str, &str, Option<&str>); 5] = [
    ("word by word", "htx-200mhz", None),
    ("the same states, whole packets", "htx-200mhz", Some("store-and-forward")),
    ("fitted cycles, whole packets", "htx-200mhz-fitted", None),
    ("word by word, an ASIC three times as fast", "htx-asic-600mhz", None),
    ("word by word, an ASIC five times as fast", "htx-asic-1ghz", None),
];
/// The delay of the ATOLL switch, 27 cycles (section 4), if these are cycles of the card's 200 MHz.
const SLOWER_SWITCH_PS: u64 = 27 * 5_000;
const WORD_BYTES: u64 = 8;
/// Words of the tag in each packet (section 4).
const TAG_WORDS: u64 = 2;
/// Words of the largest packet: a cache line and the tag (section 4).
const MAX_WORDS: u64 = 10;
/// Words of the FIFO RAM: 1 KB (section 3.1).
const FIFO_WORDS: u64 = 128;
/// Bandwidth at which the longest packet takes only a few picoseconds: requester and completer connected directly.
const UNLIMITED_BITS_PER_S: u64 = 1_000_000_000_000_000;
const ROUND_TRIPS: u64 = 100;
const SHORT_STREAM: u64 = 1_000;
const LONG_STREAM: u64 = 3_000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// Figure 7, and the paper's other numbers. All times are model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UltraFigures {
    /// [`ULTRA_FIGURES_VERSION`].
    pub version: u32,
    /// The cards, in the order of [`CARDS`].
    pub cards: Vec<Card>,
    /// Total time of the HyperTransport core and the software at both ends.
    pub model_core_and_software_ps: u64,
    /// The switch's delay by both interpretations: as in the text, and as cycles of the card's clock at 200 MHz.
    pub model_switch_ps: [u64; 2],
}

/// One card, with packets of all sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Its description.
    pub name: String,
    /// The platform profile.
    pub profile: String,
    /// The results, one for each packet size.
    pub sizes: Vec<Size>,
}

/// Packets of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Payload and tag.
    pub packet_bytes: u64,
    /// The program's data.
    pub payload_bytes: u64,
    /// Load, TX, RX and Store.
    pub model_card_latency_ps: u64,
    /// Rate of payload and tag, limited by the card.
    pub model_card_bytes_per_s: u64,
    /// From the start of the sender's software to the end of the receiver's.
    pub model_end_to_end_latency_ps: u64,
    /// The same with a switch that takes 27 cycles of 200 MHz.
    pub model_end_to_end_latency_slower_switch_ps: u64,
    /// Rate of payload and tag, with the sender's software.
    pub model_end_to_end_bytes_per_s: u64,
}

impl UltraFigures {
    /// Measures all figures with a simulator.
    ///
    /// # Errors
    /// When a simulation fails, or its report is incomplete.
    pub fn measure(simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>) -> Result<Self> {
        let mut cards = Vec::new();
        for (name, profile, passing) in CARDS {
            let whole = configuration(profile, passing)?;
            let sizes = (TAG_WORDS..=MAX_WORDS).map(|words| Size::measure(&whole, words, simulate));
            let sizes = sizes.collect::<Result<_>>()?;
            cards.push(Card { name: name.to_owned(), profile: profile.to_owned(), sizes });
        }
        let (_, first, _) = CARDS[0];
        let config = configuration(first, None)?;
        let (host, bus) = (&config.profile.host, &config.profile.bus);
        let core_and_software =
            [&host.send_ps, &bus.pio_write.latency_ps, &bus.dma_write.latency_ps, &host.receive_ps];
        Ok(Self {
            version: ULTRA_FIGURES_VERSION,
            cards,
            model_core_and_software_ps: core_and_software.map(|fact| fact.value).iter().sum(),
            model_switch_ps: [
                config.profile.network.switch_fall_through_ps.value,
                with_slower_switch(&config).profile.network.switch_fall_through_ps.value,
            ],
        })
    }

    /// The paper's section 4 next to these figures.
    #[must_use]
    pub fn compared(&self) -> Vec<Compared> {
        let ends = |card: &Card| Some((card.sizes.first()?.clone(), card.sizes.last()?.clone()));
        let mut cards = self.cards.iter().filter_map(ends);
        let (Some(words), Some(whole), Some(fitted)) = (cards.next(), cards.next(), cards.next()) else {
            return Vec::new();
        };
        let mut rows = of_words(&words);
        rows.extend(of_whole(&whole));
        rows.extend(of_fitted(&fitted));
        rows.extend(around(self));
        rows
    }

    /// All figures as tables.
    #[must_use]
    pub fn text(&self, compared: &[Compared]) -> String {
        let mut text =
            "ULTRA in the simulator; all times are model time. End to end: with a switch of about 90 ns, and in the \
                        next column\n\
                        with one of 27 cycles of 200 MHz.\n"
                .to_owned();
        for card in &self.cards {
            text += &format!("\n{}: profile {}\n\n{}", card.name, card.profile, card.table());
        }
        format!("{text}\n{}", compared::text(compared))
    }

    /// The paper's figure 7, and the end-to-end results in the same plots.
    #[must_use]
    pub fn panels(&self) -> [Panel; 2] {
        let line = |card: usize, name: &str, colour, of: &dyn Fn(&Size) -> f64| Series {
            name: name.to_owned(),
            style: Style::Line(colour),
            points: self.cards.get(card).map_or_else(Vec::new, |card| {
                card.sizes.iter().map(|size| (size.packet_bytes as f64, of(size))).collect()
            }),
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
        let card_ns = |size: &Size| ns(size.model_card_latency_ps);
        let card_rate = |size: &Size| megabytes(size.model_card_bytes_per_s);
        [
            panel(
                "latency",
                "model time (ns)",
                vec![
                    line(0, "at the card, word by word", "#1f77b4", &card_ns),
                    line(1, "at the card, the same states, whole packets", "#2ca02c", &card_ns),
                    line(2, "at the card, fitted", "#bbbbbb", &card_ns),
                    line(0, "end to end, with software, bus and switch", "#7f7f7f", &|size| {
                        ns(size.model_end_to_end_latency_ps)
                    }),
                    rings(&[(16.0, 115.0), (80.0, 380.0)]),
                ],
            ),
            panel(
                "bandwidth",
                "MB/s of model time",
                vec![
                    line(0, "at the card, both ways of passing packets on", "#1f77b4", &card_rate),
                    line(2, "at the card, fitted", "#bbbbbb", &card_rate),
                    line(0, "end to end, one sending program", "#7f7f7f", &|size| {
                        megabytes(size.model_end_to_end_bytes_per_s)
                    }),
                    rings(&[(16.0, 325.0), (80.0, 700.0)]),
                ],
            ),
        ]
    }
}

impl Card {
    fn table(&self) -> String {
        let heading = [
            "packet bytes",
            "payload bytes",
            "card ns",
            "card MB/s",
            "end-to-end ns",
            "27 cycles",
            "end-to-end MB/s",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for size in &self.sizes {
            rows.push(vec![
                size.packet_bytes.to_string(),
                size.payload_bytes.to_string(),
                format!("{:.2}", ns(size.model_card_latency_ps)),
                format!("{:.1}", megabytes(size.model_card_bytes_per_s)),
                format!("{:.2}", ns(size.model_end_to_end_latency_ps)),
                format!("{:.2}", ns(size.model_end_to_end_latency_slower_switch_ps)),
                format!("{:.1}", megabytes(size.model_end_to_end_bytes_per_s)),
            ]);
        }
        table(&rows)
    }
}

/// The fitted constants: Load, TX, RX and Store then take 23 and 76 cycles, and reach 325 MB/s.
const MACHINES: &str = "cycles of the card's four machines";

/// The times of the states of Load, TX, RX and Store: one cycle each, as in the profile.
const STATES: &str = "one cycle per state and per word";
/// The part of the 300 ns beyond the core's 18 cycles.
const SOFTWARE: &str = "software of the host";

/// What neither the paper nor the states explain.
const RESIDUAL: &str = "Four machines with a datapath of 64 bits take 1 cycle per additional word if they pass words \
                        on, and 4 if they process whole packets, but the published card takes 6.6. The paper does \
                        not name what takes the other cycles per word. Nothing was tuned to find it";
/// A reference to [`RESIDUAL`] in other rows.
const LEFT: &str = "as for each additional word, plus the card's time outside of its states and words";

const PLACE: &str = "section 4";
/// The slope of figure 7: (380 - 115) ns over 8 words, at 5 ns per cycle.
const CYCLES_A_WORD: f64 = (380.0 - 115.0) / 8.0 / CYCLE_NS;
const CYCLE_NS: f64 = 5.0;

fn latency(what: &str, paper: Published, model_ps: u64) -> Compared {
    Compared::new(PLACE, what, "ns", paper).ours(ns(model_ps), 2)
}

fn bandwidth(what: &str, paper: Published, model: u64) -> Compared {
    Compared::new(PLACE, what, "MB/s", paper).ours(megabytes(model), 1)
}

const fn below_a_microsecond() -> Published {
    Published::Below(1_000.0)
}

/// Cycles per additional word at the card.
fn cycles_a_word(least: &Size, most: &Size) -> f64 {
    let more_ps = most.model_card_latency_ps.saturating_sub(least.model_card_latency_ps);
    ns(more_ps) / (MAX_WORDS - TAG_WORDS) as f64 / CYCLE_NS
}

/// The card whose machines pass words on: a prediction, with its differences.
fn of_words((least, most): &(Size, Size)) -> Vec<Compared> {
    let number = Published::number;
    let messages = least.model_card_bytes_per_s as f64 / (TAG_WORDS * WORD_BYTES) as f64 / 1e6;
    let slower = "the switch at 27 cycles of 200 MHz";
    vec![
        latency("latency at the card, 2 words", number(115.0), least.model_card_latency_ps).differs(LEFT),
        latency("latency at the card, 10 words", number(380.0), most.model_card_latency_ps).differs(LEFT),
        Compared::new(PLACE, "each additional word at the card, derived", "cycles", number(CYCLES_A_WORD))
            .ours(cycles_a_word(least, most), 2)
            .differs(RESIDUAL),
        bandwidth("bandwidth at the card, 16 bytes", number(325.0), least.model_card_bytes_per_s)
            .differs(LEFT),
        bandwidth("bandwidth at the card, 80 bytes", Published::Above(700.0), most.model_card_bytes_per_s),
        Compared::new(PLACE, "messages at the card, 16 bytes, derived", "M/s", number(325.0 / 16.0))
            .ours(messages, 2)
            .differs(LEFT),
        latency("end to end, 2 words", below_a_microsecond(), least.model_end_to_end_latency_ps),
        latency("end to end, 10 words", below_a_microsecond(), most.model_end_to_end_latency_ps),
        latency(
            &format!("end to end, 2 words, {slower}"),
            below_a_microsecond(),
            least.model_end_to_end_latency_slower_switch_ps,
        ),
        latency(
            &format!("end to end, 10 words, {slower}"),
            below_a_microsecond(),
            most.model_end_to_end_latency_slower_switch_ps,
        ),
    ]
    .into_iter()
    .map(|row| row.assumed(STATES))
    .collect()
}

/// The same states with machines that process whole packets.
fn of_whole((least, most): &(Size, Size)) -> Vec<Compared> {
    let number = Published::number;
    vec![
        latency("whole packets: latency at the card, 2 words", number(115.0), least.model_card_latency_ps),
        latency("whole packets: latency at the card, 10 words", number(380.0), most.model_card_latency_ps),
        Compared::new(PLACE, "whole packets: each additional word, derived", "cycles", number(CYCLES_A_WORD))
            .ours(cycles_a_word(least, most), 2),
    ]
    .into_iter()
    .map(|row| row.assumed(STATES).differs(LEFT))
    .collect()
}

/// The card with the eight fitted constants.
fn of_fitted((least, most): &(Size, Size)) -> Vec<Compared> {
    let number = Published::number;
    vec![
        latency("fitted: latency at the card, 2 words", number(115.0), least.model_card_latency_ps)
            .fitted(MACHINES),
        latency("fitted: latency at the card, 10 words", number(380.0), most.model_card_latency_ps)
            .fitted(MACHINES),
        bandwidth("fitted: bandwidth at the card, 16 bytes", number(325.0), least.model_card_bytes_per_s)
            .fitted(MACHINES),
        bandwidth(
            "fitted: bandwidth at the card, 80 bytes",
            Published::Above(700.0),
            most.model_card_bytes_per_s,
        )
        .follows(MACHINES),
        latency("fitted: end to end, 2 words", below_a_microsecond(), least.model_end_to_end_latency_ps)
            .follows(MACHINES),
        latency("fitted: end to end, 10 words", below_a_microsecond(), most.model_end_to_end_latency_ps)
            .follows(MACHINES),
        latency(
            "fitted: end to end, 10 words, the switch at 27 cycles of 200 MHz",
            below_a_microsecond(),
            most.model_end_to_end_latency_slower_switch_ps,
        )
        .follows(MACHINES)
        .differs(
            "with the published 380 ns at the card, the published sum is below 1 us at ten words only if the switch \
             takes the 90 ns of section 2; at 27 cycles of 200 MHz it is above",
        ),
    ]
}

/// Host, core and switch.
fn around(figures: &UltraFigures) -> Vec<Compared> {
    let [as_text, as_cycles] = figures.model_switch_ps;
    let about_90 = || Published::within_percent(90.0, 10.0);
    let switch = |what: &str, ps| Compared::new("sections 2 and 4", what, "ns", about_90()).ours(ns(ps), 1);
    vec![
        latency(
            "round trip of the core with software",
            Published::number(300.0),
            figures.model_core_and_software_ps,
        )
        .fitted(SOFTWARE),
        switch("switch, as the text has it", as_text).given("about 90 ns"),
        switch("switch, as 27 cycles of 200 MHz", as_cycles).given("27 cycles").differs(
            "27 cycles are 90 ns at 300 MHz, and 135 ns at the card's 200 MHz; the paper does not say which clock it \
             means. Both interpretations are measured end to end",
        ),
    ]
}

fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Size {
    fn measure(
        whole: &SimConfig,
        words: u64,
        simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>,
    ) -> Result<Self> {
        let packet_bytes = words * WORD_BYTES;
        let payload_bytes = (words - TAG_WORDS) * WORD_BYTES;
        let mut whole = whole.clone();
        whole.workload.message_bytes = u32::try_from(payload_bytes)?;
        let alone = card_alone(&whole);
        Ok(Self {
            packet_bytes,
            payload_bytes,
            model_card_latency_ps: one_way_ps(&alone, simulate)?,
            model_card_bytes_per_s: rate(&alone, packet_bytes, simulate)?,
            model_end_to_end_latency_ps: one_way_ps(&whole, simulate)?,
            model_end_to_end_latency_slower_switch_ps: one_way_ps(&with_slower_switch(&whole), simulate)?,
            model_end_to_end_bytes_per_s: rate(&whole, packet_bytes, simulate)?,
        })
    }
}

/// Two nodes on this platform.
fn configuration(profile: &str, passing: Option<&str>) -> Result<SimConfig> {
    let mut file =
        ClusterFile { nodes: Some(2), profile: Some(profile.to_owned()), ..ClusterFile::default() };
    for fifo in ["fifo_words_per_port", "completer_fifo_words_per_port"] {
        let all_of_it = vec![FIFO_WORDS, 0, 0, 0, 0, 0, 0, 0];
        file.nic.set(fifo, Value::Numbers(all_of_it))?;
    }
    if let Some(passing) = passing {
        file.nic.set("passing", Value::Word(passing.to_owned()))?;
    }
    let cluster = Source::default().resolve(&file)?;
    let mut workload = Workload::new(WorkloadKind::PingPong);
    // Enough slices that a ping-pong releases none, because a release makes the cards exchange messages.
    workload.slices = 4096;
    Ok(SimConfig::new(&cluster, "figures-ultra", &workload))
}

/// The same configuration, in which only the cards take time.
fn card_alone(config: &SimConfig) -> SimConfig {
    let mut config = config.clone();
    let host = &mut config.profile.host;
    for price in [&mut host.send_ps, &mut host.receive_ps, &mut host.copy_per_byte_ps] {
        price.value = 0;
    }
    let bus = &mut config.profile.bus;
    for price in [&mut bus.pio_write, &mut bus.dma_write] {
        for fact in [&mut price.latency_ps, &mut price.fixed_ps, &mut price.per_word_ps] {
            fact.value = 0;
        }
    }
    config.profile.network.switch_fall_through_ps.value = 0;
    for node in &mut config.nodes {
        node.link.bandwidth_bits_per_s = UNLIMITED_BITS_PER_S;
        node.link.latency_ns = 0;
    }
    config
}

/// The same configuration, with a switch that takes 27 cycles of 200 MHz.
fn with_slower_switch(config: &SimConfig) -> SimConfig {
    let mut config = config.clone();
    config.profile.network.switch_fall_through_ps.value = SLOWER_SWITCH_PS;
    config
}

fn with(config: &SimConfig, kind: WorkloadKind, count: u64) -> SimConfig {
    let workload = Workload { kind, count, ..config.workload.clone() };
    SimConfig { workload, ..config.clone() }
}

/// The one-way time of a message in a ping-pong.
fn one_way_ps(config: &SimConfig, simulate: &mut dyn FnMut(&SimConfig) -> Result<Report>) -> Result<u64> {
    let latency = simulate(&with(config, WorkloadKind::PingPong, ROUND_TRIPS))?.model.latency;
    ensure!(latency.count > 0, "no message arrived in the ping-pong");
    Ok(latency.sum_ps / latency.count)
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

    fn size(words: u64, card_ns: u64, end_to_end_ns: u64, slower_ns: u64) -> Size {
        Size {
            packet_bytes: words * WORD_BYTES,
            payload_bytes: (words - TAG_WORDS) * WORD_BYTES,
            model_card_latency_ps: card_ns * 1_000,
            model_card_bytes_per_s: 800_000_000,
            model_end_to_end_latency_ps: end_to_end_ns * 1_000,
            model_end_to_end_latency_slower_switch_ps: slower_ns * 1_000,
            model_end_to_end_bytes_per_s: 1,
        }
    }

    #[test]
    fn unfitted_rows_are_not_marked_as_fitted() {
        let rows = of_words(&(size(2, 50, 400, 450), size(10, 130, 999, 1_044)));
        assert!(rows.iter().all(|row| row.provenance == compared::Provenance::Assumed(STATES)));
        let found = |what: &str| rows.iter().find(|row| row.what == what).unwrap();
        assert_eq!(found("each additional word at the card, derived").ours, Some(2.0));
        assert!(found("end to end, 10 words").is_as_declared());
        let slower = found("end to end, 10 words, the switch at 27 cycles of 200 MHz");
        assert!(!slower.is_as_declared(), "above a microsecond without a declared difference");
    }

    #[test]
    fn card_alone_is_isolated_and_slow_switch_takes_27_cycles() {
        let whole = configuration("htx-200mhz", Some("store-and-forward")).unwrap();
        let alone = card_alone(&whole);
        assert_eq!(alone.profile.ni, whole.profile.ni);
        assert_eq!(alone.profile.bus.dma_write.fixed_ps.value + alone.profile.host.send_ps.value, 0);
        assert_eq!(with_slower_switch(&whole).profile.network.switch_fall_through_ps.value, 135_000);
        assert!(configuration("htx-200mhz", Some("fast")).is_err());
    }
}
