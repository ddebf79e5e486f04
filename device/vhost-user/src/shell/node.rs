//! A node, and the lock that protects it.

use niclab_model::fabric::{Ports, SwitchPort};
use niclab_model::nic::Output;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::Time;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Instant;

use crate::memory::DmaMemory;
use crate::shell::card::Card;

/// The state of a node. Only the thread that holds the node's lock reads or changes it.
pub struct Node {
    /// The cluster function.
    pub card: Card,
    /// Host and bus, which the node's two functions share.
    pub bus: NodeBus,
    /// Its link, on both sides of the switch.
    pub port: SwitchPort,
    /// The latest model time of a lock domain that began with this node.
    pub latest: Time,
    /// Deferred outputs: frames to a node that was not locked, or reads beyond a budget. They precede the card's other
    /// outputs.
    pub unsent: VecDeque<Output>,
    /// Frames sent with borrowed payload.
    pub borrowed_frames: u64,
    /// The first node of the lock domain that left work in flight at this node.
    pub left_by: Option<usize>,
}

impl Node {
    /// A node at its link, with nothing in flight.
    pub const fn new(card: Card, bus: NodeBus, port: SwitchPort) -> Self {
        Self {
            card,
            bus,
            port,
            latest: Time::ZERO,
            unsent: VecDeque::new(),
            borrowed_frames: 0,
            left_by: None,
        }
    }
}

/// A node with its lock. No two share a cache line, nor the pair of lines that the processor fetches at a time.
#[repr(align(128))]
pub struct Slot {
    node: Mutex<Node>,
}

impl Slot {
    /// This node, unlocked.
    pub const fn new(node: Node) -> Self {
        Self { node: Mutex::new(node) }
    }
}

/// Numbers of nodes, in ascending order.
pub type Numbers = SmallVec<[usize; 4]>;

