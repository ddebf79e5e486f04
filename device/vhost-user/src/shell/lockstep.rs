//! Lockstep: the programs of all nodes take turns in model time, so that a live run gives the simulator's results.
//!
//! A free-running program acts when the wall clock lets it. In lockstep a program does one operation for each grant,
//! and the shell gives grants in the order of model time. What a card writes is stored for its host when it is visible
//! in model time. A lockstep run begins when the programs of all nodes are ready. It ends when nothing is in flight and
//! no program has anything to do.
//!
//! A program that never returns its grant delays the others. Only a cluster that was started so has lockstep
//! (`lockstep` in the daemon's configuration). A program with a closed port does not take part.

use niclab_abi::bar::SLOTS;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::{Content, Input, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Passage, Span, Time};

use super::budget::{LAUNCH_NS, frame_ns};
use super::card::Card;
use super::card_frame::SentFrame;
use super::dispatch::{mac_endpoints, outputs, resume, spend_work};
use super::ethernet::ForMacEndpoints;
use super::locks::LockedNodes;
use super::locks::programs::{Due, Event, FrameInFlight, Lockstep, Program, State};
use super::pages::grants::{self, Did, Report};

/// Model time without a post or a delivery after which deadlines alone do not continue a run: as in the simulator.
const FUTILE: Span = Span::from_ns(3_000_000_000);

/// Maximum of events at which frames of guests still add some. Guests send without end while a program has the grant.
const MAX_EVENTS: usize = 16 * 1024;

/// Runs programs in lockstep from now on.
pub fn start(locked: &mut LockedNodes<'_>) {
    locked.common.lockstep = Some(Box::new(Lockstep::new(locked.nodes.len())));
}

/// Reads the reports of the program of `node`, and continues until the budget is spent or a program has the grant.
/// `None` outside of a lockstep run; otherwise whether there is more to do.
pub fn serve(locked: &mut LockedNodes<'_>, node: usize) -> Option<bool> {
    if locked.is_in_lockstep() && locked.has_stopped_device() {
        // All programs wait for the one whose guest is stopped.
        return Some(false);
    }
    let mut lockstep = locked.common.lockstep.take()?;
    read_report(locked, &mut lockstep, node);
    if !lockstep.is_running {
        begin_if_ready(locked, &mut lockstep);
    }
    let was_running = lockstep.is_running;
    let more = lockstep.is_running && advance(locked, &mut lockstep);
    locked.common.lockstep = Some(lockstep);
    was_running.then_some(more)
}

/// Reads the report of the program of `node`, and takes what it did with its grant.
fn read_report(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, node: usize) {
    let Some(program) = lockstep.programs.get_mut(node) else { return };
    let Some(card) = locked.nodes.card_mut(node) else { return };
    if !card.is_open(program.port) && program.state != State::Away {
        program.state = State::Away;
    }
    let open: smallvec::SmallVec<[u32; 8]> = (0..card.ports()).filter(|&port| card.is_open(port)).collect();
    let report = open.iter().find_map(|&port| Some((port, grants::take_report(&mut card.host.pages, port)?)));
    let Some((port, Report { number, did, wake_ps })) = report else { return };
    match (did, program.state) {
        (Did::Began, State::Away | State::Idle) if !lockstep.is_running => {
            // What it posted before belongs to no grant.
            (program.port, program.grants) = (port, grants::count(&card.host.pages, port));
            program.state = State::Ready;
        }
        (Did::Acted | Did::Nothing, State::Acting) if program.grants == number && program.port == port => {
            let now = program.now;
            for port in open {
                take_actions(locked, lockstep, node, port, now);
            }
            let Some(program) = lockstep.programs.get_mut(node) else { return };
            program.state = match (did, wake_ps) {
                (Did::Acted, _) => State::Wants(now),
                (_, Some(wake_ps)) => State::Wants(now.max(Time::from_ps(wake_ps))),
                (_, None) => State::Idle,
            };
        }
        // Other reports are invalid, and are ignored.
        _ => {}
    }
}

