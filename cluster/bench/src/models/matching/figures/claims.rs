//! What the paper says of the processors (section 6.1), and why the simulations come to something else.
//!
//! The paper prints curves whose values its text gives at a few places only; those are the claims here.

use super::{Ideal, List, Machine, Measurements};

/// How a claim's number is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// A share, as percent.
    Percent,
    /// A ratio, as "times".
    Times,
}

/// A set of processors, beside the match unit.
#[derive(Clone, Copy)]
pub(super) struct Set<'a> {
    pub measured: &'a Measurements,
    /// Embedded, and 1, 2 and 16 cores.
    pub processors: &'a [Machine],
}

/// The places of processors in a [`Set`].
const EMBEDDED: usize = 0;
const ONE: usize = 1;
const TWO: usize = 2;
const SIXTEEN: usize = 3;

impl Set<'_> {
    fn lists(&self, processor: usize) -> &[List] {
        self.processors.get(processor).map_or(&[], |machine| machine.lists.as_slice())
    }

    /// Cycles of one match at the first item.
    fn first(&self, processor: usize) -> f64 {
        self.measured.first(self.lists(processor))
    }

    /// Cycles of one match at the end of a list.
    fn full(&self, processor: usize, items: u32) -> f64 {
        self.measured.full(self.lists(processor), items)
    }

    /// The same of the match unit.
    fn unit(&self, items: u32) -> f64 {
        self.measured.full(&self.measured.match_unit.lists, items)
    }

    fn unit_first(&self) -> f64 {
        self.measured.first(&self.measured.match_unit.lists)
    }
}

/// A sentence of the paper with a number, or with a word in its place.
pub(super) struct Claim {
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
    pub of: fn(&Set<'_>) -> f64,
    /// Why the simulation as described comes to another number.
    pub why: &'static str,
}

fn ideal(items: u32) -> f64 {
    Ideal::Fitting.cycles(items)
}

/// The paper's claims about these machines. Shares of ideal hardware follow [`Ideal::Fitting`].
pub(super) const CLAIMS: [Claim; 13] = [
    Claim {
        subject: "embedded, 10 items: share of ideal hardware's speed",
        paper: "34 %",
        number: Some(0.34),
        unit: Unit::Percent,
        of: |m| ideal(10) / m.full(EMBEDDED, 10),
        why: "with learned branches an item takes 11 cycles (15 instructions, 7 of them loads of two issue slots each), half of \
              what the paper's numbers imply (21); without, 25",
    },
    Claim {
        subject: "16 cores, 10 items: share of ideal hardware's speed",
        paper: "52 %",
        number: Some(0.52),
        unit: Unit::Percent,
        of: |m| ideal(10) / m.full(SIXTEEN, 10),
        why: "here only the matching item's lock holds back, for 72 cycles; the paper's locks or threads must cost far more \
              than its text says",
    },
    Claim {
        subject: "embedded, first item: match unit faster by",
        paper: "almost 3",
        number: Some(3.0),
        unit: Unit::Times,
        of: |m| m.first(EMBEDDED) / m.unit_first(),
        why: "a header costs two cache misses here, partly hidden behind the match before; the paper's code around match() is \
              not shown",
    },
    Claim {
        subject: "16 cores, first item: match unit faster by",
        paper: "almost 3",
        number: Some(3.0),
        unit: Unit::Times,
        of: |m| m.first(SIXTEEN) / m.unit_first(),
        why: "the first item's lock passes from core to core in one cycle, and the thread that has it has its core alone; \
              with spinning neighbours it comes to the paper's value",
    },
    Claim {
        subject: "embedded, 10 items: match unit faster by",
        paper: "over 2",
        number: Some(2.0),
        unit: Unit::Times,
        of: |m| m.full(EMBEDDED, 10) / m.unit(10),
        why: "as the first row",
    },
    Claim {
        subject: "16 cores, 10 items: match unit faster by",
        paper: "nearly 2",
        number: Some(2.0),
        unit: Unit::Times,
        of: |m| m.full(SIXTEEN, 10) / m.unit(10),
        why: "as the second row: here 16 cores overtake the match unit before 10 items",
    },
    Claim {
        subject: "first item: embedded takes less time than 16 cores by",
        paper: "14 %",
        number: Some(0.14),
        unit: Unit::Percent,
        of: |m| 1.0 - m.first(EMBEDDED) / m.first(SIXTEEN),
        why: "agrees",
    },
    Claim {
        subject: "10 items: one core takes less time than embedded by",
        paper: "slightly",
        number: None,
        unit: Unit::Percent,
        of: |m| 1.0 - m.full(ONE, 10) / m.full(EMBEDDED, 10),
        why: "19 instructions for an item on one issue slot cannot beat 11 cycles; against branches predicted not taken, \
              sleeping threads are ahead, spinning ones behind",
    },
    Claim {
        subject: "10 items: 16 cores take less time than embedded by",
        paper: "34 %",
        number: Some(0.34),
        unit: Unit::Percent,
        of: |m| 1.0 - m.full(SIXTEEN, 10) / m.full(EMBEDDED, 10),
        why: "as the second row",
    },
    Claim {
        subject: "30 items: 16 cores faster than 2 by",
        paper: "not dramatically",
        number: None,
        unit: Unit::Times,
        of: |m| m.full(TWO, 30) / m.full(SIXTEEN, 30),
        why: "2 cores are bound by their issue slots from some 5 items on, 16 by the matching item's lock up to 30",
    },
    Claim {
        subject: "100 items: 16 cores' time, match unit's is 1",
        paper: "approaches 1",
        number: Some(1.0),
        unit: Unit::Times,
        of: |m| m.full(SIXTEEN, 100) / m.unit(100),
        why: "16 issue slots for 19 instructions are little more than a cycle for an item; what held the paper's back \
              to 8 is not in its tables",
    },
    Claim {
        subject: "300 items: 2 cores' time, match unit's is 1",
        paper: "approaches 1",
        number: Some(1.0),
        unit: Unit::Times,
        of: |m| m.full(TWO, 300) / m.unit(300),
        why: "19 instructions for an item on two issue slots are 9.5 cycles, 8 for the match unit",
    },
    Claim {
        subject: "300 items: 16 cores' time, ideal hardware's is 1",
        paper: "below 1",
        number: None,
        unit: Unit::Times,
        of: |m| m.full(SIXTEEN, 300) / ideal(300),
        why: "agrees in direction; how far, see 100 items",
    },
];

impl Claim {
    /// As in `61.8 %`.
    pub fn written(&self, value: f64) -> String {
        match self.unit {
            Unit::Percent => format!("{:.1} %", value * 100.0),
            Unit::Times => format!("{value:.2}"),
        }
    }

    /// How far `value` is from the paper's: relative for ratios, in percentage points for shares.
    pub fn difference(&self, value: f64) -> String {
        match (self.number, self.unit) {
            (None, _) => "-".to_owned(),
            (Some(number), Unit::Percent) => format!("{:+.1} points", (value - number) * 100.0),
            (Some(number), Unit::Times) => format!("{:+.0} %", (value / number - 1.0) * 100.0),
        }
    }
}
