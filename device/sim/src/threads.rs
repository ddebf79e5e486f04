//! Several threads, each with a stretch of the nodes.
//!
//! All parts carry out the same phase of the [`queue`](crate::queue) at the same time, in which nothing that a node
//! does concerns another one; then each is handed what others have for it. Nothing is shared meanwhile: parts go from
//! thread to thread, and one that is at work has all that it looks at.
//!
//! The result does not depend on how many threads there are. Of all events of a node or lane the order is that of their
//! key (node, time, arrivals first, cause), and of events with the same key, which have the same cause and so come from
//! one part, the order in which that part made them. What only one thread can decide, because it goes by what all nodes
//! have done up to an event, is no part's business: [`run`] says so, and the simulation begins anew with one thread.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use niclab_model::time::Time;

use crate::bound::{Bound, FUTILE, Progress};
use crate::host::Effects;
use crate::part::{Others, Part, Transfer};
use crate::queue::{Queue, Slab};

/// How often a thread looks for what another one is about to hand to it before it sleeps: a window of some thousand
/// events takes a millisecond, and to be woken takes some hundredths of one. Not at all where threads have no core
/// each: it would be that one's.
const LOOKS: u32 = 1_000;

fn looks(threads: usize) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if threads > cores { 0 } else { LOOKS }
}

/// What all parts have achieved, and when that last changed.
struct Achieved {
    messages: u64,
    since: Time,
}

/// Carries out all events of a world that so many threads share. False: one thread has to do it, from the beginning.
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
                // Another thread has panicked, and with it so does this one, behind the scope.
                return false;
            }
            let events = events_of(&parts) - before;
            let messages = messages_of(&parts);
            if messages != achieved.messages {
                achieved = Achieved { messages, since: begin };
            }
            let progress = parts.iter().map(|part| part.checker.progress).sum();
            // At the end of model time one thread says which event was the first after it. Half of what one thread
            // allows: it can neither have ended an endless run by now, nor passed over a deadline.
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

/// Another thread.
struct Hand {
    give: SyncSender<(u64, Part)>,
    returned: Receiver<Part>,
}

/// All parts carry out a phase, the first one on this thread.
fn carry_out(parts: &mut Vec<Part>, phase: u64, hands: &[Hand], looks: u32) {
    for (part, hand) in parts.drain(1..).zip(hands) {
        // One that ended has panicked, and so will this thread when it has waited for all of them.
        let _ = hand.give.send((phase, part));
    }
    parts.iter_mut().for_each(|part| part.run(phase));
    parts.extend(hands.iter().filter_map(|hand| wait(&hand.returned, looks)));
}

/// The next thing that comes, for which this thread soon need not wait.
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

/// Hands to each part what others have for it. The next phase in which any has something to do.
fn exchange(parts: &mut [Part]) -> Option<u64> {
    let own = parts.iter().filter_map(|part| part.queue.next_phase());
    let under_way = parts.iter().filter_map(|part| part.others.as_ref()?.soonest);
    let next = own.chain(under_way).min();
    for from in 0..parts.len() {
        for to in 0..parts.len() {
            let transfer = parts[from].others.as_mut().and_then(|others| others.outgoing.get_mut(to));
            let mut transfer = transfer.map(std::mem::take).unwrap_or_default();
            if let Some(inbox) = parts[to].others.as_mut().and_then(|others| others.incoming.get_mut(from)) {
                // It is empty, and goes back for the room that it has.
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

/// Divides a world into stretches of as many nodes each, with their events; nothing but events is under way. `whole` is
/// left with none.
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
            queue: Queue::new(whole.queue.way()),
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

/// Puts the parts together, when all is silent. False where what one of them has done is another one's business.
fn join(whole: &mut Part, parts: Vec<Part>) -> bool {
    // What one part has done alone, all have.
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
