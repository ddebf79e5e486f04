//! Sends headers and items to the match unit, and assigns each of its verdicts to an item.

use alloc::collections::VecDeque;

use smallvec::SmallVec;

use super::memory::{Fetched, SLOT_OF_END};
use super::{Group, command};
use crate::models::matching::item::{Header, WORDS};
use crate::models::matching::list_manager::inspect::Phase;
use crate::models::matching::list_manager::{Due, Misbehaved};
use crate::models::matching::program::{DONE, FAILED, SUCCEEDED};

/// The match unit's verdict on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The item's slot.
    pub slot: u16,
    /// Offset and length, if the item takes the message.
    pub result: Option<(u64, u64)>,
}

impl Verdict {
    /// The words of the verdict for the queue's program.
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

/// Transfers to the match unit, and the verdicts that the unit owes for them.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Cycles from receiving the unit's last word to the first word of the next header.
    turnaround: u64,
    transfers: VecDeque<Transfer>,
    /// Words of the first transfer that were sent.
    sent: usize,
    /// A header is being matched.
    is_busy: bool,
    /// No header begins before this cycle.
    free_at: u64,
    /// Slots of items without a verdict, in order.
    judged: VecDeque<u16>,
    /// The words after `succeeded`, for an item that takes the message.
    result: Option<SmallVec<[u64; 2]>>,
}

impl Stream {
    /// A stream with nothing to send.
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

    /// Sends a header, once the unit has finished the previous one.
    pub fn begin(&mut self, header: &Header) {
        let entity = Fetched { words: header.to_words(), at: 0 };
        self.transfers.push_back(Transfer { is_header: true, entity });
    }

    /// Sends an item.
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

    /// The match unit wrote a word. Returns the verdict that this word completes.
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
                // The item that matched, and the next one, which was drained.
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

    /// Whether a word of the item that is judged next was sent. Before that, a verdict is invalid.
    fn is_begun(&self) -> bool {
        let unsent = self.transfers.iter().filter(|transfer| !transfer.is_header).count();
        let is_in_flight =
            self.sent > 0 && self.transfers.front().is_some_and(|transfer| !transfer.is_header);
        self.judged.len() > unsent || is_in_flight
    }

    /// Whether the match unit has all words of an item and has not judged it.
    pub fn owes_verdict(&self) -> bool {
        self.transfers.is_empty() && !self.judged.is_empty()
    }

    /// The word that the match unit must write next, and the slot that it refers to.
    pub fn awaits(&self) -> (Phase, Option<u16>) {
        let phase = match self.result.as_deref() {
            None => Phase::Verdict,
            Some([]) => Phase::Offset,
            Some([_]) => Phase::Length,
            Some(_) => Phase::Done,
        };
        (phase, self.judged.front().copied())
    }

    /// The unit has finished a header.
    fn end(&mut self, cycle: u64) {
        self.free_at = cycle + self.turnaround;
        self.is_busy = false;
        self.result = None;
    }
}
