//! The match unit's paper: "An Architecture to Perform NIC Based MPI Matching", section 6.
//!
//! A program of the device packages runs the paper's benchmark on the match unit and on the processors that the paper
//! compares it with, and counts cycles. This module adds the paper's statements about cycles and areas. Ideal hardware
//! takes the time in which the list arrives. The paper gives 8 cycles and 8 per item, but its three published ratios
//! fit 24 and 8; both are shown.

mod claims;
mod markdown;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use claims::Which;

use crate::figures::{
    compared::{Compared, Published, are_as_declared},
    plot::{Legend, Panel, Scale, Series, Style},
};

/// The version of [`MatchFigures`].
pub const MATCH_FIGURES_VERSION: u32 = 2;

/// The version of [`Measurements`] that this build reads.
const MEASUREMENTS_VERSION: u64 = 2;

/// Ideal hardware: as fast as the list arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ideal {
    /// 24 cycles and 8 per item, which fits the paper's published ratios.
    Fitting,
    /// 8 cycles for the header and 8 per item, as the paper says.
    Stated,
}

impl Ideal {
    /// Cycles of one match.
    #[must_use]
    pub fn cycles(self, items: u32) -> f64 {
        let header = match self {
            Self::Fitting => 24.0,
            Self::Stated => 8.0,
        };
        header + 8.0 * f64::from(items)
    }
}

/// Cycles of all machines, in model time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurements {
    /// The version of the measurements.
    pub version: u64,
    /// The clock of all machines.
    pub clock_mhz: u32,
    /// Number of matches in each pass.
    pub headers_per_pass: u32,
    /// The match unit.
    pub match_unit: MatchUnit,
    /// The processors: embedded, and multithreaded with 1, 2 and 16 cores.
    pub as_described: Vec<Machine>,
    /// The processors with the opposite decisions on what the paper leaves open.
    pub otherwise: Vec<Machine>,
    /// The processors with headers, items and locks in the memories of the paper's figures.
    pub from_memory: Vec<Machine>,
    /// Processors with one decision changed.
    pub variations: Vec<Machine>,
}

/// The match unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchUnit {
    /// Number of its program's words.
    pub program_words: u64,
    /// The words of each of Table 1's segments.
    pub segments: Vec<u64>,
    /// Bits of a word.
    pub word_bits: u64,
    /// Cycles of parts of the program.
    pub model_cycles: Counts,
    /// Bits of its memories.
    pub bits: Memories,
    /// The benchmark.
    pub lists: Vec<List>,
    /// The benchmark with the time between two headers fitted to the paper's ratios.
    pub fitted_lists: Vec<List>,
}

/// Cycles of parts of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// An item whose match bits differ.
    pub item_that_differs: u64,
    /// An item that matches.
    pub item_that_matches: u64,
    /// The flush.
    pub flush: u64,
    /// A header whose first item matches.
    pub header: u64,
    /// From the issue of a word until the list manager is notified of its output.
    pub heard: u64,
}

/// Bits of the unit's memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memories {
    /// The program.
    pub program: u64,
    /// The ALU's registers.
    pub alu_registers: u64,
    /// The ternary unit's registers.
    pub ternary_registers: u64,
    /// The predicates.
    pub predicates: u64,
    /// The input FIFO.
    pub input_fifo: u64,
    /// The list manager's cache.
    pub item_cache: u64,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The lists, one for each length.
    pub lists: Vec<List>,
}

/// The benchmark with one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Its length.
    pub items: u32,
    /// The passes; the first fills the caches.
    pub passes: Vec<Pass>,
}

/// A number of matches of the same item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Position of the matching item in the list, in percent; `None` for the pass that fills the caches.
    pub percent: Option<u32>,
    /// Items that each header was compared with.
    pub items_traversed: u32,
    /// Cycles of the whole pass.
    pub model_cycles: u64,
}

