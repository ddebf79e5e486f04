//! The figures as tables, for docs/reference/figures/match.md.

use std::fmt::Write as _;

use super::{
    Ideal, List, Machine, MatchFigures, Measurements, PUBLISHED_OVERHEADS,
    claims::{Which, rows},
    overhead,
};
use crate::figures::compared::{self, Compared};

const ABOUT: &str = "\
# The match unit and other machines

The benchmark of the paper's Figure 5: 64 identical headers against lists of 10, 30, 100 and 300 items. The first pass
goes to the end of the list and fills caches; the next passes match from the first item to the last in tenths. All times
are model time, at 500 MHz for every machine. The match unit is the NIC's own, engine and list manager, cycle by cycle;
[PROCESSORS.md](../../design/PROCESSORS.md) describes the processors. `niclab validation --into docs/reference` writes
this page, and a test compares it. The drawing has the processors with items from memory.

![Time and ratio to ideal hardware over the items traversed](match.svg)
";

// Writing to a string does not fail.

/// All tables.
pub(super) fn text(figures: &MatchFigures) -> String {
    let measured = &figures.measured;
    let mut text = ABOUT.to_owned();
    match_unit(&mut text, &figures.compared());
    between(&mut text, measured);
    readings(&mut text, measured);
    claims(&mut text, measured);
    areas(&mut text, measured);
    decisions(&mut text, measured);
    for (which, title, _) in SETS {
        benchmark(&mut text, title, measured, which.processors(measured));
    }
    text
}

fn match_unit(text: &mut String, rows: &[Compared]) {
    *text += "\n## The match unit's own numbers\n\nIdeal hardware: 24 cycles, and 8 for each item.\n\n";
    *text += &compared::markdown(rows);
}

/// The time between two headers: zero, the paper's steps, and the fitted time.
fn between(text: &mut String, measured: &Measurements) {
    *text += "\n## The time between two headers\n\n\
              From `done` to the first word of the next header. Section 3.2 lists the list manager's steps in this \
              time, but not their duration; [INSIDE.md](../../use/match/INSIDE.md) has the steps with their cycles. \
              The DMA command, the event and the write-back overlap with the flush. The first row is the lower bound \
              for any list manager: the unit's own cycles, and those until the list manager is notified. Ideal \
              hardware takes 24 cycles, and 8 per item.\n\n\
              | from done to the next header | a match takes | 64 matches | 1 item | 10 items | 30 items |\n\
              |---|---|---|---|---|---|\n";
    let unit = &measured.match_unit;
    let counts = unit.model_cycles;
    let alone = |items: u32| (counts.header + counts.heard) as f64 + 8.0 * f64::from(items - 1);
    let rows: [(&str, &dyn Fn(u32) -> f64); 3] = [
        ("nothing", &alone),
        ("notified, pulled: as derived", &|items| measured.cycles(&unit.lists, items)),
        ("four cycles: fitted to the paper's ratios", &|items| measured.cycles(&unit.fitted_lists, items)),
    ];
    for (what, cycles) in rows {
        let one = cycles(1);
        let over = (one - Ideal::Fitting.cycles(1)) * f64::from(measured.headers_per_pass);
        let _ = write!(text, "| {what} | {:.0} + 8n | {over:.0} |", one - 8.0);
        for (items, _, _) in PUBLISHED_OVERHEADS {
            let _ = write!(text, " {:.2} % |", overhead(items, cycles(items)));
        }
        text.push('\n');
    }
    *text += "| the paper | | 384 |";
    for (_, paper, _) in PUBLISHED_OVERHEADS {
        let _ = write!(text, " {paper} % |");
    }
    text.push('\n');
}

