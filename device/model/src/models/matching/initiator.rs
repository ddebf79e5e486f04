//! The initiator: puts and gets of this card's programs, from the command to the report of its result.

use alloc::collections::BTreeMap;

use niclab_abi::matching::{EVENT_ACK, EVENT_REPLY, EVENT_SENT, ListEvent, RESULT_OK, RESULT_TRUNCATED};

use crate::models::matching::command::Transfer;
use crate::models::matching::config::PORTS;
use crate::models::matching::counters::Effects;
use crate::models::matching::port::{MatchPort, Told};
use crate::models::matching::transport::{Arrived, Outgoing, Owner, RegionPart};
use crate::models::matching::wire::{Header, Operation};
use crate::parts::port::Promise;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// A put or a get that has not ended.
#[derive(Debug)]
struct InFlight {
    transfer: Transfer,
    handle: u32,
    /// The put's data has not left the memory yet, as far as the card knows.
    waits_for_sent: bool,
    /// The target has not answered yet.
    waits_for_answer: bool,
    /// Room for its events.
    promise: Promise,
}

/// The result of a command.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// An `EVENT_` of the ABI.
    kind: u32,
    /// A `RESULT_`.
    result: u32,
    bytes: u64,
    offset: u64,
}

/// The initiator of a card.
#[derive(Debug)]
pub(super) struct Initiator {
    node: u16,
    /// By port, and by token.
    in_flight: [BTreeMap<u64, InFlight>; PORTS],
}

/// Whether the result means that the operation was executed.
const fn is_success(result: u32) -> bool {
    matches!(result, RESULT_OK | RESULT_TRUNCATED)
}

impl InFlight {
    const fn is_over(&self) -> bool {
        !self.waits_for_sent && !self.waits_for_answer
    }

    /// Whether the message comes from the port that this command addresses.
    fn is_with(&self, header: &Header) -> bool {
        (self.transfer.node, self.transfer.port) == (header.source_node, header.source_port)
    }

    /// Reports or counts the result, as the command requests. Returns when the program knows it.
    fn tell(
        &mut self,
        now: Time,
        node: u16,
        outcome: Outcome,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) -> Time {
        let Outcome { kind, result, bytes, offset } = outcome;
        let transfer = &self.transfer;
        let is_success = is_success(result);
        let mut known = now;
        if !(transfer.count_only && is_success)
            && let Some(place) = self.promise.take_one()
        {
            let event = ListEvent {
                user: transfer.user,
                match_bits: transfer.match_bits,
                header_data: transfer.header_data,
                requested_bytes: transfer.memory.bytes,
                moved_bytes: bytes,
                offset,
                ..ListEvent::default()
            };
            let (portal, handle, own) = (transfer.portal, self.handle, port.index as u8);
            let told = Told { kind, result, portal, node, port: own, handle, event };
            known = port.tell(now, place, &told, effects);
        }
        known.max(port.count(now, transfer.counter, is_success, effects))
    }
}

impl Initiator {
    pub(super) fn new(node: u16) -> Self {
        Self { node, in_flight: Default::default() }
    }

    /// Number of commands of a port in flight.
    #[inline]
    pub(super) fn in_flight(&self, port: usize) -> usize {
        self.in_flight[port].len()
    }

    /// Begins a put or a get whose memory was checked.
    pub(super) fn begin(
        &mut self,
        ready: Time,
        handle: u32,
        transfer: Transfer,
        message: Option<TraceTag>,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) -> Outgoing {
        let token = effects.next_token();
        let is_put = !transfer.is_get;
        // A failure is always reported.
        let promised = (u64::from(transfer.wants_ack) + u64::from(transfer.wants_sent)).max(1);
        let in_flight = InFlight {
            transfer,
            handle,
            waits_for_sent: is_put,
            waits_for_answer: transfer.is_get || transfer.wants_ack,
            promise: port.queue.promise(promised),
        };
        let before = self.in_flight[port.index].insert(token, in_flight);
        debug_assert!(before.is_none(), "a token is used once");
        let header = Header {
            operation: if is_put { Operation::Put } else { Operation::Get },
            match_bits: transfer.match_bits,
            source_node: self.node,
            source_port: port.index as u8,
            target_port: transfer.port,
            portal: transfer.portal,
            bytes: transfer.memory.bytes,
            offset: transfer.remote_offset,
            header_data: transfer.header_data,
            token,
            wants_answer: transfer.wants_ack,
            interrupt: transfer.interrupt,
            ..Header::default()
        };
        let memory = if is_put { transfer.memory } else { RegionPart::NONE };
        let owner = if is_put { Owner::Initiator(token) } else { Owner::Unowned };
        Outgoing { node: transfer.node, header, memory, ready, message, owner }
    }

