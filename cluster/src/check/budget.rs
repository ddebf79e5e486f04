//! Compares a report with budgets, and two reports with each other. It runs no program.

use std::{collections::BTreeMap, fmt};

use niclab_spec::{
    Budget, Report,
    budget::{LOST_MESSAGES, Per},
    report::{Checked, Histogram, LedgerEntry, NodeFigures},
};
use serde::Serialize;

/// Bytes of a megabyte of payload.
const MEGABYTE: f64 = 1e6;

/// Maximum number of contributions that a broken budget names, largest first.
pub(super) const MAX_CAUSES: usize = 4;

/// The result of one budget or comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The quantity, and the node if the budget names one.
    pub what: String,
    /// Held, broken or undecided.
    pub outcome: Outcome,
    /// What was allowed.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Where the count came from: nodes, pages, causes. Only for a broken budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
}

/// The outcome of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The value is within the limit.
    Held,
    /// The value is outside the limit.
    Broken,
    /// The measurement did not decide, and its rounds are used up. Only for wall time.
    Undecided,
}

impl Outcome {
    /// Held or broken.
    #[must_use]
    pub const fn of(held: bool) -> Self {
        if held { Self::Held } else { Self::Broken }
    }
}

impl Verdict {
    /// Whether the budget held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.outcome == Outcome::Held
    }
}

/// What was expected and found, and a line for each cause.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)?;
        self.causes.iter().try_for_each(|cause| write!(f, "\n    {cause}"))
    }
}

/// The verdict of one of the simulator's own checkers.
#[must_use]
pub fn of_checker(checked: &Checked) -> Verdict {
    Verdict {
        what: checked.name.clone(),
        outcome: Outcome::of(checked.held),
        expected: "the check holds".to_owned(),
        found: checked.detail.clone(),
        causes: Vec::new(),
    }
}

/// A contribution to a quantity: its source and its count.
pub(super) type Part = (String, u64);

/// The verdict of every budget on the report.
#[must_use]
pub fn verdicts(budgets: &[Budget], report: &Report) -> Vec<Verdict> {
    budgets.iter().map(|budget| verdict(budget, report)).collect()
}

fn verdict(budget: &Budget, report: &Report) -> Verdict {
    let (what, expected) = (budget.subject(), budget.limit());
    let (value, parts) = match quantity(budget, report) {
        Ok(counted) => counted,
        Err(found) => {
            return Verdict { what, outcome: Outcome::Broken, expected, found, causes: Vec::new() };
        }
    };
    let share = share(budget.per, budget.node.as_deref(), report);
    // A limit per message or per megabyte is meaningless if there were none.
    let held = share > 0.0 && holds(budget, value, share);
    #[expect(clippy::cast_precision_loss, reason = "printed, not compared")]
    let found = match budget.per {
        Per::Run if budget.what == LOST_MESSAGES => format!("{value} of {}", messages_sent(&report.nodes)),
        Per::Run => value.to_string(),
        per if share > 0.0 => format!("{:.6} ({value} in {share} {}s)", value as f64 / share, per.unit()),
        per => format!("{value} and no {}", per.unit()),
    };
    let causes = if held { Vec::new() } else { causes(parts) };
    Verdict { what, outcome: Outcome::of(held), expected, found, causes }
}

/// Whether the value is within its limit. The limit is scaled, not the value, so that an exact count stays exact.
fn holds(budget: &Budget, value: u64, share: f64) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts stay below 2^53, and limits below 1e18 are refused"
    )]
    let value = value as f64;
    // The product of a fractional limit and a count has a rounding error, so the comparison has a tolerance.
    let is_same = |limit: f64| (value - limit * share).abs() <= 1e-9 * value.max(1.0);
    match (budget.exact, budget.at_most, budget.at_least) {
        (Some(limit), ..) => is_same(limit),
        (_, Some(limit), _) => value <= limit * share || is_same(limit),
        (.., Some(limit)) => value >= limit * share || is_same(limit),
        (None, None, None) => false,
    }
}

