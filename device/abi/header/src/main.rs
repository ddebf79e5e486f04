//! Prints `niclab_abi.h`, the C form of the `niclab-abi` crate, for the kernel driver and C programs.
//!
//! `cargo run -p niclab-abi-header > device/abi/include/niclab_abi.h` renews the committed copy; the test below fails
//! when it is stale.

use std::fmt::Write as _;

/// One thing of the header, in source order. The table is written by `build.rs`.
enum Item {
    /// A module begins.
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

fn main() {
    print!("{}", header());
}

/// The whole header.
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
                let digits = if value < 10_000 { value.to_string() } else { format!("{value:#x}") };
                let _ = writeln!(out, "#define NICLAB_{name} {digits}{suffix}");
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn committed_header_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/niclab_abi.h");
        let committed = std::fs::read_to_string(&path).expect("the committed header");
        assert!(
            committed == super::header(),
            "{} is stale: cargo run -p niclab-abi-header > device/abi/include/niclab_abi.h",
            path.display()
        );
    }
}
