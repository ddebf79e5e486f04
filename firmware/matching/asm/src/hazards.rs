//! Hazards from which the machine does not protect a program: two writes to one register, branches out of the program,
//! and likely mistakes.

use std::collections::BTreeSet;

use niclab_isa::{ALU_PREDICATE, DELAY_SLOTS, LANES, TERNARY_PREDICATE, Word};

use crate::statement::Unit;

/// Warnings; a source allows one for its next word by `.allow NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// A branch is in a delay slot of another branch. It is not taken if that one is.
    BranchInDelaySlot,
    /// A predicate is read in the word that computes it.
    StalePredicate,
    /// Execution can run past the last word.
    FallsThrough,
    /// No path leads here.
    Unreachable,
}

impl Warning {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::BranchInDelaySlot, Self::StalePredicate, Self::FallsThrough, Self::Unreachable];

    /// Its name for `.allow`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BranchInDelaySlot => "branch_in_delay_slot",
            Self::StalePredicate => "stale_predicate",
            Self::FallsThrough => "falls_through",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A hazard of one word of a program.
pub(crate) struct Finding {
    pub address: usize,
    /// The statement; none for the whole word.
    pub unit: Option<Unit>,
    /// None for an error.
    pub warning: Option<Warning>,
    pub what: String,
    pub remedy: String,
}

/// All hazards of a program.
pub(crate) fn find(words: &[Word]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (address, word) in words.iter().enumerate() {
        let conflict = |(unit, what): (Unit, String)| Finding {
            address,
            unit: Some(unit),
            warning: None,
            what: format!("two units write {what} in one word"),
            remedy: "move one of both writes to another word".to_owned(),
        };
        findings.extend(conflicts(word).into_iter().map(conflict));
        let target = word.branch.target.index();
        if !word.branch.is_never() && target >= words.len() {
            findings.push(Finding {
                address,
                unit: Some(Unit::Branch),
                warning: None,
                what: format!("there is no word {target}: the program has {}", words.len()),
                remedy: "branch to a label before a word".to_owned(),
            });
        }
        let stale = |(unit, predicate): (Unit, usize)| Finding {
            address,
            unit: Some(unit),
            warning: Some(Warning::StalePredicate),
            what: format!("p{predicate} is computed in this word, but this reads its old value"),
            remedy: "read it one word later, or declare that the old value is intended".to_owned(),
        };
        findings.extend(stale_reads(word).into_iter().map(stale));
    }
    findings.extend(paths(words));
    findings
}

/// Registers that two units write, with the unit of the second write.
fn conflicts(word: &Word) -> Vec<(Unit, String)> {
    let mut conflicts = Vec::new();
    let (input, copy, alu, predicate) = (&word.input, &word.copy, &word.alu, &word.predicate);
    if input.take && input.alu.get() != 0 && !alu.op.is_compare() && alu.dest == input.alu {
        conflicts.push((Unit::Alu, format!("r{}", alu.dest)));
    }
    if input.take && input.ternary.get() != 0 && copy.ternary == input.ternary {
        conflicts.push((Unit::Copy, format!("t{}", copy.ternary)));
    }
    if predicate.dest0.get() != 0 && predicate.dest0 == predicate.dest1 {
        conflicts.push((Unit::Predicate1, format!("p{}", predicate.dest1)));
    }
    conflicts
}

