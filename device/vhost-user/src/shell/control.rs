//! The control queue: requests in, replies out, every length bounded.

use niclab_abi::control::{Reply, STATUS_BAD_LENGTH};
use niclab_abi::{FromBytes, QUEUE_CONTROL, ToBytes};
use niclab_model::nic::MAX_CONTROL_BYTES;
use niclab_model::nic::fault_injector::FaultInjector;
use smallvec::SmallVec;

use super::adversary::AdversaryState;
use super::events::write;
use crate::memory::DmaMemory;
use crate::ring::{Buffer, Burst, Chain, Interrupt, RingError};
use crate::vring::Vring;

/// Maximum of pending requests: the descriptors of the queue. A driver with more of them has posted a chain twice.
const MAX_PENDING: usize = niclab_abi::QUEUE_SIZE as usize;

/// The bytes of a request.
pub type RequestBytes = SmallVec<[u8; 64]>;

/// A chain that was taken and must be returned.
#[derive(Debug)]
struct Pending {
    token: u64,
    head: u16,
    /// The complete chain: the request, and room for the reply.
    chain: Chain,
}

/// The result of [`Control::next`].
#[derive(Debug)]
pub enum Next {
    /// A request, which [`Control::reply`] answers.
    Request {
        /// Identifies the chain for the reply.
        token: u64,
        /// The request, as the driver wrote it.
        bytes: RequestBytes,
        /// The driver has posted the chain again before it was returned.
        is_again: bool,
    },
    /// A chain without room for a reply, or with a part outside of memory. It was returned unchanged.
    Unanswerable,
    /// The queue is empty, or `MAX_PENDING` requests are pending.
    Nothing,
}

/// Pending requests, and counters.
#[derive(Debug, Default)]
pub struct Control {
    pending: Vec<Pending>,
    last_token: u64,
    /// Replies that raised an interrupt.
    pub interrupts: u64,
    /// Chains without room for a reply, or with a part outside of memory.
    pub unanswerable: u64,
}

impl Control {
    /// Whether `MAX_PENDING` requests are pending.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING
    }

    /// Whether no request is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the next chain. Reads at most [`MAX_CONTROL_BYTES`]: the model refuses a request of that length, which is
    /// longer than any valid one.
    ///
    /// One chain for each call: a guest may keep its queue full of unanswerable ones, which cost as much as others.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn next(&mut self, vring: &Vring, memory: &DmaMemory) -> Result<Next, RingError> {
        if self.is_full() {
            return Ok(Next::Nothing);
        }
        let mut burst = Burst::open(vring, memory)?;
        let mut chain = Chain::new();
        let Some(head) = burst.pop(&mut chain)? else { return Ok(Next::Nothing) };
        let room_bytes = room_bytes(&chain);
        let request = read(memory, &chain).filter(|_| room_bytes >= Reply::BYTES as u64);
        let Some(bytes) = request else {
            self.unanswerable += 1;
            burst.push_used(head, 0);
            if burst.publish() == Interrupt::Wanted && burst.interrupt() {
                self.interrupts += 1;
            }
            return Ok(Next::Unanswerable);
        };
        self.last_token += 1;
        let is_again = self.pending.iter().any(|pending| pending.head == head);
        self.pending.push(Pending { token: self.last_token, head, chain });
        Ok(Next::Request { token: self.last_token, bytes, is_again })
    }

    /// Returns the chain of the request `token` with its reply.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn reply(
        &mut self,
        vring: &Vring,
        memory: &DmaMemory,
        token: u64,
        bytes: &[u8],
        adversary: Option<&mut AdversaryState>,
        fault_injector: Option<&mut FaultInjector>,
    ) -> Result<(), RingError> {
        let Some(index) = self.pending.iter().position(|pending| pending.token == token) else {
            return Ok(());
        };
        let Pending { head, chain, .. } = self.pending.swap_remove(index);
        let mut refusal = [0; Reply::BYTES];
        Reply { status: STATUS_BAD_LENGTH, body_bytes: 0 }.to_bytes(&mut refusal);
        let bytes = if bytes.len() as u64 <= room_bytes(&chain) { bytes } else { &refusal };
        let written = write(memory, &chain, bytes).map_or(0, |()| bytes.len() as u32);
        if written == 0 {
            self.unanswerable += 1;
        }
        let mut burst = Burst::open_to_return(vring, memory)?;
        burst.push_used(head, fault_injector.map_or(written, |injector| injector.used_length(written)));
        let wish = burst.publish();
        let is_left = |adversary: &mut AdversaryState| adversary.leaves_interrupt(QUEUE_CONTROL);
        if wish == Interrupt::Wanted && !adversary.is_some_and(is_left) && burst.interrupt() {
            self.interrupts += 1;
        }
        Ok(())
    }

    /// Reads the chain of the request `token` again: its present bytes, as in [`Next::Request`].
    pub fn now(&self, memory: &DmaMemory, token: u64) -> Option<RequestBytes> {
        let pending = self.pending.iter().find(|pending| pending.token == token)?;
        read(memory, &pending.chain)
    }

    /// Drops all pending requests, because the host is gone or restarts: the device must not return its chains.
    pub fn forget(&mut self) {
        self.pending.clear();
    }
}

/// The room for a reply.
fn room_bytes(chain: &[Buffer]) -> u64 {
    chain.iter().filter(|buffer| buffer.writable).map(|buffer| u64::from(buffer.bytes)).sum()
}

/// The readable bytes of a chain, or `None` when some are not in memory.
fn read(memory: &DmaMemory, chain: &[Buffer]) -> Option<RequestBytes> {
    let mut request = RequestBytes::new();
    for buffer in chain.iter().filter(|buffer| !buffer.writable) {
        let have = request.len();
        let part = (buffer.bytes as usize).min(MAX_CONTROL_BYTES - have);
        let unread = memory.unread(buffer.address, part).ok()?;
        request.resize(have + part, 0);
        unread.read(request.get_mut(have..)?);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use vhost_user_backend::VringT;
    use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};

    use super::*;
    use crate::ring::tests::{USED, queue};

    #[test]
    fn reply_reaches_a_driver_whose_machine_has_stopped() {
        let (memory, vring, dma) = queue(false, 1);
        // A chain of a request of 8 bytes (flag NEXT) and of room for the reply.
        memory.memory().write_obj([0x5000_u64, 8 | 1 << 32 | 1 << 48], GuestAddress(0)).unwrap();
        let mut control = Control::default();
        let Ok(Next::Request { token, .. }) = control.next(&vring, &dma) else { panic!("a request") };
        vring.set_enabled(false);
        vring.set_queue_ready(false);
        control.reply(&vring, &dma, token, &[7; Reply::BYTES], None, None).unwrap();
        let used: [u16; 2] = memory.memory().read_obj(GuestAddress(USED)).unwrap();
        let entry: [u32; 2] = memory.memory().read_obj(GuestAddress(USED + 4)).unwrap();
        assert_eq!((used[1], entry), (1, [0, Reply::BYTES as u32]));
        assert!(control.next(&vring, &dma).is_err(), "a stopped queue gives no chains");
    }
}
