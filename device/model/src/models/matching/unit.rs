//! The microcoded engine (section 4.2).
//!
//! Three stages with forwarding: a word reads its operands, executes the operation, and writes the result. Each word
//! sees the results of the word before it. So the machine can be described, and is executed here, one word at a time. A
//! cycle is an issued word or a wait for input. Two effects of the stages are modelled. A branch takes effect after the
//! two words that follow it. What is written to the output FIFO can be taken [`OUTPUT_CYCLES`] after its word was
//! issued.
//!
//! Words are decoded when the program is loaded (`operation`). [`Unit::step`] executes one cycle and [`Unit::run`]
//! many. Tests compare both, cycle by cycle, with an interpreter of the words as they are written (`plain`). They also
//! compare them with one of the stages, with ports and forwarding as in the paper (`staged`). An automaton can execute
//! many cycles, too ([`Unit::automate`]), and is compared with both.

mod automaton;
mod operation;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod staged;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use niclab_isa::image::{ImageError, check_targets};
use niclab_isa::{DELAY_SLOTS, PREDICATES, REGISTERS, Word};

use self::automaton::Automaton;
pub(super) use self::automaton::{Expected, Path};
use self::operation::{Operation, active};
use super::fifo::Fifos;
pub use super::fifo::OUTPUT_CYCLES;

/// The result of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A word was issued.
    Issued {
        /// The word took the front of the input FIFO.
        took: bool,
        /// The word that it appends to the output FIFO.
        output: Option<u64>,
    },
    /// The next word waits for input.
    Waited,
    /// There is no next word: the program ran past its end.
    RanOut,
}

/// The result of [`Unit::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Cycles that passed.
    pub cycles: u64,
    /// Words of the feed that entered the input FIFO.
    pub sent: usize,
    /// There is no next word. The cycle that found this is not counted.
    pub ran_out: bool,
}

/// The engine with a program.
#[derive(Clone, Debug)]
pub struct Unit {
    program: Arc<[Operation]>,
    registers: Registers,
    control: Control,
    cycles: u64,
    issued: u64,
    /// The automaton is used from this cycle on.
    automated_from: u64,
    automaton: Option<Box<Automaton>>,
    /// Cycles that the automaton executed.
    automated: u64,
    /// The reference: the engine without the automaton. All state that is read later must be equal.
    #[cfg(any(test, debug_assertions))]
    beside: Option<Box<(Registers, Control)>>,
}

/// Both register files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registers {
    alu: [u64; REGISTERS],
    ternary: [u64; REGISTERS],
}

/// The state that decides on the next word: small, to stay in registers of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Control {
    pc: usize,
    /// The target of a taken branch, and the number of words before it. With zero words no branch is pending.
    target: u16,
    delay: u8,
    /// One bit each; number 0 is always 1.
    predicates: u16,
}

impl Unit {
    /// An engine about to issue the first word of `program`. All registers are zero, except the constant ones.
    ///
    /// # Errors
    /// If a branch leads outside the program.
    pub fn new(program: &[Word]) -> Result<Self, ImageError> {
        check_targets(program)?;
        Ok(Self {
            program: program.iter().map(Operation::new).collect::<Vec<_>>().into(),
            registers: Registers {
                alu: [0; REGISTERS],
                ternary: core::array::from_fn(|number| if number == 0 { u64::MAX } else { 0 }),
            },
            control: Control { pc: 0, target: 0, delay: 0, predicates: 1 },
            cycles: 0,
            issued: 0,
            automated_from: u64::MAX,
            automaton: None,
            automated: 0,
            #[cfg(any(test, debug_assertions))]
            beside: None,
        })
    }

    /// Lets [`Self::run`] use an automaton once this number of cycles has passed. A unit with little work needs none.
    /// Registers on which no later branch or output depends are then not kept. Everything else is equal.
    pub const fn automate(&mut self, from_cycle: u64) {
        self.automated_from = from_cycle;
    }

    /// Cycles that the automaton executed.
    #[must_use]
    pub const fn automated(&self) -> u64 {
        self.automated
    }

    /// Executes one cycle. `front` is the first word of the input FIFO.
    #[inline]
    pub fn step(&mut self, front: Option<u64>) -> Step {
        #[cfg(any(test, debug_assertions))]
        if let Some(beside) = &mut self.beside {
            cycle(&self.program, &mut beside.0, &mut beside.1, front);
        }
        let step = cycle(&self.program, &mut self.registers, &mut self.control, front);
        self.cycles += u64::from(step != Step::RanOut);
        self.issued += u64::from(matches!(step, Step::Issued { .. }));
        step
    }

