//! A card that is the only master of its node's bus.

use core::ops::{Deref, DerefMut};

use crate::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep};
use crate::nic::{Input, Nic};
use crate::platform::node_bus::NodeBus;
use crate::time::Time;

/// A card and its node, whose bus has no other master: for tests, benchmarks and examples.
#[derive(Clone, Debug)]
pub struct Alone<N> {
    /// The card.
    pub nic: N,
    /// Its node.
    pub node: NodeBus,
}

impl<N> Alone<N> {
    /// `nic` on an idle node.
    pub fn new(nic: N) -> Self {
        Self { nic, node: NodeBus::default() }
    }
}

impl<N: Nic> Alone<N> {
    /// [`Nic::handle`] on its node.
    #[inline]
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.nic.handle(now, input, &mut self.node);
    }

    /// [`Nic::reload_firmware`] on its node.
    ///
    /// # Errors
    /// As [`Nic::reload_firmware`].
    pub fn reload_firmware(
        &mut self,
        now: Time,
        step: FirmwareReloadStep<'_>,
    ) -> Result<(), FirmwareReloadError> {
        self.nic.reload_firmware(now, step, &mut self.node)
    }

    /// [`NodeBus::clock`].
    pub fn host_clock(&self) -> Time {
        self.node.clock()
    }
}

impl<N> Deref for Alone<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.nic
    }
}

impl<N> DerefMut for Alone<N> {
    fn deref_mut(&mut self) -> &mut N {
        &mut self.nic
    }
}
