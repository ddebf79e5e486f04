//! The BAR: shared-memory region [`REGION`] of the cluster function.
//!
//! Page 0 is the information page. All else is windows, which the card's model declares, and of which the information
//! page has a table ([`Window`]). Most belong to ports: each port has its own part of such a window, which the kernel
//! driver maps to the port's owner alone, so that the device takes the place of a store as the identity of the sender.
//! A window of the card is the same for all. Two windows of a port are common to all models: its requester page
//! ([`WINDOW_REQUESTER`]), from which it sends, and its completer page ([`WINDOW_COMPLETER`]), in which it says what it
//! has received.
//!
//! The requester page is that of Fröning, Litz and Brüning (2007), whose section 3.3 codes length and flags into the
//! twelve address bits of the store. This BAR is memory, where a device cannot see the address of a store, so that the
//! page is a ring of [`SLOTS`] slots and the twelve bits travel in the slot's launch word, which is stored last.

use crate::layout;

/// Shared-memory region (virtio `shmid`) of the BAR.
pub const REGION: u32 = 0;

layout! {
    /// Page 0, read-only for user programs. The device writes [`InfoPage::magic`] last: a driver waits for it, bounded
    /// in time, because the region is mapped a moment after the driver announced itself.
    pub struct InfoPage: 72 {
        /// [`crate::MAGIC`] once all else is valid, zero before.
        pub magic: u64,
        /// [`crate::ABI_VERSION`].
        pub abi_version: u32,
        /// Pages of the BAR, this one included.
        pub pages: u32,
        /// Ports.
        pub ports: u32,
        /// Slots of a requester page: [`SLOTS`].
        pub slots: u32,
        /// Windows: so many rows of the table at [`INFO_WINDOWS_OFFSET`].
        pub windows: u32,
        /// Zero.
        pub reserved0: u32,
        /// Zero.
        pub reserved1: u64,
        /// Zero.
        pub reserved2: u64,
        /// Zero.
        pub reserved3: u64,
        /// Zero.
        pub reserved4: u64,
        /// [`DOORBELL_WANTED`] when the device sleeps and a launch or a register write must be followed by a doorbell;
        /// [`DOORBELL_SPARED`] while it polls the pages. On a cache line of its own.
        ///
        /// A sender stores, executes a full memory barrier, and only then reads this word; the device writes it,
        /// executes a full barrier, and looks at the pages once more before it sleeps.
        pub doorbell: u64,
    }
}

/// Byte offset of [`InfoPage::doorbell`].
pub const INFO_DOORBELL_OFFSET: u64 = 64;
const _: () = assert!(core::mem::offset_of!(InfoPage, doorbell) == INFO_DOORBELL_OFFSET as usize);

/// The device polls: no doorbell is needed.
pub const DOORBELL_SPARED: u64 = 0;
/// The device sleeps: ring the doorbell after a store.
pub const DOORBELL_WANTED: u64 = 1;

layout! {
    /// One row of the table of windows. Page `n` of port `p`'s part is page `first_page + stride * p + n` of the BAR.
    /// From the first port's part to the end of the last one's, a window has nothing of another window in it. Kinds are
    /// all different.
    pub struct Window: 24 {
        /// What it is for: [`WINDOW_REQUESTER`], [`WINDOW_COMPLETER`], or a number of the model's from
        /// [`WINDOW_OF_MODEL`] on.
        pub kind: u32,
        /// How it is to be mapped, a `CACHING_`.
        pub caching: u32,
        /// What programs may do there, an `ACCESS_`.
        pub access: u32,
        /// Page of the BAR where it begins; never page 0.
        pub first_page: u32,
        /// Pages of each port's part, or of the whole where it is the card's; at least one.
        pub pages: u32,
        /// Pages from one port's part to the next one's, at least `pages`. Zero: there is one part, the card's, for any
        /// open port.
        pub stride: u32,
    }
}

