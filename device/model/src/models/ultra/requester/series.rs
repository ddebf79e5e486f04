//! Batches of launches of one port: what [`Requester::on_store`] does with each launch that passes through the FIFO RAM
//! without waiting.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};

use super::{Packet, Port, Requester};
use crate::models::ultra::config::FlowControl;
use crate::models::ultra::counters::Effects;
use crate::models::ultra::standing::Standing;
use crate::models::ultra::wire::{Kind, frame_bytes};
use crate::nic::series::{Series, Way};
use crate::parts::credit::Window;
use crate::parts::effects::{Machine, WORD_BYTES};
use crate::parts::fifo::FifoRam;
use crate::parts::host_interface::{BusTransfer, Passes, Transfers};
use crate::parts::launch_code::Code;
use crate::platform::ledger;
use crate::platform::steady::Run;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

impl Requester {
    /// The path of the port's next launches with this code. `None` if a launch would have to wait, or if the code
    /// requests a notification, an interrupt or an acknowledgement.
    pub(in crate::models::ultra) fn way(&self, port: u32, code: u32) -> Option<Way> {
        let index = port as usize;
        if !self.accepts_store(index) || !self.may_send(index) {
            return None;
        }
        let entry = self.ports.get(index)?.as_ref()?.entry?;
        let plain = |code: &Code| !code.notify && !code.interrupt && !code.acknowledge;
        let Code { payload_words, interrupt, acknowledge, .. } = Code::decode(code).ok().filter(plain)?;
        let window = self.windows.get(index)?;
        let most = match self.flow_control {
            FlowControl::Credit => window.room() as usize,
            FlowControl::None => usize::MAX,
        };
        let words = payload_words + TAG_WORDS;
        let (kind, number) = (Kind::Data { interrupt, acknowledge }, window.sent().wrapping_add(1));
        Some(Way {
            port,
            to: entry.target().node,
            is_routed: true,
            bytes: frame_bytes(words),
            head: entry.head(kind, window.connection(), number, words),
            words: PAYLOAD_WORDS - payload_words..PAYLOAD_WORDS + TAG_WORDS,
            most,
        })
    }

    /// Processes a batch of launches on a path from [`Requester::way`].
    pub(in crate::models::ultra) fn on_series(&mut self, series: &mut Series, effects: &mut Effects) {
        let (index, words, count) = (series.way.port as usize, series.way.words.len(), series.len());
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            debug_assert!(false, "a port that has a path is open");
            return;
        };
        let bytes = words as u64 * WORD_BYTES;
        effects.on_series(count, series.way.bytes as u64);
        let mut launches = Launches {
            queue: (index, words),
            probe_first: self.probe_first,
            port,
            window: &mut self.windows[index],
            fifo: &mut self.fifo,
            software: effects.interface.sends(bytes),
            stores: effects.interface.transfers(BusTransfer::PioWrite, bytes),
            loads: effects.passes(Machine::Load, self.passing, bytes),
            transmits: effects.passes(Machine::Transmit, self.passing, bytes),
            unordered: 0,
        };
        let (mut left, mut fed, mut launched) = (count, Time::ZERO, Time::ZERO);
        while left > 0 {
            let before = launches.standing(effects);
            let mut one = launches.next(effects);
            if left > 1 && one.is_free {
                launches.carry_on(&before, &mut one, left - 1, effects);
            }
            (fed, launched) = (one.fed + one.run.from_first_to_last(), one.run.last().launched);
            left -= one.run.count;
            series.runs.push(one.run);
        }
        let Launches { software, stores, loads, transmits, unordered, .. } = launches;
        self.messages += count as u64;
        let payload_bytes = words.saturating_sub(TAG_WORDS) as u64 * WORD_BYTES;
        let message = TraceTag {
            node: self.node,
            port: series.way.port as u16,
            number: self.messages,
            launched,
            bytes: payload_bytes as u32,
        };
        (series.fed, series.last) = (fed, Some(message));
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

/// Launches on their path through host, bus and the card's two machines.
struct Launches<'a> {
    /// The queue of the FIFO RAM that the launches pass through, and the number of its words that each launch takes.
    queue: (usize, usize),
    probe_first: Span,
    port: &'a mut Port,
    window: &'a mut Window,
    fifo: &'a mut FifoRam<Packet>,
    software: ledger::Series,
    stores: Transfers,
    loads: Passes,
    transmits: Passes,
    unordered: u64,
}

/// A launch whose times were computed.
struct Worked {
    /// The launch itself, and later also the launches that are extrapolated from it.
    run: Run,
    fed: Time,
    /// When the Load machine has forwarded the first word, and when it has finished.
    loaded: Passage,
    /// When the card has finished the launch.
    done: Time,
    /// The launch's times do not depend on the end of something that its program waits for. Nor does its status line
    /// delay the launches after it.
    is_free: bool,
}

