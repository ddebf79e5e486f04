//! The completer: RX machine, port authorization table, FIFO RAM, Store machine (section 3.2), and the slices of the
//! receive queues (section 3.4).

mod batch;

use alloc::vec;
use alloc::vec::Vec;

use niclab_abi::control::PortOpen;
use niclab_abi::event::CAUSE_UNAUTHORIZED;
use smallvec::SmallVec;
use thiserror::Error;

use crate::models::ultra::config::{Config, FlowControl, PORTS, Unauthorized};
use crate::models::ultra::counters::Effects;
use crate::models::ultra::requester::Requester;
use crate::models::ultra::wire::{Address, Header, Packet, PacketKind, WireError};
use crate::nic::Register;
use crate::parts::credit::{Answer, Grant, Refusal};
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::fifo::{FifoError, FifoRam};
use crate::parts::host_interface::{BusTransfer, Passed};
use crate::parts::port::{ReceiveQueue, Release};
use crate::parts::slice::Slice;
use crate::platform::profile::Passing;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

/// Cost of one entry whose slices are released, in units of [`crate::nic::Nic::work_done`].
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

/// The completer's state of an open port.
#[derive(Clone, Debug)]
struct CompleterPort {
    queue: ReceiveQueue,
    entries: Vec<Option<Entry>>,
    /// The entry to which each slice is charged, by the slice's index in the queue.
    owners: Vec<u16>,
}

/// A data packet that has passed the RX machine.
struct Data<'a, W> {
    /// When it passed the machine.
    received: Passed,
    header: &'a Header,
    words: W,
    message: Option<&'a TraceTag>,
}

/// The completer of a card.
#[derive(Debug)]
pub struct Completer {
    node: u16,
    flow_control: FlowControl,
    passing: Passing,
    unauthorized: Unauthorized,
    authorizations: usize,
    fifo: FifoRam<()>,
    ports: [Option<CompleterPort>; PORTS],
}

impl CompleterPort {
    fn entry_of(&self, remote: Address) -> Option<usize> {
        let is_it = |entry: &Entry| entry.is_authorized && entry.remote == remote;
        self.entries.iter().position(|entry| entry.as_ref().is_some_and(is_it))
    }

    fn grant_mut(&mut self, entry: usize) -> Option<&mut Grant> {
        self.entries.get_mut(entry)?.as_mut().map(|entry| &mut entry.grant)
    }

    /// Slices reserved by all entries except `except`.
    fn reserved_but(&self, except: Option<usize>) -> u64 {
        let others = self.entries.iter().enumerate().filter(|(place, _)| Some(*place) != except);
        others.flat_map(|(_, entry)| entry).map(|entry| u64::from(entry.grant.reserved())).sum()
    }
}

