//! The end of the daemon's process.
//!
//! SIGTERM, SIGINT or the end of standard input, whose other end the launcher holds, ask the process to end. The
//! daemon then closes all connections. A thread that never unlocks its nodes would delay this forever, so the kernel
//! ends the process [`END_S`] seconds later. If the parent dies, the kernel kills the process at once: no launcher
//! waits for a report then.

use std::io::{self, Read};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, alarm, getppid};
use thiserror::Error;

/// How long the daemon may take to end in good order, in seconds of wall time. Writing observed files takes less. The
/// launcher waits less before it kills the daemon.
pub const END_S: u32 = 3;

/// The process cannot be set up.
#[derive(Debug, Error)]
pub enum LifetimeError {
    /// The operating system refused.
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

/// The process's signals and its tie to the parent, from its start.
#[derive(Debug)]
pub struct Lifetime {
    signals: SigSet,
}

impl Lifetime {
    /// Blocks the signals that end the process, ties the process to its parent, and makes its files private to this
    /// user.
    /// The caller calls this before any thread starts, so that all threads leave the signals to [`Self::wait`].
    ///
    /// # Errors
    /// [`LifetimeError`].
    pub fn begin() -> Result<Self, LifetimeError> {
        let parent = getppid();
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        signals.thread_block().doing("block signals")?;
        // The parent may have blocked it.
        SigSet::from(Signal::SIGALRM).thread_unblock().doing("unblock a signal")?;
        // KILL, as the launcher has set before this program began. A thread has one such signal, so another one would
        // replace it, and a process whose threads hang reacts to no other signal.
        set_pdeathsig(Signal::SIGKILL).doing("ask to end with the parent")?;
        if getppid() != parent {
            return Err(LifetimeError::Orphan);
        }
        // Only this user may connect to the sockets, with any umask of the user.
        umask(Mode::S_IRWXG | Mode::S_IRWXO);
        Ok(Self { signals })
    }

    /// Sends the process SIGTERM when standard input ends.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watch_standard_input(&self) -> Result<(), LifetimeError> {
        let watch = || {
            let mut discarded = [0; 64];
            while matches!(io::stdin().read(&mut discarded), Ok(1..)) {}
            Self::end();
        };
        let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(watch);
        thread.map(drop).map_err(|error| LifetimeError::System { action: "start a thread", error })
    }

    /// Asks the process to end. The caller may hold any lock: this waits for nothing.
    pub fn end() {
        // Fails only if this process no longer exists.
        let _ = kill(Pid::this(), Signal::SIGTERM);
    }

    /// Waits for a signal to end. After it the process has [`END_S`] seconds.
    ///
    /// # Errors
    /// [`LifetimeError::System`].
    pub fn wait(&self) -> Result<Signal, LifetimeError> {
        let signal = self.signals.wait().doing("wait for signals")?;
        // SIGALRM has no handler, so the kernel ends the process even if its threads wait.
        alarm::set(END_S);
        Ok(signal)
    }
}
