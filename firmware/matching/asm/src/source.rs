//! Assembles a source in two passes: the first finds names and the addresses of words, the second reads the words.

use std::collections::BTreeSet;

use niclab_isa::{MAX_WORDS, Word};

use crate::cursor::Cursor;
use crate::hazards::{self, Finding, Warning};
use crate::lexer::{Kind, SEPARATOR, Token, tokens};
use crate::statement::{Builder, Places};
use crate::symbols::{Meaning, Register, Symbols};
use niclab_source::{Diagnostic, Place, Rejected, Report, nearest};

type Result<T> = std::result::Result<T, Diagnostic>;

/// An assembled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its words; execution begins with the first.
    pub words: Vec<Word>,
    /// Labels and their addresses, by address.
    pub labels: Vec<(String, usize)>,
    /// The source text of each word, without labels and comments, on one line. An image has none.
    pub texts: Vec<String>,
    /// The source's names of registers and predicates; a register may have several.
    pub names: Vec<(String, Register)>,
    /// Warnings, by place: at most [`MAX_DIAGNOSTICS`](niclab_source::MAX_DIAGNOSTICS).
    pub warnings: Vec<Diagnostic>,
    /// Number of further warnings.
    pub more_warnings: usize,
}

impl Program {
    /// A program with words only, as an image contains it.
    #[must_use]
    pub fn of_words(words: Vec<Word>) -> Self {
        let (labels, texts, names, warnings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { words, labels, texts, names, warnings, more_warnings: 0 }
    }
}

/// Assembles a source.
///
/// # Errors
/// [`Rejected`] lists the source's errors.
pub fn assemble(source: &str) -> std::result::Result<Program, Rejected> {
    let mut assembler = Assembler::default();
    assembler.collect(source);
    let words = assembler.words();
    assembler.check(&words);
    let Assembler { report, symbols, lines, .. } = assembler;
    let (warnings, more_warnings) = report.finish()?;
    let words = words.into_iter().map(|(word, _)| word).collect();
    let texts = lines.into_iter().map(|line| line.text).collect();
    let (labels, names) = (symbols.labels(), symbols.registers());
    Ok(Program { words, labels, texts, names, warnings, more_warnings })
}

/// The statements of one word.
struct Line {
    tokens: Vec<Token>,
    /// The line as written.
    text: String,
    allowed: BTreeSet<Warning>,
}

#[derive(Default)]
struct Assembler {
    symbols: Symbols,
    lines: Vec<Line>,
    report: Report,
    /// Warnings that `.allow` has named since the last word.
    allowed: BTreeSet<Warning>,
    /// Whether the source contains `.unchecked`.
    unchecked: bool,
}

impl Assembler {
    /// The first pass.
    fn collect(&mut self, source: &str) {
        for (index, line) in source.lines().enumerate() {
            let tokens = tokens(line, index + 1, &mut self.report);
            if tokens.first().is_some_and(|token| token.kind == SEPARATOR) {
                self.continue_word(tokens, line);
                continue;
            }
            let mut rest = tokens.as_slice();
            while let [Token { kind: Kind::Name(name), place }, colon, behind @ ..] = rest
                && colon.kind == Kind::Symbol(":")
            {
                let defined = self.symbols.define(name, Meaning::Label(self.lines.len()), *place);
                self.note(defined);
                rest = behind;
            }
            match rest.first().map(|token| &token.kind) {
                None => {}
                Some(Kind::Symbol(".")) => {
                    let done = self.directive(rest);
                    self.note(done);
                }
                Some(_) => {
                    let allowed = std::mem::take(&mut self.allowed);
                    self.lines.push(Line { tokens: rest.to_vec(), text: text_of(rest, line), allowed });
                }
            }
        }
        let dangling = self.symbols.labels().into_iter().filter(|(_, address)| *address >= self.lines.len());
        for (name, _) in dangling.collect::<Vec<_>>() {
            let place = self.symbols.place_of(&name);
            let what = format!("no word follows label `{name}`");
            self.report.push(Diagnostic::error(place, what, "write a word after it, or remove it"));
        }
        self.check_size();
    }

    /// A line that begins with a separator continues the word before it.
    fn continue_word(&mut self, tokens: Vec<Token>, text: &str) {
        let place = tokens.first().map_or(Place::default(), |token| token.place);
        match self.lines.last_mut() {
            Some(line) => {
                line.text.push(' ');
                line.text += &text_of(&tokens, text);
                line.tokens.extend(tokens);
            }
            None => self.report.push(Diagnostic::error(
                place,
                "no word precedes this line, so it cannot continue one",
                "remove the | at its start",
            )),
        }
    }

