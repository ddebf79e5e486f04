//! Runs models to completion.
//!
//! The thread that finds work carries it through the sender's model, the network and the receiver's model into the
//! receiver's memory, and then polls for what that made possible. It hands nothing to another thread.
//!
//! * [`pages`] takes posted slots, registers and descriptors, and feeds them to models;
//! * [`outputs`] applies what models want done;
//! * [`batch`] does both in one pass, where nothing intervenes: the fast path;
//! * [`mac_endpoints`] separates Ethernet functions from cards with a MAC endpoint.

pub mod batch;
pub mod mac_endpoints;
pub mod outputs;
pub mod pages;

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::Input;
use niclab_model::nic::adversarial::Adversarial;
use niclab_model::nic::fault_injector::FaultInjector;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use super::budget::{Budget, FRAME_NS, frame_ns};
use super::card::Card;
use super::card::stopped::HeldFrame;
use super::card_frame::CardFrame;
use super::locks::LockedNodes;
use super::node::Numbers;

/// Resumes pending work, for one budget. True when there is more.
pub fn resume(locked: &mut LockedNodes<'_>) -> bool {
    locked.common.budget = Budget::FULL;
    run_until_idle(locked, 0);
    pages::serve_stalled(locked);
    locked.has_pending()
}

/// Applies the outputs of cards whose domain lacked a lock. Cards with deferred frames come first.
#[cold]
pub fn resume_set_aside(locked: &mut LockedNodes<'_>, nodes: &Numbers) {
    let is_first = |node: &usize| locked.nodes.get(*node).is_some_and(|node| !node.unsent.is_empty());
    let (first, others): (Numbers, Numbers) = nodes.iter().copied().partition(is_first);
    first.into_iter().chain(others).for_each(|node| outputs::drain(locked, node));
    locked.common.has_deferred = true;
}

/// Applies the outputs of the model of `node`, and everything that follows on every node, until the budget is spent.
/// What is in flight then stays so until the next poll of any page.
#[inline]
pub fn run_until_idle(locked: &mut LockedNodes<'_>, node: usize) {
    if locked.is_in_lockstep() {
        return outputs::drain(locked, node);
    }
    locked.common.may_borrow = !locked.common.goes_alone;
    outputs::drain(locked, node);
    deliver_in_flight(locked);
    locked.common.may_borrow = false;
    // A card with pending work may have no frame in flight, and no other thread would return for it.
    locked.common.has_deferred = locked.common.budget.is_spent()
        && (locked.common.has_deferred || locked.next_work().is_some() || locked.next_deferred().is_some());
    locked.check_time();
    // Frames that stay in flight while other threads have the nodes must own their payload.
    locked.common.network.frames.own_all();
}

/// Delivers all frames in flight, and lets cards continue with pending work, until the budget is spent.
#[inline]
fn deliver_in_flight(locked: &mut LockedNodes<'_>) {
    loop {
        while !locked.common.budget.is_spent()
            && let Some(arrival) = locked.common.network.frames.pop()
        {
            let to = usize::from(arrival.to);
            let passage = Passage { head: arrival.head, tail: arrival.at };
            deliver(locked, to, passage, &arrival.frame, arrival.message, arrival.class);
            outputs::drain_with(locked, to, Some(&arrival.frame));
        }
        if locked.common.budget.is_spent() {
            return;
        }
        if let Some((node, due)) = next_overdue(locked) {
            if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
                card.expire(due, bus);
            }
            outputs::drain(locked, node);
        } else if let Some(node) = locked.next_deferred() {
            outputs::drain(locked, node);
        } else if let Some((node, due)) = locked.next_work() {
            if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
                card.resume(due, bus);
            }
            outputs::drain(locked, node);
        } else {
            return;
        }
    }
}

/// A card with a delayed completion that is due, because the model time of others passed it. Where all others are
/// idle, [`super::idle::deadlines::pass_time`] reaches it.
#[inline]
fn next_overdue(locked: &LockedNodes<'_>) -> Option<(usize, Time)> {
    if !locked.common.has_device_faults && !locked.common.is_adversarial {
        return None;
    }
    let now = locked.model_time();
    let due = |card: &Card| {
        if card.host.state.is_stopped() {
            return None;
        }
        let held = [
            card.nic.fault_injector().and_then(FaultInjector::due),
            card.nic.adversarial().and_then(Adversarial::due),
        ];
        held.into_iter().flatten().min().filter(|due| *due <= now)
    };
    locked.nodes.cards().find_map(|(node, card)| Some((node, due(card)?)))
}

/// Delivers a frame at `to`. A stopped device holds it.
#[inline]
pub fn deliver(
    locked: &mut LockedNodes<'_>,
    to: usize,
    passage: Passage,
    frame: &CardFrame,
    message: Option<TraceTag>,
    class: FrameClass,
) {
    // A borrowed payload is copied only where it is stored, and the model counts that.
    let nanoseconds = match frame {
        CardFrame::Owned(frame) => frame_ns(frame.len()),
        CardFrame::Borrowed(_) => FRAME_NS,
    };
    locked.common.budget.spend(nanoseconds);
    locked.common.activity += 1;
    if class != FrameClass::Card
        && !mac_endpoints::deliver(locked, to, passage, &frame.to_owned_frame(), message, class)
    {
        return;
    }
    let Some((card, bus)) = locked.nodes.card_and_bus(to) else { return };
    if let Some(stopped) = card.host.state.holder() {
        let frame = frame.to_owned_frame();
        stopped.hold(HeldFrame { passage, frame, message, class: FrameClass::Card });
        return;
    }
    let head = passage.head;
    let input = match frame {
        CardFrame::Owned(frame) => Input::Frame { frame, head, message },
        CardFrame::Borrowed(frame) => Input::BorrowedFrame { frame: frame.head(), head, message },
    };
    card.arrive(passage.tail, frame.head().frame_bytes, message, input, bus);
}

/// Spends the work that the model of `node` has done since the last call.
#[inline]
pub fn spend_work(locked: &mut LockedNodes<'_>, node: usize) {
    if let Some(card) = locked.nodes.card_mut(node) {
        let work = card.take_work();
        locked.common.budget.spend_work(work);
    }
}