    /// Executes up to `most` cycles, the first of which has the number `now`. In each cycle a word of `feed` enters the
    /// input FIFO, if there is room. The burst ends earlier when the last word of the feed has entered, or when a word
    /// can be taken from the output FIFO.
    #[inline]
    pub fn run(&mut self, fifos: &mut Fifos, feed: &[u64], now: u64, most: u64) -> Burst {
        if self.cycles < self.automated_from {
            self.run_words(fifos, feed, now, most)
        } else {
            self.run_automated(fifos, feed, now, most)
        }
    }

    /// The same by the automaton, if there is one.
    fn run_automated(&mut self, fifos: &mut Fifos, feed: &[u64], now: u64, most: u64) -> Burst {
        #[cfg(any(test, debug_assertions))]
        let beside = self.run_beside(fifos, feed, now, most);
        let burst = self.run_nodes(fifos, feed, now, most);
        #[cfg(any(test, debug_assertions))]
        self.check_beside(fifos, burst, &beside);
        burst
    }

    fn run_nodes(&mut self, fifos: &mut Fifos, feed: &[u64], now: u64, most: u64) -> Burst {
        if self.automaton.as_ref().is_none_or(|automaton| automaton.fifo_words() != fifos.size()) {
            self.automaton = Automaton::new(&self.program, fifos.size()).map(Box::new);
        }
        let Some(automaton) = &mut self.automaton else {
            // The program is too long for an automaton.
            self.automated_from = u64::MAX;
            return self.run_words(fifos, feed, now, most);
        };
        let engine = (&*self.program, &mut self.registers, &mut self.control);
        let part = automaton.run(engine, fifos, feed, now, most);
        self.cycles += part.cycles;
        self.issued += part.issued;
        self.automated += part.cycles;
        if let Some(burst) = part.burst {
            return burst;
        }
        automaton.lose_track();
        let rest = feed.get(part.sent..).unwrap_or_default();
        let burst = self.run_words(fifos, rest, now + part.cycles, most - part.cycles);
        Burst { cycles: burst.cycles + part.cycles, sent: burst.sent + part.sent, ..burst }
    }

    /// Whether there is an automaton. The first [`Self::run`] that may use one makes it.
    pub(super) const fn has_automaton(&self) -> bool {
        self.automaton.is_some()
    }

    /// Begins to record the path through the program.
    pub(super) fn track(&mut self) {
        if let Some(automaton) = &mut self.automaton {
            automaton.track();
        }
    }

    /// The path recorded since [`Self::track()`]. `None` if the automaton did not execute all of it, or if it did not
    /// write these words.
    pub(super) fn tracked(&mut self, written: &[Expected]) -> Option<Path> {
        self.automaton.as_mut()?.tracked(&self.program, written)
    }

    /// Consecutive paths joined to one; `None` if it would be too long.
    pub(super) fn joined(&self, paths: &[&Path]) -> Option<Path> {
        self.automaton.as_ref()?.joined(&self.program, paths)
    }

    /// Begins the execution of paths by [`Self::go`].
    #[inline]
    pub(super) fn begin_ways(&mut self) {
        if let Some(automaton) = &mut self.automaton {
            automaton.begin_ways(&self.registers, &self.control);
        }
    }

    /// Ends the execution of paths. The caller sets the end of the last one by [`Self::set_place`].
    #[inline]
    pub(super) fn end_ways(&mut self) {
        if let Some(automaton) = &self.automaton {
            automaton.end_ways(&mut self.registers, &mut self.control);
        }
    }

    /// Executes such a path, which takes `cycles` cycles, from the place where it was recorded. Returns those written
    /// words that may have any value. `None`, without any effect, if the data does not fit the path, or if these words
    /// are not right.
    #[inline(always)]
    pub(super) fn go(
        &mut self,
        path: &Path,
        cycles: u64,
        fifos: &mut Fifos,
        is_right: impl FnOnce([u64; 2]) -> bool,
    ) -> Option<[u64; 2]> {
        let written = self.automaton.as_mut()?.go(path, fifos, is_right)?;
        fifos.leave(path.takes);
        self.cycles += cycles;
        self.automated += cycles;
        self.issued += path.issued;
        Some(written)
    }

    /// Lets this number of cycles pass, in which no word waits in the input. Returns false, without any effect, if the
    /// next word needs no input.
    pub(super) fn wait(&mut self, cycles: u64) -> bool {
        let waits = self.program.get(self.control.pc).is_some_and(|operation| operation.has(active::TAKE));
        self.cycles += if waits { cycles } else { 0 };
        self.automated += if waits { cycles } else { 0 };
        waits
    }

    /// The next word, the target of a taken branch, and the number of words before it.
    pub(super) const fn place(&self) -> (usize, u16, u8) {
        let Control { pc, target, delay, .. } = self.control;
        (pc, if delay == 0 { 0 } else { target }, delay)
    }

    pub(super) const fn set_place(&mut self, (pc, target, delay): (usize, u16, u8)) {
        (self.control.pc, self.control.target, self.control.delay) = (pc, target, delay);
    }

