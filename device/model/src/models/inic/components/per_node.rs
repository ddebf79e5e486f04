//! What a component keeps for each node.

use alloc::collections::BTreeMap;

/// State of each node with which there was anything; of the others it is as at the beginning. Nodes are those of the cluster:
/// `split_packet` and the host's commands let no others in, so that a guest which makes numbers up fills no memory.
#[derive(Clone, Debug)]
pub(super) struct PerNode<T>(BTreeMap<u16, T>);

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> PerNode<T> {
    /// That of a node.
    pub(super) fn of(&mut self, node: u16) -> &mut T {
        self.0.entry(node).or_default()
    }

    /// That of a node with which there was something.
    pub(super) fn known(&mut self, node: u16) -> Option<&mut T> {
        self.0.get_mut(&node)
    }

    /// All that there are.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        self.0.iter_mut().map(|(node, state)| (*node, state))
    }
}
