//! Pages shared with a device: every `unsafe` access of the library is in this module and in [`copy`].
//!
//! [`niclab_port::atomic`] uses them as words. Only the doorbell is a register, with stores of its own ([`Doorbell`]).

pub(crate) mod copy;

use std::any::Any;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// 64-bit words that a device also reads or writes. Cloning is cheap; clones share the memory.
#[derive(Clone)]
pub struct SharedMemory {
    first: NonNull<AtomicU64>,
    words: usize,
    /// Owner of the memory; drops it with the last clone.
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics, which any thread may use, and `keep` is `Send + Sync` itself.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SharedMemory").field("words", &self.words).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// Memory of this process, shared with a device that runs in it.
    pub fn from_words(words: Arc<[AtomicU64]>) -> Self {
        let first = NonNull::from(&*words).cast();
        Self { first, words: words.len(), keep: Arc::new(words) }
    }

    /// Memory that other code mapped.
    ///
    /// # Safety
    ///
    /// `first` must be aligned to 8 bytes and valid for reads of `words` 64-bit words as long as `keep` lives, and for
    /// writes too if a port writes to it (requester and completer page). During that time no reference to the memory
    /// may exist other than to atomics. Other users must access it with atomic or volatile accesses, or from another
    /// process.
    pub unsafe fn from_raw(first: NonNull<u64>, words: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { first: first.cast(), words, keep }
    }

    /// Allocates whole zeroed pages for at least `bytes` bytes, to be registered with a NIC.
    ///
    /// # Errors
    ///
    /// Those of the kernel, if memory is short; `InvalidInput` for zero bytes.
    pub fn pages(bytes: usize) -> io::Result<Self> {
        let page = niclab_abi::PAGE_BYTES as usize;
        let bytes = bytes.checked_next_multiple_of(page).ok_or(io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::anonymous(bytes)?;
        Ok(Self { first: mapping.start.cast(), words: bytes / size_of::<u64>(), keep: Arc::new(mapping) })
    }

    /// Maps `bytes`, a multiple of 8, from `offset` of `file`, shared; for writing too if `write` is set.
    pub(crate) fn map(file: &File, offset: u64, bytes: usize, write: bool) -> io::Result<Self> {
        let mapping = Mapping::new(file, offset, bytes, write)?;
        Ok(Self { first: mapping.start.cast(), words: bytes / size_of::<u64>(), keep: Arc::new(mapping) })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the constructors ensure that the words are aligned and live as long as `keep`, hence as `self`; as
        // atomics they may change under the reference. Read-only mappings are only loaded from, and only by relaxed
        // loads of eight bytes, which the standard library documents as allowed on read-only memory.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }

    /// The words in `range` as separate memory; `None` if the range exceeds the memory.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let words = self.words().get(range)?;
        Some(Self { first: NonNull::from(words).cast(), words: words.len(), keep: Arc::clone(&self.keep) })
    }
}

/// Access to bytes, any number at any offset. Concurrent stores of other threads or devices become visible byte by
/// byte. Bytes outside the given range are never modified.
impl SharedMemory {
    /// Bytes of the memory.
    pub fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// Address of the first byte in this process.
    pub(crate) fn address(&self) -> u64 {
        self.first.as_ptr().addr() as u64
    }

    /// Copies bytes from `offset` on into `out`. If the range exceeds the memory, copies nothing and returns `false`.
    #[must_use]
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(Span { first, head, words }) = self.span(offset, out.len()) else { return false };
        let (begin, rest) = out.split_at_mut(head.len().min(out.len()));
        let (middle, end) = rest.as_chunks_mut::<8>();
        let (whole, last) = words.split_at(middle.len());
        if let Some(first) = first {
            begin.copy_from_slice(&first.load(Ordering::Relaxed).to_ne_bytes()[head]);
        }
        copy::load(whole, middle);
        if let Some(last) = last.first() {
            end.copy_from_slice(&last.load(Ordering::Relaxed).to_ne_bytes()[..end.len()]);
        }
        true
    }

    /// Copies `bytes` to `offset`. If the range exceeds the memory, copies nothing and returns `false`.
    #[must_use]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(Span { first, head, words }) = self.span(offset, bytes.len()) else { return false };
        let (begin, rest) = bytes.split_at(head.len().min(bytes.len()));
        let (middle, end) = rest.as_chunks::<8>();
        let (whole, last) = words.split_at(middle.len());
        if let Some(first) = first {
            merge(first, head, begin);
        }
        copy::store(whole, middle);
        if let Some(last) = last.first() {
            merge(last, 0..end.len(), end);
        }
        true
    }

    /// The words that hold `bytes` bytes from `offset` on.
    fn span(&self, offset: usize, bytes: usize) -> Option<Span<'_>> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes())?;
        let (word, lane) = (offset / 8, offset % 8);
        if lane == 0 {
            let words = self.words().get(word..end.div_ceil(8))?;
            return Some(Span { first: None, head: 0..0, words });
        }
        let head = lane..(lane + bytes).min(8);
        // If all bytes are in the first word, no word follows.
        let words = self.words().get(word + 1..end.div_ceil(8).max(word + 1))?;
        Some(Span { first: self.words().get(word), head, words })
    }
}