impl Measurements {
    /// Reads the output of the comparing program.
    ///
    /// # Errors
    /// When it is something else, or lacks machines or passes.
    pub fn read(json: &[u8]) -> Result<Self> {
        let measured: Self = serde_json::from_slice(json).context(
            "the comparing program printed something else than figures; build it and niclab together",
        )?;
        let version = measured.version;
        ensure!(
            version == MEASUREMENTS_VERSION,
            "figures of version {version}, not {MEASUREMENTS_VERSION}; build niclab-processors and niclab together"
        );
        let machines = measured.as_described.iter().chain(&measured.otherwise).chain(&measured.from_memory);
        let lists: Vec<&[List]> = machines
            .map(|machine| machine.lists.as_slice())
            .chain([measured.match_unit.lists.as_slice(), measured.match_unit.fitted_lists.as_slice()])
            .collect();
        ensure!(
            lists.len() == 14,
            "figures of {} machines, not of four processors three times and the match unit twice",
            lists.len()
        );
        for lists in lists {
            let passes = |list: &List| (list.items, list.passes.len());
            let found: Vec<_> = lists.iter().map(passes).collect();
            ensure!(
                found == LISTS.map(|items| (items, PASSES)),
                "lists and passes are {found:?}, not the paper's"
            );
        }
        Ok(measured)
    }

    /// Cycles of one match.
    fn per_match(&self, pass: &Pass) -> f64 {
        pass.model_cycles as f64 / f64::from(self.headers_per_pass)
    }

    /// Cycles of one match that traverses this number of items.
    fn cycles(&self, lists: &[List], items: u32) -> f64 {
        let points = self.by_items(lists);
        points.iter().find(|(of, _)| *of == f64::from(items)).map_or(f64::NAN, |(_, cycles)| *cycles)
    }

    /// Cycles of all matches of a pass over those of ideal hardware, for the pass with the largest difference to the
    /// paper's 384. First passes, in which the unit also initializes itself, are excluded.
    fn over_ideal(&self, lists: &[List]) -> f64 {
        let passes = lists.iter().flat_map(|list| &list.passes).filter(|pass| pass.percent.is_some());
        let over = passes.map(|pass| {
            let ideal = Ideal::Fitting.cycles(pass.items_traversed) * f64::from(self.headers_per_pass);
            pass.model_cycles as f64 - ideal
        });
        over.fold(384.0, |far: f64, over| if (over - 384.0).abs() > (far - 384.0).abs() { over } else { far })
    }

    /// Cycles of one match at the end of a list.
    fn full(&self, lists: &[List], items: u32) -> f64 {
        let list = lists.iter().find(|list| list.items == items);
        list.and_then(|list| list.passes.last()).map_or(f64::NAN, |pass| self.per_match(pass))
    }

    /// Cycles of one match at the first item of the shortest list.
    fn first(&self, lists: &[List]) -> f64 {
        let mut passes = lists.iter().flat_map(|list| &list.passes);
        passes.find(|pass| pass.percent == Some(0)).map_or(f64::NAN, |pass| self.per_match(pass))
    }

    /// Cycles of one match by the number of traversed items, from all passes of all lists except those that fill
    /// caches. If lists have the same number of items, the shortest list's value is used.
    fn by_items(&self, lists: &[List]) -> Vec<(f64, f64)> {
        let passes = lists.iter().flat_map(|list| &list.passes).filter(|pass| pass.percent.is_some());
        let mut points: Vec<(u32, f64)> =
            passes.map(|pass| (pass.items_traversed, self.per_match(pass))).collect();
        points.sort_by_key(|(items, _)| *items);
        points.dedup_by_key(|(items, _)| *items);
        points.into_iter().map(|(items, cycles)| (f64::from(items), cycles)).collect()
    }
}

/// The lengths of the paper's lists.
const LISTS: [u32; 4] = [10, 30, 100, 300];
/// Number of passes with each list; the first fills caches.
const PASSES: usize = 12;

/// The paper's section 6, with the machines' results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MatchFigures {
    /// [`MATCH_FIGURES_VERSION`].
    pub version: u32,
    /// The measurements.
    pub measured: Measurements,
}

impl MatchFigures {
    /// Makes figures of the measurements.
    #[must_use]
    pub const fn new(measured: Measurements) -> Self {
        Self { version: MATCH_FIGURES_VERSION, measured }
    }

