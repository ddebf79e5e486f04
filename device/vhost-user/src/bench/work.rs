//! Fixed amounts of work, for tools that count the instructions of a whole process: each does as many units as it is
//! told, in one thread, however long that takes.

use super::BenchError;

/// A kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Its name on the command line.
    pub name: &'static str,
    /// What one unit of it is.
    pub unit: &'static str,
    /// Does so many units, or some more where they come in batches, and says how many it did.
    pub run: fn(u64) -> Result<u64, BenchError>,
}

/// How often `batch`, which does some units and says how many, is to be called for `wanted` units; `None` from it is
/// the end, as is a batch without any.
///
/// # Errors
/// What `batch` says, or [`BenchError::Stalled`] where nothing moves any more.
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

/// Most batches in a row that may do nothing: the device may be in the middle of something.
const MAX_IDLE_BATCHES: u32 = 1 << 16;
