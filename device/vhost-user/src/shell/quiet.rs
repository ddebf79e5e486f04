//! How model time passes while nobody does anything.
//!
//! Timers of models run in model time, and live nobody knows how much of it a guest's own computing takes. When the whole
//! fabric was quiet for a short while of wall time, nothing is in flight and nothing can precede the earliest deadline: it
//! fires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Shell;

/// Wall time without any activity before the earliest deadline of model time fires.
pub const GRACE: Duration = Duration::from_millis(5);

/// Who is waiting, and since when nothing happened.
#[derive(Debug, Default)]
pub struct Quiet {
    activity: AtomicU64,
    /// A deadline waits. Changed under the world's lock alone, so that none is overlooked.
    is_armed: AtomicBool,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Quiet {
    /// Something happened just now; `waiting` says whether anything waits for model time. Called with the world locked.
    #[inline]
    pub fn touch(&self, waiting: bool) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        if waiting && !self.is_armed.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// Starts the thread that watches `shell`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(shell: &Arc<Shell>) -> std::io::Result<JoinHandle<()>> {
        let shell = Arc::clone(shell);
        std::thread::Builder::new().name("quiet".to_owned()).spawn(move || shell.quiet().watch(&shell))
    }

    /// Ends the thread.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_one();
    }

    fn watch(&self, shell: &Shell) {
        let mut stop = self.stop.lock();
        while !*stop {
            if !self.is_armed.load(Ordering::Relaxed) {
                self.wake.wait(&mut stop);
                continue;
            }
            let before = self.activity.load(Ordering::Relaxed);
            self.wake.wait_for(&mut stop, GRACE);
            if !*stop && self.activity.load(Ordering::Relaxed) == before {
                // `touch` takes this lock while it holds the world's: never both the other way round.
                parking_lot::MutexGuard::unlocked(&mut stop, || self.pass(shell));
            }
        }
    }

    fn pass(&self, shell: &Shell) {
        let mut world = shell.world();
        let world = &mut *world;
        if !world.ethernet.release_held() {
            world.pass_time();
        }
        world.show();
        let waits = world.is_waiting() || world.ethernet.is_holding();
        self.is_armed.store(waits, Ordering::Relaxed);
    }
}
