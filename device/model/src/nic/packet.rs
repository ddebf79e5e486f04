//! The fast path of a message: a card leaves its effects where a shell finds them, and no frame is encoded, moved or
//! parsed.
//!
//! A model makes all its decisions as on the slow path. While its [`EffectQueue`] is open, it leaves the first frames
//! as [`InlinePacket`]s, in the words of the packet, and the stores among them as [`InlineWrite`]s. A shell that can
//! deliver a packet at once passes it to the other card by [`Input::InlinePacket`](crate::nic::Input::InlinePacket).
//! Other shells poll, and get frame and store as [`Output`]s. So a shell can take the fast path, or leave it, at any
//! effect.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::nic::frame::SharedFrame;
use crate::nic::{Content, DMA_BUFFER_WORDS, DmaWords, FrameBytes, Output};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Words of a packet after its head: payload and tag of a slot. Ours: longer messages use frames.
pub const PACKET_WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A frame that was never encoded, from a card to the card of another node, between the cards' own Ethernet addresses.
/// It is always intact: its check sequences would be correct.
#[derive(Clone, Copy, Debug)]
pub struct InlinePacket {
    /// When its first byte and its last byte are ready for the link.
    pub ready: Passage,
    /// The destination node.
    pub to: u16,
    /// First byte after the Ethernet header: the model's protocol.
    pub protocol: u8,
    /// Whether frames of this protocol have routing of their own, for networks without Ethernet headers.
    pub is_routed: bool,
    /// Bytes of the frame.
    pub bytes: usize,
    /// Content that its model sends before the words.
    pub head: [u64; 2],
    /// Only the first `count` are valid.
    words: [u64; PACKET_WORDS],
    count: usize,
    /// The message that it carries, as in [`Output::Frame`].
    pub message: Option<TraceTag>,
    /// Encodes the frame.
    pub encode: fn(&Self) -> FrameBytes,
}

impl InlinePacket {
    /// An empty packet, which later packets overwrite.
    const NONE: Self = Self {
        ready: Passage { head: Time::ZERO, tail: Time::ZERO },
        to: 0,
        protocol: 0,
        is_routed: false,
        bytes: 0,
        head: [0; 2],
        words: [0; PACKET_WORDS],
        count: 0,
        message: None,
        encode: |_| FrameBytes::new(),
    };

    /// The words after its head.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.count).unwrap_or_default()
    }

    /// Sets the words after its head, up to [`PACKET_WORDS`].
    #[inline]
    pub fn set_words(&mut self, words: &[u64]) {
        self.words.iter_mut().zip(words).for_each(|(slot, word)| *slot = *word);
        self.count = words.len().min(PACKET_WORDS);
    }
}

/// A store into host memory: [`Output::DmaWrite`] with inline words.
#[derive(Clone, Debug)]
pub struct InlineWrite {
    /// When the last word is visible to the host.
    pub at: Time,
    /// Guest-physical address, aligned to 8 bytes.
    pub address: u64,
    /// Only the first `count` are valid.
    words: [u64; DMA_BUFFER_WORDS],
    count: usize,
    /// What the words mean to the host.
    pub content: Content,
    /// The message that caused it, if the ledger knows one.
    pub message: Option<TraceTag>,
}

impl InlineWrite {
    /// An empty store, which later stores overwrite.
    const NONE: Self = Self {
        at: Time::ZERO,
        address: 0,
        words: [0; DMA_BUFFER_WORDS],
        count: 0,
        content: Content::Data,
        message: None,
    };

    /// The words to store, in ascending order, each with release ordering after those before it.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.count).unwrap_or_default()
    }
}

/// The kind of an inline slot's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InlinePacket,
    InlineWrite,
}

/// Max consecutive packets and inline DMA writes. Ours: one input causes fewer, except credits of a large queue that
/// is released at once. The surplus follows as outputs.
const INLINE_SLOTS: usize = 32;

/// Inline slots of packets and stores. The first slots are reused whenever all are empty.
struct InlineEffects {
    /// First slot in use, and the slot after the last one in use.
    first: usize,
    end: usize,
    kinds: [Kind; INLINE_SLOTS],
    packets: [InlinePacket; INLINE_SLOTS],
    inline_writes: [InlineWrite; INLINE_SLOTS],
}

/// Effects that a card requests: first packets and inline DMA writes, then all others, in the order of the card's
/// decisions.
#[derive(Default)]
pub struct EffectQueue {
    queue: VecDeque<Output>,
    /// Only in an open queue.
    inline: Option<Box<InlineEffects>>,
}

impl core::fmt::Debug for EffectQueue {
    /// Independent of `is_open`, which is no state of the card: queues with equal effects print equally.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let inline = self.inline.as_ref().filter(|_| !self.is_empty()).map(|inline| {
            (inline.first..inline.end).map(|slot| inline.output(slot)).collect::<VecDeque<_>>()
        });
        f.debug_struct("EffectQueue").field("inline", &inline).field("queue", &self.queue).finish()
    }
}

