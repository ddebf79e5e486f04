//! What belongs to one node goes together, behind a lock of its own.

use niclab_model::fabric::series::PortPairs;
use niclab_model::fabric::{Port, Ports};
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

/// A node: nobody does anything to it but who holds its lock.
pub struct Node {
    /// The cluster function.
    pub card: Card,
    /// Host and bus, on which the node's two functions meet.
    pub bus: NodeBus,
    /// Its link: to the switch, and behind it.
    pub port: Port,
    /// The latest instant at which a part of the nodes that began here did anything.
    pub latest: Time,
    /// Frames that its card sends to somebody who was not here: before all else that the card wants done.
    pub unsent: VecDeque<Output>,
    /// Frames that left with lent data.
    pub lent_frames: u64,
    /// Something is under way between it and others that the part left which began at this node.
    pub left_by: Option<usize>,
}

impl Node {
    /// A node at its link, with nothing under way.
    pub const fn new(card: Card, bus: NodeBus, port: Port) -> Self {
        Self { card, bus, port, latest: Time::ZERO, unsent: VecDeque::new(), lent_frames: 0, left_by: None }
    }
}

/// A node in its place. No two share a line of the processor's cache, nor the pair of lines that it fetches at a time.
#[repr(align(128))]
pub struct Slot {
    node: Mutex<Node>,
}

impl Slot {
    /// The place of this node.
    pub const fn new(node: Node) -> Self {
        Self { node: Mutex::new(node) }
    }
}

/// Numbers of nodes, in their order.
pub type Numbers = SmallVec<[usize; 4]>;

