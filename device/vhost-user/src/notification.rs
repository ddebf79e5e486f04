//! The events by which guest and device notify each other. The front end supplies them, and cannot use them to make
//! the device wait.
//!
//! A front end shares the flags and the counter of each event. It can clear the non-blocking flag after the daemon has
//! set it, and fill the counter between the daemon's check and its write. (The attack: a plain `write` would then
//! block with nodes locked, for as long as the front end wants.) So each read has its own no-wait flag, and the
//! kernel's own signal, which cannot wait, notifies guests.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use parking_lot::Mutex;
use thiserror::Error;
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// The descriptor cannot be used as an event.
#[derive(Debug, Error)]
pub enum EventError {
    /// The descriptor is a pipe, which fills up, a file, which never empties, or of another kind.
    #[error("the descriptor is {0}, not an event; give one made by eventfd()")]
    NotAnEvent(String),
    /// The operating system refused.
    #[error("the event cannot be used: {0}")]
    System(#[from] io::Error),
}

/// The kernel's name of `file`, if it is known here and is not that of an event.
fn other_than_event(file: &File) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = link.to_string_lossy();
    // "anon_inode:[eventfd]", on newer kernels "anon_inode:[eventfd:7]" or similar.
    (!name.starts_with("anon_inode:[eventfd")).then(|| name.into_owned())
}

/// Accepts `file` as an event, and makes it non-blocking.
///
/// # Errors
/// [`EventError`].
pub fn adopt(file: File) -> Result<File, EventError> {
    if let Some(kind) = other_than_event(&file) {
        return Err(EventError::NotAnEvent(kind));
    }
    // QEMU's events are non-blocking already. The flag helps on kernels without the better methods.
    // SAFETY: the descriptor is open, and the two commands take and give plain flags.
    let set = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if set < 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(file)
}

/// Takes the number of rings of the guest since the last call. Never waits.
pub fn take(kick: BorrowedFd<'_>) -> u64 {
    read(kick, libc::RWF_NOWAIT).unwrap_or_else(|error| {
        // Another process has read it; or the kernel knows no RWF_NOWAIT for it (before 5.8).
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) { read_after_check(kick) } else { 0 }
    })
}

