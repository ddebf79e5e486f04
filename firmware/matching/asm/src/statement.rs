//! Statements: each sets what one unit does in a word.

use niclab_isa::word::{ByteSource, IDENTITY};
use niclab_isa::{
    ALU_PREDICATE, Alu, AluOp, Bits, Branch, Combine, Copy, Field, Half, Input, LANES, TERNARY_PREDICATE,
    Ternary, WRITABLE_PREDICATES, Word,
};

use crate::cursor::Cursor;
use crate::lexer::{Kind, Token};
use crate::lists;
use crate::symbols::{Meaning, Symbols};
use niclab_source::{Diagnostic, Place, nearest};

type Result<T> = std::result::Result<T, Diagnostic>;

/// A unit, or one of the two functions of the predicate unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Input,
    Copy,
    Alu,
    Ternary,
    Predicate0,
    Predicate1,
    Branch,
}

/// Units of a word.
pub(crate) const UNITS: usize = 7;

/// The places of a word's statements, by [`Unit`], and the place of the word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub word: Place,
    units: [Option<Place>; UNITS],
}

impl Places {
    /// A word without statements.
    pub(crate) fn at(word: Place) -> Self {
        Self { word, ..Self::default() }
    }

    /// The place of a unit's statement; the whole word if only `raw` sets the unit.
    pub(crate) fn of(&self, unit: Unit) -> Place {
        self.units[unit as usize].unwrap_or(self.word)
    }
}

/// A word whose statements are being read.
pub(crate) struct Builder<'a> {
    symbols: &'a Symbols,
    pub word: Word,
    pub places: Places,
    /// Values of `raw`, which are set after all statements.
    raw: Vec<(&'static Field, u64, Place)>,
}

/// The part of a statement before the sign of its assignment.
struct Assignment {
    targets: Vec<(Meaning, Place)>,
    combine: Combine,
    sign: Place,
}

impl<'a> Builder<'a> {
    /// An empty word at `place`.
    pub(crate) fn new(symbols: &'a Symbols, place: Place) -> Self {
        Self { symbols, word: Word::default(), places: Places::at(place), raw: Vec::new() }
    }

    /// Adds a statement.
    pub(crate) fn statement(&mut self, tokens: &[Token], before: Place) -> Result<()> {
        let mut cursor = Cursor::new(tokens, self.symbols, before);
        let start = cursor.place();
        let unit = match cursor.peek_name() {
            _ if tokens.is_empty() => {
                let remedy = "remove the | before it, or write a statement";
                return Err(Diagnostic::error(before, "no statement follows this", remedy));
            }
            Some("nop") => {
                cursor.take();
                None
            }
            Some("raw") => {
                cursor.take();
                self.raw(&mut cursor)?;
                None
            }
            Some("in") => Some(self.input(&mut cursor, None)?),
            Some("br") => Some(self.branch(&mut cursor)?),
            _ => Some(self.assignment(&mut cursor)?),
        };
        cursor.end()?;
        let place = start.to(cursor.last());
        unit.map_or(Ok(()), |unit| self.claim(unit, place))
    }

    /// The word of all statements.
    pub(crate) fn finish(self) -> Result<(Word, Places)> {
        let mut words = self.word.encode();
        for (field, value, _) in &self.raw {
            field.set(&mut words, *value);
        }
        let word = Word::decode(words).map_err(|error| {
            let place = self.raw.first().map_or(self.places.word, |(_, _, place)| *place);
            Diagnostic::error(
                place,
                error.to_string(),
                "docs/use/match/MACHINE.md lists what the fields can hold",
            )
        })?;
        Ok((word, self.places))
    }

    fn claim(&mut self, unit: Unit, place: Place) -> Result<()> {
        let slot = &mut self.places.units[unit as usize];
        if slot.is_some() {
            let what = format!("the word uses {} already", describe(unit));
            return Err(Diagnostic::error(place, what, "move this to another word"));
        }
        *slot = Some(place);
        Ok(())
    }

