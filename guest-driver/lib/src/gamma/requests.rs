//! System calls of active ports, each with the type of its argument.

use std::fs::File;

use niclab_abi::ioctl::{
    ActiveOpen, ActiveReceive, ActiveSend, IOCTL_ACTIVE_FLUSH, IOCTL_ACTIVE_OPEN, IOCTL_ACTIVE_RECEIVE,
    IOCTL_ACTIVE_SEND, IOCTL_CHECK,
};
use nix::errno::Errno;

use crate::SharedMemory;
use crate::backing::descriptor;

mod raw {
    use super::{
        ActiveOpen, ActiveReceive, ActiveSend, IOCTL_ACTIVE_FLUSH, IOCTL_ACTIVE_OPEN, IOCTL_ACTIVE_RECEIVE,
        IOCTL_ACTIVE_SEND, IOCTL_CHECK,
    };
    nix::ioctl_readwrite_bad!(open, IOCTL_ACTIVE_OPEN, ActiveOpen);
    nix::ioctl_write_ptr_bad!(send, IOCTL_ACTIVE_SEND, ActiveSend);
    nix::ioctl_write_ptr_bad!(flush, IOCTL_ACTIVE_FLUSH, ActiveSend);
    nix::ioctl_readwrite_bad!(receive, IOCTL_ACTIVE_RECEIVE, ActiveReceive);
    nix::ioctl_none_bad!(check, IOCTL_CHECK);
}

/// Opens an active port with `memory` as its receive buffers. The caller keeps the memory while the file is open.
pub(super) fn open(file: &File, argument: &mut ActiveOpen, memory: &SharedMemory) -> Result<(), Errno> {
    argument.address = memory.address();
    // SAFETY: the request reads and writes `argument`, which lives during the call. The driver stores into the memory
    // that it names; `SharedMemory` allows that, because its words are atomics.
    unsafe { raw::open(descriptor(file), &raw mut *argument) }.map(drop)
}

/// Sends a message. If the send does not block, the caller keeps the memory unchanged until a flush.
pub(super) fn send(file: &File, argument: &ActiveSend) -> Result<(), Errno> {
    // SAFETY: the request reads `argument`, which lives during the call; the memory that it names is only read.
    unsafe { raw::send(descriptor(file), &raw const *argument) }.map(drop)
}

/// Waits until all messages have left.
pub(super) fn flush(file: &File, argument: &ActiveSend) -> Result<(), Errno> {
    // SAFETY: as in `send`.
    unsafe { raw::flush(descriptor(file), &raw const *argument) }.map(drop)
}

/// Returns a buffer and takes the next message or error.
pub(super) fn receive(file: &File, argument: &mut ActiveReceive) -> Result<(), Errno> {
    // SAFETY: the request reads and writes `argument`, which lives during the call.
    unsafe { raw::receive(descriptor(file), &raw mut *argument) }.map(drop)
}

/// Checks whether the device is alive.
pub(super) fn check(file: &File) -> Result<(), Errno> {
    // SAFETY: the request takes no argument.
    unsafe { raw::check(descriptor(file)) }.map(drop)
}
