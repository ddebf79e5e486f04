//! A second, plain engine: it interprets the fields of a word as they are written, one group of lanes after the other.
//! It is the reference for the fast engine.
//!
//! Constants: lanes of 16 bits, the paper's section 4.2.

use alloc::vec::Vec;

use niclab_isa::word::ByteSource;
use niclab_isa::{
    ALU_PREDICATE, AluOp, Bits, Combine, DELAY_SLOTS, Half, LANES, REGISTERS, TERNARY_PREDICATE, Word,
};

use super::{Control, Registers, Step};

const LANE_BITS: usize = 16;

/// 16-bit lanes that are combined to one operand.
#[derive(Clone, Copy, Debug)]
struct Group {
    mask: u64,
    lanes: u8,
}

/// The groups for each value of a `join` field, and their number.
const GROUPS: [([Group; LANES], usize); 8] = {
    let mut all = [([Group { mask: 0, lanes: 0 }; LANES], 0); 8];
    let mut join = 0;
    while join < 8 {
        let (groups, count) = &mut all[join];
        let mut lane = 0;
        while lane < LANES {
            let is_new = lane == 0 || join >> (lane - 1) & 1 == 0;
            if is_new {
                *count += 1;
            }
            groups[*count - 1].mask |= 0xffff << (LANE_BITS * lane);
            groups[*count - 1].lanes |= 1 << lane;
            lane += 1;
        }
        join += 1;
    }
    all
};

fn groups(join: Bits<3>) -> &'static [Group] {
    let (groups, count) = &GROUPS[join.index()];
    &groups[..*count]
}

/// A word, decoded for execution.
#[derive(Clone, Copy, Debug)]
struct Operation {
    word: Word,
    /// Bits of operand b that the immediate does not replace, and the immediate at its position.
    keep: u64,
    immediate: u64,
    alu_groups: &'static [Group],
    ternary_groups: &'static [Group],
    is_compare: bool,
    has_ternary: bool,
    has_predicate: bool,
}

impl Operation {
    fn new(word: &Word) -> Self {
        let immediate = u64::from(word.alu.immediate.get());
        let (keep, immediate) = match word.alu.half {
            Half::None => (u64::MAX, 0),
            Half::Lower => (u64::MAX << 32, immediate),
            Half::Upper => (u64::MAX >> 32, immediate << 32),
        };
        Self {
            word: *word,
            keep,
            immediate,
            alu_groups: groups(word.alu.join),
            ternary_groups: groups(word.ternary.join),
            is_compare: word.alu.op.is_compare(),
            has_ternary: word.ternary.lanes.get() != 0,
            has_predicate: word.predicate.dest0.get() | word.predicate.dest1.get() != 0,
        }
    }
}

/// The engine with a program.
pub struct Plain {
    program: Vec<Operation>,
    state: State,
}

/// The state that changes.
struct State {
    alu: [u64; REGISTERS],
    ternary: [u64; REGISTERS],
    /// One bit each; number 0 is always 1.
    predicates: u16,
    pc: usize,
    /// A taken branch: its target, and the number of words before it.
    taken: Option<(usize, usize)>,
}

impl Plain {
    pub fn new(program: &[Word]) -> Self {
        let state = State {
            alu: [0; REGISTERS],
            ternary: core::array::from_fn(|number| if number == 0 { u64::MAX } else { 0 }),
            predicates: 1,
            pc: 0,
            taken: None,
        };
        Self { program: program.iter().map(Operation::new).collect(), state }
    }

    /// Executes one cycle. `front` is the first word of the input FIFO.
    pub fn step(&mut self, front: Option<u64>) -> Step {
        let Self { program, state } = self;
        let Some(operation) = program.get(state.pc) else { return Step::RanOut };
        let took = operation.word.input.take;
        let input = match (took, front) {
            (true, None) => return Step::Waited,
            (true, Some(input)) => input,
            (false, _) => 0,
        };
        let output = state.execute(operation, input);
        Step::Issued { took, output }
    }

    /// The state that the fast engine keeps. The target of a branch that is not pending any more has no meaning.
    pub fn state(&self) -> (Registers, Control) {
        let State { alu, ternary, predicates, pc, taken } = self.state;
        let (target, delay) = taken.unwrap_or_default();
        (Registers { alu, ternary }, Control { pc, target: target as u16, delay: delay as u8, predicates })
    }
}

