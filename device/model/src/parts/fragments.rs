//! Fragmentation and reassembly: which bytes of a message are next, and which have arrived.

use core::ops::Range;

/// Fragmentation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutter {
    bytes: u64,
    /// Bytes in fragments so far; none before the first fragment.
    cut: Option<u64>,
}

impl Cutter {
    /// A message of `bytes`, before its first fragment.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, cut: None }
    }

    /// The start of the next fragment; none before the first.
    pub const fn begun(&self) -> Option<u64> {
        self.cut
    }

    /// The next fragment, of at most `most` bytes, and whether it is the last. An empty message has one empty
    /// fragment.
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

/// Reassembly of a message whose fragments arrive in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joiner {
    bytes: u64,
    joined: u64,
}

impl Joiner {
    /// A message of `bytes`, of which no byte has arrived.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, joined: 0 }
    }

    /// Bytes that have arrived.
    pub const fn joined(&self) -> u64 {
        self.joined
    }

    /// Whether all bytes have arrived.
    pub const fn is_whole(&self) -> bool {
        self.joined == self.bytes
    }

    /// Takes the next `bytes`. Returns their range in the message; surplus bytes are cut off.
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
        fn fragments_reassemble_to_the_message(
            bytes in 0..5_000_u64,
            most in prop::collection::vec(1..1_500_u64, 1..5),
        ) {
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
        fn surplus_bytes_are_cut_off(bytes in 0..100_u64, arriving in prop::collection::vec(any::<u64>(), 1..5)) {
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
