//! The connections over which somebody watches.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long the daemon, when it ends, waits for files that are nearly whole. Less than its launcher waits for it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Counts the connections over which somebody watches.
#[derive(Debug, Default)]
pub struct Watchers {
    count: Mutex<usize>,
    left: Condvar,
}

impl Watchers {
    /// Somebody watches.
    pub fn enter(&self) {
        *self.count.lock() += 1;
    }

    /// Somebody has what was watched.
    pub fn leave(&self) {
        *self.count.lock() -= 1;
        self.left.notify_all();
    }

    /// Waits until all have what they watched, or for a moment.
    pub fn wait(&self) {
        let mut count = self.count.lock();
        // A connection that does not take its file within that time has a file that is not whole, and is told so.
        let _ = self.left.wait_while_for(&mut count, |count| *count > 0, LAST_WORDS);
    }
}