impl State {
    /// Executes all slots of a word. Each slot reads the results of the previous word.
    fn execute(&mut self, operation: &Operation, input: u64) -> Option<u64> {
        let Word { input: input_slot, copy, alu, ternary, predicate, branch } = &operation.word;
        let before = self.predicates;
        let is_set = |number: Bits<4>| before >> number.get() & 1 == 1;
        let mut predicates = before;

        let a = self.alu[alu.a.index()];
        let b = self.alu[alu.b.index()] & operation.keep | operation.immediate;
        let copied = self.alu[copy.source.index()];
        let is_copied = is_set(copy.predicate);
        if operation.has_ternary {
            let mask = self.ternary[ternary.mask.index()];
            let mask = if ternary.ignore { !mask } else { mask };
            let differ = (self.ternary[ternary.match0.index()] ^ self.ternary[ternary.match1.index()]) & mask;
            let equal = lanes_where(operation.ternary_groups, |mask| differ & mask == 0);
            predicates = enter(predicates, TERNARY_PREDICATE, equal, ternary.lanes, ternary.combine);
        }
        if operation.is_compare {
            let holds = lanes_where(operation.alu_groups, |mask| compare(alu.op, a & mask, b & mask));
            predicates = enter(predicates, ALU_PREDICATE, holds, alu.lanes, alu.combine);
        }
        if operation.has_predicate {
            let of = |a, b, table: Bits<4>| table.has(2 * u32::from(is_set(a)) + u32::from(is_set(b)));
            let first = of(predicate.a0, predicate.b0, predicate.function0);
            let second = of(predicate.a1, predicate.b1, predicate.function1);
            predicates = assign(predicates, predicate.dest0, first);
            predicates = assign(predicates, predicate.dest1, second);
        }
        let result = if operation.is_compare { 0 } else { compute(operation, a, b) };

        // The ports of the input FIFO read before they write, so the results of the other slots stay.
        if input_slot.take {
            self.alu[input_slot.alu.index()] = input;
            self.ternary[input_slot.ternary.index()] = permute_lanes(input, input_slot.permute);
        }
        if !operation.is_compare && is_set(alu.predicate) {
            self.alu[alu.dest.index()] = result;
        }
        if is_copied {
            self.ternary[copy.ternary.index()] = copied;
        }
        self.alu[0] = 0;
        self.ternary[0] = u64::MAX;
        self.predicates = predicates;
        self.advance(!branch.is_never() && is_set(branch.predicate) == branch.sense, branch.target.index());
        (copy.output && is_copied).then_some(copied)
    }

    /// Advances to the next word. A branch in the delay slot of a taken branch has no effect.
    fn advance(&mut self, is_taken: bool, target: usize) {
        self.pc += 1;
        match &mut self.taken {
            Some((target, 1)) => {
                self.pc = *target;
                self.taken = None;
            }
            Some((_, left)) => *left -= 1,
            None if is_taken => self.taken = Some((target, DELAY_SLOTS)),
            None => {}
        }
    }
}

/// The lanes of those groups for which `holds`.
fn lanes_where(groups: &[Group], holds: impl Fn(u64) -> bool) -> u8 {
    groups.iter().fold(0, |lanes, group| if holds(group.mask) { lanes | group.lanes } else { lanes })
}

/// Enters the results of a comparison into the four predicates from `first` on.
fn enter(predicates: u16, first: usize, results: u8, enabled: Bits<4>, combine: Combine) -> u16 {
    let enabled = (enabled.get() as u16) << first;
    let results = u16::from(results) << first;
    match combine {
        Combine::Overwrite => predicates & !enabled | results & enabled,
        Combine::And => predicates & (results | !enabled),
        Combine::Or => predicates | results & enabled,
    }
}

fn assign(predicates: u16, dest: Bits<3>, value: bool) -> u16 {
    if dest.get() == 0 {
        return predicates;
    }
    predicates & !(1 << dest.get()) | u16::from(value) << dest.get()
}

fn compare(op: AluOp, a: u64, b: u64) -> bool {
    match op {
        AluOp::Equal => a == b,
        AluOp::NotEqual => a != b,
        AluOp::Less => a < b,
        AluOp::LessOrEqual => a <= b,
        AluOp::Greater => a > b,
        AluOp::GreaterOrEqual => a >= b,
        AluOp::Add | AluOp::Subtract | AluOp::And | AluOp::Or | AluOp::Xor | AluOp::Nor | AluOp::Permute => {
            false
        }
    }
}

fn compute(operation: &Operation, a: u64, b: u64) -> u64 {
    let by_group = |of_group: &dyn Fn(u64, u64) -> u64| {
        operation
            .alu_groups
            .iter()
            .fold(0, |sum, group| sum | of_group(a & group.mask, b & group.mask) & group.mask)
    };
    match operation.word.alu.op {
        AluOp::Add if operation.alu_groups.len() == 1 => a.wrapping_add(b),
        AluOp::Subtract if operation.alu_groups.len() == 1 => a.wrapping_sub(b),
        AluOp::Add => by_group(&u64::wrapping_add),
        AluOp::Subtract => by_group(&u64::wrapping_sub),
        AluOp::And => a & b,
        AluOp::Or => a | b,
        AluOp::Xor => a ^ b,
        AluOp::Nor => !(a | b),
        AluOp::Permute => permute_bytes(a, b, operation.word.alu.byte_sources()),
        // Comparisons write no register.
        _ => 0,
    }
}

fn permute_bytes(a: u64, b: u64, sources: [ByteSource; 8]) -> u64 {
    let byte = |source| match source {
        ByteSource::Zero => 0,
        ByteSource::A(place) => a.to_le_bytes()[usize::from(place & 7)],
        ByteSource::B(place) => b.to_le_bytes()[usize::from(place & 7)],
    };
    u64::from_le_bytes(sources.map(byte))
}

fn permute_lanes(input: u64, permute: Bits<8>) -> u64 {
    (0..LANES).fold(0, |word, lane| {
        let from = (permute.get() >> (2 * lane) & 3) as usize;
        word | (input >> (LANE_BITS * from) & 0xffff) << (LANE_BITS * lane)
    })
}
