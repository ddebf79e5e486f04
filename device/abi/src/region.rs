//! Regions of host memory ([`crate::config::FEATURE_REGIONS`]): what a program registers so that the card may read and
//! write it.

use crate::layout;

/// Registers a region of host memory for a port: [`RegionOpen`] and its extents, answered by [`RegionOpened`].
pub const OP_REGION_OPEN: u32 = 9;
/// Adds extents to a region that has not all yet: [`RegionName`] with their number, and the extents. No answer's body.
pub const OP_REGION_EXTEND: u32 = 10;
/// Closes a region: [`RegionName`] with no extents. Its entries are unlinked without events; once answered, the device
/// touches the memory no more.
pub const OP_REGION_CLOSE: u32 = 11;

/// Most extents in one request.
pub const MAX_EXTENTS: u32 = 128;

layout! {
    /// A stretch of host memory: part of a region.
    pub struct Extent: 16 {
        /// Guest-physical address.
        pub address: u64,
        /// Bytes.
        pub bytes: u64,
    }
}

layout! {
    /// Body of [`OP_REGION_OPEN`]; `extents` [`Extent`]s follow.
    pub struct RegionOpen: 24 {
        /// The port.
        pub port: u32,
        /// Extents that follow in this request, 1..=[`MAX_EXTENTS`].
        pub extents: u32,
        /// Bytes of the region, all extents together. Until so many are there no command may use it.
        pub bytes: u64,
        /// Zero.
        pub reserved: u64,
    }
}

layout! {
    /// Answer to [`OP_REGION_OPEN`].
    pub struct RegionOpened: 8 {
        /// The region's name: 16 bits of number and, above, 16 bits that differ from those of earlier regions of the
        /// number.
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
        /// Extents that follow in this request.
        pub extents: u32,
        /// Zero.
        pub reserved: u32,
    }
}
