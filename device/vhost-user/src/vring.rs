//! A virtqueue as the vhost-user library drives it, with an exact count of the doorbells that were rung.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vhost_user_backend::{VringMutex, VringState, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::Error as QueueError;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

/// The guest's memory as the vhost-user library holds it.
pub type GuestMemory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The library's locked virtqueue. Its one addition: the library reads a queue's kick descriptor and throws its value
/// away, which is how many times the guest rang; this one adds it up.
#[derive(Clone)]
pub struct Vring {
    inner: VringMutex<GuestMemory>,
    kicks: Arc<AtomicU64>,
}

impl Vring {
    /// How many times the guest rang since the connection was made.
    pub fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
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
        Ok(Self { inner: VringMutex::new(memory, max_queue_size)?, kicks: Arc::default() })
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
            let mut count = [0; 8];
            // SAFETY: the descriptor is open as long as `state`, whose lock is held, and `count` is eight writable bytes.
            let read = unsafe { libc::read(kick.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            if read == count.len() as isize {
                self.kicks.fetch_add(u64::from_ne_bytes(count), Ordering::Relaxed);
            }
        }
        Ok(state.is_enabled())
    }

    forward! {
        add_used(index: u16, bytes: u32) -> Result<(), QueueError>;
        signal_used_queue() -> io::Result<()>;
        enable_notification() -> Result<bool, QueueError>;
        disable_notification() -> Result<(), QueueError>;
        needs_notification() -> Result<bool, QueueError>;
        set_enabled(enabled: bool);
        set_queue_info(descriptors: u64, available: u64, used: u64) -> Result<(), QueueError>;
        queue_next_avail() -> u16;
        set_queue_next_avail(base: u16);
        set_queue_next_used(index: u16);
        queue_used_idx() -> Result<u16, QueueError>;
        set_queue_size(descriptors: u16);
        set_queue_event_idx(enabled: bool);
        set_queue_ready(ready: bool);
        set_kick(file: Option<File>);
        set_call(file: Option<File>);
        set_err(file: Option<File>);
    }
}
