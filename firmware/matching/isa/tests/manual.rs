//! docs/use/match/MACHINE.md shows the field table of the source.

use std::fmt::Write as _;

use niclab_isa::{AluOp, FIELDS};

const MANUAL: &str = include_str!("../../../../docs/use/match/MACHINE.md");

/// All fields as a table.
fn fields() -> String {
    let mut table = String::from("| bits | slot | field | width | meaning |\n|---|---|---|---|---|\n");
    for field in FIELDS {
        let last = field.first + field.bits - 1;
        let bits = if last == field.first { last.to_string() } else { format!("{last}..{}", field.first) };
        let (slot, name, width) = (field.slot, field.name, field.bits);
        let _ = writeln!(table, "| {bits} | {slot} | `{name}` | {width} | {} |", field.meaning);
    }
    table
}

/// The ALU's operations and their numbers.
fn operations() -> String {
    let named: Vec<String> =
        AluOp::ALL.iter().enumerate().map(|(number, op)| format!("{number} `{}`", op.name())).collect();
    named.join(", ")
}

#[test]
fn manual_shows_the_fields_of_the_source() {
    for part in [fields(), operations()] {
        assert!(
            MANUAL.contains(&part),
            "docs/use/match/MACHINE.md differs from the source; it must contain:\n\n{part}"
        );
    }
}
