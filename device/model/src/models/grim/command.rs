//! Commands of programs: decodes and checks the words of a slot.

use niclab_abi::grim::{
    BulkHeader, CHANNEL_BULK, CHANNEL_INTERRUPT, CHANNEL_MASK, CHANNEL_MEMORY, CHANNEL_NOTIFY,
    CHANNEL_SEGMENT, CHANNEL_SHORT, MemoryHeader, MessageHeader, Segment,
};
use niclab_abi::receive::{REFUSED_HEADER, REFUSED_PAYLOAD, REFUSED_TARGET};
use niclab_abi::{FromBytes, from_words};

use crate::models::grim::config::{Config, MAX_CHANNELS};
use crate::models::grim::wire::Purpose;
use crate::parts::effects::WORD_BYTES;

/// Payload in the channel's payload region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    /// Its start in the region.
    pub(super) offset: u32,
    /// Length in bytes.
    pub(super) bytes: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) node: u16,
    pub(super) endpoint: u16,
    pub(super) purpose: Purpose,
    pub(super) interrupt: bool,
    /// Whether the card reports to the program when the message has left.
    pub(super) notify: bool,
    pub(super) payload: Payload,
    /// Bytes of the payload pushed so far.
    pub(super) pushed: u32,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The first push of a message, with all or a part of its payload.
    Message(Message),
    /// A further push to the same message: the total bytes pushed.
    Segment(u32),
}

/// Number of words that a program stores for a command: those of its layout. The burst ends with the slot's payload and
/// tag.
pub(super) fn words_of(code: u32) -> u64 {
    let bytes = match code & CHANNEL_MASK {
        CHANNEL_BULK => BulkHeader::BYTES,
        CHANNEL_MEMORY => MemoryHeader::BYTES,
        CHANNEL_SEGMENT => Segment::BYTES,
        // An invalid command has the price of the shortest message.
        _ => MessageHeader::BYTES,
    };
    bytes as u64 / WORD_BYTES
}

/// Reads a layout at the end of the slot's words.
fn read<T: FromBytes>(words: &[u64]) -> Result<T, u64> {
    let begin = words.len().saturating_sub(T::BYTES / WORD_BYTES as usize);
    words.get(begin..).and_then(from_words).ok_or(REFUSED_HEADER)
}

impl Command {
    /// Decodes a posted slot. An error is a `REFUSED_` reason of the ABI.
    pub(super) fn decode(code: u32, words: &[u64], config: &Config) -> Result<Self, u64> {
        let (number, flags) = (code & CHANNEL_MASK, code & !CHANNEL_MASK);
        let has_flags = matches!(number, CHANNEL_SHORT | CHANNEL_BULK);
        let takes = if has_flags { CHANNEL_INTERRUPT | CHANNEL_NOTIFY } else { 0 };
        if flags & !takes != 0 {
            return Err(REFUSED_HEADER);
        }
        let (interrupt, notify) = (flags & CHANNEL_INTERRUPT != 0, flags & CHANNEL_NOTIFY != 0);
        let message = match number {
            CHANNEL_SHORT => {
                let short: MessageHeader = read(words)?;
                let MessageHeader {
                    node, endpoint, handler, argument0, argument1, argument2, argument3, ..
                } = short;
                if (short.pushed, short.reserved) != (0, 0) {
                    return Err(REFUSED_HEADER);
                }
                let purpose =
                    Purpose::Handler { handler, arguments: [argument0, argument1, argument2, argument3] };
                let payload = Payload { offset: 0, bytes: 0 };
                Message { node, endpoint, purpose, interrupt, notify, payload, pushed: 0 }
            }
            CHANNEL_BULK => {
                let bulk: BulkHeader = read(words)?;
                let BulkHeader {
                    node, endpoint, handler, argument0, argument1, argument2, argument3, ..
                } = bulk;
                let purpose =
                    Purpose::Handler { handler, arguments: [argument0, argument1, argument2, argument3] };
                let payload = checked(bulk.offset, bulk.bytes, bulk.pushed, bulk.reserved, config)?;
                Message { node, endpoint, purpose, interrupt, notify, payload, pushed: bulk.pushed }
            }
            CHANNEL_MEMORY => {
                let memory: MemoryHeader = read(words)?;
                let MemoryHeader { node, endpoint, region, place, offset, bytes, pushed, reserved } = memory;
                let purpose = Purpose::Memory { region, place };
                let payload = checked(offset, bytes, pushed, reserved, config)?;
                Message { node, endpoint, purpose, interrupt, notify, payload, pushed }
            }
            CHANNEL_SEGMENT => {
                let Segment { pushed, reserved } = read(words)?;
                return if reserved == 0 { Ok(Self::Segment(pushed)) } else { Err(REFUSED_HEADER) };
            }
            _ => return Err(REFUSED_HEADER),
        };
        if u32::from(message.node) >= config.nodes || usize::from(message.endpoint) >= MAX_CHANNELS {
            return Err(REFUSED_TARGET);
        }
        Ok(Self::Message(message))
    }
}

/// The payload, if it lies inside the payload region.
fn checked(offset: u32, bytes: u32, pushed: u32, reserved: u32, config: &Config) -> Result<Payload, u64> {
    if reserved != 0 {
        return Err(REFUSED_HEADER);
    }
    let end = u64::from(offset) + u64::from(bytes);
    let is_right =
        u64::from(bytes) <= config.max_bulk_bytes() && end <= config.payload_bytes && pushed <= bytes;
    // A message without pushed payload would block the channel without use.
    if is_right && pushed > 0 { Ok(Payload { offset, bytes }) } else { Err(REFUSED_PAYLOAD) }
}
