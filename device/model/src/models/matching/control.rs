//! The control requests that only a Match card supports: regions, firmware, the spill area.

use niclab_abi::firmware::{
    FirmwareLoad, FirmwareLoaded, OP_FIRMWARE_LOAD, STATUS_FIRMWARE_CHECKSUM, STATUS_FIRMWARE_IMAGE,
    STATUS_FIRMWARE_SIZE, STATUS_FIRMWARE_VERSION, STATUS_FIRMWARE_WORD,
};
use niclab_abi::matching::{OP_SPILL_OPEN, SpillOpen};
use niclab_isa::image::{self, ImageError};

use crate::nic::{HostRange, HostRanges, ReplyBytes};
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::effects::reply_of;
use crate::parts::image_reads::image_range;
use crate::parts::region_control::RegionOperation;

/// The status of the reply to an invalid image.
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

/// A request with a valid length.
#[derive(Debug)]
pub enum Operation {
    /// A request for regions.
    Region(RegionOperation),
    /// Loads firmware.
    FirmwareLoad(FirmwareLoad),
    /// Provides host memory for match entries.
    SpillOpen(SpillOpen),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_FIRMWARE_LOAD => whole(body).map(Self::FirmwareLoad),
            OP_SPILL_OPEN => whole(body).map(Self::SpillOpen),
            _ => RegionOperation::decode(operation, body).map(Self::Region),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::Region(region) => region.memory(),
            Self::FirmwareLoad(load) => image_range(load).into_iter().collect(),
            Self::SpillOpen(open) => {
                [HostRange { address: open.address, bytes: open.bytes }].into_iter().collect()
            }
        }
    }
}

/// The reply that identifies the loaded image.
pub(super) fn loaded(image: &[u8]) -> ReplyBytes {
    let (words, checksum) = image::inspect(image).unwrap_or_default();
    reply_of(&FirmwareLoaded { words: words as u32, checksum })
}
