//! Lockstep: the programs of all nodes take turns in model time, so that a live run has the simulator's.
//!
//! A program that runs freely does things when the wall clock has it, and only where the order of what it does is the
//! same all the same can the device find out when it was due. In lockstep a program does one operation in a turn, turns
//! are given in the order of model time, and what a card writes is shown to its host when it is visible and not before.
//! A part begins when the programs of all nodes are ready, and ends when nothing is under way and none has anything to
//! do.
//!
//! A program that never ends its turn holds the others up: that is what it asks for, and only a cluster that was
//! started so has turns (`lockstep` in the daemon's configuration). A program whose port is closed is waited for no
//! longer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use niclab_abi::bar::SLOTS;
use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::{self, Deliveries, Transit, Transits};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{Content, DmaWords, Input, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Span, Time};

use super::World;
use crate::shell::card::Card;
use crate::shell::ethernet::ForStations;
use crate::shell::lent::Carried;
use crate::shell::network::Network;
use crate::shell::node::Nodes;
use crate::shell::pages::{Did, Launch, Report};
use crate::shell::turn::{LAUNCH_NS, frame_ns};

/// How long deadlines alone may go on, in model time, with nothing launched and nothing shown: as in the simulator.
const FUTILE: Span = Span::from_ns(3_000_000_000);

/// Most that may be due for frames of guests to make more of it: while a program has its turn, they come without end.
const MAX_DUE: usize = 16 * 1024;

/// A frame of a model on its way.
#[derive(Clone, Debug)]
struct InlinePacket {
    frame: SharedFrame,
    message: Option<TraceTag>,
    passage: Passage,
    concern: Concern,
}

/// What happens. The simulator's queue has the same order, of which this follows: arrivals come before whatever else
/// happens to a node at the same time.
#[derive(Debug)]
enum Event {
    /// A frame is there, whole.
    Arrive(InlinePacket),
    /// A frame is ready for its sender's link.
    Depart(InlinePacket),
    /// A frame is through the switch and ready for the link behind it.
    Cross(InlinePacket, Transit),
    /// What a card wrote is visible, or the host has it in hand.
    Show { address: u64, words: DmaWords, is_record: bool },
}

/// Something that is due.
#[derive(Debug)]
struct Due {
    at: Time,
    is_arrival: bool,
    node: u16,
    /// The node that caused it.
    cause: u16,
    order: u64,
    event: Event,
}

impl Due {
    const fn key(&self) -> (Time, bool, u16, u16, u64) {
        (self.at, !self.is_arrival, self.node, self.cause, self.order)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It takes no part.
    Away,
    /// It waits for the others, to begin.
    Ready,
    /// It has its turn.
    Acting,
    /// It found nothing to do.
    Idle,
    /// It wants a turn, at this instant or later.
    Wants(Time),
}

/// A node's program.
#[derive(Debug)]
struct Program {
    state: State,
    /// The port over which it is told.
    port: u32,
    /// Turns given.
    turns: u64,
    /// The latest event of the node.
    now: Time,
    /// Launches that the card had no room for yet, and when the program made them.
    waiting: VecDeque<(Time, Launch)>,
}

/// Programs in lockstep, and what is under way between them.
#[derive(Debug)]
pub struct Lockstep {
    programs: Vec<Program>,
    queue: BinaryHeap<Reverse<Due>>,
    order: u64,
    is_running: bool,
    /// What was launched and shown so far, and when that last changed.
    progress: (u64, Time),
}

impl Lockstep {
    /// Nobody is ready.
    pub fn new(nodes: usize) -> Self {
        let program =
            || Program { state: State::Away, port: 0, turns: 0, now: Time::ZERO, waiting: VecDeque::new() };
        Self {
            programs: std::iter::repeat_with(program).take(nodes).collect(),
            queue: BinaryHeap::new(),
            order: 0,
            is_running: false,
            progress: (0, Time::ZERO),
        }
    }

    /// Whether a part has begun and is not over.
    pub const fn is_running(&self) -> bool {
        self.is_running
    }

