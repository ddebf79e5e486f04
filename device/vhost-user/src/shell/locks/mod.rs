//! The locked nodes: what a thread holds while it serves nodes.
//!
//! [`super::node`] has what each node's lock protects. [`super::cluster`] takes the locks: of all nodes, or of the few
//! that a message needs, which are a lock domain ([`domain`]).

mod domain;
pub mod programs;
pub mod reload;

use std::sync::Arc;

use niclab_model::nic::batch::Batch;
use niclab_model::time::{EndOfTime, Time};
use parking_lot::MutexGuard;

pub use self::domain::{LockCounts, MoreLocks};
use self::programs::Lockstep;
use self::reload::Loading;
use super::budget::Budget;
use super::card::Card;
use super::card_frame::Loan;
use super::ethernet::Ethernet;
use super::network::Network;
use super::node::{Nodes, Numbers};
use super::time_limit::TimeLimit;

/// Nodes and their common state, until the guard is dropped.
pub struct LockedNodes<'a> {
    /// The nodes.
    pub nodes: Nodes<'a>,
    /// What they share.
    pub common: MutexGuard<'a, Common>,
}

/// State that locked nodes share. All nodes together have one; each lock domain has its own.
pub struct Common {
    /// The Ethernet functions. A lock domain has none.
    pub ethernet: Ethernet,
    /// The switch, and frames in flight.
    pub network: Network,
    /// The seed of every random choice.
    pub seed: u64,
    /// Device faults apply to a card.
    pub has_device_faults: bool,
    /// A card is adversarial.
    pub is_adversarial: bool,
    /// A driver has notified a descriptor queue of a model that takes chains.
    pub has_descriptors: bool,
    /// Cards with a posted slot that their model could not accept.
    pub stalled: usize,
    /// Slots, registers, descriptors, arrivals and notifications of Ethernet functions so far.
    pub activity: u64,
    /// What may be done before other threads get the nodes.
    pub budget: Budget,
    /// The latest model time of an output.
    pub latest: Time,
    /// Programs in lockstep, in a cluster that was started so.
    pub lockstep: Option<Box<Lockstep>>,
    /// Cards that are loading firmware.
    pub loading: Option<Loading>,
    /// Global-lock acquisitions.
    pub lock_counts: LockCounts,
    /// Threads that released all nodes for a moment and lock them again.
    pub returning: usize,
    /// These nodes are a lock domain.
    pub is_domain: bool,
    /// The locks that the domain lacks.
    pub more_locks: Option<MoreLocks>,
    /// The nodes of a domain that left work in flight.
    pub left_nodes: Numbers,
    /// Cards may have pending work: a budget ended, or deferred frames were sent, since the last full run.
    pub has_deferred: bool,
    /// Frames may borrow guest memory: nothing stays in flight when the nodes are unlocked.
    pub may_borrow: bool,
    /// Cards and Ethernet functions send frames one by one, each frame owns its payload, and there are no lock domains:
    /// tests compare this with the fast path.
    pub goes_alone: bool,
    /// The memory that the next borrowed frame refers to.
    pub loan: Option<Loan>,
    /// Where the posts of a batch are collected.
    pub batch: Batch,
    /// Records that model time has reached its end.
    pub time_limit: Arc<TimeLimit>,
}

impl Common {
    /// The state of nodes on which nothing has happened.
    pub fn new(ethernet: Ethernet, network: Network, seed: u64, time_limit: &Arc<TimeLimit>) -> Self {
        Self {
            ethernet,
            network,
            seed,
            has_device_faults: false,
            is_adversarial: false,
            has_descriptors: false,
            stalled: 0,
            activity: 0,
            budget: Budget::SPENT,
            latest: Time::ZERO,
            lockstep: None,
            loading: None,
            lock_counts: LockCounts::default(),
            returning: 0,
            is_domain: false,
            more_locks: None,
            left_nodes: Numbers::new(),
            has_deferred: false,
            may_borrow: false,
            goes_alone: false,
            loan: None,
            batch: Batch::default(),
            time_limit: Arc::clone(time_limit),
        }
    }
}

impl LockedNodes<'_> {
    /// The latest model time at which anything happened.
    pub fn model_time(&self) -> Time {
        let rests = self.nodes.iter().map(|(_, node)| node.bus.rest().max(node.latest));
        rests.fold(self.common.network.latest().max(self.common.latest), Time::max)
    }

    /// Whether programs run in lockstep now.
    #[inline]
    pub fn is_in_lockstep(&self) -> bool {
        self.common.lockstep.as_ref().is_some_and(|lockstep| lockstep.is_running)
    }

    /// Whether work is left that no thread returns for by itself: frames in flight, or work beyond a budget.
    pub fn has_pending(&self) -> bool {
        self.common.network.frames.is_moving() || self.common.has_deferred
    }

    /// Whether a device is stopped.
    pub fn has_stopped_device(&self) -> bool {
        self.nodes.cards().any(|(_, card)| card.host.state.is_stopped())
    }

    /// Whether the model time of the card of `node` is paused: its device is stopped, or a stopped peer holds its
    /// frames. Otherwise deadlines would give up messages that only a debugger delays.
    ///
    /// A guest may reset its device without [`niclab_abi::control::OP_RESET`], and never start it again. It delays only
    /// the cards that send to it.
    pub fn is_time_paused(&self, node: usize, card: &Card) -> bool {
        let holds =
            |other: &Card| other.host.state.stopped.as_ref().is_some_and(|stopped| stopped.holds_from(node));
        card.host.state.is_stopped() || self.nodes.cards().any(|(_, other)| holds(other))
    }

    /// The card with the earliest pending work, and when that is due. Nothing is in flight, so only a post that guests
    /// have not made yet could precede it.
    #[inline]
    pub fn next_work(&self) -> Option<(usize, Time)> {
        let due = |card: &Card| card.nic.poll_work().filter(|_| !card.host.state.is_stopped());
        let (due, node) = self.nodes.cards().filter_map(|(node, card)| Some((due(card)?, node))).min()?;
        Some((node, due))
    }

    /// Records when model time has reached its end: later results could not be exact, so the cluster ends with the
    /// error.
    #[inline]
    pub fn check_time(&mut self) {
        let latest = self.common.latest.max(self.common.network.latest());
        if latest > Time::LIMIT {
            self.end_time(latest);
        }
    }

    /// Model time has reached its end at this instant.
    #[cold]
    pub fn end_time(&mut self, at: Time) {
        self.common.time_limit.reach(EndOfTime { at });
    }

    /// Unlocks all nodes for a moment, so that waiting threads get them.
    pub fn bump(&mut self) {
        let Self { nodes, common } = self;
        // The threads in between must not open lock domains: this thread would not know what these left in flight.
        common.returning += 1;
        nodes.bump_all(|| MutexGuard::bump(common));
        common.returning -= 1;
    }

    /// Unlocks the nodes and hands them to the first waiting thread. A thread with more work would otherwise lock them
    /// again before the waiting one wakes up.
    pub fn unlock_fair(mut self) {
        self.nodes.give_back();
        MutexGuard::unlock_fair(self.common);
    }
}
