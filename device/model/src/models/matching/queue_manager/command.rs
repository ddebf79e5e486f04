//! What travels between a queue's program and the hardware around it.
//!
//! A command is a word: bits 15..0 say what, 31..16 are a word's index, 47..32 a slot. Some have further words. What
//! the program gets has the same form.
//!
//! Constants: ours.

use smallvec::SmallVec;

/// Command: nothing.
pub const NOTHING: u16 = 0;
/// Command: the last request is done. Answered by the next request, once there is one.
pub const READY: u16 = 1;
/// Command: send the header to the match unit, once it is done with the one before.
pub const HEADER: u16 = 2;
/// Command: send the first item that was fetched.
pub const SEND: u16 = 3;
/// Command: forget what was fetched and not sent.
pub const DROP: u16 = 4;
/// Command: fetch the slot's item behind those that were fetched before. Answered by word 0 of the slot's scratch
/// memory.
pub const FETCH: u16 = 5;
/// Command: answered by a word of the slot's scratch memory.
pub const LOAD: u16 = 6;
/// Command: the word that follows enters the slot's scratch memory.
pub const STORE: u16 = 7;
/// Command: the item to append is put into the slot.
pub const PLACE: u16 = 8;
/// Command: the word that follows enters the slot's item.
pub const WRITE: u16 = 9;
/// Command: the message goes to the slot's item: a DMA command, and an event to the host. Offset and length follow.
pub const DELIVER: u16 = 10;
/// Command: no item takes the message.
pub const NONE: u16 = 11;
/// Command: the slot's item is not in the list any more: an event to the host.
pub const UNLINKED: u16 = 12;

/// Verdict: the slot's item does not take the message.
pub const FAILED: u64 = 0;
/// Verdict: it does. Offset and length follow.
pub const SUCCEEDED: u64 = 1;
/// Request: a header is there.
pub const ARRIVED: u64 = 2;
/// Request: append an item, whose words follow.
pub const APPEND: u64 = 3;
/// Request: take the slot's item out of the list.
pub const UNLINK: u64 = 4;
/// In [`ARRIVED`]: an item that matches is not used up.
pub const KEEPS: u64 = 1 << 16;

/// A slot, where it stands in words.
#[must_use]
pub const fn at(slot: u16) -> u64 {
    (slot as u64) << 32
}

/// A command with the words that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What.
    pub op: u16,
    /// The word.
    pub index: u16,
    /// The slot.
    pub slot: u16,
    operands: SmallVec<[u64; 2]>,
}

impl Command {
    /// The command that begins with this word, if there is one.
    #[must_use]
    pub fn new(word: u64) -> Option<Self> {
        let (op, index, slot) = (word as u16, (word >> 16) as u16, (word >> 32) as u16);
        let is_known = op <= UNLINKED && word >> 48 == 0;
        is_known.then_some(Self { op, index, slot, operands: SmallVec::new() })
    }

    /// With the next word that follows.
    #[must_use]
    pub fn with(mut self, operand: u64) -> Self {
        self.operands.push(operand);
        self
    }

    /// Whether all words are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let operands = match self.op {
            STORE | WRITE => 1,
            DELIVER => 2,
            _ => 0,
        };
        self.operands.len() >= operands
    }

    /// A word that follows.
    #[must_use]
    pub fn operand(&self, number: usize) -> Option<u64> {
        self.operands.get(number).copied()
    }
}
