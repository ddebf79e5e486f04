//! Guest memory that vanishes under the device. Its node is lost, but the daemon survives.
//!
//! A front end keeps the file of its shared memory. It can truncate the file, or the filesystem can run out of pages.
//! The next access to such a page raises SIGBUS, anywhere in the models and in any node's thread. The signal handler
//! maps zeros over the complete mapping, so that the access succeeds. It then wakes the thread of the connection that
//! supplied the memory, which ends that connection.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::attention::Attention;

/// Ranges in one block of the list.
const BLOCK: usize = 64;

/// One range of addresses. Threads write it under [`WRITERS`]. The signal handler, which cannot wait for a lock,
/// reads it: an odd version means that a write is in progress.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    attention: AtomicPtr<Attention>,
}

/// Blocks are never freed: new ranges reuse the slots of old ones.
struct Block {
    slots: [Slot; BLOCK],
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Self {
        Self { slots: [const { Slot::new() }; BLOCK], next: AtomicPtr::new(null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: the pointer is null, or comes from `Box::leak` of a block, which is never freed.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static FIRST: Block = Block::new();
static WRITERS: Mutex<()> = Mutex::new(());

impl Slot {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            attention: AtomicPtr::new(null_mut()),
        }
    }

    /// The caller holds [`WRITERS`].
    fn write(&self, start: usize, bytes: usize, attention: *mut Attention) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.attention.store(attention, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range. None while it is being written: no access to the range is then in progress.
    fn read(&self) -> Option<(usize, usize, *mut Attention)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let attention = self.attention.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((start, bytes, attention))
    }
}

/// All slots.
fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(Some(&FIRST), |block| block.next()).flat_map(|block| &block.slots)
}

/// A guard of a range that may vanish. It must be dropped before the mapping.
#[derive(Debug)]
pub struct MayVanish {
    slot: &'static Slot,
    _attention: Arc<Attention>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?}", self.read())
    }
}

impl MayVanish {
    /// Guards the mapping of `bytes` bytes at `start`, in complete pages of the file's page size. If a part of it
    /// vanishes, `attention` is woken.
    ///
    /// # Errors
    /// If the operating system refuses a signal handler.
    ///
    /// # Safety
    /// The range is one mapping, which belongs to the caller alone and exists until this value is dropped. After it
    /// has vanished, the caller expects nothing of it: all of it is zero, and no longer shared.
    pub unsafe fn new(start: usize, bytes: usize, attention: &Arc<Attention>) -> io::Result<Self> {
        install()?;
        let _writers = WRITERS.lock();
        let slot = slots().find(|slot| slot.read().is_some_and(|(_, bytes, _)| bytes == 0));
        let slot = slot.unwrap_or_else(grow);
        slot.write(start, bytes, Arc::as_ptr(attention).cast_mut());
        Ok(Self { slot, _attention: Arc::clone(attention) })
    }
}

impl Drop for MayVanish {
    fn drop(&mut self) {
        let _writers = WRITERS.lock();
        self.slot.write(0, 0, null_mut());
    }
}

/// Appends a block to the list, and returns its first slot. The caller holds [`WRITERS`].
fn grow() -> &'static Slot {
    let mut last = &FIRST;
    while let Some(next) = last.next() {
        last = next;
    }
    let block: &'static mut Block = Box::leak(Box::new(Block::new()));
    let pointer: *mut Block = block;
    last.next.store(pointer, Ordering::Release);
    // SAFETY: the block was leaked, so it lives as long as the process, and it changes only by its atomics.
    let block: &'static Block = unsafe { &*pointer };
    let [first, ..] = &block.slots;
    first
}

/// The action of SIGBUS before the handler was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all fields of the structure are integers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        // On the stack that Rust gives each thread for signals: the fault may be at the end of the normal stack.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: as above.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both point to structures of this function. `BEFORE` is set before the first range exists, so before
        // the handler is called for a range. For any other SIGBUS before that, the handler uses the default action.
        let failed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } != 0;
        let _ = BEFORE.set(before);
        if failed { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) } else { Ok(()) }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// Replaces a guest's vanished memory by zeros, so that the access succeeds. Any other SIGBUS has its earlier action.
