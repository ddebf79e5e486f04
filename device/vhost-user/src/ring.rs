//! The device's side of a split virtqueue, one burst at a time.
//!
//! `virtio-queue` keeps a queue's addresses and indices; this module walks its rings. A burst translates the
//! addresses of the three rings once, and stores the used index once at its end. The module also respects the flag by
//! which a driver suppresses interrupts. Layout and rules: Virtual I/O Device specification 1.2, section 2.7.
//!
//! The guest writes the rings, so all their words are hostile until checked. (The attacks: a head or a link out of
//! range, a chain that loops, an index too far ahead, a table inside a table.) Each is an error with a name, and the
//! device follows none. It loads each word once ([`crate::memory::access`]), so it uses the word that it has checked.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use smallvec::SmallVec;
use thiserror::Error;
use vhost_user_backend::{VringState, VringT};
use virtio_bindings::virtio_ring::{
    VRING_AVAIL_F_NO_INTERRUPT, VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
    VRING_USED_F_NO_NOTIFY,
};
use virtio_queue::QueueT;

use crate::memory::access::Words;
use crate::memory::{DmaMemory, MemoryError};
use crate::vring::{self, GuestMemory, Vring};

/// An error of a ring or a chain. All but [`RingError::NotReady`] are violations by the guest.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RingError {
    /// The driver has not set up the queue, or the front end has stopped it.
    #[error("the queue is not in use")]
    NotReady,
    /// A ring or an indirect table is outside the guest's memory.
    #[error("a ring or an indirect table of the queue is outside the guest's memory: {0}")]
    Memory(#[from] MemoryError),
    /// More chains are available than the queue has descriptors. To take them would serve one chain forever.
    #[error("the available index is {ahead} ahead, which is more than the queue's {size} descriptors")]
    AvailableIndex {
        /// How far it is ahead of the device.
        ahead: u16,
        /// Descriptors of the queue.
        size: u16,
    },
    /// A head or a link names a descriptor that the table does not have.
    #[error("descriptor {index} does not exist in a table of {size}")]
    Index {
        /// The descriptor.
        index: u16,
        /// Descriptors of the table.
        size: u16,
    },
    /// The chain is longer than its table: it loops.
    #[error("a chain has more than {size} descriptors: it loops")]
    Loop {
        /// Descriptors of the table.
        size: u16,
    },
    /// An indirect descriptor is in an indirect table, has a successor, or has a table of a wrong length.
    #[error("an indirect descriptor is nested, chained or of a wrong length")]
    Indirect,
}

impl RingError {
    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotReady => "ring_not_ready",
            Self::Memory(_) => "ring_outside_memory",
            Self::AvailableIndex { .. } => "ring_available_index",
            Self::Index { .. } => "ring_descriptor_index",
            Self::Loop { .. } => "ring_loop",
            Self::Indirect => "ring_indirect",
        }
    }
}

/// One buffer of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The device may only write it; otherwise it may only read it.
    pub writable: bool,
}

/// The buffers of one chain, in order. Most chains have two or three.
pub type Chain = SmallVec<[Buffer; 4]>;

/// A chain of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// Its head.
    pub head: u16,
    /// Its buffer.
    pub buffer: Buffer,
}

/// Chains of one buffer that the device took together.
pub type Singles = SmallVec<[Single; 64]>;

const DESCRIPTOR_BYTES: u32 = 16;

/// A locked queue with its three rings and its indices, for one burst. [`Burst::publish`] shows used chains to the
/// driver, at the latest when the burst is dropped.
pub struct Burst<'a> {
    state: MutexGuard<'a, VringState<GuestMemory>>,
    memory: &'a DmaMemory,
    /// Two words for each descriptor: the address; length, flags and successor.
    table: Words<'a, AtomicU64>,
    /// Flags, index, one entry for each descriptor, used event.
    available: Words<'a, AtomicU16>,
    /// Flags and index.
    used_head: Words<'a, AtomicU16>,
    /// Two words for each entry: head of the chain, bytes written.
    used: Words<'a, AtomicU32>,
    /// The word after the entries of the used ring.
    available_event: Words<'a, AtomicU16>,
    size: u16,
    event_idx: bool,
    next_available: u16,
    available_index: u16,
    next_used: u16,
    published: u16,
}

impl<'a> Burst<'a> {
    /// Locks `vring`, whose rings are in `memory`, to take and to return chains.
    ///
    /// # Errors
    /// [`RingError::NotReady`], [`RingError::Memory`].
    pub fn open(vring: &'a Vring, memory: &'a DmaMemory) -> Result<Self, RingError> {
        let state = vring.get_mut();
        if !state.get_queue().ready() || !state.is_enabled() {
            return Err(RingError::NotReady);
        }
        Self::of_state(state, memory)
    }

