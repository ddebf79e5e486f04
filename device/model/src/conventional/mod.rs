//! A conventional NIC, priced: what ordinary networking costs on the same platform.
//!
//! The Ethernet function moves frames as any network card with descriptor rings does; a driver of the guest's own serves
//! it. It has no mechanism of its own worth modelling, but its crossings are priced as all others are, so that ordinary
//! networking stands as a column beside the five models.
//!
//! A frame that is sent: the host's software, a copy out of the program's memory, a doorbell where the driver rings one,
//! then the NIC fetches the descriptor and reads the frame, and afterwards writes the descriptor back. A frame that
//! arrives: the NIC fetches a descriptor, writes the frame and the descriptor, and the host's software copies it into the
//! program's memory. An interrupt is one for each notification, however many frames it tells of.
//!
//! The host's overheads are those of the platform's profile, which are of a message layer's; a protocol stack's own
//! computing is not in them, so that the column is a lower bound.

use alloc::sync::Arc;

use crate::parts::effects::DESCRIPTOR_BYTES;
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::platform::ledger::{Crossing, Ledger};
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::Profile;
use crate::time::Time;

/// A node's conventional NIC.
#[derive(Clone, Debug)]
pub struct Conventional {
    interface: HostInterface,
}

impl Conventional {
    /// An idle NIC on this platform.
    pub fn new(profile: impl Into<Arc<Profile>>) -> Self {
        Self { interface: HostInterface::new(profile) }
    }

    /// The host sends a frame of `bytes`, and rings the doorbell if `has_doorbell`. Returns when the frame is ready for
    /// the link.
    #[inline]
    pub fn transmit(&mut self, now: Time, bytes: u64, has_doorbell: bool, node: &mut NodeBus) -> Time {
        self.on(node, |interface| {
            let prepared = interface.host_send(now, bytes);
            let told = interface.host_copy(prepared, bytes);
            fetch(interface, told, bytes, has_doorbell)
        })
    }

    /// The card's part of [`Self::transmit`], of a frame that a protocol stack has ready in its own memory.
    pub fn fetch(&mut self, ready: Time, bytes: u64, has_doorbell: bool, node: &mut NodeBus) -> Time {
        self.on(node, |interface| fetch(interface, ready, bytes, has_doorbell))
    }

    /// A frame of `bytes` arrived at `at`. Returns when the receiving program has it.
    #[inline]
    pub fn receive(&mut self, at: Time, bytes: u64, node: &mut NodeBus) -> Time {
        self.on(node, |interface| {
            let visible = store(interface, at, bytes);
            let taken = interface.host_receive(visible, bytes);
            interface.host_copy(taken, bytes)
        })
    }

    /// The card's part of [`Self::receive`]. Returns when the host can see the frame.
    pub fn store(&mut self, at: Time, bytes: u64, node: &mut NodeBus) -> Time {
        self.on(node, |interface| store(interface, at, bytes))
    }

    /// Software of the host's that takes `ps`: a protocol stack's. Returns when it is done.
    pub fn software(
        &mut self,
        crossing: Crossing,
        ready: Time,
        (bytes, ps): (u64, u64),
        node: &mut NodeBus,
    ) -> Time {
        self.on(node, |interface| interface.software(crossing, ready, bytes, ps))
    }

    /// A copy in host memory. Returns when it is done.
    pub fn copy(&mut self, ready: Time, bytes: u64, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.host_copy(ready, bytes))
    }

    /// The host rings with no frame to send, as when it has left receive buffers. Returns when the NIC knows.
    pub fn doorbell(&mut self, now: Time, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.transfer(BusTransfer::Doorbell, now, 0).end)
    }

    /// One notification, at `at` or when the host has done what it was told before. Returns when the line is raised.
    #[inline]
    pub fn interrupt(&mut self, at: Time, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.interrupt(at))
    }

    /// Acts on the bus of `node`.
    #[inline]
    fn on<R>(&mut self, node: &mut NodeBus, act: impl FnOnce(&mut HostInterface) -> R) -> R {
        self.interface.enter(node);
        let result = act(&mut self.interface);
        self.interface.leave(node);
        result
    }

    /// What every crossing has cost.
    pub const fn ledger(&self) -> &Ledger {
        self.interface.ledger()
    }

    /// To say whose crossings follow, to keep single stages, or to turn the ledger off.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        self.interface.ledger_mut()
    }
}