/// The published ratios for each interpretation of ideal hardware.
fn readings(text: &mut String, measured: &Measurements) {
    *text += "\n## Which ideal hardware the published ratios mean\n\n\
              How much longer than ideal hardware the match unit takes. The paper gives 8 cycles for the header and 8 \
              for each item, and says that the unit needs 6 more for each match. Its ratios do not fit these numbers, \
              nor the cycles of its unit; they fit 24 and 8.\n\n\
              | items | paper | engine over 24 + 8 | difference | engine over 8 + 8 | difference | 6 cycles over 8 + \
              8 | difference |\n\
              |---|---|---|---|---|---|---|---|\n";
    for (items, paper, _) in PUBLISHED_OVERHEADS {
        let cycles = measured.cycles(&measured.match_unit.lists, items);
        let stated = Ideal::Stated.cycles(items);
        let _ = write!(text, "| {items} | {paper} % |");
        for time in [cycles / Ideal::Fitting.cycles(items), cycles / stated, (stated + 6.0) / stated] {
            let overhead = (time - 1.0) * 100.0;
            let _ = write!(text, " {overhead:.2} % | {:+.2} points |", overhead - paper);
        }
        text.push('\n');
    }
}

/// The three sets, in the order of the page.
const SETS: [(Which, &str, &str); 3] = [
    (
        Which::FromMemory,
        "From memory",
        "Headers from a FIFO, items of two cache lines with their locks in them, caches that invalidate each other.",
    ),
    (
        Which::AsDescribed,
        "As described",
        "All fields that matching reads are on one cache line, locks outside of memory; learned branches, waiting \
         threads sleep.",
    ),
    (
        Which::Otherwise,
        "Otherwise",
        "As described, but with branches predicted not taken, and waiting threads that spin.",
    ),
];

fn claims(text: &mut String, measured: &Measurements) {
    *text += "\n## The paper's claims about processors\n\n\
              Three sets of processors, whose decisions are in [PROCESSORS.md](../../design/PROCESSORS.md). Shares of \
              ideal hardware use the interpretation that fits the paper's ratios, 24 cycles + 8 per item. Differences \
              are declared: the figures fail if a claim ceases to hold, or if a claim with a declared difference \
              begins to hold.\n";
    for (which, title, what) in SETS {
        let _ = write!(text, "\n### {title}\n\n{what}\n\n");
        *text += &compared::markdown(&rows(measured, which));
    }
}

/// Table 4: machine, square millimetres, and ratio to the match unit, as printed.
const AREAS: [(&str, f64, f64); 5] = [
    ("match unit, with list manager", 1.3, 1.0),
    ("PPC 440", 6.0, 4.6),
    ("multithreaded, 1 core", 5.0, 3.8),
    ("multithreaded, 2 cores", 10.0, 7.7),
    ("multithreaded, 16 cores", 80.0, 61.5),
];
/// Section 6.2: area of the unit's memories by CACTI, in square millimetres at 90 nm.
const MEMORIES_MM2: f64 = 0.326;

fn areas(text: &mut String, measured: &Measurements) {
    let unit_mm2 = AREAS.first().map_or(f64::NAN, |(_, mm2, _)| *mm2);
    *text += "\n## Area\n\n\
              The areas are the paper's (Table 4, 90 nm); niclab estimates none. The ratios are recomputed from \
              them.\n\n\
              | machine | mm² | ratio, paper | ratio, recomputed | difference |\n\
              |---|---|---|---|---|\n";
    for (machine, mm2, printed) in AREAS {
        let ratio = mm2 / unit_mm2;
        let _ = writeln!(text, "| {machine} | {mm2} | {printed} | {ratio:.2} | {:+.2} |", ratio - printed);
    }
    let total = 4.0 * MEMORIES_MM2;
    let bits = &measured.match_unit.bits;
    let memories = [
        ("program, at its actual length", bits.program),
        ("ALU registers", bits.alu_registers),
        ("ternary registers", bits.ternary_registers),
        ("predicates", bits.predicates),
        ("input FIFO", bits.input_fifo),
        ("list manager's cache of items", bits.item_cache),
    ];
    let _ = write!(
        text,
        "\nThe paper's {unit_mm2} mm² is CACTI's area of the unit's memories, {MEMORIES_MM2} mm², times two for the \
         functional units, and times two for the list manager: {total:.3}. It does not give the size of each \
         memory. The engine's sizes, for other estimates ({} words of {} bits are the program):\n\n\
         | memory | bits |\n\
         |---|---|\n",
        measured.match_unit.program_words,
        bits.program / measured.match_unit.program_words.max(1),
    );
    for (memory, bits) in memories {
        let _ = writeln!(text, "| {memory} | {bits} |");
    }
    let _ = writeln!(text, "| total | {} |", memories.iter().map(|(_, bits)| bits).sum::<u64>());
}

