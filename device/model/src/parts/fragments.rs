//! Messages cut into frames, and joined again: which bytes go next, and which were there already.

use core::ops::Range;

/// A message that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutter {
    bytes: u64,
    /// Bytes cut off so far, once there was a first fragment.
    cut: Option<u64>,
}

impl Cutter {
    /// A message of `bytes`, none of them cut off.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, cut: None }
    }

    /// Where the next fragment begins; none before the first.
    pub const fn begun(&self) -> Option<u64> {
        self.cut
    }

    /// The next fragment, of at most `most` bytes, and whether it is the last: a message of no bytes has one of none.
    pub fn next(&mut self, most: u64) -> (Range<u64>, bool) {
        let begin = self.cut.unwrap_or(0);
        let end = begin.saturating_add(most).min(self.bytes);
        self.cut = Some(end);
        (begin..end, end == self.bytes)
    }

    /// Whether any bytes are left.
    pub fn has_bytes_left(&self) -> bool {
        self.cut.unwrap_or(0) < self.bytes
    }
}

/// A message that is joined, whose fragments come in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joiner {
    bytes: u64,
    joined: u64,
}

impl Joiner {
    /// A message of `bytes`, of which nothing is there.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, joined: 0 }
    }

    /// Bytes that are there.
    pub const fn joined(&self) -> u64 {
        self.joined
    }

    /// Whether all are.
    pub const fn is_whole(&self) -> bool {
        self.joined == self.bytes
    }

    /// The next `bytes` are there. Returns which of the message's they are: what is more than its length is none of
    /// them.
    pub fn join(&mut self, bytes: u64) -> Range<u64> {
        let begin = self.joined;
        self.joined = begin.saturating_add(bytes).min(self.bytes);
        begin..self.joined
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_cut_is_joined(bytes in 0..5_000_u64, most in prop::collection::vec(1..1_500_u64, 1..5)) {
            let (mut cutter, mut joiner) = (Cutter::new(bytes), Joiner::new(bytes));
            let mut most = most.into_iter().cycle();
            loop {
                prop_assert!(cutter.begun().is_none() || cutter.has_bytes_left());
                let (fragment, is_last) = cutter.next(most.next().unwrap());
                prop_assert_eq!(fragment.is_empty(), bytes == 0);
                prop_assert_eq!(joiner.join(fragment.end - fragment.start), fragment);
                prop_assert_eq!(joiner.is_whole(), is_last);
                prop_assert_eq!(cutter.begun(), Some(joiner.joined()));
                if is_last {
                    break;
                }
            }
            prop_assert_eq!(joiner.joined(), bytes);
        }

        #[test]
        fn more_than_a_message_has_is_none_of_it(bytes in 0..100_u64, arriving in prop::collection::vec(any::<u64>(), 1..5)) {
            let mut joiner = Joiner::new(bytes);
            let mut end = 0;
            for more in arriving {
                let found = joiner.join(more);
                prop_assert_eq!(found.start, end);
                prop_assert!(found.end <= bytes);
                end = found.end;
            }
        }
    }
}
