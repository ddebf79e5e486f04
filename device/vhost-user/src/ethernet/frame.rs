//! A frame in its buffers, whose head the device has read.
//!
//! A guest may change a frame while the device reads it. (The attack: the frame is ordinary when it is checked. When
//! it is copied, it is a frame of the cluster in another node's name.) So the device reads the head once, into memory
//! of the daemon, checks it there, and delivers it from there. It does not check the rest, and reads it once, at the
//! delivery, which consumes the frame. A frame with several readers is copied first ([`Frame::into_vec`]).

use niclab_model::fabric::ethernet::{TAGGED_HEADER_BYTES, tag_bytes};
use smallvec::SmallVec;

use super::header::{ETHERNET_BYTES, HEADER_BYTES, LinkHeader};
use crate::memory::access::Unread;
use crate::memory::{DmaMemory, MemoryError};
use crate::ring::Buffer;

/// Maximum length of a guest's frame: an IP packet of 64 KiB and its Ethernet header with two VLAN tags.
pub const MAX_FRAME_BYTES: usize = 65_535 + ETHERNET_BYTES + 8;

/// Why a chain of the transmit queue has no valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is shorter than its headers or longer than [`MAX_FRAME_BYTES`].
    #[error("a transmit chain of {0} bytes is too short or too long for a frame")]
    Length(u64),
    /// The device may not read one of its buffers.
    #[error("a transmit chain has a buffer that the device may only write")]
    Direction,
    /// A buffer is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl FrameError {
    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length(_) => "ethernet_frame_length",
            Self::Direction => "ethernet_frame_direction",
            Self::Memory(_) => "ethernet_outside_memory",
        }
    }
}

/// The headers of a frame, read once, and the unread rest.
#[derive(Debug)]
pub struct Opened<'m> {
    /// virtio-net's header.
    pub header: [u8; HEADER_BYTES],
    /// The Ethernet header and the outer VLAN tag, with zeros where there is no tag.
    pub link: LinkHeader,
    /// The bytes after the headers.
    pub rest: Unread<'m>,
}

impl<'m> Opened<'m> {
    /// Reads the headers. None if the frame is too short for them.
    #[inline]
    pub fn read(unread: Unread<'m>) -> Option<Self> {
        let (header, rest) = unread.take::<HEADER_BYTES>()?;
        let (ethernet, mut rest) = rest.take::<ETHERNET_BYTES>()?;
        let mut link = [0; TAGGED_HEADER_BYTES];
        let (own, tag) = link.split_at_mut(ETHERNET_BYTES);
        own.copy_from_slice(&ethernet);
        if tag_bytes(&ethernet) > 0 {
            let (bytes, payload) = rest.take::<{ TAGGED_HEADER_BYTES - ETHERNET_BYTES }>()?;
            tag.copy_from_slice(&bytes);
            rest = payload;
        }
        Some(Self { header, link, rest })
    }

    /// The bytes of the frame that are in the header.
    #[inline]
    pub fn head(&self) -> &[u8] {
        head_of(&self.link)
    }
}

/// The bytes of a frame that are in this header.
#[inline]
pub fn head_of(link: &LinkHeader) -> &[u8] {
    let bytes = if tag_bytes(link) > 0 { TAGGED_HEADER_BYTES } else { ETHERNET_BYTES };
    link.get(..bytes).unwrap_or(link)
}

/// The first bytes of a frame, in memory of the daemon: at least its Ethernet header, if the frame has it.
type Head = SmallVec<[u8; 24]>;

/// A frame: its head in memory of the daemon, and the unread rest in its buffers.
#[derive(Debug)]
pub struct Frame<'a> {
    head: Head,
    rest: SmallVec<[Unread<'a>; 4]>,
    bytes: usize,
}

impl<'a> Frame<'a> {
    /// Reads virtio-net's header and the frame's Ethernet header from the buffers of a transmit chain.
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
            // Most frames are one buffer, and then the headers have a known length.
            if let Some(opened) = Opened::read(memory.unread(address, bytes as usize)?) {
                *header = opened.header;
                return Ok(Self::from_parts(head_of(&opened.link), opened.rest));
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
        frame.read_link_header();
        Ok(frame)
    }

    /// A frame whose head was already read.
    #[inline]
    pub fn from_parts(head: &[u8], rest: Unread<'a>) -> Self {
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
        frame.read_link_header();
        frame
    }

    /// The Ethernet header and the outer VLAN tag, with zeros where there is no tag.
    #[inline]
    pub fn link_header(&self) -> LinkHeader {
        let mut link = [0; TAGGED_HEADER_BYTES];
        let bytes = if tag_bytes(&self.head) > 0 { TAGGED_HEADER_BYTES } else { ETHERNET_BYTES };
        link.iter_mut().zip(&self.head).take(bytes).for_each(|(place, byte)| *place = *byte);
        link
    }

    /// Reads the Ethernet header, and the outer VLAN tag where there is one.
    fn read_link_header(&mut self) {
        self.read_head(ETHERNET_BYTES);
        if tag_bytes(&self.head) > 0 {
            self.read_head(TAGGED_HEADER_BYTES);
        }
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

    /// Reads until the first `bytes` bytes of the frame, or all of them, are in its head.
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

    /// Whether the unread rest is at most one piece, as in most frames.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.rest.len() <= 1
    }

    /// The bytes that were read, and the unread pieces in order.
    #[inline]
    pub fn into_parts(self) -> (Head, SmallVec<[Unread<'a>; 4]>) {
        (self.head, self.rest)
    }

    /// Reads the complete frame into memory of the daemon.
    pub fn into_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        bytes.extend_from_slice(&self.head);
        self.rest.into_iter().for_each(|piece| piece.append_to(&mut bytes));
        bytes
    }
}