///
/// Nothing here allocates, locks or panics.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the variable belongs to this thread, and the interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel gives a valid structure to a handler that was installed with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // If the code is 0 or less, a process sent the signal, and there is no address.
    let is_fixed = code > 0 && remedy(address);
    if !is_fixed {
        take_ordinary_course(signal, code);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Replaces the range of `address` by zeros. False if `address` is in no range.
fn remedy(address: usize) -> bool {
    let found =
        slots().filter_map(Slot::read).find(|(start, bytes, _)| address.wrapping_sub(*start) < *bytes);
    let Some((start, bytes, attention)) = found else { return false };
    // SAFETY: the range is one mapping, which belongs to the creator of its guard. The code whose access led here
    // holds the guard, so the mapping exists. All of it is replaced, by memory with the same access rights, so pages
    // of any size work and no further access faults. The accesses are machine loads and stores of volatile or atomic
    // kind, whose values may change at any time.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the guard keeps the attention alive, and exists, as said above.
    if let Some(attention) = unsafe { attention.as_ref() } {
        attention.lose_memory();
    }
    true
}

/// Restores the earlier action: Rust's own handler, or the default. Both end the process.
fn take_ordinary_course(signal: i32, code: i32) {
    // SAFETY: zero is a value for each field, and means the default; the pointers are to structures that live.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let before = BEFORE.get().unwrap_or(&default);
        libc::sigaction(signal, std::ptr::from_ref(before), null_mut());
        if code <= 0 {
            // A signal that a process sent does not repeat by itself.
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicU64;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use vm_memory::FileOffset;
    use vm_memory::mmap::MmapRegion;

    use super::*;

    fn file(bytes: u64) -> File {
        let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    fn map(file: &File, bytes: usize) -> MmapRegion {
        MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), bytes).unwrap()
    }

    fn word(mapping: &MmapRegion, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= mapping.size() && offset.is_multiple_of(8));
        // SAFETY: within the mapping and aligned, for as long as the mapping lives.
        unsafe { AtomicU64::from_ptr(mapping.as_ptr().add(offset).cast()) }
    }

    #[test]
    fn vanished_page_is_zero_and_wakes_its_connection() {
        let attention = Arc::new(Attention::new().unwrap());
        let others = Arc::new(Attention::new().unwrap());
        // There are enough ranges for a second block, and the last range vanishes.
        let bytes = 0x4000;
        let mut kept = Vec::new();
        for _ in 0..BLOCK + 3 {
            let mapping = map(&file(bytes as u64), bytes);
            // SAFETY: the guard comes before the mapping in the tuple, so it is dropped first.
            let guard = unsafe { MayVanish::new(mapping.as_ptr() as usize, bytes, &others) };
            kept.push((guard.unwrap(), mapping));
        }
        let file = file(bytes as u64);
        let mapping = map(&file, bytes);
        // SAFETY: declared after the mapping, so it is dropped first.
        let guard = unsafe { MayVanish::new(mapping.as_ptr() as usize, bytes, &attention) }.unwrap();
        word(&mapping, 0).store(7, Ordering::Relaxed);
        assert_eq!(word(&mapping, 0x3000).load(Ordering::Relaxed), 0);
        assert!(!attention.has_lost_memory());
        file.set_len(0x1000).unwrap();
        word(&mapping, 0x3000).store(9, Ordering::Relaxed);
        assert!(attention.has_lost_memory() && !others.has_lost_memory());
        assert_eq!(word(&mapping, 0x3000).load(Ordering::Relaxed), 9, "an access succeeds");
        assert_eq!(word(&mapping, 0).load(Ordering::Relaxed), 0, "no part of it is shared any more");
        drop(guard);
    }

    #[test]
    fn bus_error_in_unguarded_memory_ends_the_process() {
        let file = file(0x1000);
        let mapping = map(&file, 0x1000);
        let attention = Arc::new(Attention::new().unwrap());
        // SAFETY: the guard is dropped at the end of this statement.
        drop(unsafe { MayVanish::new(mapping.as_ptr() as usize, 0x1000, &attention) }.unwrap());
        file.set_len(0).unwrap();
        // SAFETY: the child does only one access, which ends it.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                word(&mapping, 0).store(1, Ordering::Relaxed);
                // SAFETY: ends the child and runs no handlers of its parent.
                unsafe { libc::_exit(0) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                let status = nix::sys::wait::waitpid(child, None).unwrap();
                let by_bus = matches!(
                    status,
                    nix::sys::wait::WaitStatus::Signaled(_, nix::sys::signal::Signal::SIGBUS, _)
                );
                assert!(by_bus, "{status:?}");
            }
        }
    }
}
