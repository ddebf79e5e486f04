//! Whether the world's lock is given back.

use std::time::{Duration, Instant};

use niclab_spec::monitor::{Heartbeat, LOCK_TIMEOUT, STATS_VERSION, Stuck};
use parking_lot::Mutex;

use crate::shell::Shell;
use crate::shell::locks::LockedNodes;

/// Takes the world's lock for the monitor, which answers though nobody gives it back.
#[derive(Debug)]
pub struct Heart {
    timeout: Duration,
    /// When the first request began that did not get the lock, if none got it since.
    stuck_since: Mutex<Option<Instant>>,
}

impl Default for Heart {
    fn default() -> Self {
        Self::new(LOCK_TIMEOUT)
    }
}

impl Heart {
    /// Waits for the lock so long and no longer.
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, stuck_since: Mutex::new(None) }
    }

    /// The world.
    ///
    /// # Errors
    /// [`Stuck`] when somebody else keeps it.
    pub fn world<'a>(&self, shell: &'a Shell) -> Result<LockedNodes<'a>, Stuck> {
        let begin = Instant::now();
        let world = shell.try_lock_all(self.timeout);
        let mut stuck_since = self.stuck_since.lock();
        if let Some(world) = world {
            *stuck_since = None;
            return Ok(world);
        }
        let held = stuck_since.get_or_insert(begin).elapsed();
        let wall_held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        Err(Stuck { version: STATS_VERSION, wall_held_ms })
    }

    /// A sign of life.
    ///
    /// # Errors
    /// [`Stuck`] when there is none.
    pub fn beat(&self, shell: &Shell) -> Result<Heartbeat, Stuck> {
        let begin = Instant::now();
        drop(self.world(shell)?);
        let wall_waited_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Heartbeat { version: STATS_VERSION, wall_waited_ns })
    }
}
