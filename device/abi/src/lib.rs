//! The contract between a host and a niclab NIC.
//!
//! This crate defines every layout that crosses the boundary between a guest and the device, once. The kernel driver
//! uses the generated C header (`include/niclab_abi.h`); the user library and the device daemon use the crate itself.
//! All fields are little-endian. All structures are `repr(C)` without implicit padding, with sizes asserted at compile
//! time.
//!
//! Read in this order:
//!
//! 1. [`config`]: the virtio configuration space, which a driver reads first;
//! 2. [`bar`]: the information page and its table of windows, and the requester and completer pages of a port;
//! 3. [`receive`]: slices and the status line, which the device writes into host memory;
//! 4. [`control`]: requests on the control queue;
//! 5. [`event`]: the events that explain interrupts;
//! 6. extensions of cards with these features: [`region`], memory that a program registers; [`matching`], posted
//!    receives, with commands and events; [`inic`], the same for messages to any node; [`grim`], active messages that
//!    are pushed; [`rings`], frames by descriptors, and [`gamma`], the drivers' protocol in these frames; [`firmware`];
//! 7. [`ioctl`]: the character device between the kernel driver and a user program;
//! 8. [`rules`]: the rules for drivers, by name.
//!
//! `docs/driver/DEVICE.md` is the device programmer's manual, which explains this crate.

#![no_std]

pub mod bar;
pub mod config;
pub mod control;
pub mod event;
pub mod firmware;
pub mod gamma;
pub mod grim;
pub mod inic;
pub mod ioctl;
pub mod matching;
pub mod receive;
pub mod region;
pub mod rings;
pub mod rules;

/// Version of this crate's contract. A driver refuses a device of another version.
pub const ABI_VERSION: u32 = 3;

/// First word of the configuration space and of the BAR's information page: the bytes `niclab\0\x01`.
///
/// Virtio identity 38 is not reserved for niclab, so the driver must recognise the device by this word.
pub const MAGIC: u64 = 0x0100_6261_6c63_696e;

/// Virtio device identity of the cluster function. QEMU's name table knows it, and no Linux driver claims it.
pub const VIRTIO_ID: u32 = 38;

/// Bytes of a page of the BAR, and of the page of a queue-notify register.
pub const PAGE_BYTES: u64 = 4096;

/// Number of virtqueues of the cluster function; `num_vqs` on QEMU's command line.
pub const QUEUES: u32 = 5;

/// Maximum number of descriptors of each virtqueue; `vq_size` on QEMU's command line.
pub const QUEUE_SIZE: u32 = 256;

/// Queue of requests and replies, [`control`]. The device interrupts for each reply.
pub const QUEUE_CONTROL: u32 = 0;
/// Queue of buffers for events; the device fills each with one [`event::Event`]. It interrupts for each event.
pub const QUEUE_EVENT: u32 = 1;
/// Transmit descriptor queue of models that send by descriptor. Other models leave it idle. The device interrupts for
/// returned chains.
pub const QUEUE_TRANSMIT: u32 = 2;
/// Receive descriptor queue of models that receive by descriptor. Other models leave it idle. The device interrupts for
/// returned chains.
pub const QUEUE_RECEIVE: u32 = 3;
/// Doorbell queue, which never has a descriptor and never interrupts. Its notify register has a page of its own, which
/// drivers map into user programs. It is the doorbell of all requester and completer pages.
pub const QUEUE_DOORBELL: u32 = 4;

/// Reads a little-endian `T` from `bytes`, or `None` if they are too few. The layouts below implement it.
pub trait FromBytes: Sized {
    /// Size of the layout in bytes.
    const BYTES: usize;
    /// Decodes the first [`Self::BYTES`] of `bytes`, and ignores the rest.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// Writes a layout as little-endian bytes.
pub trait ToBytes: FromBytes {
    /// Encodes into the first [`FromBytes::BYTES`] of `out`; `None` if it is too short.
    fn to_bytes(&self, out: &mut [u8]) -> Option<usize>;
}

/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Maximum number of words of a layout that is transferred in words: those of a slot.
const MAX_WORDS: usize = bar::SLOT_WORDS;

/// Reads a layout from words, lowest byte first; `None` if they are too few.
#[inline]
pub fn from_words<T: FromBytes>(words: &[u64]) -> Option<T> {
    let mut bytes = [0; MAX_WORDS * WORD_BYTES];
    let (places, _) = bytes.as_chunks_mut::<WORD_BYTES>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    T::from_bytes(bytes.get(..WORD_BYTES * words.len().min(MAX_WORDS))?)
}

/// A layout as words, padded with zeros. It has at most `WORDS` words, and a slot has at least `WORDS`.
#[inline]
pub fn to_words<const WORDS: usize>(layout: &impl ToBytes) -> [u64; WORDS] {
    const { assert!(WORDS <= MAX_WORDS, "more words than a slot has") };
    let mut bytes = [0; MAX_WORDS * WORD_BYTES];
    let written = layout.to_bytes(&mut bytes);
    debug_assert!(written.is_some_and(|bytes| bytes <= WORDS * WORD_BYTES), "the layout has more words");
    let (places, _) = bytes.as_chunks::<WORD_BYTES>();
    let mut words = [0; WORDS];
    words.iter_mut().zip(places).for_each(|(word, place)| *word = u64::from_le_bytes(*place));
    words
}

/// Declares a `repr(C)` layout of integer fields with its asserted size, and its byte codec.
///
/// One definition gives the structure for C and the codec for untrusted bytes, without `unsafe` and for any byte order
/// of the host.
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

#[cfg(test)]
mod tests {
    use super::*;

    layout! {
        /// Halves and quarters of words.
        pub struct Mixed: 24 {
            /// Word 0.
            pub whole: u64,
            /// Word 1, bits 0..32.
            pub low: u32,
            /// Word 1, bits 32..40.
            pub byte: u8,
            /// Word 1, bits 40..48.
            pub next: u8,
            /// Word 1, bits 48..64.
            pub high: u16,
            /// Word 2.
            pub last: u64,
        }
    }

    #[test]
    fn fields_fill_words_from_the_lowest_bit() {
        let words = [1, 0x0504_0302_0100_0007, 9];
        let mixed = Mixed { whole: 1, low: 0x0100_0007, byte: 2, next: 3, high: 0x0504, last: 9 };
        assert_eq!(from_words::<Mixed>(&words), Some(mixed));
        assert_eq!(to_words::<4>(&mixed), [1, 0x0504_0302_0100_0007, 9, 0]);
        assert_eq!(from_words::<Mixed>(&words[..2]), None);
    }
}
