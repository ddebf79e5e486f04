//! The boundary of every NIC model: what goes in, what comes out.
//!
//! A shell feeds [`Nic::handle`] and drains [`Nic::poll_output`]. The same three verbs serve a model that is told what
//! to do by stores into a page, by commands in one, or by descriptors on a queue; inputs are added here with the first
//! model that needs them, never beside it.

pub mod adversarial;
pub mod alone;
pub mod fault_injector;
pub mod frame;
pub mod hand_over;
pub mod host_values;
pub mod packet;
pub mod registry;
pub mod series;
pub mod statistics;
pub mod windows;

pub use statistics::Statistics;

use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;

use smallvec::SmallVec;

use crate::nic::adversarial::Adversarial;
use crate::nic::fault_injector::FaultInjector;
use crate::nic::frame::{LentHead, SharedFrame};
use crate::nic::hand_over::{HandOver, HandOverError, Progress};
use crate::nic::packet::{EffectQueue, InlinePacket};
use crate::nic::series::InSeries;
use crate::platform::ledger::Ledger;
use crate::platform::node_bus::NodeBus;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Bytes of a frame that is being made, from the Ethernet header to the last byte of the payload (no preamble, no check
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

/// Writes the check words of a frame that is whole but for them.
pub type Finish = fn(&mut FrameBytes);

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
    /// A chain of a descriptor queue: the model has it until its [`Output::Complete`]. Only models that ask for some
    /// ([`Nic::descriptors_wanted`]) get any.
    Descriptor(Descriptor),
    /// The host has notified a descriptor queue: a poll demand, for a model whose descriptors lie in rings of the
    /// guest's memory. What the queue itself holds comes as [`Input::Descriptor`].
    PollDemand {
        /// Which queue.
        queue: DescriptorQueue,
    },
    /// What only the shell can count, before a request for statistics.
    ShellCounts(ShellCounts),
    /// A frame arrived from the link: at the time of the call its last byte is there.
    Frame {
        /// The frame. A model that wants to keep it clones it.
        frame: &'a SharedFrame,
        /// When its first byte was there.
        head: Time,
        /// What [`Output::Frame`] said of it.
        message: Option<TraceTag>,
    },
    /// A frame arrived from the link that nobody encoded: at the time of the call its last byte is there. Only models
    /// that have an effect_queue ([`Nic::effect_queue`]) get any, and only of their own protocol.
    InlinePacket {
        /// What it says.
        packet: &'a InlinePacket,
        /// When its first byte was there.
        head: Time,
    },
    /// What [`Output::DmaRead`] or [`Output::WindowRead`] asked for.
    DmaData {
        /// Token of the output.
        token: u64,
        /// What the output wanted appended to, and behind it the bytes; none of them unless all are there.
        bytes: FrameBytes,
        /// Whether they are: otherwise not all of the ranges were the guest's memory.
        is_whole: bool,
    },
    /// The other answer to [`Output::DmaRead`], to a card that [`Nic::lends`]: all of the bytes are the host's memory,
    /// and may stay there until they are stored where they are to go. What is sent is an [`Output::LentFrame`], which
    /// is polled next.
    Lent {
        /// Token of the output.
        token: u64,
        /// What the output wanted the bytes appended to.
        into: FrameBytes,
    },
    /// As [`Input::Frame`], to a card that [`Nic::lends`], of a frame that is sound and whose data still lies where its
    /// sender read it. What of it is to be stored is named by [`Output::DmaLent`] at once: the frame is gone when this
    /// input's outputs are.
    LentFrame {
        /// All of the frame before the data, without check words.
        lent: LentHead<'a>,
        /// When its first byte was there.
        head: Time,
        /// What [`Output::LentFrame`] said of it.
        message: Option<TraceTag>,
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

/// A port of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node.
    pub node: u16,
    /// The port on it.
    pub port: u8,
}

/// A stretch of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Guest-physical address of the first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A stretch of a window of the BAR that ports have parts of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRange {
    /// The window's kind, as its model declares it.
    pub window: u32,
    /// The port whose part of it.
    pub port: u32,
    /// Which bytes of the part.
    pub bytes: Range<u64>,
}