/// The value of a quantity of a report, of the whole cluster or of one node; `None` if such a run does not count it.
#[must_use]
pub fn value(what: &str, node: Option<&str>, report: &Report) -> Option<u64> {
    counted(what, node, report).map(|(value, _)| value)
}

/// As [`value`], with the contributions to a count.
pub(super) fn counted(what: &str, node: Option<&str>, report: &Report) -> Option<(u64, Vec<Part>)> {
    let (what, node) = (what.to_owned(), node.map(str::to_owned));
    quantity(&Budget { what, node, ..Budget::default() }, report).ok()
}

/// The sum of counts. A file may contain any counts, and their sum must not end the process.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The number of runs, messages or megabytes that the limit is multiplied with.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn share(per: Per, node: Option<&str>, report: &Report) -> f64 {
    let sum = |count: fn(&NodeFigures) -> u64| chosen(report, node).map(count).sum::<u64>() as f64;
    match per {
        Per::Run => 1.0,
        Per::Message | Per::Received => sum(|node| node.messages_received),
        Per::Sent => sum(|node| node.messages_sent),
        Per::Megabyte => sum(|node| node.bytes_received) / MEGABYTE,
    }
}

fn chosen<'a>(report: &'a Report, name: Option<&'a str>) -> impl Iterator<Item = &'a NodeFigures> {
    report.nodes.iter().filter(move |node| name.is_none_or(|name| node.name == name))
}

/// The value of a quantity and its contributions.
///
/// # Errors
/// What was found instead, if the run does not count the quantity.
fn quantity(budget: &Budget, report: &Report) -> Result<(u64, Vec<Part>), String> {
    let not_counted = || format!("a {} run does not count this quantity", report.mode.name());
    let model = &report.model;
    let figure = match budget.what.as_str() {
        "model_bandwidth_bytes_per_s" => Some(model.bandwidth_bytes_per_s),
        "model_messages_per_s" => Some(model.messages_per_s),
        "model_latency_min_ps" => Some(latency(budget, report).ok_or_else(not_counted)?.0),
        "model_latency_p50_ps" => Some(latency(budget, report).ok_or_else(not_counted)?.1),
        "model_latency_p99_ps" => Some(latency(budget, report).ok_or_else(not_counted)?.2),
        "model_latency_max_ps" => Some(latency(budget, report).ok_or_else(not_counted)?.3),
        _ => None,
    };
    if let Some(value) = figure {
        return Ok((value, Vec::new()));
    }
    if budget.what == LOST_MESSAGES {
        return lost_messages(&report.nodes);
    }
    let mut parts: Vec<Part> = Vec::new();
    for node in chosen(report, budget.node.as_deref()) {
        parts.extend(parts_of(&budget.what, node).ok_or_else(not_counted)?);
    }
    if budget.node.is_none() {
        // Links and switch belong to no node.
        parts.extend(ledger_parts(&budget.what, "links and switch", &report.fabric.ledger));
    }
    Ok((sum(parts.iter().map(|(_, count)| *count)), parts))
}

/// The number of messages that were sent and not received, and where frames were lost.
///
/// # Errors
/// What was found instead, if more messages were received than sent: duplicates and messages to several nodes hide how
/// many were lost.
fn lost_messages(nodes: &[NodeFigures]) -> Result<(u64, Vec<Part>), String> {
    let (sent, received) = (messages_sent(nodes), sum(nodes.iter().map(|node| node.messages_received)));
    let lost = sent.checked_sub(received).ok_or_else(|| {
        format!("{received} messages received but only {sent} sent, so lost messages cannot be counted")
    })?;
    let mut parts = Vec::new();
    for node in nodes {
        let name = &node.name;
        let of = |kind: &'static str, counts: &BTreeMap<String, u64>| -> Vec<Part> {
            counts.iter().map(|(event, count)| (format!("{name}, {kind} {event}"), *count)).collect()
        };
        parts.extend(of("link event", &node.link_events));
        parts.extend(of("violation", &node.violations));
        parts.push((format!("{name}, frames dropped for lack of space"), node.cluster.dropped_frames));
    }
    Ok((lost, parts))
}

