//! Branch prediction of the embedded processor: SimpleScalar's default, a table of two-bit counters, a branch target
//! buffer and a stack of return addresses.
//!
//! The paper does not name a predictor, so the model uses its simulator's default. The alternative, which predicts
//! every conditional branch as not taken, shows the influence of this choice.
//!
//! Constants: assumed, as the paper names no predictor: SimpleScalar's defaults.

use crate::instruction::{Instruction, Target};

/// Prediction of conditional branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prediction {
    /// Two-bit counters, selected by the branch's address.
    Bimodal,
    /// Always not taken.
    NotTaken,
}

/// Counters of the bimodal table: SimpleScalar's default.
const COUNTERS: usize = 2048;
/// Entries of the branch target buffer. SimpleScalar has 512 sets of 4 ways. The programs here are shorter than 512
/// instructions, so one way never has a conflict.
const TARGETS: usize = 512;
/// Entries of the return address stack: SimpleScalar's default.
const RETURNS: usize = 8;

/// The predictor's state, which it keeps between passes of the benchmark.
#[derive(Clone, Debug)]
pub struct Predictor {
    prediction: Prediction,
    /// 0 and 1 predict not taken, 2 and 3 taken.
    counters: Vec<u8>,
    targets: Vec<Option<(Target, Target)>>,
    returns: Vec<Target>,
}

impl Predictor {
    /// A predictor with SimpleScalar's initial counters, which alternate between weakly not taken and weakly taken.
    pub fn new(prediction: Prediction) -> Self {
        Self {
            prediction,
            counters: (0..COUNTERS).map(|at| 1 + (at % 2) as u8).collect(),
            targets: vec![None; TARGETS],
            returns: Vec::with_capacity(RETURNS),
        }
    }

    /// The predicted instruction after this one. Called once for each fetched instruction, in program order.
    pub fn predict(&mut self, at: Target, instruction: Instruction) -> Target {
        let next = at + 1;
        let known = self.targets[at % TARGETS].filter(|(branch, _)| *branch == at).map_or(next, |(_, to)| to);
        match instruction {
            Instruction::BranchIf(..) => {
                let taken = self.prediction == Prediction::Bimodal && self.counters[at % COUNTERS] >= 2;
                if taken { known } else { next }
            }
            Instruction::Branch(_) => known,
            Instruction::Call(_) => {
                if self.returns.len() == RETURNS {
                    self.returns.remove(0);
                }
                self.returns.push(next);
                known
            }
            Instruction::Return => self.returns.pop().unwrap_or(next),
            _ => next,
        }
    }

    /// Learns from a committed branch that led to `to`.
    pub fn learn(&mut self, at: Target, to: Target) {
        let taken = to != at + 1;
        let counter = &mut self.counters[at % COUNTERS];
        *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
        if taken {
            self.targets[at % TARGETS] = Some((at, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Condition::Equal;

    #[test]
    fn a_branch_is_learned_and_unlearned() {
        let branch = Instruction::BranchIf(Equal, 40);
        let mut predictor = Predictor::new(Prediction::Bimodal);
        assert_eq!(predictor.predict(6, branch), 7);
        predictor.learn(6, 40);
        predictor.learn(6, 40);
        assert_eq!(predictor.predict(6, branch), 40);
        predictor.learn(6, 7);
        assert_eq!(predictor.predict(6, branch), 40, "once is not enough");
        predictor.learn(6, 7);
        assert_eq!(predictor.predict(6, branch), 7);
        assert_eq!(Predictor::new(Prediction::NotTaken).predict(6, branch), 7);
    }

    #[test]
    fn returns_go_to_the_last_call() {
        let mut predictor = Predictor::new(Prediction::Bimodal);
        predictor.predict(3, Instruction::Call(50));
        predictor.predict(51, Instruction::Call(60));
        assert_eq!(predictor.predict(62, Instruction::Return), 52);
        assert_eq!(predictor.predict(55, Instruction::Return), 4);
    }
}
