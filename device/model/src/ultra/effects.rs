//! What requester and completer do to the world: effects queued for the shell, priced and counted.

use alloc::collections::VecDeque;

use crate::nic::{Content, DmaWords, Output};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::ledger::{Place, Resource, Stage};
use crate::parts::message::Message;
use crate::time::Time;
use crate::ultra::counters::Counters;

const WORD_BYTES: u64 = 8;

/// The four state machines of the card (sections 3.1 and 3.2).
#[derive(Clone, Copy, Debug)]
pub(super) enum Machine {
    Load,
    Transmit,
    Receive,
    Store,
}

pub(super) struct Effects {
    pub(super) interface: HostInterface,
    machines: [Resource; 4],
    pub(super) outputs: VecDeque<Output>,
    pub(super) counters: Counters,
    /// What was done, as [`crate::nic::Nic::work_done`] counts.
    pub(super) spent: u64,
}

impl Effects {
    pub(super) fn new(interface: HostInterface) -> Self {
        Self {
            machines: ["load", "tx", "rx", "store"].map(|name| Resource::new(Place::Machine(name))),
            interface,
            outputs: VecDeque::new(),
            counters: Counters::default(),
            spent: 0,
        }
    }

    /// Lets a machine work on a packet of `words` words.
    #[inline]
    pub(super) fn work(&mut self, machine: Machine, ready: Time, words: usize) -> Stage {
        let ni = &self.interface.profile().ni;
        let cycles = match machine {
            Machine::Load => ni.load,
            Machine::Transmit => ni.transmit,
            Machine::Receive => ni.receive,
            Machine::Store => ni.store,
        };
        let span = ni.span(cycles, words as u64);
        self.interface.machine(&mut self.machines[machine as usize], ready, words as u64 * WORD_BYTES, span)
    }

    /// Writes `words` as one DMA transfer. Returns when they are visible.
    pub(super) fn dma_write(&mut self, ready: Time, address: u64, words: DmaWords, content: Content) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, words.len() as u64 * WORD_BYTES).end;
        self.outputs.push_back(Output::DmaWrite { at, address, words, content, message });
        at
    }

    pub(super) fn interrupt(&mut self, ready: Time, cause: u32, port: usize, message: Option<&Message>) {
        let at = self.interface.interrupt(ready);
        self.counters.interrupts += 1;
        self.outputs.push_back(Output::Interrupt { at, cause, port: port as u32, message: message.copied() });
    }
}
