//! The short way of a message: what a card wants done, left where a shell finds it without a frame being encoded, moved or
//! looked through.
//!
//! A model decides all that it does as ever. Where its [`Outbox`] is open, the first frame it sends is left as a [`Parcel`], in the
//! words that it is made of, and the first store behind it as a [`Deposit`]. A shell that can carry a parcel there and then gives it
//! to the other card by [`Input::Parcel`](crate::nic::Input::Parcel). Any other polls, and gets the frame and the store as
//! [`Output`]s: so a parcel can be taken up at any place, and left at any place.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::nic::frame::SharedFrame;
use crate::nic::{Content, DmaWords, FrameBytes, Output};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Words of a parcel behind its head: payload and tag of a slot. Ours: what is longer goes as a frame.
pub const PARCEL_WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A frame from a card to the card of one other node, between the two cards' own Ethernet addresses, which nobody has encoded. What
/// its check sequences would say, it is: sound.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
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
    words: [u64; PARCEL_WORDS],
    count: usize,
    /// The message that it carries, as in [`Output::Frame`].
    pub message: Option<TraceTag>,
    /// The frame.
    pub encode: fn(&Self) -> FrameBytes,
}

impl Parcel {
    /// A frame of nothing, in whose place others are made.
    const NONE: Self = Self {
        ready: Passage { head: Time::ZERO, tail: Time::ZERO },
        to: 0,
        protocol: 0,
        is_routed: false,
        bytes: 0,
        head: [0; 2],
        words: [0; PARCEL_WORDS],
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
        self.count = words.len().min(PARCEL_WORDS);
    }
}

/// A store into host memory: [`Output::DmaWrite`], where it lies.
#[derive(Clone, Debug)]
pub struct Deposit {
    /// When the last word is visible to the host.
    pub at: Time,
    /// Guest-physical address, aligned to 8 bytes.
    pub address: u64,
    /// What to store, in ascending order, each word with release ordering after those before it.
    pub words: DmaWords,
    /// What that is to the host.
    pub content: Content,
    /// The message that caused it, where one did and the ledger knows.
    pub message: Option<TraceTag>,
}

/// Where the first frame and the first store are left.
#[derive(Debug)]
struct Counter {
    has_parcel: bool,
    parcel: Parcel,
    deposit: Option<Deposit>,
}

/// What a card wants done: a parcel, a deposit, and then all else in the order in which it was decided.
#[derive(Default)]
pub struct Outbox {
    queue: VecDeque<Output>,
    /// Only in an outbox that is open.
    counter: Option<Box<Counter>>,
}

impl core::fmt::Debug for Outbox {
    /// Whether it is open is nothing that a card does: two that want the same look the same.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let counter = self.counter.as_ref().filter(|_| !self.is_empty());
        f.debug_struct("Outbox").field("counter", &counter).field("queue", &self.queue).finish()
    }
}

impl Outbox {
    /// Opens the short way, for a shell that looks for parcels, or closes it, as at first.
    pub fn set_open(&mut self, is_open: bool) {
        self.empty_counter();
        self.counter =
            is_open.then(|| Box::new(Counter { has_parcel: false, parcel: Parcel::NONE, deposit: None }));
    }

