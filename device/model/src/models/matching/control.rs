//! The control requests that only a Match card takes: regions, firmware, the spill area.

use alloc::vec::Vec;

use niclab_abi::FromBytes;
use niclab_abi::firmware::{
    FirmwareLoad, FirmwareLoaded, OP_FIRMWARE_LOAD, STATUS_FIRMWARE_CHECKSUM, STATUS_FIRMWARE_IMAGE,
    STATUS_FIRMWARE_SIZE, STATUS_FIRMWARE_VERSION, STATUS_FIRMWARE_WORD,
};
use niclab_abi::lists::{OP_SPILL_OPEN, SpillOpen};
use niclab_abi::region::{
    Extent, MAX_EXTENTS, OP_REGION_CLOSE, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen,
};
use niclab_isa::image::{self, ImageError};

use crate::nic::{HostRange, HostRanges, ReplyBytes};
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::effects::reply_of;

/// The status by which an image is refused.
pub(super) const fn image_error(error: ImageError) -> ControlError {
    ControlError::Own(match error {
        ImageError::Truncated { .. }
        | ImageError::Excess { .. }
        | ImageError::Magic
        | ImageError::Reserved { .. } => STATUS_FIRMWARE_IMAGE,
        ImageError::Version { .. } => STATUS_FIRMWARE_VERSION,
        ImageError::Check { .. } => STATUS_FIRMWARE_CHECKSUM,
        ImageError::Words { .. } => STATUS_FIRMWARE_SIZE,
        ImageError::Word { .. } | ImageError::Target { .. } => STATUS_FIRMWARE_WORD,
    })
}

/// A request whose length is right.
#[derive(Debug)]
pub enum Operation {
    /// Registers a region, with its first extents.
    RegionOpen(RegionOpen, Vec<HostRange>),
    /// Adds extents.
    RegionExtend(RegionName, Vec<HostRange>),
    /// Closes a region.
    RegionClose(RegionName),
    /// Loads firmware.
    FirmwareLoad(FirmwareLoad),
    /// Gives memory for match entries.
    SpillOpen(SpillOpen),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_REGION_OPEN => with_extents(body, |open: &RegionOpen| open.extents)
                .map(|(open, extents)| Self::RegionOpen(open, extents)),
            OP_REGION_EXTEND => with_extents(body, |name: &RegionName| name.extents)
                .map(|(name, extents)| Self::RegionExtend(name, extents)),
            OP_REGION_CLOSE => whole(body).map(Self::RegionClose),
            OP_FIRMWARE_LOAD => whole(body).map(Self::FirmwareLoad),
            OP_SPILL_OPEN => whole(body).map(Self::SpillOpen),
            _ => Err(ControlError::BadOperation),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::RegionOpen(_, extents) | Self::RegionExtend(_, extents) => {
                extents.iter().copied().collect()
            }
            Self::FirmwareLoad(load) => image_range(load).into_iter().collect(),
            Self::SpillOpen(open) => {
                [HostRange { address: open.address, bytes: open.bytes }].into_iter().collect()
            }
            Self::RegionClose(_) => HostRanges::new(),
        }
    }
}

/// Where a firmware image lies; nowhere, where the built-in program is wanted.
pub(super) fn image_range(load: &FirmwareLoad) -> Option<HostRange> {
    (load.bytes > 0).then_some(HostRange { address: load.address, bytes: load.bytes.into() })
}

/// A body that as many extents follow as it says.
fn with_extents<T: FromBytes>(
    body: &[u8],
    count: impl Fn(&T) -> u32,
) -> Result<(T, Vec<HostRange>), ControlError> {
    let head = T::from_bytes(body).ok_or(ControlError::BadLength)?;
    let rest = body.get(T::BYTES..).unwrap_or_default();
    let extents = count(&head);
    if extents > MAX_EXTENTS {
        return Err(ControlError::BadValue);
    }
    if rest.len() != extents as usize * Extent::BYTES {
        return Err(ControlError::BadLength);
    }
    let extents = rest.chunks_exact(Extent::BYTES).filter_map(Extent::from_bytes);
    Ok((head, extents.map(|Extent { address, bytes }| HostRange { address, bytes }).collect()))
}

/// The answer that says which image is loaded.
pub(super) fn loaded(image: &[u8]) -> ReplyBytes {
    let (words, checksum) = image::inspect(image).unwrap_or_default();
    reply_of(&FirmwareLoaded { words: words as u32, checksum })
}
