//! The character device `/dev/niclabN`, between the kernel driver and a user program.
//!
//! One open file owns at most one port. Closing the file, or the death of its process, closes the port.
//!
//! `mmap` offsets choose what is mapped; only the owner of a port can map its pages. `poll` reports readable after an
//! interrupt for the port; `read` of eight bytes returns how many there were since the last `read` (`EAGAIN` when none
//! and the file is non-blocking). When the device is gone every call fails with `ENODEV`, and `poll` reports `POLLERR |
//! POLLHUP`; mappings that exist stay readable while the driver is bound.
//!
//! A request, `read` or `mmap` that takes a port fails with `ENOTCONN` when the file has none; a bad argument with
//! `EINVAL`. What the device refuses comes back as `EBUSY` ([`crate::control::STATUS_PORT_BUSY`]), `ENOSPC`
//! (`STATUS_NO_SPACE`), `ENOENT` (`STATUS_NOT_FOUND`), `EINVAL` (`STATUS_BAD_VALUE`), `ENXIO` (`STATUS_BAD_PORT`),
//! `EFAULT` (`STATUS_BAD_ADDRESS`), `EOPNOTSUPP` (`STATUS_BAD_OPERATION`), or else as `EPROTO`. `mmap` wants
//! `MAP_SHARED`, fails with `EACCES` when it asks for more than the window allows, and with `ENXIO` when this machine's
//! doorbell cannot be mapped.

use crate::layout;

/// `mmap` offset of the information page: read-only.
pub const MAP_INFO: u64 = 0;
/// `mmap` offset of the doorbell page: a 16-bit store of [`crate::QUEUE_DOORBELL`] at its first byte rings.
pub const MAP_DOORBELL: u64 = 0x1000;
/// `mmap` offset of the port's receive memory: the status line at its first byte, the slices from
/// [`RECEIVE_SLICES_OFFSET`] on; [`OpenPort::receive_bytes`] long. Read-only for the program.
pub const MAP_RECEIVE: u64 = 0x10_0000;
/// `mmap` offset of the first window of the BAR; of the others, each [`MAP_WINDOW_STRIDE`] further, in the order of the
/// table ([`crate::bar::Window`]). Of a window that ports have parts of, the part of the file's port. A mapping may
/// begin at a later page, and ends with the window at the latest.
pub const MAP_WINDOWS: u64 = 0x1000_0000;
/// Bytes from one window's `mmap` offset to the next one's.
pub const MAP_WINDOW_STRIDE: u64 = 0x100_0000;
const _: () = assert!(crate::bar::MAX_BAR_PAGES as u64 * crate::PAGE_BYTES <= MAP_WINDOW_STRIDE);
/// Byte offset of the first slice in the receive memory.
pub const RECEIVE_SLICES_OFFSET: u64 = crate::PAGE_BYTES;

/// `type` byte of all requests.
pub const IOCTL_TYPE: u32 = 0xf5;

layout! {
    /// Argument of [`IOCTL_OPEN_PORT`].
    pub struct OpenPort: 32 {
        /// In: the port wanted or [`crate::control::PORT_ANY`]. Out: the port.
        pub port: u32,
        /// In: slices of the receive queue, a power of two, or zero for 256. Out: the slices.
        pub slices: u32,
        /// In: words of requester FIFO, or zero for an equal share.
        pub fifo_words: u32,
        /// Zero.
        pub reserved0: u32,
        /// Out: bytes to map at [`MAP_RECEIVE`].
        pub receive_bytes: u64,
        /// Zero.
        pub reserved1: u64,
    }
}

