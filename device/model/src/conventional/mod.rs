//! A conventional NIC, priced: what ordinary networking costs on the same platform.
//!
//! The Ethernet function moves frames as any network card with descriptor rings does; a driver of the guest's own
//! serves it. It has no mechanism of its own worth modelling, but its crossings are priced as all others are, so that
//! ordinary networking stands as a column beside the five models.
//!
//! A frame that is sent: the host's software, a copy out of the program's memory, a doorbell where the driver rings
//! one, then the NIC fetches the descriptor and reads the frame, and afterwards writes the descriptor back. A frame
//! that arrives: the NIC fetches a descriptor, writes the frame and the descriptor, and the host's software copies it
//! into the program's memory. An interrupt is one for each notification, however many frames it tells of.
//!
//! The host's overheads are those of the platform's profile, which are of a message layer's; a protocol stack's own
//! computing is not in them, so that the column is a lower bound.

use alloc::sync::Arc;

use crate::fabric::series::SeriesFrame;
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

    /// [`Self::transmit`] of frames of the same length, to the same sums and instants: the host begins with each when
    /// it is done with the one before, and none before another node began with its `latest`. The first `doorbells` of
    /// them are rung for. Each frame is told when the host began with it, and when it is ready for the link.
    pub fn transmit_all(
        &mut self,
        frames: &mut [SeriesFrame],
        bytes: u64,
        doorbells: u64,
        latest: &mut Time,
        node: &mut NodeBus,
    ) {
        let send_ps = self.interface.profile().host.send_ps;
        self.on(node, |interface| {
            let mut sends = interface.works(Crossing::HostSend, bytes, send_ps);
            let mut copies = interface.copies(bytes);
            let mut rings = interface.transfers(BusTransfer::Doorbell, 0);
            let mut fetches = interface.transfers(BusTransfer::DescriptorFetch, DESCRIPTOR_BYTES);
            let mut reads = interface.transfers(BusTransfer::DmaRead, bytes);
            let mut returns = interface.transfers(BusTransfer::DescriptorWriteBack, DESCRIPTOR_BYTES);
            let mut begun = *latest;
            for (number, frame) in frames.iter_mut().enumerate() {
                begun = begun.max(interface.clock());
                let prepared = interface.occupy(&mut sends, begun);
                let mut told = interface.occupy(&mut copies, prepared);
                if (number as u64) < doorbells {
                    told = interface.carry(&mut rings, told).end;
                }
                let fetched = interface.carry(&mut fetches, told).end;
                let read = interface.carry(&mut reads, fetched).end;
                interface.carry(&mut returns, read);
                *frame = SeriesFrame { launched: begun, at: Some(read) };
            }
            *latest = begun;
            let ledger = interface.ledger_mut();
            [sends, copies].iter().for_each(|series| ledger.enter(series));
            [rings, fetches, reads, returns].iter().for_each(|series| interface.enter_transfers(series));
        });
    }

    /// [`Self::receive`] of frames of the same length, to the same sums and instants, each at the instant that it has;
    /// what has none does not come. Each is a message, and over when the receiving program has it.
    pub fn receive_all(&mut self, frames: &mut [SeriesFrame], bytes: u64, node: &mut NodeBus) {
        let receive_ps = self.interface.profile().host.receive_ps;
        self.on(node, |interface| {
            let mut fetches = interface.transfers(BusTransfer::DescriptorFetch, DESCRIPTOR_BYTES);
            let mut writes = interface.transfers(BusTransfer::DmaWrite, bytes);
            let mut returns = interface.transfers(BusTransfer::DescriptorWriteBack, DESCRIPTOR_BYTES);
            let mut takes = interface.works(Crossing::HostReceive, bytes, receive_ps);
            let mut copies = interface.copies(bytes);
            for at in frames.iter_mut().filter_map(|frame| frame.at.as_mut()) {
                let fetched = interface.carry(&mut fetches, *at).end;
                let stored = interface.carry(&mut writes, fetched).end;
                let visible = interface.carry(&mut returns, stored).end;
                let taken = interface.occupy(&mut takes, visible);
                *at = interface.occupy(&mut copies, taken);
            }
            let ledger = interface.ledger_mut();
            [takes, copies].iter().for_each(|series| ledger.enter(series));
            let took = frames.iter().filter_map(|frame| Some(frame.at?.since(frame.launched)));
            ledger.complete_all(took);
            [fetches, writes, returns].iter().for_each(|series| interface.enter_transfers(series));
        });
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
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::platform::ledger::Line;
    use crate::platform::profile::{BusPrices, HostPrices, Price};
    use crate::platform::trace_tag::TraceTag;

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

    fn price() -> impl Strategy<Value = Price> {
        let ps = || prop_oneof![0..3_u64, 0..5_000_u64, any::<u64>()];
        let burst_bytes = prop_oneof![Just(0_u64), 8..300_u64];
        (ps(), ps(), 0..1_000_u64, burst_bytes).prop_map(
            |(latency_ps, fixed_ps, per_word_ps, burst_bytes)| Price {
                latency_ps,
                fixed_ps,
                per_word_ps,
                burst_bytes,
            },
        )
    }

    fn profile() -> impl Strategy<Value = Profile> {
        let host = (0..900_000_u64, 0..900_000_u64, 0..300_u64);
        (any::<bool>(), prop::array::uniform5(price()), host).prop_map(|(full_duplex, prices, host)| {
            let [doorbell, dma_write, dma_read, descriptor_fetch, descriptor_write_back] = prices;
            let (send_ps, receive_ps, copy_per_byte_ps) = host;
            Profile {
                host: HostPrices { send_ps, receive_ps, interrupt_ps: 0, copy_per_byte_ps },
                bus: BusPrices {
                    full_duplex,
                    doorbell,
                    dma_write,
                    dma_read,
                    descriptor_fetch,
                    descriptor_write_back,
                    ..BusPrices::default()
                },
                ..Profile::default()
            }
        })
    }

    /// Two of the same, each with its node, after the same past.
    fn twins(profile: Profile, is_on: bool, past: &[u64]) -> [(Conventional, NodeBus); 2] {
        let mut one = (Conventional::new(profile), NodeBus::default());
        one.0.ledger_mut().set_on(is_on);
        for &at in past {
            one.0.receive(Time::from_ps(at), at % 1_500, &mut one.1);
            one.1.wait_until(Time::from_ps(at / 2));
        }
        [one.clone(), one]
    }

    proptest! {
        #[test]
        fn a_series_that_is_sent_is_priced_as_its_frames_one_by_one(
            profile in profile(),
            is_on in prop::bool::weighted(0.9),
            past in prop::collection::vec(0..10_000_000_u64, 0..4),
            (frames, bytes, doorbells) in (0..70_usize, 14..1_515_u64, 0..5_u64),
            latest in 0..20_000_000_u64,
        ) {
            let [mut single, mut series] = twins(profile, is_on, &past);
            let (mut single_latest, mut series_latest) = (Time::from_ps(latest), Time::from_ps(latest));
            let one_by_one: alloc::vec::Vec<_> = (0..frames as u64)
                .map(|number| {
                    let launched = single.1.clock().max(single_latest);
                    single_latest = launched;
                    let at = single.0.transmit(launched, bytes, number < doorbells, &mut single.1);
                    SeriesFrame { launched, at: Some(at) }
                })
                .collect();
            let mut together = vec![SeriesFrame::default(); frames];
            series.0.transmit_all(&mut together, bytes, doorbells, &mut series_latest, &mut series.1);
            prop_assert_eq!(together, one_by_one);
            prop_assert_eq!(series_latest, single_latest);
            prop_assert_eq!((series.0.ledger(), series.1), (single.0.ledger(), single.1));
        }

        #[test]
        fn a_series_that_arrives_is_priced_as_its_frames_one_by_one(
            profile in profile(),
            is_on in prop::bool::weighted(0.9),
            past in prop::collection::vec(0..10_000_000_u64, 0..4),
            frames in prop::collection::vec((0..9_000_000_u64, prop::option::weighted(0.9, 0..10_000_000_u64)), 0..70),
            bytes in 14..1_515_u64,
        ) {
            let [mut single, mut series] = twins(profile, is_on, &past);
            let frame = |&(launched, at): &(u64, Option<u64>)| SeriesFrame {
                launched: Time::from_ps(launched),
                at: at.map(Time::from_ps),
            };
            let mut together: alloc::vec::Vec<_> = frames.iter().map(frame).collect();
            let mut one_by_one = together.clone();
            for SeriesFrame { launched, at } in &mut one_by_one {
                let Some(at) = at else { continue };
                *at = single.0.receive(*at, bytes, &mut single.1);
                let message = TraceTag { node: 0, port: 0, number: 0, launched: *launched, bytes: bytes as u32 };
                single.0.ledger_mut().complete(&message, *at);
            }
            series.0.receive_all(&mut together, bytes, &mut series.1);
            prop_assert_eq!(together, one_by_one);
            prop_assert_eq!((series.0.ledger(), series.1), (single.0.ledger(), single.1));
        }
    }
}
