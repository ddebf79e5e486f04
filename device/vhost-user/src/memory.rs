//! The guest's memory as the device may access it: each access is checked, each byte is read once ([`access`]), and
//! the BAR is excluded.

pub mod access;
pub mod table;
pub mod vanishing;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_model::nic::{FrameBytes, HostRange};
use smallvec::SmallVec;
use thiserror::Error;
use vm_memory::mmap::MmapRegion;
use vm_memory::{
    AtomicInteger, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, VolatileMemory, VolatileSlice,
};

use self::access::{Room, Unread, Word, Words};

/// Why an access to guest memory is refused. The guest chose the address, so this is its fault.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MemoryError {
    /// The range is not, or not completely, memory of this guest.
    #[error("{bytes} bytes at guest address {address:#x} are not memory of this guest")]
    Outside {
        /// Guest-physical address.
        address: u64,
        /// Length of the access.
        bytes: u64,
    },
    /// Integers must be at addresses that are multiples of their size.
    #[error("guest address {address:#x} is not a multiple of {alignment}")]
    Unaligned {
        /// Guest-physical address.
        address: u64,
        /// The required alignment.
        alignment: usize,
    },
}

/// Device and inode of a file, which identify a region.
pub type FileIdentity = (u64, u64);

/// The identity of `file`, if the kernel reports it.
pub fn identity(file: &std::fs::File) -> Option<FileIdentity> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// A guest's memory table. Immutable: a new table replaces it as a whole, so one access sees one table.
#[derive(Debug, Default)]
pub struct DmaMemory {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    start: u64,
    bytes: u64,
    /// Dropped before the mapping.
    _guard: Option<vanishing::MayVanish>,
    mapping: Arc<MmapRegion>,
}

impl DmaMemory {
    /// A table of memory that this process made itself, without the region of the file `bar`. (The attack: QEMU lists
    /// a mapped BAR as guest memory. A guest that uses it as a buffer would have the device write into its own
    /// registers.)
    pub fn new(table: &GuestMemoryMmap, bar: Option<FileIdentity>) -> Self {
        let is_bar = |region: &vm_memory::GuestRegionMmap| {
            let file = region.file_offset().and_then(|place| identity(place.file()));
            bar.is_some() && file == bar
        };
        let regions = table
            .iter()
            .filter(|region| !is_bar(region))
            .map(|region| Region {
                start: region.start_addr().0,
                bytes: region.len(),
                _guard: None,
                mapping: region.get_mmap(),
            })
            .collect();
        Self { regions }
    }

