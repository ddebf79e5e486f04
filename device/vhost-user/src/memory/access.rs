//! Types for memory that the device reads once, or only writes.
//!
//! A guest's memory changes while the device reads it: the guest's processors store there at any time. A device that
//! checks bytes in place and then uses them reads them twice. (The attack: the guest changes them in between, a double
//! fetch.) So no code outside of this folder has a view of guest memory that it can read again. It gets one of these:
//!
//! * [`Unread`]: bytes that the device has not read. Each read consumes the value. It returns memory of
//!   the daemon, or copies the bytes to a receiver unparsed. So the device uses the same bytes that it has checked.
//! * [`Room`]: memory that the device writes and cannot read.
//! * [`Words`]: the words of a virtqueue's rings. Each load gives a value; no reference to a word leaves the type.
//!
//! A second read of the same bytes does not compile:
//!
//! ```compile_fail,E0382
//! # use niclab_device::memory::access::Unread;
//! fn check_and_use(frame: Unread<'_>, checked: &mut [u8], used: &mut [u8]) {
//!     frame.read(checked);
//!     frame.read(used);
//! }
//! ```
//!
//! The callers must decide by the value that a read returned. If they read the same address again, they must discard
//! all earlier decisions.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use vm_memory::VolatileSlice;

/// Bytes that the device has not read yet. It is neither `Clone` nor `Copy`, and each read consumes its bytes.
#[derive(Debug)]
pub struct Unread<'m>(VolatileSlice<'m>);

impl<'m> Unread<'m> {
    /// Unread bytes of a guest's memory.
    pub(super) const fn new(slice: VolatileSlice<'m>) -> Self {
        Self(slice)
    }

    /// Bytes of the daemon's own memory, treated as a guest's. They may be wrapped again after each read.
    pub fn of_daemon(bytes: &'m mut [u8]) -> Self {
        Self(VolatileSlice::from(bytes))
    }

    /// Number of bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Reads the first `N` bytes; the rest stays unread. None if there are fewer.
    #[inline]
    pub fn take<const N: usize>(self) -> Option<([u8; N], Self)> {
        let (first, rest) = self.0.split_at(N).ok()?;
        let mut bytes = [0; N];
        first.copy_to(&mut bytes);
        Some((bytes, Self(rest)))
    }

    /// Splits off the first `bytes` bytes, or all if there are fewer. Reads nothing.
    #[inline]
    pub fn split_at(self, bytes: usize) -> (Self, Option<Self>) {
        match self.0.split_at(bytes) {
            Ok((first, rest)) if !rest.is_empty() => (Self(first), Some(Self(rest))),
            _ => (self, None),
        }
    }

    /// Reads bytes into memory of the daemon, until either ends. Returns their number.
    #[inline]
    pub fn read(self, into: &mut [u8]) -> usize {
        self.0.copy_to(into)
    }

    /// Reads all bytes, and appends them to memory of the daemon.
    #[inline]
    pub fn append_to(self, into: &mut Vec<u8>) {
        let have = into.len();
        into.resize(have + self.bytes(), 0);
        self.0.copy_to(into.get_mut(have..).unwrap_or_default());
    }
}

/// Bytes of a guest's memory that the device writes.
#[derive(Debug)]
pub struct Room<'m>(VolatileSlice<'m>);

impl<'m> Room<'m> {
    /// Writable bytes of a guest's memory.
    pub(super) const fn new(slice: VolatileSlice<'m>) -> Self {
        Self(slice)
    }

    /// Number of bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Stores as many of `bytes` as fit. Returns the remaining room.
    #[inline]
    #[must_use = "what room is left"]
    pub fn write(self, bytes: &[u8]) -> Self {
        self.0.copy_from(bytes);
        self.behind(bytes.len())
    }

    /// Copies as many of `bytes` as fit, which the device has not parsed. Returns the remaining room.
    #[inline]
    #[must_use = "what room is left"]
    pub fn copy(self, bytes: Unread<'_>) -> Self {
        let count = bytes.bytes();
        bytes.0.copy_to_volatile_slice(self.0);
        self.behind(count)
    }

    #[inline]
    fn behind(self, bytes: usize) -> Self {
        // An offset of the complete length gives an empty slice.
        Self(self.0.offset(bytes.min(self.0.len())).unwrap_or(self.0))
    }
}

/// An integer of a ring, and the atomic that guest and device share. All are little-endian (Virtio 1.2, section 2.7).
pub trait Word: Sized {
    /// The integer.
    type Value;

    /// Loads it.
    fn load(&self, order: Ordering) -> Self::Value;

    /// Stores it.
    fn store(&self, value: Self::Value, order: Ordering);
}

macro_rules! words {
    ($($atomic:ty, $value:ty;)*) => {
        $(impl Word for $atomic {
            type Value = $value;

            #[inline]
            fn load(&self, order: Ordering) -> $value {
                <$value>::from_le(<$atomic>::load(self, order))
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                <$atomic>::store(self, value.to_le(), order);
            }
        })*
    };
}

words! {
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
}