    /// The paper's numbers next to ours. The match unit's are compared with the engine, and the processors' with the
    /// set whose items, locks and headers are in the memories of the paper's figures.
    #[must_use]
    pub fn compared(&self) -> Vec<Compared> {
        let mut rows = self.match_unit();
        rows.extend(claims::rows(&self.measured, Which::FromMemory));
        rows
    }

    /// The rows of the match unit.
    fn match_unit(&self) -> Vec<Compared> {
        compare(&self.measured)
    }

    /// Whether the paper's statements about processors hold in the other two sets, or are declared not to.
    #[must_use]
    pub fn other_sets_are_as_declared(&self) -> bool {
        [Which::AsDescribed, Which::Otherwise]
            .iter()
            .all(|which| are_as_declared(&claims::rows(&self.measured, *which)))
    }

    /// The tables, as Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        markdown::text(self)
    }

    /// Time and ratio to ideal hardware over the items traversed.
    #[must_use]
    pub fn panels(&self) -> [Panel; 2] {
        let measured = &self.measured;
        let ns = |cycles: f64| cycles * measured.ns_per_cycle();
        let ideal = |ideal: Ideal| -> Vec<(f64, f64)> {
            let lists = &measured.match_unit.lists;
            let of_items = |(items, _)| (items, ideal.cycles(items as u32));
            measured.by_items(lists).into_iter().map(of_items).collect()
        };
        let (fitting, stated) = (ideal(Ideal::Fitting), ideal(Ideal::Stated));
        let lines = |value: &dyn Fn((f64, f64)) -> (f64, f64)| -> Vec<Series> {
            let series = |name: &str, colour, points: &[(f64, f64)]| Series {
                name: name.to_owned(),
                style: Style::Line(colour),
                points: points.iter().copied().map(value).collect(),
            };
            let machines = measured.machines();
            let mut all: Vec<Series> = machines
                .zip(COLOURS)
                .map(|((name, lists), colour)| series(name, colour, &measured.by_items(lists)))
                .collect();
            all.push(series("ideal, 24 + 8 an item", "#000000", &fitting));
            all.push(series("ideal, 8 + 8 an item", "#999999", &stated));
            all
        };
        let panel = |title: &str, y_label: &str, series| Panel {
            title: title.to_owned(),
            x_label: "items traversed".to_owned(),
            y_label: y_label.to_owned(),
            scale: Scale::Logarithmic,
            legend: Legend::Beside,
            series,
        };
        let mut ratios = lines(&|(items, cycles)| (items, cycles / Ideal::Fitting.cycles(items as u32)));
        ratios.push(Series {
            name: "the paper's numbers".to_owned(),
            style: Style::Rings("#d62728"),
            points: PUBLISHED_RATIOS.to_vec(),
        });
        [
            panel(
                "One match of 64, at 500 MHz",
                "model time (ns)",
                lines(&|(items, cycles)| (items, ns(cycles))),
            ),
            panel("Over ideal hardware of 24 + 8 cycles an item", "times its time", ratios),
        ]
    }
}

/// The colours of the machines.
const COLOURS: [&str; 5] = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"];

/// Section 6.1 and the introduction, as traversed items and time over ideal hardware's: the match unit 19 %, 6 % and
/// 2.3 % above it, the embedded processor at 34 % of its speed, 16 cores at 52 %.
const PUBLISHED_RATIOS: [(f64, f64); 5] =
    [(1.0, 1.19), (10.0, 1.06), (30.0, 1.023), (10.0, 1.0 / 0.34), (10.0, 1.0 / 0.52)];

impl Measurements {
    fn ns_per_cycle(&self) -> f64 {
        1e3 / f64::from(self.clock_mhz)
    }

    /// The match unit and the processors from memory, with their lists.
    fn machines(&self) -> impl Iterator<Item = (&str, &[List])> {
        let processors =
            self.from_memory.iter().map(|machine| (machine.name.as_str(), machine.lists.as_slice()));
        std::iter::once(("match unit", self.match_unit.lists.as_slice())).chain(processors)
    }
}

