//! Transmit and receive queues of Ethernet functions, and what guests send to MAC endpoints.

use niclab_model::fabric::ethernet::FrameClass;

use crate::shell::budget::Budget;
use crate::shell::card_frame::CardFrame;
use crate::shell::dispatch::{deliver, pages, run_until_idle};
use crate::shell::ethernet::ForMacEndpoints;
use crate::shell::locks::{Common, LockedNodes};
use crate::shell::lockstep;

/// Sends what `node` has in the transmit queue of a pair, for one budget. True when there is more.
pub fn transmit(locked: &mut LockedNodes<'_>, node: usize, pair: usize) -> bool {
    locked.common.budget = Budget::FULL;
    locked.common.activity += 1;
    // Its earlier frames for MAC endpoints arrive before it sends more. However many it has, they wait in the guest.
    if feed_endpoints(locked, node) {
        return true;
    }
    let Common { ethernet, network, budget, goes_alone, .. } = &mut *locked.common;
    let more = ethernet.transmit((node, pair), !*goes_alone, network, budget, &mut locked.nodes);
    let more = feed_endpoints(locked, node) || more;
    run_endpoints(locked, node) || more
}

/// The driver of `node` has added receive buffers to the queue of a pair.
pub fn refill(locked: &mut LockedNodes<'_>, node: usize, pair: usize) {
    locked.common.activity += 1;
    locked.common.ethernet.refill((node, pair), &mut locked.nodes);
}

/// The fabric was idle: Ethernet frames that a fault delayed arrive. False when there are none.
pub fn release_delayed(locked: &mut LockedNodes<'_>) -> bool {
    let any = locked.common.ethernet.release_held(&mut locked.nodes);
    for node in 0..locked.common.ethernet.states.len() {
        // Their sender may send nothing more. Their number is bounded by what a fault may delay.
        locked.common.budget = Budget::FULL;
        while feed_endpoints(locked, node) {
            locked.common.budget = Budget::FULL;
        }
        run_endpoints(locked, node);
    }
    any
}

/// Feeds cards the frames that the guest of `node` sent to MAC endpoints, for the rest of the budget but at least one.
/// True when there is more.
fn feed_endpoints(locked: &mut LockedNodes<'_>, node: usize) -> bool {
    while let Some(sender) = locked.common.ethernet.states.get_mut(node)
        && let Some(next) = sender.for_mac_endpoints.pop_front()
    {
        sender.owes_settling = true;
        if !lockstep::deliver_to_endpoints(locked, &next) {
            let ForMacEndpoints { to, at, frame, message } = next;
            deliver(
                locked,
                to,
                at.into(),
                &CardFrame::Owned(frame),
                Some(message),
                FrameClass::MacEndpoints(to as u16),
            );
            run_until_idle(locked, to);
        }
        if locked.common.budget.is_spent() {
            break;
        }
    }
    locked.common.ethernet.states.get(node).is_some_and(|sender| !sender.for_mac_endpoints.is_empty())
}

/// Runs what followed from frames of `node` for MAC endpoints. True when there is more.
fn run_endpoints(locked: &mut LockedNodes<'_>, node: usize) -> bool {
    if locked.common.ethernet.states.get(node).is_none_or(|sender| !sender.owes_settling) {
        return false;
    }
    run_until_idle(locked, node);
    pages::serve_stalled(locked);
    let is_pending = locked.common.network.frames.is_moving() && !locked.is_in_lockstep();
    if let Some(sender) = locked.common.ethernet.states.get_mut(node) {
        sender.owes_settling = is_pending;
    }
    is_pending
}
