//! Control requests that only GRIM cards accept: regions, the payload region, and exposed memory.

use niclab_abi::grim::{ChannelExpose, ChannelPayload, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD};

use crate::nic::HostRanges;
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::region_control::RegionOperation;

/// A request of valid length.
#[derive(Debug)]
pub enum Operation {
    /// About regions.
    Region(RegionOperation),
    /// Sets the payload region.
    Payload(ChannelPayload),
    /// Exposes a region to memory messages.
    Expose(ChannelExpose),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_CHANNEL_PAYLOAD => whole(body).map(Self::Payload),
            OP_CHANNEL_EXPOSE => whole(body).map(Self::Expose),
            _ => RegionOperation::decode(operation, body).map(Self::Region),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::Region(region) => region.memory(),
            Self::Payload(_) | Self::Expose(_) => HostRanges::new(),
        }
    }
}
