//! Putting a frame into a guest's receive queue.

use std::collections::VecDeque;

use smallvec::SmallVec;
use vm_memory::{VolatileMemory, VolatileSlice};

use super::frame::Frame;
use super::header::{HEADER_BYTES, Offload};
use crate::memory::{DmaMemory, MemoryError};
use crate::ring::{Buffer, Burst, Chain, RingError, Singles};

/// Why a frame did not get into a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The guest has left too few buffers; more may come.
    #[error("the receive queue has no room")]
    NoRoom,
    /// The one chain that a frame may fill without mergeable buffers is too short for it.
    #[error("a receive chain of {0} bytes is too short for the frame")]
    TooShort(usize),
    /// All descriptors of the queue are there and hold too little: no more can come before these are used.
    #[error("a receive queue whose buffers hold {0} bytes altogether is too small for the frame")]
    TooSmall(usize),
    /// A chain has no buffer to write.
    #[error("a receive chain with a buffer that is to be read")]
    Direction,
    /// The ring or a chain is broken.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A buffer is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl ReceiveError {
    /// The name under which it is counted as a violation; none when it is no fault of the guest.
    pub const fn violation(self) -> Option<&'static str> {
        match self {
            Self::NoRoom | Self::Ring(RingError::NotReady) => None,
            Self::TooShort(_) => Some("ethernet_receive_chain_short"),
            Self::TooSmall(_) => Some("ethernet_receive_queue_small"),
            Self::Direction => Some("ethernet_receive_chain_direction"),
            Self::Ring(error) => Some(error.name()),
            Self::Memory(_) => Some("ethernet_outside_memory"),
        }
    }
}

/// A receive queue held for one burst.
pub struct Receiver<'a> {
    burst: Burst<'a>,
    merges_buffers: bool,
    chain: Chain,
    /// Chains taken for the frame at hand, and how much each holds.
    heads: SmallVec<[(u16, u32); 64]>,
    buffers: SmallVec<[Buffer; 64]>,
    /// Buffers taken for frames that come together.
    singles: Singles,
}

impl<'a> Receiver<'a> {
    /// Receives through `burst`.
    pub fn new(burst: Burst<'a>, merges_buffers: bool) -> Self {
        Self {
            burst,
            merges_buffers,
            chain: Chain::new(),
            heads: SmallVec::new(),
            buffers: SmallVec::new(),
            singles: Singles::new(),
        }
    }

