//! When the host learns of stored frames, and what it does with them.
//!
//! A polling driver takes each frame as soon as it is visible. An interrupted driver takes all visible frames, and
//! those that arrive while it works, without another interrupt. Model time determines when the driver works. So the
//! number of interrupts depends on model time in live runs, too.

use alloc::vec::Vec;

use niclab_abi::event::CAUSE_FRAMES;
use niclab_abi::rings::RingInterrupts;

use crate::models::gamma::counters::Effects;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// A stored frame, as the host sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// When the host can see it.
    pub(super) visible: Time,
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Bytes that the host copies to the destination of the message (section 4: the one copy).
    pub(super) copied_bytes: u64,
    /// Its message.
    pub(super) message: Option<TraceTag>,
    /// Its active port.
    pub(super) port: Option<u8>,
    /// The frame is the last of its message.
    pub(super) is_last: bool,
}

/// When to interrupt.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// Frames after which the card interrupts; zero: the driver polls.
    frames: u32,
    delay: Span,
    /// Frames that are not yet reported to the host. Fewer than `frames`.
    waiting: Vec<Stored>,
    /// When the card reports them at the latest.
    deadline: Option<Time>,
    /// Start and end of the driver's work on the reported frames.
    busy_from: Time,
    busy_until: Time,
    /// Frames since the start of the ring that were reported to the driver, or that it found while it worked.
    told: u32,
}

impl Interrupts {
    /// The driver sets the rule.
    pub(super) fn set(&mut self, now: Time, wanted: &RingInterrupts, effects: &mut Effects) {
        self.frames = wanted.frames;
        self.delay = Span::from_ns(wanted.delay_ns.into());
        // Frames that waited by the previous rule wait no longer: after this request the driver polls its ring.
        self.deliver_all(now, effects);
    }

    /// Whether the driver polls.
    pub(super) const fn is_polled(&self) -> bool {
        self.frames == 0
    }

    /// A driver has started its receive ring, and knows of no frame.
    pub(super) const fn on_started(&mut self) {
        self.told = 0;
    }

    /// Frames reported to the driver since the start of its ring, modulo 2^32.
    pub(super) const fn told(&self) -> u32 {
        self.told
    }

    /// The driver has gone.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// When the interrupt delay of the waiting frames ends.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A frame was stored.
    pub(super) fn on_stored(&mut self, stored: Stored, effects: &mut Effects) {
        // The sender's clock may lag. A frame that is older than the driver's work was not reported to it, and raises
        // an interrupt as usual.
        let is_at_work = self.busy_from <= stored.visible && stored.visible < self.busy_until;
        if self.frames == 0 || is_at_work {
            return self.deliver(stored.visible, &stored, effects);
        }
        self.waiting.push(stored);
        if self.waiting.len() >= self.frames as usize {
            return self.raise(stored.visible, effects);
        }
        let deadline = stored.visible + self.delay;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    /// The interrupt delay has ended.
    pub(super) fn on_timeout(&mut self, now: Time, effects: &mut Effects) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.raise(now, effects);
        }
    }

    fn raise(&mut self, at: Time, effects: &mut Effects) {
        let message = self.waiting.first().and_then(|stored| stored.message);
        effects.attribute(message);
        effects.interrupt(at, CAUSE_FRAMES, 0, message);
        self.deliver_all(at, effects);
    }

    fn deliver_all(&mut self, at: Time, effects: &mut Effects) {
        self.deadline = None;
        for stored in core::mem::take(&mut self.waiting) {
            self.deliver(at, &stored, effects);
        }
    }

    /// The driver takes a frame, and begins to work if it is idle.
    fn deliver(&mut self, at: Time, stored: &Stored, effects: &mut Effects) {
        let at = at.max(stored.visible);
        self.busy_from = if at < self.busy_until { self.busy_from.min(at) } else { at };
        self.busy_until = deliver(at, stored, effects).max(self.busy_until);
        self.told = self.told.wrapping_add(1);
    }
}

/// The host takes a frame, and copies the data of a message. Returns the time at which it is done.
fn deliver(at: Time, stored: &Stored, effects: &mut Effects) -> Time {
    effects.attribute(stored.message);
    let mut done = effects.interface.host_receive(at, stored.bytes);
    if stored.copied_bytes > 0 {
        done = effects.interface.host_copy(done, stored.copied_bytes);
    }
    if let Some(message) = stored.message.filter(|_| stored.is_last) {
        effects.interface.ledger_mut().complete(&message, done);
    }
    done
}
