//! The thread that sees to it that what adversarial cards keep back comes, where nobody does anything any more by which it
//! would. There is none where all cards are kind.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::shell::Shell;
use crate::shell::adversary::Tick;
use crate::shell::world::World;

/// Wall time in which nobody has done anything, after which all comes that was kept back and has no time of its own.
pub const QUIET: Duration = Duration::from_millis(5);

/// By which the thread is told to end.
#[derive(Debug, Default)]
pub struct DeferredTimer {
    stop: Mutex<bool>,
    wake: Condvar,
}

impl DeferredTimer {
    /// Starts the thread, if a card of `shell` is adversarial.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(shell: &Arc<Shell>) -> std::io::Result<Option<JoinHandle<()>>> {
        if !shell.world().is_adversarial() {
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
            let before = shell.acts();
            self.wake.wait_for(&mut stop, QUIET);
            if !*stop {
                parking_lot::MutexGuard::unlocked(&mut stop, || go_on(shell, before));
            }
        }
    }
}

/// Goes on with what is kept back, after a while before which so many things had been done.
fn go_on(shell: &Shell, before: u64) {
    let mut world = shell.world();
    if !world.is_keeping() {
        return;
    }
    let is_quiet = shell.acts() == before;
    world.mind(if is_quiet { Tick::Quiet } else { Tick::Time }, Some(Instant::now()));
    if is_quiet && world.let_go() {
        shell.did(&mut world);
        shell.leave(&world);
    }
}

impl World<'_> {
    /// Nobody does anything: what models hold back goes out, and what follows from that happens. False where there was
    /// nothing, or programs take turns and it goes out in its turn.
    fn let_go(&mut self) -> bool {
        let held = |world: &Self| {
            let mut cards = world.nodes.cards();
            cards.find_map(|(node, card)| Some((node, card.nic.adversarial()?.due()?)))
        };
        if self.is_in_lockstep() {
            return false;
        }
        let mut any = false;
        while let Some((node, due)) = held(self) {
            any = true;
            self.expire(node, due);
            if held(self) == Some((node, due)) {
                debug_assert!(false, "what is due goes out");
                break;
            }
        }
        any
    }
}
