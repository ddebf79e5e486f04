//! The completer: RX machine, port authorization table, FIFO RAM, Store machine (section 3.2), and the slices of the
//! receive queues (section 3.4).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE, CAUSE_UNAUTHORIZED};
use niclab_abi::receive::{REFUSED_RELEASE, SLICE_BYTES, SLICE_NUMBER_SHIFT, SLICE_VALID, SliceStatus};
use smallvec::SmallVec;
use thiserror::Error;

use crate::nic::{Content, DMA_BUFFER_WORDS, DmaWords, Register};
use crate::parts::credit::{Answer, Grant, Refusal};
use crate::parts::fifo::{FifoError, FifoRam};
use crate::parts::host_interface::BusTransfer;
use crate::parts::message::Message;
use crate::time::Time;
use crate::ultra::config::{Config, FlowControl, PORTS, Unauthorized};
use crate::ultra::effects::{Effects, Machine};
use crate::ultra::requester::Requester;
use crate::ultra::wire::{Address, Header, Kind, MAX_WORDS, Packet, WireError};

const WORD_BYTES: u64 = 8;

/// Bits of a slice's status word that say what came. That it came, the number and the valid bit say.
const STATUS_BITS: u64 = ((1 << SLICE_NUMBER_SHIFT) - 1) & !SLICE_VALID;

/// What a look at an entry costs whose slices are released, as [`crate::nic::Nic::work_done`] counts.
const ENTRY_WORK: u64 = 2;

/// Why an entry cannot be added to an authorization table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum AuthorizeError {
    #[error("the port is not open")]
    BadPort,
    #[error("the port's authorization table is full")]
    TableFull,
    #[error("more credits than the receive queue has slices left")]
    CreditsExceedQueue,
}

/// An entry of the port authorization table.
#[derive(Clone, Debug)]
struct Entry {
    remote: Address,
    /// False once revoked: it then only waits until its slices are released.
    is_authorized: bool,
    grant: Grant,
}

/// What an open port is to the completer.
#[derive(Clone, Debug)]
struct Port {
    slices_address: u64,
    slices: u64,
    stored: u64,
    released: u64,
    /// Number of the slice that interrupts; zero: none.
    armed: u64,
    entries: Vec<Option<Entry>>,
    /// Slices that the program consumes between two stores of its register; zero: not known.
    release_interval: u64,
    /// Slices whose release the host has been charged for.
    release_priced: u64,
    /// Releases that the host has been charged for and that were not seen yet: how many slices, and when the store is
    /// there. One for each interval of slices in the queue at most.
    releases_due: VecDeque<(u64, Time)>,
    /// Entry to which each slice is charged, by the slice's place in the queue.
    owners: Vec<u16>,
    last_visible: Time,
}

/// A packet of data that passed the RX machine.
struct Data<'a> {
    header: &'a Header,
    packet: &'a Packet<'a>,
    message: Option<&'a Message>,
}

/// The completer of a card.
pub struct Completer {
    node: u16,
    flow_control: FlowControl,
    unauthorized: Unauthorized,
    authorizations: usize,
    fifo: FifoRam<()>,
    ports: [Option<Port>; PORTS],
}

impl Port {
    fn entry_of(&self, remote: Address) -> Option<usize> {
        let is_it = |entry: &Entry| entry.is_authorized && entry.remote == remote;
        self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it))
    }

    fn grant_mut(&mut self, entry: usize) -> Option<&mut Grant> {
        self.entries.get_mut(entry)?.as_mut().map(|entry| &mut entry.grant)
    }

    /// Slices that the accounts may come to fill, all but `except`.
    fn reserved_but(&self, except: Option<usize>) -> u64 {
        let others = self.entries.iter().enumerate().filter(|(place, _)| Some(*place) != except);
        others.flat_map(|(_, entry)| entry).map(|entry| u64::from(entry.grant.reserved())).sum()
    }

    fn place_of(&self, slice: u64) -> usize {
        (slice & (self.slices - 1)) as usize
    }
}

