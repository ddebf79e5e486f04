//! Reads tokens in order: names, numbers and expressions.

use niclab_isa::Bits;

use crate::lexer::{Kind, Token};
use crate::symbols::{Meaning, Symbols};
use niclab_source::{Diagnostic, Place};

type Result<T> = std::result::Result<T, Diagnostic>;

/// A position in the tokens of a statement.
pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    pub symbols: &'a Symbols,
    /// The place of the last token, for messages about missing tokens.
    last: Place,
    /// Open parentheses.
    depth: usize,
}

/// Max nested parentheses: a source must not exhaust the stack.
const MAX_PARENTHESES: usize = 32;

impl<'a> Cursor<'a> {
    /// `before` is the place of an empty statement.
    pub(crate) fn new(tokens: &'a [Token], symbols: &'a Symbols, before: Place) -> Self {
        Self { tokens, symbols, last: before, depth: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a Kind> {
        self.tokens.first().map(|token| &token.kind)
    }

    /// The next token if it is a name, without taking it.
    pub(crate) fn peek_name(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Kind::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// The place of the next token, or of the last one at the end.
    pub(crate) fn place(&self) -> Place {
        self.tokens.first().map_or(self.last, |token| token.place)
    }

    /// The place of the previous token.
    pub(crate) fn last(&self) -> Place {
        self.last
    }

    pub(crate) fn take(&mut self) -> Option<&'a Token> {
        let (token, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        self.last = token.place;
        Some(token)
    }

    /// Takes the symbol if it is next.
    pub(crate) fn accept(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Kind::Symbol(next)) if *next == symbol);
        if is_next {
            self.take();
        }
        is_next
    }

    /// Takes the word if it is next.
    pub(crate) fn accept_name(&mut self, word: &str) -> bool {
        let is_next = self.peek_name() == Some(word);
        if is_next {
            self.take();
        }
        is_next
    }

    /// Takes a symbol, which must be next.
    pub(crate) fn expect(&mut self, symbol: &str, remedy: &str) -> Result<()> {
        if self.accept(symbol) { Ok(()) } else { Err(self.missing(&format!("`{symbol}`"), remedy)) }
    }

    /// Takes any name.
    pub(crate) fn name(&mut self, what: &str, remedy: &str) -> Result<(&'a str, Place)> {
        let name = self.peek_name().ok_or_else(|| self.missing(what, remedy))?;
        self.take();
        Ok((name, self.last))
    }

    /// Takes a list in brackets if it is next.
    pub(crate) fn list(&mut self) -> Option<(&'a str, Place)> {
        let Some(Kind::List(list)) = self.peek() else { return None };
        self.take();
        Some((list, self.last))
    }

    /// Takes a register of the ALU.
    pub(crate) fn register(&mut self) -> Result<Bits<4>> {
        let remedy = "write r0 to r15, or a name that .reg defines";
        self.operand("an ALU register", remedy, |meaning| match meaning {
            Meaning::Register(number) => Some(number),
            _ => None,
        })
    }

    /// Takes a register of the ternary unit.
    pub(crate) fn ternary(&mut self) -> Result<Bits<4>> {
        let remedy = "write t0 to t15, or a name that .reg defines";
        self.operand("a ternary register", remedy, |meaning| match meaning {
            Meaning::Ternary(number) => Some(number),
            _ => None,
        })
    }

    /// Takes a predicate.
    pub(crate) fn predicate(&mut self) -> Result<Bits<4>> {
        let remedy = "write p0 to p15, or a name that .pred defines";
        self.operand("a predicate", remedy, |meaning| match meaning {
            Meaning::Predicate(number) => Some(number),
            _ => None,
        })
    }

    fn operand(
        &mut self,
        what: &str,
        remedy: &str,
        wanted: fn(Meaning) -> Option<Bits<4>>,
    ) -> Result<Bits<4>> {
        let (name, place) = self.name(what, remedy)?;
        let meaning = self.symbols.look_up(name, place)?;
        wanted(meaning).ok_or_else(|| {
            let what = format!("`{name}` is {}, but {what} is expected here", meaning.describe());
            Diagnostic::error(place, what, remedy)
        })
    }

    /// Takes `if p5` if it is next; otherwise returns p0.
    pub(crate) fn condition(&mut self) -> Result<Bits<4>> {
        if !self.accept_name("if") {
            return Ok(Bits::default());
        }
        if matches!(self.peek(), Some(Kind::Symbol("!"))) {
            let remedy = "let the predicate unit negate it one word earlier: p1 = !p5";
            return Err(Diagnostic::error(
                self.place(),
                "this unit works only when a predicate is 1",
                remedy,
            ));
        }
        self.predicate()
    }

    /// Checks that the statement ends here.
    pub(crate) fn end(&self) -> Result<()> {
        match self.tokens.first() {
            None => Ok(()),
            Some(token) => Err(Diagnostic::error(
                token.place,
                "the statement ends before this",
                "remove this, or begin the next slot of the word with |",
            )),
        }
    }

    /// The message if the next token is not `what`.
    pub(crate) fn missing(&self, what: &str, remedy: &str) -> Diagnostic {
        match self.tokens.first() {
            Some(token) => Diagnostic::error(token.place, format!("{what} is expected here"), remedy),
            None => Diagnostic::error(self.last, format!("{what} is missing after this"), remedy),
        }
    }

    /// A number: products bind tighter than sums, and sums tighter than shifts.
    pub(crate) fn expression(&mut self) -> Result<u64> {
        let mut value = self.sum()?;
        while self.accept("<<") {
            let place = self.last;
            let shift = self.sum()?;
            let shifted = u32::try_from(shift).ok().and_then(|shift| value.checked_shl(shift));
            let whole = shifted.filter(|shifted| shifted >> shift == value);
            value = whole.ok_or_else(|| too_large(place))?;
        }
        Ok(value)
    }

    fn sum(&mut self) -> Result<u64> {
        let mut value = self.product()?;
        loop {
            let added = self.accept("+");
            if !added && !self.accept("-") {
                return Ok(value);
            }
            let place = self.last;
            let right = self.product()?;
            let sum = if added { value.checked_add(right) } else { value.checked_sub(right) };
            value = sum.ok_or_else(|| too_large(place))?;
        }
    }

    fn product(&mut self) -> Result<u64> {
        let mut value = self.number()?;
        while self.accept("*") {
            let place = self.last;
            let right = self.number()?;
            value = value.checked_mul(right).ok_or_else(|| too_large(place))?;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<u64> {
        let remedy = "write a number, a constant, mask(FIELD), or an expression of them in parentheses";
        if self.accept("(") {
            self.depth += 1;
            if self.depth > MAX_PARENTHESES {
                let what = format!("more than {MAX_PARENTHESES} parentheses are nested");
                return Err(Diagnostic::error(self.last, what, "define parts of it by .const"));
            }
            let value = self.expression()?;
            self.expect(")", "close the parenthesis")?;
            self.depth -= 1;
            return Ok(value);
        }
        match self.take().map(|token| &token.kind) {
            Some(Kind::Number(value)) => Ok(*value),
            Some(Kind::Name(name)) if name == "mask" => {
                self.expect("(", "write mask(FIELD)")?;
                let (name, place) = self.name("a field", "name a field that .field defines")?;
                let Meaning::Field { low, high } = self.symbols.look_up(name, place)? else {
                    let what = format!("`{name}` is not a field");
                    return Err(Diagnostic::error(place, what, "name a field that .field defines"));
                };
                self.expect(")", "close the parenthesis")?;
                Ok((u64::MAX >> (63 - (high - low))) << low)
            }
            Some(Kind::Name(name)) => self.symbols.constant(name, self.last),
            Some(_) => Err(Diagnostic::error(self.last, "a number is expected here", remedy)),
            None => Err(self.missing("a number", remedy)),
        }
    }
}

fn too_large(place: Place) -> Diagnostic {
    Diagnostic::error(
        place,
        "the result is not an unsigned 64-bit number",
        "numbers are 0 to 0xffff_ffff_ffff_ffff",
    )
}