    /// Locks `vring` to return chains that the device took earlier. The front end may be stopping the queue: it
    /// disables the queue and marks it not ready before the device sees the stop. Until the device has answered
    /// GET_VRING_BASE, the chains belong to the device, and a driver whose machine continues waits for them.
    ///
    /// # Errors
    /// As [`Burst::open`].
    pub fn open_to_return(vring: &'a Vring, memory: &'a DmaMemory) -> Result<Self, RingError> {
        Self::of_state(vring.get_mut(), memory)
    }

    fn of_state(
        state: MutexGuard<'a, VringState<GuestMemory>>,
        memory: &'a DmaMemory,
    ) -> Result<Self, RingError> {
        let queue = state.get_queue();
        if !queue.size().is_power_of_two() {
            return Err(RingError::NotReady);
        }
        let (size, event_idx) = (queue.size(), queue.event_idx_enabled());
        let entries = usize::from(size);
        let table = memory.words::<AtomicU64>(queue.desc_table(), 2 * entries)?;
        let available = memory.words::<AtomicU16>(queue.avail_ring(), 3 + entries)?;
        let used_ring = queue.used_ring();
        let used_head = memory.words::<AtomicU16>(used_ring, 2)?;
        let used = memory.words::<AtomicU32>(used_ring.wrapping_add(4), 2 * entries)?;
        let behind = used_ring.wrapping_add(4 + 8 * u64::from(size));
        let available_event = memory.words::<AtomicU16>(behind, 1)?;
        let (next_available, next_used) = (queue.next_avail(), queue.next_used());
        Ok(Self {
            state,
            memory,
            table,
            available,
            used_head,
            used,
            available_event,
            size,
            event_idx,
            next_available,
            available_index: next_available,
            next_used,
            published: next_used,
        })
    }

