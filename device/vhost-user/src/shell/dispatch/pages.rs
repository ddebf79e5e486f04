//! Takes posted slots, registers and descriptors, and feeds them to models.

use niclab_model::nic::DescriptorQueue;

use super::{batch, run_until_idle};
use crate::shell::budget::{LAUNCH_NS, REQUEST_NS};
use crate::shell::card::Card;
use crate::shell::locks::LockedNodes;

/// Serves all ports of `node`. Returns the number of slots and registers that it took.
#[inline]
pub fn serve_ports(locked: &mut LockedNodes<'_>, node: usize) -> u32 {
    serve_ports_from(locked, node, 0, u32::MAX)
}

/// Serves all ports of `node`, beginning with port `first`, and takes at most `max_slots` of each.
#[inline]
pub fn serve_ports_from(locked: &mut LockedNodes<'_>, node: usize, first: u32, max_slots: u32) -> u32 {
    let mut work = 0;
    if locked.is_in_lockstep() {
        return work;
    }
    let Some(card) = locked.nodes.card_mut(node).filter(|card| !card.host.state.is_stopped()) else {
        return work;
    };
    if let Some(rules) = &mut card.host.rule_check.rules {
        rules.on_doorbells(&card.host.pages, &card.host.vrings);
    }
    let ports = card.ports();
    for port in (first..ports).chain(0..first) {
        let open = locked.nodes.card_and_bus(node).filter(|(card, _)| card.is_open(port));
        let Some((card, bus)) = open else { continue };
        if card.host.pages.has_registers(port) && card.registers(port, bus) {
            work += 1;
            run_until_idle(locked, node);
        }
        work += serve_port(locked, node, port, max_slots);
    }
    locked.common.activity += u64::from(work);
    work
}

/// Takes posted slots of one port while its model accepts them, at most `max_slots`. Returns their number.
#[inline]
fn serve_port(locked: &mut LockedNodes<'_>, node: usize, port: u32, max_slots: u32) -> u32 {
    let (mut taken, mut clear) = (0, None);
    while !locked.common.budget.is_spent() {
        let Some(card) = locked.nodes.card_mut(node) else { break };
        if !card.nic.accepts_store(port) {
            if !card.is_stalled && card.host.pages.is_launched(port) {
                card.is_stalled = true;
                locked.common.stalled += 1;
            }
            break;
        }
        if taken >= max_slots {
            break;
        }
        let batched = batch::try_run(locked, node, port, max_slots - taken, &mut clear);
        if batched > 0 {
            taken += batched;
            continue;
        }
        let Some(card) = locked.nodes.card_mut(node) else { break };
        let Some(launch) = card.take(port) else { break };
        let has_registers = card.host.pages.has_registers(port);
        // The program stored these registers before it posted the slot.
        if has_registers
            && let Some((card, bus)) = locked.nodes.card_and_bus(node)
            && card.registers(port, bus)
        {
            run_until_idle(locked, node);
        }
        locked.common.budget.spend(LAUNCH_NS);
        taken += 1;
        let Some((card, bus)) = locked.nodes.card_and_bus(node) else { break };
        card.store(launch, bus);
        run_until_idle(locked, node);
    }
    taken
}

/// Takes the posted slots and descriptors that models did not accept before, and accept now.
pub fn serve_stalled(locked: &mut LockedNodes<'_>) {
    let mut progress = true;
    while (locked.common.stalled > 0 || locked.common.has_descriptors)
        && progress
        && !locked.common.budget.is_spent()
    {
        progress = locked.common.has_descriptors && take_descriptors(locked);
        for node in 0..locked.nodes.len() {
            let is_due = |card: &&mut Card| card.is_stalled && !card.host.state.is_stopped();
            let Some(card) = locked.nodes.card_mut(node).filter(is_due) else { continue };
            card.is_stalled = false;
            locked.common.stalled -= 1;
            for port in (0..card.ports()).collect::<smallvec::SmallVec<[u32; 8]>>() {
                if locked.nodes.card(node).is_some_and(|card| card.is_open(port)) {
                    progress |= serve_port(locked, node, port, u32::MAX) > 0;
                }
            }
        }
    }
}

/// Takes chains out of all descriptor queues while models want some. A guest may keep its queue full, or full of
/// invalid chains: it gets one budget for that.
fn take_descriptors(locked: &mut LockedNodes<'_>) -> bool {
    let mut any = false;
    for node in 0..locked.nodes.len() {
        for queue in DescriptorQueue::ALL {
            while !locked.common.budget.is_spent()
                && locked.nodes.card_and_bus(node).is_some_and(|(card, bus)| card.next_descriptor(queue, bus))
            {
                any = true;
                locked.common.activity += 1;
                locked.common.budget.spend(REQUEST_NS);
                run_until_idle(locked, node);
            }
        }
    }
    any
}