    /// The bytes `address .. address + bytes`, to be read once.
    ///
    /// # Errors
    /// [`MemoryError::Outside`].
    #[inline]
    pub fn unread(&self, address: u64, bytes: usize) -> Result<Unread<'_>, MemoryError> {
        self.slice(address, bytes).map(Unread::new)
    }

    /// The bytes `address .. address + bytes`, to be written.
    ///
    /// # Errors
    /// [`MemoryError::Outside`].
    #[inline]
    pub fn room(&self, address: u64, bytes: usize) -> Result<Room<'_>, MemoryError> {
        self.slice(address, bytes).map(Room::new)
    }

    /// `count` words of a ring, from `address`.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn words<T: AtomicInteger + Word>(
        &self,
        address: u64,
        count: usize,
    ) -> Result<Words<'_, T>, MemoryError> {
        self.atomics(address, count).map(Words::new)
    }

    /// Whether these bytes are memory of this guest.
    #[inline]
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.slice(address, bytes).is_ok())
    }

    /// The bytes `address .. address + bytes`, which must be in one region. Private: see [`access`].
    #[inline]
    fn slice(&self, address: u64, bytes: usize) -> Result<VolatileSlice<'_>, MemoryError> {
        for region in &self.regions {
            let offset = address.wrapping_sub(region.start);
            if offset < region.bytes
                && bytes as u64 <= region.bytes - offset
                && let Ok(slice) = region.mapping.get_slice(offset as usize, bytes)
            {
                return Ok(slice);
            }
        }
        Err(MemoryError::Outside { address, bytes: bytes as u64 })
    }

    /// `count` naturally aligned integers from `address`, which guest and device share. Private: see [`access`].
    #[inline]
    fn atomics<T: AtomicInteger>(&self, address: u64, count: usize) -> Result<&[T], MemoryError> {
        let bytes =
            count.checked_mul(size_of::<T>()).ok_or(MemoryError::Outside { address, bytes: u64::MAX })?;
        let slice = self.slice(address, bytes)?;
        atomics(slice).ok_or(MemoryError::Unaligned { address, alignment: align_of::<T>() })
    }

    /// Stores `words` from `address`, in ascending order, each with release ordering. So a guest that sees a word
    /// also sees all words before it. If the range is refused, nothing is stored.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn store_words(&self, address: u64, words: &[u64]) -> Result<(), MemoryError> {
        let places = self.atomics::<AtomicU64>(address, words.len())?;
        store_each(places, words);
        Ok(())
    }

    /// Stores words at many addresses that are near each other, each as [`DmaMemory::store_words`] does. Returns the
    /// number of refused stores.
    #[inline]
    pub fn store_all<'w>(&self, stores: impl Iterator<Item = (u64, &'w [u64])>) -> u64 {
        let mut refused = 0;
        // The region of the last store: its address, and all its words.
        let mut near: (u64, &[AtomicU64]) = (0, &[]);
        for (address, words) in stores {
            let first = address.wrapping_sub(near.0);
            let index = usize::try_from(first / 8).unwrap_or(usize::MAX);
            let places = near.1.get(index..index.saturating_add(words.len()));
            if first % 8 == 0
                && let Some(places) = places
            {
                store_each(places, words);
                continue;
            }
            refused += u64::from(self.store_words(address, words).is_err());
            near = self.words_around(address).unwrap_or(near);
        }
        refused
    }

    /// The region around an address, as words.
    fn words_around(&self, address: u64) -> Option<(u64, &[AtomicU64])> {
        let is_it = |region: &&Region| address.wrapping_sub(region.start) < region.bytes;
        let &Region { start, bytes, .. } = self.regions.iter().find(is_it)?;
        Some((start, self.atomics(start, usize::try_from(bytes / 8).ok()?).ok()?))
    }

    /// Stores `bytes` into consecutive `ranges`, until the bytes or the ranges end. If a range is refused, nothing is
    /// stored.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn store_bytes(&self, bytes: &[u8], ranges: &[HostRange]) -> Result<(), MemoryError> {
        let places = self.slices(ranges)?;
        let mut rest = bytes;
        for place in places {
            let (part, behind) = rest.split_at(place.len().min(rest.len()));
            place.copy_from(part);
            rest = behind;
        }
        Ok(())
    }

    /// Appends the bytes of `ranges` to `bytes`, in this order, or none if a range is refused. A range of one aligned
    /// word is one load with acquire ordering: the word tells whether the guest has finished the contents of the
    /// following ranges.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn load_bytes(&self, ranges: &[HostRange], bytes: &mut FrameBytes) -> Result<(), MemoryError> {
        let places = self.slices(ranges)?;
        bytes.reserve_exact(places.iter().map(VolatileSlice::len).sum());
        for place in places {
            if place.len() == size_of::<u64>()
                && let Ok(word) = place.get_atomic_ref::<AtomicU64>(0)
            {
                bytes.extend_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
                continue;
            }
            let have = bytes.len();
            // Needed only if the sum above has overflowed, because the ranges together are longer than memory.
            bytes.reserve(place.len());
            let guard = place.ptr_guard();
            // SAFETY: `guard` keeps `place.len()` bytes of mapped memory readable. `bytes` has reserved that number
            // of bytes after its `have` bytes, in memory of its own, which cannot overlap a guest's. All of them are
            // written before `set_len`. A concurrent store of the guest may or may not be copied, and every bit
            // pattern is a valid byte.
            unsafe {
                let end = bytes.as_mut_ptr().add(have);
                std::ptr::copy_nonoverlapping(guard.as_ptr(), end, place.len());
                bytes.set_len(have + place.len());
            }
        }
        Ok(())
    }

    /// Whether all of the ranges are this guest's memory.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn check(&self, ranges: &[HostRange]) -> Result<(), MemoryError> {
        ranges.iter().try_for_each(|range| self.slice_of(range).map(drop))
    }

    /// Copies the bytes `part` of the ranges `from` to consecutive ranges `into` of another guest's memory, until
    /// these are full. It has the effect of [`DmaMemory::load_bytes`] and [`DmaMemory::store_bytes`] with one copy.
    /// If a range of either is refused, nothing is stored.
    ///
    /// Both guests may store there at the same time, and both may remove their memory: see [`vanishing`].
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn copy_bytes(
        &self,
        from: &[HostRange],
        part: std::ops::Range<usize>,
        to: &Self,
        into: &[HostRange],
    ) -> Result<(), MemoryError> {
        self.check(from)?;
        to.check(into)?;
        let mut places = into.iter();
        let mut room = None;
        let (mut skip, mut left) = (part.start, part.len());
        for range in from {
            let source = self.slice_of(range)?;
            let Ok(mut source) = source.offset(skip.min(source.len())) else { continue };
            skip -= skip.min(range.bytes as usize);
            while left > 0 && !source.is_empty() {
                let place: VolatileSlice<'_> = match room.take() {
                    Some(place) => place,
                    None => match places.next() {
                        Some(range) => to.slice_of(range)?,
                        None => return Ok(()),
                    },
                };
                let bytes = left.min(source.len()).min(place.len());
                copy(&source, &place, bytes);
                left -= bytes;
                room = place.offset(bytes).ok().filter(|room| !room.is_empty());
                let Ok(rest) = source.offset(bytes) else { break };
                source = rest;
            }
        }
        Ok(())
    }

    #[inline]
    fn slice_of(&self, range: &HostRange) -> Result<VolatileSlice<'_>, MemoryError> {
        let outside = MemoryError::Outside { address: range.address, bytes: range.bytes };
        self.slice(range.address, usize::try_from(range.bytes).map_err(|_| outside)?)
    }

    fn slices(&self, ranges: &[HostRange]) -> Result<SmallVec<[VolatileSlice<'_>; 2]>, MemoryError> {
        ranges.iter().map(|range| self.slice_of(range)).collect()
    }
}

