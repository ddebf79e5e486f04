//! Ctrl-C and other signals.
//!
//! During a build, a signal ends the builders, which leave no half-built files, and then the program. Once a cluster
//! exists, a signal is an event, and the cluster's owner takes it down.

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

/// Receives signals.
type Listener = Arc<dyn Fn(i32) + Send + Sync>;

static OWNER: Mutex<Option<Listener>> = Mutex::new(None);
static STARTED: OnceLock<()> = OnceLock::new();

/// Installs the handlers. From now on signals end the program and its descendants in an orderly way.
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
                    eprintln!("\nniclab: ended by {}; the next run continues from here", name(signal));
                    exit(exit_code::of_signal(signal));
                }
            }
        }
    });
    Ok(())
}

/// From now on `listener` receives each signal, on the thread that takes them.
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
