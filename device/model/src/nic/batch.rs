//! Batches: consecutive posts of one port that differ only in payload, which shell and models take, price and deliver
//! together. This is the fast path of a message: no frame is encoded, moved or parsed. A single post can be a batch.
//!
//! Decisions are made once for the batch: whether the messages are sent, their destination, and their latency on idle
//! resources. Each message still waits for busy resources, so the model computes its instants one after the other,
//! with the functions that also serve other messages. The final state of a card, including all counts, is the same as
//! if a shell had fed each post ([`Input::PageStore`](crate::nic::Input::PageStore)) and each frame
//! ([`Input::Frame`](crate::nic::Input::Frame)) alone.
//!
//! A shell asks the sender's model for the route ([`Batching::route`]), and the receiver's model how many messages it
//! takes ([`Batching::room`]). Then it takes at most that many posts, and nothing can fail after that.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::bar::SLOTS;

use crate::fabric::batch::{BatchFrame, BatchLength};
use crate::nic::DMA_BUFFER_WORDS;
use crate::platform::node_bus::NodeBus;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Max posts of a batch: all slots of a page.
pub const MAX_POSTS: usize = SLOTS as usize;

/// What all posts of a batch have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchRoute {
    /// The posting port.
    pub port: u32,
    /// The destination node of the frames.
    pub to: u16,
    /// Of each frame.
    pub length: BatchLength,
    /// What the first frame has before its words, as its protocol defines it. The heads of the others follow from it.
    pub head: [u64; 2],
    /// The words of its slot that each post carries.
    pub words: Range<usize>,
    /// Max posts of the batch, from 1.
    pub max_posts: usize,
}

/// What one post of a batch carries.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its words, followed by the words that its receiver adds on arrival.
    pub words: [u64; DMA_BUFFER_WORDS],
    /// Where its words are stored in host memory.
    pub address: u64,
}

/// A batch, from page to memory. The shell reuses it, so that its buffers are allocated once.
#[derive(Debug, Default)]
pub struct Batch {
    /// What all posts have in common.
    pub route: BatchRoute,
    /// Words that each message stores at its receiver.
    pub stored_words: usize,
    /// When the last post was fed to its model.
    pub fed: Time,
    /// When the last message is visible at its receiver.
    pub visible: Time,
    /// The message of the last post.
    pub last: Option<TraceTag>,
    /// Only the first `count` are valid, here and in `frames`.
    members: Vec<Member>,
    frames: Vec<BatchFrame>,
    count: usize,
}

impl Batch {
    /// Starts a new, empty batch.
    pub fn begin(&mut self, route: BatchRoute) {
        self.members.resize_with(MAX_POSTS, Member::default);
        self.frames.resize(MAX_POSTS, BatchFrame::default());
        (self.route, self.count, self.last) = (route, 0, None);
    }

    /// Adds a post to the batch, if it has room, and returns its slot to fill.
    #[inline]
    pub fn add(&mut self) -> Option<&mut Member> {
        let member = self.members.get_mut(self.count).filter(|_| self.count < self.route.max_posts)?;
        self.count += 1;
        Some(member)
    }

    /// Number of posts.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the batch is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The posts, in their order.
    #[inline]
    pub fn members(&self) -> &[Member] {
        self.members.get(..self.count).unwrap_or_default()
    }

    /// The frames of the posts, at the stage that they have reached.
    #[inline]
    pub fn frames(&self) -> &[BatchFrame] {
        self.frames.get(..self.count).unwrap_or_default()
    }

    /// The frames, for the network.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [BatchFrame] {
        self.frames.get_mut(..self.count).unwrap_or_default()
    }

    /// Posts, frames, and [`Batch::visible`], for the receiver.
    #[inline]
    pub fn for_receiver(&mut self) -> (&mut [Member], &mut [BatchFrame], &mut Time) {
        let Self { members, frames, visible, count, .. } = self;
        let members = members.get_mut(..*count).unwrap_or_default();
        (members, frames.get_mut(..*count).unwrap_or_default(), visible)
    }
}

/// The card's side of batches.
pub trait Batching {
    /// The route of posts of `port` with this code, if the next posts can be sent as a batch. Each post of a batch
    /// causes only a frame and the report of free slots to its program. The call changes nothing.
    fn route(&self, port: u32, code: u32) -> Option<BatchRoute>;

    /// How many messages of this route the card takes as a batch. Each message of a batch causes only a store. The
    /// call changes nothing.
    fn room(&self, route: &BatchRoute) -> usize;

    /// Takes posts, each when the host can begin it. The reports of free slots to their program are then among the
    /// card's outputs.
    fn launch(&mut self, batch: &mut Batch, node: &mut NodeBus);

    /// Takes all messages of a batch that arrived.
    fn receive(&mut self, batch: &mut Batch, node: &mut NodeBus);
}
