//! A virtqueue as the vhost-user library drives it, with an exact count of the doorbells that were rung, and events
//! that nobody has to trust.

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

/// The guest's memory as the vhost-user library holds it.
pub type GuestMemory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The library's locked virtqueue. What it adds:
///
/// * the library reads a queue's kick descriptor and throws its value away, which is how many times the guest rang;
///   this one adds it up, and never waits for it;
/// * the library goes on watching a kick that was replaced, for as long as the front end keeps its end, and does not
///   watch the new one; this one changes over;
/// * events that are none are refused, see [`crate::notification`];
/// * it knows whether a queue that starts continues where it stopped ([`Start`]).
#[derive(Clone)]
pub struct Vring {
    inner: VringMutex<GuestMemory>,
    stop: Arc<Mutex<Stop>>,
    kicks: Arc<AtomicU64>,
    kick_changes: Arc<AtomicU64>,
    place: Option<Place>,
}

/// What was heard of a queue's kick at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    /// How many times the guest rang, as far as that was taken out of the event.
    pub kicks: u64,
    /// Somebody rang, and it was not taken yet; or there is no event.
    pub is_pending: bool,
    /// How often the event was replaced.
    changes: u64,
}

impl Bell {
    /// Whether nobody rang from then until `now`.
    pub fn is_all_that_was_heard(self, now: Self) -> bool {
        self.kicks == now.kicks && self.changes == now.changes && !now.is_pending
    }
}

/// Where a queue stands: GET_VRING_BASE returns it, SET_VRING_BASE and SET_VRING_ADDR set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    addresses: [u64; 3],
    size: u16,
    next_available: u16,
}

/// What the front end did to a queue last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    Never,
    Stopped(Position),
    Started(Start),
}

/// How a queue started that had been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the position at which it stopped: the machine had stood still.
    Continued {
        /// No chain of it was ever taken. A new queue starts there, too.
        is_at_first: bool,
    },
    /// Elsewhere: the driver has reset the device.
    New,
}

/// How the queues of a function started that were stopped; none while one of them has not started.
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

/// The stop of these queues is over, by this start: what is known of it is forgotten. The front end may be stopping
/// them again already, the first one first. A new driver need not start all queues.
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

/// Which queue of which connection it is.
#[derive(Clone)]
struct Place {
    link: Arc<Link>,
    queue: usize,
}

thread_local! {
    /// For the queues that the library makes on this thread just now: it passes nothing of ours on to them.
    static NEXT: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Makes what `make` makes; the queues among it are those of `link`, in the order of their numbers.
pub fn make_queues_of<T>(link: &Arc<Link>, make: impl FnOnce() -> T) -> T {
    NEXT.set(Some(Place { link: Arc::clone(link), queue: 0 }));
    let made = make();
    NEXT.set(None);
    made
}

fn next_place() -> Option<Place> {
    NEXT.with_borrow_mut(|next| {
        let place = next.clone();
        if let Some(next) = next {
            next.queue += 1;
        }
        place
    })
}

/// The descriptor of an event of the library's.
fn borrow(event: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: the library's events own their descriptors, and the result borrows from one.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// Raises a queue's interrupt, without ever waiting. False when the front end gave no way to.
pub fn interrupt(state: &VringState<GuestMemory>) -> bool {
    state.get_call().as_ref().is_some_and(|call| notification::signal(borrow(call)))
}

impl Vring {
    /// How many times the guest rang since the connection was made.
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

    /// Calls the thread of the queues where this one was stopped: it checks whether all of them have started.
    fn call_thread(&self) {
        if let Some(place) = self.place.as_ref().filter(|_| *self.stop.lock() != Stop::Never) {
            place.link.attention().wake();
        }
    }

    /// What was heard so far. Kicks are taken and counted with the queue's lock held, so that none is between the two.
    pub fn bell(&self) -> Bell {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        let is_pending =
            state.get_kick().as_ref().is_none_or(|kick| notification::is_signalled(borrow(kick)));
        let changes = self.kick_changes.load(Ordering::Relaxed);
        Bell { kicks: self.kicks.load(Ordering::Relaxed), is_pending, changes }
    }

    /// `file` if it is an event; the connection is hung up on otherwise.
    fn adopt(&self, file: Option<File>) -> Option<File> {
        match notification::adopt(file?) {
            Ok(file) => Some(file),
            Err(error) => {
                if let Some(Place { link, queue }) = &self.place {
                    link.fail(Fault::Event { queue: *queue, error });
                }
                None
            }
        }
    }

    /// Has the library's thread no longer wait for the kick. The front end keeps its end: one that is still watched
    /// once it is closed here, and was signalled just then, calls for ever.
    fn unwatch_kick(&self) {
        if let Some(epoll) = self.place.as_ref().and_then(|place| place.link.epoll())
            && let Some(kick) = self.inner.get_ref().get_kick()
        {
            // Fails when it is not watched, which is what is wanted.
            let _ = epoll.delete(borrow(kick));
        }
    }

    /// Has the library's thread wait for the kick, of a queue that runs already: the library does so when it starts
    /// one.
    fn watch_kick(&self) {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        if let Some(place) = &self.place
            && let Some(epoll) = place.link.epoll()
            && let Some(kick) = state.get_kick()
            && state.get_queue().ready()
            && state.is_enabled()
        {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, place.queue as u64);
            if let Err(errno) = epoll.add(borrow(kick), event) {
                place.link.fail(Fault::Watch { queue: place.queue, error: errno.into() });
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

/// One method of [`VringT`] that the inner virtqueue does.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($argument: $kind),*) $(-> $result)? { self.inner.$name($($argument),*) })*
    };
}

impl VringT<GuestMemory> for Vring {
    fn new(memory: GuestMemory, max_queue_size: u16) -> Result<Self, QueueError> {
        let inner = VringMutex::new(memory, max_queue_size)?;
        let (stop, kicks, kick_changes) = Default::default();
        Ok(Self { inner, stop, kicks, kick_changes, place: next_place() })
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, GuestMemory>>::G {
        self.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, GuestMemory>>::G {
        self.inner.get_mut()
    }

    /// Never fails: an error would end the thread that serves the guest's queues, and a descriptor that gives no number
    /// is the front end's fault alone.
    fn read_kick(&self) -> io::Result<bool> {
        let state: &VringState<GuestMemory> = &self.inner.get_ref();
        if let Some(kick) = state.get_kick() {
            let rings = notification::take(borrow(kick));
            self.kicks.fetch_add(rings, Ordering::Relaxed);
            if let Some(place) = &self.place {
                place.link.took_rings(rings);
            }
        }
        Ok(state.is_enabled())
    }

    fn set_kick(&self, file: Option<File>) {
        let file = self.adopt(file);
        self.unwatch_kick();
        self.kick_changes.fetch_add(1, Ordering::Relaxed);
        self.inner.set_kick(file);
        self.watch_kick();
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
        // The thread of the queue takes chains until the queue is not ready, so its position is final only then.
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

    /// Nobody is called by it: what goes wrong is counted, and shown by the monitor.
    fn set_err(&self, _file: Option<File>) {}

    fn signal_used_queue(&self) -> io::Result<()> {
        interrupt(&self.inner.get_ref());
        Ok(())
    }

    /// What the driver saw last of the used ring, for a queue that goes on. The one place where the library itself
    /// would touch the guest's memory: it is that which was checked and is guarded.
    fn queue_used_idx(&self) -> Result<u16, QueueError> {
        let Some(place) = &self.place else { return self.inner.queue_used_idx() };
        let used = self.inner.get_ref().get_queue().used_ring();
        let memory = place.link.memory();
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
