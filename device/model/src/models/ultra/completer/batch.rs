//! Batches of packets: what [`Completer::on_packet`] does with each packet that is stored and has no other effect.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::receive::SliceStatus;

use super::Completer;
use crate::fabric::batch::BatchFrame;
use crate::models::ultra::config::FlowControl;
use crate::models::ultra::counters::Effects;
use crate::models::ultra::wire::{Header, PacketKind};
use crate::nic::batch::{Batch, BatchRoute};
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::host_interface::BusTransfer;
use crate::time::Passage;

impl Completer {
    /// Maximum number of packets with this route and head that can be stored consecutively.
    pub(in crate::models::ultra) fn batch_room(&self, route: &BatchRoute) -> usize {
        let room = || {
            let header = Header::of_words(route.head, route.words.len()).ok()?;
            let is_plain = header.kind == PacketKind::Data { interrupt: false, acknowledge: false };
            if header.target.node != self.node || !is_plain {
                return None;
            }
            let port = self.ports.get(usize::from(header.target.port))?.as_ref()?;
            let grant = &port.entries.get(port.entry_of(header.source)?)?.as_ref()?.grant;
            let (connection, number) = (header.connection, header.number);
            let granted = match self.flow_control {
                FlowControl::Credit => u64::from(grant.room(connection, number)),
                FlowControl::None if grant.is_next(connection, number) => u64::MAX,
                FlowControl::None => 0,
            };
            Some(granted.min(port.queue.room()) as usize)
        };
        room().unwrap_or(0)
    }

    /// Receives a batch of packets, at most [`Completer::batch_room`].
    pub(in crate::models::ultra) fn on_batch(&mut self, batch: &mut Batch, effects: &mut Effects) {
        let (words, count) = (batch.route.words.len(), batch.len());
        let Ok(header) = Header::of_words(batch.route.head, words) else { return };
        let index = usize::from(header.target.port);
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let Some((entry, port)) = port.and_then(|port| Some((port.entry_of(header.source)?, port))) else {
            debug_assert!(false, "a batch arrives only at a port that has an entry for its sender");
            return;
        };
        port.grant_mut(entry).into_iter().for_each(|grant| grant.on_batch(count as u32));
        let bytes = words as u64 * WORD_BYTES;
        effects.on_batch(count, 0);
        effects.attribute(None);
        let mut receives = effects.passes(Machine::Receive, self.passing, bytes);
        let mut stores = effects.passes(Machine::Store, self.passing, bytes);
        let mut transfers = effects.interface.transfers(BusTransfer::DmaWrite, bytes + WORD_BYTES);
        let mut software = effects.interface.receives(bytes);
        let payload_words = words.saturating_sub(TAG_WORDS);
        let skipped = (PAYLOAD_WORDS - payload_words) as u64 * WORD_BYTES;
        let status = SliceStatus {
            words: payload_words as u8,
            interrupt: false,
            acknowledge: false,
            source_port: header.source.port,
            source_node: header.source.node,
            number: 0,
        };
        batch.stored_words = words + 1;
        let mut slots = port.queue.next_slots();
        let (members, frames, last_visible) = batch.for_receiver();
        for (member, frame) in members.iter_mut().zip(frames) {
            let Passage { head, tail } = frame.passage.unwrap_or_default();
            let room = self.fifo.room_at(index, words, head.min(tail));
            let received = receives.pass(Passage { head: room, tail: room.max(tail) });
            let stored = stores.pass(received.words);
            self.fifo.leave(index, words, stored.stage.start);
            let come = Passage { head: stored.words.head, tail: stored.stage.end };
            let ready = transfers.earliest(come);
            let visible = effects.interface.carry(&mut transfers, ready).end;
            let consumed = effects.interface.occupy(&mut software, visible);
            port.queue.on_stored(1, visible);
            port.queue.on_consumed(consumed, effects);

            let place = slots.next();
            if let Some(last) = member.words.get_mut(words) {
                *last = SliceStatus { number: place.number as u32, ..status }.encode();
            }
            member.address = place.address + skipped;
            if let Some(owner) = port.owners.get_mut(place.index) {
                *owner = entry as u16;
            }
            *last_visible = visible;
            frame.passage = Some(consumed.into());
        }
        effects.enter_passes(Machine::Receive, &receives);
        effects.enter_passes(Machine::Store, &stores);
        effects.interface.enter_transfers(&transfers);
        effects.interface.enter_works(&software);
        let latencies = batch.frames().iter().filter_map(BatchFrame::latency);
        effects.interface.ledger_mut().complete_all(latencies);
        let card = &mut effects.counters.card;
        card.messages_received += count as u64;
        card.bytes_received += count as u64 * bytes;
    }
}
