//! The host's side of a card: guest memory, the BAR and the queues of the connection.
//!
//! All stores into the guest, and all replies, events and interrupts, go through here. So two wrappers see all of them:
//! [`RuleCheck`], where a driver is held to the manual's rules, and [`AdversaryState`] of an adversarial card.

use std::ops::Range;
use std::sync::Arc;

use niclab_abi::bar::DOORBELL_SPARED;
use niclab_abi::{QUEUE_CONTROL, QUEUE_DOORBELL, QUEUE_EVENT, QUEUE_RECEIVE, QUEUE_TRANSMIT};
use niclab_model::nic::adversarial::AdversarialKind;
use niclab_model::nic::fault_injector::FaultInjector;
use niclab_model::nic::{FrameBytes, HostRange, ReplyBytes};
use vhost_user_backend::VringT;

use super::counts::{Violations, violation};
use super::rule_check::RuleCheck;
use super::stopped::DeviceState;
use crate::memory::DmaMemory;
use crate::ring::{Burst, RingError};
use crate::shell::adversary::{AdversaryState, KeptReply};
use crate::shell::card_frame::BorrowedFrame;
use crate::shell::control::Control;
use crate::shell::descriptors::{Descriptors, virtqueue};
use crate::shell::events::Events;
use crate::shell::pages::Pages;
use crate::vring::{self, Vring};

/// The host's side of a card.
pub struct HostPort {
    /// The BAR.
    pub pages: Pages,
    /// The guest's memory.
    pub memory: Arc<DmaMemory>,
    /// The queues of the connection; empty without a connection.
    pub vrings: Vec<Vring>,
    /// The event queue.
    pub events: Events,
    /// The control queue.
    pub control: Control,
    /// The descriptor queues.
    pub descriptors: Descriptors,
    /// Whether the device runs, and what waits if it is stopped.
    pub state: DeviceState,
    /// Checks the driver against the manual's rules.
    pub rule_check: RuleCheck,
    /// What an adversarial card delays.
    pub adversary: Option<Box<AdversaryState>>,
    /// Doorbells of ended connections.
    pub earlier_doorbells: u64,
    /// Violations of the specification by the guest.
    pub violations: Violations,
    /// Doorbells are suppressed.
    is_polled: bool,
}

impl HostPort {
    /// A port without a connection.
    pub fn new(pages: Pages) -> Self {
        Self {
            pages,
            memory: Arc::default(),
            vrings: Vec::new(),
            events: Events::default(),
            control: Control::default(),
            descriptors: Descriptors::default(),
            state: DeviceState::default(),
            rule_check: RuleCheck::default(),
            adversary: None,
            earlier_doorbells: 0,
            violations: Violations::default(),
            is_polled: false,
        }
    }

    /// Doorbells for pages and for descriptors since the daemon started.
    pub fn doorbells(&self) -> u64 {
        let queues = [QUEUE_DOORBELL, QUEUE_TRANSMIT, QUEUE_RECEIVE];
        let kicks = queues.iter().filter_map(|queue| self.vrings.get(*queue as usize)).map(Vring::kicks);
        kicks.fold(self.earlier_doorbells, u64::wrapping_add)
    }

    /// A doorbell was taken out of the queue's event. If doorbells are enabled, the device begins a new sleep: drivers
    /// that rang for the last one ring again for what they store from now on. Executes a full barrier, as
    /// [`HostPort::want_doorbell`].
    pub fn on_doorbell(&mut self) {
        if self.pages.doorbell() != DOORBELL_SPARED {
            self.pages.set_doorbell(false);
            self.want_doorbell(!self.is_polled);
        }
    }

    /// Enables or suppresses doorbells. Executes a full barrier: the next poll sees what a guest stored before it could
    /// read the new value.
    pub fn want_doorbell(&mut self, is_wanted: bool) {
        self.is_polled = !is_wanted;
        // Before the store: a doorbell after it is one for this sleep.
        if is_wanted
            && self.pages.doorbell() == DOORBELL_SPARED
            && let Some(rules) = &mut self.rule_check.rules
        {
            rules.on_sleep(&self.vrings);
        }
        self.pages.set_doorbell(is_wanted);
    }