/// Whether the guest has rung since the last [`take`]. Never waits.
pub fn is_signalled(kick: BorrowedFd<'_>) -> bool {
    // An error counts as a ring, so that the guest is not blamed for it.
    poll(&mut [PollFd::new(kick, PollFlags::POLLIN)], PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

fn read(kick: BorrowedFd<'_>, flags: i32) -> io::Result<u64> {
    let mut count = [0; 8];
    let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // SAFETY: the descriptor is open as long as it is borrowed; `into` names `count`, which has eight writable bytes.
    let read = unsafe { libc::preadv2(kick.as_raw_fd(), &raw const into, 1, -1, flags) };
    if read == count.len() as isize { Ok(u64::from_ne_bytes(count)) } else { Err(io::Error::last_os_error()) }
}

/// The fallback: a check, then a read. A front end could still make it wait: it makes a shared event blocking again,
/// and reads it just between check and read.
fn read_after_check(kick: BorrowedFd<'_>) -> u64 {
    if is_signalled(kick) { read(kick, 0).unwrap_or(0) } else { 0 }
}

/// Notifies the guest by `call`. Never waits: if the event's counter is full, the guest is notified already. False if
/// the notification failed.
pub fn signal(call: BorrowedFd<'_>) -> bool {
    match signaller() {
        Some(signaller) => signaller.signal(call),
        None => write_after_check(call),
    }
}

/// The fallback for kernels without asynchronous I/O: a check, then a write. A front end could still make it wait: it
/// makes an event blocking again, and fills the counter just between check and write.
fn write_after_check(event: BorrowedFd<'_>) -> bool {
    let mut wanted = [PollFd::new(event, PollFlags::POLLOUT)];
    let has_room = poll(&mut wanted, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    // A counter without room is not zero: the event is signalled already.
    !has_room || nix::unistd::write(event, &1_u64.to_ne_bytes()).is_ok()
}

/// Has the kernel signal events. It submits an empty read that completes at once, and whose completion signals the
/// event.
/// The kernel then adds to the event's counter as much as fits, and wakes its waiters, without waiting itself.
struct Signaller {
    context: Mutex<IoContext>,
    nothing: File,
}

/// Maximum completed reads in the kernel's list before they are taken out of it.
const MAX_COMPLETED: u32 = 64;

/// The signaller of this process, made at its first use.
fn signaller() -> Option<&'static Signaller> {
    static SIGNALLER: OnceLock<Option<Signaller>> = OnceLock::new();
    SIGNALLER.get_or_init(|| Signaller::new().map_err(warn_of_fallback).ok()).as_ref()
}

/// Makes the signaller before a sandbox forbids it.
pub fn prepare() {
    let _ = signaller();
}

fn warn_of_fallback(error: io::Error) {
    log::warn!(
        "the kernel offers no asynchronous I/O ({error}): the daemon raises interrupts by write(), which a hostile \
         QEMU can block"
    );
}

impl Signaller {
    fn new() -> io::Result<Self> {
        let nothing = File::from(memfd_create(c"niclab-signal", MFdFlags::MFD_CLOEXEC)?);
        Ok(Self { context: Mutex::new(IoContext::new(MAX_COMPLETED)?), nothing })
    }

    fn signal(&self, event: BorrowedFd<'_>) -> bool {
        let mut read = IoControlBlock {
            aio_fildes: self.nothing.as_raw_fd() as u32,
            aio_lio_opcode: IOCB_CMD_PREAD as u16,
            aio_flags: IOCB_FLAG_RESFD,
            aio_resfd: event.as_raw_fd() as u32,
            ..IoControlBlock::default()
        };
        let context = self.context.lock();
        match context.submit(&[&mut read]) {
            Ok(1) => return true,
            // The list is full.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            _ => return false,
        }
        let mut completed = [IoEvent::default(); MAX_COMPLETED as usize];
        let emptied =
            context.get_events(0, &mut completed, Some(&mut libc::timespec { tv_sec: 0, tv_nsec: 0 }));
        emptied.is_ok() && matches!(context.submit(&[&mut read]), Ok(1))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd};

    use vmm_sys_util::eventfd::EventFd;

    use super::*;

    fn event(flags: i32) -> (EventFd, File) {
        let event = EventFd::new(flags).unwrap();
        let file = event.try_clone().unwrap();
        // SAFETY: the clone owns its descriptor, and gives it up here.
        let file = unsafe { File::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(file)) };
        (event, file)
    }

    fn make_blocking(event: &EventFd) {
        // SAFETY: the descriptor is open, and the command takes plain flags.
        assert_eq!(unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_RDWR) }, 0);
    }

    #[test]
    fn signal_does_not_wait_for_a_full_blocking_event() {
        let (theirs, ours) = event(0);
        let call = adopt(ours).unwrap();
        make_blocking(&theirs);
        theirs.write(u64::MAX - 1).unwrap();
        for _ in 0..1_000 {
            assert!(signal(call.as_fd()));
        }
        assert!(theirs.read().unwrap() >= u64::MAX - 1);
        // The event still counts each call, also more calls than the list of completed reads has room for.
        for _ in 0..1_000 {
            assert!(signal(call.as_fd()));
        }
        assert_eq!(theirs.read().unwrap(), 1_000);
    }

    #[test]
    fn fallback_write_does_not_wait_for_a_full_event() {
        let (theirs, ours) = event(0);
        theirs.write(u64::MAX - 1).unwrap();
        assert!(write_after_check(ours.as_fd()));
        theirs.read().unwrap();
        assert!(write_after_check(ours.as_fd()));
        assert_eq!(theirs.read().unwrap(), 1);
    }

    #[test]
    fn take_counts_rings_and_does_not_wait_for_an_empty_kick() {
        let (theirs, ours) = event(0);
        let kick = adopt(ours).unwrap();
        make_blocking(&theirs);
        assert_eq!(take(kick.as_fd()), 0);
        theirs.write(3).unwrap();
        assert_eq!((take(kick.as_fd()), take(kick.as_fd())), (3, 0));
        theirs.write(4).unwrap();
        let second_best = || read_after_check(kick.as_fd());
        assert_eq!((second_best(), second_best()), (4, 0));
    }

    #[test]
    fn descriptor_that_is_not_an_event_is_refused() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let pipe = || File::from(std::os::fd::OwnedFd::from(writer.try_clone().unwrap()));
        let refused = adopt(pipe()).unwrap_err().to_string();
        assert!(refused.contains("pipe:") && refused.contains("not an event"), "{refused}");
        assert!(adopt(tempfile::tempfile().unwrap()).is_err());
    }
}