/// Begins a lockstep run when all programs are ready.
fn begin_if_ready(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep) {
    if !lockstep.programs.iter().all(|program| program.state == State::Ready) {
        return;
    }
    // What runs freely is completed first, one budget at each poll.
    if resume(locked) {
        return;
    }
    let begin = locked.model_time();
    lockstep.is_running = true;
    lockstep.progress = (progress(locked), begin);
    for program in &mut lockstep.programs {
        (program.state, program.now) = (State::Wants(begin), begin);
    }
}

/// Takes what the program of `node` stored into the pages of `port` during its grant.
fn take_actions(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, node: usize, port: u32, now: Time) {
    let Some(card) = locked.nodes.card_mut(node) else { return };
    for register in card.host.pages.take_registers(port).into_iter().flatten() {
        feed(locked, lockstep, node, now, Input::Register { port, register });
    }
    let of_port =
        |program: &Program| program.waiting.iter().filter(|(_, launch)| launch.store.port == port).count();
    let waiting = lockstep.programs.get(node).map_or(0, of_port);
    // A well-behaved program posts one slot for each grant. A hostile one posts without end, over slots that the card
    // has not taken: no more of them wait here than a page has slots.
    for _ in waiting..SLOTS as usize {
        let Some(card) = locked.nodes.card_mut(node) else { return };
        let Some(launch) = card.take(port) else { return };
        if let Some(launches) = card.counts.launches.get_mut(port as usize) {
            *launches += 1;
        }
        let Some(program) = lockstep.programs.get_mut(node) else { return };
        let is_first = program.waiting.iter().all(|(_, earlier)| earlier.store.port != port);
        if is_first && card.nic.accepts_store(port) {
            feed(locked, lockstep, node, now, Input::PageStore(launch.store));
        } else {
            program.waiting.push_back((now, launch));
        }
    }
}

/// Feeds the card of `node` an input, and then the waiting posts that it has room for now.
fn feed(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, node: usize, now: Time, input: Input<'_>) {
    give_input(locked, lockstep, node, now, input);
    loop {
        let (Some(program), Some(card)) = (lockstep.programs.get_mut(node), locked.nodes.card(node)) else {
            return;
        };
        let next = program.waiting.iter().position(|(_, launch)| card.nic.accepts_store(launch.store.port));
        let Some((posted, launch)) = next.and_then(|index| program.waiting.remove(index)) else {
            return;
        };
        // Each post follows the previous one without a pause.
        let clock = locked.nodes.bus(node).map_or(posted, |bus| bus.clock());
        give_input(locked, lockstep, node, posted.max(clock), Input::PageStore(launch.store));
    }
}

/// Feeds the card of `node` an input, and applies its outputs.
fn give_input(
    locked: &mut LockedNodes<'_>,
    lockstep: &mut Lockstep,
    node: usize,
    now: Time,
    input: Input<'_>,
) {
    locked.common.budget.spend(LAUNCH_NS);
    let Some((card, bus)) = locked.nodes.card_and_bus(node) else { return };
    let unordered = card.unordered();
    card.nic.handle(now, input, bus);
    card.order.ordered_by_lockstep += card.unordered() - unordered;
    spend_work(locked, node);
    let number = node as u16;
    while let Some(output) = locked.nodes.card_mut(node).and_then(|card| card.nic.poll_output()) {
        if let Output::DmaWrite { at, address, words, content, .. } = output {
            locked.common.latest = locked.common.latest.max(at);
            // The card has charged the host for the delivery.
            let is_record = matches!(content, Content::Completion { .. });
            let read_at = locked.nodes.bus(node).map_or(at, |bus| bus.clock().max(at));
            let at = if is_record { read_at } else { at };
            lockstep.push(at, number, number, Event::Show { address, words, is_record });
        } else if let Some(sent) = outputs::apply(locked, node, output, None) {
            let SentFrame { ready: passage, frame, message, class } = sent;
            let frame = FrameInFlight { frame: frame.into_owned(), message, passage, class };
            lockstep.push(passage.head, number, number, Event::Depart(frame));
        }
    }
}

