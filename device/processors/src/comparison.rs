//! What comes out of the simulations, beside what the paper says (section 6.1).
//!
//! The paper prints curves whose values its text gives at a few places only; those are the claims here. Two sets of
//! machines are held against them: the one that the paper's tables and its simulator's defaults describe, and the
//! same with the two decisions that the paper leaves open and that matter most taken the other way: branches of the
//! embedded processor predicted not taken, and threads that spin on a lock. Neither is fitted to anything.

use std::fmt::Write as _;

use crate::benchmark::{self, CLOCK_MHZ, Machine, Pass, RunError};
use crate::cache::CacheConfig;
use crate::embedded::EmbeddedConfig;
use crate::multithreaded::MultithreadedConfig;
use crate::predictor::Prediction;

/// The lengths of the paper's lists.
pub const LISTS: [u32; 4] = [10, 30, 100, 300];

/// Ideal hardware: as fast as the list can be fed to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ideal {
    /// 8 cycles for the header and 8 for each item: what the paper says.
    Stated,
    /// 24 cycles and 8 for each item: what the ratios fit that the paper publishes (19 %, 6 % and 2.3 %).
    Fitting,
}

impl Ideal {
    /// Cycles of one match.
    pub fn cycles(self, items: u32) -> u32 {
        match self {
            Self::Stated => 8 + 8 * items,
            Self::Fitting => 24 + 8 * items,
        }
    }
}

/// Cycles of one match on the match unit when its list manager streams without a pause. Its own simulation shows them.
pub fn match_unit_cycles(items: u32) -> u32 {
    30 + 8 * items
}

/// The machines of one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machines {
    /// Table 2.
    pub embedded: EmbeddedConfig,
    /// Table 3, column by column.
    pub multithreaded: [MultithreadedConfig; 3],
}

impl Machines {
    /// The paper's tables, and its simulator's defaults.
    pub fn as_described() -> Self {
        Self {
            embedded: EmbeddedConfig::default(),
            multithreaded: [
                MultithreadedConfig::one_core(),
                MultithreadedConfig::two_cores(),
                MultithreadedConfig::sixteen_cores(),
            ],
        }
    }

    /// The same with what the paper leaves open decided the other way.
    pub fn otherwise() -> Self {
        let Self { embedded, multithreaded } = Self::as_described();
        Self {
            embedded: EmbeddedConfig { prediction: Prediction::NotTaken, ..embedded },
            multithreaded: multithreaded.map(|config| MultithreadedConfig { waiting_spins: true, ..config }),
        }
    }
}

/// Machines with one decision taken otherwise, to show how much hangs on it.
pub fn variations() -> Vec<(&'static str, Machine)> {
    let Machines { embedded, multithreaded: [_, _, sixteen] } = Machines::as_described();
    let from_memory = |cache| CacheConfig { size_bytes: 128, ways: 4, ..cache };
    vec![
        ("embedded, as described", Machine::Embedded(embedded)),
        (
            "embedded, branches predicted not taken",
            Machine::Embedded(EmbeddedConfig { prediction: Prediction::NotTaken, ..embedded }),
        ),
        (
            "embedded, data cache of four lines: every item comes from memory",
            Machine::Embedded(EmbeddedConfig { data_cache: from_memory(embedded.data_cache), ..embedded }),
        ),
        ("16 cores, as described", Machine::Multithreaded(sixteen)),
        (
            "16 cores, waiting threads spin",
            Machine::Multithreaded(MultithreadedConfig { waiting_spins: true, ..sixteen }),
        ),
        (
            "16 cores, data caches of four lines: every item comes from memory",
            Machine::Multithreaded(MultithreadedConfig {
                data_cache: from_memory(sixteen.data_cache),
                ..sixteen
            }),
        ),
        (
            "16 cores, a lock takes as long as memory: 10 cycles",
            Machine::Multithreaded(MultithreadedConfig { lock_cycles: 10, ..sixteen }),
        ),
        (
            "16 cores, all three: spinning, items from memory, locks of 10 cycles",
            Machine::Multithreaded(MultithreadedConfig {
                waiting_spins: true,
                data_cache: from_memory(sixteen.data_cache),
                lock_cycles: 10,
                ..sixteen
            }),
        ),
        (
            "16 cores, taken branches cost nothing",
            Machine::Multithreaded(MultithreadedConfig { taken_branch_cycles: 0, ..sixteen }),
        ),
    ]
}

