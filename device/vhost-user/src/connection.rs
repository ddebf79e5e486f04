//! The sockets: one listener and one thread for each function, one connection at a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use thiserror::Error;
use vhost::vhost_user::Listener;
use vhost_user_backend::{ShutdownHandle, VhostUserBackend, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::cluster_function::ClusterFunction;
use crate::ethernet_function::EthernetFunction;
use crate::shell::Shell;
use crate::vring::Vring;

/// A socket cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Nobody can connect to it.
    #[error("cannot listen on {}: {error}; is the folder there and writable, and the path short?", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: vhost::vhost_user::Error,
    },
    /// The operating system refused something.
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

/// By which a function's thread calls itself back, after its other queues had their turn.
#[derive(Debug)]
pub struct Wake(EventFd);

impl Wake {
    /// # Errors
    /// When the operating system gives no event.
    pub fn new() -> io::Result<Self> {
        EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map(Self)
    }

    /// Calls.
    pub fn call(&self) {
        // Fails only when the counter is full, and then the call is under way already.
        let _ = self.0.write(1);
    }

    /// Takes the calls.
    pub fn consume(&self) {
        // Fails when there was none.
        let _ = self.0.read();
    }
}

/// By which a connection's thread is told to end.
pub struct Exit {
    pair: Mutex<Option<(EventConsumer, EventNotifier)>>,
    is_asked: AtomicBool,
}

impl Exit {
    /// # Errors
    /// When the operating system gives no event.
    pub fn new() -> io::Result<Self> {
        let pair = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        Ok(Self { pair: Mutex::new(Some(pair)), is_asked: AtomicBool::new(false) })
    }

    /// The two ends, for the library; once.
    pub fn take(&self) -> Option<(EventConsumer, EventNotifier)> {
        self.pair.lock().take()
    }

    /// Notes that the connection ends, so that nobody goes on polling.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}

/// One of a card's two functions, for one connection.
trait Function: VhostUserBackend<Bitmap = (), Vring = Vring> + Sized + 'static {
    /// What it is called in log lines.
    const NAME: &'static str;
    fn new(shell: &Arc<Shell>, node: usize) -> io::Result<Arc<Self>>;
    fn wake(&self) -> &Wake;
    fn exit(&self) -> &Exit;
    fn on_connect(&self);
    fn on_disconnect(&self);
}

/// Both functions have these as methods of their own.
macro_rules! function {
    ($kind:ident, $name:literal) => {
        impl Function for $kind {
            const NAME: &'static str = $name;
            fn new(shell: &Arc<Shell>, node: usize) -> io::Result<Arc<Self>> {
                $kind::new(shell, node)
            }
            fn wake(&self) -> &Wake {
                $kind::wake(self)
            }
            fn exit(&self) -> &Exit {
                $kind::exit(self)
            }
            fn on_connect(&self) {
                $kind::on_connect(self);
            }
            fn on_disconnect(&self) {
                $kind::on_disconnect(self);
            }
        }
    };
}

function!(ClusterFunction, "cluster function");
function!(EthernetFunction, "Ethernet function");

/// A socket that is served until this is dropped.
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
        let listener =
            Listener::new(path, true).map_err(|error| ServeError::Listen { path: path.to_owned(), error })?;
        let stop = Arc::new(Stop {
            is_asked: AtomicBool::new(false),
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(system("making an event"))?,
            connection: Mutex::new(None),
        });
        let (shell, its_stop) = (Arc::clone(shell), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("listen-{node}"))
            .spawn(move || serve::<F>(&shell, node, listener, &its_stop))
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
            // It ends by itself now; had it panicked, that was reported then.
            let _ = thread.join();
        }
    }
}

/// Serves one connection after another.
fn serve<F: Function>(shell: &Arc<Shell>, node: usize, mut listener: Listener, stop: &Stop) {
    while wait_for_connection(&listener, stop) {
        if let Err(error) = serve_connection::<F>(shell, node, &mut listener, stop) {
            // Only the one connection is lost: a front end that cut a message short, or broke the protocol.
            log::warn!("node {node}: the {}'s connection ended: {error}", F::NAME);
        }
    }
}

/// Waits for somebody to connect; false when the server is to stop.
fn wait_for_connection(listener: &Listener, stop: &Stop) -> bool {
    // SAFETY: both descriptors are borrowed from their owners, hence open, while `poll` uses them.
    let (listen, stopped) = unsafe {
        (BorrowedFd::borrow_raw(listener.as_raw_fd()), BorrowedFd::borrow_raw(stop.event.as_raw_fd()))
    };
    loop {
        let mut wanted =
            [PollFd::new(listen.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        let polled = poll(&mut wanted, PollTimeout::NONE);
        if stop.is_asked.load(Ordering::Relaxed) {
            return false;
        }
        if polled.is_ok() && wanted.first().and_then(PollFd::any).unwrap_or(false) {
            return true;
        }
    }
}

fn serve_connection<F: Function>(
    shell: &Arc<Shell>,
    node: usize,
    listener: &mut Listener,
    stop: &Stop,
) -> Result<(), vhost_user_backend::Error> {
    let function = F::new(shell, node).map_err(vhost_user_backend::Error::StartDaemon)?;
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let mut daemon = VhostUserDaemon::new(format!("requests-{node}"), Arc::clone(&function), memory)?;
    let threads = daemon.get_epoll_handlers();
    for thread in &threads {
        // Numbers up to that of the queues are the library's own.
        let number = function.num_queues() as u64 + 1;
        thread
            .register_listener(function.wake().0.as_raw_fd(), EventSet::IN, number)
            .map_err(vhost_user_backend::Error::StartDaemon)?;
    }
    function.on_connect();
    let result = daemon.start(listener).and_then(|()| {
        *stop.connection.lock() = daemon.shutdown_handle().map(Shutdown);
        if stop.is_asked.load(Ordering::Relaxed) {
            daemon.request_shutdown();
        }
        daemon.wait()
    });
    *stop.connection.lock() = None;
    function.exit().ask();
    function.on_disconnect();
    for thread in &threads {
        thread.send_exit_event();
    }
    match result {
        // How a QEMU that ends, or is killed, looks from here.
        Err(vhost_user_backend::Error::HandleRequest(vhost::vhost_user::Error::Disconnected)) | Ok(()) => {
            log::info!("node {node}: the {} is disconnected", F::NAME);
            Ok(())
        }
        other => other,
    }
}
