//! The short way of a message: what a card wants done, left where a shell finds it without a frame being encoded, moved
//! or looked through.
//!
//! A model decides all that it does as ever. Where its [`EffectQueue`] is open, the frames that it sends first are left as
//! [`InlinePacket`]s, in the words that they are made of, and the stores among them as [`InlineWrite`]s. A shell that can carry a
//! packet there and then gives it to the other card by [`Input::InlinePacket`](crate::nic::Input::InlinePacket). Any other polls,
//! and gets the frame and the store as [`Output`]s: so a packet can be taken up at any place, and left at any place.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::nic::frame::SharedFrame;
use crate::nic::{Content, DMA_BUFFER_WORDS, DmaWords, FrameBytes, Output};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Words of a packet behind its head: payload and tag of a slot. Ours: what is longer goes as a frame.
pub const PACKET_WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A frame from a card to the card of one other node, between the two cards' own Ethernet addresses, which nobody has
/// encoded. What its check sequences would say, it is: sound.
#[derive(Clone, Copy, Debug)]
pub struct InlinePacket {
    /// When its first byte is ready for the link, and when its last is.
    pub ready: Passage,
    /// The node that it goes to.
    pub to: u16,
    /// First byte behind the Ethernet header: whose protocol it is.
    pub protocol: u8,
    /// Whether frames of this protocol have routing of their own, for networks without Ethernet headers.
    pub is_routed: bool,
    /// Bytes of the frame.
    pub bytes: usize,
    /// What its model has before the words.
    pub head: [u64; 2],
    /// Words, of which so many count.
    words: [u64; PACKET_WORDS],
    count: usize,
    /// The message that it carries, as in [`Output::Frame`].
    pub message: Option<TraceTag>,
    /// The frame.
    pub encode: fn(&Self) -> FrameBytes,
}

impl InlinePacket {
    /// A frame of nothing, in whose place others are made.
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

    /// The words behind its head.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.count).unwrap_or_default()
    }

    /// Puts words behind its head, as many as have room.
    #[inline]
    pub fn set_words(&mut self, words: &[u64]) {
        self.words.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
        self.count = words.len().min(PACKET_WORDS);
    }
}

/// A store into host memory: [`Output::DmaWrite`], where it lies.
#[derive(Clone, Debug)]
pub struct InlineWrite {
    /// When the last word is visible to the host.
    pub at: Time,
    /// Guest-physical address, aligned to 8 bytes.
    pub address: u64,
    /// Words, of which so many count.
    words: [u64; DMA_BUFFER_WORDS],
    count: usize,
    /// What that is to the host.
    pub content: Content,
    /// The message that caused it, where one did and the ledger knows.
    pub message: Option<TraceTag>,
}

impl InlineWrite {
    /// A store of nothing, in whose place others are made.
    const NONE: Self = Self {
        at: Time::ZERO,
        address: 0,
        words: [0; DMA_BUFFER_WORDS],
        count: 0,
        content: Content::Data,
        message: None,
    };

    /// What to store, in ascending order, each word with release ordering after those before it.
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.count).unwrap_or_default()
    }
}

/// What lies at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InlinePacket,
    InlineWrite,
}

/// InlinePackets and deposits that lie one behind the other, at most. Ours: more than follow from one input, but for the
/// credits of a large queue that was released at once. What is more lies behind them as outputs.
const PLACES: usize = 32;

/// Where packets and stores are left. Its places are filled from the first one on whenever nothing is left, so that the
/// same few are used again and again.
struct Counter {
    /// Place of the first one that is left, and the one behind the last.
    first: usize,
    end: usize,
    kinds: [Kind; PLACES],
    packets: [InlinePacket; PLACES],
    inline_writes: [InlineWrite; PLACES],
}

/// What a card wants done: packets and deposits, and then all else, in the order in which it was decided.
#[derive(Default)]
pub struct EffectQueue {
    queue: VecDeque<Output>,
    /// Only in an effect_queue that is open.
    counter: Option<Box<Counter>>,
}

impl core::fmt::Debug for EffectQueue {
    /// Whether it is open is nothing that a card does: two that want the same look the same.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let counter = self.counter.as_ref().filter(|_| !self.is_empty()).map(|counter| {
            (counter.first..counter.end).map(|place| counter.output(place)).collect::<VecDeque<_>>()
        });
        f.debug_struct("EffectQueue").field("counter", &counter).field("queue", &self.queue).finish()
    }
}

impl EffectQueue {
    /// Opens the short way, for a shell that looks for packets, or closes it, as at first.
    pub fn set_open(&mut self, is_open: bool) {
        self.empty_counter();
        self.counter = is_open.then(|| Box::new(Counter::EMPTY));
    }

