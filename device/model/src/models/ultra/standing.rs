//! What is looked at before a message of a series is worked out, and again behind it: whether the next ones are it a
//! span later ([`steady`]). Both ends of a message have two machines, a bus, a host and a FIFO RAM on its way.

use crate::parts::fifo::{FifoRam, Leaving};
use crate::platform::ledger::Sums;
use crate::platform::steady;
use crate::time::{Span, Time};

/// All that has a say in what becomes of a message beside its own coming, where it waits for nobody beside its way.
pub struct Standing {
    /// Until when the places on its way are busy, in an order of the stage's own.
    pub busy_until: [Time; 4],
    /// What is leaving the queue of the FIFO RAM that it passes through.
    pub leaving: Leaving,
    /// What those before it came to, in an order of the stage's own. No message depends on it.
    pub sums: [Sums; 4],
}

impl Standing {
    /// By how much later the next message, if it comes so much later, finds all that the one that was worked out since
    /// this found. `busy_until` is as the places are now, and `latest` the latest instant that was worked out.
    #[inline(always)]
    pub fn pace<P: Copy>(
        &self,
        busy_until: &[Time; 4],
        latest: Time,
        (fifo, queue): (&FifoRam<P>, usize),
    ) -> Option<Span> {
        steady::pace(&self.busy_until, busy_until, latest)
            .filter(|by| fifo.leaves_later_by(*by, queue, &self.leaving))
    }
}
