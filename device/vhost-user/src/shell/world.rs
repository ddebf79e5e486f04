//! Cards and the network between them.
//!
//! Run to completion: whoever finds work carries it through the sender's model, the network and the receiver's model
//! into the receiver's memory, and then looks for what that made possible. Nothing is handed to another thread.

pub mod cluster;
pub mod deadlines;
pub mod hand_over;
mod ledgers;
mod lockstep;
mod pending;
mod short;
mod stations;
mod stopped;

use std::sync::Arc;

use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::adversarial::Adversarial;
use niclab_model::nic::fault_injector::FaultInjector;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::series::Series;
use niclab_model::nic::{DescriptorQueue, FrameBytes, Input, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_spec::{DeviceFaults, Faults};
use parking_lot::MutexGuard;

use self::cluster::{Cut, LockCounts};
use super::card::Card;
use super::card::stopped::HeldFrame;
use super::ethernet::Ethernet;
use super::lent::{Carried, LentFrame, Loan};
use super::network::Network;
use super::node::{Node, Nodes, Numbers};
use super::time_limit::TimeLimit;
use super::turn::{FRAME_NS, LAUNCH_NS, READ_NS, REQUEST_NS, Turn, frame_ns};

/// Nodes and what they share, for as long as somebody holds them.
pub struct World<'a> {
    /// The nodes.
    pub nodes: Nodes<'a>,
    /// What they share.
    pub common: MutexGuard<'a, Common>,
}

/// What nodes share: Ethernet functions, network, and how far all is.
pub struct Common {
    /// The Ethernet functions.
    pub ethernet: Ethernet,
    /// The network.
    pub network: Network,
    /// The seed of every random choice.
    seed: u64,
    /// Whether device faults befall some card.
    has_device_faults: bool,
    /// Whether some card is adversarial.
    pub(super) is_adversarial: bool,
    /// Whether a driver ever notified a descriptor queue of a model that takes chains.
    has_descriptors: bool,
    /// How many cards have a stalled slot.
    stalled: usize,
    /// Launches, registers, descriptors and arrivals so far, and what Ethernet functions were told.
    acts: u64,
    /// What may be done before others get the world.
    turn: Turn,
    /// The latest instant at which a model wanted something done.
    latest: Time,
    /// Programs that take turns, in a cluster that was started so.
    lockstep: Option<Box<lockstep::Lockstep>>,
    /// Cards that are taking another program.
    loading: Option<hand_over::Loading>,
    /// How often all nodes were taken.
    lock_counts: LockCounts,
    /// So many let others have it for a moment, and go on with all nodes when they have it again.
    coming_back: usize,
    /// Not all nodes are here: these are of a part of them.
    is_part: bool,
    /// Why a part cannot go on as it is.
    cut: Option<Cut>,
    /// The nodes of a part that left something under way.
    scope: Numbers,
    /// Cards may have work in hand: what was set aside was sent, or a turn ended, since all was carried through last.
    is_owing: bool,
    /// Data may be lent: all that is under way is carried through, or kept, before others get the world.
    lends: bool,
    /// It is not, so that everything goes the general way.
    lends_nothing: bool,
    /// What was lent last.
    loan: Option<Loan>,
    /// Where launches are collected that are carried together.
    series: Series,
    /// Where it is noted that model time has reached its end.
    time_limit: Arc<TimeLimit>,
}

/// A frame that a card sends, and the message that it carries.
type Sent = (Passage, Carried, Option<TraceTag>);

/// What a look at a node's pages found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Slots taken and registers read.
    pub work: u32,
    /// There is more, and the turn is over.
    pub more: bool,
}

impl Found {
    /// What this look found, and another one behind it.
    #[inline]
    pub const fn and(self, later: Self) -> Self {
        Self { work: self.work + later.work, more: later.more }
    }
}

impl Common {
    fn new(ethernet: Ethernet, network: Network, seed: u64, time_limit: &Arc<TimeLimit>) -> Self {
        Self {
            ethernet,
            network,
            seed,
            has_device_faults: false,
            is_adversarial: false,
            has_descriptors: false,
            stalled: 0,
            acts: 0,
            turn: Turn::OVER,
            latest: Time::ZERO,
            lockstep: None,
            loading: None,
            lock_counts: LockCounts::default(),
            coming_back: 0,
            is_part: false,
            cut: None,
            scope: Numbers::new(),
            is_owing: false,
            lends: false,
            lends_nothing: false,
            loan: None,
            series: Series::default(),
            time_limit: Arc::clone(time_limit),
        }
    }
}