    fn assignment(&mut self, cursor: &mut Cursor) -> Result<Unit> {
        let assignment = targets(cursor)?;
        let op = cursor.peek_name().and_then(|name| AluOp::ALL.iter().find(|op| op.name() == name));
        if let Some(op) = op {
            cursor.take();
            return if op.is_compare() {
                self.compare(cursor, *op, &assignment)
            } else {
                self.arithmetic(cursor, *op, &assignment)
            };
        }
        match cursor.peek_name() {
            Some("in") => self.input(cursor, Some(&assignment)),
            Some("copy") => self.copy(cursor, &assignment),
            Some("match") => self.ternary(cursor, &assignment),
            Some(name) if cursor.symbols.meaning(name).is_none() => {
                let operations = AluOp::ALL.iter().map(|op| op.name()).chain(["in", "copy", "match"]);
                let remedy = nearest(name, operations).map_or_else(
                    || "write in, copy, match, an operation of the ALU, or a predicate".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                Err(Diagnostic::error(cursor.place(), format!("unknown name `{name}`"), remedy))
            }
            _ => self.predicate(cursor, &assignment),
        }
    }

    fn input(&mut self, cursor: &mut Cursor, assignment: Option<&Assignment>) -> Result<Unit> {
        cursor.take();
        let mut input = Input { take: true, ..Input::default() };
        if let Some(assignment) = assignment {
            assignment.overwrites()?;
            let (alu, ternary) = assignment.one_of_each(|meaning| match meaning {
                Meaning::Register(number) => Some((Some(number), None)),
                Meaning::Ternary(number) => Some((None, Some(number))),
                _ => None,
            })?;
            input.alu = alu.unwrap_or_default();
            input.ternary = ternary.unwrap_or_default();
        }
        if input.ternary.get() != 0 {
            input.permute = IDENTITY;
        }
        if let Some((list, place)) = cursor.list() {
            if input.ternary.get() == 0 {
                let what =
                    "a lane list permutes the input for a ternary register, but the statement names none";
                return Err(Diagnostic::error(place, what, "write t1 = in[2 3 0 1], or remove the list"));
            }
            input.permute = lists::lanes(list, place)?;
        }
        self.word.input = input;
        Ok(Unit::Input)
    }

    fn copy(&mut self, cursor: &mut Cursor, assignment: &Assignment) -> Result<Unit> {
        cursor.take();
        assignment.overwrites()?;
        let (ternary, output) = assignment.one_of_each(|meaning| match meaning {
            Meaning::Ternary(number) => Some((Some(number), None)),
            Meaning::Output => Some((None, Some(true))),
            _ => None,
        })?;
        if ternary.is_some() && output.is_some() {
            let what = "the data copy unit has one destination, a ternary register or the output FIFO";
            let place = assignment.targets.first().map_or(assignment.sign, |(_, place)| *place);
            return Err(Diagnostic::error(place, what, "copy to the other one in another word"));
        }
        let source = cursor.register()?;
        let predicate = cursor.condition()?;
        let (ternary, output) = (ternary.unwrap_or_default(), output.unwrap_or_default());
        self.word.copy = Copy { predicate, source, ternary, output };
        Ok(Unit::Copy)
    }

    fn arithmetic(&mut self, cursor: &mut Cursor, op: AluOp, assignment: &Assignment) -> Result<Unit> {
        assignment.overwrites()?;
        let (dest, _) = assignment.one_of_each(|meaning| match meaning {
            Meaning::Register(number) => Some((Some(number), None::<()>)),
            _ => None,
        })?;
        let dest = dest.unwrap_or_default();
        let a = cursor.register()?;
        comma(cursor)?;
        let mut alu = if op == AluOp::Permute {
            let b = cursor.register()?;
            let remedy = "name the eight bytes, the highest first: [0 0 0 0 0 0 a1 b7]";
            let (list, place) =
                cursor.list().ok_or_else(|| cursor.missing("a list of eight bytes", remedy))?;
            let sources: [ByteSource; 8] = lists::bytes(list, place, self.symbols)?;
            Alu::permutation(a, b, dest, sources)
        } else {
            let alu = Alu { op, a, dest, ..operand_b(cursor)? };
            Alu { join: groups(cursor)?, ..alu }
        };
        alu.predicate = cursor.condition()?;
        self.word.alu = alu;
        Ok(Unit::Alu)
    }

    fn compare(&mut self, cursor: &mut Cursor, op: AluOp, assignment: &Assignment) -> Result<Unit> {
        let lanes = assignment.lanes(ALU_PREDICATE, "a comparison of the ALU")?;
        let a = cursor.register()?;
        comma(cursor)?;
        let alu = Alu { op, a, lanes, combine: assignment.combine, ..operand_b(cursor)? };
        self.word.alu = Alu { join: groups(cursor)?, ..alu };
        if cursor.peek_name() == Some("if") {
            let remedy = "remove the condition, or combine by &= and |=";
            return Err(Diagnostic::error(cursor.place(), "a comparison looks at no predicate", remedy));
        }
        Ok(Unit::Alu)
    }

    fn ternary(&mut self, cursor: &mut Cursor, assignment: &Assignment) -> Result<Unit> {
        cursor.take();
        let lanes = assignment.lanes(TERNARY_PREDICATE, "`match`")?;
        let match0 = cursor.ternary()?;
        comma(cursor)?;
        let match1 = cursor.ternary()?;
        let (mut mask, mut ignore) = (Bits::default(), false);
        if cursor.accept(",") {
            let remedy = "write mask t2 (compare the bits that it sets) or ignore t2 (compare the others)";
            ignore = cursor.accept_name("ignore");
            if !ignore && !cursor.accept_name("mask") {
                return Err(cursor.missing("`mask` or `ignore`", remedy));
            }
            mask = cursor.ternary()?;
        }
        let join = groups(cursor)?;
        let combine = assignment.combine;
        self.word.ternary = Ternary { match0, match1, mask, ignore, join, lanes, combine };
        Ok(Unit::Ternary)
    }

    fn predicate(&mut self, cursor: &mut Cursor, assignment: &Assignment) -> Result<Unit> {
        assignment.overwrites()?;
        let (dest, _) = assignment.one_of_each(|meaning| match meaning {
            Meaning::Predicate(number) => Some((Some(number), None::<()>)),
            _ => None,
        })?;
        let dest = dest.unwrap_or_default();
        if !WRITABLE_PREDICATES.contains(&dest.index()) {
            let what = format!("p{dest} is not written by the predicate unit");
            let remedy = "choose one of p1 to p7; p8 to p11 get comparisons, p12 to p15 `match`";
            return Err(Diagnostic::error(assignment.place(), what, remedy));
        }
        let (a, b, function) = function(cursor)?;
        let dest = Bits::truncated(dest.get());
        let predicate = &mut self.word.predicate;
        if self.places.units[Unit::Predicate0 as usize].is_none() {
            (predicate.a0, predicate.b0, predicate.function0, predicate.dest0) = (a, b, function, dest);
            return Ok(Unit::Predicate0);
        }
        if self.places.units[Unit::Predicate1 as usize].is_none() {
            (predicate.a1, predicate.b1, predicate.function1, predicate.dest1) = (a, b, function, dest);
        }
        Ok(Unit::Predicate1)
    }

    fn branch(&mut self, cursor: &mut Cursor) -> Result<Unit> {
        cursor.take();
        let place = cursor.place();
        let address = match cursor.peek() {
            Some(Kind::Name(name)) => {
                cursor.take();
                match self.symbols.look_up(name, place)? {
                    Meaning::Label(address) => address as u64,
                    Meaning::Constant(address) => address,
                    other => {
                        let what = format!("`{name}` is {}, but a label is expected here", other.describe());
                        return Err(Diagnostic::error(place, what, "name a label: `name:` before a word"));
                    }
                }
            }
            _ => cursor.expression()?,
        };
        let target = u32::try_from(address).ok().and_then(Bits::new).ok_or_else(|| {
            let what = format!("a branch does not reach word {address}");
            Diagnostic::error(place, what, "name a label of this program")
        })?;
        let (mut predicate, mut sense) = (Bits::default(), true);
        if cursor.accept_name("if") {
            sense = !cursor.accept("!");
            predicate = cursor.predicate()?;
        }
        if predicate.get() == 0 && !sense {
            let what = "p0 is always 1: this branch is never taken";
            return Err(Diagnostic::error(place, what, "remove the branch, or name another predicate"));
        }
        self.word.branch = Branch { predicate, sense, target };
        Ok(Unit::Branch)
    }

    /// `raw slot.field = number, ...`
    fn raw(&mut self, cursor: &mut Cursor) -> Result<()> {
        loop {
            let (slot, place) = cursor.name("a slot", "write raw alu.join = 5")?;
            cursor.expect(".", "write slot and field: raw alu.join = 5")?;
            let (name, _) = cursor.name("a field", "write slot and field: raw alu.join = 5")?;
            let place = place.to(cursor.last());
            let field = Field::named(slot, name).ok_or_else(|| {
                let what = format!("no slot has a field `{slot}.{name}`");
                Diagnostic::error(place, what, "docs/use/match/MACHINE.md lists slots and fields")
            })?;
            cursor.expect("=", "write a number: raw alu.join = 5")?;
            let value = cursor.expression()?;
            if value > field.max() {
                let what = format!("{value} does not fit into the {} bits of `{slot}.{name}`", field.bits);
                let remedy = format!("it holds 0 to {}", field.max());
                return Err(Diagnostic::error(cursor.last(), what, remedy));
            }
            self.raw.push((field, value, place));
            if !cursor.accept(",") {
                return Ok(());
            }
        }
    }
}

impl Assignment {
    fn place(&self) -> Place {
        let first = self.targets.first().map_or(self.sign, |(_, place)| *place);
        self.targets.last().map_or(first, |(_, place)| first.to(*place))
    }