layout! {
    /// Argument of [`IOCTL_ROUTE`], [`IOCTL_AUTHORIZE`] and [`IOCTL_REVOKE`]; the file's port is meant.
    pub struct Peer: 16 {
        /// The other node.
        pub node: u32,
        /// Its port.
        pub port: u32,
        /// [`IOCTL_AUTHORIZE`]: slices set aside for it. Otherwise zero.
        pub credits: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_REGISTER`] and [`IOCTL_DEREGISTER`].
    pub struct Registration: 24 {
        /// [`IOCTL_REGISTER`]: first byte in the program's memory; the memory must be writable.
        pub address: u64,
        /// [`IOCTL_REGISTER`]: its length, 1..=[`MAX_REGISTRATION_BYTES`]; need not be whole pages.
        pub bytes: u64,
        /// The region: out of [`IOCTL_REGISTER`], into [`IOCTL_DEREGISTER`].
        pub region: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_GROUP`]; the file's port is meant.
    pub struct GroupOf: 16 {
        /// Name of the group, as [`crate::posts::PostGroup::group`].
        pub group: u32,
        /// Members, at most [`crate::posts::POST_MAX_MEMBERS`]; none: the group is dropped.
        pub members: u32,
        /// Address of their node numbers, of 32 bits each.
        pub nodes: u64,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_OPEN`].
    pub struct ActiveOpen: 32 {
        /// In: the port wanted or [`crate::control::PORT_ANY`]. Out: the port.
        pub port: u32,
        /// Receive buffers, 1..=[`ACTIVE_MAX_BUFFERS`].
        pub buffers: u32,
        /// First byte of the first in the program's memory, which must be writable; the others lie behind it.
        pub address: u64,
        /// Bytes of each: of the longest message that the port takes.
        pub buffer_bytes: u32,
        /// Zero.
        pub reserved0: u32,
        /// Out: frames after which the card interrupts; 0: never, so that a program must look for itself.
        pub interrupt_frames: u32,
        /// Zero.
        pub reserved1: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_SEND`] and, with a time limit alone, of [`IOCTL_ACTIVE_FLUSH`].
    pub struct ActiveSend: 32 {
        /// The receiving node.
        pub node: u32,
        /// Its port.
        pub port: u32,
        /// First byte in the program's memory.
        pub address: u64,
        /// Length of the message, at most [`crate::active_ports::ACTIVE_PORT_MAX_MESSAGE_BYTES`].
        pub bytes: u32,
        /// `ACTIVE_SEND_` flags.
        pub flags: u32,
        /// Longest wait, wall time.
        pub timeout_ms: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Argument of [`IOCTL_ACTIVE_RECEIVE`].
    pub struct ActiveReceive: 40 {
        /// In: a buffer whose message the program has done with, or [`ACTIVE_NO_BUFFER`]. Out: the message's buffer, if
        /// it has one.
        pub buffer: u32,
        /// Out: its length.
        pub bytes: u32,
        /// Out: number among the port's messages and errors, from 1.
        pub number: u64,
        /// Out: the sending node.
        pub node: u32,
        /// Out: its port.
        pub port: u32,
        /// Out: `ACTIVE_ERROR_` flags; none: a message is in the buffer.
        pub errors: u32,
        /// Out: frames of that node that did not come, told here and nowhere else.
        pub lost_frames: u32,
        /// In: how long to sleep, in milliseconds, where there is none and the card interrupts. Zero: not at all.
        pub timeout_ms: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Most receive buffers of an active port.
pub const ACTIVE_MAX_BUFFERS: u32 = 1024;
/// No buffer.
pub const ACTIVE_NO_BUFFER: u32 = u32::MAX;
/// [`ActiveSend::flags`]: waits while the window lets nothing through, and until the last frame has left. Without this
/// flag only the window is waited for, once the message has begun, and the memory must stay as it is until
/// [`IOCTL_ACTIVE_FLUSH`].
pub const ACTIVE_SEND_BLOCK: u32 = 1 << 0;
/// [`ActiveReceive::errors`]: frames did not come.
pub const ACTIVE_ERROR_LOST: u32 = 1 << 0;
/// [`ActiveReceive::errors`]: part of a message did not come, and the message is dropped.
pub const ACTIVE_ERROR_INCOMPLETE: u32 = 1 << 1;
/// [`ActiveReceive::errors`]: a message was longer than a buffer, and is dropped.
pub const ACTIVE_ERROR_TOO_LONG: u32 = 1 << 2;
/// [`ActiveReceive::errors`]: no buffer was free for a message, for so long that it was dropped lest others wait with
/// it.
pub const ACTIVE_ERROR_NO_BUFFER: u32 = 1 << 3;

/// Most bytes of one [`Registration`]: what a request pins before anybody can interrupt it stays bounded.
pub const MAX_REGISTRATION_BYTES: u64 = 1 << 30;

const READ: u32 = 2;
const WRITE: u32 = 1;

/// Linux `_IOC`: direction, argument size, type, number.
const fn request(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | IOCTL_TYPE << 8 | number
}

/// Copies the [`crate::config::DeviceConfig`] out.
pub const IOCTL_INFO: u32 = request(READ, 0, size_of::<crate::config::DeviceConfig>());
/// Opens a port for this file, [`OpenPort`]. `EBUSY`: the file or the port has one already; `ENOSPC`: none is free.
pub const IOCTL_OPEN_PORT: u32 = request(READ | WRITE, 1, size_of::<OpenPort>());
/// Closes the file's port. Its mappings are gone: touching them raises `SIGBUS`.
pub const IOCTL_CLOSE_PORT: u32 = request(0, 2, 0);
/// Sets where the port sends, [`Peer`].
pub const IOCTL_ROUTE: u32 = request(WRITE, 3, size_of::<Peer>());
/// Lets [`Peer`] send to the port.
pub const IOCTL_AUTHORIZE: u32 = request(WRITE, 4, size_of::<Peer>());
/// Takes that right back.
pub const IOCTL_REVOKE: u32 = request(WRITE, 5, size_of::<Peer>());
/// Asks the device whether it lives: `ENODEV` when it does not answer within
/// [`crate::config::DeviceConfig::control_timeout_ms`]. The file needs no port.
pub const IOCTL_CHECK: u32 = request(0, 6, 0);
/// Pins part of the program's memory and registers it with the device for the file's port, [`Registration`]. It stays
/// pinned until it is deregistered, the port is closed or the file is, be it by the death of the process. `EFAULT`: not
/// all of it is writable memory of the program; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `ENOSPC`: the device has no region
/// left; `EOPNOTSUPP`: this model has no regions.
pub const IOCTL_REGISTER: u32 = request(READ | WRITE, 7, size_of::<Registration>());
/// Takes that back. Once done, the device touches the memory no more. `ENOENT`: there is no such region.
pub const IOCTL_DEREGISTER: u32 = request(WRITE, 8, size_of::<Registration>());
/// Changes when the device interrupts for the file's port, [`crate::posts::PostRules`], whose port is zero.
/// `EOPNOTSUPP`: this model has no such rules, or its protocol no component for them.
pub const IOCTL_RULES: u32 = request(WRITE, 9, size_of::<crate::posts::PostRules>());
/// Makes a group of nodes for the file's port, or drops it, [`GroupOf`]. `EFAULT`: the members cannot be read;
/// `EINVAL`: there is a group of this name, or they are none of one; `ENOSPC`: there are as many groups as may be;
/// `ENOENT`: there is none to drop; `EOPNOTSUPP`: this model has no groups, or its protocol loses messages.
pub const IOCTL_GROUP: u32 = request(WRITE, 10, size_of::<GroupOf>());
/// Says where the payload of messages for the file's port goes, [`crate::channels::ChannelPayload`], whose port is
/// zero. `EBUSY`: payload is in the region before; `ENOENT`: there is no such region; `EOPNOTSUPP`: this model has no
/// channels.
pub const IOCTL_CHANNEL_PAYLOAD: u32 = request(WRITE, 11, size_of::<crate::channels::ChannelPayload>());
/// Lets memory messages write into a region of the file's port, or takes that back, [`crate::channels::ChannelExpose`],
/// whose port is zero. `ENOENT`: there is no such region; `EOPNOTSUPP`: this model has no channels.
pub const IOCTL_CHANNEL_EXPOSE: u32 = request(WRITE, 12, size_of::<crate::channels::ChannelExpose>());
/// Opens an active port for this file ([`crate::config::FEATURE_RINGS`]), with receive buffers that are pinned,
/// [`ActiveOpen`]. It is closed with the file. `EBUSY`: the file or the port has one already; `ENOSPC`: none is free;
/// `EFAULT`: not all of the buffers is writable memory; `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `EOPNOTSUPP`: this card has
/// no rings.
pub const IOCTL_ACTIVE_OPEN: u32 = request(READ | WRITE, 13, size_of::<ActiveOpen>());
/// Sends a message from the file's active port, out of the program's own memory, [`ActiveSend`]. `EAGAIN`, of one that
/// shall not block: the window lets nothing through now, or another program is in the middle of a message to that node.
/// `EMSGSIZE`: it is longer than messages are. `ETIMEDOUT`: the window was not given back in time, as when an
/// acknowledgement was lost; what has left of the message is incomplete at its receiver. `ENXIO`: memory that the card
/// does not reach (beyond 4 GiB). `EIO`: the card has refused a frame.
pub const IOCTL_ACTIVE_SEND: u32 = request(WRITE, 14, size_of::<ActiveSend>());
/// Waits until all frames of the file's active port have left, [`ActiveSend`].
pub const IOCTL_ACTIVE_FLUSH: u32 = request(WRITE, 15, size_of::<ActiveSend>());
/// Gives a buffer back and takes the next message or error of the file's active port, for which it looks through the
/// ring, [`ActiveReceive`]. `EAGAIN`: there is none, or a signal came first. `poll` reports readable when there is one
/// already.
pub const IOCTL_ACTIVE_RECEIVE: u32 = request(READ | WRITE, 16, size_of::<ActiveReceive>());
