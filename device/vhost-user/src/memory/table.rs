//! The memory table of a front end: each region checked before it is mapped.

use std::fs::File;
use std::io;
use std::sync::Arc;

use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use thiserror::Error;
use vm_memory::FileOffset;
use vm_memory::mmap::{MmapRegion, MmapRegionError};

use super::vanishing::MayVanish;
use super::{DmaMemory, FileIdentity, Region, identity};
use crate::attention::Attention;

/// One region as the front end describes it.
#[derive(Debug)]
pub struct TableEntry {
    /// Where the guest sees it.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub file: File,
}

/// A memory table that is not taken.
#[derive(Debug, Error)]
pub enum TableError {
    /// Each page behind the end would end an access with SIGBUS.
    #[error(
        "memory region {region} ends at byte {end} of a file that has {file_bytes}; give the file its size first"
    )]
    BehindEnd {
        /// Which of the table.
        region: usize,
        /// First byte of the file behind the region.
        end: u64,
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// A page of such a file can be a long time coming, and all nodes would wait for it.
    #[error(
        "memory region {region} is no file in memory; use memory-backend-memfd, or a file on tmpfs or hugetlbfs"
    )]
    Kind {
        /// Which of the table.
        region: usize,
    },
    /// Two regions claim the same guest addresses.
    #[error("memory regions {0} and {1} overlap")]
    Overlap(usize, usize),
    /// A region's end is not an address.
    #[error("memory region {region} reaches behind the end of all addresses")]
    Range {
        /// Which of the table.
        region: usize,
    },
    /// The operating system refused something.
    #[error("memory region {region} cannot be used: {error}")]
    System {
        /// Which of the table.
        region: usize,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It cannot be mapped.
    #[error("memory region {region} cannot be mapped: {error}")]
    Map {
        /// Which of the table.
        region: usize,
        /// Why.
        #[source]
        error: MmapRegionError,
    },
}

impl DmaMemory {
    /// Maps the regions of `table`, but for that of the file `bar`: see [`DmaMemory::new`]. When a page of any of them
    /// vanishes later, `attention` is told, and the region holds zeros from then on.
    ///
    /// # Errors
    /// [`TableError`]; then nothing stays mapped.
    pub fn map(
        table: Vec<TableEntry>,
        bar: Option<FileIdentity>,
        attention: &Arc<Attention>,
    ) -> Result<Self, TableError> {
        check_overlaps(&table)?;
        let mut regions = Vec::new();
        for (number, entry) in table.into_iter().enumerate() {
            if bar.is_some() && identity(&entry.file) == bar {
                continue;
            }
            regions.push(map(number, entry, attention)?);
        }
        Ok(Self { regions })
    }
}

fn check_overlaps(table: &[TableEntry]) -> Result<(), TableError> {
    let mut ranges = Vec::with_capacity(table.len());
    for (region, entry) in table.iter().enumerate() {
        let end = entry.start.checked_add(entry.bytes).ok_or(TableError::Range { region })?;
        entry.offset.checked_add(entry.bytes).ok_or(TableError::Range { region })?;
        ranges.push((entry.start, end, region));
    }
    ranges.sort_unstable();
    for ((_, end, one), (start, _, other)) in ranges.iter().zip(ranges.iter().skip(1)) {
        if start < end {
            return Err(TableError::Overlap(*one, *other));
        }
    }
    Ok(())
}

fn map(region: usize, entry: TableEntry, attention: &Arc<Attention>) -> Result<Region, TableError> {
    let TableEntry { start, bytes, offset, file } = entry;
    let system = |error| TableError::System { region, error };
    let system_call = |errno: nix::Error| TableError::System { region, error: errno.into() };
    let filesystem = fstatfs(&file).map_err(system_call)?;
    let metadata = file.metadata().map_err(system)?;
    let kind = filesystem.filesystem_type();
    if !metadata.is_file() || (kind != TMPFS_MAGIC && kind != HUGETLBFS_MAGIC) {
        return Err(TableError::Kind { region });
    }
    let end = offset.saturating_add(bytes);
    if end > metadata.len() {
        return Err(TableError::BehindEnd { region, end, file_bytes: metadata.len() });
    }
    let length = usize::try_from(bytes).map_err(|_| TableError::Range { region })?;
    let mapping = MmapRegion::from_file(FileOffset::new(file, offset), length)
        .map_err(|error| TableError::Map { region, error })?;
    // Of hugetlbfs, the size of its pages.
    let page_bytes = usize::try_from(filesystem.block_size()).unwrap_or(0).max(1);
    // SAFETY: the mapping was made just now and is `length` bytes in whole pages. Whoever accesses it holds the region,
    // whose guard goes before its mapping; and zeros in place of a guest's memory are what a guest could have written.
    let guard =
        unsafe { MayVanish::new(mapping.as_ptr() as usize, length.next_multiple_of(page_bytes), attention) };
    let guard = guard.map_err(system)?;
    Ok(Region { start, bytes, _guard: Some(guard), mapping: Arc::new(mapping) })
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn memory_file(bytes: u64) -> File {
        let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    fn entry(start: u64, bytes: u64, offset: u64, file_bytes: u64) -> TableEntry {
        TableEntry { start, bytes, offset, file: memory_file(file_bytes) }
    }

    fn map(table: Vec<TableEntry>) -> Result<DmaMemory, TableError> {
        DmaMemory::map(table, None, &Arc::new(Attention::new().unwrap()))
    }

    #[test]
    fn a_table_of_files_in_memory_is_mapped() {
        let memory =
            map(vec![entry(0x10_0000, 0x2000, 0x1000, 0x3000), entry(0, 0x1000, 0, 0x1000)]).unwrap();
        memory.store_words(0x10_1ff8, &[7]).unwrap();
        assert!(memory.slice(0x10_2000, 1).is_err() && memory.slice(0xfff, 1).is_ok());
    }

    #[test]
    fn tables_that_would_end_in_bus_errors_are_refused() {
        let error =
            map(vec![entry(0, 0x1000, 0, 0x1000), entry(0x1000, 0x2000, 0x1000, 0x2000)]).unwrap_err();
        assert!(
            matches!(error, TableError::BehindEnd { region: 1, end: 0x3000, file_bytes: 0x2000 }),
            "{error}"
        );
        let error = map(vec![entry(0, 0x1000, u64::MAX - 1, 0x1000)]).unwrap_err();
        assert!(matches!(error, TableError::Range { region: 0 }), "{error}");
        let error = map(vec![entry(u64::MAX - 1, 0x1000, 0, 0x1000)]).unwrap_err();
        assert!(matches!(error, TableError::Range { region: 0 }), "{error}");
    }

    #[test]
    fn files_that_are_not_in_memory_are_refused() {
        let device = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let (pipe, _) = std::io::pipe().unwrap();
        for file in
            [device, File::from(std::os::fd::OwnedFd::from(pipe)), File::open("/proc/self/maps").unwrap()]
        {
            let table = vec![TableEntry { start: 0, bytes: 0x1000, offset: 0, file }];
            let error = map(table).unwrap_err();
            assert!(matches!(error, TableError::Kind { region: 0 }), "{error}");
        }
    }

    #[test]
    fn overlaps_are_refused_in_any_order() {
        let error = map(vec![entry(0x1000, 0x1000, 0, 0x1000), entry(0, 0x1001, 0, 0x2000)]).unwrap_err();
        assert!(matches!(error, TableError::Overlap(1, 0)), "{error}");
    }
}
