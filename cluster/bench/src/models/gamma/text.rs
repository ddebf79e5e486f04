//! The figures as tables, for docs/reference/figures/gamma.txt.

use niclab_cluster::output::table;

use super::{
    BIT_ERRORS, DRIVEN, Damage, GammaFigures, NODES, PAPER_BIT_ERRORS, PLATFORMS, SIZES, SLOW_RECEIVE_PS,
    WINDOWS, claims, frame_errors, megabytes_per_s, theory,
};
use crate::figures::compared;

/// All tables.
pub(super) fn text(figures: &GammaFigures) -> String {
    let mut text = "GAMMA in the simulator; all times are model time. Two nodes, links of 100 Mb/s, frames of at\n\
                    most 1500 bytes, 1,024 buffers, programs that poll. Half of a round trip; each message begins\n\
                    with a tag of 16 bytes.\n\n"
        .to_owned();
    text += &compared::text(&claims::compared(figures));
    for ((profile, _), driven) in PLATFORMS.into_iter().zip(DRIVEN) {
        throughput(&mut text, figures, profile, driven);
    }
    copies(&mut text, figures);
    labours(&mut text, figures);
    crowds(&mut text, figures);
    damage(&mut text, figures);
    text += &figures.tcp.text();
    text
}

fn heading(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

fn us(ps: u64) -> String {
    format!("{:.2}", ps as f64 / 1e6)
}

/// Processor time for a full frame.
fn labours(text: &mut String, figures: &GammaFigures) {
    *text += "\nTime of both processors for a message of one full frame, us. The card with descriptors transfers by \
              itself; with the\n\
              CPU-driven card, the processor waits for each transfer.\n\n";
    let mut rows = heading(&["", "software", "copy", "programmed I/O", "waiting for transfers", "total"]);
    for labour in &figures.labours {
        let parts = [
            labour.model_software_ps,
            labour.model_copy_ps,
            labour.model_programmed_ps,
            labour.model_transfers_ps,
        ];
        let mut row = vec![labour.profile.to_owned()];
        row.extend(parts.into_iter().chain([parts.iter().sum()]).map(us));
        rows.push(row);
    }
    *text += &table(&rows);
}

fn damage(text: &mut String, figures: &GammaFigures) {
    let Damage { sent, received, damaged, lost } = figures.damage;
    let one_in = |bit_errors| 1.0 / frame_errors(bit_errors);
    *text += &format!(
        "\nBit errors. At a rate of {PAPER_BIT_ERRORS:e}, one of {:.0} full frames has a wrong bit (arithmetic; the\n\
         paper: about one in 10^6). Simulated with {BIT_ERRORS:e}, which damages one of {:.0} frames: {sent} sent,\n\
         {received} received, {damaged} reported as damaged and {lost} as lost.\n",
        one_in(PAPER_BIT_ERRORS),
        one_in(BIT_ERRORS),
    );
}

fn throughput(text: &mut String, figures: &GammaFigures, profile: &str, driven: &str) {
    *text += &format!("\n{profile}: throughput over size, MB/s; theory: 7 us and 12.5 MB/s.\n\n");
    let mut rows = heading(&["message bytes", "theory", "CPU-driven", "no flow control"]);
    rows[0].extend(WINDOWS.iter().skip(1).map(|window| format!("window {window}")));
    rows[0].push("one way (us), no flow control".to_owned());
    for bytes in SIZES {
        let mut row = vec![bytes.to_string(), format!("{:.2}", theory(bytes))];
        row.push(format!("{:.2}", megabytes_per_s(bytes, figures.one_way_ps(driven, 0, bytes))));
        row.extend(WINDOWS.map(|window| {
            format!("{:.2}", megabytes_per_s(bytes, figures.one_way_ps(profile, window, bytes)))
        }));
        row.push(us(figures.one_way_ps(profile, 0, bytes)));
        rows.push(row);
    }
    *text += &table(&rows);
}

fn copies(text: &mut String, figures: &GammaFigures) {
    *text += "\nThe receiver's copy: one way with it, and without its time, us.\n\n";
    let mut rows = heading(&["message bytes"]);
    for (profile, _) in PLATFORMS {
        rows[0].extend(["copy", "none"].map(|what| format!("{profile}: {what}")));
    }
    for bytes in SIZES {
        let mut row = vec![bytes.to_string()];
        for copy in figures.copies.iter().filter(|copy| copy.bytes == bytes) {
            row.extend([copy.model_one_way_ps, copy.without_model_one_way_ps].map(us));
        }
        rows.push(row);
    }
    *text += &table(&rows);
}

fn crowds(text: &mut String, figures: &GammaFigures) {
    *text += &format!(
        "\n{NODES} nodes, messages of 1,024 bytes. With a window of 8, the other nodes' frames use 99 x 8 = 792 of\n\
         1,024 buffers, and their acknowledgements 99; 133 are left (section 3). The slow receiver's software\n\
         takes {} us per frame, longer than the wire. Datagrams: one of 1,510 bytes after each eighth message,\n\
         over the same rings.\n\n",
        SLOW_RECEIVE_PS / 1_000_000
    );
    let mut rows = heading(&[
        "workload",
        "window",
        "sent",
        "received",
        "datagrams",
        "received",
        "no buffer",
        "acknowledgements",
    ]);
    for crowd in &figures.crowds {
        let window = if crowd.window == 0 { "none".to_owned() } else { crowd.window.to_string() };
        let counts = [
            crowd.sent,
            crowd.received,
            crowd.datagrams,
            crowd.datagrams_received,
            crowd.missed_frames,
            crowd.acknowledgements,
        ];
        let mut row = vec![crowd.workload.to_owned(), window];
        row.extend(counts.map(|count| count.to_string()));
        rows.push(row);
    }
    *text += &table(&rows);
}
