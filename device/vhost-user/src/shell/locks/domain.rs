//! Lock domains: the nodes of which one thread needs the locks for one message.
//!
//! A domain begins with the node that a thread serves. When a frame goes to another node, that node joins. If its lock
//! is not available, the thread defers the frame with its sender ([`Node::unsent`]), unlocks the nodes, and locks them
//! again in order together with the new one ([`LockedNodes::needs_more_locks`]).

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::Output;
use niclab_model::time::Passage;

use super::{Common, LockedNodes};
use crate::shell::budget::Budget;
use crate::shell::card_frame::SentFrame;
use crate::shell::node::Node;

/// The locks that a domain lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreLocks {
    /// A frame goes to this node, which another domain has locked. Its number may be the lowest.
    Node(usize),
    /// The work concerns more than single nodes.
    All,
}

/// How often all nodes were locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Lock domains were possible before, and not afterwards.
    pub ended_domains: u64,
    /// By polls. Domains may be possible again when the poll ends.
    pub polls: u64,
    /// Of these, by polls that met another domain, or whose work concerned all nodes.
    pub met: u64,
}

impl LockedNodes<'_> {
    /// Whether lock domains are possible. They are not where work concerns more than a frame's two nodes:
    ///
    /// * lockstep, and a firmware reload, order all programs or cards;
    /// * a faulty link delays frames until others overtake them, and faulty cards have deadlines in model time;
    /// * an observer sees all events in one order;
    /// * MAC endpoints share a network with Ethernet functions, and descriptors are polled at all nodes;
    /// * the next thread resumes what is in flight;
    /// * a thread in [`LockedNodes::bump`] locks all nodes again;
    /// * tests send all frames one by one.
    pub fn may_split(&self) -> bool {
        let Common { ethernet, network, lockstep, loading, .. } = &*self.common;
        let is_one_for_all = lockstep.is_some() || loading.is_some() || self.common.has_descriptors;
        let is_one_for_all = is_one_for_all || self.common.goes_alone || self.common.returning > 0;
        let is_faulty =
            self.common.has_device_faults || self.common.is_adversarial || network.is_any_faulty();
        let is_in_flight = self.common.has_deferred
            || network.frames.is_moving()
            || network.frames.is_holding()
            || ethernet.is_holding();
        let is_observed = network.observers.is_any();
        let has_endpoints = || self.nodes.cards().any(|(_, card)| card.nic.has_mac_endpoints());
        let has_work = || self.common.budget.is_spent() && self.next_work().is_some();
        !(is_one_for_all || is_faulty || is_in_flight || is_observed || has_endpoints() || has_work())
    }

    /// Whether a domain leaves work in flight.
    pub fn has_unfinished_work(&self) -> bool {
        self.common.more_locks.is_some()
            || self.common.has_deferred
            || self.common.network.frames.is_moving()
            || self.common.budget.is_spent() && self.next_work().is_some()
    }

    /// Counts the stalled cards again, because nodes joined.
    pub fn count_stalled(&mut self) {
        self.common.stalled = self.nodes.cards().filter(|(_, card)| card.is_stalled).count();
    }

    /// Whether this domain lacks a lock. Its node is served again, with more nodes.
    #[inline]
    pub fn needs_more_locks(&self) -> bool {
        self.common.more_locks.is_some()
    }

    /// A node whose card has deferred outputs, and whose device is not stopped.
    #[inline]
    pub fn next_deferred(&self) -> Option<usize> {
        let is_due = |node: &Node| !node.unsent.is_empty() && !node.card.host.state.is_stopped();
        self.nodes.iter().find_map(|(number, node)| is_due(node).then_some(number))
    }

    /// The next output of the card of `node`. Deferred outputs come first. They stay deferred in a domain that lacks a
    /// lock, and after a deferred read nothing follows there.
    #[inline]
    pub fn next_output(&mut self, node: usize) -> Option<Output> {
        let needs_more_locks = self.common.more_locks.is_some();
        let node = self.nodes.get_mut(node).filter(|node| !node.card.host.state.is_stopped())?;
        match node.unsent.back() {
            None => node.card.nic.poll_output(),
            Some(_) if !needs_more_locks => node.unsent.pop_front(),
            // A deferred read precedes everything that its card decided later.
            Some(Output::DmaRead { .. } | Output::WindowRead { .. }) => None,
            Some(_) => node.card.nic.poll_output(),
        }
    }

    /// Whether a frame can be sent: its destination is locked, or joins.
    #[inline]
    pub fn can_send(&mut self, frame: &[u8], class: FrameClass) -> bool {
        if !self.common.is_domain {
            return true;
        }
        // The frames of one card keep their order.
        if self.common.more_locks.is_some() {
            return false;
        }
        let is_cards = class == FrameClass::Card;
        let Some(to) = self.common.network.known_route(frame).filter(|_| is_cards).map(usize::from) else {
            self.common.more_locks = Some(MoreLocks::All);
            return false;
        };
        self.nodes.get(to).is_some() || self.join(to)
    }

    /// Locks a node for the domain, or records that the domain lacks it.
    #[cold]
    fn join(&mut self, to: usize) -> bool {
        if to >= self.nodes.len() {
            // No such node: the frame uses only its sender's link.
            return true;
        }
        let is_here = self.has_joined(to);
        if !is_here {
            self.common.more_locks = Some(MoreLocks::Node(to));
        }
        is_here
    }

    /// Locks a node for the domain without waiting for another domain. Whether it is locked.
    #[inline]
    pub fn has_joined(&mut self, to: usize) -> bool {
        if self.nodes.get(to).is_some() {
            return true;
        }
        let is_here = self.nodes.reach(to);
        if is_here {
            self.count_stalled();
        }
        is_here
    }

    /// Defers a frame for which this domain lacks a lock.
    ///
    /// The first such frame (`needed_more` is false) is older than all deferred ones. Later ones follow in order. A
    /// borrowed payload is copied.
    #[cold]
    pub fn set_aside(&mut self, node: usize, sent: SentFrame, needed_more: bool) {
        let SentFrame { ready: Passage { head: at, tail }, frame, message, .. } = sent;
        let frame = Output::Frame { at, tail, frame: frame.into_owned(), message };
        if let Some(node) = self.nodes.get_mut(node) {
            if needed_more { node.unsent.push_back(frame) } else { node.unsent.push_front(frame) }
        }
        (self.common.budget, self.common.may_borrow) = (Budget::SPENT, false);
    }

    /// Whether a read waits for the next budget.
    ///
    /// A card may read guest memory millions of times without a frame or a deadline in between: a guest posts 16 MiB in
    /// packets of four bytes, or its ring has no end. Each read spends budget, so the guest delays no other node. What
    /// arrived with a borrowed payload is stored first, before that payload is gone.
    #[inline]
    pub fn waits_for_budget(&self, output: &Output, is_borrowed: bool) -> bool {
        // In lockstep each read has its instant of model time, and programs wait for each other.
        self.common.budget.is_spent()
            && !is_borrowed
            && !self.is_in_lockstep()
            && matches!(output, Output::DmaRead { .. } | Output::WindowRead { .. })
    }

    /// Defers an output until the next budget, before all other outputs of its card. Frames that wait for a lock come
    /// first.
    #[cold]
    pub fn defer(&mut self, node: usize, output: Output) {
        let needs_more_locks = self.common.more_locks.is_some();
        if let Some(node) = self.nodes.get_mut(node) {
            if needs_more_locks { node.unsent.push_back(output) } else { node.unsent.push_front(output) }
        }
    }
}
