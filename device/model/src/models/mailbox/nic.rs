//! The card.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use niclab_abi::bar::PAYLOAD_WORDS;
use niclab_abi::control::{Authorize, PortOpen, Revoke, Route};
use niclab_abi::receive::{MAX_SLICES, REFUSED_NO_ROUTE, StatusLine};

use crate::models::mailbox::config::{Config, ConfigError, LONGEST_WAIT, MAX_PARTNERS, PORTS};
use crate::models::mailbox::counters::{Counters, Effects};
use crate::models::mailbox::wire::{FrameKind, Header, WireError};
use crate::nic::Address;
use crate::nic::{FrameBytes, Input, Nic, Observed, PageStore, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::effects::{Machine, ReplyDue, WORD_BYTES, WorkPrices, empty_reply};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::launch_code::Code;
use crate::parts::port::{ReceiveQueue, RequesterPage};
use crate::parts::routes::Operation;
use crate::parts::slice::Slice;
use crate::parts::timers::{TimerName, Timers};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// All inputs and outputs are short, so no price depends on a length.
const WORK: WorkPrices =
    WorkPrices { input: 10, checked_bytes_in_unit: u64::MAX, output: 5, copied_bytes_in_unit: u64::MAX };

/// The timers of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The letter in flight was not acknowledged in time: the card sends it again.
    Repeat,
}

impl TimerName for Timer {
    const ALL: &'static [Self] = &[Self::Repeat];
}

/// A letter that is not yet acknowledged.
#[derive(Clone, Debug)]
struct Letter {
    number: u64,
    target: Address,
    frame: FrameBytes,
    message: TraceTag,
    /// The program asked to be notified of the acknowledgement.
    acknowledge: bool,
    /// How long the letter waits after its next transmission.
    wait: Span,
}

/// An open port.
#[derive(Clone, Debug)]
struct MailboxPort {
    page: RequesterPage,
    queue: ReceiveQueue,
    target: Option<Address>,
    /// The ports that may send to this one, and how many slices are reserved for each. Letters are not counted against
    /// the reservation, because a sender has only one in flight. But programs rely on the reservations not to exceed
    /// the queue.
    partners: Vec<(Address, u32)>,
    in_flight: Option<Letter>,
    /// When the previous letter was acknowledged; the next one does not leave earlier.
    free_at: Time,
}

/// A Mailbox card.
pub struct Mailbox {
    config: Config,
    ports: [Option<MailboxPort>; PORTS],
    /// Letters posted so far.
    letters: u64,
    /// The number of the last letter that each port has stored from each sender. The entry outlives both ports. If an
    /// acknowledgement is lost, the letter comes again, and the card must not store it twice, even if the ports were
    /// reopened by other programs. The map has at most one entry for each port of the cluster, and only for ports that
    /// were authorized.
    taken: BTreeMap<(usize, Address), u64>,
    timers: Timers<Timer>,
    effects: Effects,
}

