//! The difference of two readings of the same counters.

use std::collections::BTreeMap;

use super::DaemonStats;
use crate::report::{FabricFigures, LedgerEntry, NodeFigures, PortFigures, TrafficStats, why_estimate};

impl DaemonStats {
    /// The difference to `before`, an earlier answer of the same daemon. Counters wrap, and the difference is correct
    /// even then. Latencies are those of this answer; if `before` answered [`super::Request::BeginMeasurement`], they
    /// were reset then.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        since.wall_uptime_ns = self.wall_uptime_ns.wrapping_sub(before.wall_uptime_ns);
        since.model.time_ps = self.model.time_ps.saturating_sub(before.model.time_ps);
        for (node, before) in since.nodes.iter_mut().zip(&before.nodes) {
            node.subtract(before);
        }
        since.fabric.subtract(&before.fabric);
        // If the whole is exact, each part is.
        if !since.model.is_exact {
            since.model.why_estimate = why_estimate(&since.nodes);
            since.model.is_exact = since.model.why_estimate.is_none();
        }
        since
    }
}

impl NodeFigures {
    fn subtract(&mut self, before: &Self) {
        let pairs = [
            (&mut self.messages_sent, before.messages_sent),
            (&mut self.messages_received, before.messages_received),
            (&mut self.bytes_sent, before.bytes_sent),
            (&mut self.bytes_received, before.bytes_received),
            (&mut self.doorbells, before.doorbells),
            (&mut self.spared_doorbells, before.spared_doorbells),
            (&mut self.polls, before.polls),
            (&mut self.suppressed_interrupts, before.suppressed_interrupts),
            (&mut self.events_merged, before.events_merged),
            (&mut self.control_refused, before.control_refused),
            (&mut self.unordered, before.unordered),
            (&mut self.adversarial_reseeds, before.adversarial_reseeds),
        ];
        for (now, before) in pairs {
            *now = now.wrapping_sub(before);
        }
        self.model_time_ps = self.model_time_ps.saturating_sub(before.model_time_ps);
        self.ethernet.subtract(&before.ethernet);
        self.cluster.subtract(&before.cluster);
        subtract_counts(&mut self.shortcuts, &before.shortcuts);
        subtract_counts(&mut self.interrupts, &before.interrupts);
        subtract_counts(&mut self.nic_counts, &before.nic_counts);
        subtract_counts(&mut self.violations, &before.violations);
        subtract_counts(&mut self.link_events, &before.link_events);
        let faults_before = before.device_faults.values().fold(0, |sum: u64, count| sum.wrapping_add(*count));
        self.device_fault_log.retain(|fault| fault.number > faults_before);
        subtract_counts(&mut self.device_faults, &before.device_faults);
        subtract_counts(&mut self.adversarial, &before.adversarial);
        subtract_ports(&mut self.ports, &before.ports);
        subtract_ledger(&mut self.ledger, &before.ledger);
        subtract_ledger(&mut self.ethernet_ledger, &before.ethernet_ledger);
        for (now, before) in self.peripherals.iter_mut().zip(&before.peripherals) {
            subtract_ledger(&mut now.ledger, &before.ledger);
        }
    }
}

impl TrafficStats {
    fn subtract(&mut self, before: &Self) {
        self.sent_frames = self.sent_frames.wrapping_sub(before.sent_frames);
        self.sent_bytes = self.sent_bytes.wrapping_sub(before.sent_bytes);
        self.received_frames = self.received_frames.wrapping_sub(before.received_frames);
        self.received_bytes = self.received_bytes.wrapping_sub(before.received_bytes);
        self.dropped_frames = self.dropped_frames.wrapping_sub(before.dropped_frames);
    }
}

impl FabricFigures {
    fn subtract(&mut self, before: &Self) {
        self.frames_in = self.frames_in.wrapping_sub(before.frames_in);
        self.bytes_in = self.bytes_in.wrapping_sub(before.bytes_in);
        self.frames_out = self.frames_out.wrapping_sub(before.frames_out);
        self.bytes_out = self.bytes_out.wrapping_sub(before.bytes_out);
        subtract_ledger(&mut self.ledger, &before.ledger);
    }
}

/// Names whose count did not change are removed.
fn subtract_counts(now: &mut BTreeMap<String, u64>, before: &BTreeMap<String, u64>) {
    for (name, count) in now.iter_mut() {
        *count = count.wrapping_sub(before.get(name).copied().unwrap_or(0));
    }
    now.retain(|_, count| *count > 0);
}

/// Ports whose counts did not change are removed.
fn subtract_ports(now: &mut Vec<PortFigures>, before: &[PortFigures]) {
    for port in now.iter_mut() {
        let Some(before) = before.iter().find(|before| before.port == port.port) else { continue };
        port.launches = port.launches.wrapping_sub(before.launches);
        subtract_counts(&mut port.interrupts, &before.interrupts);
    }
    now.retain(|port| port.launches > 0 || !port.interrupts.is_empty());
}

