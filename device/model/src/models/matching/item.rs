//! Headers and list items: 64 bytes each, in eight words (section 3.1). The assignment of fields to words is ours. It
//! lets the matching program check each word as it arrives.
//!
//! Constants: the paper's figure 1 and section 4.1 name the contents of an item; the position of each bit is ours.

/// Words of a header, and of an item.
pub const WORDS: usize = 8;

/// A node that matches every node.
pub const ANY_NODE: u32 = u32::MAX;

/// A process that matches every process.
pub const ANY_PROCESS: u16 = u16::MAX;

/// A threshold that never runs out.
pub const INFINITE: u32 = u32::MAX;

/// The operation that a message requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// Neither put nor get: any descriptor takes it.
    #[default]
    Other,
    /// Store into a descriptor's memory.
    Put,
    /// Read from it.
    Get,
}

/// The fields of a message's header that the matching rule uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Match bits.
    pub match_bits: u64,
    /// Sending node.
    pub node: u32,
    /// Sending process.
    pub process: u16,
    /// The requested operation.
    pub operation: Operation,
    /// Bytes of the message.
    pub length: u64,
    /// Offset that the sender requests.
    pub remote_offset: u64,
}

impl Header {
    /// The header as it is sent. The words after the remote offset are not used.
    #[must_use]
    pub const fn to_words(&self) -> [u64; WORDS] {
        let ids = (self.node as u64) << 32 | (self.process as u64) << 16 | self.operation as u64;
        [self.match_bits, ids, self.length, self.remote_offset, 0, 0, 0, 0]
    }
}

/// Flags of an item, as bits of [`Item::to_words`]' third word.
pub mod flag {
    /// The memory descriptor is valid.
    pub const VALID: u16 = 1 << 0;
    /// The descriptor takes puts.
    pub const PUT: u16 = 1 << 1;
    /// The descriptor takes gets.
    pub const GET: u16 = 1 << 2;
    /// The sender chooses the offset; otherwise the descriptor does.
    pub const REMOTE_OFFSET: u16 = 1 << 3;
    /// The descriptor is inactive once less than its maximum size is left, unless it truncates.
    pub const MAX_SIZE: u16 = 1 << 4;
    /// A message that is too long is truncated.
    pub const TRUNCATE: u16 = 1 << 5;
    /// The end of the list, and not an item.
    pub const END: u16 = 1 << 6;
}

/// A match entry with its memory descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Match bits.
    pub match_bits: u64,
    /// Mask of the match bits that are compared.
    pub dont_ignore_bits: u64,
    /// The sending node, or [`ANY_NODE`].
    pub node: u32,
    /// The sending process, or [`ANY_PROCESS`].
    pub process: u16,
    /// [`flag`].
    pub flags: u16,
    /// Bytes of the memory.
    pub length: u64,
    /// Where in the memory the next message begins, unless the sender chooses. At most `length`.
    pub local_offset: u64,
    /// Bytes that must be left, so that the item stays active.
    pub max_size: u64,
    /// Number of messages that the item still takes; with zero it is inactive.
    pub threshold: u32,
    /// The start of the memory, or any other value that identifies it. Matching does not use it.
    pub start: u64,
}

impl Item {
    /// The end of a list. It passes the test of the match bits, so that the program's shortest path need not check for
    /// it.
    pub const END: Self = Self {
        match_bits: 0,
        dont_ignore_bits: 0,
        node: ANY_NODE,
        process: ANY_PROCESS,
        flags: flag::END,
        length: 0,
        local_offset: 0,
        max_size: 0,
        threshold: 0,
        start: 0,
    };

    /// The item as it is sent.
    #[must_use]
    pub const fn to_words(&self) -> [u64; WORDS] {
        let ids = (self.node as u64) << 32 | (self.process as u64) << 16 | self.flags as u64;
        [
            self.match_bits,
            self.dont_ignore_bits,
            ids,
            self.length,
            self.local_offset,
            self.max_size,
            self.threshold as u64,
            self.start,
        ]
    }

    /// The item of these words.
    #[must_use]
    pub const fn from_words(words: &[u64; WORDS]) -> Self {
        let [match_bits, dont_ignore_bits, ids, length, local_offset, max_size, threshold, start] = *words;
        Self {
            match_bits,
            dont_ignore_bits,
            node: (ids >> 32) as u32,
            process: (ids >> 16) as u16,
            flags: ids as u16,
            length,
            local_offset,
            max_size,
            threshold: threshold as u32,
            start,
        }
    }

    /// Consumes a part of the item for a message: the threshold falls, and the item's own offset advances. Returns
    /// whether the item is used up: its threshold is zero, or less than its maximum size is left. If the item
    /// truncates, that size has no effect (Figure 1, line 39). A full item then continues to take messages, of which it
    /// stores nothing.
    pub fn consume(&mut self, stored: u64) -> bool {
        if !self.has(flag::REMOTE_OFFSET) {
            self.local_offset = self.local_offset.saturating_add(stored).min(self.length);
        }
        if self.threshold != INFINITE {
            self.threshold = self.threshold.saturating_sub(1);
        }
        let is_short = self.has(flag::MAX_SIZE)
            && !self.has(flag::TRUNCATE)
            && !self.has(flag::REMOTE_OFFSET)
            && self.length - self.local_offset < self.max_size;
        self.threshold == 0 || is_short
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_manual_says() {
        let header = Header {
            match_bits: 1,
            node: 2,
            process: 3,
            operation: Operation::Get,
            length: 4,
            remote_offset: 5,
        };
        assert_eq!(header.to_words(), [1, 2 << 32 | 3 << 16 | 2, 4, 5, 0, 0, 0, 0]);
        let item = Item {
            match_bits: 1,
            dont_ignore_bits: 2,
            node: 3,
            process: 4,
            flags: flag::VALID | flag::TRUNCATE,
            length: 5,
            local_offset: 6,
            max_size: 7,
            threshold: 8,
            start: 9,
        };
        assert_eq!(item.to_words(), [1, 2, 3 << 32 | 4 << 16 | 0x21, 5, 6, 7, 8, 9]);
        assert_eq!(Item::from_words(&item.to_words()), item);
    }
}
