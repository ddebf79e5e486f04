//! The Ethernet function's driver: it sends and receives frames.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use virtio_bindings::virtio_net::VIRTIO_NET_F_MQ;
use vm_memory::VolatileMemory;

use super::{Connection, DriverRing, FrontendError, GuestMemory};
use crate::ethernet::header::{HEADER_BYTES, Offload};
use crate::ethernet::{QUEUES_PER_PAIR, receive_queue, transmit_queue};
use crate::memory::MemoryError;
use crate::ring::Buffer;

/// A guest's driver of the Ethernet function, with one or several queue pairs. It dereferences to its first pair.
pub struct EthernetGuest {
    connection: Connection,
    pairs: Vec<QueuePair>,
}

/// A receive and a transmit queue. Each descriptor has a buffer of its own.
pub struct QueuePair {
    memory: Arc<GuestMemory>,
    receive: DriverRing,
    transmit: DriverRing,
    buffer_bytes: u32,
    receive_buffers: u64,
    transmit_buffers: u64,
}

const SHORT: FrontendError = FrontendError::Malformed("the buffers are too short for a header");
const OUTSIDE: fn(MemoryError) -> FrontendError =
    |_| FrontendError::Malformed("a buffer is outside the guest's memory");

impl EthernetGuest {
    /// Connects to the function's socket with one pair of queues of `queue_size` descriptors, each with a buffer of
    /// `buffer_bytes`. Accepts those of the `wanted` features that are offered, and fills the receive queue.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn connect(
        socket: &Path,
        queue_size: u16,
        buffer_bytes: u32,
        wanted: u64,
    ) -> Result<Self, FrontendError> {
        Self::connect_pairs(socket, 1, queue_size, buffer_bytes, wanted)
    }

    /// As [`Self::connect`], with `pairs` pairs, all of them enabled.
    ///
    /// # Errors
    /// [`FrontendError`]; [`FrontendError::Malformed`] for zero pairs.
    pub fn connect_pairs(
        socket: &Path,
        pairs: usize,
        queue_size: u16,
        buffer_bytes: u32,
        wanted: u64,
    ) -> Result<Self, FrontendError> {
        let count = pairs as u64;
        let wanted = if pairs > 1 { wanted | 1 << VIRTIO_NET_F_MQ } else { wanted };
        let bytes = 2 * u64::from(queue_size) * u64::from(buffer_bytes) + (64 << 10);
        let memory = Arc::new(GuestMemory::new(count * bytes)?);
        let mut connection = Connection::new(socket, count * QUEUES_PER_PAIR as u64, wanted, &memory)?;
        let pairs =
            (0..pairs).map(|pair| QueuePair::start(&mut connection, &memory, pair, queue_size, buffer_bytes));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        if pairs.is_empty() {
            return Err(FrontendError::Malformed("a guest needs at least one queue pair"));
        }
        Ok(Self { connection, pairs })
    }

    /// The connection, for actions of QEMU rather than of a driver.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// All pairs.
    pub fn pairs(&mut self) -> &mut [QueuePair] {
        &mut self.pairs
    }

    /// Has QEMU turn a pair on or off, as a driver does by the control queue.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn enable_pair(&mut self, pair: usize, is_on: bool) -> Result<(), FrontendError> {
        for queue in [receive_queue(pair), transmit_queue(pair)] {
            self.connection.enable_queue(queue, is_on)?;
        }
        Ok(())
    }
}

impl Deref for EthernetGuest {
    type Target = QueuePair;

    fn deref(&self) -> &QueuePair {
        // A guest has at least one pair.
        &self.pairs[0]
    }
}

impl DerefMut for EthernetGuest {
    fn deref_mut(&mut self) -> &mut QueuePair {
        &mut self.pairs[0]
    }
}

