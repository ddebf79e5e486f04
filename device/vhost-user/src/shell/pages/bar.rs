//! The memory of a BAR: a file that the guest and the device share. All access is by atomic words or copies, because
//! the guest stores at any time.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::PAGE_BYTES;
use niclab_abi::bar::{WINDOW_COMPLETER, WINDOW_REQUESTER, Window};
use niclab_model::nic::windows::{self, LayoutError, lay_out};
use niclab_model::nic::{FrameBytes, WindowRange};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use thiserror::Error;
use vm_memory::FileOffset;
use vm_memory::mmap::{MmapRegion, MmapRegionError};

use crate::memory::{FileIdentity, identity};

const WORDS_PER_PAGE: usize = PAGE_BYTES as usize / 8;

/// The memory of a BAR cannot be created.
#[derive(Debug, Error)]
pub enum PagesError {
    /// The windows of the model are invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The kernel refused the file.
    #[error("cannot make a memory file of {bytes} bytes for a BAR: {error}; is the memory limit too low?")]
    File {
        /// Bytes wanted.
        bytes: u64,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The kernel refused to fix the file's size.
    #[error("cannot seal the memory file of a BAR: {0}")]
    Seal(#[source] io::Error),
    /// The kernel refused the mapping.
    #[error("cannot map the memory file of a BAR: {0}")]
    Map(#[from] MmapRegionError),
}

/// The memory of one node's BAR, and its windows.
#[derive(Debug)]
pub struct Bar {
    file: File,
    mapping: MmapRegion,
    ports: u32,
    windows: Vec<Window>,
    requesters: Window,
    completers: Window,
}

impl Bar {
    /// A BAR with these windows for `ports` ports.
    ///
    /// # Errors
    /// [`PagesError`].
    pub fn new(windows: &[windows::Window], ports: u32) -> Result<Self, PagesError> {
        let layout = lay_out(windows, ports)?;
        let bytes = u64::from(layout.pages) * PAGE_BYTES;
        let file_error = |error| PagesError::File { bytes, error };
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = memfd_create(c"niclab-bar", flags).map_err(|errno| file_error(errno.into()))?;
        let file = File::from(memory);
        file.set_len(bytes).map_err(file_error)?;
        // The front end gets this file. If it could truncate the file, the next poll of the pages would end with
        // SIGBUS.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|errno| PagesError::Seal(errno.into()))?;
        let shared = file.try_clone().map_err(file_error)?;
        let mapping = MmapRegion::from_file(FileOffset::new(shared, 0), bytes as usize)?;
        // Every layout has one of each.
        let of_kind =
            |kind| layout.table.iter().find(|window| window.kind == kind).copied().unwrap_or_default();
        Ok(Self {
            file,
            mapping,
            ports,
            requesters: of_kind(WINDOW_REQUESTER),
            completers: of_kind(WINDOW_COMPLETER),
            windows: layout.table,
        })
    }

    /// The memory file, for the front end to map.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Identifies the file in a memory table.
    pub fn identity(&self) -> Option<FileIdentity> {
        identity(&self.file)
    }

    /// Bytes of the BAR, a power of two.
    pub fn bytes(&self) -> u64 {
        self.mapping.size() as u64
    }

    /// The windows.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Zeroes everything but the information page.
    ///
    /// # Errors
    /// The kernel's, if it does not take the pages back. They are zero even then.
    pub fn clear(&mut self) -> io::Result<()> {
        let first = PAGE_BYTES as usize;
        let bytes = self.mapping.size() - first;
        // SAFETY: the range is whole pages of the mapping, which this value owns. Its content goes, as if zeros were
        // stored: this process reads it only by atomics or by copies (`words`, `append`).
        let gone =
            unsafe { libc::madvise(self.mapping.as_ptr().add(first).cast(), bytes, libc::MADV_REMOVE) == 0 };
        let refused = io::Error::last_os_error();
        if !gone {
            self.words().iter().skip(WORDS_PER_PAGE).for_each(|word| word.store(0, Ordering::Relaxed));
        }
        fence(Ordering::SeqCst);
        if gone { Ok(()) } else { Err(refused) }
    }

    /// Zeroes the part of `port` in every window.
    pub fn clear_port(&mut self, port: u32) {
        for window in self.windows.iter().filter(|window| window.stride > 0) {
            let first = window.first_page + window.stride * port;
            let pages = (first..first + window.pages).flat_map(|page| self.page(page));
            pages.for_each(|word| word.store(0, Ordering::Relaxed));
        }
        fence(Ordering::SeqCst);
    }

    /// Appends bytes of a window to `into`. False if the window has no such bytes. The program may store there at the
    /// same time, and is then responsible for what is read.
    pub fn append(&self, range: &WindowRange, into: &mut FrameBytes) -> bool {
        let window = self.windows.iter().find(|window| window.kind == range.window);
        let Some(window) = window.filter(|_| range.port < self.ports) else { return false };
        let first_page = u64::from(window.first_page + window.stride * range.port);
        let is_inside =
            range.bytes.start <= range.bytes.end && range.bytes.end <= u64::from(window.pages) * PAGE_BYTES;
        if !is_inside {
            return false;
        }
        let begin = first_page * PAGE_BYTES + range.bytes.start;
        let end = first_page * PAGE_BYTES + range.bytes.end;
        let (begin, count) = (begin as usize, (end - begin) as usize);
        if begin + count > self.mapping.size() {
            return false;
        }
        let have = into.len();
        into.reserve(count);
        // SAFETY: the mapping keeps `count` bytes from `begin` on readable, as was just checked; `into` has reserved as
        // many behind the `have` that it holds, in memory of its own, which cannot overlap the BAR; all of them are
        // written before its length says so. What a program stores meanwhile is copied or not, and every bit pattern is
        // a byte.
        unsafe {
            let end = into.as_mut_ptr().add(have);
            std::ptr::copy_nonoverlapping(self.mapping.as_ptr().add(begin), end, count);
            into.set_len(have + count);
        }
        true
    }

    /// The requester page of `port`, from which it sends.
    #[inline]
    pub const fn requester_page(&self, port: u32) -> u32 {
        self.requesters.first_page + self.requesters.stride * port
    }

    /// The completer page of `port`, in which it reports what it has received.
    #[inline]
    pub const fn completer_page(&self, port: u32) -> u32 {
        self.completers.first_page + self.completers.stride * port
    }

    /// The words of a page; none beyond the end.
    #[inline]
    pub fn page(&self, page: u32) -> &[AtomicU64] {
        let first = page as usize * WORDS_PER_PAGE;
        self.words().get(first..first + WORDS_PER_PAGE).unwrap_or_default()
    }

    /// All words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `size()` bytes of readable and writable memory, aligned to a page, and lives as long
        // as `self`, from which the slice borrows. This process accesses it only through these atomics, or by a copy
        // (`append`); other processes use plain loads and stores. No process can shrink the file, because it is sealed.
        unsafe {
            std::slice::from_raw_parts(self.mapping.as_ptr().cast::<AtomicU64>(), self.mapping.size() / 8)
        }
    }
}
