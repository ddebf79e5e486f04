//! The state that a stage records before and after it computes one message of a batch. If the two differ only by a
//! shift in time ([`steady`]), the next messages repeat this one, one span later each. At either end a message passes
//! two machines, a bus, a host and a FIFO RAM.

use crate::parts::fifo::{FifoRam, Leaving};
use crate::platform::ledger::Sums;
use crate::platform::steady;
use crate::time::{Span, Time};

/// The state that determines a message's times, apart from its own arrival time. It is complete only if the message
/// waits for nothing outside its path.
pub struct Standing {
    /// When each resource on the message's path is free again, in an order that the stage chooses.
    pub busy_until: [Time; 4],
    /// The packets that are leaving the queue of the message's FIFO RAM.
    pub leaving: Leaving,
    /// The sums over earlier messages, in an order that the stage chooses. No message's time depends on them.
    pub sums: [Sums; 4],
}

impl Standing {
    /// The span by which the state has shifted since it was recorded, if one message was computed in between. A message
    /// that arrives this span later then has the same course, this span later. `busy_until` has the resources' present
    /// times, and `latest` is the latest instant that was computed.
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
