//! Fixed amounts of work, for tools that count the instructions of a complete process. Each kind does the requested
//! number of units in one thread, however long that takes.

use super::BenchError;

/// A kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Its name on the command line.
    pub name: &'static str,
    /// One unit of it.
    pub unit: &'static str,
    /// Does at least this number of units, in complete batches, and returns how many it did.
    pub run: fn(u64) -> Result<u64, BenchError>,
}

/// Calls `batch`, which returns the number of units that it did, until it has done `wanted` units.
///
/// # Errors
/// Errors of `batch`, or [`BenchError::Stalled`] after many batches without a unit.
pub fn repeat(
    wanted: u64,
    what: &'static str,
    mut batch: impl FnMut() -> Result<u64, BenchError>,
) -> Result<u64, BenchError> {
    let (mut done, mut idle) = (0, 0);
    while done < wanted {
        let more = batch()?;
        done += more;
        idle = if more > 0 { 0 } else { idle + 1 };
        if idle > MAX_IDLE_BATCHES {
            return Err(BenchError::Stalled { what, wall_ms: 0 });
        }
    }
    Ok(done)
}

/// Maximum consecutive batches without a unit: the device may still be busy with an earlier one.
const MAX_IDLE_BATCHES: u32 = 1 << 16;
