//! Hosts: what a program and its library do with a NIC, operation by operation: [`card`] for all modelled cards,
//! [`ethernet`] for the Ethernet function, and [`tcp`] for streams over it. What must be of a card whatever its program
//! does is judged by [`oracle`].
//!
//! A host is sans-IO as the models are: it is told what happens at which instant, and says what it wants done by
//! [`Effects`].

pub mod card;
pub mod channels;
pub mod ethernet;
pub mod lists;
pub mod memory;
pub mod oracle;
pub mod posts;
pub mod rings;
pub mod slices;
pub mod tally;
pub mod tcp;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::Delivery;
use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::hand_over::{HandOver, HandOverError, Progress};
use std::collections::VecDeque;

use niclab_model::nic::fault_injector::Rates;
use niclab_model::nic::registry::{AnyNic, Model};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_observe::timeline::Owner;
use niclab_spec::report::NodeFigures;
use niclab_workloads::{ChannelTerms, PortPlan, PostTerms, Script, Terms};

use crate::checker::Checker;

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct InlinePacket {
    /// Its bytes.
    pub frame: SharedFrame,
    /// Whose message it carries.
    pub message: Option<TraceTag>,
    /// When it is ready for its sender's link, then when it is at its receiver.
    pub passage: Passage,
    /// Whom it concerns there.
    pub concern: Concern,
}

impl InlinePacket {
    /// The frame comes out of the last link.
    pub fn arrive(&mut self, delivery: &Delivery) {
        self.passage = Passage { head: delivery.head, tail: delivery.at };
        if let Some(bit) = delivery.corrupt {
            self.frame.flip(bit);
            self.concern = self.concern.damaged();
        }
    }
}

/// What a host and its NIC want done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Frames for the link.
    pub frames: VecDeque<InlinePacket>,
}

/// The set-up of a card was refused: the configuration passed every check and the model still says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The operation, an `OP_` constant.
    pub operation: u32,
    /// The status, a `STATUS_` constant.
    pub status: u32,
}

/// Two numbers of one thing, which must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// What was counted.
    pub what: &'static str,
    /// How much of it the ledger has.
    pub entered: u64,
    /// How much of it crossed the boundary of the model, counted outside of it.
    pub seen: u64,
}

impl Sum {
    /// What a ledger has of a crossing, and what was seen.
    #[must_use]
    pub const fn new(what: &'static str, entered: u64, seen: u64) -> Self {
        Self { what, entered, seen }
    }
}

/// A host and the NIC that its program uses.
pub trait Host: Send {
    /// Whether nothing that it asks the checker goes by what other nodes have done: each of its questions is about a
    /// flow that begins or ends at it.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Opens a port as the library does.
    ///
    /// # Errors
    /// What the card refuses.
    fn open(
        &mut self,
        plan: &PortPlan,
        slices: u32,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), Refused>;

    /// The later of the end of the host's last operation and its last delivery.
    fn clock(&self) -> Time;

    /// The instant from which on nothing that was begun is busy any more.
    fn rest(&self) -> Time;

    /// A measured part begins at `begin`: the program does nothing before.
    fn begin_at(&mut self, begin: Time);

    /// The NIC's next deadline.
    fn deadline(&self) -> Option<Time>;

    /// What every crossing of the NIC that the program uses has cost.
    fn ledger(&self) -> &Ledger;

    /// Visits that ledger and those of all other masters on the node's bus, to tell them what to keep.
    fn visit_ledgers(&mut self, visit: &mut dyn FnMut(Owner, &mut Ledger));

    /// Frames sent.
    fn sent_frames(&self) -> u64;

    /// A frame is there.
    fn arrive(&mut self, now: Time, packet: &InlinePacket, checker: &mut Checker, effects: &mut Effects);

    /// The NIC's deadline has come.
    fn timeout(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects);

    /// The NIC is told a step of a hand-over. Most have one program and keep it.
    ///
    /// # Errors
    /// What it says.
    fn hand_over(
        &mut self,
        _now: Time,
        _step: HandOver<'_>,
        _checker: &mut Checker,
        _effects: &mut Effects,
    ) -> Result<(), HandOverError> {
        Err(HandOverError::Fixed)
    }

    /// How far the NIC has got with another program.
    fn progress(&self) -> Progress {
        Progress::Runs
    }

    /// The program goes on: it receives one message if one is in hand, or else sends one if it may.
    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects);

    /// No later than [`Self::wake`], without asking the program.
    fn soonest(&self) -> Time;

    /// When the program has something to do next, seen from now.
    fn wake(&mut self, script: &mut Script) -> Option<Time>;

    /// Whether a fault, which the checker knows of, keeps the program from sending, or from seeing that it may.
    fn is_stuck(&self, checker: &Checker) -> bool;

    /// Sets what goes wrong in the NIC from now on. A NIC that was made without faults never has any.
    fn set_device_faults(&mut self, rates: Rates);

    /// Its part of the report, but for what the world knows of it.
    fn figures(&self) -> NodeFigures;

    /// The ledger against what crossed the boundary of the model.
    fn sums(&self) -> Vec<Sum>;

    /// The checks at the end of a run.
    fn finish(&mut self, checker: &mut Checker);
}

/// What a host is made of.
pub struct HostSeat {
    /// The node's rank.
    pub number: u16,
    /// Its card.
    pub nic: AnyNic,
    /// Its Ethernet function, which its program does not use.
    pub ethernet: Conventional,
    /// What ports are opened with, where the card has lists.
    pub terms: Terms,
    /// The same where the card posts messages.
    pub posts: PostTerms,
    /// The same where it has channels.
    pub channels: ChannelTerms,
    /// Messages after which a datagram of ordinary networking is sent beside them; zero: none ever is.
    pub datagram_every: u64,
}

/// Makes the hosts of cards that are used in one way.
pub struct HostMaker {
    /// What such a card says of itself: a bit of [`niclab_abi::config`].
    pub feature: u64,
    /// Makes one.
    pub make: fn(HostSeat) -> Box<dyn Host>,
}

/// Those of all cards that can be simulated.
const MAKERS: &[HostMaker] = &[slices::MAKER, lists::MAKER, posts::MAKER, channels::MAKER, rings::MAKER];

/// Who makes the hosts of this model's cards.
#[must_use]
pub fn maker_of(model: &Model) -> Option<&'static HostMaker> {
    MAKERS.iter().find(|maker| model.has(maker.feature))
}

/// When a host's program has something to do next, at `earliest` or later; none if that is not before `known`.
pub fn next_event(
    host: &mut dyn Host,
    earliest: Time,
    known: Option<Time>,
    script: &mut Script,
) -> Option<Time> {
    let is_news = |at: &Time| known.is_none_or(|known| *at < known);
    // Most often it is known, and the program need not be asked.
    Some(earliest.max(host.soonest())).filter(is_news)?;
    host.wake(script).map(|at| at.max(earliest)).filter(is_news)
}
