//! Writes a frame into a guest's receive queue.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::frame::{Frame, head_of};
use super::header::{HEADER_BYTES, LinkHeader, Offload};
use super::steering::Pairs;
use crate::memory::MemoryError;
use crate::memory::access::{Room, Unread};
use crate::ring::{Buffer, Burst, Chain, RingError, Singles};

/// Why a frame was not written into a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The guest has supplied too few buffers; more may come.
    #[error("the receive queue has no room")]
    NoRoom,
    /// Without mergeable buffers a frame may fill only one chain, and this chain is too short.
    #[error("a receive chain of {0} bytes is too short for the frame")]
    TooShort(usize),
    /// The guest has supplied all descriptors of the queue, and their buffers are too short together. It can supply
    /// no more before these are used.
    #[error("all buffers of the receive queue have {0} bytes together, too few for the frame")]
    TooSmall(usize),
    /// The device may not write one of the chain's buffers.
    #[error("a receive chain has a buffer that the device may only read")]
    Direction,
    /// The ring or a chain is invalid.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A buffer is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl ReceiveError {
    /// The name of its counter of violations. None if the guest has not caused it.
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

/// The bytes after the headers of frames that are delivered together.
pub type Pieces<'m> = SmallVec<[Unread<'m>; 64]>;

/// The buffers of a receive queue for one frame.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveBuffers {
    /// A chain of one buffer.
    Short {
        /// The chain's head.
        head: u16,
        /// Address of the buffer.
        address: u64,
    },
    /// The chains that the receiver has collected.
    Chains,
}

