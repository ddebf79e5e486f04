//! What the paper says of the processors (section 6.1), beside what three sets of them do here, and why that is
//! something else.
//!
//! The paper prints curves whose values its text gives at a few places only; those are the claims here. Words stand for
//! ranges, the same everywhere: "almost" and "nearly" a number, from a fifth below it up to it; "over" it, more than
//! it; "approaches" and "virtually constant", within a fifth; "slightly", up to a tenth; "not dramatically", less than
//! twice. Each claim says of each set why it differs, or that it does not: one that begins to hold is found as well.

use super::{IDEAL, Ideal, List, Machine, Measurements};
use crate::figures::compared::{Compared, Published};

/// A set of processors, beside the match unit.
#[derive(Clone, Copy)]
struct Set<'a> {
    measured: &'a Measurements,
    /// Embedded, and 1, 2 and 16 cores.
    processors: &'a [Machine],
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

    /// How far a processor is behind the match unit.
    fn gap(&self, processor: usize, items: u32) -> f64 {
        self.full(processor, items) - self.unit(items)
    }
}

/// Which processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// The tables, kindly.
    AsDescribed,
    /// The same with two decisions taken the other way.
    Otherwise,
    /// Items, locks and headers where the paper's figures have them.
    FromMemory,
}

impl Which {
    pub(super) const fn processors(self, measured: &Measurements) -> &Vec<Machine> {
        match self {
            Self::AsDescribed => &measured.as_described,
            Self::Otherwise => &measured.otherwise,
            Self::FromMemory => &measured.from_memory,
        }
    }

    /// Its place in [`Claim::why`].
    const fn index(self) -> usize {
        match self {
            Self::AsDescribed => 0,
            Self::Otherwise => 1,
            Self::FromMemory => 2,
        }
    }
}

