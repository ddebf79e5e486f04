//! Parameters of a GRIM card.

use alloc::sync::Arc;
use alloc::vec::Vec;

use niclab_abi::grim::{CHANNEL_MAX_BULK_BYTES, CHANNEL_PAYLOAD_BYTES};
use thiserror::Error;

use crate::models::grim::peripherals;
use crate::models::grim::wire::{HEAD_BYTES, OVERHEAD_BYTES};
use crate::parts::go_back_n;
use crate::platform::profile::Profile;
use crate::time::Span;

/// Maximum logical channels of a card (the maximum in figure 6).
pub const MAX_CHANNELS: usize = 64;
/// Bytes of a header in the header ring: the 28 bytes of a short message, and the word that posts it.
/// Section 5.1: 28 bytes, here with four more.
pub const HEADER_BYTES: u64 = 32;

/// Why a card cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The node number is not in the cluster.
    #[error("node {node} is not one of the cluster's {nodes} nodes, which are numbered from 0")]
    Node {
        /// This node.
        node: u16,
        /// Nodes of the cluster.
        nodes: u32,
    },
    /// The channels' queues do not fit into the card's memory.
    #[error(
        "{channels} channels with {headers} headers and {payload_bytes} bytes of payload each take {needed} bytes, \
         and one frame takes {frame}, but card_memory_bytes = {memory}: raise card_memory_bytes, or reduce \
         channels, headers_per_channel or payload_bytes_per_channel"
    )]
    Memory {
        /// Channels.
        channels: u32,
        /// Headers of each channel.
        headers: u32,
        /// Payload bytes of each channel.
        payload_bytes: u64,
        /// Bytes of all queues.
        needed: u64,
        /// Bytes of the longest frame.
        frame: u64,
        /// Bytes of the card's memory.
        memory: u64,
    },
    /// The MTU leaves no payload.
    #[error(
        "the cluster's links carry frames of {mtu_bytes} bytes, of which a GRIM header takes {head}: \
         set mtu_bytes to {least} or more"
    )]
    Mtu {
        /// Maximum bytes of a frame after the Ethernet header.
        mtu_bytes: u32,
        /// Header bytes of these.
        head: u32,
        /// Minimum.
        least: u32,
    },
}

/// Parameters of a card.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's number.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Maximum bytes of a frame after the Ethernet header.
    pub mtu_bytes: u32,
    /// Logical channels.
    pub channels: u32,
    /// Messages that a channel's header ring holds.
    pub headers: u32,
    /// Bytes of a channel's payload region.
    pub payload_bytes: u64,
    /// Consecutive frames of each channel, from the first channel on. Further channels have the last value.
    pub weights: Arc<[u32]>,
    /// Bytes of the card's memory. Received messages use the memory that outbound queues leave free.
    pub card_memory_bytes: u64,
    /// Maximum unacknowledged frames of a channel to one other card.
    pub window_frames: u32,
    /// Time without acknowledgement before the card retransmits a frame for the first time.
    pub first_wait: Span,
    /// Time before the card retransmits a refused frame for the first time.
    pub first_pause: Span,
    /// Maximum of both times, which double with each retransmission.
    pub longest_wait: Span,
    /// Maximum time between two segments of a message.
    pub stall: Span,
    /// Peer devices on the node's bus, and the channel of each.
    pub peripherals: Vec<(u8, &'static peripherals::PeripheralKind)>,
    /// Maximum regions of a port.
    pub regions_per_port: u32,
    /// Maximum extents of all regions of a port.
    pub extents_per_port: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

/// The memory of the outbound queues.
pub(super) fn outbound_bytes(channels: u32, headers: u32, payload_bytes: u64) -> u64 {
    u64::from(channels) * (u64::from(headers) * HEADER_BYTES + payload_bytes)
}

impl Config {
    /// Checks that a card with these parameters can be built.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { node, nodes, mtu_bytes, channels, headers, payload_bytes, .. } = *self;
        if u32::from(node) >= nodes {
            return Err(ConfigError::Node { node, nodes });
        }
        let head = OVERHEAD_BYTES as u32;
        if mtu_bytes < head + 64 {
            return Err(ConfigError::Mtu { mtu_bytes, head, least: head + 64 });
        }
        let (needed, memory) = (outbound_bytes(channels, headers, payload_bytes), self.card_memory_bytes);
        let frame = self.longest_frame();
        if needed + frame > memory {
            return Err(ConfigError::Memory { channels, headers, payload_bytes, needed, frame, memory });
        }
        Ok(())
    }

    /// Maximum payload of a frame.
    pub(super) fn fragment_bytes(&self) -> u64 {
        u64::from(self.mtu_bytes).saturating_sub(OVERHEAD_BYTES as u64).max(1)
    }

    /// Bytes that the longest frame takes in card memory.
    fn longest_frame(&self) -> u64 {
        HEAD_BYTES as u64 + self.fragment_bytes().min(CHANNEL_MAX_BULK_BYTES)
    }

    /// Card memory for received messages whose endpoint has no room yet.
    pub(super) fn inbound_bytes(&self) -> u64 {
        self.card_memory_bytes.saturating_sub(outbound_bytes(self.channels, self.headers, self.payload_bytes))
    }

    /// The longest payload that a message of this card can have.
    pub(super) fn max_bulk_bytes(&self) -> u64 {
        CHANNEL_MAX_BULK_BYTES.min(self.payload_bytes).min(CHANNEL_PAYLOAD_BYTES)
    }

    /// Parameters that both ends of a channel between cards agree on. The card retransmits a frame only after the
    /// round-trip time of a window of full frames. The card does not know the links, and assumes that they are as fast
    /// as its own bus.
    pub(super) fn link(&self) -> go_back_n::Config {
        let frame = self.profile.bus.dma_write.occupancy(self.longest_frame());
        let window = frame.times(2 * u64::from(self.window_frames));
        go_back_n::Config {
            window_frames: self.window_frames,
            first_wait: self.first_wait + window,
            longest_wait: self.longest_wait + window,
            first_pause: self.first_pause,
        }
    }

    /// How long a partly received message may hold room that other messages wait for, without a new fragment. A valid
    /// sender abandons a message that its program stops pushing, and retransmits lost frames. So a sender that is
    /// silent for this long is faulty. The card assumes its own timeouts for all senders: a timeout in the frames would
    /// let a malicious card hold the room.
    pub(super) fn room_timeout(&self) -> Span {
        (self.stall + self.link().longest_wait).times(8)
    }

    /// Consecutive frames of a channel.
    pub(super) fn weight(&self, channel: usize) -> u32 {
        self.weights.get(channel).or(self.weights.last()).copied().unwrap_or(1).max(1)
    }
}
