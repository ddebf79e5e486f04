//! The daemon: a world, its sockets and its threads, for as long as the value lives.

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
    /// The cluster cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A vhost-user socket cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The monitor socket cannot be served.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// No thread for the passing of model time.
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

    /// The same; what needs files or processors is done before `last`, and listening, with all threads, begins after
    /// it.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start_after(config: &DaemonConfig, last: impl FnOnce()) -> Result<Self, DaemonError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (world, nodes) = config::build(config, cores)?;
        for info in &nodes {
            if info.policy == Policy::Poll {
                log::warn!("{}: polls always, as was asked; it keeps one of {cores} cores busy", info.name);
            }
            log::info!("{}: {:?}, on a host with {cores} cores", info.name, info.policy);
        }
        // All threads of the daemon are children of this one, and inherit it. A sandbox forbids to ask for it, and to
        // give it back: this thread keeps it then.
        let _short = ShortSlice::take();
        last();
        let shell = Shell::new(world, nodes);
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

    /// What the daemon holds, for whoever drives it in this process.
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
            // It ends by itself now; had it panicked, that was reported then.
            let _ = thread.join();
        }
    }
}
