//! The virtio configuration space of the cluster function: what a driver reads before anything else.

use crate::layout;

/// Bytes of configuration space; `config_size` on QEMU's command line, which aborts above 256.
pub const CONFIG_BYTES: u32 = 256;

/// [`DeviceConfig::model`]: protocol assembled from hardware primitives.
pub const MODEL_INIC: u32 = 1;
/// [`DeviceConfig::model`]: logical channels and active messages.
pub const MODEL_GRIM: u32 = 2;
/// [`DeviceConfig::model`]: microcoded match engine.
pub const MODEL_MATCH: u32 = 3;
/// [`DeviceConfig::model`]: requester and completer, one I/O cycle a message.
pub const MODEL_ULTRA: u32 = 4;
/// [`DeviceConfig::model`]: descriptor DMA, active ports, credit window.
pub const MODEL_GAMMA: u32 = 5;

layout! {
    /// Configuration space, read-only for the guest. Bytes past the structure are zero.
    pub struct DeviceConfig: 64 {
        /// [`crate::MAGIC`]; anything else is a foreign device with the same virtio identity.
        pub magic: u64,
        /// [`crate::ABI_VERSION`].
        pub abi_version: u32,
        /// Which NIC model answers: one of the `MODEL_` constants.
        pub model: u32,
        /// This node's number, from 0. It is the node part of an address on the cluster network.
        pub node: u32,
        /// Nodes of the cluster.
        pub nodes: u32,
        /// Ports that can be open at a time (ULTRA: 8, paper section 3.1).
        pub ports: u32,
        /// Most slices of one port's receive queue.
        pub max_slices: u32,
        /// Authorization entries of one port.
        pub authorizations: u32,
        /// Pages of the BAR: the information page, then [`crate::bar::PAGES_PER_PORT`] for each port, then spare.
        pub bar_pages: u32,
        /// Longest time a control request may take, milliseconds of wall time. A driver that waited longer takes the
        /// device for dead.
        pub control_timeout_ms: u32,
        /// Match: match entries that fit into device memory. Otherwise zero.
        pub match_entries: u32,
        /// Ethernet address of the card, first byte lowest; the upper two bytes are zero.
        pub mac: u64,
        /// Match: most bytes of a message. Otherwise zero.
        pub max_message_bytes: u64,
    }
}
