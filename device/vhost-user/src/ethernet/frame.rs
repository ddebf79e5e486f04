//! A frame where it lies.

use niclab_model::fabric::ethernet::{TAGGED_HEADER_BYTES, tag_bytes};
use smallvec::SmallVec;
use vm_memory::{VolatileMemory, VolatileSlice};

use super::header::{ETHERNET_BYTES, HEADER_BYTES, LinkHeader};
use crate::memory::{DmaMemory, MemoryError};
use crate::ring::Buffer;

/// Longest frame that a guest may hand over: 64 KiB of IP packet and its Ethernet header with two VLAN tags.
pub const MAX_FRAME_BYTES: usize = 65_535 + ETHERNET_BYTES + 8;

/// Why a chain of the transmit queue holds no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than its headers or longer than [`MAX_FRAME_BYTES`].
    #[error("a frame of {0} bytes")]
    Length(u64),
    /// A buffer that the device may not read.
    #[error("a transmit chain with a buffer that is to be written")]
    Direction,
    /// A buffer is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl FrameError {
    /// The name under which it is counted.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length(_) => "ethernet_frame_length",
            Self::Direction => "ethernet_frame_direction",
            Self::Memory(_) => "ethernet_outside_memory",
        }
    }
}

/// The header of a frame that is one piece, read once.
#[inline]
pub fn link_header_of(piece: &VolatileSlice<'_>) -> LinkHeader {
    let mut header = [0; TAGGED_HEADER_BYTES];
    match piece.get_ref::<LinkHeader>(0) {
        Ok(whole) => header = whole.load(),
        Err(_) => drop(piece.copy_to(&mut header)),
    }
    without_payload(header)
}

/// Clears what follows the Ethernet header of a frame without a tag: the network has no use for it.
#[inline]
fn without_payload(mut header: LinkHeader) -> LinkHeader {
    if tag_bytes(&header) == 0 {
        header[ETHERNET_BYTES..].fill(0);
    }
    header
}

/// The bytes of a frame, without virtio-net's header, as one or more pieces.
pub type Pieces<'a> = SmallVec<[VolatileSlice<'a>; 4]>;

/// A frame, wherever it lies.
#[derive(Debug, Default)]
pub struct Frame<'a> {
    pieces: Pieces<'a>,
    bytes: usize,
}

impl<'a> Frame<'a> {
    /// Takes virtio-net's header and the frame out of the buffers of a transmit chain.
    ///
    /// # Errors
    /// [`FrameError`].
    #[inline]
    pub fn from_chain(
        memory: &'a DmaMemory,
        chain: &[Buffer],
        header: &mut [u8; HEADER_BYTES],
    ) -> Result<Self, FrameError> {
        let total: u64 = chain.iter().map(|buffer| u64::from(buffer.bytes)).sum();
        if total < (HEADER_BYTES + ETHERNET_BYTES) as u64 || total > (HEADER_BYTES + MAX_FRAME_BYTES) as u64 {
            return Err(FrameError::Length(total));
        }
        if let [Buffer { address, bytes, writable: false }] = *chain {
            // Most frames are one buffer, and then the header has a known length.
            let slice = memory.slice(address, bytes as usize)?;
            let first = slice.get_ref::<[u8; HEADER_BYTES]>(0);
            if let (Ok(first), Ok(rest)) = (first, slice.offset(HEADER_BYTES)) {
                *header = first.load();
                return Ok(Self::from_piece(rest));
            }
        }
        Self::from_buffers(memory, chain, header)
    }

    fn from_buffers(
        memory: &'a DmaMemory,
        chain: &[Buffer],
        header: &mut [u8; HEADER_BYTES],
    ) -> Result<Self, FrameError> {
        let mut frame = Self::default();
        let mut missing = HEADER_BYTES;
        for buffer in chain {
            if buffer.writable {
                return Err(FrameError::Direction);
            }
            let mut slice = memory.slice(buffer.address, buffer.bytes as usize)?;
            if missing > 0 {
                let part = missing.min(slice.len());
                let place = header.get_mut(HEADER_BYTES - missing..).unwrap_or_default();
                slice.copy_to(place.get_mut(..part).unwrap_or_default());
                missing -= part;
                let Ok(rest) = slice.offset(part) else { continue };
                slice = rest;
            }
            if !slice.is_empty() {
                frame.bytes += slice.len();
                frame.pieces.push(slice);
            }
        }
        Ok(frame)
    }

    /// The Ethernet header and the outer VLAN tag, read once.
    #[inline]
    pub fn link_header(&self) -> LinkHeader {
        if let [piece] = self.pieces.as_slice() {
            return link_header_of(piece);
        }
        let mut header = [0; TAGGED_HEADER_BYTES];
        self.peek(&mut header);
        without_payload(header)
    }

    /// A frame that is one piece.
    #[inline]
    pub fn from_piece(piece: VolatileSlice<'a>) -> Self {
        Self { bytes: piece.len(), pieces: smallvec::smallvec![piece] }
    }

    /// A frame in memory of ours.
    pub fn from_bytes(bytes: &'a mut [u8]) -> Self {
        let length = bytes.len();
        Self { pieces: smallvec::smallvec![VolatileSlice::from(bytes)], bytes: length }
    }

    /// Bytes from the Ethernet header to the end of the payload.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pieces in order.
    #[inline]
    pub fn pieces(&self) -> &[VolatileSlice<'a>] {
        &self.pieces
    }

    /// Copies the first bytes into `out`, as many as there are and fit; says how many.
    #[inline]
    pub fn peek(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in &self.pieces {
            let Some(rest) = out.get_mut(copied..).filter(|rest| !rest.is_empty()) else { break };
            copied += piece.copy_to(rest);
        }
        copied
    }

    /// A copy of the whole frame.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.peek(&mut bytes);
        bytes
    }
}
