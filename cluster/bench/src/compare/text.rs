//! The comparison as a table. Each heading of a time names its clock.

use niclab_cluster::output::table;

use super::{Comparison, Figures, messages};

const HEADINGS: [&str; 11] = [
    "carrier",
    "mode",
    "one way, model us",
    "model MB/s",
    "round trip, wall us",
    "wall MB/s",
    "interrupts",
    "doorbells",
    "DMA operations",
    "bus bytes",
    "guests' wall us",
];

pub(super) fn text(comparison: &Comparison) -> String {
    let workload = &comparison.workload;
    let mut text = format!(
        "{} of {} messages of {} bytes, two nodes, profile {}; latencies are medians; the last five columns are per \
         message, both nodes together\n",
        workload.kind.name(),
        messages(workload),
        workload.message_bytes,
        comparison.profile,
    );
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for row in &comparison.rows {
        let cells = row.figures.as_ref().map_or_else(|| std::array::from_fn(|_| "-".to_owned()), cells);
        rows.push([row.carrier, row.mode.name()].map(str::to_owned).into_iter().chain(cells).collect());
    }
    text += &table(&rows);
    for row in &comparison.rows {
        if let Some(problem) = &row.problem {
            text += &format!("{}, {}: {problem}\n", row.carrier, row.mode.name());
        }
    }
    if comparison.rows.iter().any(|row| row.figures.is_some_and(|figures| !figures.model_is_exact)) {
        text += "~: an estimate, because wall time decided the order of some operations (docs/use/LEDGER.md, \"Live \
                 runs\")\n";
    }
    text
}

fn cells(figures: &Figures) -> [String; 9] {
    let model = |value: String| if figures.model_is_exact { value } else { format!("~{value}") };
    let some = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let each = |value: f64| format!("{value:.2}");
    [
        model(format!("{:.3}", figures.model_latency_p50_ps as f64 / 1e6)),
        model(format!("{:.2}", figures.model_bytes_per_s as f64 / 1e6)),
        some(figures.wall_round_trip_p50_ns.map(|ns| format!("{:.1}", ns as f64 / 1e3))),
        some(figures.wall_bytes_per_s.map(|rate| format!("{:.2}", rate as f64 / 1e6))),
        each(figures.interrupts),
        each(figures.doorbells),
        each(figures.dma_operations),
        each(figures.bus_bytes),
        some(figures.wall_guest_ns.map(|ns| format!("{:.1}", ns / 1e3))),
    ]
}
