//! Checks that the assembly in docs/use/ASSEMBLIES.md is CONF1, and that its table of components matches the table of
//! kinds.

use niclab_components::kinds::{Direction, KINDS, Port, Row, Source, Values};
use niclab_components::{Block, Bundled};

const MANUAL: &str = include_str!("../../../../../docs/use/ASSEMBLIES.md");

#[test]
fn assembly_of_the_manual_is_conf1() {
    let source = MANUAL.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let assembly = niclab_stitcher::read(source.expect("an assembly between ```toml and ```"));
    let assembly = assembly.unwrap_or_else(|rejected| panic!("{rejected:?}"));
    let conf1 = Bundled::named("conf1").unwrap().assembly();
    let components = |assembly: &niclab_components::Assembly| {
        let mut names: Vec<_> = assembly.components().to_vec();
        names.sort_by(|a, b| a.name().cmp(b.name()));
        names
    };
    assert_eq!(components(&assembly), components(&conf1));
}

/// A kind's ports of one direction. A port whose name differs from its type is shown with its type.
fn ports(row: &Row, direction: Direction) -> String {
    let name = |port: &Port| {
        let carries = port.carries.name();
        let carried = if port.name.starts_with(carries.trim_end_matches('y')) || carries == "any" {
            String::new()
        } else {
            format!(" ({carries})")
        };
        format!("`{}`{carried}{}", port.name, if port.may_be_closed { "?" } else { "" })
    };
    let ports = row.ports.iter().filter(|port| port.leads(direction)).map(name);
    ports.collect::<Vec<_>>().join(", ")
}

fn parameters(row: &Row) -> String {
    let parameters = row.parameters.iter().map(|setting| {
        let default = setting.values.text(setting.default);
        let limits = match setting.values {
            Values::Flag => default,
            values => format!("{default}; {}", values.in_words()),
        };
        format!("`{}` ({limits})", setting.parameter.name())
    });
    parameters.collect::<Vec<_>>().join(", ")
}

#[test]
fn table_of_the_manual_equals_the_table_of_kinds() {
    let rows = KINDS.iter().map(|row| {
        let block = match row.block {
            Block::None => String::new(),
            block => format!("{block:?}"),
        };
        let taken = row.resources;
        let taken = match row.source {
            Source::Own if taken.flip_flops == 0 => String::new(),
            source => format!("{}/{} {}", taken.flip_flops, taken.luts, format!("{source:?}").to_lowercase()),
        };
        let (inputs, outputs) = (ports(row, Direction::In), ports(row, Direction::Out));
        format!("| `{}` | {block} | {inputs} | {outputs} | {} | {taken} |\n", row.name, parameters(row))
    });
    let table = rows.collect::<String>().replace("  ", " ");
    let head =
        "| kind | block | in | out | parameters (default; limits) | FF/LUT |\n|---|---|---|---|---|---|\n";
    let found = MANUAL.split(head).nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    assert_eq!(found.trim_end(), table.trim_end(), "docs/use/ASSEMBLIES.md has this table:\n{head}{table}");
}
