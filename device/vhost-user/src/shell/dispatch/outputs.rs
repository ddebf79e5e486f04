//! Applies the outputs of models: frames go to the network, stores and interrupts to the host.

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::{FrameBytes, HostRanges, Input, Output};
use niclab_model::time::Passage;

use super::{deliver, spend_work};
use crate::shell::budget::READ_NS;
use crate::shell::card::Card;
use crate::shell::card_frame::{CardFrame, Loan, SentFrame};
use crate::shell::locks::{Common, LockedNodes};
use crate::shell::node::Node;

/// Applies all outputs of the model of `node`. A frame that finds the network empty arrives immediately, and what it
/// causes is in flight afterwards.
#[inline]
pub fn drain(locked: &mut LockedNodes<'_>, node: usize) {
    drain_with(locked, node, None);
}

/// Applies all outputs of the model of `node`, which may have received this frame.
#[inline]
pub fn drain_with(locked: &mut LockedNodes<'_>, node: usize, received: Option<&CardFrame>) {
    spend_work(locked, node);
    while let Some(output) = next_output(locked, node, received) {
        let Some(sent) = apply(locked, node, output, received) else { continue };
        let SentFrame { message, class, .. } = sent;
        if let Some((delivery, frame)) = locked.common.network.send(&mut locked.nodes, node as u16, sent) {
            let to = usize::from(delivery.to);
            let passage = Passage { head: delivery.head, tail: delivery.at };
            deliver(locked, to, passage, &frame, message, class);
            drain_to_network(locked, to, Some(&frame));
        }
    }
}

/// Applies all outputs of the model of `node`, which may have received this frame. Frames that it sends stay in flight.
#[inline]
pub fn drain_to_network(locked: &mut LockedNodes<'_>, node: usize, received: Option<&CardFrame>) {
    spend_work(locked, node);
    while let Some(output) = next_output(locked, node, received) {
        if let Some(sent) = apply(locked, node, output, received) {
            locked.common.network.keep(&mut locked.nodes, node as u16, sent);
        }
    }
}

/// The next output of the model of `node`, unless that waits for the next budget.
#[inline]
fn next_output(locked: &mut LockedNodes<'_>, node: usize, received: Option<&CardFrame>) -> Option<Output> {
    let output = locked.next_output(node)?;
    if locked.waits_for_budget(&output, matches!(received, Some(CardFrame::Borrowed(_)))) {
        locked.defer(node, output);
        return None;
    }
    Some(output)
}

/// Applies one output of a model, which may have received this frame. Returns a frame that the model sends, unless its
/// domain lacks a lock.
#[inline]
pub fn apply(
    locked: &mut LockedNodes<'_>,
    node: usize,
    output: Output,
    received: Option<&CardFrame>,
) -> Option<SentFrame> {
    locked.common.latest = locked.common.latest.max(output.at());
    let is_read = matches!(output, Output::DmaRead { .. } | Output::WindowRead { .. });
    let Node { card, bus, borrowed_frames, .. } = locked.nodes.get_mut(node)?;
    match output {
        Output::Frame { at: head, tail, frame, message } => {
            let (ready, class) = (Passage { head, tail }, FrameClass::of(&frame));
            let sent = SentFrame { ready, frame: CardFrame::Owned(frame), message, class };
            return ready_to_send(locked, node, sent);
        }
        Output::BorrowedFrame { at: head, tail, head: first, message } => {
            let Some(loan) = locked.common.loan.take() else {
                debug_assert!(false, "the model sent a borrowed frame without a loan");
                return None;
            };
            let frame = loan.behind(first);
            let sent = SentFrame { ready: Passage { head, tail }, frame, message, class: FrameClass::Card };
            return ready_to_send(locked, node, sent);
        }
        Output::DmaWrite { address, words, .. } => {
            card.host.write(address, &words);
        }
        Output::DmaFrame { frame, bytes, ranges, .. } => {
            card.host.store_bytes(frame.get(bytes).unwrap_or_default(), &ranges);
        }
        Output::DmaBorrowed { bytes, ranges, .. } => {
            if let Some(CardFrame::Borrowed(frame)) = received {
                card.host.store_borrowed(frame, &bytes, &ranges);
            } else {
                debug_assert!(false, "the model stores a borrowed payload that it did not receive");
            }
        }
        Output::DmaRead { at, token, ranges, into, .. } => {
            let Common { network, may_borrow, has_device_faults, is_adversarial, .. } = &*locked.common;
            let may_borrow = *may_borrow && !has_device_faults && !is_adversarial && network.may_borrow();
            let loan = if may_borrow { borrow(card, &ranges, &into) } else { None };
            if loan.is_some() {
                card.nic.handle(at, Input::Borrowed { token, into }, bus);
                locked.common.loan = loan;
                *borrowed_frames += 1;
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
        Output::Interrupt { cause, port, .. } => {
            card.host.raise(cause, port, card.nic.fault_injector_mut());
        }
        Output::Complete { token, bytes, .. } => {
            card.host.complete(token, bytes);
        }
        Output::Reply { token, bytes, .. } => {
            card.host.reply(token, &bytes, card.nic.fault_injector_mut());
        }
    }
    if is_read {
        // What a card reads may make it read again, with no frame in between: a guest's ring may have no end.
        locked.common.budget.spend(READ_NS);
        spend_work(locked, node);
    }
    None
}

/// The frame, counted as sent, if its destination is locked or joins the domain. Otherwise the frame waits with its
/// sender.
#[inline]
fn ready_to_send(locked: &mut LockedNodes<'_>, node: usize, sent: SentFrame) -> Option<SentFrame> {
    let needed_more = locked.needs_more_locks();
    if !locked.can_send(sent.frame.head().bytes, sent.class) {
        locked.set_aside(node, sent, needed_more);
        return None;
    }
    let traffic = &mut locked.nodes.card_mut(node)?.counts.traffic;
    traffic.sent_frames += 1;
    traffic.sent_bytes += sent.frame.head().frame_bytes as u64;
    Some(sent)
}

/// Borrows the guest memory that a model wants to append to a frame's head, if the model accepts that. The head comes
/// first: words that a model reads alone are copied.
#[inline]
fn borrow(card: &Card, ranges: &HostRanges, head: &FrameBytes) -> Option<Loan> {
    let finish = card.nic.borrows().filter(|_| card.host.state.is_running && !head.is_empty())?;
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
                if let Some(sent) = apply(locked, node, other, None) {
                    locked.common.network.keep(&mut locked.nodes, node as u16, sent);
                }
                continue;
            }
        };
        if let Some((card, bus)) = locked.nodes.card_and_bus(node) {
            card.nic.handle(at, Input::DmaData { token, bytes, is_whole: false }, bus);
        }
    }
}