/// A locked receive queue, for one burst.
pub struct Receiver<'a> {
    burst: Burst<'a>,
    merges_buffers: bool,
    chain: Chain,
    /// Chains taken for the current frame, with their capacities.
    heads: SmallVec<[(u16, u32); 64]>,
    buffers: SmallVec<[Buffer; 64]>,
    /// Buffers taken for frames that are delivered together.
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

    /// Writes header and frame into the next chains, completely or not at all.
    ///
    /// # Errors
    /// [`ReceiveError`]; after [`ReceiveError::NoRoom`] and [`ReceiveError::TooSmall`] the queue is as it was before.
    #[inline]
    pub fn put(&mut self, offload: &Offload, frame: Frame<'_>) -> Result<(), ReceiveError> {
        let buffers = self.make_room(&frame)?;
        self.fill(buffers, offload, frame)
    }

    /// Takes chains with room for this frame. Reads nothing of the frame.
    ///
    /// # Errors
    /// [`ReceiveError`]; after [`ReceiveError::NoRoom`] and [`ReceiveError::TooSmall`] the queue is as it was before.
    #[inline]
    pub fn make_room(&mut self, frame: &Frame<'_>) -> Result<ReceiveBuffers, ReceiveError> {
        let wanted = HEADER_BYTES + frame.bytes();
        if frame.is_short()
            && let Some(buffers) = self.take_short(wanted)?
        {
            return Ok(buffers);
        }
        self.take_chains(wanted)?;
        Ok(ReceiveBuffers::Chains)
    }

    /// Writes header and frame into the chains that were taken for it.
    ///
    /// # Errors
    /// [`ReceiveError::Memory`]: the chains are returned with zero bytes.
    #[inline]
    pub fn fill(
        &mut self,
        buffers: ReceiveBuffers,
        offload: &Offload,
        frame: Frame<'_>,
    ) -> Result<(), ReceiveError> {
        let bytes = (HEADER_BYTES + frame.bytes()) as u32;
        match buffers {
            ReceiveBuffers::Short { head, address } => {
                let written = self.fill_short(address, &offload.encode(1), frame);
                self.burst.push_used(head, written.map_or(0, |()| bytes));
                written
            }
            ReceiveBuffers::Chains => {
                let header = offload.encode(self.heads.len() as u16);
                let copied = self.copy(&header, frame);
                let mut left = if copied.is_ok() { bytes } else { 0 };
                for (head, capacity) in self.heads.drain(..) {
                    let filled = left.min(capacity);
                    self.burst.push_used(head, filled);
                    left -= filled;
                }
                copied
            }
        }
    }

    /// Writes frames of equal length with the same two headers into the next chains, as long as each chain is one
    /// buffer with room for a frame. `pieces` are the bytes after the headers. Returns the number of written frames,
    /// whose pieces it removes. It leaves the rest of the queue unchanged.
    #[inline]
    pub fn put_all(&mut self, offload: &Offload, link: &LinkHeader, pieces: &mut Pieces<'_>) -> usize {
        let Self { burst, singles, .. } = self;
        burst.take_singles(singles, pieces.len());
        let memory = burst.memory();
        let (header, head) = (offload.encode(1), head_of(link));
        let bytes = HEADER_BYTES + head.len() + pieces.first().map_or(0, Unread::bytes);
        let rooms = singles.iter().map_while(|single| {
            let Buffer { address, bytes: capacity, writable } = single.buffer;
            let is_room = writable && capacity as usize >= bytes;
            memory.room(address, bytes).ok().filter(|_| is_room)
        });
        let mut rooms: SmallVec<[Room<'_>; 64]> = rooms.collect();
        let written = rooms.len();
        for (room, piece) in rooms.drain(..).zip(pieces.drain(..written)) {
            let _ = room.write(&header).write(head).copy(piece);
        }
        burst.give_back(singles.len() - written);
        burst.push_used_all(singles.iter().take(written).map(|single| (single.head, bytes as u32)));
        written
    }

    /// Takes the next chain if it is one buffer of at least `wanted` bytes, as most are. Otherwise returns None, and
    /// leaves the queue unchanged.
    #[inline]
    fn take_short(&mut self, wanted: usize) -> Result<Option<ReceiveBuffers>, ReceiveError> {
        let head = self.burst.pop(&mut self.chain)?.ok_or(ReceiveError::NoRoom)?;
        if let [Buffer { address, bytes, writable: true }] = *self.chain.as_slice()
            && bytes as usize >= wanted
        {
            return Ok(Some(ReceiveBuffers::Short { head, address }));
        }
        self.burst.unpop();
        Ok(None)
    }

    /// Writes header and frame to this address. The frame has at most one unread piece.
    #[inline]
    fn fill_short(
        &self,
        address: u64,
        header: &[u8; HEADER_BYTES],
        frame: Frame<'_>,
    ) -> Result<(), ReceiveError> {
        let room = self.burst.memory().room(address, HEADER_BYTES + frame.bytes())?;
        let (head, pieces) = frame.into_parts();
        let room = room.write(header).write(&head);
        let _ = pieces.into_iter().fold(room, Room::copy);
        Ok(())
    }

    /// Collects chains until they have `wanted` bytes together.
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
                    // A driver without a free descriptor cannot add any before the device returns some.
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
            // (The attack: a guest offers chains of no bytes forever, or indirect tables of one-byte buffers: a
            // thousand tables of a thousand buffers for each frame.) Without merging, a frame gets only one chain.
            let is_crumbled = self.buffers.len() > size;
            if room < wanted && (!self.merges_buffers || capacity == 0 || is_crumbled) {
                return self.give_up(ReceiveError::TooShort(room));
            }
        }
        Ok(())
    }

    /// Returns the collected chains unused.
    fn give_up(&mut self, error: ReceiveError) -> Result<(), ReceiveError> {
        for (head, _) in self.heads.drain(..) {
            self.burst.push_used(head, 0);
        }
        Err(error)
    }

    /// Writes header and frame into the collected buffers.
    #[inline]
    fn copy(&self, header: &[u8; HEADER_BYTES], frame: Frame<'_>) -> Result<(), ReceiveError> {
        let memory = self.burst.memory();
        let mut rooms = self.buffers.iter().map(|buffer| memory.room(buffer.address, buffer.bytes as usize));
        let mut room = rooms.next().transpose()?;
        let (head, pieces) = frame.into_parts();
        for own in [header.as_slice(), &head] {
            let mut left = own;
            while !left.is_empty()
                && let Some(here) = room.take()
            {
                let (now, later) = left.split_at(left.len().min(here.bytes()));
                room = next_room(here.write(now), &mut rooms)?;
                left = later;
            }
        }
        for piece in pieces {
            let mut left = Some(piece);
            while let Some(piece) = left.take() {
                let Some(here) = room.take() else { return Ok(()) };
                let (now, later) = piece.split_at(here.bytes());
                room = next_room(here.copy(now), &mut rooms)?;
                left = later;
            }
        }
        Ok(())
    }
}