/// The verdict that no message was lost, on a workload that did not finish. `None` if no message or frame was lost, or
/// if the counts do not tell.
#[must_use]
pub fn loss(nodes: &[NodeFigures]) -> Option<Verdict> {
    let budget = Budget::nothing_lost();
    let (lost, parts) = lost_messages(nodes).ok()?;
    if lost > 0 {
        return Some(verdict(&budget, &Report { nodes: nodes.to_vec(), ..Report::default() }));
    }
    // A sender without credit sends no message, because the frames that grant credit were lost.
    let frames: u64 = nodes.iter().filter_map(|node| node.link_events.get("lost")).sum();
    let found = format!("{frames} lost frames, for which messages were not sent");
    let (what, expected) = (budget.subject(), budget.limit());
    (frames > 0).then(|| Verdict { what, outcome: Outcome::Broken, expected, found, causes: causes(parts) })
}

fn messages_sent(nodes: &[NodeFigures]) -> u64 {
    sum(nodes.iter().map(|node| node.messages_sent))
}

/// Minimum, median, 99th percentile, and maximum of the latency.
fn latency(budget: &Budget, report: &Report) -> Option<(u64, u64, u64, u64)> {
    let histogram = match &budget.node {
        Some(_) => chosen(report, budget.node.as_deref()).next()?.model_latency,
        None => report.model.latency,
    };
    (histogram.count > 0).then_some((histogram.min_ps, histogram.p50_ps, histogram.p99_ps, histogram.max_ps))
}

fn parts_of(what: &str, node: &NodeFigures) -> Option<Vec<Part>> {
    let name = &node.name;
    let one = |count: u64| Some(vec![(name.clone(), count)]);
    let named = |counts: &BTreeMap<String, u64>, is_wanted: fn(&str) -> bool| {
        let wanted = counts.iter().filter(|(cause, _)| is_wanted(cause));
        Some(wanted.map(|(cause, count)| (format!("{name}, cause {cause}"), *count)).collect())
    };
    match what {
        "messages" => one(node.messages_received),
        "doorbells" => one(node.doorbells),
        "violations" => named(&node.violations, |_| true),
        "interrupts" if !node.ports.is_empty() => Some(interrupts_by_page(node)),
        "interrupts" => named(&node.interrupts, |cause| !cause.starts_with("ethernet_")),
        "ethernet_interrupts" => named(&node.interrupts, |cause| cause.starts_with("ethernet_")),
        "guest_interrupts" => one(*node.guest_interrupts.as_ref()?.get("cluster").unwrap_or(&0)),
        _ => {
            let ledgers = std::iter::once((name.clone(), &*node.ledger)).chain(node.peripheral_ledgers());
            Some(ledgers.flat_map(|(whose, ledger)| ledger_parts(what, &whose, ledger)).collect())
        }
    }
}

/// Interrupts by page and cause, and those that belong to no page.
fn interrupts_by_page(node: &NodeFigures) -> Vec<Part> {
    let mut rest: BTreeMap<&str, u64> = (node.interrupts.iter())
        .filter(|(cause, _)| !cause.starts_with("ethernet_"))
        .map(|(cause, count)| (cause.as_str(), *count))
        .collect();
    let mut parts = Vec::new();
    for port in &node.ports {
        for (cause, count) in &port.interrupts {
            parts.push((format!("{}, page of port {}, cause {cause}", node.name, port.port), *count));
            if let Some(rest) = rest.get_mut(cause.as_str()) {
                *rest = rest.saturating_sub(*count);
            }
        }
    }
    let rest = rest.into_iter().filter(|(_, count)| *count > 0);
    parts.extend(rest.map(|(cause, count)| (format!("{}, cause {cause}", node.name), count)));
    parts
}

const DMA: [&str; 4] = ["dma_write", "dma_read", "descriptor_fetch", "descriptor_write_back"];
const OTHERS: [&str; 5] = ["pio_write", "pio_read", "doorbell", "interrupt", "device_to_device"];

