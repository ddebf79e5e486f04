//! The memory table of a front end: each region is checked and guarded before its first access.

use std::io;
use std::sync::Arc;

use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use thiserror::Error;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

use super::vanishing::MayVanish;
use super::{DmaMemory, FileIdentity, Region, identity};
use crate::attention::Attention;

/// Maximum regions of a table: the maximum files of one message. (The attack: a front end adds region after region,
/// although the daemon did not offer this, and uses up the mappings of this process.)
pub const MAX_REGIONS: usize = vhost::vhost_user::message::MAX_ATTACHED_FD_ENTRIES;

/// Why a memory table is refused.
#[derive(Debug, Error)]
pub enum TableError {
    /// An access to a page after the file's end would raise SIGBUS.
    #[error(
        "memory region {region} ends at byte {end} of a file that has {file_bytes} bytes; extend the file first"
    )]
    BehindEnd {
        /// Number of the region in the table.
        region: usize,
        /// First byte of the file after the region.
        end: u64,
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// The kernel could take long to supply a page of such a file, and all nodes would wait for it.
    #[error(
        "memory region {region} is not a file in memory; use memory-backend-memfd, or a file on tmpfs or hugetlbfs"
    )]
    Kind {
        /// Number of the region in the table.
        region: usize,
    },
    /// Each region uses one of the process's mappings.
    #[error("the memory table has {regions} regions; the maximum is {MAX_REGIONS}")]
    TooMany {
        /// Regions of the table.
        regions: usize,
    },
    /// The operating system refused.
    #[error("memory region {region} cannot be used: {error}")]
    System {
        /// Number of the region in the table.
        region: usize,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl From<TableError> for io::Error {
    fn from(error: TableError) -> Self {
        Self::other(error)
    }
}

impl DmaMemory {
    /// The table of a front end as the library has mapped it, before the first access, without the region of the file
    /// `bar`: see [`DmaMemory::new`]. If a page of a region vanishes later, `attention` is woken, and the region is
    /// zero from then on.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn guarded(
        table: &GuestMemoryMmap,
        bar: Option<FileIdentity>,
        attention: &Arc<Attention>,
    ) -> Result<Self, TableError> {
        let count = table.num_regions();
        if count > MAX_REGIONS {
            return Err(TableError::TooMany { regions: count });
        }
        let mut regions = Vec::with_capacity(count);
        for (number, region) in table.iter().enumerate() {
            if let Some(region) = guard(number, region, bar, attention)? {
                regions.push(region);
            }
        }
        Ok(Self { regions })
    }
}

