//! Descriptor queues through the real socket: chains go to a model and come back, and what a guest must not do is counted.

use std::collections::VecDeque;
use std::sync::Arc;

use niclab_device::frontend::{ClusterGuest, DriverRing};
use niclab_device::lab::Lab;
use niclab_device::ring::Buffer;
use niclab_model::nic::Statistics;
use niclab_model::nic::{
    Descriptor, DescriptorQueue, FrameBytes, HostRange, HostRanges, Input, Nic, Observed, Output, ShellCounts,
};
use niclab_model::parts::ledger::Ledger;
use niclab_model::parts::node_bus::NodeBus;
use niclab_model::time::Time;
use virtio_bindings::virtio_ring::VRING_DESC_F_NEXT;

use crate::common::{PATIENCE, lab, pair, stream, until, violations};

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
/// Chains that the card has at a time.
const MOST: usize = 4;

/// A card that gives back what it is told to send: one chain read, one chain written.
#[derive(Default)]
struct Loopback {
    to_send: VecDeque<Descriptor>,
    room: VecDeque<Descriptor>,
    is_reading: bool,
    demands: u64,
    outputs: VecDeque<Output>,
    ledger: Ledger,
}

impl Loopback {
    fn go_on(&mut self, at: Time) {
        if let (Some(next), false, false) = (self.to_send.front(), self.room.is_empty(), self.is_reading) {
            self.is_reading = true;
            let (token, ranges, into) = (next.token, next.readable.clone(), FrameBytes::new());
            self.outputs.push_back(Output::DmaRead { at, token, ranges, into, message: None });
        }
    }

    fn store(&mut self, at: Time, bytes: FrameBytes) {
        self.is_reading = false;
        let (Some(sent), Some(room)) = (self.to_send.pop_front(), self.room.pop_front()) else { return };
        let mut left = bytes.len() as u64;
        let mut ranges = HostRanges::new();
        for range in room.writable {
            let bytes = left.min(range.bytes);
            left -= bytes;
            ranges.push(HostRange { bytes, ..range });
        }
        let stored = bytes.len() - left as usize;
        let frame = bytes.into();
        self.outputs.push_back(Output::DmaFrame { at, frame, bytes: 0..stored, ranges, message: None });
        self.outputs.push_back(Output::Complete { at, token: sent.token, bytes: 0 });
        self.outputs.push_back(Output::Complete { at, token: room.token, bytes: stored as u32 });
        // A chain that it never had: the driver hears nothing of it.
        self.outputs.push_back(Output::Complete { at, token: u64::MAX, bytes: 7 });
    }
}

impl Nic for Loopback {
    fn handle(&mut self, now: Time, input: Input<'_>, _: &mut NodeBus) {
        match input {
            Input::Descriptor(descriptor) if descriptor.queue == DescriptorQueue::Transmit => {
                self.to_send.push_back(descriptor);
            }
            Input::Descriptor(descriptor) => self.room.push_back(descriptor),
            Input::PollDemand { .. } => self.demands += 1,
            Input::DmaData { bytes, .. } => self.store(now, bytes),
            Input::HostReset => *self = Self::default(),
            _ => {}
        }
        self.go_on(now);
    }

    fn memory_named_by(&self, _: &[u8]) -> HostRanges {
        HostRanges::new()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        let chains = if queue == DescriptorQueue::Transmit { &self.to_send } else { &self.room };
        Some(MOST - chains.len())
    }

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }
}

impl Observed for Loopback {
    fn delivered(&self, _: u32) -> u64 {
        0
    }

