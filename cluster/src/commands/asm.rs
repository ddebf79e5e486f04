//! `niclab asm`: a program of the match unit becomes a firmware image.

use std::fs;

use anyhow::{Context, Result, ensure};
use niclab_asm::{Diagnostic, assemble, listing};
use niclab_isa::image;

use super::terminal;
use crate::cli::AsmArgs;

/// The code where a source was refused.
const REFUSED: u8 = 1;

/// Assembles it.
///
/// # Errors
/// When a file cannot be read or written.
pub fn run(args: &AsmArgs) -> Result<u8> {
    let file = args.source.display().to_string();
    let source = fs::read_to_string(&args.source).with_context(|| format!("cannot read {file}"))?;
    let output = args.output.clone().unwrap_or_else(|| args.source.with_extension("nmi"));
    ensure!(
        output != args.source,
        "{file} is both source and image\n  mend: name the image's file, which is written, by --output"
    );
    let show = |diagnostics: &[Diagnostic]| {
        diagnostics.iter().for_each(|diagnostic| eprint!("{}", diagnostic.render(&file, &source)));
    };
    let program = match assemble(&source) {
        Ok(program) => program,
        Err(rejected) => {
            show(&rejected.diagnostics);
            eprintln!("niclab: {file}: {rejected}");
            return Ok(REFUSED);
        }
    };
    show(&program.warnings);
    if args.deny_warnings && !program.warnings.is_empty() {
        eprintln!("niclab: {file}: warnings are denied, and the source was not assembled");
        return Ok(REFUSED);
    }
    fs::write(&output, image::write(&program.words))
        .with_context(|| format!("cannot write {}", output.display()))?;
    if args.listing {
        terminal::print(&listing(&program))?;
    }
    Ok(0)
}