/// The NIC is told of a frame of `bytes`, and reads it. Returns when it has.
#[inline]
fn fetch(interface: &mut HostInterface, ready: Time, bytes: u64, has_doorbell: bool) -> Time {
    let told = if has_doorbell { interface.transfer(BusTransfer::Doorbell, ready, 0).end } else { ready };
    let fetched = interface.transfer(BusTransfer::DescriptorFetch, told, DESCRIPTOR_BYTES).end;
    let read = interface.transfer(BusTransfer::DmaRead, fetched, bytes).end;
    interface.transfer(BusTransfer::DescriptorWriteBack, read, DESCRIPTOR_BYTES);
    read
}

/// The NIC stores a frame of `bytes`. Returns when the host can see it.
#[inline]
fn store(interface: &mut HostInterface, at: Time, bytes: u64) -> Time {
    let fetched = interface.transfer(BusTransfer::DescriptorFetch, at, DESCRIPTOR_BYTES).end;
    let stored = interface.transfer(BusTransfer::DmaWrite, fetched, bytes).end;
    interface.transfer(BusTransfer::DescriptorWriteBack, stored, DESCRIPTOR_BYTES).end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::ledger::Line;

    fn counts(nic: &Conventional) -> impl Iterator<Item = (Crossing, Line)> {
        nic.ledger().lines().filter(|(_, line)| line.count > 0)
    }

    #[test]
    fn a_frame_that_is_sent_crosses_the_bus_as_descriptor_and_data() {
        let mut nic = Conventional::new(Profile::ultra_200mhz_htx());
        let mut node = NodeBus::default();
        let ready = nic.transmit(Time::ZERO, 64, true, &mut node);
        let kinds: alloc::vec::Vec<_> =
            counts(&nic).map(|(kind, line)| (kind, line.count, line.bytes)).collect();
        assert_eq!(
            kinds,
            [
                (Crossing::Doorbell, 1, 0),
                (Crossing::DmaRead, 1, 64),
                (Crossing::DescriptorFetch, 1, DESCRIPTOR_BYTES),
                (Crossing::DescriptorWriteBack, 1, DESCRIPTOR_BYTES),
                (Crossing::HostSend, 1, 64),
                (Crossing::HostCopy, 1, 64),
            ]
        );
        assert!(ready > node.clock(), "the host goes on while the NIC reads");
        nic.transmit(node.clock(), 64, false, &mut node);
        assert_eq!(nic.ledger().line(Crossing::Doorbell).count, 1, "the second frame needs none");
    }

    #[test]
    fn a_frame_that_arrives_moves_the_hosts_clock_and_an_interrupt_is_one_notification() {
        let mut nic = Conventional::new(Profile::ultra_200mhz_htx());
        let mut node = NodeBus::default();
        let first = nic.receive(Time::from_ps(1_000), 1_514, &mut node);
        let second = nic.receive(Time::from_ps(2_000), 1_514, &mut node);
        assert!(second > first);
        assert_eq!(node.clock(), second);
        nic.interrupt(second, &mut node);
        assert_eq!(nic.ledger().line(Crossing::Interrupt).count, 1);
        assert_eq!(nic.ledger().line(Crossing::DmaWrite).bytes, 2 * 1_514);
        let total: u64 = nic.ledger().lines().map(|(_, line)| line.price_ps).sum();
        assert_eq!(nic.ledger().total().price_ps, total);
    }
}