    fn push(&mut self, at: Time, node: u16, cause: u16, event: Event) {
        self.order += 1;
        let is_arrival = matches!(event, Event::Arrive(_));
        self.queue.push(Reverse(Due { at, is_arrival, node, cause, order: self.order, event }));
    }

    /// The node whose turn or deadline comes next, and when: turns of one instant come after its deadlines.
    fn next_turn(&self, world: &World<'_>) -> Option<(Time, bool, usize)> {
        let programs = self.programs.iter().enumerate();
        let turns = programs.filter_map(|(node, program)| match program.state {
            // What came meanwhile has kept its processor busy.
            State::Wants(at) => {
                let clock = world.nodes.bus(node).map_or(at, NodeBus::clock);
                Some((at.max(program.now).max(clock), true, node))
            }
            _ => None,
        });
        let cards = world.nodes.cards().zip(&self.programs);
        let deadlines = cards.filter_map(|((node, card), program)| {
            Some((card.nic.poll_timeout()?.max(program.now), false, node))
        });
        turns.chain(deadlines).min()
    }
}

impl World<'_> {
    /// Has programs take turns from now on.
    pub fn start_lockstep(&mut self) {
        self.common.lockstep = Some(Box::new(Lockstep::new(self.nodes.len())));
    }

    /// Looks for reports of the program of `node`, and goes on as far as the turn goes and no program is waited for.
    /// None where programs do not take turns just now; otherwise whether there is more to do.
    pub fn serve_lockstep(&mut self, node: usize) -> Option<bool> {
        if self.is_in_lockstep() && self.has_stopped_device() {
            // All wait for the program whose guest stands still.
            return Some(false);
        }
        let mut lockstep = self.common.lockstep.take()?;
        self.hear(&mut lockstep, node);
        if !lockstep.is_running {
            self.begin_if_ready(&mut lockstep);
        }
        let was_running = lockstep.is_running;
        let more = lockstep.is_running && self.advance(&mut lockstep);
        self.common.lockstep = Some(lockstep);
        was_running.then_some(more)
    }

    /// Whether programs take turns just now, and nothing goes on by itself.
    #[inline]
    pub fn is_in_lockstep(&self) -> bool {
        self.common.lockstep.as_ref().is_some_and(|lockstep| lockstep.is_running())
    }

    /// Takes in what the program of `node` reports, and what it did in its turn.
    fn hear(&mut self, lockstep: &mut Lockstep, node: usize) {
        let Some(program) = lockstep.programs.get_mut(node) else { return };
        let Some(card) = self.nodes.card_mut(node) else { return };
        if !card.is_open(program.port) && program.state != State::Away {
            program.state = State::Away;
        }
        let open: smallvec::SmallVec<[u32; 8]> =
            (0..card.ports()).filter(|&port| card.is_open(port)).collect();
        let report = open.iter().find_map(|&port| Some((port, card.pages.take_report(port)?)));
        let Some((port, Report { number, did, wake_ps })) = report else { return };
        match (did, program.state) {
            (Did::Began, State::Away | State::Idle) if !lockstep.is_running => {
                // What it launched before belongs to no turn.
                (program.port, program.turns) = (port, card.pages.turns(port));
                program.state = State::Ready;
            }
            (Did::Acted | Did::Nothing, State::Acting) if program.turns == number && program.port == port => {
                let now = program.now;
                for port in open {
                    self.take_actions(lockstep, node, port, now);
                }
                let Some(program) = lockstep.programs.get_mut(node) else { return };
                program.state = match (did, wake_ps) {
                    (Did::Acted, _) => State::Wants(now),
                    (_, Some(wake_ps)) => State::Wants(now.max(Time::from_ps(wake_ps))),
                    (_, None) => State::Idle,
                };
            }
            // Anything else is no report of a program that keeps to its turns: it goes unheard.
            _ => {}
        }
    }

