//! The boundary of every NIC model: what goes in, what comes out.
//!
//! A shell feeds [`Nic::handle`] and drains [`Nic::poll_output`]. These verbs serve every kind of host interface:
//! stores into a page, commands in a page, and descriptors on a queue. A model that needs a new kind of input adds a
//! variant of [`Input`].

pub mod adversarial;
pub mod alone;
pub mod batch;
pub mod fault_injector;
pub mod firmware_reload;
pub mod frame;
pub mod host_values;
pub mod registry;
pub mod statistics;
pub mod windows;
mod wrapper;

pub use statistics::Statistics;

use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;

use smallvec::SmallVec;

use crate::fabric::frame_head::FrameHead;
use crate::nic::adversarial::Adversarial;
use crate::nic::batch::Batching;
use crate::nic::fault_injector::FaultInjector;
use crate::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep, Progress};
use crate::nic::frame::SharedFrame;
use crate::platform::ledger::Ledger;
use crate::platform::node_bus::NodeBus;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Bytes of a frame that a model is building, from the Ethernet header to the last byte of the payload. Preamble and
/// Ethernet's check sequence are not included. Short frames are stored inline.
pub type FrameBytes = SmallVec<[u8; FRAME_BUFFER_BYTES]>;

/// Bytes of a frame that are stored inline.
pub const FRAME_BUFFER_BYTES: usize = 136;

/// Words of one DMA write. One cache line and a status word are stored inline.
pub type DmaWords = SmallVec<[u64; DMA_BUFFER_WORDS]>;

/// Words of a DMA write that are stored inline.
pub const DMA_BUFFER_WORDS: usize = 12;

/// Consecutive ranges of host memory. Two are stored inline: the end of one page and the start of the next.
pub type HostRanges = SmallVec<[HostRange; 2]>;

/// Bytes of the answer to a control request. The longest answer, with statistics, is stored inline.
pub type ReplyBytes = SmallVec<[u8; 136]>;

/// Writes the check words of a frame that is complete except for them.
pub type Finish = fn(&mut FrameBytes);

/// What a shell passes to a model.
#[derive(Debug)]
pub enum Input<'a> {
    /// The host posted a slot of a requester page: one burst of programmed I/O. The shell has checked only that the
    /// sequence number was the expected one.
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
        /// Returned in [`Output::Reply`].
        token: u64,
        /// All readable bytes of the chain; at most [`MAX_CONTROL_BYTES`].
        request: &'a [u8],
    },
    /// A chain of a descriptor queue, which belongs to the model until its [`Output::Complete`]. Only models that
    /// request chains ([`Nic::descriptors_wanted`]) get any.
    Descriptor(Descriptor),
    /// The host has notified a descriptor queue: a poll demand, for a model whose descriptors lie in rings in the
    /// guest's memory. Chains of the queue itself arrive as [`Input::Descriptor`].
    PollDemand {
        /// Which queue.
        queue: DescriptorQueue,
    },
    /// Counts that only the shell can make, passed before a request for statistics.
    ShellCounts(ShellCounts),
    /// A frame arrived from the link. `now` is the arrival of its last byte.
    Frame {
        /// The frame. A model that keeps it clones it.
        frame: &'a SharedFrame,
        /// Arrival of its first byte.
        head: Time,
        /// The message that [`Output::Frame`] named.
        message: Option<TraceTag>,
    },
    /// The answer to [`Output::DmaRead`] or [`Output::WindowRead`].
    DmaData {
        /// Token of the output.
        token: u64,
        /// The output's `into` with the bytes appended; without any of them if `is_whole` is false.
        bytes: FrameBytes,
        /// Whether all ranges are the guest's memory.
        is_whole: bool,
    },
    /// The other answer to [`Output::DmaRead`], for a card that [`Nic::borrows`]. All of the bytes are the host's
    /// memory, and may stay there until they are stored at their destination. The card sends them by
    /// [`Output::BorrowedFrame`], which the shell polls next.
    Borrowed {
        /// Token of the output.
        token: u64,
        /// The output's `into`.
        into: FrameBytes,
    },
    /// As [`Input::Frame`], for a card that [`Nic::borrows`]: a valid frame whose data still lies where its sender read
    /// it. The card names the bytes to store by [`Output::DmaBorrowed`] at once: the frame is gone after this input's
    /// outputs.
    BorrowedFrame {
        /// The frame before the data, without check words.
        frame: FrameHead<'a>,
        /// Arrival of its first byte.
        head: Time,
        /// The message that [`Output::BorrowedFrame`] named.
        message: Option<TraceTag>,
    },
    /// The time that [`Nic::poll_timeout`] named has come.
    Timeout,
    /// The host is gone or was reset. The model forgets every port and all of its memory at once, and writes nothing
    /// more.
    HostReset,
}

