//! The same list and headers with a program in the place of the hardware list manager.

use std::collections::HashMap;

use niclab_isa::image::ImageError;
use niclab_model::matching::list_manager::{Handle, Timing};
use niclab_model::matching::queue_manager::{MatchQueue as _, QueueManager};
use niclab_model::matching::unit::Unit;

use crate::firmware::Firmware;
use crate::machine::{Ran, Setup, Stopped};
use crate::results::Found;

/// Matches every header, with the list kept by the program `queue` on a unit of its own.
///
/// # Errors
/// When one of the programs has a branch that leads out of it.
pub fn run(setup: &Setup, queue: &Firmware) -> Result<Ran, ImageError> {
    let (queue, matcher) = (Unit::new(queue.words())?, Unit::new(setup.firmware.words())?);
    let mut manager = QueueManager::new(Timing::default(), setup.uses, queue, matcher);
    let items = setup.items.iter().enumerate();
    let places: HashMap<Handle, usize> = items.map(|(place, item)| (manager.append(*item), place)).collect();
    setup.headers.iter().for_each(|header| manager.on_header(*header));
    let ended = manager.run(setup.watchdog);
    let outcomes = std::iter::from_fn(|| manager.poll_outcome());
    let place = |handle: &Handle| places.get(handle).copied().unwrap_or(usize::MAX);
    let found: Vec<Found> = outcomes.map(|outcome| Found::new(&outcome, place)).collect();
    let stopped = ended.err().map(|why| Stopped { header: found.len(), why });
    Ok(Ran { found, cycles: manager.cycle(), stopped })
}
