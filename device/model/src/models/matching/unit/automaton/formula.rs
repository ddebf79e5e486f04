//! What a path through the program does to data, and the conditions on the data for this path. The words of the path
//! are decomposed into values that depend on one another.
//!
//! A path is straight, and is executed only if all its conditions hold. So registers are only names: a word that is
//! taken or copied costs nothing, and values that are not read are left out. Constant values are computed once. A
//! condition on a predicate also determines the predicate's operands. For example, if a word branches after `p2 = p1
//! and p9`, both are 1, and no predicate is computed.
//!
//! Constants: none of the model's.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use niclab_isa::{AluOp, PREDICATES, REGISTERS};

use super::super::operation::{Arithmetic, Match, Operation, active, tops_of_nonzero};
use super::liveness::{self, Set};

/// Slots of values: registers of the ALU, registers of the ternary unit, one slot for all predicates, and then computed
/// values.
pub const PLACES: usize = 256;
/// The slot of the predicates.
const START_PREDICATES: usize = 2 * REGISTERS;
/// Maximum number of passes that derive further conditions from known ones. Conditions that would need more passes are
/// tested when the path is executed. Attack: predicates that depend on one another along a long path would need a pass
/// for each of its words. Ours: a bound.
const MAX_PASSES: usize = 16;

/// A word that a path writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This word.
    Word(u64),
    /// Any word, returned in the first or the second of two slots.
    Any(u8),
}

/// A computed value, by the slots of its operands.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A word of the input, by the number of words taken before,
    Input(u8),
    /// or the same with its lanes permuted.
    Permuted(u8, u8),
    /// A constant.
    Constant(u64),
    /// What the ALU computes,
    Compute(Arithmetic),
    /// or compares, and what the ternary unit compares: the highest bit of each group of lanes.
    Compare(Arithmetic),
    Match(Match),
    /// The first of two values if a bit is 1, else the second.
    Either {
        bit: (u8, u8),
        then: u8,
        or: u8,
    },
    /// A function of two bits.
    Function {
        table: u8,
        a: (u8, u8),
        b: (u8, u8),
    },
    /// A copy of another value.
    Same(u8),
}

/// A computed value, its slot, and the required values of its bits in the mask.
#[derive(Clone, Copy, Debug)]
struct Line {
    what: What,
    to: u8,
    mask: u64,
    want: u64,
}

/// All computations and conditions of a path.
#[derive(Clone, Debug)]
pub struct Formula {
    lines: Vec<Line>,
    /// The slots of the written words that may have any value, first and second.
    written: [u8; 2],
    /// Registers that the path changes, by their numbers in [`liveness::registers`], and the slots of their new values.
    registers: Vec<(u8, u8)>,
    /// Predicates that the path changes, and the bits that they become.
    predicates: Vec<(u8, (u8, u8))>,
    /// Predicates that are known after the path, and their values.
    known: (u16, u16),
}

impl Formula {
    /// Computes all values from registers, predicates and input. Returns false if a condition does not hold. Changes
    /// only `values`.
    #[inline(always)]
    pub fn evaluate(&self, values: &mut [u64; PLACES], input: impl Fn(u8) -> u64) -> bool {
        for line in &self.lines {
            let at = |place: u8| values[usize::from(place)];
            let bit = |(place, shift): (u8, u8)| at(place) >> (shift & 63) & 1;
            let value = match &line.what {
                What::Input(take) => input(*take),
                What::Permuted(take, permute) => Operation::permute(*permute, input(*take)),
                What::Constant(word) => *word,
                What::Compute(slot) => slot.compute(at(slot.a), at(slot.b) & slot.keep | slot.immediate),
                What::Compare(slot) => slot.compare(at(slot.a), at(slot.b) & slot.keep | slot.immediate),
                What::Match(slot) => {
                    let mask = at(slot.mask) ^ slot.invert;
                    tops_of_nonzero((at(slot.match0) ^ at(slot.match1)) & mask, slot.tops) ^ slot.tops
                }
                What::Either { bit: which, then, or } => at(if bit(*which) == 1 { *then } else { *or }),
                What::Function { table, a, b } => u64::from(*table) >> (2 * bit(*a) + bit(*b)) & 1,
                What::Same(place) => at(*place),
            };
            if value & line.mask != line.want {
                return false;
            }
            values[usize::from(line.to)] = value;
        }
        true
    }

