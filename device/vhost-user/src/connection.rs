//! The sockets: one listener and one thread for each function, one connection at a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use thiserror::Error;
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{
    Error as DaemonError, ShutdownHandle, VhostUserBackend, VhostUserDaemon, VhostUserHandlerError,
};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::cluster_function::ClusterFunction;
use crate::ethernet::steering::Switches;
use crate::ethernet_function::EthernetFunction;
use crate::link::{Fault, Link};
use crate::map_request::MapRequestSlot;
use crate::relay::Relay;
use crate::shell::Shell;
use crate::vring::{Vring, make_queues_of};

/// The socket cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The daemon cannot listen on it.
    #[error("cannot listen on {}: {error}{}", path.display(), listen_remedy(error))]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The operating system refused.
    #[error("cannot serve {}: {step}: {error}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// The fix for an error of `listen`, as the end of a sentence.
pub fn listen_remedy(error: &io::Error) -> &'static str {
    match (error.kind(), error.raw_os_error().map(Errno::from_raw)) {
        (io::ErrorKind::NotFound, _) => "; make its folder first",
        (io::ErrorKind::PermissionDenied, _) => "; choose a folder that you may write to",
        (io::ErrorKind::InvalidInput, _) => {
            "; choose a shorter path: the path of a unix socket has at most 107 bytes"
        }
        (io::ErrorKind::AddrInUse, _) => "; another process listens there",
        (_, Some(Errno::EMFILE)) => "; this process has reached its limit of open files: raise `ulimit -n`",
        (_, Some(Errno::ENFILE)) => {
            "; the host has reached its limit of open files: raise the sysctl fs.file-max"
        }
        (_, Some(Errno::ENOSPC | Errno::EDQUOT)) => "; free some space on its file system",
        (_, Some(Errno::EROFS)) => "; choose a folder on a file system that is not mounted read-only",
        _ => "",
    }
}

/// One of a card's two functions, for one connection.
trait Function: VhostUserBackend<Bitmap = (), Vring = Vring> + Sized + 'static {
    /// Its name in log lines.
    const NAME: &'static str;
    fn new(shell: &Arc<Shell>, node: usize, link: &Arc<Link>, slot: &Arc<MapRequestSlot>) -> Arc<Self>;
    fn on_connect(&self);
    fn on_disconnect(&self);
    fn violation(&self, name: &'static str);
    /// Whether front ends of `node` need a [`Relay`].
    fn has_relay(shell: &Shell, node: usize) -> bool;
    /// The switches that a [`Relay`] sets.
    fn switches(&self) -> Option<&Arc<Switches>>;
}

/// Implements [`Function`] by the methods of the same names.
macro_rules! function {
    ($kind:ident, $name:literal) => {
        impl Function for $kind {
            const NAME: &'static str = $name;
            fn new(
                shell: &Arc<Shell>,
                node: usize,
                link: &Arc<Link>,
                slot: &Arc<MapRequestSlot>,
            ) -> Arc<Self> {
                $kind::new(shell, node, link, slot)
            }
            fn on_connect(&self) {
                $kind::on_connect(self);
            }
            fn on_disconnect(&self) {
                $kind::on_disconnect(self);
            }
            fn violation(&self, name: &'static str) {
                $kind::violation(self, name);
            }
            fn has_relay(shell: &Shell, node: usize) -> bool {
                $kind::has_relay(shell, node)
            }
            fn switches(&self) -> Option<&Arc<Switches>> {
                $kind::switches(self)
            }
        }
    };
}

function!(ClusterFunction, "cluster function");
function!(EthernetFunction, "Ethernet function");

/// A socket that a thread serves until this value is dropped.
pub struct Server {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    is_asked: AtomicBool,
    event: EventFd,
    connection: Mutex<Option<Shutdown>>,
}

impl Stop {
    /// Waits for `pause`, or until the server is asked to stop.
    fn wait(&self, pause: Duration) {
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        // An interrupted wait does no harm.
        let _ = poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout);
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the event owns its descriptor, and the result borrows from it.
        unsafe { BorrowedFd::borrow_raw(self.event.as_raw_fd()) }
    }
}

struct Shutdown(ShutdownHandle);

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shutdown")
    }
}