    /// Rejects a combining sign.
    fn overwrites(&self) -> Result<()> {
        if self.combine == Combine::Overwrite {
            return Ok(());
        }
        let what = format!("`{}` belongs to comparisons and `match`", self.combine.name());
        Err(Diagnostic::error(self.sign, what, "write ="))
    }

    /// The targets, at most one of each of the two kinds that `kind` distinguishes.
    fn one_of_each<A, B>(
        &self,
        kind: impl Fn(Meaning) -> Option<(Option<A>, Option<B>)>,
    ) -> Result<(Option<A>, Option<B>)> {
        let (mut first, mut second) = (None, None);
        for (meaning, place) in &self.targets {
            let constant = match meaning {
                Meaning::Register(number) if number.get() == 0 => Some("r0"),
                Meaning::Ternary(number) if number.get() == 0 => Some("t0"),
                Meaning::Predicate(number) if number.get() == 0 => Some("p0"),
                _ => None,
            };
            if let Some(constant) = constant {
                let what = format!("{constant} is constant: what is written to it is lost");
                return Err(Diagnostic::error(*place, what, "choose another one"));
            }
            let Some((a, b)) = kind(*meaning) else {
                let what = format!("{} does not get the result of this unit", meaning.describe());
                let remedy = "r = ALU or in; t = in or copy; out = copy; p1-p7 = predicates; \
                              p8-p11 = comparisons; p12-p15 = match";
                return Err(Diagnostic::error(*place, what, remedy));
            };
            if a.is_some() && first.is_some() || b.is_some() && second.is_some() {
                let what = format!("this unit writes {} only once in a word", meaning.describe());
                return Err(Diagnostic::error(*place, what, "move one of both to another word"));
            }
            first = a.or(first);
            second = b.or(second);
        }
        Ok((first, second))
    }