    /// The written words that may have any value.
    #[inline]
    pub fn written(&self, values: &[u64; PLACES]) -> [u64; 2] {
        self.written.map(|place| values[usize::from(place)])
    }

    /// Sets registers and predicates to their values after the path.
    #[inline]
    pub fn leave(&self, values: &mut [u64; PLACES]) {
        // None of these slots is a register that is written here.
        for (number, place) in &self.registers {
            values[usize::from(*number)] = values[usize::from(*place)];
        }
        if self.predicates.is_empty() && self.known.0 == 0 {
            return;
        }
        let mut after = values[START_PREDICATES] as u16 & !self.known.0 | self.known.1;
        for (number, (place, shift)) in &self.predicates {
            let bit = (values[usize::from(*place)] >> (shift & 63) & 1) as u16;
            after = after & !(1 << number) | bit << number;
        }
        values[START_PREDICATES] = after.into();
    }
}

/// Number of a value.
type Name = usize;

/// A predicate: known, or a bit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bit {
    Known(bool),
    Of(Name, u8),
}

/// The origin of a value. Values have lower numbers than those that depend on them.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// It exists at the start, in the slot with its number.
    Start,
    Constant(u64),
    Input(u8),
    Permuted(u8, u8),
    Compute(Arithmetic, [Name; 2]),
    Compare(Arithmetic, [Name; 2]),
    Match(Match, [Name; 3]),
    Either(Bit, [Name; 2]),
    Function(u8, [Bit; 2]),
}

/// A formula under construction.
pub struct Builder {
    values: Vec<Value>,
    /// The present value of each register and predicate.
    registers: [Name; 2 * REGISTERS],
    predicates: [Bit; PREDICATES],
    /// Conditions on predicates, including derived ones.
    known: BTreeMap<(Name, u8), bool>,
    /// Conditions on values: a mask, and the values of the masked bits.
    tests: BTreeMap<Name, (u64, u64)>,
    written: [Name; 2],
    /// The conditions contradict each other.
    is_never: bool,
}

impl Builder {
    pub fn new() -> Self {
        let mut values = vec![Value::Start; START_PREDICATES + 1];
        (values[0], values[REGISTERS]) = (Value::Constant(0), Value::Constant(u64::MAX));
        let mut predicates = core::array::from_fn(|number| Bit::Of(START_PREDICATES, number as u8));
        predicates[0] = Bit::Known(true);
        Self {
            values,
            registers: core::array::from_fn(|number| number),
            predicates,
            known: BTreeMap::new(),
            tests: BTreeMap::new(),
            written: [0; 2],
            is_never: false,
        }
    }

    /// Adds the condition that a predicate has this value.
    pub fn expect(&mut self, predicate: u8, is: bool) {
        self.expect_bit(self.predicate(predicate), is);
    }

