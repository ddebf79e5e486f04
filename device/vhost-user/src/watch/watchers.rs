//! The connections that observe.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long an ending daemon waits for clients that still receive their files. The launcher waits longer for the
/// daemon.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Counts the connections that observe.
#[derive(Debug, Default)]
pub struct Watchers {
    count: Mutex<usize>,
    left: Condvar,
}

impl Watchers {
    /// A connection begins to observe.
    pub fn enter(&self) {
        *self.count.lock() += 1;
    }

    /// A connection has its complete file.
    pub fn leave(&self) {
        *self.count.lock() -= 1;
        self.left.notify_all();
    }

    /// Waits until all connections have their files, for at most one second.
    pub fn wait(&self) {
        let mut count = self.count.lock();
        // A client that does not take its file within that time has an incomplete file, and gets an error.
        let _ = self.left.wait_while_for(&mut count, |count| *count > 0, LAST_WORDS);
    }
}