    fn check_size(&mut self) {
        if let Some(first) = self.lines.get(MAX_WORDS) {
            let place = first.tokens.first().map_or(Place::default(), |token| token.place);
            let what = format!("the program has {} words", self.lines.len());
            let remedy = format!("make it shorter: a branch reaches {MAX_WORDS}");
            self.report.push(Diagnostic::error(place, what, remedy));
        }
        if self.lines.is_empty() && self.report.is_empty() {
            let place = Place { line: 1, column: 1, width: 1 };
            let remedy = "write at least one word: `nop` does nothing";
            self.report.push(Diagnostic::error(place, "the program has no word", remedy));
        }
    }

    fn note(&mut self, result: Result<()>) {
        result.err().into_iter().for_each(|error| self.report.push(error));
    }

    /// `.const NAME = NUMBER` and the other directives.
    fn directive(&mut self, tokens: &[Token]) -> Result<()> {
        const REMEDY: &str = "write .const, .field, .reg, .pred, .allow or .unchecked";
        let place = tokens.first().map_or(Place::default(), |token| token.place);
        let mut cursor = Cursor::new(tokens, &self.symbols, place);
        cursor.take();
        let (directive, place) = cursor.name("a directive", REMEDY)?;
        if directive == "unchecked" {
            cursor.end()?;
            self.unchecked = true;
            return Ok(());
        }
        if directive == "allow" {
            let (name, place) = cursor.name("a warning", "name the warning, as its message does")?;
            cursor.end()?;
            self.allowed.insert(warning(name, place)?);
            return Ok(());
        }
        if !["const", "field", "reg", "pred"].contains(&directive) {
            let what = format!("there is no directive .{directive}");
            return Err(Diagnostic::error(place, what, REMEDY));
        }
        let (name, place) = cursor.name("a name", "write the name to define")?;
        let meaning = match directive {
            "const" => {
                cursor.expect("=", "write .const NAME = NUMBER")?;
                Meaning::Constant(cursor.expression()?)
            }
            "field" => field(&mut cursor)?,
            "pred" => Meaning::Predicate(cursor.predicate()?),
            _ => register(&mut cursor)?,
        };
        cursor.end()?;
        let name = name.to_owned();
        self.symbols.define(&name, meaning, place)
    }

    /// The second pass. A word with an error becomes an empty word, so that addresses stay.
    fn words(&mut self) -> Vec<(Word, Places)> {
        let mut words = Vec::new();
        for line in &self.lines {
            let first = line.tokens.first().map_or(Place::default(), |token| token.place);
            let mut builder = Builder::new(&self.symbols, whole(&line.tokens));
            let mut before = first;
            for statement in line.tokens.split(|token| token.kind == SEPARATOR) {
                let result = builder.statement(statement, before);
                result.err().into_iter().for_each(|error| self.report.push(error));
                before = statement.last().map_or(before, |token| token.place);
            }
            match builder.finish() {
                Ok(word) => words.push(word),
                Err(diagnostic) => {
                    self.report.push(diagnostic);
                    words.push((Word::default(), Places::at(first)));
                }
            }
        }
        words
    }