    /// Adds a word with all its slots except the branch; see [`super::super::Registers::execute`]. `take` words were
    /// taken before. `expected` gives the word that it must write.
    pub fn pass(
        &mut self,
        operation: &Operation,
        take: u8,
        mut expected: impl FnMut() -> Option<Expected>,
    ) -> bool {
        let (registers, predicates) = (self.registers, self.predicates);
        let alu = |number: u8| registers[usize::from(number) % REGISTERS];
        let ternary = |number: u8| registers[REGISTERS + usize::from(number) % REGISTERS];
        let predicate = |number: u8| predicates[usize::from(number) % PREDICATES];
        let slot = operation.alu;
        if operation.has(active::TERNARY) {
            let slot = operation.ternary;
            let of = [ternary(slot.match0), ternary(slot.match1), ternary(slot.mask)];
            let compared = self.value(Value::Match(slot, of));
            self.enter(&slot.results, slot.tops, compared);
        }
        if operation.has(active::COMPARE) {
            let compared = self.value(Value::Compare(slot, [alu(slot.a), alu(slot.b)]));
            self.enter(&slot.results, slot.tops, compared);
        }
        if operation.has(active::PREDICATE) {
            for function in operation.functions.iter().filter(|function| function.dest != 0) {
                let bits = [predicate(function.a), predicate(function.b)];
                let bit = self.function(function.table, bits);
                self.predicates[function.dest.trailing_zeros() as usize % PREDICATES] = bit;
            }
        }
        if operation.has(active::TAKE) {
            let word = self.value(Value::Input(take));
            let is_permuted = operation.has(active::PERMUTE);
            let permuted =
                if is_permuted { self.value(Value::Permuted(take, operation.permutation())) } else { word };
            self.name(operation.input_alu, 0, word);
            self.name(operation.input_ternary, REGISTERS, permuted);
        }
        if operation.has(active::COMPUTE) && !operation.has(active::COMPARE) {
            let computed = self.value(Value::Compute(slot, [alu(slot.a), alu(slot.b)]));
            let value = self.either(predicate(slot.predicate), [computed, self.alu(slot.dest)]);
            self.name(slot.dest, 0, value);
        }
        if operation.has(active::COPY) {
            let copied = alu(operation.copy_source);
            if operation.copy_output {
                match expected() {
                    Some(Expected::Word(is)) => self.test(copied, u64::MAX, is),
                    Some(Expected::Any(place)) => self.written[usize::from(place) % 2] = copied,
                    None => return false,
                }
            }
            let before = self.registers[REGISTERS + usize::from(operation.copy_ternary) % REGISTERS];
            let value = self.either(predicate(operation.copy_predicate), [copied, before]);
            self.name(operation.copy_ternary, REGISTERS, value);
        }
        true
    }

    fn alu(&self, number: u8) -> Name {
        self.registers[usize::from(number) % REGISTERS]
    }

    fn predicate(&self, number: u8) -> Bit {
        self.predicates[usize::from(number) % PREDICATES]
    }

    /// Assigns a value to a register of a file, unless the register is constant.
    fn name(&mut self, number: u8, file: usize, value: Name) {
        let number = usize::from(number) % REGISTERS;
        if number != 0 {
            self.registers[file + number] = value;
        }
    }

    fn constant(&self, name: Name) -> Option<u64> {
        match self.values.get(name) {
            Some(Value::Constant(word)) => Some(*word),
            _ => None,
        }
    }

    /// Adds a value, which may be constant.
    fn value(&mut self, value: Value) -> Name {
        let constant = |name: Name| self.constant(name);
        let operands = |slot: &Arithmetic, [a, b]: [Name; 2]| {
            let b = if slot.keep == 0 { Some(0) } else { constant(b) };
            Some((constant(a)?, b? & slot.keep | slot.immediate))
        };
        let same = match &value {
            Value::Compute(slot, of) => operands(slot, *of).map(|(a, b)| slot.compute(a, b)),
            Value::Compare(slot, of) => operands(slot, *of).map(|(a, b)| slot.compare(a, b)),
            _ => None,
        };
        let value = match (same, value) {
            (Some(0), _) => return 0,
            (Some(word), _) => Value::Constant(word),
            (None, Value::Compute(slot, [a, b])) => {
                let (slot, b) = self.immediate(slot, b);
                if slot.op == AluOp::Add && (slot.keep, slot.immediate) == (0, 0) {
                    return a;
                }
                Value::Compute(slot, [a, b])
            }
            (None, Value::Compare(slot, [a, b])) => {
                let (slot, b) = self.immediate(slot, b);
                Value::Compare(slot, [a, b])
            }
            (None, value) => value,
        };
        self.values.push(value);
        self.values.len() - 1
    }

    /// The slot with its second operand as immediate, if the operand is constant.
    fn immediate(&self, slot: Arithmetic, b: Name) -> (Arithmetic, Name) {
        let b = if slot.keep == 0 { 0 } else { b };
        self.constant(b).map_or((slot, b), |word| {
            (Arithmetic { keep: 0, immediate: word & slot.keep | slot.immediate, ..slot }, 0)
        })
    }

    fn either(&mut self, bit: Bit, [then, or]: [Name; 2]) -> Name {
        match bit {
            Bit::Known(is) => {
                if is {
                    then
                } else {
                    or
                }
            }
            Bit::Of(..) => self.value(Value::Either(bit, [then, or])),
        }
    }

    fn function(&mut self, table: u8, bits: [Bit; 2]) -> Bit {
        match of_rows(rows(bits).map(|(row, _)| table >> row & 1 == 1)) {
            Some(is) => Bit::Known(is),
            None => Bit::Of(self.value(Value::Function(table, bits)), 0),
        }
    }