impl Mailbox {
    /// A card without open ports.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            ports: [const { None }; PORTS],
            letters: 0,
            taken: BTreeMap::new(),
            timers: Timers::default(),
            effects: Effects::new(HostInterface::new(config.profile.clone()), WORK),
            config,
        })
    }

    /// The card's counters.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    fn port(&self, port: u32) -> Option<&MailboxPort> {
        self.ports.get(port as usize)?.as_ref()
    }

    /// A program has posted a letter. The shell leaves it in the page while another one is in flight.
    fn on_store(&mut self, now: Time, store: &PageStore) {
        let effects = &mut self.effects;
        let index = store.port as usize;
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        if port.in_flight.is_some() {
            return;
        }
        let now = port.page.launched_at(now);
        let code = Code::decode(store.code);
        // A store with an undefined code is priced as the shortest burst.
        let payload_words = code.map_or(0, |code| code.payload_words);
        let words = store.words.get(PAYLOAD_WORDS - payload_words..).unwrap_or_default();
        let bytes = words.len() as u64 * WORD_BYTES;
        self.letters += 1;
        let message = TraceTag {
            node: self.config.node,
            port: store.port as u16,
            number: self.letters,
            launched: now.max(effects.interface.host_clock()),
            bytes: (payload_words as u64 * WORD_BYTES) as u32,
        };
        effects.attribute(Some(message));
        let software_done = effects.interface.host_send(now, bytes);
        let arrived = effects.interface.transfer(BusTransfer::PioWrite, software_done, bytes).end;
        let (_, is_line_due) = port.page.count_launch();
        let (code, target) = match (code, port.target) {
            (Err(error), _) => return port.page.refuse(arrived, error.refusal(), effects),
            (Ok(_), None) => return port.page.refuse(arrived, REFUSED_NO_ROUTE, effects),
            (Ok(code), Some(target)) => (code, target),
        };
        let loaded = effects.work(Machine::Load, arrived.max(port.free_at), bytes).end;
        let header = Header {
            kind: FrameKind::Letter { interrupt: code.interrupt, acknowledge: code.acknowledge },
            source: Address { node: self.config.node, port: index as u8 },
            target,
            number: self.letters,
        };
        let wait = self.config.first_wait;
        let frame = header.emit(words);
        let letter =
            Letter { number: self.letters, target, frame, message, acknowledge: code.acknowledge, wait };
        let sent = send(loaded, index, port.in_flight.insert(letter), &mut self.timers, effects);
        effects.counters.card.messages_sent += 1;
        effects.counters.card.bytes_sent += bytes;
        port.page.line.sent += 1;
        port.page.line.notified += u64::from(code.notify);
        if code.notify {
            port.page.write(sent, effects);
        } else if is_line_due {
            port.page.write(loaded, effects);
        }
    }

    /// A frame from the network.
    fn on_frame(&mut self, now: Time, frame: &[u8], message: Option<&TraceTag>) {
        let effects = &mut self.effects;
        effects.attribute(message.copied());
        let (header, words) = match Header::parse(frame) {
            Ok((header, words)) if header.target.node == self.config.node => (header, words),
            Err(WireError::Check) => {
                effects.counters.card.damaged += 1;
                return;
            }
            Err(WireError::Foreign) => {
                effects.counters.card.foreign_frames += 1;
                return;
            }
            _ => {
                effects.counters.card.malformed += 1;
                return;
            }
        };
        let bytes = words.len() as u64 * WORD_BYTES;
        let checked = effects.work(Machine::Receive, now, bytes).end;
        match header.kind {
            FrameKind::Acknowledgement => self.on_acknowledgement(checked, &header),
            FrameKind::Letter { interrupt, acknowledge } => {
                let slice = Slice { source: header.source, interrupt, acknowledge, message };
                self.on_letter(checked, &header, &slice, words);
            }
        }
    }

    fn on_letter(
        &mut self,
        now: Time,
        header: &Header,
        slice: &Slice<'_>,
        words: impl ExactSizeIterator<Item = u64>,
    ) {
        let (effects, index) = (&mut self.effects, usize::from(header.target.port));
        let last = self.taken.get(&(index, header.source)).copied().unwrap_or(0);
        if header.number <= last {
            // A letter older than the last one was acknowledged, or its sender gave it up and no longer waits for the
            // acknowledgement.
            effects.counters.duplicated += 1;
            return acknowledge(now, header, effects);
        }
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            effects.counters.not_taken += 1;
            return;
        };
        if !port.partners.iter().any(|(partner, _)| *partner == header.source) {
            effects.counters.unauthorized += 1;
            return;
        }
        if !port.queue.has_room(1) {
            effects.counters.not_taken += 1;
            return;
        }
        self.taken.insert((index, header.source), header.number);
        let stored = effects.work(Machine::Store, now, words.len() as u64 * WORD_BYTES).end;
        let promise = port.queue.promise(1);
        let (_, visible) = slice.store(stored, words, (index, &mut port.queue, promise), effects);
        acknowledge(visible, header, effects);
    }

    /// The letter in flight was stored.
    fn on_acknowledgement(&mut self, now: Time, header: &Header) {
        let (effects, index) = (&mut self.effects, usize::from(header.target.port));
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let is_it = |letter: &mut Letter| (letter.number, letter.target) == (header.number, header.source);
        let Some((letter, port)) = port.and_then(|port| Some((port.in_flight.take_if(is_it)?, port))) else {
            effects.counters.stray_acknowledgements += 1;
            return;
        };
        self.timers.stop(Timer::Repeat, index);
        port.free_at = now;
        if letter.acknowledge {
            // Wall time decides in which order the bus carries this status line and those of later posts.
            effects.card().unordered += 1;
            port.page.line.acknowledged += 1;
            port.page.write(now, effects);
        }
    }

    /// Repeats one letter whose timer has expired; false if there is none.
    fn repeat(&mut self, now: Time) -> bool {
        let Some((Timer::Repeat, index)) = self.timers.take_expired(now) else { return false };
        let letter = self.ports[index].as_mut().and_then(|port| port.in_flight.as_mut());
        if let Some(letter) = letter {
            self.effects.counters.repeated += 1;
            self.effects.attribute(Some(letter.message));
            letter.wait = letter.wait.times(2).min(LONGEST_WAIT).max(self.config.first_wait);
            send(now, index, letter, &mut self.timers, &mut self.effects);
        }
        true
    }

    fn set_route(&mut self, route: &Route) -> Result<(), ControlError> {
        let index = self.open_index(route.port)?;
        let target = self.remote(route.node, route.node_port)?;
        let Some(port) = self.ports[index].as_mut().filter(|_| route.reserved == 0) else {
            return Err(ControlError::BadValue);
        };
        // The letter in flight was meant for the old route.
        if port.in_flight.is_some() {
            return Err(ControlError::PortBusy);
        }
        port.target = Some(target);
        Ok(())
    }

    fn authorize(&mut self, entry: &Authorize) -> Result<(), ControlError> {
        let index = self.open_index(entry.port)?;
        let remote = self.remote(entry.node, entry.node_port)?;
        let Some(port) = &mut self.ports[index] else { return Err(ControlError::BadPort) };
        if entry.credits == 0 {
            return Err(ControlError::BadValue);
        }
        let place = port.partners.iter().position(|(partner, _)| *partner == remote);
        let others = port.partners.iter().filter(|(partner, _)| *partner != remote);
        let set_aside: u64 = others.map(|(_, credits)| u64::from(*credits)).sum();
        let is_full = place.is_none() && port.partners.len() >= MAX_PARTNERS;
        if is_full || set_aside + u64::from(entry.credits) > port.queue.slices() {
            return Err(ControlError::NoSpace);
        }
        match place.and_then(|place| port.partners.get_mut(place)) {
            Some((_, credits)) => *credits = entry.credits,
            None => port.partners.push((remote, entry.credits)),
        }
        Ok(())
    }

    fn revoke(&mut self, entry: &Revoke) -> Result<(), ControlError> {
        let index = self.open_index(entry.port)?;
        let remote = self.remote(entry.node, entry.node_port)?;
        let Some(port) = self.ports[index].as_mut().filter(|_| entry.reserved == 0) else {
            return Err(ControlError::BadValue);
        };
        let place = port.partners.iter().position(|(partner, _)| *partner == remote);
        port.partners.swap_remove(place.ok_or(ControlError::NotFound)?);
        Ok(())
    }

    fn remote(&self, node: u32, port: u32) -> Result<Address, ControlError> {
        Address::named(node, port, self.config.nodes, PORTS)
    }
}

