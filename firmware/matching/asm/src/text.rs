//! Disassembly and listings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use niclab_isa::word::IDENTITY;
use niclab_isa::{
    ALU_PREDICATE, Alu, AluOp, Bits, Branch, Copy, FIELDS, Half, Input, Predicate, TERNARY_PREDICATE,
    Ternary, Word,
};

use crate::hazards;
use crate::lists;
use crate::source::{Program, assemble};

/// The source of a program. Assembled, it gives the same words.
///
/// Some field values cannot result from statements of the language (a program that was not assembled may have any).
/// They follow `raw`. A program with hazards that the assembler refuses begins with `.unchecked`.
#[must_use]
pub fn disassemble(words: &[Word]) -> String {
    let names = target_names(words);
    let mut text = String::from("# Disassembled.\n");
    if hazards::find(words).iter().any(|finding| finding.warning.is_none()) {
        text.push_str(".unchecked\n");
    }
    for (address, word) in words.iter().enumerate() {
        if let Some(name) = names.get(&address) {
            let _ = writeln!(text, "\n{name}:");
        }
        let _ = writeln!(text, "        {}", statements(word, &names));
    }
    text
}

/// A listing: address, bits and statements of each word.
#[must_use]
pub fn listing(program: &Program) -> String {
    let mut text =
        format!("# {} words. Address, the 164 bits of the word, its slots.\n", program.words.len());
    for (address, (word, slots)) in program.words.iter().zip(lines(program)).enumerate() {
        for (name, _) in program.labels.iter().filter(|(_, labelled)| *labelled == address) {
            let _ = writeln!(text, "\n{name}:");
        }
        let [low, middle, high] = word.encode();
        let _ = writeln!(text, "{address:5}  {high:09x}_{middle:016x}_{low:016x}  {slots}");
    }
    text
}

/// Each word as a line of source, without its label.
#[must_use]
pub fn lines(program: &Program) -> Vec<String> {
    let mut names = target_names(&program.words);
    // If a word has several labels, branches use one of them.
    names.extend(program.labels.iter().map(|(name, address)| (*address, name.clone())));
    program.words.iter().map(|word| statements(word, &names)).collect()
}

type Names = BTreeMap<usize, String>;

/// Names for the targets of branches.
fn target_names(words: &[Word]) -> Names {
    let branches = words.iter().map(|word| word.branch).filter(|branch| !branch.is_never());
    let targets: BTreeSet<usize> = branches.map(|branch| branch.target.index()).collect();
    let targets = targets.into_iter().filter(|target| *target < words.len());
    targets.map(|target| (target, format!("word{target}"))).collect()
}

/// A word as a line of source.
fn statements(word: &Word, names: &Names) -> String {
    let said = said(word, names);
    // The result of these statements, assembled without names.
    let plain = said_or_nop(&self::said(word, &Names::new()));
    let given = assemble(&format!(".unchecked\n{plain}\n")).ok();
    let given = given.and_then(|program| program.words.first().copied()).unwrap_or_default().encode();
    let wanted = word.encode();
    let different = FIELDS.iter().filter(|field| field.get(given) != field.get(wanted));
    let raw: Vec<String> =
        different.map(|field| format!("{}.{} = {:#x}", field.slot, field.name, field.get(wanted))).collect();
    let mut parts = said;
    if !raw.is_empty() {
        parts.push(format!("raw {}", raw.join(", ")));
    }
    said_or_nop(&parts)
}

fn said_or_nop(parts: &[String]) -> String {
    if parts.is_empty() { "nop".to_owned() } else { parts.join(" | ") }
}

/// The statements of a word, without values that only `raw` can set.
fn said(word: &Word, names: &Names) -> Vec<String> {
    let units = [
        input(&word.input),
        ternary(&word.ternary),
        alu(&word.alu),
        copy(&word.copy),
        predicate(&word.predicate, false),
        predicate(&word.predicate, true),
        branch(&word.branch, names),
    ];
    units.into_iter().flatten().collect()
}

fn input(input: &Input) -> Option<String> {
    let mut targets = Vec::new();
    if input.alu.get() != 0 {
        targets.push(format!("r{}", input.alu));
    }
    if input.ternary.get() != 0 {
        targets.push(format!("t{}", input.ternary));
    }
    let is_permuted = input.ternary.get() != 0 && input.permute != IDENTITY;
    let permute = if is_permuted { lists::lanes_text(input.permute) } else { String::new() };
    input.take.then(|| match targets.join(", ") {
        none if none.is_empty() => "in".to_owned(),
        targets => format!("{targets} = in{permute}"),
    })
}

