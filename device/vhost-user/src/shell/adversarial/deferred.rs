//! The thread that releases what adversarial cards delay when no other activity does. It exists only with adversarial
//! cards.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{is_delaying, tick};
use crate::shell::Shell;
use crate::shell::adversary::Tick;
use crate::shell::idle::deadlines;
use crate::shell::locks::LockedNodes;

/// Wall time without activity after which everything comes that was delayed and has no time of its own.
pub const IDLE: Duration = Duration::from_millis(5);

/// Ends the thread.
#[derive(Debug, Default)]
pub struct DeferredTimer {
    stop: Mutex<bool>,
    wake: Condvar,
}

impl DeferredTimer {
    /// Starts the thread, if a card of `shell` is adversarial.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(shell: &Arc<Shell>) -> std::io::Result<Option<JoinHandle<()>>> {
        if !shell.lock_all().common.is_adversarial {
            return Ok(None);
        }
        let shell = Arc::clone(shell);
        let watch = move || shell.deferred_timer().watch(&shell);
        std::thread::Builder::new().name("adversarial".to_owned()).spawn(watch).map(Some)
    }

    /// Ends the thread.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_one();
    }

    fn watch(&self, shell: &Shell) {
        let mut stop = self.stop.lock();
        while !*stop {
            let before = shell.activity();
            self.wake.wait_for(&mut stop, IDLE);
            if !*stop {
                parking_lot::MutexGuard::unlocked(&mut stop, || release(shell, before));
            }
        }
    }
}

/// Releases what is due. `before` is the activity count at the beginning of the wait.
fn release(shell: &Shell, before: u64) {
    let mut locked = shell.lock_all();
    if !is_delaying(&locked) {
        return;
    }
    let is_idle = shell.activity() == before;
    tick(&mut locked, if is_idle { Tick::Idle } else { Tick::Time }, Some(Instant::now()));
    if is_idle && release_from_models(&mut locked) {
        shell.after_activity(&mut locked);
        shell.leave(&locked);
    }
}

/// No thread is active: models emit what they delay. False when there is nothing. In lockstep model time decides
/// instead.
fn release_from_models(locked: &mut LockedNodes<'_>) -> bool {
    let next = |locked: &LockedNodes<'_>| {
        let mut cards = locked.nodes.cards();
        cards.find_map(|(node, card)| Some((node, card.nic.adversarial()?.due()?)))
    };
    if locked.is_in_lockstep() {
        return false;
    }
    let mut any = false;
    while let Some((node, due)) = next(locked) {
        any = true;
        deadlines::expire(locked, node, due);
        if next(locked) == Some((node, due)) {
            debug_assert!(false, "a model keeps what is due");
            break;
        }
    }
    any
}
