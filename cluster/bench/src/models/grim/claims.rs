//! The numbers and statements of the paper's section 6, next to those with profile `lanai4-pci`.

use super::{BURSTS, CHANNEL_COUNTS, CHANNELS, GrimFigures, OVERHEAD_BURST, PROFILES};
use crate::figures::compared::{Compared, Published};

/// Allowed difference in percent: the paper prints two or three digits of its measurements.
const PERCENT: f64 = 5.0;

const FIRMWARE: &str = "processor_send, processor_receive";
const IO_CARD: &str = "io_card_receive";
const SOFTWARE: &str = "host send_ps";

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

fn megabytes(bytes_per_s: u64) -> f64 {
    bytes_per_s as f64 / 1e6
}

/// All rows.
pub(super) fn compared(figures: &GrimFigures) -> Vec<Compared> {
    let mut rows = short_messages(figures);
    rows.extend(bandwidth(figures));
    rows
}

fn short_messages(figures: &GrimFigures) -> Vec<Compared> {
    let paper = PROFILES[0];
    let gap = |messages| figures.gap_ps(paper, messages);
    let latency = |channels| figures.latency_ps(paper, channels);
    let overhead = gap(OVERHEAD_BURST);
    let to_card = figures.io_card.first().map_or(0, |card| card.model_latency_ps);
    let longest = gap(BURSTS[BURSTS.len() - 1]);
    let added = |channels| us(latency(channels).saturating_sub(latency(CHANNELS)));
    let most = CHANNEL_COUNTS[CHANNEL_COUNTS.len() - 1];
    let about = |value| Published::within_percent(value, PERCENT);
    vec![
        Compared::new("section 6.1", "short message, one way", "us", about(13.0))
            .ours(us(latency(CHANNELS)), 2)
            .fitted(FIRMWARE),
        Compared::new("section 6.3", "host to remote I/O card", "us", about(21.0))
            .ours(us(to_card), 2)
            .fitted(IO_CARD),
        Compared::new("section 6.1", "overhead, of a burst of 100", "us", Published::within_percent(1.0, 10.0))
            .ours(us(overhead), 2)
            .fitted(SOFTWARE),
        Compared::new(
            "section 6.1",
            "gap beyond the overhead, burst of 200",
            "us",
            Published::words("negligible", figures.is_gap_negligible()),
        )
        .ours(us(gap(200).saturating_sub(overhead)), 2)
        .given("rings of 256 messages hold the burst"),
        Compared::new("section 6.1", "gap, burst of 2,000", "us", about(20.0))
            .ours(us(longest), 2)
            .follows(FIRMWARE)
            .differs(
                "no mechanism of the paper's text is that slow; the end of figures/grim.txt has assumptions that \
                 would explain it",
            ),
        Compared::new(
            "figure 6",
            format!("latency that {most} channels add to that of {CHANNELS}"),
            "us",
            Published::words("grows", figures.does_latency_grow() && added(most) > 0.0),
        )
        .ours(added(most), 2)
        .assumed("scan"),
    ]
}

fn bandwidth(figures: &GrimFigures) -> Vec<Compared> {
    let about = |value| Published::within_percent(value, PERCENT);
    let [cut_through, stored] = figures.longest();
    let ratio = cut_through as f64 / stored.max(1) as f64;
    let stores = figures.stores;
    vec![
        Compared::new("section 6.2", "48 KiB, cut-through", "MB/s", about(106.0))
            .ours(megabytes(cut_through), 1)
            .follows(FIRMWARE)
            .differs(
            "for single messages: the last segment waits for wire and remote bus; overlapping fragments reach more \
             (figures/grim.txt)",
            ),
        Compared::new("section 6.2", "48 KiB, store-and-forward", "MB/s", about(74.0))
            .ours(megabytes(stored), 1)
            .follows(FIRMWARE)
            .differs("no round trip of single messages of this length reaches 74 MB/s if they are stored completely, \
                      even with firmware that takes no time"),
        Compared::new("section 6.2", "cut-through over store-and-forward (106/74)", "times", about(1.43))
            .ours(ratio, 2)
            .follows(FIRMWARE),
        Compared::new("section 5.2", "stores without write combining", "MB/s", Published::Between(5.0, 40.0))
            .ours(megabytes(stores.model_bytes_per_s), 1)
            .differs("only PCI's cycles are counted; the paper's chipsets add wait cycles that no source gives"),
        Compared::new(
            "section 5.2",
            "stores with write combining",
            "MB/s",
            Published::words("up to 125", stores.combined_model_bytes_per_s <= 125_000_000),
        )
            .ours(megabytes(stores.combined_model_bytes_per_s), 1),
    ]
}
