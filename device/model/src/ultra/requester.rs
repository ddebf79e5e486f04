//! The requester: descriptor look-up table, FIFO RAM with its pointer memory, Load and TX machines (section 3.1).

use alloc::collections::VecDeque;

use niclab_abi::bar::{PAYLOAD_WORDS, SLOTS, TAG_WORDS};
use niclab_abi::receive::{MAX_SLICES, REFUSED_NO_ROUTE, STATUS_LINE_INTERVAL, StatusLine};

use crate::nic::{Content, DmaWords, Output, PageStore};
use crate::parts::credit::Window;
use crate::parts::fifo::{FifoError, FifoRam};
use crate::parts::host_interface::BusTransfer;
use crate::parts::ledger::Stage;
use crate::parts::message::Message;
use crate::time::{Span, Time};
use crate::ultra::code::Code;
use crate::ultra::config::{Config, FlowControl, PORTS};
use crate::ultra::effects::{Effects, Machine};
use crate::ultra::timer::{Timer, Timers};
use crate::ultra::wire::{Address, Header, Kind, MAX_WORDS};

const WORD_BYTES: u64 = 8;

/// What an open port is to the requester.
#[derive(Clone, Debug)]
struct Port {
    status_address: u64,
    status: StatusLine,
    /// When the status line last written is visible.
    status_visible: Time,
    /// Status lines that freed slots which were not launched again yet: launches that each counts, and when it is visible.
    /// Both rise. Never more than slots of a page.
    freed: VecDeque<(u64, Time)>,
    /// Entry of the descriptor look-up table: where the port sends. The paper's entry holds routing, TUPID and header;
    /// all follow from this.
    target: Option<Address>,
    /// When the credit of the packet last sent was there.
    opened: Time,
    /// Next wait of the credit probe.
    probe_wait: Span,
}

impl Port {
    /// When the program could know that the slot of its next launch is free: not before a status line that counts the
    /// launch which used that slot last was visible.
    fn slot_free(&mut self) -> Time {
        let Some(needed) = (self.status.launched + 1).checked_sub(SLOTS.into()).filter(|needed| *needed > 0)
        else {
            return Time::ZERO;
        };
        while self.freed.front().is_some_and(|&(counted, _)| counted < needed) {
            self.freed.pop_front();
        }
        self.freed.front().map_or(Time::ZERO, |&(_, visible)| visible)
    }

    /// A status line that counts `launched` was written.
    fn on_freed(&mut self, launched: u64) {
        if self.freed.back().is_none_or(|&(counted, _)| counted < launched) {
            self.freed.push_back((launched, self.status_visible));
        }
    }
}

/// What belongs to a packet beside its words.
#[derive(Clone, Copy, Debug)]
struct Packet {
    code: Code,
    message: Message,
}

