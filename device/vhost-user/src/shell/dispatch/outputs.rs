//! Applies the outputs of models: frames go to the network, stores and interrupts to the host.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::{FrameBytes, HostRanges, Input, Output};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use super::{deliver, deliver_borrowed, spend_work};
use crate::shell::budget::READ_NS;
use crate::shell::card::Card;
use crate::shell::lent::{Carried, LentFrame, Loan};
use crate::shell::locks::LockedNodes;
use crate::shell::node::Node;

/// A frame that a card sends: when it is ready, and the message that it carries.
pub type Sent = (Passage, Carried, Option<TraceTag>);

/// Applies all outputs of the model of `node`. A frame that finds the network empty arrives immediately, and what it
/// causes is in flight afterwards.
#[inline]
pub fn drain(locked: &mut LockedNodes<'_>, node: usize) {
    drain_with(locked, node, None);
}

/// Applies all outputs of the model of `node`, which has received a frame with this borrowed payload.
#[inline]
pub fn drain_with(locked: &mut LockedNodes<'_>, node: usize, borrowed: Option<&LentFrame>) {
    spend_work(locked, node);
    while let Some(output) = locked.next_output(node) {
        if locked.waits_for_budget(&output, borrowed.is_some()) {
            return locked.defer(node, output);
        }
        if let Output::LentFrame { at, tail, head, message } = output {
            send_borrowed(locked, node, Passage { head: at, tail }, head, message);
            continue;
        }
        // By reference: an output is long, and moving it costs.
        let Output::Frame { at: head, tail, ref frame, message } = output else {
            apply(locked, node, output, borrowed);
            continue;
        };
        let (ready, concern) = (Passage { head, tail }, Concern::of(frame));
        let needed_more = locked.needs_more_locks();
        if !locked.can_send(frame, concern) {
            locked.set_aside(node, output, needed_more);
            continue;
        }
        count_sent(locked, node, head, frame.len());
        if let Some(delivery) =
            locked.common.network.send(&mut locked.nodes, ready, node as u16, frame, message, concern)
        {
            let to = usize::from(delivery.to);
            let passage = Passage { head: delivery.head, tail: delivery.at };
            deliver(locked, to, passage, frame, message, concern);
            drain_to_network(locked, to, None);
        }
    }
}

/// Sends a frame with this head and the payload that was borrowed last. If it arrives immediately, applies what it
/// causes.
#[inline]
fn send_borrowed(
    locked: &mut LockedNodes<'_>,
    node: usize,
    ready: Passage,
    head: FrameBytes,
    message: Option<TraceTag>,
) {
    let Some(loan) = locked.common.loan.take() else {
        debug_assert!(false, "the model sent a borrowed frame without a loan");
        return;
    };
    let frame = loan.behind(head);
    let needed_more = locked.needs_more_locks();
    let way = locked.common.network.known_way(frame.head().bytes);
    if !locked.can_send_to(way) {
        let Passage { head: at, tail } = ready;
        let frame = Output::Frame { at, tail, frame: frame.into_owned(), message };
        return locked.set_aside(node, frame, needed_more);
    }
    count_sent(locked, node, ready.head, frame.frame_bytes());
    if let Some((delivery, frame)) =
        locked.common.network.send_lent(&mut locked.nodes, ready, node as u16, frame, way, message)
    {
        let to = usize::from(delivery.to);
        let passage = Passage { head: delivery.head, tail: delivery.at };
        deliver_borrowed(locked, to, passage, &frame, message);
        drain_to_network(locked, to, Some(&frame));
    }
}

/// Applies all outputs of the model of `to`, which has received a frame. Frames that it sends stay in flight.
#[inline]
pub fn drain_to_network(locked: &mut LockedNodes<'_>, to: usize, borrowed: Option<&LentFrame>) {
    spend_work(locked, to);
    while let Some(output) = locked.next_output(to) {
        if locked.waits_for_budget(&output, borrowed.is_some()) {
            return locked.defer(to, output);
        }
        let needed_more = locked.needs_more_locks();
        let can_send = match &output {
            Output::Frame { frame, .. } => locked.can_send(frame, Concern::of(frame)),
            Output::LentFrame { head, .. } => locked.can_send(head, Concern::Card),
            _ => true,
        };
        if !can_send {
            locked.set_aside(to, output, needed_more);
        } else if let Some((ready, frame, message)) = apply(locked, to, output, borrowed) {
            locked.common.network.keep(&mut locked.nodes, ready, to as u16, frame, message);
        }
    }
}