/// The integers of a slice. None if the slice is not aligned for them.
#[inline]
pub fn atomics<T: AtomicInteger>(slice: VolatileSlice<'_>) -> Option<&[T]> {
    let first = slice.ptr_guard_mut().as_ptr().cast::<T>();
    if !first.is_aligned() {
        return None;
    }
    // SAFETY: the slice has `len / size_of::<T>()` integers in mapped, writable memory. It stays mapped for the
    // slice's lifetime, which the result has. `first` is aligned, and every bit pattern is a valid atomic integer.
    // All others, also the guest, store there by machine stores, which atomics allow.
    Some(unsafe { std::slice::from_raw_parts(first, slice.len() / size_of::<T>()) })
}

/// Stores words in ascending order, each with release ordering. It handles four at a time, which the compiler
/// unrolls.
#[inline]
fn store_each(places: &[AtomicU64], words: &[u64]) {
    let store = |(place, word): (&AtomicU64, &u64)| place.store(word.to_le(), Ordering::Release);
    let ((fours, places), (words_of_fours, words)) = (places.as_chunks::<4>(), words.as_chunks::<4>());
    for (four, words) in fours.iter().zip(words_of_fours) {
        four.iter().zip(words).for_each(store);
    }
    places.iter().zip(words).for_each(store);
}

