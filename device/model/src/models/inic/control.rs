//! The control requests that only an INIC card takes: regions, when the host is interrupted, and another assembly.

use niclab_abi::firmware::{FirmwareLoad, OP_FIRMWARE_LOAD};
use niclab_abi::posts::{OP_POST_RULES, PostRules};

use crate::nic::HostRanges;
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::image_reads::image_range;
use crate::parts::region_control::RegionOperation;

/// A request whose length is right.
#[derive(Debug)]
pub enum Operation {
    /// About regions.
    Region(RegionOperation),
    /// Changes when the host is interrupted.
    Rules(PostRules),
    /// Loads another assembly.
    Load(FirmwareLoad),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_POST_RULES => whole(body).map(Self::Rules),
            OP_FIRMWARE_LOAD => whole(body).map(Self::Load),
            _ => RegionOperation::decode(operation, body).map(Self::Region),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::Region(region) => region.memory(),
            Self::Rules(_) => HostRanges::new(),
            Self::Load(load) => image_range(load).into_iter().collect(),
        }
    }
}