    /// Begins a part when all programs are ready.
    fn begin_if_ready(&mut self, lockstep: &mut Lockstep) {
        if !lockstep.programs.iter().all(|program| program.state == State::Ready) {
            return;
        }
        // What runs freely ends first, a turn at each look.
        if self.go_on() {
            return;
        }
        let begin = self.model_time();
        lockstep.is_running = true;
        lockstep.progress = (self.progress(), begin);
        for program in &mut lockstep.programs {
            (program.state, program.now) = (State::Wants(begin), begin);
        }
    }

    /// Takes what the program of `node` stored into the pages of `port` in its turn.
    fn take_actions(&mut self, lockstep: &mut Lockstep, node: usize, port: u32, now: Time) {
        let Some(card) = self.nodes.card_mut(node) else { return };
        for register in card.pages.take_registers(port).into_iter().flatten() {
            self.feed(lockstep, node, now, Input::Register { port, register });
        }
        let of_port = |program: &Program| {
            program.waiting.iter().filter(|(_, launch)| launch.store.port == port).count()
        };
        let waiting = lockstep.programs.get(node).map_or(0, of_port);
        // What is launched in a turn is one. A program that launches on and on, over slots that the card has not taken,
        // has no more waiting here than there are slots.
        for _ in waiting..SLOTS as usize {
            let Some(card) = self.nodes.card_mut(node) else { return };
            let Some(launch) = card.take(port) else { return };
            if let Some(launches) = card.counts.launches.get_mut(port as usize) {
                *launches += 1;
            }
            let Some(program) = lockstep.programs.get_mut(node) else { return };
            let is_first = program.waiting.iter().all(|(_, earlier)| earlier.store.port != port);
            if is_first && card.nic.accepts_store(port) {
                self.feed(lockstep, node, now, Input::PageStore(launch.store));
            } else {
                program.waiting.push_back((now, launch));
            }
        }
    }

    /// Tells the card of `node` something, and then of launches that it has room for by now.
    fn feed(&mut self, lockstep: &mut Lockstep, node: usize, now: Time, input: Input<'_>) {
        self.tell(lockstep, node, now, input);
        loop {
            let (Some(program), Some(card)) = (lockstep.programs.get_mut(node), self.nodes.card(node)) else {
                return;
            };
            let next =
                program.waiting.iter().position(|(_, launch)| card.nic.accepts_store(launch.store.port));
            let Some((launched, launch)) = next.and_then(|place| program.waiting.remove(place)) else {
                return;
            };
            // The program launches one after the other: it does not wait for itself.
            let clock = self.nodes.bus(node).map_or(launched, |bus| bus.clock());
            self.tell(lockstep, node, launched.max(clock), Input::PageStore(launch.store));
        }
    }

    /// Tells the card of `node` something, and carries out what it wants done.
    fn tell(&mut self, lockstep: &mut Lockstep, node: usize, now: Time, input: Input<'_>) {
        self.common.turn.spend(LAUNCH_NS);
        let Some((card, bus)) = self.node(node) else { return };
        let unordered = card.unordered();
        card.nic.handle(now, input, bus);
        card.counts.ordered_by_turns += card.unordered() - unordered;
        self.spend_work(node);
        let number = node as u16;
        while let Some(output) = self.nodes.card_mut(node).and_then(|card| card.nic.poll_output()) {
            if let Output::DmaWrite { at, address, words, content, .. } = output {
                self.common.latest = self.common.latest.max(at);
                // The card has charged the host for the delivery.
                let is_record = matches!(content, Content::Completion { .. });
                let in_hand = self.nodes.bus(node).map_or(at, |bus| bus.clock().max(at));
                let at = if is_record { in_hand } else { at };
                lockstep.push(at, number, number, Event::Show { address, words, is_record });
            } else if let Some((passage, Carried::Whole(frame), message)) = self.perform(node, output, None) {
                let concern = Concern::of(&frame);
                let packet = InlinePacket { frame, message, passage, concern };
                lockstep.push(passage.head, number, number, Event::Depart(packet));
            }
        }
    }