    /// Whether doorbells are suppressed.
    pub const fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Suppresses doorbells during a poll. `is_counted`: the slots that the poll takes were posted after guests could
    /// see that, so their doorbells count as suppressed.
    pub fn suppress_doorbell(&mut self, is_counted: bool) {
        self.is_polled = is_counted;
        self.pages.set_doorbell(false);
    }

    /// Stores words into the guest's memory, if its device runs.
    #[inline]
    pub fn write(&mut self, address: u64, words: &[u64]) {
        if !self.state.is_running {
            return;
        }
        if let Some(rules) = &mut self.rule_check.rules {
            rules.on_write(&self.memory, &self.pages, address, words);
        }
        if self.memory.store_words(address, words).is_err() {
            violation(&mut self.violations, "dma_outside_memory");
        }
    }

    /// Stores bytes into the guest's memory, if its device runs.
    pub fn store_bytes(&mut self, bytes: &[u8], ranges: &[HostRange]) {
        if self.state.is_running && self.memory.store_bytes(bytes, ranges).is_err() {
            violation(&mut self.violations, "dma_outside_memory");
        }
        self.rule_check.rules.iter_mut().for_each(|rules| rules.on_bytes(&self.memory, ranges));
    }

    /// Stores bytes of a borrowed payload into the guest's memory, if its device runs.
    #[inline]
    pub fn store_borrowed(&mut self, frame: &BorrowedFrame, bytes: &Range<usize>, ranges: &[HostRange]) {
        if self.state.is_running && frame.store(bytes, &self.memory, ranges).is_err() {
            violation(&mut self.violations, "dma_outside_memory");
        }
        self.rule_check.rules.iter_mut().for_each(|rules| rules.on_bytes(&self.memory, ranges));
    }

    /// Appends bytes of the guest's memory. False if not all of them could be read.
    pub fn load(&mut self, ranges: &[HostRange], bytes: &mut FrameBytes) -> bool {
        let begin = bytes.len();
        let is_complete = self.state.is_running && self.memory.load_bytes(ranges, bytes).is_ok();
        if !is_complete {
            violation(&mut self.violations, "dma_outside_memory");
        } else if let Some(rules) = &mut self.rule_check.rules {
            rules.on_read(ranges, bytes.get(begin..).unwrap_or_default());
        }
        is_complete
    }

    /// Whether the control queue has a chain that can be taken.
    pub fn has_request(&self) -> bool {
        let Some(vring) = self.vrings.get(QUEUE_CONTROL as usize) else { return false };
        !self.state.is_stopped()
            && !self.control.is_full()
            // The burst takes nothing. An error is counted when the chain is taken.
            && match Burst::open(vring, &self.memory) {
                Ok(mut burst) => !matches!(burst.available(), Ok(0)),
                Err(error) => error != RingError::NotReady,
            }
    }

    /// Returns a chain of a descriptor queue to the driver.
    pub fn complete(&mut self, token: u64, bytes: u32) {
        let queue = self.descriptors.queue_of(token).map(virtqueue);
        let Some(vring) = queue.and_then(|queue| self.vrings.get(queue as usize)) else { return };
        if let Err(error) = self.descriptors.complete(vring, &self.memory, token, bytes) {
            self.note_ring_error(error);
        }
    }

    /// Replies to a request. An adversarial card may delay the reply.
    pub fn reply(&mut self, token: u64, bytes: &[u8], injector: Option<&mut FaultInjector>) {
        if let Some(adversary) = &mut self.adversary
            && let Some(when) = adversary.reply_when()
        {
            return adversary.replies.push(KeptReply { token, bytes: ReplyBytes::from_slice(bytes), when });
        }
        self.reply_now(token, bytes, injector);
    }

