//! What a component keeps for each node.

use alloc::collections::BTreeMap;

use crate::models::inic::arrivals::Number;

/// What is kept of a node.
pub(super) trait Begin {
    /// As it is before the packet with this number, the first of all.
    fn at(first: Number) -> Self;
}

impl Begin for Number {
    fn at(first: Number) -> Self {
        first
    }
}

/// State of each node with which there was anything; of the others it is as at the beginning. Nodes are those of the cluster:
/// `split_packet` and the host's commands let no others in, so that a guest which makes numbers up fills no memory.
#[derive(Clone, Debug)]
pub(super) struct PerNode<T> {
    first: Number,
    known: BTreeMap<u16, T>,
}

impl<T: Begin> PerNode<T> {
    /// Of nodes whose first packet, in either direction, has this number.
    pub(super) const fn new(first: Number) -> Self {
        Self { first, known: BTreeMap::new() }
    }

    /// That of a node.
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.known.entry(node).or_insert_with(|| T::at(self.first))
    }

    /// That of a node with which there was something.
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        self.known.get_mut(&node)
    }

    /// All that there are.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.known.iter_mut().map(|(node, state)| (*node, state))
    }
}