/// Max bytes of a control request that a shell passes to a model: more than any body of [`niclab_abi::control`].
pub const MAX_CONTROL_BYTES: usize = 4096;

/// Totals since the device was made that only the shell can count, for the model's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShellCounts {
    /// Doorbells rung by the guest.
    pub doorbells: u64,
    /// Posts that the shell found by polling, without a doorbell.
    pub doorbells_spared: u64,
    /// Events merged into a later one because the driver had left no buffer.
    pub events_merged: u64,
    /// Control requests that the shell refused itself.
    pub control_refused: u64,
}

/// A port of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node.
    pub node: u16,
    /// The port on it.
    pub port: u8,
}

/// A range of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Guest-physical address of the first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A range of a window of the BAR. Each port has its share of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRange {
    /// The window's kind, as its model declares it.
    pub window: u32,
    /// The port that owns the share.
    pub port: u32,
    /// Which bytes of the share.
    pub bytes: Range<u64>,
}

/// A descriptor queue of a card: the virtqueue of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DescriptorQueue {
    /// Data to send.
    Transmit,
    /// Room for data that arrives.
    Receive,
}

impl DescriptorQueue {
    /// Both queues.
    pub const ALL: [Self; 2] = [Self::Transmit, Self::Receive];
}

/// A chain of a descriptor queue. No control request named its memory: the shell has checked all of it against the
/// guest's memory table, and checks each access again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Returned in [`Output::Complete`].
    pub token: u64,
    /// The queue.
    pub queue: DescriptorQueue,
    /// Ranges that the device may read, in the order of the chain; at most as many as the queue has descriptors.
    pub readable: HostRanges,
    /// Ranges that the device may write.
    pub writable: HostRanges,
}

/// One posted slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStore {
    /// The port that owns the page: the identity of the sender.
    pub port: u32,
    /// The lower half of the launch word: the page-offset code and bits that must be zero.
    pub code: u32,
    /// Words 0..10 of the slot. Payload and tag end at word 10; the model does not read the words before the payload.
    pub words: [u64; niclab_abi::bar::PAYLOAD_WORDS + niclab_abi::bar::TAG_WORDS],
}

/// A register of a completer page, [`niclab_abi::bar::CompleterPage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Slices consumed since the port was opened.
    Released(u64),
    /// Number of the slice whose arrival interrupts the host; zero disarms.
    Armed(u64),
    /// Slices that the program consumes between two stores of [`Register::Released`]; zero: unknown. The store is part
    /// of the port's set-up and has no price.
    ReleaseInterval(u64),
}

/// What a DMA write means to the host that reads it. Shells need not know. The fault injector
/// ([`crate::nic::fault_injector`]) does: it corrupts one part of a write and leaves the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data, announced by a later write.
    Data,
    /// A slot, a descriptor or an event. Its last word gives it to the host: the device owns all of it until the host
    /// sees that word change. The words before the last are data.
    Completion {
        /// The bits of the last word that describe content and result. The other bits are ownership: they alone show
        /// the host that the word is new.
        status: u64,
    },
    /// Counts, each usable alone. The next write replaces all of them.
    Counts,
}

