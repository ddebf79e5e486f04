//! The boundary of every NIC model: what goes in, what comes out.
//!
//! A shell feeds [`Nic::handle`] and drains [`Nic::poll_output`]. The same three verbs serve a model that is written
//! by page stores (ULTRA, GRIM), by descriptors (GAMMA, INIC) or by commands on a queue (Match); inputs are added here
//! with the first model that needs them, never beside it.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::control::Statistics;
use smallvec::SmallVec;

use crate::parts::ledger::Ledger;
use crate::parts::message::Message;
use crate::parts::mischief::Saboteur;
use crate::time::Time;

/// Bytes of a frame on a link, from the Ethernet header to the last byte of the payload (no preamble, no check
/// sequence of Ethernet's). Short frames live inline.
pub type FrameBytes = SmallVec<[u8; FRAME_BUFFER_BYTES]>;

/// Bytes of a frame that live inline.
pub const FRAME_BUFFER_BYTES: usize = 136;

/// Words of one DMA write. One cache line and a status word live inline.
pub type DmaWords = SmallVec<[u64; DMA_BUFFER_WORDS]>;

/// Words of a DMA write that live inline.
pub const DMA_BUFFER_WORDS: usize = 12;

/// Stretches of host memory, one behind the other. Two live inline: a page's end and the next page's begin.
pub type HostRanges = SmallVec<[HostRange; 2]>;

/// Bytes of the answer to a control request. The longest, with statistics, lives inline.
pub type ReplyBytes = SmallVec<[u8; 136]>;

/// What a shell tells a model.
#[derive(Debug)]
pub enum Input<'a> {
    /// The host launched a slot of a requester page: one burst of programmed I/O. The shell has checked nothing but
    /// that the sequence number was the expected one.
    PageStore(PageStore),
    /// The host stored a register of a completer page.
    Register {
        /// The port whose page it is.
        port: u32,
        /// Which register, and the value.
        register: Register,
    },
    /// A control request, header and body, as the driver wrote it.
    Control {
        /// Comes back with the [`Output::Reply`].
        token: u64,
        /// All readable bytes of the chain; the shell bounds them at [`MAX_CONTROL_BYTES`].
        request: &'a [u8],
    },
    /// What only the shell can count, before a request for statistics.
    ShellCounts(ShellCounts),
    /// A frame arrived from the link, whole, at the time of the call.
    Frame {
        /// The frame.
        frame: &'a [u8],
        /// What [`Output::Frame`] said of it.
        message: Option<Message>,
    },
    /// What [`Output::DmaRead`] asked for.
    DmaData {
        /// Token of the output.
        token: u64,
        /// What the output wanted appended to, and behind it the bytes; none of them unless all are there.
        bytes: FrameBytes,
        /// Whether they are: otherwise not all of the ranges were the guest's memory.
        is_whole: bool,
    },
    /// The time that [`Nic::poll_timeout`] named has come.
    Timeout,
    /// The host is gone or was reset: forget every port and all of its memory at once, write nothing more.
    HostReset,
}

/// Most bytes of a control request that a shell passes on: larger than any body of [`niclab_abi::control`].
pub const MAX_CONTROL_BYTES: usize = 4096;

/// Totals since the device was made that a model cannot know, and reports among its statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShellCounts {
    /// Doorbells rung by the guest.
    pub doorbells: u64,
    /// Launches that were found by polling, with no doorbell.
    pub doorbells_spared: u64,
    /// Events merged into a later one because the driver had left no buffer.
    pub events_merged: u64,
    /// Control requests that the shell refused itself.
    pub control_refused: u64,
}

/// A stretch of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Guest-physical address of the first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One launched slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStore {
    /// The port that owns the page: the identity of the sender.
    pub port: u32,
    /// The lower half of the launch word: the page-offset code and bits that must be zero.
    pub code: u32,
    /// Words 0..10 of the slot. Payload and tag end at word 10; what lies before the payload is not read.
    pub words: [u64; niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS],
}

/// A register of a completer page, [`niclab_abi::bar::CompleterPage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Slices consumed since the port was opened.
    Released(u64),
    /// Number of the slice whose arrival shall interrupt; zero disarms.
    Armed(u64),
    /// How many slices the program consumes between two stores of [`Register::Released`]; zero: not known. Part of
    /// setting a port up, and without a price.
    ReleaseInterval(u64),
}

/// What a DMA write is to the host that looks at it. Shells need not know; a fault of the device
/// ([`crate::parts::mischief`]) does, for it spoils a part of the write and leaves the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data, of which a later write tells.
    Data,
    /// A slot, a descriptor or an event. The last word makes it the host's: until the host sees that word change, all of
    /// it is the device's. The words before the last are data.
    Completion {
        /// The bits of the last word that say what came and how it went. The others are ownership: by them alone the host
        /// sees that the word is new.
        status: u64,
    },
    /// Counts, each of them of use by itself. The next write replaces all of them.
    Counts,
}