/// Sends a letter that is complete at `ready`, and sets the timer. Returns when it has left.
fn send(
    ready: Time,
    index: usize,
    letter: &Letter,
    timers: &mut Timers<Timer>,
    effects: &mut Effects,
) -> Time {
    let sent = effects.work(Machine::Transmit, ready, letter.frame.len() as u64).end;
    effects.frame(sent, letter.frame.clone(), Some(letter.message));
    timers.start(Timer::Repeat, index, sent, letter.wait);
    sent
}

/// Notifies a letter's sender that it was stored.
fn acknowledge(ready: Time, letter: &Header, effects: &mut Effects) {
    let answer = Header {
        kind: FrameKind::Acknowledgement,
        source: letter.target,
        target: letter.source,
        number: letter.number,
    };
    effects.card().acknowledgements_sent += 1;
    effects.unattributed(|effects| {
        let sent = effects.work(Machine::Transmit, ready, 0).end;
        effects.frame(sent, answer.emit(&[]), None);
    });
}

impl Controlled for Mailbox {
    type Own = Operation;
    type Counters = Counters;
    const PORTS: usize = PORTS;
    const STATUS_BYTES: u64 = size_of::<StatusLine>() as u64;

    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    fn max_slices(&self) -> u32 {
        MAX_SLICES
    }