impl Server {
    /// Listens on `path` for the cluster function of `node`.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn cluster(shell: &Arc<Shell>, node: usize, path: &Path) -> Result<Self, ServeError> {
        Self::start::<ClusterFunction>(shell, node, path)
    }

    /// Listens on `path` for the Ethernet function of `node`.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn ethernet(shell: &Arc<Shell>, node: usize, path: &Path) -> Result<Self, ServeError> {
        Self::start::<EthernetFunction>(shell, node, path)
    }

    fn start<F: Function>(shell: &Arc<Shell>, node: usize, path: &Path) -> Result<Self, ServeError> {
        let system = |step| move |error| ServeError::System { path: path.to_owned(), step, error };
        let listen_error = |error| match error {
            ProtocolError::SocketError(error) => error,
            error => io::Error::other(error),
        };
        let entrance = Entrance::new(path, F::has_relay(shell, node))
            .map_err(|error| ServeError::Listen { path: path.to_owned(), error: listen_error(error) })?;
        let stop = Arc::new(Stop {
            is_asked: AtomicBool::new(false),
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(system("making an event"))?,
            connection: Mutex::new(None),
        });
        let (shell, its_stop) = (Arc::clone(shell), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("listen-{node}"))
            .spawn(move || serve::<F>(&shell, node, entrance, &its_stop))
            .map_err(system("starting a thread"))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.is_asked.store(true, Ordering::Relaxed);
        let _ = self.stop.event.write(1);
        if let Some(Shutdown(handle)) = &*self.stop.connection.lock() {
            handle.shutdown();
        }
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself now. A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The first pause before the server retries an action that failed for lack of a resource.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The longest such pause, after many retries. Another process may have closed a descriptor by then.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause after `pause`.
fn next_pause(pause: Option<Duration>) -> Duration {
    pause.map_or(SHORTEST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE))
}

/// The listeners of one function.
struct Entrance {
    listener: Listener,
    /// The library's listener for relays, and its path. None if front ends connect to the library directly.
    inner: Option<(Listener, PathBuf)>,
}

impl Entrance {
    fn new(path: &Path, has_relay: bool) -> Result<Self, ProtocolError> {
        let listener = Listener::new(path, true)?;
        if !has_relay {
            return Ok(Self { listener, inner: None });
        }
        let mut inner_path = path.as_os_str().to_owned();
        inner_path.push("+");
        let inner = Listener::new(&inner_path, true)?;
        Ok(Self { listener, inner: Some((inner, inner_path.into())) })
    }

    /// Accepts the connection of the front end that waits.
    fn take<F: Function>(
        &mut self,
        node: usize,
        (function, link): (&F, &Link),
        daemon: &mut VhostUserDaemon<Arc<F>>,
    ) -> Result<Option<Relay>, DaemonError> {
        let (Some((inner, path)), Some(switches)) = (&mut self.inner, function.switches()) else {
            return daemon.start(&mut self.listener).map(|()| None);
        };
        let front = loop {
            if let Some(front) = self.listener.accept().map_err(DaemonError::CreateBackendListener)? {
                break front;
            }
        };
        let library = UnixStream::connect(path).map_err(DaemonError::StartDaemon)?;
        daemon.start(inner)?;
        let relay = Relay::start(node, [front, library], switches, link.attention());
        relay.map(Some).map_err(DaemonError::StartDaemon)
    }
}

/// Serves one connection after another.
fn serve<F: Function>(shell: &Arc<Shell>, node: usize, mut entrance: Entrance, stop: &Stop) {
    let slot = Arc::default();
    // Without a free descriptor, a front end that connects stays waiting, and the listener stays readable. A thread
    // that retried at once would keep a core busy and fill the log.
    let mut pause = None;
    while wait_for_connection(&entrance.listener, stop, pause) {
        match Connection::<F>::take(shell, node, &slot, &mut entrance, stop) {
            Ok(connection) => {
                if pause.take().is_some() {
                    log::info!("node {node}: the daemon again accepts connections to the {}", F::NAME);
                }
                connection.serve(node, stop);
            }
            Err(error) => {
                if pause.is_none() {
                    log::warn!(
                        "node {node}: cannot accept a connection to the {}: {error}; the daemon retries",
                        F::NAME
                    );
                }
                pause = Some(next_pause(pause));
            }
        }
    }
}

