//! `niclab asm`: assembles a program of the match unit into a firmware image.

use std::fs;

use anyhow::{Context, Result};
use niclab_asm::{assemble, listing};
use niclab_isa::image;
use niclab_output::OutputFile;
use niclab_source::{Diagnostic, render};

use crate::commands::terminal;
use crate::match_unit::AsmArgs;

/// The code if the source has an error.
const REFUSED: u8 = 1;

/// Assembles the source.
///
/// # Errors
/// When a file cannot be read or written.
pub fn run(args: &AsmArgs) -> Result<u8> {
    let file = args.source.display().to_string();
    let source = fs::read_to_string(&args.source).with_context(|| format!("cannot read {file}"))?;
    let output = args.output.clone().unwrap_or_else(|| args.source.with_extension("nmi"));
    // Before the source is assembled, so that an output path that cannot be written always fails.
    let image_file = OutputFile::create(&output, &[&args.source])?;
    let show = |diagnostics: &[Diagnostic], more| eprint!("{}", render(diagnostics, more, &file, &source));
    let program = match assemble(&source) {
        Ok(program) => program,
        Err(rejected) => {
            show(&rejected.diagnostics, rejected.more);
            eprintln!("niclab: {file}: {rejected}");
            return Ok(REFUSED);
        }
    };
    show(&program.warnings, program.more_warnings);
    if args.deny_warnings && !program.warnings.is_empty() {
        eprintln!("niclab: {file}: not assembled, because --deny-warnings treats warnings as errors");
        return Ok(REFUSED);
    }
    image_file.write(&image::write(&program.words))?;
    if args.listing {
        terminal::print(&listing(&program))?;
    }
    Ok(0)
}