fn copy(copy: &Copy) -> Option<String> {
    let ternary = (copy.ternary.get() != 0).then(|| format!("t{}", copy.ternary));
    let targets: Vec<String> = ternary.into_iter().chain(copy.output.then(|| "out".to_owned())).collect();
    (!targets.is_empty())
        .then(|| format!("{} = copy r{}{}", targets.join(", "), copy.source, condition(copy.predicate)))
}

fn alu(alu: &Alu) -> Option<String> {
    let Alu { op, a, b, dest, .. } = *alu;
    let name = op.name();
    if op == AluOp::Permute {
        let bytes = lists::bytes_text(alu.byte_sources());
        let condition = condition(alu.predicate);
        return (dest.get() != 0).then(|| format!("r{dest} = {name} r{a}, r{b} {bytes}{condition}"));
    }
    let operand = match (alu.half, b.get()) {
        (Half::None, _) => format!("r{b}"),
        (Half::Lower, 0) => number(alu.immediate),
        (half, _) => format!("r{b} {} {}", half.name(), number(alu.immediate)),
    };
    let groups = groups(alu.join);
    if op.is_compare() {
        let targets = lanes(alu.lanes, ALU_PREDICATE)?;
        return Some(format!("{targets} {} {name} r{a}, {operand}{groups}", alu.combine.name()));
    }
    let condition = condition(alu.predicate);
    (dest.get() != 0).then(|| format!("r{dest} = {name} r{a}, {operand}{groups}{condition}"))
}

fn ternary(ternary: &Ternary) -> Option<String> {
    let Ternary { match0, match1, mask, ignore, join, combine, .. } = *ternary;
    let targets = lanes(ternary.lanes, TERNARY_PREDICATE)?;
    let mask = match (ignore, mask.get()) {
        (false, 0) => String::new(),
        (false, mask) => format!(", mask t{mask}"),
        (true, mask) => format!(", ignore t{mask}"),
    };
    Some(format!("{targets} {} match t{match0}, t{match1}{mask}{}", combine.name(), groups(join)))
}

fn predicate(unit: &Predicate, second: bool) -> Option<String> {
    let Predicate { a0, b0, function0, dest0, a1, b1, function1, dest1 } = *unit;
    let (a, b, function, dest) = if second { (a1, b1, function1, dest1) } else { (a0, b0, function0, dest0) };
    // A second function alone would be read as the first one.
    if dest.get() == 0 || dest0.get() == 0 {
        return None;
    }
    let function = match function.get() {
        0b0000 => "0".to_owned(),
        0b0001 => format!("!p{a} and !p{b}"),
        0b0010 => format!("!p{a} and p{b}"),
        0b0011 => format!("!p{a}"),
        0b0100 => format!("p{a} and !p{b}"),
        0b0101 => format!("!p{b}"),
        0b0110 => format!("p{a} xor p{b}"),
        0b0111 => format!("!p{a} or !p{b}"),
        0b1000 => format!("p{a} and p{b}"),
        0b1001 => format!("p{a} xor !p{b}"),
        0b1010 => format!("p{b}"),
        0b1011 => format!("!p{a} or p{b}"),
        0b1100 => format!("p{a}"),
        0b1101 => format!("p{a} or !p{b}"),
        0b1110 => format!("p{a} or p{b}"),
        _ => "1".to_owned(),
    };
    Some(format!("p{dest} = {function}"))
}

fn branch(branch: &Branch, names: &Names) -> Option<String> {
    let Branch { predicate, sense, target } = *branch;
    let target = names.get(&target.index()).map_or_else(|| target.to_string(), Clone::clone);
    match (predicate.get(), sense) {
        (0, false) => None,
        (0, true) => Some(format!("br {target}")),
        (predicate, true) => Some(format!("br {target} if p{predicate}")),
        (predicate, false) => Some(format!("br {target} if !p{predicate}")),
    }
}

fn condition(predicate: Bits<4>) -> String {
    if predicate.get() == 0 { String::new() } else { format!(" if p{predicate}") }
}

