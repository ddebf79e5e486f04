//! The figures as tables, for docs/reference/figures/inic.txt.

use niclab_cluster::output::table;
use niclab_components::BUNDLED;

use super::{
    ASSEMBLIES, FAULT_KINDS, FAULT_PERCENTS, FAULTY_BYTES, FAULTY_MESSAGES, Faulty, InicFigures, PROFILES,
    SIZES, Size, claims, host_time,
};
use crate::figures::compared;

/// All tables.
pub(super) fn text(figures: &InicFigures) -> String {
    let mut text = "INIC in the simulator; all times are model time\n\n".to_owned();
    text += &compared::text(&claims::compared(figures));
    text.push('\n');
    resources(&mut text, figures);
    interrupts(&mut text, figures);
    host_time::text(&mut text, &figures.hosts);
    limits(&mut text, figures);
    sizes(&mut text, figures);
    PROFILES.iter().for_each(|profile| faulty(&mut text, figures, profile));
    text
}

fn heading<const N: usize>(names: [&str; N]) -> Vec<Vec<String>> {
    vec![names.map(str::to_owned).to_vec()]
}

fn percent(hundredths: u32) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn megabits(bytes_per_s: u64) -> String {
    format!("{:.1}", bytes_per_s as f64 * 8.0 / 1e6)
}

fn resources(text: &mut String, figures: &InicFigures) {
    *text +=
        "Table 1: flip-flops and look-up tables, of 12,544 each. Sums are over the components below.\n\n";
    let mut rows = heading(["", "paper FF/LUT", "sum FF/LUT", "printed FF/LUT %", "computed FF/LUT %"]);
    let pair = |[one, other]: [u32; 2]| format!("{one}/{other}");
    let shares = |pair: [u32; 2]| pair.map(percent).join("/");
    rows.extend(figures.configurations.iter().map(|row| {
        vec![
            row.name.clone(),
            pair(row.paper),
            pair(row.sum),
            shares(row.printed_share),
            shares(row.computed_share),
        ]
    }));
    *text += &table(&rows);
    *text += "\nComponents. Derived: a difference of two rows of Table 1. Allotted: niclab's division of a sum in the \
              paper.\n\
              Own: niclab's estimate for a component that the paper did not build.\n\n";
    let mut rows = heading(["component", "FF/LUT", "origin"]);
    rows.extend(
        figures
            .components
            .iter()
            .map(|row| vec![row.name.clone(), pair(row.resources), row.origin.to_owned()]),
    );
    *text += &table(&rows);
}

fn interrupts(text: &mut String, figures: &InicFigures) {
    *text += "\nInterrupts for 100,000,000 bytes in packets of 1408, counted at the card (component mitigate of\n\
              unreliable_ordered, one message, the last interrupt at its end). The paper gives the rule; its\n\
              numbers are derived. Restarted: the count restarts from 0 at each interrupt, as with a\n\
              rcv_chunk_size of whole packets.\n\n";
    let mut rows = heading(["rcv_chunk_size", "derived", "counted", "counted, restarted"]);
    rows.extend(figures.interrupts.iter().map(|row| {
        vec![
            if row.chunk_bytes == 1 { "one per packet".to_owned() } else { row.chunk_bytes.to_string() },
            row.paper.to_string(),
            row.counted.to_string(),
            row.counted_restarted.to_string(),
        ]
    }));
    *text += &table(&rows);
}

fn limits(text: &mut String, figures: &InicFigures) {
    *text += "\nThe local bus, crossed four times (section 5.3): 264 Mb/s. Profile i960-32-33, unreliable_ordered,\n\
              messages of 64 KiB, data rate in one direction. Emergent: the rate that the crossings allow. From\n\
              the paper: 32 bits at 33 MHz. Fitted in the profile: only data cycles are counted. The text does not\n\
              say which packets cross how often: two times at either end, or four times at the sender.\n\n";
    let mut rows =
        heading(["crossings sent+received", "traffic", "paper Mb/s", "simulator Mb/s", "difference"]);
    rows.extend(figures.limits.iter().map(|row| {
        let difference = row
            .paper_bytes_per_s
            .map(|paper| format!("{:+.2}%", (row.model_bytes_per_s as f64 / paper as f64 - 1.0) * 100.0));
        vec![
            format!("{}+{}", row.send_crossings, row.receive_crossings),
            if row.both_ways { "both ways" } else { "one way" }.to_owned(),
            row.paper_bytes_per_s.map_or("-".to_owned(), megabits),
            megabits(row.model_bytes_per_s),
            difference.unwrap_or("-".to_owned()),
        ]
    }));
    *text += &table(&rows);
}

fn sizes(text: &mut String, figures: &InicFigures) {
    for profile in PROFILES {
        let of = |assembly: &str, bytes: u32| {
            let mut sizes = figures.sizes.iter();
            sizes.find(|size| {
                size.profile == profile && size.assembly == assembly && size.message_bytes == bytes
            })
        };
        for (what, shown) in [
            (
                "one-way latency, us",
                (|size| format!("{:.3}", size.model_latency_ps as f64 / 1e6)) as fn(&Size) -> String,
            ),
            ("bandwidth one way, Mb/s", |size| megabits(size.model_bytes_per_s)),
        ] {
            *text += &format!(
                "\n{profile}: {what}. There are no published numbers; the components' cycles are estimates.\n\n"
            );
            let mut rows = vec![vec!["message bytes".to_owned()]];
            rows[0].extend(ASSEMBLIES.map(|(name, _)| name.to_owned()));
            for bytes in SIZES {
                let mut row = vec![bytes.to_string()];
                row.extend(ASSEMBLIES.map(|(name, _)| of(name, bytes).map_or(String::new(), shown)));
                rows.push(row);
            }
            *text += &table(&rows);
        }
    }
}

fn faulty(text: &mut String, figures: &InicFigures, profile: &str) {
    *text += &format!(
        "\nFaulty links, {profile}: a stream of {FAULTY_MESSAGES} messages of {FAULTY_BYTES} bytes, three packets\n\
         each; one of the two links is faulty in both directions. Mb/s of received data over the total time,\n\
         received messages, retransmitted packets. A reordered frame is 2 us late, so another frame overtakes it\n\
         only if packets follow each other faster.\n\n"
    );
    let mut rows = vec![vec!["fault".to_owned(), "%".to_owned()]];
    rows[0].extend(BUNDLED.iter().map(|bundled| bundled.name.to_owned()));
    let mut row = |fault: &'static str, percent: u32| {
        let mut cells = vec![fault.to_owned(), percent.to_string()];
        cells.extend(BUNDLED.iter().map(|bundled| {
            let is_it = |cell: &&Faulty| {
                cell.profile == profile
                    && cell.fault == fault
                    && cell.percent == percent
                    && cell.assembly == bundled.name
            };
            figures.faulty.iter().find(is_it).map_or(String::new(), |cell| {
                format!("{} {} {}", megabits(cell.model_bytes_per_s), cell.messages, cell.retransmissions)
            })
        }));
        rows.push(cells);
    };
    row("none", 0);
    for fault in FAULT_KINDS {
        for percent in FAULT_PERCENTS {
            row(fault, percent);
        }
    }
    *text += &table(&rows);
}
