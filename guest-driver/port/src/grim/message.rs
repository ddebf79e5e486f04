//! Messages in the format of slots.

use niclab_abi::grim::{
    BulkHeader, CHANNEL_BULK, CHANNEL_INTERRUPT, CHANNEL_MEMORY, CHANNEL_NOTIFY, CHANNEL_SEGMENT,
    CHANNEL_SHORT, MemoryHeader, MessageHeader, Segment,
};
use niclab_abi::{ToBytes, to_words};

use crate::command::WORDS;
use crate::{Address, BadValue, Page, Requester};

/// A message without payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The receiving endpoint.
    pub target: Address,
    /// Number of its handler there.
    pub handler: u32,
    /// Arguments of the handler.
    pub arguments: [u32; 4],
    /// Whether it interrupts its receiver.
    pub interrupt: bool,
    /// Whether the status line reports when it has left. For messages with payload it always does.
    pub notify: bool,
}

impl Short {
    /// A message for a handler of this number at `target`, with zeros as arguments.
    #[must_use]
    pub const fn new(target: Address, handler: u32) -> Self {
        Self { target, handler, arguments: [0; 4], interrupt: false, notify: false }
    }

    /// Sets the arguments.
    #[must_use]
    pub const fn arguments(self, arguments: [u32; 4]) -> Self {
        Self { arguments, ..self }
    }

    /// Makes it interrupt its receiver.
    #[must_use]
    pub const fn interrupt(self) -> Self {
        Self { interrupt: true, ..self }
    }
}

/// Words of a short message in a slot.
const SHORT_WORDS: usize = size_of::<MessageHeader>() / 8;

/// A short message in the format of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortSlot {
    words: [u64; SHORT_WORDS],
    code: u32,
}

impl Short {
    /// The message in the format of a slot. It computes the words with shifts only, because this is the program's cost
    /// of sending a short message.
    ///
    /// # Errors
    /// [`BadValue`]: the target is out of range.
    #[inline]
    pub fn slot(&self) -> Result<ShortSlot, BadValue> {
        let (node, endpoint) = node_and_endpoint(self.target)?;
        let [first, second, third, fourth] = self.arguments.map(u64::from);
        let target = u64::from(node) | u64::from(endpoint) << 16;
        let words = [target | u64::from(self.handler) << 32, first | second << 32, third | fourth << 32, 0];
        Ok(ShortSlot { words, code: CHANNEL_SHORT | self.flags() })
    }

    const fn flags(&self) -> u32 {
        let interrupt = if self.interrupt { CHANNEL_INTERRUPT } else { 0 };
        let notify = if self.notify { CHANNEL_NOTIFY } else { 0 };
        interrupt | notify
    }
}

impl ShortSlot {
    /// Posts it from the next slot of the page, which must be free. Returns the number of the post.
    #[inline]
    pub fn launch(&self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        requester.launch(page, WORDS - SHORT_WORDS, self.words.iter().copied(), self.code, received)
    }
}

/// A message with payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Everything except the payload.
    pub short: Short,
    /// Bytes of the payload: 1..=[`super::MAX_BULK_BYTES`].
    pub bytes: u64,
}

/// Bytes for a region of another program, without a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionWrite {
    /// The endpoint whose program registered the region.
    pub target: Address,
    /// The region's name there.
    pub region: u32,
    /// Offset of the first byte in the region.
    pub place: u64,
    /// Number of bytes: 1..=[`super::MAX_BULK_BYTES`].
    pub bytes: u64,
}

/// A message of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Without payload.
    Short(Short),
    /// With payload.
    Bulk(Bulk),
    /// For a region.
    Memory(RegionWrite),
}

/// A filled slot that is not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    words: [u64; WORDS],
    /// Number of words to store, at the end of `words`.
    count: usize,
    code: u32,
}

impl Slot {
    fn new<T: ToBytes>(header: &T, code: u32) -> Self {
        let count = T::BYTES / 8;
        let mut words = to_words::<WORDS>(header);
        // The burst ends where payload and tag of a slot end.
        words.rotate_right(WORDS - count);
        Self { words, count, code }
    }