    /// Enters the results of a comparison into predicates; see [`super::super::operation::Results::enter`].
    fn enter(&mut self, results: &super::super::operation::Results, tops: u64, compared: Name) {
        /// Truth tables of two predicates.
        const AND: u8 = 0b1000;
        const OR: u8 = 0b1110;
        for (number, combines) in results.each() {
            let lane = u32::from(number) % 4;
            // The top of the group that has this lane.
            let top = (tops >> (16 * lane)).trailing_zeros() + 16 * lane;
            let result = match self.constant(compared) {
                Some(word) => Bit::Known(word >> (top & 63) & 1 == 1),
                None => Bit::Of(compared, top as u8),
            };
            let before = self.predicate(number);
            self.predicates[usize::from(number) % PREDICATES] = match combines {
                niclab_isa::Combine::Overwrite => result,
                niclab_isa::Combine::And => self.function(AND, [before, result]),
                niclab_isa::Combine::Or => self.function(OR, [before, result]),
            };
        }
    }

    fn expect_bit(&mut self, bit: Bit, is: bool) {
        match bit {
            Bit::Known(known) => self.is_never |= known != is,
            Bit::Of(name, place) => {
                self.is_never |= *self.known.entry((name, place)).or_insert(is) != is;
            }
        }
    }

    /// Adds a condition on bits of a value.
    fn test(&mut self, name: Name, mask: u64, want: u64) {
        if let Some(word) = self.constant(name) {
            self.is_never |= word & mask != want;
            return;
        }
        let (masked, wanted) = self.tests.entry(name).or_insert((0, 0));
        self.is_never |= *wanted & mask != want & *masked;
        (*masked, *wanted) = (*masked | mask, *wanted | want);
    }

    /// The known value of a predicate, if there is one.
    fn settled(&self, bit: Bit) -> Bit {
        match bit {
            Bit::Of(name, place) => self.known.get(&(name, place)).map_or(bit, |is| Bit::Known(*is)),
            Bit::Known(_) => bit,
        }
    }

    /// Derives conditions on the operands of functions from conditions on their results.
    fn follow_back(&mut self) {
        for _ in 0..MAX_PASSES {
            let before = self.known.len();
            let expected: Vec<_> = self.known.iter().rev().map(|((name, _), is)| (*name, *is)).collect();
            for (name, is) in expected {
                let Some(Value::Function(table, bits)) = self.values.get(name).copied() else { continue };
                let settled = bits.map(|bit| self.settled(bit));
                let fits: Vec<_> = rows(settled).filter(|(row, _)| (table >> row & 1 == 1) == is).collect();
                self.is_never |= fits.is_empty();
                for (place, bit) in bits.into_iter().enumerate() {
                    if let Some(is) = of_rows(fits.iter().map(|(_, row)| row[place])) {
                        self.expect_bit(bit, is);
                    }
                }
            }
            if self.known.len() == before {
                return;
            }
        }
    }

    /// Turns conditions on predicates into tests of values. Conditions that follow from other tests, of values with
    /// lower numbers, need none.
    fn make_tests(&mut self) {
        for ((name, place), is) in core::mem::take(&mut self.known) {
            let mut follows = None;
            if let Some(Value::Function(table, bits)) = self.values.get(name) {
                let settled = bits.map(|bit| self.settled(bit));
                follows = of_rows(rows(settled).map(|(row, _)| table >> row & 1 == 1));
            }
            self.is_never |= follows.is_some_and(|follows| follows != is);
            if follows.is_none() {
                self.test(name, 1 << (place & 63), u64::from(is) << (place & 63));
            }
            // Numbers ascend, so all operands of a later value are present.
            self.known.insert((name, place), is);
        }
    }

    /// The formula, if `needed` is needed after the path. `None` if the conditions contradict each other, or if the
    /// formula is too long.
    pub fn formula(mut self, needed: Set) -> Option<Formula> {
        self.follow_back();
        self.make_tests();
        if self.is_never {
            return None;
        }
        // A selection of two values by a known bit is replaced by the selected value.
        let mut same: Vec<Name> = (0..self.values.len()).collect();
        for name in 0..self.values.len() {
            if let Value::Either(bit, [then, or]) = self.values[name]
                && let Bit::Known(is) = self.settled(bit)
            {
                same[name] = same[if is { then } else { or }];
            }
        }
        for (name, test) in core::mem::take(&mut self.tests) {
            self.test(same[name], test.0, test.1);
        }
        if self.is_never {
            return None;
        }
        Lines { same, places: vec![None; self.values.len()], builder: self }.formula(needed)
    }
}