/// An effect that a model requests, and its model time. A shell carries effects out in the order in which it polls
/// them. Models name memory that the host gave them, in a control request or by a descriptor. The shell checks every
/// address against the guest's memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store `words` into host memory from `address` on, in ascending order, each word with release ordering after
    /// those before it.
    DmaWrite {
        /// When the last word is visible to the host.
        at: Time,
        /// Guest-physical address, aligned to 8 bytes.
        address: u64,
        /// What to store.
        words: DmaWords,
        /// What the words mean to the host.
        content: Content,
        /// The message that caused it, if the ledger knows one.
        message: Option<TraceTag>,
    },
    /// Store a part of a frame into host memory, byte by byte where alignment requires it. This is data, announced by
    /// a later write. The frame may have arrived long before.
    DmaFrame {
        /// When the last byte is visible to the host.
        at: Time,
        /// The frame.
        frame: SharedFrame,
        /// Which bytes of it.
        bytes: Range<usize>,
        /// Destination: the same number of bytes, in this order.
        ranges: HostRanges,
        /// The message whose data it is, if the ledger knows it.
        message: Option<TraceTag>,
    },
    /// Load host memory, append it to `into`, and answer by [`Input::DmaData`] at the same instant, before the next
    /// poll. The shell loads a range of one aligned 64-bit word at once, with acquire ordering before the ranges after
    /// it. So those ranges contain everything that the host stored before that word.
    DmaRead {
        /// When the last byte is in the NIC.
        at: Time,
        /// Returned with the answer.
        token: u64,
        /// Source, in this order.
        ranges: HostRanges,
        /// The bytes are appended to this: the head of a frame, so that data is copied once. Empty for a read of
        /// single words.
        into: FrameBytes,
        /// The message that it is for, if the ledger knows it.
        message: Option<TraceTag>,
    },
    /// Load bytes that the host stored into a window of the card, append them to `into`, and answer by
    /// [`Input::DmaData`] as for [`Output::DmaRead`]. The card already has them, so nothing crosses the bus.
    WindowRead {
        /// When the card can use them.
        at: Time,
        /// Returned with the answer.
        token: u64,
        /// Source.
        range: WindowRange,
        /// The bytes are appended to this: the head of a frame, so that data is copied once.
        into: FrameBytes,
        /// The message that they are part of, if the ledger knows it.
        message: Option<TraceTag>,
    },
    /// Send a frame into the link.
    Frame {
        /// When its first byte is ready for the link.
        at: Time,
        /// When its last byte is ready. A link waits for a source that is slower than the link. Equal to `at` for a
        /// frame that is complete before it leaves.
        tail: Time,
        /// The frame.
        frame: SharedFrame,
        /// The message that it carries; none for the NIC's own frames, such as flow control. Only ledgers see it: the
        /// receiver's behaviour must follow from the frame alone.
        message: Option<TraceTag>,
    },
    /// As [`Output::Frame`], for a frame whose data is the bytes of the last [`Input::Borrowed`].
    BorrowedFrame {
        /// When its first byte is ready for the link.
        at: Time,
        /// When its last byte is.
        tail: Time,
        /// The frame before these bytes, without check words.
        head: FrameBytes,
        /// The message that it carries, as for [`Output::Frame`].
        message: Option<TraceTag>,
    },
    /// As [`Output::DmaFrame`], for the frame of the current [`Input::BorrowedFrame`].
    DmaBorrowed {
        /// When the last byte is visible to the host.
        at: Time,
        /// Which bytes of the frame.
        bytes: Range<usize>,
        /// Destination: the same number of bytes, in this order.
        ranges: HostRanges,
        /// The message whose data it is, if the ledger knows it.
        message: Option<TraceTag>,
    },
    /// Interrupt the host with one event.
    Interrupt {
        /// When it is raised.
        at: Time,
        /// What for: a `CAUSE_` constant of [`niclab_abi::event`].
        cause: u32,
        /// The port of the event.
        port: u32,
        /// The message that caused it, if any.
        message: Option<TraceTag>,
    },
    /// Return a chain to its descriptor queue. The shell interrupts the host if the driver has interrupts enabled.
    Complete {
        /// When.
        at: Time,
        /// Token of [`Input::Descriptor`].
        token: u64,
        /// Bytes that the card wrote into its memory.
        bytes: u32,
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
    /// The effect's model time.
    #[inline]
    pub const fn at(&self) -> Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::BorrowedFrame { at, .. }
            | Self::DmaBorrowed { at, .. }
            | Self::WindowRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Complete { at, .. }
            | Self::Reply { at, .. } => *at,
        }
    }

    /// The message that caused the effect, if the ledger knows one.
    #[inline]
    pub const fn message(&self) -> Option<TraceTag> {
        match self {
            Self::DmaWrite { message, .. }
            | Self::DmaFrame { message, .. }
            | Self::DmaRead { message, .. }
            | Self::BorrowedFrame { message, .. }
            | Self::DmaBorrowed { message, .. }
            | Self::WindowRead { message, .. }
            | Self::Frame { message, .. }
            | Self::Interrupt { message, .. } => *message,
            Self::Complete { .. } | Self::Reply { .. } => None,
        }
    }

    /// The effect's model time, to delay it.
    pub const fn at_mut(&mut self) -> &mut Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::BorrowedFrame { at, .. }
            | Self::DmaBorrowed { at, .. }
            | Self::WindowRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Complete { at, .. }
            | Self::Reply { at, .. } => at,
        }
    }
}

