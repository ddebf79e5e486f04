//! Flows between ports, and the marks of their messages.

use alloc::vec::Vec;

use niclab_random::Random;

/// Number of a flow.
pub type FlowId = u32;

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// The node's rank.
    pub node: u16,
    /// Its port.
    pub port: u16,
}

impl From<End> for niclab_port::Address {
    fn from(End { node, port }: End) -> Self {
        Self { node: node.into(), port: port.into() }
    }
}

impl From<niclab_port::Address> for End {
    fn from(niclab_port::Address { node, port }: niclab_port::Address) -> Self {
        // No contract uses more bits than these types have.
        Self { node: node as u16, port: port as u16 }
    }
}

/// Messages from one port to another, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
}

/// What a port is opened for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// The card's number of the port.
    pub number: u32,
    /// The flows that the port sends over, with the port at the other end. Only one, unless the card's ports send to
    /// many.
    pub sends: Vec<(FlowId, End)>,
    /// The flows that the port receives from, with the port at the other end.
    pub partners: Vec<(FlowId, End)>,
    /// The nodes of the port's group; empty if it is in none. A group operation is a message of a node to itself, which
    /// arrives when the operation completes. The number of a flow is the place of its node in this list.
    pub group: Vec<u16>,
}

/// What identifies a message: the mark is in its tag or match bits, and generates the pattern of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The flow.
    pub flow: FlowId,
    /// Payload.
    pub bytes: u32,
    /// Number within the flow, from 1.
    pub number: u64,
}

impl Mark {
    /// The two words of the tag.
    #[must_use]
    pub const fn tag(&self) -> [u64; 2] {
        [(self.flow as u64) << 32 | self.bytes as u64, self.number]
    }

    /// The result of this message over all nodes of a group, whose flows have the first numbers: the sum of their
    /// payloads, word by word.
    pub fn sum(&self, members: FlowId) -> impl Iterator<Item = u64> + use<> {
        let mut payloads: Vec<_> = (0..members).map(|flow| Self { flow, ..*self }.payload()).collect();
        (0..self.bytes.div_ceil(8))
            .map(move |_| payloads.iter_mut().filter_map(Iterator::next).fold(0, u64::wrapping_add))
    }

    /// The mark in a tag.
    #[must_use]
    pub const fn from_tag([first, number]: [u64; 2]) -> Self {
        Self { flow: (first >> 32) as u32, bytes: first as u32, number }
    }

    /// The words of the payload. The bytes of the last word beyond the payload are zero.
    pub fn payload(&self) -> impl Iterator<Item = u64> + use<> {
        let mut random = Random::new(self.number, self.flow.into());
        let (whole, rest) = (self.bytes / 8, self.bytes % 8);
        (0..self.bytes.div_ceil(8)).map(move |word| {
            let mask = if word < whole { u64::MAX } else { (1 << (8 * rest)) - 1 };
            random.next() & mask
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_encodes_the_whole_mark() {
        let mark = Mark { flow: u32::MAX, bytes: 64, number: u64::MAX };
        assert_eq!(Mark::from_tag(mark.tag()), mark);
        assert_eq!(mark.payload().count(), 8);
        let of = |flow| Mark { flow, ..mark }.payload();
        assert!(mark.sum(2).eq(of(0).zip(of(1)).map(|(a, b)| a.wrapping_add(b))));
    }
}
