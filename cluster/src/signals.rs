//! Ctrl-C and its like, at every stage.
//!
//! While something is built there is nothing to take down but the builders, which leave no half-built parts; so the
//! program ends them and itself. Once a cluster is there, the signal is an event that its owner takes it down for.

use std::{
    io,
    process::exit,
    sync::{
        Mutex, OnceLock, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
};

use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{process::kill_descendants, running::Event};

static OWNER: Mutex<Option<Sender<Event>>> = Mutex::new(None);
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
                // An owner that no longer listens is already taking the cluster down.
                Some(owner) => drop(owner.send(Event::Signal(signal))),
                None => {
                    kill_descendants();
                    niclab_images::abandon();
                    eprintln!("\nniclab: ended by {}; the next run goes on from here", name(signal));
                    exit(exit_code(signal));
                }
            }
        }
    });
    Ok(())
}

/// From now on signals go to a cluster's owner.
pub fn deliver_to(owner: Sender<Event>) {
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = Some(owner);
}

/// From now on `hear` is told of each signal.
pub fn tell(hear: impl Fn(i32) + Send + 'static) {
    let (events, receiver) = channel();
    deliver_to(events);
    thread::spawn(move || {
        for event in receiver {
            if let Event::Signal(signal) = event {
                hear(signal);
            }
        }
    });
}

/// The owner's cluster is down: from now on signals end the program again.
pub fn release() {
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The code with which a program ends that a signal ended.
#[must_use]
pub const fn exit_code(signal: i32) -> i32 {
    128 + signal
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
