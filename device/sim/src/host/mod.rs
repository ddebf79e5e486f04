//! Hosts: the operations of a program and its library on a NIC. [`card`] is for all modelled cards, [`ethernet`] for
//! the Ethernet function, and [`tcp`] for streams over it. [`oracle`] checks what must hold for a card with any
//! program.
//!
//! A host is sans-IO, like the models: it gets events with their times, and returns [`Effects`].

pub mod card;
pub mod ethernet;
pub mod grim;
pub mod inic;
pub mod matching;
pub mod memory;
pub mod oracle;
pub mod rings;
pub mod slices;
pub mod tally;
pub mod tcp;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::Delivery;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep, Progress};
use niclab_model::nic::frame::SharedFrame;
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

/// A frame in flight.
#[derive(Clone, Debug)]
pub struct FrameInFlight {
    /// Its bytes.
    pub frame: SharedFrame,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// When it is ready for its sender's link; after the last link, when it is at its receiver.
    pub passage: Passage,
    /// The frame class, which says which receivers it is for.
    pub class: FrameClass,
}

impl FrameInFlight {
    /// The frame leaves the last link.
    pub fn arrive(&mut self, delivery: &Delivery) {
        self.passage = Passage { head: delivery.head, tail: delivery.at };
        if let Some(bit) = delivery.corrupt {
            self.frame.flip(bit);
            self.class = self.class.damaged();
        }
    }
}

/// Effects of a host and its NIC.
#[derive(Debug, Default)]
pub struct Effects {
    /// Frames for the link.
    pub frames: VecDeque<FrameInFlight>,
}

/// The card refused its set-up, although the configuration passed every check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The operation, an `OP_` constant.
    pub operation: u32,
    /// The status, a `STATUS_` constant.
    pub status: u32,
}

/// Two counts of the same quantity, which must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Name of the quantity.
    pub what: &'static str,
    /// The ledger's count.
    pub entered: u64,
    /// The count at the model's interface, outside the model.
    pub seen: u64,
}

impl Sum {
    /// A sum of these counts.
    #[must_use]
    pub const fn new(what: &'static str, entered: u64, seen: u64) -> Self {
        Self { what, entered, seen }
    }
}

/// A host and the NIC that its program uses.
pub trait Host: Send {
    /// Whether its questions to the checker do not depend on other nodes: each one is about a flow that begins or ends
    /// at this host.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Opens a port as the library does.
    ///
    /// # Errors
    /// The card's refusal.
    fn open(
        &mut self,
        plan: &PortPlan,
        slices: u32,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), Refused>;

    /// The later of the end of the host's last operation and its last delivery.
    fn clock(&self) -> Time;

    /// The earliest time at which all operations have ended.
    fn rest(&self) -> Time;

    /// A measured part begins at `begin`. The program does nothing before this time.
    fn begin_at(&mut self, begin: Time);

    /// The NIC's next deadline.
    fn deadline(&self) -> Option<Time>;

    /// The ledger of the NIC that the program uses.
    fn ledger(&self) -> &Ledger;

    /// Visits this ledger and those of all other bus masters of the node.
    fn visit_ledgers(&mut self, visit: &mut dyn FnMut(Owner, &mut Ledger));

    /// Number of frames sent.
    fn sent_frames(&self) -> u64;

    /// A frame has arrived.
    fn arrive(&mut self, now: Time, packet: &FrameInFlight, checker: &mut Checker, effects: &mut Effects);

    /// The NIC's deadline is due.
    fn timeout(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects);

    /// Gives the NIC a step of a firmware reload. Most NICs do not support it.
    ///
    /// # Errors
    /// The NIC's error.
    fn reload_firmware(
        &mut self,
        _now: Time,
        _step: FirmwareReloadStep<'_>,
        _checker: &mut Checker,
        _effects: &mut Effects,
    ) -> Result<(), FirmwareReloadError> {
        Err(FirmwareReloadError::Fixed)
    }

    /// The NIC's progress with a firmware reload.
    fn progress(&self) -> Progress {
        Progress::Runs
    }

    /// The program continues: it receives one message if one has arrived, or else sends one if it may.
    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects);

    /// A lower bound for [`Self::wake`], without asking the program.
    fn soonest(&self) -> Time;

    /// The time at which the program has its next operation, as known now.
    fn wake(&mut self, script: &mut Script) -> Option<Time>;

    /// Whether a known fault keeps the program from sending, or from seeing that it may send.
    fn is_stuck(&self, checker: &Checker) -> bool;

    /// Sets the fault rates of the NIC. A NIC without a fault injector has no faults.
    fn set_device_faults(&mut self, rates: Rates);

    /// The node's part of the report, except for the fields that the simulation fills in.
    fn figures(&self) -> NodeFigures;

    /// Compares the ledger with the traffic at the model's interface.
    fn sums(&self) -> Vec<Sum>;

    /// Runs the checks at the end of a run.
    fn finish(&mut self, checker: &mut Checker);
}

/// The components of a host.
pub struct HostSeat {
    /// The node's rank.
    pub number: u16,
    /// Its card.
    pub nic: AnyNic,
    /// Its Ethernet function, which its program does not use.
    pub ethernet: Conventional,
    /// Terms with which ports are opened on cards with lists.
    pub terms: Terms,
    /// Terms with which ports are opened on cards with posts.
    pub posts: PostTerms,
    /// Terms with which ports are opened on cards with channels.
    pub channels: ChannelTerms,
    /// Number of messages after which the host sends a datagram of ordinary networking; 0: never.
    pub datagram_every: u64,
}

/// Makes the hosts for one kind of card interface.
pub struct HostMaker {
    /// The feature of such cards: a bit of [`niclab_abi::config`].
    pub feature: u64,
    /// Makes a host.
    pub make: fn(HostSeat) -> Box<dyn Host>,
}

/// The makers for all cards that the simulator supports.
const MAKERS: &[HostMaker] = &[slices::MAKER, matching::MAKER, inic::MAKER, grim::MAKER, rings::MAKER];

/// The maker of hosts for this model's cards.
#[must_use]
pub fn maker_of(model: &Model) -> Option<&'static HostMaker> {
    MAKERS.iter().find(|maker| model.has(maker.feature))
}

/// The time of the host's next operation, at `earliest` or later; none if it is not before `known`.
pub fn next_event(
    host: &mut dyn Host,
    earliest: Time,
    known: Option<Time>,
    script: &mut Script,
) -> Option<Time> {
    let is_news = |at: &Time| known.is_none_or(|known| *at < known);
    // Usually the time is known, and the program need not be asked.
    Some(earliest.max(host.soonest())).filter(is_news)?;
    host.wake(script).map(|at| at.max(earliest)).filter(is_news)
}