/// Counts a frame that the card of `node` sends.
#[inline]
fn count_sent(locked: &mut LockedNodes<'_>, node: usize, at: Time, frame_bytes: usize) {
    locked.common.latest = locked.common.latest.max(at);
    if let Some(card) = locked.nodes.card_mut(node) {
        card.counts.traffic.sent_frames += 1;
        card.counts.traffic.sent_bytes += frame_bytes as u64;
    }
}

/// Applies one output of a model, which may have received a frame with this borrowed payload. Returns a frame that the
/// model sends.
#[inline]
pub fn apply(
    locked: &mut LockedNodes<'_>,
    node: usize,
    output: Output,
    borrowed: Option<&LentFrame>,
) -> Option<Sent> {
    locked.common.latest = locked.common.latest.max(output.at());
    let is_intact = !locked.common.has_device_faults && !locked.common.is_adversarial;
    let may_borrow = locked.common.may_borrow && is_intact && locked.common.network.may_lend();
    let is_read = matches!(output, Output::DmaRead { .. } | Output::WindowRead { .. });
    let Node { card, bus, lent_frames, .. } = locked.nodes.get_mut(node)?;
    match output {
        Output::DmaWrite { address, words, .. } => card.host.write(address, &words),
        Output::Frame { at: head, tail, frame, message } => {
            count_sent(locked, node, head, frame.len());
            return Some((Passage { head, tail }, Carried::Whole(frame), message));
        }
        Output::LentFrame { at: head, tail, head: first, message } => {
            let frame = locked.common.loan.take()?.behind(first);
            count_sent(locked, node, head, frame.frame_bytes());
            return Some((Passage { head, tail }, Carried::Lent(frame), message));
        }
        Output::DmaFrame { frame, bytes, ranges, .. } => {
            card.host.store_bytes(frame.get(bytes).unwrap_or_default(), &ranges);
        }
        Output::DmaLent { bytes, ranges, .. } => {
            if let Some(borrowed) = borrowed {
                card.host.store_borrowed(borrowed, &bytes, &ranges);
            } else {
                debug_assert!(false, "the model stores a borrowed payload that it did not receive");
            }
        }
        Output::DmaRead { at, token, ranges, into, .. } => {
            let loan = if may_borrow { borrow(card, &ranges, &into) } else { None };
            if loan.is_some() {
                card.nic.handle(at, Input::Lent { token, into }, bus);
                locked.common.loan = loan;
                *lent_frames += 1;
            } else {
                let mut bytes = into;
                let is_whole = card.host.load(&ranges, &mut bytes);
                card.nic.handle(at, Input::DmaData { token, bytes, is_whole }, bus);
            }
        }
        Output::WindowRead { at, token, range, into, .. } => {
            let mut bytes = into;
            let is_whole = card.host.pages.bar.append(&range, &mut bytes);
            card.nic.handle(at, Input::DmaData { token, bytes, is_whole }, bus);
        }
        Output::Interrupt { cause, port, .. } => card.host.raise(cause, port, card.nic.fault_injector_mut()),
        Output::Complete { token, bytes, .. } => card.host.complete(token, bytes),
        Output::Reply { token, bytes, .. } => card.host.reply(token, &bytes, card.nic.fault_injector_mut()),
    }
    if is_read {
        // What a card reads may make it read again, with no frame in between: a guest's ring may have no end.
        locked.common.budget.spend(READ_NS);
        spend_work(locked, node);
    }
    None
}

/// Borrows the guest memory that a model wants to append to a frame's head, if the model accepts that. The head comes
/// first: words that a model reads alone are copied.
#[inline]
fn borrow(card: &Card, ranges: &HostRanges, head: &FrameBytes) -> Option<Loan> {
    let finish = card.nic.lends().filter(|_| card.host.state.is_running && !head.is_empty())?;
    Loan::new(&card.host.memory, ranges, finish)
}

/// Fails the deferred reads of a node whose host is gone, because its memory is no longer read. A model ends the
/// message of a failed read, and may begin as many more as its ports have messages.
pub fn fail_deferred_reads(locked: &mut LockedNodes<'_>, node: usize) {
    if locked.nodes.get(node).is_none_or(|node| node.unsent.is_empty()) {
        return;
    }
    while let Some(output) = locked.next_output(node) {
        let (at, token, bytes) = match output {
            Output::DmaRead { at, token, into, .. } | Output::WindowRead { at, token, into, .. } => {
                (at, token, into)
            }
            other => {
                if let Some((ready, frame, message)) = apply(locked, node, other, None) {
                    locked.common.network.keep(&mut locked.nodes, ready, node as u16, frame, message);
                }
                continue;
            }
        };
        if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
            card.nic.handle(at, Input::DmaData { token, bytes, is_whole: false }, bus);
        }
    }
}