    /// The memory of the rings and buffers.
    pub fn memory(&self) -> &'a DmaMemory {
        self.memory
    }

    /// The number of available chains. Loads the driver's index only if the device has taken all chains that it knows
    /// of.
    ///
    /// # Errors
    /// [`RingError::AvailableIndex`].
    #[inline]
    pub fn available(&mut self) -> Result<u16, RingError> {
        let ahead = self.available_index.wrapping_sub(self.next_available);
        if ahead != 0 {
            return Ok(ahead);
        }
        let index = self.driver_index();
        let ahead = index.wrapping_sub(self.next_available);
        if ahead > self.size {
            return Err(RingError::AvailableIndex { ahead, size: self.size });
        }
        self.available_index = index;
        Ok(ahead)
    }

    /// The entry of an index. The number of entries is a power of two (section 2.7), and the library accepts no other
    /// size. So this is the index modulo the size, without a division for each entry.
    #[inline]
    const fn place(&self, index: u16) -> usize {
        (index & (self.size - 1)) as usize
    }

    /// Descriptors of the queue.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// The driver's index as the device has loaded it last.
    #[inline]
    pub const fn available_index(&self) -> u16 {
        self.available_index
    }

    /// Whether the driver's index differs from `seen`.
    #[inline]
    pub fn has_more_than(&self, seen: u16) -> bool {
        self.driver_index() != seen
    }

    #[inline]
    fn driver_index(&self) -> u16 {
        self.available.load(1, Ordering::Acquire).unwrap_or(0)
    }

    /// Takes the next chain: returns its head, which the caller must return by [`Burst::push_used`], and its buffers
    /// in `chain`. `Ok(None)` if there is none. An invalid chain is returned at once, with no bytes written.
    ///
    /// # Errors
    /// [`RingError`].
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<Option<u16>, RingError> {
        chain.clear();
        if self.available()? == 0 {
            return Ok(None);
        }
        let entry = 2 + self.place(self.next_available);
        let head = self.available.load(entry, Ordering::Relaxed).unwrap_or(u16::MAX);
        self.next_available = self.next_available.wrapping_add(1);
        if head >= self.size {
            // The head cannot be returned: the driver would index its own table with it.
            return Err(RingError::Index { index: head, size: self.size });
        }
        if let Err(error) = self.walk(head, chain) {
            self.push_used(head, 0);
            return Err(error);
        }
        Ok(Some(head))
    }

    /// Takes up to `max` chains, as long as each has one buffer. It reads all their entries of ring and table before
    /// the device processes a chain. The caller must return them by [`Burst::push_used_all`] or, the last of them, by
    /// [`Burst::give_back`]. This leaves other and invalid chains for [`Burst::pop`], which reports the error.
    #[inline]
    pub fn take_singles(&mut self, singles: &mut Singles, max: usize) {
        singles.clear();
        // `available` has checked that the driver's index is at most one queue ahead, so the chains taken here are
        // too.
        let Ok(ahead) = self.available() else { return };
        let mut next = self.next_available;
        for _ in 0..max.min(ahead.into()) {
            let head = self.available.load(2 + self.place(next), Ordering::Relaxed).unwrap_or(u16::MAX);
            // A head out of range has no words in the table.
            let Some((buffer, flags, _)) = descriptor(self.table, head) else { break };
            if flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT) != 0 {
                break;
            }
            singles.push(Single { head, buffer });
            next = next.wrapping_add(1);
        }
        self.next_available = next;
    }

    /// Puts the chain that was taken last back, as if it had not been taken.
    #[inline]
    pub fn unpop(&mut self) {
        self.give_back(1);
    }

    /// Puts the chains that were taken last back, as if they had not been taken.
    #[inline]
    pub fn give_back(&mut self, chains: usize) {
        self.next_available = self.next_available.wrapping_sub(chains as u16);
    }

    #[inline]
    fn walk(&self, head: u16, chain: &mut Chain) -> Result<(), RingError> {
        let (mut table, mut size) = (self.table, self.size);
        let (mut index, mut nested) = (head, false);
        loop {
            let Some((Buffer { address, bytes, writable }, flags, next)) = descriptor(table, index) else {
                return Err(RingError::Index { index, size });
            };
            if flags & VRING_DESC_F_INDIRECT != 0 {
                if nested || flags & VRING_DESC_F_NEXT != 0 {
                    return Err(RingError::Indirect);
                }
                table = self.indirect(address, bytes)?;
                (size, index, nested) = ((bytes / DESCRIPTOR_BYTES) as u16, 0, true);
                continue;
            }
            if chain.len() >= usize::from(self.size) {
                return Err(RingError::Loop { size: self.size });
            }
            chain.push(Buffer { address, bytes, writable });
            if flags & VRING_DESC_F_NEXT == 0 {
                return Ok(());
            }
            index = next;
        }
    }

    /// An indirect table. A chain is never longer than the queue, so neither is the table.
    fn indirect(&self, address: u64, bytes: u32) -> Result<Words<'a, AtomicU64>, RingError> {
        let entries = bytes / DESCRIPTOR_BYTES;
        if !bytes.is_multiple_of(DESCRIPTOR_BYTES) || entries == 0 || entries > u32::from(self.size) {
            return Err(RingError::Indirect);
        }
        Ok(self.memory.words::<AtomicU64>(address, 2 * entries as usize)?)
    }

    /// Returns a chain after the device has written its first `bytes`. The driver sees it only after
    /// [`Burst::publish`].
    #[inline]
    pub fn push_used(&mut self, head: u16, bytes: u32) {
        let entry = 2 * self.place(self.next_used);
        self.used.store_all(entry, [u32::from(head), bytes]);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Returns several chains, each as [`Burst::push_used`] does.
    #[inline]
    pub fn push_used_all(&mut self, chains: impl Iterator<Item = (u16, u32)>) {
        chains.for_each(|(head, bytes)| self.push_used(head, bytes));
    }

    /// Shows the driver the returned chains. Returns whether the driver wants an interrupt for them.
    #[inline]
    pub fn publish(&mut self) -> Interrupt {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return Interrupt::NothingNew;
        }
        self.used_head.store(1, new, Ordering::Release);
        self.published = new;
        // The driver stores its request, then loads the index; the device stores the index, then loads the request.
        // Without full barriers on both sides each could miss the other's store.
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            let event = self.available.load_last(Ordering::Relaxed).unwrap_or(0);
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            let flags = self.available.load(0, Ordering::Relaxed).unwrap_or(0);
            u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT == 0
        };
        if wanted { Interrupt::Wanted } else { Interrupt::Suppressed }
    }

    /// Raises the queue's interrupt. False if the front end has set no call descriptor.
    pub fn interrupt(&self) -> bool {
        vring::interrupt(&self.state)
    }

    /// Enables or disables notifications by the driver. True if a chain is available already: the driver may have
    /// added it before it saw the request. For a device that takes all available chains.
    pub fn want_doorbell(&mut self, wanted: bool) -> bool {
        self.ask_for_doorbell(wanted, self.next_available);
        wanted && matches!(self.available(), Ok(1..))
    }

    /// Asks the driver to notify when it adds more than the device has seen. True if it has done so already. For a
    /// device that has seen all available chains, and needs more.
    pub fn want_more(&mut self) -> bool {
        let seen = self.available_index;
        self.ask_for_doorbell(true, seen);
        self.has_more_than(seen)
    }

    /// Stores the request: the driver notifies when it fills the entry `index`, or never. The barrier ensures that
    /// the next load sees chains which the driver added before it saw the request.
    fn ask_for_doorbell(&mut self, wanted: bool, index: u16) {
        if self.event_idx {
            // Half a ring away: an index that the driver does not reach.
            let event = if wanted { index } else { index.wrapping_add(0x8000) };
            store_new(self.available_event, event);
        } else {
            let value = if wanted { 0 } else { VRING_USED_F_NO_NOTIFY as u16 };
            store_new(self.used_head, value);
        }
        fence(Ordering::SeqCst);
    }
}

