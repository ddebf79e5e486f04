//! The path through some nodes, joined so that it can be executed at once if the data is of the same classes.
//!
//! Constants: none of the model's.

use alloc::vec::Vec;

use super::super::operation::Operation;
use super::formula::{Builder, Expected, Formula};
use super::liveness::Set;
use super::{Automaton, End, NOWHERE, Passed};

/// Maximum number of nodes of a path; a path is as short as one item's. Ours: a bound on the memory of a path.
const MAX_NODES: usize = 64;

/// Nodes, in the order in which they were passed, each with the class of the data at its end.
#[derive(Clone, Debug, Default)]
pub struct Track {
    passed: Vec<(u32, u8)>,
    is_lost: bool,
}

impl Track {
    /// Adds a node that was passed.
    pub fn pass(&mut self, number: u32, class: Option<u8>) {
        self.is_lost |= self.passed.len() >= MAX_NODES || number == NOWHERE;
        if !self.is_lost {
            self.passed.push((number, class.unwrap_or(0)));
        }
    }

    /// The engine executed something without a node.
    pub const fn lose(&mut self) {
        self.is_lost = true;
    }
}

/// A path that was found.
#[derive(Clone, Debug)]
pub struct Path {
    /// Its computations and conditions.
    pub(super) formula: Formula,
    /// The recording that it was made from.
    track: Track,
    written: Vec<Expected>,
    /// Numbers of words that it takes and issues.
    pub takes: usize,
    pub issued: u64,
}

#[cfg(test)]
impl Path {
    /// Number of its parts.
    pub const fn len(&self) -> usize {
        self.formula.len()
    }

    /// Removes a part.
    pub fn forget(&mut self, place: usize) {
        self.formula.forget(place);
    }
}

/// A word, or a condition on the path.
enum Part {
    Word(Passed),
    Condition([u8; 2], u8),
}

impl Automaton {
    /// The path of a recording that wrote these words. `None` if the recording was lost, or if it wrote another number
    /// of words.
    pub fn path(&self, program: &[Operation], track: Track, written: &[Expected]) -> Option<Path> {
        if track.is_lost {
            return None;
        }
        let (mut parts, mut takes, mut issued, mut end) = (Vec::new(), 0, 0, None);
        for (number, class) in &track.passed {
            let node = self.nodes.get(*number as usize)?;
            let (_, words) = self.pass(program, node.from);
            parts
                .extend(words.into_iter().map(|word| Part::Word(Passed { take: word.take + takes, ..word })));
            if let End::Class(predicates) = node.end {
                parts.push(Part::Condition(predicates, *class));
            }
            takes = takes.checked_add(node.takes)?;
            issued += u64::from(node.issued);
            end = Some(node.after);
        }
        let end = end?;
        let needed = self.liveness.from(program, end.pc.into(), end.delay, end.target);
        let formula = data(program, &parts, needed, written)?;
        Some(Path { formula, takes: takes.into(), issued, track, written: written.to_vec() })
    }

    /// Consecutive paths, joined to one.
    pub fn joined(&self, program: &[Operation], paths: &[&Path]) -> Option<Path> {
        let passed = paths.iter().flat_map(|path| path.track.passed.iter().copied()).collect();
        let written: Vec<_> = paths.iter().flat_map(|path| path.written.iter().copied()).collect();
        self.path(program, Track { passed, is_lost: false }, &written)
    }
}

/// What these parts do to data, if `needed` is needed after them.
fn data(program: &[Operation], parts: &[Part], needed: Set, written: &[Expected]) -> Option<Formula> {
    let mut builder = Builder::new();
    let mut written = written.iter().copied();
    for part in parts {
        match part {
            Part::Condition(predicates, class) => {
                for (place, number) in predicates.iter().enumerate().filter(|(_, number)| **number != 0) {
                    builder.expect(*number, class >> place & 1 == 1);
                }
            }
            Part::Word(word) => {
                let mut operation = *program.get(usize::from(word.pc))?;
                word.settle(&mut operation);
                if !builder.pass(&operation, word.take, || written.next()) {
                    return None;
                }
            }
        }
    }
    if written.next().is_some() { None } else { builder.formula(needed) }
}