    /// Whether it is open.
    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.counter.is_some()
    }

    /// Whether nothing is to be done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.counter.as_deref().is_none_or(Counter::is_empty)
    }

    /// Where to make a packet, if one can be left: behind packets and deposits alone. It is then left.
    #[inline]
    pub(crate) fn slot_for_packet(&mut self) -> Option<&mut InlinePacket> {
        if !self.queue.is_empty() {
            return None;
        }
        let counter = self.counter.as_deref_mut()?;
        let place = counter.next_place(Kind::InlinePacket)?;
        counter.packets.get_mut(place)
    }

    /// Leaves a store, behind all that is to be done.
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
            && let Some(counter) = self.counter.as_deref_mut()
            && let Some(place) = counter.next_place(Kind::InlineWrite)
            && let Some(inline_write) = counter.inline_writes.get_mut(place)
        {
            (inline_write.at, inline_write.address, inline_write.content) = (at, address, content);
            (inline_write.message, inline_write.count) = (message, words.len());
            inline_write.words.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
            return;
        }
        let words = DmaWords::from_slice(words);
        self.push(Output::DmaWrite { at, address, words, content, message });
    }

    /// Leaves anything else, behind all that is to be done.
    #[inline]
    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// Leaves something that is to be done before all else.
    pub(crate) fn push_first(&mut self, output: Output) {
        self.empty_counter();
        self.queue.push_front(output);
    }

    /// Forgets what is for a host that is gone.
    pub(crate) fn keep_frames(&mut self) {
        self.empty_counter();
        self.queue.retain(|output| matches!(output, Output::Frame { .. } | Output::LentFrame { .. }));
    }

    /// The packet that is to be carried before all else.
    #[inline]
    pub fn packet(&self) -> Option<&InlinePacket> {
        let counter = self.counter.as_deref()?;
        let place = counter.first_of(Kind::InlinePacket)?;
        counter.packets.get(place)
    }

    /// The store that is to be done before all else.
    #[inline]
    pub fn inline_write(&self) -> Option<&InlineWrite> {
        let counter = self.counter.as_deref()?;
        let place = counter.first_of(Kind::InlineWrite)?;
        counter.inline_writes.get(place)
    }

    /// The packet, or the deposit, that was to be done before all else is done.
    #[inline]
    pub fn clear_first(&mut self) {
        if let Some(counter) = &mut self.counter {
            counter.clear_first();
        }
    }

    /// The next of all that is to be done.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.counter.as_deref_mut() {
            Some(counter) if !counter.is_empty() => counter.pop(),
            _ => self.queue.pop_front(),
        }
    }

    fn empty_counter(&mut self) {
        let Some(counter) = &mut self.counter else { return };
        let left: VecDeque<Output> = core::iter::from_fn(|| counter.pop()).collect();
        left.into_iter().rev().for_each(|output| self.queue.push_front(output));
    }
}

impl Counter {
    const EMPTY: Self = Self {
        first: 0,
        end: 0,
        kinds: [Kind::InlinePacket; PLACES],
        packets: [const { InlinePacket::NONE }; PLACES],
        inline_writes: [const { InlineWrite::NONE }; PLACES],
    };

    #[inline]
    const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Takes the next place, if there is one.
    #[inline]
    fn next_place(&mut self, kind: Kind) -> Option<usize> {
        let place = self.end;
        *self.kinds.get_mut(place)? = kind;
        self.end += 1;
        Some(place)
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

    /// What lies at a place, as anybody may have it.
    fn output(&self, place: usize) -> Option<Output> {
        Some(match self.kinds.get(place)? {
            Kind::InlinePacket => {
                let packet = self.packets.get(place)?;
                let &InlinePacket { ready: Passage { head: at, tail }, message, encode, .. } = packet;
                Output::Frame { at, tail, frame: SharedFrame::from(encode(packet)), message }
            }
            Kind::InlineWrite => {
                let inline_write = self.inline_writes.get(place)?;
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
    fn what_was_left_is_polled_in_its_order() {
        for is_open in [false, true] {
            let mut effect_queue = EffectQueue::default();
            effect_queue.set_open(is_open);
            assert!(effect_queue.is_empty());
            assert_eq!(effect_queue.slot_for_packet().is_some(), is_open);
            (1..4).for_each(|address| store(&mut effect_queue, address));
            assert_eq!(effect_queue.slot_for_packet().is_some(), is_open, "behind packets and stores");
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
    fn what_has_no_place_lies_behind_it() {
        let mut effect_queue = EffectQueue::default();
        effect_queue.set_open(true);
        let all: Vec<u64> = (0..2 * PLACES as u64).collect();
        for round in 0..3 {
            all.iter().for_each(|address| store(&mut effect_queue, *address));
            assert!(effect_queue.slot_for_packet().is_none(), "others lie behind");
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
        assert!(effect_queue.inline_write().is_none(), "something is before it");
        assert_eq!(addresses(&mut effect_queue), [Some(98), Some(1)]);
    }

    #[test]
    fn what_is_put_first_is_before_a_packet_and_a_reset_leaves_frames() {
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
            "something is before it"
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
