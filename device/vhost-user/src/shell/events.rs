//! The event queue: one buffer for each interrupt. Equal causes merge while the driver has posted no buffer.

use std::collections::BTreeMap;

use niclab_abi::event::{
    CAUSE_ARMED, CAUSE_HANDED_OVER, CAUSE_LINK, CAUSE_MESSAGE, CAUSE_UNAUTHORIZED, Event,
};
use niclab_abi::{FromBytes, QUEUE_EVENT, ToBytes};
use niclab_model::nic::adversarial::AdversarialKind;
use niclab_model::nic::fault_injector::FaultInjector;

use super::adversary::AdversaryState;
use crate::memory::DmaMemory;
use crate::ring::{Buffer, Burst, Chain, Interrupt, RingError};
use crate::vring::Vring;

/// The name of a cause in reports.
pub fn cause_name(cause: u32) -> &'static str {
    match cause {
        CAUSE_MESSAGE => "message",
        CAUSE_ARMED => "armed",
        CAUSE_UNAUTHORIZED => "unauthorized",
        CAUSE_HANDED_OVER => "handed-over",
        CAUSE_LINK => "link",
        _ => "other",
    }
}

/// Causes that wait for a buffer, and counters.
#[derive(Debug, Default)]
pub struct Events {
    /// How often each cause of each port occurred while it waits. Bounded by the model's causes and ports.
    waiting: BTreeMap<(u32, u32), u64>,
    /// A buffer that an adversarial card has taken, and uses after the next one.
    aside: Option<(u16, Chain)>,
    /// Interrupts raised, by cause and port.
    pub raised: BTreeMap<(u32, u32), u64>,
    /// Events without an interrupt, because the driver suppressed it.
    pub suppressed: u64,
    /// Causes merged into one that already waited.
    pub merged: u64,
    /// Buffers that were too short or not writable.
    pub unusable_buffers: u64,
}

impl Events {
    /// Adds a cause, which waits for delivery. Returns whether it was merged with one that already waited.
    pub fn note(&mut self, cause: u32, port: u32) -> bool {
        let count = self.waiting.entry((cause, port)).or_insert(0);
        *count += 1;
        if *count > 1 {
            self.merged += 1;
        }
        *count > 1
    }

    /// Delivers waiting events while the queue has buffers, with one interrupt for each. The order is by cause and
    /// port, unless the card is adversarial.
    ///
    /// # Errors
    /// [`RingError`]. Undelivered events still wait.
    pub fn deliver(
        &mut self,
        vring: Option<&Vring>,
        memory: &DmaMemory,
        mut adversary: Option<&mut AdversaryState>,
        mut fault_injector: Option<&mut FaultInjector>,
    ) -> Result<(), RingError> {
        let Some(vring) = vring.filter(|_| !self.waiting.is_empty()) else { return Ok(()) };
        let mut burst = Burst::open(vring, memory)?;
        let mut chain = Chain::new();
        // Bounded: a guest could add unusable buffers as fast as they are returned.
        for _ in 0..niclab_abi::QUEUE_SIZE {
            let place = adversary
                .as_deref_mut()
                .map_or(0, |adversary| adversary.pick(AdversarialKind::EventReordered, self.waiting.len()));
            let Some((&(cause, port), &count)) = self.waiting.iter().nth(place) else { break };
            let Some(head) = self.next_buffer(&mut burst, &mut chain, adversary.as_deref_mut())? else {
                break;
            };
            let mut bytes = [0; Event::BYTES];
            Event { cause, port, count }.to_bytes(&mut bytes);
            if write(memory, &chain, &bytes).is_none() {
                self.unusable_buffers += 1;
                burst.push_used(head, 0);
                continue;
            }
            self.waiting.remove(&(cause, port));
            let written = Event::BYTES as u32;
            let injector = fault_injector.as_deref_mut();
            burst.push_used(head, injector.map_or(written, |injector| injector.used_length(written)));
            // One event, one interrupt.
            let wish = burst.publish();
            let is_left = |adversary: &mut AdversaryState| adversary.leaves_interrupt(QUEUE_EVENT);
            if wish == Interrupt::Wanted && adversary.as_deref_mut().is_some_and(is_left) {
                continue;
            }
            if wish == Interrupt::Wanted && burst.interrupt() {
                *self.raised.entry((cause, port)).or_insert(0) += 1;
            } else {
                self.suppressed += 1;
            }
        }
        Ok(())
    }

    /// The next buffer to use: the first. An adversarial card may use the second one first.
    #[inline]
    fn next_buffer(
        &mut self,
        burst: &mut Burst<'_>,
        chain: &mut Chain,
        adversary: Option<&mut AdversaryState>,
    ) -> Result<Option<u16>, RingError> {
        let Some(adversary) = adversary else { return burst.pop(chain) };
        let is_other = adversary.draws(AdversarialKind::BufferReordered);
        let Some((head, buffers)) = self.aside.take() else {
            let Some(head) = burst.pop(chain)? else { return Ok(None) };
            if !is_other {
                return Ok(Some(head));
            }
            let first = std::mem::take(chain);
            if let Some(next) = burst.pop(chain)? {
                self.aside = Some((head, first));
                adversary.count(AdversarialKind::BufferReordered);
                return Ok(Some(next));
            }
            *chain = first;
            return Ok(Some(head));
        };
        *chain = buffers;
        Ok(Some(head))
    }

    /// Removes a waiting cause that no longer applies.
    pub fn withdraw(&mut self, cause: u32, port: u32) {
        self.waiting.remove(&(cause, port));
    }

    /// Drops all waiting events, because the host is gone or restarts.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.aside = None;
    }

    /// Events that wait for a buffer.
    pub fn waiting(&self) -> u64 {
        self.waiting.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all interrupts raised.
    pub fn raised_total(&self) -> u64 {
        self.raised.values().sum()
    }
}

/// Writes `bytes` into the writable buffers of a chain. `None` if they do not fit.
pub fn write(memory: &DmaMemory, chain: &[Buffer], bytes: &[u8]) -> Option<()> {
    let mut rest = bytes;
    for buffer in chain.iter().filter(|buffer| buffer.writable) {
        let part = rest.len().min(buffer.bytes as usize);
        let (now, later) = rest.split_at(part);
        let _ = memory.room(buffer.address, part).ok()?.write(now);
        rest = later;
    }
    rest.is_empty().then_some(())
}
