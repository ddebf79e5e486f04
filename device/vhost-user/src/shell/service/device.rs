//! Reset, stop and start of a device ([`crate::shell::card::stopped`]).

use niclab_model::fabric::Delivery;

use crate::shell::budget::Budget;
use crate::shell::card::stopped::{HeldFrame, Stopped};
use crate::shell::card_frame::CardFrame;
use crate::shell::dispatch::{outputs, pages, run_until_idle};
use crate::shell::locks::LockedNodes;
use crate::shell::lockstep;

/// The front end of `node` stops the device: its card does nothing until [`start`] or [`reset`]. False when the driver
/// has not used the device yet, so that there is nothing to keep.
pub fn stop(locked: &mut LockedNodes<'_>, node: usize) -> bool {
    let Some(card) = locked.nodes.card_mut(node) else { return false };
    if card.host.state.stopped.is_some() {
        return true;
    }
    if !card.host.state.is_running {
        return false;
    }
    // The last check before the guest may use the memory of its ports for something else.
    card.host.check_memory();
    card.host.state.is_running = false;
    card.host.state.stopped = Some(Box::default());
    locked.common.activity += 1;
    true
}

/// The device of `node` continues where it stopped. Frames that arrived meanwhile may still be in flight: see
/// [`crate::shell::dispatch::resume`].
pub fn start(locked: &mut LockedNodes<'_>, node: usize) {
    let Some(card) = locked.nodes.card_mut(node) else { return };
    let Some(stopped) = card.host.state.stopped.take() else { return };
    card.host.state.is_running = true;
    // A doorbell of before the stop may be lost.
    card.host.on_doorbell();
    locked.common.activity += 1;
    locked.common.budget = Budget::FULL;
    release_held(locked, node, *stopped);
    run_until_idle(locked, node);
    pages::serve_stalled(locked);
    lockstep::serve(locked, node);
}

/// The host of `node` is gone, or resets its device. What other nodes had in flight may still be so: see
/// [`crate::shell::dispatch::resume`].
pub fn reset(locked: &mut LockedNodes<'_>, node: usize) {
    let stopped = locked.nodes.card_mut(node).and_then(|card| card.host.state.stopped.take());
    outputs::fail_deferred_reads(locked, node);
    let Some((card, bus)) = locked.nodes.card_and_bus(node) else { return };
    let was_stalled = card.is_stalled;
    card.reset(bus, stopped.is_some());
    locked.common.activity += 1;
    locked.common.stalled -= usize::from(was_stalled);
    locked.common.budget = Budget::FULL;
    stopped.into_iter().for_each(|stopped| release_held(locked, node, *stopped));
    run_until_idle(locked, node);
    pages::serve_stalled(locked);
    lockstep::serve(locked, node);
}

/// Sends the held frames of `node` on their last step.
fn release_held(locked: &mut LockedNodes<'_>, node: usize, stopped: Stopped) {
    let (frames, dropped) = stopped.into_frames();
    if dropped > 0 {
        log::warn!("node {node}: its device was stopped; {dropped} frames found no room and were dropped");
    }
    for HeldFrame { passage, frame, message, class } in frames {
        let delivery = Delivery { to: node as u16, head: passage.head, at: passage.tail, corrupt: None };
        locked.common.network.push(&delivery, CardFrame::Owned(frame), message, class, false);
    }
}
