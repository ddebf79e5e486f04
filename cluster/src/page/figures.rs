//! The numbers that a page computes from a report: per message, and by resource.

use niclab_spec::{
    Report,
    report::{LedgerEntry, NodeFigures},
};

use crate::check::budget;

/// Where model time goes: a resource, and the transactions that use it. Any other transaction belongs to [`OTHER`].
const RESOURCES: [(&str, &[&str]); 6] = [
    ("host software", &["host_send", "host_receive", "host_interrupt", "host_copy"]),
    ("programmed I/O, doorbells", &["pio_write", "pio_read", "doorbell"]),
    ("DMA", &["dma_write", "dma_read", "descriptor_fetch", "descriptor_write_back", "device_to_device"]),
    ("interrupts", &["interrupt"]),
    ("NIC", &["local_bus", "ni_cycles"]),
    ("links and switch", &["serialization", "switch_fall_through"]),
];

/// The index of transactions that belong to no resource.
const OTHER: usize = RESOURCES.len();

/// The index of the time that transactions waited for a busy resource.
const WAITING: usize = OTHER + 1;

/// The number of parts of [`TimeParts`].
pub const PARTS: usize = WAITING + 1;

/// Model time by resource, in picoseconds. The names are those of [`part_name`].
pub type TimeParts = [f64; PARTS];

/// The name of a part of model time.
pub fn part_name(part: usize) -> &'static str {
    match RESOURCES.get(part) {
        Some((name, _)) => name,
        None if part == OTHER => "other",
        None => "waiting for a busy resource",
    }
}

/// The parts of the model time in ledgers.
#[expect(clippy::cast_precision_loss, reason = "drawn, not compared")]
pub fn time_parts<'a>(ledgers: impl IntoIterator<Item = &'a LedgerEntry>) -> TimeParts {
    let mut parts = [0.0; PARTS];
    for entry in ledgers {
        let is_of = |(_, kinds): &(&str, &[&str])| kinds.contains(&entry.transaction.as_str());
        parts[RESOURCES.iter().position(is_of).unwrap_or(OTHER)] += entry.model_price_ps as f64;
        parts[WAITING] += entry.model_waited_ps as f64;
    }
    parts
}

/// Messages that all nodes received.
pub fn messages(report: &Report) -> u64 {
    report.nodes.iter().fold(0, |sum, node| sum.wrapping_add(node.messages_received))
}

/// Messages that all nodes sent.
fn sent(report: &Report) -> u64 {
    report.nodes.iter().fold(0, |sum, node| sum.wrapping_add(node.messages_sent))
}

/// All interrupts of a node, of both functions.
pub fn interrupts(node: &NodeFigures) -> u64 {
    node.interrupts.values().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// `count` for each of `messages`, with three decimals.
pub fn per_message(count: u64, messages: u64) -> String {
    match (u128::from(count) * 1000).checked_div(u128::from(messages)) {
        Some(thousandths) => format!("{}.{:03}", thousandths / 1000, thousandths % 1000),
        None => "-".to_owned(),
    }
}

/// `amount` per second of a model time, in millions with two decimals: MB/s of bytes.
pub fn millions_per_second(amount: u64, time_ps: u64) -> String {
    match (u128::from(amount) * 100_000_000).checked_div(u128::from(time_ps)) {
        Some(hundredths) => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        None => "-".to_owned(),
    }
}

/// A line of the summary.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFigure {
    /// What it counts, with the unit.
    pub name: &'static str,
    /// The baseline's value, if there is a baseline, and the run's. `None` if the run does not count it.
    pub values: Vec<Option<f64>>,
}

impl KeyFigure {
    /// The change from the baseline in percent: `+1.25 %`. Empty without a baseline.
    pub fn change(&self) -> String {
        match self.values.as_slice() {
            [Some(base), Some(new)] if base == new => "none".to_owned(),
            [Some(base), Some(new)] if *base > 0.0 => format!("{:+.2} %", (new - base) * 100.0 / base),
            [Some(_), Some(new)] => format!("+{}", shown(Some(*new))),
            [_, _] => "-".to_owned(),
            _ => String::new(),
        }
    }

    /// Whether the run differs from its baseline.
    pub fn is_changed(&self) -> bool {
        matches!(self.values.as_slice(), [base, new] if base != new)
    }
}

