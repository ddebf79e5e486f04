//! A virtqueue as the vhost-user library drives it, with an exact count of the guest's doorbells, and with checked
//! events.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use parking_lot::Mutex;
use vhost_user_backend::{VringMutex, VringState, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error as QueueError, QueueT};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::link::{Fault, Link};
use crate::notification;

/// The guest's memory as the vhost-user library has it.
pub type GuestMemory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The library's locked virtqueue, with these additions:
///
/// * The library reads a queue's kick descriptor and discards its value, the number of rings. This type adds it up,
///   and never waits for it.
/// * The library keeps watching a replaced kick as long as the front end keeps its end, and does not watch the new
///   one. This type watches the new one instead.
/// * It refuses descriptors that are not events, see [`crate::notification`].
/// * It knows whether a queue that starts continues where it stopped ([`Start`]).
#[derive(Clone)]
pub struct Vring {
    inner: VringMutex<GuestMemory>,
    stop: Arc<Mutex<Stop>>,
    kicks: Arc<AtomicU64>,
    kick_changes: Arc<AtomicU64>,
    id: Option<QueueId>,
}

/// The state of a queue's kick at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    /// Rings of the guest that the daemon has taken out of the event.
    pub kicks: u64,
    /// The event has a ring that the daemon has not taken; or there is no event.
    pub is_pending: bool,
    /// How often the event was replaced.
    changes: u64,
}

impl Bell {
    /// Whether the guest has never rung.
    pub const fn is_silent(self) -> bool {
        self.kicks == 0 && !self.is_pending
    }

    /// Whether the guest has not rung between `self` and `now`.
    pub fn is_all_that_was_heard(self, now: Self) -> bool {
        self.kicks == now.kicks && self.changes == now.changes && !now.is_pending
    }
}

/// Addresses and index of a queue: GET_VRING_BASE returns the index, SET_VRING_BASE and SET_VRING_ADDR set both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    addresses: [u64; 3],
    size: u16,
    next_available: u16,
}

/// The front end's last start or stop of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    Never,
    Stopped(Position),
    Started(Start),
}

/// How a stopped queue started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the position at which it stopped: the machine was stopped.
    Continued {
        /// The daemon never took a chain of it. A new queue starts there, too.
        is_at_first: bool,
    },
    /// At another position: the driver has reset the device.
    New,
}

/// How the stopped queues of a function started again. None while one of them has not started.
pub fn start_of(vrings: &[Vring]) -> Option<Start> {
    let (mut is_at_first, mut is_waited_for) = (true, false);
    for vring in vrings {
        match *vring.stop.lock() {
            Stop::Never => {}
            Stop::Started(Start::New) => return Some(Start::New),
            Stop::Started(Start::Continued { is_at_first: is_first }) => {
                is_at_first &= is_first;
                is_waited_for |= !vring.get_ref().is_enabled();
            }
            Stop::Stopped(_) => is_waited_for = true,
        }
    }
    (!is_waited_for).then_some(Start::Continued { is_at_first })
}

/// Forgets the stop of these queues, which have started as `start` says. The front end may already be stopping them
/// again, the first one first. A new driver need not start all queues.
pub fn forget_stop(vrings: &[Vring], start: Start) {
    for (number, vring) in vrings.iter().enumerate() {
        let mut stop = vring.stop.lock();
        let is_over = match *stop {
            Stop::Stopped(_) => start == Start::New && number > 0,
            Stop::Never | Stop::Started(_) => true,
        };
        if is_over {
            *stop = Stop::Never;
        }
    }
}

/// The connection and the number of a queue.
#[derive(Clone)]
struct QueueId {
    link: Arc<Link>,
    queue: usize,
}

thread_local! {
    /// For the queues that the library makes on this thread: the library has no argument for it.
    static NEXT: RefCell<Option<QueueId>> = const { RefCell::new(None) };
}

