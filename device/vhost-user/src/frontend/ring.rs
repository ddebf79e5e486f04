//! A driver's side of a split virtqueue. It never suppresses interrupts, and hostile tests may misuse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE, VRING_USED_F_NO_NOTIFY};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{FrontendError, GuestMemory};
use crate::memory::MemoryError;
use crate::ring::Buffer;

/// A virtqueue that this side fills.
#[derive(Debug)]
pub struct DriverRing {
    memory: Arc<GuestMemory>,
    size: u16,
    table: u64,
    available: u64,
    used: u64,
    free: Vec<u16>,
    next_available: u16,
    next_used: u16,
    /// The driver rings it to notify the device.
    pub kick: EventFd,
    /// The device signals it to interrupt the driver.
    pub call: EventFd,
}

impl DriverRing {
    /// An empty ring of `size` descriptors, a power of two.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn new(memory: &Arc<GuestMemory>, size: u16) -> Result<Self, FrontendError> {
        let event = || {
            EventFd::new(EFD_NONBLOCK)
                .map_err(|error| FrontendError::System { step: "making an event", error })
        };
        let entries = u64::from(size);
        Ok(Self {
            memory: Arc::clone(memory),
            size,
            table: memory.allocate(16 * entries, 16)?,
            available: memory.allocate(6 + 2 * entries, 2)?,
            used: memory.allocate(6 + 8 * entries, 4)?,
            free: (0..size).rev().collect(),
            next_available: 0,
            next_used: 0,
            kick: event()?,
            call: event()?,
        })
    }

    /// Guest-physical addresses of descriptor table, available ring and used ring.
    pub const fn addresses(&self) -> [u64; 3] {
        [self.table, self.available, self.used]
    }

    /// Number of descriptors.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Number of unused descriptors.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The head of the next chain of one buffer.
    pub fn next_descriptor(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// The descriptor of buffer `index` in the next chain of `chain` buffers. None if too few descriptors are free.
    pub fn descriptor(&self, index: usize, chain: usize) -> Option<u16> {
        let first = self.free.len().checked_sub(chain)?;
        self.free.get(first + index).copied()
    }

    /// Makes a chain of `buffers` available and returns its head. `None` if too few descriptors are free. The device
    /// sees it only after [`DriverRing::publish`].
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn add(&mut self, buffers: &[Buffer]) -> Result<Option<u16>, MemoryError> {
        if buffers.is_empty() || buffers.len() > self.free.len() {
            return Ok(None);
        }
        let first = self.free.len() - buffers.len();
        for (place, buffer) in (first..).zip(buffers) {
            let Some(&descriptor) = self.free.get(place) else { break };
            let next = self.free.get(place + 1).copied();
            let flags =
                next.map_or(0, |_| VRING_DESC_F_NEXT) | if buffer.writable { VRING_DESC_F_WRITE } else { 0 };
            self.write_descriptor(descriptor, *buffer, flags as u16, next.unwrap_or(0))?;
        }
        let head = self.free.get(first).copied();
        self.free.truncate(first);
        if let Some(head) = head {
            self.offer(head)?;
        }
        Ok(head)
    }

    /// Writes one descriptor with these values, which may be invalid.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn write_descriptor(
        &self,
        descriptor: u16,
        buffer: Buffer,
        flags: u16,
        next: u16,
    ) -> Result<(), MemoryError> {
        let words = self.memory.atomics::<AtomicU64>(self.table + 16 * u64::from(descriptor), 2)?;
        if let [address, rest] = words {
            let packed = u64::from(buffer.bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
            address.store(buffer.address.to_le(), Ordering::Relaxed);
            rest.store(packed.to_le(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts `head`, which may be invalid, into the next entry of the available ring.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn offer(&mut self, head: u16) -> Result<(), MemoryError> {
        let entry = 4 + 2 * u64::from(self.next_available % self.size);
        if let [word] = self.memory.atomics::<AtomicU16>(self.available + entry, 1)? {
            word.store(head.to_le(), Ordering::Relaxed);
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(())
    }

    /// Advances the available index over `entries` that were never filled, which is invalid.
    pub fn skip(&mut self, entries: u16) {
        self.next_available = self.next_available.wrapping_add(entries);
    }

    /// Shows the device the added chains, without a doorbell: enough for a device that polls.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn show(&self) -> Result<(), MemoryError> {
        if let [index] = self.memory.atomics::<AtomicU16>(self.available + 2, 1)? {
            index.store(self.next_available.to_le(), Ordering::Release);
        }
        Ok(())
    }

    /// Shows the device the added chains. True if the device has enabled notifications.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn publish(&self) -> Result<bool, MemoryError> {
        self.show()?;
        fence(Ordering::SeqCst);
        let flags = self.memory.atomics::<AtomicU16>(self.used, 1)?;
        let flags = flags.first().map_or(0, |flags| u16::from_le(flags.load(Ordering::Relaxed)));
        Ok(u32::from(flags) & VRING_USED_F_NO_NOTIFY == 0)
    }

    /// Shows the device the added chains, and rings if the device has enabled notifications.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn notify(&self) -> Result<(), FrontendError> {
        if self.publish().map_err(|_| FrontendError::Malformed("a ring is outside the guest's memory"))? {
            self.ring()?;
        }
        Ok(())
    }

    /// Rings, even if the device has disabled notifications.
    ///
    /// # Errors
    /// [`FrontendError::System`].
    pub fn ring(&self) -> Result<(), FrontendError> {
        self.kick.write(1).map_err(|error| FrontendError::System { step: "ringing a doorbell", error })
    }

    /// The next chain that the device has returned: its head and the number of written bytes.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn poll_used(&mut self) -> Result<Option<(u16, u32)>, MemoryError> {
        let index = self.memory.atomics::<AtomicU16>(self.used + 2, 1)?;
        let index = index.first().map_or(self.next_used, |index| u16::from_le(index.load(Ordering::Acquire)));
        if index == self.next_used {
            return Ok(None);
        }
        let entry = 4 + 8 * u64::from(self.next_used % self.size);
        let [head, bytes] = self.memory.atomics::<AtomicU32>(self.used + entry, 2)? else { return Ok(None) };
        let head = u32::from_le(head.load(Ordering::Relaxed)) as u16;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(Some((head, u32::from_le(bytes.load(Ordering::Relaxed)))))
    }

    /// Frees the descriptors of a returned chain.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn reclaim(&mut self, head: u16) -> Result<(), MemoryError> {
        let mut descriptor = head;
        for _ in 0..self.size {
            self.free.push(descriptor);
            let words = self.memory.atomics::<AtomicU64>(self.table + 16 * u64::from(descriptor), 2)?;
            let rest = words.last().map_or(0, |rest| u64::from_le(rest.load(Ordering::Relaxed)));
            if (rest >> 32) as u32 & VRING_DESC_F_NEXT == 0 {
                break;
            }
            descriptor = (rest >> 48) as u16;
        }
        Ok(())
    }
}
