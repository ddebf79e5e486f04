//! The BAR: shared-memory region [`REGION`] of the cluster function.
//!
//! Page 0 is the information page. All other pages belong to windows, which the card's model declares. The information
//! page has a table of them ([`Window`]). Most windows belong to ports: each port has its own part of such a window.
//! The kernel driver maps the part only to the port's owner, so the device identifies the sender by the address of a
//! store. A window of the card is the same for all ports. Two windows are common to all models: the port's requester
//! page ([`WINDOW_REQUESTER`]), from which it sends, and its completer page ([`WINDOW_COMPLETER`]), where it reports
//! what it has received.
//!
//! The requester page is that of Fröning, Litz and Brüning (2007). Their section 3.3 encodes length and flags in the
//! twelve address bits of the store. This BAR is memory, where a device cannot see the address of a store. So the page
//! is a ring of [`SLOTS`] slots, and the twelve bits are in the slot's launch word, which the program stores last.

use crate::layout;

/// Shared-memory region (virtio `shmid`) of the BAR.
pub const REGION: u32 = 0;

layout! {
    /// Page 0, read-only for user programs. The device writes [`InfoPage::magic`] last, and a driver waits for it with
    /// a time limit: the device maps the region shortly after the driver's start.
    pub struct InfoPage: 72 {
        /// [`crate::MAGIC`] when all other fields are valid, zero before.
        pub magic: u64,
        /// [`crate::ABI_VERSION`].
        pub abi_version: u32,
        /// Number of pages of the BAR, including this one.
        pub pages: u32,
        /// Number of ports.
        pub ports: u32,
        /// Number of slots of a requester page: [`SLOTS`].
        pub slots: u32,
        /// Number of windows: rows of the table at [`INFO_WINDOWS_OFFSET`].
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
        /// [`DOORBELL_SPARED`] while the device polls the pages. Otherwise the number of its sleep: a post or a
        /// register store must be followed by a doorbell, unless the driver has rung for this number already. Numbers
        /// begin at 1 and never repeat. The word has a cache line of its own.
        ///
        /// A sender stores, executes a full memory barrier, and only then reads this word. The device writes it,
        /// executes a full barrier, and checks the pages once more before it sleeps. (Virtio's event index, Virtio 1.3,
        /// section 2.7.10, is a position in one queue. One doorbell serves the pages of all ports, so this is a number
        /// of the device.)
        pub doorbell: u64,
    }
}

/// Byte offset of [`InfoPage::doorbell`].
pub const INFO_DOORBELL_OFFSET: u64 = 64;
const _: () = assert!(core::mem::offset_of!(InfoPage, doorbell) == INFO_DOORBELL_OFFSET as usize);

/// The device polls: no doorbell is needed.
pub const DOORBELL_SPARED: u64 = 0;

layout! {
    /// A row of the table of windows. Page `n` of port `p`'s part is page `first_page + stride * p + n` of the BAR.
    /// From the first port's part to the end of the last one's, no other window has a page. All kinds differ.
    pub struct Window: 24 {
        /// The purpose: [`WINDOW_REQUESTER`], [`WINDOW_COMPLETER`], or a number of the model, from [`WINDOW_OF_MODEL`]
        /// on.
        pub kind: u32,
        /// The required caching, a `CACHING_` constant.
        pub caching: u32,
        /// The access that programs have, an `ACCESS_` constant.
        pub access: u32,
        /// First page in the BAR; never page 0.
        pub first_page: u32,
        /// Number of pages of each port's part, or of the whole window if it belongs to the card; at least one.
        pub pages: u32,
        /// Distance in pages from one port's part to the next one's, at least `pages`. Zero: the window has one part,
        /// which belongs to the card, for any open port.
        pub stride: u32,
    }
}

/// Byte offset of the table of windows in the information page. The table has cache lines of its own.
pub const INFO_WINDOWS_OFFSET: u64 = 128;
/// Maximum number of windows of a BAR.
pub const MAX_WINDOWS: u32 = 8;
const _: () = assert!(
    INFO_WINDOWS_OFFSET + MAX_WINDOWS as u64 * core::mem::size_of::<Window>() as u64 <= crate::PAGE_BYTES
);
/// Maximum number of pages of a BAR: 16 MiB, half of the room that a virtual PCI slot reserves for a hot-plugged card.
pub const MAX_BAR_PAGES: u32 = 4096;

/// [`Window::kind`]: the port's requester page. Each port has one page.
pub const WINDOW_REQUESTER: u32 = 1;
/// [`Window::kind`]: the port's completer page, [`CompleterPage`]. Each port has one page.
pub const WINDOW_COMPLETER: u32 = 2;
/// [`Window::kind`]: first number that the model defines.
pub const WINDOW_OF_MODEL: u32 = 16;

/// [`Window::caching`]: uncached. Every store leaves separately, and every load comes from the device.
pub const CACHING_UNCACHED: u32 = 1;
/// [`Window::caching`]: write-combining. Stores may be merged, and leave in any order up to the next fence.
pub const CACHING_WRITE_COMBINING: u32 = 2;
/// [`Window::caching`]: write-back, like ordinary memory.
pub const CACHING_WRITE_BACK: u32 = 3;

/// [`Window::access`]: programs read, the device writes.
pub const ACCESS_READ_ONLY: u32 = 1;
/// [`Window::access`]: programs read and write.
pub const ACCESS_READ_WRITE: u32 = 2;

/// Number of slots of a requester page.
pub const SLOTS: u32 = 32;
/// Bytes of a slot.
pub const SLOT_BYTES: u32 = 128;
const _: () = assert!((SLOTS * SLOT_BYTES) as u64 == crate::PAGE_BYTES);

