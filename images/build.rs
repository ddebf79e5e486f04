//! Embeds the source of the kernel module, so that an installed `niclab` can build it anywhere.
//!
//! Writes `$OUT_DIR/module_sources.rs`: one slice of `(file name, content)`, in the order of the names. Build products
//! in the same folder are omitted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut sources = Vec::new();
    for folder in ["../guest-driver/kernel", "../device/abi/include"] {
        collect(&here.join(folder), &mut sources)?;
    }
    sources.sort();

    let mut code = String::from("&[\n");
    for (name, path) in &sources {
        let _ = writeln!(code, "    ({name:?}, include_bytes!({path:?})),");
    }
    code.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("module_sources.rs"), code)
}

/// Adds the module's sources in a folder; a missing folder adds nothing.
fn collect(folder: &Path, sources: &mut Vec<(String, String)>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path().canonicalize()?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if is_source(&name) {
            println!("cargo::rerun-if-changed={}", path.display());
            sources.push((name, path.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// Kbuild writes `*.mod.c` next to the sources; these are products.
fn is_source(name: &str) -> bool {
    let c = (name.ends_with(".c") && !name.ends_with(".mod.c")) || name.ends_with(".h");
    c || name == "Makefile" || name == "Kbuild"
}
