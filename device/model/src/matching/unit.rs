//! The microcoded engine (section 4.2).
//!
//! Three stages with forwarding: operands are read, the operation is done, the result is written, and each word finds what
//! the word before it left. So the machine can be described, and is executed here, one word at a time; a cycle is a word
//! that was issued or a wait for input. Two things depend on the stages and are kept: a branch takes effect behind the two
//! words that follow it, and what is written to the output FIFO is there [`OUTPUT_CYCLES`] after its word was issued.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_isa::image::{ImageError, check_targets};
use niclab_isa::word::ByteSource;
use niclab_isa::{
    ALU_PREDICATE, AluOp, Bits, Combine, DELAY_SLOTS, Half, LANES, PREDICATES, REGISTERS, TERNARY_PREDICATE,
    Word,
};

/// Cycles from the issue of a word until what it wrote can be taken out of the output FIFO: it is written at the end of the
/// third stage.
pub const OUTPUT_CYCLES: u64 = 3;

const LANE_BITS: usize = 16;

/// What a cycle brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A word was issued.
    Issued {
        /// It took the front of the input FIFO.
        took: bool,
        /// What it appends to the output FIFO.
        output: Option<u64>,
    },
    /// The next word waits for input.
    Waited,
    /// There is no next word: the program ran out of its end.
    RanOut,
}

/// 16-bit lanes that work as one.
#[derive(Clone, Copy, Debug)]
struct Group {
    mask: u64,
    lanes: u8,
}

/// The groups of each value of a `join` field, and how many there are.
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

/// A word, taken apart for execution.
#[derive(Clone, Copy, Debug)]
struct Operation {
    word: Word,
    /// Bits of operand b that the immediate leaves, and the immediate in its place.
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
#[derive(Clone, Debug)]
pub struct Unit {
    program: Box<[Operation]>,
    state: State,
}

/// All that changes.
#[derive(Clone, Debug)]
struct State {
    alu: [u64; REGISTERS],
    ternary: [u64; REGISTERS],
    /// One bit each; number 0 is always 1.
    predicates: u16,
    pc: usize,
    /// A branch that was taken: where it leads, and how many words come before.
    taken: Option<(usize, usize)>,
    cycles: u64,
    issued: u64,
}

impl Unit {
    /// An engine about to issue the first word of `program`, with all registers zero but the constant ones.
    ///
    /// # Errors
    /// When a branch leads out of the program.
    pub fn new(program: &[Word]) -> Result<Self, ImageError> {
        check_targets(program)?;
        Ok(Self {
            program: program.iter().map(Operation::new).collect::<Vec<_>>().into(),
            state: State {
                alu: [0; REGISTERS],
                ternary: core::array::from_fn(|number| if number == 0 { u64::MAX } else { 0 }),
                predicates: 1,
                pc: 0,
                taken: None,
                cycles: 0,
                issued: 0,
            },
        })
    }

    /// One cycle. `front` is what the input FIFO holds first.
    #[inline]
    pub fn step(&mut self, front: Option<u64>) -> Step {
        let Self { program, state } = self;
        let Some(operation) = program.get(state.pc) else { return Step::RanOut };
        state.cycles += 1;
        let took = operation.word.input.take;
        let input = match (took, front) {
            (true, None) => return Step::Waited,
            (true, Some(input)) => input,
            (false, _) => 0,
        };
        state.issued += 1;
        let output = state.execute(operation, input);
        Step::Issued { took, output }
    }

    /// The ALU's registers.
    #[must_use]
    pub const fn alu(&self) -> &[u64; REGISTERS] {
        &self.state.alu
    }

    /// The ternary unit's registers.
    #[must_use]
    pub const fn ternary(&self) -> &[u64; REGISTERS] {
        &self.state.ternary
    }

    /// The predicates.
    #[must_use]
    pub fn predicates(&self) -> [bool; PREDICATES] {
        core::array::from_fn(|number| self.state.predicates >> number & 1 == 1)
    }

    /// The address of the next word.
    #[must_use]
    pub const fn pc(&self) -> usize {
        self.state.pc
    }

    /// Where a branch that was taken leads, and how many words come before.
    #[must_use]
    pub const fn taken(&self) -> Option<(usize, usize)> {
        self.state.taken
    }

    /// Cycles so far.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        self.state.cycles
    }

    /// Words issued so far.
    #[must_use]
    pub const fn issued(&self) -> u64 {
        self.state.issued
    }
}

impl State {
    /// All slots of a word. Each reads what the word before left.
    #[inline]
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

        // The ports of the input FIFO read before they write, so that the others' results stay.
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

