//! Checks, draws, builds and loads protocols that are assembled from components.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use niclab_cluster::daemon::monitor;
use niclab_output::OutputFile;
use niclab_stitcher::components::{BUNDLED, Bundled, Checked};
use niclab_stitcher::{IMAGE_EXTENSION, Refused, open, show, summary};

use crate::commands::{plan_of, terminal};
use crate::protocol::{BuildArgs, CheckArgs, LoadArgs, ShowArgs, Tool};

/// The code if an assembly has an error.
const REFUSED: u8 = 1;

/// Runs the tool.
///
/// # Errors
/// When a file cannot be read or written.
pub fn run(tool: &Tool) -> Result<u8> {
    match tool {
        Tool::Check(args) => check(args),
        Tool::Build(args) => build(args),
        Tool::Show(args) => show_one(args),
        Tool::Load(args) => load(args),
    }
}

/// The assembly in a file, which is a source or an image.
fn assembly_of(file: &Path) -> Result<Result<Checked, Refused>> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(open(&file.display().to_string(), &bytes))
}

/// Prints all errors of a file.
fn refuse(file: &Path, refused: &Refused) -> u8 {
    eprint!("{refused}");
    eprintln!("niclab: {}: the assembly was refused", file.display());
    REFUSED
}

fn check(args: &CheckArgs) -> Result<u8> {
    let mut code = 0;
    for file in &args.files {
        match assembly_of(file)? {
            Ok(assembly) => terminal::print(&format!("{}: {}\n", file.display(), summary(&assembly)))?,
            Err(refused) => code = refuse(file, &refused),
        }
    }
    Ok(code)
}

fn build(args: &BuildArgs) -> Result<u8> {
    let output = args.output.clone().unwrap_or_else(|| args.source.with_extension(IMAGE_EXTENSION));
    // Before the source is read, so that an output path that cannot be written always fails.
    let image = OutputFile::create(&output, &[&args.source])?;
    match assembly_of(&args.source)? {
        Ok(assembly) => {
            image.write(&assembly.encode())?;
            Ok(0)
        }
        Err(refused) => Ok(refuse(&args.source, &refused)),
    }
}

/// The built-in assembly of that name, or else the assembly in that file.
fn named_or_of(assembly: &Path) -> Result<Result<Checked, Refused>> {
    match assembly.to_str().and_then(Bundled::named) {
        Some(bundled) => Ok(open(bundled.name, bundled.image)),
        None => assembly_of(assembly).with_context(|| {
            let names = BUNDLED.map(|bundled| bundled.name).join(", ");
            format!("there is no built-in assembly of this name; there are: {names}")
        }),
    }
}

fn load(args: &LoadArgs) -> Result<u8> {
    let plan = plan_of(&args.name.name)?;
    let (what, image) = match &args.assembly {
        None => ("each card's own assembly".to_owned(), Vec::new()),
        Some(assembly) => match named_or_of(assembly)? {
            Ok(checked) => (summary(&checked), checked.encode()),
            Err(refused) => return Ok(refuse(assembly, &refused)),
        },
    };
    let model_time_ps = monitor::load(&plan.monitor_socket, &args.node, &image)?;
    let model_ms = model_time_ps as f64 / 1e9;
    terminal::print(&format!("{what}\nruns; loading took {model_ms:.3} ms of model time\n"))?;
    Ok(0)
}

fn show_one(args: &ShowArgs) -> Result<u8> {
    match named_or_of(&args.assembly)? {
        Ok(assembly) => {
            terminal::print(&show(&assembly))?;
            Ok(0)
        }
        Err(refused) => Ok(refuse(&args.assembly, &refused)),
    }
}
