//! The two FIFOs between a list manager and its match unit.

use alloc::collections::VecDeque;

use crate::models::matching::item::WORDS;

/// Maximum number of words in the input FIFO: more than the handshake ever lets wait. A header, the item that is judged
/// and the next item are three times eight words. Assumed: the paper gives no depth, and no time depends on it.
pub const MAX_WORDS: usize = 64;

/// Cycles from the issue of a word until its output can be taken from the output FIFO. The word writes at the end of
/// its third stage (section 4.2: read, execute, write).
pub const OUTPUT_CYCLES: u64 = 3;

/// Input and output of a match unit. A word that enters the input in one cycle can be taken from the next cycle on.
#[derive(Clone, Debug)]
pub struct Fifos {
    /// A ring; word number n is at index n modulo its size.
    places: [u64; MAX_WORDS],
    /// Numbers of words that entered, and that left.
    entered: usize,
    left: usize,
    words: usize,
    /// Words, each with the first cycle in which it can be taken. The output is never full.
    output: VecDeque<(u64, u64)>,
}

impl Fifos {
    /// Both FIFOs empty; the input has room for `words` words, but for at most [`MAX_WORDS`].
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

    /// All words of the output, the first one first, each with the first cycle in which it can be taken.
    pub fn output(&self) -> impl Iterator<Item = (u64, u64)> {
        self.output.iter().copied()
    }

    /// The first cycle in which the output's first word can be taken.
    #[inline]
    #[must_use]
    pub fn output_at(&self) -> Option<u64> {
        self.output.front().map(|(at, _)| *at)
    }

    /// Takes the output's first word, if it can be taken in cycle `now`.
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

    /// Number of words that have left the input so far.
    #[inline]
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// The input word with this number, counted over all words that entered. It must be one of the last [`MAX_WORDS`].
    #[inline]
    pub(super) const fn place(&self, number: usize) -> u64 {
        self.places[number % MAX_WORDS]
    }

    /// Removes this number of words from the input.
    #[inline]
    pub(super) const fn leave(&mut self, words: usize) {
        self.left = self.left.wrapping_add(words);
    }

    /// Appends words to the input, which has room for them once other words have left. The caller may take them back.
    #[inline]
    pub(super) fn push_all(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.push(*word));
    }

    /// The same for a complete entity.
    #[inline(always)]
    pub(super) fn push_entity(&mut self, words: [u64; WORDS]) {
        let first = self.entered % MAX_WORDS;
        // An entity is usually contiguous in the ring.
        if let Some(places) = self.places.get_mut(first..first + WORDS) {
            places.copy_from_slice(&words);
            self.entered = self.entered.wrapping_add(WORDS);
        } else {
            self.push_all(&words);
        }
    }

    /// Takes back the words that entered last.
    #[inline]
    pub(super) const fn take_back(&mut self, words: usize) {
        self.entered = self.entered.wrapping_sub(words);
    }

    /// Replaces the contents of the output.
    pub(super) fn set_output(&mut self, words: impl Iterator<Item = (u64, u64)>) {
        self.output.clear();
        self.output.extend(words);
    }

    /// Maximum number of words in the input.
    #[inline]
    pub(super) const fn size(&self) -> usize {
        self.words
    }

    /// Outputs `word` for a program word that was issued in cycle `now`.
    #[inline]
    pub(super) fn write(&mut self, now: u64, word: u64) {
        self.output.push_back((now + OUTPUT_CYCLES, word));
    }
}
