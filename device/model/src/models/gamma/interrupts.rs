//! When the host learns of frames that were stored, and what it does with them.
//!
//! A driver that polls takes each as soon as it is visible. One that is interrupted takes all that are there by then,
//! and those that come while it is at work, for which the card need not interrupt it again. Model time knows when it is
//! at work, and so in live runs as well how many interrupts there are.

use alloc::vec::Vec;

use niclab_abi::event::CAUSE_FRAMES;
use niclab_abi::rings::RingInterrupts;

use crate::models::gamma::counters::Effects;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// A frame that was stored, as far as its host is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// When the host can see it.
    pub(super) visible: Time,
    /// Its bytes.
    pub(super) bytes: u64,
    /// How many of them are copied to where its message is to be (section 4: the one copy).
    pub(super) copied_bytes: u64,
    /// Its message.
    pub(super) message: Option<TraceTag>,
    /// The active port that it is for.
    pub(super) port: Option<u8>,
    /// The message ends here.
    pub(super) is_last: bool,
}

/// When to interrupt.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// Frames after which; zero: the driver polls.
    frames: u32,
    delay: Span,
    /// Frames that the host was not told of. Fewer than `frames`.
    waiting: Vec<Stored>,
    /// When it is told of them at the latest.
    deadline: Option<Time>,
    /// From when and until when the driver is at work on what it was told of.
    busy_from: Time,
    busy_until: Time,
    /// Frames that it was told of since its ring was started, or found at work.
    told: u32,
}

impl Interrupts {
    /// The driver says when.
    pub(super) fn set(&mut self, now: Time, wanted: &RingInterrupts, effects: &mut Effects) {
        self.frames = wanted.frames;
        self.delay = Span::from_ns(wanted.delay_ns.into());
        // What waited for another rule waits no longer: the driver looks into its ring behind this.
        self.deliver_all(now, effects);
    }

    /// Whether the driver polls.
    pub(super) const fn is_polled(&self) -> bool {
        self.frames == 0
    }

    /// A driver has started its receive ring: it knows of no frame.
    pub(super) const fn on_started(&mut self) {
        self.told = 0;
    }

    /// Frames that the driver was told of since then, modulo 2^32.
    pub(super) const fn told(&self) -> u32 {
        self.told
    }

    /// The host is gone.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// When a frame has waited long enough.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A frame was stored.
    pub(super) fn on_stored(&mut self, stored: Stored, effects: &mut Effects) {
        // What was there before it went to work, since its sender's clock lags, it was not told of: that interrupts as
        // ever.
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

    /// The time has come.
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

    /// The driver takes a frame, at work or going to work for it.
    fn deliver(&mut self, at: Time, stored: &Stored, effects: &mut Effects) {
        let at = at.max(stored.visible);
        self.busy_from = if at < self.busy_until { self.busy_from.min(at) } else { at };
        self.busy_until = deliver(at, stored, effects).max(self.busy_until);
        self.told = self.told.wrapping_add(1);
    }
}

/// The host takes a frame, and copies what is a message's. Returns when it has.
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
