//! What stands in a slot, in a payload region and in a slice of a port that is a logical channel: active messages,
//! which are pushed.

mod message;
pub mod names;
mod pushing;
mod room;

use niclab_abi::channels::{ChannelExpose, ChannelPayload};

use crate::slices::{Flags, Message, Slice};
use crate::{Address, Queue, Records};

pub use message::{Bulk, Memory, Outgoing, Short, ShortSlot};
pub use pushing::{Pushing, Segments};
pub use room::PayloadRoom;

/// Most payload bytes of a message.
pub const MAX_BULK_BYTES: u64 = niclab_abi::channels::CHANNEL_MAX_BULK_BYTES;
/// Handlers below this number are the library's.
pub const FIRST_HANDLER: u32 = niclab_abi::channels::CHANNEL_FIRST_HANDLER;

/// Where in an endpoint's payload region the payload of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its first byte.
    pub offset: u32,
    /// How many there are.
    pub bytes: u32,
}

/// A message that came, and what a handler is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The channel that it came from. The NIC says so, not the sender: it can be relied on.
    pub source: Address,
    /// Number of its handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Its payload, if it has one. It stays where it is until the message's slice is given back.
    pub payload: Option<Payload>,
    /// Whether it interrupted.
    pub interrupt: bool,
}

impl Incoming {
    /// A message that a slice holds; none where the slice is no message of this kind.
    #[must_use]
    pub fn decode(message: &Message) -> Option<Self> {
        let (payload, handler) = match *message.payload() {
            [handler] => (None, handler),
            [place, handler] => {
                (Some(Payload { offset: place as u32, bytes: (place >> 32) as u32 }), handler)
            }
            _ => return None,
        };
        let [first, second] = message.tag();
        Some(Self {
            source: message.source(),
            handler: handler as u32,
            arguments: [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32],
            payload,
            interrupt: message.flags().contains(Flags::INTERRUPT),
        })
    }
}

/// The next message of the queue, if it is there. Its payload is to be read before [`Queue::advance`].
#[inline]
pub fn front(queue: &Queue<Slice>, records: &impl Records) -> Option<Incoming> {
    crate::slices::front(queue, records).and_then(|message| Incoming::decode(&message))
}

/// The body of the control request that says where the payload of messages for a port goes.
pub const fn payload_request(port: u32, region: u32, offset: u64, bytes: u64) -> ChannelPayload {
    ChannelPayload { port, region, offset, bytes }
}

/// The body of the control request by which memory messages may write into a region, or may not any more.
pub const fn expose_request(port: u32, region: u32, is_exposed: bool) -> ChannelExpose {
    ChannelExpose { port, region, is_exposed: is_exposed as u32, reserved: 0 }
}