    /// Returns the chain of a request to the driver, with the reply.
    pub(super) fn reply_now(&mut self, token: u64, bytes: &[u8], injector: Option<&mut FaultInjector>) {
        let Some(vring) = self.vrings.get(QUEUE_CONTROL as usize) else { return };
        if let Some(rules) = &mut self.rule_check.rules {
            let now = self.control.now(&self.memory, token);
            rules.on_reply(&self.pages, token, now.as_ref(), bytes);
        }
        let adversary = self.adversary.as_deref_mut();
        if let Err(error) = self.control.reply(vring, &self.memory, token, bytes, adversary, injector) {
            self.on_ring_error(error);
        }
        self.raise_spurious(QUEUE_CONTROL);
    }

    /// Interrupts the host with an event. An adversarial card may delay it.
    pub fn raise(&mut self, cause: u32, port: u32, injector: Option<&mut FaultInjector>) {
        if let Some(rules) = &mut self.rule_check.rules {
            rules.on_event(&self.memory, &self.vrings, cause, port);
        }
        let is_merged = self.events.note(cause, port);
        if !self.adversary.as_mut().is_some_and(|adversary| adversary.keeps_event(is_merged)) {
            self.deliver_events(injector);
        }
    }

    /// Delivers the waiting events, as far as the driver has added buffers and the card does not delay them.
    pub fn deliver_events(&mut self, injector: Option<&mut FaultInjector>) {
        if self.adversary.as_ref().is_some_and(|adversary| adversary.has_kept_events()) {
            return;
        }
        let vring = self.vrings.get(QUEUE_EVENT as usize);
        let before = self.events.unusable_buffers;
        let delivered = self.events.deliver(vring, &self.memory, self.adversary.as_deref_mut(), injector);
        let unusable = self.events.unusable_buffers.wrapping_sub(before);
        self.rule_check.rules.iter_mut().for_each(|rules| rules.on_event_buffers(unusable));
        if let Err(error) = delivered {
            self.note_ring_error(error);
        }
        self.raise_spurious(QUEUE_EVENT);
    }

    /// Raises the interrupt of a queue, even if the queue has nothing new.
    pub(super) fn interrupt(&self, queue: u32) {
        if let Some(vring) = self.vrings.get(queue as usize).filter(|_| self.state.is_running) {
            vring::interrupt(&vring.get_ref());
        }
    }

    /// Sometimes raises a spurious interrupt, after the queue's own.
    fn raise_spurious(&mut self, queue: u32) {
        if self
            .adversary
            .as_mut()
            .is_some_and(|adversary| adversary.happens(AdversarialKind::InterruptSpurious))
        {
            self.interrupt(queue);
        }
    }

    /// Publishes the BAR, which is mapped now. An adversarial card may delay that.
    pub fn publish(&mut self) {
        if !self.adversary.as_mut().is_some_and(|adversary| adversary.keeps_magic()) {
            self.pages.publish();
        }
    }

    /// Retracts the BAR, which is no longer mapped.
    pub fn retract(&mut self) {
        self.adversary.iter_mut().for_each(|adversary| adversary.drop_magic());
        self.pages.retract();
    }

    /// Records that a queue is invalid.
    pub(super) fn on_ring_error(&mut self, error: RingError) {
        violation(&mut self.violations, error.name());
        self.rule_check.rules.iter_mut().for_each(|rules| rules.on_ring_error(error));
    }

    /// Records that a queue is invalid, unless the driver has not set it up.
    fn note_ring_error(&mut self, error: RingError) {
        if error != RingError::NotReady {
            self.on_ring_error(error);
        }
    }

    /// Checks the memory that the guest must not touch.
    pub fn check_memory(&mut self) {
        if let Some(rules) = self.rule_check.rules.as_mut().filter(|_| self.state.stopped.is_none()) {
            rules.check_memory(&self.memory);
        }
    }

    /// The host is gone, or resets its device: nothing more is stored into its memory. After a stop the driver may have
    /// freed the memory of its ports, so it is checked only if the device was not stopped.
    pub(super) fn reset(&mut self, was_stopped: bool) {
        self.state.is_running = false;
        self.control.forget();
        self.descriptors.forget();
        self.events.forget();
        self.adversary.iter_mut().for_each(|adversary| adversary.forget());
        if !was_stopped {
            self.check_memory();
        }
        self.rule_check.rules.iter_mut().for_each(|rules| rules.on_reset());
    }
}
