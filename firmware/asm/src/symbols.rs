//! Names: what the machine calls its registers, and what a source calls things.

use std::collections::BTreeMap;

use niclab_isa::{AluOp, Bits};

use crate::diagnostic::{Diagnostic, Place};

/// What a name stands for.
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

/// Names that the language uses itself, beside those of ALU operations and registers.
const KEYWORDS: &[&str] =
    &["in", "out", "copy", "match", "mask", "ignore", "if", "br", "nop", "raw", "lower", "upper", "a", "b"];

/// The names of a source.
#[derive(Default)]
pub(crate) struct Symbols {
    names: BTreeMap<String, (Meaning, Place)>,
}

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

    /// What a name stands for.
    pub(crate) fn look_up(&self, name: &str, place: Place) -> Result<Meaning, Diagnostic> {
        let known = builtin(name).or_else(|| self.names.get(name).map(|(meaning, _)| *meaning));
        known.ok_or_else(|| {
            let mend = match self.nearest(name) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "define it: as a label, or by .const, .reg, .pred or .field".to_owned(),
            };
            Diagnostic::error(place, format!("nothing is called `{name}`"), mend)
        })
    }

    /// A number in an expression: a constant.
    pub(crate) fn constant(&self, name: &str, place: Place) -> Result<u64, Diagnostic> {
        match self.look_up(name, place)? {
            Meaning::Constant(value) => Ok(value),
            other => {
                let what = format!("`{name}` is {}, and a number must stand here", other.describe());
                Err(Diagnostic::error(place, what, "write a number, or a name that .const defines"))
            }
        }
    }

    /// Where a name of the source was defined.
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

    fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.names.keys().map(String::as_str))
    }
}

/// The candidate that a misspelt name most likely means.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
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