/// What the paper says.
#[derive(Clone, Copy)]
enum Said {
    /// A number in percent, of which ours may miss a point.
    Percent(f64),
    /// A number of cycles, of which ours may miss one.
    Cycles(f64),
    /// Words, and what they stand for: not below the first, not above the second.
    Words(&'static str, f64, f64),
}

/// A sentence of the paper with a number, or with a word in its place.
struct Claim {
    place: &'static str,
    subject: &'static str,
    unit: &'static str,
    said: Said,
    /// The same of a simulation.
    of: fn(&Set) -> f64,
    /// Whether the match unit's time, or the ideal that it is measured with, stands in it.
    rests_on_unit: bool,
    /// Of each set, why it comes to something else; empty where it does not.
    why: [&'static str; 3],
}

/// What no source gives, and was chosen for no number.
const OPEN: &str = "what the paper leaves open of processors; docs/design/PROCESSORS.md has each decision";

const AGREES: &str = "";
const LEARNED: &str = "with learned branches an item takes 11 cycles: 15 instructions, 7 of them loads of two issue slots \
                       each; the paper's numbers imply 21";
const NOT_LEARNED: &str = "predicted not taken, an item takes 25 cycles; the paper's numbers imply 21";
const FREE_LOCKS: &str = "only the matching item's lock holds 16 cores back, for 72 cycles a header";
const SLOTS: &str = "16 issue slots for 19 instructions are little more than a cycle for an item; what held the paper's back \
                     to 8 is not in its tables";
const SPINNING_SLOTS: &str = "threads that spin take slots only from their neighbours, and on a long list few wait: two cycles for an item";
const NEAR_SLOTS: &str = "once the thread that reads headers has handed one on, within some 190 cycles, an item takes little \
                          more than a cycle";
const ONE_SLOT: &str =
    "19 instructions for an item on one issue slot cannot beat the embedded processor's 11 cycles";
const PULLED: &str = "a header is read word by word from its FIFO, 16 reads of 10 cycles' latency, four at a time, \
                      before match() begins";

/// The paper's claims about these machines. Shares of ideal hardware follow [`Ideal::Fitting`].
const CLAIMS: [Claim; 17] = [
    Claim {
        place: "section 1",
        subject: "embedded, 10 items: share of ideal hardware's speed",
        unit: "%",
        said: Said::Percent(34.0),
        of: |m| 100.0 * Ideal::Fitting.cycles(10) / m.full(EMBEDDED, 10),
        rests_on_unit: true,
        why: [LEARNED, AGREES, LEARNED],
    },
    Claim {
        place: "section 1",
        subject: "16 cores, 10 items: share of ideal hardware's speed",
        unit: "%",
        said: Said::Percent(52.0),
        of: |m| 100.0 * Ideal::Fitting.cycles(10) / m.full(SIXTEEN, 10),
        rests_on_unit: true,
        why: [
            FREE_LOCKS,
            FREE_LOCKS,
            "nearly: the one thread that reads headers sets the pace, and shares its core with three that match",
        ],
    },
    Claim {
        place: "section 7",
        subject: "embedded, first item: match unit faster by",
        unit: "times",
        said: Said::Words("almost 3", 2.4, 3.0),
        of: |m| m.first(EMBEDDED) / m.unit_first(),
        rests_on_unit: true,
        why: [
            "a header costs two cache misses, partly hidden behind the match before; the paper's code around match() is not \
             shown",
            "as described, and a wrong prediction or two more",
            PULLED,
        ],
    },
    Claim {
        place: "section 7",
        subject: "16 cores, first item: match unit faster by",
        unit: "times",
        said: Said::Words("almost 3", 2.4, 3.0),
        of: |m| m.first(SIXTEEN) / m.unit_first(),
        rests_on_unit: true,
        why: [
            "the first item's lock passes from core to core in one cycle, and the thread that has it has its core alone",
            AGREES,
            PULLED,
        ],
    },
    Claim {
        place: "section 7",
        subject: "embedded, 10 items: match unit faster by",
        unit: "times",
        said: Said::Words("over 2", 2.0, f64::INFINITY),
        of: |m| m.full(EMBEDDED, 10) / m.unit(10),
        rests_on_unit: true,
        why: [LEARNED, AGREES, AGREES],
    },
    Claim {
        place: "section 6.1",
        subject: "16 cores, 10 items: match unit faster by",
        unit: "times",
        said: Said::Words("nearly 2", 1.6, 2.0),
        of: |m| m.full(SIXTEEN, 10) / m.unit(10),
        rests_on_unit: true,
        why: [FREE_LOCKS, FREE_LOCKS, AGREES],
    },
    Claim {
        place: "section 6.1",
        subject: "first item: embedded takes less time than 16 cores by",
        unit: "%",
        said: Said::Percent(14.0),
        of: |m| 100.0 * (1.0 - m.first(EMBEDDED) / m.first(SIXTEEN)),
        rests_on_unit: false,
        why: [
            AGREES,
            "spinning threads take issue slots from the one that has the first item's lock",
            "a thread of its own reads the next header while others match; the embedded processor does one behind the other",
        ],
    },
    Claim {
        place: "section 6.1",
        subject: "10 items: one core takes less time than embedded by",
        unit: "%",
        said: Said::Words("slightly", 0.0, 10.0),
        of: |m| 100.0 * (1.0 - m.full(ONE, 10) / m.full(EMBEDDED, 10)),
        rests_on_unit: false,
        why: [ONE_SLOT, "threads that spin take its only issue slot", ONE_SLOT],
    },
    Claim {
        place: "section 6.1",
        subject: "10 items: 16 cores take less time than embedded by",
        unit: "%",
        said: Said::Percent(34.0),
        of: |m| 100.0 * (1.0 - m.full(SIXTEEN, 10) / m.full(EMBEDDED, 10)),
        rests_on_unit: false,
        why: [FREE_LOCKS, NOT_LEARNED, LEARNED],
    },
    Claim {
        place: "section 6.1",
        subject: "30 items: the slowest multithreaded configuration's time, embedded's is 1",
        unit: "times",
        said: Said::Words("less", 0.0, 1.0),
        of: |m| m.full(ONE, 30).max(m.full(TWO, 30)) / m.full(EMBEDDED, 30),
        rests_on_unit: false,
        why: [ONE_SLOT, AGREES, ONE_SLOT],
    },
    Claim {
        place: "section 6.1",
        subject: "30 items: 16 cores faster than 2 by",
        unit: "times",
        said: Said::Words("not dramatically", 1.0, 2.0),
        of: |m| m.full(TWO, 30) / m.full(SIXTEEN, 30),
        rests_on_unit: false,
        why: [
            "2 cores are bound by their issue slots from some 5 items on, 16 by the matching item's lock up to 30",
            "as described: where few threads wait, few spin",
            AGREES,
        ],
    },
    Claim {
        place: "section 6.1",
        subject: "30 items: match unit faster than the most aggressive multithreaded configuration by",
        unit: "times",
        said: Said::Words("almost 2", 1.6, 2.0),
        of: |m| m.full(SIXTEEN, 30) / m.unit(30),
        rests_on_unit: true,
        why: [SLOTS, SPINNING_SLOTS, NEAR_SLOTS],
    },
    Claim {
        place: "section 6.1",
        subject: "100 items: 16 cores' time, match unit's is 1",
        unit: "times",
        said: Said::Words("approaches 1", 0.8, 1.2),
        of: |m| m.full(SIXTEEN, 100) / m.unit(100),
        rests_on_unit: true,
        why: [SLOTS, SPINNING_SLOTS, NEAR_SLOTS],
    },
    Claim {
        place: "section 6.1",
        subject: "300 items: 2 cores' time, match unit's is 1",
        unit: "times",
        said: Said::Words("approaches 1", 0.8, 1.2),
        of: |m| m.full(TWO, 300) / m.unit(300),
        rests_on_unit: true,
        why: ["19 instructions for an item on two issue slots are 9.5 cycles, 8 for the match unit"; 3],
    },
    Claim {
        place: "section 6.1",
        subject: "300 items: 16 cores' time, that of ideal hardware as stated (8 + 8) is 1",
        unit: "times",
        said: Said::Words("less", 0.0, 1.0),
        of: |m| m.full(SIXTEEN, 300) / Ideal::Stated.cycles(300),
        rests_on_unit: false,
        why: [AGREES; 3],
    },
    Claim {
        place: "section 6.1",
        subject: "embedded behind the match unit at 300 items, as it is at 10",
        unit: "times",
        said: Said::Words("virtually constant", 0.8, 1.2),
        of: |m| m.gap(EMBEDDED, 300) / m.gap(EMBEDDED, 10),
        rests_on_unit: true,
        why: ["no constant gap goes with more cycles for each item than the match unit's 8, of which the same section speaks";
            3],
    },
    Claim {
        place: "derived",
        subject: "embedded: for each item more, (104 / 0.34 - 3 x 38) / 9",
        unit: "cycles",
        said: Said::Cycles(21.3),
        of: |m| (m.full(EMBEDDED, 300) - m.full(EMBEDDED, 10)) / 290.0,
        rests_on_unit: false,
        why: [LEARNED, NOT_LEARNED, LEARNED],
    },
];

impl Claim {
    fn row(&self, set: &Set, which: Which) -> Compared {
        let ours = (self.of)(set);
        let (published, decimals) = match self.said {
            Said::Percent(value) | Said::Cycles(value) => (Published::Number { value, within: 1.0 }, 1),
            Said::Words(said, least, most) => {
                (Published::words(said, (least..=most).contains(&ours)), if self.unit == "%" { 1 } else { 2 })
            }
        };
        let row = Compared::new(self.place, self.subject, self.unit, published).ours(ours, decimals);
        let row = if self.rests_on_unit { row.follows(IDEAL) } else { row.assumed(OPEN) };
        match self.why.get(which.index()).copied().unwrap_or(AGREES) {
            AGREES => row,
            why => row.differs(why),
        }
    }
}

/// What the paper says of processors, beside one set of them.
pub(super) fn rows(measured: &Measurements, which: Which) -> Vec<Compared> {
    let set = Set { measured, processors: which.processors(measured) };
    CLAIMS.iter().map(|claim| claim.row(&set, which)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::compared::Verdict;

    #[test]
    fn a_claim_that_begins_to_hold_or_ceases_to_is_found() {
        // Every machine takes the match unit's time: what is declared to differ by that holds after all.
        let measured = super::super::tests::sample();
        let verdict = |which, part: &str| {
            let rows = rows(&measured, which);
            let row = rows.iter().find(|row| row.what.contains(part)).unwrap();
            (row.verdict(), row.is_as_declared())
        };
        let hundred = "100 items: 16 cores";
        assert_eq!(verdict(Which::AsDescribed, hundred), (Verdict::HoldsAfterAll, false));
        let embedded = "embedded, 10 items: match unit faster";
        assert_eq!(verdict(Which::AsDescribed, embedded), (Verdict::KnownDifference, true));
        assert_eq!(verdict(Which::FromMemory, embedded), (Verdict::DoesNotHold, false));
    }
}
