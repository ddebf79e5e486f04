//! A guest's memory: a file without a name, which QEMU and the daemon map, and its form in the cache.
//!
//! The saved form consists of the pages that are not zero, in order, and a list of their positions. Pages of zeros cost
//! nothing to store or to load.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Bytes that are copied at once; fits into a core's second-level cache.
const CHUNK: usize = 64 * PAGE;

/// A guest's memory.
#[derive(Debug)]
pub struct GuestMemory {
    file: File,
    bytes: u64,
}

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The first page's number.
    pub page: u64,
    /// Number of pages.
    pub pages: u64,
}

/// The positions of saved pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes of the memory.
    pub bytes: u64,
    /// CRC-32 of the saved pages.
    pub crc32: u32,
    /// The saved pages, in the order of storage and of page numbers.
    pub runs: Vec<Run>,
}

impl Layout {
    /// Bytes of the saved pages.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.pages.saturating_mul(PAGE as u64)))
    }

    /// Whether all pages are within the memory, each once.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut end = 0;
        self.runs.iter().all(|run| {
            let is_next = run.page >= end && run.pages > 0;
            end = run.page.saturating_add(run.pages);
            is_next
        }) && end <= self.bytes / PAGE as u64
    }
}

impl GuestMemory {
    /// Memory of zeros.
    ///
    /// # Errors
    /// If the host cannot create a memory file.
    pub fn zeroed(bytes: u64) -> io::Result<Self> {
        let file = memfd_create("guest-memory", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        Ok(Self { file: file.into(), bytes })
    }

    /// Duplicates its descriptor, for QEMU.
    ///
    /// # Errors
    /// If this process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Writes the pages that are not zero. The memory must not change meanwhile.
    ///
    /// # Errors
    /// An error of either file, such as a full disk.
    pub fn save(&self, into: &mut impl Write) -> io::Result<Layout> {
        let mut layout = Layout { bytes: self.bytes, ..Layout::default() };
        let mut sum = crc32fast::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while let Some((begin, end)) = self.next_data(at)? {
            let wanted = CHUNK.min(usize::try_from(end - begin).unwrap_or(CHUNK));
            let chunk = &mut chunk[..wanted];
            self.file.read_exact_at(chunk, begin)?;
            for (page, bytes) in (begin / PAGE as u64..).zip(chunk.chunks(PAGE)) {
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                sum.update(bytes);
                into.write_all(bytes)?;
                match layout.runs.last_mut() {
                    Some(last) if last.page + last.pages == page => last.pages += 1,
                    _ => layout.runs.push(Run { page, pages: 1 }),
                }
            }
            at = begin + wanted as u64;
        }
        layout.crc32 = sum.finalize();
        Ok(layout)
    }

    /// Restores saved memory.
    ///
    /// # Errors
    /// An error of either file; also if the saved one is too short.
    pub fn load(layout: &Layout, from: &File) -> io::Result<Self> {
        let memory = Self::zeroed(layout.bytes)?;
        let mut chunk = vec![0; CHUNK];
        let mut stored_at = 0;
        for run in &layout.runs {
            let (mut at, end) = (run.page * PAGE as u64, (run.page + run.pages) * PAGE as u64);
            while at < end {
                let wanted = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
                from.read_exact_at(&mut chunk[..wanted], stored_at)?;
                memory.file.write_all_at(&chunk[..wanted], at)?;
                at += wanted as u64;
                stored_at += wanted as u64;
            }
        }
        Ok(memory)
    }

    /// The next written bytes from `at` on, in whole pages; `None` if there are none.
    fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        let begin = match seek(&self.file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = seek(&self.file, SeekFrom::Hole(begin))?;
        Ok(Some((begin, end)))
    }
}

/// CRC-32 of a file's content.
///
/// # Errors
/// If it cannot be read.
pub fn crc32(file: &File) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        match file.read_at(&mut chunk, at)? {
            0 => return Ok(sum.finalize()),
            bytes => {
                sum.update(&chunk[..bytes]);
                at += bytes as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(pages: &[u8]) -> GuestMemory {
        let memory = GuestMemory::zeroed((pages.len() * PAGE) as u64).unwrap();
        for (at, &value) in pages.iter().enumerate() {
            // Also writes pages of zeros: they are allocated, but all zero.
            if value != 1 {
                memory.file.write_all_at(&[value; PAGE], (at * PAGE) as u64).unwrap();
            }
        }
        memory
    }

    fn saved(memory: &GuestMemory) -> (Layout, File) {
        let mut file = tempfile::tempfile().unwrap();
        (memory.save(&mut file).unwrap(), file)
    }

    proptest! {
        /// Any memory survives save and load, and pages of zeros take no space.
        #[test]
        fn memory_comes_back(pages in prop::collection::vec(0u8..4, 1..200)) {
            let memory = memory(&pages);
            let (layout, file) = saved(&memory);
            prop_assert!(layout.is_valid());
            let held = pages.iter().filter(|value| **value > 1).count() * PAGE;
            prop_assert_eq!(layout.saved_bytes(), held as u64);
            prop_assert_eq!(file.metadata().unwrap().len(), held as u64);
            prop_assert_eq!(crc32(&file).unwrap(), layout.crc32);
            let loaded = GuestMemory::load(&layout, &file).unwrap();
            let content = |memory: &GuestMemory| {
                let mut bytes = vec![0; pages.len() * PAGE];
                memory.file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            prop_assert!(content(&loaded) == content(&memory));
        }
    }

    #[test]
    fn truncated_memory_file_is_not_loaded() {
        let (layout, file) = saved(&memory(&[2; 10]));
        file.set_len(9 * PAGE as u64 + 1).unwrap();
        assert_eq!(GuestMemory::load(&layout, &file).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn layout_outside_memory_or_with_overlaps_is_rejected() {
        let layout = |runs: &[(u64, u64)]| Layout {
            bytes: 10 * PAGE as u64,
            crc32: 0,
            runs: runs.iter().map(|&(page, pages)| Run { page, pages }).collect(),
        };
        assert!(layout(&[(0, 2), (2, 1), (9, 1)]).is_valid() && layout(&[]).is_valid());
        for runs in [&[(9, 2)][..], &[(0, 2), (1, 1)], &[(3, 1), (0, 1)], &[(1, 0)], &[(u64::MAX, 2)]] {
            assert!(!layout(runs).is_valid(), "{runs:?}");
        }
    }
}
