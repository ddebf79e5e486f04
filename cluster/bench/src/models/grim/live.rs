//! The figures of section 6 in guests, on both clocks: latency and gap of short messages, bandwidth over size with both
//! kinds of injection, and interrupts.
//!
//! Guests run freely. Model time is for the paper's platform. Wall time is the guests' time, which TCG emulates if
//! there is no KVM; compare only values within a column.

use anyhow::{Context, Result, ensure};
use niclab_cluster::{check::live::LiveCluster, output::table};
use niclab_spec::{
    ClusterFile, LinkEntry, NicConfig, NicModel, Report, Scenario, ScenarioMode, Source, Value, Workload,
    WorkloadKind,
};
use serde::Serialize;

use super::{CHANNELS, CUT_THROUGH, LONGEST, MTU_BYTES, PROFILES, SLICES, STORED, per_s};
use crate::figures::plot::{Legend, Panel, Scale, Series, Style};

/// The version of [`LiveFigures`].
pub const LIVE_FIGURES_VERSION: u32 = 1;

const SIZES: [u32; 6] = [64, 1_024, 4_096, 8_192, 16_384, LONGEST];
const ROUND_TRIPS: u64 = 100;
const WARMUP: u64 = 10;
/// Length of a burst of short messages, at most that of the header ring.
const BURST: u64 = 200;
/// Number of messages of the stream; each tenth interrupts.
const MESSAGES: u64 = 200;
const INTERRUPT_EVERY: u64 = 10;
/// Rounds of each measurement; the figures are medians.
const ROUNDS: usize = 3;

/// All figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveFigures {
    /// [`LIVE_FIGURES_VERSION`].
    pub version: u32,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// The platform profile for model times.
    pub profile: &'static str,
    /// Number of rounds of each measurement.
    pub rounds: usize,
    /// Round trips of short messages.
    pub short: Pace,
    /// From one short message of a burst to the next.
    pub gap: Pace,
    /// Round trips of messages to the other node's I/O card.
    pub io_card: IoCard,
    /// Round trips of bulk messages.
    pub sizes: Vec<Size>,
    /// Interrupts of a stream.
    pub interrupts: Interrupts,
}

/// A time on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pace {
    /// Model time: of a message one way, or from one to the next.
    pub model_ps: u64,
    /// Wall time: of a round trip, or from one to the next.
    pub wall_ns: u64,
}

/// Short messages to the I/O card of another node, which sends them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IoCard {
    /// Model time from the host's program until the card has processed the message; wall time of the round trip.
    pub pace: Pace,
    /// Number of messages to the card.
    pub messages: u64,
    /// Transactions between cards at the I/O card's node: equal numbers in both directions.
    pub from_card_to_card: u64,
    /// All other transactions of that node's bus and host.
    pub others: u64,
}

/// Bulk messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Bytes of payload.
    pub bytes: u32,
    /// In segments that grow from 32 bytes.
    pub cut_through: Rate,
    /// Each message is pushed completely before it leaves.
    pub stored: Rate,
}

/// Payload over half of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// In model time.
    pub model_bytes_per_s: u64,
    /// In wall time.
    pub wall_bytes_per_s: u64,
}

/// Interrupts of the receiver of a stream, in which each tenth message requests one; and of all polling runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupts {
    /// Number of messages.
    pub messages: u64,
    /// Interrupts that the device must raise.
    pub expected: u64,
    /// Interrupts that it raised.
    pub raised: u64,
    /// Interrupts that the guest counted.
    pub guest: u64,
    /// Interrupts that the device raised while programs polled, in all other runs.
    pub while_polling: u64,
}

/// Guests with one kind of injection.
struct Guests {
    scenario: Scenario,
    cluster: LiveCluster,
    accelerator: String,
    polling: u64,
}

impl Guests {
    fn boot(scenario: Scenario, offline: bool) -> Result<Self> {
        let cluster = LiveCluster::boot(&scenario, offline)?;
        Ok(Self { scenario, cluster, accelerator: String::new(), polling: 0 })
    }

