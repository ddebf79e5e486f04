//! The character device `/dev/niclabN`, between the kernel driver and a user program.
//!
//! One open file owns at most one port. Closing the file, or the death of its process, closes the port.
//!
//! The `mmap` offset selects what is mapped. Only the owner of a port can map its pages. `poll` reports readable after
//! an interrupt for the port. `read` of eight bytes returns the number of interrupts since the last `read` (`EAGAIN` if
//! there was none and the file is non-blocking). When the device is gone, every call fails with `ENODEV`, and `poll`
//! reports `POLLERR | POLLHUP`. Existing mappings stay readable while the driver is bound.
//!
//! If the file has no port, a request, `read` or `mmap` that needs one fails with `ENOTCONN`; a bad argument fails with
//! `EINVAL`. Refusals of the device are `EBUSY` ([`crate::control::STATUS_PORT_BUSY`]), `ENOSPC` (`STATUS_NO_SPACE`),
//! `ENOENT` (`STATUS_NOT_FOUND`), `EINVAL` (`STATUS_BAD_VALUE`), `ENXIO` (`STATUS_BAD_PORT`), `EFAULT`
//! (`STATUS_BAD_ADDRESS`), `EOPNOTSUPP` (`STATUS_BAD_OPERATION`), and otherwise `EPROTO`. `mmap` requires `MAP_SHARED`.
//! It fails with `EACCES` for more access than the window allows, and with `ENXIO` if this machine's doorbell cannot be
//! mapped.

use crate::layout;

/// `mmap` offset of the information page: read-only.
pub const MAP_INFO: u64 = 0;
/// `mmap` offset of the doorbell page: a 16-bit store of [`crate::QUEUE_DOORBELL`] to its first byte rings the
/// doorbell.
pub const MAP_DOORBELL: u64 = 0x1000;
/// `mmap` offset of the port's receive memory, [`OpenPort::receive_bytes`] long: the status line at its first byte, the
/// slices from [`RECEIVE_SLICES_OFFSET`] on. Read-only for the program.
pub const MAP_RECEIVE: u64 = 0x10_0000;
/// `mmap` offset of the first window of the BAR. The others follow at multiples of [`MAP_WINDOW_STRIDE`], in the order
/// of the table ([`crate::bar::Window`]). If a window has a part for each port, the mapping is the part of the file's
/// port. A mapping may begin at a later page of the window, and must not exceed the window.
pub const MAP_WINDOWS: u64 = 0x1000_0000;
/// Distance in bytes between the `mmap` offsets of two windows.
pub const MAP_WINDOW_STRIDE: u64 = 0x100_0000;
const _: () = assert!(crate::bar::MAX_BAR_PAGES as u64 * crate::PAGE_BYTES <= MAP_WINDOW_STRIDE);
/// Byte offset of the first slice in the receive memory.
pub const RECEIVE_SLICES_OFFSET: u64 = crate::PAGE_BYTES;

/// `type` byte of all requests.
pub const IOCTL_TYPE: u32 = 0xf5;

layout! {
    /// Argument of [`IOCTL_OPEN_PORT`].
    pub struct OpenPort: 32 {
        /// In: the port to open, or [`crate::control::PORT_ANY`]. Out: the port.
        pub port: u32,
        /// In: number of slices of the receive queue, a power of two, or zero for 256. Out: the number of slices.
        pub slices: u32,
        /// In: words of requester FIFO memory, or zero for an equal share.
        pub fifo_words: u32,
        /// Zero.
        pub reserved0: u32,
        /// Out: number of bytes to map at [`MAP_RECEIVE`].
        pub receive_bytes: u64,
        /// Zero.
        pub reserved1: u64,
    }
}