/// Number of traversed items, the match unit's overhead over ideal hardware in percent, and the value of the last
/// printed digit (section 6.1, section 7).
const PUBLISHED_OVERHEADS: [(u32, f64, f64); 3] = [(1, 19.0, 1.0), (10, 6.0, 1.0), (30, 2.3, 0.1)];

/// Reasons for given and fitted rows.
const PROGRAM: &str = "the program was written to Table 1's words, with these cycles in view";
const WIDTHS: &str = "the widths of op and target were chosen to make up the sum";
const IDEAL: &str = "the ideal of 24 + 8 n, fitted to the three ratios";
const TURNAROUND: &str = "four cycles from done to the next header, and the ideal of 24 + 8 n";

/// Why the list manager's steps do not give the paper's ratios.
const BETWEEN: &str = "between two headers the paper names three steps that overlap with nothing: the list manager is \
                       notified, pulls the next header, and passes it on. At one cycle each, a match takes 28 + 8 n; \
                       the paper's ratios need 30 + 8 n, and no step in its text takes two more cycles";

/// Table 1: the program's segments, and the paper's number of words of each.
const SEGMENTS: [(&str, f64); 6] = [
    ("program: initialization", 4.0),
    ("program: header", 9.0),
    ("program: list item, shared", 6.0),
    ("program: list item, fast path", 7.0),
    ("program: list item, slow path", 10.0),
    ("program: flush", 8.0),
];

fn compare(measured: &Measurements) -> Vec<Compared> {
    let unit = &measured.match_unit;
    let counts = unit.model_cycles;
    let exactly = |paper: f64| Published::Number { value: paper, within: 0.5 };
    let counted = |what: &str, unit, paper: f64, model: u64| {
        Compared::new("section 4.3", what, unit, exactly(paper)).ours(model as f64, 0).given(PROGRAM)
    };
    let word = Compared::new("section 4.2", "instruction word", "bits", exactly(164.0));
    let mut all = vec![word.ours(unit.word_bits as f64, 0).given(WIDTHS)];
    for ((what, paper), words) in SEGMENTS.into_iter().zip(&unit.segments) {
        let row = Compared::new("table 1", what, "words", exactly(paper));
        all.push(row.ours(*words as f64, 0).given(PROGRAM));
    }
    all.extend([
        counted("program", "words", 44.0, unit.program_words),
        counted("an item whose match bits differ", "cycles", 8.0, counts.item_that_differs),
        counted("an item that matches", "cycles", 14.0, counts.item_that_matches),
        counted("flush", "cycles", 8.0, counts.flush),
        counted("a header whose first item matches", "cycles", 31.0, counts.header),
    ]);
    for (name, lists) in [("", &unit.lists), (", fitted", &unit.fitted_lists)] {
        let place = |row: Compared| {
            if name.is_empty() { row.follows(IDEAL).differs(BETWEEN) } else { row.fitted(TURNAROUND) }
        };
        let what = format!("64 matches, over ideal hardware's, in every pass{name}");
        let over = measured.over_ideal(lists);
        all.push(place(Compared::new("section 6.1", what, "cycles", exactly(384.0)).ours(over, 0)));
        for (items, paper, digit) in PUBLISHED_OVERHEADS {
            let published = Published::Number { value: paper, within: digit };
            let what = overhead_name(items) + name;
            let row = Compared::new("section 6.1", what, "%", published);
            all.push(place(row.ours(overhead(items, measured.cycles(lists, items)), 2)));
        }
    }
    all
}

/// How much longer than ideal hardware of 24 and 8 cycles a match of this number of cycles takes, in percent.
fn overhead(items: u32, cycles: f64) -> f64 {
    (cycles / Ideal::Fitting.cycles(items) - 1.0) * 100.0
}

