//! Checks what must hold for a card that writes into one port's memory, with any program. It shares no state with the
//! card or the program's library.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use niclab_abi::bar::SLOTS;
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE, CAUSE_UNAUTHORIZED};
use niclab_abi::receive::STATUS_LINE_INTERVAL;
use niclab_model::nic::DmaWords;
use niclab_workloads::{End, Mark};

use super::memory::STATUS_WORDS;
use super::tally::Interrupts;
use crate::checker::{Check, Checker};

/// Word of the status line: the number of messages that have left.
pub const STATUS_SENT: usize = 3;
/// Word of the status line: the number of refused stores.
pub const STATUS_REFUSED: usize = 5;

/// The actions of the card at one port so far.
#[derive(Debug)]
pub struct Oracle {
    end: End,
    /// Number of records in the receive queue.
    records: u64,
    /// The highest number of a record that was written.
    pub stored: u64,
    /// The highest number of a record that the card intended to write.
    pub made: u64,
    /// Number of posts that the card has reported, even if a fault hid the report from the host.
    pub reported: u64,
    /// Later records to which a device fault was applied, by number, with the message that the card intended to report.
    pub spoiled: BTreeMap<u64, Option<Mark>>,
    /// Such records that the program has skipped. A delay may still write them, after a later fault.
    passed: BTreeSet<u64>,
    /// Whether a device fault may have misled the port's program. From then on the card is not responsible for its
    /// actions.
    pub is_misled: bool,
    /// Status lines to which a device fault was applied, as the card intended them.
    spoiled_lines: VecDeque<DmaWords>,
    /// Number of messages that have left, by the last status line that the card intended to write.
    sent: u64,
    /// Interrupts by cause.
    pub interrupts: Interrupts,
}

/// The progress of the port's program.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of slots posted.
    pub launched: u64,
    /// Number of records consumed.
    pub received: u64,
    /// Number of records released.
    pub released: u64,
}

impl Oracle {
    /// The oracle of a port that was just opened.
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
            is_misled: false,
            spoiled_lines: VecDeque::new(),
            sent: 0,
            interrupts: Interrupts::NONE,
        }
    }

    /// A record with this number was written at `index` of the queue. It must be the next one, apart from records to
    /// which a fault was applied.
    pub fn on_record(&mut self, number: u64, index: u64, program: Progress, checker: &mut Checker) {
        if !self.spoiled.contains_key(&number) && !self.passed.contains(&number) {
            // The program may have skipped records with faults already.
            let seen = self.stored.max(program.received);
            let before = seen + 1..number;
            let is_next = number > seen && before.into_iter().all(|n| self.spoiled.contains_key(&n));
            self.check_record(is_next, number, index, program, checker);
        }
        self.stored = self.stored.max(number);
    }

    /// The program reaches this record. If a fault was applied to it, returns the message that the card intended to
    /// report, if known.
    pub fn pass(&mut self, number: u64) -> Option<Option<Mark>> {
        let spoiled = self.spoiled.remove(&number)?;
        self.passed.insert(number);
        Some(spoiled)
    }

    /// A fault was applied to this record. Earlier records may be delayed and arrive later.
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

    /// Checks that a record has the index of its number, and that this index is free.
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
                format!(
                    "{end:?}: the card wrote record {number} at index {index} when {released} were released"
                )
            });
        }
        self.made = self.made.max(number);
    }

    /// A fault was applied to this status line.
    pub fn on_spoiled_status(&mut self, wanted: DmaWords) {
        self.note_sent(&wanted);
        self.spoiled_lines.push_back(wanted);
    }

    /// The host sees a status line, perhaps changed by a fault. First checks earlier lines with faults, as the card
    /// intended them.
    pub fn on_status(&mut self, line: &[u64], program: Progress, checker: &mut Checker) {
        let mut is_spoiled = false;
        // Counts do not decrease. So no word of an earlier line is larger than in this line.
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

    /// Notes the number of messages that have left, as the card intended to report it.
    fn note_sent(&mut self, wanted: &[u64]) {
        self.sent = self.sent.max(wanted.get(STATUS_SENT).copied().unwrap_or(0));
    }

    /// Checks the lines with faults after which no other line arrived.
    pub fn on_end(&mut self, program: Progress, checker: &mut Checker) {
        while let Some(wanted) = self.spoiled_lines.pop_front() {
            self.check_status(&wanted, program, checker);
        }
    }

    /// Checks that a status line is complete, no count decreases, no line is missing, and no store was refused.
    fn check_status(&mut self, line: &[u64], program: Progress, checker: &mut Checker) {
        let (end, before) = (self.end, self.reported);
        let Some(&launched) = line.first().filter(|_| line.len() == STATUS_WORDS) else {
            return checker.fail(Check::RightMemory, || {
                format!("{end:?}: the card wrote a status line of {} words", line.len())
            });
        };
        if launched < before || launched > program.launched {
            checker.fail(Check::FlowControl, || {
                format!("{end:?}: the card reported {launched} posts after {before}, of {}", program.launched)
            });
        } else if launched - before > u64::from(STATUS_LINE_INTERVAL) {
            checker.fail(Check::FlowControl, || {
                format!(
                    "{end:?}: the card reported {launched} posts after {before}: a status line is missing"
                )
            });
        }
        self.note_sent(line);
        let refused = line.get(STATUS_REFUSED).copied().unwrap_or(0);
        if refused != 0 {
            checker.fail(Check::FlowControl, || format!("{end:?}: the card refused {refused} stores"));
        }
        self.reported = launched;
    }

    /// Whether a device fault hides free slots from the program, which sees `seen` accepted posts.
    #[must_use]
    pub fn is_stuck(&self, launched: u64, seen: u64) -> bool {
        let is_full = |taken: u64| launched.saturating_sub(taken) >= u64::from(SLOTS);
        is_full(seen) && !is_full(self.reported)
    }

    /// Whether a device fault hides sent messages from the program, which sees that `sent` have left.
    #[must_use]
    pub const fn is_kept_from_seeing(&self, sent: u64) -> bool {
        sent < self.sent
    }

    /// The card raised an interrupt for this port.
    pub fn on_interrupt(&mut self, cause: u32, checker: &mut Checker) {
        match cause {
            CAUSE_MESSAGE => self.interrupts.message += 1,
            CAUSE_ARMED => self.interrupts.armed += 1,
            CAUSE_UNAUTHORIZED => self.interrupts.unauthorized += 1,
            other => {
                let end = self.end;
                checker.fail(Check::RightPort, || {
                    format!("{end:?}: the card raised an interrupt of the unknown cause {other}")
                });
            }
        }
    }
}
