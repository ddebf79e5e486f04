//! A conventional NIC with prices: the cost of ordinary networking on the same platform.
//!
//! The Ethernet function moves frames as any network card with descriptor rings does; the guest's own driver serves
//! it. Its mechanism is not modelled in detail, but all its transactions are priced, so that comparisons can show
//! ordinary networking next to the NIC models.
//!
//! To send a frame, the host runs its software, copies the frame out of the program's memory, and rings a doorbell if
//! the driver requires one. The NIC then fetches the descriptor, reads the frame, and writes the descriptor back. When
//! a frame arrives, the NIC fetches a descriptor, and writes the frame and the descriptor. The host's software copies
//! the frame into the program's memory. Each notification costs one interrupt, for any number of frames.
//!
//! The host's overheads are those of the platform's profile, which were measured for a message layer. They do not
//! include a protocol stack's computing, so the result is a lower bound.

use alloc::sync::Arc;

use crate::fabric::batch::BatchFrame;
use crate::parts::effects::DESCRIPTOR_BYTES;
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::platform::ledger::{Ledger, Transaction};
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::Profile;
use crate::time::{Passage, Time};

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

    /// The host sends a frame of `bytes`, and rings the doorbell if `has_doorbell`. Returns when the frame is ready
    /// for the link.
    #[inline]
    pub fn transmit(&mut self, now: Time, bytes: u64, has_doorbell: bool, node: &mut NodeBus) -> Time {
        self.on(node, |interface| {
            let prepared = interface.host_send(now, bytes);
            let told = interface.host_copy(prepared, bytes);
            fetch(interface, told, bytes, has_doorbell)
        })
    }

    /// [`Self::transmit`] of frames of the same length, with the same sums and instants. The host begins each frame
    /// after the one before, and none before another node began its `latest`. The first `doorbells` frames have a
    /// doorbell. Each frame gets the instant when the host began it, and when it is ready for the link.
    pub fn transmit_all(
        &mut self,
        frames: &mut [BatchFrame],
        bytes: u64,
        doorbells: u64,
        latest: &mut Time,
        node: &mut NodeBus,
    ) {
        let send_ps = self.interface.profile().host.send_ps;
        self.on(node, |interface| {
            let mut sends = interface.works(Transaction::HostSend, bytes, send_ps);
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
                *frame = BatchFrame { launched: begun, passage: Some(read.into()) };
            }
            *latest = begun;
            let ledger = interface.ledger_mut();
            [sends, copies].iter().for_each(|charged| ledger.enter(charged));
            [rings, fetches, reads, returns].iter().for_each(|charged| interface.enter_transfers(charged));
        });
    }

    /// [`Self::receive`] of frames of the same length, with the same sums and instants, each at its own instant; a
    /// frame without one was dropped. Each frame is a message, complete when the receiving program has it.
    pub fn receive_all(&mut self, frames: &mut [BatchFrame], bytes: u64, node: &mut NodeBus) {
        let receive_ps = self.interface.profile().host.receive_ps;
        self.on(node, |interface| {
            let mut fetches = interface.transfers(BusTransfer::DescriptorFetch, DESCRIPTOR_BYTES);
            let mut writes = interface.transfers(BusTransfer::DmaWrite, bytes);
            let mut returns = interface.transfers(BusTransfer::DescriptorWriteBack, DESCRIPTOR_BYTES);
            let mut takes = interface.works(Transaction::HostReceive, bytes, receive_ps);
            let mut copies = interface.copies(bytes);
            for Passage { tail: at, .. } in frames.iter_mut().filter_map(|frame| frame.passage.as_mut()) {
                let fetched = interface.carry(&mut fetches, *at).end;
                let stored = interface.carry(&mut writes, fetched).end;
                let visible = interface.carry(&mut returns, stored).end;
                let taken = interface.occupy(&mut takes, visible);
                *at = interface.occupy(&mut copies, taken);
            }
            let ledger = interface.ledger_mut();
            [takes, copies].iter().for_each(|charged| ledger.enter(charged));
            ledger.complete_all(frames.iter().filter_map(BatchFrame::latency));
            [fetches, writes, returns].iter().for_each(|charged| interface.enter_transfers(charged));
        });
    }

    /// The card's part of [`Self::transmit`], for a frame that a protocol stack has in its own memory.
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

    /// Host software that takes `ps`, such as a protocol stack. Returns its end.
    pub fn software(
        &mut self,
        transaction: Transaction,
        ready: Time,
        (bytes, ps): (u64, u64),
        node: &mut NodeBus,
    ) -> Time {
        self.on(node, |interface| interface.software(transaction, ready, bytes, ps))
    }

    /// A copy in host memory. Returns its end.
    pub fn copy(&mut self, ready: Time, bytes: u64, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.host_copy(ready, bytes))
    }

    /// The host rings without a frame to send, for example after it added receive buffers. Returns when the NIC is
    /// notified.
    pub fn doorbell(&mut self, now: Time, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.transfer(BusTransfer::Doorbell, now, 0).end)
    }

    /// One notification, at `at` or when the host has handled the previous one. Returns when the line is raised.
    #[inline]
    pub fn interrupt(&mut self, at: Time, node: &mut NodeBus) -> Time {
        self.on(node, |interface| interface.interrupt(at))
    }

    /// The card's interface to the bus of `node`.
    #[inline]
    fn on<R>(&mut self, node: &mut NodeBus, act: impl FnOnce(&mut HostInterface) -> R) -> R {
        self.interface.enter(node);
        let result = act(&mut self.interface);
        self.interface.leave(node);
        result
    }

    /// The cost of every transaction.
    pub const fn ledger(&self) -> &Ledger {
        self.interface.ledger()
    }

    /// The ledger: to name the message of the next transactions, to record single stages, or to disable it.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        self.interface.ledger_mut()
    }
}