/// A descriptor of a table: its buffer, all its flags, and its successor. None if the index is out of range.
#[inline]
fn descriptor(table: Words<'_, AtomicU64>, index: u16) -> Option<(Buffer, u32, u16)> {
    let [address, rest] = table.load_all::<2>(2 * usize::from(index))?;
    let (bytes, flags, next) = (rest as u32, (rest >> 32) as u32 & 0xffff, (rest >> 48) as u16);
    Some((Buffer { address, bytes, writable: flags & VRING_DESC_F_WRITE != 0 }, flags, next))
}

/// Stores the first of these words, unless it has this value already: the driver's core then keeps its copy of the
/// cache line.
#[inline]
fn store_new(words: Words<'_, AtomicU16>, value: u16) {
    if words.load(0, Ordering::Relaxed) != Some(value) {
        words.store(0, value, Ordering::Relaxed);
    }
}

/// The driver's request for an interrupt after a [`Burst::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The device has returned no chain.
    NothingNew,
    /// The driver wants an interrupt.
    Wanted,
    /// The driver polls.
    Suppressed,
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        self.publish();
        let (available, used) = (self.next_available, self.next_used);
        let queue = self.state.get_queue_mut();
        queue.set_next_avail(available);
        queue.set_next_used(used);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use vhost_user_backend::VringT;
    use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

    use super::*;

    const SIZE: u16 = 4;
    const AVAILABLE: u64 = 0x1000;
    pub(crate) const USED: u64 = 0x2000;

    /// A queue whose driver has made `chains` available, each one buffer of 64 bytes.
    pub(crate) fn queue(event_idx: bool, chains: u16) -> (GuestMemory, Vring, DmaMemory) {
        let memory = GuestMemory::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x8000)]).unwrap());
        let vring = Vring::new(memory.clone(), SIZE).unwrap();
        vring.set_queue_size(SIZE);
        vring.set_queue_info(0, AVAILABLE, USED).unwrap();
        vring.set_queue_event_idx(event_idx);
        vring.set_queue_ready(true);
        vring.set_enabled(true);
        let table = memory.memory();
        for descriptor in 0..SIZE {
            let words = [0x4000_u64, 64 | u64::from(VRING_DESC_F_WRITE) << 32];
            table.write_obj(words, GuestAddress(16 * u64::from(descriptor))).unwrap();
            table.write_obj(descriptor, GuestAddress(AVAILABLE + 4 + 2 * u64::from(descriptor))).unwrap();
        }
        let dma = DmaMemory::new(&table, None);
        make_available(&memory, chains);
        (memory, vring, dma)
    }

    fn make_available(memory: &GuestMemory, chains: u16) {
        memory.memory().write_obj(chains, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    /// The entry for which the driver is to notify: `avail_event`, Virtual I/O Device specification 1.2, 2.7.10.
    fn wanted_entry(memory: &GuestMemory) -> u16 {
        memory.memory().read_obj(GuestAddress(USED + 4 + 8 * u64::from(SIZE))).unwrap()
    }

    /// Takes all available chains and puts them back, as for a frame that does not fit.
    fn look_through(burst: &mut Burst<'_>) -> usize {
        let mut chain = Chain::new();
        let mut taken = 0;
        while burst.pop(&mut chain).unwrap().is_some() {
            taken += 1;
        }
        (0..taken).for_each(|_| burst.unpop());
        taken
    }

    #[test]
    fn chains_that_were_too_few_do_not_count_as_more() {
        for event_idx in [false, true] {
            let (memory, vring, dma) = queue(event_idx, 2);
            let mut burst = Burst::open(&vring, &dma).unwrap();
            assert_eq!(look_through(&mut burst), 2);
            assert!(!burst.want_more(), "the two chains that did not suffice are no reason to check again");
            if event_idx {
                assert_eq!(
                    wanted_entry(&memory),
                    2,
                    "the next chain that is added, not one that is there already"
                );
            }
            make_available(&memory, 3);
            assert!(burst.want_more(), "this chain came between check and request");
            assert_eq!(look_through(&mut burst), 3);
        }
    }

    #[test]
    fn emptied_queue_asks_for_the_next_entry() {
        let (memory, vring, dma) = queue(true, 1);
        let mut burst = Burst::open(&vring, &dma).unwrap();
        assert!(burst.want_doorbell(true), "one chain is available");
        let head = burst.pop(&mut Chain::new()).unwrap().unwrap();
        burst.push_used(head, 0);
        assert!(!burst.want_doorbell(true));
        assert_eq!(wanted_entry(&memory), 1);
    }

    /// The heads of the chains that are taken together, at most `max`.
    fn heads(burst: &mut Burst<'_>, max: usize) -> Vec<u16> {
        let mut singles = Singles::new();
        burst.take_singles(&mut singles, max);
        let whole = Buffer { address: 0x4000, bytes: 64, writable: true };
        assert!(singles.iter().all(|single| single.buffer == whole));
        singles.iter().map(|single| single.head).collect()
    }

    #[test]
    fn single_buffer_chains_are_taken_and_returned_together() {
        let (memory, vring, dma) = queue(false, 3);
        let mut burst = Burst::open(&vring, &dma).unwrap();
        assert_eq!(heads(&mut burst, 2), [0, 1]);
        assert_eq!(heads(&mut burst, 64), [2]);
        assert_eq!(heads(&mut burst, 64), [0; 0]);
        burst.give_back(2);
        assert_eq!(burst.pop(&mut Chain::new()), Ok(Some(1)));
        burst.push_used_all([(0, 7), (1, 8), (2, 9)].into_iter());
        // Across the end of the ring.
        make_available(&memory, 6);
        assert_eq!(
            heads(&mut burst, 64),
            [2],
            "all chains that were seen before the next load of the driver's index"
        );
        assert_eq!(heads(&mut burst, 64), [3, 0, 1]);
        burst.push_used_all([(2, 1), (3, 2)].into_iter());
        drop(burst);
        let used: [u32; 8] = memory.memory().read_obj(GuestAddress(USED + 4)).unwrap();
        assert_eq!((used, vring.queue_next_avail()), ([3, 2, 1, 8, 2, 9, 2, 1], 6));
        let index: u16 = memory.memory().read_obj(GuestAddress(USED + 2)).unwrap();
        assert_eq!(index, 5);
    }

    #[test]
    fn take_singles_leaves_other_chains_for_pop() {
        let set = |memory: &GuestMemory, descriptor: u64, flags: u32| {
            let words = [0x4000_u64, 64 | u64::from(flags) << 32];
            memory.memory().write_obj(words, GuestAddress(16 * descriptor)).unwrap();
        };
        for flags in [VRING_DESC_F_NEXT, VRING_DESC_F_INDIRECT, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT] {
            let (memory, vring, dma) = queue(false, 4);
            set(&memory, 2, flags);
            let mut burst = Burst::open(&vring, &dma).unwrap();
            assert_eq!(heads(&mut burst, 64), [0, 1]);
            let named = burst.pop(&mut Chain::new());
            // The table of the indirect descriptor exists, and its first entry is a buffer.
            let is_nested = flags == VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT;
            assert_eq!(named.is_err(), is_nested, "{named:?}");
            assert_eq!(heads(&mut burst, 64), [3]);
        }
        // The device follows no head or index out of the guest's table.
        for head in [SIZE, u16::MAX] {
            let (memory, vring, dma) = queue(false, 4);
            memory.memory().write_obj(head, GuestAddress(AVAILABLE + 4 + 2)).unwrap();
            let mut burst = Burst::open(&vring, &dma).unwrap();
            assert_eq!(heads(&mut burst, 64), [0]);
            assert_eq!(burst.pop(&mut Chain::new()), Err(RingError::Index { index: head, size: SIZE }));
        }
        let (memory, vring, dma) = queue(false, 4);
        make_available(&memory, SIZE + 1);
        let mut burst = Burst::open(&vring, &dma).unwrap();
        assert_eq!(heads(&mut burst, 64), [0; 0]);
        let ahead = RingError::AvailableIndex { ahead: SIZE + 1, size: SIZE };
        assert_eq!(burst.pop(&mut Chain::new()), Err(ahead));
    }
}