/// A NIC model. Reports read [`Observed`].
pub trait Nic: Observed {
    /// Takes one input at model time `now`. Never fails: the model answers, counts or raises errors, as the host
    /// interface specifies.
    ///
    /// The model uses the bus and host of `node` for the duration of the call. Other masters of the node use them
    /// between calls.
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus);

    /// The host memory that a control request would make accessible to the model. Unless all of it is memory of the
    /// guest, a shell refuses the request with [`niclab_abi::control::STATUS_BAD_ADDRESS`].
    fn memory_named_by(&self, request: &[u8]) -> HostRanges;

    /// The next effect, or none. The shell drains the effects after every [`Nic::handle`].
    fn poll_output(&mut self) -> Option<Output>;

    /// The card's side of [`batch`], for a model that takes posts and messages in batches. Such a model never has
    /// pending work ([`Nic::poll_work`]).
    fn batching(&mut self) -> Option<&mut dyn Batching> {
        None
    }

    /// The next deadline, or none.
    fn poll_timeout(&self) -> Option<Time>;

    /// The next deadline at which the card only continues its pending work. It is not a timer that waits for an event
    /// that may never occur. A live shell lets it expire as soon as nothing is in flight, without waiting for a guest.
    fn poll_work(&self) -> Option<Time> {
        None
    }

    /// How many more chains of `queue` the model takes now. A shell leaves the others in the queue, and checks again
    /// after other inputs. `None` for a model that never takes chains.
    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        let _ = queue;
        None
    }

    /// Whether `port` is open and can take another [`Input::PageStore`] now. While this is false, a shell leaves the
    /// slot in the page, and checks again after other inputs.
    fn accepts_store(&self, port: u32) -> bool;

    /// Whether `port` is open, so that a shell must poll its pages.
    fn is_open(&self, port: u32) -> bool;

    /// Whether the card receives ordinary frames: it has a MAC endpoint next to the node's Ethernet function
    /// ([`crate::fabric::ethernet::mac_of_endpoint`]). Then it gets unicasts to the node's MAC endpoints and
    /// broadcasts, of any type and from any sender. A destination may belong to no endpoint. A card without MAC
    /// endpoints never gets such frames.
    fn has_mac_endpoints(&self) -> bool {
        false
    }

    /// Starts or continues a firmware reload. The shell polls its effects as after any input.
    ///
    /// # Errors
    /// [`FirmwareReloadError`] if the reload does not begin; the card is then unchanged.
    fn reload_firmware(
        &mut self,
        now: Time,
        step: FirmwareReloadStep<'_>,
        node: &mut NodeBus,
    ) -> Result<(), FirmwareReloadError> {
        let _ = (now, step, node);
        Err(FirmwareReloadError::Fixed)
    }

    /// Progress of the firmware reload.
    fn progress(&self) -> Progress {
        Progress::Runs
    }

    /// Number of reloads, which the card's frames carry. Cards of different epochs discard each other's frames.
    fn epoch(&self) -> u16 {
        0
    }

    /// Whether the card accepts borrowed data: [`Input::Borrowed`], and frames with borrowed data. The function writes
    /// a frame's check words after the shell has copied the data behind its head, for a receiver or an observer that
    /// keeps the frame. A model that forwards and stores payload unchanged returns it. A model that reads the payload
    /// returns `None`, and always gets complete frames.
    fn borrows(&self) -> Option<Finish> {
        None
    }

    /// Work since the model was made, in units of about ten nanoseconds of a host processor's time. It estimates the
    /// cost of all inputs and outputs to the shell's thread. A shell that many guests share uses it as a budget for
    /// each guest. The count only grows, model time never depends on it, and it may change between versions. A model
    /// whose inputs all cost about the same need not count.
    fn work_done(&self) -> u64 {
        0
    }
}