    /// Carries out what is due, in the order of model time, until a program has its turn. True when the processor's
    /// turn is over before.
    fn advance(&mut self, lockstep: &mut Lockstep) -> bool {
        while !lockstep.programs.iter().any(|program| program.state == State::Acting) {
            if self.common.turn.is_over() {
                return true;
            }
            let turn = lockstep.next_turn(self);
            let event = lockstep.queue.peek().map(|Reverse(due)| due.at);
            match (event, turn) {
                (None, None) => {
                    self.end_part(lockstep);
                    return false;
                }
                (Some(at), next) if next.is_none_or(|(turn, ..)| at <= turn) => {
                    if let Some(Reverse(due)) = lockstep.queue.pop() {
                        self.carry(lockstep, due);
                    }
                }
                (event, Some((at, is_turn, node))) => {
                    // A program says when it wants its next turn, and may say any number.
                    if at > Time::LIMIT {
                        self.end_time(at);
                    }
                    if !is_turn && event.is_none() && self.is_futile(lockstep, at) {
                        self.end_part(lockstep);
                        return false;
                    }
                    self.give(lockstep, at, is_turn, node);
                }
                (Some(_), None) => {}
            }
            self.check_time();
        }
        false
    }

    /// What shows that anything goes on.
    fn progress(&self) -> u64 {
        let launches: u64 = self.nodes.cards().flat_map(|(_, card)| &card.counts.launches).sum();
        let delivered = |card: &Card| -> u64 { (0..card.ports()).map(|port| card.nic.delivered(port)).sum() };
        launches + self.nodes.cards().map(|(_, card)| delivered(card)).sum::<u64>()
    }

    /// Whether nothing but deadlines has been for so long that nobody waits for one any more.
    fn is_futile(&self, lockstep: &mut Lockstep, at: Time) -> bool {
        let is_waiting = lockstep.programs.iter().any(|program| matches!(program.state, State::Wants(_)));
        let progress = self.progress();
        if progress != lockstep.progress.0 {
            lockstep.progress = (progress, at);
        }
        !is_waiting && at.since(lockstep.progress.1) > FUTILE
    }

    /// A program's turn, or a card's deadline.
    fn give(&mut self, lockstep: &mut Lockstep, at: Time, is_turn: bool, node: usize) {
        let Some(program) = lockstep.programs.get_mut(node) else { return };
        program.now = program.now.max(at);
        if !is_turn {
            return self.feed(lockstep, node, at, Input::Timeout);
        }
        program.turns += 1;
        program.state = State::Acting;
        let (port, turn) = (program.port, program.turns);
        if let Some(card) = self.nodes.card_mut(node) {
            card.pages.give_turn(port, turn, at.as_ps());
        }
    }

    fn carry(&mut self, lockstep: &mut Lockstep, due: Due) {
        let Due { at, node, event, .. } = due;
        match event {
            Event::Depart(packet) => {
                if packet.concern == Concern::All {
                    // The Ethernet function beside the station hears it without the link.
                    let own = InlinePacket { concern: Concern::Host, ..packet.clone() };
                    lockstep.push(own.passage.tail, node, node, Event::Arrive(own));
                }
                for transit in self.common.network.enter(
                    &mut self.nodes,
                    &packet.frame,
                    packet.passage,
                    node,
                    packet.message,
                ) {
                    lockstep.push(transit.ready, transit.to, node, Event::Cross(packet.clone(), transit));
                }
            }
            Event::Cross(packet, transit) => {
                for delivery in
                    self.common.network.leave(&mut self.nodes, &transit, &packet.frame, packet.message)
                {
                    let mut packet = packet.clone();
                    if let Some(bit) = delivery.corrupt {
                        packet.frame.flip(bit);
                        packet.concern = packet.concern.damaged();
                    }
                    packet.passage = Passage { head: delivery.head, tail: delivery.at };
                    lockstep.push(delivery.at, delivery.to, due.cause, Event::Arrive(packet));
                }
            }
            Event::Arrive(packet) => self.arrive_in_turn(lockstep, node.into(), &packet),
            Event::Show { address, words, is_record } => {
                let Some(card) = self.nodes.card_mut(usize::from(node)) else { return };
                card.write(address, &words);
                let Some(program) = lockstep.programs.get_mut(usize::from(node)) else { return };
                match program.state {
                    // A record is read when the host has it in hand, whatever else it is about to do.
                    State::Idle | State::Wants(_) if is_record => self.give(lockstep, at, true, node.into()),
                    State::Idle => program.state = State::Wants(at),
                    _ => {}
                }
            }
        }
    }