fn decisions(text: &mut String, measured: &Measurements) {
    *text += "\n## The effect of each decision\n\nOpen questions about processors. Cycles of one match.\n\n\
              | machine | first item | 10 items | 100 items | 300 items |\n|---|---|---|---|---|\n";
    for Machine { name, lists } in &measured.variations {
        let [ten, hundred, three_hundred] = [10, 100, 300].map(|items| measured.full(lists, items));
        let first = measured.first(lists);
        let _ = writeln!(text, "| {name} | {first:.1} | {ten:.1} | {hundred:.1} | {three_hundred:.1} |");
    }
}

/// The values for each list, as in the paper's Figures 6 and 7.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Total,
    EachItem,
    Ratio,
}

fn benchmark(text: &mut String, title: &str, measured: &Measurements, processors: &[Machine]) {
    let _ = write!(text, "\n## The benchmark: {}\n", title.to_lowercase());
    for (index, unit) in measured.match_unit.lists.iter().enumerate() {
        let others = processors.iter().filter_map(|machine| machine.lists.get(index));
        let lists: Vec<&List> = std::iter::once(unit).chain(others).collect();
        let machines = processors.iter().map(|machine| machine.name.as_str());
        let names: Vec<&str> = std::iter::once("match unit").chain(machines).collect();
        for view in [View::Total, View::EachItem, View::Ratio] {
            heading(text, view, unit.items, &names);
            for row in 0..unit.passes.len() {
                table_row(text, view, measured, &lists, row);
            }
        }
    }
}

fn heading(text: &mut String, view: View, items: u32, names: &[&str]) {
    let what = match view {
        View::Total => "total time, µs",
        View::EachItem => "time of each item, ns",
        View::Ratio => "times ideal hardware's time, 24 + 8 and (8 + 8)",
    };
    let mut columns = vec!["list traversed", "items"];
    columns.extend(names);
    if view != View::Ratio {
        columns.extend(["ideal, 24 + 8", "ideal, 8 + 8"]);
    }
    let (names, rules) = (columns.join(" | "), "|---".repeat(columns.len()));
    let _ = write!(text, "\n{items} items: {what}.\n\n| {names} |\n{rules}|\n");
}

/// One pass on all machines.
fn table_row(text: &mut String, view: View, measured: &Measurements, lists: &[&List], row: usize) {
    let passes: Vec<_> = lists.iter().filter_map(|list| list.passes.get(row)).collect();
    let Some((percent, items)) = passes.first().and_then(|pass| Some((pass.percent?, pass.items_traversed)))
    else {
        return;
    };
    let ideals @ [fitting, stated] = [Ideal::Fitting, Ideal::Stated].map(|ideal| ideal.cycles(items));
    let simulated = passes.iter().map(|pass| measured.per_match(pass));
    let all_times = |scale: f64| {
        let times = simulated.clone().chain(ideals);
        times.map(|cycles| format!("{:.2}", cycles * measured.ns_per_cycle() * scale)).collect::<Vec<_>>()
    };
    let cells = match view {
        View::Total => all_times(f64::from(measured.headers_per_pass) / 1e3),
        View::EachItem => all_times(1.0 / f64::from(items)),
        View::Ratio => {
            simulated.map(|cycles| format!("{:.2} ({:.2})", cycles / fitting, cycles / stated)).collect()
        }
    };
    let _ = writeln!(text, "| {percent} % | {items} | {} |", cells.join(" | "));
}