/// A NIC model as reports and monitors see it. Only the injected faults can change the model's behaviour.
pub trait Observed {
    /// Messages stored for `port` since it was opened: the maximum that its program can have received.
    fn delivered(&self, port: u32) -> u64;

    /// How often wall time decided the order of this host's actions in a live run. The model counts and prices these
    /// actions, but another run of the same programs may differ.
    fn unordered(&self) -> u64;

    /// Posts that their program may have delayed until it saw a counter rise, which no card learns. If the shell does
    /// not know when a program saw the counter, it cannot know when the program posted.
    fn unreported(&self) -> u64 {
        0
    }

    /// A measured part begins. The card restarts its idle cycles (what it repeats while it has no work), so that
    /// earlier parts do not affect the duration of this one.
    fn begin_part(&mut self, _: Time) {}

    /// The cost of every transaction of this card. The network, and other masters on the node's bus, have their own
    /// ledgers.
    fn ledger(&self) -> &Ledger;

    /// The ledger, to record single stages or to disable it.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// Other masters on the node's bus that this model brings: peer devices of the NIC, each with its own ledger, in a
    /// fixed order.
    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        Vec::new()
    }

    /// Their ledgers, in the same order, to record single stages or to disable them.
    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        Vec::new()
    }

    /// The card's complete state, so that tests can compare two cards. Not for any other use.
    fn whole(&self) -> Option<&dyn Debug> {
        None
    }

    /// What every card counts, including these counts of the shell.
    fn statistics(&self, shell: &ShellCounts) -> Statistics;

    /// What only this model counts, by name, for reports: totals since it was made, which only grow.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The fault injector around this model, if any. See [`crate::nic::fault_injector`].
    fn fault_injector(&self) -> Option<&FaultInjector> {
        None
    }

    /// The fault injector, to change its faults.
    fn fault_injector_mut(&mut self) -> Option<&mut FaultInjector> {
        None
    }

    /// The adversary state around this model, if any. See [`crate::nic::adversarial`].
    fn adversarial(&self) -> Option<&Adversarial> {
        None
    }

    /// The adversary state, to change its seed.
    fn adversarial_mut(&mut self) -> Option<&mut Adversarial> {
        None
    }
}