/// The locked nodes of one thread: all of them, or some.
///
/// A thread that waits for a node's lock holds only locks of nodes with lower numbers. So no deadlock is possible.
pub struct Nodes<'a> {
    slots: &'a [Slot],
    /// The locked ones, in ascending order.
    locked: SmallVec<[(usize, MutexGuard<'a, Node>); 4]>,
}

impl<'a> Nodes<'a> {
    /// Locks all nodes.
    pub fn all(slots: &'a [Slot]) -> Self {
        let mut nodes = Self { slots, locked: SmallVec::new() };
        nodes.lock_all();
        nodes
    }

    /// Locks all nodes, or gives up at `until`.
    pub fn all_until(slots: &'a [Slot], until: Instant) -> Option<Self> {
        let slot = |(number, slot): (usize, &'a Slot)| Some((number, slot.node.try_lock_until(until)?));
        let locked = slots.iter().enumerate().map(slot).collect::<Option<_>>()?;
        Some(Self { slots, locked })
    }

    /// Locks the nodes with these numbers, which are in ascending order.
    pub fn some(slots: &'a [Slot], numbers: &[usize]) -> Self {
        let slot = |number: &usize| Some((*number, slots.get(*number)?.node.lock()));
        Self { slots, locked: numbers.iter().filter_map(slot).collect() }
    }

    /// Locks this node as well. Waits only if its number is the highest. False when the lock is not available, or
    /// another domain left work in flight at the node: then the caller unlocks all nodes, and locks them in order.
    pub fn reach(&mut self, number: usize) -> bool {
        if self.index_of(number).is_some() {
            return true;
        }
        let Some(slot) = self.slots.get(number) else { return false };
        let index = self.locked.partition_point(|(locked, _)| *locked < number);
        let node = if index == self.locked.len() { Some(slot.node.lock()) } else { slot.node.try_lock() };
        // This domain must not overtake what another one left in flight.
        let node = node.filter(|node| node.left_by.is_none());
        let is_had = node.is_some();
        self.locked.insert_many(index, node.map(|node| (number, node)));
        is_had
    }

    /// The lowest number of a locked node.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.locked.first().map(|(number, _)| *number)
    }

    /// The numbers of the locked nodes.
    pub fn numbers(&self) -> Numbers {
        self.locked.iter().map(|(number, _)| *number).collect()
    }

    fn lock_all(&mut self) {
        self.locked.extend(self.slots.iter().enumerate().map(|(number, slot)| (number, slot.node.lock())));
    }

    /// Unlocks all nodes, calls `between`, and locks all nodes again after the threads that already wait.
    pub fn bump_all(&mut self, between: impl FnOnce()) {
        self.give_back();
        between();
        self.lock_all();
    }

    /// Unlocks the nodes, and hands each to the first waiting thread.
    pub fn give_back(&mut self) {
        self.locked.drain(..).for_each(|(_, node)| MutexGuard::unlock_fair(node));
    }

    /// How many nodes exist, locked or not.
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no node exists.
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The index of a node in `locked`.
    #[inline]
    fn index_of(&self, number: usize) -> Option<usize> {
        // The usual case: all nodes are locked, or the first ones.
        match self.locked.get(number) {
            Some((locked, _)) if *locked == number => Some(number),
            _ => self.locked.iter().position(|(locked, _)| *locked == number),
        }
    }

    /// A node, if it is locked.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&Node> {
        self.locked.get(self.index_of(number)?).map(|(_, node)| &**node)
    }

    /// [`Nodes::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Node> {
        let index = self.index_of(number)?;
        self.locked.get_mut(index).map(|(_, node)| &mut **node)
    }

    /// Two different nodes, if both are locked.
    #[inline]
    pub fn pair(&mut self, one: usize, other: usize) -> Option<(&mut Node, &mut Node)> {
        let indices = [self.index_of(one)?, self.index_of(other)?];
        let [one, other] = self.locked.get_disjoint_mut(indices).ok()?;
        Some((&mut one.1, &mut other.1))
    }

    /// The locked nodes, in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.locked.iter().map(|(number, node)| (*number, &**node))
    }

    /// [`Nodes::iter`], mutable.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Node)> {
        self.locked.iter_mut().map(|(number, node)| (*number, &mut **node))
    }

    /// The cards of the locked nodes.
    #[inline]
    pub fn cards(&self) -> impl Iterator<Item = (usize, &Card)> {
        self.iter().map(|(number, node)| (number, &node.card))
    }

    /// The card of a node, if it is locked.
    #[inline]
    pub fn card(&self, number: usize) -> Option<&Card> {
        self.get(number).map(|node| &node.card)
    }

    /// [`Nodes::card`], mutable.
    #[inline]
    pub fn card_mut(&mut self, number: usize) -> Option<&mut Card> {
        self.get_mut(number).map(|node| &mut node.card)
    }

    /// Sets the guest's memory table after a change. Returns the old one, which the caller drops without the lock:
    /// removing a large mapping takes milliseconds.
    #[must_use = "it is dropped after the nodes are unlocked"]
    pub fn set_memory(&mut self, number: usize, memory: Arc<DmaMemory>) -> Arc<DmaMemory> {
        match self.card_mut(number) {
            Some(card) => std::mem::replace(&mut card.host.memory, memory),
            None => memory,
        }
    }

    /// The host and the bus of a node, if it is locked.
    #[inline]
    pub fn bus(&self, number: usize) -> Option<&NodeBus> {
        self.get(number).map(|node| &node.bus)
    }

    /// [`Nodes::bus`], mutable.
    #[inline]
    pub fn bus_mut(&mut self, number: usize) -> Option<&mut NodeBus> {
        self.get_mut(number).map(|node| &mut node.bus)
    }

    /// The card of a node, with its host and its bus.
    #[inline]
    pub fn card_and_bus(&mut self, number: usize) -> Option<(&mut Card, &mut NodeBus)> {
        self.get_mut(number).map(|node| (&mut node.card, &mut node.bus))
    }
}

impl Ports for Nodes<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn port(&mut self, number: u16) -> Option<&mut SwitchPort> {
        self.get_mut(usize::from(number)).map(|node| &mut node.port)
    }
}

/// Panics if the node is not locked.
impl Index<usize> for Nodes<'_> {
    type Output = Node;

    fn index(&self, number: usize) -> &Node {
        self.get(number).expect("this node is locked")
    }
}

impl IndexMut<usize> for Nodes<'_> {
    fn index_mut(&mut self, number: usize) -> &mut Node {
        self.get_mut(number).expect("this node is locked")
    }
}
