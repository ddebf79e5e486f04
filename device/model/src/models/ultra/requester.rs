//! The requester: descriptor look-up table, FIFO RAM with its pointer memory, Load and TX machines (section 3.1).

mod batch;

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::receive::{MAX_SLICES, REFUSED_NO_ROUTE};

use crate::models::ultra::config::{Config, FlowControl, PORTS};
use crate::models::ultra::counters::Effects;
use crate::models::ultra::wire::{Address, Entry, Header, MAX_WORDS, PacketKind};
use crate::nic::PageStore;
use crate::parts::credit::Window;
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::fifo::{FifoError, FifoRam};
use crate::parts::host_interface::{BusTransfer, Passed};
use crate::parts::launch_code::Code;
use crate::parts::port::RequesterPage;
use crate::parts::timers::{TimerName, Timers};
use crate::platform::profile::Passing;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// The timers of the card; each port has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A port has packets but no credit. The card requests credit again, in case the request or its answer was lost.
    CreditProbe,
}

impl TimerName for Timer {
    const ALL: &'static [Self] = &[Self::CreditProbe];
}

/// The requester's state of an open port.
#[derive(Clone, Debug)]
struct RequesterPort {
    page: RequesterPage,
    /// The port's entry of the descriptor look-up table, once it has one.
    entry: Option<Entry>,
    /// When the last sent packet had its credit.
    opened: Time,
    /// The next wait of the credit probe.
    probe_wait: Span,
}

/// What a packet in the FIFO RAM has in addition to its words.
#[derive(Clone, Copy, Debug)]
struct Packet {
    code: Code,
    message: TraceTag,
    /// When the TX machine has the packet's first and last word.
    loaded: Passage,
}

