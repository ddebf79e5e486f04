//! A daemon and its sockets in this process, for tests and benchmarks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use niclab_spec::daemon::{DaemonConfig, NodeSockets};
use niclab_spec::{ClusterFile, ClusterName, Source, SpecError, descriptors};
use thiserror::Error;

use crate::daemon::{Daemon, DaemonError};
use crate::frontend::{ClusterGuest, EthernetGuest, FrontendError, GuestPort, TIMEOUT};
use crate::monitor::is_ethernet_running;

/// The laboratory cannot be set up.
#[derive(Debug, Error)]
pub enum LabError {
    /// The daemon does not start.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A guest does not connect.
    #[error(transparent)]
    Frontend(#[from] FrontendError),
    /// The cluster is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The limit of open files cannot be raised.
    #[error("cannot raise the limit of open files: {0}")]
    Limit(#[source] std::io::Error),
    /// The folder for sockets cannot be made.
    #[error("cannot make a temporary folder for sockets: {0}")]
    Folder(#[source] std::io::Error),
}

/// A daemon and the folder of its sockets. Dropping it removes the folder.
pub struct Lab {
    daemon: Daemon,
    config: DaemonConfig,
    _folder: tempfile::TempDir,
}

impl Lab {
    /// Starts a daemon for a default cluster of `nodes` nodes, after `change` has changed its configuration.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn new(nodes: u16, change: impl FnOnce(&mut DaemonConfig)) -> Result<Self, LabError> {
        // As the daemon's program does. A host with many cores runs many laboratories at once, in one process.
        descriptors::raise_limit().map_err(LabError::Limit)?;
        let folder = tempfile::Builder::new().prefix("niclab-").tempdir().map_err(LabError::Folder)?;
        let source = Source::from_text("laboratory", format!("nodes = {nodes}"));
        let cluster = source.resolve(&source.parse::<ClusterFile>()?)?;
        let place = |name: String| -> PathBuf { folder.path().join(name) };
        let mut config =
            DaemonConfig::new(&cluster, &ClusterName::default(), place("monitor".to_owned()), |rank| {
                NodeSockets {
                    cluster_socket: place(format!("{rank}.cluster")),
                    ethernet_socket: place(format!("{rank}.ethernet")),
                }
            });
        change(&mut config);
        let daemon = Daemon::start(&config)?;
        Ok(Self { daemon, config, _folder: folder })
    }

    /// The daemon.
    pub const fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// The configuration of the daemon.
    pub const fn config(&self) -> &DaemonConfig {
        &self.config
    }

    /// The cluster function's socket of `node`.
    ///
    /// # Errors
    /// [`FrontendError::Malformed`] if the node does not exist.
    pub fn cluster_socket(&self, node: usize) -> Result<&Path, FrontendError> {
        let node = self.config.nodes.get(node).ok_or(FrontendError::Malformed("no such node"))?;
        Ok(&node.cluster_socket)
    }

    /// The Ethernet function's socket of `node`.
    ///
    /// # Errors
    /// [`FrontendError::Malformed`] if the node does not exist.
    pub fn ethernet_socket(&self, node: usize) -> Result<&Path, FrontendError> {
        let node = self.config.nodes.get(node).ok_or(FrontendError::Malformed("no such node"))?;
        Ok(&node.ethernet_socket)
    }

    /// Connects a guest with 4 MiB of memory to the cluster function of `node`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn guest(&self, node: usize) -> Result<Arc<ClusterGuest>, FrontendError> {
        const MEMORY_BYTES: u64 = 4 << 20;
        ClusterGuest::connect(self.cluster_socket(node)?, MEMORY_BYTES).map(Arc::new)
    }

    /// Connects a guest to the Ethernet function of `node`: queues of 256, buffers of 2 KiB, `features`.
    ///
    /// # Errors
    /// As [`Lab::ethernet_with`].
    pub fn ethernet(&self, node: usize, features: u64) -> Result<EthernetGuest, FrontendError> {
        self.ethernet_with(node, 256, 2048, features)
    }

    /// Connects a guest to the Ethernet function of `node`, and waits until the function delivers frames to it. The
    /// function's thread sees the queues a moment after the front end has started them. Until then it drops frames, as
    /// a link does that comes up.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn ethernet_with(
        &self,
        node: usize,
        queue_size: u16,
        buffer_bytes: u32,
        features: u64,
    ) -> Result<EthernetGuest, FrontendError> {
        self.ethernet_pairs(node, 1, queue_size, buffer_bytes, features)
    }

    /// As [`Self::ethernet_with`], with `pairs` queue pairs.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn ethernet_pairs(
        &self,
        node: usize,
        pairs: usize,
        queue_size: u16,
        buffer_bytes: u32,
        features: u64,
    ) -> Result<EthernetGuest, FrontendError> {
        let socket = self.ethernet_socket(node)?;
        let guest = EthernetGuest::connect_pairs(socket, pairs, queue_size, buffer_bytes, features)?;
        let begin = Instant::now();
        while !is_ethernet_running(&self.daemon.shell().lock_all(), node) {
            if begin.elapsed() > TIMEOUT {
                let wall_ms = TIMEOUT.as_millis() as u64;
                return Err(FrontendError::TimedOut {
                    what: "take over an Ethernet function's queues",
                    wall_ms,
                });
            }
            std::thread::yield_now();
        }
        Ok(guest)
    }

    /// Address of the card of `node`; zeros if the node does not exist.
    pub fn mac(&self, node: usize) -> [u8; 6] {
        self.config.nodes.get(node).map_or([0; 6], |node| node.mac.0)
    }
}

/// Opens a port of `slices` slices on each of two guests. Each routes to the other, and authorizes it for half of the
/// slices.
///
/// # Errors
/// [`FrontendError`].
pub fn connect_ports(guests: [&Arc<ClusterGuest>; 2], slices: u32) -> Result<[GuestPort; 2], FrontendError> {
    let [here, there] = guests;
    let (a, b) = (GuestPort::open(here, slices)?, GuestPort::open(there, slices)?);
    a.authorize(there.config().node, b.number(), slices / 2)?;
    b.authorize(here.config().node, a.number(), slices / 2)?;
    a.route(there.config().node, b.number())?;
    b.route(here.config().node, a.number())?;
    Ok([a, b])
}
