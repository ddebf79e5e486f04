//! State that a card keeps for each node.

use alloc::vec::Vec;

use crate::models::inic::arrivals::Number;

/// State of each node with which the card has communicated. Other nodes have the initial state. (The attack: a guest
/// invents node numbers to fill memory. `split_packet` and the host's commands admit only nodes of the cluster.)
#[derive(Clone, Debug)]
pub(super) struct PerNode<T> {
    /// In rising order.
    nodes: Vec<u16>,
    states: Vec<T>,
}

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), states: Vec::new() }
    }
}

impl<T> PerNode<T> {
    /// Where a node is, or would be.
    #[inline]
    fn place(&self, node: u16) -> Result<usize, usize> {
        // Its number is its place, where all before it are known: so in a cluster in which everybody speaks with
        // everybody.
        let guess = usize::from(node);
        if self.nodes.get(guess) == Some(&node) { Ok(guess) } else { self.nodes.binary_search(&node) }
    }

    /// That of a node with which there was something.
    #[inline]
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        let place = self.place(node).ok()?;
        self.states.get_mut(place)
    }

    /// The same, to look at.
    #[inline]
    pub(super) fn get(&self, node: u16) -> Option<&T> {
        self.states.get(self.place(node).ok()?)
    }

    /// That of a node; where there was nothing with it, as it begins.
    #[inline]
    pub(super) fn of_or(&mut self, node: u16, begin: impl FnOnce() -> T) -> &mut T {
        let place = self.place(node).unwrap_or_else(|place| {
            self.nodes.insert(place, node);
            self.states.insert(place, begin());
            place
        });
        &mut self.states[place]
    }

    /// All that there are.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.nodes.iter().copied().zip(&mut self.states)
    }

    /// The same, to look at.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.nodes.iter().copied().zip(&self.states)
    }
}

impl<T: Default> PerNode<T> {
    /// That of a node.
    #[inline]
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.of_or(node, T::default)
    }
}

/// What is kept of a node whose packets are numbered.
pub(super) trait Begin {
    /// As it is before the packet with this number, the first of all.
    fn at(first: Number) -> Self;
}

impl Begin for Number {
    fn at(first: Number) -> Self {
        first
    }
}

/// State of each node with whose packets there was anything; of the others it is as before the first.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    first: Number,
    known: PerNode<T>,
}

impl<T: Begin> Numbered<T> {
    /// Of nodes whose first packet, in either direction, has this number.
    pub(super) fn new(first: Number) -> Self {
        Self { first, known: PerNode::default() }
    }

    /// That of a node.
    #[inline]
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.known.of_or(node, || T::at(self.first))
    }

    /// That of a node with which there was something.
    #[inline]
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        self.known.known(node)
    }

    /// All that there are.
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
        fn it_is_a_map_from_nodes(steps in prop::collection::vec((0_u16..40, 0_u32..9, any::<bool>()), 0..100)) {
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
