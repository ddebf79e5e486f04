//! The programs whose images are part of this crate: the Portals matching program
//! (`firmware/matching/programs/portals.nma`), which every match unit has until it is given another, and the queue's.

use alloc::vec::Vec;

use niclab_isa::image::{ImageError, read};
use niclab_isa::{MAX_WORDS, Word};

/// The image, as `niclab asm` makes it of the source.
pub const PORTALS: &[u8] = include_bytes!("../../../../../firmware/matching/programs/portals.nmi");

/// The image of the program that handles a queue: `firmware/matching/programs/queue.nma`.
pub const QUEUE: &[u8] = include_bytes!("../../../../../firmware/matching/programs/queue.nmi");

/// What the program appends to the output FIFO for an item that failed.
pub const FAILED: u64 = 0;
/// For an item that matches; offset and length follow.
pub const SUCCEEDED: u64 = 1;
/// When the item behind one that matched is drained.
pub const DONE: u64 = 2;

/// The program that matches.
///
/// # Errors
/// When the image that this crate was built with is damaged.
pub fn portals() -> Result<Vec<Word>, ImageError> {
    read(PORTALS, MAX_WORDS)
}

/// The program that handles a queue.
///
/// # Errors
/// When the image that this crate was built with is damaged.
pub fn queue() -> Result<Vec<Word>, ImageError> {
    read(QUEUE, MAX_WORDS)
}