/// Words of a virtqueue's rings, which guest and device share. Every load is a copy, so a value that the caller has
/// checked cannot change.
#[derive(Debug)]
pub struct Words<'m, T>(&'m [T]);

impl<T> Clone for Words<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Words<'_, T> {}

impl<'m, T: Word> Words<'m, T> {
    pub(super) const fn new(words: &'m [T]) -> Self {
        Self(words)
    }

    /// Loads one word. None if it does not exist.
    #[inline]
    pub fn load(self, index: usize, order: Ordering) -> Option<T::Value> {
        Some(self.0.get(index)?.load(order))
    }

    /// Loads `N` words from `index`, each once. None if there are fewer.
    #[inline]
    pub fn load_all<const N: usize>(self, index: usize) -> Option<[T::Value; N]> {
        let words = self.0.get(index..)?.first_chunk::<N>()?;
        Some(words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// The last word.
    #[inline]
    pub fn load_last(self, order: Ordering) -> Option<T::Value> {
        Some(self.0.last()?.load(order))
    }

    /// Stores one word. Does nothing if it does not exist.
    #[inline]
    pub fn store(self, index: usize, value: T::Value, order: Ordering) {
        if let Some(word) = self.0.get(index) {
            word.store(value, order);
        }
    }

    /// Stores words from `index`. Does nothing if there are fewer.
    #[inline]
    pub fn store_all<const N: usize>(self, index: usize, values: [T::Value; N]) {
        if let Some(words) = self.0.get(index..).and_then(|words| words.first_chunk::<N>()) {
            words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

    use crate::memory::DmaMemory;

    use super::*;

    fn memory() -> (GuestMemoryMmap, DmaMemory) {
        let table = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let memory = DmaMemory::new(&table, None);
        (table, memory)
    }

    #[test]
    fn read_bytes_do_not_change_with_guest_memory() {
        let (table, memory) = memory();
        table.write_slice(&[1, 2, 3, 4, 5, 6, 7], GuestAddress(0x10)).unwrap();
        let (first, rest) = memory.unread(0x10, 7).unwrap().take::<2>().unwrap();
        table.write_slice(&[9; 7], GuestAddress(0x10)).unwrap();
        let mut all = first.to_vec();
        let (middle, last) = rest.split_at(3);
        middle.append_to(&mut all);
        table.write_slice(&[8; 7], GuestAddress(0x10)).unwrap();
        let mut end = [0; 4];
        assert_eq!(last.unwrap().read(&mut end), 2);
        assert_eq!((all, end), (vec![1, 2, 9, 9, 9], [8, 8, 0, 0]));
    }

    #[test]
    fn take_and_split_do_not_exceed_the_bytes() {
        let (_table, memory) = memory();
        let unread = || memory.unread(0xff0, 16).unwrap();
        assert!(unread().take::<17>().is_none());
        assert_eq!(unread().take::<16>().unwrap().1.bytes(), 0);
        for bytes in [16, 17, usize::MAX] {
            let (all, rest) = unread().split_at(bytes);
            assert_eq!((all.bytes(), rest.is_none()), (16, true));
        }
        assert_eq!(unread().split_at(0).0.bytes(), 0);
        assert!(memory.unread(0xff0, 17).is_err() && memory.room(0xff0, 17).is_err());
        assert!(memory.contains(0xff0, 16) && !memory.contains(0xff0, 17) && !memory.contains(0, u64::MAX));
    }

    #[test]
    fn writes_fill_room_from_its_start_to_its_end() {
        let (table, memory) = memory();
        table.write_slice(b"abcdef", GuestAddress(0x800)).unwrap();
        let room = memory.room(0, 8).unwrap().write(&[1, 2, 3]);
        assert_eq!(room.bytes(), 5);
        let room = room.copy(memory.unread(0x800, 6).unwrap());
        assert_eq!(room.bytes(), 0);
        assert_eq!(room.write(&[7]).bytes(), 0);
        let mut found = [0; 9];
        table.read_slice(&mut found, GuestAddress(0)).unwrap();
        assert_eq!(&found, b"\x01\x02\x03abcde\0");
    }

    #[test]
    fn loaded_words_do_not_change_with_guest_memory() {
        let (table, memory) = memory();
        let words = memory.words::<AtomicU16>(0x100, 3).unwrap();
        words.store_all(0, [1, 2]);
        words.store(2, 3, Ordering::Release);
        let [first, second] = words.load_all::<2>(1).unwrap();
        table.write_slice(&[0xff; 6], GuestAddress(0x100)).unwrap();
        assert_eq!((first, second, words.load(0, Ordering::Relaxed)), (2, 3, Some(u16::MAX)));
        assert_eq!(words.load_last(Ordering::Relaxed), Some(u16::MAX));
        assert_eq!((words.load(3, Ordering::Relaxed), words.load_all::<2>(2)), (None, None));
        words.store(3, 1, Ordering::Relaxed);
        words.store_all(2, [1, 1]);
        assert_eq!(table.read_obj::<[u16; 2]>(GuestAddress(0x104)).unwrap(), [u16::MAX, 0]);
        assert!(memory.words::<AtomicU64>(4, 1).is_err());
    }
}
