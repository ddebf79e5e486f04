//! What the monitor and tests set for nodes: faults of links and cards, and borrowed payload.

use niclab_model::nic::fault_injector::{FaultInjector, FaultyNic};
use niclab_spec::{DeviceFaults, Faults};

use super::card::host_port::HostPort;
use super::locks::LockedNodes;

/// Sets the faults of the link of `node`. False when there is no such node.
pub fn set_link_faults(locked: &mut LockedNodes<'_>, node: u16, faults: &Faults) -> bool {
    let Some(port) = locked.nodes.get_mut(node.into()).map(|node| &mut node.port) else { return false };
    locked.common.network.set_faults(node, faults, port);
    true
}

/// Takes the link of `node` up or down.
pub fn set_link_up(locked: &mut LockedNodes<'_>, node: usize, is_up: bool) {
    if let Some(node) = locked.nodes.get_mut(node) {
        node.port.set_link_up(is_up);
    }
}

/// Sets the faults of the card of `node`. A card that never had a fault has no fault injector.
pub fn set_device_faults(locked: &mut LockedNodes<'_>, node: usize, faults: &DeviceFaults) {
    let Some(card) = locked.nodes.card_mut(node) else { return };
    card.device_faults.clone_from(faults);
    let rates = niclab_assembly::device_faults(faults);
    if let Some(fault_injector) = card.nic.fault_injector_mut() {
        fault_injector.set_rates(rates);
    } else if !faults.is_none() {
        let fault_injector = FaultInjector::new(rates, locked.common.seed, node as u16)
            .with_host_values(card.host_values, card.limits);
        card.wrap_nic(|nic| Box::new(FaultyNic::new(nic, fault_injector)));
        locked.common.has_device_faults = true;
    }
}

/// Lets frames go in batches and borrow guest memory, as they do by default, or not: for comparison.
pub fn set_fast_path(locked: &mut LockedNodes<'_>, is_on: bool) {
    locked.common.goes_alone = !is_on;
}

/// Frames so far with borrowed payload.
pub fn borrowed_frames(locked: &LockedNodes<'_>) -> u64 {
    locked.nodes.iter().map(|(_, node)| node.borrowed_frames).sum()
}

/// Checks the pages of all nodes for posts without a doorbell, and takes none. Only nodes with rules are checked.
pub fn peek_rules(locked: &mut LockedNodes<'_>) {
    for (_, node) in locked.nodes.iter_mut() {
        let HostPort { rule_check, pages, vrings, .. } = &mut node.card.host;
        rule_check.rules.iter_mut().for_each(|rules| rules.peek(pages, vrings));
    }
}

/// Checks the memory of all nodes that guests must not touch. Only nodes with rules are checked.
pub fn check_memory(locked: &mut LockedNodes<'_>) {
    locked.nodes.iter_mut().for_each(|(_, node)| node.card.host.check_memory());
}
