//! The state of a list manager between two cycles, for debuggers and waveforms. Reading it changes nothing.

use alloc::vec::Vec;

use super::{Handle, ListManager, Said, Timing};
use crate::models::matching::item::Item;

/// A list manager between two cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The input FIFO, in the order in which the unit takes its words. All of them can be taken in the next cycle.
    pub input: Vec<u64>,
    /// Words on their way from the unit, the oldest first.
    pub output: Vec<Travelling>,
    /// The header that is being matched.
    pub matching: Option<Matching>,
    /// Headers that wait after it.
    pub headers_waiting: usize,
    /// No header begins before this cycle.
    pub free_at: u64,
}

/// A word on its way from the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Travelling {
    /// The word.
    pub word: u64,
    /// The first future cycle in which it can be taken.
    pub from_cycle: u64,
}

/// A header that is being matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matching {
    /// The cycle in which it began.
    pub began: u64,
    /// Words sent for the header, including its own eight.
    pub sent: usize,
    /// Items judged, the end of the list included.
    pub judged: usize,
    /// The word that the unit must write next.
    pub phase: Phase,
}

/// The word that a list manager waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A verdict on the next item.
    Verdict,
    /// The offset, after `succeeded`.
    Offset,
    /// The length, after the offset.
    Length,
    /// `done`, after the length.
    Done,
}

impl ListManager {
    /// The present state. [`Self::cycle`] is the next cycle.
    #[must_use]
    pub fn state(&self) -> State {
        let travelling = |(from_cycle, word)| Travelling { word, from_cycle };
        let matching = self.job.as_ref().map(|job| Matching {
            began: job.began,
            sent: job.sent,
            judged: job.verdicts,
            phase: match job.said {
                Said::Nothing => Phase::Verdict,
                Said::Succeeded => Phase::Offset,
                Said::Offset(_) => Phase::Length,
                Said::All { .. } => Phase::Done,
            },
        });
        State {
            input: self.fifos.input().collect(),
            output: self.fifos.output().map(travelling).collect(),
            matching,
            headers_waiting: self.headers.len(),
            free_at: self.free_at,
        }
    }

    /// The first list, each item with its handle.
    pub fn linked(&self) -> impl Iterator<Item = (Handle, &Item)> {
        self.lists.first().into_iter().flatten().map(|linked| (linked.handle, &linked.item))
    }

    /// Its cycles and sizes.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::matching::item::{Header, INFINITE, flag};
    use crate::models::matching::list_manager::Use;
    use crate::models::matching::program::portals;
    use crate::models::matching::unit::Unit;

    #[test]
    fn the_phases_of_a_match_are_seen() {
        let mut manager =
            ListManager::new(Timing::default(), Use::Keep, Unit::new(&portals().unwrap()).unwrap());
        assert_eq!(manager.state(), State::default());
        let item = Item { flags: flag::VALID, threshold: INFINITE, ..Item::default() };
        let handle = manager.preload(item);
        assert_eq!(manager.linked().collect::<Vec<_>>(), [(handle, &item)]);
        (0..2).for_each(|_| manager.on_header(Header::default()));
        assert_eq!(manager.state().headers_waiting, 2);
        manager.tick().unwrap();
        let state = manager.state();
        assert_eq!(state.input, [0]);
        assert_eq!((state.headers_waiting, state.matching.unwrap().sent), (1, 1));

        let mut phases = Vec::new();
        while manager.poll_outcome().is_none() {
            phases.extend(manager.state().matching.map(|matching| matching.phase));
            manager.tick().unwrap();
        }
        phases.dedup();
        assert_eq!(phases, [Phase::Verdict, Phase::Offset, Phase::Length, Phase::Done]);
        assert!(manager.state().free_at > manager.cycle() - 1);
    }
}