/// The rows of a truth table that two predicates may select, and the predicates' values there.
fn rows([a, b]: [Bit; 2]) -> impl Iterator<Item = (u8, [bool; 2])> {
    let may_be = |bit: Bit, is: bool| bit != Bit::Known(!is);
    (0..4_u8)
        .map(|row| (row, [row & 2 != 0, row & 1 != 0]))
        .filter(move |(_, [is_a, is_b])| may_be(a, *is_a) && may_be(b, *is_b) && (a != b || is_a == is_b))
}

/// The result of all rows, if they agree.
fn of_rows(mut rows: impl Iterator<Item = bool>) -> Option<bool> {
    let first = rows.next()?;
    rows.all(|other| other == first).then_some(first)
}

/// A formula whose values get their slots.
struct Lines {
    builder: Builder,
    /// The value by which each value is replaced.
    same: Vec<Name>,
    places: Vec<Option<u8>>,
}

impl Lines {
    fn formula(mut self, needed: Set) -> Option<Formula> {
        let registers: Vec<_> = liveness::registers(needed)
            .map(|number| (number, self.same[self.builder.registers[usize::from(number)]]))
            .filter(|(number, name)| usize::from(*number) != *name)
            .collect();
        let written = self.builder.written.map(|name| self.same[name]);
        let (mut predicates, mut known) = (Vec::new(), (0, 0));
        for number in (1..PREDICATES as u8).filter(|number| liveness::predicate(*number) & needed != 0) {
            match self.builder.settled(self.builder.predicate(number)) {
                Bit::Known(is) => known = (known.0 | 1 << number, known.1 | u16::from(is) << number),
                Bit::Of(START_PREDICATES, place) if place == number => {}
                Bit::Of(name, place) => predicates.push((number, (name, place))),
            }
        }
        let tested = self.builder.tests.keys().copied();
        let mut is_used = vec![false; self.builder.values.len()];
        for name in registers.iter().map(|(_, name)| *name).chain(written).chain(tested) {
            is_used[name] = true;
        }
        predicates.iter().for_each(|(_, (name, _))| is_used[*name] = true);
        for name in (0..is_used.len()).rev().filter(|name| *name > START_PREDICATES) {
            if is_used[name] {
                self.operands(name).for_each(|name| is_used[name] = true);
            }
        }
        let mut lines = self.lines(&is_used)?;
        let registers = registers.iter().map(|(number, name)| {
            let place = self.places[*name]?;
            let is_register = usize::from(place) < START_PREDICATES;
            // The old value of a register that another one gets is first copied to a slot of its own, because the
            // register may itself be written.
            Some((*number, if is_register { self.put_aside(place, &mut lines)? } else { place }))
        });
        let registers = registers.collect::<Option<_>>()?;
        let at = |name: Name| self.places[name];
        let predicates =
            predicates.iter().map(|(number, (name, place))| Some((*number, (at(*name)?, *place))));
        Some(Formula {
            written: [at(written[0])?, at(written[1])?],
            registers,
            predicates: predicates.collect::<Option<_>>()?,
            known,
            lines,
        })
    }

    /// Copies the value in this slot to another slot.
    fn put_aside(&self, place: u8, lines: &mut Vec<Line>) -> Option<u8> {
        let last = lines.iter().map(|line| usize::from(line.to)).max().unwrap_or(0);
        let to = u8::try_from(last.max(START_PREDICATES) + 1).ok()?;
        lines.push(Line { what: What::Same(place), to, mask: 0, want: 0 });
        Some(to)
    }

