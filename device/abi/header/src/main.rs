//! Writes the `niclab-abi` crate in other forms: `niclab_abi.h` for the kernel driver and C programs, the tables of the
//! device programmer's manual, and the manual's rules.
//!
//! `cargo run -p niclab-abi-header` regenerates all committed copies. The tests below fail if a copy is stale.

mod rules;

use std::fmt::Write as _;
use std::path::Path;

/// An item of the header, in source order. `build.rs` writes the table of items.
enum Item {
    /// The begin of a module.
    Section { doc: &'static str },
    /// A constant.
    Constant { name: &'static str, value: u64, doc: &'static str },
    /// A structure: fields as name, Rust type, documentation.
    Layout {
        name: &'static str,
        bytes: u64,
        doc: &'static str,
        fields: &'static [(&'static str, &'static str, &'static str)],
    },
}

include!(concat!(env!("OUT_DIR"), "/items.rs"));

fn main() -> std::io::Result<()> {
    for (path, content) in [(HEADER, header()), (TABLES, tables()), (rules::PAGE, rules::page())] {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), content)?;
    }
    Ok(())
}

/// The committed C header, relative to this package.
const HEADER: &str = "../include/niclab_abi.h";
/// The committed tables of the manual, relative to this package.
const TABLES: &str = "../../../docs/reference/DEVICE-TABLES.md";

/// The tables of the manual.
fn tables() -> String {
    let mut out = String::from(TABLES_HEAD);
    let mut in_constants = false;
    for item in ITEMS {
        match *item {
            Item::Section { doc } => {
                let (title, rest) = doc.split_once('\n').unwrap_or((doc, ""));
                let _ = write!(out, "\n## {}\n{}\n", title.trim_end_matches('.'), plain(rest).trim_end());
                in_constants = false;
            }
            Item::Constant { name, value, doc } => {
                if !in_constants {
                    out.push_str("\n| constant | value | meaning |\n|---|---|---|\n");
                    in_constants = true;
                }
                let _ = writeln!(out, "| `{name}` | {} | {} |", number(value), cell(doc));
            }
            Item::Layout { name, bytes, doc, fields } => {
                in_constants = false;
                let _ = write!(out, "\n### {name}: {bytes} bytes\n\n{}\n\n", plain(doc));
                out.push_str("| offset | field | type | meaning |\n|---|---|---|---|\n");
                let mut offset = 0;
                for (field, kind, doc) in fields {
                    let _ = writeln!(out, "| {offset} | `{field}` | {kind} | {} |", cell(doc));
                    offset += bytes_of(kind);
                }
            }
        }
    }
    out
}

/// Number of bytes of a field.
fn bytes_of(kind: &str) -> u64 {
    match kind {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        _ => 8,
    }
}

fn number(value: u64) -> String {
    if value < 10_000 { value.to_string() } else { format!("{value:#x}") }
}

/// Documentation as one cell of a table.
fn cell(doc: &str) -> String {
    plain(doc).replace('\n', " ").replace('|', "\\|")
}

/// Documentation without links between items, which only rustdoc can follow.
fn plain(doc: &str) -> String {
    doc.replace("[`", "`").replace("`]", "`")
}

/// The complete header.
fn header() -> String {
    let mut out = String::from(HEAD);
    for item in ITEMS {
        match *item {
            Item::Section { doc } => {
                out.push_str("\n/*\n");
                for line in doc.lines() {
                    out.push_str(format!(" * {line}").trim_end());
                    out.push('\n');
                }
                out.push_str(" */\n");
            }
            Item::Constant { name, value, doc } => {
                comment(&mut out, "", doc);
                let suffix = if value > u64::from(u32::MAX) { "ULL" } else { "U" };
                let _ = writeln!(out, "#define NICLAB_{name} {}{suffix}", number(value));
            }
            Item::Layout { name, bytes, doc, fields } => layout(&mut out, name, bytes, doc, fields),
        }
    }
    out.push_str(TAIL);
    out
}

fn layout(out: &mut String, name: &str, bytes: u64, doc: &str, fields: &[(&str, &str, &str)]) {
    let c_name = snake_case(name);
    comment(out, "", doc);
    let _ = writeln!(out, "struct niclab_{c_name} {{");
    for (field, kind, doc) in fields {
        comment(out, "\t", doc);
        let _ = writeln!(out, "\t__{kind} {field};");
    }
    let _ = writeln!(out, "}};\nNICLAB_ASSERT_SIZE(struct niclab_{c_name}, {bytes});");
}

fn comment(out: &mut String, indent: &str, doc: &str) {
    let lines: Vec<&str> = doc.lines().collect();
    match lines.as_slice() {
        [] => {}
        [line] => {
            let _ = writeln!(out, "\n{indent}/* {line} */");
        }
        lines => {
            let _ = writeln!(out, "\n{indent}/*");
            for line in lines {
                out.push_str(format!("{indent} * {line}").trim_end());
                out.push('\n');
            }
            let _ = writeln!(out, "{indent} */");
        }
    }
}

/// `PortOpen` becomes `port_open`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

const HEAD: &str = "\
/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Generated from the niclab-abi crate by niclab-abi-header; do not edit.
 * References in brackets name items of that crate. All fields are little-endian.
 */
#ifndef NICLAB_ABI_H
#define NICLAB_ABI_H

#include <linux/types.h>

#ifdef __cplusplus
#define NICLAB_ASSERT_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), \"size of \" #type)
#else
#define NICLAB_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), \"size of \" #type)
#endif
";

const TAIL: &str = "\n#endif /* NICLAB_ABI_H */\n";

const TABLES_HEAD: &str = "\
# Tables of the device

Generated from the `niclab-abi` crate by `cargo run -p niclab-abi-header`; do not edit.
[DEVICE.md](../driver/DEVICE.md) explains how a driver uses them. All fields are little-endian; structures have no
padding.
";

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn committed(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the committed copy")
    }

    #[test]
    fn committed_header_is_current() {
        assert!(committed(super::HEADER) == super::header(), "stale: cargo run -p niclab-abi-header");
    }

    #[test]
    fn committed_tables_are_current() {
        assert!(committed(super::TABLES) == super::tables(), "stale: cargo run -p niclab-abi-header");
    }

    #[test]
    fn field_sizes_sum_to_the_size_of_their_structure() {
        for item in super::ITEMS {
            if let super::Item::Layout { name, bytes, fields, .. } = item {
                let sum: u64 = fields.iter().map(|(_, kind, _)| super::bytes_of(kind)).sum();
                assert_eq!(sum, *bytes, "{name}");
            }
        }
    }
}
