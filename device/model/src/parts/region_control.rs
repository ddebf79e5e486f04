//! Control requests by which programs register memory ([`niclab_abi::region`]): decoded, checked, and applied to a
//! table of regions.

use alloc::vec::Vec;

use niclab_abi::FromBytes;
use niclab_abi::region::{
    Extent, MAX_EXTENTS, OP_REGION_CLOSE, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen,
    RegionOpened,
};

use crate::nic::{HostRange, HostRanges, ReplyBytes};
use crate::parts::control::{ControlError, OwnOperation, whole};
use crate::parts::effects::{empty_reply, reply_of};
use crate::parts::regions::Regions;

/// A request of valid length.
#[derive(Debug)]
pub enum RegionOperation {
    /// Registers a region, with its first extents.
    Open(RegionOpen, Vec<HostRange>),
    /// Adds extents.
    Extend(RegionName, Vec<HostRange>),
    /// Closes a region.
    Close(RegionName),
}

/// The result of a request.
#[derive(Debug)]
pub enum Carried {
    /// It is complete: the reply.
    Done(ReplyBytes),
    /// The card must end all uses of this region, and close it.
    Close {
        /// The port, which is open.
        port: usize,
        /// The region's name; the region may not exist.
        region: u32,
    },
}

impl OwnOperation for RegionOperation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_REGION_OPEN => with_extents(body, |open: &RegionOpen| open.extents)
                .map(|(open, extents)| Self::Open(open, extents)),
            OP_REGION_EXTEND => with_extents(body, |name: &RegionName| name.extents)
                .map(|(name, extents)| Self::Extend(name, extents)),
            OP_REGION_CLOSE => whole(body).map(Self::Close),
            _ => Err(ControlError::BadOperation),
        }
    }

    fn memory(&self) -> HostRanges {
        match self {
            Self::Open(_, extents) | Self::Extend(_, extents) => extents.iter().copied().collect(),
            Self::Close(_) => HostRanges::new(),
        }
    }
}

impl RegionOperation {
    /// Applies it to the tables of a card's ports. `open` checks that a port is open.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn carry_out(
        self,
        open: impl Fn(u32) -> Result<usize, ControlError>,
        regions: &mut [Regions],
    ) -> Result<Carried, ControlError> {
        match self {
            Self::Open(RegionOpen { port, bytes, reserved: 0, .. }, extents) => {
                let region = table(regions, open(port)?)?.open(bytes, &extents)?;
                Ok(Carried::Done(reply_of(&RegionOpened { region, reserved: 0 })))
            }
            Self::Extend(RegionName { port, region, reserved: 0, .. }, extents) => {
                table(regions, open(port)?)?.extend(region, &extents)?;
                Ok(Carried::Done(empty_reply()))
            }
            Self::Close(RegionName { port, region, extents: 0, reserved: 0 }) => {
                Ok(Carried::Close { port: open(port)?, region })
            }
            Self::Open(..) | Self::Extend(..) | Self::Close(_) => Err(ControlError::BadValue),
        }
    }
}

fn table(regions: &mut [Regions], port: usize) -> Result<&mut Regions, ControlError> {
    regions.get_mut(port).ok_or(ControlError::BadPort)
}

/// A body that is followed by as many extents as it states.
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