/// Number of 64-bit words of a slot.
pub const SLOT_WORDS: usize = 16;
/// Maximum number of payload words of a packet: one cache line (section 3.3).
pub const PAYLOAD_WORDS: usize = 8;
/// Number of tag words, which every packet has (section 4).
pub const TAG_WORDS: usize = 2;
/// First tag word of the slot. The payload ends before it: `n` payload words are the words `8 - n .. 8`. So payload and
/// tag are one burst of consecutive addresses that always ends at the same word.
pub const SLOT_TAG_WORD: usize = PAYLOAD_WORDS;
/// Word of the slot with the number of slices that the program had consumed when it posted: [`RECEIVED_KNOWN`], and the
/// low half of the number in bits 0..32. Zero: unknown.
///
/// No hardware needs this word. A device outside the guest polls the pages later than the post. From this word it
/// learns whether it processes the post in its right order among the port's other events. That makes the model time of
/// a live run exact (docs/use/LEDGER.md).
pub const SLOT_RECEIVED_WORD: usize = SLOT_WORDS - 2;
/// Bit of [`SLOT_RECEIVED_WORD`]: the number is known.
pub const RECEIVED_KNOWN: u64 = 1 << 63;
/// Launch word of the slot: the program stores it last, with release ordering, and so posts the slot.
pub const SLOT_LAUNCH_WORD: usize = SLOT_WORDS - 1;

/// Slot of the post with sequence number `sequence`. The first post of an open port is number 1, so a zeroed page has
/// no post. Numbers wrap at 2^32.
pub const fn slot_of(sequence: u32) -> u32 {
    sequence.wrapping_sub(1) % SLOTS
}

/// Launch word: the page-offset code in bits 0..12, zero in 12..32, the sequence number in 32..64.
pub const fn launch_word(code: u16, sequence: u32) -> u64 {
    code as u64 | (sequence as u64) << LAUNCH_SEQUENCE_SHIFT
}

/// Lowest bit of the sequence number in a launch word.
pub const LAUNCH_SEQUENCE_SHIFT: u32 = 32;

/// Page-offset code: lowest bit of the length field (bits 3..7). The field has the first word of the burst in the slot,
/// `8 - payload words`: 8 for a packet of the tag alone, and 0 for a whole cache line. 9..16 are invalid.
///
/// The paper says that the field counts up during the burst, so that zero means seven and the reverse. With one to
/// eight words encoded as 0..=7, that is exactly the lower three bits of this field. The carry into its fourth bit is
/// the step from the payload to the "additional tag".
pub const CODE_LENGTH_SHIFT: u32 = 3;
/// Page-offset code: the requester writes the status line when the packet has left it (local completion).
pub const CODE_NOTIFY: u16 = 1 << 7;
/// Page-offset code: the receiving NIC interrupts its host when the slice is stored.
pub const CODE_INTERRUPT: u16 = 1 << 8;
/// Page-offset code: the receiving NIC returns an acknowledgement when the slice is stored, and the sender's status
/// line counts it.
pub const CODE_ACKNOWLEDGE: u16 = 1 << 9;
/// Bits of the code that must be zero: alignment (0..3) and the two unused ones of the five upper bits (10, 11).
pub const CODE_RESERVED: u16 = 0b1100_0000_0111;

layout! {
    /// Registers of a completer page, and the words for lockstep grants. The owner of the port stores to them (posted
    /// writes), and rings a doorbell if [`InfoPage::doorbell`] wants one. The rest of the page is unused.
    ///
    /// In lockstep a live run has the simulator's model time ([`crate::config::FEATURE_TURNS`]). No hardware has
    /// grants, and they have no price. A program uses them on the first port that it opens.
    pub struct CompleterPage: 56 {
        /// Number of slices that the program has consumed since the port was opened. It frees them for new packets. A
        /// program stores it once for every quarter of the queue, not for every message. A value that decreases, or
        /// exceeds the number of stored slices, is a violation and is ignored.
        pub released: u64,
        /// Number of a slice (the first is 1). The device raises one interrupt when that slice is stored, or at once if
        /// it is stored already. Zero: no interrupt. Each interrupt needs a new store.
        pub armed: u64,
        /// Number of slices that the program consumes between two stores of [`CompleterPage::released`], if it keeps to
        /// an interval; zero: unknown. The program stores it before it authorizes a sender whose credits need it, and
        /// without a price. From it the device knows when each release is due in model time, even if it polls the
        /// register late.
        pub release_interval: u64,
        /// Stored by the device: number of grants to the program. [`TURN_OVER`] is set while the program may run
        /// freely.
        pub turn: u64,
        /// Stored by the device before [`CompleterPage::turn`]: model time of the grant, in picoseconds.
        pub turn_time_ps: u64,
        /// Stored by the program: the result of its last grant, a `REPORT_` constant in bits 0..2, and the number of
        /// that grant above.
        pub report: u64,
        /// Stored by the program before [`CompleterPage::report`]: model time, in picoseconds, until which an idle
        /// program needs no grant unless a message arrives; zero: it needs none until a message arrives.
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

/// [`CompleterPage::turn`]: no frame is in flight, no program has work, and none waits for a grant.
pub const TURN_OVER: u64 = 1 << 63;
/// [`CompleterPage::report`]: the program begins, and waits for its first grant. The programs of all nodes begin
/// together.
pub const REPORT_READY: u64 = 1;
/// [`CompleterPage::report`]: the program did one operation, and needs another grant.
pub const REPORT_ACTED: u64 = 2;
/// [`CompleterPage::report`]: the program had nothing to do.
pub const REPORT_IDLE: u64 = 3;
/// Number of bits of a `REPORT_` constant.
pub const REPORT_BITS: u32 = 2;
