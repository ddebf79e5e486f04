//! Benchmarks. Each runs at both ends of a channel: the lower rank is the first end, which begins and measures.

pub mod inject;
pub mod interrupts;
pub mod latency;
pub mod pingpong;
pub mod rate;
pub mod stream;

use std::num::NonZeroU64;
use std::time::Duration;

use niclab_user::slices::Flags;

use serde::Serialize;

use crate::channel::{MessageKind, Tag, pattern};

pub use latency::{Latency, room_for};

/// Which end of the channel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lower rank: begins, measures and reports.
    First,
    /// The higher rank.
    Second,
}

/// Flags of the measured messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagPlan {
    /// Each n-th message interrupts the receiver; zero: no message does.
    pub interrupt_every: u64,
    /// Each message requests a notification.
    pub notify: bool,
    /// Each message requests an acknowledgement.
    pub acknowledge: bool,
}

impl FlagPlan {
    /// Flags of message `number`, counted from 1.
    #[inline]
    pub fn flags(self, number: u64) -> Flags {
        let mut flags = Flags::NONE;
        if self.interrupts(number) {
            flags |= Flags::INTERRUPT;
        }
        if self.notify {
            flags |= Flags::NOTIFY;
        }
        if self.acknowledge {
            flags |= Flags::ACKNOWLEDGE;
        }
        flags
    }

    /// Whether message `number` interrupts the receiver.
    #[inline]
    pub fn interrupts(self, number: u64) -> bool {
        self.interrupt_every != 0 && number.is_multiple_of(self.interrupt_every)
    }
}

/// One step of a run: a benchmark at one size.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Number of the step in the run, which every message carries.
    pub number: u8,
    /// Which end this is.
    pub end: End,
    /// Payload of a message.
    pub payload_bytes: usize,
    /// Measured messages in each direction that the benchmark uses.
    pub iterations: u64,
    /// Warm-up messages before these.
    pub warmup: u64,
    /// Flags of the messages.
    pub flags: FlagPlan,
    /// Messages that may share a doorbell. None: all that are ready.
    pub batch: Option<NonZeroU64>,
}

impl Step {
    /// Tag of data message `number`.
    #[inline]
    fn data(&self, number: u64) -> Tag {
        Tag { kind: MessageKind::Data, step: self.number, bytes: self.payload_bytes as u32, number }
    }
}

/// What a step measured, at the first end. Wall time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Number of messages in the time below, both directions together.
    pub messages: u64,
    /// Their duration.
    pub elapsed: Duration,
    /// Round-trip times, if the benchmark measures each one.
    pub round_trip: Option<Latency>,
    /// Cost of sending for the program, if the benchmark measures it.
    pub injection: Option<Injection>,
    /// Sent messages that never arrived, if the transport can lose messages.
    pub lost: Option<u64>,
}

/// The time that a program spends on sending a message, in bursts that fit the send window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Injection {
    /// Time of a message: the average of its burst, with percentiles over bursts.
    #[serde(flatten)]
    pub each: Latency,
    /// These bursts rang no doorbell. False if every burst rang one.
    pub is_silent: bool,
    /// Cost of a clock read. The time of each burst includes one, and is not corrected for it.
    pub look_wall_ns: u64,
}

/// Memory for payloads, allocated once.
pub struct Buffers {
    outgoing: Vec<u8>,
    /// The first bytes of received payloads: benchmarks read no more. The transport checks the rest.
    incoming: [u8; 64],
}

impl Buffers {
    /// For payloads of up to `payload_bytes`.
    pub fn new(payload_bytes: usize) -> Self {
        Self { outgoing: (0..payload_bytes).map(pattern).collect(), incoming: [0; 64] }
    }

    /// The payload to send and the buffer to receive into, of a step.
    fn of(&mut self, step: &Step) -> (&[u8], &mut [u8]) {
        let outgoing = self.outgoing.get(..step.payload_bytes).unwrap_or(&self.outgoing);
        (outgoing, &mut self.incoming)
    }

    /// The payload to send.
    pub fn payload(&mut self, step: &Step) -> &[u8] {
        self.of(step).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_follow_the_plan() {
        let plan = FlagPlan { interrupt_every: 3, notify: true, acknowledge: false };
        let interrupts: Vec<u64> =
            (1..=9).filter(|&number| plan.flags(number).contains(Flags::INTERRUPT)).collect();
        assert_eq!(interrupts, [3, 6, 9]);
        assert!(plan.flags(1).contains(Flags::NOTIFY) && !plan.flags(1).contains(Flags::ACKNOWLEDGE));
        assert_eq!(FlagPlan::default().flags(1), Flags::NONE);
    }
}