/// Predicates that one unit reads and another one computes in the same word.
fn stale_reads(word: &Word) -> Vec<(Unit, usize)> {
    let mut written = [None; niclab_isa::PREDICATES];
    let mut write = |number: usize, unit: Unit| {
        if let Some(writer) = written.get_mut(number) {
            *writer = Some(unit);
        }
    };
    for lane in 0..LANES {
        if word.alu.op.is_compare() && word.alu.lanes.has(lane as u32) {
            write(ALU_PREDICATE + lane, Unit::Alu);
        }
        if word.ternary.lanes.has(lane as u32) {
            write(TERNARY_PREDICATE + lane, Unit::Ternary);
        }
    }
    let predicate = &word.predicate;
    write(predicate.dest0.index(), Unit::Predicate0);
    write(predicate.dest1.index(), Unit::Predicate1);

    let mut reads = Vec::new();
    if word.copy.ternary.get() != 0 || word.copy.output {
        reads.push((Unit::Copy, word.copy.predicate));
    }
    if !word.alu.op.is_compare() && word.alu.dest.get() != 0 {
        reads.push((Unit::Alu, word.alu.predicate));
    }
    for (unit, dest, function, a, b) in [
        (Unit::Predicate0, predicate.dest0, predicate.function0, predicate.a0, predicate.b0),
        (Unit::Predicate1, predicate.dest1, predicate.function1, predicate.a1, predicate.b1),
    ] {
        // A truth table that is the same for both values of an argument does not depend on it.
        let table = function.get();
        let looks_at_a = table >> 2 != table & 0b11;
        let looks_at_b = table >> 1 & 0b0101 != table & 0b0101;
        if dest.get() != 0 {
            reads.extend(looks_at_a.then_some((unit, a)));
            reads.extend((looks_at_b && !(looks_at_a && a == b)).then_some((unit, b)));
        }
    }
    if !word.branch.is_never() {
        reads.push((Unit::Branch, word.branch.predicate));
    }
    // `p1 = p1 and p8` accumulates, so it reads the old p1 on purpose.
    let is_stale = |unit, number: usize| {
        number != 0 && written.get(number).is_some_and(|writer| writer.is_some_and(|writer| writer != unit))
    };
    let reads = reads.into_iter().map(|(unit, number)| (unit, number.index()));
    reads.filter(|(unit, number)| is_stale(*unit, *number)).collect()
}

/// A taken branch whose delay slots are pending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    from: usize,
    target: usize,
    slots: usize,
}

/// Follows every path from word 0 on, for all values of predicates.
fn paths(words: &[Word]) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut shadowed = BTreeSet::new();
    let mut ends = BTreeSet::new();
    let mut open = vec![(0, None)];
    while let Some((address, pending)) = open.pop() {
        let Some(word) = words.get(address) else { continue };
        if !seen.insert((address, pending)) {
            continue;
        }
        let branch = &word.branch;
        let next = address + 1;
        let mut follow = |to: usize, pending: Option<Pending>| {
            if to == words.len() && to == next {
                ends.insert(address);
            }
            open.push((to, pending));
        };
        match pending {
            Some(Pending { from, target, slots }) => {
                if !branch.is_never() {
                    shadowed.insert((address, from));
                }
                match slots {
                    0 | 1 => open.push((target, None)),
                    _ => follow(next, Some(Pending { from, target, slots: slots - 1 })),
                }
            }
            None => {
                if !branch.is_always() {
                    follow(next, None);
                }
                if !branch.is_never() {
                    let target = branch.target.index();
                    follow(next, Some(Pending { from: address, target, slots: DELAY_SLOTS }));
                }
            }
        }
    }
    let reached: BTreeSet<usize> = seen.into_iter().map(|(address, _)| address).collect();
    let shadowed = shadowed.into_iter().map(|(address, from)| in_delay_slot(words, address, from));
    let ends = ends.into_iter().map(falls_through);
    shadowed.chain(ends).chain(unreachable(words.len(), &reached)).collect()
}

fn in_delay_slot(words: &[Word], address: usize, from: usize) -> Finding {
    let always = words.get(from).is_some_and(|word| word.branch.is_always());
    let when = if always { "so it is never taken" } else { "and is not taken if that one is" };
    Finding {
        address,
        unit: Some(Unit::Branch),
        warning: Some(Warning::BranchInDelaySlot),
        what: format!("this branch is in a delay slot of the branch in word {from}, {when}"),
        remedy: "move it after the two delay slots, or declare that this is intended".to_owned(),
    }
}

fn falls_through(address: usize) -> Finding {
    Finding {
        address,
        unit: None,
        warning: Some(Warning::FallsThrough),
        what: "execution runs past the last word of the program".to_owned(),
        remedy: "end the program with a branch and two more words, its delay slots".to_owned(),
    }
}

/// One finding for each range of words that no path reaches.
fn unreachable(words: usize, reached: &BTreeSet<usize>) -> Vec<Finding> {
    let missed: Vec<usize> = (0..words).filter(|address| !reached.contains(address)).collect();
    let stretches = missed.chunk_by(|one, next| one + 1 == *next);
    let finding = |stretch: &[usize]| {
        let (first, last) = (*stretch.first()?, *stretch.last()?);
        let what = if first == last {
            "no path leads to this word".to_owned()
        } else {
            format!("no path leads to words {first} to {last}")
        };
        let remedy = "remove what is not executed, or branch to it".to_owned();
        Some(Finding { address: first, unit: None, warning: Some(Warning::Unreachable), what, remedy })
    };
    stretches.filter_map(finding).collect()
}