    /// The engine without the automaton.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn beside(&self) -> Self {
        let state = self.beside.as_deref().cloned();
        let (registers, control) = state.unwrap_or_else(|| (self.registers.clone(), self.control));
        Self {
            program: self.program.clone(),
            registers,
            control,
            automated_from: u64::MAX,
            automaton: None,
            beside: None,
            ..*self
        }
    }

    /// Compares the automaton with an engine without it, which is the reference from now on.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_unit_beside(&mut self, beside: Self) {
        assert_eq!((self.cycles, self.issued), (beside.cycles, beside.issued), "the automaton's cycles");
        self.beside = Some(Box::new((beside.registers, beside.control)));
        self.check_kept();
    }

    /// The result of the engine word by word, without the automaton.
    #[cfg(any(test, debug_assertions))]
    fn run_beside(&mut self, fifos: &Fifos, feed: &[u64], now: u64, most: u64) -> (Fifos, Burst, u64) {
        let mut unit = self.beside();
        let mut fifos = fifos.clone();
        let burst = unit.run_words(&mut fifos, feed, now, most);
        let issued = unit.issued;
        self.beside = Some(Box::new((unit.registers, unit.control)));
        (fifos, burst, issued)
    }

    /// Compares the automaton with this result.
    #[cfg(any(test, debug_assertions))]
    fn check_beside(&self, fifos: &Fifos, burst: Burst, expected: &(Fifos, Burst, u64)) {
        assert_eq!((burst, self.issued), (expected.1, expected.2), "the automaton's cycles");
        assert!(fifos.input().eq(expected.0.input()), "the automaton's input");
        assert!(fifos.output().eq(expected.0.output()), "the automaton's output");
        self.check_kept();
    }

    /// Compares all state that is read later with the reference.
    #[cfg(any(test, debug_assertions))]
    fn check_kept(&self) {
        let at = |control: &Control| {
            (control.pc, control.delay, if control.delay == 0 { 0 } else { control.target })
        };
        if let (Some(automaton), Some(beside)) = (&self.automaton, &self.beside) {
            assert_eq!(at(&self.control), at(&beside.1), "the automaton's place");
            let kept = |registers, control| automaton.kept(&self.program, registers, control);
            assert_eq!(
                kept(&self.registers, &self.control),
                kept(&beside.0, &beside.1),
                "the state that is read after the automaton"
            );
        }
    }

    /// The same word by word.
    #[inline]
    fn run_words(&mut self, fifos: &mut Fifos, feed: &[u64], now: u64, most: u64) -> Burst {
        let mut control = self.control;
        let mut rest = feed.iter();
        let mut most = fifos.output_at().map_or(most, |at| most.min(at.saturating_sub(now)));
        let (mut cycles, mut issued, mut ran_out) = (0, 0, false);
        while cycles < most {
            // A word that enters in a cycle cannot be taken in the same cycle.
            let front = fifos.front();
            if fifos.has_room()
                && let Some(word) = rest.next()
            {
                fifos.push(*word);
            }
            match cycle(&self.program, &mut self.registers, &mut control, front) {
                Step::Issued { took, output } => {
                    issued += 1;
                    if took {
                        fifos.pop();
                    }
                    if let Some(word) = output {
                        fifos.write(now + cycles, word);
                        most = most.min(cycles + OUTPUT_CYCLES);
                    }
                    cycles += 1;
                }
                // No word enters, so the unit waits for the rest of the burst.
                Step::Waited if feed.is_empty() => cycles = most,
                Step::Waited => cycles += 1,
                Step::RanOut => {
                    ran_out = true;
                    break;
                }
            }
            if rest.as_slice().is_empty() && !feed.is_empty() {
                break;
            }
        }
        self.control = control;
        self.cycles += cycles;
        self.issued += issued;
        Burst { cycles, sent: feed.len() - rest.as_slice().len(), ran_out }
    }

    /// The ALU's registers.
    #[must_use]
    pub const fn alu(&self) -> &[u64; REGISTERS] {
        &self.registers.alu
    }

    /// The ternary unit's registers.
    #[must_use]
    pub const fn ternary(&self) -> &[u64; REGISTERS] {
        &self.registers.ternary
    }

    /// The predicates.
    #[must_use]
    pub fn predicates(&self) -> [bool; PREDICATES] {
        core::array::from_fn(|number| self.control.predicates >> number & 1 == 1)
    }

    /// The address of the next word.
    #[must_use]
    pub const fn pc(&self) -> usize {
        self.control.pc
    }

    /// The target of a taken branch, and the number of words before it.
    #[must_use]
    pub const fn taken(&self) -> Option<(usize, usize)> {
        let Control { target, delay, .. } = self.control;
        if delay == 0 { None } else { Some((target as usize, delay as usize)) }
    }

    /// Cycles so far.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Words issued so far.
    #[must_use]
    pub const fn issued(&self) -> u64 {
        self.issued
    }
}