/// A descriptor queue of a card: the virtqueues of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DescriptorQueue {
    /// What is to be sent.
    Transmit,
    /// Where is room for what comes.
    Receive,
}

impl DescriptorQueue {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Transmit, Self::Receive];
}

/// A chain of a descriptor queue. Its memory was named in no control request: the shell has checked all of it against
/// the guest's memory table, and checks each access again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Comes back with the [`Output::Complete`].
    pub token: u64,
    /// The queue.
    pub queue: DescriptorQueue,
    /// What the device may read, in the order of the chain. As many ranges as the queue has descriptors, at the most.
    pub readable: HostRanges,
    /// What it may write.
    pub writable: HostRanges,
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
/// ([`crate::nic::fault_injector`]) does, for it spoils a part of the write and leaves the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data, of which a later write tells.
    Data,
    /// A slot, a descriptor or an event. The last word makes it the host's: until the host sees that word change, all
    /// of it is the device's. The words before the last are data.
    Completion {
        /// The bits of the last word that say what came and how it went. The others are ownership: by them alone the
        /// host sees that the word is new.
        status: u64,
    },
    /// Counts, each of them of use by itself. The next write replaces all of them.
    Counts,
}

/// What a model wants done, and when in model time. A shell carries outputs out in the order in which they are polled.
/// Models name memory that the host gave them, in a control request or by a descriptor; a shell checks every address
/// against the guest's memory table.
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
        /// What that is to the host.
        content: Content,
        /// The message that caused it, where one did and the ledger knows.
        message: Option<TraceTag>,
    },
    /// Store a part of a frame into host memory, byte by byte where it must be: data, of which a later write tells. The
    /// frame may have come long ago.
    DmaFrame {
        /// When the last byte is visible to the host.
        at: Time,
        /// The frame.
        frame: SharedFrame,
        /// Which bytes of it.
        bytes: Range<usize>,
        /// Where to: as many bytes, in this order.
        ranges: HostRanges,
        /// The message whose data it is, where the ledger knows.
        message: Option<TraceTag>,
    },
    /// Load host memory, append it to `into`, and answer by [`Input::DmaData`] at the same instant, before the next
    /// output is polled. A range of one aligned word of 64 bits is loaded at once, with acquire ordering before the
    /// ranges behind it: what the host stored before it stored that word is in them.
    DmaRead {
        /// When the last byte is in the NIC.
        at: Time,
        /// Comes back with the answer.
        token: u64,
        /// Where from, in this order.
        ranges: HostRanges,
        /// What the bytes are appended to: the head of a frame, so that data is copied once. Empty where words are
        /// wanted.
        into: FrameBytes,
        /// The message that it is for, where the ledger knows.
        message: Option<TraceTag>,
    },
    /// Load bytes that the host stored into a window of the card, append them to `into`, and answer by
    /// [`Input::DmaData`] as to [`Output::DmaRead`]. They are in the card already, so that nothing crosses the bus.
    WindowRead {
        /// When the card has them in hand.
        at: Time,
        /// Comes back with the answer.
        token: u64,
        /// Which.
        range: WindowRange,
        /// What they are appended to: the head of a frame, so that data is copied once.
        into: FrameBytes,
        /// The message that they are part of, where the ledger knows.
        message: Option<TraceTag>,
    },
    /// Send a frame into the link.
    Frame {
        /// When its first byte is ready for the link.
        at: Time,
        /// When its last byte is: a link waits for a source that is slower than itself. The same instant for a frame
        /// that is whole before it leaves.
        tail: Time,
        /// The frame.
        frame: SharedFrame,
        /// The message that it carries; none for frames of the NIC's own, such as flow control. Travels beside the
        /// frame and is known to ledgers alone: what the receiver does must follow from the frame.
        message: Option<TraceTag>,
    },
    /// As [`Output::Frame`], of a frame whose data lies where the bytes lie that were lent last ([`Input::Lent`]).
    LentFrame {
        /// When its first byte is ready for the link.
        at: Time,
        /// When its last byte is.
        tail: Time,
        /// All of the frame before these bytes, without check words.
        head: FrameBytes,
        /// The message that it carries, as of a frame.
        message: Option<TraceTag>,
    },
    /// As [`Output::DmaFrame`], of the frame that has come in [`Input::LentFrame`] just now.
    DmaLent {
        /// When the last byte is visible to the host.
        at: Time,
        /// Which bytes of the frame.
        bytes: Range<usize>,
        /// Where to: as many bytes, in this order.
        ranges: HostRanges,
        /// The message whose data it is, where the ledger knows.
        message: Option<TraceTag>,
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
        message: Option<TraceTag>,
    },
    /// Give a chain back to its descriptor queue; the host is interrupted where its driver wants that.
    Complete {
        /// When.
        at: Time,
        /// Token of [`Input::Descriptor`].
        token: u64,
        /// Bytes that were written into its memory.
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
    /// When it is to be done.
    #[inline]
    pub const fn at(&self) -> Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::LentFrame { at, .. }
            | Self::DmaLent { at, .. }
            | Self::WindowRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Complete { at, .. }
            | Self::Reply { at, .. } => *at,
        }
    }

    /// The message that caused it, where one did and the ledger knows.
    #[inline]
    pub const fn message(&self) -> Option<TraceTag> {
        match self {
            Self::DmaWrite { message, .. }
            | Self::DmaFrame { message, .. }
            | Self::DmaRead { message, .. }
            | Self::LentFrame { message, .. }
            | Self::DmaLent { message, .. }
            | Self::WindowRead { message, .. }
            | Self::Frame { message, .. }
            | Self::Interrupt { message, .. } => *message,
            Self::Complete { .. } | Self::Reply { .. } => None,
        }
    }

    /// When it is to be done, to put it off.
    pub const fn at_mut(&mut self) -> &mut Time {
        match self {
            Self::DmaWrite { at, .. }
            | Self::DmaFrame { at, .. }
            | Self::DmaRead { at, .. }
            | Self::LentFrame { at, .. }
            | Self::DmaLent { at, .. }
            | Self::WindowRead { at, .. }
            | Self::Frame { at, .. }
            | Self::Interrupt { at, .. }
            | Self::Complete { at, .. }
            | Self::Reply { at, .. } => at,
        }
    }
}