/// The NIC is notified of a frame of `bytes`, and reads it. Returns the end.
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

    fn counts(nic: &Conventional) -> impl Iterator<Item = (Transaction, Line)> {
        nic.ledger().lines().filter(|(_, line)| line.count > 0)
    }

    #[test]
    fn sent_frame_crosses_the_bus_as_descriptor_and_data() {
        let mut nic = Conventional::new(Profile::ultra_200mhz_htx());
        let mut node = NodeBus::default();
        let ready = nic.transmit(Time::ZERO, 64, true, &mut node);
        let kinds: alloc::vec::Vec<_> =
            counts(&nic).map(|(kind, line)| (kind, line.count, line.bytes)).collect();
        assert_eq!(
            kinds,
            [
                (Transaction::Doorbell, 1, 0),
                (Transaction::DmaRead, 1, 64),
                (Transaction::DescriptorFetch, 1, DESCRIPTOR_BYTES),
                (Transaction::DescriptorWriteBack, 1, DESCRIPTOR_BYTES),
                (Transaction::HostSend, 1, 64),
                (Transaction::HostCopy, 1, 64),
            ]
        );
        assert!(ready > node.clock(), "the host continues while the NIC reads");
        nic.transmit(node.clock(), 64, false, &mut node);
        assert_eq!(nic.ledger().line(Transaction::Doorbell).count, 1, "the second frame needs no doorbell");
    }

    #[test]
    fn received_frames_advance_the_host_and_share_an_interrupt() {
        let mut nic = Conventional::new(Profile::ultra_200mhz_htx());
        let mut node = NodeBus::default();
        let first = nic.receive(Time::from_ps(1_000), 1_514, &mut node);
        let second = nic.receive(Time::from_ps(2_000), 1_514, &mut node);
        assert!(second > first);
        assert_eq!(node.clock(), second);
        nic.interrupt(second, &mut node);
        assert_eq!(nic.ledger().line(Transaction::Interrupt).count, 1);
        assert_eq!(nic.ledger().line(Transaction::DmaWrite).bytes, 2 * 1_514);
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

    /// Two equal NICs, each with its node, after the same traffic.
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
        fn sent_batch_is_priced_as_its_frames_one_by_one(
            profile in profile(),
            is_on in prop::bool::weighted(0.9),
            past in prop::collection::vec(0..10_000_000_u64, 0..4),
            (frames, bytes, doorbells) in (0..70_usize, 14..1_515_u64, 0..5_u64),
            latest in 0..20_000_000_u64,
        ) {
            let [mut single, mut batch] = twins(profile, is_on, &past);
            let (mut single_latest, mut batch_latest) = (Time::from_ps(latest), Time::from_ps(latest));
            let one_by_one: alloc::vec::Vec<_> = (0..frames as u64)
                .map(|number| {
                    let launched = single.1.clock().max(single_latest);
                    single_latest = launched;
                    let at = single.0.transmit(launched, bytes, number < doorbells, &mut single.1);
                    BatchFrame { launched, passage: Some(at.into()) }
                })
                .collect();
            let mut together = vec![BatchFrame::default(); frames];
            batch.0.transmit_all(&mut together, bytes, doorbells, &mut batch_latest, &mut batch.1);
            prop_assert_eq!(together, one_by_one);
            prop_assert_eq!(batch_latest, single_latest);
            prop_assert_eq!((batch.0.ledger(), batch.1), (single.0.ledger(), single.1));
        }

        #[test]
        fn received_batch_is_priced_as_its_frames_one_by_one(
            profile in profile(),
            is_on in prop::bool::weighted(0.9),
            past in prop::collection::vec(0..10_000_000_u64, 0..4),
            frames in prop::collection::vec((0..9_000_000_u64, prop::option::weighted(0.9, 0..10_000_000_u64)), 0..70),
            bytes in 14..1_515_u64,
        ) {
            let [mut single, mut batch] = twins(profile, is_on, &past);
            let frame = |&(launched, at): &(u64, Option<u64>)| BatchFrame {
                launched: Time::from_ps(launched),
                passage: at.map(|at| Time::from_ps(at).into()),
            };
            let mut together: alloc::vec::Vec<_> = frames.iter().map(frame).collect();
            let mut one_by_one = together.clone();
            for BatchFrame { launched, passage } in &mut one_by_one {
                let Some(Passage { tail: at, .. }) = passage else { continue };
                *at = single.0.receive(*at, bytes, &mut single.1);
                let message = TraceTag { node: 0, port: 0, number: 0, launched: *launched, bytes: bytes as u32 };
                single.0.ledger_mut().complete(&message, *at);
            }
            batch.0.receive_all(&mut together, bytes, &mut batch.1);
            prop_assert_eq!(together, one_by_one);
            prop_assert_eq!((batch.0.ledger(), batch.1), (single.0.ledger(), single.1));
        }
    }
}
