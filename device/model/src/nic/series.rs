//! Batches: equal consecutive posts of one port, which shell and models take, price and deliver together. This is the
//! fast path of a message ([`packet`](crate::nic::packet)) for several messages at once.
//!
//! Decisions are made once for the batch: whether the messages are sent, their destination, and their latency on idle
//! resources. Each message still waits for busy resources, so the model computes its instants one after the other,
//! with the functions that also serve single messages. If each message meets the state that the one before it met, a
//! fixed span later, the model extrapolates it ([`steady`](crate::platform::steady)). The final state of a card,
//! including all counts, is the same as if a shell had fed each post
//! ([`Input::PageStore`](crate::nic::Input::PageStore)) and each packet
//! ([`Input::InlinePacket`](crate::nic::Input::InlinePacket)) alone.
//!
//! A shell asks the sender's model for the frame class ([`InSeries::way`]), and the receiver's model how many messages
//! it takes ([`InSeries::most`]). Then it takes at most that many posts, and nothing can fail after that.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::bar::SLOTS;

use crate::nic::DMA_BUFFER_WORDS;
use crate::platform::node_bus::NodeBus;
use crate::platform::steady::Runs;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Max posts of a batch: all slots of a page.
pub const MOST: usize = SLOTS as usize;

/// What all posts of a batch have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The posting port.
    pub port: u32,
    /// The destination node of the frames.
    pub to: u16,
    /// As [`InlinePacket::is_routed`](crate::nic::packet::InlinePacket::is_routed).
    pub is_routed: bool,
    /// Bytes of each frame.
    pub bytes: usize,
    /// As [`InlinePacket::head`](crate::nic::packet::InlinePacket::head), of the first frame. The heads of the others
    /// follow from it by their protocol.
    pub head: [u64; 2],
    /// The words of its slot that each post carries.
    pub words: Range<usize>,
    /// Max posts of the batch, from 1.
    pub most: usize,
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
pub struct Series {
    /// What all posts have in common.
    pub way: Way,
    /// Words that each message stores at its receiver.
    pub stored_words: usize,
    /// When the last post was fed to its model.
    pub fed: Time,
    /// The message of the last post.
    pub last: Option<TraceTag>,
    /// The times of their events: one entry for each post, once a stage has processed the batch.
    pub runs: Runs,
    /// Only the first `count` are valid.
    members: Vec<Member>,
    count: usize,
}

impl Series {
    /// Starts a new, empty batch.
    pub fn begin(&mut self, way: Way) {
        self.members.resize_with(MOST, Member::default);
        self.runs.clear();
        (self.way, self.count, self.last) = (way, 0, None);
    }

    /// Adds a post to the batch, if it has room, and returns its slot to fill.
    #[inline]
    pub fn place(&mut self) -> Option<&mut Member> {
        let member = self.members.get_mut(self.count).filter(|_| self.count < self.way.most)?;
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

    /// The posts and their times, for the next stage.
    #[inline]
    pub fn members_mut(&mut self) -> (&mut [Member], &mut Runs) {
        (self.members.get_mut(..self.count).unwrap_or_default(), &mut self.runs)
    }

    /// Posts that no stage computed one by one: all stages extrapolated them.
    pub fn extrapolated(&self) -> usize {
        self.count.saturating_sub(self.runs.done().len())
    }
}

/// The card's side of batches.
pub trait InSeries {
    /// The frame class of posts of `port` with this code, if the next posts can be sent as a batch. Each post of a
    /// batch causes only a frame and the report of free slots to its program. The call changes nothing.
    fn way(&self, port: u32, code: u32) -> Option<Way>;

    /// How many messages of this class the card takes as a batch. Each message of a batch causes only a store. The
    /// call changes nothing.
    fn most(&self, way: &Way) -> usize;

    /// Takes posts, each when the host can begin it. The reports of free slots to their program are then in the card's
    /// effect queue.
    fn launch(&mut self, series: &mut Series, node: &mut NodeBus);

    /// Takes all messages of a batch that arrived.
    fn arrive(&mut self, series: &mut Series, node: &mut NodeBus);
}
