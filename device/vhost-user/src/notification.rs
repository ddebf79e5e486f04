//! The events by which guest and device call each other, as the front end gave them: nothing that it does to them makes
//! the device wait.
//!
//! A front end shares each of them, flags and counter included: it can take the non-blocking flag off again after it
//! was set, and fill the counter between a look at it and a write. A plain `write` would then wait, with the world
//! locked, for as long as the front end likes. So reads are told one by one not to wait, and calls are made by the
//! kernel's own signal, which cannot wait.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use parking_lot::Mutex;
use thiserror::Error;
use vmm_sys_util::aio::{IOCB_CMD_PREAD, IOCB_FLAG_RESFD, IoContext, IoControlBlock, IoEvent};

/// A descriptor that cannot be used as an event.
#[derive(Debug, Error)]
pub enum EventError {
    /// Pipes fill up, files never empty, and other kinds have other traps.
    #[error("the descriptor is {0}, not an event; give one made by eventfd()")]
    NotAnEvent(String),
    /// The operating system refused something.
    #[error("the event cannot be used: {0}")]
    System(#[from] io::Error),
}

/// What the kernel calls `file`, if that can be seen here and is not an event.
fn other_than_event(file: &File) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = link.to_string_lossy();
    // "anon_inode:[eventfd]", on newer kernels "anon_inode:[eventfd:7]" or alike.
    (!name.starts_with("anon_inode:[eventfd")).then(|| name.into_owned())
}

/// Takes `file` for an event by which guest and device call each other.
///
/// # Errors
/// [`EventError`].
pub fn adopt(file: File) -> Result<File, EventError> {
    if let Some(kind) = other_than_event(&file) {
        return Err(EventError::NotAnEvent(kind));
    }
    // QEMU's events are so anyway. It helps where the kernel has no better way.
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

/// How often the guest has rung by `kick` since the last call. Never waits.
pub fn take(kick: BorrowedFd<'_>) -> u64 {
    read(kick, libc::RWF_NOWAIT).unwrap_or_else(|error| {
        // Somebody else has read it; or the kernel cannot be told not to wait (before 5.8).
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) { read_if_there_is_some(kick) } else { 0 }
    })
}

/// Whether the guest has rung since it was taken last. Never waits.
pub fn is_signalled(kick: BorrowedFd<'_>) -> bool {
    // What cannot be said counts as a ring: nobody is blamed for it.
    poll(&mut [PollFd::new(kick, PollFlags::POLLIN)], PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

fn read(kick: BorrowedFd<'_>, flags: i32) -> io::Result<u64> {
    let mut count = [0; 8];
    let into = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // SAFETY: the descriptor is open as long as it is borrowed; `into` names `count`, which is eight writable bytes.
    let read = unsafe { libc::preadv2(kick.as_raw_fd(), &raw const into, 1, -1, flags) };
    if read == count.len() as isize { Ok(u64::from_ne_bytes(count)) } else { Err(io::Error::last_os_error()) }
}

/// The second best way: a look, then a read. A front end that shares an event which it made blocking again, and reads
/// it just between the two, could still make it wait.
fn read_if_there_is_some(kick: BorrowedFd<'_>) -> u64 {
    if is_signalled(kick) { read(kick, 0).unwrap_or(0) } else { 0 }
}

/// Calls the guest by `call`. Never waits: an event whose counter is full has been heard anyway. False when it could
/// not be done.
pub fn signal(call: BorrowedFd<'_>) -> bool {
    match signaller() {
        Some(signaller) => signaller.signal(call),
        None => write_if_there_is_room(call),
    }
}

/// The second best way, for kernels without asynchronous I/O: a look, then a write. A front end that fills the counter
/// just between the two, of an event that it made blocking again, could still make it wait.
fn write_if_there_is_room(event: BorrowedFd<'_>) -> bool {
    let mut wanted = [PollFd::new(event, PollFlags::POLLOUT)];
    let has_room = poll(&mut wanted, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    // A counter without room is not zero: whoever waits for the event has been called.
    !has_room || nix::unistd::write(event, &1_u64.to_ne_bytes()).is_ok()
}

/// Makes the kernel signal events: a read of nothing at all that is over at once, and whose end is to be told to the
/// event. The kernel adds to the event's counter then what fits, and calls whoever waits, without ever waiting itself.
struct Signaller {
    context: Mutex<IoContext>,
    nothing: File,
}

/// Reads that are over at once may wait so long in a list of those that are over before they are taken out of it.
const MAX_OVER: u32 = 64;

/// The one of this process, made at its first use.
fn signaller() -> Option<&'static Signaller> {
    static SIGNALLER: OnceLock<Option<Signaller>> = OnceLock::new();
    SIGNALLER.get_or_init(|| Signaller::new().map_err(report_none).ok()).as_ref()
}

/// Makes what signals events, before a sandbox forbids it.
pub fn prepare() {
    let _ = signaller();
}

fn report_none(error: io::Error) {
    log::warn!("no asynchronous I/O ({error}): interrupts are written, which a hostile QEMU can hold up");
}

impl Signaller {
    fn new() -> io::Result<Self> {
        let nothing = File::from(memfd_create(c"niclab-signal", MFdFlags::MFD_CLOEXEC)?);
        Ok(Self { context: Mutex::new(IoContext::new(MAX_OVER)?), nothing })
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
        let mut over = [IoEvent::default(); MAX_OVER as usize];
        let emptied = context.get_events(0, &mut over, Some(&mut libc::timespec { tv_sec: 0, tv_nsec: 0 }));
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
    fn a_full_event_that_was_made_blocking_again_holds_nobody_up() {
        let (theirs, ours) = event(0);
        let call = adopt(ours).unwrap();
        make_blocking(&theirs);
        theirs.write(u64::MAX - 1).unwrap();
        for _ in 0..1_000 {
            assert!(signal(call.as_fd()));
        }
        assert!(theirs.read().unwrap() >= u64::MAX - 1);
        // And it still counts each call, more than the list of those that are over can hold.
        for _ in 0..1_000 {
            assert!(signal(call.as_fd()));
        }
        assert_eq!(theirs.read().unwrap(), 1_000);
    }

    #[test]
    fn without_the_signaller_a_full_event_holds_nobody_up_either() {
        let (theirs, ours) = event(0);
        theirs.write(u64::MAX - 1).unwrap();
        assert!(write_if_there_is_room(ours.as_fd()));
        theirs.read().unwrap();
        assert!(write_if_there_is_room(ours.as_fd()));
        assert_eq!(theirs.read().unwrap(), 1);
    }

    #[test]
    fn an_empty_blocking_kick_holds_nobody_up_and_a_rung_one_counts() {
        let (theirs, ours) = event(0);
        let kick = adopt(ours).unwrap();
        make_blocking(&theirs);
        assert_eq!(take(kick.as_fd()), 0);
        theirs.write(3).unwrap();
        assert_eq!((take(kick.as_fd()), take(kick.as_fd())), (3, 0));
        theirs.write(4).unwrap();
        let second_best = || read_if_there_is_some(kick.as_fd());
        assert_eq!((second_best(), second_best()), (4, 0));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let pipe = || File::from(std::os::fd::OwnedFd::from(writer.try_clone().unwrap()));
        let refused = adopt(pipe()).unwrap_err().to_string();
        assert!(refused.contains("pipe:") && refused.contains("not an event"), "{refused}");
        assert!(adopt(tempfile::tempfile().unwrap()).is_err());
    }
}