/// The benchmark's passes of one machine for each of [`LISTS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passes {
    lists: [Vec<Pass>; 4],
}

impl Passes {
    fn measure(machine: Machine) -> Result<Self, RunError> {
        let mut lists = [const { Vec::new() }; 4];
        for (passes, items) in lists.iter_mut().zip(LISTS) {
            *passes = benchmark::run(machine, items)?;
        }
        Ok(Self { lists })
    }

    /// The passes of each list.
    pub fn lists(&self) -> impl Iterator<Item = (u32, &[Pass])> {
        LISTS.into_iter().zip(self.lists.iter().map(Vec::as_slice))
    }

    /// Cycles of one match at the first item of the shortest list.
    pub fn first(&self) -> f64 {
        let pass = self.lists[0].iter().find(|pass| pass.percent == Some(0));
        pass.map_or(f64::NAN, Pass::cycles_per_match)
    }

    /// Cycles of one match at the end of a list, one of [`LISTS`].
    pub fn full(&self, items: u32) -> f64 {
        let passes = self.lists().find(|(list, _)| *list == items).and_then(|(_, passes)| passes.last());
        passes.map_or(f64::NAN, Pass::cycles_per_match)
    }
}

/// All passes of a set of machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The embedded processor.
    pub embedded: Passes,
    /// The multithreaded processor with 1, 2 and 16 cores.
    pub multithreaded: [Passes; 3],
}

impl Measured {
    /// Runs the benchmark on all machines of a set.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn new(machines: &Machines) -> Result<Self, RunError> {
        let [one, two, sixteen] = machines.multithreaded.map(Machine::Multithreaded);
        Ok(Self {
            embedded: Passes::measure(Machine::Embedded(machines.embedded))?,
            multithreaded: [Passes::measure(one)?, Passes::measure(two)?, Passes::measure(sixteen)?],
        })
    }
}

/// How a claim's number is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A share, as percent.
    Percent,
    /// A ratio, as "times".
    Times,
}

/// A sentence of the paper with a number, or with a word in its place.
pub struct Claim {
    /// What is compared.
    pub subject: &'static str,
    /// The paper's words.
    pub paper: &'static str,
    /// The number that they stand for: with "almost", "over" and "near" the number behind the word; none where there is
    /// only a direction.
    pub number: Option<f64>,
    /// How it is written.
    pub unit: Unit,
    /// The same of a simulation.
    pub of: fn(&Measured) -> f64,
    /// Why the simulation as described comes to another number.
    pub why: &'static str,
}

fn ideal(items: u32) -> f64 {
    f64::from(Ideal::Fitting.cycles(items))
}

fn unit(items: u32) -> f64 {
    f64::from(match_unit_cycles(items))
}

