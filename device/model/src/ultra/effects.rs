//! What requester and completer do to the world: effects queued for the shell, priced and counted.

use alloc::collections::VecDeque;

use crate::nic::{DmaWords, Output};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::time::Time;
use crate::ultra::counters::Counters;

pub(super) struct Effects {
    pub(super) interface: HostInterface,
    pub(super) outputs: VecDeque<Output>,
    pub(super) counters: Counters,
}

impl Effects {
    pub(super) fn new(interface: HostInterface) -> Self {
        Self { interface, outputs: VecDeque::with_capacity(16), counters: Counters::default() }
    }

    /// Writes `words` as one DMA transfer. Returns when they are visible.
    pub(super) fn dma_write(&mut self, ready: Time, address: u64, words: DmaWords) -> Time {
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, words.len() as u64 * 8).end;
        self.outputs.push_back(Output::DmaWrite { at, address, words });
        at
    }

    pub(super) fn interrupt(&mut self, ready: Time, cause: u32, port: usize) {
        let at = self.interface.interrupt(ready);
        self.counters.interrupts += 1;
        self.outputs.push_back(Output::Interrupt { at, cause, port: port as u32 });
    }
}