/// A NIC model: its verbs. What reports look at is [`Observed`].
pub trait Nic: Observed {
    /// Takes one input at model time `now`. Never fails: what is wrong is answered, counted or raised, as the host
    /// interface says.
    ///
    /// What it does over the bus it does on `node`, whose host and bus it has for as long as the call takes. Other
    /// masters of the node have them between two calls.
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus);

    /// The host memory that a control request would let the model touch. A shell refuses the request with
    /// [`niclab_abi::control::STATUS_BAD_ADDRESS`] unless all of it is memory of the guest, and only then passes it on.
    fn memory_named_by(&self, request: &[u8]) -> HostRanges;

    /// The next effect, until there is none. Drained after every [`Nic::handle`].
    fn poll_output(&mut self) -> Option<Output>;

    /// The card's side of the short way ([`packet`]), for a model that leaves and takes packets. Such a model never has
    /// work in hand ([`Nic::poll_work`]). What is in it is what [`Nic::poll_output`] has.
    fn effect_queue(&mut self) -> Option<&mut EffectQueue> {
        None
    }

    /// The card's side of [`series`], for a model that has an effect_queue and takes launches and messages as series, too.
    fn in_series(&mut self) -> Option<&mut dyn InSeries> {
        None
    }

    /// The one next deadline, or none.
    fn poll_timeout(&self) -> Option<Time>;

    /// A deadline at which the card only goes on with what it has in hand, if there is one: no timer, which waits for
    /// something that may not come. A live shell lets it come as soon as nothing is in flight, and waits for no guest.
    fn poll_work(&self) -> Option<Time> {
        None
    }

    /// How many more chains of `queue` the model takes now. A shell leaves the others in the queue, and looks again
    /// after other inputs. `None` for a model that never takes any.
    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        let _ = queue;
        None
    }

    /// Whether `port` is open and can take another [`Input::PageStore`] now. A shell leaves the slot in the page while
    /// this is false, and looks again after other inputs.
    fn accepts_store(&self, port: u32) -> bool;

    /// Whether `port` is open: its pages are worth a look.
    fn is_open(&self, port: u32) -> bool;

    /// Whether ordinary frames concern it: it has a station beside the node's Ethernet function
    /// ([`crate::fabric::ethernet::mac_of_station`]). Then frames come that are addressed to stations of the node or to
    /// all, of whatever type and from whomever, and with an address that may be of no station; a card without stations
    /// never gets any.
    fn has_stations(&self) -> bool {
        false
    }

    /// The card is given another program, or told to go on with taking it. Effects are polled, as after any input.
    ///
    /// # Errors
    /// [`HandOverError`] when it does not begin; nothing has changed then.
    fn hand_over(&mut self, now: Time, step: HandOver<'_>, node: &mut NodeBus) -> Result<(), HandOverError> {
        let _ = (now, step, node);
        Err(HandOverError::Fixed)
    }

    /// How far it has got with that.
    fn progress(&self) -> Progress {
        Progress::Runs
    }

    /// How often programs were taken, as the card's frames tell others; cards of different epochs do not understand one
    /// another.
    fn epoch(&self) -> u16 {
        0
    }

    /// Whether bytes may be lent to the card, and frames with lent data come to it; and what makes such a frame whole
    /// once its data stands behind its head after all, because somebody wants to keep it or to look at it: its check
    /// words are written. The card of a model that sends what it reads as it is, and stores what it gets as it comes,
    /// says so; one that looks at the data does not, and never meets a frame that is not there.
    fn lends(&self) -> Option<Finish> {
        None
    }

    /// Work done since the model was made, in units of about ten nanoseconds of a host processor's time: an estimate of
    /// what inputs and outputs so far have cost the shell's thread, so that a shell which many guests share can stop
    /// after so much of it and let another in. It only grows. Model time never follows from it, and it may change from
    /// one version to the next. A model whose inputs all cost about the same need not count.
    fn work_done(&self) -> u64 {
        0
    }
}

