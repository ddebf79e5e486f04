//! Regions of host memory ([`crate::config::FEATURE_REGIONS`]).
//!
//! A program registers them, so that the card may read and write them.

use crate::layout;

/// Registers a region of host memory for a port: [`RegionOpen`] and its extents. The reply is [`RegionOpened`].
pub const OP_REGION_OPEN: u32 = 9;
/// Adds extents to an incomplete region: [`RegionName`] with their number, and the extents. The reply has no body.
pub const OP_REGION_EXTEND: u32 = 10;
/// Closes a region: [`RegionName`] without extents. The device unlinks the region's entries without events, and does
/// not access the memory after the reply.
pub const OP_REGION_CLOSE: u32 = 11;

/// Maximum number of extents in one request.
pub const MAX_EXTENTS: u32 = 128;

layout! {
    /// A contiguous part of a region in host memory.
    pub struct Extent: 16 {
        /// Guest-physical address.
        pub address: u64,
        /// Length in bytes.
        pub bytes: u64,
    }
}

layout! {
    /// Body of [`OP_REGION_OPEN`]; `extents` [`Extent`]s follow.
    pub struct RegionOpen: 24 {
        /// The port.
        pub port: u32,
        /// Number of extents in this request, 1..=[`MAX_EXTENTS`].
        pub extents: u32,
        /// Length of the region in bytes. No command may use the region until its extents add up to this length.
        pub bytes: u64,
        /// Zero.
        pub reserved: u64,
    }
}

layout! {
    /// Reply to [`OP_REGION_OPEN`].
    pub struct RegionOpened: 8 {
        /// The region's name. Its lower 16 bits are a number. Its upper 16 bits differ from those of earlier regions
        /// with this number.
        pub region: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_REGION_EXTEND`], where `extents` [`Extent`]s follow, and of [`OP_REGION_CLOSE`].
    pub struct RegionName: 16 {
        /// The port.
        pub port: u32,
        /// The region.
        pub region: u32,
        /// Number of extents in this request.
        pub extents: u32,
        /// Zero.
        pub reserved: u32,
    }
}
