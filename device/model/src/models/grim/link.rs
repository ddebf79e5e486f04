//! A bidirectional channel between this card and another one. The owner of the channel here sends to the other card,
//! and the owner of the channel with the same number there sends to this card. Each direction has its own frame
//! numbers, so an inbound queue mirrors the sender's outbound queue (section 4.2).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::models::grim::wire::{Failures, Fragment, FrameKind, HEAD_BYTES};
use crate::nic::frame::SharedFrame;
use crate::parts::go_back_n::{self, GoBackN};
use crate::parts::port::Promise;
use crate::parts::sequence::Sequence;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Number of a frame.
pub(super) type FrameNumber = Sequence<32>;

/// A sent frame that the card keeps until its acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) frame: SharedFrame,
    pub(super) message: Option<TraceTag>,
    /// Whether the frame reports on the other card's messages. It stays valid when the owner of the channel ends.
    pub(super) is_report: bool,
}

/// The last frame of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) frame: FrameNumber,
    /// Number of the message among those of its owner.
    pub(super) message: u64,
}

/// A frame that waits in card memory.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) fragment: Fragment,
    pub(super) frame: SharedFrame,
    pub(super) message: Option<TraceTag>,
}

impl Held {
    /// Payload bytes of the frame.
    pub(super) fn payload_bytes(&self) -> usize {
        /// Ours: a CRC of 32 bits.
        const CHECK_BYTES: usize = 4;
        self.frame.len().saturating_sub(HEAD_BYTES + CHECK_BYTES)
    }

    /// Whether the frame is the last of its message.
    pub(super) fn is_last(&self) -> bool {
        u64::from(self.fragment.offset) + self.payload_bytes() as u64 == self.fragment.bytes.into()
    }
}

/// Destination of a message in fragments.
#[derive(Debug)]
pub(super) enum Sink {
    /// An endpoint's payload region, and then a slice.
    Endpoint {
        /// The slice.
        promise: Promise,
        /// Start of its room in the payload region.
        place: u64,
    },
    /// Exposed memory.
    Memory,
    /// A peripheral's memory, which has reserved room for the whole message.
    Peripheral(Vec<u8>),
    /// No destination: the message was refused, or its endpoint is closed.
    Nowhere,
}

/// A partly received message.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) fragment: Fragment,
    /// Bytes received so far.
    pub(super) joined: u32,
    pub(super) sink: Sink,
    /// When the last store becomes visible.
    pub(super) visible: Time,
}

/// A channel between two cards.
#[derive(Debug)]
pub(super) struct Link {
    /// The other card's node.
    pub(super) node: u16,
    pub(super) channel: u8,
    pub(super) frames: GoBackN<Kept>,
    pub(super) endings: VecDeque<Ending>,
    /// Whether the card has abandoned a partly sent message. It must then send a void frame before any other new
    /// frame.
    pub(super) owes_void: bool,
    /// Number of the channel's owner here. The other card names it in reports of failed messages, so no owner gets
    /// reports on an earlier owner's messages.
    pub(super) owner: u8,
    /// Messages of this owner of which a frame was sent.
    pub(super) begun: u32,
    /// Failed messages of this owner that the other card has reported.
    told: Sequence<24>,
    /// Received frames that wait for room at their endpoint.
    pub(super) queue: VecDeque<Held>,
    pub(super) joining: Option<Joining>,
    /// Received messages that this card could not deliver.
    pub(super) failures: Failures,
    /// Whether the card must send a report of these failures. The other card may already have acknowledgements of all
    /// its frames, so no later acknowledgement may carry them.
    pub(super) owes_report: bool,
}

impl Drop for Link {
    /// A dropped card owes no event: the promised slice becomes void.
    fn drop(&mut self) {
        if let Some(Joining { sink: Sink::Endpoint { promise, .. }, .. }) = self.joining.take() {
            promise.void();
        }
    }
}

impl Link {
    pub(super) fn new(node: u16, channel: u8, config: go_back_n::Config) -> Self {
        Self {
            node,
            channel,
            frames: GoBackN::new(config),
            endings: VecDeque::new(),
            owes_void: false,
            owner: 0,
            begun: 0,
            told: Sequence::ZERO,
            queue: VecDeque::new(),
            joining: None,
            failures: Failures::default(),
            owes_report: false,
        }
    }

    /// Whether the owner's next frame may be sent.
    pub(super) fn can_send(&self) -> bool {
        self.frames.can_send() && !self.owes_void
    }

    /// The next void or report to send, the void first; none if the window has no room or nothing is pending.
    pub(super) fn take_owed(&mut self) -> Option<FrameKind> {
        if !self.frames.can_send() {
            None
        } else if core::mem::take(&mut self.owes_void) {
            Some(FrameKind::Void)
        } else {
            core::mem::take(&mut self.owes_report).then_some(FrameKind::Report(self.failures))
        }
    }

    /// The owner has ended. The frames that it has sent now belong to an earlier owner.
    pub(super) const fn end_owner(&mut self) {
        (self.owner, self.begun, self.told) = (self.owner.wrapping_add(1), 0, Sequence::ZERO);
    }

    /// Takes the other card's report of failed messages. Returns how many new failures concern this owner; none if the
    /// report is invalid. (Attack: a card reports the failure of messages that the program has not sent.)
    pub(super) const fn on_failures(&mut self, failures: &Failures) -> Option<u32> {
        let told = failures.count.ahead_of(self.told);
        if failures.owner != self.owner || told == 0 {
            return Some(0);
        }
        if told > self.begun.wrapping_sub(self.told.get()) {
            return None;
        }
        self.told = failures.count;
        Some(told)
    }

    /// Notes that the next frame is of `owner`. Failures of an earlier owner are dropped.
    pub(super) fn on_owner(&mut self, owner: u8) {
        if self.failures.owner != owner {
            self.failures = Failures { owner, ..Failures::default() };
        }
    }

    /// Counts a message of the other card that this card could not deliver.
    pub(super) const fn fail(&mut self, owner: u8, reason: u64) {
        if self.failures.owner == owner {
            self.failures.count = self.failures.count.next();
            self.failures.reason = reason as u8;
        }
    }
}