/// Byte offset of the table of windows in the information page; on cache lines of its own.
pub const INFO_WINDOWS_OFFSET: u64 = 128;
/// Most windows of a BAR.
pub const MAX_WINDOWS: u32 = 8;
const _: () = assert!(
    INFO_WINDOWS_OFFSET + MAX_WINDOWS as u64 * core::mem::size_of::<Window>() as u64 <= crate::PAGE_BYTES
);
/// Most pages of a BAR: 16 MiB, half of the room that a virtual PCI slot sets aside for a card that is plugged in.
pub const MAX_BAR_PAGES: u32 = 4096;

/// [`Window::kind`]: the port's requester page. One page of each port.
pub const WINDOW_REQUESTER: u32 = 1;
/// [`Window::kind`]: the port's completer page, [`CompleterPage`]. One page of each port.
pub const WINDOW_COMPLETER: u32 = 2;
/// [`Window::kind`]: from here on a model says what a number means.
pub const WINDOW_OF_MODEL: u32 = 16;

/// [`Window::caching`]: every store goes out by itself, and every load comes from the device.
pub const CACHING_UNCACHED: u32 = 1;
/// [`Window::caching`]: stores may be joined, and go out in any order up to the next fence.
pub const CACHING_WRITE_COMBINING: u32 = 2;
/// [`Window::caching`]: as ordinary memory.
pub const CACHING_WRITE_BACK: u32 = 3;

/// [`Window::access`]: programs read, the device writes.
pub const ACCESS_READ_ONLY: u32 = 1;
/// [`Window::access`]: programs read and write.
pub const ACCESS_READ_WRITE: u32 = 2;

/// Slots of a requester page.
pub const SLOTS: u32 = 32;
/// Bytes of a slot.
pub const SLOT_BYTES: u32 = 128;
const _: () = assert!((SLOTS * SLOT_BYTES) as u64 == crate::PAGE_BYTES);

/// 64-bit words of a slot.
pub const SLOT_WORDS: usize = 16;
/// Most payload words of a packet: one cache line (section 3.3).
pub const PAYLOAD_WORDS: usize = 8;
/// Tag words; every packet carries them (section 4).
pub const TAG_WORDS: usize = 2;
/// Word of the slot where the tag begins. The payload ends right before it: `n` payload words take the words
/// `8 - n .. 8`, so that payload and tag are one burst of consecutive addresses that always ends at the same place.
pub const SLOT_TAG_WORD: usize = PAYLOAD_WORDS;
/// Word of the slot that says what the program had received when it launched: [`RECEIVED_KNOWN`] and, in bits 0..32,
/// the low half of the number of slices that it had consumed. Zero: not said.
///
/// No hardware needs it. A device outside of the guest looks at the pages when it gets to it, and learns from this word
/// whether it carries the launch out in the place that it has among the port's other events, which is what makes the
/// model time of a live run exact (docs/use/LEDGER.md).
pub const SLOT_RECEIVED_WORD: usize = SLOT_WORDS - 2;
/// Bit of [`SLOT_RECEIVED_WORD`]: the count is said.
pub const RECEIVED_KNOWN: u64 = 1 << 63;
/// Word of the slot that launches it, stored last with release ordering.
pub const SLOT_LAUNCH_WORD: usize = SLOT_WORDS - 1;

/// Slot of the launch with sequence number `sequence`. The first launch of an open port is number 1, so that a zeroed
/// page holds no launch; numbers wrap at 2^32.
pub const fn slot_of(sequence: u32) -> u32 {
    sequence.wrapping_sub(1) % SLOTS
}

/// Launch word: the page-offset code in bits 0..12, zero in 12..32, the sequence number in 32..64.
pub const fn launch_word(code: u16, sequence: u32) -> u64 {
    code as u64 | (sequence as u64) << LAUNCH_SEQUENCE_SHIFT
}

/// Lowest bit of the sequence number in a launch word.
pub const LAUNCH_SEQUENCE_SHIFT: u32 = 32;

