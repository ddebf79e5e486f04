//! Builds all images for a cluster's guests, as `niclab` does, and prints their paths.
//!
//! ```text
//! cargo run -p niclab-images --example ensure -- [--verbose] [--survey] [--offline] [--mirror URL] \
//!     [--tool FILE]... [PACKAGE]...
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use niclab_images::{Cache, Progress, Request, Terminal, ensure, survey};

/// Prints every detail, including the output of package installations.
struct Verbose;

impl Progress for Verbose {
    fn started(&self, step: &str) {
        eprintln!("{step} ...");
    }
    fn detail(&self, _: &str, detail: &str) {
        eprintln!("  {detail}");
    }
    fn done(&self, step: &str, elapsed: Duration) {
        eprintln!("{step}: {:.1} s", elapsed.as_secs_f64());
    }
    fn note(&self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut request = Request::default();
    let mut progress: Box<dyn Progress> = Box::new(Terminal::new());
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--verbose" => progress = Box::new(Verbose),
            "--offline" => request.offline = true,
            "--mirror" => request.mirror = Some(value()?),
            "--tool" => request.tools.push(value()?.into()),
            "--survey" => {
                println!("{:#?}", survey(&Cache::locate()?));
                return Ok(());
            }
            _ => request.packages.push(arg),
        }
    }
    let begin = Instant::now();
    let images = ensure(&Cache::locate()?, &request, progress.as_ref()).map_err(|e| e.to_string())?;
    println!("{images:#?}");
    println!("took {:.3} s", begin.elapsed().as_secs_f64());
    Ok(())
}
