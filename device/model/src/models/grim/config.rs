//! Parameters of a GRIM card.

use alloc::sync::Arc;
use alloc::vec::Vec;

use niclab_abi::channels::{CHANNEL_MAX_BULK_BYTES, CHANNEL_PAYLOAD_BYTES};
use thiserror::Error;

use crate::models::grim::peripherals;
use crate::models::grim::wire::{HEAD_BYTES, OVERHEAD_BYTES};
use crate::parts::go_back_n;
use crate::platform::profile::Profile;
use crate::time::Span;

/// Logical channels of any card, at most (figure 6 has up to as many).
pub const MAX_CHANNELS: usize = 64;
/// Bytes of a header in the header ring: the 28 of a short message, and the word that tells of it.
/// Section 5.1: 28 bytes, here with four more.
pub const HEADER_BYTES: u64 = 32;

/// A card that there cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It stands on no node of the cluster.
    #[error("node {node} is not one of the cluster's {nodes} nodes, which are numbered from 0")]
    Node {
        /// This node.
        node: u16,
        /// Nodes of the cluster.
        nodes: u32,
    },
    /// Its queues do not fit into its memory.
    #[error(
        "{channels} channels with {headers} headers and {payload_bytes} bytes of payload each take {needed} bytes, and one frame \
         {frame}: the card has card_memory_bytes = {memory}; give it more, or fewer channels, headers_per_channel or \
         payload_bytes_per_channel"
    )]
    Memory {
        /// Channels.
        channels: u32,
        /// Headers of each.
        headers: u32,
        /// Payload of each.
        payload_bytes: u64,
        /// What all take.
        needed: u64,
        /// Bytes of the longest frame.
        frame: u64,
        /// What there is.
        memory: u64,
    },
    /// A frame carries nothing.
    #[error(
        "the cluster's links carry frames of {mtu_bytes} bytes, and a GRIM header takes {head}: raise mtu_bytes to {least}"
    )]
    Mtu {
        /// Bytes that a frame may have behind the Ethernet header.
        mtu_bytes: u32,
        /// Of these, what is not payload.
        head: u32,
        /// What would do.
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
    /// Most bytes behind the Ethernet header of a frame.
    pub mtu_bytes: u32,
    /// Logical channels.
    pub channels: u32,
    /// Messages that a channel's header ring holds.
    pub headers: u32,
    /// Bytes of a channel's payload region.
    pub payload_bytes: u64,
    /// Frames of a channel in a row, by channel from the first; where there are more channels the last one's.
    pub weights: Arc<[u32]>,
    /// Bytes of the card's memory. What the outbound queues leave of it is for messages that come.
    pub card_memory_bytes: u64,
    /// Most frames of a channel to one other card that are not acknowledged.
    pub window_frames: u32,
    /// How long a frame waits for its acknowledgement before it goes again the first time.
    pub first_wait: Span,
    /// How long a frame that was refused waits the first time.
    pub first_pause: Span,
    /// The longest wait.
    pub longest_wait: Span,
    /// How long a message that was begun may wait for its next segment.
    pub stall: Span,
    /// Cards beside the NIC, and the channel of each.
    pub peripherals: Vec<(u8, &'static peripherals::Kind)>,
    /// Most regions of a port.
    pub regions_per_port: u32,
    /// Most extents of all regions of a port.
    pub extents_per_port: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

/// The memory that outbound queues take.
pub(super) fn outbound_bytes(channels: u32, headers: u32, payload_bytes: u64) -> u64 {
    u64::from(channels) * (u64::from(headers) * HEADER_BYTES + payload_bytes)
}

impl Config {
    /// Checks that there can be such a card.
    ///
    /// # Errors
    /// Names the first parameter that cannot be.
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

    /// Most payload of a frame.
    pub(super) fn fragment_bytes(&self) -> u64 {
        u64::from(self.mtu_bytes).saturating_sub(OVERHEAD_BYTES as u64).max(1)
    }

    /// Bytes that the longest frame takes in card memory.
    fn longest_frame(&self) -> u64 {
        HEAD_BYTES as u64 + self.fragment_bytes().min(CHANNEL_MAX_BULK_BYTES)
    }

    /// Card memory for messages that come and cannot go to their endpoint at once.
    pub(super) fn inbound_bytes(&self) -> u64 {
        self.card_memory_bytes.saturating_sub(outbound_bytes(self.channels, self.headers, self.payload_bytes))
    }

    /// The longest payload that a message of this card can have.
    pub(super) fn max_bulk_bytes(&self) -> u64 {
        CHANNEL_MAX_BULK_BYTES.min(self.payload_bytes).min(CHANNEL_PAYLOAD_BYTES)
    }

    /// What both ends of a channel between cards agree on. A frame is not missed before a window of whole frames had
    /// the time to go there and come back; the card does not know the links, which are taken to be as fast as its own
    /// bus.
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

    /// How long a message that has begun to come may hold room that others wait for while nothing more of it comes. Its
    /// sender gives up what is not pushed, and sends again what is lost; one that is silent for so long is no sound
    /// card. It is taken to have the same times as this card: frames do not tell them, for a card that means harm
    /// would.
    pub(super) fn room_timeout(&self) -> Span {
        (self.stall + self.link().longest_wait).times(8)
    }

    /// Frames in a row of a channel.
    pub(super) fn weight(&self, channel: usize) -> u32 {
        self.weights.get(channel).or(self.weights.last()).copied().unwrap_or(1).max(1)
    }
}