/// The requester of a card.
#[derive(Debug)]
pub struct Requester {
    node: u16,
    flow_control: FlowControl,
    passing: Passing,
    probe_first: Span,
    probe_most: Span,
    fifo: FifoRam<Packet>,
    /// Messages launched so far, including refused ones.
    messages: u64,
    ports: [Option<RequesterPort>; PORTS],
    /// Outlives the port, so that its next user's connections are newer than those of its last user.
    windows: [Window; PORTS],
    timers: Timers<Timer>,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            flow_control: config.flow_control,
            passing: config.passing(),
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
        self.ports[port] = Some(RequesterPort {
            page: RequesterPage::new(status_address),
            entry: None,
            opened: Time::ZERO,
            probe_wait: self.probe_first,
        });
        Ok(())
    }

    /// Closes the port. Packets that were not sent are discarded.
    pub(super) fn close(&mut self, port: usize, effects: &mut Effects) {
        self.ports[port] = None;
        self.timers.stop(Timer::CreditProbe, port);
        effects.counters.card.discarded_at_close += self.fifo.close(port) as u64;
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self, port: usize) -> Time {
        self.ports[port].as_ref().map_or(Time::ZERO, |port| port.page.visible())
    }

    /// Whether the FIFO RAM has room for a packet of any length. The shell reads a store from its page only while this
    /// is true.
    #[inline]
    pub(super) fn accepts_store(&self, port: usize) -> bool {
        self.fifo.accepts(port, MAX_WORDS)
    }

    /// Whether launched packets wait to be sent.
    pub(super) fn has_packets(&self, port: usize) -> bool {
        self.fifo.front(port).is_some()
    }

    /// Fills the entry of the look-up table and requests credit.
    pub(super) fn set_route(&mut self, now: Time, port: usize, target: Address, effects: &mut Effects) {
        let state = self.ports[port].as_mut();
        debug_assert!(state.is_some(), "the port is open, because the control request was checked");
        if let Some(state) = state {
            state.entry = Some(Entry::new(target, Address { node: self.node, port: port as u8 }));
            self.begin_connection(now, port, effects);
        }
    }

    /// A burst of programmed I/O: the Load machine. While [`Self::accepts_store`] is false, the shell leaves the store
    /// in its page. If the shell passed it on nevertheless, the card would drop it.
    pub(super) fn on_store(&mut self, now: Time, store: &PageStore, effects: &mut Effects) {
        let index = store.port as usize;
        if !self.accepts_store(index) {
            return;
        }
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            debug_assert!(false, "a port with a FIFO is open");
            return;
        };
        let now = port.page.launched_at(now);
        let code = Code::decode(store.code);
        // A store with an undefined code is priced as the shortest burst.
        let payload_words = code.map_or(0, |code| code.payload_words);
        let words = payload_words + TAG_WORDS;
        let bytes = words as u64 * WORD_BYTES;
        self.messages += 1;
        let message = TraceTag {
            node: self.node,
            port: store.port as u16,
            number: self.messages,
            launched: now.max(effects.interface.host_clock()),
            bytes: (payload_words as u64 * WORD_BYTES) as u32,
        };
        effects.attribute(Some(message));
        let software_done = effects.interface.host_send(now, bytes);
        // A full FIFO RAM stalls the bus, and the bus stalls the host.
        let room = self.fifo.room_at(index, words, software_done);
        let burst = effects.interface.transfer(BusTransfer::PioWrite, room, bytes);
        let arrived = burst.end;

        let (_, is_line_due) = port.page.count_launch();
        match code {
            Err(error) => port.page.refuse(arrived, error.refusal(), effects),
            Ok(_) if port.entry.is_none() => port.page.refuse(arrived, REFUSED_NO_ROUTE, effects),
            Ok(code) => {
                let come = effects.interface.words_of(BusTransfer::PioWrite, &burst);
                let load = effects.pass(Machine::Load, self.passing, come, bytes);
                let (done, packet) = (load.stage.end, Packet { code, message, loaded: load.words });
                let burst = store.words.get(PAYLOAD_WORDS - payload_words..).unwrap_or_default();
                if self.may_send(index) {
                    // No packet waits before this one, so it passes through the FIFO RAM without waiting.
                    self.send_packet(index, packet, burst, effects);
                } else {
                    self.fifo.push(index, burst, done, packet);
                    self.mind_probe(done, index);
                }
                // A packet with a notification gets its own status line, when it has left.
                if is_line_due
                    && !code.notify
                    && let Some(page) = self.page_mut(index)
                {
                    page.write(done, effects);
                }
            }
        }
    }

    /// Whether the port's next packet can leave without waiting.
    fn may_send(&self, index: usize) -> bool {
        let has_credit = self.flow_control == FlowControl::None || self.windows[index].is_open();
        has_credit && self.fifo.front(index).is_none()
    }

    /// Sends the waiting packets, while there is credit.
    fn send_waiting(&mut self, now: Time, index: usize, effects: &mut Effects) {
        let mut words = [0; MAX_WORDS];
        while self.flow_control == FlowControl::None || self.windows[index].is_open() {
            let Some(packet) = self.fifo.take(index, &mut words) else { break };
            let words = words.get(..packet.words).unwrap_or_default();
            effects.attribute(Some(packet.note.message));
            self.send_packet(index, packet.note, words, effects);
        }
        self.mind_probe(now, index);
    }

    /// The TX machine: routing and header from the look-up table, payload and tag from the FIFO RAM. The caller has
    /// attributed the transactions to a message.
    #[inline]
    fn send_packet(&mut self, index: usize, packet: Packet, words: &[u64], effects: &mut Effects) {
        let Packet { code, message, loaded } = packet;
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let Some((port, entry)) = port.and_then(|port| port.entry.map(|entry| (port, entry))) else {
            debug_assert!(false, "no packet is taken from a port without a route");
            return;
        };
        let window = &mut self.windows[index];
        // The time is the same whether this model received the credit before the packet or after it.
        let opened = window.opened();
        // If the credit took longer than the probe's first wait, the card may have requested it again. Whether it did
        // depends on a clock other than model time.
        let waited_from = loaded.tail.max(core::mem::replace(&mut port.opened, opened));
        effects.counters.card.unordered += u64::from(opened > waited_from + self.probe_first);
        let ready = Passage { head: loaded.head.max(opened), tail: loaded.tail.max(opened) };
        let kind = PacketKind::Data { interrupt: code.interrupt, acknowledge: code.acknowledge };
        let (connection, number) = (window.connection(), window.count_sent());
        let packet = Outgoing { entry, kind, connection, number, words };
        let sent = transmit(self.passing, ready, &packet, Some(message), effects).stage;
        // TX frees the queue word by word, and Load fills it no faster. So all of the room is available once TX begins.
        self.fifo.leave(index, words.len(), sent.start);
        effects.counters.card.messages_sent += 1;
        effects.counters.card.bytes_sent += words.len() as u64 * WORD_BYTES;
        port.page.line.sent += 1;
        if code.notify {
            port.page.line.notified += 1;
            port.page.write(sent.end, effects);
        }
    }

    /// Runs the probe timer exactly while packets wait for credit.
    fn mind_probe(&mut self, now: Time, index: usize) {
        let Some(port) = &mut self.ports[index] else {
            debug_assert!(false, "the timer of a closed port is stopped");
            return;
        };
        if self.fifo.front(index).is_none() {
            port.probe_wait = self.probe_first;
            self.timers.stop(Timer::CreditProbe, index);
        } else if !self.timers.is_running(Timer::CreditProbe, index) {
            self.timers.start(Timer::CreditProbe, index, now, port.probe_wait);
        }
    }

    /// The receiver announced a new limit for a port's packets.
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

    /// The receiver has an account for this port, or wants a new connection for it.
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

    /// The receiver has stored a packet.
    pub(super) fn on_acknowledgement(&mut self, now: Time, header: &Header, effects: &mut Effects) {
        let index = usize::from(header.target.port);
        let is_ours = self.is_target(index, header.source);
        if is_ours && self.windows[index].on_acknowledgement(header.connection, header.number) {
            // Wall time decides in which order the bus carries this status line and those of later launches.
            effects.counters.card.unordered += 1;
            if let Some(page) = self.page_mut(index) {
                page.line.acknowledged += 1;
                page.write(now, effects);
            }
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

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The requester page of an open port.
    pub(super) fn page_mut(&mut self, index: usize) -> Option<&mut RequesterPage> {
        self.ports.get_mut(index)?.as_mut().map(|port| &mut port.page)
    }

    /// Sends a packet without words for flow control or acknowledgement.
    pub(super) fn send_flow(&mut self, ready: Time, header: &Header, effects: &mut Effects) {
        let &Header { kind, connection, number, .. } = header;
        let packet = Outgoing { entry: header.entry(), kind, connection, number, words: &[] };
        transmit(self.passing, ready.into(), &packet, None, effects);
    }

    fn is_target(&self, index: usize, remote: Address) -> bool {
        let port = self.ports.get(index).and_then(Option::as_ref);
        port.and_then(|port| port.entry).is_some_and(|entry| entry.target() == remote)
    }

    fn begin_connection(&mut self, now: Time, index: usize, effects: &mut Effects) {
        self.windows[index].begin();
        self.request_credit(now, index, effects);
    }

    fn request_credit(&mut self, now: Time, index: usize, effects: &mut Effects) {
        let Some(entry) = self.ports[index].as_ref().and_then(|port| port.entry) else {
            debug_assert!(false, "credit is requested only from a port's target");
            return;
        };
        if self.flow_control == FlowControl::None {
            return;
        }
        let window = &self.windows[index];
        let kind = PacketKind::CreditRequest { is_window_open: window.is_open() };
        let (connection, number) = (window.connection(), window.sent());
        effects.counters.flow_sent += 1;
        let packet = Outgoing { entry, kind, connection, number, words: &[] };
        transmit(self.passing, now.into(), &packet, None, effects);
    }
}

/// A packet that the TX machine sends.
struct Outgoing<'a> {
    entry: Entry,
    kind: PacketKind,
    connection: u16,
    number: u32,
    words: &'a [u64],
}

/// Passes one packet through the TX machine; `loaded` has the arrival times of its words. With cut-through, the routing
/// frame leaves one word's time before the header.
#[inline]
fn transmit(
    passing: Passing,
    loaded: Passage,
    packet: &Outgoing<'_>,
    message: Option<TraceTag>,
    effects: &mut Effects,
) -> Passed {
    let &Outgoing { entry, kind, connection, number, words } = packet;
    let passed = effects.pass(Machine::Transmit, passing, loaded, words.len() as u64 * WORD_BYTES);
    let routed = passed.opened.before(passed.pace).max(loaded.head);
    let ready = Passage { head: routed, tail: passed.words.tail };
    effects.frame(ready, entry.emit(kind, connection, number, words), message);
    passed
}
