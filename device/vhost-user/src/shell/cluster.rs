//! All nodes, each with its lock, and their common state with another lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use niclab_model::fabric::{Fabric, SwitchPort};
use niclab_model::nic::registry::AnyNic;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use parking_lot::Mutex;

use super::budget::Budget;
use super::card::Card;
use super::dispatch;
use super::ethernet::Ethernet;
use super::locks::{Common, LockedNodes, MoreLocks};
use super::network::Network;
use super::node::{Node, Nodes, Numbers, Slot};
use super::pages::Pages;
use super::time_limit::TimeLimit;

/// All nodes and their network.
///
/// A thread that serves a node begins with that node's lock, and locks each other node that a frame goes to: together
/// they are a lock domain. Domains without a common node neither wait for each other nor write the same memory.
///
/// Work that concerns more than a frame's two nodes takes all locks, the common lock first. No domain begins meanwhile,
/// nor afterwards while [`LockedNodes::may_split`] is false.
pub struct Cluster {
    slots: Vec<Slot>,
    common: Mutex<Common>,
    /// The state of the domain that begins at each node.
    domains: Vec<Domain>,
    /// Domains may begin. Changed only with all locks held, so it is constant while a thread holds one.
    is_open: AtomicBool,
    /// A domain left work in flight. Set with a lock of its nodes held.
    has_left: AtomicBool,
    time_limit: Arc<TimeLimit>,
}

/// The state of the domain that begins at a node. Its lock is taken after the node's.
#[repr(align(128))]
struct Domain {
    common: Mutex<Common>,
    /// [`Common::activity`] of the domain.
    activity: AtomicU64,
    /// The lowest node of the previous domain. Frames usually go to the same nodes again.
    first: AtomicUsize,
}

/// The result of serving a domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// There was nothing to do.
    pub is_idle: bool,
    /// Waiting threads get the nodes first.
    pub is_for_others: bool,
}

/// Why a node cannot be served in a domain.
enum Refused {
    /// A thread holds all nodes, or domains may not begin.
    Closed,
    /// The work concerns more nodes, or another domain left work in flight.
    Met,
}

/// Maximum of attempts of one domain to lock more nodes. Then it locks all.
const MAX_WIDER: usize = 4;

/// Maximum of times that a poll waits for the holder of all nodes, and finds domains closed again. Then it locks all.
const MAX_WAITS: usize = 4;

impl Cluster {
    /// These cards on one platform, not connected and without faults.
    pub fn new(cards: Vec<(AnyNic, Pages, u32)>, profile: &Arc<Profile>, fabric: Fabric, seed: u64) -> Self {
        let (links, switching) = fabric.into_parts();
        let ethernet = Ethernet::new(cards.len(), profile);
        let network = Network::new(switching, cards.len());
        let time_limit = Arc::default();
        let domain = |number| {
            let common = Common::new(Ethernet::new(0, profile), network.of_domain(), seed, &time_limit);
            let common = Mutex::new(Common { is_domain: true, ..common });
            Domain { common, activity: AtomicU64::new(0), first: AtomicUsize::new(number) }
        };
        let domains = (0..cards.len()).map(domain).collect();
        let node = |((nic, pages, ports), port): ((AnyNic, Pages, u32), SwitchPort)| {
            Slot::new(Node::new(Card::new(nic, pages, ports), NodeBus::default(), port))
        };
        Self {
            slots: cards.into_iter().zip(links).map(node).collect(),
            common: Mutex::new(Common::new(ethernet, network, seed, &time_limit)),
            domains,
            is_open: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            time_limit,
        }
    }

    /// Records that model time has reached its end.
    pub const fn time_limit(&self) -> &Arc<TimeLimit> {
        &self.time_limit
    }