/// Applies events and gives grants in the order of model time, until a program has the grant. True when the budget is
/// spent before.
fn advance(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep) -> bool {
    while !lockstep.programs.iter().any(|program| program.state == State::Acting) {
        if locked.common.budget.is_spent() {
            return true;
        }
        let event = lockstep.next_event();
        match (event, next_grant(locked, lockstep)) {
            (None, None) => {
                end(locked, lockstep);
                return false;
            }
            (Some(at), next) if next.is_none_or(|(grant, ..)| at <= grant) => {
                if let Some(due) = lockstep.pop() {
                    apply_event(locked, lockstep, due);
                }
            }
            (event, Some((at, is_grant, node))) => {
                // A program may request its next grant at any number.
                if at > Time::LIMIT {
                    locked.end_time(at);
                }
                if !is_grant && event.is_none() && is_futile(locked, lockstep, at) {
                    end(locked, lockstep);
                    return false;
                }
                grant(locked, lockstep, at, is_grant, node);
            }
            (Some(_), None) => {}
        }
        locked.check_time();
    }
    false
}

/// The node with the next grant or deadline, and when that is. At the same instant a deadline precedes a grant.
fn next_grant(locked: &LockedNodes<'_>, lockstep: &Lockstep) -> Option<(Time, bool, usize)> {
    let programs = lockstep.programs.iter().enumerate();
    let grants = programs.filter_map(|(node, program)| match program.state {
        // Arrivals in between have kept its processor busy.
        State::Wants(at) => {
            let clock = locked.nodes.bus(node).map_or(at, NodeBus::clock);
            Some((at.max(program.now).max(clock), true, node))
        }
        _ => None,
    });
    let cards = locked.nodes.cards().zip(&lockstep.programs);
    let deadlines = cards
        .filter_map(|((node, card), program)| Some((card.nic.poll_timeout()?.max(program.now), false, node)));
    grants.chain(deadlines).min()
}

/// A count that changes with each post and each delivery.
fn progress(locked: &LockedNodes<'_>) -> u64 {
    let launches: u64 = locked.nodes.cards().flat_map(|(_, card)| &card.counts.launches).sum();
    let delivered = |card: &Card| -> u64 { (0..card.ports()).map(|port| card.nic.delivered(port)).sum() };
    launches + locked.nodes.cards().map(|(_, card)| delivered(card)).sum::<u64>()
}

/// Whether only deadlines fired for so long that no program can wait for one.
fn is_futile(locked: &LockedNodes<'_>, lockstep: &mut Lockstep, at: Time) -> bool {
    let is_waiting = lockstep.programs.iter().any(|program| matches!(program.state, State::Wants(_)));
    let progress = progress(locked);
    if progress != lockstep.progress.0 {
        lockstep.progress = (progress, at);
    }
    !is_waiting && at.since(lockstep.progress.1) > FUTILE
}

/// Gives a program the grant, or fires a card's deadline.
fn grant(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, at: Time, is_grant: bool, node: usize) {
    let Some(program) = lockstep.programs.get_mut(node) else { return };
    program.now = program.now.max(at);
    if !is_grant {
        return feed(locked, lockstep, node, at, Input::Timeout);
    }
    program.grants += 1;
    program.state = State::Acting;
    let (port, number) = (program.port, program.grants);
    if let Some(card) = locked.nodes.card_mut(node) {
        grants::give(&mut card.host.pages, port, number, at.as_ps());
    }
}

