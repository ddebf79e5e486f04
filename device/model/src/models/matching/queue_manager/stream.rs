//! Sends headers and items to the match unit, and says which item each of its verdicts is about.

use alloc::collections::VecDeque;

use smallvec::SmallVec;

use super::memory::{Fetched, SLOT_OF_END};
use super::{Group, command};
use crate::models::matching::item::{Header, WORDS};
use crate::models::matching::list_manager::inspect::Phase;
use crate::models::matching::list_manager::{Due, Misbehaved};
use crate::models::matching::program::{DONE, FAILED, SUCCEEDED};

/// What the match unit says of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The item's slot.
    pub slot: u16,
    /// Offset and length, when it takes the message.
    pub result: Option<(u64, u64)>,
}

impl Verdict {
    /// As the queue's program gets it.
    pub fn words(&self) -> Group {
        let slot = command::at(self.slot);
        match self.result {
            None => Group::from_slice(&[slot | command::FAILED]),
            Some((offset, length)) => Group::from_slice(&[slot | command::SUCCEEDED, offset, length]),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    is_header: bool,
    entity: Fetched,
}

/// What is on its way to the match unit, and what the unit owes for it.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Cycles from the one in which the unit's last word is heard to that of the next header's first.
    turnaround: u64,
    transfers: VecDeque<Transfer>,
    /// Words sent of the first.
    sent: usize,
    /// A header is being matched.
    is_busy: bool,
    /// No header begins before this cycle.
    free_at: u64,
    /// Slots of items that have no verdict, the first one first.
    judged: VecDeque<u16>,
    /// What the unit said of an item that takes the message: the words behind `succeeded`.
    result: Option<SmallVec<[u64; 2]>>,
}

impl Stream {
    /// With nothing to send.
    pub const fn new(turnaround: u64) -> Self {
        Self {
            turnaround,
            transfers: VecDeque::new(),
            sent: 0,
            is_busy: false,
            free_at: 0,
            judged: VecDeque::new(),
            result: None,
        }
    }

    /// A header is to be sent once the unit is done with the one before.
    pub fn begin(&mut self, header: &Header) {
        let entity = Fetched { words: header.to_words(), at: 0 };
        self.transfers.push_back(Transfer { is_header: true, entity });
    }

    /// An item is to be sent.
    pub fn send(&mut self, slot: u16, entity: Fetched) {
        self.judged.push_back(slot);
        self.transfers.push_back(Transfer { is_header: false, entity });
    }

    /// The word that is sent in this cycle.
    pub fn next_word(&mut self, cycle: u64) -> Option<u64> {
        let Transfer { is_header, entity } = self.transfers.front()?;
        let is_there = if *is_header && self.sent == 0 {
            !self.is_busy && self.free_at <= cycle
        } else {
            entity.at + self.sent as u64 <= cycle
        };
        let word = *entity.words.get(self.sent).filter(|_| is_there)?;
        self.is_busy = true;
        self.sent += 1;
        if self.sent == WORDS {
            self.sent = 0;
            self.transfers.pop_front();
        }
        Some(word)
    }

    /// The match unit wrote a word: the verdict that is complete with it.
    pub fn on_output(&mut self, cycle: u64, word: u64) -> Result<Option<Verdict>, Misbehaved> {
        let first = self.judged.front().copied();
        let is_begun = self.is_begun();
        match (&mut self.result, word, first) {
            (None, FAILED, Some(slot)) if is_begun => {
                self.judged.pop_front();
                if slot == SLOT_OF_END {
                    self.end(cycle);
                }
                return Ok(Some(Verdict { slot, result: None }));
            }
            (None, SUCCEEDED, Some(slot)) if is_begun && slot != SLOT_OF_END => {
                self.result = Some(SmallVec::new());
            }
            (Some(result), word, Some(slot)) if result.len() < 2 => {
                result.push(word);
                if let [offset, length] = **result {
                    return Ok(Some(Verdict { slot, result: Some((offset, length)) }));
                }
            }
            (Some(_), DONE, _) => {
                // The item that matched, and the one behind it that was drained.
                self.judged.drain(..self.judged.len().min(2));
                self.end(cycle);
            }
            (result, word, _) => {
                let due = match result {
                    Some(_) => Due::Done,
                    None if !self.is_busy => Due::Nothing,
                    None => Due::of(word, is_begun),
                };
                return Err(Misbehaved::Answer { word, due });
            }
        }
        Ok(None)
    }

    /// Whether a word was sent of the item that is judged next: a verdict on another is none.
    fn is_begun(&self) -> bool {
        let unsent = self.transfers.iter().filter(|transfer| !transfer.is_header).count();
        let is_under_way =
            self.sent > 0 && self.transfers.front().is_some_and(|transfer| !transfer.is_header);
        self.judged.len() > unsent || is_under_way
    }

    /// Whether the match unit has all words of an item and has not said what it is.
    pub fn owes_verdict(&self) -> bool {
        self.transfers.is_empty() && !self.judged.is_empty()
    }

    /// What the match unit is to say next, and of which slot.
    pub fn awaits(&self) -> (Phase, Option<u16>) {
        let phase = match self.result.as_deref() {
            None => Phase::Verdict,
            Some([]) => Phase::Offset,
            Some([_]) => Phase::Length,
            Some(_) => Phase::Done,
        };
        (phase, self.judged.front().copied())
    }

    /// The unit is done with a header.
    fn end(&mut self, cycle: u64) {
        self.free_at = cycle + self.turnaround;
        self.is_busy = false;
        self.result = None;
    }
}
