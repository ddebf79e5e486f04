//! A program's side of a port, for both ends of messages: its pages, its event queue and its counters.

use niclab_abi::control::PortOpen;
use niclab_abi::event::CAUSE_ARMED;
use niclab_abi::matching::{COUNTERS, COUNTERS_OFFSET, ListCounter, ListEvent, event_source, event_status};
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, SLICE_WORDS};
use niclab_abi::{FromBytes, to_words};

use crate::models::matching::counters::Effects;
use crate::nic::{Content, DmaWords};
use crate::parts::effects::WORD_BYTES;
use crate::parts::port::{Promise, ReceiveQueue, RequesterPage};
use crate::time::Time;

/// Maximum number of events that one command or one arriving message makes due at once. The card then also reserves
/// room for the events that may follow, so that no event is lost.
pub(super) const EVENTS_AT_ONCE: u64 = 2;

/// Bits of an event's status word that describe the event. The slice number indicates that there is a new event.
const STATUS_BITS: u64 = (1 << SLICE_NUMBER_SHIFT) - 1;

/// A counter.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    count: ListCounter,
    /// Number of successes at which to interrupt; zero if disarmed.
    armed: u64,
}

/// The contents of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) kind: u32,
    pub(super) result: u32,
    pub(super) portal: u8,
    /// The initiator's node.
    pub(super) node: u16,
    pub(super) port: u8,
    pub(super) handle: u32,
    pub(super) event: ListEvent,
}

/// An open port.
#[derive(Debug)]
pub(super) struct MatchPort {
    pub(super) index: usize,
    pub(super) page: RequesterPage,
    pub(super) queue: ReceiveQueue,
    counters_address: u64,
    counters: [Counter; COUNTERS as usize],
    counters_visible: Time,
    /// A counter has risen since the last command.
    pub(super) has_counted: bool,
    /// When the last data stored for the port is visible.
    data_visible: Time,
}

impl MatchPort {
    pub(super) fn new(index: usize, open: &PortOpen) -> Self {
        Self {
            index,
            page: RequesterPage::new(open.status_address),
            queue: ReceiveQueue::new(open),
            counters_address: open.status_address + COUNTERS_OFFSET,
            counters: [Counter::default(); COUNTERS as usize],
            counters_visible: Time::ZERO,
            has_counted: false,
            data_visible: Time::ZERO,
        }
    }

    /// Data for the port is visible at `visible`.
    pub(super) fn on_data(&mut self, visible: Time) {
        self.data_visible = self.data_visible.max(visible);
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self) -> Time {
        self.page.visible().max(self.queue.visible()).max(self.counters_visible).max(self.data_visible)
    }

    /// Stores an event in its reserved slot. Returns when the program has it.
    pub(super) fn tell(&mut self, ready: Time, place: Promise, told: &Told, effects: &mut Effects) -> Time {
        let place = self.queue.store(place);
        let event = ListEvent {
            source: event_source(told.node, told.port, told.handle),
            status: event_status(told.kind, told.result, told.portal.into(), place.number as u32),
            ..told.event
        };
        let words = DmaWords::from_slice(&to_words::<SLICE_WORDS>(&event));
        let content = Content::Completion { status: STATUS_BITS };
        let visible = effects.dma_write(ready, place.address, words, content);
        self.queue.on_visible(visible);
        effects.counters.events += 1;
        let consumed = effects.interface.host_receive(visible, SLICE_WORDS as u64 * WORD_BYTES);
        effects.unattributed(|effects| self.queue.on_consumed(consumed, effects));
        let message = effects.interface.ledger().attributed();
        self.queue.wake(visible, self.index, message, effects);
        consumed
    }

    /// Counts an operation. Returns when the count is visible.
    pub(super) fn count(
        &mut self,
        ready: Time,
        number: Option<u8>,
        is_success: bool,
        effects: &mut Effects,
    ) -> Time {
        let counter = number.and_then(|number| Some((number, self.counters.get_mut(usize::from(number))?)));
        let Some((number, counter)) = counter else { return ready };
        counter.count.success += u64::from(is_success);
        counter.count.failure += u64::from(!is_success);
        let words = DmaWords::from_slice(&to_words::<2>(&counter.count));
        let is_armed = counter.armed != 0 && counter.count.success >= counter.armed;
        if is_armed {
            counter.armed = 0;
        }
        let address = self.counters_address + ListCounter::BYTES as u64 * u64::from(number);
        let visible = effects.dma_write(ready, address, words, Content::Counts);
        self.counters_visible = visible;
        self.has_counted = true;
        if is_armed {
            let message = effects.interface.ledger().attributed();
            effects.interrupt(visible, CAUSE_ARMED, self.index, message);
        }
        visible
    }

    /// Interrupts as soon as a counter has `threshold` successes, at once if it has them already. Zero disarms.
    pub(super) fn arm_counter(&mut self, ready: Time, counter: u8, threshold: u64, effects: &mut Effects) {
        let counter = self.counters.get_mut(usize::from(counter));
        debug_assert!(counter.is_some(), "the command was checked");
        let Some(counter) = counter else { return };
        counter.armed = threshold;
        if threshold != 0 && counter.count.success >= threshold {
            counter.armed = 0;
            effects.interrupt(ready.max(self.counters_visible), CAUSE_ARMED, self.index, None);
        }
    }
}
