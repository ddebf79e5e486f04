//! The watchdog for the lock on all nodes.

use std::time::{Duration, Instant};

use niclab_spec::monitor::{Heartbeat, LOCK_TIMEOUT, STATS_VERSION, Stuck};
use parking_lot::Mutex;

use crate::shell::Shell;
use crate::shell::locks::LockedNodes;

/// Locks all nodes for the monitor. The monitor also answers if a thread never unlocks them.
#[derive(Debug)]
pub struct Heart {
    timeout: Duration,
    /// When the first request began to wait that did not get the lock. None once a later request got it.
    stuck_since: Mutex<Option<Instant>>,
}

impl Default for Heart {
    fn default() -> Self {
        Self::new(LOCK_TIMEOUT)
    }
}

impl Heart {
    /// A watchdog that waits for the lock for at most `timeout`.
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, stuck_since: Mutex::new(None) }
    }

    /// Locks all nodes.
    ///
    /// # Errors
    /// [`Stuck`] if another thread keeps the lock.
    pub fn lock_all<'a>(&self, shell: &'a Shell) -> Result<LockedNodes<'a>, Stuck> {
        let begin = Instant::now();
        let locked = shell.try_lock_all(self.timeout);
        let mut stuck_since = self.stuck_since.lock();
        if let Some(locked) = locked {
            *stuck_since = None;
            return Ok(locked);
        }
        let held = stuck_since.get_or_insert(begin).elapsed();
        let wall_held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        Err(Stuck { version: STATS_VERSION, wall_held_ms })
    }

    /// Answers a heartbeat request.
    ///
    /// # Errors
    /// [`Stuck`] if another thread keeps the lock on all nodes.
    pub fn beat(&self, shell: &Shell) -> Result<Heartbeat, Stuck> {
        let begin = Instant::now();
        drop(self.lock_all(shell)?);
        let wall_waited_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Heartbeat { version: STATS_VERSION, wall_waited_ns })
    }
}
