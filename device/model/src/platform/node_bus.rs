//! A node's host processor and bus: one of each, shared by all masters of the bus.
//!
//! The shell owns it and passes it to the master that acts: the cluster function, the Ethernet function, later an
//! endpoint or a co-processor. Each master has a [`HostInterface`](crate::parts::host_interface::HostInterface) with
//! its own prices and ledger. If a master waits because another one occupies the bus or the host, its own ledger
//! records the wait.

use crate::time::Time;

/// When the host processor and the bus of a node become idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBus {
    pub(crate) host: Time,
    /// Towards the cards; on a bus with one direction at a time, the whole bus.
    pub(crate) inward: Time,
    /// Towards the host; idle on a bus with one direction at a time.
    pub(crate) outward: Time,
    /// When the last card transfer without priority began, on the direction that cards use.
    pub(crate) begun: Time,
    /// When that direction has completed the transfers with higher priority.
    pub(crate) first: Time,
    /// The host begins none of its own operations before this.
    not_before: Time,
}

impl NodeBus {
    /// When the host can begin its next operation: the maximum of the end of its last operation, its last delivery,
    /// and the instant that it waits for. In a live run, where a guest's own computing time is unknown, this is the
    /// `now` of the guest's next action.
    pub fn clock(&self) -> Time {
        self.host.max(self.not_before)
    }

    /// The instant from which both host and bus are idle.
    pub fn rest(&self) -> Time {
        self.clock().max(self.inward).max(self.outward).max(self.first)
    }

    /// Delays the host's own operations until `at`. Operations that a card charges to the host are not delayed.
    pub fn wait_until(&mut self, at: Time) {
        self.not_before = self.not_before.max(at);
    }
}