    /// Finds hazards in a program without errors so far.
    fn check(&mut self, words: &[(Word, Places)]) {
        if self.unchecked || !self.report.is_empty() {
            return;
        }
        let program: Vec<Word> = words.iter().map(|(word, _)| *word).collect();
        for finding in hazards::find(&program) {
            let allowed = self.lines.get(finding.address).map(|line| &line.allowed);
            let is_allowed = finding
                .warning
                .is_some_and(|warning| allowed.is_some_and(|allowed| allowed.contains(&warning)));
            let places = words.get(finding.address).map(|(_, places)| places);
            if let Some(places) = places.filter(|_| !is_allowed) {
                let place = finding.unit.map_or(places.word, |unit| places.of(unit));
                let remedy = match finding.warning {
                    Some(warning) => format!("{}: .allow {} before it", finding.remedy, warning.name()),
                    None => finding.remedy,
                };
                let Finding { warning, what, .. } = finding;
                let warning = warning.map(Warning::name);
                self.report.push(Diagnostic { place, warning, what, remedy });
            }
        }
    }
}

/// `.reg NAME r3` or `t3`.
fn register(cursor: &mut Cursor) -> Result<Meaning> {
    const REMEDY: &str = "write r0 to r15 or t0 to t15; predicates are named by .pred";
    let (name, place) = cursor.name("a register", REMEDY)?;
    match cursor.symbols.look_up(name, place)? {
        meaning @ (Meaning::Register(_) | Meaning::Ternary(_)) => Ok(meaning),
        other => Err(Diagnostic::error(place, format!("`{name}` is {}", other.describe()), REMEDY)),
    }
}

/// `.field NAME = HIGH..LOW`
fn field(cursor: &mut Cursor) -> Result<Meaning> {
    const REMEDY: &str = "write .field NAME = HIGH..LOW, bits 63 to 0";
    cursor.expect("=", REMEDY)?;
    let place = cursor.place();
    let high = cursor.expression()?;
    cursor.expect("..", REMEDY)?;
    let low = cursor.expression()?;
    let bit = |bit: u64| u32::try_from(bit).ok().filter(|bit| *bit < u64::BITS);
    match (bit(low), bit(high)) {
        (Some(low), Some(high)) if low <= high => Ok(Meaning::Field { low, high }),
        _ => {
            let what = format!("{high}..{low} are not bits of a 64-bit word");
            Err(Diagnostic::error(place.to(cursor.last()), what, REMEDY))
        }
    }
}

fn warning(name: &str, place: Place) -> Result<Warning> {
    let known = Warning::ALL.iter().find(|warning| warning.name() == name);
    known.copied().ok_or_else(|| {
        let names: Vec<&str> = Warning::ALL.iter().map(|warning| warning.name()).collect();
        let remedy = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write {}", names.join(", ")),
        };
        Diagnostic::error(place, format!("there is no warning `{name}`"), remedy)
    })
}

/// The source text from the first token to the last, with single spaces.
fn text_of(tokens: &[Token], line: &str) -> String {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return String::new() };
    let from = first.place.column.saturating_sub(1);
    let characters = (last.place.column + last.place.width).saturating_sub(first.place.column);
    let part: String = line.chars().skip(from).take(characters).collect();
    part.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The place from the first token to the last one of the same line.
fn whole(tokens: &[Token]) -> Place {
    let first = tokens.first().map_or(Place::default(), |token| token.place);
    let last = tokens.iter().rfind(|token| token.place.line == first.line);
    last.map_or(first, |last| first.to(last.place))
}

#[cfg(test)]
mod tests {
    use niclab_isa::word::ByteSource::{A, B, Zero};
    use niclab_isa::{AluOp, Bits, Combine, Half};
    use proptest::prelude::*;

    use super::*;

    /// The word of a line, with definitions before it.
    fn word(line: &str) -> Word {
        let source = format!(
            ".const BIG = 1 << 40\n.const FOUR = 2 * (1 + 1)\n.field nid = 63..32\n.field end = 6..6\n\
             .reg length r3\n.reg bits t5\n.pred found p15\n{line}\n"
        );
        let program = assemble(&format!(".unchecked\n{source}"));
        program.unwrap_or_else(|rejected| panic!("{line}: {rejected:?}")).words[0]
    }

    /// The messages for a source, with their lines and columns.
    fn complaints(source: &str) -> Vec<String> {
        let diagnostics = match assemble(source) {
            Ok(program) => program.warnings,
            Err(Rejected { mut diagnostics, .. }) => {
                diagnostics.retain(|diagnostic| diagnostic.warning.is_none());
                diagnostics
            }
        };
        let text = |diagnostic: &Diagnostic| {
            let Place { line, column, .. } = diagnostic.place;
            format!("{line}:{column}: {}; {}", diagnostic.what, diagnostic.remedy)
        };
        diagnostics.iter().map(text).collect()
    }

    /// Asserts that a word has one message, at this place, with this part.
    fn complains(line: &str, place: &str, part: &str) {
        let complaints = complaints(line);
        let [complaint] = complaints.as_slice() else { panic!("{line}: {complaints:?}") };
        assert!(complaint.starts_with(place) && complaint.contains(part), "{line}: {complaint}");
    }

