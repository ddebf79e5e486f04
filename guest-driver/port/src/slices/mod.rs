//! The contents of slots and slices of a port with slices: a payload of 0 to 8 words, a tag of two words, and flags.

mod message;

use niclab_abi::bar::{CODE_LENGTH_SHIFT, SLOT_TAG_WORD};
use niclab_abi::receive::{SLICE_TAG_WORD, SLICE_VALID, SliceStatus};

use crate::{Address, BadValue, Kind, Page, Queue, Record, Records, Requester};

pub use message::{Flags, Message, pack};

/// Maximum payload words of a message.
pub const PAYLOAD_WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS;
/// Maximum payload bytes of a message.
pub const PAYLOAD_BYTES: usize = PAYLOAD_WORDS * 8;
/// Tag words of every message.
pub const TAG_WORDS: usize = niclab_abi::bar::TAG_WORDS;

/// A slice: a message.
#[derive(Clone, Copy, Debug)]
pub struct Slice;

impl Kind for Slice {
    #[inline]
    fn is_written(status: u64) -> bool {
        status & SLICE_VALID != 0
    }

    #[inline]
    fn is_sound(status: u64) -> bool {
        SliceStatus::decode(status).is_some()
    }
}

/// Refuses a payload of more words than a slot has.
///
/// # Errors
/// [`BadValue`].
#[inline]
pub fn check_payload(payload: &[u64]) -> Result<(), BadValue> {
    BadValue::check("the payload in words", payload.len() as u64, PAYLOAD_WORDS as u64).map(drop)
}

/// Posts a message from the next slot, which must be free: a payload of at most [`PAYLOAD_WORDS`], further words of
/// which are not sent, and a tag. Returns its number; the first is 1.
#[inline]
pub fn launch(
    requester: &mut Requester,
    page: &mut impl Page,
    payload: &[u64],
    tag: [u64; TAG_WORDS],
    flags: Flags,
    received: u64,
) -> u64 {
    let payload = payload.get(..PAYLOAD_WORDS).unwrap_or(payload);
    // Payload and tag are one burst, which always ends at the same word (section 3.3).
    let begin = SLOT_TAG_WORD - payload.len();
    let code = (begin as u16) << CODE_LENGTH_SHIFT | flags.code();
    requester.launch(page, begin, payload.iter().chain(&tag).copied(), code.into(), received)
}

/// Takes the next message of the queue, if there is one. Also returns whether the device must be notified.
#[inline]
pub fn take(queue: &mut Queue<Slice>, records: &mut impl Records) -> Option<(Message, bool)> {
    let message = front(queue, records)?;
    Some((message, queue.advance(records)))
}

/// The next message of the queue, if there is one. It stays in the queue.
#[inline]
pub(crate) fn front(queue: &Queue<Slice>, records: &impl Records) -> Option<Message> {
    let (record, status) = queue.front(records)?;
    Some(copy(&record, SliceStatus::decode(status)?))
}

#[inline]
fn copy(record: &impl Record, status: SliceStatus) -> Message {
    let words = usize::from(status.words).min(PAYLOAD_WORDS);
    let mut payload = [0; PAYLOAD_WORDS];
    for (value, word) in payload.iter_mut().zip(SLICE_TAG_WORD - words..SLICE_TAG_WORD) {
        *value = record.word(word);
    }
    let mut flags = Flags::NONE;
    if status.interrupt {
        flags |= Flags::INTERRUPT;
    }
    if status.acknowledge {
        flags |= Flags::ACKNOWLEDGE;
    }
    Message {
        payload,
        words,
        tag: [record.word(SLICE_TAG_WORD), record.word(SLICE_TAG_WORD + 1)],
        source: Address { node: status.source_node.into(), port: status.source_port.into() },
        flags,
    }
}