/// The location of bytes: the bytes in a partial first word, if there is one, and the words after it.
struct Span<'a> {
    first: Option<&'a AtomicU64>,
    head: Range<usize>,
    words: &'a [AtomicU64],
}

/// Replaces some bytes of a word. Concurrent stores of a device to the other bytes are not lost.
fn merge(word: &AtomicU64, place: Range<usize>, bytes: &[u8]) {
    let merged = |old: u64| {
        let mut new = old.to_ne_bytes();
        new[place.clone()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(new))
    };
    if !bytes.is_empty() {
        // The closure always returns a new value, so this cannot fail.
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
    }
}

/// The doorbell: a page with a 16-bit notify register at its first byte.
#[derive(Debug)]
pub(crate) struct Doorbell(Mapping);

impl Doorbell {
    /// Maps the doorbell page at `offset` of `file`.
    pub(crate) fn map(file: &File, offset: u64) -> io::Result<Self> {
        Mapping::new(file, offset, niclab_abi::PAGE_BYTES as usize, true).map(Self)
    }

    /// Rings for `queue`.
    pub(crate) fn ring(&self, queue: u16) {
        // SAFETY: the mapping is one writable page, lives as long as `self`, and its first two bytes are a register
        // whose store has no effect on memory of this process.
        unsafe { self.0.start.cast::<u16>().write_volatile(queue.to_le()) }
    }
}

/// A shared mapping, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<std::ffi::c_void>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type gives no access of its own.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, offset: u64, bytes: usize, write: bool) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = if write { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        // SAFETY: the kernel chooses a free address, so no memory of this process is replaced.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file.as_fd(), offset)? };
        Ok(Self { start, bytes })
    }

    fn anonymous(bytes: usize) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: as in `new`.
        let start = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE)? };
        Ok(Self { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new`, and every reference into it borrows from its owner. An error would
        // mean that it is not mapped any more, and that nothing needs to be undone.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use niclab_port::atomic::load;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Bytes at any offset are copied, and their neighbours do not change.
        #[test]
        fn bytes_are_copied_in_and_out_and_their_neighbours_stay(
            offset in 0..48_usize,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let memory = SharedMemory::from_words((0..8).map(|_| AtomicU64::new(u64::MAX)).collect());
            let fits = offset + bytes.len() <= 64;
            prop_assert_eq!(memory.copy_in(offset, &bytes), fits);
            let mut all = [0; 64];
            prop_assert!(memory.copy_out(0, &mut all));
            let mut expected = [0xff; 64];
            if fits {
                expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
                let mut out = vec![0; bytes.len()];
                prop_assert!(memory.copy_out(offset, &mut out));
                prop_assert_eq!(out, bytes);
            } else {
                prop_assert!(!memory.copy_out(offset, &mut vec![0; bytes.len()]));
            }
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn pages_are_complete_and_zero() {
        let memory = SharedMemory::pages(5000).expect("two pages");
        assert_eq!((memory.bytes(), memory.address() % 4096), (8192, 0));
        assert!(memory.words().iter().all(|word| load(word) == 0));
        assert!(SharedMemory::pages(0).is_err() && SharedMemory::pages(usize::MAX).is_err());
    }

    #[test]
    fn parts_share_the_memory_and_keep_it() {
        let whole = SharedMemory::from_words((0..16).map(AtomicU64::new).collect());
        let part = whole.part(4..8).expect("within");
        drop(whole);
        assert_eq!(part.words().iter().map(load).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert!(part.part(0..5).is_none());
    }

    #[test]
    fn a_mapping_shows_the_file() {
        use std::io::Write as _;
        let path = std::env::temp_dir().join(format!("niclab-memory-{}", std::process::id()));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("unlink");
        file.write_all(&[7; 4096]).expect("a page");
        let memory = SharedMemory::map(&file, 0, 4096, false).expect("a mapping");
        assert_eq!(memory.words().len(), 512);
        assert_eq!(load(&memory.words()[511]), u64::from_le_bytes([7; 8]));
        assert!(
            SharedMemory::map(&file, 1, 4096, false).is_err(),
            "an offset must be a multiple of the page size"
        );
    }
}
