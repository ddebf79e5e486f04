//! When the daemon's process ends, and that it does.
//!
//! It is told to end by SIGTERM or SIGINT, or by the end of its standard input, whose other end its launcher holds.
//! Then it hangs up on everybody in good order; but a thread that never gives the world's lock back would make it wait
//! for ever, so the kernel ends it some seconds later whatever it does. Where its parent dies the kernel ends it at
//! once: nobody is there to be told anything.

use std::io::{self, Read};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, alarm, getppid};
use thiserror::Error;

/// How long the daemon may take to end in good order, in seconds of wall time. Longer than files that are watched take,
/// and longer than its launcher waits before it kills it.
pub const END_S: u32 = 3;

/// The process cannot be set up.
#[derive(Debug, Error)]
pub enum LifetimeError {
    /// The operating system refuses.
    #[error("cannot {action}: {error}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// The parent is gone.
    #[error("the parent process ended before the daemon had started")]
    Orphan,
}

trait Doing<T> {
    fn doing(self, action: &'static str) -> Result<T, LifetimeError>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, action: &'static str) -> Result<T, LifetimeError> {
        self.map_err(|error| LifetimeError::System { action, error: error.into() })
    }
}

/// The process's life, from its first moment.
#[derive(Debug)]
pub struct Lifetime {
    signals: SigSet,
}

impl Lifetime {
    /// Takes the signals that tell the process to end, ties it to its parent, and makes private what it will make. To
    /// be called before any thread starts, so that all of them leave the signals to [`Self::wait`].
    ///
    /// # Errors
    /// [`LifetimeError`].
    pub fn begin() -> Result<Self, LifetimeError> {
        let parent = getppid();
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        signals.thread_block().doing("block signals")?;
        // Whoever started us may have blocked it.
        SigSet::from(Signal::SIGALRM).thread_unblock().doing("unblock a signal")?;
        // KILL, as the launcher has set before this program began. A thread has one such signal, and another one here
        // would take its place: a process whose threads hang answers no other.
        set_pdeathsig(Signal::SIGKILL).doing("ask to end with the parent")?;
        if getppid() != parent {
            return Err(LifetimeError::Orphan);
        }
        // Sockets are this user's alone, whatever the user's mask says.
        umask(Mode::S_IRWXG | Mode::S_IRWXO);
        Ok(Self { signals })
    }

    /// Turns the end of standard input into the signal to end.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn watch_standard_input(&self) -> Result<(), LifetimeError> {
        let watch = || {
            let mut discarded = [0; 64];
            while matches!(io::stdin().read(&mut discarded), Ok(1..)) {}
            Self::end();
        };
        let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(watch);
        thread.map(drop).map_err(|error| LifetimeError::System { action: "start a thread", error })
    }

    /// Tells the process to end. It may be called with any lock held: it waits for nothing.
    pub fn end() {
        // Fails only when this process is gone.
        let _ = kill(Pid::this(), Signal::SIGTERM);
    }

    /// Waits until the process is told to end. From then on it has [`END_S`] seconds.
    ///
    /// # Errors
    /// [`LifetimeError::System`].
    pub fn wait(&self) -> Result<Signal, LifetimeError> {
        let signal = self.signals.wait().doing("wait for signals")?;
        // Its signal has no handler, so the kernel ends the process, whatever its threads wait for.
        alarm::set(END_S);
        Ok(signal)
    }
}