    #[test]
    fn every_statement_sets_its_units_slot() {
        let input = word("r7, bits = in[2 3 0 1]").input;
        assert!(input.take);
        assert_eq!((input.alu.get(), input.ternary.get(), input.permute.get()), (7, 5, 0b10_11_00_01));
        let copy = word("bits = copy length if found").copy;
        assert_eq!((copy.source.get(), copy.ternary.get(), copy.output), (3, 5, false));
        assert!(word("out = copy length").copy.output);
        assert_eq!(copy.predicate.get(), 15);
        let alu = word("r4 = sub r1, r2 upper FOUR [32 10] if p9").alu;
        assert_eq!((alu.op, alu.a.get(), alu.b.get(), alu.dest.get()), (AluOp::Subtract, 1, 2, 4));
        assert_eq!((alu.half, alu.immediate.get(), alu.join.get()), (Half::Upper, 4, 0b101));
        assert_eq!(alu.predicate.get(), 9);
        let compare = word("p11, p8 &= ge length, r2 [321 0]").alu;
        assert_eq!((compare.op, compare.combine), (AluOp::GreaterOrEqual, Combine::And));
        assert_eq!((compare.lanes.get(), compare.join.get()), (0b1001, 0b110));
        let ternary = word("found |= match t1, bits, ignore t2").ternary;
        assert_eq!((ternary.match0.get(), ternary.match1.get(), ternary.mask.get()), (1, 5, 2));
        assert!(ternary.ignore && ternary.combine == Combine::Or && ternary.lanes.get() == 0b1000);
        let branch = word("there: br there if !p3").branch;
        assert_eq!((branch.predicate.get(), branch.sense, branch.target.get()), (3, false, 0));
    }

    #[test]
    fn numbers_use_the_half_that_holds_them() {
        let operand = |line| {
            let alu = word(line).alu;
            (alu.b.get(), alu.half, alu.immediate.get())
        };
        assert_eq!(operand("r1 = add r2, FOUR + 1 << 1"), (0, Half::Lower, 10));
        assert_eq!(operand("r1 = add r2, BIG"), (0, Half::Upper, 0x100));
        assert_eq!(operand("r1 = and r2, mask(nid)"), (0, Half::Upper, u32::MAX));
        assert_eq!(operand("r1 = and r2, mask(end)"), (0, Half::Lower, 0x40));
        assert_eq!(operand("r1 = or r0, r1 lower 'A'"), (1, Half::Lower, 65));
    }

    #[test]
    fn permutations_name_bytes_from_the_highest_on() {
        let alu = word("r1 = permute r2, length [0000 a.nid]").alu;
        assert_eq!(alu.byte_sources(), [A(4), A(5), A(6), A(7), Zero, Zero, Zero, Zero]);
        let alu = word("r1 = permute r2, length [a7 b6 0 0 b.nid]").alu;
        assert_eq!(alu.byte_sources(), [B(4), B(5), B(6), B(7), Zero, Zero, B(6), A(7)]);
    }

    #[test]
    fn predicate_functions_are_truth_tables() {
        for (text, table) in [
            ("p8 and p9", 0b1000),
            ("p8 or p9", 0b1110),
            ("p8 xor p9", 0b0110),
            ("!p8 and p9", 0b0010),
            ("p8 or !p9", 0b1101),
            ("p8", 0b1100),
            ("!p8", 0b0011),
            ("0", 0b0000),
            ("1", 0b1111),
        ] {
            assert_eq!(word(&format!("p1 = {text}")).predicate.function0.get(), table, "{text}");
        }
        let both = word("p1 = p8 | p2 = p9").predicate;
        assert_eq!((both.dest0.get(), both.dest1.get(), both.a1.get()), (1, 2, 9));
    }

    #[test]
    fn lines_continue_words_and_raw_fields_take_precedence() {
        let word =
            word("r1 = in   # the first\n  | out = copy r2\n  | raw copy.source = 9, branch.target = 3");
        assert!(word.input.take && word.copy.output);
        assert_eq!((word.copy.source, word.branch.target), (Bits::truncated(9), Bits::truncated(3)));
    }

