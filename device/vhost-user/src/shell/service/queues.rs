//! The control queue, the descriptor queues and the event queue.

use niclab_model::nic::{DescriptorQueue, Input};

use super::adversarial;
use crate::shell::budget::{Budget, REQUEST_NS};
use crate::shell::dispatch::{outputs, pages, run_until_idle};
use crate::shell::locks::LockedNodes;
use crate::shell::lockstep;

/// Serves the control queue of `node`. True when there may be more.
///
/// This does not resume what other threads left in flight: those threads return for it, and a request must not wait for
/// their budgets.
pub fn serve_control(locked: &mut LockedNodes<'_>, node: usize) -> bool {
    let was_pending = locked.has_pending();
    locked.common.budget = Budget::FULL;
    pages::serve_ports(locked, node);
    let mut more = locked.common.budget.is_spent();
    // A guest may keep its queue full, or full of chains that cannot be answered: it gets one budget for that.
    locked.common.budget = Budget::FULL;
    while locked.nodes.card(node).is_some_and(|card| card.host.has_request()) {
        // What was posted before a request is sent before the request takes effect. The program may have posted, and
        // the driver requested, since the poll above.
        pages::serve_ports(locked, node);
        let taken = locked.nodes.card_and_bus(node).is_some_and(|(card, bus)| card.next_request(bus));
        outputs::drain(locked, node);
        locked.common.budget.spend(REQUEST_NS);
        if !taken {
            break;
        }
        if locked.common.budget.is_spent() || adversarial::leaves_requests(locked, node) {
            more = true;
            break;
        }
    }
    // With its first request a driver shows that it handles interrupts.
    report_link(locked, node);
    if !was_pending {
        run_until_idle(locked, node);
    }
    pages::serve_stalled(locked);
    // A program that closed its port no longer takes part in lockstep.
    more |= lockstep::serve(locked, node) == Some(true);
    more || !was_pending && locked.has_pending()
}

/// The driver of `node` has notified a descriptor queue. True when there may be more.
pub fn serve_descriptors(locked: &mut LockedNodes<'_>, node: usize, queue: DescriptorQueue) -> bool {
    locked.common.budget = Budget::FULL;
    // What was posted before is sent before.
    pages::serve_ports(locked, node);
    if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
        let takes_any = card.nic.descriptors_wanted(queue).is_some();
        if !card.host.state.is_stopped() {
            card.order.acts_at(bus.clock());
            card.nic.handle(bus.clock(), Input::PollDemand { queue }, bus);
        }
        locked.common.has_descriptors |= takes_any;
    }
    outputs::drain(locked, node);
    run_until_idle(locked, node);
    pages::serve_stalled(locked);
    locked.common.budget.is_spent() || locked.common.network.frames.is_moving()
}

/// The driver of `node` has added buffers to its event queue.
pub fn serve_events(locked: &mut LockedNodes<'_>, node: usize) {
    if let Some(card) = locked.nodes.card_mut(node) {
        card.host.deliver_events(card.nic.fault_injector_mut());
    }
    report_link(locked, node);
}

/// Notifies the driver of `node` if its link was cut or restored, and its card has MAC endpoints.
pub fn report_link(locked: &mut LockedNodes<'_>, node: usize) {
    let is_cut = locked.common.network.faults().get(node).is_some_and(|faults| faults.partition);
    if let Some(card) = locked.nodes.card_mut(node) {
        card.report_link(is_cut);
    }
}
