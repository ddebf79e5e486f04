//! Memory that the NIC reads and writes.

use std::ops::Range;
use std::sync::Arc;

use niclab_port::command::{self, Part};
use niclab_port::matching::messages::Buffer;

use crate::memory::SharedMemory;
use crate::port::Link;
use crate::{Address, Backing, Error};

/// Registered memory: pinned, and known to the NIC for one port. Cloning is cheap; the memory is deregistered with the
/// last clone.
///
/// The NIC may write to it at any time while a command that names it has not ended. This is sound for every program:
/// safe code accesses the bytes only atomically. The memory is freed only after the device has confirmed that it does
/// not access it any more. If the device is gone and does not confirm, the memory is never freed.
///
/// Match entries that name a deregistered region are unlinked without an event. Transfers in progress end with a result
/// that reports it. The port stays open as long as it has a region.
#[derive(Clone)]
pub struct Region(Arc<Registered>);

struct Registered {
    link: Arc<Link>,
    name: u32,
    memory: SharedMemory,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.link.backing.deregister(self.name).is_err() {
            // The device may still write to the memory, so it must never be freed.
            std::mem::forget(self.memory.clone());
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Region").field(&format_args!("{:#x}", self.0.name)).finish()
    }
}

impl Buffer for Region {
    fn copy(&self, from: Part, other: &Self, to: Part) {
        let mut chunk = [0; 4096];
        let bytes = from.bytes.min(to.bytes);
        for done in (0..bytes).step_by(chunk.len()) {
            let part = &mut chunk[..(bytes - done).min(4096) as usize];
            let copied = self.0.memory.copy_out((from.offset + done) as usize, part)
                && other.0.memory.copy_in((to.offset + done) as usize, part);
            debug_assert!(copied, "parts lie in their regions");
        }
    }
}

impl Region {
    pub(crate) fn register(link: &Arc<Link>, memory: SharedMemory) -> Result<Self, Error> {
        let name = link.backing.register(&memory)?;
        Ok(Self(Arc::new(Registered { link: Arc::clone(link), name, memory })))
    }

    /// The port that it is registered for.
    pub fn port(&self) -> Address {
        self.0.link.address
    }

    /// The device's name for it.
    pub(crate) fn name(&self) -> u32 {
        self.0.name
    }

    /// The backing of its port.
    pub(crate) fn backing(&self) -> &dyn Backing {
        &*self.0.link.backing
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> usize {
        self.0.memory.bytes()
    }

    /// The memory, as words that the device may change at any time.
    pub fn memory(&self) -> &SharedMemory {
        &self.0.memory
    }

    /// All of it.
    pub fn all(&self) -> Span<'_> {
        Span { region: self, offset: 0, bytes: self.bytes() as u64 }
    }

    /// Part of it.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if the range exceeds the region.
    pub fn span(&self, range: Range<usize>) -> Result<Span<'_>, Error> {
        if range.start > range.end || range.end > self.bytes() {
            return Err(self.beyond(range.end));
        }
        Ok(Span { region: self, offset: range.start as u64, bytes: range.len() as u64 })
    }

    /// Copies bytes from `offset` on into `out`. The data of a message is visible once its event was received.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if the range exceeds the region; nothing is copied then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let copied = self.0.memory.copy_out(offset, out);
        if copied { Ok(()) } else { Err(self.beyond(offset.saturating_add(out.len()))) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if the range exceeds the region; nothing is copied then.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let copied = self.0.memory.copy_in(offset, bytes);
        if copied { Ok(()) } else { Err(self.beyond(offset.saturating_add(bytes.len()))) }
    }

    #[cold]
    fn beyond(&self, end: usize) -> Error {
        Error::BadValue {
            what: "the end of the bytes in the region",
            value: end as u64,
            range: format!("at most {}, and not before their begin", self.bytes()),
        }
    }
}

/// Part of a region: the memory that a message is sent from, or stored in.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    region: &'a Region,
    offset: u64,
    bytes: u64,
}

impl Span<'_> {
    /// Its offset in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl command::Memory<Arc<Link>, Error> for Span<'_> {
    #[inline]
    fn part(&self, link: &Arc<Link>) -> Result<Part, Error> {
        let registered = &self.region.0;
        if Arc::ptr_eq(&registered.link, link) {
            return Ok(Part { region: registered.name, offset: self.offset, bytes: self.bytes });
        }
        Err(Error::BadValue {
            what: "the port that the region is registered for",
            value: registered.link.address.port.into(),
            range: format!("the port that the command is for, which is open as {}", link.address.port),
        })
    }
}
