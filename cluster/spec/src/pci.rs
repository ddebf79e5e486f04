//! How QEMU must create the cluster function.
//!
//! The daemon offers exactly this geometry; a device created with other numbers aborts QEMU or is refused by the
//! driver. The same numbers stand in the ABI crate, which the launcher must not import; a test compares the two.

/// The virtio device id: one that QEMU's name table knows and that no Linux driver claims.
pub const VIRTIO_ID: u32 = 38;

/// Number of virtqueues: control, event, transmit, receive, doorbell.
pub const CLUSTER_QUEUES: u32 = 5;

/// Entries of each virtqueue.
pub const QUEUE_SIZE: u32 = 256;

/// Most queue pairs of an Ethernet function: the vhost-user library (`vhost-user-backend` 0.24) serves 64 queues at
/// most.
pub const MAX_QUEUE_PAIRS: u32 = 32;

/// Bytes of device configuration space. QEMU aborts beyond 256.
pub const CONFIG_SIZE: u32 = 256;
