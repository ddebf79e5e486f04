//! The short way of a message: what a card wants done, left where a shell finds it without a frame being encoded, moved
//! or looked through.
//!
//! A model decides all that it does as ever. Where its [`Outbox`] is open, the frames that it sends first are left as
//! [`Parcel`]s, in the words that they are made of, and the stores among them as [`Deposit`]s. A shell that can carry a
//! parcel there and then gives it to the other card by [`Input::Parcel`](crate::nic::Input::Parcel). Any other polls,
//! and gets the frame and the store as [`Output`]s: so a parcel can be taken up at any place, and left at any place.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::nic::frame::SharedFrame;
use crate::nic::{Content, DMA_BUFFER_WORDS, DmaWords, FrameBytes, Output};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Words of a parcel behind its head: payload and tag of a slot. Ours: what is longer goes as a frame.
pub const PARCEL_WORDS: usize = niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS;

/// A frame from a card to the card of one other node, between the two cards' own Ethernet addresses, which nobody has
/// encoded. What its check sequences would say, it is: sound.
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
    /// Words, of which so many count.
    words: [u64; DMA_BUFFER_WORDS],
    count: usize,
    /// What that is to the host.
    pub content: Content,
    /// The message that caused it, where one did and the ledger knows.
    pub message: Option<TraceTag>,
}

impl Deposit {
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
    Parcel,
    Deposit,
}

/// Parcels and deposits that lie one behind the other, at most. Ours: more than follow from one input, but for the
/// credits of a large queue that was released at once. What is more lies behind them as outputs.
const PLACES: usize = 32;

/// Where parcels and stores are left. Its places are filled from the first one on whenever nothing is left, so that the
/// same few are used again and again.
struct Counter {
    /// Place of the first one that is left, and the one behind the last.
    first: usize,
    end: usize,
    kinds: [Kind; PLACES],
    parcels: [Parcel; PLACES],
    deposits: [Deposit; PLACES],
}

/// What a card wants done: parcels and deposits, and then all else, in the order in which it was decided.
#[derive(Default)]
pub struct Outbox {
    queue: VecDeque<Output>,
    /// Only in an outbox that is open.
    counter: Option<Box<Counter>>,
}

impl core::fmt::Debug for Outbox {
    /// Whether it is open is nothing that a card does: two that want the same look the same.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let counter = self.counter.as_ref().filter(|_| !self.is_empty()).map(|counter| {
            (counter.first..counter.end).map(|place| counter.output(place)).collect::<VecDeque<_>>()
        });
        f.debug_struct("Outbox").field("counter", &counter).field("queue", &self.queue).finish()
    }
}

impl Outbox {
    /// Opens the short way, for a shell that looks for parcels, or closes it, as at first.
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

