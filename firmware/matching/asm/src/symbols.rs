//! Names of registers and predicates in the machine, and names that a source defines.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use niclab_isa::{AluOp, Bits};

use niclab_source::{Diagnostic, MAX_DIAGNOSTICS, Place, nearest};

/// A register or predicate that a source can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Register {
    /// A register of the ALU.
    Alu(usize),
    /// A register of the ternary unit.
    Ternary(usize),
    /// A predicate.
    Predicate(usize),
}

impl Register {
    /// The register with this machine name: `r0` to `r15`, `t0` to `t15`, `p0` to `p15`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        builtin(name)?.register()
    }
}

impl fmt::Display for Register {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, number) = match self {
            Self::Alu(number) => ('r', number),
            Self::Ternary(number) => ('t', number),
            Self::Predicate(number) => ('p', number),
        };
        write!(formatter, "{file}{number}")
    }
}

/// Meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A register of the ALU.
    Register(Bits<4>),
    /// A register of the ternary unit.
    Ternary(Bits<4>),
    Predicate(Bits<4>),
    /// The output FIFO.
    Output,
    Constant(u64),
    /// Bits of a 64-bit word.
    Field {
        low: u32,
        high: u32,
    },
    /// The address of a word.
    Label(usize),
}

impl Meaning {
    fn register(self) -> Option<Register> {
        match self {
            Self::Register(number) => Some(Register::Alu(number.index())),
            Self::Ternary(number) => Some(Register::Ternary(number.index())),
            Self::Predicate(number) => Some(Register::Predicate(number.index())),
            _ => None,
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Register(_) => "an ALU register",
            Self::Ternary(_) => "a ternary register",
            Self::Predicate(_) => "a predicate",
            Self::Output => "the output FIFO",
            Self::Constant(_) => "a constant",
            Self::Field { .. } => "a field",
            Self::Label(_) => "a label",
        }
    }
}

/// Names of the language, besides those of ALU operations and registers.
const KEYWORDS: &[&str] =
    &["in", "out", "copy", "match", "mask", "ignore", "if", "br", "nop", "raw", "lower", "upper", "a", "b"];

/// The names of a source.
#[derive(Default)]
pub(crate) struct Symbols {
    names: BTreeMap<String, (Meaning, Place)>,
    /// Number of searches for a similar name.
    searches: Cell<usize>,
}

/// Max searches for a similar name. Each search compares all names of the source, and hardly more messages than these
/// are shown.
const MAX_SEARCHES: usize = 2 * MAX_DIAGNOSTICS;

impl Symbols {
    /// Gives a name a meaning.
    pub(crate) fn define(&mut self, name: &str, meaning: Meaning, place: Place) -> Result<(), Diagnostic> {
        if builtin(name).is_some() || is_keyword(name) {
            let what = format!("`{name}` is a name of the language");
            return Err(Diagnostic::error(place, what, "choose another name"));
        }
        if let Some((_, first)) = self.names.get(name) {
            let what = format!("`{name}` is defined already, in line {}", first.line);
            return Err(Diagnostic::error(place, what, "choose another name, or remove one of both"));
        }
        self.names.insert(name.to_owned(), (meaning, place));
        Ok(())
    }

    /// The meaning of a name, if it is known.
    pub(crate) fn meaning(&self, name: &str) -> Option<Meaning> {
        builtin(name).or_else(|| self.names.get(name).map(|(meaning, _)| *meaning))
    }

    /// The meaning of a name that must be known.
    pub(crate) fn look_up(&self, name: &str, place: Place) -> Result<Meaning, Diagnostic> {
        self.meaning(name).ok_or_else(|| {
            let remedy = match self.nearest(name) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "define it: as a label, or by .const, .reg, .pred or .field".to_owned(),
            };
            Diagnostic::error(place, format!("unknown name `{name}`"), remedy)
        })
    }

    /// A number in an expression: a constant.
    pub(crate) fn constant(&self, name: &str, place: Place) -> Result<u64, Diagnostic> {
        match self.look_up(name, place)? {
            Meaning::Constant(value) => Ok(value),
            other => {
                let what = format!("`{name}` is {}, but a number is expected here", other.describe());
                Err(Diagnostic::error(place, what, "write a number, or a name that .const defines"))
            }
        }
    }

    /// Where the source defines a name.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.names.get(name).map_or(Place::default(), |(_, place)| *place)
    }

    /// Labels and their addresses.
    pub(crate) fn labels(&self) -> Vec<(String, usize)> {
        let labels = self.names.iter().filter_map(|(name, (meaning, _))| match meaning {
            Meaning::Label(address) => Some((name.clone(), *address)),
            _ => None,
        });
        let mut labels: Vec<_> = labels.collect();
        labels.sort_by_key(|(_, address)| *address);
        labels
    }

    /// Names of registers and predicates, by register.
    pub(crate) fn registers(&self) -> Vec<(String, Register)> {
        let named =
            self.names.iter().filter_map(|(name, (meaning, _))| Some((name.clone(), meaning.register()?)));
        let mut named: Vec<_> = named.collect();
        named.sort_by_key(|(_, register)| *register);
        named
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        if self.searches.get() == MAX_SEARCHES {
            return None;
        }
        self.searches.set(self.searches.get() + 1);
        nearest(name, self.names.keys().map(String::as_str))
    }
}

fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name) || AluOp::ALL.iter().any(|op| op.name() == name)
}

/// `r0` to `r15`, `t0` to `t15`, `p0` to `p15`, `out`.
fn builtin(name: &str) -> Option<Meaning> {
    if name == "out" {
        return Some(Meaning::Output);
    }
    let meaning: fn(Bits<4>) -> Meaning = match name.chars().next()? {
        'r' => Meaning::Register,
        't' => Meaning::Ternary,
        'p' => Meaning::Predicate,
        _ => return None,
    };
    let digits = name.get(1..)?;
    let is_number = digits.chars().all(|digit| digit.is_ascii_digit());
    let is_plain = is_number && (digits == "0" || !digits.starts_with('0'));
    let number = is_plain.then(|| digits.parse().ok())??;
    Bits::new(number).map(meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_for_similar_names_are_bounded() {
        let mut symbols = Symbols::default();
        let place = Place::default();
        (0..1_000)
            .for_each(|name| symbols.define(&format!("label{name}"), Meaning::Label(name), place).unwrap());
        let fixes: Vec<String> = (0..1_000)
            .map(|name| symbols.look_up(&format!("lable{name}"), place).unwrap_err().remedy)
            .collect();
        assert!(fixes[0].contains("did you mean `label0`?"), "{}", fixes[0]);
        assert_eq!(fixes.iter().filter(|remedy| remedy.contains("did you mean")).count(), MAX_SEARCHES);
        assert_eq!(symbols.searches.get(), MAX_SEARCHES);
        // A known name is not searched for.
        let symbols = Symbols { searches: Cell::new(0), ..symbols };
        assert!(symbols.meaning("label7").is_some() && symbols.meaning("lable7").is_none());
        assert_eq!(symbols.searches.get(), 0);
    }
}
