//! The registers and predicates that a program reads from a word on: all that a branch, an output or an output's value
//! can depend on. The others may have any value without changing a cycle, a word or a result.
//!
//! Constants: ours, how a set of registers is kept.

use alloc::boxed::Box;
use alloc::vec;

use niclab_isa::DELAY_SLOTS;

use super::super::operation::{Operation, active};

/// A set of registers and predicates, one bit each: the ALU's registers, the ternary unit's registers, the predicates.
pub type Set = u64;

const TERNARY: u32 = 16;
const PREDICATES: u32 = 32;
/// The constant registers and the constant predicate, which need not be computed.
const CONSTANT: Set = 1 | 1 << TERNARY | 1 << PREDICATES;
const ALL: Set = ((1 << 48) - 1) & !CONSTANT;

/// Maximum number of passes over the program, which are repeated until nothing changes. Attack: a program's registers
/// depend on one another along a long path backwards. Each time it is loaded, it would need a pass for each of its
/// words. A program that needs more passes is treated as if it read everything. Ours: a bound.
const MAX_PASSES: usize = 64;

pub const fn alu(register: u8) -> Set {
    1 << register & !CONSTANT
}

pub const fn ternary(register: u8) -> Set {
    (1 << TERNARY) << register & !CONSTANT
}

/// The registers of a set, by their numbers: first those of the ALU, then those of the ternary unit.
pub fn registers(set: Set) -> impl Iterator<Item = u8> {
    (0..PREDICATES as u8).filter(move |number| set >> number & 1 == 1)
}

pub const fn predicate(number: u8) -> Set {
    (1 << PREDICATES) << number & !CONSTANT
}

pub const fn predicates(bits: u16) -> Set {
    (bits as u64) << PREDICATES & !CONSTANT
}

/// The sets of a program.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// What is read from each word on, if no branch is pending.
    from: Box<[Set]>,
}

impl Liveness {
    pub fn new(program: &[Operation]) -> Self {
        let mut liveness = Self { from: vec![0; program.len()].into() };
        for _ in 0..MAX_PASSES {
            if !liveness.pass(program) {
                return liveness;
            }
        }
        liveness.from.fill(ALL);
        liveness
    }

    /// Makes one pass over the program. Returns whether a set grew.
    fn pass(&mut self, program: &[Operation]) -> bool {
        let mut has_grown = false;
        for (pc, operation) in program.iter().enumerate().rev() {
            let mut after = 0;
            if !operation.always_branches() {
                after |= self.from(program, pc + 1, 0, 0);
            }
            let mut looked_at = 0;
            if operation.has(active::BRANCH) {
                after |= self.from(program, pc + 1, DELAY_SLOTS as u8, operation.branch_target);
                looked_at |= predicate(operation.branch_predicate);
            }
            let set = before(operation, after).0 | looked_at | self.from[pc];
            has_grown |= set != self.from[pc];
            self.from[pc] = set;
        }
        has_grown
    }

    /// What is read from a word on, with `delay` words before the target of a taken branch.
    pub fn from(&self, program: &[Operation], pc: usize, delay: u8, target: u16) -> Set {
        let at = |pc: usize| self.from.get(pc).copied().unwrap_or(0);
        if delay == 0 {
            return at(pc);
        }
        // A branch in the delay slot of a taken branch has no effect. If the program ends before, less is read.
        (pc..pc + usize::from(delay)).rev().fold(at(target.into()), |after, pc| {
            program.get(pc).map_or(0, |operation| before(operation, after).0)
        })
    }
}

/// What a word, without its branch, reads if `after` is read after it, and the slots that must be active for that.
pub fn before(operation: &Operation, after: Set) -> (Set, u8) {
    let (mut slots, mut written, mut read) = (0, 0, 0);
    if operation.has(active::TERNARY) {
        let slot = &operation.ternary;
        written |= predicates(slot.results.overwritten());
        if predicates(slot.results.changed()) & after != 0 {
            slots |= active::TERNARY;
            read |= ternary(slot.match0) | ternary(slot.match1) | ternary(slot.mask);
        }
    }
    if operation.has(active::COMPARE) {
        let slot = &operation.alu;
        written |= predicates(slot.results.overwritten());
        if predicates(slot.results.changed()) & after != 0 {
            slots |= active::COMPARE;
            read |= alu(slot.a) | alu(slot.b);
        }
    }
    if operation.has(active::COMPUTE) {
        let slot = &operation.alu;
        let dest = alu(slot.dest);
        if slot.predicate == 0 {
            written |= dest;
        }
        if dest & after != 0 {
            slots |= active::COMPUTE;
            read |= alu(slot.a) | alu(slot.b) | predicate(slot.predicate);
        }
    }
    if operation.has(active::COPY) {
        let dest = ternary(operation.copy_ternary);
        if operation.copy_predicate == 0 {
            written |= dest;
        }
        if operation.copy_output || dest & after != 0 {
            slots |= active::COPY;
            read |= alu(operation.copy_source) | predicate(operation.copy_predicate);
        }
    }
    if operation.has(active::PREDICATE) {
        for function in &operation.functions {
            let dest = predicates(function.dest);
            written |= dest;
            if dest & after != 0 {
                slots |= active::PREDICATE;
                read |= predicate(function.a) | predicate(function.b);
            }
        }
    }
    if operation.has(active::TAKE) {
        let (to_alu, to_ternary) = (alu(operation.input_alu), ternary(operation.input_ternary));
        written |= to_alu | to_ternary;
        if (to_alu | to_ternary) & after != 0 {
            slots |= active::TAKE;
        }
        if to_ternary & after != 0 {
            slots |= operation.active & active::PERMUTE;
        }
    }
    (after & !written | read, slots)
}

/// The values of the registers and predicates of a set, for comparisons.
#[cfg(any(test, debug_assertions))]
pub fn kept(set: Set, registers: &super::super::Registers, predicates: u16) -> alloc::vec::Vec<u64> {
    let has = |place: usize| set >> place & 1 == 1;
    let files = registers.alu.iter().chain(&registers.ternary).enumerate();
    let words = files.map(|(place, word)| if has(place) { *word } else { 0 });
    words.chain([u64::from(predicates) & set >> PREDICATES]).collect()
}
