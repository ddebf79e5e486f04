//! A frame where it lies, with its head read.
//!
//! A guest may change a frame while the device reads it. (The attack: a frame that is ordinary when it is checked, and one of
//! the cluster, in another node's name, when it is copied.) So the head is read once, into memory of the daemon; it is checked
//! there, and the receiver gets it from there. The rest, which the device does not check, is read once as well, where the frame
//! is delivered: a delivery consumes the frame. A frame with several readers is copied first ([`Frame::into_vec`]).

use smallvec::SmallVec;

use super::header::{ETHERNET_BYTES, HEADER_BYTES};
use crate::memory::access::Unread;
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

/// The two headers before a frame's payload: virtio-net's and its own.
pub const HEADERS_BYTES: usize = HEADER_BYTES + ETHERNET_BYTES;

/// virtio-net's header and the frame's own.
#[inline]
pub fn split_headers(headers: &[u8; HEADERS_BYTES]) -> ([u8; HEADER_BYTES], [u8; ETHERNET_BYTES]) {
    let virtio = headers.first_chunk().copied().unwrap_or_default();
    (virtio, headers.last_chunk().copied().unwrap_or_default())
}

/// The first bytes of a frame, in memory of the daemon: its Ethernet header at least, if it is that long.
type Head = SmallVec<[u8; 16]>;

/// A frame, wherever it lies.
#[derive(Debug)]
pub struct Frame<'a> {
    head: Head,
    rest: SmallVec<[Unread<'a>; 4]>,
    bytes: usize,
}

impl<'a> Frame<'a> {
    /// Reads virtio-net's header and the frame's own out of the buffers of a transmit chain.
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
            // Most frames are one buffer, and then both headers have a known length.
            let headers = memory.unread(address, bytes as usize)?.take::<HEADERS_BYTES>();
            if let Some((headers, rest)) = headers {
                let (virtio, own) = split_headers(&headers);
                *header = virtio;
                return Ok(Self::from_parts(&own, rest));
            }
        }
        Self::from_buffers(memory, chain, header)
    }

    fn from_buffers(
        memory: &'a DmaMemory,
        chain: &[Buffer],
        header: &mut [u8; HEADER_BYTES],
    ) -> Result<Self, FrameError> {
        let mut frame = Self { head: Head::new(), rest: SmallVec::new(), bytes: 0 };
        let mut missing = HEADER_BYTES;
        for buffer in chain {
            if buffer.writable {
                return Err(FrameError::Direction);
            }
            let mut unread = memory.unread(buffer.address, buffer.bytes as usize)?;
            if missing > 0 {
                let place = header.get_mut(HEADER_BYTES - missing..).unwrap_or_default();
                let (first, rest) = unread.split_at(missing);
                missing -= first.read(place);
                let Some(rest) = rest else { continue };
                unread = rest;
            }
            frame.bytes += unread.bytes();
            frame.rest.push(unread);
        }
        frame.read_head(ETHERNET_BYTES);
        Ok(frame)
    }

    /// A frame whose Ethernet header was read already.
    #[inline]
    pub fn from_parts(head: &[u8; ETHERNET_BYTES], rest: Unread<'a>) -> Self {
        let bytes = head.len() + rest.bytes();
        Self { head: Head::from_slice(head), rest: smallvec::smallvec![rest], bytes }
    }

    /// A frame in memory of the daemon.
    pub fn from_bytes(bytes: &'a mut [u8]) -> Self {
        let mut frame = Self {
            head: Head::new(),
            bytes: bytes.len(),
            rest: smallvec::smallvec![Unread::of_daemon(bytes)],
        };
        frame.read_head(ETHERNET_BYTES);
        frame
    }

    /// The Ethernet header.
    #[inline]
    pub fn ethernet_header(&self) -> [u8; ETHERNET_BYTES] {
        self.head.first_chunk().copied().unwrap_or_default()
    }

    /// Bytes from the Ethernet header to the end of the payload.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes that were read.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Reads as much of the frame that its first `bytes` bytes, or all, are in its head.
    pub fn read_head(&mut self, bytes: usize) {
        let missing = bytes.min(self.bytes).saturating_sub(self.head.len());
        let mut have = self.head.len();
        self.head.resize(have + missing, 0);
        let mut unread = SmallVec::new();
        for piece in std::mem::take(&mut self.rest) {
            let place = self.head.get_mut(have..).unwrap_or_default();
            if place.is_empty() {
                unread.push(piece);
                continue;
            }
            let (first, rest) = piece.split_at(place.len());
            have += first.read(place);
            unread.extend(rest);
        }
        self.rest = unread;
    }

    /// Whether all that is unread is one piece, as it is of most frames.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.rest.len() == 1
    }

    /// What was read, and the pieces that were not, in order.
    #[inline]
    pub fn into_parts(self) -> (Head, SmallVec<[Unread<'a>; 4]>) {
        (self.head, self.rest)
    }

    /// Reads all of the frame into memory of the daemon.
    pub fn into_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        bytes.extend_from_slice(&self.head);
        self.rest.into_iter().for_each(|piece| piece.append_to(&mut bytes));
        bytes
    }
}