    /// Where to make a parcel, if one can be left: behind parcels and deposits alone. It is then left.
    #[inline]
    pub(crate) fn place_for_parcel(&mut self) -> Option<&mut Parcel> {
        if !self.queue.is_empty() {
            return None;
        }
        let counter = self.counter.as_deref_mut()?;
        let place = counter.next_place(Kind::Parcel)?;
        counter.parcels.get_mut(place)
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
            && let Some(place) = counter.next_place(Kind::Deposit)
            && let Some(deposit) = counter.deposits.get_mut(place)
        {
            (deposit.at, deposit.address, deposit.content) = (at, address, content);
            (deposit.message, deposit.count) = (message, words.len());
            deposit.words.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
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

    /// The parcel that is to be carried before all else.
    #[inline]
    pub fn parcel(&self) -> Option<&Parcel> {
        let counter = self.counter.as_deref()?;
        let place = counter.first_of(Kind::Parcel)?;
        counter.parcels.get(place)
    }

    /// The store that is to be done before all else.
    #[inline]
    pub fn deposit(&self) -> Option<&Deposit> {
        let counter = self.counter.as_deref()?;
        let place = counter.first_of(Kind::Deposit)?;
        counter.deposits.get(place)
    }

    /// The parcel, or the deposit, that was to be done before all else is done.
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
        kinds: [Kind::Parcel; PLACES],
        parcels: [const { Parcel::NONE }; PLACES],
        deposits: [const { Deposit::NONE }; PLACES],
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
            Kind::Parcel => {
                let parcel = self.parcels.get(place)?;
                let &Parcel { ready: Passage { head: at, tail }, message, encode, .. } = parcel;
                Output::Frame { at, tail, frame: SharedFrame::from(encode(parcel)), message }
            }
            Kind::Deposit => {
                let deposit = self.deposits.get(place)?;
                let &Deposit { at, address, content, message, .. } = deposit;
                let words = DmaWords::from_slice(deposit.words());
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

    fn store(outbox: &mut Outbox, address: u64) {
        outbox.store(Time::from_ps(1), address, &[7], Content::Data, None);
    }

    fn write(address: u64) -> Output {
        let words = DmaWords::from_slice(&[7]);
        Output::DmaWrite { at: Time::from_ps(1), address, words, content: Content::Data, message: None }
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
            (1..4).for_each(|address| store(&mut outbox, address));
            assert_eq!(outbox.place_for_parcel().is_some(), is_open, "behind parcels and stores");
            store(&mut outbox, 4);
            assert!(!outbox.is_empty() && outbox.parcel().is_some() == is_open);
            let frame: &[_] = if is_open { &[None] } else { &[] };
            assert_eq!(
                addresses(&mut outbox),
                [frame, &[Some(1), Some(2), Some(3)], frame, &[Some(4)]].concat()
            );
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn what_has_no_place_lies_behind_it() {
        let mut outbox = Outbox::default();
        outbox.set_open(true);
        let all: Vec<u64> = (0..2 * PLACES as u64).collect();
        for round in 0..3 {
            all.iter().for_each(|address| store(&mut outbox, *address));
            assert!(outbox.place_for_parcel().is_none(), "others lie behind");
            outbox.store(Time::ZERO, 99, &[1; DMA_BUFFER_WORDS + 1], Content::Data, None);
            for address in all.iter().take(round) {
                assert_eq!(outbox.deposit().map(|deposit| deposit.address), Some(*address));
                outbox.clear_first();
            }
            let rest: Vec<_> = all.iter().skip(round).chain(&[99]).map(|address| Some(*address)).collect();
            assert_eq!(addresses(&mut outbox), rest);
        }
        outbox.store(Time::ZERO, 98, &[1; DMA_BUFFER_WORDS + 1], Content::Data, None);
        store(&mut outbox, 1);
        assert!(outbox.deposit().is_none(), "something is before it");
        assert_eq!(addresses(&mut outbox), [Some(98), Some(1)]);
    }

    #[test]
    fn what_is_put_first_is_before_a_parcel_and_a_reset_leaves_frames() {
        let mut outbox = Outbox::default();
        outbox.set_open(true);
        outbox.place_for_parcel().unwrap();
        store(&mut outbox, 1);
        assert!(outbox.deposit().is_none(), "the parcel is first");
        outbox.push_first(write(9));
        assert!(outbox.parcel().is_none());
        store(&mut outbox, 2);
        assert_eq!(addresses(&mut outbox), [Some(9), None, Some(1), Some(2)]);
        outbox.place_for_parcel().unwrap();
        store(&mut outbox, 1);
        outbox.keep_frames();
        assert_eq!(addresses(&mut outbox), [None]);
        outbox.push(Output::Complete { at: Time::ZERO, token: 1, bytes: 0 });
        store(&mut outbox, 4);
        assert!(outbox.deposit().is_none() && outbox.place_for_parcel().is_none(), "something is before it");
        assert_eq!(addresses(&mut outbox), [None, Some(4)]);
        outbox.place_for_parcel().unwrap();
        outbox.clear_first();
        store(&mut outbox, 3);
        assert_eq!(outbox.deposit().map(|deposit| deposit.address), Some(3));
        outbox.clear_first();
        assert!(outbox.is_empty());
    }
}