impl World<'_> {
    /// The card of `node`, with the host and the bus that it stands on.
    #[inline]
    fn node(&mut self, node: usize) -> Option<(&mut Card, &mut NodeBus)> {
        self.nodes.card_and_bus(node)
    }

    /// What goes wrong on the link of `node` from now on. False when there is no such node.
    pub fn set_link_faults(&mut self, node: u16, faults: &Faults) -> bool {
        let Some(port) = self.nodes.get_mut(node.into()).map(|node| &mut node.port) else { return false };
        self.common.network.set_faults(node, faults, port);
        true
    }

    /// Takes the link of `node` up or down.
    pub fn set_link_up(&mut self, node: usize, is_up: bool) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.port.set_link_up(is_up);
        }
    }

    /// What goes wrong in the card of `node` from now on. A card in which nothing ever went wrong is as if nothing
    /// could.
    pub fn set_device_faults(&mut self, node: usize, faults: &DeviceFaults) {
        let Some(card) = self.nodes.card_mut(node) else { return };
        card.device_faults.clone_from(faults);
        let rates = niclab_assembly::device_faults(faults);
        if let Some(fault_injector) = card.nic.fault_injector_mut() {
            fault_injector.set_rates(rates);
        } else if !faults.is_none() {
            let fault_injector = FaultInjector::new(rates, self.common.seed, node as u16)
                .with_host_values(card.host_values, card.limits);
            card.inject(fault_injector);
            self.common.has_device_faults = true;
        }
    }

    /// Whether something ever went wrong in a card on purpose.
    pub fn has_device_faults(&self) -> bool {
        self.common.has_device_faults
    }

    /// What was done here so far, by anybody but who merely asked.
    #[inline]
    pub fn acts(&self) -> u64 {
        self.common.acts
    }

    /// How often all nodes were taken so far.
    pub fn lock_counts(&self) -> LockCounts {
        self.common.lock_counts
    }

    /// Lets data be lent to frames, as it is, or has all of it copied as if somebody watched: to compare the two.
    pub fn set_lending(&mut self, is_on: bool) {
        self.common.lends_nothing = !is_on;
    }

    /// Frames so far whose data was lent.
    pub fn lent_frames(&self) -> u64 {
        self.nodes.iter().map(|(_, node)| node.lent_frames).sum()
    }

    /// The latest instant of model time at which anything happened.
    pub fn model_time(&self) -> Time {
        let rests = self.nodes.iter().map(|(_, node)| node.bus.rest().max(node.latest));
        rests.fold(self.common.network.latest().max(self.common.latest), Time::max)
    }

    /// Looks whether launches wait of which nobody told, where drivers are held to rules, and takes none.
    pub fn peek_rules(&mut self) {
        for (_, node) in self.nodes.iter_mut() {
            let Card { rules, pages, vrings, .. } = &mut node.card;
            rules.iter_mut().for_each(|rules| rules.peek(pages, vrings));
        }
    }

    /// Looks through memory that nobody in a guest is to touch, where drivers are held to rules.
    pub fn check_memory(&mut self) {
        self.nodes.iter_mut().for_each(|(_, node)| node.card.check_memory());
    }

    /// Goes on with what is under way. True when there is more.
    pub fn go_on(&mut self) -> bool {
        self.common.turn = Turn::WHOLE;
        self.settle(0);
        self.serve_stalled();
        self.has_pending()
    }

    /// Whether a look at the open pages of `node` would find something. A slot that its model does not take is nothing:
    /// whoever makes room for it comes back to it.
    pub fn has_news(&self, node: usize) -> bool {
        let Some(card) = self.nodes.card(node).filter(|card| !card.stands_still()) else { return false };
        // A program that is ready for its first turn stores that and nothing else.
        let has_report = |port| self.common.lockstep.is_some() && card.pages.has_report(port);
        (0..card.ports()).any(|port| card.is_open(port) && (card.has_news(port) || has_report(port)))
    }

    /// Looks at the open pages of `node`: takes what was launched, reads registers, carries it all through.
    #[inline]
    pub fn serve_pages(&mut self, node: usize) -> Found {
        self.common.turn = Turn::WHOLE;
        if self.nodes.card(node).is_some_and(|card| card.stands_still()) {
            return Found::default();
        }
        if let Some(more) = self.serve_lockstep(node) {
            return Found { work: 1, more };
        }
        let adversarial = if self.common.is_adversarial { self.look_adversarially(node) } else { None };
        let mut found =
            adversarial.unwrap_or_else(|| Found { work: self.serve_ports(node), ..Found::default() });
        // What another look left under way: behind what this node launches, which may come earlier in model time.
        if (self.common.network.is_moving() || self.common.is_owing) && !self.common.turn.is_over() {
            found.work += 1;
            self.settle(node);
        }
        self.serve_stalled();
        found.more |= self.common.turn.is_over() || self.common.network.is_moving();
        found
    }

    /// The pages of all ports of `node`.
    #[inline]
    fn serve_ports(&mut self, node: usize) -> u32 {
        self.serve_ports_from(node, 0, u32::MAX)
    }

    /// The same, from one of the ports on, and so many slots of each at the most.
    #[inline]
    pub(super) fn serve_ports_from(&mut self, node: usize, first: u32, most: u32) -> u32 {
        let mut work = 0;
        if self.is_in_lockstep() {
            return work;
        }
        let Some(card) = self.nodes.card_mut(node).filter(|card| !card.stands_still()) else { return work };
        if let Some(rules) = &mut card.rules {
            rules.on_doorbells(&card.pages, &card.vrings);
        }
        let ports = card.ports();
        for port in (first..ports).chain(0..first) {
            let Some((card, bus)) = self.node(node).filter(|(card, _)| card.is_open(port)) else { continue };
            if card.has_registers(port) && card.registers(port, bus) {
                work += 1;
                let is_way_clear = self.is_way_clear();
                self.follow(node, is_way_clear);
            }
            work += self.serve_port(node, port, most);
        }
        self.common.acts += u64::from(work);
        work
    }

    /// Takes slots of one port as long as there are some and the model takes them, but so many at the most.
    #[inline]
    fn serve_port(&mut self, node: usize, port: u32, most: u32) -> u32 {
        let (mut taken, mut way) = (0, None);
        while !self.common.turn.is_over() {
            let Some(card) = self.nodes.card_mut(node) else { break };
            if !card.nic.accepts_store(port) {
                if !card.is_stalled && card.pages.is_launched(port) {
                    card.is_stalled = true;
                    self.common.stalled += 1;
                }
                break;
            }
            if taken >= most {
                break;
            }
            let together = self.take_series(node, port, most - taken, &mut way);
            if together > 0 {
                taken += together;
                continue;
            }
            let Some(card) = self.nodes.card_mut(node) else { break };
            let Some(launch) = card.take(port) else { break };
            let has_registers = card.has_registers(port);
            // What the program told before this launch comes before it.
            let is_way_clear = *way.get_or_insert_with(|| self.is_way_clear());
            if has_registers
                && let Some((card, bus)) = self.node(node)
                && card.registers(port, bus)
            {
                self.follow(node, is_way_clear);
            }
            self.common.turn.spend(LAUNCH_NS);
            taken += 1;
            let Some((card, bus)) = self.node(node) else { break };
            card.store(launch, bus);
            self.follow(node, is_way_clear);
        }
        taken
    }

    /// Goes on with slots that a model could not take before, where it can now.
    fn serve_stalled(&mut self) {
        let mut progress = true;
        while (self.common.stalled > 0 || self.common.has_descriptors)
            && progress
            && !self.common.turn.is_over()
        {
            progress = self.common.has_descriptors && self.take_descriptors();
            for node in 0..self.nodes.len() {
                let is_due = |card: &&mut Card| card.is_stalled && !card.stands_still();
                let Some(card) = self.nodes.card_mut(node).filter(is_due) else { continue };
                card.is_stalled = false;
                self.common.stalled -= 1;
                for port in (0..card.ports()).collect::<smallvec::SmallVec<[u32; 8]>>() {
                    if self.nodes.card(node).is_some_and(|card| card.is_open(port)) {
                        progress |= self.serve_port(node, port, u32::MAX) > 0;
                    }
                }
            }
        }
    }

    /// Carries out what the model of `node` wants done, and all that follows from it on every node, as far as the turn
    /// goes: what is then under way stays so until the next look at any page.
    #[inline]
    fn settle(&mut self, node: usize) {
        if self.is_in_lockstep() {
            return self.carry_out(node);
        }
        self.common.lends = !self.common.lends_nothing;
        self.carry_out(node);
        self.carry_on();
        self.common.lends = false;
        // A card with work in hand need have nothing under way, and nobody else would come back for it.
        self.common.is_owing = self.common.turn.is_over()
            && (self.common.is_owing || self.next_work().is_some() || self.next_deferred().is_some());
        self.check_time();
        // What is left is kept until others have had the world.
        self.common.network.own_all();
    }

    /// Lets everything arrive that is under way, as far as the turn goes.
    #[inline]
    fn carry_on(&mut self) {
        loop {
            while !self.common.turn.is_over()
                && let Some(arrival) = self.common.network.pop()
            {
                let to = usize::from(arrival.to);
                let passage = Passage { head: arrival.head, tail: arrival.at };
                match arrival.frame {
                    Carried::Whole(frame) => {
                        self.arrive(to, passage, &frame, arrival.message, arrival.concern);
                    }
                    Carried::Lent(frame) => {
                        self.arrive_lent(to, passage, &frame, arrival.message);
                        self.carry_out_with(to, Some(&frame));
                        continue;
                    }
                }
                self.carry_out(to);
            }
            if self.common.turn.is_over() {
                return;
            }
            if let Some((node, due)) = self.next_overdue() {
                if let Some((card, bus)) = self.node(node) {
                    card.expire(due, bus);
                }
                self.carry_out(node);
                continue;
            }
            if let Some(node) = self.next_deferred() {
                self.carry_out(node);
                continue;
            }
            let Some((node, due)) = self.next_work() else { return };
            if let Some((card, bus)) = self.node(node) {
                card.go_on(due, bus);
            }
            self.carry_out(node);
        }
    }

    /// A card whose late completion is due, because others have got so far in model time meanwhile. Where all others
    /// are quiet, [`World::pass_time`] gets there.
    #[inline]
    fn next_overdue(&self) -> Option<(usize, Time)> {
        if !self.common.has_device_faults && !self.common.is_adversarial {
            return None;
        }
        let now = self.model_time();
        let due = |card: &Card| {
            if card.stands_still() {
                return None;
            }
            let held = [
                card.nic.fault_injector().and_then(FaultInjector::due),
                card.nic.adversarial().and_then(Adversarial::due),
            ];
            held.into_iter().flatten().min().filter(|due| *due <= now)
        };
        self.nodes.cards().find_map(|(node, card)| Some((node, due(card)?)))
    }

    /// The card that goes on first with what it has in hand. Nothing is in flight: what could come before it guests
    /// have not sent.
    #[inline]
    fn next_work(&self) -> Option<(usize, Time)> {
        let due = |card: &Card| card.nic.poll_work().filter(|_| !card.stands_still());
        let (due, node) = self.nodes.cards().filter_map(|(node, card)| Some((due(card)?, node))).min()?;
        Some((node, due))
    }

    #[inline]
    fn arrive(
        &mut self,
        to: usize,
        passage: Passage,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        concern: Concern,
    ) {
        self.common.turn.spend(frame_ns(frame.len()));
        self.common.acts += 1;
        if concern != Concern::Card && !self.is_for_stations(to, passage, frame, message, concern) {
            return;
        }
        let Some((card, bus)) = self.node(to) else { return };
        if let Some(stopped) = card.holder() {
            stopped.hold(HeldFrame { passage, frame: frame.clone(), message, concern: Concern::Card });
        } else {
            card.arrive(passage, frame, message, bus);
        }
    }

    /// A frame arrives whose data is lent.
    #[inline]
    fn arrive_lent(&mut self, to: usize, passage: Passage, frame: &LentFrame, message: Option<TraceTag>) {
        // Its data is not moved but where it is stored, which the model counts.
        self.common.turn.spend(FRAME_NS);
        self.common.acts += 1;
        let Some((card, bus)) = self.node(to) else { return };
        if let Some(stopped) = card.holder() {
            let frame = frame.to_owned_frame();
            stopped.hold(HeldFrame { passage, frame, message, concern: Concern::Card });
        } else {
            card.arrive_lent(passage, frame, message, bus);
        }
    }

    /// Takes what the model of `node` says that it has done since the last call out of the turn.
    #[inline]
    fn spend_work(&mut self, node: usize) {
        if let Some(card) = self.nodes.card_mut(node) {
            let work = card.take_work();
            self.common.turn.spend_work(work);
        }
    }

    /// Carries out what the model of `node` wants done. A frame that is the only one under way arrives at once, and
    /// what it causes is under way afterwards.
    #[inline]
    fn carry_out(&mut self, node: usize) {
        self.carry_out_with(node, None);
    }

    /// The same, where a frame has come whose data is lent.
    #[inline]
    fn carry_out_with(&mut self, node: usize, lent: Option<&LentFrame>) {
        self.spend_work(node);
        while let Some(output) = self.next_output(node) {
            if self.is_for_another_turn(&output, lent.is_some()) {
                return self.defer(node, output);
            }
            if let Output::LentFrame { at, tail, head, message } = output {
                self.send_lent(node, Passage { head: at, tail }, head, message);
                continue;
            }
            // Frames are long, and are left where they are.
            let Output::Frame { at: head, tail, ref frame, message } = output else {
                self.perform(node, output, lent);
                continue;
            };
            let (ready, concern) = (Passage { head, tail }, Concern::of(frame));
            let was_cut = self.common.cut.is_some();
            if !self.reaches(frame, concern) {
                self.set_aside(node, output, was_cut);
                continue;
            }
            self.count_sent(node, head, frame.len());
            if let Some(delivery) =
                self.common.network.send(&mut self.nodes, ready, node as u16, frame, message, concern)
            {
                let to = usize::from(delivery.to);
                let passage = Passage { head: delivery.head, tail: delivery.at };
                self.arrive(to, passage, frame, message, concern);
                self.answer(to, None);
            }
        }
    }

    /// Sends a frame with this head, whose data was lent just now, and carries out what it causes where it arrives at
    /// once.
    #[inline]
    fn send_lent(&mut self, node: usize, ready: Passage, head: FrameBytes, message: Option<TraceTag>) {
        let Some(loan) = self.common.loan.take() else {
            debug_assert!(false, "a frame without data, of which none was lent");
            return;
        };
        let frame = loan.behind(head);
        let was_cut = self.common.cut.is_some();
        let way = self.common.network.known_way(frame.head().bytes);
        if !self.reaches_by(way) {
            let Passage { head: at, tail } = ready;
            let frame = Output::Frame { at, tail, frame: frame.into_owned(), message };
            return self.set_aside(node, frame, was_cut);
        }
        self.count_sent(node, ready.head, frame.frame_bytes());
        if let Some((delivery, frame)) =
            self.common.network.send_lent(&mut self.nodes, ready, node as u16, frame, way, message)
        {
            let to = usize::from(delivery.to);
            let passage = Passage { head: delivery.head, tail: delivery.at };
            self.arrive_lent(to, passage, &frame, message);
            self.answer(to, Some(&frame));
        }
    }

    /// Carries out what a frame causes that has come to `to`; what is sent is under way afterwards.
    #[inline]
    fn answer(&mut self, to: usize, lent: Option<&LentFrame>) {
        self.spend_work(to);
        while let Some(output) = self.next_output(to) {
            if self.is_for_another_turn(&output, lent.is_some()) {
                return self.defer(to, output);
            }
            let was_cut = self.common.cut.is_some();
            let is_sent = match &output {
                Output::Frame { frame, .. } => self.reaches(frame, Concern::of(frame)),
                Output::LentFrame { head, .. } => self.reaches(head, Concern::Card),
                _ => true,
            };
            if !is_sent {
                self.set_aside(to, output, was_cut);
            } else if let Some((ready, answer, message)) = self.perform(to, output, lent) {
                self.common.network.keep(&mut self.nodes, ready, to as u16, answer, message);
            }
        }
    }

    #[inline]
    fn count_sent(&mut self, node: usize, at: Time, frame_bytes: usize) {
        self.common.latest = self.common.latest.max(at);
        if let Some(card) = self.nodes.card_mut(node) {
            card.counts.traffic.sent_frames += 1;
            card.counts.traffic.sent_bytes += frame_bytes as u64;
        }
    }

    /// Performs one output of a model, to which a frame with lent data may have come; one that is a frame is given
    /// back, counted.
    #[inline]
    fn perform(&mut self, node: usize, output: Output, lent: Option<&LentFrame>) -> Option<Sent> {
        self.common.latest = self.common.latest.max(output.at());
        let is_as_made = !self.common.has_device_faults && !self.common.is_adversarial;
        let is_lending = self.common.lends && is_as_made && self.common.network.may_lend();
        // A card may read again because of what it reads, with nothing else in between: a guest whose ring has no end,
        // say.
        let is_read = matches!(output, Output::DmaRead { .. } | Output::WindowRead { .. });
        let Node { card, bus, lent_frames, .. } = self.nodes.get_mut(node)?;
        match output {
            Output::DmaWrite { address, words, .. } => card.write(address, &words),
            Output::Frame { at: head, tail, frame, message } => {
                self.count_sent(node, head, frame.len());
                return Some((Passage { head, tail }, Carried::Whole(frame), message));
            }
            Output::LentFrame { at: head, tail, head: first, message } => {
                let frame = self.common.loan.take()?.behind(first);
                self.count_sent(node, head, frame.frame_bytes());
                return Some((Passage { head, tail }, Carried::Lent(frame), message));
            }
            Output::DmaFrame { frame, bytes, ranges, .. } => {
                card.store_bytes(frame.get(bytes).unwrap_or_default(), &ranges);
            }
            Output::DmaLent { bytes, ranges, .. } => {
                if let Some(lent) = lent {
                    card.store_lent(lent, &bytes, &ranges);
                } else {
                    debug_assert!(false, "what has come is not lent");
                }
            }
            Output::DmaRead { at, token, ranges, into, .. } => {
                let loan = if is_lending { card.loan(&ranges, &into) } else { None };
                if loan.is_some() {
                    card.nic.handle(at, Input::Lent { token, into }, bus);
                    self.common.loan = loan;
                    *lent_frames += 1;
                } else {
                    card.load(at, token, &ranges, into, bus);
                }
            }
            Output::WindowRead { at, token, range, into, .. } => {
                card.read_window(at, token, &range, into, bus)
            }
            Output::Interrupt { cause, port, .. } => card.raise(cause, port),
            Output::Complete { token, bytes, .. } => card.complete(token, bytes),
            Output::Reply { token, bytes, .. } => card.reply(token, &bytes),
        }
        if is_read {
            self.common.turn.spend(READ_NS);
            self.spend_work(node);
        }
        None
    }

    /// Serves the control queue of `node`. True when there may be more.
    ///
    /// What others have under way is not carried on here: whoever left it comes back for it, and a request must not
    /// wait for a turn of theirs.
    pub fn serve_control(&mut self, node: usize) -> bool {
        let was_pending = self.has_pending();
        self.common.turn = Turn::WHOLE;
        self.serve_ports(node);
        let mut more = self.common.turn.is_over();
        // A guest that keeps its queue full, or full of chains that nobody can answer, gets a turn for it, not more.
        self.common.turn = Turn::WHOLE;
        while self.nodes.card(node).is_some_and(Card::has_request) {
            // What was launched before a request is sent before it takes effect. So this looks once more: the program
            // may have launched, and the driver asked, since the look above.
            self.serve_ports(node);
            let taken = self.node(node).is_some_and(|(card, bus)| card.next_request(bus));
            self.carry_out(node);
            self.common.turn.spend(REQUEST_NS);
            if !taken {
                break;
            }
            if self.common.turn.is_over() || self.leaves_requests(node) {
                more = true;
                break;
            }
        }
        // Its first request says that it hears interrupts.
        self.tell_link(node);
        if !was_pending {
            self.settle(node);
        }
        self.serve_stalled();
        // A program may have closed its port, and be waited for no longer.
        more |= self.serve_lockstep(node) == Some(true);
        more || !was_pending && self.has_pending()
    }

    /// The driver of `node` has notified a descriptor queue. True when there may be more.
    pub fn serve_descriptors(&mut self, node: usize, queue: DescriptorQueue) -> bool {
        self.common.turn = Turn::WHOLE;
        // What was launched before is sent before.
        self.serve_ports(node);
        if let Some((card, bus)) = self.node(node) {
            let takes_any = card.nic.descriptors_wanted(queue).is_some();
            if !card.stands_still() {
                card.poll_demand(queue, bus);
            }
            self.common.has_descriptors |= takes_any;
        }
        self.carry_out(node);
        self.settle(node);
        self.serve_stalled();
        self.common.turn.is_over() || self.common.network.is_moving()
    }

    /// Takes chains out of descriptor queues, as long as models want some: those that a model could not take before,
    /// too. A guest that keeps its queue full, or full of chains that are none, gets a turn for it, not more.
    fn take_descriptors(&mut self) -> bool {
        let mut any = false;
        for node in 0..self.nodes.len() {
            for queue in DescriptorQueue::ALL {
                while !self.common.turn.is_over()
                    && self.node(node).is_some_and(|(card, bus)| card.next_descriptor(queue, bus))
                {
                    any = true;
                    self.common.acts += 1;
                    self.common.turn.spend(REQUEST_NS);
                    self.settle(node);
                }
            }
        }
        any
    }

    /// The driver of `node` has left buffers for events.
    pub fn serve_events(&mut self, node: usize) {
        if let Some(card) = self.nodes.card_mut(node) {
            card.deliver_events();
        }
        self.tell_link(node);
    }

    /// The link of `node` may have been cut or restored: its driver is told, if its card has stations.
    pub fn tell_link(&mut self, node: usize) {
        let is_cut = self.common.network.faults().get(node).is_some_and(|faults| faults.partition);
        if let Some(card) = self.nodes.card_mut(node) {
            card.tell_link(is_cut);
        }
    }

    /// The host of `node` is gone or starts anew. What others had under way may still be so: see [`World::go_on`].
    pub fn host_reset(&mut self, node: usize) {
        let stopped = self.nodes.card_mut(node).and_then(|card| card.stopped.take());
        self.fail_deferred_reads(node);
        let Some((card, bus)) = self.node(node) else { return };
        let was_stalled = card.is_stalled;
        card.host_reset(bus, stopped.is_some());
        self.common.acts += 1;
        self.common.stalled -= usize::from(was_stalled);
        self.common.turn = Turn::WHOLE;
        stopped.into_iter().for_each(|stopped| self.release(node, *stopped));
        self.settle(node);
        self.serve_stalled();
        self.serve_lockstep(node);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    use niclab_abi::PAGE_BYTES;
    use niclab_abi::bar::{COMPLETER_RELEASED_OFFSET, SLOT_LAUNCH_WORD, launch_word};
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::nic::Statistics;
    use niclab_model::nic::windows::PAGES_OF_PORTS;
    use niclab_model::nic::{HostRange, Input, Nic, Observed, Register, ShellCounts};
    use niclab_model::platform::ledger::Ledger;
    use niclab_model::time::Span;
    use smallvec::SmallVec;

    use super::cluster::Cluster;
    use super::*;
    use crate::shell::pages::Pages;

    /// A card whose program releases a slice and launches just when its page is looked at.
    struct Busy {
        bar: File,
        requester_page: u32,
        completer_page: u32,
        inputs: Arc<Mutex<Vec<&'static str>>>,
        /// It has taken a launch, and goes on with it later.
        is_at_work: bool,
        ledger: Ledger,
    }

    impl Busy {
        fn store(&self, page: u32, offset: u64, word: u64) {
            self.bar.write_all_at(&word.to_le_bytes(), u64::from(page) * PAGE_BYTES + offset).unwrap();
        }
    }

    impl Nic for Busy {
        fn handle(&mut self, _: Time, input: Input<'_>, _: &mut NodeBus) {
            let name = match input {
                Input::Register { register: Register::Released(1), .. } => "released",
                Input::PageStore(_) => "launched",
                Input::Timeout => "went on",
                _ => "something else",
            };
            self.is_at_work = name == "launched";
            self.inputs.lock().unwrap().push(name);
        }

        fn accepts_store(&self, _: u32) -> bool {
            self.store(self.completer_page, COMPLETER_RELEASED_OFFSET, 1);
            self.store(self.requester_page, SLOT_LAUNCH_WORD as u64 * 8, launch_word(64, 1));
            true
        }

        fn memory_named_by(&self, _: &[u8]) -> SmallVec<[HostRange; 2]> {
            SmallVec::new()
        }

        fn poll_output(&mut self) -> Option<Output> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn poll_work(&self) -> Option<Time> {
            self.is_at_work.then_some(Time::from_ps(7))
        }

        fn is_open(&self, port: u32) -> bool {
            port == 0
        }
    }

    impl Observed for Busy {
        fn delivered(&self, _: u32) -> u64 {
            1
        }

        fn unordered(&self) -> u64 {
            0
        }

        fn ledger(&self) -> &Ledger {
            &self.ledger
        }

        fn ledger_mut(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn statistics(&self, _: &ShellCounts) -> Statistics {
            Statistics::default()
        }
    }

    /// A node with such a card, alone.
    fn alone() -> (Cluster, Arc<Mutex<Vec<&'static str>>>) {
        let fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(1_000_000_000)],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        let inputs = Arc::default();
        let nic = Busy {
            bar: pages.file().try_clone().unwrap(),
            requester_page: pages.requester_page(0),
            completer_page: pages.completer_page(0),
            inputs: Arc::clone(&inputs),
            is_at_work: false,
            ledger: Ledger::default(),
        };
        let cluster = Cluster::new(vec![(Box::new(nic), pages, 1)], &Arc::default(), fabric.unwrap(), 1);
        (cluster, inputs)
    }

    #[test]
    fn frames_that_cannot_be_sent_keep_their_order_however_often_that_is() {
        let (cluster, _) = alone();
        let mut world = cluster.world();
        let frame = |number: u8| Output::Frame {
            at: Time::ZERO,
            tail: Time::ZERO,
            frame: SharedFrame::from(&[number; 64][..]),
            message: None,
        };
        // The first frame is the cut; what its card wants behind it waits.
        world.set_aside(0, frame(1), false);
        world.set_aside(0, frame(2), true);
        world.set_aside(0, frame(3), true);
        assert_eq!(world.next_output(0), Some(frame(1)));
        // The next part gets so far, and is cut by the second.
        let second = world.next_output(0).unwrap();
        world.set_aside(0, second, false);
        world.set_aside(0, frame(4), true);
        assert_eq!([(); 3].map(|()| world.next_output(0)), [2, 3, 4].map(|number| Some(frame(number))));
    }

    #[test]
    fn work_in_hand_at_a_turns_end_is_come_back_for() {
        let (cluster, inputs) = alone();
        let mut world = cluster.world();
        world.nodes[0].card.follow_ports();
        // Launched, and the turn is over before the card goes on.
        world.nodes[0].card.nic.accepts_store(0);
        let launch = world.nodes[0].card.pages.take(0).unwrap();
        let (card, bus) = world.node(0).unwrap();
        card.store(launch, bus);
        world.common.turn = Turn::OVER;
        world.settle(0);
        assert_eq!(inputs.lock().unwrap().last(), Some(&"launched"));
        assert!(world.common.is_owing && !world.may_be_in_parts());
        assert!(!world.go_on());
        assert_eq!(inputs.lock().unwrap().last(), Some(&"went on"));
    }

    #[test]
    fn what_a_program_stored_before_a_launch_is_told_before_it_and_the_card_goes_on_without_a_wait() {
        let (cluster, inputs) = alone();
        let mut world = cluster.world();
        world.nodes[0].card.follow_ports();
        world.serve_pages(0);
        assert_eq!(*inputs.lock().unwrap(), ["released", "launched", "went on"]);
    }
}
