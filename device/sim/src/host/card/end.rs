//! The checks of a card's ports at the end of a run, and while its program waits.

use niclab_abi::receive::STATUS_LINE_INTERVAL;
use niclab_workloads::{Script, Transport};

use super::CardHost;
use crate::checker::{Check, Checker};
use crate::host::oracle::STATUS_REFUSED;

impl<T: Transport> CardHost<T> {
    pub(super) fn finish_port(&mut self, place: usize, checker: &mut Checker) {
        let Some(port) = self.ports.get_mut(place) else { return };
        let (end, progress, received) = (port.end, port.progress(), port.queue.received());
        port.oracle.on_end(progress, checker);
        if port.oracle.spoiled.contains_key(&(received + 1)) {
            checker.on_stalled(end);
            // The card charged for register stores of records that the program never reads.
            let batches = |records: u64| records.checked_div(port.queue.release_interval()).unwrap_or(0);
            self.tally.pio_bytes += 8 * (batches(port.oracle.made) - batches(received));
        }
        let is_unread = port.queue.front(&self.memory.view(place, port.number)).is_some();
        if is_unread || port.oracle.stored > received {
            let stored = port.oracle.stored;
            checker.fail(Check::Drained, || {
                format!("{end:?}: the card stored {stored} records, and the program read {received}")
            });
        }
        let is_left = !port.page.is_empty() || port.transport.has_launches();
        if is_left && !port.oracle.is_misled {
            let waiting = port.page.len();
            checker.fail(Check::Drained, || format!("{end:?}: {waiting} posts are still in the page"));
        }
        let taken = progress.launched - port.page.len() as u64;
        if taken.saturating_sub(port.oracle.reported) >= u64::from(STATUS_LINE_INTERVAL) {
            let reported = port.oracle.reported;
            checker.fail(Check::FlowControl, || {
                format!("{end:?}: the card reported {reported} of {taken} posts")
            });
        }
        let refused = self.memory.status_word(place, STATUS_REFUSED);
        if refused != 0 {
            checker.fail(Check::FlowControl, || format!("{end:?}: the card refused {refused} stores"));
        }
    }

    /// Whether its program must wait until it sees a new status word.
    pub(super) fn waits_for_news(&self, script: &Script) -> bool {
        let is_waiting = script.unsent() > 0 || self.ports.iter().any(|port| port.transport.has_launches());
        is_waiting && self.ports.iter().any(|port| port.transport.waits_for_news(&port.requester))
    }
}
