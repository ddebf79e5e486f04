//! Commands in the format of slots, for all kinds of card interface, and the memory that they name.

use niclab_abi::{ToBytes, to_words};

use crate::{Page, Requester};

/// Words of a command.
pub const WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A command in the format of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The slot's words.
    pub words: [u64; WORDS],
    /// The lower half of the launch word.
    pub code: u32,
}

impl Encoded {
    #[inline]
    pub(crate) fn new(command: &impl ToBytes, code: u32) -> Self {
        Self { words: to_words(command), code }
    }

    /// Posts it from the next slot, which must be free. Returns the number of the post.
    #[inline]
    pub fn launch(&self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        requester.launch(page, 0, self.words.iter().copied(), self.code, received)
    }
}

/// Part of a region, named by a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Name of the region.
    pub region: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Memory that a command can name, after a check that it belongs to the command's port `P`.
pub trait Memory<P: ?Sized, E> {
    /// Its part of a region.
    ///
    /// # Errors
    /// The memory does not belong to this port.
    fn part(&self, port: &P) -> Result<Part, E>;
}

impl<P: ?Sized, E> Memory<P, E> for Part {
    #[inline]
    fn part(&self, _: &P) -> Result<Part, E> {
        Ok(*self)
    }
}

/// A command that a port `P` can be asked to do.
pub trait Command<P: ?Sized, E> {
    /// Its name in errors.
    const NAME: &'static str;

    /// Its slot.
    ///
    /// # Errors
    /// [`BadValue`](crate::BadValue), or those of its memory.
    fn encode(&self, port: &P) -> Result<Encoded, E>;
}

/// A command that was encoded before, and therefore fits.
impl<P: ?Sized, E> Command<P, E> for Encoded {
    const NAME: &'static str = "post a command";

    #[inline]
    fn encode(&self, _: &P) -> Result<Encoded, E> {
        Ok(*self)
    }
}
