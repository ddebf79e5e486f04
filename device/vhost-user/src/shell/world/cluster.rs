//! The nodes, each behind its lock, and what they share behind another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::{Fabric, KnownWay, Port};
use niclab_model::nic::Output;
use niclab_model::nic::registry::AnyNic;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use parking_lot::{Mutex, MutexGuard};

use super::{Common, World};
use crate::shell::card::Card;
use crate::shell::ethernet::Ethernet;
use crate::shell::network::Network;
use crate::shell::node::{Node, Nodes, Numbers, Slot};
use crate::shell::pages::Pages;
use crate::shell::time_limit::TimeLimit;
use crate::shell::turn::Turn;

/// All nodes and their network, to be held in parts or as a whole.
///
/// Whoever serves a node begins with its lock alone, and has each other node that a frame goes to join: that is a part.
/// Parts that have no node in common do not wait for one another, and touch no memory that both write. Whatever is not
/// of single nodes, or concerns more than a frame's two ends, is done with all locks, that of the common things first;
/// while that is so, and as long as there is a reason for it afterwards, there are no parts.
pub struct Cluster {
    slots: Vec<Slot>,
    common: Mutex<Common>,
    /// What a part has for itself that begins at a node.
    parts: Vec<Part>,
    /// There may be parts. Changed with all locks held, so that who holds one knows it.
    is_open: AtomicBool,
    /// Some part left something under way. Set with a lock of its nodes held.
    has_left: AtomicBool,
    time_limit: Arc<TimeLimit>,
}

/// What the part of the nodes has that begins at a node. Its lock is taken behind that of the node.
#[repr(align(128))]
struct Part {
    common: Mutex<Common>,
    /// [`World::acts`] in it.
    acts: AtomicU64,
    /// With which node it began last that comes before its own, or its own: where frames go, they go again.
    first: AtomicUsize,
}

/// Why a part cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A frame goes to this node, which another part has. It may be had before those that are here.
    Node(usize),
    /// What is to be done concerns others than single nodes.
    All,
}

/// What became of serving a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// There was nothing to do.
    pub is_idle: bool,
    /// Whoever waits for its nodes is to have them first.
    pub is_for_others: bool,
}

/// Why a node cannot be served in a part.
enum Refused {
    /// Somebody has all nodes, or what he did stands against parts.
    Closed,
    /// It concerns others, or others left something under way.
    Met,
}

/// How often all nodes were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// There were parts, or might have been, and then none: because of whatever is not of single nodes, and of looks
    /// that met.
    pub ended_parts: u64,
    /// By looks, at whose end there are parts again where they may be.
    pub looks: u64,
    /// Of those, by looks that did not find all nodes taken, but met others or concerned them.
    pub met: u64,
}

/// Most times that a part begins anew because of a node that another one has. Then it waits for all.
const MAX_WIDER: usize = 4;

/// Most times that a look waits for whoever has all nodes, and finds that there are parts again. Then it takes all.
const MAX_WAITS: usize = 4;

impl Cluster {
    /// These cards on one platform, with nobody connected and no faults.
    pub fn new(cards: Vec<(AnyNic, Pages, u32)>, profile: &Arc<Profile>, fabric: Fabric, seed: u64) -> Self {
        let (links, switching) = fabric.into_parts();
        let ethernet = Ethernet::new(cards.len(), profile);
        let network = Network::new(switching, cards.len());
        let time_limit = Arc::default();
        let part = |number| {
            let common = Common::new(Ethernet::new(0, profile), network.of_part(), seed, &time_limit);
            let common = Mutex::new(Common { is_part: true, ..common });
            Part { common, acts: AtomicU64::new(0), first: AtomicUsize::new(number) }
        };
        let parts = (0..cards.len()).map(part).collect();
        let node = |((nic, pages, ports), port): ((AnyNic, Pages, u32), Port)| {
            Slot::new(Node::new(Card::new(nic, pages, ports), NodeBus::default(), port))
        };
        Self {
            slots: cards.into_iter().zip(links).map(node).collect(),
            common: Mutex::new(Common::new(ethernet, network, seed, &time_limit)),
            parts,
            is_open: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            time_limit,
        }
    }

    /// Where it is noted that model time has reached its end.
    pub const fn time_limit(&self) -> &Arc<TimeLimit> {
        &self.time_limit
    }