/// Applies an event.
fn apply_event(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, due: Due) {
    let Due { at, node, event, .. } = due;
    match event {
        Event::Depart(sent) => {
            if sent.class == FrameClass::All {
                // The node's own Ethernet function receives it without crossing the link.
                let own = FrameInFlight { class: FrameClass::Host, ..sent.clone() };
                lockstep.push(own.passage.tail, node, node, Event::Arrive(own));
            }
            for transit in
                locked.common.network.enter(&mut locked.nodes, &sent.frame, sent.passage, node, sent.message)
            {
                lockstep.push(transit.ready, transit.to, node, Event::Cross(sent.clone(), transit));
            }
        }
        Event::Cross(sent, transit) => {
            for delivery in
                locked.common.network.leave(&mut locked.nodes, &transit, &sent.frame, sent.message)
            {
                let mut arriving = sent.clone();
                if let Some(bit) = delivery.corrupt {
                    arriving.frame.flip(bit);
                    arriving.class = arriving.class.damaged();
                }
                arriving.passage = Passage { head: delivery.head, tail: delivery.at };
                lockstep.push(delivery.at, delivery.to, due.cause, Event::Arrive(arriving));
            }
        }
        Event::Arrive(arrived) => deliver(locked, lockstep, node.into(), &arrived),
        Event::Show { address, words, is_record } => {
            let Some(card) = locked.nodes.card_mut(usize::from(node)) else { return };
            card.host.write(address, &words);
            let Some(program) = lockstep.programs.get_mut(usize::from(node)) else { return };
            match program.state {
                // The host reads a record before anything else.
                State::Idle | State::Wants(_) if is_record => grant(locked, lockstep, at, true, node.into()),
                State::Idle => program.state = State::Wants(at),
                _ => {}
            }
        }
    }
}

/// Delivers a frame at `node`.
fn deliver(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep, node: usize, arrived: &FrameInFlight) {
    let &FrameInFlight { ref frame, message, passage, class } = arrived;
    locked.common.budget.spend(frame_ns(frame.len()));
    if let Some(program) = lockstep.programs.get_mut(node) {
        program.now = program.now.max(passage.tail);
    }
    if class != FrameClass::Card && !mac_endpoints::deliver(locked, node, passage, frame, message, class) {
        return;
    }
    if let Some(card) = locked.nodes.card_mut(node) {
        card.counts.traffic.received_frames += 1;
        card.counts.traffic.received_bytes += frame.len() as u64;
    }
    let input = Input::Frame { frame, head: passage.head, message };
    feed(locked, lockstep, node, passage.tail, input);
}

/// Delivers a frame of a guest to MAC endpoints. False outside of a lockstep run.
pub fn deliver_to_endpoints(locked: &mut LockedNodes<'_>, next: &ForMacEndpoints) -> bool {
    let Some(mut lockstep) = locked.common.lockstep.take() else { return false };
    let is_running = lockstep.is_running;
    // While a program has the grant, guests may send frames without end, and the replies wait for the next grant.
    if is_running && lockstep.events() >= MAX_EVENTS {
        if let Some(card) = locked.nodes.card_mut(next.to) {
            card.counts.traffic.dropped_frames += 1;
        }
    } else if is_running {
        let &ForMacEndpoints { to, at, ref frame, message } = next;
        let (frame, class) = (frame.clone(), FrameClass::MacEndpoints(to as u16));
        let arrived = FrameInFlight { frame, message: Some(message), passage: at.into(), class };
        deliver(locked, &mut lockstep, to, &arrived);
    }
    locked.common.lockstep = Some(lockstep);
    is_running
}

/// Nothing is left to do: the programs are notified, and run freely from now on.
fn end(locked: &mut LockedNodes<'_>, lockstep: &mut Lockstep) {
    lockstep.is_running = false;
    for (program, card) in
        lockstep.programs.iter_mut().zip(locked.nodes.iter_mut().map(|(_, node)| &mut node.card))
    {
        if program.state != State::Away {
            grants::end(&card.host.pages, program.port, program.grants);
        }
        program.state = State::Away;
        // Slots that the card never took stay posted.
        program.waiting.clear();
    }
}
