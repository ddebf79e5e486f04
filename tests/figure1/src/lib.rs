//! Figure 1 of "An Architecture to Perform NIC Based MPI Matching", compiled as printed (`figure1.c`): the reference
//! for the match unit's programs. It shares no code with a device. [Wrong readings](wrong_readings) of the figure let a
//! comparison show that it finds mistakes.

use std::ffi::c_int;

/// A threshold that does not count down.
pub const FOR_EVER: u32 = u32::MAX;
/// Any node, or any process.
pub const ANY: u32 = u32::MAX;
/// An operation of a message: put.
pub const PUT: u32 = 1;
/// Get.
pub const GET: u32 = 2;

/// Options of an entry, as bits of [`Entry::options`].
pub mod option {
    /// The memory descriptor is valid.
    pub const VALID: u8 = 1;
    /// The entry accepts puts.
    pub const PUTS: u8 = 2;
    /// The entry accepts gets.
    pub const GETS: u8 = 4;
    /// The message gives its offset.
    pub const REMOTE_OFFSET: u8 = 8;
    /// `max_size` bytes must be free.
    pub const MAX_SIZE: u8 = 16;
    /// Messages are truncated.
    pub const TRUNCATION: u8 = 32;
}

/// An entry of the list: `struct figure1_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Match bits, and the mask of those that are compared.
    pub match_bits: u64,
    /// See [`Self::match_bits`].
    pub dont_ignore_bits: u64,
    /// The size of its memory in bytes.
    pub length: u64,
    /// The offset of the next message, unless the message gives it.
    pub local_offset: u64,
    /// The minimum of free bytes, with [`option::MAX_SIZE`].
    pub max_size: u64,
    /// From which node, or [`ANY`].
    pub node: u32,
    /// From which process, or [`ANY`].
    pub process: u32,
    /// The number of messages that it still accepts, or [`FOR_EVER`].
    pub threshold: u32,
    /// [`option`].
    pub options: u8,
}

/// The fields of a message that the figure uses: `struct figure1_message`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message {
    /// Match bits.
    pub match_bits: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The offset that it requests.
    pub remote_offset: u64,
    /// From which node.
    pub node: u32,
    /// From which process.
    pub process: u32,
    /// [`PUT`], [`GET`], or something else.
    pub operation: u32,
}

/// `struct figure1_result`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Answer {
    place: u64,
    offset: u64,
    length: u32,
    is_found: u32,
}

/// The target of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The index of the entry in the list at that time, from 0.
    pub place: u64,
    /// The message's offset in the entry's memory.
    pub offset: u64,
    /// The number of stored bytes, modulo 2^32: the figure's `mlength` is a `uint32_t`.
    pub length: u32,
}

type Run = unsafe extern "C" fn(*const Entry, usize, *const Message, usize, c_int, *mut Answer) -> c_int;

include!(concat!(env!("OUT_DIR"), "/readings.rs"));

/// A reading of the figure.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The line of the figure, and how it is read.
    pub name: &'static str,
    run: Run,
}

impl Reading {
    /// The target of each message in order. With `consumes`, an entry that takes a message counts down, moves its
    /// offset, and is unlinked when it can take no more.
    ///
    /// If there is no memory for the list.
    #[must_use]
    pub fn of(&self, entries: &[Entry], messages: &[Message], consumes: bool) -> Vec<Option<Found>> {
        let mut answers = vec![Answer::default(); messages.len()];
        // SAFETY: the function reads the given number of entries and messages, and writes one result for each message.
        // All three types have the C structures' layout, and the function keeps no pointer.
        let status = unsafe {
            (self.run)(
                entries.as_ptr(),
                entries.len(),
                messages.as_ptr(),
                messages.len(),
                consumes.into(),
                answers.as_mut_ptr(),
            )
        };
        assert_eq!(status, 0, "no memory for the list");
        let found =
            |answer: Answer| Found { place: answer.place, offset: answer.offset, length: answer.length };
        answers.into_iter().map(|answer| (answer.is_found != 0).then(|| found(answer))).collect()
    }
}

/// The figure as printed.
#[must_use]
pub fn as_printed() -> Reading {
    let (name, run) = READINGS[0];
    Reading { name, run }
}

/// Readings with one mistake each.
pub fn wrong_readings() -> impl Iterator<Item = Reading> {
    READINGS.into_iter().skip(1).map(|(name, run)| Reading { name, run })
}