    fn arrive_in_turn(&mut self, lockstep: &mut Lockstep, node: usize, packet: &InlinePacket) {
        let &InlinePacket { ref frame, message, passage, concern } = packet;
        self.common.turn.spend(frame_ns(frame.len()));
        self.note(lockstep, node as u16, passage.tail);
        if concern != Concern::Card && !self.is_for_stations(node, passage, frame, message, concern) {
            return;
        }
        if let Some(card) = self.nodes.card_mut(node) {
            card.counts.traffic.received_frames += 1;
            card.counts.traffic.received_bytes += frame.len() as u64;
        }
        let input = Input::Frame { frame, head: passage.head, message };
        self.feed(lockstep, node, passage.tail, input);
    }

    /// A frame of a guest has arrived for stations. False where programs do not take turns just now.
    pub(super) fn arrive_in_lockstep(&mut self, next: &ForStations) -> bool {
        let Some(mut lockstep) = self.common.lockstep.take() else { return false };
        let is_running = lockstep.is_running;
        // Frames come while a program has its turn, too, and what stations answer waits until that is over.
        if is_running && lockstep.queue.len() >= MAX_DUE {
            if let Some(card) = self.nodes.card_mut(next.to) {
                card.counts.traffic.dropped_frames += 1;
            }
        } else if is_running {
            let &ForStations { to, at, ref frame, message } = next;
            let (frame, concern) = (frame.clone(), Concern::Stations(to as u16));
            let packet = InlinePacket { frame, message: Some(message), passage: at.into(), concern };
            self.arrive_in_turn(&mut lockstep, to, &packet);
        }
        self.common.lockstep = Some(lockstep);
        is_running
    }

    fn note(&self, lockstep: &mut Lockstep, node: u16, at: Time) {
        if let Some(program) = lockstep.programs.get_mut(usize::from(node)) {
            program.now = program.now.max(at);
        }
    }

    /// Nothing is left to do: programs are told so, and run freely from now on.
    fn end_part(&mut self, lockstep: &mut Lockstep) {
        lockstep.is_running = false;
        for (program, card) in
            lockstep.programs.iter_mut().zip(self.nodes.iter_mut().map(|(_, node)| &mut node.card))
        {
            if program.state != State::Away {
                card.pages.end_turns(program.port, program.turns);
            }
            program.state = State::Away;
            // What the card never took stays launched.
            program.waiting.clear();
        }
    }
}

impl Network {
    /// A frame enters its sender's link: where it is behind the switch.
    fn enter(
        &mut self,
        nodes: &mut Nodes<'_>,
        frame: &SharedFrame,
        ready: Passage,
        from: u16,
        message: Option<TraceTag>,
    ) -> Transits {
        let mut transits = Transits::new();
        let (switching, taps) = self.parts();
        switching.enter(nodes, ready, from, frame, message, &mut transits);
        taps.on_sent(ready.head, from, frame, message, transits.is_empty());
        transits
    }

    /// A frame leaves the switch: when it arrives.
    fn leave(
        &mut self,
        nodes: &mut Nodes<'_>,
        transit: &Transit,
        frame: &SharedFrame,
        message: Option<TraceTag>,
    ) -> Deliveries {
        let mut deliveries = Deliveries::new();
        fabric::leave(nodes, transit, frame.len(), message, &mut deliveries);
        self.taps().on_forwarded(transit.ready, transit.to, frame, &deliveries);
        for delivery in &deliveries {
            self.note_arrival(delivery.at);
        }
        deliveries
    }
}