/// A value of the summary, with at most three decimals.
pub fn shown(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The summary of these reports: the baseline, if there is one, and the run.
#[expect(clippy::cast_precision_loss, reason = "shown rounded; the tables have all digits")]
pub fn key_figures(reports: &[&Report]) -> Vec<KeyFigure> {
    type Read = fn(&Report) -> Option<f64>;
    fn of_message(report: &Report, what: &str) -> Option<f64> {
        let count = budget::value(what, None, report)?;
        Some(messages(report)).filter(|messages| *messages > 0).map(|messages| count as f64 / messages as f64)
    }
    fn latency(report: &Report, read: fn(&Report) -> u64) -> Option<f64> {
        (report.model.latency.count > 0).then(|| read(report) as f64 / 1e6)
    }
    let all: [(&'static str, Read); 13] = [
        ("messages sent", |report| Some(sent(report) as f64)),
        ("messages received", |report| Some(messages(report) as f64)),
        ("interrupts per message", |report| of_message(report, "interrupts")),
        ("doorbells per message", |report| of_message(report, "doorbells")),
        ("DMA operations per message", |report| of_message(report, "dma_operations")),
        ("DMA bytes per message", |report| of_message(report, "dma_bytes")),
        ("bus transactions per message", |report| of_message(report, "crossings")),
        ("latency, median, model us", |report| latency(report, |report| report.model.latency.p50_ps)),
        ("latency, 99 %, model us", |report| latency(report, |report| report.model.latency.p99_ps)),
        ("latency, longest, model us", |report| latency(report, |report| report.model.latency.max_ps)),
        ("messages per second of model time", |report| Some(report.model.messages_per_s as f64)),
        ("payload, MB per second of model time", |report| {
            Some(report.model.bandwidth_bytes_per_s as f64 / 1e6)
        }),
        ("wall time of the commands, s", |report| {
            report.wall.as_ref().map(|wall| wall.commands_ns as f64 / 1e9)
        }),
    ];
    let figures = all
        .into_iter()
        .map(|(name, read)| KeyFigure { name, values: reports.iter().map(|report| read(report)).collect() });
    figures.filter(|figure| figure.values.iter().any(Option::is_some)).collect()
}

#[cfg(test)]
mod tests {
    use niclab_spec::budget::CROSSINGS;

    use super::*;
    use crate::report::samples::sample;

    #[test]
    fn every_transaction_has_a_resource() {
        for kind in CROSSINGS {
            let entry =
                LedgerEntry { transaction: (*kind).to_owned(), model_price_ps: 5, ..LedgerEntry::default() };
            assert_eq!(time_parts([&entry])[OTHER], 0.0, "{kind}");
        }
    }

    #[test]
    fn parts_are_the_sum_of_the_ledger() {
        let report = sample();
        let sum = |read: fn(&LedgerEntry) -> u64| report.total.iter().map(read).sum::<u64>() as f64;
        let parts = time_parts(&report.total);
        assert_eq!(parts[WAITING], sum(|entry| entry.model_waited_ps));
        assert_eq!(parts[..WAITING].iter().sum::<f64>(), sum(|entry| entry.model_price_ps));
    }

    #[test]
    fn shares_keep_three_decimals_and_survive_extremes() {
        assert_eq!(per_message(11, 5), "2.200");
        assert_eq!(per_message(1, 0), "-");
        assert_eq!(per_message(u64::MAX, 1), "18446744073709551615.000");
        assert_eq!(millions_per_second(99, 1_600_000), "61.87");
        assert_eq!(millions_per_second(1, 0), "-");
    }

    #[test]
    fn key_figures_have_the_change_to_the_baseline() {
        let mut new = sample();
        new.nodes[0].doorbells = 22;
        let base = sample();
        let figures = key_figures(&[&base, &new]);
        let of = |name| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("doorbells per message").values, [Some(2.2), Some(4.4)]);
        assert_eq!(of("doorbells per message").change(), "+100.00 %");
        assert_eq!(
            (of("messages received").change().as_str(), of("messages received").is_changed()),
            ("none", false)
        );
        assert_eq!(key_figures(&[&base])[0].change(), "");
        let from_none = KeyFigure { name: "n", values: vec![Some(0.0), Some(0.25)] };
        assert_eq!(from_none.change(), "+0.25");
        assert_eq!(shown(Some(2.2)), "2.2");
        assert_eq!((shown(Some(40_000.0)), shown(None)), ("40000".to_owned(), "-".to_owned()));
    }
}
