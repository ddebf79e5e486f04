//! What a word does to data, slot by slot and without operations that are not needed.
//!
//! Constants: none of the model's.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::Registers;
use super::super::operation::{Arithmetic, Function, Match, Operation, active, tops_of_nonzero};
use super::liveness::{Set, alu, predicate, predicates, ternary};

/// One operation on data. Registers are named by their numbers, input words by the number of words taken before.
#[derive(Clone, Debug)]
pub enum Micro {
    /// Takes an input word into a register of the ALU,
    Take { to: u8, take: u8 },
    /// into one of the ternary unit,
    TakeTernary { to: u8, take: u8 },
    /// or into one of the ternary unit with its lanes permuted.
    TakePermuted { to: u8, take: u8, permute: u8 },
    /// The ternary unit compares.
    Match(Match),
    /// The ALU compares,
    Compare(Arithmetic),
    /// or computes.
    Compute(Arithmetic),
    /// The predicate unit computes.
    Function(Function),
    /// Copies a register, if the predicate is 1.
    Copy { from: u8, to: u8, predicate: u8 },
    /// Writes a register to the output, in this cycle.
    Output { from: u8, cycle: u8 },
    /// All slots of a word that cannot be executed one after the other.
    Word { operation: Box<Operation>, take: u8, cycle: u8 },
}

const fn at(number: u8) -> usize {
    number as usize % niclab_isa::REGISTERS
}

/// Executes these operations.
#[inline(always)]
pub fn perform(
    micros: &[Micro],
    registers: &mut Registers,
    predicates: &mut u16,
    input: impl Fn(u8) -> u64,
    mut output: impl FnMut(u8, u64),
) {
    for micro in micros {
        match micro {
            Micro::Take { to, take } => registers.alu[at(*to)] = input(*take),
            Micro::TakeTernary { to, take } => registers.ternary[at(*to)] = input(*take),
            Micro::TakePermuted { to, take, permute } => {
                registers.ternary[at(*to)] = Operation::permute(*permute, input(*take));
            }
            Micro::Match(slot) => {
                let ternary = &registers.ternary;
                let mask = ternary[at(slot.mask)] ^ slot.invert;
                let differ = (ternary[at(slot.match0)] ^ ternary[at(slot.match1)]) & mask;
                *predicates = slot.results.enter(*predicates, tops_of_nonzero(differ, slot.tops) ^ slot.tops);
            }
            Micro::Compare(slot) => {
                let (a, b) = operands(slot, registers);
                *predicates = slot.results.enter(*predicates, slot.compare(a, b));
            }
            Micro::Compute(slot) => {
                if *predicates >> slot.predicate & 1 == 1 {
                    let (a, b) = operands(slot, registers);
                    registers.alu[at(slot.dest)] = slot.compute(a, b);
                }
            }
            Micro::Function(function) => *predicates = function.apply(*predicates, *predicates),
            Micro::Copy { from, to, predicate } => {
                if *predicates >> predicate & 1 == 1 {
                    registers.ternary[at(*to)] = registers.alu[at(*from)];
                }
            }
            Micro::Output { from, cycle } => output(*cycle, registers.alu[at(*from)]),
            Micro::Word { operation, take, cycle } => {
                let (after, written) = registers.execute(operation, input(*take), *predicates);
                *predicates = after;
                if let Some(word) = written {
                    output(*cycle, word);
                }
            }
        }
    }
}

#[inline(always)]
const fn operands(slot: &Arithmetic, registers: &Registers) -> (u64, u64) {
    (registers.alu[at(slot.a)], registers.alu[at(slot.b)] & slot.keep | slot.immediate)
}

/// An operation, and the registers and predicates that it reads and writes.
struct Slot {
    micro: Micro,
    reads: Set,
    writes: Set,
}

/// The needed operations of a word, if `after` is read after it. They are in an order in which each slot reads the
/// results of the previous word.
pub fn of_word(operation: &Operation, after: Set, take: u8, cycle: u8) -> Vec<Micro> {
    let mut slots = slots(operation, take, cycle);
    slots.retain(|slot| matches!(slot.micro, Micro::Output { .. }) || slot.writes & after != 0);
    let mut micros = Vec::new();
    while !slots.is_empty() {
        let is_free = |place: usize| {
            let others = slots.iter().enumerate().filter(|(other, _)| *other != place);
            others.fold(0, |all, (_, other)| all | other.reads | other.writes) & slots[place].writes == 0
        };
        let Some(place) = (0..slots.len()).find(|place| is_free(*place)) else {
            // Two slots exchange registers, or write the same one.
            return [Micro::Word { operation: Box::new(*operation), take, cycle }].into();
        };
        micros.push(slots.remove(place).micro);
    }
    micros
}

fn slots(operation: &Operation, take: u8, cycle: u8) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut slot = |micro, reads, writes| slots.push(Slot { micro, reads, writes });
    if operation.has(active::TERNARY) {
        let ternary_slot = operation.ternary;
        let reads = ternary(ternary_slot.match0) | ternary(ternary_slot.match1) | ternary(ternary_slot.mask);
        slot(Micro::Match(ternary_slot), reads, predicates(ternary_slot.results.changed()));
    }
    let arithmetic = operation.alu;
    let reads = alu(arithmetic.a) | alu(arithmetic.b);
    if operation.has(active::COMPARE) {
        slot(Micro::Compare(arithmetic), reads, predicates(arithmetic.results.changed()));
    }
    if operation.has(active::COMPUTE) {
        slot(Micro::Compute(arithmetic), reads | predicate(arithmetic.predicate), alu(arithmetic.dest));
    }
    if operation.has(active::COPY) {
        let (from, to, condition) = (operation.copy_source, operation.copy_ternary, operation.copy_predicate);
        if operation.copy_output {
            // Whether the output is written is known.
            slot(Micro::Output { from, cycle }, alu(from), 0);
        } else {
            slot(
                Micro::Copy { from, to, predicate: condition },
                alu(from) | predicate(condition),
                ternary(to),
            );
        }
    }
    if operation.has(active::PREDICATE) {
        for function in operation.functions {
            let reads = predicate(function.a) | predicate(function.b);
            slot(Micro::Function(function), reads, predicates(function.dest));
        }
    }
    if operation.has(active::TAKE) {
        let (to, permute) = (operation.input_ternary, operation.permutation());
        slot(Micro::Take { to: operation.input_alu, take }, 0, alu(operation.input_alu));
        let micro = if operation.has(active::PERMUTE) {
            Micro::TakePermuted { to, take, permute }
        } else {
            Micro::TakeTernary { to, take }
        };
        slot(micro, 0, ternary(to));
    }
    slots
}
