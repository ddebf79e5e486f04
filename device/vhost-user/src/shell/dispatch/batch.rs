//! The fast path of messages: from the sender's slots into the receiver's memory in one pass
//! ([`niclab_model::nic::batch`]).
//!
//! The models, the links and the ledgers compute the same with the same functions on both paths. The fast path omits
//! the encoded frame and the queues between the steps, and does all this once for consecutive posts that differ only in
//! payload. A message that does more than arrive (it wakes a program, it is acknowledged) takes the other path, as do
//! the frames that return credit.
//!
//! [`is_clear`] checks once for each poll of a node's pages what excludes the fast path. Then both models, both links
//! and the budget limit the number of posts. The thread takes that many out of the page, through the sender's model,
//! over the links, and into the receiver's model and memory. Nothing returns to the sender before its host polls its
//! memory again, so the final state is the same as one by one. `tests` compares nodes with and without the fast path.

#[cfg(test)]
mod tests;

use niclab_model::nic::batch::BatchRoute;

use super::outputs;
use crate::shell::budget::{LAUNCH_NS, WORK_UNIT_NS, frame_ns};
use crate::shell::card::batch;
use crate::shell::locks::{Common, LockedNodes};
use crate::shell::node::Node;

/// Maximum of the work that the two cards of a message spend, beside slot and frame. Ours: several times what they
/// report.
const WORK_NS: u32 = 1_000;

/// Whether nothing excludes the fast path for messages that are posted now. That holds while a thread takes slots: it
/// keeps the locks, and cards on the fast path have no pending work.
pub fn is_clear(locked: &LockedNodes<'_>) -> bool {
    !locked.is_in_lockstep()
        && !locked.common.goes_alone
        && !locked.common.has_device_faults
        && !locked.common.has_deferred
        && !locked.common.network.observers.is_any()
        && !locked.common.network.is_any_faulty()
        && locked.next_work().is_none()
}

/// Carries the next posts of a port as a batch of at most `max_slots`, where that is possible. Returns their number.
/// `clear` keeps the result of [`is_clear`].
#[inline]
pub fn try_run(
    locked: &mut LockedNodes<'_>,
    node: usize,
    port: u32,
    max_slots: u32,
    clear: &mut Option<bool>,
) -> u32 {
    let Some(card) = locked.nodes.card(node).filter(|card| batch::is_supported(card)) else { return 0 };
    let Some(code) = card.host.pages.launched_code(port) else { return 0 };
    if !*clear.get_or_insert_with(|| is_clear(locked)) {
        return 0;
    }
    let Some(route) = route(locked, node, (port, code), max_slots) else { return 0 };
    let LockedNodes { nodes, common } = locked;
    let common = &mut **common;
    let Some((sender, receiver)) = nodes.pair(node, route.to.into()) else { return 0 };
    if !batch::take(&mut sender.card, code, route, &mut common.batch) {
        return 0;
    }
    carry(sender, receiver, common);
    let count = common.batch.len() as u32;
    // The reports of free slots to their program.
    outputs::drain(locked, node);
    count
}

/// The route of the next posts, and how many of them every part of it accepts as a batch.
#[inline]
fn route(
    locked: &mut LockedNodes<'_>,
    node: usize,
    (port, code): (u32, u32),
    max_slots: u32,
) -> Option<BatchRoute> {
    if locked.needs_more_locks() || !locked.common.network.frames.is_idle() {
        return None;
    }
    let sender = locked.nodes.get_mut(node).filter(|sender| sender.unsent.is_empty())?;
    let mut route = sender.card.nic.batching()?.route(port, code)?;
    let to = usize::from(route.to);
    // The first of them would have it join as well.
    if locked.common.is_domain && !locked.has_joined(to) {
        return None;
    }
    let (sender, receiver) = locked.nodes.pair(node, to)?;
    let is_stopped = receiver.card.host.state.is_stopped();
    if !receiver.unsent.is_empty() || is_stopped || !batch::is_supported(&receiver.card) {
        return None;
    }
    let on_links = locked.common.network.batch_room(&sender.port, &receiver.port, route.length);
    let at_receiver = receiver.card.nic.batching()?.room(&route);
    let in_budget = locked.common.budget.operations(LAUNCH_NS + frame_ns(route.length.bytes) + WORK_NS);
    route.max_posts = route.max_posts.min(max_slots as usize).min(on_links).min(at_receiver).min(in_budget);
    (route.max_posts > 0).then_some(route)
}

/// Carries the posts that were taken from one card to the other.
#[inline]
fn carry(sender: &mut Node, receiver: &mut Node, common: &mut Common) {
    let Common { batch, network, budget, latest, activity, .. } = common;
    batch::post(&mut sender.card, batch, &mut sender.bus);
    let heads = batch.frames().iter().filter_map(|frame| frame.passage).map(|passage| passage.head);
    *latest = heads.fold(*latest, Ord::max);
    let (length, last) = (batch.route.length, batch.last);
    network.forward_batch((&mut sender.port, &mut receiver.port), length, batch.frames_mut(), last);
    batch::receive(&mut receiver.card, batch, &mut receiver.bus, latest);
    let count = batch.len() as u32;
    let work = sender.card.take_work() + receiver.card.take_work();
    debug_assert!(
        work * WORK_UNIT_NS <= u64::from(WORK_NS * count),
        "the budget could have been spent before the last one"
    );
    budget.spend((LAUNCH_NS + frame_ns(length.bytes)) * count);
    budget.spend_work(work);
    *activity += u64::from(count);
}
