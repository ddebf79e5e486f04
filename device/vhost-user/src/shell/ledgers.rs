//! All ledgers of a cluster: of cards, of peer devices on nodes' buses, of links and of Ethernet functions.

use niclab_model::platform::ledger::Ledger;

use super::locks::LockedNodes;

/// Turns all ledgers on, as they are by default, or off, to measure what they cost.
pub fn set_on(locked: &mut LockedNodes<'_>, is_on: bool) {
    for_each(locked, |ledger| ledger.set_on(is_on));
}

/// Visits every ledger.
pub fn for_each(locked: &mut LockedNodes<'_>, mut visit: impl FnMut(&mut Ledger)) {
    for (_, node) in locked.nodes.iter_mut() {
        visit(node.card.nic.ledger_mut());
        node.card.nic.peripheral_ledgers_mut().into_iter().for_each(&mut visit);
        visit(node.port.ledger_mut());
    }
    locked.common.ethernet.states.iter_mut().for_each(|state| visit(state.nic.ledger_mut()));
}

/// A measurement begins: all hosts begin at the same instant of model time, when everything before it is complete, and
/// latencies are counted from zero.
pub fn begin_measurement(locked: &mut LockedNodes<'_>) {
    let begin = locked.model_time();
    for (_, node) in locked.nodes.iter_mut() {
        node.bus.wait_until(begin);
        node.card.order.begin();
        node.card.nic.begin_part(begin);
    }
    for_each(locked, Ledger::restart_latency);
}
