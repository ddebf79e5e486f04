//! Control requests that only INIC cards accept: regions, interrupt rules, groups of nodes, and another assembly.

use alloc::vec::Vec;

use niclab_abi::FromBytes;
use niclab_abi::firmware::{FirmwareLoad, OP_FIRMWARE_LOAD};
use niclab_abi::inic::{OP_POST_GROUP, OP_POST_RULES, POST_MAX_MEMBERS, PostGroup, PostMember, PostRules};

use crate::nic::HostRanges;
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::image_reads::image_range;
use crate::parts::region_control::RegionOperation;

/// A request of valid length.
#[derive(Debug)]
pub enum Operation {
    /// An operation on regions.
    Region(RegionOperation),
    /// Changes when the host is interrupted.
    Rules(PostRules),
    /// Makes a group of these members, or drops it.
    Group(PostGroup, Vec<u32>),
    /// Loads another assembly.
    Load(FirmwareLoad),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_POST_RULES => whole(body).map(Self::Rules),
            OP_POST_GROUP => group(body),
            OP_FIRMWARE_LOAD => whole(body).map(Self::Load),
            _ => RegionOperation::decode(operation, body).map(Self::Region),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::Region(region) => region.memory(),
            Self::Rules(_) | Self::Group(..) => HostRanges::new(),
            Self::Load(load) => image_range(load).into_iter().collect(),
        }
    }
}

/// A group request that is followed by as many members as it states.
fn group(body: &[u8]) -> Result<Operation, ControlError> {
    let head = PostGroup::from_bytes(body).ok_or(ControlError::BadLength)?;
    let rest = body.get(PostGroup::BYTES..).unwrap_or_default();
    if head.members > POST_MAX_MEMBERS || head.reserved != 0 {
        return Err(ControlError::BadValue);
    }
    if rest.len() != head.members as usize * PostMember::BYTES {
        return Err(ControlError::BadLength);
    }
    let members = rest.chunks_exact(PostMember::BYTES).filter_map(PostMember::from_bytes);
    Ok(Operation::Group(head, members.map(|member| member.node).collect()))
}