/// The paper's claims about these machines. Shares of ideal hardware follow [`Ideal::Fitting`].
pub const CLAIMS: [Claim; 13] = [
    Claim {
        subject: "embedded, 10 items: share of ideal hardware's speed",
        paper: "34 %",
        number: Some(0.34),
        unit: Unit::Percent,
        of: |m| ideal(10) / m.embedded.full(10),
        why: "with learned branches an item takes 11 cycles (15 instructions, 7 of them loads of two issue slots each), half of \
              what the paper's numbers imply (21); without, 25",
    },
    Claim {
        subject: "16 cores, 10 items: share of ideal hardware's speed",
        paper: "52 %",
        number: Some(0.52),
        unit: Unit::Percent,
        of: |m| ideal(10) / m.multithreaded[2].full(10),
        why: "here only the matching item's lock holds back, for 72 cycles; the paper's locks or threads must cost far more \
              than its text says",
    },
    Claim {
        subject: "embedded, first item: match unit faster by",
        paper: "almost 3",
        number: Some(3.0),
        unit: Unit::Times,
        of: |m| m.embedded.first() / unit(1),
        why: "a header costs two cache misses here, partly hidden behind the match before; the paper's code around match() is \
              not shown",
    },
    Claim {
        subject: "16 cores, first item: match unit faster by",
        paper: "almost 3",
        number: Some(3.0),
        unit: Unit::Times,
        of: |m| m.multithreaded[2].first() / unit(1),
        why: "the first item's lock passes from core to core in one cycle, and the thread that has it has its core alone; \
              with spinning neighbours it comes to the paper's value",
    },
    Claim {
        subject: "embedded, 10 items: match unit faster by",
        paper: "over 2",
        number: Some(2.0),
        unit: Unit::Times,
        of: |m| m.embedded.full(10) / unit(10),
        why: "as the first row",
    },
    Claim {
        subject: "16 cores, 10 items: match unit faster by",
        paper: "nearly 2",
        number: Some(2.0),
        unit: Unit::Times,
        of: |m| m.multithreaded[2].full(10) / unit(10),
        why: "as the second row: here 16 cores overtake the match unit before 10 items",
    },
    Claim {
        subject: "first item: embedded takes less time than 16 cores by",
        paper: "14 %",
        number: Some(0.14),
        unit: Unit::Percent,
        of: |m| 1.0 - m.embedded.first() / m.multithreaded[2].first(),
        why: "agrees",
    },
    Claim {
        subject: "10 items: one core takes less time than embedded by",
        paper: "slightly",
        number: None,
        unit: Unit::Percent,
        of: |m| 1.0 - m.multithreaded[0].full(10) / m.embedded.full(10),
        why: "19 instructions for an item on one issue slot cannot beat 11 cycles; against branches predicted not taken, \
              sleeping threads are ahead, spinning ones behind",
    },
    Claim {
        subject: "10 items: 16 cores take less time than embedded by",
        paper: "34 %",
        number: Some(0.34),
        unit: Unit::Percent,
        of: |m| 1.0 - m.multithreaded[2].full(10) / m.embedded.full(10),
        why: "as the second row",
    },
    Claim {
        subject: "30 items: 16 cores faster than 2 by",
        paper: "not dramatically",
        number: None,
        unit: Unit::Times,
        of: |m| m.multithreaded[1].full(30) / m.multithreaded[2].full(30),
        why: "2 cores are bound by their issue slots from some 5 items on, 16 by the matching item's lock up to 30",
    },
    Claim {
        subject: "100 items: 16 cores' time, match unit's is 1",
        paper: "approaches 1",
        number: Some(1.0),
        unit: Unit::Times,
        of: |m| m.multithreaded[2].full(100) / unit(100),
        why: "16 issue slots for 19 instructions are little more than a cycle for an item; what held the paper's back \
              to 8 is not in its tables",
    },
    Claim {
        subject: "300 items: 2 cores' time, match unit's is 1",
        paper: "approaches 1",
        number: Some(1.0),
        unit: Unit::Times,
        of: |m| m.multithreaded[1].full(300) / unit(300),
        why: "19 instructions for an item on two issue slots are 9.5 cycles, 8 for the match unit",
    },
    Claim {
        subject: "300 items: 16 cores' time, ideal hardware's is 1",
        paper: "below 1",
        number: None,
        unit: Unit::Times,
        of: |m| m.multithreaded[2].full(300) / ideal(300),
        why: "agrees in direction; how far, see 100 items",
    },
];

fn written(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{:.1} %", value * 100.0),
        Unit::Times => format!("{value:.2}"),
    }
}