    /// A further segment of the last message, of which `pushed` bytes are stored.
    pub(super) fn segment(pushed: u64) -> Self {
        Self::new(&Segment { pushed: pushed as u32, reserved: 0 }, CHANNEL_SEGMENT)
    }

    /// Posts it from the next slot of the page, which must be free. Returns the number of the post.
    pub(super) fn launch(&self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        let begin = WORDS - self.count;
        requester.launch(page, begin, self.words.iter().skip(begin).copied(), self.code, received)
    }
}

#[inline]
fn node_and_endpoint(target: Address) -> Result<(u16, u16), BadValue> {
    let most = u64::from(u16::MAX);
    let node = BadValue::check("the target node", target.node.into(), most)?;
    let endpoint = BadValue::check("the target endpoint", target.port.into(), most)?;
    Ok((node as u16, endpoint as u16))
}

impl Outgoing {
    /// Bytes of its payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        match self {
            Self::Short(_) => 0,
            Self::Bulk(Bulk { bytes, .. }) | Self::Memory(RegionWrite { bytes, .. }) => *bytes,
        }
    }

    /// Checks that its values fit into a slot.
    pub(super) fn check(&self) -> Result<(), BadValue> {
        let (Self::Short(Short { target, .. })
        | Self::Bulk(Bulk { short: Short { target, .. }, .. })
        | Self::Memory(RegionWrite { target, .. })) = *self;
        node_and_endpoint(target)?;
        BadValue::check("the payload in bytes", self.payload_bytes(), super::MAX_BULK_BYTES).map(drop)
    }

    /// Its slot, with its payload at `offset` of the payload region, and `pushed` bytes of it stored.
    pub(super) fn slot(&self, offset: u64, pushed: u64) -> Result<Slot, BadValue> {
        let bytes =
            BadValue::check("the payload in bytes", self.payload_bytes(), super::MAX_BULK_BYTES)? as u32;
        let (offset, pushed) = (offset as u32, pushed as u32);
        if let Self::Memory(RegionWrite { target, region, place, .. }) = *self {
            let (node, endpoint) = node_and_endpoint(target)?;
            let header = MemoryHeader { node, endpoint, region, place, offset, bytes, pushed, reserved: 0 };
            return Ok(Slot::new(&header, CHANNEL_MEMORY));
        }
        let (Self::Short(short) | Self::Bulk(Bulk { short, .. })) = *self else {
            return Err(BadValue { what: "the kind of a message", value: 0, most: 0 });
        };
        let Short { target, handler, arguments, .. } = short;
        let [argument0, argument1, argument2, argument3] = arguments;
        let (node, endpoint) = node_and_endpoint(target)?;
        let flags = short.flags();
        if bytes == 0 {
            let header = MessageHeader {
                node,
                endpoint,
                handler,
                argument0,
                argument1,
                argument2,
                argument3,
                ..Default::default()
            };
            return Ok(Slot::new(&header, CHANNEL_SHORT | flags));
        }
        let header = BulkHeader {
            node,
            endpoint,
            handler,
            argument0,
            argument1,
            argument2,
            argument3,
            offset,
            bytes,
            pushed,
            reserved: 0,
        };
        Ok(Slot::new(&header, CHANNEL_BULK | flags))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The words computed by shifts equal those of the contract's structure.
        #[test]
        fn a_short_message_is_encoded_as_the_contract_requires(
            (node, port) in (0..70_000_u32, 0..70_000_u32),
            handler: u32,
            arguments: [u32; 4],
            (interrupt, notify) in any::<(bool, bool)>(),
        ) {
            let short = Short { target: Address { node, port }, handler, arguments, interrupt, notify };
            let expected = Outgoing::Short(short).slot(0, 0);
            match short.slot() {
                Ok(ShortSlot { words, code }) => {
                    let mut slot = Slot { words: [0; WORDS], count: SHORT_WORDS, code };
                    slot.words[WORDS - SHORT_WORDS..].copy_from_slice(&words);
                    prop_assert_eq!(Ok(slot), expected);
                }
                Err(error) => prop_assert_eq!(Err(error), expected),
            }
        }
    }
}
