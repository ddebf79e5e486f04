//! A channel between this card and another one, both ways: what its owner here sends there, and what the owner of the channel of
//! the same number sends from there. Each way has numbers of its own, so that an inbound queue mirrors the sender's outbound queue
//! (section 4.2).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::models::grim::wire::{Fragment, HEAD_BYTES};
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
    /// What the other card has said of messages that it could not deliver.
    pub(super) failures_told: u32,
    /// Frames before this one are an earlier owner's. Until they are acknowledged, nothing goes for the next, who would be told
    /// what came of them.
    pub(super) owner_since: Option<FrameNumber>,
    /// Frames that came and wait for their endpoint.
    pub(super) queue: VecDeque<Held>,
    pub(super) joining: Option<Joining>,
    /// Messages that came and could not be delivered, and why the last of them could not.
    pub(super) failures: u32,
    pub(super) reason: u8,
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
    pub(super) const fn new(node: u16, channel: u8, config: go_back_n::Config) -> Self {
        Self {
            node,
            channel,
            frames: GoBackN::new(config),
            endings: VecDeque::new(),
            owes_void: false,
            failures_told: 0,
            owner_since: None,
            queue: VecDeque::new(),
            joining: None,
            failures: 0,
            reason: 0,
        }
    }

    /// Whether the owner's next frame may go.
    pub(super) fn can_send(&self) -> bool {
        self.frames.can_send() && !self.owes_void && self.owner_since.is_none()
    }

    /// The owner has ended: what it has sent, and the void that it may owe, are an earlier owner's.
    pub(super) fn end_owner(&mut self) {
        let since = self.frames.next_sequence().plus(self.owes_void.into());
        self.owner_since = Some(since).filter(|since| since.is_after(self.frames.oldest()));
    }

    /// The window has moved. Whether what the other card says is of what the present owner has sent.
    pub(super) fn is_owners(&mut self) -> bool {
        let before = self.owner_since;
        self.owner_since = before.filter(|since| since.is_after(self.frames.oldest()));
        before.is_none()
    }

    /// A message of the other card's could not be delivered.
    pub(super) const fn fail(&mut self, reason: u64) {
        self.failures = self.failures.wrapping_add(1);
        self.reason = reason as u8;
    }
}