    fn is_open(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(Option::is_some)
    }

    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
        // This model has no FIFO RAM to divide.
        if open.fifo_words == 0 { Ok(()) } else { Err(ControlError::BadValue) }
    }

    fn open_port(&mut self, port: usize, open: &PortOpen) -> Result<(), ControlError> {
        self.ports[port] = Some(MailboxPort {
            page: RequesterPage::new(open.status_address),
            queue: ReceiveQueue::new(open),
            target: None,
            partners: Vec::new(),
            in_flight: None,
            free_at: Time::ZERO,
        });
        Ok(())
    }

    fn close_port(&mut self, _now: Time, port: usize) -> Time {
        self.timers.stop(Timer::Repeat, port);
        let Some(port) = self.ports.get_mut(port).and_then(Option::take) else { return Time::ZERO };
        self.effects.counters.card.discarded_at_close += u64::from(port.in_flight.is_some());
        port.page.visible().max(port.queue.visible())
    }

    fn on_reset(&mut self) {}

    fn statistics(&self) -> Statistics {
        self.effects.counters.statistics(&self.effects.shell_counts)
    }

    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }

    fn carry_out(
        &mut self,
        _at: &mut Time,
        own: Operation,
        _due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        match own {
            Operation::Route(route) => self.set_route(&route)?,
            Operation::Authorize(entry) => self.authorize(&entry)?,
            Operation::Revoke(entry) => self.revoke(&entry)?,
        }
        Ok(Answer::Now(empty_reply()))
    }
}

impl Mailbox {
    fn take(&mut self, now: Time, input: Input<'_>) {
        self.effects.on_input(&input);
        match input {
            Input::PageStore(store) => self.on_store(now, &store),
            Input::Frame { frame, message, .. } => self.on_frame(now, frame, message.as_ref()),
            Input::Register { port, register } => {
                let index = port as usize;
                let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
                let (queue, effects) = (&mut port.queue, &mut self.effects);
                if let Some(released) = queue.on_register(now, index, register, &mut port.page, effects) {
                    while queue.take_due(released).is_some() {}
                    queue.take_early(now, released, effects);
                }
            }
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => self.effects.shell_counts = counts,
            // This model never reads host memory.
            Input::DmaData { .. } | Input::Borrowed { .. } | Input::BorrowedFrame { .. } => {}
            // This model's host interface consists of pages alone.
            Input::Descriptor(_) | Input::PollDemand { .. } => {}
            Input::Timeout => while self.repeat(now) {},
            Input::HostReset => control::on_host_reset(self, now),
        }
    }
}

impl Nic for Mailbox {
    nic_of_effects!(effects);

    fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    fn accepts_store(&self, port: u32) -> bool {
        self.port(port).is_some_and(|port| port.in_flight.is_none())
    }

    fn is_open(&self, port: u32) -> bool {
        self.port(port).is_some()
    }

    fn work_done(&self) -> u64 {
        self.effects.spent()
    }
}

impl Observed for Mailbox {
    observed_of_effects!(effects);

    fn delivered(&self, port: u32) -> u64 {
        self.port(port).map_or(0, |port| port.queue.stored())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }
}
