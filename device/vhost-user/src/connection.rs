//! The sockets: one listener and one thread for each function, one connection at a time.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::Mutex;
use thiserror::Error;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError, Listener};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::attention::Attention;
use crate::cluster_function::ClusterFunction;
use crate::ethernet_function::EthernetFunction;
use crate::map_request::{MapChannel, peek_channel};
use crate::memory::{DmaMemory, FileIdentity};
use crate::session::Session;
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

/// The number under which a connection's thread is called; those of queues are small.
const ATTENTION: u64 = u64::MAX;

/// The number under which the channel for requests of the device is watched.
pub const CHANNEL: u64 = u64::MAX - 1;

/// Why a function's thread does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The guest rang for this queue, or it was started.
    Queue(usize),
    /// The thread called itself back, after its other queues had their turn.
    Woken,
    /// Something came over the channel for requests of the device.
    Channel,
    /// The instant of [`Function::deadline`] has come.
    Deadline,
}

/// One of a card's two functions, for one connection.
pub trait Function: Send + Sync + Sized + 'static {
    /// What it is called in log lines.
    const NAME: &'static str;
    /// Its queues.
    const QUEUES: usize;
    /// Most descriptors of a queue, a power of two.
    const QUEUE_SIZE: u16;

    /// The function of `node`, for a connection whose thread is called by `attention`.
    fn new(shell: &Arc<Shell>, node: usize, attention: &Arc<Attention>) -> Self;
    /// The name of its thread, within the kernel's 15 bytes.
    fn thread_name(node: usize) -> String;

    /// Somebody has connected, and will set up these queues.
    fn on_connect(&self, vrings: &[Vring]);
    /// The connection is gone, and with it the guest or its QEMU.
    fn on_disconnect(&self);
    /// The front end did what it must not.
    fn violation(&self, name: &'static str);

    /// Features that are offered, those of the transport among them.
    fn features(&self) -> u64;
    /// Features of the protocol that are offered.
    fn protocol_features(&self) -> VhostUserProtocolFeatures;
    /// The driver took these of the features that are offered: it starts anew.
    fn acked_features(&self, features: u64);
    /// The device is reset.
    fn reset_device(&self);
    /// A queue is stopped.
    fn stop_queue(&self, queue: u32);
    /// The configuration space.
    fn configuration(&self) -> Vec<u8>;
    /// Bytes of the one shared-memory region, or 0.
    fn shared_memory_bytes(&self) -> u64;
    /// The node's BAR, which is not memory of the guest.
    fn bar(&self) -> Option<FileIdentity>;
    /// The guest's memory table has changed.
    fn set_memory(&self, memory: Arc<DmaMemory>);
    /// The front end takes requests of the device here from now on, and no longer over the channel that is given back.
    fn set_channel(&self, channel: MapChannel) -> Option<MapChannel>;

    /// Does what there is to do, on the connection's own thread.
    fn handle(&self, event: Event);
    /// When to be called with [`Event::Deadline`].
    fn deadline(&self) -> Option<Instant>;
}

/// A socket that is served until this is dropped.
pub struct Server {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    is_asked: AtomicBool,
    event: EventFd,
    connection: Mutex<Option<UnixStream>>,
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
        listener
            .set_nonblocking(true)
            .map_err(|error| ServeError::Listen { path: path.to_owned(), error })?;
        let stop = Arc::new(Stop {
            is_asked: AtomicBool::new(false),
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(system("making an event"))?,
            connection: Mutex::new(None),
        });
        let (shell, its_stop) = (Arc::clone(shell), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("listen-{node}"))
            .spawn(move || serve::<F>(&shell, node, &listener, &its_stop))
            .map_err(system("starting a thread"))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.is_asked.store(true, Ordering::Relaxed);
        let _ = self.stop.event.write(1);
        if let Some(connection) = &*self.stop.connection.lock() {
            hang_up(connection);
        }
        if let Some(thread) = self.thread.take() {
            // It ends by itself now; had it panicked, that was reported then.
            let _ = thread.join();
        }
    }
}

