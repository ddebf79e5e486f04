//! Descriptor queues: chains of a driver's buffers, which the model takes and returns.

use niclab_abi::{QUEUE_RECEIVE, QUEUE_SIZE, QUEUE_TRANSMIT};
use niclab_model::nic::{Descriptor, DescriptorQueue, HostRange, HostRanges};

use crate::memory::DmaMemory;
use crate::ring::{Burst, Chain, Interrupt, RingError};
use crate::vring::Vring;

/// Maximum of a model's pending chains of one queue: the descriptors of the queue. A driver with more of them has
/// posted a chain twice.
const MAX_TAKEN: usize = QUEUE_SIZE as usize;

/// The virtqueue of a descriptor queue.
pub const fn virtqueue(queue: DescriptorQueue) -> u32 {
    match queue {
        DescriptorQueue::Transmit => QUEUE_TRANSMIT,
        DescriptorQueue::Receive => QUEUE_RECEIVE,
    }
}

/// A chain that was taken and must be returned.
#[derive(Debug)]
struct Taken {
    token: u64,
    queue: DescriptorQueue,
    head: u16,
    writable_bytes: u64,
}

/// The result of [`Descriptors::next`].
#[derive(Debug)]
pub enum Next {
    /// A chain for the model.
    Descriptor(Descriptor),
    /// A chain with a part outside of memory. It was returned unchanged.
    OutsideMemory,
    /// The queue is empty, or `MAX_TAKEN` of its chains are pending.
    Nothing,
}

/// Pending chains, and counters.
#[derive(Debug, Default)]
pub struct Descriptors {
    taken: Vec<Taken>,
    last_token: u64,
    /// Returned chains that raised an interrupt.
    pub interrupts: u64,
}

impl Descriptors {
    /// Takes the next chain of a queue, whose buffers are all in guest memory now. Guest memory may be removed later,
    /// so each access is checked again.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn next(
        &mut self,
        queue: DescriptorQueue,
        vring: &Vring,
        memory: &DmaMemory,
    ) -> Result<Next, RingError> {
        if self.taken.iter().filter(|taken| taken.queue == queue).count() >= MAX_TAKEN {
            return Ok(Next::Nothing);
        }
        let mut burst = Burst::open(vring, memory)?;
        let mut chain = Chain::new();
        let Some(head) = burst.pop(&mut chain)? else { return Ok(Next::Nothing) };
        if chain.iter().any(|buffer| !memory.contains(buffer.address, buffer.bytes.into())) {
            burst.push_used(head, 0);
            self.interrupts += u64::from(burst.publish() == Interrupt::Wanted && burst.interrupt());
            return Ok(Next::OutsideMemory);
        }
        let ranges = |writable: bool| -> HostRanges {
            let buffers = chain.iter().filter(|buffer| buffer.writable == writable);
            buffers.map(|buffer| HostRange { address: buffer.address, bytes: buffer.bytes.into() }).collect()
        };
        let (readable, writable) = (ranges(false), ranges(true));
        self.last_token += 1;
        let token = self.last_token;
        let writable_bytes = writable.iter().map(|range| range.bytes).sum();
        self.taken.push(Taken { token, queue, head, writable_bytes });
        Ok(Next::Descriptor(Descriptor { token, queue, readable, writable }))
    }

    /// The queue of a pending chain.
    pub fn queue_of(&self, token: u64) -> Option<DescriptorQueue> {
        self.taken.iter().find(|taken| taken.token == token).map(|taken| taken.queue)
    }

    /// Returns a chain into which the model wrote `bytes`. Reports no more than the chain has room for.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn complete(
        &mut self,
        vring: &Vring,
        memory: &DmaMemory,
        token: u64,
        bytes: u32,
    ) -> Result<(), RingError> {
        let Some(place) = self.taken.iter().position(|taken| taken.token == token) else { return Ok(()) };
        let Taken { head, writable_bytes, .. } = self.taken.swap_remove(place);
        let written = u64::from(bytes).min(writable_bytes) as u32;
        let mut burst = Burst::open_to_return(vring, memory)?;
        burst.push_used(head, written);
        self.interrupts += u64::from(burst.publish() == Interrupt::Wanted && burst.interrupt());
        Ok(())
    }

    /// Drops all pending chains, because the host is gone or restarts: the device must not return them.
    pub fn forget(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use vhost_user_backend::VringT;
    use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};

    use super::*;
    use crate::ring::tests::{USED, queue};

    #[test]
    fn chain_is_returned_to_a_driver_whose_machine_stops() {
        let (memory, vring, dma) = queue(false, 1);
        let mut descriptors = Descriptors::default();
        let next = descriptors.next(DescriptorQueue::Receive, &vring, &dma);
        let Ok(Next::Descriptor(taken)) = next else { panic!("a descriptor") };
        vring.set_enabled(false);
        vring.set_queue_ready(false);
        descriptors.complete(&vring, &dma, taken.token, 60).unwrap();
        let used: [u16; 2] = memory.memory().read_obj(GuestAddress(USED)).unwrap();
        let entry: [u32; 2] = memory.memory().read_obj(GuestAddress(USED + 4)).unwrap();
        assert_eq!((used[1], entry), (1, [0, 60]));
    }
}
