//! Deadlines of cards, and frames that faults delay: what waits for model time to pass.

use std::collections::BTreeMap;
use std::time::Duration;

use niclab_model::time::Time;

use crate::shell::budget::Budget;
use crate::shell::dispatch::{outputs, pages, run_until_idle};
use crate::shell::locks::LockedNodes;
use crate::shell::service::ethernet_function;

/// Deadlines that an earlier check saw, and for how long each has not changed, in wall time: at most one for each card.
#[derive(Debug, Default)]
pub struct Unchanged {
    deadlines: BTreeMap<usize, (Time, Duration)>,
}

/// Whether anything waits for model time to pass. In lockstep the programs make it pass, except for delayed Ethernet
/// frames.
pub fn is_waiting(locked: &LockedNodes<'_>) -> bool {
    let is_waiting = || {
        locked.has_pending()
            || locked.common.network.frames.is_holding()
            || deadlines(locked).next().is_some()
    };
    locked.common.ethernet.is_holding() || !locked.is_in_lockstep() && is_waiting()
}

/// How far away the earliest deadline is, if nothing is in flight.
pub fn far_deadline(locked: &LockedNodes<'_>) -> Option<Duration> {
    if locked.has_pending()
        || locked.common.network.frames.is_holding()
        || locked.common.ethernet.is_holding()
    {
        return None;
    }
    let (deadline, _) = deadlines(locked).min()?;
    Some(wall_until(locked, deadline))
}

/// The earliest deadline of each card whose model time is not paused, with its node.
fn deadlines<'n>(locked: &'n LockedNodes<'_>) -> impl Iterator<Item = (Time, usize)> + 'n {
    let deadlines =
        locked.nodes.cards().filter_map(|(node, card)| Some((card.nic.poll_timeout()?, node, card)));
    let passing = deadlines.filter(|(_, node, card)| !locked.is_time_paused(*node, card));
    passing.map(|(deadline, node, _)| (deadline, node))
}

/// The model time until a deadline, as wall time.
fn wall_until(locked: &LockedNodes<'_>, deadline: Time) -> Duration {
    Duration::from_nanos(deadline.since(locked.model_time()).as_ps() / 1_000)
}

/// Other nodes are busy all the time. Fires deadlines that have not changed for as long as they are away, and delivers
/// frames that faults had delayed at the previous check, which was `since` ago. True if there were any.
pub fn pass_starved(locked: &mut LockedNodes<'_>, unchanged: &mut Unchanged, since: Duration) -> bool {
    if locked.is_in_lockstep() {
        unchanged.deadlines.clear();
        return false;
    }
    let mut any = release_starved(locked);
    let before = std::mem::take(&mut unchanged.deadlines);
    let mut now: Vec<_> = deadlines(locked).collect();
    now.sort_unstable();
    for (deadline, node) in now {
        let same = before.get(&node).filter(|(earlier, _)| *earlier == deadline);
        let waited = same.map_or(Duration::ZERO, |(_, waited)| *waited + since);
        if waited.is_zero() || waited < wall_until(locked, deadline) {
            unchanged.deadlines.insert(node, (deadline, waited));
        } else if locked.nodes.card(node).and_then(|card| card.nic.poll_timeout()) == Some(deadline) {
            // No deadline that fired before has cancelled this one.
            expire(locked, node, deadline);
            any = true;
        }
    }
    any
}

/// Delivers frames that faults had delayed at the previous check. True if there were any.
fn release_starved(locked: &mut LockedNodes<'_>) -> bool {
    let any = locked.common.network.frames.release_starved();
    // What is in flight already may cancel deadlines.
    if locked.has_pending() {
        locked.common.budget = Budget::FULL;
        run_until_idle(locked, 0);
        pages::serve_stalled(locked);
    }
    locked.common.ethernet.still_holds() && ethernet_function::release_delayed(locked) || any
}

/// The fabric was idle: delivers delayed frames, or else fires the earliest deadline of all models. Nothing is in
/// flight that could precede it.
pub fn pass_time(locked: &mut LockedNodes<'_>) {
    locked.common.budget = Budget::FULL;
    if !locked.has_pending() && !locked.common.network.frames.release_all() {
        let Some((deadline, node)) = deadlines(locked).min() else { return };
        return expire(locked, node, deadline);
    }
    run_until_idle(locked, 0);
    pages::serve_stalled(locked);
}

/// Fires a deadline of a card. Wall time decides that it fires before what others may still do.
pub fn expire(locked: &mut LockedNodes<'_>, node: usize, deadline: Time) {
    locked.common.budget = Budget::FULL;
    if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
        card.expire(deadline, bus);
    }
    outputs::drain(locked, node);
    run_until_idle(locked, 0);
    pages::serve_stalled(locked);
}