impl EffectQueue {
    /// Opens the fast path, for a shell that takes packets, or closes it. It is closed at first.
    pub fn set_open(&mut self, is_open: bool) {
        self.queue_inline_effects();
        self.inline = is_open.then(|| Box::new(InlineEffects::EMPTY));
    }

    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.inline.is_some()
    }

    /// Whether no effect is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.inline.as_deref().is_none_or(InlineEffects::is_empty)
    }

    /// A slot for a packet at the end of the queue, if only packets and inline DMA writes precede it.
    #[inline]
    pub(crate) fn slot_for_packet(&mut self) -> Option<&mut InlinePacket> {
        if !self.queue.is_empty() {
            return None;
        }
        let inline = self.inline.as_deref_mut()?;
        let slot = inline.next_slot(Kind::InlinePacket)?;
        inline.packets.get_mut(slot)
    }

    /// Appends a store.
    #[inline]
    pub(crate) fn store(
        &mut self,
        at: Time,
        address: u64,
        words: &[u64],
        content: Content,
        message: Option<TraceTag>,
    ) {
        if self.queue.is_empty()
            && words.len() <= DMA_BUFFER_WORDS
            && let Some(inline) = self.inline.as_deref_mut()
            && let Some(slot) = inline.next_slot(Kind::InlineWrite)
            && let Some(inline_write) = inline.inline_writes.get_mut(slot)
        {
            (inline_write.at, inline_write.address, inline_write.content) = (at, address, content);
            (inline_write.message, inline_write.count) = (message, words.len());
            inline_write.words.iter_mut().zip(words).for_each(|(slot, word)| *slot = *word);
            return;
        }
        let words = DmaWords::from_slice(words);
        self.push(Output::DmaWrite { at, address, words, content, message });
    }

    /// Appends any other effect.
    #[inline]
    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// Inserts an effect before all others.
    pub(crate) fn push_first(&mut self, output: Output) {
        self.queue_inline_effects();
        self.queue.push_front(output);
    }

    /// Discards the effects for a host that is gone.
    pub(crate) fn keep_frames(&mut self) {
        self.queue_inline_effects();
        self.queue.retain(|output| matches!(output, Output::Frame { .. } | Output::LentFrame { .. }));
    }

    /// The packet, if it is the first effect.
    #[inline]
    pub fn packet(&self) -> Option<&InlinePacket> {
        let inline = self.inline.as_deref()?;
        let slot = inline.first_of(Kind::InlinePacket)?;
        inline.packets.get(slot)
    }

    /// The store, if it is the first effect.
    #[inline]
    pub fn inline_write(&self) -> Option<&InlineWrite> {
        let inline = self.inline.as_deref()?;
        let slot = inline.first_of(Kind::InlineWrite)?;
        inline.inline_writes.get(slot)
    }

    /// Removes the packet or store that is the first effect, once the shell has carried it out.
    #[inline]
    pub fn clear_first(&mut self) {
        if let Some(inline) = &mut self.inline {
            inline.clear_first();
        }
    }

    /// Takes the first effect.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.inline.as_deref_mut() {
            Some(inline) if !inline.is_empty() => inline.pop(),
            _ => self.queue.pop_front(),
        }
    }

    fn queue_inline_effects(&mut self) {
        let Some(inline) = &mut self.inline else { return };
        let left: VecDeque<Output> = core::iter::from_fn(|| inline.pop()).collect();
        left.into_iter().rev().for_each(|output| self.queue.push_front(output));
    }
}

impl InlineEffects {
    const EMPTY: Self = Self {
        first: 0,
        end: 0,
        kinds: [Kind::InlinePacket; INLINE_SLOTS],
        packets: [const { InlinePacket::NONE }; INLINE_SLOTS],
        inline_writes: [const { InlineWrite::NONE }; INLINE_SLOTS],
    };

    #[inline]
    const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Takes the next slot, if one is free.
    #[inline]
    fn next_slot(&mut self, kind: Kind) -> Option<usize> {
        let slot = self.end;
        *self.kinds.get_mut(slot)? = kind;
        self.end += 1;
        Some(slot)
    }

    #[inline]
    fn first_of(&self, kind: Kind) -> Option<usize> {
        let is_it = !self.is_empty() && self.kinds.get(self.first) == Some(&kind);
        is_it.then_some(self.first)
    }

    #[inline]
    const fn clear_first(&mut self) {
        if self.first < self.end {
            self.first += 1;
        }
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
    }