    /// The targets as lanes; `first` is the predicate of lane 0.
    fn lanes(&self, first: usize, what: &str) -> Result<Bits<4>> {
        let mut lanes = 0;
        for (meaning, place) in &self.targets {
            let lane = match meaning {
                Meaning::Predicate(number) => number.index().checked_sub(first).filter(|lane| *lane < LANES),
                _ => None,
            };
            let lane = lane.ok_or_else(|| {
                let last = first + LANES - 1;
                let what = format!("{what} writes p{first} to p{last}, which belong to lanes 0 to 3");
                let remedy = format!("write p{last} for the result of the whole word");
                Diagnostic::error(*place, what, remedy)
            })?;
            lanes |= 1 << lane;
        }
        Ok(Bits::truncated(lanes))
    }
}

/// The targets of a statement, and the sign after them.
fn targets(cursor: &mut Cursor) -> Result<Assignment> {
    const REMEDY: &str = "write what gets the result, = and the unit's operation: r1 = add r2, 4";
    let mut targets = Vec::new();
    loop {
        let (name, place) = cursor.name("a register, a predicate or `out`", REMEDY)?;
        if !matches!(cursor.peek(), Some(Kind::Symbol("," | "=" | "&=" | "|="))) {
            let keywords = ["in", "br", "nop", "raw"];
            let remedy = nearest(name, keywords.into_iter())
                .map_or_else(|| REMEDY.to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(Diagnostic::error(place, format!("no statement begins with `{name}`"), remedy));
        }
        targets.push((cursor.symbols.look_up(name, place)?, place));
        if !cursor.accept(",") {
            break;
        }
    }
    let combine = Combine::ALL.iter().find(|combine| cursor.accept(combine.name()));
    let combine = *combine.ok_or_else(|| cursor.missing("`=`, `&=` or `|=`", REMEDY))?;
    Ok(Assignment { targets, combine, sign: cursor.last() })
}

fn comma(cursor: &mut Cursor) -> Result<()> {
    cursor.expect(",", "separate operands by a comma")
}

/// Groups of lanes in brackets; without brackets all lanes work as one.
fn groups(cursor: &mut Cursor) -> Result<Bits<3>> {
    cursor.list().map_or(Ok(Bits::truncated(Bits::<3>::MAX)), |(list, place)| lists::groups(list, place))
}

/// The ALU's second operand: a register, a register with one half replaced, or a number.
fn operand_b(cursor: &mut Cursor) -> Result<Alu> {
    let place = cursor.place();
    let is_register = match cursor.peek_name().map(|name| cursor.symbols.meaning(name)) {
        None | Some(Some(Meaning::Constant(_))) => false,
        Some(_) => cursor.peek_name() != Some("mask"),
    };
    if !is_register {
        let value = cursor.expression()?;
        let (half, immediate) = if value & u64::from(u32::MAX) == 0 && value != 0 {
            (Half::Upper, value >> 32)
        } else {
            (Half::Lower, value)
        };
        return Ok(Alu { half, immediate: immediate_of(immediate, place)?, ..Alu::default() });
    }
    let b = cursor.register()?;
    let half = match cursor.peek_name() {
        Some("lower") => Half::Lower,
        Some("upper") => Half::Upper,
        _ => return Ok(Alu { b, ..Alu::default() }),
    };
    cursor.take();
    let place = cursor.place();
    let immediate = immediate_of(cursor.expression()?, place)?;
    Ok(Alu { b, half, immediate, ..Alu::default() })
}

fn immediate_of(value: u64, place: Place) -> Result<Bits<32>> {
    u32::try_from(value).ok().and_then(Bits::new).ok_or_else(|| {
        let what =
            format!("{value:#x} is not an immediate: a word holds 32 bits, for the lower or the upper half");
        let remedy = "load it by two words: r1 = or r0, LOWER, then r1 = or r0, r1 upper UPPER";
        Diagnostic::error(place, what, remedy)
    })
}

/// A function of two predicates: both arguments and the truth table.
fn function(cursor: &mut Cursor) -> Result<(Bits<4>, Bits<4>, Bits<4>)> {
    let constant = match cursor.peek() {
        Some(Kind::Number(0)) => Some(0),
        Some(Kind::Number(1)) => Some(0b1111),
        _ => None,
    };
    if let Some(table) = constant {
        cursor.take();
        return Ok((Bits::default(), Bits::default(), Bits::truncated(table)));
    }
    // Bit 2a + b of a truth table: these masks select the bits where a is 1, and where b is 1.
    let (a, first) = argument(cursor, 0b1100)?;
    let (name, place) = match cursor.peek_name() {
        None => return Ok((a, Bits::default(), Bits::truncated(first))),
        Some(name) => (name, cursor.place()),
    };
    cursor.take();
    let (b, second) = argument(cursor, 0b1010)?;
    let table = match name {
        "and" => first & second,
        "or" => first | second,
        "xor" => first ^ second,
        _ => {
            let what = format!("`{name}` is not a function of two predicates");
            return Err(Diagnostic::error(place, what, "write and, or, xor; ! negates an argument"));
        }
    };
    Ok((a, b, Bits::truncated(table)))
}

/// A predicate, possibly negated, and its own truth table.
fn argument(cursor: &mut Cursor, table: u32) -> Result<(Bits<4>, u32)> {
    let negated = cursor.accept("!");
    let predicate = cursor.predicate()?;
    Ok((predicate, if negated { table ^ 0b1111 } else { table }))
}

fn describe(unit: Unit) -> &'static str {
    match unit {
        Unit::Input => "the input FIFO unit",
        Unit::Copy => "the data copy unit",
        Unit::Alu => "the ALU",
        Unit::Ternary => "the ternary unit",
        Unit::Predicate0 | Unit::Predicate1 => "both functions of the predicate unit",
        Unit::Branch => "the branch unit",
    }
}
