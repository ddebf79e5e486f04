//! A guest's memory: a memory file that the daemon shares, with an allocator.

use std::fs::File;
use std::sync::Arc;

use nix::sys::memfd::{MFdFlags, memfd_create};
use parking_lot::Mutex;
use vhost::VhostUserMemoryRegionInfo;
use vm_memory::mmap::MmapRegion;
use vm_memory::{
    AtomicInteger, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap,
    VolatileMemory, VolatileSlice,
};

use super::FrontendError;
use crate::memory::{self, MemoryError};

/// Guest-physical address of the memory. It is not zero, so that a forgotten address is outside.
const BASE: u64 = 0x10_0000;

/// A guest's memory. Its programs read and write in place. The allocator never frees memory, because a front end is
/// short-lived.
#[derive(Debug)]
pub struct GuestMemory {
    table: GuestMemoryMmap,
    mapping: Arc<MmapRegion>,
    end: u64,
    free: Mutex<u64>,
}

impl GuestMemory {
    /// Memory of `bytes`, rounded up to pages, all zero.
    ///
    /// # Errors
    /// [`FrontendError::System`].
    pub fn new(bytes: u64) -> Result<Self, FrontendError> {
        let bytes = bytes.next_multiple_of(niclab_abi::PAGE_BYTES);
        let failed = |error| FrontendError::System { step: "making the guest's memory", error };
        let descriptor =
            memfd_create(c"niclab-guest", MFdFlags::MFD_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let file = File::from(descriptor);
        file.set_len(bytes).map_err(failed)?;
        let other = |error| failed(std::io::Error::other(error));
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), bytes as usize)
            .map_err(|error| other(error.to_string()))?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(BASE))
            .ok_or_else(|| other("the memory does not fit into the address space".to_owned()))?;
        let mapping = region.get_mmap();
        let table = GuestMemoryMmap::from_regions(vec![region]).map_err(|error| other(error.to_string()))?;
        Ok(Self { table, mapping, end: BASE + bytes, free: Mutex::new(BASE) })
    }

    /// Guest-physical address of `bytes` unused bytes, aligned to `alignment`, a power of two.
    ///
    /// # Errors
    /// [`FrontendError::OutOfMemory`].
    pub fn allocate(&self, bytes: u64, alignment: u64) -> Result<u64, FrontendError> {
        let mut free = self.free.lock();
        let address = free.next_multiple_of(alignment.max(1));
        let end = address.checked_add(bytes).filter(|end| *end <= self.end);
        *free = end.ok_or(FrontendError::OutOfMemory { bytes })?;
        Ok(address)
    }

    /// First address after the memory.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Shared integers from `address`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn atomics<T: AtomicInteger>(&self, address: u64, count: usize) -> Result<&[T], MemoryError> {
        let bytes =
            count.checked_mul(size_of::<T>()).ok_or(MemoryError::Outside { address, bytes: u64::MAX })?;
        let unaligned = MemoryError::Unaligned { address, alignment: align_of::<T>() };
        memory::atomics(self.slice(address, bytes)?).ok_or(unaligned)
    }

    /// Shared bytes from `address`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn slice(&self, address: u64, bytes: usize) -> Result<VolatileSlice<'_>, MemoryError> {
        let outside = MemoryError::Outside { address, bytes: bytes as u64 };
        let offset =
            address.checked_sub(BASE).and_then(|offset| usize::try_from(offset).ok()).ok_or(outside)?;
        self.mapping.get_slice(offset, bytes).map_err(|_| outside)
    }

    /// The memory table for the daemon.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn regions(&self) -> Result<Vec<VhostUserMemoryRegionInfo>, FrontendError> {
        let describe = |region| VhostUserMemoryRegionInfo::from_guest_region(region);
        let described: Result<_, _> = self.table.iter().map(describe).collect();
        described.map_err(|error| FrontendError::VhostUser { step: "describing memory", error })
    }

    /// The address in this process of guest address `address`, by which vhost-user names rings.
    ///
    /// # Errors
    /// [`FrontendError::Malformed`] if it is not in the memory.
    pub fn host_address(&self, address: u64) -> Result<u64, FrontendError> {
        let place = self.table.get_host_address(GuestAddress(address));
        place
            .map(|pointer| pointer as u64)
            .map_err(|_| FrontendError::Malformed("an address is outside the guest's memory"))
    }
}