/// Executes one cycle of the unit.
#[inline(always)]
fn cycle(
    program: &[Operation],
    registers: &mut Registers,
    control: &mut Control,
    front: Option<u64>,
) -> Step {
    let Some(operation) = program.get(control.pc) else { return Step::RanOut };
    let took = operation.has(active::TAKE);
    let input = match front {
        None if took => return Step::Waited,
        None => 0,
        Some(input) => input,
    };
    let before = control.predicates;
    let (predicates, output) = registers.execute(operation, input, before);
    control.predicates = predicates;
    control.advance(operation, before);
    Step::Issued { took, output }
}

impl Registers {
    /// Executes all slots of a word, except the branch. Returns the new predicates, and the word for the output. Each
    /// slot reads the results of the previous word.
    #[inline(always)]
    fn execute(&mut self, operation: &Operation, input: u64, before: u16) -> (u16, Option<u64>) {
        let is_set = |number: u8| before >> number & 1 == 1;
        let mut predicates = before;
        if operation.has(active::TERNARY) {
            let slot = &operation.ternary;
            let mask = *register(&mut self.ternary, slot.mask) ^ slot.invert;
            let differ = (*register(&mut self.ternary, slot.match0)
                ^ *register(&mut self.ternary, slot.match1))
                & mask;
            let equal = operation::tops_of_nonzero(differ, slot.tops) ^ slot.tops;
            predicates = slot.results.enter(predicates, equal);
        }
        let mut output = None;
        // The copy reads before ALU and input write, and writes where the ternary unit has read. The input follows,
        // because the FIFO's ports read before they write. So of two results for one register, the other one stays.
        let mut copied = None;
        if operation.has(active::COPY) && is_set(operation.copy_predicate) {
            let word = *register(&mut self.alu, operation.copy_source);
            copied = Some(word);
            output = operation.copy_output.then_some(word);
        }
        let mut result = None;
        if operation.has(active::COMPUTE | active::COMPARE) {
            let slot = &operation.alu;
            let a = *register(&mut self.alu, slot.a);
            let b = *register(&mut self.alu, slot.b) & slot.keep | slot.immediate;
            if operation.has(active::COMPARE) {
                predicates = slot.results.enter(predicates, slot.compare(a, b));
            } else if is_set(slot.predicate) {
                result = Some(slot.compute(a, b));
            }
        }
        if operation.has(active::PREDICATE) {
            for function in &operation.functions {
                predicates = function.apply(predicates, before);
            }
        }
        if operation.has(active::TAKE) {
            let permuted = if operation.has(active::PERMUTE) { operation.permuted(input) } else { input };
            *register(&mut self.alu, operation.input_alu) = input;
            *register(&mut self.ternary, operation.input_ternary) = permuted;
        }
        if let Some(result) = result {
            *register(&mut self.alu, operation.alu.dest) = result;
        }
        if let Some(copied) = copied {
            *register(&mut self.ternary, operation.copy_ternary) = copied;
        }
        self.alu[0] = 0;
        self.ternary[0] = u64::MAX;
        (predicates, output)
    }
}

/// A register of a file, by its four bits.
#[inline(always)]
const fn register(file: &mut [u64; REGISTERS], number: u8) -> &mut u64 {
    &mut file[number as usize % REGISTERS]
}

