//! The report of a run: what the commands gave, and what the devices counted.

use niclab_spec::monitor::{DaemonStats, NodeStats};
use serde::{Deserialize, Serialize};

use crate::output::table;

/// The version of [`RunReport`].
pub const REPORT_VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The cluster's name.
    pub cluster: String,
    /// The NIC model.
    pub nic: String,
    /// The platform profile.
    pub profile: String,
    /// The accelerator.
    pub accelerator: String,
    /// Why that one.
    pub accelerator_reason: String,
    /// QEMU's version.
    pub qemu_version: String,
    /// Release of the guest kernel.
    pub kernel_release: String,
    /// Wall time from the first process to all nodes healthy.
    pub wall_boot_s: f64,
    /// Wall time of the commands.
    pub wall_commands_s: f64,
    /// The code with which the run ends.
    pub exit_code: u8,
    /// The nodes, by rank.
    pub nodes: Vec<NodeReport>,
    /// What the daemon counted; none if it did not say.
    pub device: Option<DaemonStats>,
}

/// One node's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Host name.
    pub name: String,
    /// The command's code; none if it did not end.
    pub exit_code: Option<u8>,
    /// What is wrong, if something is.
    pub error: Option<String>,
    /// What the demonstration measured on this node (guest wall time), as it says itself.
    pub results: Option<serde_json::Value>,
}

impl RunReport {
    /// The report as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "cluster {}: {} nodes, NIC {}, profile {}, accelerator {} ({})\n\
             wall time: {:.1} s to healthy, {:.1} s for the commands\n",
            self.cluster,
            self.nodes.len(),
            self.nic,
            self.profile,
            self.accelerator,
            self.accelerator_reason,
            self.wall_boot_s,
            self.wall_commands_s
        );
        if let Some(device) = &self.device {
            text += "\n";
            text += &device_text(device);
        }
        for node in &self.nodes {
            if let Some(error) = &node.error {
                text += &format!("{}: {error}\n", node.name);
            }
        }
        text
    }
}

/// The daemon's counters as tables.
#[must_use]
pub fn device_text(stats: &DaemonStats) -> String {
    let heading = [
        "node",
        "messages sent",
        "received",
        "doorbells",
        "spared",
        "polls",
        "interrupts",
        "violations",
        "frames sent",
        "received",
        "dropped",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(stats.nodes.iter().map(counter_row));
    let mut text = table(&rows);
    for node in &stats.nodes {
        for (what, counts) in
            [("interrupts", &node.interrupts), ("violations", &node.violations), ("link", &node.link_events)]
        {
            let counts: Vec<String> =
                counts.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
            if !counts.is_empty() {
                text += &format!("{}: {what}: {}\n", node.name, counts.join(", "));
            }
        }
    }
    text += "\n";
    text += &ledger_text(stats);
    text
}

fn counter_row(node: &NodeStats) -> Vec<String> {
    let sum = |counts: &std::collections::BTreeMap<String, u64>| counts.values().sum::<u64>();
    let numbers = [
        node.messages_sent,
        node.messages_received,
        node.doorbells,
        node.spared_doorbells,
        node.polls,
        sum(&node.interrupts),
        sum(&node.violations),
        node.ethernet.sent_frames,
        node.ethernet.received_frames,
        node.ethernet.dropped_frames,
    ];
    std::iter::once(node.name.clone()).chain(numbers.map(|n| n.to_string())).collect()
}

/// Every crossing of every node, and their exact sum.
fn ledger_text(stats: &DaemonStats) -> String {
    let heading = ["node", "crossing", "count", "bytes", "price, model us"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for node in &stats.nodes {
        for entry in node.ledger.iter().filter(|entry| entry.count > 0) {
            rows.push(vec![
                node.name.clone(),
                entry.crossing.clone(),
                entry.count.to_string(),
                entry.bytes.to_string(),
                microseconds(entry.model_price_ps),
            ]);
        }
    }
    if rows.len() == 1 {
        return "ledger: no crossings\n".to_owned();
    }
    let total_ps: u64 =
        stats.nodes.iter().flat_map(|node| &node.ledger).map(|entry| entry.model_price_ps).sum();
    let exactness = if stats.model_time_is_exact { "exact" } else { "an estimate, as senders raced" };
    let total = format!(
        "sum of all prices: {} us; model time: {} us, {exactness}\n",
        microseconds(total_ps),
        microseconds(stats.model_time_ps)
    );
    table(&rows) + &total
}

/// Picoseconds as microseconds, all digits.
fn microseconds(ps: u64) -> String {
    format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000)
}

#[cfg(test)]
mod tests {
    use niclab_spec::report::LedgerEntry;

    use super::*;

    fn stats() -> DaemonStats {
        let entry = |crossing: &str, model_price_ps| LedgerEntry {
            crossing: crossing.into(),
            count: 3,
            bytes: 24,
            model_price_ps,
            model_waited_ps: 0,
        };
        DaemonStats {
            model_time_ps: 5,
            model_time_is_exact: true,
            nodes: vec![NodeStats {
                name: "node0".into(),
                doorbells: 11,
                interrupts: [("notification".to_owned(), 2), ("system".to_owned(), 0)].into(),
                ledger: vec![entry("pio_write", 1_500_000), entry("dma_write", 1)],
                ..NodeStats::default()
            }],
            ..DaemonStats::default()
        }
    }

    #[test]
    fn counts_and_prices_are_shown_and_the_sum_is_exact() {
        let text = device_text(&stats());
        assert!(text.contains("interrupts: notification 2\n"), "{text}");
        assert!(text.contains("1.500000") && text.contains("sum of all prices: 1.500001 us"), "{text}");
        assert!(text.contains("model time: 0.000005 us, exact"), "{text}");
    }

    #[test]
    fn the_json_report_is_valid_and_versioned() {
        let report = RunReport {
            version: REPORT_VERSION,
            cluster: "c".into(),
            nic: "ultra".into(),
            profile: "p".into(),
            accelerator: "tcg".into(),
            accelerator_reason: "no \"KVM\"\n".into(),
            qemu_version: "11".into(),
            kernel_release: "6".into(),
            wall_boot_s: 1.5,
            wall_commands_s: 0.5,
            exit_code: 0,
            nodes: vec![NodeReport { name: "node0".into(), exit_code: Some(0), error: None, results: None }],
            device: Some(stats()),
        };
        let text = serde_json::to_string_pretty(&report).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["version"], REPORT_VERSION);
        assert_eq!(value["device"]["nodes"][0]["doorbells"], 11);
        assert_eq!(serde_json::from_str::<RunReport>(&text).unwrap(), report);
        assert!(report.text().contains("no \"KVM\""));
    }
}