    /// The queue.
    pub fn burst(&mut self) -> &mut Burst<'a> {
        &mut self.burst
    }

    /// Writes header and frame into the next chains. All of it or nothing.
    ///
    /// # Errors
    /// [`ReceiveError`]; after [`ReceiveError::NoRoom`] and [`ReceiveError::TooSmall`] the queue is as it was before.
    #[inline]
    pub fn put(&mut self, offload: &Offload, frame: &Frame<'_>) -> Result<(), ReceiveError> {
        if self.put_short(offload, frame)? {
            return Ok(());
        }
        self.take_chains(HEADER_BYTES + frame.bytes())?;
        let header = offload.encode(self.heads.len() as u16);
        let copied = self.copy(&header, frame);
        let mut left = if copied.is_ok() { (HEADER_BYTES + frame.bytes()) as u32 } else { 0 };
        for (head, capacity) in self.heads.drain(..) {
            let filled = left.min(capacity);
            self.burst.push_used(head, filled);
            left -= filled;
        }
        copied
    }

    /// Writes frames of one length with the same header, each of one piece, into the next chains, as long as these are one buffer
    /// that holds one. How many it wrote: for the next one the queue is as it was.
    #[inline]
    pub fn put_all(&mut self, offload: &Offload, pieces: &[VolatileSlice<'_>]) -> usize {
        let Self { burst, singles, .. } = self;
        burst.take_singles(singles, pieces.len());
        let memory = burst.memory();
        let header = offload.encode(1);
        let written = singles.iter().zip(pieces).take_while(|(single, piece)| {
            let Buffer { address, bytes, writable } = single.buffer;
            writable
                && bytes as usize >= HEADER_BYTES + piece.len()
                && write_short(memory, address, &header, piece).is_ok()
        });
        let written = written.count();
        burst.give_back(singles.len() - written);
        let filled = |piece: &VolatileSlice<'_>| (HEADER_BYTES + piece.len()) as u32;
        burst.push_used_all(
            singles.iter().zip(pieces).take(written).map(|(single, p)| (single.head, filled(p))),
        );
        written
    }

    /// Writes header and frame if the frame is one piece and the next chain one buffer that holds it, as most are. False
    /// when not; the queue is then as it was.
    #[inline]
    fn put_short(&mut self, offload: &Offload, frame: &Frame<'_>) -> Result<bool, ReceiveError> {
        let [piece] = frame.pieces() else { return Ok(false) };
        let head = self.burst.pop(&mut self.chain)?.ok_or(ReceiveError::NoRoom)?;
        let wanted = HEADER_BYTES + piece.len();
        if let [Buffer { address, bytes, writable: true }] = *self.chain.as_slice()
            && bytes as usize >= wanted
        {
            let written = write_short(self.burst.memory(), address, &offload.encode(1), piece);
            self.burst.push_used(head, written.map_or(0, |()| wanted as u32));
            return written.map(|()| true);
        }
        self.burst.unpop();
        Ok(false)
    }

    /// Collects chains until they hold `wanted` bytes.
    #[inline]
    fn take_chains(&mut self, wanted: usize) -> Result<(), ReceiveError> {
        self.heads.clear();
        self.buffers.clear();
        let mut room = 0;
        let size = usize::from(self.burst.size());
        while room < wanted {
            let head = match self.burst.pop(&mut self.chain) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    // A driver that has no descriptor left cannot add any before it gets some back.
                    let is_all = self.heads.len() >= size || self.buffers.len() >= size;
                    self.heads.drain(..).for_each(|_| self.burst.unpop());
                    return Err(if is_all { ReceiveError::TooSmall(room) } else { ReceiveError::NoRoom });
                }
                Err(error) => return self.give_up(error.into()),
            };
            let capacity: u64 = self.chain.iter().map(|buffer| u64::from(buffer.bytes)).sum();
            self.heads.push((head, u32::try_from(capacity).unwrap_or(u32::MAX)));
            if self.chain.iter().any(|buffer| !buffer.writable) {
                return self.give_up(ReceiveError::Direction);
            }
            self.buffers.extend_from_slice(&self.chain);
            room = room.saturating_add(usize::try_from(capacity).unwrap_or(usize::MAX));
            // A guest could offer chains of no bytes without end, or indirect tables full of buffers of one: a thousand
            // tables of a thousand buffers for each frame. And without merging one chain is all there is.
            let is_crumbled = self.buffers.len() > size;
            if room < wanted && (!self.merges_buffers || capacity == 0 || is_crumbled) {
                return self.give_up(ReceiveError::TooShort(room));
            }
        }
        Ok(())
    }

    /// Gives back what was collected, unused.
    fn give_up(&mut self, error: ReceiveError) -> Result<(), ReceiveError> {
        for (head, _) in self.heads.drain(..) {
            self.burst.push_used(head, 0);
        }
        Err(error)
    }

    #[inline]
    fn copy(&self, header: &[u8; HEADER_BYTES], frame: &Frame<'_>) -> Result<(), ReceiveError> {
        let memory = self.burst.memory();
        let mut header_left: &[u8] = header;
        let mut pieces = frame.pieces().iter();
        let mut source: Option<VolatileSlice<'_>> = pieces.next().copied();
        for buffer in &self.buffers {
            let mut target = memory.slice(buffer.address, buffer.bytes as usize)?;
            if !header_left.is_empty() {
                let part = header_left.len().min(target.len());
                let (now, later) = header_left.split_at(part);
                target.copy_from(now);
                header_left = later;
                target = target.offset(part).map_err(|_| outside(buffer))?;
            }
            while let Some(piece) = source {
                let part = piece.len().min(target.len());
                piece.copy_to_volatile_slice(target);
                target = target.offset(part).map_err(|_| outside(buffer))?;
                source = if part == piece.len() { pieces.next().copied() } else { piece.offset(part).ok() };
                if target.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn write_short(
    memory: &DmaMemory,
    address: u64,
    header: &[u8; HEADER_BYTES],
    piece: &VolatileSlice<'_>,
) -> Result<(), ReceiveError> {
    let bytes = HEADER_BYTES + piece.len();
    let target = memory.slice(address, bytes)?;
    let outside = |_| MemoryError::Outside { address, bytes: bytes as u64 };
    target.get_ref::<[u8; HEADER_BYTES]>(0).map_err(outside)?.store(*header);
    piece.copy_to_volatile_slice(target.offset(HEADER_BYTES).map_err(outside)?);
    Ok(())
}

fn outside(buffer: &Buffer) -> ReceiveError {
    MemoryError::Outside { address: buffer.address, bytes: u64::from(buffer.bytes) }.into()
}

/// Frames that found no buffer and wait for the guest to leave some. Bounded, because a guest that never reads must not
/// cost the host its memory.
#[derive(Debug, Default)]
pub struct Backlog {
    frames: VecDeque<(Offload, Vec<u8>)>,
    bytes: usize,
    /// The driver's index in the receive queue when there was no room for the oldest frame: until it moves on there is
    /// none, and looking through the queue again for each frame that comes would be work for nothing.
    pub no_room_at: Option<u16>,
}

/// Most bytes that wait for one guest: about what a fast sender has in flight on one connection.
pub const BACKLOG_BYTES: usize = 1 << 20;
/// Most frames that wait for one guest.
pub const BACKLOG_FRAMES: usize = 1024;

impl Backlog {
    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Keeps a frame for later; false when there is no room, and the frame is lost.
    pub fn push(&mut self, offload: Offload, frame: Vec<u8>) -> bool {
        if self.frames.len() >= BACKLOG_FRAMES || self.bytes + frame.len() > BACKLOG_BYTES {
            return false;
        }
        self.bytes += frame.len();
        self.frames.push_back((offload, frame));
        true
    }

    /// The oldest frame.
    pub fn front(&mut self) -> Option<(Offload, &mut [u8])> {
        self.frames.front_mut().map(|(offload, frame)| (*offload, frame.as_mut_slice()))
    }

    /// Forgets the oldest frame.
    pub fn pop(&mut self) {
        if let Some((_, frame)) = self.frames.pop_front() {
            self.bytes -= frame.len();
        }
    }

    /// Forgets all, and says how many frames that were.
    pub fn clear(&mut self) -> u64 {
        std::mem::take(self).frames.len() as u64
    }
}