    /// Runs this workload on both nodes.
    fn run(
        &mut self,
        kind: WorkloadKind,
        bytes: u32,
        count: u64,
        interrupt_every: u64,
    ) -> Result<(Report, u64)> {
        let workload = Workload {
            message_bytes: bytes,
            count,
            warmup: WARMUP,
            interrupt_every,
            slices: SLICES,
            ..Workload::new(kind)
        };
        self.scenario.workload = workload;
        self.cluster.change_workload(&self.scenario)?;
        let report = self.cluster.measure()?;
        if let Some(accelerator) = &report.accelerator {
            self.accelerator.clone_from(&accelerator.name);
        }
        let wall = report.wall.as_ref().context("a live report has wall times")?;
        let wall_ns = wall.results.first().context("niclab-perf measured nothing")?.elapsed_ns;
        if interrupt_every == 0 {
            self.polling +=
                report.nodes.iter().map(|node| node.interrupts.values().sum::<u64>()).sum::<u64>();
        }
        Ok((report, wall_ns))
    }

    /// Round trips of messages of `bytes` bytes.
    fn round_trips(&mut self, bytes: u32) -> Result<Pace> {
        let (report, wall_ns) = self.run(WorkloadKind::PingPong, bytes, ROUND_TRIPS, 0)?;
        let latency = report.model.latency;
        ensure!(latency.count == 2 * ROUND_TRIPS, "some messages were lost");
        Ok(Pace { model_ps: latency.p50_ps, wall_ns: wall_ns / ROUND_TRIPS })
    }

    /// A burst of short messages: the time between two posts. In model time it is approximate, because the last message
    /// has the longest latency.
    fn burst(&mut self) -> Result<Pace> {
        let (report, wall_ns) = self.run(WorkloadKind::Stream, 0, BURST, 0)?;
        let model = report.model;
        let launches_ps = model.time_ps.saturating_sub(model.latency.max_ps + model.latency.min_ps);
        Ok(Pace { model_ps: launches_ps / (BURST - 1), wall_ns: wall_ns / BURST })
    }

    /// Messages to the second node's I/O card and back.
    fn io_card(&mut self) -> Result<IoCard> {
        let (report, wall_ns) = self.run(WorkloadKind::Echo, 0, ROUND_TRIPS, 0)?;
        let node = report.nodes.get(1).context("the report lacks a node")?;
        ensure!(node.model_latency.count == ROUND_TRIPS, "some messages were lost");
        let entries = || node.ledgers().flat_map(|(_, ledger)| ledger);
        let is_between_cards = |transaction: &str| transaction == "device_to_device";
        let count = |of: &dyn Fn(&str) -> bool| {
            entries().filter(|entry| of(&entry.transaction)).map(|entry| entry.count).sum()
        };
        Ok(IoCard {
            pace: Pace { model_ps: node.model_latency.p50_ps, wall_ns: wall_ns / ROUND_TRIPS },
            messages: ROUND_TRIPS,
            from_card_to_card: count(&is_between_cards),
            others: count(&|transaction| !is_between_cards(transaction) && transaction != "ni_cycles"),
        })
    }

    fn rate(&mut self, bytes: u32) -> Result<Rate> {
        let samples = (0..ROUNDS).map(|_| self.round_trips(bytes)).collect::<Result<Vec<_>>>()?;
        let Pace { model_ps, wall_ns } = median(&samples)?;
        // A message takes half of a round trip.
        let model_bytes_per_s = per_s(bytes.into(), model_ps)?;
        Ok(Rate { model_bytes_per_s, wall_bytes_per_s: per_s(2 * u64::from(bytes), wall_ns * 1_000)? })
    }

    fn interrupts(&mut self) -> Result<Interrupts> {
        let (report, _) = self.run(WorkloadKind::Stream, 1_024, MESSAGES, INTERRUPT_EVERY)?;
        let receiver = report.nodes.get(1).context("the report lacks a node")?;
        let guest = receiver.guest_interrupts.as_ref().and_then(|counts| counts.get("cluster"));
        Ok(Interrupts {
            messages: MESSAGES,
            expected: MESSAGES / INTERRUPT_EVERY,
            raised: receiver.interrupts.values().sum(),
            guest: guest.copied().unwrap_or(0),
            while_polling: 0,
        })
    }
}

