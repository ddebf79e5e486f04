//! The numbers that QEMU needs to create the cluster function.
//!
//! The daemon offers exactly this geometry. With other numbers QEMU aborts, or the driver refuses the device. The ABI
//! crate has the same numbers, but the launcher must not import it; a test compares the two.

/// The virtio device id: known to QEMU's name table, and claimed by no Linux driver.
pub const VIRTIO_ID: u32 = 38;

/// Number of virtqueues: control, event, transmit, receive, doorbell.
pub const CLUSTER_QUEUES: u32 = 5;

/// Entries of each virtqueue.
pub const QUEUE_SIZE: u32 = 256;

/// Maximum number of queue pairs of an Ethernet function: the vhost-user library (`vhost-user-backend` 0.24) serves at
/// most 64 queues.
pub const MAX_QUEUE_PAIRS: u32 = 32;

/// Bytes of device configuration space. QEMU aborts beyond 256.
pub const CONFIG_SIZE: u32 = 256;
