//! The paper's statements about processors (section 6.1), next to the results of three sets of processors here, with
//! the reasons for differences.
//!
//! The paper prints curves, and its text has only a few of their values; these are the claims here. Words mean ranges,
//! which are the same for all claims: "almost" and "nearly" a number, from a fifth below it up to it; "over" a number,
//! more than it; "approaches" and "virtually constant", within a fifth; "slightly", up to a tenth; "not dramatically",
//! less than twice. For each set, a claim has the reason for its difference, or none. A claim that begins to hold is an
//! error, too.

use super::{IDEAL, Ideal, List, Machine, Measurements};
use crate::figures::compared::{Compared, Published};

/// A set of processors, and the match unit.
#[derive(Clone, Copy)]
struct Set<'a> {
    measured: &'a Measurements,
    /// Embedded, and 1, 2 and 16 cores.
    processors: &'a [Machine],
}

/// The indices of processors in a [`Set`].
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

    /// Cycles of one match at the end of a list, of the match unit.
    fn unit(&self, items: u32) -> f64 {
        self.measured.full(&self.measured.match_unit.lists, items)
    }

    fn unit_first(&self) -> f64 {
        self.measured.first(&self.measured.match_unit.lists)
    }

    /// How many more cycles than the match unit a processor takes.
    fn gap(&self, processor: usize, items: u32) -> f64 {
        self.full(processor, items) - self.unit(items)
    }
}

/// A choice of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// As the paper's tables describe them, with open questions decided in the processors' favour.
    AsDescribed,
    /// The same with two decisions changed.
    Otherwise,
    /// Items, locks and headers in the memories of the paper's figures.
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

    /// Its index in [`Claim::why`].
    const fn index(self) -> usize {
        match self {
            Self::AsDescribed => 0,
            Self::Otherwise => 1,
            Self::FromMemory => 2,
        }
    }
}

/// The paper's statement.
#[derive(Clone, Copy)]
enum Said {
    /// A number in percent; the model's may differ by a percentage point.
    Percent(f64),
    /// A number of cycles; the model's may differ by one.
    Cycles(f64),
    /// Words, and the range that they mean: minimum and maximum.
    Words(&'static str, f64, f64),
}

/// A statement of the paper with a number or with words.
struct Claim {
    place: &'static str,
    subject: &'static str,
    unit: &'static str,
    said: Said,
    /// The value in a simulation.
    of: fn(&Set) -> f64,
    /// Whether the value depends on the match unit's time, or on the ideal that was chosen with it.
    rests_on_unit: bool,
    /// For each set, the reason for the difference; empty if there is none.
    why: [&'static str; 3],
}

/// The assumption of all rows: open questions that no source answers, decided without a fit to a number.
const OPEN: &str = "open questions about processors; docs/design/PROCESSORS.md has each decision";

const AGREES: &str = "";
const LEARNED: &str = "with learned branches an item takes 11 cycles: 15 instructions, 7 of them loads of two issue \
                       slots each; the paper's numbers imply 21";
const NOT_LEARNED: &str = "predicted not taken, an item takes 25 cycles; the paper's numbers imply 21";
const FREE_LOCKS: &str = "only the matching item's lock limits 16 cores, for 72 cycles a header";
const SLOTS: &str = "with 16 issue slots, 19 instructions take little more than a cycle per item; the paper's tables \
                     do not explain its 8 cycles";
const SPINNING_SLOTS: &str = "spinning threads take issue slots only from their neighbours, and on a long list few \
                              threads wait: two cycles per item";
const NEAR_SLOTS: &str = "once the thread that reads headers has passed one on, after about 190 cycles, an item takes \
                          little more than a cycle";
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
            "nearly: the one thread that reads headers is the bottleneck, and shares its core with three that match",
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
            "a header costs two cache misses, partly overlapped with the previous match; the paper does not show the \
             code around match()",
            "as in the first set, plus one or two wrong predictions",
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
            "the first item's lock passes from core to core in one cycle, and the thread with the lock does not share \
             its core",
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
            "a separate thread reads the next header while others match; the embedded processor does both in sequence",
        ],
    },
    Claim {
        place: "section 6.1",
        subject: "10 items: one core takes less time than embedded by",
        unit: "%",
        said: Said::Words("slightly", 0.0, 10.0),
        of: |m| 100.0 * (1.0 - m.full(ONE, 10) / m.full(EMBEDDED, 10)),
        rests_on_unit: false,
        why: [ONE_SLOT, "spinning threads take its only issue slot", ONE_SLOT],
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
            "issue slots limit 2 cores from about 5 items on; the matching item's lock limits 16 cores up to 30 items",
            "as in the first set: few threads wait, so few spin",
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
        why: ["19 instructions per item on two issue slots take 9.5 cycles; the match unit takes 8"; 3],
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
        subject: "embedded: time above the match unit's at 300 items, over that at 10",
        unit: "times",
        said: Said::Words("virtually constant", 0.8, 1.2),
        of: |m| m.gap(EMBEDDED, 300) / m.gap(EMBEDDED, 10),
        rests_on_unit: true,
        why: ["a constant difference contradicts more cycles per item than the match unit's 8, which the same section \
               states"; 3],
    },
    Claim {
        place: "derived",
        subject: "embedded: cycles per additional item, (104 / 0.34 - 3 x 38) / 9",
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

/// The paper's statements about processors, next to one set of them.
pub(super) fn rows(measured: &Measurements, which: Which) -> Vec<Compared> {
    let set = Set { measured, processors: which.processors(measured) };
    CLAIMS.iter().map(|claim| claim.row(&set, which)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::compared::Verdict;

    #[test]
    fn claim_that_begins_or_ceases_to_hold_is_found() {
        // Every machine has the match unit's time, so claims that are declared to differ hold.
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