impl Launches<'_> {
    #[inline(always)]
    fn busy_until(&self, effects: &Effects) -> [Time; 4] {
        let [host, bus] = effects.interface.busy_until(&self.stores);
        [host, bus, self.loads.busy_until(), self.transmits.busy_until()]
    }

    #[inline(always)]
    fn standing(&self, effects: &Effects) -> Standing {
        let Self { queue: (index, _), fifo, software, stores, loads, transmits, .. } = self;
        Standing {
            busy_until: self.busy_until(effects),
            leaving: fifo.leaving(*index),
            sums: [software.sums(), stores.sums(), loads.sums(), transmits.sums()],
        }
    }

    /// Computes the next launch.
    #[inline(always)]
    fn next(&mut self, effects: &mut Effects) -> Worked {
        let Self { queue: (index, words), port, window, fifo, .. } = self;
        let fed = effects.interface.clock();
        let now = port.page.launched_at(fed);
        let launched = now.max(effects.interface.host_clock());
        let is_free = effects.interface.is_host_on_its_own();
        let software_done = effects.interface.occupy(&mut self.software, now);
        let room = fifo.room_at(*index, *words, software_done);
        let burst = effects.interface.carry(&mut self.stores, room);
        let (_, is_line_due) = port.page.count_launch();
        let load = self.loads.pass(self.stores.words_of(&burst));

        let opened = window.opened();
        let waited_from = load.words.tail.max(core::mem::replace(&mut port.opened, opened));
        self.unordered += u64::from(opened > waited_from + self.probe_first);
        let ready = Passage { head: load.words.head.max(opened), tail: load.words.tail.max(opened) };
        window.count_sent();
        let sent = self.transmits.pass(ready);
        let routed = sent.opened.before(sent.pace).max(ready.head);
        fifo.leave(*index, *words, sent.stage.start);
        port.page.line.sent += 1;
        let mut worked = Worked {
            run: Run {
                count: 1,
                launched,
                passage: Passage { head: routed, tail: sent.words.tail },
                ..Run::default()
            },
            fed,
            loaded: Passage { head: load.words.head, tail: load.stage.end },
            done: sent.stage.end.max(sent.words.tail).max(load.stage.end),
            is_free,
        };
        if is_line_due {
            worked.is_free &= self.tell(load.stage.end, effects);
        }
        worked
    }

    /// Writes the status line. Returns false if the line delays the launches after it.
    #[inline(never)]
    fn tell(&mut self, at: Time, effects: &mut Effects) -> bool {
        let before = effects.interface.busy_until(&self.stores);
        self.port.page.write(at, effects);
        before == effects.interface.busy_until(&self.stores)
    }

    /// Extrapolates at most `most` launches from `one`, as long as each repeats its predecessor one span later.
    /// `before` is the state before `one`.
    #[inline(always)]
    fn carry_on(&mut self, before: &Standing, one: &mut Worked, most: usize, effects: &mut Effects) {
        let busy_until = self.busy_until(effects);
        let Some(by) = before.pace(&busy_until, one.done, (self.fifo, self.queue.0)) else { return };
        one.run.by = by;
        let mut left = most as u64;
        while left > 0 {
            // Launches wait for status lines and credit, each of which arrives later than the previous one. Those that
            // were there before `one` let this number of launches pass; if `one` itself waited, none. A later arrival
            // ends the run.
            let unheld = self.port.page.not_held(one.fed);
            let opened = self.window.opened_by(one.loaded.head).into();
            let times = left.min(unheld).min(opened).min(self.port.page.until_line());
            if times == 0 {
                break;
            }
            left -= times;
            one.run.count += times as usize;
            if self.again(times, by, effects)
                && !self.tell(one.loaded.tail + by.times(one.run.count as u64 - 1), effects)
            {
                break;
            }
        }
        let times = one.run.count as u64 - 1;
        let [of_software, of_stores, of_loads, of_transmits] = &before.sums;
        self.software.cross_again(of_software, times);
        self.stores.carry_again(of_stores, times);
        self.loads.pass_again(of_loads, times);
        self.transmits.pass_again(of_transmits, times);
    }

    /// Advances all resources by `times` launches, each `by` later than its predecessor. Returns whether the status
    /// line is due for the last one.
    #[inline(always)]
    fn again(&mut self, times: u64, by: Span, effects: &mut Effects) -> bool {
        let Self { queue: (index, _), port, window, fifo, stores, loads, transmits, .. } = self;
        let later = by.times(times);
        effects.interface.keep_busy_longer(stores, later);
        loads.keep_busy_longer(later);
        transmits.keep_busy_longer(later);
        fifo.leave_later(*index, later);
        port.opened = window.count_all_sent(times as u32);
        port.page.line.sent += times;
        port.page.count_launches(times)
    }
}
