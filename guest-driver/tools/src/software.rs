//! Matching on the host: the processor searches a list of posted receives in the program's memory.
//!
//! The rule is the NIC's (docs/use/MATCH.md). An item has 64 bytes, like the NIC's, and the list is linked like those
//! of MPI libraries.

/// The fields of a message header that the rule uses.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Match bits.
    pub match_bits: u64,
    /// The sender's node.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// Bytes of the message.
    pub bytes: u64,
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Item {
    /// Match bits.
    pub match_bits: u64,
    /// Match bits to ignore.
    pub ignore_bits: u64,
    /// The only node that it accepts messages from; `None`: any.
    pub node: Option<u32>,
    /// The only port that it accepts messages from; `None`: any.
    pub port: Option<u32>,
    /// Bytes of its memory. A longer message does not match.
    pub bytes: u64,
    /// The program's own value for it.
    pub user: u32,
    next: u32,
}

impl Item {
    /// A receive of messages with these match bits, except for those to ignore.
    pub fn new(match_bits: u64, ignore_bits: u64, bytes: u64, user: u32) -> Self {
        Self { match_bits, ignore_bits, node: None, port: None, bytes, user, next: END }
    }

    /// The same receive, for messages from this port only.
    #[must_use]
    pub fn only_from(self, node: u32, port: u32) -> Self {
        Self { node: Some(node), port: Some(port), ..self }
    }

    #[inline]
    fn takes(&self, header: &Header) -> bool {
        (self.match_bits ^ header.match_bits) & !self.ignore_bits == 0
            && self.node.is_none_or(|node| node == header.node)
            && self.port.is_none_or(|port| port == header.port)
            && header.bytes <= self.bytes
    }
}

const END: u32 = u32::MAX;

/// Posted receives, in posting order.
#[derive(Debug)]
pub struct List {
    items: Vec<Item>,
    free: Vec<u32>,
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new(), first: END, last: END }
    }
}

impl List {
    /// Appends a receive.
    pub fn append(&mut self, item: Item) {
        let item = Item { next: END, ..item };
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        };
        if let Some(place) = self.items.get_mut(at as usize) {
            *place = item;
        }
        match self.items.get_mut(self.last as usize) {
            Some(last) => last.next = at,
            None => self.first = at,
        }
        self.last = at;
    }

    /// Removes and returns the first receive that the message matches.
    #[inline]
    pub fn take(&mut self, header: &Header) -> Option<Item> {
        let (mut before, mut at) = (END, self.first);
        loop {
            let item = *self.items.get(at as usize)?;
            if item.takes(header) {
                self.unlink(before, at, item.next);
                return Some(item);
            }
            (before, at) = (at, item.next);
        }
    }

    fn unlink(&mut self, before: u32, at: u32, next: u32) {
        match self.items.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        if self.last == at {
            self.last = before;
        }
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const _: () = assert!(size_of::<Item>() == 64, "an item is as large as the NIC's");

    proptest! {
        /// The list behaves like a vector that is searched from the front.
        #[test]
        fn the_first_matching_receive_is_taken(
            steps in proptest::collection::vec((any::<bool>(), 0..4_u64, 0..4_u64, 0..3_u32), 1..200),
        ) {
            let (mut list, mut plain) = (List::default(), Vec::new());
            for (number, &(is_append, bits, ignore, node)) in steps.iter().enumerate() {
                if is_append {
                    let item = Item { node: (node > 0).then_some(node), ..Item::new(bits, ignore, 8, number as u32) };
                    list.append(item);
                    plain.push(item);
                } else {
                    let header = Header { match_bits: bits, node, port: 0, bytes: 4 + 2 * ignore };
                    let found = plain.iter().position(|item| item.takes(&header));
                    let expected = found.map(|at| plain.remove(at).user);
                    prop_assert_eq!(list.take(&header).map(|item| item.user), expected);
                }
            }
        }
    }

    #[test]
    fn node_port_and_length_must_match() {
        let item = Item { node: Some(1), port: Some(2), ..Item::new(5, 0, 8, 0) };
        let header = Header { match_bits: 5, node: 1, port: 2, bytes: 8 };
        assert!(item.takes(&header));
        for wrong in [
            Header { match_bits: 4, ..header },
            Header { node: 0, ..header },
            Header { port: 0, ..header },
            Header { bytes: 9, ..header },
        ] {
            assert!(!item.takes(&wrong), "{wrong:?}");
        }
    }
}
