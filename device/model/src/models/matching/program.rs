//! The programs whose images are part of this crate. Each match unit runs the Portals matching program
//! (`firmware/matching/programs/portals.nma`) until another one is loaded. The other program handles a queue.

use alloc::vec::Vec;

use niclab_isa::image::{ImageError, read};
use niclab_isa::{MAX_WORDS, Word};

/// The image that `niclab asm` makes from the source.
pub const PORTALS: &[u8] = include_bytes!("../../../../../firmware/matching/programs/portals.nmi");

/// The image of the program that handles a queue: `firmware/matching/programs/queue.nma`.
pub const QUEUE: &[u8] = include_bytes!("../../../../../firmware/matching/programs/queue.nmi");

/// The program's output for an item that failed.
pub const FAILED: u64 = 0;
/// Output for an item that matches; offset and length follow.
pub const SUCCEEDED: u64 = 1;
/// Output when the item after a matching one is drained.
pub const DONE: u64 = 2;

/// The matching program.
///
/// # Errors
/// If the image in this crate is damaged.
pub fn portals() -> Result<Vec<Word>, ImageError> {
    read(PORTALS, MAX_WORDS)
}

/// The program that handles a queue.
///
/// # Errors
/// If the image in this crate is damaged.
pub fn queue() -> Result<Vec<Word>, ImageError> {
    read(QUEUE, MAX_WORDS)
}
