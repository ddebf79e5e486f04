//! Memory that the NIC reads and writes.

use std::ops::Range;
use std::sync::Arc;

use niclab_port::command::{self, Part};
use niclab_port::lists::messages::Buffer;

use crate::memory::Memory;
use crate::port::Link;
use crate::{Address, Backing, Error};

/// Registered memory: pinned, and known to the NIC for one port. Cheap to clone; it is deregistered with the last
/// clone.
///
/// The NIC may write into it at any time while a command names it that is not over. That is sound whatever the program
/// does: safe code reaches the bytes by atomic accesses alone, and memory is given back only after the device has
/// confirmed that it touches it no more. Where it does not confirm, because it is gone, the memory is never given back.
///
/// Match entries that name a region which is deregistered are unlinked without an event; transfers in progress end with
/// a result that says so. The port stays open as long as a region of it is left.
#[derive(Clone)]
pub struct Region(Arc<Registered>);

struct Registered {
    link: Arc<Link>,
    name: u32,
    memory: Memory,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.link.backing.deregister(self.name).is_err() {
            // The device may still write: whoever owns the memory must not give it to others.
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
    pub(crate) fn register(link: &Arc<Link>, memory: Memory) -> Result<Self, Error> {
        let name = link.backing.register(&memory)?;
        Ok(Self(Arc::new(Registered { link: Arc::clone(link), name, memory })))
    }

    /// The port that it is registered for.
    pub fn port(&self) -> Address {
        self.0.link.address
    }

    /// What the device calls it.
    pub(crate) fn name(&self) -> u32 {
        self.0.name
    }

    /// The far side of its port.
    pub(crate) fn backing(&self) -> &dyn Backing {
        &*self.0.link.backing
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> usize {
        self.0.memory.bytes()
    }

    /// The memory, as words that the device may change at any time.
    pub fn memory(&self) -> &Memory {
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
    /// [`Error::BadValue`] when it is not all there.
    pub fn span(&self, range: Range<usize>) -> Result<Span<'_>, Error> {
        if range.start > range.end || range.end > self.bytes() {
            return Err(self.beyond(range.end));
        }
        Ok(Span { region: self, offset: range.start as u64, bytes: range.len() as u64 })
    }

    /// Copies bytes from `offset` on into `out`. What a message left there is seen once its event was received.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] when they are not all there; nothing is copied then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let copied = self.0.memory.copy_out(offset, out);
        if copied { Ok(()) } else { Err(self.beyond(offset.saturating_add(out.len()))) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] when there is not so much room; nothing is copied then.
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

/// Part of a region: what a message is sent from, or stored in.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    region: &'a Region,
    offset: u64,
    bytes: u64,
}

impl Span<'_> {
    /// Where it begins in the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its bytes.
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