/// Ends a connection, whoever reads from it.
fn hang_up(connection: &UnixStream) {
    // Fails when the other end has done so already.
    let _ = connection.shutdown(Shutdown::Both);
}

/// How long to wait before the next try to take a connection, after one that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The same, after many: somebody may have closed a descriptor by then.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Serves one connection after another.
fn serve<F: Function>(shell: &Arc<Shell>, node: usize, listener: &Listener, stop: &Stop) {
    // Whoever waits to connect stays so while there is no descriptor for him: the listener is readable all the time, and a
    // thread that tried again at once would keep a core busy and fill the log.
    let mut pause = None;
    while wait_for_connection(listener, stop, pause) {
        match connect::<F>(shell, node, listener) {
            Ok(Some(connection)) => {
                if pause.take().is_some() {
                    log::info!("node {node}: connections to the {} are taken again", F::NAME);
                }
                connection.serve(stop);
            }
            Ok(None) => {}
            Err(error) => {
                if pause.is_none() {
                    log::warn!(
                        "node {node}: no connection to the {} can be taken: {error}; trying on",
                        F::NAME
                    );
                }
                pause = Some(pause.map_or(SHORTEST_PAUSE, |pause: Duration| (2 * pause).min(LONGEST_PAUSE)));
            }
        }
    }
}

/// Waits until the pause is over and somebody wants to connect; false when the server is to stop.
fn wait_for_connection(listener: &Listener, stop: &Stop, pause: Option<Duration>) -> bool {
    // SAFETY: both descriptors are borrowed from their owners, hence open, while `poll` uses them.
    let (listen, stopped) = unsafe {
        (BorrowedFd::borrow_raw(listener.as_raw_fd()), BorrowedFd::borrow_raw(stop.event.as_raw_fd()))
    };
    if let Some(pause) = pause {
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(stopped.as_fd(), PollFlags::POLLIN)], timeout);
    }
    loop {
        if stop.is_asked.load(Ordering::Relaxed) {
            return false;
        }
        let mut wanted =
            [PollFd::new(listen.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        let polled = poll(&mut wanted, PollTimeout::NONE);
        if polled.is_ok() && wanted.first().and_then(PollFd::any).unwrap_or(false) {
            return !stop.is_asked.load(Ordering::Relaxed);
        }
    }
}

/// Takes the connection of whoever waits, with all that it needs of the operating system; nothing when he has gone.
fn connect<F: Function>(
    shell: &Arc<Shell>,
    node: usize,
    listener: &Listener,
) -> io::Result<Option<Connection<F>>> {
    let attention = Arc::new(Attention::new()?);
    let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
    epoll.add(&*attention, EpollEvent::new(EpollFlags::EPOLLIN, ATTENTION))?;
    let Some(stream) = listener.accept().map_err(io::Error::other)? else { return Ok(None) };
    let for_requests = stream.try_clone()?;
    let for_stop = stream.try_clone()?;
    let function = Arc::new(F::new(shell, node, &attention));
    let vrings = (0..F::QUEUES).map(|_| Vring::new(F::QUEUE_SIZE)).collect();
    Ok(Some(Connection { node, function, vrings, epoll, attention, stream, for_requests, for_stop }))
}

/// One connection, and what it needs of the operating system.
struct Connection<F> {
    node: usize,
    function: Arc<F>,
    vrings: Vec<Vring>,
    epoll: Arc<Epoll>,
    attention: Arc<Attention>,
    stream: UnixStream,
    for_requests: UnixStream,
    for_stop: UnixStream,
}

impl<F: Function> Connection<F> {
    /// Serves it until it ends: its requests on one thread, its queues on another.
    fn serve(self, stop: &Stop) {
        let Self { node, function, vrings, epoll, attention, stream, for_requests, for_stop } = self;
        *stop.connection.lock() = Some(for_stop);
        if stop.is_asked.load(Ordering::Relaxed) {
            hang_up(&stream);
        }
        function.on_connect(&vrings);
        let queues =
            Queues { node, function: &*function, vrings: &vrings, epoll: &epoll, attention: &attention };
        let session =
            Session::new(Arc::clone(&function), vrings.clone(), Arc::clone(&epoll), Arc::clone(&attention));
        let result = std::thread::scope(|scope| {
            let queues_thread = std::thread::Builder::new()
                .name(F::thread_name(node))
                .spawn_scoped(scope, || queues.run(&stream))
                .map_err(|error| format!("no thread for its queues: {error}"))?;
            let requests_thread = std::thread::Builder::new()
                .name(format!("requests-{node}"))
                .spawn_scoped(scope, || answer_requests(session, for_requests, &stream));
            let result = match requests_thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                // What it panicked with was reported then.
                Ok(Err(_)) => Err("its thread panicked".to_owned()),
                Err(error) => Err(format!("no thread for its requests: {error}")),
            };
            attention.end();
            // The same.
            let _ = queues_thread.join();
            result
        });
        *stop.connection.lock() = None;
        function.on_disconnect();
        match result {
            Ok(()) => log::info!("node {node}: the {} is disconnected", F::NAME),
            // Only the one connection is lost: a front end that cut a message short, or broke the protocol.
            Err(error) => log::warn!("node {node}: the {}'s connection ended: {error}", F::NAME),
        }
    }
}

