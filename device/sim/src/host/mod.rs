//! Hosts: what a program and its library do with a NIC, operation by operation, one module for each kind of NIC.
//!
//! A host is sans-IO as the models are: it is told what happens at which instant, and says what it wants done by
//! [`Effects`].

pub mod ethernet;
pub mod matching;
pub mod memory;
pub mod tally;
pub mod ultra;

use niclab_model::nic::FrameBytes;
use niclab_model::parts::ledger::Ledger;
use niclab_model::parts::message::Message;
use niclab_model::parts::mischief::Rates;
use niclab_model::time::Time;
use niclab_spec::report::NodeFigures;

use crate::judge::Judge;
use crate::plan::{End, FlowId};
use crate::script::Script;

/// A frame, and whose message it carries.
pub type Parcel = (FrameBytes, Option<Message>);

/// What a host and its NIC want done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Frames for the link, each with the instant at which it is ready.
    pub frames: Vec<(Time, Parcel)>,
}

/// What a port is opened for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// The card's number of the port.
    pub number: u32,
    /// The flow that it sends over, and the port at its other end.
    pub sends: Option<(FlowId, End)>,
    /// The flows that come to it, and the port at the other end of each.
    pub partners: Vec<(FlowId, End)>,
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

/// A host and the NIC that its program uses.
pub trait Host {
    /// Opens a port as the library does.
    ///
    /// # Errors
    /// What the card refuses.
    fn open(
        &mut self,
        plan: &PortPlan,
        slices: u32,
        judge: &mut Judge,
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

    /// What every crossing of the node has cost.
    fn ledger(&self) -> &Ledger;

    /// The same, to tell it what to keep.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// Frames sent.
    fn sent_frames(&self) -> u64;

    /// A frame is there.
    fn arrive(&mut self, now: Time, parcel: &Parcel, judge: &mut Judge, effects: &mut Effects);

    /// The NIC's deadline has come.
    fn timeout(&mut self, now: Time, judge: &mut Judge, effects: &mut Effects);

    /// The program goes on: it receives one message if one is in hand, or else sends one if it may.
    fn step(&mut self, now: Time, script: &mut Script, judge: &mut Judge, effects: &mut Effects);

    /// No later than [`Self::wake`], without asking the program.
    fn soonest(&self) -> Time;

    /// When the program has something to do next, seen from now.
    fn wake(&mut self, script: &mut Script) -> Option<Time>;

    /// Whether a fault of the device keeps the program from seeing that it may send.
    fn is_stuck(&self) -> bool;

    /// Sets what goes wrong in the NIC from now on. A NIC that was made without faults never has any.
    fn set_device_faults(&mut self, rates: Rates);

    /// Its part of the report, but for what the world knows of it.
    fn figures(&self) -> NodeFigures;

    /// The ledger against what crossed the boundary of the model.
    fn sums(&self) -> Vec<Sum>;

    /// The checks at the end of a run.
    fn finish(&mut self, judge: &mut Judge);
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