/// Page-offset code, lowest bit of the length field (bits 3..7). The field holds the word of the slot where the burst
/// begins: `8 - payload words`, that is 8 for a packet of the tag alone and 0 for a whole cache line; 9..16 are not
/// valid.
///
/// The paper says that the field counts up during the burst, so that zero means seven and the reverse: with one to
/// eight words coded as 0..=7 that is exactly this field's lower three bits, and the carry into its fourth bit is the
/// step from the payload to the "additional tag".
pub const CODE_LENGTH_SHIFT: u32 = 3;
/// Page-offset code: the requester writes the status line as soon as the packet left it (local completion).
pub const CODE_NOTIFY: u16 = 1 << 7;
/// Page-offset code: the receiving NIC interrupts its host once the slice is stored.
pub const CODE_INTERRUPT: u16 = 1 << 8;
/// Page-offset code: the receiving NIC returns an acknowledgement once the slice is stored; the sender's status line
/// counts it.
pub const CODE_ACKNOWLEDGE: u16 = 1 << 9;
/// Bits of the code that must be zero: alignment (0..3) and the two unused of the five upper bits (10, 11).
pub const CODE_RESERVED: u16 = 0b1100_0000_0111;

layout! {
    /// Registers of a completer page, stored by the owner of the port (posted writes; followed by a doorbell when
    /// [`InfoPage::doorbell`] wants one), and the words by which programs take turns. All else on the page is spare.
    ///
    /// Turns are how a live run has the simulator's model time ([`crate::config::FEATURE_TURNS`]). No hardware has
    /// them, and they have no price. A program uses them on one port, the first that it opens.
    pub struct CompleterPage: 56 {
        /// Slices that the program has consumed since the port was opened. Frees them for new packets. Written once for
        /// every quarter of the queue, not for every message. A value that falls, or runs ahead of what was stored, is
        /// a violation and is ignored.
        pub released: u64,
        /// Number of a slice (the first is 1): one interrupt is raised as soon as that slice is stored, at once when it
        /// is already. Zero: no interrupt. One shot: write a new number to arm again.
        pub armed: u64,
        /// How many slices the program consumes between two stores of [`CompleterPage::released`], where it keeps to an
        /// interval; zero: not said. Stored before a sender is authorized whose credits need it, and without a price:
        /// with it the device knows in model time when each release is due, however late it looks at the register.
        pub release_interval: u64,
        /// Stored by the device: how many turns the program had, [`TURN_OVER`] set while it may go on without.
        pub turn: u64,
        /// Stored by the device before [`CompleterPage::turn`]: model time of the turn, in picoseconds.
        pub turn_time_ps: u64,
        /// Stored by the program: what it did of its last turn, a `REPORT_` in bits 0..2, and the number of that turn
        /// above.
        pub report: u64,
        /// Stored by the program before [`CompleterPage::report`]: model time, in picoseconds, before which an idle
        /// program wants no turn unless something comes; zero: none until something comes.
        pub wake_ps: u64,
    }
}

/// Byte offset of [`CompleterPage::released`].
pub const COMPLETER_RELEASED_OFFSET: u64 = 0;
/// Byte offset of [`CompleterPage::armed`].
pub const COMPLETER_ARMED_OFFSET: u64 = 8;
/// Byte offset of [`CompleterPage::release_interval`].
pub const COMPLETER_INTERVAL_OFFSET: u64 = 16;
/// Byte offset of [`CompleterPage::turn`].
pub const COMPLETER_TURN_OFFSET: u64 = 24;
/// Byte offset of [`CompleterPage::turn_time_ps`].
pub const COMPLETER_TURN_TIME_OFFSET: u64 = 32;
/// Byte offset of [`CompleterPage::report`].
pub const COMPLETER_REPORT_OFFSET: u64 = 40;
/// Byte offset of [`CompleterPage::wake_ps`].
pub const COMPLETER_WAKE_OFFSET: u64 = 48;

/// [`CompleterPage::turn`]: nothing is under way, no program has anything to do, and none waits for a turn.
pub const TURN_OVER: u64 = 1 << 63;
/// [`CompleterPage::report`]: the program begins something, and waits for its first turn. All nodes' programs begin
/// together.
pub const REPORT_READY: u64 = 1;
/// [`CompleterPage::report`]: it did one operation, and wants another turn.
pub const REPORT_ACTED: u64 = 2;
/// [`CompleterPage::report`]: it found nothing to do.
pub const REPORT_IDLE: u64 = 3;
/// Bits of a `REPORT_`.
pub const REPORT_BITS: u32 = 2;