    fn unordered(&self) -> u64 {
        self.demands
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    fn statistics(&self, _: &ShellCounts) -> Statistics {
        Statistics::default()
    }
}

/// A guest whose card is a loopback.
fn loopback(lab: &Lab) -> Arc<ClusterGuest> {
    let guest = lab.guest(0).unwrap();
    lab.daemon().shell().world().cards[0].nic = Box::new(Loopback::default());
    guest
}

fn buffer(address: u64, bytes: u32, writable: bool) -> Buffer {
    Buffer { address, bytes, writable }
}

fn next_used(ring: &mut DriverRing) -> Option<(u16, u32)> {
    let used = ring.poll_used().unwrap()?;
    ring.reclaim(used.0).unwrap();
    Some(used)
}

#[test]
fn chains_go_to_the_model_and_come_back_with_what_it_wrote() {
    let lab = lab(1);
    let guest = loopback(&lab);
    let memory = guest.memory();
    let (from, to) = (memory.allocate(4_096, 8).unwrap(), memory.allocate(4_096, 8).unwrap());
    // More than the card takes at a time, so that it comes back for the others by itself.
    const CHAINS: u64 = 3 * MOST as u64;
    for chain in 0..CHAINS {
        memory.slice(from + 64 * chain, 40).unwrap().copy_from(&[chain as u8 + 1; 40]);
    }
    guest.with_descriptor_rings(|transmit, receive| {
        for chain in 0..CHAINS {
            let (from, to) = (from + 64 * chain, to + 64 * chain);
            transmit.add(&[buffer(from, 30, false), buffer(from + 30, 10, false)]).unwrap();
            receive.add(&[buffer(to, 16, true), buffer(to + 16, 48, true)]).unwrap();
        }
        transmit.notify().unwrap();
        receive.notify().unwrap();
    });
    for chain in 0..CHAINS {
        let mut bytes = 0;
        until("a chain of each queue", || {
            guest.with_descriptor_rings(|_, receive| next_used(receive)).is_some_and(|(_, written)| {
                bytes = written;
                true
            })
        });
        assert_eq!(bytes, 40, "chain {chain}");
        let mut stored = [0; 40];
        memory.slice(to + 64 * chain, 40).unwrap().copy_to(&mut stored);
        assert_eq!(stored, [chain as u8 + 1; 40]);
        until("the sent chain", || guest.with_descriptor_rings(|transmit, _| next_used(transmit)).is_some());
    }
    assert!(violations(&lab, 0).is_empty());
    let world = lab.daemon().shell().world();
    assert_eq!(world.cards[0].doorbells(), 0, "a notify of a descriptor queue is no doorbell");
    assert!(world.cards[0].nic.unordered() >= 2, "and a poll demand each");
}

#[test]
fn hostile_chains_are_counted_and_harm_nobody_else() {
    let lab = lab(3);
    let guest = loopback(&lab);
    let bystanders = [lab.guest(1).unwrap(), lab.guest(2).unwrap()];
    let [mut a, mut b] = pair([&bystanders[0], &bystanders[1]]);
    let memory = guest.memory().allocate(64, 8).unwrap();
    let present = |ring: &mut DriverRing, head: u16| {
        ring.offer(head).unwrap();
        ring.publish().unwrap();
        ring.ring().unwrap();
    };
    guest.with_descriptor_rings(|transmit, receive| {
        transmit.write_descriptor(0, buffer(1 << 50, 8, false), 0, 0).unwrap();
        present(transmit, 0);
        transmit.write_descriptor(1, buffer(memory, 8, false), NEXT, 2).unwrap();
        transmit.write_descriptor(2, buffer(memory, 8, false), NEXT, 1).unwrap();
        present(transmit, 1);
        present(receive, 9_999);
    });
    for name in ["descriptor_outside_memory", "ring_loop", "ring_descriptor_index"] {
        until(name, || violations(&lab, 0).contains_key(name));
    }
    // The same chain again and again: as many as the queue has descriptors are taken, and the card takes fewer.
    guest.with_descriptor_rings(|transmit, _| {
        transmit.write_descriptor(3, buffer(memory, 8, false), 0, 0).unwrap();
        (0..200).for_each(|_| present(transmit, 3));
        transmit.skip(10_000);
        transmit.publish().unwrap();
        transmit.ring().unwrap();
    });
    stream(&mut a, &mut b, 200);
    assert!(violations(&lab, 1).is_empty() && violations(&lab, 2).is_empty());
    assert!(guest.wait_interrupts(PATIENCE / 1_000) == 0);
}

#[test]
fn a_reset_takes_all_chains_back() {
    let lab = lab(1);
    let guest = loopback(&lab);
    let memory = guest.memory().allocate(64, 8).unwrap();
    let taken = || {
        let world = lab.daemon().shell().world();
        world.cards[0].nic.descriptors_wanted(DescriptorQueue::Receive)
    };
    guest.with_descriptor_rings(|_, receive| {
        for _ in 0..MOST {
            receive.add(&[buffer(memory, 8, true)]).unwrap();
        }
        receive.notify().unwrap();
    });
    until("all chains", || taken() == Some(0));
    lab.daemon().shell().world().host_reset(0);
    assert_eq!(taken(), Some(MOST));
    guest.with_descriptor_rings(|_, receive| assert!(next_used(receive).is_none(), "nothing is given back"));
}
