//! Prints one report as tables. Every heading names the clock of its times.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use niclab_spec::{
    Report,
    monitor::DaemonStats,
    report::{
        FabricFigures, GuestTime, Histogram, LedgerEntry, ModelFigures, NodeFigures, PeripheralFigures,
        WallFigures, parts, sum_of,
    },
};

use crate::{daemon::rules::rules_text, output::table};

/// A report of more nodes shows only their sums: a larger table is unreadable, and the JSON has each node.
const MAX_NODES_SHOWN: usize = 64;

/// The complete report.
#[must_use]
pub fn report_text(report: &Report) -> String {
    let mut text = heading(report);
    if let Some(wall) = &report.wall {
        text += "\n";
        text += &wall_text(wall);
    }
    let nodes = shown(&report.nodes);
    text += "\n";
    text += &model_text(&report.model, &nodes);
    text += "\n";
    text += &counters_text(&nodes);
    text += "\n";
    text += &ledger_text(&nodes, &report.fabric, &report.total);
    let rules = rules_text(&nodes);
    if !rules.is_empty() {
        text += "\n";
        text += &rules;
    }
    if !report.checks.is_empty() {
        text += "\n";
    }
    for check in &report.checks {
        let verdict = if check.held { "held" } else { "BROKEN" };
        text += &format!("check {}: {verdict}: {}\n", check.name, check.detail);
    }
    for node in &report.nodes {
        if let Some(error) = &node.error {
            text += &format!("{}: {error}\n", node.name);
        }
        for line in &node.console {
            text += &format!("{}: console: {line}\n", node.name);
        }
    }
    text
}

/// The daemon's counters since its start.
#[must_use]
pub fn device_text(stats: &DaemonStats) -> String {
    let total = sum_of(parts(&stats.nodes, &stats.fabric));
    let nodes = shown(&stats.nodes);
    let mut text =
        [model_text(&stats.model, &nodes), counters_text(&nodes), ledger_text(&nodes, &stats.fabric, &total)]
            .join("\n");
    let rules = rules_text(&nodes);
    if !rules.is_empty() {
        text += "\n";
        text += &rules;
    }
    text
}

/// The nodes, or their sum if there are too many.
pub(crate) fn shown(nodes: &[NodeFigures]) -> Cow<'_, [NodeFigures]> {
    if nodes.len() <= MAX_NODES_SHOWN {
        return Cow::Borrowed(nodes);
    }
    let mut sum = NodeFigures::new(&format!("all {} nodes", nodes.len()));
    for node in nodes {
        add(&mut sum, node);
    }
    sum.ledger = sum_of(nodes.iter().flat_map(|node| &node.ledger));
    sum.ethernet_ledger = sum_of(nodes.iter().flat_map(|node| &node.ethernet_ledger));
    let peripherals = || nodes.iter().flat_map(|node| &node.peripherals);
    let names: BTreeSet<&String> = peripherals().map(|card| &card.name).collect();
    let of_name = |name: &String| PeripheralFigures {
        name: name.clone(),
        ledger: sum_of(peripherals().filter(|card| card.name == *name).flat_map(|card| &card.ledger)),
    };
    sum.peripherals = names.into_iter().map(of_name).collect();
    Cow::Owned(vec![sum])
}

/// Adds the counts whose sums the tables show.
fn add(sum: &mut NodeFigures, node: &NodeFigures) {
    let pairs = [
        (&mut sum.messages_sent, node.messages_sent),
        (&mut sum.messages_received, node.messages_received),
        (&mut sum.doorbells, node.doorbells),
        (&mut sum.spared_doorbells, node.spared_doorbells),
        (&mut sum.polls, node.polls),
        (&mut sum.events_merged, node.events_merged),
        (&mut sum.control_refused, node.control_refused),
        (&mut sum.cluster.sent_frames, node.cluster.sent_frames),
        (&mut sum.ethernet.sent_frames, node.ethernet.sent_frames),
        (&mut sum.ethernet.received_frames, node.ethernet.received_frames),
        (&mut sum.ethernet.dropped_frames, node.ethernet.dropped_frames),
    ];
    for (sum, count) in pairs {
        *sum = sum.wrapping_add(count);
    }
    let add_counts = |sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>| {
        for (name, count) in counts {
            let sum = sums.entry(name.clone()).or_insert(0);
            *sum = sum.wrapping_add(*count);
        }
    };
    add_counts(&mut sum.shortcuts, &node.shortcuts);
    add_counts(&mut sum.interrupts, &node.interrupts);
    add_counts(&mut sum.nic_counts, &node.nic_counts);
    add_counts(&mut sum.violations, &node.violations);
    add_counts(&mut sum.link_events, &node.link_events);
    add_counts(&mut sum.device_faults, &node.device_faults);
    add_counts(&mut sum.adversarial, &node.adversarial);
    add_counts(&mut sum.broken_rules, &node.broken_rules);
    sum.rules_checked = sum.rules_checked.max(node.rules_checked);
}

