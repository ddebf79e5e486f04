//! Why a cluster ended early.

use std::{fmt, path::PathBuf, sync::mpsc::Sender, time::Duration};

use niclab_images::SourceLocation;
use thiserror::Error;

use crate::{
    boot::{driver::LoadError, template::Damage},
    guests::qmp::QmpError,
    host::{exhaustion::HostCounters, process::SpawnError, runtime::RuntimeError, signals},
};

/// How long the daemon may take to listen on its sockets.
pub const DAEMON_READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A client waits for the cluster's end.
#[derive(Debug)]
pub struct DownRequest(pub Sender<()>);

impl DownRequest {
    /// Notifies the client.
    pub fn done(self) {
        // The client may have ended.
        let _ = self.0.send(());
    }
}

/// Why a cluster ended early.
#[derive(Debug, Error)]
pub enum Failure {
    /// A process did not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The cluster's folder cannot be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A file of the plan cannot be written, or a process cannot be monitored.
    #[error("cannot prepare the cluster: {0}")]
    Prepare(#[source] std::io::Error),
    /// It failed because the host ran out of a resource.
    #[error("{what}; {failure}")]
    Exhausted {
        /// The resource, and how to get more of it.
        what: String,
        /// What failed.
        #[source]
        failure: Box<Failure>,
    },
    /// The daemon ended.
    #[error("the daemon ended ({how}); the end of its log:\n{log}")]
    DaemonEnded {
        /// How.
        how: String,
        /// The end of its log.
        log: String,
    },
    /// The daemon does not become ready.
    #[error("the daemon was not ready after {} s; the end of its log:\n{log}", DAEMON_READY_TIMEOUT.as_secs())]
    DaemonNotReady {
        /// The end of its log.
        log: String,
    },
    /// A QEMU ended with an error.
    #[error("QEMU of {node} ended ({how}); the end of its log:\n{log}\nconsole of {node}:\n{console}")]
    QemuEnded {
        /// The node.
        node: String,
        /// How.
        how: String,
        /// The end of its log.
        log: String,
        /// The end of the guest's console.
        console: String,
    },
    /// The kernels of one or more guests panicked.
    #[error("{}", paragraphs(.0))]
    Panicked(Vec<KernelPanic>),
    /// The cluster ended for this reason, and the consoles of its nodes are kept.
    #[error("{failure}\nthe consoles of all nodes are kept in {}", folder.display())]
    Kept {
        /// The reason.
        #[source]
        failure: Box<Self>,
        /// The folder with a file for each node.
        folder: PathBuf,
    },
    /// A guest powered off or rebooted.
    #[error(
        "{node} powered off or rebooted, which ends the cluster (--keep-going lets the other nodes continue); \
         console of {node}:\n{console}"
    )]
    SwitchedOff {
        /// The node.
        node: String,
        /// The end of the guest's console.
        console: String,
    },
    /// A template was damaged after its verification, or the host is out of memory.
    #[error(
        "the template of {node} cannot be used: {error}; the next run rebuilds a damaged template; --cold boots \
         without one"
    )]
    Memory {
        /// The node.
        node: String,
        /// Why.
        #[source]
        error: Damage,
    },
    /// QEMU does not restore a guest.
    #[error(
        "{node} cannot be restored from its template: {error}; --cold boots it instead; the end of QEMU's log:\n{log}"
    )]
    Restore {
        /// The node.
        node: String,
        /// QEMU's error.
        #[source]
        error: QmpError,
        /// The end of QEMU's messages.
        log: String,
    },
    /// Not all guests became healthy in time.
    #[error("not healthy after {} s (raise --boot-timeout if the machine is slow):\n{details}", timeout.as_secs())]
    NotHealthy {
        /// The time they had.
        timeout: Duration,
        /// What each waits for, and the end of its console.
        details: String,
    },
    /// An agent is gone, or has another version.
    #[error("{node}: {error}; console of {node}:\n{console}")]
    Agent {
        /// The node.
        node: String,
        /// The error.
        error: String,
        /// The end of the guest's console.
        console: String,
    },
    /// The user's own driver does not load or bind to its card.
    #[error("{node}: {error}\nconsole of {node}:\n{console}")]
    Driver {
        /// The node.
        node: String,
        /// Why, with the messages of guest and kernel.
        #[source]
        error: LoadError,
        /// The end of the guest's console.
        console: String,
    },
    /// QEMU cannot take down a guest's carrier.
    #[error("the link of {node} is cut, but QEMU cannot take down its guest's carrier: {error}")]
    Carrier {
        /// The node.
        node: String,
        /// Why.
        #[source]
        error: QmpError,
    },
    /// A signal ended the launcher.
    #[error("ended by {}", signals::name(*.0))]
    Signal(i32),
    /// A client asked for the end.
    #[error("taken down")]
    Down(DownRequest),
    /// No command knows of this cluster.
    #[error("the niclab command that started the cluster ended before the cluster was up")]
    Abandoned,
}

impl Failure {
    /// Whether the user asked for the cluster's end, or the command that started it died.
    #[must_use]
    pub const fn is_asked_for(&self) -> bool {
        matches!(self, Self::Down(_) | Self::Signal(_) | Self::Abandoned)
    }

    /// The reason, and the folder in which the nodes' consoles are kept.
    #[must_use]
    pub fn into_parts(self) -> (Self, Option<PathBuf>) {
        match self {
            Self::Kept { failure, folder } => (*failure, Some(folder)),
            failure => (failure, None),
        }
    }

    /// Adds to the failure what ran out on the host since the counters were read, if anything did. Failures of the
    /// guests or of the user stay as they are.
    #[must_use]
    pub fn explained_by(self, before: &HostCounters) -> Self {
        let is_of_host = matches!(
            self,
            Self::Spawn(_)
                | Self::Runtime(_)
                | Self::Prepare(_)
                | Self::DaemonEnded { .. }
                | Self::DaemonNotReady { .. }
                | Self::QemuEnded { .. }
                | Self::Memory { .. }
                | Self::Restore { .. }
                | Self::NotHealthy { .. }
                | Self::Agent { .. }
        );
        let what = is_of_host.then(|| before.what_ran_out(&self.to_string())).flatten();
        match what {
            Some(what) => Self::Exhausted { what, failure: Box::new(self) },
            None => self,
        }
    }
}

/// A panic of a node's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPanic {
    /// The node.
    pub node: String,
    /// The kernel's first line: of the oops if one led to the panic, else of the panic.
    pub reason: String,
    /// Where in the user's own driver the kernel was, innermost first.
    pub locations: Vec<SourceLocation>,
    /// The report on the console, with its call trace.
    pub text: String,
}

impl fmt::Display for KernelPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel of {} panicked: {}", self.node, self.reason)?;
        if !self.locations.is_empty() {
            write!(f, "\n in your driver")?;
        }
        self.locations.iter().try_for_each(|location| write!(f, "\n  {location}"))?;
        write!(f, "\n console of {}:", self.node)?;
        self.text.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

fn paragraphs(panics: &[KernelPanic]) -> String {
    panics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
