//! Parameters of an INIC card.

use alloc::sync::Arc;

use niclab_components::Checked;
use thiserror::Error;

use crate::fabric::ethernet;
use crate::models::inic::settings::{format, packet_bytes, place_bytes};
use crate::models::inic::wire::{CHECK_BYTES, head_bytes, nodes_of};
use crate::platform::profile::Profile;

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
    /// The header cannot name all nodes.
    #[error(
        "the cluster has {nodes} nodes, and the header of this assembly names {most}: use the format `seq8_node12`, or fewer nodes"
    )]
    Nodes {
        /// Nodes of the cluster.
        nodes: u32,
        /// Nodes that a header names.
        most: u32,
    },
    /// A packet is longer than a frame may be.
    #[error(
        "packets of {bytes} bytes need frames of {needed}, and the cluster's links carry {mtu_bytes}: set packet_bytes to {most} or less, or raise mtu_bytes"
    )]
    Packet {
        /// Bytes of a packet's data.
        bytes: u32,
        /// Bytes of its frame behind the Ethernet header.
        needed: u32,
        /// Bytes that a frame may have there.
        mtu_bytes: u32,
        /// The longest packet that fits.
        most: u32,
    },
}

/// Parameters of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node's number.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Most bytes behind the Ethernet header of a frame.
    pub mtu_bytes: u32,
    /// What it is programmed with.
    pub assembly: Checked,
    /// The longest message, in bytes.
    pub max_message_bytes: u64,
    /// How often each packet that is sent crosses the card's own bus, and each that comes. The paper says four times,
    /// and that this limits transfers in both directions at once (section 5.3).
    pub crossings: [u32; 2],
    /// Number of the first packet, and of the first message less one, from each node to each other: for tests of
    /// numbers that wrap.
    pub first_number: u32,
    /// Most regions of a port, and their extents.
    pub regions_per_port: u32,
    /// Most extents of all regions of a port.
    pub extents_per_port: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Checks that there can be such a card.
    ///
    /// # Errors
    /// Names the first parameter that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { node, nodes, .. } = *self;
        if u32::from(node) >= nodes {
            return Err(ConfigError::Node { node, nodes });
        }
        self.check_assembly(&self.assembly)
    }

    /// Checks that this assembly can run on the card.
    ///
    /// # Errors
    /// Names the first thing that does not fit.
    pub(super) fn check_assembly(&self, assembly: &Checked) -> Result<(), ConfigError> {
        let Self { nodes, mtu_bytes, .. } = *self;
        let format = format(assembly);
        let most = nodes_of(format);
        if nodes > most {
            return Err(ConfigError::Nodes { nodes, most });
        }
        let bytes = packet_bytes(assembly);
        let head = (head_bytes(format) - ethernet::HEADER_BYTES + CHECK_BYTES) as u32;
        let overhead = head + place_bytes(assembly);
        let needed = bytes + overhead;
        if needed > mtu_bytes {
            let most = mtu_bytes.saturating_sub(overhead) / 4 * 4;
            return Err(ConfigError::Packet { bytes, needed, mtu_bytes, most });
        }
        Ok(())
    }
}
