//! What a way through the program does to data, and what data must be for it to be the way: the words that are passed,
//! taken apart into values that follow from one another.
//!
//! A way is straight, and is only gone where everything on it is as expected. So registers are names: a word that is
//! taken or copied costs nothing, and what nothing looks at is left out. What is the same each time is found once. And
//! what is expected of a predicate says what it comes from: that a word branches behind `p2 = p1 and p9` says that both
//! are 1, and no predicate is computed.
//!
//! Constants: none of the model's.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use niclab_isa::{AluOp, PREDICATES, REGISTERS};

use super::super::operation::{Arithmetic, Match, Operation, active, tops_of_nonzero};
use super::liveness::{self, Set};

/// Places of values: registers of the ALU, of the ternary unit, all predicates in one, and behind them what is
/// computed.
pub const PLACES: usize = 256;
/// The place of the predicates.
const START_PREDICATES: usize = 2 * REGISTERS;
/// How often what is expected is followed back and what is known on: a way on which more follows from that is tested
/// for it. Attack: predicates that depend on one another along a long way would be gone through as often as it has
/// words. Ours: a bound.
const MOST_PASSES: usize = 16;

/// What a way writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This word.
    Word(u64),
    /// Any word, in the first or the second of two places.
    Any(u8),
}

/// One value that is computed, by places of others.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A word of the input, by how many were taken before,
    Input(u8),
    /// or with its lanes in other places.
    Permuted(u8, u8),
    /// The same each time.
    Constant(u64),
    /// What the ALU computes,
    Compute(Arithmetic),
    /// or compares, and what the ternary unit does: the highest bit of each group of lanes.
    Compare(Arithmetic),
    Match(Match),
    /// The first of two values where a bit is 1, else the second.
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
    /// A value that was there before.
    Same(u8),
}

/// A value that is computed, where it goes, and what those of its bits must be that are in the mask.
#[derive(Clone, Copy, Debug)]
struct Line {
    what: What,
    to: u8,
    mask: u64,
    want: u64,
}

/// All of a way.
#[derive(Clone, Debug)]
pub struct Formula {
    lines: Vec<Line>,
    /// What is written that may be anything, first and second.
    written: [u8; 2],
    /// Registers that are others behind it, by their numbers in [`liveness::registers`], and the places of their
    /// values.
    registers: Vec<(u8, u8)>,
    /// Predicates that are, and the bits that they are.
    predicates: Vec<(u8, (u8, u8))>,
    /// Predicates that are known behind it, and what they are.
    known: (u16, u16),
}

impl Formula {
    /// Computes all values from registers, predicates and input; false where anything is not as expected. Nothing but
    /// `values` changes.
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

    /// What it wrote that may be anything.
    #[inline]
    pub fn written(&self, values: &[u64; PLACES]) -> [u64; 2] {
        self.written.map(|place| values[usize::from(place)])
    }

    /// Registers and predicates are as behind it.
    #[inline]
    pub fn leave(&self, values: &mut [u64; PLACES]) {
        // None of these places is a register that is written here.
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

/// How a value comes about. Values have lower numbers than those that follow from them.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// It is there at the begin, at the place that is its number.
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

/// A formula that is put together.
pub struct Builder {
    values: Vec<Value>,
    /// What each register and predicate is now.
    registers: [Name; 2 * REGISTERS],
    predicates: [Bit; PREDICATES],
    /// What is expected of predicates; also what follows from that.
    known: BTreeMap<(Name, u8), bool>,
    /// What is expected of values: a mask, and what they are there.
    tests: BTreeMap<Name, (u64, u64)>,
    written: [Name; 2],
    /// It cannot be as expected.
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

    /// A predicate is this.
    pub fn expect(&mut self, predicate: u8, is: bool) {
        self.expect_bit(self.predicate(predicate), is);
    }

    /// A word is passed, all slots of which but the branch do something; see [`Registers::execute`]. `take` words were
    /// taken before. What it writes is expected to be this.
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

    /// A register of a file is this from now on, unless it is a constant one.
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

    /// A value, which may be the same each time.
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

    /// The slot with its second operand in it, if that is the same each time.
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

    /// Results of a comparison enter predicates; see [`super::super::operation::Results::enter`].
    fn enter(&mut self, results: &super::super::operation::Results, tops: u64, compared: Name) {
        /// Truth tables of two predicates.
        const AND: u8 = 0b1000;
        const OR: u8 = 0b1110;
        for (number, combines) in results.each() {
            let lane = u32::from(number) % 4;
            // The top of the group that this lane is in.
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

    /// Bits of a value are these.
    fn test(&mut self, name: Name, mask: u64, want: u64) {
        if let Some(word) = self.constant(name) {
            self.is_never |= word & mask != want;
            return;
        }
        let (masked, wanted) = self.tests.entry(name).or_insert((0, 0));
        self.is_never |= *wanted & mask != want & *masked;
        (*masked, *wanted) = (*masked | mask, *wanted | want);
    }

    /// What is known of a predicate.
    fn settled(&self, bit: Bit) -> Bit {
        match bit {
            Bit::Of(name, place) => self.known.get(&(name, place)).map_or(bit, |is| Bit::Known(*is)),
            Bit::Known(_) => bit,
        }
    }

    /// What is expected of functions says something of what they are of.
    fn follow_back(&mut self) {
        for _ in 0..MOST_PASSES {
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

    /// What is expected becomes tests of values, but for what follows from other tests: those of values with lower
    /// numbers.
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
            // Numbers rise: all that a later one is of is here.
            self.known.insert((name, place), is);
        }
    }

    /// The formula, where `needed` is needed behind it; none where it cannot be as expected, or is too long.
    pub fn formula(mut self, needed: Set) -> Option<Formula> {
        self.follow_back();
        self.make_tests();
        if self.is_never {
            return None;
        }
        // Values of which it is known which of two others they are, are that.
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

/// The rows of a truth table that two predicates may be at, and what they are there.
fn rows([a, b]: [Bit; 2]) -> impl Iterator<Item = (u8, [bool; 2])> {
    let may_be = |bit: Bit, is: bool| bit != Bit::Known(!is);
    (0..4_u8)
        .map(|row| (row, [row & 2 != 0, row & 1 != 0]))
        .filter(move |(_, [is_a, is_b])| may_be(a, *is_a) && may_be(b, *is_b) && (a != b || is_a == is_b))
}

/// What all of them say, if they say the same.
fn of_rows(mut rows: impl Iterator<Item = bool>) -> Option<bool> {
    let first = rows.next()?;
    rows.all(|other| other == first).then_some(first)
}

/// A formula whose values get their places.
struct Lines {
    builder: Builder,
    /// What each value is.
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
            // What a register held that another one gets is put aside: it may itself be written.
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

    /// Another place for what is at this one.
    fn put_aside(&self, place: u8, lines: &mut Vec<Line>) -> Option<u8> {
        let last = lines.iter().map(|line| usize::from(line.to)).max().unwrap_or(0);
        let to = u8::try_from(last.max(START_PREDICATES) + 1).ok()?;
        lines.push(Line { what: What::Same(place), to, mask: 0, want: 0 });
        Some(to)
    }

    /// What a value follows from.
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

    /// All values that are used, in order, each with what is expected of it.
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
        // Of a bit that is known, either row of the table is the one that it leads to.
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
    /// How much it does.
    pub const fn len(&self) -> usize {
        self.lines.len() + self.registers.len()
    }

    /// Leaves something out: nobody knows then what stands in its place.
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
