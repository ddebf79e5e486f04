//! Reports what a program reads to the checker.

use niclab_workloads::{End, Listener, Mark, Wrong};

use crate::checker::{Check, Checker};

/// Reports each message that a program reads to the checker.
///
/// Where a device fault affected a record, or misled the program, only the message's arrival is reported.
pub(super) struct CheckedReads<'a> {
    pub(super) checker: &'a mut Checker,
    /// A device fault affected the record.
    pub(super) is_spoiled: bool,
    /// A fault misled the peer's program. It may have posted no memory for the message, and the card may report that.
    pub(super) is_peer_misled: bool,
    /// The message that the card was about to report.
    pub(super) wanted: Option<Mark>,
}

impl Listener for CheckedReads<'_> {
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        match &self.wanted {
            _ if !self.is_spoiled => self.checker.on_received(at, from, mark, payload),
            Some(wanted) => self.checker.on_received_spoiled(at, wanted),
            None => self.checker.on_received_misled(at, mark),
        }
    }

    fn on_wrong(&mut self, wrong: Wrong, what: impl FnOnce() -> String) {
        if self.is_spoiled || self.is_peer_misled {
            return;
        }
        let check = match wrong {
            Wrong::Contents => Check::RightContents,
            Wrong::Port => Check::RightPort,
            Wrong::Memory => Check::RightMemory,
        };
        self.checker.fail(check, what);
    }
}
