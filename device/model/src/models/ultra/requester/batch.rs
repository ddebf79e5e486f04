//! Batches of launches of one port: what [`Requester::on_store`] does with each launch that passes through the FIFO RAM
//! without waiting.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};

use super::Requester;
use crate::fabric::batch::{BatchFrame, BatchLength};
use crate::models::ultra::config::FlowControl;
use crate::models::ultra::counters::Effects;
use crate::models::ultra::wire::{PacketKind, frame_bytes};
use crate::nic::batch::{Batch, BatchRoute};
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::host_interface::BusTransfer;
use crate::parts::launch_code::Code;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Time};

impl Requester {
    /// The route of the port's next launches with this code. `None` if a launch would have to wait, or if the code
    /// requests a notification, an interrupt or an acknowledgement.
    pub(in crate::models::ultra) fn batch_route(&self, port: u32, code: u32) -> Option<BatchRoute> {
        let index = port as usize;
        if !self.accepts_store(index) || !self.may_send(index) {
            return None;
        }
        let entry = self.ports.get(index)?.as_ref()?.entry?;
        let plain = |code: &Code| !code.notify && !code.interrupt && !code.acknowledge;
        let Code { payload_words, interrupt, acknowledge, .. } = Code::decode(code).ok().filter(plain)?;
        let window = self.windows.get(index)?;
        let max_posts = match self.flow_control {
            FlowControl::Credit => window.room() as usize,
            FlowControl::None => usize::MAX,
        };
        let words = payload_words + TAG_WORDS;
        let (kind, number) = (PacketKind::Data { interrupt, acknowledge }, window.sent().wrapping_add(1));
        Some(BatchRoute {
            port,
            to: entry.target().node,
            length: BatchLength { bytes: frame_bytes(words), is_routed: true },
            head: entry.head(kind, window.connection(), number, words),
            words: PAYLOAD_WORDS - payload_words..PAYLOAD_WORDS + TAG_WORDS,
            max_posts,
        })
    }

    /// Processes a batch of launches with a route from [`Requester::batch_route`].
    pub(in crate::models::ultra) fn on_batch(&mut self, batch: &mut Batch, effects: &mut Effects) {
        let (index, words, count) = (batch.route.port as usize, batch.route.words.len(), batch.len());
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            debug_assert!(false, "a port that has a route is open");
            return;
        };
        let (window, fifo) = (&mut self.windows[index], &mut self.fifo);
        let bytes = words as u64 * WORD_BYTES;
        effects.on_batch(count, batch.route.length.bytes as u64);
        let mut software = effects.interface.sends(bytes);
        let mut stores = effects.interface.transfers(BusTransfer::PioWrite, bytes);
        let mut loads = effects.passes(Machine::Load, self.passing, bytes);
        let mut transmits = effects.passes(Machine::Transmit, self.passing, bytes);
        let (mut fed, mut launched, mut unordered) = (Time::ZERO, Time::ZERO, 0);
        for frame in batch.frames_mut() {
            fed = effects.interface.clock();
            let now = port.page.launched_at(fed);
            launched = now.max(effects.interface.host_clock());
            let software_done = effects.interface.occupy(&mut software, now);
            let room = fifo.room_at(index, words, software_done);
            let burst = effects.interface.carry(&mut stores, room);
            let (_, is_line_due) = port.page.count_launch();
            let load = loads.pass(stores.words_of(&burst));

            let opened = window.opened();
            let waited_from = load.words.tail.max(core::mem::replace(&mut port.opened, opened));
            unordered += u64::from(opened > waited_from + self.probe_first);
            let ready = Passage { head: load.words.head.max(opened), tail: load.words.tail.max(opened) };
            window.count_sent();
            let sent = transmits.pass(ready);
            let routed = sent.opened.before(sent.pace).max(ready.head);
            fifo.leave(index, words, sent.stage.start);
            port.page.line.sent += 1;
            *frame = BatchFrame { launched, passage: Some(Passage { head: routed, tail: sent.words.tail }) };
            if is_line_due {
                port.page.write(load.stage.end, effects);
            }
        }
        self.messages += count as u64;
        let payload_bytes = words.saturating_sub(TAG_WORDS) as u64 * WORD_BYTES;
        let message = TraceTag {
            node: self.node,
            port: batch.route.port as u16,
            number: self.messages,
            launched,
            bytes: payload_bytes as u32,
        };
        (batch.fed, batch.last) = (fed, Some(message));
        effects.interface.enter_works(&software);
        effects.interface.enter_transfers(&stores);
        effects.enter_passes(Machine::Load, &loads);
        effects.enter_passes(Machine::Transmit, &transmits);
        effects.attribute(Some(message));
        let card = &mut effects.counters.card;
        card.unordered += unordered;
        card.messages_sent += count as u64;
        card.bytes_sent += count as u64 * bytes;
    }
}