    /// The slot's effect as an output, for any shell.
    fn output(&self, slot: usize) -> Option<Output> {
        Some(match self.kinds.get(slot)? {
            Kind::InlinePacket => {
                let packet = self.packets.get(slot)?;
                let &InlinePacket { ready: Passage { head: at, tail }, message, encode, .. } = packet;
                Output::Frame { at, tail, frame: SharedFrame::from(encode(packet)), message }
            }
            Kind::InlineWrite => {
                let inline_write = self.inline_writes.get(slot)?;
                let &InlineWrite { at, address, content, message, .. } = inline_write;
                let words = DmaWords::from_slice(inline_write.words());
                Output::DmaWrite { at, address, words, content, message }
            }
        })
    }

    fn pop(&mut self) -> Option<Output> {
        let output = if self.is_empty() { None } else { self.output(self.first) };
        self.clear_first();
        output
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn store(effect_queue: &mut EffectQueue, address: u64) {
        effect_queue.store(Time::from_ps(1), address, &[7], Content::Data, None);
    }

    fn write(address: u64) -> Output {
        let words = DmaWords::from_slice(&[7]);
        Output::DmaWrite { at: Time::from_ps(1), address, words, content: Content::Data, message: None }
    }

    fn addresses(effect_queue: &mut EffectQueue) -> Vec<Option<u64>> {
        let address =
            |output| if let Output::DmaWrite { address, .. } = output { Some(address) } else { None };
        core::iter::from_fn(|| effect_queue.poll()).map(address).collect()
    }

    #[test]
    fn effects_are_polled_in_their_order() {
        for is_open in [false, true] {
            let mut effect_queue = EffectQueue::default();
            effect_queue.set_open(is_open);
            assert!(effect_queue.is_empty());
            assert_eq!(effect_queue.slot_for_packet().is_some(), is_open);
            (1..4).for_each(|address| store(&mut effect_queue, address));
            assert_eq!(effect_queue.slot_for_packet().is_some(), is_open, "after packets and stores");
            store(&mut effect_queue, 4);
            assert!(!effect_queue.is_empty() && effect_queue.packet().is_some() == is_open);
            let frame: &[_] = if is_open { &[None] } else { &[] };
            assert_eq!(
                addresses(&mut effect_queue),
                [frame, &[Some(1), Some(2), Some(3)], frame, &[Some(4)]].concat()
            );
            assert!(effect_queue.is_empty());
        }
    }

    #[test]
    fn effects_without_inline_slot_follow_as_outputs() {
        let mut effect_queue = EffectQueue::default();
        effect_queue.set_open(true);
        let all: Vec<u64> = (0..2 * INLINE_SLOTS as u64).collect();
        for round in 0..3 {
            all.iter().for_each(|address| store(&mut effect_queue, *address));
            assert!(effect_queue.slot_for_packet().is_none(), "outputs follow");
            effect_queue.store(Time::ZERO, 99, &[1; DMA_BUFFER_WORDS + 1], Content::Data, None);
            for address in all.iter().take(round) {
                assert_eq!(
                    effect_queue.inline_write().map(|inline_write| inline_write.address),
                    Some(*address)
                );
                effect_queue.clear_first();
            }
            let rest: Vec<_> = all.iter().skip(round).chain(&[99]).map(|address| Some(*address)).collect();
            assert_eq!(addresses(&mut effect_queue), rest);
        }
        effect_queue.store(Time::ZERO, 98, &[1; DMA_BUFFER_WORDS + 1], Content::Data, None);
        store(&mut effect_queue, 1);
        assert!(effect_queue.inline_write().is_none(), "an output precedes it");
        assert_eq!(addresses(&mut effect_queue), [Some(98), Some(1)]);
    }

    #[test]
    fn push_first_precedes_packets_and_a_reset_keeps_frames() {
        let mut effect_queue = EffectQueue::default();
        effect_queue.set_open(true);
        effect_queue.slot_for_packet().unwrap();
        store(&mut effect_queue, 1);
        assert!(effect_queue.inline_write().is_none(), "the packet is first");
        effect_queue.push_first(write(9));
        assert!(effect_queue.packet().is_none());
        store(&mut effect_queue, 2);
        assert_eq!(addresses(&mut effect_queue), [Some(9), None, Some(1), Some(2)]);
        effect_queue.slot_for_packet().unwrap();
        store(&mut effect_queue, 1);
        effect_queue.keep_frames();
        assert_eq!(addresses(&mut effect_queue), [None]);
        effect_queue.push(Output::Complete { at: Time::ZERO, token: 1, bytes: 0 });
        store(&mut effect_queue, 4);
        assert!(
            effect_queue.inline_write().is_none() && effect_queue.slot_for_packet().is_none(),
            "an output precedes it"
        );
        assert_eq!(addresses(&mut effect_queue), [None, Some(4)]);
        effect_queue.slot_for_packet().unwrap();
        effect_queue.clear_first();
        store(&mut effect_queue, 3);
        assert_eq!(effect_queue.inline_write().map(|inline_write| inline_write.address), Some(3));
        effect_queue.clear_first();
        assert!(effect_queue.is_empty());
    }
}
