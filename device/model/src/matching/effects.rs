//! What the card does to the world: effects queued for the shell, priced and counted.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::matching::counters::Counters;
use crate::nic::{Content, DmaWords, FrameBytes, HostRanges, Output};
use crate::parts::host_interface::{BusTransfer, HostInterface};
use crate::parts::ledger::{Place, Resource, Stage};
use crate::parts::message::Message;
use crate::time::{Span, Time};

pub(super) const WORD_BYTES: u64 = 8;

/// The machines of the card. All but the match unit are those that every model has.
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
    match_unit: Resource,
    pub(super) outputs: VecDeque<Output>,
    pub(super) counters: Counters,
    /// What was done but for matching and lists, as [`crate::nic::Nic::work_done`] counts.
    pub(super) spent: u64,
}

impl Effects {
    pub(super) fn new(interface: HostInterface) -> Self {
        Self {
            machines: ["load", "tx", "rx", "store"].map(|name| Resource::new(Place::Machine(name))),
            match_unit: Resource::new(Place::Machine("match unit")),
            interface,
            outputs: VecDeque::new(),
            counters: Counters::default(),
            spent: 0,
        }
    }

    /// Lets a machine work on `bytes`.
    #[inline]
    pub(super) fn work(&mut self, machine: Machine, ready: Time, bytes: u64) -> Stage {
        let ni = &self.interface.profile().ni;
        let cycles = match machine {
            Machine::Load => ni.load,
            Machine::Transmit => ni.transmit,
            Machine::Receive => ni.receive,
            Machine::Store => ni.store,
        };
        let span = ni.span(cycles, bytes.div_ceil(WORD_BYTES));
        self.interface.machine(&mut self.machines[machine as usize], ready, bytes, span)
    }

    /// Lets the match unit work for `cycles`.
    #[inline]
    pub(super) fn match_cycles(&mut self, ready: Time, cycles: u64) -> Stage {
        self.counters.unit_cycles += cycles;
        let span = Span::from_ps(self.interface.profile().ni.clock_ps).times(cycles);
        self.interface.machine(&mut self.match_unit, ready, 0, span)
    }

    /// When the match unit has nothing more to do.
    pub(super) const fn match_unit_idle(&self) -> Time {
        self.match_unit.busy_until()
    }

    /// Writes `words` as one DMA transfer. Returns when they are visible.
    pub(super) fn dma_write(&mut self, ready: Time, address: u64, words: DmaWords, content: Content) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, words.len() as u64 * WORD_BYTES).end;
        self.outputs.push_back(Output::DmaWrite { at, address, words, content, message });
        at
    }

    /// Stores a part of the frame in hand as one DMA transfer. Returns when it is visible.
    pub(super) fn dma_frame(&mut self, ready: Time, bytes: Range<usize>, ranges: HostRanges) -> Time {
        let message = self.interface.ledger().attributed();
        let at = self.interface.transfer(BusTransfer::DmaWrite, ready, bytes.len() as u64).end;
        self.outputs.push_back(Output::DmaFrame { at, bytes, ranges, message });
        at
    }

    /// Reads host memory behind what is in `into` as one DMA transfer. Returns when it is here.
    pub(super) fn dma_read(&mut self, ready: Time, token: u64, ranges: HostRanges, into: FrameBytes) -> Time {
        let message = self.interface.ledger().attributed();
        let bytes = ranges.iter().map(|range| range.bytes).sum();
        let at = self.interface.transfer(BusTransfer::DmaRead, ready, bytes).end;
        self.outputs.push_back(Output::DmaRead { at, token, ranges, into, message });
        at
    }

    pub(super) fn interrupt(&mut self, ready: Time, cause: u32, port: usize, message: Option<Message>) {
        let at = self.interface.interrupt(ready);
        self.counters.interrupts += 1;
        self.outputs.push_back(Output::Interrupt { at, cause, port: port as u32, message });
    }
}
