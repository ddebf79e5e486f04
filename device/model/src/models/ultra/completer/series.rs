//! Batches of packets: what [`Completer::on_packet`] does with each packet that is stored and has no other effect.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::receive::SliceStatus;

use super::{Completer, Port};
use crate::models::ultra::config::FlowControl;
use crate::models::ultra::counters::Effects;
use crate::models::ultra::standing::Standing;
use crate::models::ultra::wire::{Header, Kind};
use crate::nic::series::{Series, Way};
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::fifo::FifoRam;
use crate::parts::host_interface::{BusTransfer, Passes, Transfers};
use crate::platform::ledger::{self, Sums};
use crate::platform::steady::Run;
use crate::time::{Passage, Time};

impl Completer {
    /// Maximum number of packets with this path and head that can be stored consecutively.
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

    /// Receives a batch of packets, at most [`Completer::most`].
    pub(in crate::models::ultra) fn on_series(&mut self, series: &mut Series, effects: &mut Effects) {
        let (words, count) = (series.way.words.len(), series.len());
        let Ok(header) = Header::of_words(series.way.head, words) else { return };
        let index = usize::from(header.target.port);
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let Some((entry, port)) = port.and_then(|port| Some((port.entry_of(header.source)?, port))) else {
            debug_assert!(false, "a batch arrives only at a port that has an entry for its sender");
            return;
        };
        port.grant_mut(entry).into_iter().for_each(|grant| grant.on_series(count as u32));
        let bytes = words as u64 * WORD_BYTES;
        effects.on_series(count, 0);
        effects.attribute(None);
        let mut packets = Packets {
            queue: (index, words),
            port,
            fifo: &mut self.fifo,
            receives: effects.passes(Machine::Receive, self.passing, bytes),
            stores: effects.passes(Machine::Store, self.passing, bytes),
            transfers: effects.interface.transfers(BusTransfer::DmaWrite, bytes + WORD_BYTES),
            software: effects.interface.receives(bytes),
        };
        series.stored_words = words + 1;
        let (members, runs) = series.members_mut();
        let mut places = packets.port.queue.next_places();
        let (coming, done) = runs.begin_stage();
        for run in coming {
            let mut coming = *run;
            while coming.count > 0 {
                let one = packets.next_of(&coming, effects);
                done.push(one);
                coming = coming.behind(one.count);
            }
        }
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
        for member in members {
            let place = places.next();
            if let Some(last) = member.words.get_mut(words) {
                *last = SliceStatus { number: place.number as u32, ..status }.encode();
            }
            member.address = place.address + skipped;
            if let Some(owner) = packets.port.owners.get_mut(place.index) {
                *owner = entry as u16;
            }
        }
        let Packets { receives, stores, transfers, software, .. } = packets;
        effects.enter_passes(Machine::Receive, &receives);
        effects.enter_passes(Machine::Store, &stores);
        effects.interface.enter_transfers(&transfers);
        effects.interface.enter_works(&software);
        let took = series.runs.done().iter().map(|run| (run.took, run.count));
        effects.interface.ledger_mut().complete_runs(took);
        let card = &mut effects.counters.card;
        card.messages_received += count as u64;
        card.bytes_received += count as u64 * bytes;
    }
}

/// Packets on their path through the card's two machines, bus and host.
struct Packets<'a> {
    /// The queue of the FIFO RAM that the packets pass through, and the number of its words that each packet takes.
    queue: (usize, usize),
    port: &'a mut Port,
    fifo: &'a mut FifoRam<()>,
    receives: Passes,
    stores: Passes,
    transfers: Transfers,
    software: ledger::Series,
}

impl Packets<'_> {
    #[inline(always)]
    fn busy_until(&self, effects: &Effects) -> [Time; 4] {
        let [host, bus] = effects.interface.busy_until(&self.transfers);
        [self.receives.busy_until(), self.stores.busy_until(), bus, host]
    }

    #[inline(always)]
    fn standing(&self, effects: &Effects) -> Standing {
        let Self { queue: (index, _), fifo, receives, stores, transfers, software, .. } = self;
        Standing {
            busy_until: self.busy_until(effects),
            leaving: fifo.leaving(*index),
            sums: [receives.sums(), stores.sums(), transfers.sums(), software.sums()],
        }
    }

    /// Computes the first packet of a run. Extrapolates the next ones if each repeats its predecessor one span later.
    #[inline(always)]
    fn next_of(&mut self, coming: &Run, effects: &mut Effects) -> Run {
        let before = self.standing(effects);
        // If this packet makes the host store to its release register, the next packet finds a different state.
        let is_free = self.port.queue.until_release() > 0;
        let (at, consumed) = self.next(coming.passage, effects);
        let mut run = Run { count: 1, at, took: consumed.since(coming.launched), ..*coming };
        let most = (coming.count as u64 - 1).min(self.port.queue.until_release());
        if most == 0 || !is_free {
            return run;
        }
        let latest = consumed.max(at).max(coming.passage.tail);
        let pace = before.pace(&self.busy_until(effects), latest, (self.fifo, self.queue.0));
        if pace == Some(run.by) {
            run.count += most as usize;
            self.again(&before.sums, &run, effects);
        }
        run
    }

    /// Computes a packet that arrives at these times. Returns when it is visible, and when its program has consumed it.
    #[inline(always)]
    fn next(&mut self, Passage { head, tail }: Passage, effects: &mut Effects) -> (Time, Time) {
        let Self { queue: (index, words), port, fifo, .. } = self;
        let room = fifo.room_at(*index, *words, head.min(tail));
        let received = self.receives.pass(Passage { head: room, tail: room.max(tail) });
        let stored = self.stores.pass(received.words);
        fifo.leave(*index, *words, stored.stage.start);
        let come = Passage { head: stored.words.head, tail: stored.stage.end };
        let ready = self.transfers.earliest(come);
        let visible = effects.interface.carry(&mut self.transfers, ready).end;
        let consumed = effects.interface.occupy(&mut self.software, visible);
        port.queue.on_stored(1, visible);
        port.queue.on_consumed(consumed, effects);
        (visible, consumed)
    }

    /// Extrapolates all packets after the first one of a run. `before` has the sums before the first packet.
    #[inline(always)]
    fn again(&mut self, before: &[Sums; 4], run: &Run, effects: &mut Effects) {
        let (times, later) = (run.count as u64 - 1, run.from_first_to_last());
        let [of_receives, of_stores, of_transfers, of_software] = before;
        effects.interface.keep_busy_longer(&self.transfers, later);
        self.receives.keep_busy_longer(later);
        self.stores.keep_busy_longer(later);
        self.fifo.leave_later(self.queue.0, later);
        self.port.queue.on_stored(times, run.last().at);
        self.receives.pass_again(of_receives, times);
        self.stores.pass_again(of_stores, times);
        self.transfers.carry_again(of_transfers, times);
        self.software.cross_again(of_software, times);
    }
}