/// Calls `make`. The queues that it makes are those of `link`, in the order of their numbers.
pub fn make_queues_of<T>(link: &Arc<Link>, make: impl FnOnce() -> T) -> T {
    NEXT.set(Some(QueueId { link: Arc::clone(link), queue: 0 }));
    let made = make();
    NEXT.set(None);
    made
}

fn next_id() -> Option<QueueId> {
    NEXT.with_borrow_mut(|next| {
        let id = next.clone();
        if let Some(next) = next {
            next.queue += 1;
        }
        id
    })
}

/// The descriptor of one of the library's events.
fn borrow(event: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: the library's events own their descriptors, and the result borrows from one.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// Raises a queue's interrupt, and never waits. False if the front end has set no call descriptor.
pub fn interrupt(state: &VringState<GuestMemory>) -> bool {
    state.get_call().as_ref().is_some_and(|call| notification::signal(borrow(call)))
}

impl Vring {
    /// Rings of the guest since the connection was made.
    pub fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }

    fn position(&self) -> Position {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        let queue = state.get_queue();
        Position {
            addresses: [queue.desc_table(), queue.avail_ring(), queue.used_ring()],
            size: queue.size(),
            next_available: queue.next_avail(),
        }
    }

    /// Wakes the thread of the queues if this queue was stopped. The thread checks whether all queues have started.
    fn call_thread(&self) {
        if let Some(id) = self.id.as_ref().filter(|_| *self.stop.lock() != Stop::Never) {
            id.link.attention().wake();
        }
    }

    /// The state of the kick. Kicks are taken and counted with the queue's lock held, so this misses none in between.
    pub fn bell(&self) -> Bell {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        let is_pending =
            state.get_kick().as_ref().is_none_or(|kick| notification::is_signalled(borrow(kick)));
        let changes = self.kick_changes.load(Ordering::Relaxed);
        Bell { kicks: self.kicks.load(Ordering::Relaxed), is_pending, changes }
    }

    /// `file` if it is an event; otherwise the daemon closes the connection.
    fn adopt(&self, file: Option<File>) -> Option<File> {
        match notification::adopt(file?) {
            Ok(file) => Some(file),
            Err(error) => {
                if let Some(QueueId { link, queue }) = &self.id {
                    link.fail(Fault::Event { queue: *queue, error });
                }
                None
            }
        }
    }

    /// Takes the rings out of an event, and counts them.
    fn take_rings(&self, kick: &impl AsRawFd) -> u64 {
        let rings = notification::take(borrow(kick));
        self.kicks.fetch_add(rings, Ordering::Relaxed);
        rings
    }

    /// Has the library's thread no longer wait for the kick. The front end keeps its end. A kick that is signalled,
    /// and still watched after it is closed here, would wake the thread forever.
    fn unwatch_kick(&self) {
        if let Some(epoll) = self.id.as_ref().and_then(|id| id.link.epoll())
            && let Some(kick) = self.inner.get_ref().get_kick()
        {
            // Fails if the thread does not wait for it, as it should.
            let _ = epoll.delete(borrow(kick));
        }
    }

    /// Has the library's thread wait for the kick of a queue that runs already. The library itself does so when a
    /// queue starts.
    fn watch_kick(&self) {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        if let Some(id) = &self.id
            && let Some(epoll) = id.link.epoll()
            && let Some(kick) = state.get_kick()
            && state.get_queue().ready()
            && state.is_enabled()
        {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, id.queue as u64);
            if let Err(errno) = epoll.add(borrow(kick), event) {
                id.link.fail(Fault::Watch { queue: id.queue, error: errno.into() });
            }
        }
    }
}

impl<'a> VringStateGuard<'a, GuestMemory> for Vring {
    type G = <VringMutex<GuestMemory> as VringStateGuard<'a, GuestMemory>>::G;
}

impl<'a> VringStateMutGuard<'a, GuestMemory> for Vring {
    type G = <VringMutex<GuestMemory> as VringStateMutGuard<'a, GuestMemory>>::G;
}

/// Forwards methods of [`VringT`] to the inner virtqueue.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($argument: $kind),*) $(-> $result)? { self.inner.$name($($argument),*) })*
    };
}

