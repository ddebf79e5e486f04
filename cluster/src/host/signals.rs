//! Ctrl-C and its like, at every stage.
//!
//! While something is built there is nothing to take down but the builders, which leave no half-built parts; so the
//! program ends them and itself. Once a cluster is there, the signal is an event that its owner takes it down for.

use std::{
    io,
    process::exit,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{exit_code, process::kill_descendants};

/// What is told of signals, while somebody wants to be.
type Listener = Arc<dyn Fn(i32) + Send + Sync>;

static OWNER: Mutex<Option<Listener>> = Mutex::new(None);
static STARTED: OnceLock<()> = OnceLock::new();

/// Begins to take signals. From now on they end the program, and what it started, in an orderly way.
///
/// # Errors
/// If the system refuses the handlers.
pub fn take_over() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    thread::spawn(move || {
        for signal in signals.forever() {
            let owner = OWNER.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match owner {
                Some(listener) => listener(signal),
                None => {
                    kill_descendants();
                    niclab_images::abandon();
                    eprintln!("\nniclab: ended by {}; the next run goes on from here", name(signal));
                    exit(exit_code::of_signal(signal));
                }
            }
        }
    });
    Ok(())
}

/// From now on `listener` is told of each signal, on the thread that takes them.
pub fn tell(listener: impl Fn(i32) + Send + Sync + 'static) {
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(listener));
}

/// The owner's cluster is down: from now on signals end the program again.
pub fn release() {
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The signal's name, for messages.
#[must_use]
pub fn name(signal: i32) -> &'static str {
    match Signal::from_named_raw(signal) {
        Some(Signal::INT) => "Ctrl-C",
        Some(Signal::TERM) => "SIGTERM",
        Some(Signal::HUP) => "SIGHUP",
        _ => "a signal",
    }
}
