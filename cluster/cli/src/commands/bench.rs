//! `niclab bench`: measures niclab next to other systems on this machine.

use anyhow::Result;
use clap::ValueEnum as _;
use niclab_bench::{
    BenchSection, Options,
    earlier::{self, Beside, Change, Earlier},
};
use niclab_cluster::arguments::ClusterArgs;

use super::terminal;
use crate::arguments::BenchArgs;

/// The code if a measurement failed or a count is above its baseline. A goal that is not reached is a result, with code
/// 0.
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
    // Before the measurements, so that a wrong path fails at once.
    let earlier = args.baseline.as_deref().map(Earlier::read).transpose()?;
    let report = niclab_bench::run(&Options {
        sections,
        rounds: args.rounds.into(),
        testpmd: args.testpmd.clone(),
        valgrind: args.valgrind.clone(),
        cluster: ClusterArgs {
            mirror: args.mirror.clone(),
            offline: args.offline,
            // The image has all that the guests need, and the size of the folder must not affect the results.
            no_share: true,
            // Linux uses as many queue pairs as a guest has virtual CPUs.
            queues: args.queues,
            vcpus: args.queues,
            ..ClusterArgs::default()
        },
    })?;
    let changes = earlier.map(|earlier| earlier.changes(&report)).unwrap_or_default();
    if args.json {
        let changes = args.baseline.is_some().then_some(changes.as_slice());
        terminal::print(&serde_json::to_string_pretty(&Beside { report: &report, changes })?)?;
    } else {
        terminal::print(&report.text())?;
    }
    if let Some(path) = &args.baseline {
        // With --json, standard output must hold only JSON.
        let text = format!("\ncompared with {}\n{}", path.display(), earlier::text(&changes));
        if args.json { eprint!("{text}") } else { terminal::print(&text)? }
    }
    let grown = args.most_growth.map_or(0, |percent| report_growth(&changes, percent));
    Ok(if report.is_complete() && grown == 0 { 0 } else { INCOMPLETE })
}

/// Prints the counts that have grown too much, and returns their number.
fn report_growth(changes: &[Change], percent: u16) -> usize {
    let grown = changes.iter().filter(|change| change.has_grown_by(f64::from(percent) / 100.0));
    grown
        .inspect(|change| match change.now {
            Some(now) => eprintln!(
                "niclab: {}: {now:.0} {}, baseline {:.0}: grown by more than {percent} %",
                change.what, change.unit, change.before
            ),
            None => eprintln!("niclab: {}: in the baseline, but not measured in this run", change.what),
        })
        .count()
}