    /// How many nodes there are.
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All of it, for as long as the result lives.
    #[inline]
    pub fn world(&self) -> World<'_> {
        let common = self.common.lock();
        self.whole(World { nodes: Nodes::all(&self.slots), common })
    }

    /// All of it, if it is to be had within so long.
    pub fn try_world(&self, timeout: Duration) -> Option<World<'_>> {
        let until = Instant::now() + timeout;
        let common = self.common.try_lock_until(until)?;
        Some(self.whole(World { nodes: Nodes::all_until(&self.slots, until)?, common }))
    }

    /// One node, for what concerns nothing else.
    pub fn alone(&self, node: usize) -> Nodes<'_> {
        Nodes::some(&self.slots, &[node])
    }

    /// What was done so far in parts.
    pub fn acts_in_parts(&self) -> u64 {
        self.parts.iter().map(|part| part.acts.load(Ordering::Relaxed)).sum()
    }

    /// There are no parts any more, and what they left is taken over.
    fn whole<'a>(&self, mut world: World<'a>) -> World<'a> {
        if !self.is_open.load(Ordering::Relaxed) {
            return world;
        }
        self.is_open.store(false, Ordering::Relaxed);
        world.common.lock_counts.ended_parts += 1;
        world.count_stalled();
        if self.has_left.swap(false, Ordering::Relaxed) {
            let mut left = Numbers::new();
            for (number, node) in world.nodes.iter_mut() {
                let Some(part) = node.left_by.take() else { continue };
                left.push(number);
                if let Some(part) = self.parts.get(part).filter(|_| part == number) {
                    world.common.network.absorb(&mut part.common.lock().network);
                }
            }
            world.common.turn = Turn::WHOLE;
            world.fix(&left);
        }
        world
    }

    /// Has parts again, where nothing stands against it. To be called last, before `world` is given back.
    #[inline]
    pub fn open(&self, world: &World<'_>) {
        if world.may_be_in_parts() {
            self.is_open.store(true, Ordering::Relaxed);
        }
    }

    /// A part that begins at `node`, with these nodes. Refused where there can be none just now.
    #[inline]
    fn part(&self, node: usize, with: &Numbers) -> Result<World<'_>, Refused> {
        if !self.is_open.load(Ordering::Relaxed) {
            return Err(Refused::Closed);
        }
        let mut with = with.clone();
        loop {
            let mut nodes = Nodes::some(&self.slots, &with);
            if !self.is_open.load(Ordering::Relaxed) {
                return Err(Refused::Closed);
            }
            if nodes.iter().any(|(_, here)| here.left_by.is_some_and(|part| part != node)) {
                return Err(Refused::Met);
            }
            let common = self.parts.get(node).ok_or(Refused::Met)?.common.lock();
            let has_left = nodes.get(node).is_some_and(|node| node.left_by.is_some());
            // All that were here then are to be here again.
            let missing = common.scope.iter().filter(|number| nodes.get(**number).is_none());
            let missing: Numbers = if has_left { missing.copied().collect() } else { Numbers::new() };
            if missing.is_empty() {
                nodes.iter_mut().for_each(|(_, node)| node.left_by = None);
                let mut world = World { nodes, common };
                (world.common.cut, world.common.turn) = (None, Turn::WHOLE);
                world.common.is_owing = false;
                world.count_stalled();
                if has_left {
                    let left = world.common.scope.clone();
                    world.fix(&left);
                }
                return Ok(world);
            }
            with.extend(missing);
            with.sort_unstable();
        }
    }

    /// A part ends. What it leaves under way nobody else carries on but who has all of it, or begins at the same node.
    #[inline]
    fn end(&self, node: usize, part: &mut World<'_>, is_idle: bool) {
        let World { nodes, common } = part;
        let latest = common.latest.max(common.network.latest());
        if let Some(node) = nodes.get_mut(node) {
            node.latest = node.latest.max(latest);
        }
        if let Some(of_node) = self.parts.get(node) {
            of_node.acts.store(common.acts, Ordering::Relaxed);
            // Who only looks keeps nobody else from anything.
            let first = if is_idle { node } else { nodes.first().unwrap_or(node) };
            if of_node.first.load(Ordering::Relaxed) != first {
                of_node.first.store(first, Ordering::Relaxed);
            }
        }
        if part.is_unfinished() {
            part.common.scope = part.nodes.numbers();
            part.nodes.iter_mut().for_each(|(_, here)| here.left_by = Some(node));
            self.has_left.store(true, Ordering::Relaxed);
        }
    }

    /// Serves `node` in a part of the nodes, or in several that grow. Where that cannot be, and nothing, or not all,
    /// was done: all nodes, to serve it with.
    #[inline]
    pub fn serve_in_part(
        &self,
        node: usize,
        mut serve: impl FnMut(&mut World<'_>) -> Served,
    ) -> Option<World<'_>> {
        match self.try_serve_in_part(node, &mut serve) {
            Ok(()) => None,
            Err(refused) => self.serve_again(node, refused, &mut serve),
        }
    }

    /// The same, after it was refused. Who waits for somebody who has all nodes need not take all of them, too: all who
    /// wait would do so, one behind the other, and whoever looks meanwhile would wait with them.
    #[cold]
    fn serve_again(
        &self,
        node: usize,
        mut refused: Refused,
        serve: &mut impl FnMut(&mut World<'_>) -> Served,
    ) -> Option<World<'_>> {
        for _ in 0..MAX_WAITS {
            let is_met = matches!(refused, Refused::Met);
            let common = self.common.lock();
            if is_met || !self.is_open.load(Ordering::Relaxed) {
                let mut world = self.whole(World { nodes: Nodes::all(&self.slots), common });
                world.common.lock_counts.looks += 1;
                world.common.lock_counts.met += u64::from(is_met);
                return Some(world);
            }
            drop(common);
            match self.try_serve_in_part(node, serve) {
                Ok(()) => return None,
                Err(again) => refused = again,
            }
        }
        let mut world = self.world();
        world.common.lock_counts.looks += 1;
        Some(world)
    }

    #[inline]
    fn try_serve_in_part(
        &self,
        node: usize,
        serve: &mut impl FnMut(&mut World<'_>) -> Served,
    ) -> Result<(), Refused> {
        let first = self.parts.get(node).ok_or(Refused::Met)?.first.load(Ordering::Relaxed);
        let mut with = Numbers::new();
        with.extend(Some(first).filter(|first| *first != node));
        with.push(node);
        for _ in 0..MAX_WIDER {
            let mut part = self.part(node, &with)?;
            let served = match part.common.cut {
                None => serve(&mut part),
                Some(_) => Served::default(),
            };
            self.end(node, &mut part, served.is_idle);
            match part.common.cut {
                None => {
                    if served.is_for_others {
                        part.give_back();
                    }
                    return Ok(());
                }
                Some(Cut::Node(wanted)) => {
                    with = part.nodes.numbers();
                    with.push(wanted);
                    with.sort_unstable();
                }
                Some(Cut::All) => return Err(Refused::Met),
            }
        }
        Err(Refused::Met)
    }
}