layout! {
    /// Argument of [`IOCTL_ROUTE`], [`IOCTL_AUTHORIZE`] and [`IOCTL_REVOKE`], for the file's port.
    pub struct Peer: 16 {
        /// The other node.
        pub node: u32,
        /// Its port.
        pub port: u32,
        /// [`IOCTL_AUTHORIZE`]: number of slices reserved for it. Otherwise zero.
        pub credits: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_REGISTER`] and [`IOCTL_DEREGISTER`].
    pub struct Registration: 24 {
        /// [`IOCTL_REGISTER`]: address of the first byte in the program's memory, which must be writable.
        pub address: u64,
        /// [`IOCTL_REGISTER`]: length in bytes, 1..=[`MAX_REGISTRATION_BYTES`]; it need not be whole pages.
        pub bytes: u64,
        /// The region: output of [`IOCTL_REGISTER`], input of [`IOCTL_DEREGISTER`].
        pub region: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_GROUP`], for the file's port.
    pub struct GroupOf: 16 {
        /// Name of the group, as in [`crate::inic::PostGroup::group`].
        pub group: u32,
        /// Number of members, at most [`crate::inic::POST_MAX_MEMBERS`]; zero: the group is dropped.
        pub members: u32,
        /// Address of their node numbers of 32 bits each.
        pub nodes: u64,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_OPEN`].
    pub struct ActiveOpen: 32 {
        /// In: the port to open, or [`crate::control::PORT_ANY`]. Out: the port.
        pub port: u32,
        /// Number of receive buffers, 1..=[`ACTIVE_MAX_BUFFERS`].
        pub buffers: u32,
        /// Address of the first buffer in the program's memory, which must be writable. The other buffers follow it.
        pub address: u64,
        /// Length of each buffer in bytes: the longest message that the port accepts.
        pub buffer_bytes: u32,
        /// Zero.
        pub reserved0: u32,
        /// Out: number of frames after which the card interrupts; 0: never, so the program must poll.
        pub interrupt_frames: u32,
        /// Zero.
        pub reserved1: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_SEND`] and, with only the time limit, of [`IOCTL_ACTIVE_FLUSH`].
    pub struct ActiveSend: 32 {
        /// The receiving node.
        pub node: u32,
        /// Its port.
        pub port: u32,
        /// Address of the first byte in the program's memory.
        pub address: u64,
        /// Length of the message in bytes, at most [`crate::gamma::ACTIVE_PORT_MAX_MESSAGE_BYTES`].
        pub bytes: u32,
        /// `ACTIVE_SEND_` flags.
        pub flags: u32,
        /// Longest wait, in milliseconds of wall time.
        pub timeout_ms: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_RECEIVE`].
    pub struct ActiveReceive: 40 {
        /// In: a buffer whose message the program has processed, or [`ACTIVE_NO_BUFFER`]. Out: the message's buffer, if
        /// it has one.
        pub buffer: u32,
        /// Out: length of the message in bytes.
        pub bytes: u32,
        /// Out: number of the message or error at this port, from 1.
        pub number: u64,
        /// Out: the sending node.
        pub node: u32,
        /// Out: its port.
        pub port: u32,
        /// Out: `ACTIVE_ERROR_` flags; zero: a message is in the buffer.
        pub errors: u32,
        /// Out: number of lost frames of that node. No other call reports them.
        pub lost_frames: u32,
        /// In: longest sleep in milliseconds if there is no message and the card interrupts. Zero: no sleep.
        pub timeout_ms: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Maximum number of receive buffers of an active port.
pub const ACTIVE_MAX_BUFFERS: u32 = 1024;
/// No buffer.
pub const ACTIVE_NO_BUFFER: u32 = u32::MAX;
/// [`ActiveSend::flags`]: waits for room in the window, and until the last frame has left. Without this flag the
/// request waits only for the window, and only once the message has begun. The memory must then not change until
/// [`IOCTL_ACTIVE_FLUSH`].
pub const ACTIVE_SEND_BLOCK: u32 = 1 << 0;
/// [`ActiveSend::flags`], without [`ACTIVE_SEND_BLOCK`]: another message follows, so the card need not be notified of
/// this one yet. It is notified when a request of any file sends without this flag, finds no room, polls the rings for
/// a message, waits or flushes; and when an active port is closed.
pub const ACTIVE_SEND_MORE: u32 = 1 << 1;
/// [`ActiveReceive::errors`]: frames did not arrive.
pub const ACTIVE_ERROR_LOST: u32 = 1 << 0;
/// [`ActiveReceive::errors`]: part of a message did not arrive, and the message was dropped.
pub const ACTIVE_ERROR_INCOMPLETE: u32 = 1 << 1;
/// [`ActiveReceive::errors`]: a message was longer than a buffer, and was dropped.
pub const ACTIVE_ERROR_TOO_LONG: u32 = 1 << 2;
/// [`ActiveReceive::errors`]: no buffer was free for a message for too long. The driver dropped it, so that other
/// messages do not wait.
pub const ACTIVE_ERROR_NO_BUFFER: u32 = 1 << 3;

/// Maximum length of one [`Registration`] in bytes. It limits the pages that a request pins before it can be
/// interrupted.
pub const MAX_REGISTRATION_BYTES: u64 = 1 << 30;

const READ: u32 = 2;
const WRITE: u32 = 1;

/// Linux `_IOC`: direction, argument size, type, number.
const fn request(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | IOCTL_TYPE << 8 | number
}

/// Reads the [`crate::config::DeviceConfig`].
pub const IOCTL_INFO: u32 = request(READ, 0, size_of::<crate::config::DeviceConfig>());
/// Opens a port for this file, [`OpenPort`]. `EBUSY`: the file has a port, or the port is open; `ENOSPC`: no port is
/// free.
pub const IOCTL_OPEN_PORT: u32 = request(READ | WRITE, 1, size_of::<OpenPort>());
/// Closes the file's port. Its mappings are removed: an access raises `SIGBUS`.
pub const IOCTL_CLOSE_PORT: u32 = request(0, 2, 0);
/// Sets the destination of the port, [`Peer`].
pub const IOCTL_ROUTE: u32 = request(WRITE, 3, size_of::<Peer>());
/// Allows [`Peer`] to send to the port.
pub const IOCTL_AUTHORIZE: u32 = request(WRITE, 4, size_of::<Peer>());
/// Revokes this right.
pub const IOCTL_REVOKE: u32 = request(WRITE, 5, size_of::<Peer>());
/// Tests whether the device replies: `ENODEV` if it does not reply within
/// [`crate::config::DeviceConfig::control_timeout_ms`]. The file needs no port.
pub const IOCTL_CHECK: u32 = request(0, 6, 0);
/// Pins part of the program's memory and registers it with the device for the file's port, [`Registration`]. It stays
/// pinned until it is deregistered, the port or the file is closed, or the process dies. `EFAULT`: not all of it is
/// writable memory of the program; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `ENOSPC`: the device has no free region;
/// `EOPNOTSUPP`: this model has no regions.
pub const IOCTL_REGISTER: u32 = request(READ | WRITE, 7, size_of::<Registration>());
/// Deregisters it. The device does not access the memory afterwards. `ENOENT`: the region does not exist.
pub const IOCTL_DEREGISTER: u32 = request(WRITE, 8, size_of::<Registration>());
/// Changes when the device interrupts for the file's port, [`crate::inic::PostRules`] with port zero. `EOPNOTSUPP`:
/// this model has no such rules, or its protocol has no component for them.
pub const IOCTL_RULES: u32 = request(WRITE, 9, size_of::<crate::inic::PostRules>());
/// Makes a group of nodes for the file's port, or drops it, [`GroupOf`]. `EFAULT`: the members cannot be read;
/// `EINVAL`: the name is in use, or the members are invalid; `ENOSPC`: the maximum number of groups exists; `ENOENT`:
/// the group to drop does not exist; `EOPNOTSUPP`: this model has no groups, or its protocol loses messages.
pub const IOCTL_GROUP: u32 = request(WRITE, 10, size_of::<GroupOf>());
/// Sets the payload region of messages for the file's port, [`crate::grim::ChannelPayload`] with port zero.
/// `EBUSY`: the previous region has payload; `ENOENT`: the region does not exist; `EOPNOTSUPP`: this model has no
/// channels.
pub const IOCTL_CHANNEL_PAYLOAD: u32 = request(WRITE, 11, size_of::<crate::grim::ChannelPayload>());
/// Allows memory messages to write into a region of the file's port, or revokes this,
/// [`crate::grim::ChannelExpose`] with port zero. `ENOENT`: the region does not exist; `EOPNOTSUPP`: this model has
/// no channels.
pub const IOCTL_CHANNEL_EXPOSE: u32 = request(WRITE, 12, size_of::<crate::grim::ChannelExpose>());
/// Opens an active port for this file ([`crate::config::FEATURE_RINGS`]), and pins its receive buffers, [`ActiveOpen`].
/// It is closed with the file. `EBUSY`: the file has a port, or the port is open; `ENOSPC`: no port is free; `EFAULT`:
/// not all buffers are writable memory; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `EOPNOTSUPP`: this card has no rings.
pub const IOCTL_ACTIVE_OPEN: u32 = request(READ | WRITE, 13, size_of::<ActiveOpen>());
/// Sends a message from the file's active port, directly from the program's memory, [`ActiveSend`]. `EAGAIN`, without
/// [`ACTIVE_SEND_BLOCK`]: the window is used up, or another program is sending a message to that node. `EMSGSIZE`: the
/// message is too long. `ETIMEDOUT`: the window did not open in time, for example because an acknowledgement was lost;
/// the message is incomplete at its receiver. `ENXIO`: the card cannot reach the memory (beyond 4 GiB). `EIO`: the card
/// refused a frame.
pub const IOCTL_ACTIVE_SEND: u32 = request(WRITE, 14, size_of::<ActiveSend>());
/// Waits until all frames of the file's active port have left, [`ActiveSend`]. With a time limit of zero it does not
/// wait, `EAGAIN`: some have not left.
pub const IOCTL_ACTIVE_FLUSH: u32 = request(WRITE, 15, size_of::<ActiveSend>());
/// Returns a buffer, and takes the next message or error of the file's active port from the ring, [`ActiveReceive`].
/// `EAGAIN`: there is none, or a signal arrived first. `poll` reports readable if there is one already.
pub const IOCTL_ACTIVE_RECEIVE: u32 = request(READ | WRITE, 16, size_of::<ActiveReceive>());