impl Control {
    /// Advances to the next word. A branch in the delay slot of a taken branch has no effect.
    #[inline(always)]
    fn advance(&mut self, operation: &Operation, before: u16) {
        self.pc += 1;
        if self.delay != 0 {
            self.delay -= 1;
            if self.delay == 0 {
                self.pc = usize::from(self.target);
            }
        } else if operation.has(active::BRANCH)
            && (before >> operation.branch_predicate & 1 == 1) == operation.branch_sense
        {
            (self.target, self.delay) = (operation.branch_target, DELAY_SLOTS as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec;

    use alloc::collections::VecDeque;

    use niclab_isa::{
        ALU_PREDICATE, Alu, AluOp, Bits, Branch, Combine, Copy, FIELDS, Field, Half, Input, Predicate,
        TERNARY_PREDICATE, Ternary,
    };
    use proptest::prelude::*;

    use super::plain::Plain;
    use super::staged::{Cycle, Fault, Staged};
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

    /// The words that the program writes for this input, and the unit afterwards.
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

    /// The groups of lanes, as their lowest bits and widths, written independently of the engine's.
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
            a: u64, b: u64, like: bool, join in 0..8_u32, lanes in 0..16_u32,
            op in 7..13_usize, old in 0..16_u32, combine in 0..3_usize,
        ) {
            // Words that agree in some lanes.
            let b = if like { a ^ (b & 0xffff_0000) } else { b };
            let (op, combine) = (AluOp::ALL[op], Combine::ALL[combine]);
            let alu = Alu {
                op, a: bits(1), b: bits(2), join: bits(join), lanes: bits(lanes), combine, ..Alu::default()
            };
            let mut unit = Unit::new(&[Word { alu, ..Word::default() }]).unwrap();
            (unit.registers.alu[1], unit.registers.alu[2]) = (a, b);
            unit.control.predicates |= (old as u16) << ALU_PREDICATE;
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
        fn the_ternary_unit_compares_under_its_mask(
            a: u64, b: u64, mask: u64, like: bool, ignore: bool, join in 0..8_u32,
        ) {
            let b = if like { a ^ (b & !mask) } else { b };
            let ternary = Ternary {
                match0: bits(1), match1: bits(2), mask: bits(3), ignore, join: bits(join), lanes: bits(15),
                ..Ternary::default()
            };
            let mut unit = Unit::new(&[Word { ternary, ..Word::default() }]).unwrap();
            unit.registers.ternary[1..4].copy_from_slice(&[a, b, mask]);
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
        fn predicate_functions_follow_their_truth_tables(table in 0..16_u32, a: bool, b: bool) {
            let predicate =
                Predicate { a0: bits(8), b0: bits(9), function0: bits(table), dest0: bits(3), ..Predicate::default() };
            let mut unit = Unit::new(&[Word { predicate, ..Word::default() }]).unwrap();
            unit.control.predicates |= u16::from(a) << 8 | u16::from(b) << 9;
            unit.step(None);
            prop_assert_eq!(unit.predicates()[3], table >> (2 * u32::from(a) + u32::from(b)) & 1 == 1);
        }
    }

    /// Any word. Many of its slots do nothing, so that all paths through the engine are taken.
    fn word(words: usize) -> impl Strategy<Value = Word> {
        let choices = (0..AluOp::ALL.len() as u64, 0..3_u64, 0..3_u64, 0..3_u64, 0..words as u64);
        (any::<[u64; 3]>(), any::<u8>(), choices).prop_map(|(mut bits, idle, choices)| {
            let (op, combine, half, ternary, target) = choices;
            for (slot, name, value) in [
                ("alu", "op", op),
                ("alu", "combine", combine),
                ("alu", "half", half),
                ("ternary", "combine", ternary),
                ("branch", "target", target),
            ] {
                Field::named(slot, name).unwrap().set(&mut bits, value);
            }
            let slots = ["input", "copy", "alu", "ternary", "predicate", "branch"];
            for (slot, name) in slots.iter().enumerate() {
                if idle >> slot & 1 == 1 {
                    FIELDS
                        .iter()
                        .filter(|field| field.slot == *name)
                        .for_each(|field| field.set(&mut bits, 0));
                }
            }
            bits[2] &= u64::MAX >> (192 - niclab_isa::WORD_BITS);
            let field = |name| Field::named("copy", name).unwrap();
            if field("output").get(bits) == 1 {
                field("ternary").set(&mut bits, 0);
            }
            Word::decode(bits).unwrap()
        })
    }

    fn program() -> impl Strategy<Value = Vec<Word>> {
        (1..24_usize).prop_flat_map(|words| prop::collection::vec(word(words), words))
    }

    /// Words that often agree in some of their lanes.
    fn input() -> impl Strategy<Value = Vec<u64>> {
        let lane = prop_oneof![4 => 0..3_u16, 1 => Just(u16::MAX), 1 => any::<u16>()];
        let word = prop::array::uniform4(lane)
            .prop_map(|lanes| lanes.into_iter().fold(0, |word, lane| word << 16 | u64::from(lane)));
        prop::collection::vec(word, 1..60)
    }

    /// The state that both engines keep, in comparable form.
    fn state(unit: &Unit) -> (Registers, Control) {
        let target = unit.taken().map_or(0, |(target, _)| target as u16);
        (unit.registers.clone(), Control { target, ..unit.control })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_cycle_is_that_of_the_plain_engine(program in program(), input in input(), arrivals: [u64; 4]) {
            let (mut unit, mut plain) = (Unit::new(&program).unwrap(), Plain::new(&program));
            let mut input = input.into_iter().cycle().peekable();
            for cycle in 0..256 {
                let front = input.peek().copied().filter(|_| arrivals[cycle / 64] >> (cycle % 64) & 1 == 1);
                let step = plain.step(front);
                prop_assert_eq!(unit.step(front), step);
                prop_assert_eq!(state(&unit), plain.state(), "cycle {}", cycle);
                if matches!(step, Step::Issued { took: true, .. }) {
                    input.next();
                }
            }
        }

        #[test]
        fn many_cycles_at_once_are_those_of_the_plain_engine(
            program in program(),
            bursts in prop::collection::vec((input(), 0..12_usize, 1..20_u64), 1..30),
            room in 1..9_usize,
        ) {
            let (mut unit, mut plain) = (Unit::new(&program).unwrap(), Plain::new(&program));
            let mut fifos = Fifos::new(room);
            let (mut waiting, mut written, mut now) = (VecDeque::new(), VecDeque::new(), 0);
            for (feed, words, most) in &bursts {
                while written.front().is_some_and(|(at, _)| *at <= now) {
                    prop_assert_eq!(fifos.take_output(now), written.pop_front().map(|(_, word)| word));
                }
                let feed = &feed[..feed.len().min(*words)];
                let burst = unit.run(&mut fifos, feed, now, *most);
                prop_assert!(burst.cycles <= *most);
                let mut rest = feed.iter();
                for _ in 0..burst.cycles + u64::from(burst.ran_out) {
                    let has_no_output = written.front().is_none_or(|(at, _)| *at > now);
                    prop_assert!(has_no_output, "the burst ends when there is output");
                    let front = waiting.front().copied();
                    if waiting.len() < room {
                        waiting.extend(rest.next());
                    }
                    match plain.step(front) {
                        Step::Issued { took, output } => {
                            if took {
                                waiting.pop_front();
                            }
                            written.extend(output.map(|word| (now + OUTPUT_CYCLES, word)));
                        }
                        Step::Waited => {}
                        Step::RanOut => prop_assert!(burst.ran_out),
                    }
                    now += 1;
                }
                now -= u64::from(burst.ran_out);
                prop_assert_eq!(burst.sent, feed.len() - rest.as_slice().len());
                let ended_early = burst.ran_out
                    || rest.as_slice().is_empty() && !feed.is_empty()
                    || written.front().is_some_and(|(at, _)| *at <= now);
                prop_assert!(burst.cycles == *most || ended_early);
                prop_assert_eq!(state(&unit), plain.state());
                prop_assert!(fifos.input().eq(waiting.iter().copied()));
                prop_assert!(fifos.output().eq(written.iter().copied()));
                prop_assert_eq!(unit.cycles(), now);
                if burst.ran_out {
                    break;
                }
            }
        }
    }

    /// Executes bursts with an automaton, and compares each with the engine without it.
    fn automated(
        program: &[Word],
        bursts: &[(Vec<u64>, usize, u64)],
        room: usize,
        plan: impl Fn(&mut Unit),
    ) -> Unit {
        let mut unit = Unit::new(program).unwrap();
        unit.automate(0);
        plan(&mut unit);
        let (mut fifos, mut now) = (Fifos::new(room), 0);
        for (feed, words, most) in bursts {
            let mut feed = &feed[..feed.len().min(*words)];
            // A feed may need several bursts to enter. Their number has a bound, because a program may stop to take
            // input.
            for _ in 0..4 {
                while fifos.take_output(now).is_some() {}
                let burst = unit.run(&mut fifos, feed, now, *most);
                now += burst.cycles;
                feed = &feed[burst.sent..];
                if burst.ran_out {
                    return unit;
                }
            }
        }
        unit
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn automaton_equals_the_engine(
            program in prop_oneof![program(), hazardous()],
            bursts in prop::collection::vec(
                (input(), 0..70_usize, prop_oneof![1..20_u64, 60..70_u64, Just(u64::MAX >> 1)]), 1..30,
            ),
            room in 1..=super::super::fifo::MAX_WORDS,
        ) {
            let bursts: Vec<_> = bursts
                .into_iter()
                // Without a feed a program may wait or loop for ever.
                .map(|(feed, words, most)| (feed, words, most.min(200)))
                .collect();
            automated(&program, &bursts, room, |_| {});
        }
    }

    /// Programs with few registers and predicates, so that words close to each other read and write the same ones. No
    /// word writes a register twice, which the manual forbids.
    fn hazardous() -> impl Strategy<Value = Vec<Word>> {
        let few = |mut word: Word| {
            let register = |register: Bits<4>| bits::<4>(register.get() & 3);
            word.input.alu = register(word.input.alu);
            word.input.ternary = register(word.input.ternary);
            word.copy.source = register(word.copy.source);
            word.copy.ternary = register(word.copy.ternary);
            word.alu.a = register(word.alu.a);
            word.alu.b = register(word.alu.b);
            word.alu.dest = register(word.alu.dest);
            word.ternary.match0 = register(word.ternary.match0);
            word.ternary.match1 = register(word.ternary.match1);
            word.ternary.mask = register(word.ternary.mask);
            if word.alu.predicate.get() & 1 == 0 {
                word.alu.predicate = bits(0);
            }
            if word.copy.predicate.get() & 1 == 0 {
                word.copy.predicate = bits(0);
            }
            if word.input.take && word.input.alu == word.alu.dest {
                word.alu.dest = bits(0);
            }
            if word.input.take && word.input.ternary == word.copy.ternary {
                word.copy.ternary = bits(0);
            }
            if word.predicate.dest0 == word.predicate.dest1 {
                word.predicate.dest1 = bits(0);
            }
            word
        };
        program().prop_map(move |words| words.into_iter().map(few).collect())
    }

    /// Numbers of paths that were found, of executions, and of refusals of data.
    #[derive(Clone, Copy, Debug, Default)]
    struct Ways {
        found: u32,
        gone: u32,
        refused: u32,
    }

    /// Records the path of each burst, and executes it with this data and with other data. If the path accepts the
    /// data, the engine must do the same word by word. `changes` are values that registers have instead, and values
    /// added to a word of the input.
    fn hold_ways(
        program: &[Word],
        bursts: &[(Vec<u64>, usize, u64)],
        changes: &[(usize, u64)],
        plant: impl Fn(&mut Path),
    ) -> Ways {
        let mut unit = Unit::new(program).unwrap();
        unit.automate(0);
        let (mut fifos, mut now, mut ways) = (Fifos::new(super::super::fifo::MAX_WORDS), 0, Ways::default());
        for (number, (feed, words, most)) in bursts.iter().enumerate() {
            let feed = &feed[..feed.len().min(*words)];
            while fifos.take_output(now).is_some() {}
            let begin = Begin { unit: unit.clone(), fifos: fifos.clone(), feed, now, most: *most };
            unit.track();
            let burst = unit.run(&mut fifos, feed, now, *most);
            now += burst.cycles;
            let written = fifos.output().skip(begin.fifos.output().count()).map(|(_, word)| word).enumerate();
            let any = |place| place < 2 && !number.is_multiple_of(3);
            let written: Vec<_> = written
                .map(
                    |(place, word)| {
                        if any(place) { Expected::Any(place as u8) } else { Expected::Word(word) }
                    },
                )
                .collect();
            // All words that a path takes must be in the FIFO at once.
            let is_way =
                !burst.ran_out && begin.fifos.waiting() + burst.sent <= super::super::fifo::MAX_WORDS;
            if let Some(mut path) = unit.tracked(&written).filter(|_| is_way) {
                plant(&mut path);
                ways.found += 1;
                let is_gone = begin.go(&path, burst, &written, &[]);
                assert!(is_gone, "the path accepts its own data");
                for changes in changes.chunks(3) {
                    let is_gone = begin.go(&path, burst, &written, changes);
                    *(if is_gone { &mut ways.gone } else { &mut ways.refused }) += 1;
                }
            }
            if burst.ran_out {
                break;
            }
        }
        ways
    }

    /// The start of a path.
    struct Begin<'a> {
        unit: Unit,
        fifos: Fifos,
        feed: &'a [u64],
        now: u64,
        most: u64,
    }

    impl Begin<'_> {
        /// Executes a path with other data. Returns whether the path accepted it.
        fn go(&self, path: &Path, burst: Burst, written: &[Expected], changes: &[(usize, u64)]) -> bool {
            let (mut gone, mut feed) = (self.unit.clone(), self.feed.to_vec());
            gone.beside = None;
            for (place, word) in changes {
                match place % 4 {
                    0 => gone.registers.alu[1 + place / 4 % 15] = *word,
                    1 => gone.registers.ternary[1 + place / 4 % 15] = *word,
                    2 => gone.control.predicates ^= (*word as u16) & !1,
                    _ if feed.is_empty() => {}
                    _ => {
                        let place = place / 4 % feed.len();
                        feed[place] ^= *word;
                    }
                }
            }
            let mut plain = gone.beside();
            let (mut entered, mut fifos) = (self.fifos.clone(), self.fifos.clone());
            entered.push_all(&feed[..burst.sent]);
            let before = gone.registers.clone();
            gone.begin_ways();
            let any = gone.go(path, burst.cycles, &mut entered, |_| true);
            gone.end_ways();
            let Some(any) = any else {
                assert_eq!(before, gone.registers, "a refused path has no effect");
                return false;
            };
            let passed = plain.run_words(&mut fifos, &feed, self.now, self.most);
            assert_eq!(passed, burst, "the path's cycles");
            assert_eq!((gone.cycles, gone.issued), (plain.cycles, plain.issued), "the path's words");
            assert!(entered.input().eq(fifos.input()), "the path's input");
            let new: Vec<_> =
                fifos.output().skip(self.fifos.output().count()).map(|(_, word)| word).collect();
            let said = written.iter().map(|expected| match expected {
                Expected::Word(word) => *word,
                Expected::Any(place) => any[usize::from(*place)],
            });
            assert!(new.iter().copied().eq(said), "the path's output");
            gone.set_place(plain.place());
            let automaton = gone.automaton.as_ref().unwrap();
            let kept = |unit: &Unit| automaton.kept(&gone.program, &unit.registers, &unit.control);
            assert_eq!(kept(&gone), kept(&plain), "the state that is read after the path");
            true
        }
    }

    /// Words, how many of them are fed, and the maximum number of cycles in between.
    type Fed = (Vec<u64>, usize, u64);

    /// Programs, bursts and changes of data.
    fn ways() -> impl Strategy<Value = (Vec<Word>, Vec<Fed>, Vec<(usize, u64)>)> {
        let burst = (input(), 1..12_usize, 1..40_u64);
        let word = input().prop_map(|words| words[0]);
        (
            prop_oneof![1 => program(), 3 => hazardous()],
            prop::collection::vec(burst, 1..20),
            prop::collection::vec((0..64_usize, word), 18),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn accepted_paths_equal_the_engine((program, bursts, changes) in ways()) {
            hold_ways(&program, &bursts, &changes, |_| {});
        }
    }

    #[test]
    fn paths_are_found_and_used_and_missing_parts_are_noticed() {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut all, mut forgotten, mut missed) = (Ways::default(), 0, 0);
        for _ in 0..400 {
            let tree = Strategy::new_tree(&ways(), &mut runner).unwrap();
            let (program, bursts, changes) = proptest::strategy::ValueTree::current(&tree);
            let ways = hold_ways(&program, &bursts, &changes, |_| {});
            all.found += ways.found;
            all.gone += ways.gone;
            all.refused += ways.refused;
            let forgets = |path: &mut Path| {
                if path.len() > 0 {
                    path.forget(path.len() / 2);
                }
            };
            forgotten += u32::from(ways.gone > 0);
            let held = catch_unwind(AssertUnwindSafe(|| hold_ways(&program, &bursts, &changes, forgets)));
            missed += u32::from(held.is_err());
        }
        assert!(all.found > 500 && all.gone > 500 && all.refused > 500, "{all:?}");
        assert!(
            2 * missed > forgotten,
            "of {forgotten} programs with a part missing from their paths, {missed} are found"
        );
    }

    /// The first cycle in which the staged engine differs from both other engines.
    fn difference(program: &[Word], input: &[u64], arrivals: [u64; 4], fault: Option<Fault>) -> Option<u64> {
        let (mut unit, mut plain) = (Unit::new(program).unwrap(), Plain::new(program));
        let mut staged = Staged::new(program, fault);
        let mut input = input.iter().copied().cycle().peekable();
        let mut written = VecDeque::new();
        for cycle in 0..256_u64 {
            let front =
                input.peek().copied().filter(|_| arrivals[cycle as usize / 64] >> (cycle % 64) & 1 == 1);
            let step = unit.step(front);
            let is_same = match (step, staged.cycle(front)) {
                (Step::Issued { took, output }, Cycle::Issued(also_took)) => {
                    if took {
                        input.next();
                    }
                    // The output is written in the word's third cycle.
                    written.extend(output.map(|word| (cycle + OUTPUT_CYCLES - 1, word)));
                    took == also_took
                }
                (Step::Waited, Cycle::Waited) => true,
                (Step::RanOut, Cycle::RanOut) => return None,
                _ => false,
            };
            let ended = staged.drained();
            let seen: VecDeque<_> = written.iter().copied().filter(|(at, _)| *at <= cycle).collect();
            let is_same = is_same
                && plain.step(front) == step
                && plain.state() == state(&unit)
                && (&ended.alu, &ended.ternary) == (unit.alu(), unit.ternary())
                && ended.predicates == unit.predicates()
                && (step == Step::RanOut || staged.pc == unit.pc())
                && staged.output == seen;
            if !is_same {
                return Some(cycle);
            }
        }
        None
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn three_stages_equal_one_word_at_a_time(
            program in hazardous(),
            input in input(),
            arrivals: [u64; 4],
        ) {
            prop_assert_eq!(difference(&program, &input, arrivals, None), None);
        }
    }

    #[test]
    fn faulty_stages_are_found() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let strategy = (hazardous(), input(), any::<[u64; 4]>());
        let cases: Vec<_> = (0..2_000)
            .map(|_| {
                let tree = Strategy::new_tree(&strategy, &mut runner).unwrap();
                proptest::strategy::ValueTree::current(&tree)
            })
            .collect();
        for fault in Fault::ALL {
            let finds = |(program, input, arrivals): &(Vec<Word>, Vec<u64>, [u64; 4])| {
                difference(program, input, *arrivals, Some(fault)).is_some()
            };
            assert!(cases.iter().any(finds), "{fault:?}");
        }
    }

    #[test]
    fn two_delay_slots_execute_without_their_branches() {
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
    fn word_without_input_waits_and_delays_a_pending_branch() {
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
    fn constant_registers_and_disabled_results_are_not_written() {
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