fn overhead_name(items: u32) -> String {
    format!("over ideal hardware, {items} {}", if items == 1 { "item" } else { "items" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every machine takes as long as the paper's match unit.
    pub(super) fn sample() -> Measurements {
        let pass = |list: u32, place: u32| {
            let percent = place.checked_sub(1).map(|tenth| 10 * tenth);
            let items_traversed = (list * percent.unwrap_or(100) / 100).max(1);
            Pass { percent, items_traversed, model_cycles: 64 * u64::from(30 + 8 * items_traversed) }
        };
        let of_passes = |pass: &dyn Fn(u32, u32) -> Pass| -> Vec<List> {
            LISTS
                .map(|items| List { items, passes: (0..12).map(|place| pass(items, place)).collect() })
                .into()
        };
        let lists = of_passes(&pass);
        // The derived lists have two cycles less.
        let derived = of_passes(&|list, place| {
            let pass = pass(list, place);
            Pass { model_cycles: pass.model_cycles - 64 * 2, ..pass }
        });
        let machines = |names: &[&str]| {
            names
                .iter()
                .map(|name| Machine { name: (*name).to_owned(), lists: lists.clone() })
                .collect::<Vec<_>>()
        };
        let processors = machines(&["embedded", "1 core", "2 cores", "16 cores"]);
        Measurements {
            version: MEASUREMENTS_VERSION,
            clock_mhz: 500,
            headers_per_pass: 64,
            match_unit: MatchUnit {
                program_words: 44,
                segments: vec![4, 9, 6, 7, 10, 8],
                word_bits: 164,
                model_cycles: Counts {
                    item_that_differs: 8,
                    item_that_matches: 14,
                    flush: 8,
                    header: 31,
                    heard: 3,
                },
                bits: Memories {
                    program: 44 * 164,
                    alu_registers: 1024,
                    ternary_registers: 1024,
                    predicates: 16,
                    input_fifo: 1024,
                    item_cache: 1024,
                },
                lists: derived,
                fitted_lists: lists.clone(),
            },
            as_described: processors.clone(),
            otherwise: processors.clone(),
            from_memory: processors,
            variations: machines(&["embedded, otherwise"]),
        }
    }

    fn read(measured: &Measurements) -> Result<Measurements> {
        Measurements::read(&serde_json::to_vec(measured).unwrap())
    }

    #[test]
    fn papers_cycles_hold_and_one_more_cycle_does_not() {
        assert!(are_as_declared(&MatchFigures::new(sample()).match_unit()));
        let mut slower = sample();
        slower.match_unit.fitted_lists[3].passes[7].model_cycles += 64;
        let figures = MatchFigures::new(slower);
        let compared = figures.match_unit();
        let broken: Vec<&Compared> = compared.iter().filter(|row| !row.is_as_declared()).collect();
        assert_eq!((broken.len(), broken[0].ours), (1, Some(448.0)));
        assert!(figures.text().contains("is not what it was fitted to"), "{}", figures.text());
    }

    #[test]
    fn figures_of_another_version_or_incomplete_are_refused() {
        assert_eq!(read(&sample()).unwrap(), sample());
        let complaint = |change: fn(&mut Measurements)| {
            let mut measured = sample();
            change(&mut measured);
            read(&measured).unwrap_err().to_string()
        };
        assert!(complaint(|measured| measured.version = 1).contains("version 1"));
        assert!(complaint(|measured| measured.otherwise.truncate(3)).contains("13 machines"));
        assert!(complaint(|measured| measured.match_unit.lists[0].passes.truncate(11)).contains("(10, 11)"));
        assert!(Measurements::read(b"[]").unwrap_err().to_string().contains("something else than figures"));
    }

    #[test]
    fn a_row_has_all_machines_and_both_ideals() {
        let text = MatchFigures::new(sample()).text();
        // One item: 36 cycles of 2 ns, and 38, 64 times.
        let row = "| 0 % | 1 | 4.61 | 4.86 | 4.86 | 4.86 | 4.86 | 4.10 | 2.05 |";
        assert_eq!(text.matches(row).count(), 12, "four lists, three sets");
        assert!(text.contains("| 100 % | 300 | 1.00 (1.01) |"), "{text}");
    }

    #[test]
    fn lines_have_every_depth_once() {
        let panels = MatchFigures::new(sample()).panels();
        let points = &panels[0].series[0].points;
        assert_eq!((points[0], points[points.len() - 1]), ((1.0, 72.0), (300.0, 4_856.0)));
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(panels.map(|panel| panel.series.len()), [7, 8]);
    }
}
