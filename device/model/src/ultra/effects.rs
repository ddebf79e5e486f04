//! What requester and completer do to the world: effects queued for the shell, priced and counted.

use alloc::collections::VecDeque;

use crate::nic::{Content, DmaWords, Output};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::ledger::{Place, Resource, Stage};
use crate::parts::message::Message;
use crate::parts::profile::MachineCycles;
use crate::time::{Span, Time};
use crate::ultra::counters::Counters;
use crate::ultra::wire::MAX_WORDS;

const WORD_BYTES: u64 = 8;

/// How long a machine works on a packet of so many words.
type Spans = [Span; MAX_WORDS + 1];

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
    spans: [Spans; 4],
    machines: [Resource; 4],
    pub(super) outputs: VecDeque<Output>,
    pub(super) counters: Counters,
}

impl Effects {
    pub(super) fn new(interface: HostInterface) -> Self {
        let ni = interface.profile().ni;
        let spans_of = |machine: MachineCycles| core::array::from_fn(|words| ni.span(machine, words as u64));
        Self {
            spans: [ni.load, ni.transmit, ni.receive, ni.store].map(spans_of),
            machines: ["load", "tx", "rx", "store"].map(|name| Resource::new(Place::Machine(name))),
            interface,
            outputs: VecDeque::with_capacity(16),
            counters: Counters::default(),
        }
    }

    /// Lets a machine work on a packet of `words` words, [`MAX_WORDS`] at most.
    #[inline]
    pub(super) fn work(&mut self, machine: Machine, ready: Time, words: usize) -> Stage {
        let span = self.spans[machine as usize][words.min(MAX_WORDS)];
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