    /// The next word's place. A branch behind one that was taken is none.
    #[inline]
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
#[inline]
fn lanes_where(groups: &[Group], holds: impl Fn(u64) -> bool) -> u8 {
    groups.iter().fold(0, |lanes, group| if holds(group.mask) { lanes | group.lanes } else { lanes })
}

/// Enters the results of a comparison into the four predicates from `first` on.
#[inline]
fn enter(predicates: u16, first: usize, results: u8, enabled: Bits<4>, combine: Combine) -> u16 {
    let enabled = (enabled.get() as u16) << first;
    let results = u16::from(results) << first;
    match combine {
        Combine::Overwrite => predicates & !enabled | results & enabled,
        Combine::And => predicates & (results | !enabled),
        Combine::Or => predicates | results & enabled,
    }
}

#[inline]
fn assign(predicates: u16, dest: Bits<3>, value: bool) -> u16 {
    if dest.get() == 0 {
        return predicates;
    }
    predicates & !(1 << dest.get()) | u16::from(value) << dest.get()
}

#[inline]
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

#[inline]
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

#[inline]
fn permute_lanes(input: u64, permute: Bits<8>) -> u64 {
    (0..LANES).fold(0, |word, lane| {
        let from = (permute.get() >> (2 * lane) & 3) as usize;
        word | (input >> (LANE_BITS * from) & 0xffff) << (LANE_BITS * lane)
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use niclab_isa::{Alu, Branch, Copy, Input, Predicate, Ternary};
    use proptest::prelude::*;

    use super::*;

    fn bits<const N: u32>(value: u32) -> Bits<N> {
        Bits::truncated(value)
    }

    fn take(register: u32) -> Word {
        Word { input: Input { take: true, alu: bits(register), ..Input::default() }, ..Word::default() }
    }

    fn send(register: u32) -> Word {
        let copy = Copy { source: bits(register), output: true, ..Copy::default() };
        Word { copy, ..Word::default() }
    }

    /// What the program sends, given this input; the unit as it then is.
    fn outputs(program: &[Word], input: &[u64]) -> (Vec<u64>, Unit) {
        let mut unit = Unit::new(program).unwrap();
        let mut input = input.iter().copied().peekable();
        let mut sent = Vec::new();
        for _ in 0..1_000 {
            match unit.step(input.peek().copied()) {
                Step::Issued { took, output } => {
                    if took {
                        input.next();
                    }
                    sent.extend(output);
                }
                Step::Waited | Step::RanOut => break,
            }
        }
        (sent, unit)
    }

    /// The groups of lanes, as their lowest bits and widths: written down apart from the engine's.
    fn plain_groups(join: u32) -> Vec<(u32, u32)> {
        let mut groups = vec![(0, 16)];
        for lane in 1..4 {
            if join >> (lane - 1) & 1 == 1 {
                groups.last_mut().unwrap().1 += 16;
            } else {
                groups.push((16 * lane, 16));
            }
        }
        groups
    }

    fn part(word: u64, (low, width): (u32, u32)) -> u128 {
        u128::from(word) >> low & ((1 << width) - 1)
    }

    proptest! {
        #[test]
        fn sums_and_differences_stay_in_their_groups(a: u64, b: u64, join in 0..8_u32, subtracts: bool) {
            let op = if subtracts { AluOp::Subtract } else { AluOp::Add };
            let alu = Alu { op, a: bits(1), b: bits(2), dest: bits(3), join: bits(join), ..Alu::default() };
            let program = [take(1), take(2), Word { alu, ..Word::default() }, send(3)];
            let (sent, _) = outputs(&program, &[a, b]);
            let expected = plain_groups(join).into_iter().fold(0_u64, |word, group| {
                let (a, b, size) = (part(a, group), part(b, group), 1_u128 << group.1);
                let result = if subtracts { (a + size - b) % size } else { (a + b) % size };
                word | (result << group.0) as u64
            });
            prop_assert_eq!(sent, [expected]);
        }

        #[test]
        fn comparisons_give_each_lane_the_result_of_its_group(
            a: u64, b: u64, like: bool, join in 0..8_u32, lanes in 0..16_u32, op in 7..13_usize, old in 0..16_u32, combine in 0..3_usize,
        ) {
            // Words that agree in some lanes.
            let b = if like { a ^ (b & 0xffff_0000) } else { b };
            let (op, combine) = (AluOp::ALL[op], Combine::ALL[combine]);
            let alu = Alu { op, a: bits(1), b: bits(2), join: bits(join), lanes: bits(lanes), combine, ..Alu::default() };
            let mut unit = Unit::new(&[Word { alu, ..Word::default() }]).unwrap();
            (unit.state.alu[1], unit.state.alu[2]) = (a, b);
            unit.state.predicates |= (old as u16) << ALU_PREDICATE;
            unit.step(None);
            for group in plain_groups(join) {
                let (a, b) = (part(a, group), part(b, group));
                let result = match op {
                    AluOp::Equal => a == b,
                    AluOp::NotEqual => a != b,
                    AluOp::Less => a < b,
                    AluOp::LessOrEqual => a <= b,
                    AluOp::Greater => a > b,
                    _ => a >= b,
                };
                for lane in group.0 / 16..(group.0 + group.1) / 16 {
                    let was = old >> lane & 1 == 1;
                    let expected = match (lanes >> lane & 1 == 1, combine) {
                        (false, _) => was,
                        (true, Combine::Overwrite) => result,
                        (true, Combine::And) => was && result,
                        (true, Combine::Or) => was || result,
                    };
                    prop_assert_eq!(unit.predicates()[ALU_PREDICATE + lane as usize], expected, "lane {}", lane);
                }
            }
        }

        #[test]
        fn the_ternary_unit_compares_under_its_mask(a: u64, b: u64, mask: u64, like: bool, ignore: bool, join in 0..8_u32) {
            let b = if like { a ^ (b & !mask) } else { b };
            let ternary = Ternary {
                match0: bits(1), match1: bits(2), mask: bits(3), ignore, join: bits(join), lanes: bits(15), ..Ternary::default()
            };
            let mut unit = Unit::new(&[Word { ternary, ..Word::default() }]).unwrap();
            unit.state.ternary[1..4].copy_from_slice(&[a, b, mask]);
            unit.step(None);
            let mask = if ignore { !mask } else { mask };
            for group in plain_groups(join) {
                let equal = part(a & mask, group) == part(b & mask, group);
                for lane in group.0 / 16..(group.0 + group.1) / 16 {
                    prop_assert_eq!(unit.predicates()[TERNARY_PREDICATE + lane as usize], equal);
                }
            }
        }

        #[test]
        fn predicate_functions_are_their_tables(table in 0..16_u32, a: bool, b: bool) {
            let predicate =
                Predicate { a0: bits(8), b0: bits(9), function0: bits(table), dest0: bits(3), ..Predicate::default() };
            let mut unit = Unit::new(&[Word { predicate, ..Word::default() }]).unwrap();
            unit.state.predicates |= u16::from(a) << 8 | u16::from(b) << 9;
            unit.step(None);
            prop_assert_eq!(unit.predicates()[3], table >> (2 * u32::from(a) + u32::from(b)) & 1 == 1);
        }
    }

    #[test]
    fn the_two_words_behind_a_branch_are_executed_and_their_branches_are_none() {
        let to = |target, word: Word| Word {
            branch: Branch { sense: true, target: bits(target), ..Branch::default() },
            ..word
        };
        let number = |register, immediate| {
            let alu = Alu {
                dest: bits(register),
                join: bits(7),
                half: Half::Lower,
                immediate: bits(immediate),
                ..Alu::default()
            };
            Word { alu, ..Word::default() }
        };
        let program = [
            number(1, 10),
            to(6, number(2, 20)),
            to(5, send(1)),
            to(5, send(2)),
            send(1),
            send(1),
            number(3, 30),
            send(3),
        ];
        assert_eq!(outputs(&program, &[]).0, [10, 20, 30]);
    }

    #[test]
    fn a_word_that_needs_input_waits_whole_and_a_branch_with_it() {
        let alu = Alu {
            dest: bits(2),
            a: bits(2),
            join: bits(7),
            half: Half::Lower,
            immediate: bits(1),
            ..Alu::default()
        };
        let go = Branch { sense: true, target: bits(3), ..Branch::default() };
        let program = [Word { branch: go, ..Word::default() }, Word { alu, ..take(1) }, send(2), send(1)];
        let mut unit = Unit::new(&program).unwrap();
        unit.step(None);
        for _ in 0..5 {
            assert_eq!(unit.step(None), Step::Waited);
        }
        assert_eq!((unit.alu()[2], unit.taken(), unit.pc()), (0, Some((3, 2)), 1));
        assert_eq!(unit.step(Some(7)), Step::Issued { took: true, output: None });
        assert_eq!(unit.step(None), Step::Issued { took: false, output: Some(1) });
        assert_eq!(unit.step(None), Step::Issued { took: false, output: Some(7) });
        assert_eq!(unit.step(None), Step::RanOut);
        assert_eq!((unit.cycles(), unit.issued()), (9, 4));
    }

    #[test]
    fn constants_cannot_be_written_and_predicated_results_are_not() {
        let never = bits(5);
        let set = |dest: u32, predicate: Bits<4>| Alu {
            dest: bits(dest),
            predicate,
            join: bits(7),
            half: Half::Lower,
            immediate: bits(9),
            ..Alu::default()
        };
        let word = |alu| Word { alu, ..Word::default() };
        let program = [word(set(0, bits(0))), word(set(1, never)), send(0), send(1), take(0), send(0)];
        assert_eq!(outputs(&program, &[3]).0, [0, 0, 0]);
    }
}
