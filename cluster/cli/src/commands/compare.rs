//! `niclab compare`: one workload over every model and the Ethernet function.

use anyhow::Result;
use niclab_bench::compare::{Here, Request, compare};
use niclab_spec::{ScenarioMode, Workload, WorkloadKind};

use super::terminal;
use crate::arguments::{CompareArgs, CompareMode, CompareWorkload};

/// The code if a card or the function could not be measured, or a check of its run failed.
const INCOMPLETE: u8 = 1;

/// Compares and prints.
///
/// # Errors
/// When a signal ends it, or the output cannot be printed.
pub fn run(args: &CompareArgs) -> Result<u8> {
    let kind = match args.workload {
        CompareWorkload::PingPong => WorkloadKind::PingPong,
        CompareWorkload::Stream => WorkloadKind::Stream,
    };
    let workload = Workload {
        message_bytes: args.bytes,
        count: args.count,
        // The first messages find caches cold and tables empty.
        warmup: args.count.div_ceil(10),
        interrupt_every: args.interrupt_every,
        ..Workload::new(kind)
    };
    let mode = match args.mode {
        CompareMode::Sim => ScenarioMode::Sim,
        CompareMode::Live => ScenarioMode::Live,
        CompareMode::Both => ScenarioMode::Both,
    };
    let request = Request { mode, workload, profile: args.profile.clone() };
    let comparison = compare(&request, &mut Here { offline: args.offline })?;
    terminal::print(&if args.json { serde_json::to_string_pretty(&comparison)? } else { comparison.text() })?;
    Ok(if comparison.is_whole() { 0 } else { INCOMPLETE })
}
