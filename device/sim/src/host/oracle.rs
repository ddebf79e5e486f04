//! What must be of a card that writes into one port's memory, whatever program reads it: known outside of the card and
//! of the program's library.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use niclab_abi::bar::SLOTS;
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE, CAUSE_UNAUTHORIZED};
use niclab_abi::receive::STATUS_LINE_INTERVAL;
use niclab_model::nic::DmaWords;
use niclab_workloads::{End, Mark};

use super::memory::STATUS_WORDS;
use super::tally::Interrupts;
use crate::checker::{Check, Checker};

/// Word of the status line with the messages that have left.
pub const STATUS_SENT: usize = 3;
/// Word of the status line with what was refused.
pub const STATUS_REFUSED: usize = 5;

/// What one port's card has done so far.
#[derive(Debug)]
pub struct Oracle {
    end: End,
    /// Records of the receive queue.
    records: u64,
    /// The highest number that a record was written with.
    pub stored: u64,
    /// The highest number that the card wanted to write a record with.
    pub made: u64,
    /// Launches that the card has reported, whether or not the host saw it.
    pub reported: u64,
    /// The records to come that a fault of the device befell, by number, and the message that the card wanted to tell
    /// of.
    pub spoiled: BTreeMap<u64, Option<Mark>>,
    /// Those to which the program has come: what the card wanted to write may be written yet, behind a later fault.
    passed: BTreeSet<u64>,
    /// A fault of the device may have led the port's program astray: what it does from then on is its own doing.
    pub is_astray: bool,
    /// Status lines that a fault of the device befell, as the card wanted them.
    spoiled_lines: VecDeque<DmaWords>,
    /// Messages that have left, as the last status line says that the card wanted to write.
    sent: u64,
    /// What interrupted.
    pub interrupts: Interrupts,
}

/// How far the port's program is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Slots launched.
    pub launched: u64,
    /// Records consumed.
    pub received: u64,
    /// Of these, released.
    pub released: u64,
}

impl Oracle {
    /// Of a port just opened.
    #[must_use]
    pub const fn new(end: End, records: u32) -> Self {
        Self {
            end,
            records: records as u64,
            stored: 0,
            made: 0,
            reported: 0,
            spoiled: BTreeMap::new(),
            passed: BTreeSet::new(),
            is_astray: false,
            spoiled_lines: VecDeque::new(),
            sent: 0,
            interrupts: Interrupts::NONE,
        }
    }

    /// A record with this number was written at place `index` of the queue: it is the next one but for those that a
    /// fault befell.
    pub fn on_record(&mut self, number: u64, index: u64, program: Progress, checker: &mut Checker) {
        if !self.spoiled.contains_key(&number) && !self.passed.contains(&number) {
            // What a fault befell may have been passed over already.
            let seen = self.stored.max(program.received);
            let before = seen + 1..number;
            let is_next = number > seen && before.into_iter().all(|n| self.spoiled.contains_key(&n));
            self.check_record(is_next, number, index, program, checker);
        }
        self.stored = self.stored.max(number);
    }

    /// The program has come to this record. If a fault befell it: the message that the card wanted to tell of, where it
    /// did.
    pub fn pass(&mut self, number: u64) -> Option<Option<Mark>> {
        let spoiled = self.spoiled.remove(&number)?;
        self.passed.insert(number);
        Some(spoiled)
    }

    /// The card wanted to write such a record, and a fault befell it. Earlier ones that come late may not be there yet.
    pub fn on_spoiled(
        &mut self,
        number: u64,
        index: u64,
        mark: Option<Mark>,
        program: Progress,
        checker: &mut Checker,
    ) {
        self.check_record(number > 0, number, index, program, checker);
        self.spoiled.insert(number, mark);
        mark.iter().for_each(|mark| checker.on_spoiled(mark));
    }

