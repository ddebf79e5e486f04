//! The daemon: nodes, sockets and threads, which end when the value is dropped.

use crate::shell::observers;
use std::sync::Arc;
use std::thread::JoinHandle;

use niclab_spec::daemon::DaemonConfig;
use thiserror::Error;

use crate::config::{self, ConfigError};
use crate::connection::{ServeError, Server};
use crate::monitor::{Monitor, MonitorError};
use crate::shell::Shell;
use crate::shell::adversarial::deferred::DeferredTimer;
use crate::shell::idle::Idle;
use crate::shell::wait::Policy;
use crate::slice::ShortSlice;

/// Why a daemon does not start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A vhost-user socket cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The monitor socket cannot be served.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A thread for deferred work cannot be started.
    #[error("cannot start a thread: {0}; is the limit of processes reached?")]
    Thread(#[source] std::io::Error),
}

/// A running daemon. Dropping it hangs up on every front end and removes the sockets.
pub struct Daemon {
    shell: Arc<Shell>,
    servers: Vec<Server>,
    monitor: Option<Monitor>,
    quiet: Option<JoinHandle<()>>,
    deferred_timer: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Listens on every socket of `config`. When this returns, front ends can connect.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start(config: &DaemonConfig) -> Result<Self, DaemonError> {
        Self::start_after(config, || ())
    }

    /// As [`Self::start`]. Work that needs files or the number of processors happens before `last`. After it the
    /// daemon starts its threads, and listens.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start_after(config: &DaemonConfig, last: impl FnOnce()) -> Result<Self, DaemonError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (locked, nodes) = config::build(config, cores)?;
        for info in &nodes {
            if info.policy == Policy::Poll {
                log::warn!(
                    "{}: polls all the time, as the cluster file asks; this keeps one of {cores} cores busy",
                    info.name
                );
            }
            log::info!("{}: {:?}, on a host with {cores} cores", info.name, info.policy);
        }
        // All threads of the daemon are children of this one, and inherit its time slice. A sandbox forbids the system
        // calls that read and restore it, so this thread then keeps the short slice.
        let _short = ShortSlice::take();
        last();
        let shell = Shell::new(locked, nodes);
        shell.set_rules(&mut shell.lock_all(), config.rules.is_on());
        let mut servers = Vec::new();
        for (node, place) in config.nodes.iter().enumerate() {
            servers.push(Server::cluster(&shell, node, &place.cluster_socket)?);
            servers.push(Server::ethernet(&shell, node, &place.ethernet_socket)?);
        }
        let monitor = Monitor::start(&shell, &config.monitor_socket)?;
        let quiet = Idle::start(&shell).map_err(DaemonError::Thread)?;
        let deferred_timer = DeferredTimer::start(&shell).map_err(DaemonError::Thread)?;
        Ok(Self { shell, servers, monitor: Some(monitor), quiet: Some(quiet), deferred_timer })
    }

    /// The shell, for code that drives the daemon in this process.
    pub const fn shell(&self) -> &Arc<Shell> {
        &self.shell
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        observers::end_all(&self.shell);
        self.shell.watchers().wait();
        self.monitor = None;
        self.servers.clear();
        self.shell.idle().stop();
        self.shell.deferred_timer().stop();
        for thread in [self.quiet.take(), self.deferred_timer.take()].into_iter().flatten() {
            // The thread ends by itself now. A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
