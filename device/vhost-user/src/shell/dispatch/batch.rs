//! Equal posts of one port, carried together on the fast path ([`niclab_model::nic::series`]).
//!
//! Both models, both links and the budget limit their number first. Then the thread takes that many out of the page,
//! through the sender's model, over the links, and into the receiver's model and memory. Nothing returns to the sender
//! before its host polls its memory again, so the final state is the same as one by one. Other posts are taken singly.

use niclab_model::nic::series::Way;

use super::fast_path;
use crate::shell::budget::{LAUNCH_NS, WORK_UNIT_NS, frame_ns};
use crate::shell::card::batch;
use crate::shell::locks::{Common, LockedNodes};
use crate::shell::node::Node;

/// Maximum of the work that the two cards of a message spend, beside slot and frame. Ours: several times what they
/// report.
const WORK_NS: u32 = 1_000;

/// Carries the next posts of a port as a batch of at most `max_slots`, where that is possible. Returns their number.
/// `clear` keeps the result of [`fast_path::is_clear`].
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
    if !*clear.get_or_insert_with(|| fast_path::is_clear(locked)) {
        return 0;
    }
    let Some(way) = route(locked, node, (port, code), max_slots) else { return 0 };
    let LockedNodes { nodes, common } = locked;
    let common = &mut **common;
    let Some((sender, receiver)) = nodes.pair(node, way.to.into()) else { return 0 };
    if !batch::take(&mut sender.card, code, way, &mut common.series) {
        return 0;
    }
    carry(sender, receiver, common);
    common.series.len() as u32
}

/// The route of the next posts, and how many of them every part of it accepts as a batch.
#[inline]
fn route(locked: &mut LockedNodes<'_>, node: usize, (port, code): (u32, u32), max_slots: u32) -> Option<Way> {
    if locked.needs_more_locks() || !locked.common.network.frames.is_idle() {
        return None;
    }
    let sender = locked.nodes.get_mut(node).filter(|sender| sender.unsent.is_empty())?;
    let mut way = sender.card.nic.in_series()?.way(port, code)?;
    let to = usize::from(way.to);
    // The first of them would have it join as well.
    if locked.common.is_domain && !locked.has_joined(to) {
        return None;
    }
    let (sender, receiver) = locked.nodes.pair(node, to)?;
    let is_stopped = receiver.card.host.state.is_stopped();
    if !receiver.unsent.is_empty() || is_stopped || !batch::is_supported(&receiver.card) {
        return None;
    }
    let on_links = locked.common.network.packets_in_batch(&sender.port, &receiver.port, &way);
    let at_receiver = receiver.card.nic.in_series()?.most(&way);
    let in_budget = locked.common.budget.operations(LAUNCH_NS + frame_ns(way.bytes) + WORK_NS);
    way.most = way.most.min(max_slots as usize).min(on_links).min(at_receiver).min(in_budget);
    (way.most > 0).then_some(way)
}

/// Carries the posts that were taken from one card to the other.
#[inline]
fn carry(sender: &mut Node, receiver: &mut Node, common: &mut Common) {
    let Common { series, network, budget, latest, activity, .. } = common;
    batch::post(&mut sender.card, series, &mut sender.bus);
    let heads = series.runs.done().iter().map(|run| run.last().passage.head);
    *latest = heads.fold(*latest, Ord::max);
    while sender.card.inline_write(latest) {}
    network.pass_series(&mut sender.port, &mut receiver.port, series);
    batch::receive(&mut receiver.card, series, &mut receiver.bus, latest);
    let (count, bytes) = (series.len() as u32, series.way.bytes);
    let work = sender.card.take_work() + receiver.card.take_work();
    debug_assert!(
        work * WORK_UNIT_NS <= u64::from(WORK_NS * count),
        "the budget could have been spent before the last one"
    );
    budget.spend((LAUNCH_NS + frame_ns(bytes)) * count);
    budget.spend_work(work);
    *activity += u64::from(count);
}