    /// A record's place is the one of its number, and free.
    fn check_record(
        &mut self,
        is_next: bool,
        number: u64,
        index: u64,
        program: Progress,
        checker: &mut Checker,
    ) {
        let (end, released) = (self.end, program.released);
        let is_there = number.wrapping_sub(1).checked_rem(self.records) == Some(index);
        if !is_next || !is_there || number > released + self.records {
            checker.fail(Check::FlowControl, || {
                format!("{end:?}: record {number} written at place {index} when {released} were released")
            });
        }
        self.made = self.made.max(number);
    }

    /// The card wanted to write this status line, and a fault befell it.
    pub fn on_spoiled_status(&mut self, wanted: DmaWords) {
        self.note_sent(&wanted);
        self.spoiled_lines.push_back(wanted);
    }

    /// The host sees a status line, or what a fault left of it. Lines that a fault befell before it are checked first,
    /// as the card wanted them.
    pub fn on_status(&mut self, line: &[u64], program: Progress, checker: &mut Checker) {
        let mut is_spoiled = false;
        // No count falls, so that what was wanted before this line is in none of its words more.
        let is_before = |wanted: &DmaWords| wanted.iter().zip(line).all(|(wanted, seen)| wanted <= seen);
        while self.spoiled_lines.front().is_some_and(is_before) {
            let Some(wanted) = self.spoiled_lines.pop_front() else { break };
            is_spoiled = true;
            self.check_status(&wanted, program, checker);
        }
        if line.len() == STATUS_WORDS || !is_spoiled {
            self.check_status(line, program, checker);
        }
    }

    /// How many messages the card wanted the program to know that have left.
    fn note_sent(&mut self, wanted: &[u64]) {
        self.sent = self.sent.max(wanted.get(STATUS_SENT).copied().unwrap_or(0));
    }

    /// Lines that a fault befell and none came after are checked at last.
    pub fn on_end(&mut self, program: Progress, checker: &mut Checker) {
        while let Some(wanted) = self.spoiled_lines.pop_front() {
            self.check_status(&wanted, program, checker);
        }
    }

    /// A status line is whole, no count in it falls, none was left out, and nothing is refused.
    fn check_status(&mut self, line: &[u64], program: Progress, checker: &mut Checker) {
        let (end, before) = (self.end, self.reported);
        let Some(&launched) = line.first().filter(|_| line.len() == STATUS_WORDS) else {
            return checker
                .fail(Check::RightMemory, || format!("{end:?}: a status line of {} words", line.len()));
        };
        if launched < before || launched > program.launched {
            checker.fail(Check::FlowControl, || {
                format!("{end:?}: {launched} launches reported after {before}, of {}", program.launched)
            });
        } else if launched - before > u64::from(STATUS_LINE_INTERVAL) {
            checker.fail(Check::FlowControl, || {
                format!("{end:?}: {launched} launches reported after {before}: a status line is missing")
            });
        }
        self.note_sent(line);
        let refused = line.get(STATUS_REFUSED).copied().unwrap_or(0);
        if refused != 0 {
            checker.fail(Check::FlowControl, || format!("{end:?}: the card refused {refused} stores"));
        }
        self.reported = launched;
    }

    /// Whether a fault of the device keeps the program, which sees so many launches taken, from seeing that there are
    /// free slots.
    #[must_use]
    pub fn is_stuck(&self, launched: u64, seen: u64) -> bool {
        let is_full = |taken: u64| launched.saturating_sub(taken) >= u64::from(SLOTS);
        is_full(seen) && !is_full(self.reported)
    }

    /// Whether a fault of the device keeps the program, which sees that so many messages have left, from seeing that
    /// more have.
    #[must_use]
    pub const fn is_kept_from_seeing(&self, sent: u64) -> bool {
        sent < self.sent
    }

    /// The card interrupted for this port.
    pub fn on_interrupt(&mut self, cause: u32, checker: &mut Checker) {
        match cause {
            CAUSE_MESSAGE => self.interrupts.message += 1,
            CAUSE_ARMED => self.interrupts.armed += 1,
            CAUSE_UNAUTHORIZED => self.interrupts.unauthorized += 1,
            other => {
                let end = self.end;
                checker.fail(Check::RightPort, || format!("{end:?}: an interrupt of unknown cause {other}"));
            }
        }
    }
}