/// Empty if all lanes work as one.
fn groups(join: Bits<3>) -> String {
    if join.get() == Bits::<3>::MAX { String::new() } else { format!(" {}", lists::groups_text(join)) }
}

/// The predicates of lanes, the highest lane first.
fn lanes(lanes: Bits<4>, first: usize) -> Option<String> {
    let named = (0..4).rev().filter(|lane| lanes.has(*lane));
    let names: Vec<String> = named.map(|lane| format!("p{}", first + lane as usize)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn number(immediate: Bits<32>) -> String {
    let value = immediate.get();
    if value < 10 { value.to_string() } else { format!("{value:#x}") }
}

#[cfg(test)]
mod tests {
    use niclab_isa::{Combine, Field, WORD_BITS};
    use proptest::prelude::*;

    use super::*;

    /// Any valid word.
    fn any_word() -> impl Strategy<Value = Word> {
        let choices = (0..AluOp::ALL.len(), 0..Combine::ALL.len(), 0..Half::ALL.len(), 0..Combine::ALL.len());
        (any::<[u64; 3]>(), choices).prop_map(|(mut words, (op, combine, half, ternary))| {
            words[2] &= u64::MAX >> (192 - WORD_BITS);
            for (slot, name, value) in [
                ("alu", "op", op),
                ("alu", "combine", combine),
                ("alu", "half", half),
                ("ternary", "combine", ternary),
            ] {
                Field::named(slot, name).unwrap().set(&mut words, value as u64);
            }
            if Field::named("copy", "output").unwrap().get(words) == 1 {
                Field::named("copy", "ternary").unwrap().set(&mut words, 0);
            }
            Word::decode(words).unwrap()
        })
    }

    /// Any word in which some slots are empty.
    fn sparse_word() -> impl Strategy<Value = Word> {
        (any_word(), any::<[bool; 6]>()).prop_map(|(word, used)| {
            let mut sparse = Word::default();
            let [input, copy, alu, ternary, predicate, branch] = used;
            if input {
                sparse.input = Input { take: true, ..word.input };
            }
            if copy {
                sparse.copy = word.copy;
            }
            if alu {
                sparse.alu = word.alu;
            }
            if ternary {
                sparse.ternary = word.ternary;
            }
            if predicate {
                sparse.predicate = word.predicate;
            }
            if branch {
                sparse.branch =
                    Branch { target: Bits::truncated(word.branch.target.get() & 3), ..word.branch };
            }
            sparse
        })
    }

    proptest! {
        #[test]
        fn disassembled_program_assembles_to_the_same_words(
            words in prop::collection::vec(prop_oneof![any_word(), sparse_word()], 1..6)
        ) {
            let source = disassemble(&words);
            let program = assemble(&source);
            let program = program.map_err(|rejected| {
                let all: Vec<_> = rejected.diagnostics.iter().map(|d| d.render("d", &source)).collect();
                TestCaseError::fail(format!("{source}\n{}", all.concat()))
            })?;
            prop_assert_eq!(&program.words, &words, "{}", source);
            let _ = listing(&program);
        }
    }

    #[test]
    fn statements_of_the_language_need_no_raw_fields() {
        let source = "\
start:  r1, t2 = in[2 3 0 1] | p15, p12 |= match t1, t3, ignore t2 [32 10] | p9 &= lt r1, r2 lower 7 [3 2 1 0]
        | p1 = !p8 xor p3 | p7 = 1 | br start if !p15
        t1 = copy r3 if p4 | r5 = permute r1, r2 [0 a7 b6 0 a0 a1 a2 b0] if p9
        r4 = sub r1, r2 upper 0x1234 if p1 | br start
        in
        nop
";
        let words = assemble(source).unwrap().words;
        let text = disassemble(&words);
        assert!(!text.contains("raw") && !text.contains("unchecked"), "{text}");
        assert_eq!(assemble(&text).unwrap().words, words, "{text}");
    }

    #[test]
    fn listing_shows_labels_addresses_and_bits() {
        let program = assemble("one: two: r1 = in\n nop\n br two\n nop\n nop\n").unwrap();
        let listing = listing(&program);
        for line in [
            "one:",
            "two:",
            "    0  000000000_0000000000000000_0000000000000003  r1 = in",
            "    2  000400000_0000000000000000_0000000000000000  br two",
        ] {
            assert!(listing.lines().any(|listed| listed == line), "{line}: {listing}");
        }
    }
}
