//! Regions: host memory that is registered for a port, as a list of extents.

use alloc::vec::Vec;

use niclab_abi::PAGE_BYTES;
use thiserror::Error;

use crate::nic::{HostRange, HostRanges};
use crate::parts::control::ControlError;

/// Why a region cannot be opened or extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegionError {
    /// A region or an extent is empty, extends past the end of the address space, or exceeds the declared size.
    #[error(
        "a region or an extent is empty, extends past the end of the address space, or exceeds the declared size"
    )]
    BadValue,
    /// The port has its maximum of regions or extents.
    #[error("the port has its maximum of regions or extents; close another region first")]
    NoSpace,
    /// There is no such region.
    #[error("there is no such region")]
    NotFound,
    /// An extent begins or ends inside a page, except at the start or end of the region.
    #[error("an extent begins or ends inside a page, which is valid only at the start and end of the region")]
    BadAddress,
}

impl From<RegionError> for ControlError {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::BadValue => Self::BadValue,
            RegionError::NoSpace => Self::NoSpace,
            RegionError::NotFound => Self::NotFound,
            RegionError::BadAddress => Self::BadAddress,
        }
    }
}

/// An extent of a region.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Its offset in the region.
    offset: u64,
    memory: HostRange,
}

/// A region.
#[derive(Clone, Debug)]
pub struct Region {
    bytes: u64,
    /// Bytes of the extents so far.
    filled: u64,
    stretches: Vec<Stretch>,
}

impl Region {
    /// Whether `bytes` from `offset` on are inside the region.
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// The memory of `bytes` from `offset` on; bytes outside the region are left out.
    pub fn ranges(&self, offset: u64, bytes: u64) -> HostRanges {
        let mut ranges = HostRanges::new();
        let mut left = bytes.min(self.bytes.saturating_sub(offset));
        let mut at = offset;
        let first = self.stretches.partition_point(|stretch| stretch.offset + stretch.memory.bytes <= offset);
        for stretch in self.stretches.get(first..).unwrap_or_default() {
            if left == 0 {
                break;
            }
            let skipped = at - stretch.offset;
            let taken = left.min(stretch.memory.bytes - skipped);
            ranges.push(HostRange { address: stretch.memory.address + skipped, bytes: taken });
            at += taken;
            left -= taken;
        }
        ranges
    }

    /// Adds extents, all or none. Returns the number of new extents.
    ///
    /// Inside a region all extents are whole pages. With extents of one byte each, every byte of a frame would be a
    /// separate range of memory, which a shell looks up separately.
    fn extend(&mut self, extents: &[HostRange]) -> Result<usize, RegionError> {
        let mut filled = self.filled;
        for extent in extents {
            let end = extent.address.checked_add(extent.bytes).ok_or(RegionError::BadValue)?;
            let is_first = filled == 0;
            filled = filled.checked_add(extent.bytes).ok_or(RegionError::BadValue)?;
            if extent.bytes == 0 || filled > self.bytes {
                return Err(RegionError::BadValue);
            }
            let is_last = filled == self.bytes;
            let is_on_pages = |address: u64| address.is_multiple_of(PAGE_BYTES);
            if !(is_first || is_on_pages(extent.address)) || !(is_last || is_on_pages(end)) {
                return Err(RegionError::BadAddress);
            }
        }
        let before = self.stretches.len();
        for &HostRange { address, bytes } in extents {
            match self.stretches.last_mut() {
                Some(Stretch { memory, .. }) if memory.address + memory.bytes == address => {
                    memory.bytes += bytes
                }
                _ => {
                    self.stretches.push(Stretch { offset: self.filled, memory: HostRange { address, bytes } })
                }
            }
            self.filled += bytes;
        }
        Ok(self.stretches.len() - before)
    }
}

/// A slot for a region.
#[derive(Clone, Debug, Default)]
struct RegionSlot {
    /// Number of regions that the slot has held, from 1, so that no name is reused soon, and none is zero.
    generation: u16,
    region: Option<Region>,
}

/// The regions of a port. The table outlives the port, so that names of the previous user's regions are invalid for
/// the next user.
#[derive(Clone, Debug)]
pub struct Regions {
    slots: Vec<RegionSlot>,
    most: usize,
    stretches: usize,
    max_stretches: usize,
}

