//! A message in a slice of a receive queue: payload, tag and status, as one burst that ends at the status word.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::event::CAUSE_MESSAGE;
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, SLICE_VALID, SliceStatus};

use crate::nic::Address;
use crate::nic::{Content, DmaWords};
use crate::parts::counters::Counting;
use crate::parts::effects::{Effects, WORD_BYTES};
use crate::parts::port::{Promise, ReceiveQueue, SliceSlot};
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Max words of a message: payload and tag.
pub const MAX_WORDS: usize = PAYLOAD_WORDS + TAG_WORDS;

/// Bits of a slice's status word that describe the message. The number and the valid bit show that the slice is new.
const STATUS_BITS: u64 = ((1 << SLICE_NUMBER_SHIFT) - 1) & !SLICE_VALID;

/// A slice's content besides the message's words.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// The sender of the message.
    pub source: Address,
    /// Whether its sender requested an interrupt.
    pub interrupt: bool,
    /// Whether its sender requested an acknowledgement.
    pub acknowledge: bool,
    /// The message, if the ledger knows it.
    pub message: Option<&'a TraceTag>,
}

impl Slice<'_> {
    /// Stores a message into the slice of `queue` that was promised to it. Charges the host for the delivery and
    /// raises the interrupts that are due at `port`. `words` are payload and tag, at most [`MAX_WORDS`]. Returns the
    /// slice, and when the message is visible there.
    #[inline]
    pub fn store<C: Counting>(
        &self,
        ready: Time,
        words: impl ExactSizeIterator<Item = u64>,
        (port, queue, promise): (usize, &mut ReceiveQueue, Promise),
        effects: &mut Effects<C>,
    ) -> (SliceSlot, Time) {
        let count = words.len().min(MAX_WORDS);
        let bytes = count as u64 * WORD_BYTES;
        let payload_words = count.saturating_sub(TAG_WORDS);
        let slot = queue.store(promise);
        let status = SliceStatus {
            words: payload_words as u8,
            interrupt: self.interrupt,
            acknowledge: self.acknowledge,
            source_port: self.source.port,
            source_node: self.source.node,
            number: slot.number as u32,
        };
        let mut burst = [0; MAX_WORDS + 1];
        burst.iter_mut().zip(words.take(MAX_WORDS)).for_each(|(place, word)| *place = word);
        burst.iter_mut().skip(count).take(1).for_each(|place| *place = status.encode());
        let burst = burst.get(..=count).unwrap_or_default();
        let skipped = (PAYLOAD_WORDS - payload_words) as u64 * WORD_BYTES;
        let content = Content::Completion { status: STATUS_BITS };
        let visible = effects.dma_write(ready, slot.address + skipped, DmaWords::from_slice(burst), content);
        queue.on_visible(visible);
        let consumed = effects.interface.host_receive(visible, bytes);
        if let Some(message) = self.message {
            effects.interface.ledger_mut().complete(message, consumed);
        }
        queue.on_consumed(consumed, effects);
        let card = effects.card();
        card.messages_received += 1;
        card.bytes_received += bytes;
        if self.interrupt {
            effects.interrupt(visible, CAUSE_MESSAGE, port, self.message.copied());
        }
        queue.wake(visible, port, self.message.copied(), effects);
        (slot, visible)
    }
}