fn heading(report: &Report) -> String {
    let mut text = format!(
        "cluster {}: {}, {} nodes, NIC {}, profile {}, seed {}\nniclab {}",
        report.cluster,
        report.mode.name(),
        report.nodes.len(),
        report.nic.join(", "),
        report.profile,
        report.seed,
        report.niclab_version
    );
    for (what, version) in [("QEMU", &report.qemu_version), ("kernel", &report.kernel_release)] {
        if let Some(version) = version {
            text += &format!(", {what} {version}");
        }
    }
    if let Some(accelerator) = &report.accelerator {
        text += &format!(", accelerator {} ({})", accelerator.name, accelerator.reason);
    }
    text + "\n"
}

fn wall_text(wall: &WallFigures) -> String {
    let mut text = format!(
        "wall time: {} s to healthy, {} s for the commands\n",
        seconds(wall.boot_ns),
        seconds(wall.commands_ns)
    );
    for GuestTime { node, user_ns, system_ns, interrupts_ns, idle_ns } in &wall.guests {
        let [user, system, interrupts, idle] =
            [user_ns, system_ns, interrupts_ns, idle_ns].map(|ns| decimal(*ns, 1_000_000_000, 2));
        text += &format!(
            "{node}: its processors' wall time: {user} s in programs, {system} s in the kernel, {interrupts} s in \
             interrupts, {idle} s idle\n"
        );
    }
    if wall.results.is_empty() {
        return text;
    }
    let heading = [
        "node",
        "benchmark",
        "over",
        "payload",
        "messages",
        "wall MB/s",
        "wall messages/s",
        "round trip: wall p50 us",
        "p90",
        "p99",
        "p99.9",
        "max",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for result in &wall.results {
        let mut row = vec![
            result.node.clone(),
            result.benchmark.clone(),
            result.transport.clone(),
            result.payload_bytes.to_string(),
            result.messages.to_string(),
            decimal(result.payload_bytes_per_s, 1_000_000, 2),
            result.messages_per_s.to_string(),
        ];
        row.extend(match result.round_trip {
            Some(trip) => [trip.p50_ns, trip.p90_ns, trip.p99_ns, trip.p999_ns, trip.max_ns]
                .map(|ns| decimal(ns, 1000, 2)),
            None => std::array::from_fn(|_| "-".to_owned()),
        });
        rows.push(row);
    }
    text += &table(&rows);
    for result in &wall.results {
        if let Some(lost) = result.lost_datagrams {
            text += &format!("{}: {lost} of {} datagrams were lost\n", result.node, result.messages);
        }
    }
    text
}

/// Model time, and the latency of messages.
fn model_text(model: &ModelFigures, nodes: &[NodeFigures]) -> String {
    let exactness = match &model.why_estimate {
        _ if model.is_exact => "exact".to_owned(),
        Some(why) => format!("an estimate: {why}"),
        None => "an estimate".to_owned(),
    };
    let mut text = format!("model time: {} us, {exactness}\n", microseconds(model.time_ps));
    if model.messages_per_s > 0 {
        text += &format!(
            "model rates: {} messages/s, {} MB/s\n",
            model.messages_per_s,
            decimal(model.bandwidth_bytes_per_s, 1_000_000, 3)
        );
    }
    let heading = ["latency, model us", "messages", "min", "p50", "p90", "p99", "p99.9", "max", "mean"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut row = |name: String, latency: &Histogram| {
        if latency.count > 0 {
            rows.push(latency_row(name, latency));
        }
    };
    for node in nodes {
        row(node.name.clone(), &node.model_latency);
        row(format!("{} Ethernet", node.name), &node.ethernet_model_latency);
    }
    row("all".to_owned(), &model.latency);
    if rows.len() > 1 {
        text += &table(&rows);
    }
    text
}

fn latency_row(name: String, latency: &Histogram) -> Vec<String> {
    let mean = latency.sum_ps.checked_div(latency.count).unwrap_or(0);
    let times = [
        latency.min_ps,
        latency.p50_ps,
        latency.p90_ps,
        latency.p99_ps,
        latency.p999_ps,
        latency.max_ps,
        mean,
    ];
    [name, latency.count.to_string()].into_iter().chain(times.map(microseconds)).collect()
}

/// The counters of each node.
fn counters_text(nodes: &[NodeFigures]) -> String {
    let heading = [
        "node",
        "messages sent",
        "received",
        "doorbells",
        "suppressed",
        "polls",
        "interrupts",
        "guest's",
        "violations",
        "Ethernet frames sent",
        "received",
        "dropped",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(counter_row));
    let mut text = table(&rows);
    let nothing = BTreeMap::new();
    for node in nodes {
        let counts = [
            ("interrupts", &node.interrupts),
            ("interrupts by /proc/interrupts", node.guest_interrupts.as_ref().unwrap_or(&nothing)),
            ("NIC", &node.nic_counts),
            ("violations", &node.violations),
            ("link", &node.link_events),
            ("device faults", &node.device_faults),
            ("adversarial", &node.adversarial),
        ];
        for (what, counts) in counts {
            let counts: Vec<String> =
                counts.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
            if !counts.is_empty() {
                text += &format!("{}: {what}: {}\n", node.name, counts.join(", "));
            }
        }
        for (what, count) in [
            ("events merged because of missing buffers", node.events_merged),
            ("control requests refused", node.control_refused),
        ] {
            if count > 0 {
                text += &format!("{}: {what}: {count}\n", node.name);
            }
        }
        text += &adversarial_text(node);
        for (path, frames) in &node.shortcuts {
            let is_ethernet = path.starts_with("ethernet_");
            let all = if is_ethernet { node.ethernet.sent_frames } else { node.cluster.sent_frames };
            text += &format!("{}: frames on the fast path, {path}: {frames} of {all}\n", node.name);
        }
        for port in &node.ports {
            let interrupts: String =
                port.interrupts.iter().map(|(cause, n)| format!(", {n} interrupts ({cause})")).collect();
            text += &format!("{}: page {}: {} launches{interrupts}\n", node.name, port.port, port.launches);
        }
    }
    text
}

/// The seeds of the NIC's adversarial behaviour.
fn adversarial_text(node: &NodeFigures) -> String {
    match (node.adversarial_seed, node.adversarial_reseeds) {
        (None, _) => String::new(),
        (Some(seed), 0) => format!("{}: adversarial by seed {seed}\n", node.name),
        (Some(seed), more) => {
            format!("{}: adversarial by {} seeds, the last {seed}\n", node.name, more.saturating_add(1))
        }
    }
}

fn counter_row(node: &NodeFigures) -> Vec<String> {
    let sum = |counts: &BTreeMap<String, u64>| counts.values().fold(0_u64, |sum, n| sum.wrapping_add(*n));
    let guest =
        node.guest_interrupts.as_ref().map_or_else(|| "-".to_owned(), |counts| sum(counts).to_string());
    let first = [
        node.messages_sent,
        node.messages_received,
        node.doorbells,
        node.spared_doorbells,
        node.polls,
        sum(&node.interrupts),
    ];
    let last = [
        sum(&node.violations),
        node.ethernet.sent_frames,
        node.ethernet.received_frames,
        node.ethernet.dropped_frames,
    ];
    let texts = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>();
    [vec![node.name.clone()], texts(&first), vec![guest], texts(&last)].concat()
}

/// Every transaction of every node and the fabric, and their exact sum.
fn ledger_text(nodes: &[NodeFigures], fabric: &FabricFigures, total: &[LedgerEntry]) -> String {
    let heading = ["where", "transaction", "count", "bytes", "price, model us", "waited, model us"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut add = |name: &str, ledger: &[LedgerEntry]| {
        rows.extend(ledger.iter().filter(|entry| entry.count > 0).map(|entry| ledger_row(name, entry)));
    };
    for node in nodes {
        node.ledgers().for_each(|(name, ledger)| add(&name, ledger));
    }
    add("fabric", &fabric.ledger);
    add("total", total);
    if rows.len() == 1 {
        return "ledger: no transactions\n".to_owned();
    }
    let price_ps = total.iter().fold(0_u64, |sum, entry| sum.wrapping_add(entry.model_price_ps));
    let waited_ps = total.iter().fold(0_u64, |sum, entry| sum.wrapping_add(entry.model_waited_ps));
    let sums = [String::new(), String::new(), microseconds(price_ps), microseconds(waited_ps)];
    rows.push(["total", "all"].map(str::to_owned).into_iter().chain(sums).collect());
    table(&rows)
}

fn ledger_row(place: &str, entry: &LedgerEntry) -> Vec<String> {
    vec![
        place.to_owned(),
        entry.transaction.clone(),
        entry.count.to_string(),
        entry.bytes.to_string(),
        microseconds(entry.model_price_ps),
        microseconds(entry.model_waited_ps),
    ]
}

/// Picoseconds as microseconds, with all digits.
pub(crate) fn microseconds(ps: u64) -> String {
    decimal(ps, 1_000_000, 6)
}

fn seconds(ns: u64) -> String {
    decimal(ns, 1_000_000_000, 1)
}

/// `value / unit` with `digits` decimal places, rounded down. `unit` is a power of ten with at least that many zeros.
pub(crate) fn decimal(value: u64, unit: u64, digits: usize) -> String {
    let fraction = (value % unit) / (unit / 10_u64.pow(digits as u32)).max(1);
    format!("{}.{fraction:0digits$}", value / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    #[test]
    fn all_counts_are_shown() {
        let text = report_text(&sample());
        for word in [
            "cluster c: live, 1 nodes, NIC ultra, profile p, seed 7",
            "niclab 0.0.1, QEMU 11.1.3, kernel 6.12, accelerator tcg (no KVM)",
            "wall time: 4.1 s to healthy, 2.0 s for the commands",
            "node0: its processors' wall time: 1.23 s in programs, 0.04 s in the kernel, 0.01 s in interrupts, \
             0.70 s idle",
            "model time: 1.600000 us, an estimate: races",
            "node0: interrupts: message 2\n",
            "node0: page 3: 5 launches, 2 interrupts (message)\n",
            "node0: interrupts by /proc/interrupts: cluster 2\n",
            "check nothing-lost: BROKEN: message 3 of node0",
            "node0: it hangs",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }

    #[test]
    fn ledger_shows_each_part_and_the_exact_sum() {
        let text = report_text(&sample());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [
            "node0 pio_write 3 24 1.500000 0.000007",
            "node0 Ethernet dma_write 2 1500 0.000009 0.000000",
            "node0 io-card device_to_device 1 64 0.000002 0.000000",
            "fabric serialization 3 99 0.000005 0.000000",
            "total dma_write 3 1508 0.000010 0.000000",
            "total all 1.500017 0.000007",
        ] {
            assert!(lines.iter().any(|line| line.join(" ") == row), "{row}\n{text}");
        }
    }

    #[test]
    fn many_nodes_are_shown_as_their_sum() {
        let mut report = sample();
        let node = report.nodes[0].clone();
        report.nodes = vec![NodeFigures { error: None, ..node }; 4096];
        report.add_up();
        let text = report_text(&report);
        assert!(text.lines().count() < 60, "{text}");
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "all 4096 nodes 20480 20480 45056 0 0 8192 - 0 0 0 0",
            "all 4096 nodes pio_write 12288 98304 6144.000000 0.028672",
            "all 4096 nodes io-card device_to_device 4096 262144 0.008192 0.000000",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(microseconds(1_500_001), "1.500001");
        assert_eq!(decimal(12_345, 1000, 2), "12.34");
        assert_eq!(decimal(u64::MAX, 1_000_000, 3), "18446744073709.551");
    }

    #[test]
    fn daemons_counters_are_added_up() {
        let report = sample();
        let stats = DaemonStats {
            model: report.model,
            nodes: report.nodes,
            fabric: report.fabric,
            ..DaemonStats::default()
        };
        assert!(device_text(&stats).contains("1.500017"), "{}", device_text(&stats));
    }
}
