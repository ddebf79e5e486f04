//! The way through some nodes, put together to be gone at once where the data is of the same classes.
//!
//! Constants: none of the model's.

use alloc::vec::Vec;

use super::super::operation::{Operation, active};
use super::liveness::{Set, before, predicate};
use super::micro::{Micro, of_word};
use super::{Automaton, End, NOWHERE, Passed};
use crate::models::matching::program::FAILED;

/// Nodes of a way at most: a way is as short as one item's. Ours: a bound on what is kept for one.
const MOST_NODES: usize = 64;

/// Nodes, in the order in which they were passed, and the class of the data at the end of each.
#[derive(Clone, Debug, Default)]
pub struct Track {
    passed: Vec<(u32, u8)>,
    is_lost: bool,
}

impl Track {
    /// Another node is passed.
    pub fn pass(&mut self, number: u32, class: Option<u8>) {
        self.is_lost |= self.passed.len() >= MOST_NODES || number == NOWHERE;
        if !self.is_lost {
            self.passed.push((number, class.unwrap_or(0)));
        }
    }

    /// Something was done that is no node.
    pub const fn lose(&mut self) {
        self.is_lost = true;
    }
}

/// A way that was found.
#[derive(Clone, Debug)]
pub struct Path {
    /// What is to be done, and what is expected meanwhile.
    pub(super) micros: Vec<Micro>,
    /// Words that it takes and issues.
    pub takes: usize,
    pub issued: u64,
}

/// A word or a condition on the way.
enum Part {
    Word(Passed),
    Condition([u8; 2], u8),
}

impl Automaton {
    /// The way of a track; none where it was lost, and where it writes what is not known beforehand. All that it writes is expected
    /// to be [`FAILED`].
    pub fn path(&self, program: &[Operation], track: &Track) -> Option<Path> {
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
        let micros = data(program, &parts, needed)?;
        Some(Path { micros, takes: takes.into(), issued })
    }
}

/// What these parts do to data, where `needed` is needed behind them.
fn data(program: &[Operation], parts: &[Part], mut needed: Set) -> Option<Vec<Micro>> {
    let mut micros: Vec<Micro> = Vec::new();
    for part in parts.iter().rev() {
        match part {
            Part::Condition(predicates, class) => {
                for (place, number) in predicates.iter().enumerate().filter(|(_, number)| **number != 0) {
                    micros.push(Micro::Expect { predicate: *number, is: class >> place & 1 == 1 });
                    needed |= predicate(*number);
                }
            }
            Part::Word(word) => {
                let mut operation = *program.get(usize::from(word.pc))?;
                word.settle(&mut operation);
                let (looked_at, slots) = before(&operation, needed);
                operation.active = slots;
                let of_word = of_word(&operation, needed, word.take, word.cycle);
                if slots & active::COPY != 0 && operation.copy_output && has_whole(&of_word) {
                    return None;
                }
                micros.extend(of_word.into_iter().rev().filter_map(expected));
                needed = looked_at;
            }
        }
    }
    micros.reverse();
    Some(micros)
}

fn has_whole(micros: &[Micro]) -> bool {
    micros.iter().any(|micro| matches!(micro, Micro::Word { .. }))
}

/// Instead of being written, a word is expected to be what an item that failed brings. Register 0 is.
fn expected(micro: Micro) -> Option<Micro> {
    match micro {
        Micro::Output { from: 0, .. } => None,
        Micro::Output { from, .. } => Some(Micro::ExpectWord { from, is: FAILED }),
        other => Some(other),
    }
}