/// A NIC model as reports and monitors see it: nothing here changes what it does, but for the faults that are put into
/// it.
pub trait Observed {
    /// Messages stored for `port` since it was opened: what its program can have received.
    fn delivered(&self, port: u32) -> u64;

    /// How often the wall clock of a live run decided in which order this node's host did things: what it did is
    /// counted and priced, but another run of the same programs may differ.
    fn unordered(&self) -> u64;

    /// Launches that their program may have held back until it saw something of which no card is told: a counter that
    /// rose. A shell that does not know what a program sees when cannot know when they were made.
    fn unreported(&self) -> u64 {
        0
    }

    /// A measured part begins: what this card does round and round while it has nothing else to do begins anew, so that
    /// what a part takes does not depend on what came before it.
    fn begin_part(&mut self, _: Time) {}

    /// What every crossing of this card has cost: those of the network and of other masters on the node's bus are in
    /// theirs.
    fn ledger(&self) -> &Ledger;

    /// To keep single stages, or to turn the ledger off.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// Other masters on the node's bus that this model brings: cards beside the NIC, each with a ledger of its own, in
    /// an order that stays.
    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        Vec::new()
    }

    /// Their ledgers, in the same order, to keep single stages or to turn them off.
    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        Vec::new()
    }

    /// All that the card is, so that tests can hold two against one another. Nobody takes anything out of it.
    fn whole(&self) -> Option<&dyn Debug> {
        None
    }

    /// What every card counts, with these counts of the shell.
    fn statistics(&self, shell: &ShellCounts) -> Statistics;

    /// What only this model counts, by name, for reports: totals since it was made, which only grow.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Who puts faults into what this model wants done; a model by itself has nobody. See
    /// [`crate::nic::fault_injector`].
    fn fault_injector(&self) -> Option<&FaultInjector> {
        None
    }

    /// The same, to change the faults.
    fn fault_injector_mut(&mut self) -> Option<&mut FaultInjector> {
        None
    }

    /// Who holds back what the host sees of this model, where it is adversarial; a model by itself is not. See
    /// [`crate::nic::adversarial`].
    fn adversarial(&self) -> Option<&Adversarial> {
        None
    }

    /// The same, to change the seed.
    fn adversarial_mut(&mut self) -> Option<&mut Adversarial> {
        None
    }
}
