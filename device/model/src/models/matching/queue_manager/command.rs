//! The words that a queue's program and the hardware around it exchange.
//!
//! A command is a word: bits 15..0 have the operation, 31..16 the index of a word, 47..32 a slot. Some commands have
//! further words. Words for the program have the same form.
//!
//! Constants: ours.

use smallvec::SmallVec;

/// Command: nothing.
pub const NOTHING: u16 = 0;
/// Command: the last request is finished. The answer is the next request, once there is one.
pub const READY: u16 = 1;
/// Command: send the header to the match unit, once the unit has finished the previous one.
pub const HEADER: u16 = 2;
/// Command: send the first fetched item.
pub const SEND: u16 = 3;
/// Command: discard the items that were fetched and not sent.
pub const DROP: u16 = 4;
/// Command: fetch the slot's item, after those fetched before. The answer is word 0 of the slot's scratch memory.
pub const FETCH: u16 = 5;
/// Command: load a word of the slot's scratch memory, which is the answer.
pub const LOAD: u16 = 6;
/// Command: store the word that follows into the slot's scratch memory.
pub const STORE: u16 = 7;
/// Command: put the item to append into the slot.
pub const PLACE: u16 = 8;
/// Command: store the word that follows into the slot's item.
pub const WRITE: u16 = 9;
/// Command: deliver the message to the slot's item: a DMA command, and an event to the host. Offset and length follow.
pub const DELIVER: u16 = 10;
/// Command: no item takes the message.
pub const NONE: u16 = 11;
/// Command: the slot's item was unlinked: an event to the host.
pub const UNLINKED: u16 = 12;

/// Verdict: the slot's item does not take the message.
pub const FAILED: u64 = 0;
/// Verdict: the slot's item takes the message. Offset and length follow.
pub const SUCCEEDED: u64 = 1;
/// Request: a header has arrived.
pub const ARRIVED: u64 = 2;
/// Request: append an item, whose words follow.
pub const APPEND: u64 = 3;
/// Request: remove the slot's item from the list.
pub const UNLINK: u64 = 4;
/// In [`ARRIVED`]: a matching item stays in the list unchanged.
pub const KEEPS: u64 = 1 << 16;

/// A slot's number, at its bit position in words.
#[must_use]
pub const fn at(slot: u16) -> u64 {
    (slot as u64) << 32
}

/// A command with the words that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: u16,
    /// The index of a word.
    pub index: u16,
    /// The slot.
    pub slot: u16,
    operands: SmallVec<[u64; 2]>,
}

impl Command {
    /// The command that begins with this word; `None` if the word is invalid.
    #[must_use]
    pub fn new(word: u64) -> Option<Self> {
        let (op, index, slot) = (word as u16, (word >> 16) as u16, (word >> 32) as u16);
        let is_known = op <= UNLINKED && word >> 48 == 0;
        is_known.then_some(Self { op, index, slot, operands: SmallVec::new() })
    }

    /// Adds the next word that follows.
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

    /// A further word of the command.
    #[must_use]
    pub fn operand(&self, number: usize) -> Option<u64> {
        self.operands.get(number).copied()
    }
}