impl Regions {
    /// Empty, with a maximum of regions, and of extents of all regions.
    pub fn new(regions: u32, extents: u32) -> Self {
        // A name has 16 bits for the slot.
        let most = (regions as usize).min(1 << 16);
        Self { slots: Vec::new(), most, stretches: 0, max_stretches: extents as usize }
    }

    /// Opens a region of `bytes`, of which `extents` are a part or all. Returns its name.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn open(&mut self, bytes: u64, extents: &[HostRange]) -> Result<u32, RegionError> {
        if bytes == 0 || extents.is_empty() {
            return Err(RegionError::BadValue);
        }
        let free = self.slots.iter().position(|slot| slot.region.is_none());
        let slot = free.unwrap_or(self.slots.len());
        if slot >= self.most || self.stretches + extents.len() > self.max_stretches {
            return Err(RegionError::NoSpace);
        }
        let mut region = Region { bytes, filled: 0, stretches: Vec::new() };
        self.stretches += region.extend(extents)?;
        if free.is_none() {
            self.slots.push(RegionSlot::default());
        }
        let found = self.slots.get_mut(slot).ok_or(RegionError::NoSpace)?;
        found.generation = found.generation.wrapping_add(1).max(1);
        found.region = Some(region);
        Ok(slot as u32 | u32::from(found.generation) << 16)
    }

    /// Adds extents to a region.
    ///
    /// # Errors
    /// Why they are invalid; then none is added.
    pub fn extend(&mut self, name: u32, extents: &[HostRange]) -> Result<(), RegionError> {
        let is_full = self.stretches + extents.len() > self.max_stretches;
        let region =
            self.slot_mut(name).and_then(|slot| slot.region.as_mut()).ok_or(RegionError::NotFound)?;
        if is_full {
            return Err(RegionError::NoSpace);
        }
        if extents.is_empty() {
            return Err(RegionError::BadValue);
        }
        self.stretches += region.extend(extents)?;
        Ok(())
    }

    /// Closes a region; false if there is none with this name.
    pub fn close(&mut self, name: u32) -> bool {
        let region = self.slot_mut(name).and_then(|slot| slot.region.take());
        self.stretches -= region.as_ref().map_or(0, |region| region.stretches.len());
        region.is_some()
    }

    /// Closes all.
    pub fn close_all(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.region = None);
        self.stretches = 0;
    }

    /// The region with this name, if it is complete.
    pub fn get(&self, name: u32) -> Option<&Region> {
        let slot = self.slots.get((name & 0xffff) as usize)?;
        let region = slot.region.as_ref().filter(|_| u32::from(slot.generation) == name >> 16)?;
        (region.filled == region.bytes).then_some(region)
    }

    fn slot_mut(&mut self, name: u32) -> Option<&mut RegionSlot> {
        let slot = self.slots.get_mut((name & 0xffff) as usize)?;
        (u32::from(slot.generation) == name >> 16).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn extent(address: u64, bytes: u64) -> HostRange {
        HostRange { address, bytes }
    }

    #[test]
    fn names_of_closed_regions_are_invalid() {
        let mut regions = Regions::new(2, 10);
        let first = regions.open(8, &[extent(0x100, 8)]).unwrap();
        assert!(regions.get(first).is_some());
        assert!(regions.close(first) && !regions.close(first));
        let second = regions.open(8, &[extent(0x200, 8)]).unwrap();
        assert_ne!(first, second);
        assert!(regions.get(first).is_none() && regions.get(second).is_some());
        regions.close_all();
        assert!(regions.get(second).is_none());
        assert_ne!(regions.open(8, &[extent(0x200, 8)]).unwrap(), second);
    }

    #[test]
    fn region_is_usable_once_it_is_complete() {
        const PAGE: u64 = PAGE_BYTES;
        let mut regions = Regions::new(2, 3);
        let name = regions.open(2 * PAGE + 8, &[extent(0x1000, PAGE)]).unwrap();
        assert!(regions.get(name).is_none());
        let too_much = [extent(0x3000, PAGE), extent(0x5000, 9)];
        assert_eq!(regions.extend(name, &too_much), Err(RegionError::BadValue));
        assert_eq!(regions.extend(name ^ 1, &[extent(0x3000, PAGE)]), Err(RegionError::NotFound));
        assert_eq!(regions.extend(name, &[extent(0x3000, PAGE), extent(0x5000, 8)]), Ok(()));
        let region = regions.get(name).unwrap();
        assert!(region.holds(2 * PAGE + 8, 0) && !region.holds(2 * PAGE + 8, 1));
        assert_eq!(regions.open(8, &[extent(0, 8)]), Err(RegionError::NoSpace), "of extents");
        assert!(regions.close(name));
        assert_eq!(regions.open(8, &[]), Err(RegionError::BadValue));
        assert_eq!(regions.open(8, &[extent(u64::MAX, 8)]), Err(RegionError::BadValue));
        regions.open(8, &[extent(0, 8)]).unwrap();
        regions.open(8, &[extent(0, 8)]).unwrap();
        assert_eq!(regions.open(8, &[extent(0, 8)]), Err(RegionError::NoSpace), "of regions");
    }

    #[test]
    fn extents_inside_a_region_are_whole_pages() {
        const PAGE: u64 = PAGE_BYTES;
        let bytes = |extents: &[HostRange]| extents.iter().map(|extent| extent.bytes).sum::<u64>();
        let opened = |extents: &[HostRange]| Regions::new(1, 100).open(bytes(extents), extents).map(drop);
        for good in [
            vec![extent(0x1001, 1)],
            vec![extent(0x1fff, 1), extent(0x5000, 1)],
            vec![extent(0x1800, PAGE / 2), extent(0x5000, 3 * PAGE), extent(0x9000, 10)],
        ] {
            assert_eq!(opened(&good), Ok(()), "{good:x?}");
        }
        for bad in [
            vec![extent(0x1000, 1), extent(0x5000, 1)],
            vec![extent(0x1fff, 1), extent(0x5001, 1)],
            vec![extent(0x1000, PAGE), extent(0x5000, PAGE / 2), extent(0x7800, PAGE / 2)],
            (0..100).map(|byte| extent(0x1000 + 2 * byte, 1)).collect(),
        ] {
            assert_eq!(opened(&bad), Err(RegionError::BadAddress), "{bad:x?}");
        }
        // The limit does not depend on how extents are split over requests.
        let mut regions = Regions::new(1, 100);
        let name = regions.open(2 * PAGE, &[extent(0x1000, PAGE)]).unwrap();
        assert_eq!(regions.extend(name, &[extent(0x5001, PAGE)]), Err(RegionError::BadAddress));
        assert_eq!(regions.extend(name, &[extent(0x5000, 1)]), Err(RegionError::BadAddress));
        assert_eq!(regions.extend(name, &[extent(0x5000, PAGE)]), Ok(()));
    }

    proptest! {
        #[test]
        fn ranges_are_the_bytes_of_the_extents_in_their_order(
            pages in prop::collection::vec((1..4_u64, any::<bool>()), 1..6),
            before in 0..PAGE_BYTES,
            behind in 0..PAGE_BYTES,
            offset in 0..0x1_4000_u64,
            bytes in 0..0x1_4000_u64,
        ) {
            let mut address = 0x1000;
            let mut plain = vec![];
            let last = pages.len() - 1;
            let extents: Vec<HostRange> = pages
                .iter()
                .enumerate()
                .map(|(number, &(pages, touches))| {
                    address += if touches { 0 } else { 0x1_0000 };
                    // Only the first extent may begin, and the last end, inside a page.
                    let skipped = if number == 0 { before } else { 0 };
                    let missing = if number == last { behind.min(pages * PAGE_BYTES - skipped - 1) } else { 0 };
                    let extent = extent(address + skipped, pages * PAGE_BYTES - skipped - missing);
                    plain.extend(extent.address..extent.address + extent.bytes);
                    address += pages * PAGE_BYTES;
                    extent
                })
                .collect();
            let mut regions = Regions::new(1, 100);
            let name = regions.open(plain.len() as u64, &extents).unwrap();
            let region = regions.get(name).unwrap();
            let found: Vec<u64> =
                region.ranges(offset, bytes).iter().flat_map(|r| r.address..r.address + r.bytes).collect();
            let begin = (offset as usize).min(plain.len());
            let end = (begin + bytes as usize).min(plain.len());
            prop_assert_eq!(found, &plain[begin..end]);
            prop_assert_eq!(region.holds(offset, bytes), offset + bytes <= plain.len() as u64);
        }
    }
}