    /// Whether nothing is to be done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let is_left = |counter: &Counter| counter.has_parcel || counter.deposit.is_some();
        self.queue.is_empty() && !self.counter.as_deref().is_some_and(is_left)
    }

    /// Where to make a parcel, if one can be left: before everything else that is to be done. It is then left.
    #[inline]
    pub(crate) fn place_for_parcel(&mut self) -> Option<&mut Parcel> {
        let counter = self.counter.as_deref_mut()?;
        if counter.has_parcel || counter.deposit.is_some() || !self.queue.is_empty() {
            return None;
        }
        counter.has_parcel = true;
        Some(&mut counter.parcel)
    }

    /// Leaves a store, behind all that is to be done.
    #[inline]
    pub(crate) fn store(&mut self, deposit: Deposit) {
        match self.counter.as_deref_mut() {
            Some(counter) if counter.deposit.is_none() && self.queue.is_empty() => {
                counter.deposit = Some(deposit)
            }
            _ => self.queue.push_back(deposit.into()),
        }
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

    /// The parcel that was left, before all else.
    #[inline]
    pub fn parcel(&self) -> Option<&Parcel> {
        self.counter.as_deref().filter(|counter| counter.has_parcel).map(|counter| &counter.parcel)
    }

    /// The parcel is carried: it is there no longer.
    #[inline]
    pub fn clear_parcel(&mut self) {
        if let Some(counter) = &mut self.counter {
            counter.has_parcel = false;
        }
    }

    /// The store that was left, if nothing is to be done before it.
    #[inline]
    pub fn take_deposit(&mut self) -> Option<Deposit> {
        let counter = self.counter.as_deref_mut().filter(|counter| !counter.has_parcel)?;
        counter.deposit.take()
    }

    /// The next of all that is to be done.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.counter.as_deref_mut() {
            Some(counter) if counter.has_parcel || counter.deposit.is_some() => counter.pop(),
            _ => self.queue.pop_front(),
        }
    }

    fn empty_counter(&mut self) {
        let Some(counter) = &mut self.counter else { return };
        let (first, second) = (counter.pop(), counter.pop());
        second.into_iter().chain(first).for_each(|output| self.queue.push_front(output));
    }
}

impl Counter {
    fn pop(&mut self) -> Option<Output> {
        if !core::mem::take(&mut self.has_parcel) {
            return self.deposit.take().map(Output::from);
        }
        let Parcel { ready: Passage { head: at, tail }, message, encode, .. } = self.parcel;
        Some(Output::Frame { at, tail, frame: SharedFrame::from(encode(&self.parcel)), message })
    }
}

impl From<Deposit> for Output {
    #[inline]
    fn from(deposit: Deposit) -> Self {
        let Deposit { at, address, words, content, message } = deposit;
        Self::DmaWrite { at, address, words, content, message }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn deposit(address: u64) -> Deposit {
        let words = DmaWords::from_slice(&[7]);
        Deposit { at: Time::from_ps(1), address, words, content: Content::Data, message: None }
    }

    fn addresses(outbox: &mut Outbox) -> Vec<Option<u64>> {
        let address =
            |output| if let Output::DmaWrite { address, .. } = output { Some(address) } else { None };
        core::iter::from_fn(|| outbox.poll()).map(address).collect()
    }

    #[test]
    fn what_was_left_is_polled_in_its_order() {
        for is_open in [false, true] {
            let mut outbox = Outbox::default();
            outbox.set_open(is_open);
            assert!(outbox.is_empty());
            assert_eq!(outbox.place_for_parcel().is_some(), is_open);
            assert!(outbox.place_for_parcel().is_none(), "one at a time");
            (1..4).for_each(|address| outbox.store(deposit(address)));
            assert!(outbox.place_for_parcel().is_none());
            assert!(!outbox.is_empty() && outbox.parcel().is_some() == is_open);
            let frame: &[_] = if is_open { &[None] } else { &[] };
            assert_eq!(addresses(&mut outbox), [frame, &[Some(1), Some(2), Some(3)]].concat());
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn what_is_put_first_is_before_a_parcel_and_a_reset_leaves_frames() {
        let mut outbox = Outbox::default();
        outbox.set_open(true);
        outbox.place_for_parcel().unwrap();
        outbox.store(deposit(1));
        assert!(outbox.take_deposit().is_none(), "the parcel is first");
        outbox.push_first(deposit(9).into());
        assert!(outbox.parcel().is_none());
        outbox.store(deposit(2));
        assert_eq!(addresses(&mut outbox), [Some(9), None, Some(1), Some(2)]);
        outbox.place_for_parcel().unwrap();
        outbox.store(deposit(1));
        outbox.keep_frames();
        assert_eq!(addresses(&mut outbox), [None]);
        outbox.push(Output::Complete { at: Time::ZERO, token: 1, bytes: 0 });
        outbox.store(deposit(4));
        assert!(
            outbox.take_deposit().is_none() && outbox.place_for_parcel().is_none(),
            "something is before it"
        );
        assert_eq!(addresses(&mut outbox), [None, Some(4)]);
        outbox.place_for_parcel().unwrap();
        outbox.clear_parcel();
        outbox.store(deposit(3));
        assert_eq!(outbox.take_deposit().map(|deposit| deposit.address), Some(3));
        assert!(outbox.is_empty());
    }
}
