//! The fast path of a message: from the sender's slot into the receiver's memory in one pass.
//!
//! The models, the links and the ledgers compute the same with the same functions on both paths. The fast path omits
//! the encoded frame ([`niclab_model::nic::packet`]) and the queues between the steps.
//!
//! [`is_clear`] checks once for each poll of a node's pages what excludes the fast path. [`run`] checks for each
//! message that the network is idle. Status lines and returned credits are packets and stores as well. What else a
//! message causes at its receiver (an acknowledgement, an interrupt) takes the slow path, which polls it out of the
//! same effect queue. Equal posts go together ([`super::batch`]). `tests` compares nodes with and without the fast
//! path.

#[cfg(test)]
mod tests;

use niclab_model::nic::Input;

use super::{outputs, run_until_idle};
use crate::shell::budget::frame_ns;
use crate::shell::card::Card;
use crate::shell::locks::{Common, LockedNodes};
use crate::shell::node::Node;

/// Whether nothing excludes the fast path for messages that are posted now. That holds while a thread takes slots: it
/// keeps the locks, and cards on the fast path have no pending work.
pub fn is_clear(locked: &LockedNodes<'_>) -> bool {
    !locked.is_in_lockstep()
        && !locked.common.has_device_faults
        && !locked.common.has_deferred
        && !locked.common.network.taps.is_any()
        && !locked.common.network.is_any_faulty()
        && locked.next_work().is_none()
}

/// Applies the outputs of the model of `node`, and everything that follows on every node: on the fast path as far as
/// possible, and otherwise by [`run_until_idle`]. `is_clear` is the result of [`is_clear`].
#[inline]
pub fn run(locked: &mut LockedNodes<'_>, node: usize, is_clear: bool) {
    let is_clear = is_clear && !locked.needs_more_locks() && locked.common.network.frames.is_idle();
    if !is_clear || !try_run(locked, node) {
        run_until_idle(locked, node);
    }
}

/// Carries the packets of the model of `from` to their receivers, which join a lock domain as needed. False when
/// something is left for the slow path.
#[inline]
fn try_run(locked: &mut LockedNodes<'_>, from: usize) -> bool {
    let Some(sender) = locked.nodes.get_mut(from).filter(|sender| sender.unsent.is_empty()) else {
        return false;
    };
    locked.common.budget.spend_work(sender.card.take_work());
    loop {
        let Some(sender) = locked.nodes.get_mut(from) else { return false };
        let Some(effect_queue) = sender.card.nic.effect_queue() else { return false };
        let Some(packet) = effect_queue.packet() else {
            if !sender.card.inline_write(&mut locked.common.latest) {
                return sender.card.nic.effect_queue().is_some_and(|queue| queue.is_empty());
            }
            continue;
        };
        let to = usize::from(packet.to);
        // The slow path records which lock is missing.
        if locked.common.is_domain && !locked.has_joined(to) {
            return false;
        }
        // Not to the sender itself, nor to a node that does not exist.
        let Some((sender, receiver)) = locked.nodes.pair(from, to) else { return false };
        let is_stopped = receiver.card.host.state.is_stopped();
        if !receiver.unsent.is_empty() || is_stopped || receiver.card.nic.effect_queue().is_none() {
            return false;
        }
        match carry(sender, receiver, &mut locked.common) {
            Rest::None => return true,
            Rest::Sender => {}
            Rest::Receiver => {
                // The receiver's other outputs precede the sender's. They are rare.
                outputs::drain_to_network(locked, to, None);
                return false;
            }
        }
    }
}

/// Which card has outputs left after a packet.
enum Rest {
    None,
    Sender,
    Receiver,
}

/// Carries the first packet of the sender's model over the links, into the receiver's model and memory.
#[inline]
fn carry(sender: &mut Node, receiver: &mut Node, common: &mut Common) -> Rest {
    let Card { nic, counts, .. } = &mut sender.card;
    let Some(effect_queue) = nic.effect_queue() else { return Rest::None };
    let mut is_receiver_done = true;
    if let Some(packet) = effect_queue.packet() {
        counts.fast_path += 1;
        counts.traffic.sent_frames += 1;
        counts.traffic.sent_bytes += packet.bytes as u64;
        common.latest = common.latest.max(packet.ready.head);
        if let Some(passage) = common.network.pass(&mut sender.port, &mut receiver.port, packet) {
            common.budget.spend(frame_ns(packet.bytes));
            common.activity += 1;
            let Node { card, bus, .. } = receiver;
            let input = Input::InlinePacket { packet, head: passage.head };
            card.arrive(passage.tail, packet.bytes, packet.message, input, bus);
            common.budget.spend_work(card.take_work());
            while card.inline_write(&mut common.latest) {}
            is_receiver_done = card.nic.effect_queue().is_none_or(|queue| queue.is_empty());
        }
    }
    effect_queue.clear_first();
    match (is_receiver_done, effect_queue.is_empty()) {
        (false, _) => Rest::Receiver,
        (true, false) => Rest::Sender,
        (true, true) => Rest::None,
    }
}