impl World<'_> {
    /// Whether nothing is the case that concerns others than single nodes and those that they send to:
    ///
    /// * programs that take turns, and cards that take another one, go on together;
    /// * a fault's frames are held back until others overtake them, and its deadlines are due by what others do;
    /// * who watches sees all in one order;
    /// * whoever has stations is in a network with Ethernet functions, and descriptors are looked for at all nodes;
    /// * what is under way is carried on by whoever comes next;
    /// * who let others have all nodes for a moment comes back for all of them.
    pub(super) fn may_be_in_parts(&self) -> bool {
        let Common { ethernet, network, lockstep, loading, .. } = &*self.common;
        let is_one_for_all = lockstep.is_some() || loading.is_some() || self.common.has_descriptors;
        let is_one_for_all = is_one_for_all || self.common.lends_nothing || self.common.coming_back > 0;
        let is_faulty =
            self.common.has_device_faults || self.common.is_adversarial || network.is_any_faulty();
        let is_under_way =
            self.common.is_owing || network.is_moving() || network.is_holding() || ethernet.is_holding();
        let is_watched = network.taps().is_any();
        let has_stations = || self.nodes.cards().any(|(_, card)| card.nic.has_stations());
        let has_work = || self.common.turn.is_over() && self.next_work().is_some();
        !(is_one_for_all || is_faulty || is_under_way || is_watched || has_stations() || has_work())
    }

    /// Whether a part leaves something under way.
    fn is_unfinished(&self) -> bool {
        self.common.cut.is_some()
            || self.common.is_owing
            || self.common.network.is_moving()
            || self.common.turn.is_over() && self.next_work().is_some()
    }

    fn count_stalled(&mut self) {
        self.common.stalled = self.nodes.cards().filter(|(_, card)| card.is_stalled).count();
    }

    /// Carries out what the cards of these nodes wanted done when their part was cut: first what was about to be.
    #[cold]
    fn fix(&mut self, nodes: &Numbers) {
        let is_first = |node: &usize| self.nodes.get(*node).is_some_and(|node| !node.unsent.is_empty());
        let (first, others): (Numbers, Numbers) = nodes.iter().copied().partition(is_first);
        first.into_iter().chain(others).for_each(|node| self.carry_out(node));
        self.common.is_owing = true;
    }

    /// What the card of `node` wants done next: first of all what could not be sent. In a part that was cut that stays.
    #[inline]
    pub(super) fn next_output(&mut self, node: usize) -> Option<Output> {
        let is_cut = self.common.cut.is_some();
        let node = self.nodes.get_mut(node).filter(|node| !node.card.stands_still())?;
        if !node.unsent.is_empty() && !is_cut {
            return node.unsent.pop_front();
        }
        node.card.nic.poll_output()
    }

    /// Whether this is a part that cannot go on as it is, and will be looked at again with more nodes.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.common.cut.is_some()
    }

    /// Whether a frame can be sent: the node that it goes to is here.
    #[inline]
    pub(super) fn reaches(&mut self, frame: &[u8], concern: Concern) -> bool {
        if !self.common.is_part {
            return true;
        }
        let is_cards = concern == Concern::Card && self.common.cut.is_none();
        let way = if is_cards { self.common.network.known_way(frame) } else { None };
        self.reaches_by(way)
    }

    /// The same of a frame that goes this way, if that is known.
    #[inline]
    pub(super) fn reaches_by(&mut self, way: Option<KnownWay>) -> bool {
        if !self.common.is_part {
            return true;
        }
        // What one card sends keeps its order.
        if self.common.cut.is_some() {
            return false;
        }
        let Some(to) = way.map(|way| usize::from(way.to)) else {
            self.common.cut = Some(Cut::All);
            return false;
        };
        if self.nodes.get(to).is_some() {
            return true;
        }
        self.join(to)
    }

    /// Has a node join the part, and says whether it did.
    #[cold]
    fn join(&mut self, to: usize) -> bool {
        if to >= self.nodes.len() {
            // To nobody: its sender's link alone is concerned.
            return true;
        }
        let is_here = self.has_joined(to);
        if !is_here {
            self.common.cut = Some(Cut::Node(to));
        }
        is_here
    }

    /// Has a node join the part where it is to be had now, and says whether it is here. A part that is not cut by it
    /// goes on.
    #[inline]
    pub(super) fn has_joined(&mut self, to: usize) -> bool {
        if self.nodes.get(to).is_some() {
            return true;
        }
        let is_here = self.nodes.reach(to);
        if is_here {
            self.count_stalled();
        }
        is_here
    }

    /// A frame cannot be sent in this part: it is its card's next output when that can be, behind those that were set
    /// aside since the part was cut. The one by which it was cut (`was_cut` is false) is older than all that still
    /// wait: it was the first of them, or there were none. Data that was lent to a frame is copied.
    #[cold]
    pub(super) fn set_aside(&mut self, node: usize, frame: Output, was_cut: bool) {
        let frame = match frame {
            Output::LentFrame { at, tail, head, message } => {
                let Some(loan) = self.common.loan.take() else { return };
                Output::Frame { at, tail, frame: loan.behind(head).into_owned(), message }
            }
            whole => whole,
        };
        if let Some(node) = self.nodes.get_mut(node) {
            if was_cut { node.unsent.push_back(frame) } else { node.unsent.push_front(frame) }
        }
        (self.common.turn, self.common.lends) = (Turn::OVER, false);
    }
}

impl World<'_> {
    /// Lets others have it who wait.
    pub fn bump(&mut self) {
        let Self { nodes, common } = self;
        // Whoever has it meanwhile opens no parts: what these left this one would know nothing of.
        common.coming_back += 1;
        nodes.bump_all(|| MutexGuard::bump(common));
        common.coming_back -= 1;
    }

    /// Gives it back, to whoever waits for it. Who has more to do, or polls, would take it again at once, before the
    /// other one has woken up.
    pub fn give_back(mut self) {
        self.nodes.give_back();
        MutexGuard::unlock_fair(self.common);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::time::Span;

    use super::*;

    #[test]
    fn who_lets_others_have_all_nodes_for_a_moment_finds_no_parts_when_it_comes_back() {
        let fabric = Fabric::new(&FabricConfig {
            links: Vec::new(),
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let cluster = Cluster::new(Vec::new(), &Arc::default(), fabric.unwrap(), 1);
        let mut world = cluster.world();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| cluster.open(&cluster.world()));
            while !other.is_finished() {
                world.bump();
            }
        });
        assert!(!cluster.is_open.load(Ordering::Relaxed));
        cluster.open(&world);
        assert!(cluster.is_open.load(Ordering::Relaxed));
    }
}