/// The requester of a card.
pub struct Requester {
    node: u16,
    flow_control: FlowControl,
    probe_first: Span,
    probe_most: Span,
    fifo: FifoRam<Packet>,
    /// Messages launched so far, refused ones too.
    messages: u64,
    ports: [Option<Port>; PORTS],
    /// Outlives the port: its next user's connections are newer than those of the last.
    windows: [Window; PORTS],
    timers: Timers,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            flow_control: config.flow_control,
            probe_first: config.credit_probe_first,
            probe_most: config.credit_probe_most,
            fifo: FifoRam::new(config.fifo_ram_words.into()),
            messages: 0,
            ports: [const { None }; PORTS],
            windows: [const { Window::new() }; PORTS],
            timers: Timers::default(),
        }
    }

    pub(super) fn open(
        &mut self,
        port: usize,
        status_address: u64,
        fifo_words: usize,
    ) -> Result<(), FifoError> {
        self.fifo.open(port, fifo_words)?;
        self.ports[port] = Some(Port {
            status_address,
            status: StatusLine::default(),
            status_visible: Time::ZERO,
            freed: VecDeque::new(),
            target: None,
            opened: Time::ZERO,
            probe_wait: self.probe_first,
        });
        Ok(())
    }

    /// Forgets the port. Packets that were not sent are discarded.
    pub(super) fn close(&mut self, port: usize, effects: &mut Effects) {
        self.ports[port] = None;
        self.timers.stop(Timer::CreditProbe, port);
        effects.counters.discarded_at_close += self.fifo.close(port) as u64;
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self, port: usize) -> Time {
        self.ports[port].as_ref().map_or(Time::ZERO, |port| port.status_visible)
    }

    /// Whether a packet of any length can be taken. The store is looked at when this is true, and waits in its page
    /// while it is not.
    #[inline]
    pub(super) fn accepts_store(&self, port: usize) -> bool {
        self.fifo.accepts(port, MAX_WORDS)
    }

    /// Whether launched packets wait to be sent.
    pub(super) fn has_packets(&self, port: usize) -> bool {
        self.fifo.front(port).is_some()
    }

    /// Fills the entry of the look-up table and asks for credit.
    pub(super) fn set_route(&mut self, now: Time, port: usize, target: Address, effects: &mut Effects) {
        if let Some(state) = &mut self.ports[port] {
            state.target = Some(target);
            self.begin_connection(now, port, effects);
        }
    }

    /// A burst of programmed I/O: the Load machine. The shell leaves it in the page while [`Self::accepts_store`] is
    /// false; were it passed on nonetheless, it would be dropped.
    pub(super) fn on_store(&mut self, now: Time, store: &PageStore, effects: &mut Effects) {
        let index = store.port as usize;
        if !self.accepts_store(index) {
            return;
        }
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        // A shell that follows a program in wall time sees the launch after the line that freed its slot, whatever the
        // model times of both.
        let now = now.max(port.slot_free());
        let code = Code::decode(store.code);
        // A code that says nothing is priced as the shortest burst.
        let payload_words = code.map_or(0, |code| code.payload_words);
        let words = payload_words + TAG_WORDS;
        let bytes = words as u64 * WORD_BYTES;
        self.messages += 1;
        let message = Message {
            node: self.node,
            port: store.port as u16,
            number: self.messages,
            launched: now.max(effects.interface.host_clock()),
            bytes: (payload_words as u64 * WORD_BYTES) as u32,
        };
        effects.interface.ledger_mut().attribute(Some(message));
        let software_done = effects.interface.host_send(now, bytes);
        // A full FIFO holds the bus, and the bus holds the host.
        let room = self.fifo.room_at(index, words, software_done);
        let arrived = effects.interface.transfer(BusTransfer::PioWrite, room, bytes).end;

        port.status.launched += 1;
        let is_line_due = port.status.launched.is_multiple_of(STATUS_LINE_INTERVAL.into());
        let has_route = port.target.is_some();
        match code {
            Err(error) => self.refuse(arrived, index, error.refusal(), effects),
            Ok(_) if !has_route => self.refuse(arrived, index, REFUSED_NO_ROUTE, effects),
            Ok(code) => {
                let done = effects.work(Machine::Load, arrived, words).end;
                let burst = store.words.get(PAYLOAD_WORDS - payload_words..).unwrap_or_default();
                if self.may_send(index) {
                    // Nothing waits before it: it passes through the FIFO RAM without a stop.
                    self.send_packet(done, index, Packet { code, message }, burst, effects);
                } else {
                    self.fifo.push(index, burst, done, Packet { code, message });
                    self.mind_probe(done, index);
                }
                // A packet that is notified has a line of its own, when it has left.
                if is_line_due && !code.notify {
                    self.write_status(done, index, effects);
                }
            }
        }
    }

    /// Whether the port's next packet need not wait.
    fn may_send(&self, index: usize) -> bool {
        let has_credit = self.flow_control == FlowControl::None || self.windows[index].is_open();
        has_credit && self.fifo.front(index).is_none()
    }

    /// Sends the packets that waited, while there is credit.
    fn send_waiting(&mut self, now: Time, index: usize, effects: &mut Effects) {
        let mut words = [0; MAX_WORDS];
        while self.flow_control == FlowControl::None || self.windows[index].is_open() {
            let Some(packet) = self.fifo.take(index, &mut words) else { break };
            let words = words.get(..packet.words).unwrap_or_default();
            self.send_packet(packet.ready, index, packet.note, words, effects);
        }
        self.mind_probe(now, index);
    }

    /// The TX machine: routing and header from the look-up table, payload and tag from the FIFO RAM.
    fn send_packet(
        &mut self,
        ready: Time,
        index: usize,
        packet: Packet,
        words: &[u64],
        effects: &mut Effects,
    ) {
        let Packet { code, message } = packet;
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(target) = port.target else { return };
        let window = &mut self.windows[index];
        // Whether its credit was fed to this model before it or after it.
        let opened = window.opened();
        // Credit took so long that the card has asked for it: if it did so, then by a clock that is not the model's.
        let waited_from = ready.max(core::mem::replace(&mut port.opened, opened));
        effects.counters.unordered += u64::from(opened > waited_from + self.probe_first);
        let ready = ready.max(opened);
        let header = Header {
            target,
            source: Address { node: self.node, port: index as u8 },
            kind: Kind::Data { interrupt: code.interrupt, acknowledge: code.acknowledge },
            connection: window.connection(),
            number: window.count_sent(),
        };
        effects.interface.ledger_mut().attribute(Some(message));
        let sent = transmit(ready, &header, words, Some(message), effects);
        // TX frees word after word, and Load fills no faster: the room is there once TX has begun.
        self.fifo.leave(index, words.len(), sent.start);
        effects.counters.packets_sent += 1;
        effects.counters.bytes_sent += words.len() as u64 * WORD_BYTES;
        port.status.sent += 1;
        if code.notify {
            port.status.notified += 1;
            self.write_status(sent.end, index, effects);
        }
    }

    /// Lets the probe timer run exactly while packets wait for credit.
    fn mind_probe(&mut self, now: Time, index: usize) {
        let Some(port) = &mut self.ports[index] else { return };
        if self.fifo.front(index).is_none() {
            port.probe_wait = self.probe_first;
            self.timers.stop(Timer::CreditProbe, index);
        } else if !self.timers.is_running(Timer::CreditProbe, index) {
            self.timers.start(Timer::CreditProbe, index, now + port.probe_wait);
        }
    }

    /// The limit of a port's packets moved.
    pub(super) fn on_credit(&mut self, now: Time, header: &Header, effects: &mut Effects) {
        let index = usize::from(header.target.port);
        let is_ours = self.is_target(index, header.source);
        if is_ours && self.windows[index].on_limit(now, header.connection, header.number, MAX_SLICES) {
            if let Some(port) = &mut self.ports[index] {
                port.probe_wait = self.probe_first;
            }
            self.timers.stop(Timer::CreditProbe, index);
            self.send_waiting(now, index, effects);
        } else {
            effects.counters.flow_discarded += 1;
        }
    }

    /// The receiver has an account for this port, or wants another connection for it.
    pub(super) fn on_offer(&mut self, now: Time, header: &Header, effects: &mut Effects) {
        let index = usize::from(header.target.port);
        if !self.is_target(index, header.source) {
            effects.counters.flow_discarded += 1;
        } else if header.connection == 0 {
            self.request_credit(now, index, effects);
        } else if header.connection == self.windows[index].connection() {
            self.begin_connection(now, index, effects);
        } else {
            effects.counters.flow_discarded += 1;
        }
    }

    /// A packet was stored at the other end.
    pub(super) fn on_acknowledgement(&mut self, now: Time, header: &Header, effects: &mut Effects) {
        let index = usize::from(header.target.port);
        let is_ours = self.is_target(index, header.source);
        if is_ours && self.windows[index].on_acknowledgement(header.connection, header.number) {
            // Its status line and those of later launches meet on the bus in the order in which they are fed.
            effects.counters.unordered += 1;
            if let Some(port) = &mut self.ports[index] {
                port.status.acknowledged += 1;
            }
            self.write_status(now, index, effects);
        } else {
            effects.counters.flow_discarded += 1;
        }
    }

    /// Handles one timer that has expired; false when none has.
    pub(super) fn on_timeout(&mut self, now: Time, effects: &mut Effects) -> bool {
        let Some((Timer::CreditProbe, index)) = self.timers.take_expired(now) else { return false };
        effects.counters.credit_probes += 1;
        self.request_credit(now, index, effects);
        if let Some(port) = &mut self.ports[index] {
            port.probe_wait = port.probe_wait.times(2).min(self.probe_most);
        }
        self.mind_probe(now, index);
        true
    }

    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Counts a launch or a register write that is refused, and tells the program why.
    pub(super) fn refuse(&mut self, at: Time, index: usize, reason: u64, effects: &mut Effects) {
        effects.counters.refused += 1;
        if let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) {
            port.status.refused += 1;
            port.status.refusal = reason;
            self.write_status(at, index, effects);
        }
    }

    /// Sends a packet without words for flow control or acknowledgement.
    pub(super) fn send_flow(&mut self, ready: Time, header: &Header, effects: &mut Effects) {
        transmit(ready, header, &[], None, effects);
    }

    /// Writes the port's status line. Each reason has a line of its own: how many there are must not depend on how much
    /// a shell feeds at once.
    fn write_status(&mut self, at: Time, index: usize, effects: &mut Effects) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let line = &port.status;
        let words = [
            line.launched,
            line.notified,
            line.acknowledged,
            line.sent,
            line.refused,
            line.refusal,
            line.reserved0,
            line.reserved1,
        ];
        effects.counters.status_lines += 1;
        // It tells the sender of a message, and no part of the message waits for it.
        effects.interface.ledger_mut().attribute(None);
        let launched = line.launched;
        // The bus keeps the order: a later line is never seen before an earlier one.
        port.status_visible =
            effects.dma_write(at, port.status_address, DmaWords::from_slice(&words), Content::Counts);
        port.on_freed(launched);
    }

    fn is_target(&self, index: usize, remote: Address) -> bool {
        let port = self.ports.get(index).and_then(Option::as_ref);
        port.is_some_and(|port| port.target == Some(remote))
    }

    fn begin_connection(&mut self, now: Time, index: usize, effects: &mut Effects) {
        self.windows[index].begin();
        self.request_credit(now, index, effects);
    }

    fn request_credit(&mut self, now: Time, index: usize, effects: &mut Effects) {
        let Some(target) = self.ports[index].as_ref().and_then(|port| port.target) else { return };
        if self.flow_control == FlowControl::None {
            return;
        }
        let window = &self.windows[index];
        let header = Header {
            target,
            source: Address { node: self.node, port: index as u8 },
            kind: Kind::CreditRequest { is_window_open: window.is_open() },
            connection: window.connection(),
            number: window.sent(),
        };
        effects.counters.flow_sent += 1;
        self.send_flow(now, &header, effects);
    }
}

/// One packet through the TX machine.
fn transmit(
    ready: Time,
    header: &Header,
    words: &[u64],
    message: Option<Message>,
    effects: &mut Effects,
) -> Stage {
    let stage = effects.work(Machine::Transmit, ready, words.len());
    effects.outputs.push_back(Output::Frame { at: stage.end, frame: header.emit(words), message });
    stage
}