impl Completer {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            flow_control: config.flow_control,
            unauthorized: config.unauthorized,
            authorizations: config.authorizations.into(),
            fifo: FifoRam::new(config.fifo_ram_words.into()),
            ports: [const { None }; PORTS],
        }
    }

    /// Opens a port with a receive queue of `slices`, a power of two.
    pub(super) fn open(
        &mut self,
        port: usize,
        slices_address: u64,
        slices: u32,
        fifo_words: usize,
    ) -> Result<(), FifoError> {
        self.fifo.open(port, fifo_words)?;
        self.ports[port] = Some(Port {
            slices_address,
            slices: slices.into(),
            stored: 0,
            released: 0,
            armed: 0,
            release_interval: 0,
            release_priced: 0,
            releases_due: VecDeque::new(),
            entries: Vec::new(),
            owners: vec![0; slices as usize],
            last_visible: Time::ZERO,
        });
        Ok(())
    }

    pub(super) fn close(&mut self, port: usize) {
        self.fifo.close(port);
        self.ports[port] = None;
    }

    pub(super) fn is_open(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(Option::is_some)
    }

    /// Messages stored since the port was opened.
    pub(super) fn stored(&self, port: usize) -> u64 {
        self.ports.get(port).and_then(Option::as_ref).map_or(0, |port| port.stored)
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self, port: usize) -> Time {
        self.ports[port].as_ref().map_or(Time::ZERO, |port| port.last_visible)
    }

    /// Adds an entry to the port's authorization table, or changes its credits.
    pub(super) fn authorize(
        &mut self,
        now: Time,
        index: usize,
        remote: Address,
        credits: u32,
        requester: &mut Requester,
        effects: &mut Effects,
    ) -> Result<(), AuthorizeError> {
        let port = self.ports.get_mut(index).and_then(Option::as_mut).ok_or(AuthorizeError::BadPort)?;
        let known = port.entry_of(remote);
        let grant = known.and_then(|entry| port.grant_mut(entry).copied()).unwrap_or(Grant::new(0));
        let reserved = port.reserved_but(known) + u64::from(grant.reserved_with(credits));
        if self.flow_control == FlowControl::Credit && reserved > port.slices {
            return Err(AuthorizeError::CreditsExceedQueue);
        }
        if let Some(grant) = known.and_then(|entry| port.grant_mut(entry)) {
            grant.set_credits(credits);
        } else {
            let entry = Entry { remote, is_authorized: true, grant: Grant::new(credits) };
            let is_authorized = |entry: &&Option<Entry>| entry.as_ref().is_some_and(|e| e.is_authorized);
            if port.entries.iter().filter(is_authorized).count() >= self.authorizations {
                return Err(AuthorizeError::TableFull);
            }
            match port.entries.iter().position(Option::is_none) {
                Some(place) => port.entries[place] = Some(entry),
                // Revoked again and again while it holds a slice of each time's, one sender would fill the table without
                // end, and every packet looks for its sender there.
                None if port.entries.len() >= Config::MAX_AUTHORIZATIONS.into() => {
                    return Err(AuthorizeError::TableFull);
                }
                None => port.entries.push(Some(entry)),
            }
        }
        self.announce_or_offer(now, index, remote, requester, effects);
        Ok(())
    }

    /// Takes an entry out of the port's authorization table; false when there is none.
    pub(super) fn revoke(&mut self, index: usize, remote: Address) -> bool {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return false };
        let Some(place) = port.entry_of(remote).and_then(|entry| port.entries.get_mut(entry)) else {
            return false;
        };
        if let Some(entry) = place {
            entry.is_authorized = false;
            // Its slices stay charged to it until the host releases them; it is promised no more than those.
            let held = entry.grant.held();
            entry.grant = Grant::new(0);
            (0..held).for_each(|_| entry.grant.on_stored());
            if held == 0 {
                *place = None;
            }
        }
        true
    }

    /// A store to a register of the completer page.
    pub(super) fn on_register(
        &mut self,
        now: Time,
        index: usize,
        register: Register,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        match register {
            Register::ReleaseInterval(slices) => port.release_interval = slices.min(port.slices),
            Register::Armed(slice) => {
                effects.counters.unordered += 1;
                let arrived = store_register(now, effects);
                port.armed = slice;
                if slice != 0 && slice <= port.stored {
                    port.armed = 0;
                    effects.interrupt(arrived.max(port.last_visible), CAUSE_ARMED, index, None);
                }
            }
            Register::Released(released) if released < port.released || released > port.stored => {
                effects.counters.unordered += 1;
                requester.refuse(store_register(now, effects), index, REFUSED_RELEASE, effects);
            }
            Register::Released(released) => self.on_released(now, index, released, requester, effects),
        }
    }

    /// The program stored how many slices it has consumed. That is seen late and by whole batches, as the wall clock has
    /// it; but the host was charged for each store when its last slice was consumed, and that is when it took effect.
    fn on_released(
        &mut self,
        now: Time,
        index: usize,
        released: u64,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        while let Some(port) = &mut self.ports[index]
            && let Some(&(batch_end, arrived)) = port.releases_due.front()
            && batch_end <= released
        {
            port.releases_due.pop_front();
            self.release(arrived, index, batch_end, requester, effects);
        }
        let Some(port) = &mut self.ports[index] else { return };
        if released > port.released || port.release_interval == 0 {
            // Off the beat: the program released early, because it went to sleep or is of another mind.
            effects.counters.unordered += 1;
            port.releases_due.clear();
            port.release_priced = released;
            let arrived = store_register(now, effects);
            self.release(arrived, index, released, requester, effects);
        }
    }

    /// Frees slices up to `released` and returns the credit of each to whom it was charged.
    fn release(
        &mut self,
        now: Time,
        index: usize,
        released: u64,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Some(port) = &mut self.ports[index] else { return };
        // Whose slices they are: nothing changes for the others. Were all entries looked at each time, a program that lets a
        // full queue of slices be released one by one, by one store, would have that done for each of them.
        let mut owners: SmallVec<[u16; 16]> = SmallVec::new();
        // At most the slices of the queue, for no more are stored and not released.
        while port.released < released {
            let owner = port.owners[port.place_of(port.released)];
            if let Some(grant) = port.grant_mut(owner.into()) {
                grant.on_released();
            }
            if owners.last() != Some(&owner) {
                owners.push(owner);
            }
            port.released += 1;
            effects.spent += 1;
        }
        owners.sort_unstable();
        owners.dedup();
        for owner in &owners {
            if let Some(place) = port.entries.get_mut(usize::from(*owner)) {
                place.take_if(|entry| !entry.is_authorized && entry.grant.held() == 0);
            }
        }
        for owner in owners {
            effects.spent += ENTRY_WORK;
            self.announce_if_due(now, index, owner.into(), requester, effects);
        }
    }

    /// A frame from the network, whole.
    pub(super) fn on_frame(
        &mut self,
        now: Time,
        frame: &[u8],
        message: Option<&Message>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let parsed = Packet::new_checked(frame).and_then(|packet| Ok((Header::parse(&packet)?, packet)));
        let (header, packet) = match parsed {
            Ok((header, _)) if header.target.node != self.node => {
                effects.counters.malformed += 1;
                return;
            }
            Ok(parsed) => parsed,
            Err(WireError::Crc { .. }) => {
                effects.counters.crc_errors += 1;
                return;
            }
            Err(_) => {
                effects.counters.malformed += 1;
                return;
            }
        };
        let words = packet.words().len();
        let index = usize::from(header.target.port);
        // The network waits in front of the RX machine while the port's queue of the FIFO RAM is full.
        let room = self.fifo.room_at(index, words, now);
        let checked = effects.work(Machine::Receive, room, words).end;
        match header.kind {
            Kind::Data { .. } => {
                let data = Data { header: &header, packet: &packet, message };
                self.on_data(checked, &data, requester, effects);
            }
            Kind::Acknowledge => requester.on_acknowledgement(checked, &header, effects),
            Kind::Credit => requester.on_credit(checked, &header, effects),
            Kind::CreditOffer => requester.on_offer(checked, &header, effects),
            Kind::CreditRequest { is_window_open } => {
                self.on_request(checked, &header, is_window_open, requester, effects);
            }
        }
    }

    fn on_data(&mut self, now: Time, data: &Data<'_>, requester: &mut Requester, effects: &mut Effects) {
        let header = data.header;
        let index = usize::from(header.target.port);
        let Some(place) = self.ports.get_mut(index) else {
            effects.counters.malformed += 1;
            return;
        };
        let entry = place.as_mut().and_then(|port| Some((port.entry_of(header.source)?, port)));
        let Some((entry, port)) = entry else {
            effects.counters.unauthorized += 1;
            if self.unauthorized == Unauthorized::Interrupt {
                effects.interrupt(now, CAUSE_UNAUTHORIZED, index, data.message);
            }
            return;
        };
        let is_full = port.stored - port.released >= port.slices;
        let Some(grant) = port.grant_mut(entry) else { return };
        let accepted = match self.flow_control {
            FlowControl::Credit => grant.on_packet(header.connection, header.number),
            FlowControl::None => grant.on_packet_uncontrolled(header.connection, header.number),
        };
        match accepted {
            Ok(missing) => {
                effects.counters.missing += u64::from(missing);
                if is_full {
                    effects.counters.overruns += 1;
                } else {
                    grant.on_stored();
                    self.store_packet(now, entry, data, requester, effects);
                }
                if missing > 0 {
                    self.announce_if_due(now, index, entry, requester, effects);
                }
            }
            Err(Refusal::Stale) => effects.counters.stale += 1,
            Err(Refusal::Late) => effects.counters.late += 1,
            Err(Refusal::BeyondLimit) => effects.counters.overruns += 1,
        }
    }

    /// The Store machine: one burst that ends at the status word of the next slice.
    fn store_packet(
        &mut self,
        now: Time,
        entry: usize,
        data: &Data<'_>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Data { header, packet, message } = data;
        let index = usize::from(header.target.port);
        let Some(port) = &mut self.ports[index] else { return };
        let Kind::Data { interrupt, acknowledge } = header.kind else { return };
        let count = packet.words().len();
        let bytes = count as u64 * WORD_BYTES;
        let stored = effects.work(Machine::Store, now, count);
        // Store frees word after word, and RX fills no faster: the room is there once Store has begun.
        self.fifo.leave(index, count, stored.start);

        let place = port.place_of(port.stored);
        port.owners[place] = entry as u16;
        port.stored += 1;
        let payload_words = count.saturating_sub(TAG_WORDS);
        let status = SliceStatus {
            words: payload_words as u8,
            interrupt,
            acknowledge,
            source_port: header.source.port,
            source_node: header.source.node,
            number: port.stored as u32,
        };
        let mut burst = [0; DMA_BUFFER_WORDS];
        let ends_with_status = packet.words().take(MAX_WORDS).chain([status.encode()]);
        burst.iter_mut().zip(ends_with_status).for_each(|(place, word)| *place = word);
        let words = DmaWords::from_buf_and_len(burst, count.min(MAX_WORDS) + 1);
        let skipped = (PAYLOAD_WORDS - payload_words) as u64 * WORD_BYTES;
        let address = port.slices_address + place as u64 * SLICE_BYTES + skipped;
        let content = Content::Completion { status: STATUS_BITS };
        let visible = effects.dma_write(stored.end, address, words, content);
        port.last_visible = visible;
        let consumed = effects.interface.host_receive(visible, bytes);
        if let Some(message) = message {
            effects.interface.ledger_mut().complete(message, consumed);
        }
        if port.release_interval != 0 && port.stored - port.release_priced >= port.release_interval {
            port.release_priced = port.stored;
            port.releases_due.push_back((port.stored, store_register(consumed, effects)));
        }
        effects.counters.packets_received += 1;
        effects.counters.bytes_received += bytes;

        if interrupt {
            effects.interrupt(visible, CAUSE_MESSAGE, index, *message);
        }
        if port.armed != 0 && port.armed <= port.stored {
            port.armed = 0;
            effects.interrupt(visible, CAUSE_ARMED, index, *message);
        }
        if acknowledge {
            effects.counters.acknowledgements_sent += 1;
            let answer = Header { kind: Kind::Acknowledge, ..self.answer_to(header) };
            requester.send_flow(visible, &answer, effects);
        }
    }

    /// A sender asks for its limit.
    fn on_request(
        &mut self,
        now: Time,
        header: &Header,
        is_window_open: bool,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let index = usize::from(header.target.port);
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let entry = port.and_then(|port| Some((port.entry_of(header.source)?, port)));
        let Some((entry, grant)) = entry.and_then(|(entry, port)| Some((entry, port.grant_mut(entry)?)))
        else {
            // It will be offered credit when it is authorized.
            effects.counters.flow_discarded += 1;
            return;
        };
        match grant.on_request(header.connection, header.number, is_window_open) {
            Answer::Announce => self.announce(now, index, entry, requester, effects),
            Answer::Renew => {
                let answer = Header { kind: Kind::CreditOffer, number: 0, ..self.answer_to(header) };
                effects.counters.flow_sent += 1;
                requester.send_flow(now, &answer, effects);
            }
            Answer::Discard => effects.counters.flow_discarded += 1,
        }
    }

    fn announce_or_offer(
        &mut self,
        now: Time,
        index: usize,
        remote: Address,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Some(port) = &self.ports[index] else { return };
        let Some(entry) = port.entry_of(remote) else { return };
        let connection = port.entries[entry].as_ref().and_then(|entry| entry.grant.connection());
        if connection.is_some() {
            self.announce(now, index, entry, requester, effects);
        } else if self.flow_control == FlowControl::Credit {
            let source = Address { node: self.node, port: index as u8 };
            let offer = Header { target: remote, source, kind: Kind::CreditOffer, connection: 0, number: 0 };
            effects.counters.flow_sent += 1;
            requester.send_flow(now, &offer, effects);
        }
    }

    fn announce_if_due(
        &mut self,
        now: Time,
        index: usize,
        entry: usize,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let grant = self.ports[index].as_mut().and_then(|port| port.grant_mut(entry));
        if grant.is_some_and(|grant| grant.is_announcement_due()) {
            self.announce(now, index, entry, requester, effects);
        }
    }

    fn announce(
        &mut self,
        now: Time,
        index: usize,
        entry: usize,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        if self.flow_control == FlowControl::None {
            return;
        }
        let entry = self.ports[index].as_mut().and_then(|port| port.entries.get_mut(entry)?.as_mut());
        let Some((entry, (connection, number))) =
            entry.and_then(|entry| entry.grant.announce().map(|limit| (entry, limit)))
        else {
            return;
        };
        let source = Address { node: self.node, port: index as u8 };
        let header = Header { target: entry.remote, source, kind: Kind::Credit, connection, number };
        effects.counters.flow_sent += 1;
        requester.send_flow(now, &header, effects);
    }

    /// The head of an answer to `header`; its kind is to be replaced.
    const fn answer_to(&self, header: &Header) -> Header {
        let source = Address { node: self.node, port: header.target.port };
        Header { target: header.source, source, ..*header }
    }
}

/// The host stores a register of a completer page. Returns when it is there.
fn store_register(now: Time, effects: &mut Effects) -> Time {
    effects.interface.transfer(BusTransfer::PioWrite, now, WORD_BYTES).end
}
