//! Commands as they stand in slots, of whichever way of using a card, and the memory that they name.

use niclab_abi::{ToBytes, to_words};

use crate::{Page, Requester};

/// Words of a command.
pub const WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A command as it stands in a slot.
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

    /// Launches it from the next slot, which must be free. Returns the launch's number.
    #[inline]
    pub fn launch(&self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        requester.launch(page, 0, self.words.iter().copied(), self.code, received)
    }
}

/// Part of a region, as a command names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Name of the region.
    pub region: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Memory that a command can be about, once `P` says that it is memory of the port that the command is for.
pub trait Memory<P: ?Sized, E> {
    /// The part of a region that it is.
    ///
    /// # Errors
    /// It is none of this port.
    fn part(&self, port: &P) -> Result<Part, E>;
}

impl<P: ?Sized, E> Memory<P, E> for Part {
    #[inline]
    fn part(&self, _: &P) -> Result<Part, E> {
        Ok(*self)
    }
}

/// What a port `P` can be asked to do.
pub trait Command<P: ?Sized, E> {
    /// What it is called in an error.
    const NAME: &'static str;

    /// Its slot.
    ///
    /// # Errors
    /// [`BadValue`], or what its memory says.
    fn encode(&self, port: &P) -> Result<Encoded, E>;
}

/// What was encoded before: whatever it is, it has room.
impl<P: ?Sized, E> Command<P, E> for Encoded {
    const NAME: &'static str = "launch a command";

    #[inline]
    fn encode(&self, _: &P) -> Result<Encoded, E> {
        Ok(*self)
    }
}
