//! The state of a queue manager between two cycles, for debuggers. Reading it changes nothing.

use alloc::vec::Vec;

use super::{Party, QueueManager};
use crate::models::matching::fifo::Fifos;
use crate::models::matching::item::Item;
use crate::models::matching::list_manager::Handle;
use crate::models::matching::list_manager::inspect::{Phase, Travelling};
use crate::models::matching::unit::Unit;

/// A queue manager between two cycles, without both units and their FIFOs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The cycle in which the header that is being matched began.
    pub began: Option<u64>,
    /// Items that the match unit has rejected.
    pub failed: usize,
    /// The program waits for a request.
    pub is_ready: bool,
    /// The word that the match unit must write next.
    pub phase: Phase,
    /// The item that the unit judges next.
    pub judged: Option<Handle>,
    /// Slots of items that were fetched and not sent, in order.
    pub fetched: Vec<u16>,
    /// Changes of the list that the program has not received.
    pub changes_waiting: usize,
    /// Headers that the program has not received.
    pub headers_waiting: usize,
}

impl QueueManager {
    /// The present state.
    #[must_use]
    pub fn state(&self) -> QueueState {
        let (phase, slot) = self.stream.awaits();
        QueueState {
            began: self.job.map(|job| job.began),
            failed: self.job.map_or(0, |job| job.failed),
            is_ready: self.is_ready,
            phase,
            judged: slot.and_then(|slot| self.linked.get(&slot).copied()),
            fetched: self.memory.fetched().collect(),
            changes_waiting: self.changes.len(),
            headers_waiting: self.headers.len(),
        }
    }

    /// A unit and its FIFOs.
    const fn engine(&self, party: Party) -> (&Unit, &Fifos) {
        let engine = match party {
            Party::Matcher => &self.matcher,
            Party::Queue => &self.queue,
        };
        (&engine.unit, &engine.fifos)
    }

    /// The unit that runs one of the two programs.
    #[must_use]
    pub const fn unit(&self, party: Party) -> &Unit {
        self.engine(party).0
    }

    /// The input FIFO of a unit, in the order in which the unit takes its words.
    pub fn input(&self, party: Party) -> impl Iterator<Item = u64> {
        self.engine(party).1.input()
    }

    /// Words on their way from a unit, the oldest first.
    pub fn output(&self, party: Party) -> impl Iterator<Item = Travelling> {
        let words = self.engine(party).1.output();
        words.map(|(from_cycle, word)| Travelling { word, from_cycle })
    }

    /// The slots in which the program has items, with the items as the program has written them. Only the program knows
    /// their order in the list.
    pub fn slots(&self) -> impl Iterator<Item = (u16, Handle, Item)> {
        self.linked.iter().filter_map(|(slot, handle)| Some((*slot, *handle, self.memory.item(*slot)?)))
    }
}