/// Answers the front end until it hangs up, is hung up on or breaks the protocol.
fn answer_requests<F: Function>(
    session: Session<F>,
    for_requests: UnixStream,
    stream: &UnixStream,
) -> Result<(), String> {
    let session = Arc::new(std::sync::Mutex::new(session));
    let mut handler = BackendReqHandler::from_stream(for_requests, Arc::clone(&session));
    let error = loop {
        match peek_channel(stream) {
            Ok(channel) => {
                // Poisoned when a request panicked, which ended this thread.
                if let Ok(mut session) = session.lock() {
                    session.channel = channel;
                }
            }
            Err(error) => break ProtocolError::SocketBroken(error),
        }
        if let Err(error) = handler.handle_request() {
            break error;
        }
    };
    hang_up(stream);
    match error {
        // How a QEMU that ends, or is killed, looks from here.
        ProtocolError::Disconnected | ProtocolError::SocketBroken(_) => Ok(()),
        error => Err(error.to_string()),
    }
}

/// What the thread of a connection's queues looks at.
struct Queues<'a, F> {
    node: usize,
    function: &'a F,
    vrings: &'a [Vring],
    epoll: &'a Epoll,
    attention: &'a Attention,
}

impl<F: Function> Queues<'_, F> {
    /// Serves the queues until the connection ends, or ends it when the guest's memory is gone.
    fn run(&self, stream: &UnixStream) {
        let mut events = [EpollEvent::empty(); 16];
        while !self.attention.is_ending() {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(errno) => {
                    log::error!("node {}: the {}'s queues cannot be waited for: {errno}", self.node, F::NAME);
                    return hang_up(stream);
                }
            };
            for event in events.iter().take(count) {
                self.handle(event.data());
            }
            if self.function.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                self.function.handle(Event::Deadline);
            }
            if self.attention.has_lost_memory() {
                self.function.violation("memory_vanished");
                log::error!(
                    "node {}: a page of the guest's memory is gone, as if its QEMU had cut the file short or memory had \
                     run out; the {} is hung up on",
                    self.node,
                    F::NAME
                );
                return hang_up(stream);
            }
        }
    }

    fn handle(&self, number: u64) {
        match number {
            ATTENTION => {
                let calls = self.attention.take();
                for queue in calls.queues() {
                    self.function.handle(Event::Queue(queue));
                }
                if calls.is_woken() {
                    self.function.handle(Event::Woken);
                }
            }
            CHANNEL => self.function.handle(Event::Channel),
            number => {
                let queue = number as usize;
                if let Some(vring) = self.vrings.get(queue) {
                    vring.take_kicks();
                    self.function.handle(Event::Queue(queue));
                }
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let left =
            self.function.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Rounded up: a wait that ends early would be followed by another one of nothing.
        let left = left.map(|left| left + Duration::from_millis(1));
        left.map_or(EpollTimeout::NONE, |left| EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX))
    }
}