/// What a model wants done, and when in model time. A shell carries outputs out in the order in which they are polled.
/// Models only name memory that the host gave them in a control request; a shell still checks every address against the
/// guest's memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store `words` into host memory from `address` on, in ascending order, the last word with release ordering after
    /// all others.
    DmaWrite {
        /// When the last word is visible to the host.
        at: Time,
        /// Guest-physical address, aligned to 8 bytes.
        address: u64,
        /// What to store.
        words: DmaWords,
        /// What that is to the host.
        content: Content,
        /// The message that caused it, where one did and the ledger knows.
        message: Option<Message>,
    },
    /// Store a part of the frame that the model was given last into host memory, byte by byte where it must be: data, of
    /// which a later write tells. A shell carries it out before it gives the model anything else.
    DmaFrame {
        /// When the last byte is visible to the host.
        at: Time,
        /// Which bytes of the frame.
        bytes: Range<usize>,
        /// Where to: as many bytes, in this order.
        ranges: HostRanges,
        /// The message whose data it is, where the ledger knows.
        message: Option<Message>,
    },
    /// Load host memory, append it to `into`, and answer by [`Input::DmaData`] at the same instant, before the next output
    /// is polled.
    DmaRead {
        /// When the last byte is in the NIC.
        at: Time,
        /// Comes back with the answer.
        token: u64,
        /// Where from, in this order.
        ranges: HostRanges,
        /// What the bytes are appended to: the head of a frame, so that data is copied once.
        into: FrameBytes,
        /// The message that it is for, where the ledger knows.
        message: Option<Message>,
    },
    /// Send a frame into the link.
    Frame {
        /// When its first byte is ready for the link.
        at: Time,
        /// The frame.
        frame: FrameBytes,
        /// The message that it carries; none for frames of the NIC's own, such as flow control. Travels beside the frame
        /// and is known to ledgers alone: what the receiver does must follow from the frame.
        message: Option<Message>,
    },
    /// Interrupt the host with one event.
    Interrupt {
        /// When it is raised.
        at: Time,
        /// What for: a `CAUSE_` constant of [`niclab_abi::event`].
        cause: u32,
        /// The port it concerns.
        port: u32,
        /// The message that caused it, where one did.
        message: Option<Message>,
    },
    /// Answer the control request with this token.
    Reply {
        /// When.
        at: Time,
        /// Token of [`Input::Control`].
        token: u64,
        /// [`niclab_abi::control::Reply`] header and body.
        bytes: ReplyBytes,
    },
}

impl Output {
    /// When it is to be done.
    #[inline]
    pub const fn at(&self) -> Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Reply { at, .. } => *at,
        }
    }

    /// The message that caused it, where one did and the ledger knows.
    #[inline]
    pub const fn message(&self) -> Option<Message> {
        match self {
            Self::DmaWrite { message, .. }
            | Self::DmaFrame { message, .. }
            | Self::DmaRead { message, .. }
            | Self::Frame { message, .. }
            | Self::Interrupt { message, .. } => *message,
            Self::Reply { .. } => None,
        }
    }

    /// When it is to be done, to put it off.
    pub const fn at_mut(&mut self) -> &mut Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Reply { at, .. } => at,
        }
    }
}

/// A NIC model.
pub trait Nic {
    /// Takes one input at model time `now`. Never fails: what is wrong is answered, counted or raised, as the host
    /// interface says.
    fn handle(&mut self, now: Time, input: Input<'_>);

    /// The host memory that a control request would let the model touch. A shell refuses the request with
    /// [`niclab_abi::control::STATUS_BAD_ADDRESS`] unless all of it is memory of the guest, and only then passes it on.
    fn memory_named_by(&self, request: &[u8]) -> HostRanges;

    /// The next effect, until there is none. Drained after every [`Nic::handle`].
    fn poll_output(&mut self) -> Option<Output>;

    /// The one next deadline, or none.
    fn poll_timeout(&self) -> Option<Time>;

    /// Whether `port` is open and can take another [`Input::PageStore`] now. A shell leaves the slot in the page while
    /// this is false, and looks again after other inputs.
    fn accepts_store(&self, port: u32) -> bool;

    /// Whether `port` is open: its pages are worth a look.
    fn is_open(&self, port: u32) -> bool;

    /// The host's logical clock: the later of the end of its last operation and the last delivery it was given. Live,
    /// where a guest's own computing time is unknown, this is the `now` of what the guest does next.
    fn host_clock(&self) -> Time;

    /// Messages stored for `port` since it was opened: what its program can have received.
    fn delivered(&self, port: u32) -> u64;

    /// Work done since the model was made, in units of about ten nanoseconds of a host processor's time: an estimate of what
    /// inputs and outputs so far have cost the shell's thread, so that a shell which many guests share can stop after so
    /// much of it and let another in. It only grows. Model time never follows from it, and it may change from one version
    /// to the next. A model whose inputs all cost about the same need not count.
    fn work_done(&self) -> u64 {
        0
    }

    /// How often the wall clock of a live run decided in which order this node's host did things: what it did is counted
    /// and priced, but another run of the same programs may differ.
    fn unordered(&self) -> u64;

    /// What every crossing of this node has cost, but for those of the network.
    fn ledger(&self) -> &Ledger;

    /// To keep single stages, or to turn the ledger off.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// What a driver reads by [`niclab_abi::control::OP_STATISTICS`], with these counts of the shell.
    fn statistics(&self, shell: &ShellCounts) -> Statistics;

    /// What only this model counts, by name, for reports: totals since it was made, which only grow.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Who puts faults into what this model wants done; a model by itself has nobody. See [`crate::parts::mischief`].
    fn saboteur(&self) -> Option<&Saboteur> {
        None
    }

    /// The same, to change the faults.
    fn saboteur_mut(&mut self) -> Option<&mut Saboteur> {
        None
    }
}