/// The transactions in a ledger of this quantity or kind: their number, or their bytes.
#[must_use]
pub fn in_ledger(what: &str, ledger: &[LedgerEntry]) -> u64 {
    sum(ledger_parts(what, "", ledger).iter().map(|(_, count)| *count))
}

fn ledger_parts(what: &str, whose: &str, ledger: &[LedgerEntry]) -> Vec<Part> {
    let is_dma = |entry: &LedgerEntry| DMA.contains(&entry.transaction.as_str());
    let is_bus = |entry: &LedgerEntry| is_dma(entry) || OTHERS.contains(&entry.transaction.as_str());
    let part = |entry: &LedgerEntry| match what {
        "dma_operations" => is_dma(entry).then_some(entry.count),
        "dma_bytes" => is_dma(entry).then_some(entry.bytes),
        "crossings" => is_bus(entry).then_some(entry.count),
        "crossing_bytes" => is_bus(entry).then_some(entry.bytes),
        kind => (entry.transaction == kind).then_some(entry.count),
    };
    let parts =
        ledger.iter().filter_map(|entry| Some((format!("{whose}, {}", entry.transaction), part(entry)?)));
    parts.collect()
}

fn causes(mut parts: Vec<Part>) -> Vec<String> {
    parts.retain(|(_, count)| *count > 0);
    parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let left = parts.len().saturating_sub(MAX_CAUSES);
    let mut causes: Vec<String> =
        parts.into_iter().take(MAX_CAUSES).map(|(whose, count)| format!("{whose}: {count}")).collect();
    if left > 0 {
        causes.push(format!("and {left} more"));
    }
    causes
}

/// Compares what two runs of one workload must have in common. Model time is compared only if both runs report it as
/// exact.
#[must_use]
pub fn differences(one: &Report, other: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut compare = |what: String, one: String, other: String| {
        let outcome = Outcome::of(one == other);
        verdicts.push(Verdict { what, outcome, expected: one, found: other, causes: Vec::new() });
    };
    for (mine, theirs) in one.nodes.iter().zip(&other.nodes) {
        let name = &mine.name;
        compare(
            format!("messages sent and received of {name}"),
            format!("{} and {}", mine.messages_sent, mine.messages_received),
            format!("{} and {}", theirs.messages_sent, theirs.messages_received),
        );
        for (whose, [mine, theirs]) in ledgers(mine, theirs) {
            compare(format!("crossings of {whose}"), counts(mine), counts(theirs));
        }
    }
    if one.model.is_exact && other.model.is_exact {
        for (mine, theirs) in one.nodes.iter().zip(&other.nodes) {
            for (whose, [mine, theirs]) in ledgers(mine, theirs) {
                compare(format!("model time by crossing of {whose}"), prices(mine), prices(theirs));
            }
        }
        compare(
            "model time by crossing of the network".to_owned(),
            prices(&one.fabric.ledger),
            prices(&other.fabric.ledger),
        );
        let (mine, theirs) = (&one.model, &other.model);
        compare("model latency".to_owned(), latencies(&mine.latency), latencies(&theirs.latency));
        compare("model time".to_owned(), format!("{} ps", mine.time_ps), format!("{} ps", theirs.time_ps));
    }
    verdicts
}

