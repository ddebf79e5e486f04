//! A node's host processor and bus: one of each, whatever stands on the bus.
//!
//! The shell owns it and lends it to whichever master acts: the cluster function, the Ethernet function, later an
//! endpoint or a co-processor. Each master has a [`HostInterface`](crate::parts::host_interface::HostInterface) with
//! prices and a ledger of its own; where one waits because another keeps the bus or the host busy, its own ledger says
//! so.

use crate::time::Time;

/// Until when the host processor and the bus of a node are busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBus {
    pub(crate) host: Time,
    /// Towards the cards; on a bus with one direction at a time, the whole bus.
    pub(crate) inward: Time,
    /// Towards the host; idle on a bus with one direction at a time.
    pub(crate) outward: Time,
    /// When the last transfer of a card began that waits for its turn, on the way that cards use.
    pub(crate) begun: Time,
    /// Until when that way is busy with transfers that go first.
    pub(crate) first: Time,
    /// The host does nothing of its own before this.
    not_before: Time,
}

impl NodeBus {
    /// When the host can begin its next operation: the later of the end of its last one, of the last delivery that it
    /// was given, and of what it waits for. Live, where a guest's own computing time is unknown, this is the `now` of
    /// what the guest does next.
    pub fn clock(&self) -> Time {
        self.host.max(self.not_before)
    }

    /// The instant from which on neither host nor bus is busy with anything that was begun.
    pub fn rest(&self) -> Time {
        self.clock().max(self.inward).max(self.outward).max(self.first)
    }

    /// Lets the host begin nothing of its own before `at`. What a card charges it for is done in the meantime.
    pub fn wait_until(&mut self, at: Time) {
        self.not_before = self.not_before.max(at);
    }
}
