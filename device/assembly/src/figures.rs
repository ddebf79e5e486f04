//! Converts a model's counters to the figures of a report, for live runs and simulations alike.

use std::collections::BTreeMap;

use niclab_model::fabric::{PortCounters, SwitchPort};
use niclab_model::nic::Nic;
use niclab_model::nic::Statistics;
use niclab_model::nic::adversarial::AdversarialKind;
use niclab_model::nic::fault_injector::Record;
use niclab_model::platform::histogram::Histogram;
use niclab_model::platform::ledger::{Ledger, Line, Transaction};
use niclab_spec::report::{self, FabricFigures, LedgerEntry, PeripheralFigures};

/// The kinds of transactions that occurred, in the ledger's order.
pub fn entries(ledger: &Ledger) -> Vec<LedgerEntry> {
    let lines = ledger.lines().filter(|(_, line)| line.count > 0);
    let entry = |(transaction, line): (Transaction, Line)| LedgerEntry {
        transaction: transaction.name().to_owned(),
        count: line.count,
        bytes: line.bytes,
        model_price_ps: line.price_ps,
        model_waited_ps: line.waited_ps,
    };
    lines.map(entry).collect()
}

/// The peer devices of a NIC on the node's bus, which its model provides.
pub fn peripherals(nic: &dyn Nic) -> Vec<PeripheralFigures> {
    let figures = |(name, ledger): (&str, &Ledger)| PeripheralFigures {
        name: name.to_owned(),
        ledger: entries(ledger),
    };
    nic.peripherals().into_iter().map(figures).collect()
}

/// A histogram of times in picoseconds.
pub fn histogram(histogram: &Histogram) -> report::Histogram {
    report::Histogram {
        count: histogram.count(),
        min_ps: histogram.min(),
        p50_ps: histogram.quantile(500),
        p90_ps: histogram.quantile(900),
        p99_ps: histogram.quantile(990),
        p999_ps: histogram.quantile(999),
        max_ps: histogram.max(),
        // A sum beyond half a year of model time is reported as the maximum.
        sum_ps: u64::try_from(histogram.sum()).unwrap_or(u64::MAX),
    }
}

/// The sums over the links and the switch.
pub fn fabric<'a>(ports: impl IntoIterator<Item = &'a SwitchPort>) -> FabricFigures {
    let (mut figures, mut ledger) = (FabricFigures::default(), Ledger::default());
    for port in ports {
        ledger.add(port.ledger());
        let counters = port.counters();
        figures.frames_in += counters.frames_in;
        figures.bytes_in += counters.bytes_in;
        figures.frames_out += counters.frames_out;
        figures.bytes_out += counters.bytes_out;
    }
    figures.ledger = entries(&ledger);
    figures
}

/// The frames of one link that the fabric dropped or changed, by cause.
pub fn link_events(counters: &PortCounters) -> BTreeMap<String, u64> {
    named([
        ("dropped_short", counters.dropped_short),
        ("dropped_long", counters.dropped_long),
        ("dropped_down", counters.dropped_down),
        ("dropped_queue", counters.dropped_queue),
        ("lost", counters.dropped_lost),
        ("duplicated", counters.duplicated),
        ("corrupted", counters.corrupted),
        ("reordered", counters.reordered),
    ])
}

/// The faults injected into a card: the number of each by name, and records of the last ones.
pub fn device_faults(nic: &dyn Nic) -> (BTreeMap<String, u64>, Vec<report::DeviceFault>) {
    let Some(fault_injector) = nic.fault_injector() else { return Default::default() };
    let counts = named(fault_injector.counts().map(|(fault, count)| (fault.name(), count)));
    (counts, fault_injector.records().map(device_fault).collect())
}

/// What an adversarial card did within its specification, by name.
pub fn adversarial(counts: impl Iterator<Item = (AdversarialKind, u64)>) -> BTreeMap<String, u64> {
    named(counts.map(|(kind, count)| (kind.name(), count)))
}

fn device_fault(record: &Record) -> report::DeviceFault {
    let message = record.intended.message();
    report::DeviceFault {
        number: record.number,
        fault: record.fault.name().to_owned(),
        opportunity: record.opportunity,
        model_time_ps: record.intended.at().as_ps(),
        message_from: message.map(|message| message.node),
        message_number: message.map(|message| message.number),
    }
}

/// The counters that only this card's model has, by name.
pub fn nic_counts(nic: &dyn Nic) -> BTreeMap<String, u64> {
    named(nic.counters())
}

/// What a card refused or dropped, by cause.
pub fn refusals(statistics: &Statistics) -> BTreeMap<String, u64> {
    named([
        ("refused", statistics.refused),
        ("unauthorized", statistics.unauthorized),
        ("crc_errors", statistics.crc_errors),
        ("malformed", statistics.malformed),
        ("overruns", statistics.overruns),
    ])
}

/// The nonzero counts by name. Equal names are added up.
pub fn named<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        *named.entry(name.to_owned()).or_insert(0) += count;
    }
    named
}