impl QueuePair {
    fn start(
        connection: &mut Connection,
        memory: &Arc<GuestMemory>,
        pair: usize,
        queue_size: u16,
        buffer_bytes: u32,
    ) -> Result<Self, FrontendError> {
        let all_buffers = u64::from(queue_size) * u64::from(buffer_bytes);
        let receive = DriverRing::new(memory, queue_size)?;
        let transmit = DriverRing::new(memory, queue_size)?;
        let receive_buffers = memory.allocate(all_buffers, 64)?;
        let transmit_buffers = memory.allocate(all_buffers, 64)?;
        connection.start_queue(receive_queue(pair), &receive, memory)?;
        connection.start_queue(transmit_queue(pair), &transmit, memory)?;
        let memory = Arc::clone(memory);
        let mut this = Self { memory, receive, transmit, buffer_bytes, receive_buffers, transmit_buffers };
        while this.offer_buffer()? {}
        this.receive.notify()?;
        Ok(this)
    }

    /// The guest's memory.
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The transmit ring, for hostile tests.
    pub const fn transmit_ring(&mut self) -> &mut DriverRing {
        &mut self.transmit
    }

    /// The receive ring, for hostile tests.
    pub const fn receive_ring(&mut self) -> &mut DriverRing {
        &mut self.receive
    }

    #[inline]
    fn offer_buffer(&mut self) -> Result<bool, FrontendError> {
        let Some(descriptor) = self.receive.next_descriptor() else { return Ok(false) };
        let address = self.receive_buffers + u64::from(descriptor) * u64::from(self.buffer_bytes);
        let buffer = Buffer { address, bytes: self.buffer_bytes, writable: true };
        self.receive.add(&[buffer]).map_err(OUTSIDE)?;
        Ok(true)
    }

    /// Puts a frame into the transmit queue, in several buffers if needed. False if there is no room. The device sees
    /// it only after [`QueuePair::flush`].
    ///
    /// # Errors
    /// [`FrontendError`].
    #[inline]
    pub fn queue(&mut self, offload: &Offload, frame: &[u8]) -> Result<bool, FrontendError> {
        self.reclaim()?;
        let header = offload.encode(0);
        let room = self.buffer_bytes as usize;
        let descriptors = (HEADER_BYTES + frame.len()).div_ceil(room);
        if descriptors > self.transmit.free() {
            return Ok(false);
        }
        let mut chain: smallvec::SmallVec<[Buffer; 4]> = smallvec::SmallVec::new();
        let mut rest = frame;
        for index in 0..descriptors {
            let Some(descriptor) = self.transmit.descriptor(index, descriptors) else { return Ok(false) };
            let address = self.transmit_buffers + u64::from(descriptor) * room as u64;
            let offset = if index == 0 { HEADER_BYTES } else { 0 };
            let part = rest.len().min(room - offset);
            let (now, later) = rest.split_at(part);
            let slice = self.memory.slice(address, offset + part).map_err(OUTSIDE)?;
            if index == 0 {
                slice.get_ref::<[u8; HEADER_BYTES]>(0).map_err(|_| SHORT)?.store(header);
            }
            if let Ok(place) = slice.offset(offset) {
                place.copy_from(now);
            }
            chain.push(Buffer { address, bytes: (offset + part) as u32, writable: false });
            rest = later;
        }
        self.transmit.add(&chain).map_err(OUTSIDE)?;
        Ok(true)
    }