    /// The operands of a value.
    fn operands(&self, name: Name) -> impl Iterator<Item = Name> + use<> {
        let of_bit = |bit: Bit| match self.builder.settled(bit) {
            Bit::Of(name, _) => Some(name),
            Bit::Known(_) => None,
        };
        let is = |name: Name| Some(self.same[name]);
        let operands = match self.builder.values[name] {
            Value::Start | Value::Constant(_) | Value::Input(_) | Value::Permuted(..) => [None; 3],
            Value::Compute(_, [a, b]) | Value::Compare(_, [a, b]) => [is(a), is(b), None],
            Value::Match(_, names) => names.map(is),
            Value::Either(bit, [then, or]) => [of_bit(bit), is(then), is(or)],
            Value::Function(_, [a, b]) => [of_bit(a), of_bit(b), None],
        };
        operands.into_iter().flatten()
    }

    /// All used values in order, each with its conditions.
    fn lines(&mut self, is_used: &[bool]) -> Option<Vec<Line>> {
        let (mut lines, mut next) = (Vec::new(), START_PREDICATES + 1);
        for name in (0..is_used.len()).filter(|name| is_used[*name]) {
            let (mask, want) = self.builder.tests.get(&name).copied().unwrap_or((0, 0));
            if name <= START_PREDICATES {
                let place = name as u8;
                self.places[name] = Some(place);
                if mask != 0 {
                    lines.push(Line { what: What::Same(place), to: place, mask, want });
                }
                continue;
            }
            let to = u8::try_from(next).ok()?;
            next += 1;
            lines.push(Line { what: self.what(name)?, to, mask, want });
            self.places[name] = Some(to);
        }
        Some(lines)
    }

    fn what(&self, name: Name) -> Option<What> {
        let at = |name: Name| self.places[self.same[name]];
        Some(match self.builder.values[name] {
            Value::Start => return None,
            Value::Constant(word) => What::Constant(word),
            Value::Input(take) => What::Input(take),
            Value::Permuted(take, permute) => What::Permuted(take, permute),
            Value::Compute(slot, [a, b]) => What::Compute(Arithmetic { a: at(a)?, b: at(b)?, ..slot }),
            Value::Compare(slot, [a, b]) => What::Compare(Arithmetic { a: at(a)?, b: at(b)?, ..slot }),
            Value::Match(slot, [match0, match1, mask]) => {
                What::Match(Match { match0: at(match0)?, match1: at(match1)?, mask: at(mask)?, ..slot })
            }
            Value::Either(bit, [then, or]) => {
                What::Either { bit: self.bit(bit)?, then: at(then)?, or: at(or)? }
            }
            Value::Function(table, [a, b]) => self.function(table, [a, b])?,
        })
    }

    fn bit(&self, bit: Bit) -> Option<(u8, u8)> {
        match self.builder.settled(bit) {
            Bit::Of(name, place) => Some((self.places[name]?, place)),
            Bit::Known(_) => None,
        }
    }

    /// A function, of two bits or of those that are not known.
    fn function(&self, table: u8, bits: [Bit; 2]) -> Option<What> {
        let settled = bits.map(|bit| self.builder.settled(bit));
        // If a bit is known, both rows of the table are replaced by the one that the bit selects.
        let same = |row: u8, shift: u8, bit: Bit| match bit {
            Bit::Known(is) => row & !(1 << shift) | u8::from(is) << shift,
            Bit::Of(..) => row,
        };
        let row = |row: u8| same(same(row, 1, settled[0]), 0, settled[1]);
        let table = (0..4).fold(0, |all, at| all | (table >> row(at) & 1) << at);
        let [a, b] = settled.map(|bit| match bit {
            Bit::Of(name, place) => self.places[name].map(|at| (at, place)),
            Bit::Known(_) => Some((0, 0)),
        });
        Some(What::Function { table, a: a?, b: b? })
    }
}

#[cfg(test)]
impl Formula {
    /// Number of its parts: computations and changed registers.
    pub const fn len(&self) -> usize {
        self.lines.len() + self.registers.len()
    }

    /// Removes a part. The contents of its slot are then undefined.
    pub fn forget(&mut self, place: usize) {
        let count = self.lines.len();
        match self.lines.get_mut(place) {
            None => drop(self.registers.remove(place - count)),
            Some(line) if usize::from(line.to) <= START_PREDICATES => drop(self.lines.remove(place)),
            Some(line) => {
                *line = Line { what: What::Constant(0x5a5a_5a5a_a5a5_a5a5), to: line.to, mask: 0, want: 0 };
            }
        }
    }
}