/// Kinds whose counts did not change are removed.
fn subtract_ledger(now: &mut Vec<LedgerEntry>, before: &[LedgerEntry]) {
    for entry in now.iter_mut() {
        let Some(before) = before.iter().find(|before| before.transaction == entry.transaction) else {
            continue;
        };
        entry.count = entry.count.wrapping_sub(before.count);
        entry.bytes = entry.bytes.wrapping_sub(before.bytes);
        entry.model_price_ps = entry.model_price_ps.wrapping_sub(before.model_price_ps);
        entry.model_waited_ps = entry.model_waited_ps.wrapping_sub(before.model_waited_ps);
    }
    now.retain(|entry| entry.count > 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{DeviceFault, ModelFigures, PeripheralFigures};

    fn stats(scale: u64) -> DaemonStats {
        let entry = |transaction: &str, scale| LedgerEntry {
            transaction: transaction.into(),
            count: scale,
            bytes: 8 * scale,
            model_price_ps: 100 * scale,
            model_waited_ps: 10 * scale,
        };
        let port = |port, scale| PortFigures {
            port,
            launches: scale,
            interrupts: [("armed".to_owned(), scale)].into(),
        };
        let fault = |number| DeviceFault { number, ..DeviceFault::default() };
        let node = NodeFigures {
            messages_sent: scale,
            doorbells: 2 * scale,
            shortcuts: [("borrowed".to_owned(), 2), ("batched".to_owned(), scale)].into(),
            interrupts: [("message".to_owned(), 3 * scale)].into(),
            ports: vec![port(0, 4), port(3, scale)],
            device_faults: [("stale".to_owned(), 2), ("short".to_owned(), scale)].into(),
            adversarial: [("event_late".to_owned(), scale)].into(),
            adversarial_seed: Some(7),
            adversarial_reseeds: scale,
            device_fault_log: (1..=2 + scale).map(fault).collect(),
            ledger: vec![entry("doorbell", 4), entry("pio_write", scale)],
            peripherals: ["io-card", "io-card"]
                .map(|name| PeripheralFigures {
                    name: name.to_owned(),
                    ledger: vec![entry("dma_write", scale)],
                })
                .into(),
            ethernet: TrafficStats { sent_frames: scale, ..TrafficStats::default() },
            model_time_ps: 1000 * scale,
            ..NodeFigures::new("node0")
        };
        DaemonStats {
            model: ModelFigures { time_ps: 1000 * scale, ..ModelFigures::default() },
            nodes: vec![node],
            fabric: FabricFigures {
                frames_in: scale,
                ledger: vec![entry("serialization", scale)],
                ..FabricFigures::default()
            },
            ..DaemonStats::default()
        }
    }

    #[test]
    fn difference_has_only_counts_that_changed() {
        let mut expected = stats(3);
        expected.nodes[0].ledger.remove(0);
        expected.nodes[0].ports.remove(0);
        expected.nodes[0].device_faults.remove("stale");
        expected.nodes[0].shortcuts.remove("borrowed");
        expected.nodes[0].device_fault_log =
            (8..=10).map(|number| DeviceFault { number, ..DeviceFault::default() }).collect();
        expected.model.why_estimate = why_estimate(&expected.nodes);
        assert_eq!(stats(8).since(&stats(5)), expected, "every counter that changed, and no others");
    }

    #[test]
    fn estimate_names_the_races_since_the_first_reading() {
        let mut before = stats(5);
        before.nodes[0].unordered = 7;
        let mut after = stats(5);
        after.nodes[0].unordered = 7;
        let model = after.since(&before).model;
        assert!(
            model.is_exact && model.why_estimate.is_none(),
            "the race was before the measurement: {model:?}"
        );
        after.nodes[0].unordered = 8;
        let model = after.since(&before).model;
        assert!(!model.is_exact && model.why_estimate.unwrap().contains("(1 on node0)"));
        after.model.is_exact = true;
        assert!(after.since(&before).model.is_exact, "a simulation is always exact");
        after.model.is_exact = false;
        after.nodes[0].unordered = 7;
        after.nodes[0].ethernet.sent_frames += 2;
        let model = after.since(&before).model;
        assert!(!model.is_exact && model.why_estimate.unwrap().starts_with("2 Ethernet frames"));
        after.nodes[0].ethernet.sent_frames -= 2;
        let doorbell = LedgerEntry { transaction: "doorbell".into(), count: 1, ..LedgerEntry::default() };
        after.nodes[0].ethernet_ledger.push(doorbell);
        let model = after.since(&before).model;
        assert!(!model.is_exact && model.why_estimate.unwrap().starts_with("1 transactions of Ethernet"));
        after.nodes[0].ethernet_ledger.pop();
        after.nodes[0].device_faults.insert("delay".to_owned(), 3);
        let model = after.since(&before).model;
        assert!(!model.is_exact && model.why_estimate.unwrap().starts_with("3 device faults"));
    }

    #[test]
    fn new_kind_is_counted_from_zero() {
        let mut before = stats(5);
        before.nodes[0].ledger.clear();
        assert_eq!(stats(8).since(&before).nodes[0].ledger, stats(8).nodes[0].ledger);
    }
}