/// Checks and guards one region. None if it is the BAR.
fn guard(
    region: usize,
    entry: &GuestRegionMmap,
    bar: Option<FileIdentity>,
    attention: &Arc<Attention>,
) -> Result<Option<Region>, TableError> {
    let system = |error| TableError::System { region, error };
    let place = entry.file_offset().ok_or(TableError::Kind { region })?;
    let file = place.file();
    if bar.is_some() && identity(file) == bar {
        return Ok(None);
    }
    let filesystem = fstatfs(file).map_err(|errno| system(errno.into()))?;
    let metadata = file.metadata().map_err(system)?;
    let kind = filesystem.filesystem_type();
    if !metadata.is_file() || (kind != TMPFS_MAGIC && kind != HUGETLBFS_MAGIC) {
        return Err(TableError::Kind { region });
    }
    let end = place.start().saturating_add(entry.len());
    if end > metadata.len() {
        return Err(TableError::BehindEnd { region, end, file_bytes: metadata.len() });
    }
    let mapping = entry.get_mmap();
    // On hugetlbfs this is the size of its pages.
    let page_bytes = usize::try_from(filesystem.block_size()).unwrap_or(0).max(1);
    let (start, bytes) = (mapping.as_ptr() as usize, mapping.size().next_multiple_of(page_bytes));
    // SAFETY: the mapping is `bytes` bytes in complete pages, and belongs to this connection alone. Its owners are
    // the library, which never accesses it, and the holders of the region, which drop the guard before the mapping. A
    // table with one region more or less has the mappings of the others again, with another guard that wakes the same
    // thread. A guest could have written the zeros that replace its memory.
    let guard = unsafe { MayVanish::new(start, bytes, attention) }.map_err(system)?;
    Ok(Some(Region { start: entry.start_addr().0, bytes: entry.len(), _guard: Some(guard), mapping }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use vm_memory::mmap::MmapRegion;
    use vm_memory::{FileOffset, GuestAddress};

    use super::*;

    fn memory_file(bytes: u64) -> File {
        let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    /// A region of `bytes` at guest address `start`, at `offset` of a file.
    type Entry = (u64, usize, File, u64);

    fn table(entries: Vec<Entry>) -> GuestMemoryMmap {
        let map = |(start, bytes, file, offset)| {
            let mapping = MmapRegion::from_file(FileOffset::new(file, offset), bytes).unwrap();
            GuestRegionMmap::new(mapping, GuestAddress(start)).unwrap()
        };
        GuestMemoryMmap::from_regions(entries.into_iter().map(map).collect()).unwrap()
    }

    fn guarded(entries: Vec<Entry>) -> Result<DmaMemory, TableError> {
        DmaMemory::guarded(&table(entries), None, &Arc::new(Attention::new().unwrap()))
    }

    #[test]
    fn table_of_files_in_memory_is_accepted() {
        let entries =
            vec![(0, 0x1000, memory_file(0x1000), 0), (0x10_0000, 0x2000, memory_file(0x3000), 0x1000)];
        let memory = guarded(entries).unwrap();
        memory.store_words(0x10_1ff8, &[7]).unwrap();
        assert!(memory.slice(0x10_2000, 1).is_err() && memory.slice(0xfff, 1).is_ok());
    }

    #[test]
    fn bar_is_excluded_and_not_checked() {
        let bar = memory_file(0x1000);
        let identity = identity(&bar);
        let table = table(vec![(0, 0x1000, memory_file(0x1000), 0), (0x8000, 0x1000, bar, 0)]);
        let attention = Arc::new(Attention::new().unwrap());
        let memory = DmaMemory::guarded(&table, identity, &attention).unwrap();
        assert!(memory.slice(0, 8).is_ok() && memory.slice(0x8000, 8).is_err());
    }

    #[test]
    fn region_beyond_the_end_of_its_file_is_refused() {
        let entries =
            vec![(0, 0x1000, memory_file(0x1000), 0), (0x1000, 0x2000, memory_file(0x2000), 0x1000)];
        let error = guarded(entries).unwrap_err();
        assert!(
            matches!(error, TableError::BehindEnd { region: 1, end: 0x3000, file_bytes: 0x2000 }),
            "{error}"
        );
    }

    #[test]
    fn files_that_are_not_in_memory_are_refused() {
        let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let error = guarded(vec![(0, 0x1000, device, 0)]).unwrap_err();
        assert!(matches!(error, TableError::Kind { region: 0 }), "{error}");
        let nameless = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let attention = Arc::new(Attention::new().unwrap());
        assert!(DmaMemory::guarded(&nameless, None, &attention).is_err());
    }

    #[test]
    fn table_with_too_many_regions_is_refused() {
        let file = memory_file(0x1000);
        let entries = |count: u64| {
            (0..count).map(|number| (number << 12, 0x1000, file.try_clone().unwrap(), 0)).collect()
        };
        assert!(guarded(entries(MAX_REGIONS as u64)).is_ok());
        let error = guarded(entries(MAX_REGIONS as u64 + 1)).unwrap_err();
        assert!(matches!(error, TableError::TooMany { regions } if regions == MAX_REGIONS + 1), "{error}");
    }
}