impl VringT<GuestMemory> for Vring {
    fn new(memory: GuestMemory, max_queue_size: u16) -> Result<Self, QueueError> {
        let inner = VringMutex::new(memory, max_queue_size)?;
        let (stop, kicks, kick_changes) = Default::default();
        Ok(Self { inner, stop, kicks, kick_changes, id: next_id() })
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, GuestMemory>>::G {
        self.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, GuestMemory>>::G {
        self.inner.get_mut()
    }

    /// Never fails: an error would end the thread that serves the guest's queues. A descriptor that gives no number is
    /// the front end's fault alone.
    fn read_kick(&self) -> io::Result<bool> {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        if let Some(kick) = state.get_kick() {
            let rings = self.take_rings(kick);
            if let Some(id) = &self.id {
                id.link.took_rings(rings);
            }
        }
        Ok(state.is_enabled())
    }

    fn set_kick(&self, file: Option<File>) {
        let file = self.adopt(file);
        self.unwatch_kick();
        self.kick_changes.fetch_add(1, Ordering::Relaxed);
        // A driver rings once for each sleep of the device. So a ring that the replaced event still has must not be
        // lost.
        let is_rung = self.inner.get_ref().get_kick().as_ref().is_some_and(|kick| self.take_rings(kick) > 0);
        self.inner.set_kick(file);
        self.watch_kick();
        if is_rung && let Some(id) = &self.id {
            id.link.attention().wake();
        }
    }

    fn set_call(&self, file: Option<File>) {
        self.inner.set_call(self.adopt(file));
    }

    fn set_enabled(&self, enabled: bool) {
        self.inner.set_enabled(enabled);
        self.call_thread();
    }

    fn set_queue_ready(&self, ready: bool) {
        let was_ready = self.inner.get_ref().get_queue().ready();
        // The thread of the queue takes chains until the queue is not ready. So the position is final only after
        // this.
        if !ready {
            self.inner.set_queue_ready(false);
        }
        let position = self.position();
        {
            let mut stop = self.stop.lock();
            *stop = match *stop {
                _ if was_ready && !ready => Stop::Stopped(position),
                Stop::Stopped(stopped) if ready && stopped == position => {
                    Stop::Started(Start::Continued { is_at_first: position.next_available == 0 })
                }
                Stop::Stopped(_) if ready => Stop::Started(Start::New),
                other => other,
            };
        }
        if ready {
            self.inner.set_queue_ready(true);
        }
        self.call_thread();
    }

    /// The daemon signals no error event: it counts errors, and the monitor shows the counts.
    fn set_err(&self, _file: Option<File>) {}

    fn signal_used_queue(&self) -> io::Result<()> {
        interrupt(&self.inner.get_ref());
        Ok(())
    }

    /// The used index that the driver saw last, for a queue that continues. Only here the library itself would read
    /// guest memory, so this reads it through the daemon's checked and guarded memory.
    fn queue_used_idx(&self) -> Result<u16, QueueError> {
        let Some(id) = &self.id else { return self.inner.queue_used_idx() };
        let used = self.inner.get_ref().get_queue().used_ring();
        let memory = id.link.memory();
        let head = memory.words::<AtomicU16>(used, 2).map_err(|_| QueueError::FindMemoryRegion)?;
        Ok(head.load(1, Ordering::Relaxed).unwrap_or(0))
    }

    forward! {
        add_used(index: u16, bytes: u32) -> Result<(), QueueError>;
        enable_notification() -> Result<bool, QueueError>;
        disable_notification() -> Result<(), QueueError>;
        needs_notification() -> Result<bool, QueueError>;
        set_queue_info(descriptors: u64, available: u64, used: u64) -> Result<(), QueueError>;
        queue_next_avail() -> u16;
        set_queue_next_avail(base: u16);
        set_queue_next_used(index: u16);
        set_queue_size(descriptors: u16);
        set_queue_event_idx(enabled: bool);
    }
}
