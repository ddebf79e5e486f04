//! `niclab bench`: what this machine gives, beside what it is compared with.

use anyhow::Result;
use clap::ValueEnum as _;
use niclab_bench::{BenchSection, Options};
use niclab_cluster::arguments::ClusterArgs;

use super::terminal;
use crate::arguments::BenchArgs;

/// A measurement could not be made. That a goal is not reached is a result, and has code 0.
const INCOMPLETE: u8 = 1;

/// Measures and prints.
///
/// # Errors
/// When nothing could be measured.
pub fn run(args: &BenchArgs) -> Result<u8> {
    let mut sections = [args.sections.as_slice(), &args.only].concat();
    if sections.is_empty() {
        sections = BenchSection::value_variants().to_vec();
    }
    let report = niclab_bench::run(&Options {
        sections,
        rounds: args.rounds.into(),
        testpmd: args.testpmd.clone(),
        cluster: ClusterArgs {
            mirror: args.mirror.clone(),
            offline: args.offline,
            // Guests find all they need in their image, and the folder's size must not matter.
            no_share: true,
            ..ClusterArgs::default()
        },
    })?;
    terminal::print(&if args.json { serde_json::to_string_pretty(&report)? } else { report.text() })?;
    Ok(if report.is_complete() { 0 } else { INCOMPLETE })
}
