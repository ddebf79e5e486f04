//! Benchmarks of the daemon's own code through the in-process front end, without QEMU.
//!
//! All figures are wall time. By default, front end and device alternate in one thread. So a figure is the work of
//! one core for both, and does not depend on how the host places threads.

mod ethernet;
pub mod hostile;
mod testpmd;
mod ways;
pub mod work;

use crate::shell::ledgers;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use niclab_model::models::{MODELS, default_model};
use niclab_model::nic::registry::{Model, UnknownKey};
use serde::Serialize;
use thiserror::Error;

use crate::frontend::FrontendError;
use crate::lab::LabError;
use crate::shell::Shell;

use self::hostile::Attack;
pub use self::testpmd::TestpmdError;
use self::ways::ALL;
use self::work::Work;

/// Version of [`Report`] as JSON.
pub const REPORT_VERSION: u32 = 2;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Wall time of each measurement.
    pub duration: Duration,
    /// DPDK's `testpmd`, to be measured in the same run.
    pub testpmd: Option<PathBuf>,
    /// Queue pairs of each Ethernet function, and of testpmd's ports.
    pub queue_pairs: usize,
}

/// Why a benchmark failed.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The laboratory could not be set up.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The front end failed.
    #[error(transparent)]
    Frontend(#[from] FrontendError),
    /// `testpmd` could not be measured.
    #[error(transparent)]
    Testpmd(#[from] TestpmdError),
    /// A thread of a benchmark panicked.
    #[error("the thread of the attack \"{attack}\" panicked; its message is above")]
    Attacker {
        /// The attack.
        attack: &'static str,
    },
    /// The card does not have the parameter.
    #[error(transparent)]
    Parameter(#[from] UnknownKey),
    /// The daemon's monitor did not answer.
    #[error("the monitor does not answer: {0}")]
    Monitor(#[source] std::io::Error),
    /// No progress for some time.
    #[error("{what} stopped: nothing arrived for {wall_ms} ms of wall time")]
    Stalled {
        /// What was measured.
        what: &'static str,
        /// The wall time without progress.
        wall_ms: u64,
    },
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Figures of each card interface, by its key.
    #[serde(flatten)]
    pub ways: BTreeMap<&'static str, ways::Measured>,
    /// Frames between two Ethernet functions, front end and device on one core.
    pub ethernet: ethernet::Figures,
    /// The rate of these frames with ledgers over that without: the median of alternating rounds.
    pub ethernet_wall_rate_ledger_on_over_off: f64,
    /// The same with the device on its own core, as `testpmd` runs.
    pub ethernet_two_cores: ethernet::Figures,
    /// The same front end on two ports of `testpmd`, which has its own core.
    pub testpmd: Option<ethernet::Figures>,
    /// Why `testpmd` was left out, if it was.
    pub testpmd_left_out: Option<String>,
}

/// Measures everything.
///
/// # Errors
/// [`BenchError`].
pub fn run(options: &Options) -> Result<Report, BenchError> {
    // `testpmd` is only for comparison, so its absence does not fail the other figures.
    let testpmd = match options.testpmd.as_deref() {
        Some(path) => {
            testpmd::measure(path, options.duration, options.queue_pairs).map_err(|error| error.to_string())
        }
        None => Err("give its path by --testpmd".to_owned()),
    };
    let ways = ALL.iter().map(|way| Ok(((way.key)(), (way.measure)(options.duration)?)));
    let (ethernet, ethernet_wall_rate_ledger_on_over_off) =
        ethernet::measure(options.duration, options.queue_pairs)?;
    Ok(Report {
        version: REPORT_VERSION,
        ways: ways.collect::<Result<_, BenchError>>()?,
        ethernet,
        ethernet_wall_rate_ledger_on_over_off,
        ethernet_two_cores: ethernet::measure_two_cores(options.duration, options.queue_pairs)?,
        testpmd_left_out: testpmd.as_ref().err().cloned(),
        testpmd: testpmd.ok(),
    })
}

/// All kinds of work with a fixed amount.
pub fn works() -> impl Iterator<Item = &'static Work> {
    ways::WORKS.iter().copied().flatten().chain([&ethernet::WORK])
}

/// Attacks that need a certain card.
fn attacks_by_feature() -> impl Iterator<Item = &'static Attack> {
    ways::ATTACKS.iter().copied().flatten()
}

/// The first model of the registry whose cards have these features, bits of [`niclab_abi::config`].
fn card_with(features: u64) -> &'static Model {
    MODELS.iter().copied().find(|model| model.has(features)).unwrap_or_else(default_model)
}

/// Rounds of the comparison with and without ledgers.
const ROUNDS: u32 = 9;

/// A rate with ledgers over the rate without: the median of rounds, which take `duration` together.
fn ledger_on_over_off(
    shell: &Shell,
    duration: Duration,
    mut rate: impl FnMut(Duration) -> Result<f64, BenchError>,
) -> Result<f64, BenchError> {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let mut with = |is_on: bool| {
            ledgers::set_on(&mut shell.lock_all(), is_on);
            rate(duration / (2 * ROUNDS))
        };
        // The order alternates, so that a drift of the machine favours neither.
        let (on, off) = if round % 2 == 0 {
            let on = with(true)?;
            (on, with(false)?)
        } else {
            let off = with(false)?;
            (with(true)?, off)
        };
        ratios.push(on / off);
    }
    ledgers::set_on(&mut shell.lock_all(), true);
    ratios.sort_by(f64::total_cmp);
    Ok(ratios.get(ratios.len() / 2).copied().unwrap_or_default())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ways, ethernet, ethernet_two_cores, testpmd, .. } = self;
        writeln!(f, "All times are wall time.\n")?;
        for measured in ALL.iter().filter_map(|way| ways.get((way.key)())) {
            writeln!(f, "{}", measured.text)?;
        }
        let ethernet::Figures { frame_bytes, queue_pairs, .. } = ethernet;
        let pairs = if *queue_pairs > 1 { format!(", {queue_pairs} queue pairs") } else { String::new() };
        writeln!(f, "Ethernet, frames of {frame_bytes} bytes{pairs}, each direction at the same time")?;
        writeln!(f, "  one core      {:>12.0} frames/s each", ethernet.wall_frames_per_s_each)?;
        writeln!(f, "  ledger on/off {:>12.3}", self.ethernet_wall_rate_ledger_on_over_off)?;
        writeln!(f, "  two cores     {:>12.0} frames/s each", ethernet_two_cores.wall_frames_per_s_each)?;
        if let Some(testpmd) = testpmd {
            writeln!(
                f,
                "  testpmd       {:>12.0} frames/s each (two cores)",
                testpmd.wall_frames_per_s_each
            )?;
            let ratio = ethernet_two_cores.wall_frames_per_s_each / testpmd.wall_frames_per_s_each;
            writeln!(f, "  two cores over testpmd {ratio:>12.2}")?;
        }
        if let Some(why) = &self.testpmd_left_out {
            writeln!(f, "  {:<14}left out: {why}", "testpmd")?;
        }
        Ok(())
    }
}
