//! Several threads, each with one partition of the nodes.
//!
//! All partitions process the same phase of the [`queue`](crate::queue) at the same time. In a phase no node affects a
//! node of another partition. Afterwards the partitions exchange frames and messages. Threads share no state: they pass
//! partitions to each other, and a partition contains all state that its thread needs.
//!
//! The result does not depend on the number of threads. Events of a node or lane are ordered by their key (node, time,
//! arrivals first, cause). Events with the same key have the same cause, and so come from one partition. They keep the
//! order in which that partition made them.
//!
//! Some decisions depend on what all nodes have done up to an event. Only one thread can make them. If such a decision
//! is needed, [`run`] returns false, and one thread simulates again from the beginning.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use niclab_model::time::Time;

use crate::bound::{Bound, FUTILE, Progress};
use crate::host::Effects;
use crate::part::{Others, Part, Transfer};
use crate::queue::{Queue, Slab};

/// How often a thread polls for a transfer before it sleeps. A window of some thousand events takes a millisecond, and
/// waking a thread takes some hundredths of one. If there are more threads than cores, a thread does not poll: it would
/// take the core of another one.
const LOOKS: u32 = 1_000;

fn looks(threads: usize) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads > cores { 0 } else { LOOKS }
}

/// Number of messages that all partitions have sent and received, and when it last changed.
struct Achieved {
    messages: u64,
    since: Time,
}

/// Processes all events on `threads` threads. Returns false if one thread must simulate again from the beginning.
pub(crate) fn run(whole: &mut Part, threads: usize, bound: &mut Bound) -> bool {
    let (clock, messages) = (whole.clock, messages_of([&*whole]));
    let mut parts = divide(whole, threads, bound.most_at_once());
    let looks = looks(parts.len());
    let mut achieved = Achieved { messages, since: clock };
    let is_over = std::thread::scope(|scope| {
        let hands: Vec<Hand> = parts
            .iter()
            .skip(1)
            .map(|_| {
                let ((give, taken), (back, returned)) = (sync_channel::<(u64, Part)>(1), sync_channel(1));
                scope.spawn(move || {
                    while let Some((phase, mut part)) = wait(&taken, looks) {
                        part.run(phase);
                        if back.send(part).is_err() {
                            return;
                        }
                    }
                });
                Hand { give, returned }
            })
            .collect();
        while let Some(phase) = exchange(&mut parts) {
            let begin = whole.queue.begin_of(phase);
            let before = events_of(&parts);
            carry_out(&mut parts, phase, &hands, looks);
            if parts.len() != hands.len() + 1 {
                // Another thread has panicked. The scope then panics this thread, too.
                return false;
            }
            let events = events_of(&parts) - before;
            let messages = messages_of(&parts);
            if messages != achieved.messages {
                achieved = Achieved { messages, since: begin };
            }
            let progress = parts.iter().map(|part| part.checker.progress).sum();
            // At the end of model time one thread finds the first event after it. The limits here are half of those for
            // one thread. So one thread would not have ended an endless run yet, nor dropped a timeout.
            if parts.iter().any(|part| part.queue.past_end().is_some())
                || !bound.allows_many(events, Progress { messages: progress, stored_bytes: 0 })
                || begin.since(achieved.since).times(2) > FUTILE
            {
                return false;
            }
        }
        true
    });
    is_over && join(whole, parts)
}

/// Another thread, with the channels to and from it.
struct Hand {
    give: SyncSender<(u64, Part)>,
    returned: Receiver<Part>,
}

/// Has all partitions process a phase, the first one on this thread.
fn carry_out(parts: &mut Vec<Part>, phase: u64, hands: &[Hand], looks: u32) {
    for (part, hand) in parts.drain(1..).zip(hands) {
        // A thread that ended has panicked. This thread panics as well when it has waited for all of them.
        let _ = hand.give.send((phase, part));
    }
    parts.iter_mut().for_each(|part| part.run(phase));
    parts.extend(hands.iter().filter_map(|hand| wait(&hand.returned, looks)));
}