/// The rest of this room, or the next room if nothing is left.
#[inline]
fn next_room<'m>(
    room: Room<'m>,
    rooms: &mut impl Iterator<Item = Result<Room<'m>, MemoryError>>,
) -> Result<Option<Room<'m>>, MemoryError> {
    if room.bytes() > 0 { Ok(Some(room)) } else { rooms.next().transpose() }
}

/// Frames that wait for buffers at one receive queue.
#[derive(Debug, Default)]
struct Backlog {
    frames: VecDeque<(Offload, Vec<u8>)>,
    /// The driver's index in the receive queue when it had no room for the oldest frame. While the index is the same,
    /// there is still no room, and the daemon need not scan the queue for each new frame.
    no_room_at: Option<u16>,
}

/// The backlogs of a node's receive queues, with one bound together. A guest that never reads must not use up the
/// host's memory, and a guest with many queues must not use more than a guest with one.
#[derive(Debug, Default)]
pub struct Backlogs {
    of_pairs: Vec<Backlog>,
    frames: usize,
    bytes: usize,
}

/// Maximum bytes that wait for one guest: about as much as a fast sender has in flight on one connection.
pub const BACKLOG_BYTES: usize = 1 << 20;
/// Maximum frames that wait for one guest.
pub const BACKLOG_FRAMES: usize = 1024;

impl Backlogs {
    /// Whether no frame waits at any queue.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Whether no frame waits at the receive queue of this pair.
    #[inline]
    pub fn is_empty_at(&self, pair: usize) -> bool {
        self.is_empty() || self.of_pairs.get(pair).is_none_or(|backlog| backlog.frames.is_empty())
    }

    /// Keeps a frame for later. False if there is no room, and the frame is lost.
    pub fn push(&mut self, pair: usize, offload: Offload, frame: Vec<u8>) -> bool {
        if self.frames >= BACKLOG_FRAMES || self.bytes + frame.len() > BACKLOG_BYTES {
            return false;
        }
        self.frames += 1;
        self.bytes += frame.len();
        self.at(pair).frames.push_back((offload, frame));
        true
    }

    /// The oldest frame at a pair's queue.
    pub fn front(&mut self, pair: usize) -> Option<(Offload, &mut [u8])> {
        let oldest = self.of_pairs.get_mut(pair)?.frames.front_mut();
        oldest.map(|(offload, frame)| (*offload, frame.as_mut_slice()))
    }

    /// Removes the oldest frame at a pair's queue.
    pub fn pop(&mut self, pair: usize) {
        if let Some((_, frame)) = self.of_pairs.get_mut(pair).and_then(|backlog| backlog.frames.pop_front()) {
            self.frames -= 1;
            self.bytes -= frame.len();
        }
    }

    /// The driver's index when a pair's queue had no room. None if it had room.
    pub fn no_room_at(&self, pair: usize) -> Option<u16> {
        self.of_pairs.get(pair)?.no_room_at
    }

    /// Sets the driver's index when a pair's queue had no room. None means that it had room.
    pub fn set_no_room_at(&mut self, pair: usize, index: Option<u16>) {
        self.at(pair).no_room_at = index;
    }

    /// Drops the frames at the queues of all pairs but these, and returns their number.
    pub fn clear_all_but(&mut self, pairs: Pairs) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let others = (0..self.of_pairs.len()).filter(|pair| !pairs.contains(*pair));
        others.map(|pair| self.clear_at(pair)).sum()
    }

    /// Drops the frames at a pair's queue, and returns their number.
    pub fn clear_at(&mut self, pair: usize) -> u64 {
        let Backlog { frames, .. } = std::mem::take(self.at(pair));
        self.frames -= frames.len();
        self.bytes -= frames.iter().map(|(_, frame)| frame.len()).sum::<usize>();
        frames.len() as u64
    }

    /// Drops all frames, and returns their number.
    pub fn clear(&mut self) -> u64 {
        std::mem::take(self).frames as u64
    }

    /// The backlog of a pair. The caller ensures that the pair is one of the node's.
    fn at(&mut self, pair: usize) -> &mut Backlog {
        if self.of_pairs.len() <= pair {
            self.of_pairs.resize_with(pair + 1, Backlog::default);
        }
        &mut self.of_pairs[pair]
    }
}