impl Completer {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            flow_control: config.flow_control,
            passing: config.passing(),
            unauthorized: config.unauthorized,
            authorizations: config.authorizations.into(),
            fifo: FifoRam::new(config.fifo_ram_words.into()),
            ports: [const { None }; PORTS],
        }
    }

    /// Opens a port with a receive queue.
    pub(super) fn open(&mut self, port: usize, open: &PortOpen, fifo_words: usize) -> Result<(), FifoError> {
        self.fifo.open(port, fifo_words)?;
        self.ports[port] = Some(CompleterPort {
            queue: ReceiveQueue::new(open),
            entries: Vec::new(),
            owners: vec![0; open.slices as usize],
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
        self.ports.get(port).and_then(Option::as_ref).map_or(0, |port| port.queue.stored())
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self, port: usize) -> Time {
        self.ports[port].as_ref().map_or(Time::ZERO, |port| port.queue.visible())
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
        if self.flow_control == FlowControl::Credit && reserved > port.queue.slices() {
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
                // Attack: a program authorizes and revokes one sender repeatedly, and each time the sender fills a
                // slice. Without this bound, the entries that wait for these slices would fill the table, which each
                // packet searches for its sender.
                None if port.entries.len() >= Config::MAX_AUTHORIZATIONS.into() => {
                    return Err(AuthorizeError::TableFull);
                }
                None => port.entries.push(Some(entry)),
            }
        }
        self.announce_or_offer(now, index, remote, requester, effects);
        Ok(())
    }

    /// Removes an entry from the port's authorization table; false if there is none.
    pub(super) fn revoke(&mut self, index: usize, remote: Address) -> bool {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return false };
        let Some(place) = port.entry_of(remote).and_then(|entry| port.entries.get_mut(entry)) else {
            return false;
        };
        if let Some(entry) = place {
            entry.is_authorized = false;
            // The revoked entry keeps its slices until the host releases them, and gets no further credit.
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
        let port = self.ports.get_mut(index).and_then(Option::as_mut).map(|port| &mut port.queue);
        // A register store to a closed port has no effect.
        let (Some(queue), Some(page)) = (port, requester.page_mut(index)) else { return };
        let Some(released) = queue.on_register(now, index, register, page, effects) else { return };
        while let Some(queue) = self.queue_mut(index)
            && let Some(release) = queue.take_due(released)
        {
            self.release(index, release, requester, effects);
        }
        if let Some(queue) = self.queue_mut(index)
            && let Some(release) = queue.take_early(now, released, effects)
        {
            self.release(index, release, requester, effects);
        }
    }

    fn queue_mut(&mut self, index: usize) -> Option<&mut ReceiveQueue> {
        self.ports.get_mut(index)?.as_mut().map(|port| &mut port.queue)
    }

    /// Returns the credit of released slices to the senders to which they were charged.
    fn release(&mut self, index: usize, release: Release, requester: &mut Requester, effects: &mut Effects) {
        let Some(port) = &mut self.ports[index] else {
            debug_assert!(false, "slices of an open port are released");
            return;
        };
        // Only the entries that own released slices change. Attack: one store of a program releases a full queue, slice
        // by slice. If each release checked all entries, the card would check them all for each slice.
        let mut owners: SmallVec<[u16; 16]> = SmallVec::new();
        // At most all slices of the queue, because no others are stored. The slices of one sender are usually
        // consecutive.
        let mut places = release.places;
        effects.spend(places.end - places.start);
        while let Some(first) = places.next() {
            let owner_of = |port: &CompleterPort, slice| port.owners[port.queue.index_of(slice)];
            let (owner, mut run) = (owner_of(port, first), 1);
            while places.start < places.end && owner_of(port, places.start) == owner {
                places.start += 1;
                run += 1;
            }
            if let Some(grant) = port.grant_mut(owner.into()) {
                grant.on_released(run);
            }
            owners.push(owner);
        }
        owners.sort_unstable();
        owners.dedup();
        for owner in &owners {
            if let Some(place) = port.entries.get_mut(usize::from(*owner)) {
                place.take_if(|entry| !entry.is_authorized && entry.grant.held() == 0);
            }
        }
        for owner in owners {
            effects.spend(ENTRY_WORK);
            self.announce_if_due(release.at, index, owner.into(), requester, effects);
        }
    }

    /// A complete frame from the network. `come` has the arrival times of its first bit and of its end.
    pub(super) fn on_frame(
        &mut self,
        come: (Time, Time),
        frame: &[u8],
        message: Option<&TraceTag>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let parsed = Packet::new_checked(frame).and_then(|packet| Ok((Header::parse(&packet)?, packet)));
        match parsed {
            Ok((header, packet)) => {
                self.on_packet(come, &header, packet.words(), message, requester, effects);
            }
            Err(WireError::Foreign) => effects.counters.card.foreign_frames += 1,
            Err(WireError::Crc { .. }) => effects.counters.card.damaged += 1,
            Err(_) => effects.counters.card.malformed += 1,
        }
    }

    /// A valid packet. `head` is when its first bit arrived. With cut-through, the model uses `head` as the arrival
    /// time of the first word. This is less than one word's time too early if the link is faster than the machine. If
    /// it is slower, this has no effect, because the last word then decides.
    #[inline]
    fn on_packet(
        &mut self,
        (head, now): (Time, Time),
        header: &Header,
        words: impl ExactSizeIterator<Item = u64>,
        message: Option<&TraceTag>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        if header.target.node != self.node {
            effects.counters.card.malformed += 1;
            return;
        }
        let count = words.len();
        let index = usize::from(header.target.port);
        // While the port's queue of the FIFO RAM is full, the network waits before the RX machine.
        let room = self.fifo.room_at(index, count, head.min(now));
        let come = Passage { head: room, tail: room.max(now) };
        let received = effects.pass(Machine::Receive, self.passing, come, count as u64 * WORD_BYTES);
        let checked = received.stage.end;
        match header.kind {
            PacketKind::Data { .. } => {
                let data = Data { received, header, words, message };
                self.on_data(checked, data, requester, effects);
            }
            PacketKind::Acknowledge => requester.on_acknowledgement(checked, header, effects),
            PacketKind::Credit => requester.on_credit(checked, header, effects),
            PacketKind::CreditOffer => requester.on_offer(checked, header, effects),
            PacketKind::CreditRequest { is_window_open } => {
                self.on_request(checked, header, is_window_open, requester, effects);
            }
        }
    }

    #[inline]
    fn on_data(
        &mut self,
        now: Time,
        data: Data<'_, impl ExactSizeIterator<Item = u64>>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let header = data.header;
        let index = usize::from(header.target.port);
        let Some(place) = self.ports.get_mut(index) else {
            effects.counters.card.malformed += 1;
            return;
        };
        let entry = place.as_mut().and_then(|port| Some((port.entry_of(header.source)?, port)));
        let Some((entry, port)) = entry else {
            effects.counters.unauthorized += 1;
            if self.unauthorized == Unauthorized::Interrupt {
                effects.interrupt(now, CAUSE_UNAUTHORIZED, index, data.message.copied());
            }
            return;
        };
        let has_room = port.queue.has_room(1);
        let Some(grant) = port.grant_mut(entry) else {
            debug_assert!(false, "the entry was found in the table");
            return;
        };
        let accepted = match self.flow_control {
            FlowControl::Credit => grant.on_packet(header.connection, header.number),
            FlowControl::None => grant.on_packet_uncontrolled(header.connection, header.number),
        };
        match accepted {
            Ok(missing) => {
                effects.counters.missing += u64::from(missing);
                if has_room {
                    grant.on_stored();
                    self.store_packet(entry, data, requester, effects);
                } else {
                    effects.counters.card.overruns += 1;
                }
                if missing > 0 {
                    self.announce_if_due(now, index, entry, requester, effects);
                }
            }
            Err(Refusal::Stale) => effects.counters.stale += 1,
            Err(Refusal::Late) => effects.counters.late += 1,
            Err(Refusal::BeyondLimit) => effects.counters.card.overruns += 1,
        }
    }

    /// The Store machine: one burst that ends at the status word of the next slice.
    #[inline]
    fn store_packet(
        &mut self,
        entry: usize,
        data: Data<'_, impl ExactSizeIterator<Item = u64>>,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Data { received, header, words, message } = data;
        let index = usize::from(header.target.port);
        let (Some(port), PacketKind::Data { interrupt, acknowledge }) = (&mut self.ports[index], header.kind)
        else {
            debug_assert!(false, "data is stored for a port that has an entry for its sender");
            return;
        };
        let count = words.len();
        let bytes = count as u64 * WORD_BYTES;
        let stored = effects.pass(Machine::Store, self.passing, received.words, bytes);
        // Store frees the queue word by word, and RX fills it no faster. So all of the room is available once Store
        // begins.
        self.fifo.leave(index, count, stored.stage.start);
        // The status word is the last word of the burst, and belongs to Store's last state.
        let come = Passage { head: stored.words.head, tail: stored.stage.end };
        let ready = effects.interface.earliest(BusTransfer::DmaWrite, come, bytes + WORD_BYTES);

        let promise = port.queue.promise(1);
        let slice = Slice { source: header.source, interrupt, acknowledge, message };
        let (place, visible) = slice.store(ready, words, (index, &mut port.queue, promise), effects);
        port.owners[place.index] = entry as u16;
        if acknowledge {
            effects.counters.card.acknowledgements_sent += 1;
            let answer = Header { kind: PacketKind::Acknowledge, ..self.answer_to(header) };
            requester.send_flow(visible, &answer, effects);
        }
    }

    /// A sender requests its limit.
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
            // The sender is not authorized. When it is, this port offers it credit.
            effects.counters.flow_discarded += 1;
            return;
        };
        match grant.on_request(header.connection, header.number, is_window_open) {
            Answer::Announce => self.announce(now, index, entry, requester, effects),
            Answer::Renew => {
                let answer = Header { kind: PacketKind::CreditOffer, number: 0, ..self.answer_to(header) };
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
        let port = self.ports[index].as_ref();
        let Some((entry, port)) = port.and_then(|port| Some((port.entry_of(remote)?, port))) else {
            debug_assert!(false, "the entry was added just now");
            return;
        };
        let connection = port.entries[entry].as_ref().and_then(|entry| entry.grant.connection());
        if connection.is_some() {
            self.announce(now, index, entry, requester, effects);
        } else if self.flow_control == FlowControl::Credit {
            let source = Address { node: self.node, port: index as u8 };
            let offer =
                Header { target: remote, source, kind: PacketKind::CreditOffer, connection: 0, number: 0 };
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
        let header = Header { target: entry.remote, source, kind: PacketKind::Credit, connection, number };
        effects.counters.flow_sent += 1;
        requester.send_flow(now, &header, effects);
    }

    /// The head of an answer to `header`; the caller replaces its kind.
    const fn answer_to(&self, header: &Header) -> Header {
        let source = Address { node: self.node, port: header.target.port };
        Header { target: header.source, source, ..*header }
    }
}
