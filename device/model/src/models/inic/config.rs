//! Parameters of an INIC card.

use alloc::sync::Arc;

use niclab_components::Checked;
use thiserror::Error;

use crate::fabric::ethernet;
use crate::models::inic::settings::{format, packet_bytes, place_bytes};
use crate::models::inic::wire::{CHECK_BYTES, head_bytes, nodes_of};
use crate::platform::profile::Profile;

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
    /// The header cannot name all nodes.
    #[error(
        "the cluster has {nodes} nodes, but the header of this assembly can name only {most}: \
         use the format `seq8_node12`, or fewer nodes"
    )]
    Nodes {
        /// Nodes of the cluster.
        nodes: u32,
        /// Maximum nodes that the header can name.
        most: u32,
    },
    /// A packet does not fit into a frame.
    #[error(
        "packets of {bytes} bytes need frames of {needed} bytes, but the cluster's links carry {mtu_bytes}: \
         set packet_bytes to {most} or less, or mtu_bytes to {needed} or more"
    )]
    Packet {
        /// Bytes of a packet's data.
        bytes: u32,
        /// Bytes of its frame after the Ethernet header.
        needed: u32,
        /// Maximum bytes of a frame after the Ethernet header.
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
    /// Maximum bytes of a frame after the Ethernet header.
    pub mtu_bytes: u32,
    /// The assembly that the card starts with.
    pub assembly: Checked,
    /// The longest message, in bytes.
    pub max_message_bytes: u64,
    /// How often each sent packet, and each received packet, crosses the card's internal bus. Section 5.3: four times,
    /// which limits simultaneous transfers in both directions.
    pub crossings: [u32; 2],
    /// Number of the first packet between any two nodes, and the number before that of the first message. Tests set it
    /// to make numbers wrap.
    pub first_number: u32,
    /// Maximum regions of a port.
    pub regions_per_port: u32,
    /// Maximum extents of all regions of a port.
    pub extents_per_port: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Checks that a card with these parameters can be built.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid parameter.
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
    /// [`ConfigError`] names the first limit that the assembly exceeds.
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
