//! What a host and a niclab NIC agree on, and nothing else.
//!
//! Every layout that crosses the boundary between a guest and the device is defined here once: the kernel driver
//! uses it through the generated C header (`include/niclab_abi.h`), the user library and the device daemon directly.
//! All fields are little-endian; all structures are `repr(C)` without implicit padding, and their sizes are asserted
//! at compile time.
//!
//! Read in this order:
//!
//! 1. [`config`]: what a driver reads first, in the virtio configuration space;
//! 2. [`bar`]: the information page, and the requester and completer pages of a port;
//! 3. [`receive`]: slices and the status line, which the device writes into host memory;
//! 4. [`control`]: requests on the control queue;
//! 5. [`event`]: what an interrupt tells;
//! 6. [`matching`]: what the Match NIC adds: commands, events, regions, firmware;
//! 7. [`ioctl`]: the character device between the kernel driver and a user program.
//!
//! `docs/DEVICE.md` is the prose of this crate: the device programmer's manual.

#![no_std]

pub mod bar;
pub mod config;
pub mod control;
pub mod event;
pub mod ioctl;
pub mod matching;
pub mod receive;

/// Version of everything in this crate. A driver refuses a device that speaks another version.
pub const ABI_VERSION: u32 = 1;

/// First word of the configuration space and of the BAR's information page: the bytes `niclab\0\x01`.
///
/// The virtio identity 38 is not ours alone, so that the driver must recognise the device by this word.
pub const MAGIC: u64 = 0x0100_6261_6c63_696e;

/// Virtio device identity of the cluster function: one that QEMU's name table knows and no Linux driver claims.
pub const VIRTIO_ID: u32 = 38;

/// Bytes of a page: of the BAR, and of a queue-notify register's own page.
pub const PAGE_BYTES: u64 = 4096;

/// Virtqueues of the cluster function; `num_vqs` on QEMU's command line.
pub const QUEUES: u32 = 5;

/// Descriptors of each virtqueue; `vq_size` on QEMU's command line.
pub const QUEUE_SIZE: u32 = 256;

/// Requests and replies, [`control`].
pub const QUEUE_CONTROL: u32 = 0;
/// Buffers that the device fills with an [`event::Event`] each; the only queue that interrupts.
pub const QUEUE_EVENT: u32 = 1;
/// Transmit descriptor ring of the models that send by descriptor. ULTRA leaves it idle.
pub const QUEUE_TRANSMIT: u32 = 2;
/// Receive descriptor ring of the models that receive by descriptor. ULTRA leaves it idle.
pub const QUEUE_RECEIVE: u32 = 3;
/// Never holds a descriptor: its notify register, which has a page of its own, is the doorbell of all requester and
/// completer pages, mapped into user programs.
pub const QUEUE_DOORBELL: u32 = 4;

/// Reads a little-endian `T` out of `bytes`, or `None` when they are too few. Implemented for the layouts below.
pub trait FromBytes: Sized {
    /// Size of the layout in bytes.
    const BYTES: usize;
    /// Decodes the first [`Self::BYTES`] of `bytes`; what follows is ignored.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// Writes a layout as little-endian bytes.
pub trait ToBytes: FromBytes {
    /// Encodes into the first [`FromBytes::BYTES`] of `out`; `None` when it is too short.
    fn to_bytes(&self, out: &mut [u8]) -> Option<usize>;
}

/// Declares a `repr(C)` layout of integer fields with its asserted size, and its byte codec.
///
/// One definition gives the structure that C sees and the codec that a device uses on untrusted bytes, without
/// `unsafe` and whatever the host's byte order.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident : $bytes:literal {
        $($(#[$field_meta:meta])* pub $field:ident : $kind:ident,)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        const _: () = assert!(core::mem::size_of::<$name>() == $bytes);
        const _: () = assert!(0 $(+ core::mem::size_of::<$kind>())* == $bytes, "implicit padding");

        impl $crate::FromBytes for $name {
            const BYTES: usize = $bytes;
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let mut rest = bytes.get(..$bytes)?;
                $(
                    let (head, tail) = rest.split_first_chunk::<{ core::mem::size_of::<$kind>() }>()?;
                    let $field = $kind::from_le_bytes(*head);
                    rest = tail;
                )*
                let _ = rest;
                Some(Self { $($field),* })
            }
        }

        impl $crate::ToBytes for $name {
            fn to_bytes(&self, out: &mut [u8]) -> Option<usize> {
                let mut rest = out.get_mut(..$bytes)?;
                $(
                    let (head, tail) = rest.split_first_chunk_mut::<{ core::mem::size_of::<$kind>() }>()?;
                    *head = self.$field.to_le_bytes();
                    rest = tail;
                )*
                let _ = rest;
                Some($bytes)
            }
        }
    };
}
pub(crate) use layout;