/// Differences are relative for ratios and in percentage points for shares.
fn difference(claim: &Claim, value: f64) -> String {
    match (claim.number, claim.unit) {
        (None, _) => "-".to_owned(),
        (Some(number), Unit::Percent) => format!("{:+.1} points", (value - number) * 100.0),
        (Some(number), Unit::Times) => format!("{:+.0} %", (value / number - 1.0) * 100.0),
    }
}

/// Simulates everything and writes the tables of the manual.
///
/// # Errors
/// See [`RunError`].
pub fn markdown() -> Result<String, RunError> {
    let described = Measured::new(&Machines::as_described())?;
    let otherwise = Measured::new(&Machines::otherwise())?;
    let mut text = format!(
        "# Processors against the match unit\n\nModel time, at {CLOCK_MHZ} MHz. Written by `cargo run -p niclab-processors \
         --example comparison`; a test holds it.\n[What is simulated](../PROCESSORS.md).\n"
    );
    claims(&mut text, &described, &otherwise);
    one_decision_each(&mut text)?;
    for (title, measured) in [
        ("As described: branches learned, waiting threads asleep", &described),
        ("Otherwise: branches predicted not taken, waiting threads spin", &otherwise),
    ] {
        times(&mut text, title, measured);
    }
    Ok(text)
}

// Writing to a string does not fail.

fn claims(text: &mut String, described: &Measured, otherwise: &Measured) {
    text.push_str(
        "\n## The paper's claims\n\nShares of ideal hardware after the reading that fits the paper's ratios, 24 + 8 cycles \
         for each item.\n\n| claim | paper | as described | difference | otherwise | difference | why |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for claim in &CLAIMS {
        let (first, second) = ((claim.of)(described), (claim.of)(otherwise));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            claim.subject,
            claim.paper,
            written(first, claim.unit),
            difference(claim, first),
            written(second, claim.unit),
            difference(claim, second),
            claim.why,
        );
    }
}

fn one_decision_each(text: &mut String) -> Result<(), RunError> {
    text.push_str(
        "\n## What hangs on each decision\n\nCycles of one match.\n\n\
         | machine | first item | 10 items | 100 items | 300 items |\n|---|---|---|---|---|\n",
    );
    for (name, machine) in variations() {
        let passes = Passes::measure(machine)?;
        let [ten, hundred, three_hundred] = [10, 100, 300].map(|items| passes.full(items));
        let first = passes.first();
        let _ = writeln!(text, "| {name} | {first:.1} | {ten:.1} | {hundred:.1} | {three_hundred:.1} |");
    }
    Ok(())
}

fn times(text: &mut String, title: &str, measured: &Measured) {
    let _ = write!(text, "\n## {title}\n");
    for (index, items) in LISTS.into_iter().enumerate() {
        let passes: Vec<&[Pass]> = std::iter::once(&measured.embedded)
            .chain(&measured.multithreaded)
            .map(|passes| passes.lists[index].as_slice())
            .collect();
        let _ = write!(
            text,
            "\n{items} items. Cycles of one match; in brackets its time over that of ideal hardware (8 + 8, 24 + 8).\n\n\
             | list traversed | items | embedded | 1 core | 2 cores | 16 cores | match unit |\n|---|---|---|---|---|---|---|\n"
        );
        let Some((embedded, _)) = passes.split_first() else { continue };
        for (row, pass) in embedded.iter().enumerate() {
            let Some(percent) = pass.percent else { continue };
            let traversed = pass.items_traversed;
            let _ = write!(text, "| {percent} % | {traversed} |");
            let simulated = passes.iter().filter_map(|passes| passes.get(row)).map(Pass::cycles_per_match);
            for cycles in simulated.chain([unit(traversed)]) {
                let over = |ideal: Ideal| cycles / f64::from(ideal.cycles(traversed));
                let _ =
                    write!(text, " {cycles:.1} ({:.2}, {:.2}) |", over(Ideal::Stated), over(Ideal::Fitting));
            }
            text.push('\n');
        }
    }
}