/// Waits until the pause is over and a front end connects. False if the server must stop.
fn wait_for_connection(listener: &Listener, stop: &Stop, pause: Option<Duration>) -> bool {
    // SAFETY: the descriptor is borrowed from its owner, hence open, while `poll` uses it.
    let listen = unsafe { BorrowedFd::borrow_raw(listener.as_raw_fd()) };
    if let Some(pause) = pause {
        stop.wait(pause);
    }
    while !stop.is_asked.load(Ordering::Relaxed) {
        let mut wanted =
            [PollFd::new(listen, PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        let polled = poll(&mut wanted, PollTimeout::NONE);
        if polled.is_ok() && wanted.first().and_then(PollFd::any).unwrap_or(false) {
            return !stop.is_asked.load(Ordering::Relaxed);
        }
    }
    false
}

/// One connection, with its resources of the operating system.
struct Connection<F: Function> {
    function: Arc<F>,
    link: Arc<Link>,
    daemon: VhostUserDaemon<Arc<F>>,
    /// After the daemon: the daemon hangs up, which ends the relay.
    relay: Option<Relay>,
}

impl<F: Function> Connection<F> {
    /// Accepts the connection of the front end that waits.
    fn take(
        shell: &Arc<Shell>,
        node: usize,
        slot: &Arc<MapRequestSlot>,
        entrance: &mut Entrance,
        stop: &Stop,
    ) -> Result<Self, DaemonError> {
        let link = Link::new().map_err(DaemonError::StartDaemon)?;
        let function = F::new(shell, node, &link, slot);
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let backend = Arc::clone(&function);
        let daemon =
            make_queues_of(&link, || VhostUserDaemon::new(format!("requests-{node}"), backend, memory))?;
        if let Err(error) = call_threads(&daemon, &*function, &link, stop) {
            // The library would wait forever for a thread that cannot be asked to end. The process is about to end.
            std::mem::forget(daemon);
            return Err(DaemonError::StartDaemon(error));
        }
        let mut connection = Self { function, link, daemon, relay: None };
        for thread in connection.daemon.get_epoll_handlers() {
            connection.link.wait_at(&*thread).map_err(DaemonError::StartDaemon)?;
        }
        connection.function.on_connect();
        let Self { function, link, daemon, .. } = &mut connection;
        match entrance.take(node, (&**function, &**link), daemon) {
            Ok(relay) => connection.relay = relay,
            Err(error) => {
                connection.function.on_disconnect();
                return Err(error);
            }
        }
        Ok(connection)
    }

    /// Serves the connection until it ends.
    fn serve(mut self, node: usize, stop: &Stop) {
        if let Some(handle) = self.daemon.shutdown_handle() {
            self.link.hang_up_by(handle.clone());
            *stop.connection.lock() = Some(Shutdown(handle));
        }
        if stop.is_asked.load(Ordering::Relaxed) {
            self.daemon.request_shutdown();
        }
        let result = self.daemon.wait();
        *stop.connection.lock() = None;
        let (function, link) = (Arc::clone(&self.function), Arc::clone(&self.link));
        // This also ends the thread of the queues, so nothing of the connection touches the nodes after this.
        drop(self);
        let fault = link.close();
        if let Some(name) = fault.as_ref().and_then(Fault::violation) {
            function.violation(name);
        }
        function.on_disconnect();
        match (fault, result) {
            // Only this connection is lost: its front end broke the protocol, or truncated a message or its memory.
            (Some(fault), _) => {
                log::error!("node {node}: the daemon closes the connection to the {}: {fault}", F::NAME)
            }
            // A QEMU that ends, or is killed, looks like this.
            (None, Err(DaemonError::HandleRequest(ProtocolError::Disconnected)) | Ok(())) => {
                log::info!("node {node}: the front end has disconnected from the {}", F::NAME);
            }
            (None, Err(error)) => {
                log::warn!("node {node}: the {}'s connection ended: {}", F::NAME, explain(&error));
            }
        }
    }
}

/// The library's error in words of the vhost-user protocol.
fn explain(error: &DaemonError) -> String {
    let DaemonError::HandleRequest(ProtocolError::ReqHandlerError(inner)) = error else {
        return error.to_string();
    };
    match inner.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(VhostUserHandlerError::MissingMemoryMapping) => {
            "a ring's own address is in no region of its memory table".to_owned()
        }
        _ => inner.to_string(),
    }
}

impl<F: Function> Drop for Connection<F> {
    /// When its daemon is dropped, the library waits for the thread of the queues, which this asks to end.
    fn drop(&mut self) {
        self.link.attention().end();
    }
}

/// Has the library's thread wait for the attention, the only way to ask it to end. So this retries until it succeeds,
/// and fails only if the server must stop.
fn call_threads<F: Function>(
    daemon: &VhostUserDaemon<Arc<F>>,
    function: &F,
    link: &Link,
    stop: &Stop,
) -> io::Result<()> {
    // Numbers up to that of the queues are the library's own.
    let number = function.num_queues() as u64 + 1;
    for thread in daemon.get_epoll_handlers() {
        let mut pause = None;
        while let Err(error) = thread.register_listener(link.attention().as_raw_fd(), EventSet::IN, number) {
            if pause.is_none() {
                log::warn!(
                    "the {}'s thread cannot wait for the request to end: {error}; the daemon retries",
                    F::NAME
                );
            }
            if stop.is_asked.load(Ordering::Relaxed) {
                return Err(error);
            }
            let next = next_pause(pause);
            stop.wait(next);
            pause = Some(next);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn listen_error_names_the_fix_for_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let remedy = |path: &Path| listen_remedy(&UnixListener::bind(path).unwrap_err());
        assert!(remedy(&folder.path().join("none/x")).contains("make its folder"));
        assert!(remedy(&folder.path().join("x".repeat(120))).contains("shorter path"));
        let taken = folder.path().join("taken");
        let _listener = UnixListener::bind(&taken).unwrap();
        assert!(remedy(&taken).contains("another process"));
        let remedy = |errno: Errno| listen_remedy(&errno.into());
        assert!(remedy(Errno::EMFILE).contains("ulimit -n"));
        assert!(remedy(Errno::ENOSPC).contains("space"));
        // A denied thread has nothing to do with the path.
        assert_eq!(remedy(Errno::EAGAIN), "");
    }
}
