//! From a model's counters to the figures of a report, so that a live run and a simulation say the same of the same.

use std::collections::BTreeMap;

use niclab_model::fabric::{Fabric, PortCounters};
use niclab_model::parts::ledger::{Crossing, Ledger, Line};
use niclab_spec::report::{FabricFigures, LedgerEntry};

/// The kinds of crossings that occurred, in the ledger's order.
pub fn entries(ledger: &Ledger) -> Vec<LedgerEntry> {
    let lines = ledger.lines().filter(|(_, line)| line.count > 0);
    let entry = |(crossing, line): (Crossing, Line)| LedgerEntry {
        crossing: crossing.name().to_owned(),
        count: line.count,
        bytes: line.bytes,
        model_price_ps: line.price_ps,
        model_waited_ps: line.waited_ps,
    };
    lines.map(entry).collect()
}

/// Links and switch.
pub fn fabric(fabric: &Fabric) -> FabricFigures {
    let mut figures = FabricFigures { ledger: entries(fabric.ledger()), ..FabricFigures::default() };
    for counters in (0..fabric.ports()).filter_map(|port| fabric.counters(port)) {
        figures.frames_in += counters.frames_in;
        figures.bytes_in += counters.bytes_in;
        figures.frames_out += counters.frames_out;
        figures.bytes_out += counters.bytes_out;
    }
    figures
}

/// What the fabric did to frames on one link, by name; also what it did not do, so that a report always has the name.
pub fn link_events(counters: &PortCounters) -> BTreeMap<String, u64> {
    let events = [
        ("dropped_short", counters.dropped_short),
        ("dropped_long", counters.dropped_long),
        ("dropped_down", counters.dropped_down),
        ("dropped_queue", counters.dropped_queue),
        ("lost", counters.dropped_lost),
        ("duplicated", counters.doubled),
        ("corrupted", counters.corrupted),
        ("reordered", counters.reordered),
    ];
    events.map(|(name, count)| (name.to_owned(), count)).into()
}
