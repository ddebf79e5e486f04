//! Launches of one port that follow one another and ask for the same, taken, priced and delivered together: the short
//! way of a message ([`packet`](crate::nic::packet)), for as many at a time as there are.
//!
//! What is said of the first is true of all of them: whether they are sent, where to, how long each is on its way where
//! nobody is met. Each still waits where it meets others, so that its instants are worked out one after the other, by
//! the functions by which they are worked out one by one; what is left out is what is the same for all, and a look at
//! the ledger for each crossing. Where each meets what the one before it met, a fixed span later, they are carried on
//! without that ([`steady`](crate::platform::steady)). All that a card is afterwards, to the last count, is what it is
//! when each launch is fed to it by itself ([`Input::PageStore`](crate::nic::Input::PageStore)), and each frame
//! ([`Input::InlinePacket`](crate::nic::Input::InlinePacket)).
//!
//! A shell asks the sender's model for the way ([`InSeries::way`]), and the receiver's how many it takes
//! ([`InSeries::most`]). Then it takes so many launches or fewer, and nothing of it can fail any more.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::bar::SLOTS;

use crate::nic::DMA_BUFFER_WORDS;
use crate::platform::node_bus::NodeBus;
use crate::platform::steady::Runs;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Most launches of a series: a page full.
pub const MOST: usize = SLOTS as usize;

/// What is the same for all launches of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The port that launches.
    pub port: u32,
    /// The node that the frames go to.
    pub to: u16,
    /// As [`InlinePacket::is_routed`](crate::nic::packet::InlinePacket::is_routed).
    pub is_routed: bool,
    /// Bytes of each frame.
    pub bytes: usize,
    /// As [`InlinePacket::head`](crate::nic::packet::InlinePacket::head), of the first. What the others have follows from it by
    /// their protocol.
    pub head: [u64; 2],
    /// Which words of its slot each carries.
    pub words: Range<usize>,
    /// So many at the most, from 1.
    pub most: usize,
}

/// What one launch of a series carries.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its words; and behind them, once it has come, what its receiver adds.
    pub words: [u64; DMA_BUFFER_WORDS],
    /// Where it is stored in host memory, from its first word on.
    pub address: u64,
}

/// A series, from page to memory. It is used again and again, so that its places are made once.
#[derive(Debug, Default)]
pub struct Series {
    /// What is the same for all.
    pub way: Way,
    /// Words that each stores at its receiver.
    pub stored_words: usize,
    /// When the last one was fed to its model.
    pub fed: Time,
    /// The message of the last one.
    pub last: Option<TraceTag>,
    /// When all that happens to them: as many together as there are of them, once a stage has taken them.
    pub runs: Runs,
    /// Of which so many count.
    members: Vec<Member>,
    count: usize,
}

impl Series {
    /// Begins anew, with nothing launched.
    pub fn begin(&mut self, way: Way) {
        self.members.resize_with(MOST, Member::default);
        self.runs.clear();
        (self.way, self.count, self.last) = (way, 0, None);
    }

    /// Where to put what the next launch carries, if one more is taken. It then is of the series.
    #[inline]
    pub fn place(&mut self) -> Option<&mut Member> {
        let member = self.members.get_mut(self.count).filter(|_| self.count < self.way.most)?;
        self.count += 1;
        Some(member)
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// They, in their order.
    #[inline]
    pub fn members(&self) -> &[Member] {
        self.members.get(..self.count).unwrap_or_default()
    }

    /// The same, to go on with them, and the runs in which they are.
    #[inline]
    pub fn members_mut(&mut self) -> (&mut [Member], &mut Runs) {
        (self.members.get_mut(..self.count).unwrap_or_default(), &mut self.runs)
    }

    /// How many of them nobody has worked out, anywhere on their way: they were carried on.
    pub fn carried_on(&self) -> usize {
        self.count.saturating_sub(self.runs.done().len())
    }
}

/// The card's side of series.
pub trait InSeries {
    /// The way of launches of `port` with this code, if the next ones can be sent as a series: all that each of them
    /// causes is a frame, and what tells its program of free slots. Nothing changes by asking.
    fn way(&self, port: u32, code: u32) -> Option<Way>;

    /// How many messages that come by this way the card takes as a series: all that each of them causes is a store.
    /// Nothing changes by asking.
    fn most(&self, way: &Way) -> usize;

    /// Takes launches, each when the host can begin with it. What tells their program of free slots is in the card's
    /// effect_queue.
    fn launch(&mut self, series: &mut Series, node: &mut NodeBus);

    /// Takes what has come of a series, all of it.
    fn arrive(&mut self, series: &mut Series, node: &mut NodeBus);
}