    #[test]
    fn errors_name_the_place_and_the_fix() {
        complains("r1 = ad r2, 4", "1:6: unknown name `ad`", "`add`?");
        complains("r1 = add r2 4", "1:13: `,` is expected here", "comma");
        complains("r1 = add r2,", "1:12: ", "missing after this");
        complains("r0 = add r1, r2", "1:1: r0 is constant", "another");
        complains("p8 = p1 and p2", "1:1: p8 is not written by the predicate unit", "p1 to p7");
        complains("p3 = eq r1, r2", "1:1: ", "p8 to p11");
        complains("r1 = in | r2 = in", "1:11: the word uses the input FIFO unit already", "another word");
        complains("p1 = p8 | p2 = p8 | p3 = p8", "1:21: the word uses both functions", "another word");
        complains("r1 = or r0, 0x1_0000_0001", "1:13: 0x100000001 is not an immediate", "two words");
        complains("r1 = add r1, 1 if !p3", "1:19: this unit works only when", "p1 = !p5");
        complains("p11 = eq r1, r2 if p1", "1:17: a comparison looks at no predicate", "&=");
        complains("r1 = add r1, r2 [321]", "1:17: ", "[32 10]");
        complains("r1 = permute r1, r2 [a0]", "1:21: [a0] names 1 bytes", "eight");
        complains("t1, out = copy r1", "1:1: the data copy unit has one destination", "another word");
        complains("raw copy.ternary = 1, copy.output = 1", "1:5: slot `copy`", "MACHINE.md");
        complains("out = copy t1", "1:12: `t1` is a ternary register", "r0 to r15");
        complains(".const X = 1\n.const X = 2\nnop", "2:8: `X` is defined already, in line 1", "");
        complains(".const r1 = 1\nnop", "1:8: `r1` is a name of the language", "");
        complains(".reg x p1\nnop", "1:8: `p1` is a predicate", ".pred");
        complains(".field f = 0..64\nnop", "1:12: ", "bits 63 to 0");
        complains(".allow stale_predicates\nnop", "1:8: ", "`stale_predicate`?");
        complains("start: nop\nbr strat", "2:4: unknown name `strat`", "`start`?");
        complains("nop\nend:", "2:1: no word follows label `end`", "");
        complains("raw alu.sum = 1", "1:5: no slot has a field", "MACHINE.md");
        complains("raw alu.op = 13", "1:5: field `op` of slot `alu` is 13", "");
        complains("raw alu.op = 32", "1:14: 32 does not fit", "0 to 31");
        complains("| nop", "1:1: ", "|");
        complains("br 9", "1:1: there is no word 9", "label");
        complains("# nothing\n", "1:1: the program has no word", "nop");
        complains(&format!("r1 = add r1, {}1", "(".repeat(40)), "1:46: ", ".const");
    }

    #[test]
    fn all_errors_of_a_source_are_shown() {
        let complaints = complaints("r1 = in | r2 = ad r1\nbr nowhere\n  § nop\nr0 = in\n");
        let places: Vec<&str> = complaints.iter().filter_map(|text| text.split(' ').next()).collect();
        assert_eq!(places, ["1:16:", "2:4:", "3:3:", "4:1:"]);
    }

    /// A source with only errors: the number of errors, and the bytes of all messages.
    fn said_of(source: &str) -> (usize, usize) {
        let rejected = assemble(source).unwrap_err();
        assert_eq!(rejected.diagnostics.len() + rejected.more, rejected.errors);
        assert!(rejected.diagnostics.len() <= niclab_source::MAX_DIAGNOSTICS);
        let text = niclab_source::render(&rejected.diagnostics, rejected.more, "x.nma", source);
        assert!(text.contains(&format!("x.nma: and {} more", rejected.more)) == (rejected.more > 0));
        (rejected.errors, text.len())
    }

    #[test]
    fn output_for_any_number_of_errors_is_bounded() {
        const MAX_BYTES: usize = 30_000;
        let lines = |line: &dyn Fn(usize) -> String| (0..40_000).map(line).collect::<String>();
        let long = "x".repeat(100_000);
        for (source, errors) in [
            // Messages with their whole line, found from the start of the source, would take 27 s and 24 GB.
            (lines(&|number| format!("r1 = wrong{number}\n")), 40_000),
            (format!("nop {}", "|".repeat(100_000)), 100_000),
            // Each name is compared with all known names.
            (lines(&|number| format!("label{number}: nop | br lable{number}\n")), 40_001),
            (lines(&|number| format!(".const name{number} = naem{number}\n")), 40_000),
            (format!("nop | {}", "§ ".repeat(100_000)), 100_000),
            (format!("nop\n{}", lines(&|number| format!("l{number}: "))), 40_000),
            (format!("{long}\nnop\n.{long}\n.reg {long} {long}\nr1 = permute r1, r2 [{long}]\n"), 4),
        ] {
            let (found, said) = said_of(&source);
            assert!(found >= errors, "{found} of {errors}");
            assert!(said < MAX_BYTES, "{said} bytes of messages for {found} errors");
        }
    }

