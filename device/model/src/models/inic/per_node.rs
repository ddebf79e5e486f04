//! State that a card keeps for each node.

use alloc::vec::Vec;

use crate::models::inic::arrivals::Number;

/// State of each node with which the card has communicated. Other nodes have the initial state. (Attack: a guest
/// invents node numbers to fill memory. `split_packet` and the host's commands admit only nodes of the cluster.)
#[derive(Clone, Debug)]
pub(super) struct PerNode<T> {
    /// Sorted.
    nodes: Vec<u16>,
    states: Vec<T>,
}

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), states: Vec::new() }
    }
}

impl<T> PerNode<T> {
    /// The index of a node, or where to insert it.
    #[inline]
    fn place(&self, node: u16) -> Result<usize, usize> {
        // If all smaller node numbers are known, the index equals the number. This is common in clusters with
        // all-to-all traffic.
        let guess = usize::from(node);
        if self.nodes.get(guess) == Some(&node) { Ok(guess) } else { self.nodes.binary_search(&node) }
    }

    /// The state of a node, if it is known.
    #[inline]
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        let place = self.place(node).ok()?;
        self.states.get_mut(place)
    }

    /// The state of a node for reading, if it is known.
    #[inline]
    pub(super) fn get(&self, node: u16) -> Option<&T> {
        self.states.get(self.place(node).ok()?)
    }

    /// The state of a node, which starts with `begin`.
    #[inline]
    pub(super) fn of_or(&mut self, node: u16, begin: impl FnOnce() -> T) -> &mut T {
        let place = self.place(node).unwrap_or_else(|place| {
            self.nodes.insert(place, node);
            self.states.insert(place, begin());
            place
        });
        &mut self.states[place]
    }

    /// All known states.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.nodes.iter().copied().zip(&mut self.states)
    }

    /// All known states, for reading.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.nodes.iter().copied().zip(&self.states)
    }
}

impl<T: Default> PerNode<T> {
    /// The state of a node.
    #[inline]
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.of_or(node, T::default)
    }
}

/// State of a node with numbered packets.
pub(super) trait Begin {
    /// The initial state, where the first packet has this number.
    fn at(first: Number) -> Self;
}

impl Begin for Number {
    fn at(first: Number) -> Self {
        first
    }
}

/// State of each node that has exchanged packets; other nodes have the initial state.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    first: Number,
    known: PerNode<T>,
}

impl<T: Begin> Numbered<T> {
    /// For nodes whose first packet, in either direction, has this number.
    pub(super) fn new(first: Number) -> Self {
        Self { first, known: PerNode::default() }
    }

    /// The state of a node.
    #[inline]
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.known.of_or(node, || T::at(self.first))
    }

    /// The state of a node, if it is known.
    #[inline]
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        self.known.known(node)
    }

    /// All known states.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.known.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn per_node_state_equals_a_map(steps in prop::collection::vec((0_u16..40, 0_u32..9, any::<bool>()), 0..100)) {
            let (mut map, mut plain) = (PerNode::<u32>::default(), BTreeMap::<u16, u32>::new());
            for (node, add, is_looked_up) in steps {
                if is_looked_up {
                    prop_assert_eq!(map.known(node).map(|state| *state), plain.get(&node).copied());
                    prop_assert_eq!(map.get(node), plain.get(&node));
                } else {
                    *map.of(node) += add;
                    *plain.entry(node).or_default() += add;
                }
                prop_assert!(map.iter().eq(plain.iter().map(|(node, state)| (*node, state))));
            }
        }
    }
}
