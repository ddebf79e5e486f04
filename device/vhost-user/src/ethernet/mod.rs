//! The Ethernet function's data path, from one guest's transmit queue to the receive queues of others.
//!
//! * [`header`]: the header that virtio-net puts before each frame;
//! * [`offload`]: checksums and segmentation in software, for receivers without these offloads, and for links with
//!   faults, which affect each frame of the wire separately;
//! * [`frame`]: a frame in a guest's buffers or in the daemon's memory;
//! * [`receive`]: writes a frame into a receive queue, and has the bounded backlog before it;
//! * [`steering`]: chooses one of several receive queues for a frame.

pub mod frame;
pub mod header;
pub mod offload;
pub mod receive;
pub mod steering;

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_MRG_RXBUF,
};

use self::header::{Family, Offload};

/// Virtqueue on which the guest receives, of the first pair.
pub const QUEUE_RECEIVE: usize = 0;
/// Virtqueue from which the guest sends, of the first pair.
pub const QUEUE_TRANSMIT: usize = 1;
/// Virtqueues of a pair.
pub const QUEUES_PER_PAIR: usize = 2;

/// Virtqueue on which the guest receives, of any pair (Virtual I/O Device specification 1.2, section 5.1.2).
#[inline]
pub const fn receive_queue(pair: usize) -> usize {
    QUEUES_PER_PAIR * pair + QUEUE_RECEIVE
}

/// Virtqueue from which the guest sends, of any pair.
#[inline]
pub const fn transmit_queue(pair: usize) -> usize {
    QUEUES_PER_PAIR * pair + QUEUE_TRANSMIT
}

/// The features that guest and function have agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Negotiated(u64);

impl Negotiated {
    /// The features that virtio-net offers in addition to the transport's.
    pub const OFFERED: u64 = 1 << VIRTIO_NET_F_CSUM
        | 1 << VIRTIO_NET_F_GUEST_CSUM
        | 1 << VIRTIO_NET_F_GUEST_TSO4
        | 1 << VIRTIO_NET_F_GUEST_TSO6
        | 1 << VIRTIO_NET_F_HOST_TSO4
        | 1 << VIRTIO_NET_F_HOST_TSO6
        | 1 << VIRTIO_NET_F_MRG_RXBUF;

    /// The features that the driver has accepted.
    pub const fn new(features: u64) -> Self {
        Self(features)
    }

    const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    /// Whether a received frame may be spread over several chains.
    #[inline]
    pub const fn merges_buffers(self) -> bool {
        self.has(VIRTIO_NET_F_MRG_RXBUF)
    }

    /// Whether the guest, as receiver, accepts frames with these offloads still to do.
    #[inline]
    pub fn receives(self, offload: &Offload) -> bool {
        let checksum = offload.checksum.is_none() || self.has(VIRTIO_NET_F_GUEST_CSUM);
        let segmentation = offload.segmentation.is_none_or(|segmentation| match segmentation.family {
            Family::V4 => self.has(VIRTIO_NET_F_GUEST_TSO4),
            Family::V6 => self.has(VIRTIO_NET_F_GUEST_TSO6),
        });
        checksum && segmentation
    }

    /// Whether the guest, as sender, may leave these offloads to the device.
    #[inline]
    pub fn sends(self, offload: &Offload) -> bool {
        let checksum = offload.checksum.is_none() || self.has(VIRTIO_NET_F_CSUM);
        let segmentation = offload.segmentation.is_none_or(|segmentation| match segmentation.family {
            Family::V4 => self.has(VIRTIO_NET_F_HOST_TSO4),
            Family::V6 => self.has(VIRTIO_NET_F_HOST_TSO6),
        });
        checksum && segmentation
    }
}
