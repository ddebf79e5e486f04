//! The paper's numbers, or rules that give numbers, next to the model's.

use super::{InicFigures, host_time};
use crate::figures::compared::{Compared, Published};

const RESOURCES: &str = "components' resources are Table 1's differences, divided";
const DATA_CYCLES: &str = "only data cycles are counted";

/// All rows.
pub(super) fn compared(figures: &InicFigures) -> Vec<Compared> {
    let mut rows = resources(figures);
    rows.extend(interrupts(figures));
    rows.extend(limits(figures));
    rows.extend(host_time::claims(&figures.hosts));
    rows
}

/// Table 1, and its shares of the two FPGAs.
fn resources(figures: &InicFigures) -> Vec<Compared> {
    let mut rows = Vec::new();
    for row in &figures.configurations {
        for (place, what) in ["flip-flops", "look-up tables"].into_iter().enumerate() {
            let exactly = Published::Number { value: f64::from(row.paper[place]), within: 0.5 };
            rows.push(
                Compared::new("table 1", format!("{}: {what}", row.name), "", exactly)
                    .ours(f64::from(row.sum[place]), 0)
                    .fitted(RESOURCES),
            );
            let [printed, computed] =
                [row.printed_share, row.computed_share].map(|share| f64::from(share[place]) / 100.0);
            let share = Compared::new(
                "table 1",
                format!("{}: share of {what}", row.name),
                "%",
                Published::Number { value: printed, within: 0.006 },
            )
            .ours(computed, 2)
            .given("arithmetic of the paper's own numbers");
            rows.push(if row.printed_share[place] == row.computed_share[place] {
                share
            } else {
                share.differs("the printed share is not that of the printed number of 12,544")
            });
        }
    }
    rows
}

/// Section 5.2's rule: an interrupt each time this number of bytes has arrived, and at the end.
fn interrupts(figures: &InicFigures) -> impl Iterator<Item = Compared> {
    figures.interrupts.iter().map(|row| {
        let what = match row.chunk_bytes {
            1 => "interrupts of 100 MB, one per packet".to_owned(),
            bytes => format!("interrupts of 100 MB, rcv_chunk_size {bytes}"),
        };
        let exactly = Published::Number { value: row.paper as f64, within: 0.5 };
        let counted = Compared::new("section 5.2", what, "", exactly).ours(row.counted as f64, 0);
        // Only for 4 KiB: in the other cases, the last packet does not fill a chunk.
        if row.chunk_bytes == 4 << 10 {
            counted.differs(
                "the last packet fills a chunk and ends the message: one interrupt, which the rule's \
                          arithmetic counts as two",
            )
        } else {
            counted
        }
    })
}

/// Section 5.3: the bandwidth that four crossings of the local bus allow, for each interpretation of the crossings.
fn limits(figures: &InicFigures) -> impl Iterator<Item = Compared> {
    let megabits = |bytes_per_s: u64| bytes_per_s as f64 * 8.0 / 1e6;
    figures.limits.iter().filter_map(move |row| {
        let paper = row.paper_bytes_per_s?;
        let ways = if row.both_ways { "both ways" } else { "one way" };
        let what = format!(
            "local bus, {} and {} crossings, traffic {ways}",
            row.send_crossings, row.receive_crossings
        );
        // The paper gives an upper limit; heads and acknowledgements reduce it.
        Some(
            Compared::new("section 5.3", what, "Mb/s", Published::within_percent(megabits(paper), 10.0))
                .ours(megabits(row.model_bytes_per_s), 1)
                .assumed(DATA_CYCLES),
        )
    })
}
