//! Guest memory that vanishes under the device: one node's loss, and not the daemon's end.
//!
//! A front end keeps the file of the memory that it shares. It can cut the file short, or its filesystem can run out of
//! pages; the next access to what is gone raises SIGBUS, wherever in the models it happens and whichever node's thread
//! it is. The handler puts zeros in the place of the whole mapping, so that the access goes on, and calls the thread of
//! the connection whose memory it was, which ends that connection.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::attention::Attention;

/// Ranges of one block of the list.
const BLOCK: usize = 64;

/// One range of addresses. Written under [`WRITERS`], read by the signal handler, which cannot wait for a lock: an odd
/// version says that it is being written.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    attention: AtomicPtr<Attention>,
}

/// Blocks are never freed: ranges come and go, and take the slots of those that went.
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

    /// Called with [`WRITERS`] held.
    fn write(&self, start: usize, bytes: usize, attention: *mut Attention) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.attention.store(attention, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range, unless it is being written just now: then no access to it is under way.
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

/// All slots there are.
fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(Some(&FIRST), |block| block.next()).flat_map(|block| &block.slots)
}

/// A range that may vanish, as long as this lives. It must go before the mapping does.
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
    /// The mapping of `bytes` bytes at `start`, whole pages of whatever size the file has, of which `attention` is told
    /// when any of it vanishes.
    ///
    /// # Errors
    /// When the operating system refuses a signal handler.
    ///
    /// # Safety
    /// The range is one mapping, which belongs to the caller alone and stays until this value is dropped, and of which
    /// nothing is expected once it has vanished: all of it is zero from then on, and shared with nobody.
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

/// One more block at the end of the list; its first slot. Called with [`WRITERS`] held.
fn grow() -> &'static Slot {
    let mut last = &FIRST;
    while let Some(next) = last.next() {
        last = next;
    }
    let block: &'static mut Block = Box::leak(Box::new(Block::new()));
    let pointer: *mut Block = block;
    last.next.store(pointer, Ordering::Release);
    // SAFETY: the block was leaked: it lives as long as the process, and nobody changes it but by its atomics.
    let block: &'static Block = unsafe { &*pointer };
    let [first, ..] = &block.slots;
    first
}

/// What was done on SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all fields of the structure are integers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        // On the stack that Rust gives each thread for signals: the fault may be at the end of the other one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: as above.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both point to structures of this function. What was there before is known to the handler before it
        // can be called for a range, of which there is none yet; for anything else it falls back on the default.
        let failed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } != 0;
        let _ = BEFORE.set(before);
        if failed { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) } else { Ok(()) }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// Puts zeros where a guest's memory was, and lets the access go on. Any other SIGBUS has its ordinary course.
///
/// Nothing here allocates, locks or panics.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: each thread's own variable, which the code that was interrupted may be about to look at.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel gives a valid structure to a handler that was installed with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes from 0 down were sent by a process: then there is no address.
    let is_fixed = code > 0 && remedy(address);
    if !is_fixed {
        take_ordinary_course(signal, code);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// True when `address` was in a range, which is zeros now.
fn remedy(address: usize) -> bool {
    let found =
        slots().filter_map(Slot::read).find(|(start, bytes, _)| address.wrapping_sub(*start) < *bytes);
    let Some((start, bytes, attention)) = found else { return false };
    // SAFETY: the range is one mapping that belongs to whoever registered it, and it cannot go while the access that
    // led here is under way: whoever accesses it holds it. All of it is replaced, by memory with the same access
    // rights, so that pages of any size will do and no further access faults. The accesses are machine loads and stores
    // of volatile or atomic kind, for which what is found there may change at any time.
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
    // SAFETY: the range keeps what it points to alive, and the range lives, as said above.
    if let Some(attention) = unsafe { attention.as_ref() } {
        attention.lose_memory();
    }
    true
}

/// Does what was done before: Rust's own handler, which ends the process, or the default, which does so, too.
fn take_ordinary_course(signal: i32, code: i32) {
    // SAFETY: zero is a value for each field, and means the default; the pointers are to structures that live.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let before = BEFORE.get().unwrap_or(&default);
        libc::sigaction(signal, std::ptr::from_ref(before), null_mut());
        if code <= 0 {
            // Nothing faults again by itself.
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
    fn a_page_that_vanishes_is_zero_and_told_of() {
        let attention = Arc::new(Attention::new().unwrap());
        let others = Arc::new(Attention::new().unwrap());
        // Enough of them to need a second block, and the last one is the one that vanishes.
        let bytes = 0x4000;
        let mut kept = Vec::new();
        for _ in 0..BLOCK + 3 {
            let mapping = map(&file(bytes as u64), bytes);
            // SAFETY: the guard comes before the mapping in the tuple, hence goes first.
            let guard = unsafe { MayVanish::new(mapping.as_ptr() as usize, bytes, &others) };
            kept.push((guard.unwrap(), mapping));
        }
        let file = file(bytes as u64);
        let mapping = map(&file, bytes);
        // SAFETY: declared behind the mapping, hence dropped first.
        let guard = unsafe { MayVanish::new(mapping.as_ptr() as usize, bytes, &attention) }.unwrap();
        word(&mapping, 0).store(7, Ordering::Relaxed);
        assert_eq!(word(&mapping, 0x3000).load(Ordering::Relaxed), 0);
        assert!(!attention.has_lost_memory());
        file.set_len(0x1000).unwrap();
        word(&mapping, 0x3000).store(9, Ordering::Relaxed);
        assert!(attention.has_lost_memory() && !others.has_lost_memory());
        assert_eq!(word(&mapping, 0x3000).load(Ordering::Relaxed), 9, "an access goes on");
        assert_eq!(word(&mapping, 0).load(Ordering::Relaxed), 0, "none of it is shared any more");
        drop(guard);
    }

    #[test]
    fn what_is_not_registered_still_ends_the_process() {
        let file = file(0x1000);
        let mapping = map(&file, 0x1000);
        let attention = Arc::new(Attention::new().unwrap());
        // SAFETY: the guard goes at the end of this statement.
        drop(unsafe { MayVanish::new(mapping.as_ptr() as usize, 0x1000, &attention) }.unwrap());
        file.set_len(0).unwrap();
        // SAFETY: the child does nothing but one access, which ends it.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                word(&mapping, 0).store(1, Ordering::Relaxed);
                // SAFETY: ends the child without running anything of its parent's.
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
