//! The two FIFOs between a list manager and its match unit.

use alloc::collections::VecDeque;

use crate::models::matching::item::WORDS;

/// Words that the input FIFO holds at most: more than the hand-shake ever lets wait. A header, the item that is judged
/// and the one behind it are three times eight words. Assumed: the paper gives no depth, and no time depends on it.
pub const MAX_WORDS: usize = 64;

/// Cycles from the issue of a word until what it wrote can be taken out of the output FIFO: it is written at the end of
/// the third stage (section 4.2: read, execute, write).
pub const OUTPUT_CYCLES: u64 = 3;

/// Input and output of a match unit. A word that enters the input in one cycle can be taken from the next on.
#[derive(Clone, Debug)]
pub struct Fifos {
    /// A ring; word number n is at place n modulo its size.
    places: [u64; MAX_WORDS],
    /// How many words entered it, and how many left.
    entered: usize,
    left: usize,
    words: usize,
    /// Words, and the cycles from which on they can be taken. It is never full.
    output: VecDeque<(u64, u64)>,
}

impl Fifos {
    /// Both empty; the input has room for `words`, but at most [`MAX_WORDS`].
    #[must_use]
    pub const fn new(words: usize) -> Self {
        let words = if words < MAX_WORDS { words } else { MAX_WORDS };
        Self { places: [0; MAX_WORDS], entered: 0, left: 0, words, output: VecDeque::new() }
    }

    /// Words that wait in the input.
    #[inline]
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.entered.wrapping_sub(self.left)
    }

    /// Whether the input has room for another word.
    #[inline]
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.waiting() < self.words
    }

    /// The input's first word.
    #[inline]
    #[must_use]
    pub const fn front(&self) -> Option<u64> {
        if self.entered == self.left { None } else { Some(self.places[self.left % MAX_WORDS]) }
    }

    /// All words of the input, the first one first.
    pub fn input(&self) -> impl Iterator<Item = u64> {
        (0..self.waiting()).map(|place| self.places[self.left.wrapping_add(place) % MAX_WORDS])
    }

    /// All words of the output, the first one first, each with the cycle from which on it can be taken.
    pub fn output(&self) -> impl Iterator<Item = (u64, u64)> {
        self.output.iter().copied()
    }

    /// The cycle from which on the output's first word can be taken.
    #[inline]
    #[must_use]
    pub fn output_at(&self) -> Option<u64> {
        self.output.front().map(|(at, _)| *at)
    }

    /// Takes the output's first word, if it is there in cycle `now`.
    #[inline]
    pub fn take_output(&mut self, now: u64) -> Option<u64> {
        if self.output_at()? > now {
            return None;
        }
        self.output.pop_front().map(|(_, word)| word)
    }

    #[inline]
    pub(super) const fn push(&mut self, word: u64) {
        self.places[self.entered % MAX_WORDS] = word;
        self.entered = self.entered.wrapping_add(1);
    }

    #[inline]
    pub(super) const fn pop(&mut self) {
        self.left = self.left.wrapping_add(1);
    }

    /// How many words have left the input so far.
    #[inline]
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// The input's word with this number, of those that entered it: one of the last [`MAX_WORDS`].
    #[inline]
    pub(super) const fn place(&self, number: usize) -> u64 {
        self.places[number % MAX_WORDS]
    }

    /// So many words leave the input.
    #[inline]
    pub(super) const fn leave(&mut self, words: usize) {
        self.left = self.left.wrapping_add(words);
    }

    /// Words enter that have room once others have left; they may be taken back.
    #[inline]
    pub(super) fn push_all(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.push(*word));
    }

    /// The same for an entity as a whole.
    #[inline(always)]
    pub(super) fn push_entity(&mut self, words: [u64; WORDS]) {
        let first = self.entered % MAX_WORDS;
        // As a rule entities stand in the ring one behind the other.
        if let Some(places) = self.places.get_mut(first..first + WORDS) {
            places.copy_from_slice(&words);
            self.entered = self.entered.wrapping_add(WORDS);
        } else {
            self.push_all(&words);
        }
    }

    /// The last words that entered did not.
    #[inline]
    pub(super) const fn take_back(&mut self, words: usize) {
        self.entered = self.entered.wrapping_sub(words);
    }

    /// What is in the output instead of all that was.
    pub(super) fn set_output(&mut self, words: impl Iterator<Item = (u64, u64)>) {
        self.output.clear();
        self.output.extend(words);
    }

    /// Words that the input has room for at most.
    #[inline]
    pub(super) const fn size(&self) -> usize {
        self.words
    }

    /// A word that was issued in cycle `now` writes `word`.
    #[inline]
    pub(super) fn write(&mut self, now: u64, word: u64) {
        self.output.push_back((now + OUTPUT_CYCLES, word));
    }
}
