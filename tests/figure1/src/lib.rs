//! Figure 1 of "An Architecture to Perform NIC Based MPI Matching", compiled as it is printed (`figure1.c`): what the
//! match unit's programs are held against. Nothing of it stands in a device, and nothing of a device in it. Beside it
//! are [wrong readings](wrong_readings) of it, so that those who compare can show that they would find one.

use std::ffi::c_int;

/// A threshold that does not count down.
pub const FOR_EVER: u32 = u32::MAX;
/// A node that is every node, a process that is every process.
pub const ANY: u32 = u32::MAX;
/// What a message may want: a put.
pub const PUT: u32 = 1;
/// A get.
pub const GET: u32 = 2;

/// Options of an entry, as bits of [`Entry::options`].
pub mod option {
    /// The memory descriptor is valid.
    pub const VALID: u8 = 1;
    /// It responds to puts.
    pub const PUTS: u8 = 2;
    /// It responds to gets.
    pub const GETS: u8 = 4;
    /// The message says where it begins.
    pub const REMOTE_OFFSET: u8 = 8;
    /// There is a size that must be left.
    pub const MAX_SIZE: u8 = 16;
    /// Messages are cut.
    pub const TRUNCATION: u8 = 32;
}

/// An entry of the list: `struct figure1_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Match bits, and which of them count.
    pub match_bits: u64,
    /// See [`Self::match_bits`].
    pub dont_ignore_bits: u64,
    /// Bytes of its memory.
    pub length: u64,
    /// Where the next message begins, unless that is the message's to say.
    pub local_offset: u64,
    /// Bytes that must be left, with [`option::MAX_SIZE`].
    pub max_size: u64,
    /// From which node, or [`ANY`].
    pub node: u32,
    /// From which process, or [`ANY`].
    pub process: u32,
    /// Messages that it still takes, or [`FOR_EVER`].
    pub threshold: u32,
    /// [`option`].
    pub options: u8,
}

/// What of a message the figure looks at: `struct figure1_message`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message {
    /// Match bits.
    pub match_bits: u64,
    /// Its bytes.
    pub length: u64,
    /// Where it is to begin.
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

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which entry of the list as it was then, from 0.
    pub place: u64,
    /// Where in its memory the message begins.
    pub offset: u64,
    /// Bytes that are stored, modulo 2^32: the figure's `mlength` is a `uint32_t`.
    pub length: u32,
}

type Run = unsafe extern "C" fn(*const Entry, usize, *const Message, usize, c_int, *mut Answer) -> c_int;

include!(concat!(env!("OUT_DIR"), "/readings.rs"));

/// A reading of the figure.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// What is read, and how.
    pub name: &'static str,
    run: Run,
}

impl Reading {
    /// What becomes of each message in turn. With `consumes`, an entry that takes one counts down, moves on, and is
    /// unlinked when it can take none any more.
    ///
    /// # Panics
    /// There is no memory for the list.
    #[must_use]
    pub fn of(&self, entries: &[Entry], messages: &[Message], consumes: bool) -> Vec<Option<Found>> {
        let mut answers = vec![Answer::default(); messages.len()];
        // SAFETY: the function reads so many entries and messages, and writes as many answers as there are messages.
        // All three are the C's structures, and it keeps none of the pointers.
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

/// As it is printed.
#[must_use]
pub fn as_printed() -> Reading {
    let (name, run) = READINGS[0];
    Reading { name, run }
}

/// With one mistake each.
pub fn wrong_readings() -> impl Iterator<Item = Reading> {
    READINGS.into_iter().skip(1).map(|(name, run)| Reading { name, run })
}
