//! Descriptor queues over the real socket: chains go to a model and return, and violations of a guest are counted.

use niclab_device::shell::service::device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use niclab_device::frontend::{ClusterGuest, DriverRing};
use niclab_device::lab::Lab;
use niclab_device::ring::Buffer;
use niclab_model::nic::DescriptorQueue;
use niclab_model::parts::descriptor_ring::dec2114x::{BYTES, CHAINED, END_OF_RING, OWN};
use niclab_model::platform::ledger::Transaction;
use virtio_bindings::virtio_ring::VRING_DESC_F_NEXT;

use crate::common::loopback::{DONE, Loopback, MOST};
use crate::common::{Stop, lab, pair, stream, until, violations};

const NEXT: u16 = VRING_DESC_F_NEXT as u16;

/// A guest whose card is a loopback.
fn loopback(lab: &Lab) -> Arc<ClusterGuest> {
    let guest = lab.guest(0).unwrap();
    lab.daemon().shell().lock_all().nodes[0].card.nic = Box::new(Loopback::of_chains());
    guest
}

/// Number of transactions of this kind on the bus of node 0, and their bytes.
fn transactions(lab: &Lab, transaction: Transaction) -> (u64, u64) {
    let locked = lab.daemon().shell().lock_all();
    let line = locked.nodes[0].card.nic.ledger().line(transaction);
    (line.count, line.bytes)
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
fn chains_return_with_the_data_of_the_model() {
    let lab = lab(1);
    let guest = loopback(&lab);
    let memory = guest.memory();
    let (from, to) = (memory.allocate(4_096, 8).unwrap(), memory.allocate(4_096, 8).unwrap());
    // More chains than the card takes at a time, so that it must fetch the others by itself.
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
    // A chain may be taken for the other queue's notification, before its own is handled.
    until("a poll demand for each notification", || {
        lab.daemon().shell().lock_all().nodes[0].card.nic.unordered() >= 2
    });
    assert_eq!(
        lab.daemon().shell().lock_all().nodes[0].card.host.doorbells(),
        2,
        "a notify of each descriptor queue"
    );
    // Two descriptors of each chain are fetched, and one is written back.
    assert_eq!(transactions(&lab, Transaction::DescriptorFetch), (2 * CHAINS, 2 * CHAINS * 2 * 16));
    assert_eq!(transactions(&lab, Transaction::DescriptorWriteBack), (2 * CHAINS, 2 * CHAINS * 16));
}

#[test]
fn hostile_chains_are_counted_and_do_not_affect_other_nodes() {
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
    // The same chain many times: the device takes at most a queue's number of descriptors, and the card takes fewer.
    guest.with_descriptor_rings(|transmit, _| {
        transmit.write_descriptor(3, buffer(memory, 8, false), 0, 0).unwrap();
        (0..200).for_each(|_| present(transmit, 3));
        transmit.skip(10_000);
        transmit.publish().unwrap();
        transmit.ring().unwrap();
    });
    stream(&mut a, &mut b, 200);
    assert!(violations(&lab, 1).is_empty() && violations(&lab, 2).is_empty());
    assert!(guest.wait_interrupts(Duration::from_millis(20)) == 0);
}

#[test]
fn reset_removes_all_chains_from_the_card() {
    let lab = lab(1);
    let guest = loopback(&lab);
    let memory = guest.memory().allocate(64, 8).unwrap();
    let taken = || {
        let locked = lab.daemon().shell().lock_all();
        locked.nodes[0].card.nic.descriptors_wanted(DescriptorQueue::Receive)
    };
    guest.with_descriptor_rings(|_, receive| {
        for _ in 0..MOST {
            receive.add(&[buffer(memory, 8, true)]).unwrap();
        }
        receive.notify().unwrap();
    });
    until("all chains", || taken() == Some(0));
    device::reset(&mut lab.daemon().shell().lock_all(), 0);
    assert_eq!(taken(), Some(MOST));
    guest.with_descriptor_rings(|_, receive| assert!(next_used(receive).is_none(), "no chain is returned"));
}

/// Two rings of the DEC 21140 in a guest's memory, and buffers of 64 bytes.
struct Rings {
    guest: Arc<ClusterGuest>,
    first: [u64; 2],
    buffers: [u64; 2],
}

const ENTRIES: u64 = 8;

impl Rings {
    /// Rings for a card to walk, one unchained and one chained.
    fn new(lab: &Lab) -> Self {
        let guest = lab.guest(0).unwrap();
        let allocate = |bytes| guest.memory().allocate(bytes, 8).unwrap();
        let this = Self {
            first: [(); 2].map(|()| allocate(ENTRIES * BYTES)),
            buffers: [(); 2].map(|()| allocate(ENTRIES * 64)),
            guest,
        };
        let card = Loopback::of_rings(this.first);
        lab.daemon().shell().lock_all().nodes[0].card.nic = Box::new(card);
        this
    }

    fn words(&self, queue: usize, entry: u64) -> &[AtomicU64] {
        self.guest.memory().atomics(self.first[queue] + entry * BYTES, 2).unwrap()
    }

    /// Gives a descriptor to the card: 40 bytes to send, or room for 64 bytes. The first ring is contiguous, the second
    /// is a chain.
    fn give(&self, queue: usize, number: u64) {
        let entry = number % ENTRIES;
        let is_last = entry == ENTRIES - 1;
        let next = (self.first[queue] + (entry + 1) * BYTES) as u32;
        let (flag, second) = match queue {
            _ if is_last => (END_OF_RING, 0),
            0 => (0, 0),
            _ => (CHAINED, next),
        };
        let control = flag | if queue == 0 { 40 } else { 64 };
        let buffer = self.buffers[queue] + 64 * entry;
        self.store(queue, entry, control, buffer as u32, second);
    }

    fn store(&self, queue: usize, entry: u64, control: u32, buffer: u32, second: u32) {
        let words = self.words(queue, entry);
        words[1].store(u64::from(second) << 32 | u64::from(buffer), Ordering::Relaxed);
        words[0].store(u64::from(control) << 32 | u64::from(OWN), Ordering::Release);
    }

    /// The status of a descriptor that the card has returned.
    fn status(&self, queue: usize, number: u64) -> Option<u32> {
        let word = self.words(queue, number % ENTRIES)[0].load(Ordering::Acquire);
        (word as u32 & OWN == 0 && word != 0).then_some(word as u32)
    }

    fn demand(&self) {
        self.guest.with_descriptor_rings(|transmit, receive| {
            transmit.ring().unwrap();
            receive.ring().unwrap();
        });
    }
}

#[test]
fn poll_demand_makes_the_card_walk_rings_in_guest_memory() {
    let lab = lab(1);
    let rings = Rings::new(&lab);
    let memory = rings.guest.memory();
    const ROUNDS: u64 = 5;
    for round in 0..ROUNDS {
        let numbers = round * ENTRIES..(round + 1) * ENTRIES;
        for number in numbers.clone() {
            let data = memory.slice(rings.buffers[0] + 64 * (number % ENTRIES), 40).unwrap();
            data.copy_from(&[number as u8 + 1; 40]);
            rings.give(1, number);
            rings.give(0, number);
        }
        rings.demand();
        for number in numbers {
            let mut status = 0;
            until("a descriptor", || {
                rings.status(1, number).is_some_and(|read| {
                    status = read;
                    true
                })
            });
            assert_eq!(status, 40 << 16 | DONE);
            let mut stored = [0; 40];
            let data = memory.slice(rings.buffers[1] + 64 * (number % ENTRIES), 40).unwrap();
            data.copy_to(&mut stored);
            assert_eq!(stored, [number as u8 + 1; 40], "descriptor {number}");
            until("what was sent", || rings.status(0, number) == Some(DONE));
        }
    }
    assert!(violations(&lab, 0).is_empty());
    let all = 2 * ROUNDS * ENTRIES;
    let (fetched, bytes) = transactions(&lab, Transaction::DescriptorFetch);
    assert!(
        fetched >= all && bytes == fetched * BYTES,
        "including polls that found no descriptor: {fetched}"
    );
    assert_eq!(transactions(&lab, Transaction::DescriptorWriteBack), (all, all * 8));
}

/// Number of rings that were found broken.
fn refused(lab: &Lab) -> u64 {
    lab.daemon().shell().lock_all().nodes[0].card.statistics().refused
}

#[test]
fn endless_rings_do_not_affect_other_nodes() {
    let lab = lab(3);
    let rings = Rings::new(&lab);
    let bystanders = [lab.guest(1).unwrap(), lab.guest(2).unwrap()];
    let [mut a, mut b] = pair([&bystanders[0], &bystanders[1]]);
    // A chain that leads back to itself. Every descriptor is the card's again as soon as the card has returned it.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for queue in 0..2 {
                    let buffer = rings.buffers[queue] as u32;
                    rings.store(queue, 0, CHAINED | 40, buffer, rings.first[queue] as u32);
                }
            }
        });
        for _ in 0..20 {
            rings.demand();
            stream(&mut a, &mut b, 20);
        }
    });
    assert_eq!(refused(&lab), 0, "an unusual ring is not broken");
    assert!(violations(&lab, 1).is_empty() && violations(&lab, 2).is_empty());
}

#[test]
fn rings_that_lead_out_of_memory_stop() {
    let lab = lab(3);
    let rings = Rings::new(&lab);
    let bystanders = [lab.guest(1).unwrap(), lab.guest(2).unwrap()];
    let [mut a, mut b] = pair([&bystanders[0], &bystanders[1]]);
    // The buffers are outside of memory as well.
    rings.store(1, 0, CHAINED | 40, u32::MAX - 4_095, u32::MAX - 7);
    rings.store(0, 0, CHAINED | 40, u32::MAX - 4_095, u32::MAX - 7);
    rings.demand();
    until("two rings that are broken", || refused(&lab) == 2);
    until("the violation", || violations(&lab, 0).contains_key("dma_outside_memory"));
    stream(&mut a, &mut b, 200);
    assert!(violations(&lab, 1).is_empty() && violations(&lab, 2).is_empty());
}