/// The next value. The wait is expected to be short.
fn wait<T>(from: &Receiver<T>, looks: u32) -> Option<T> {
    for _ in 0..looks {
        match from.try_recv() {
            Ok(value) => return Some(value),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    from.recv().ok()
}

/// Exchanges transfers between the partitions. Returns the next phase with an event.
fn exchange(parts: &mut [Part]) -> Option<u64> {
    let own = parts.iter().filter_map(|part| part.queue.next_phase());
    let in_transfer = parts.iter().filter_map(|part| part.others.as_ref()?.soonest);
    let next = own.chain(in_transfer).min();
    for from in 0..parts.len() {
        for to in 0..parts.len() {
            let transfer = parts[from].others.as_mut().and_then(|others| others.outgoing.get_mut(to));
            let mut transfer = transfer.map(std::mem::take).unwrap_or_default();
            if let Some(inbox) = parts[to].others.as_mut().and_then(|others| others.incoming.get_mut(from)) {
                // The inbox is empty, and returns for its allocation.
                std::mem::swap(inbox, &mut transfer);
            }
            if let Some(place) = parts[from].others.as_mut().and_then(|others| others.outgoing.get_mut(to)) {
                *place = transfer;
            }
        }
        if let Some(others) = &mut parts[from].others {
            others.soonest = None;
        }
    }
    next
}

fn events_of(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.events).sum()
}

fn messages_of<'a>(parts: impl IntoIterator<Item = &'a Part>) -> u64 {
    parts.into_iter().map(|part| part.checker.sent + part.checker.received).sum()
}

/// Divides a simulation into partitions of equal size, with their events. Nothing but events may be pending. `whole`
/// keeps no nodes.
fn divide(whole: &mut Part, threads: usize, most_in_phase: u64) -> Vec<Part> {
    let nodes_each = whole.nodes.len().div_ceil(threads).max(1);
    let count = whole.nodes.len().div_ceil(nodes_each);
    let outgoing = || (0..count).map(|_| Transfer::default()).collect();
    let mut nodes = std::mem::take(&mut whole.nodes).into_iter();
    let fabrics = whole.fabric.divide(nodes_each);
    let mut parts: Vec<Part> = (0..)
        .zip(fabrics)
        .map(|(place, fabric)| Part {
            first: place * nodes_each,
            nodes: nodes.by_ref().take(nodes_each).collect(),
            fabric,
            queue: Queue::new(whole.queue.min_latency()),
            flights: Slab::default(),
            checker: whole.checker.divided(place == 0, count > 1),
            effects: Effects::default(),
            clock: whole.clock,
            events: 0,
            most_in_phase,
            has_medium: false,
            others: (count > 1).then(|| Others {
                nodes_each,
                outgoing: outgoing(),
                incoming: outgoing(),
                soonest: None,
            }),
        })
        .collect();
    whole.checker.hand_out();
    for (at, node, cause, event) in whole.queue.drain() {
        let Some(part) = parts.get_mut(usize::from(node) / nodes_each) else { continue };
        let event = event.moved(|place| Some(part.flights.put(whole.flights.take(place)?)));
        if let Some(event) = event {
            part.queue.push(at, node, cause, event);
        }
    }
    parts
}

/// Joins the partitions at the end. Returns false if a partition's result depends on other partitions.
fn join(whole: &mut Part, parts: Vec<Part>) -> bool {
    // A single partition depends on no other.
    let is_alone = parts.len() == 1;
    let mut is_own = true;
    for part in parts {
        let Part { first, nodes, fabric, checker, clock, events, flights, .. } = part;
        is_own &= is_alone || (checker.is_content() && !fabric.has_learned() && flights.count() == 0);
        let stretch = first..first + nodes.len();
        whole.checker.join(checker, |node| stretch.contains(&usize::from(node)));
        whole.nodes.extend(nodes);
        whole.fabric.join(fabric);
        whole.clock = whole.clock.max(clock);
        whole.events += events;
    }
    is_own
}
