//! Packets of a series: what [`Completer::on_parcel`] does with each that is stored and causes nothing else.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::receive::SliceStatus;

use super::Completer;
use crate::models::ultra::config::FlowControl;
use crate::models::ultra::counters::Effects;
use crate::models::ultra::wire::{Header, Kind};
use crate::nic::series::{Member, Series, Way};
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::host_interface::BusTransfer;
use crate::time::Passage;

impl Completer {
    /// How many packets of such a series are stored one behind the other.
    pub(in crate::models::ultra) fn most(&self, way: &Way) -> usize {
        let most = || {
            let header = Header::of_words(way.head, way.words.len()).ok()?;
            let is_plain = header.kind == Kind::Data { interrupt: false, acknowledge: false };
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
        most().unwrap_or(0)
    }

    /// Takes the packets of a series, of which there are not more than [`Completer::most`].
    pub(in crate::models::ultra) fn on_series(&mut self, series: &mut Series, effects: &mut Effects) {
        let (words, count) = (series.way.words.len(), series.len());
        let Ok(header) = Header::of_words(series.way.head, words) else { return };
        let index = usize::from(header.target.port);
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let Some((entry, port)) = port.and_then(|port| Some((port.entry_of(header.source)?, port))) else {
            debug_assert!(false, "a series comes to a port that has an entry for its sender");
            return;
        };
        port.grant_mut(entry).into_iter().for_each(|grant| grant.on_series(count as u32));
        let bytes = words as u64 * WORD_BYTES;
        effects.on_series(count, 0);
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
        series.stored_words = words + 1;
        for member in series.members_mut() {
            let Member { words: burst, launched, passage, address, at, took } = member;
            let Passage { head, tail: now } = *passage;
            let room = self.fifo.room_at(index, words, head.min(now));
            let received = receives.pass(Passage { head: room, tail: room.max(now) });
            let stored = stores.pass(received.words);
            self.fifo.leave(index, words, stored.stage.start);
            let come = Passage { head: stored.words.head, tail: stored.stage.end };
            let ready = transfers.earliest(come);

            let promise = port.queue.promise(1);
            let place = port.queue.store(promise);
            if let Some(last) = burst.get_mut(words) {
                *last = SliceStatus { number: place.number as u32, ..status }.encode();
            }
            let visible = effects.interface.carry(&mut transfers, ready).end;
            (*address, *at) = (place.address + skipped, visible);
            port.queue.on_visible(visible);
            let consumed = effects.interface.occupy(&mut software, visible);
            *took = consumed.since(*launched);
            port.queue.on_consumed(consumed, effects);
            if let Some(owner) = port.owners.get_mut(place.index) {
                *owner = entry as u16;
            }
        }
        effects.enter_passes(Machine::Receive, &receives);
        effects.enter_passes(Machine::Store, &stores);
        effects.interface.enter_transfers(&transfers);
        effects.interface.enter_works(&software);
        effects.interface.ledger_mut().complete_all(series.members().iter().map(|member| member.took));
        let card = &mut effects.counters.card;
        card.messages_received += count as u64;
        card.bytes_received += count as u64 * bytes;
    }
}