    #[test]
    fn two_writes_to_one_register_are_refused() {
        complains("r1 = in | r1 = add r1, 1", "1:11: two units write r1 in one word", "another word");
        complains("t1 = in | t1 = copy r1", "1:11: two units write t1", "another word");
        complains("p1 = p8 | p1 = p9", "1:11: two units write p1", "another word");
        assert!(assemble("r1, t1 = in | t2 = copy r1 | r2 = add r1, 1 | br 0\nnop\nnop").is_ok());
    }

    #[test]
    fn timing_hazards_cause_warnings_that_can_be_allowed() {
        const END: &str = "\nnop\nnop\nend: br end\nnop\nnop\n";
        complains(
            &format!("p8 = eq r1, r2 | br end if p8{END}"),
            "1:18: p8 is computed in this word",
            ".allow",
        );
        complains(&format!("p1 = p8 | p2 = p1 and p3{END}"), "1:11: p1 is computed in this word", "later");
        complains(
            &format!("br end if p1\nnop\nbr end if p2{END}"),
            "3:1: this branch is in a delay slot",
            "word 0",
        );
        complains("br 0\nnop", "2:1: execution runs past the last word", "delay slots");
        complains(
            &format!("br end\nnop\nnop\nnop\nnop{END}"),
            "4:1: no path leads to words 3 to 6",
            "remove",
        );
        // Without warning: a collecting predicate, a new value one word later, and allowed warnings.
        assert!(
            complaints(&format!("p1 = p1 and p8 | p8 = eq r1, r2\nbr end if p8\nnop\nnop{END}")).len() == 1
        );
        assert_eq!(
            complaints(&format!("p1 = p1 and p9 | p8 = eq r1, r2\nbr end if p8\nnop\nnop{END}")),
            [""; 0]
        );
        let allowed = format!("br end if p1\n.allow branch_in_delay_slot\nbr end if p2{END}");
        assert_eq!(complaints(&allowed), [""; 0]);
    }

    #[test]
    fn program_has_the_texts_and_names_of_its_source() {
        let source = ".reg length r3\n.reg bits t5\n.pred found p15\n.reg again r3\n.const FOUR = 4\n\
                      x: y:  length =  add again,\tFOUR # sum\n  | bits = in  # and more\n  \n br x\nnop\nnop\n";
        let program = assemble(source).unwrap();
        assert_eq!(program.texts, ["length = add again, FOUR | bits = in", "br x", "nop", "nop"]);
        let names: Vec<_> = program.names.iter().map(|(name, register)| (name.as_str(), *register)).collect();
        let alu = Register::Alu(3);
        let expected = [
            ("again", alu),
            ("length", alu),
            ("bits", Register::Ternary(5)),
            ("found", Register::Predicate(15)),
        ];
        assert_eq!(names, expected);
        assert_eq!(Register::named("r3"), Some(alu));
        assert_eq!((Register::named("p16"), Register::named("out")), (None, None));
        assert_eq!(expected.map(|(_, register)| register.to_string()), ["r3", "r3", "t5", "p15"]);
    }

    #[test]
    fn a_message_shows_the_line() {
        let source = "nop\n\tr1 = add r2, wrong\n";
        let rejected = assemble(source).unwrap_err();
        let text = rejected.diagnostics[0].render("x.nma", source);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "x.nma:2:15: error: unknown name `wrong`");
        assert_eq!(lines[1], "  2 |  r1 = add r2, wrong");
        assert_eq!(lines[2], "    |               ^^^^^");
        assert!(lines[3].starts_with("  fix: "), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_is_assembled_without_panic(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "r1", "t2", "p3", "p9", "p15", "out", "=", "&=", "|=", "|", ",", "in", "copy", "match", "add", "eq",
                "permute", "[3210]", "[", "]", "(", ")", "7", "0xfffffffffffffffff", "'", "'a'", "br", "if",
                "!", "x:", "x", ".const", ".field", ".allow", "..", ".", "raw", "alu", "<<", "-", "*", "mask",
                "\n", "\n", "ä", "#", "nop", "and",
            ]), 0..60),
            noise in "\\PC{0,20}",
        ) {
            let source = format!("{}{noise}", pieces.join(" "));
            if let Err(rejected) = assemble(&source) {
                prop_assert!(rejected.diagnostics.iter().any(|diagnostic| diagnostic.warning.is_none()));
                for diagnostic in &rejected.diagnostics {
                    let _ = diagnostic.render("x", &source);
                }
            }
        }
    }
}