/// Copies `bytes` bytes from one guest's memory to another's.
#[inline]
fn copy(from: &VolatileSlice<'_>, to: &VolatileSlice<'_>, bytes: usize) {
    debug_assert!(bytes <= from.len() && bytes <= to.len());
    let (source, destination) = (from.ptr_guard(), to.ptr_guard_mut());
    // SAFETY: each guard keeps its slice's bytes mapped, at least `bytes` by the caller's check. `ptr::copy` allows
    // overlapping ranges of one guest. A concurrent store of a guest may or may not be copied, and every bit pattern
    // is a valid byte.
    unsafe { std::ptr::copy(source.as_ptr(), destination.as_ptr(), bytes.min(from.len()).min(to.len())) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    fn memory() -> (GuestMemoryMmap, DmaMemory) {
        let table = GuestMemoryMmap::from_ranges(&[
            (GuestAddress(0x1000), 0x2000),
            (GuestAddress(0x10_0000), 0x1000),
        ])
        .unwrap();
        let memory = DmaMemory::new(&table, None);
        (table, memory)
    }

    #[test]
    fn store_all_equals_single_stores_and_single_refusals() {
        let ranges =
            [(GuestAddress(0), 0x1000), (GuestAddress(0x1000), 0x1000), (GuestAddress(0x1_0000), 0x1000)];
        let [one_by_one, together] = [(); 2].map(|()| GuestMemoryMmap::from_ranges(&ranges).unwrap());
        let addresses =
            [0, 0x40, 0xff8, 0x1000, 0x43, 0x1ff8, 0x2000, 0x1_0000, 0x1_0ff0, u64::MAX - 7, 8, 0x8000];
        let words: Vec<[u64; 2]> = (1..).map(|word| [word, !word]).take(addresses.len()).collect();
        let stores = || addresses.iter().zip(&words).map(|(address, words)| (*address, words.as_slice()));
        let memory = DmaMemory::new(&one_by_one, None);
        let refused =
            stores().filter(|(address, words)| memory.store_words(*address, words).is_err()).count();
        assert_eq!(DmaMemory::new(&together, None).store_all(stores()), refused as u64);
        assert!((1..addresses.len()).contains(&refused));
        for (address, bytes) in ranges {
            let [mut here, mut there] = [vec![0; bytes], vec![0; bytes]];
            one_by_one.read_slice(&mut here, address).unwrap();
            together.read_slice(&mut there, address).unwrap();
            assert!(here == there, "{address:?}");
        }
    }

    #[test]
    fn words_arrive_little_endian_and_in_place() {
        let (table, memory) = memory();
        memory.store_words(0x1ff8, &[1, 2]).unwrap();
        assert_eq!(table.read_obj::<u64>(GuestAddress(0x1ff8)).unwrap(), 1);
        assert_eq!(table.read_obj::<u64>(GuestAddress(0x2000)).unwrap(), 2);
    }

    #[test]
    fn access_outside_guest_memory_is_refused() {
        let (table, memory) = memory();
        for address in [0, 0xff8, 0x2ff8, 0x3000, 0x10_0ff8, !7] {
            let refused = memory.store_words(address, &[7, 7]);
            assert_eq!(refused, Err(MemoryError::Outside { address, bytes: 16 }), "{address:#x}");
        }
        assert_eq!(
            table.read_obj::<u64>(GuestAddress(0x2ff8)).unwrap(),
            0,
            "a refused store leaves no trace"
        );
        assert_eq!(
            memory.store_words(0x1004, &[7]),
            Err(MemoryError::Unaligned { address: 0x1004, alignment: 8 })
        );
        assert!(memory.slice(0x1000, usize::MAX).is_err());
    }

    #[test]
    fn bytes_cross_ranges_and_are_all_or_none() {
        let (table, memory) = memory();
        let range = |address, bytes| HostRange { address, bytes };
        let ranges = [range(0x1ffd, 3), range(0x10_0001, 2)];
        memory.store_bytes(b"bytes", &ranges).unwrap();
        assert_eq!(table.read_obj::<[u8; 2]>(GuestAddress(0x10_0001)).unwrap(), *b"es");
        let mut loaded = FrameBytes::from_slice(b"head ");
        memory.load_bytes(&ranges, &mut loaded).unwrap();
        assert_eq!(loaded.as_slice(), b"head bytes");
        let beyond = [range(0x1000, 4), range(0x10_0ffd, 4)];
        let outside = Err(MemoryError::Outside { address: 0x10_0ffd, bytes: 4 });
        assert_eq!(memory.store_bytes(b"12345678", &beyond), outside);
        assert_eq!(
            table.read_obj::<u32>(GuestAddress(0x1000)).unwrap(),
            0,
            "a refused store leaves no trace"
        );
        assert_eq!(memory.load_bytes(&beyond, &mut loaded), outside);
        assert_eq!(loaded.as_slice(), b"head bytes");
        // An aligned word is loaded at once; a range of a word's length without alignment is copied.
        let words = [range(0x1ff8, 8), range(0x1ffa, 8)];
        loaded.clear();
        memory.load_bytes(&words, &mut loaded).unwrap();
        assert_eq!(loaded.as_slice(), b"\0\0\0\0\0byt\0\0\0byt\0\0");
    }

    proptest! {
        /// Compares the copy with a load and a store.
        #[test]
        fn copy_bytes_equals_load_bytes_and_store_bytes(
            from in prop::collection::vec((0..0x1f00_u64, 0..0x200_u64), 0..5),
            into in prop::collection::vec((0..0x1f00_u64, 0..0x200_u64), 0..5),
            first in 0..0x300_usize,
            bytes in 0..0x500_usize,
        ) {
            // Some of the ranges are outside the memory.
            let ranges = |ranges: &[(u64, u64)], base: u64| -> Vec<HostRange> {
                ranges.iter().map(|&(address, bytes)| HostRange { address: base + address, bytes }).collect()
            };
            let (from, into) = (ranges(&from, 0x1000), ranges(&into, 0x1080));
            let (sender, lending) = memory();
            let data: Vec<u8> = (0..0x2000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
            sender.write_slice(&data, GuestAddress(0x1000)).unwrap();
            let [(one, copied), (two, stored)] = [memory(), memory()];
            let have: usize = from.iter().map(|range| range.bytes as usize).sum();
            let part = first.min(have)..(first + bytes).min(have);
            let found = lending.copy_bytes(&from, part.clone(), &copied, &into);
            let mut loaded = FrameBytes::new();
            let expected = lending.load_bytes(&from, &mut loaded);
            let expected = expected.and_then(|()| stored.store_bytes(&loaded[part], &into));
            prop_assert_eq!(found, expected);
            let all = |table: &GuestMemoryMmap| {
                let mut all = vec![0; 0x2000];
                table.read_slice(&mut all, GuestAddress(0x1000)).unwrap();
                all
            };
            prop_assert!(all(&one) == all(&two));
        }
    }

    /// Memory vanishes under a copy, at either end: the copy then reads zeros, or its stores are lost.
    #[test]
    fn either_end_of_a_copy_may_vanish() {
        let guest = || {
            let file = std::fs::File::from(
                nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap(),
            );
            file.set_len(0x4000).unwrap();
            let place = vm_memory::FileOffset::new(file.try_clone().unwrap(), 0);
            let table =
                GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), 0x4000, Some(place))]).unwrap();
            let attention = Arc::new(crate::attention::Attention::new().unwrap());
            (file, DmaMemory::guarded(&table, None, &attention).unwrap(), attention)
        };
        let all = [HostRange { address: 0, bytes: 0x4000 }];
        for sender_vanishes in [true, false] {
            let ((from_file, from, from_attention), (to_file, to, to_attention)) = (guest(), guest());
            from.store_bytes(&[7; 0x4000], &all).unwrap();
            let gone = if sender_vanishes { from_file } else { to_file };
            gone.set_len(0x1000).unwrap();
            from.copy_bytes(&all, 0..0x4000, &to, &all).unwrap();
            assert_eq!(from_attention.has_lost_memory(), sender_vanishes);
            assert_eq!(to_attention.has_lost_memory(), !sender_vanishes);
            let mut found = FrameBytes::new();
            to.load_bytes(&all, &mut found).unwrap();
            assert!(found.iter().all(|byte| [0, 7].contains(byte)));
            assert_eq!(found[0x3fff], if sender_vanishes { 0 } else { 7 }, "the copy reaches its end");
        }
    }

    #[test]
    fn the_bar_is_not_dma_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x1000).unwrap();
        let bar = identity(&file);
        let table = GuestMemoryMmap::from_ranges_with_files(&[
            (GuestAddress(0), 0x1000, None),
            (GuestAddress(0x8000), 0x1000, Some(vm_memory::FileOffset::new(file, 0))),
        ])
        .unwrap();
        assert!(DmaMemory::new(&table, None).slice(0x8000, 8).is_ok());
        let memory = DmaMemory::new(&table, bar);
        assert!(memory.slice(0x8000, 8).is_err());
        assert!(memory.slice(0, 8).is_ok());
    }
}