impl LiveFigures {
    /// Boots two guests for each kind of injection, and two of which one has an I/O card, and measures.
    ///
    /// # Errors
    /// When a cluster cannot be booted, or a run fails.
    pub fn measure(offline: bool) -> Result<Self> {
        let mut segmented = Guests::boot(scenario(CUT_THROUGH, false)?, offline)?;
        let measured = Self::of(&mut segmented);
        segmented.cluster.shut_down();
        let (short, gap, cut_through, mut interrupts) = measured?;
        let mut beside = Guests::boot(scenario(CUT_THROUGH, true)?, offline)?;
        let io_card = beside.io_card();
        beside.cluster.shut_down();
        let mut whole = Guests::boot(scenario(STORED, false)?, offline)?;
        let stored = SIZES.into_iter().map(|bytes| whole.rate(bytes)).collect::<Result<Vec<_>>>();
        whole.cluster.shut_down();
        let sizes = SIZES.into_iter().zip(cut_through).zip(stored?);
        interrupts.while_polling = segmented.polling + beside.polling + whole.polling;
        Ok(Self {
            version: LIVE_FIGURES_VERSION,
            accelerator: segmented.accelerator,
            profile: PROFILES[0],
            rounds: ROUNDS,
            short,
            gap,
            io_card: io_card?,
            sizes: sizes.map(|((bytes, cut_through), stored)| Size { bytes, cut_through, stored }).collect(),
            interrupts,
        })
    }

    fn of(guests: &mut Guests) -> Result<(Pace, Pace, Vec<Rate>, Interrupts)> {
        let (mut short, mut gap) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            short.push(guests.round_trips(0)?);
            gap.push(guests.burst()?);
        }
        let rates = SIZES.into_iter().map(|bytes| guests.rate(bytes)).collect::<Result<_>>()?;
        Ok((median(&short)?, median(&gap)?, rates, guests.interrupts()?))
    }

    /// Whether three properties hold: the interrupts are the requested ones, a message for an I/O card crosses the bus
    /// once and no host, and in model time the longest messages are faster in segments than stored (as in the paper).
    #[must_use]
    pub fn hold(&self) -> bool {
        let Interrupts { expected, raised, guest, while_polling, .. } = self.interrupts;
        let longest = self.sizes.last();
        let quicker = |size: &Size| size.cut_through.model_bytes_per_s > size.stored.model_bytes_per_s;
        let IoCard { messages, from_card_to_card, others, .. } = self.io_card;
        (raised, while_polling) == (expected, 0)
            && guest <= raised
            && longest.is_some_and(quicker)
            && (from_card_to_card, others) == (2 * messages, 0)
    }

    /// The figures as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let megabytes = |rate: u64| format!("{:.2}", rate as f64 / 1e6);
        let heading = [
            "bytes of a message",
            "in segments: model MB/s",
            "wall MB/s",
            "stored completely: model MB/s",
            "wall MB/s",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.sizes.iter().map(|Size { bytes, cut_through, stored }| {
            let rates = [cut_through, stored].map(|rate| [rate.model_bytes_per_s, rate.wall_bytes_per_s]);
            let rates = rates.as_flattened().iter().map(|rate| megabytes(*rate));
            std::iter::once(bytes.to_string()).chain(rates).collect()
        }));
        let us = |ps: u64| format!("{:.2}", ps as f64 / 1e6);
        let Interrupts { messages, expected, raised, guest, while_polling } = self.interrupts;
        format!(
            "GRIM in guests ({}), profile {}: medians of {} rounds. Guests run freely.\n\n\
             short message: one way, model us {}; round trip, wall us {}\n\
             short message to the other node's I/O card, which sends it back: one way, model us {}; round trip,\n\
             wall us {}; transactions at that node: {} from card to card for {} messages in each direction, {} others\n\
             burst of {BURST} short messages, per message: from post to post, model us {}; wall us {}\n\
             interrupts of a stream of {messages}, each tenth of which requests one: expected {expected},\n\
             device {raised}, guest {guest}; in all polling runs: {while_polling}\n\n\
             Payload over half of a round trip:\n\n{}",
            self.accelerator,
            self.profile,
            self.rounds,
            us(self.short.model_ps),
            us(self.short.wall_ns * 1_000),
            us(self.io_card.pace.model_ps),
            us(self.io_card.pace.wall_ns * 1_000),
            self.io_card.from_card_to_card,
            self.io_card.messages,
            self.io_card.others,
            us(self.gap.model_ps),
            us(self.gap.wall_ns * 1_000),
            table(&rows)
        )
    }

    /// Bandwidth over size, on each clock.
    #[must_use]
    pub fn panels(&self) -> Vec<Panel> {
        let line = |name: &str, colour, of: &dyn Fn(&Size) -> u64| Series {
            name: name.to_owned(),
            style: Style::Line(colour),
            points: self.sizes.iter().map(|size| (size.bytes.into(), of(size) as f64 / 1e6)).collect(),
        };
        let panel = |clock: &str, series| Panel {
            title: "GRIM in guests: bandwidth of round trips".to_owned(),
            x_label: "bytes of a message".to_owned(),
            y_label: format!("{clock} time (MB/s)"),
            scale: Scale::Linear,
            legend: Legend::Inside,
            series,
        };
        let both = |of: fn(&Rate) -> u64| {
            vec![
                line("in segments", "#1f77b4", &|size| of(&size.cut_through)),
                line("stored completely", "#d62728", &|size| of(&size.stored)),
            ]
        };
        vec![
            panel("model", both(|rate| rate.model_bytes_per_s)),
            panel("wall", both(|rate| rate.wall_bytes_per_s)),
        ]
    }
}