    /// All data of a put has left the memory.
    pub(super) fn on_sent(&mut self, now: Time, token: u64, port: &mut MatchPort, effects: &mut Effects) {
        let in_flight = self.in_flight[port.index].get_mut(&token).filter(|it| it.waits_for_sent);
        // The command has failed in the meantime.
        let Some(in_flight) = in_flight else { return };
        in_flight.waits_for_sent = false;
        port.page.line.sent += 1;
        if in_flight.transfer.wants_sent {
            let bytes = in_flight.transfer.memory.bytes;
            let outcome = Outcome { kind: EVENT_SENT, result: RESULT_OK, bytes, offset: 0 };
            in_flight.tell(now, self.node, outcome, port, effects);
        }
        self.end_if_over(token, port);
    }

    /// The target's answer to a put. The network may forge answers, so the header need not belong to a put.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        header: &Header,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        let is_of_it = |it: &&mut InFlight| !it.transfer.is_get && it.waits_for_answer && it.is_with(header);
        let in_flight = self.in_flight[port.index].get_mut(&header.token).filter(is_of_it);
        let Some(in_flight) = in_flight else { return };
        in_flight.waits_for_answer = false;
        let (result, bytes, offset) = (u32::from(header.result), header.bytes, header.offset);
        let outcome = Outcome { kind: EVENT_ACK, result, bytes, offset };
        in_flight.tell(now, self.node, outcome, port, effects);
        self.end_if_over(header.token, port);
    }

    /// The memory for the answer to a get; `None` if the header does not belong to one.
    pub(super) fn expect_reply(&self, header: &Header) -> Option<RegionPart> {
        let in_flight = self.in_flight.get(usize::from(header.target_port))?.get(&header.token)?;
        let memory = in_flight.transfer.memory;
        let is_of_it = in_flight.transfer.is_get && in_flight.is_with(header);
        is_of_it.then_some(RegionPart { bytes: memory.bytes.min(header.bytes), ..memory })
    }

    /// The answer to a get has been stored, or never will be.
    pub(super) fn on_reply(
        &mut self,
        now: Time,
        token: u64,
        arrived: &Arrived,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        // The command has failed in the meantime.
        let Some(in_flight) = self.in_flight[port.index].get_mut(&token) else { return };
        let Arrived { header, message, bytes, .. } = *arrived;
        let result = if arrived.result == RESULT_OK { header.result.into() } else { arrived.result };
        in_flight.waits_for_answer = false;
        port.on_data(now);
        let is_success = is_success(result);
        let bytes = if is_success { bytes } else { 0 };
        effects.counters.card.messages_received += u64::from(is_success);
        let outcome = Outcome { kind: EVENT_REPLY, result, bytes, offset: header.offset };
        let consumed = in_flight.tell(now, self.node, outcome, port, effects);
        if let Some(message) = message.filter(|_| is_success) {
            effects.interface.ledger_mut().complete(&message, consumed);
        }
        self.end_if_over(token, port);
    }

    /// A command fails. The failure is reported even if the command requested no report.
    pub(super) fn fail(
        &mut self,
        now: Time,
        token: u64,
        result: u32,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        // The command has ended already, and the failed frame was a retransmission.
        let Some(in_flight) = self.in_flight[port.index].get_mut(&token) else { return };
        let InFlight { transfer, waits_for_sent, waits_for_answer, .. } = *in_flight;
        (in_flight.waits_for_sent, in_flight.waits_for_answer) = (false, false);
        effects.attribute(None);
        let kinds = [
            (EVENT_REPLY, transfer.is_get),
            (EVENT_SENT, !transfer.is_get && waits_for_sent && (transfer.wants_sent || !transfer.wants_ack)),
            (EVENT_ACK, !transfer.is_get && waits_for_answer),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, is_due)| *is_due) {
            let outcome = Outcome { kind, result, bytes: 0, offset: 0 };
            in_flight.tell(now, self.node, outcome, port, effects);
        }
        self.end_if_over(token, port);
    }

    /// Tokens of a port's commands that read a region, or wait for data into it.
    pub(super) fn commands_in(&self, port: usize, region: u32) -> impl Iterator<Item = u64> {
        let commands = self.in_flight[port].iter().filter(move |(_, it)| {
            (it.waits_for_sent || it.transfer.is_get) && it.transfer.memory.is_in(region)
        });
        commands.map(|(&token, _)| token)
    }

    /// Closes a port.
    pub(super) fn close(&mut self, port: usize) {
        core::mem::take(&mut self.in_flight[port]).into_values().for_each(|it| it.promise.void());
    }

    /// Forgets a command if nothing of it is pending.
    fn end_if_over(&mut self, token: u64, port: &mut MatchPort) {
        let of_port = &mut self.in_flight[port.index];
        if of_port.get(&token).is_some_and(InFlight::is_over)
            && let Some(over) = of_port.remove(&token)
        {
            port.queue.forgo(over.promise);
        }
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        (0..PORTS).for_each(|port| self.close(port));
    }
}
