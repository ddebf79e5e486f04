//! A channel between this card and another one, both ways: what its owner here sends there, and what the owner of the
//! channel of the same number sends from there. Each way has numbers of its own, so that an inbound queue mirrors the
//! sender's outbound queue (section 4.2).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::models::grim::wire::{Failures, Fragment, HEAD_BYTES, Kind};
use crate::nic::frame::SharedFrame;
use crate::parts::go_back_n::{self, GoBackN};
use crate::parts::port::Promise;
use crate::parts::sequence::Sequence;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Number of a frame.
pub(super) type FrameNumber = Sequence<32>;

/// What is kept of a frame until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) frame: SharedFrame,
    pub(super) message: Option<TraceTag>,
    /// It tells the other card of its own messages, and is not void when the owner of the channel ends.
    pub(super) is_report: bool,
}

/// The last frame of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) frame: FrameNumber,
    /// Number of the message among its owner's.
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

    /// Whether its message ends with it.
    pub(super) fn is_last(&self) -> bool {
        u64::from(self.fragment.offset) + self.payload_bytes() as u64 == self.fragment.bytes.into()
    }
}

/// Where a message that comes in fragments goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// Into an endpoint's payload region, and then a slice.
    Endpoint {
        /// The slice.
        promise: Promise,
        /// Where its room begins in the payload region.
        place: u64,
    },
    /// Into exposed memory.
    Memory,
    /// Into a peripheral's memory, where room for all of it was taken.
    Peripheral(Vec<u8>),
    /// Nowhere: it was refused, or its endpoint closed.
    Nowhere,
}

/// A message that has begun to come.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) fragment: Fragment,
    /// Bytes that came.
    pub(super) joined: u32,
    pub(super) sink: Sink,
    /// When what was stored last is visible.
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
    /// A message was given up that had begun on the wire: the other card has to be told, before anything else is sent.
    pub(super) owes_void: bool,
    /// The number of the channel's owner here: the other card names it with what it could not deliver, so that no owner
    /// is told of an earlier one's messages.
    pub(super) owner: u8,
    /// Messages of this owner that have begun to go.
    pub(super) begun: u32,
    /// Of these, what the other card has said that it could not deliver.
    told: Sequence<24>,
    /// Frames that came and wait for their endpoint.
    pub(super) queue: VecDeque<Held>,
    pub(super) joining: Option<Joining>,
    /// Messages that came and could not be delivered.
    pub(super) failures: Failures,
    /// The other card has to be told of them: it may have had the last acknowledgement of all that it has sent.
    pub(super) owes_report: bool,
}

impl Drop for Link {
    /// The card is gone, and with it who was promised something.
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

    /// Whether the owner's next frame may go.
    pub(super) fn can_send(&self) -> bool {
        self.frames.can_send() && !self.owes_void
    }

    /// What the other card has to be told next, if the window has room for it: first that a message was given up.
    pub(super) fn take_owed(&mut self) -> Option<Kind> {
        if !self.frames.can_send() {
            None
        } else if core::mem::take(&mut self.owes_void) {
            Some(Kind::Void)
        } else {
            core::mem::take(&mut self.owes_report).then_some(Kind::Report(self.failures))
        }
    }

    /// The owner has ended: what it has sent is an earlier owner's.
    pub(super) const fn end_owner(&mut self) {
        (self.owner, self.begun, self.told) = (self.owner.wrapping_add(1), 0, Sequence::ZERO);
    }

    /// The other card tells of messages that it could not deliver: how many of this owner's are new. None where it
    /// cannot be: a card that lies about its failures would have a program think that messages were refused which it
    /// has not sent.
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

    /// A frame of a message is next: those of the owner before it are nobody's any more.
    pub(super) fn on_owner(&mut self, owner: u8) {
        if self.failures.owner != owner {
            self.failures = Failures { owner, ..Failures::default() };
        }
    }

    /// A message of the other card's could not be delivered.
    pub(super) const fn fail(&mut self, owner: u8, reason: u64) {
        if self.failures.owner == owner {
            self.failures.count = self.failures.count.next();
            self.failures.reason = reason as u8;
        }
    }
}
