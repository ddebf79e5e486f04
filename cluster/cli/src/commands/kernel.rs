//! `niclab kernel build`: the guest debug kernel.

use anyhow::Result;
use niclab_images::{Cache, DebugTool, Request, Terminal, build_kernel};

use crate::arguments::KernelBuildArgs;

/// Builds the kernel, unless it is in the cache.
///
/// # Errors
/// When it cannot be built; the message has the compiler's output or the fix.
pub fn build(args: &KernelBuildArgs) -> Result<u8> {
    let usual = DebugTool::USUAL.to_vec();
    let tools = if args.with.is_empty() { usual } else { args.with.clone() };
    let request = Request { mirror: args.mirror.clone(), offline: args.offline, ..Request::default() };
    let kernel = build_kernel(&Cache::locate()?, &tools, &request, &Terminal::new())?;
    let names: Vec<&str> = kernel.tools.iter().map(|tool| tool.name()).collect();
    let how = match kernel.built_in {
        Some(time) => format!("built in {:.0} s of wall time", time.as_secs_f64()),
        None => "found in the cache".to_owned(),
    };
    eprintln!(
        "niclab: kernel {} with {}: {how}; `--kernel debug` and kernel = \"debug\" use it from now on",
        kernel.release,
        names.join(", ")
    );
    Ok(0)
}