/// Nodes of which somebody holds the locks: all of them, or some.
///
/// Whoever waits for a node's lock while holding others holds those of lower numbers alone. So nobody waits for ever.
pub struct Nodes<'a> {
    slots: &'a [Slot],
    /// By number, in their order.
    here: SmallVec<[(usize, MutexGuard<'a, Node>); 4]>,
}

impl<'a> Nodes<'a> {
    /// All nodes.
    pub fn all(slots: &'a [Slot]) -> Self {
        let mut nodes = Self { slots, here: SmallVec::new() };
        nodes.take_all();
        nodes
    }

    /// All nodes, if they are to be had until then.
    pub fn all_until(slots: &'a [Slot], until: Instant) -> Option<Self> {
        let slot = |(number, slot): (usize, &'a Slot)| Some((number, slot.node.try_lock_until(until)?));
        let here = slots.iter().enumerate().map(slot).collect::<Option<_>>()?;
        Some(Self { slots, here })
    }

    /// Some nodes, whose numbers are in their order.
    pub fn some(slots: &'a [Slot], numbers: &[usize]) -> Self {
        let slot = |number: &usize| Some((*number, slots.get(*number)?.node.lock()));
        Self { slots, here: numbers.iter().filter_map(slot).collect() }
    }

    /// Has this node here, too. False when somebody else has it and waits for none of these; who wants it gives all
    /// back, and takes them in their order.
    pub fn reach(&mut self, number: usize) -> bool {
        if self.place(number).is_some() {
            return true;
        }
        let Some(slot) = self.slots.get(number) else { return false };
        let place = self.here.partition_point(|(here, _)| *here < number);
        let node = if place == self.here.len() { Some(slot.node.lock()) } else { slot.node.try_lock() };
        // What another part left under way is not for this one to overtake.
        let node = node.filter(|node| node.left_by.is_none());
        let is_had = node.is_some();
        self.here.insert_many(place, node.map(|node| (number, node)));
        is_had
    }

    /// The first of those that are here.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.here.first().map(|(number, _)| *number)
    }

    /// The numbers of those that are here.
    pub fn numbers(&self) -> Numbers {
        self.here.iter().map(|(number, _)| *number).collect()
    }

    fn take_all(&mut self) {
        self.here.extend(self.slots.iter().enumerate().map(|(number, slot)| (number, slot.node.lock())));
    }

    /// Gives all of them back, to whoever waits for them first, and waits for them behind those.
    pub fn bump_all(&mut self, between: impl FnOnce()) {
        self.give_back();
        between();
        self.take_all();
    }

    /// Gives them back: to whoever waits.
    pub fn give_back(&mut self) {
        self.here.drain(..).for_each(|(_, node)| MutexGuard::unlock_fair(node));
    }

    /// How many there are, here or not.
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Where in `here` a node is.
    #[inline]
    fn place(&self, number: usize) -> Option<usize> {
        // Where all are here, or the first ones.
        match self.here.get(number) {
            Some((here, _)) if *here == number => Some(number),
            _ => self.here.iter().position(|(here, _)| *here == number),
        }
    }

    /// A node, if it is here.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&Node> {
        self.here.get(self.place(number)?).map(|(_, node)| &**node)
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Node> {
        let place = self.place(number)?;
        self.here.get_mut(place).map(|(_, node)| &mut **node)
    }

    /// Two different nodes, to change both.
    #[inline]
    pub fn pair(&mut self, one: usize, other: usize) -> Option<(&mut Node, &mut Node)> {
        let places = [self.place(one)?, self.place(other)?];
        let [one, other] = self.here.get_disjoint_mut(places).ok()?;
        Some((&mut one.1, &mut other.1))
    }

    /// All that are here, in the order of their numbers.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.here.iter().map(|(number, node)| (*number, &**node))
    }

    /// The same, to change them.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Node)> {
        self.here.iter_mut().map(|(number, node)| (*number, &mut **node))
    }

    /// Their cards.
    #[inline]
    pub fn cards(&self) -> impl Iterator<Item = (usize, &Card)> {
        self.iter().map(|(number, node)| (number, &node.card))
    }

    /// The card of a node, if it is here.
    #[inline]
    pub fn card(&self, number: usize) -> Option<&Card> {
        self.get(number).map(|node| &node.card)
    }

    /// The same, to change it.
    #[inline]
    pub fn card_mut(&mut self, number: usize) -> Option<&mut Card> {
        self.get_mut(number).map(|node| &mut node.card)
    }

    /// The guest's memory table has changed. Gives the old one back, to be dropped without the lock: taking a large
    /// mapping apart takes milliseconds.
    #[must_use = "it is dropped after the nodes are unlocked"]
    pub fn set_memory(&mut self, number: usize, memory: Arc<DmaMemory>) -> Arc<DmaMemory> {
        match self.card_mut(number) {
            Some(card) => std::mem::replace(&mut card.host.memory, memory),
            None => memory,
        }
    }

    /// The host and the bus of a node, if it is here.
    #[inline]
    pub fn bus(&self, number: usize) -> Option<&NodeBus> {
        self.get(number).map(|node| &node.bus)
    }

    /// The same, to change it.
    #[inline]
    pub fn bus_mut(&mut self, number: usize) -> Option<&mut NodeBus> {
        self.get_mut(number).map(|node| &mut node.bus)
    }

    /// The card of a node, with the host and the bus that it stands on.
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
    fn port(&mut self, number: u16) -> Option<&mut Port> {
        self.get_mut(usize::from(number)).map(|node| &mut node.port)
    }
}

impl PortPairs for Nodes<'_> {
    #[inline]
    fn pair(&mut self, one: u16, other: u16) -> Option<(&mut Port, &mut Port)> {
        let (one, other) = Nodes::pair(self, one.into(), other.into())?;
        Some((&mut one.port, &mut other.port))
    }
}

/// Of nodes that are known to be here.
impl Index<usize> for Nodes<'_> {
    type Output = Node;

    fn index(&self, number: usize) -> &Node {
        self.get(number).expect("this node is here")
    }
}

impl IndexMut<usize> for Nodes<'_> {
    fn index_mut(&mut self, number: usize) -> &mut Node {
        self.get_mut(number).expect("this node is here")
    }
}