    /// Shows the device the queued frames, and rings if the device has enabled notifications.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn flush(&mut self) -> Result<(), FrontendError> {
        self.transmit.notify()
    }

    /// Shows the device queued frames and new buffers without ringing, for a device that polls.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn show(&mut self) -> Result<(), FrontendError> {
        self.transmit.show().map_err(OUTSIDE)?;
        self.receive.show().map_err(OUTSIDE)
    }

    /// Sends one frame without offloads and rings.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, FrontendError> {
        let queued = self.queue(&Offload::default(), frame)?;
        self.flush()?;
        Ok(queued)
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), FrontendError> {
        while let Some((head, _)) = self.transmit.poll_used().map_err(OUTSIDE)? {
            self.transmit.reclaim(head).map_err(OUTSIDE)?;
        }
        Ok(())
    }

    /// Takes the next received frame if there is one, and calls `look` with its first bytes and its length. The
    /// buffer goes back to the queue, but the device sees it only after the next [`QueuePair::show`]. For frames that
    /// fit one buffer.
    ///
    /// # Errors
    /// [`FrontendError`].
    #[inline]
    pub fn receive_short<T>(
        &mut self,
        look: impl FnOnce(&[u8; 64], u32) -> T,
    ) -> Result<Option<T>, FrontendError> {
        let Some((head, bytes)) = self.receive.poll_used().map_err(OUTSIDE)? else { return Ok(None) };
        let address = self.receive_buffers + u64::from(head) * u64::from(self.buffer_bytes);
        let mut first = [0; 64];
        let slice = self.memory.slice(address + HEADER_BYTES as u64, first.len()).map_err(OUTSIDE)?;
        slice.copy_to(&mut first);
        let looked = look(&first, bytes.saturating_sub(HEADER_BYTES as u32));
        self.receive.reclaim(head).map_err(OUTSIDE)?;
        self.offer_buffer()?;
        Ok(Some(looked))
    }

    /// Takes the next received frame if there is one: its offloads as the device wrote them, and its bytes.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn try_receive(&mut self) -> Result<Option<(Offload, Vec<u8>)>, FrontendError> {
        let Some((head, bytes)) = self.receive.poll_used().map_err(OUTSIDE)? else { return Ok(None) };
        let mut all = self.take_buffer(head, bytes)?;
        let header: [u8; HEADER_BYTES] =
            all.first_chunk().copied().ok_or(FrontendError::Malformed("a received frame has no header"))?;
        let [.., b0, b1] = header;
        for _ in 1..u16::from_le_bytes([b0, b1]) {
            let more = self.receive.poll_used().map_err(OUTSIDE)?;
            let (head, bytes) = more.ok_or(FrontendError::Malformed("a merged frame lacks buffers"))?;
            all.extend(self.take_buffer(head, bytes)?);
        }
        self.receive.notify()?;
        let frame = all.split_off(HEADER_BYTES);
        let offload = Offload::decode(&header, frame.len())
            .map_err(|_| FrontendError::Malformed("a received frame has invalid offloads"))?;
        Ok(Some((offload, frame)))
    }

    fn take_buffer(&mut self, head: u16, bytes: u32) -> Result<Vec<u8>, FrontendError> {
        let address = self.receive_buffers + u64::from(head) * u64::from(self.buffer_bytes);
        let mut content = vec![0; bytes.min(self.buffer_bytes) as usize];
        self.memory.slice(address, content.len()).map_err(OUTSIDE)?.copy_to(&mut content);
        self.receive.reclaim(head).map_err(OUTSIDE)?;
        self.offer_buffer()?;
        Ok(content)
    }

    /// Waits for the next frame by the receive queue's interrupt.
    ///
    /// # Errors
    /// [`FrontendError`]; [`FrontendError::TimedOut`] if none arrives in time.
    pub fn receive(&mut self, timeout: Duration) -> Result<(Offload, Vec<u8>), FrontendError> {
        let begin = Instant::now();
        loop {
            if let Some(received) = self.try_receive()? {
                return Ok(received);
            }
            let Some(left) = timeout.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else {
                let wall_ms = timeout.as_millis() as u64;
                return Err(FrontendError::TimedOut { what: "deliver a frame", wall_ms });
            };
            // SAFETY: the event is borrowed from `self`, hence open, while the descriptor is in use.
            let descriptor = unsafe { BorrowedFd::borrow_raw(self.receive.call.as_raw_fd()) };
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], left);
            let _ = self.receive.call.read();
        }
    }
}