/// The ledgers of one node in two runs, with the node's name in the first run. They are the NIC's, and those of its
/// peripherals, by index and name. A ledger that only the other run has is paired with an empty one.
fn ledgers<'a>(
    one: &'a NodeFigures,
    other: &'a NodeFigures,
) -> impl Iterator<Item = (String, [&'a [LedgerEntry]; 2])> {
    let mut pairs: BTreeMap<(usize, &str), [&[LedgerEntry]; 2]> = BTreeMap::new();
    for (run, node) in [one, other].into_iter().enumerate() {
        let of_cards = node.peripherals.iter().map(|card| (&*card.name, &*card.ledger));
        for (place, (name, ledger)) in std::iter::once(("", &*node.ledger)).chain(of_cards).enumerate() {
            pairs.entry((place, name)).or_default()[run] = ledger;
        }
    }
    pairs.into_iter().map(|((_, name), pair)| (format!("{} {name}", one.name).trim_end().to_owned(), pair))
}

/// Whether a live run's model time is exact, so that it can be compared with another run's.
#[must_use]
pub fn exactness(report: &Report) -> Verdict {
    Verdict {
        what: "model time".to_owned(),
        outcome: Outcome::of(report.model.is_exact),
        expected: "exact".to_owned(),
        found: match &report.model.why_estimate {
            Some(why) => format!("an estimate: {why}"),
            None => "exact".to_owned(),
        },
        causes: Vec::new(),
    }
}

fn latencies(histogram: &Histogram) -> String {
    let Histogram { count, min_ps, p50_ps, p99_ps, max_ps, sum_ps, .. } = histogram;
    format!("{count} messages, {min_ps} to {max_ps} ps, median {p50_ps}, 99 % {p99_ps}, {sum_ps} ps in all")
}

/// Price and waiting time of each kind, in picoseconds.
fn prices(ledger: &[LedgerEntry]) -> String {
    let mut prices: Vec<String> = (ledger.iter().filter(|entry| entry.count > 0))
        .map(|entry| format!("{} {} + {}", entry.transaction, entry.model_price_ps, entry.model_waited_ps))
        .collect();
    prices.sort();
    prices.join(", ")
}

fn counts(ledger: &[LedgerEntry]) -> String {
    let mut counts: Vec<String> = (ledger.iter().filter(|entry| entry.count > 0))
        .map(|entry| format!("{} {}", entry.transaction, entry.count))
        .collect();
    counts.sort();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use niclab_spec::{
        Source,
        report::{FabricFigures, Mode, ModelFigures, PeripheralFigures, PortFigures, REPORT_VERSION},
    };

    use super::*;

    fn entry(transaction: &str, count: u64, bytes: u64) -> LedgerEntry {
        LedgerEntry { transaction: transaction.to_owned(), count, bytes, ..LedgerEntry::default() }
    }

    fn node(name: &str, interrupts: u64) -> NodeFigures {
        let caused: BTreeMap<String, u64> = [("message".to_owned(), interrupts)].into();
        NodeFigures {
            messages_sent: 100,
            messages_received: 100,
            bytes_received: 3_200,
            interrupts: caused.clone(),
            ports: vec![PortFigures { port: 3, launches: 100, interrupts: caused }],
            ledger: vec![entry("pio_write", 100, 3_200), entry("dma_write", 150, 4_000)],
            model_latency: Histogram {
                count: 100,
                min_ps: 5,
                p50_ps: 7,
                p99_ps: 9,
                max_ps: 11,
                sum_ps: 700,
                ..Histogram::default()
            },
            ..NodeFigures::new(name)
        }
    }

    fn report() -> Report {
        Report {
            version: REPORT_VERSION,
            niclab_version: String::new(),
            mode: Mode::Sim,
            cluster: String::new(),
            seed: 1,
            profile: String::new(),
            nic: Vec::new(),
            accelerator: None,
            qemu_version: None,
            kernel_release: None,
            workload: None,
            exit_code: None,
            wall: None,
            model: ModelFigures { is_exact: true, ..ModelFigures::default() },
            nodes: vec![node("node0", 10), node("node1", 12)],
            fabric: FabricFigures {
                ledger: vec![entry("serialization", 400, 9_000)],
                ..FabricFigures::default()
            },
            total: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// The report of two nodes; the second has a peer device on its bus.
    fn with_peripheral() -> Report {
        let mut report = report();
        let ledger = vec![entry("device_to_device", 5, 320), entry("dma_write", 7, 64)];
        report.nodes[1].peripherals = vec![PeripheralFigures { name: "io-card".into(), ledger }];
        report
    }

    fn verdict_of(budget: &str) -> Verdict {
        verdict_in(budget, &report())
    }

    fn verdict_in(budget: &str, report: &Report) -> Verdict {
        #[derive(serde::Deserialize)]
        struct File {
            budget: Vec<Budget>,
        }
        let file: File = Source::from_text("b", format!("[[budget]]\n{budget}")).parse().unwrap();
        verdict(&file.budget[0], report)
    }

    #[test]
    fn budgets_hold_at_their_limit_and_break_outside_it() {
        for (budget, held) in [
            ("what = 'interrupts'\nexact = 22", true),
            ("what = 'interrupts'\nexact = 21", false),
            ("what = 'interrupts'\nnode = 'node1'\nat_most = 12", true),
            ("what = 'interrupts'\nnode = 'node1'\nat_most = 11.5", false),
            ("what = 'pio_write'\nper = 'message'\nexact = 1", true),
            ("what = 'dma_operations'\nper = 'message'\nexact = 1.5", true),
            ("what = 'dma_operations'\nper = 'message'\nexact = 1.49", false),
            ("what = 'dma_bytes'\nat_least = 8000", true),
            ("what = 'dma_bytes'\nat_least = 8001", false),
            ("what = 'crossings'\nexact = 500", true),
            ("what = 'crossing_bytes'\nper = 'megabyte'\nat_most = 2250000", true),
            ("what = 'crossing_bytes'\nper = 'megabyte'\nat_most = 2249999", false),
            ("what = 'serialization'\nexact = 400", true),
            ("what = 'messages'\nexact = 200", true),
            ("what = 'model_latency_p50_ps'\nnode = 'node0'\nexact = 7", true),
            ("what = 'model_latency_max_ps'\nnode = 'node0'\nat_most = 10", false),
            ("what = 'guest_interrupts'\nat_most = 1000", false),
        ] {
            let verdict = verdict_of(budget);
            assert_eq!(verdict.is_held(), held, "{budget}: {verdict:?}");
        }
    }

    #[test]
    fn a_broken_budget_names_node_page_and_cause() {
        let verdict = verdict_of("what = 'interrupts'\nexact = 3");
        assert_eq!(verdict.found, "22");
        assert_eq!(
            verdict.causes,
            ["node1, page of port 3, cause message: 12", "node0, page of port 3, cause message: 10"]
        );
        let verdict = verdict_of("what = 'pio_write'\nper = 'message'\nat_most = 0.5");
        assert_eq!(verdict.what, "pio_write per message");
        assert_eq!(verdict.found, "1.000000 (200 in 200 messages)");
        assert_eq!(verdict.causes, ["node0, pio_write: 100", "node1, pio_write: 100"]);
    }

    /// Node 0 sent 400 messages and received one; node 1 received 390 of them, and its link lost frames.
    fn one_way() -> Report {
        let mut report = report();
        let [sender, receiver] = report.nodes.as_mut_slice() else { panic!("two nodes") };
        (sender.messages_sent, sender.messages_received, sender.doorbells) = (400, 1, 40);
        (receiver.messages_sent, receiver.messages_received, receiver.doorbells) = (1, 390, 0);
        receiver.link_events = [("lost".to_owned(), 10)].into();
        report
    }

    #[test]
    fn figures_divide_by_what_the_node_sent_or_received() {
        for (budget, held) in [
            ("what = 'doorbells'\nnode = 'node0'\nper = 'sent'\nexact = 0.1", true),
            ("what = 'doorbells'\nnode = 'node0'\nper = 'sent'\nat_most = 0.09", false),
            ("what = 'doorbells'\nnode = 'node0'\nper = 'received'\nexact = 40", true),
            ("what = 'doorbells'\nnode = 'node0'\nper = 'message'\nexact = 40", true),
            ("what = 'interrupts'\nnode = 'node1'\nper = 'received'\nat_most = 0.031", true),
            ("what = 'interrupts'\nper = 'sent'\nat_most = 0.055", true),
        ] {
            let verdict = verdict_in(budget, &one_way());
            assert_eq!(verdict.is_held(), held, "{budget}: {verdict:?}");
        }
        let verdict = verdict_in("what = 'doorbells'\nnode = 'node0'\nper = 'sent'\nexact = 1", &one_way());
        assert_eq!(verdict.what, "doorbells per sent message of node0");
        assert_eq!(verdict.found, "0.100000 (40 in 400 sent messages)");
        let mut silent = one_way();
        silent.nodes[0].messages_sent = 0;
        let verdict = verdict_in("what = 'doorbells'\nnode = 'node0'\nper = 'sent'\nat_most = 9", &silent);
        assert_eq!((verdict.outcome, verdict.found.as_str()), (Outcome::Broken, "40 and no sent message"));
    }

    #[test]
    fn lost_messages_are_those_sent_and_not_received() {
        let verdict = verdict_in("what = 'lost_messages'\nexact = 0", &one_way());
        assert_eq!((verdict.outcome, verdict.found.as_str()), (Outcome::Broken, "10 of 401"));
        assert_eq!(verdict.causes, ["node1, link event lost: 10"]);
        assert!(verdict_of("what = 'lost_messages'\nexact = 0").is_held());
        assert_eq!(loss(&one_way().nodes).unwrap().found, "10 of 401");
        assert_eq!(loss(&report().nodes), None);
        // Without credit, a sender sends nothing.
        let mut silent = one_way();
        silent.nodes.iter_mut().for_each(|node| (node.messages_sent, node.messages_received) = (0, 0));
        assert!(loss(&silent.nodes).unwrap().found.starts_with("10 lost frames"));
        let mut more = report();
        more.nodes[0].messages_received += 1;
        let verdict = verdict_in("what = 'lost_messages'\nexact = 0", &more);
        assert!(!verdict.is_held() && verdict.found.contains("cannot be counted"), "{verdict:?}");
    }

    #[test]
    fn transactions_of_peripherals_count_as_their_nodes() {
        for (budget, held) in [
            ("what = 'crossings'\nexact = 512", true),
            ("what = 'crossings'\nnode = 'node0'\nexact = 250", true),
            ("what = 'crossings'\nnode = 'node1'\nexact = 262", true),
            ("what = 'dma_operations'\nexact = 307", true),
            ("what = 'device_to_device'\nexact = 5", true),
            ("what = 'crossing_bytes'\nnode = 'node1'\nexact = 7584", true),
            ("what = 'device_to_device'\nexact = 0", false),
        ] {
            let verdict = verdict_in(budget, &with_peripheral());
            assert_eq!(verdict.is_held(), held, "{budget}: {verdict:?}");
        }
        let verdict = verdict_in("what = 'device_to_device'\nexact = 0", &with_peripheral());
        assert_eq!(verdict.causes, ["node1 io-card, device_to_device: 5"]);
    }

    #[test]
    fn peripherals_of_two_runs_are_compared() {
        let broken = |one: &Report, other: &Report| -> Vec<String> {
            let verdicts = differences(one, other).into_iter().filter(|verdict| !verdict.is_held());
            verdicts.map(|verdict| verdict.what).collect()
        };
        let one = with_peripheral();
        assert!(broken(&one, &one).is_empty());
        let mut other = with_peripheral();
        other.nodes[1].peripherals[0].ledger[0].model_price_ps += 1;
        assert_eq!(broken(&one, &other), ["model time by crossing of node1 io-card"]);
        let broken_by_peripheral = ["crossings of node1 io-card", "model time by crossing of node1 io-card"];
        assert_eq!(broken(&one, &report()), broken_by_peripheral);
        assert_eq!(broken(&report(), &one), broken_by_peripheral);
    }

    #[test]
    fn two_runs_are_compared_by_counts_and_by_exact_model_time() {
        let held = |other: &Report| differences(&report(), other).iter().all(Verdict::is_held);
        assert!(held(&report()));
        let mut other = report();
        other.nodes[1].ledger[0].count += 1;
        assert!(!held(&other));
        let mut other = report();
        other.model.latency.sum_ps += 1;
        assert!(!held(&other));
        other.model.is_exact = false;
        assert!(held(&other), "an estimate may differ");
    }
}