/// Two nodes; the second may have an I/O card.
fn scenario(segment: u64, has_io_card: bool) -> Result<Scenario> {
    let mut nic = NicConfig::of(NicModel::named("grim").context("there is no model `grim`")?);
    nic.set("channels", Value::Number(CHANNELS))?;
    nic.set("first_segment_bytes", Value::Number(segment))?;
    let link = vec![LinkEntry { mtu_bytes: Some(MTU_BYTES), ..LinkEntry::default() }];
    let profile = Some(PROFILES[0].to_owned());
    let file = ClusterFile { nodes: Some(2), profile, nic, link, ..ClusterFile::default() };
    let mut cluster = Source::default().resolve_booted(&file)?;
    if let Some(second) = cluster.nodes.get_mut(1).filter(|_| has_io_card) {
        second.nic.set("io_card_channel", Value::Number(CHANNELS - 1))?;
    }
    let workload = Workload::new(WorkloadKind::PingPong);
    let (budgets, ratios) = (Vec::new(), Vec::new());
    Ok(Scenario { mode: ScenarioMode::Live, repeat: 1, cluster, workload, budgets, ratios })
}

fn median(samples: &[Pace]) -> Result<Pace> {
    let of = |value: fn(&Pace) -> u64| {
        let mut values: Vec<u64> = samples.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().context("at least one round is needed")
    };
    Ok(Pace { model_ps: of(|pace| pace.model_ps)?, wall_ns: of(|pace| pace.wall_ns)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(raised: u64, guest: u64, while_polling: u64) -> LiveFigures {
        let pace = Pace { model_ps: 13_000_000, wall_ns: 9_000 };
        let rate = |model_bytes_per_s| Rate { model_bytes_per_s, wall_bytes_per_s: 5_000_000 };
        LiveFigures {
            version: LIVE_FIGURES_VERSION,
            accelerator: "tcg".to_owned(),
            profile: PROFILES[0],
            rounds: ROUNDS,
            short: pace,
            gap: pace,
            io_card: IoCard { pace, messages: 100, from_card_to_card: 200, others: 0 },
            sizes: vec![Size { bytes: LONGEST, cut_through: rate(81_000_000), stored: rate(55_000_000) }],
            interrupts: Interrupts { messages: MESSAGES, expected: 20, raised, guest, while_polling },
        }
    }

    #[test]
    fn figures_hold_only_with_the_requested_interrupts() {
        assert!(figures(20, 20, 0).hold() && figures(20, 3, 0).hold());
        assert!(!figures(21, 20, 0).hold(), "not the expected number");
        assert!(!figures(20, 21, 0).hold(), "more than the device raised");
        assert!(!figures(20, 20, 1).hold(), "a polling program gets no interrupt");
        let mut slower = figures(20, 20, 0);
        slower.sizes[0].stored = slower.sizes[0].cut_through;
        assert!(!slower.hold());
        let mut of_host = figures(20, 20, 0);
        of_host.io_card.others = 1;
        assert!(!of_host.hold(), "messages do not cross the host");
    }

    #[test]
    fn tables_have_medians_of_both_clocks() {
        let text = figures(20, 20, 0).text();
        for part in ["13.00", "9.00", "81.00", "55.00", "5.00", "expected 20,\ndevice 20, guest 20"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let paces = [(1, 9), (2, 7), (3, 8)].map(|(model_ps, wall_ns)| Pace { model_ps, wall_ns });
        assert_eq!(median(&paces).unwrap(), Pace { model_ps: 2, wall_ns: 8 });
        assert!(median(&[]).is_err());
    }

    #[test]
    fn the_longest_message_fits_both_injections() {
        for segment in [CUT_THROUGH, STORED] {
            let Scenario { cluster, .. } = scenario(segment, false).unwrap();
            assert!(cluster.nodes.iter().all(|node| node.nic.limits().max_message_bytes >= LONGEST.into()));
        }
    }
}
