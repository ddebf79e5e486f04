//! Checks that the program in docs/use/match/MACHINE.md is valid, and that the assembler accepts its table of
//! statements.

use niclab_asm::assemble;

const MANUAL: &str = include_str!("../../../../../docs/use/match/MACHINE.md");

#[test]
fn program_of_the_manual_assembles_without_warnings() {
    let program =
        MANUAL.split("```\n").nth(1).expect("docs/use/match/MACHINE.md shows a program between ``` lines");
    let assembled = assemble(program).unwrap_or_else(|rejected| panic!("{rejected:?}"));
    assert_eq!(assembled.warnings, []);
    assert_eq!(assembled.words.len(), 6);
}

#[test]
fn statements_of_the_manual_are_valid() {
    let table = MANUAL.split("### Statements").nth(1).and_then(|rest| rest.split("\n\n").nth(1));
    let rows = table.expect("docs/use/match/MACHINE.md has a table of statements").lines().skip(2);
    let mut statements = 0;
    for row in rows {
        let row = row.replace("\\|", "\x01");
        let cell = row.split('|').nth(1).unwrap_or_default().replace('\x01', "|");
        for statement in cell.split('`').skip(1).step_by(2) {
            let source = format!(".unchecked\nlabel: {statement}\n");
            assert!(assemble(&source).is_ok(), "{statement}: {:?}", assemble(&source));
            statements += 1;
        }
    }
    assert!(statements > 20, "{statements} statements");
}