    /// Locks all nodes.
    #[inline]
    pub fn lock_all(&self) -> LockedNodes<'_> {
        let common = self.common.lock();
        self.end_domains(LockedNodes { nodes: Nodes::all(&self.slots), common })
    }

    /// Locks all nodes, if that takes no longer than `timeout`.
    pub fn try_lock_all(&self, timeout: Duration) -> Option<LockedNodes<'_>> {
        let until = Instant::now() + timeout;
        let common = self.common.try_lock_until(until)?;
        Some(self.end_domains(LockedNodes { nodes: Nodes::all_until(&self.slots, until)?, common }))
    }

    /// Locks one node, for work that concerns no other node.
    pub fn lock_one(&self, node: usize) -> Nodes<'_> {
        Nodes::some(&self.slots, &[node])
    }

    /// [`Common::activity`] of all domains.
    pub fn activity_of_domains(&self) -> u64 {
        self.domains.iter().map(|domain| domain.activity.load(Ordering::Relaxed)).sum()
    }

    /// Ends all domains, and takes over the work that they left in flight.
    fn end_domains<'a>(&self, mut locked: LockedNodes<'a>) -> LockedNodes<'a> {
        if !self.is_open.load(Ordering::Relaxed) {
            return locked;
        }
        self.is_open.store(false, Ordering::Relaxed);
        locked.common.lock_counts.ended_domains += 1;
        locked.count_stalled();
        if self.has_left.swap(false, Ordering::Relaxed) {
            let mut left = Numbers::new();
            for (number, node) in locked.nodes.iter_mut() {
                let Some(domain) = node.left_by.take() else { continue };
                left.push(number);
                if let Some(domain) = self.domains.get(domain).filter(|_| domain == number) {
                    locked.common.network.absorb(&mut domain.common.lock().network);
                }
            }
            locked.common.budget = Budget::FULL;
            dispatch::resume_set_aside(&mut locked, &left);
        }
        locked
    }

    /// Lets domains begin again, if [`LockedNodes::may_split`]. Called last, before `locked` is dropped.
    #[inline]
    pub fn open(&self, locked: &LockedNodes<'_>) {
        if locked.may_split() {
            self.is_open.store(true, Ordering::Relaxed);
        }
    }

    /// Begins a domain at `node`, with these nodes.
    #[inline]
    fn begin(&self, node: usize, with: &Numbers) -> Result<LockedNodes<'_>, Refused> {
        if !self.is_open.load(Ordering::Relaxed) {
            return Err(Refused::Closed);
        }
        let mut with = with.clone();
        loop {
            let mut nodes = Nodes::some(&self.slots, &with);
            if !self.is_open.load(Ordering::Relaxed) {
                return Err(Refused::Closed);
            }
            if nodes.iter().any(|(_, here)| here.left_by.is_some_and(|domain| domain != node)) {
                return Err(Refused::Met);
            }
            let common = self.domains.get(node).ok_or(Refused::Met)?.common.lock();
            let has_left = nodes.get(node).is_some_and(|node| node.left_by.is_some());
            // A domain that left work in flight resumes with all its nodes.
            let missing = common.left_nodes.iter().filter(|number| nodes.get(**number).is_none());
            let missing: Numbers = if has_left { missing.copied().collect() } else { Numbers::new() };
            if missing.is_empty() {
                nodes.iter_mut().for_each(|(_, node)| node.left_by = None);
                let mut locked = LockedNodes { nodes, common };
                (locked.common.more_locks, locked.common.budget) = (None, Budget::FULL);
                locked.common.has_deferred = false;
                locked.count_stalled();
                if has_left {
                    let left = locked.common.left_nodes.clone();
                    dispatch::resume_set_aside(&mut locked, &left);
                }
                return Ok(locked);
            }
            with.extend(missing);
            with.sort_unstable();
        }
    }

    /// Ends a domain. Work that it leaves in flight is resumed by the next domain at the same node, or by a thread that
    /// locks all nodes.
    #[inline]
    fn end(&self, node: usize, locked: &mut LockedNodes<'_>, is_idle: bool) {
        let LockedNodes { nodes, common } = locked;
        let latest = common.latest.max(common.network.latest());
        if let Some(node) = nodes.get_mut(node) {
            node.latest = node.latest.max(latest);
        }
        if let Some(domain) = self.domains.get(node) {
            domain.activity.store(common.activity, Ordering::Relaxed);
            // An idle poll locks no other node next time.
            let first = if is_idle { node } else { nodes.first().unwrap_or(node) };
            if domain.first.load(Ordering::Relaxed) != first {
                domain.first.store(first, Ordering::Relaxed);
            }
        }
        if locked.has_unfinished_work() {
            locked.common.left_nodes = locked.nodes.numbers();
            locked.nodes.iter_mut().for_each(|(_, here)| here.left_by = Some(node));
            self.has_left.store(true, Ordering::Relaxed);
        }
    }

    /// Serves `node` in a domain, which grows as needed. Where that is not possible, returns all nodes, in which the
    /// caller serves the node.
    #[inline]
    pub fn serve_in_domain(
        &self,
        node: usize,
        mut serve: impl FnMut(&mut LockedNodes<'_>) -> Served,
    ) -> Option<LockedNodes<'_>> {
        match self.try_serve_in_domain(node, &mut serve) {
            Ok(()) => None,
            Err(refused) => self.serve_again(node, refused, &mut serve),
        }
    }

    /// Serves `node` after a first attempt was refused.
    ///
    /// A thread that waits for the holder of all nodes need not lock all itself. Otherwise all waiting threads would do
    /// so one after the other, and every poll meanwhile would wait with them.
    #[cold]
    fn serve_again(
        &self,
        node: usize,
        mut refused: Refused,
        serve: &mut impl FnMut(&mut LockedNodes<'_>) -> Served,
    ) -> Option<LockedNodes<'_>> {
        for _ in 0..MAX_WAITS {
            let is_met = matches!(refused, Refused::Met);
            let common = self.common.lock();
            if is_met || !self.is_open.load(Ordering::Relaxed) {
                let mut locked = self.end_domains(LockedNodes { nodes: Nodes::all(&self.slots), common });
                locked.common.lock_counts.polls += 1;
                locked.common.lock_counts.met += u64::from(is_met);
                return Some(locked);
            }
            drop(common);
            match self.try_serve_in_domain(node, serve) {
                Ok(()) => return None,
                Err(again) => refused = again,
            }
        }
        let mut locked = self.lock_all();
        locked.common.lock_counts.polls += 1;
        Some(locked)
    }

    #[inline]
    fn try_serve_in_domain(
        &self,
        node: usize,
        serve: &mut impl FnMut(&mut LockedNodes<'_>) -> Served,
    ) -> Result<(), Refused> {
        let first = self.domains.get(node).ok_or(Refused::Met)?.first.load(Ordering::Relaxed);
        let mut with = Numbers::new();
        with.extend(Some(first).filter(|first| *first != node));
        with.push(node);
        for _ in 0..MAX_WIDER {
            let mut locked = self.begin(node, &with)?;
            let served = match locked.common.more_locks {
                None => serve(&mut locked),
                Some(_) => Served::default(),
            };
            self.end(node, &mut locked, served.is_idle);
            match locked.common.more_locks {
                None => {
                    if served.is_for_others {
                        locked.unlock_fair();
                    }
                    return Ok(());
                }
                Some(MoreLocks::Node(wanted)) => {
                    with = locked.nodes.numbers();
                    with.push(wanted);
                    with.sort_unstable();
                }
                Some(MoreLocks::All) => return Err(Refused::Met),
            }
        }
        Err(Refused::Met)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::time::Span;

    use super::*;

    #[test]
    fn bumped_nodes_open_no_domains() {
        let fabric = Fabric::new(&FabricConfig {
            links: Vec::new(),
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let cluster = Cluster::new(Vec::new(), &Arc::default(), fabric.unwrap(), 1);
        let mut locked = cluster.lock_all();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| cluster.open(&cluster.lock_all()));
            while !other.is_finished() {
                locked.bump();
            }
        });
        assert!(!cluster.is_open.load(Ordering::Relaxed));
        cluster.open(&locked);
        assert!(cluster.is_open.load(Ordering::Relaxed));
    }
}
