//! Builds everything for a cluster's guests, as `niclab` would, and prints where it is.
//!
//! ```text
//! cargo run -p niclab-images --example ensure -- [--offline] [--mirror URL] [--tool FILE]... [PACKAGE]...
//! ```

use std::env;
use std::error::Error;
use std::time::Instant;

use niclab_images::{Cache, Request, Terminal, ensure, survey};

fn main() -> Result<(), Box<dyn Error>> {
    let mut request = Request::default();
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
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
    let images = ensure(&Cache::locate()?, &request, &Terminal::new()).map_err(|e| e.to_string())?;
    println!("{images:#?}");
    println!("took {:.3} s", begin.elapsed().as_secs_f64());
    Ok(())
}
