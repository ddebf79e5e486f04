//! Reads the log of device faults before the host sees their effects.

use niclab_model::nic::fault_injector::{Fault, FaultInjector, Record};
use niclab_model::nic::{DmaWords, Output};
use niclab_workloads::Transport;

use super::CardHost;
use crate::checker::Checker;
use crate::host::memory::MemoryLocation;

impl<T: Transport> CardHost<T> {
    /// Reads new entries of the fault log, before their effects are seen.
    pub(super) fn note_faults(&mut self, checker: &mut Checker) {
        let news = |fault_injector: &FaultInjector| -> Vec<Record> {
            fault_injector.records().filter(|record| record.number > self.faults).cloned().collect()
        };
        for record in self.nic.fault_injector().map(news).unwrap_or_default() {
            self.faults = record.number;
            self.is_late |= record.fault == Fault::Delay;
            if let (Fault::Stale | Fault::Short | Fault::BadStatus, Output::DmaWrite { address, words, .. }) =
                (record.fault, record.intended)
            {
                self.on_spoiled(address, words, checker);
            }
        }
    }

    /// A fault was applied to this write of the card. The checker checks what the card intended to write.
    fn on_spoiled(&mut self, address: u64, words: DmaWords, checker: &mut Checker) {
        let Some((place, what)) = self.memory.location_of(address, words.len()) else { return };
        let Some(port) = self.ports.get_mut(place) else { return };
        let progress = port.progress();
        match (what, words.last()) {
            (MemoryLocation::Record { index, ends_with_status: true, .. }, Some(status)) => {
                let mark = T::mark_of(&words);
                port.oracle.on_spoiled(status >> 32, index, mark, progress, checker);
            }
            (MemoryLocation::Status, _) => return port.oracle.on_spoiled_status(words),
            _ => {}
        }
        if !T::STANDS_ALONE && !port.oracle.is_misled {
            port.oracle.is_misled = true;
            checker.on_misled(port.end);
        }
    }
}
