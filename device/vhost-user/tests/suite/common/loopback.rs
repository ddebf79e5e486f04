//! A card that returns what it sends: the data of each transmit descriptor fills the next receive descriptor. Its
//! descriptors are chains of the descriptor queues, or are in rings of the DEC 21140 in the guest's memory.

use std::collections::VecDeque;

use niclab_model::nic::{
    Descriptor, DescriptorQueue, FrameBytes, HostRange, HostRanges, Input, Nic, Observed, Output,
    ShellCounts, Statistics,
};
use niclab_model::parts::counters::CardCounters;
use niclab_model::parts::descriptor_ring::dec2114x::{self, Dec2114x};
use niclab_model::parts::descriptor_ring::{DescriptorRing, Found, RingFault, Taken};
use niclab_model::parts::effects::{CompletionDue, Effects, WorkPrices};
use niclab_model::parts::host_interface::HostInterface;
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use niclab_model::time::Time;

/// Maximum number of chains or descriptors that the card has.
pub const MOST: usize = 4;
/// Status of a descriptor that was filled or sent.
pub const DONE: u32 = 0x300;

/// Maximum number of descriptor reads for one poll demand.
const DEMAND_LOOKS: u32 = 64;
const WORK: WorkPrices =
    WorkPrices { input: 10, checked_bytes_in_unit: u64::MAX, output: 5, copied_bytes_in_unit: u64::MAX };

#[derive(Default)]
struct Counters {
    card: CardCounters,
    demands: u64,
    faults: Vec<RingFault>,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

/// How a descriptor is returned.
enum Due {
    Chain(CompletionDue),
    Ring(Taken),
}

/// Memory of a descriptor, and the time at which the card has read the descriptor.
struct Unit {
    ranges: HostRanges,
    known: Time,
    due: Due,
}

/// The card.
pub struct Loopback {
    effects: Effects<Counters>,
    /// By queue.
    units: [VecDeque<Unit>; 2],
    rings: Option<[DescriptorRing<Dec2114x>; 2]>,
    /// Token of the read of data to send.
    reading: Option<u64>,
}

impl Loopback {
    /// A card for chains of the descriptor queues.
    pub fn of_chains() -> Self {
        let interface = HostInterface::new(Profile::default());
        let units = [VecDeque::new(), VecDeque::new()];
        Self { effects: Effects::new(interface, WORK), units, rings: None, reading: None }
    }

    /// A card for rings that begin at these addresses: transmit, receive.
    pub fn of_rings(first: [u64; 2]) -> Self {
        let mut this = Self::of_chains();
        let rings = first.map(|first| {
            let mut ring = DescriptorRing::new(Dec2114x::default(), MOST, DEMAND_LOOKS);
            let started = ring.start(first);
            this.effects.counters.faults.extend(started.err());
            ring
        });
        this.rings = Some(rings);
        this
    }

    /// Polls the rings for descriptors, and begins to send.
    fn go_on(&mut self, now: Time) {
        for ring in self.rings.iter_mut().flatten() {
            let token = self.effects.next_token();
            if let Some(ranges) = ring.look(token) {
                self.effects.fetch_descriptor::<Dec2114x>(now, token, ranges);
            }
        }
        let [to_send, room] = &self.units;
        if let (Some(next), Some(room), None) = (to_send.front(), room.front(), self.reading) {
            let token = self.effects.next_token();
            self.reading = Some(token);
            let ready = next.known.max(room.known);
            self.effects.dma_read(ready, token, next.ranges.clone(), FrameBytes::new());
        }
    }

    fn on_data(&mut self, now: Time, token: u64, bytes: FrameBytes, is_whole: bool) {
        if self.reading == Some(token) {
            self.reading = None;
            return self.store(now, if is_whole { bytes } else { FrameBytes::new() });
        }
        for (ring, units) in self.rings.iter_mut().flatten().zip(&mut self.units) {
            match ring.on_data(token, &bytes, is_whole) {
                Found::Taken(taken) => {
                    let ranges = dec2114x::Descriptor::new(taken.words()).buffers();
                    units.push_back(Unit { ranges, known: now, due: Due::Ring(taken) });
                }
                Found::Broken(fault) => self.effects.counters.faults.push(fault),
                Found::Nothing | Found::Stale => {}
            }
        }
    }

    fn store(&mut self, now: Time, bytes: FrameBytes) {
        let [to_send, room] = &mut self.units;
        let (Some(sent), Some(room)) = (to_send.pop_front(), room.pop_front()) else { return };
        let mut left = bytes.len() as u64;
        let mut ranges = HostRanges::new();
        for range in &room.ranges {
            let bytes = left.min(range.bytes);
            left -= bytes;
            ranges.push(HostRange { bytes, ..*range });
        }
        let stored = bytes.len().saturating_sub(left as usize);
        let visible = self.effects.dma_frame(now, &bytes.into(), 0..stored, ranges);
        self.give_back(0, now, sent, 0);
        self.give_back(1, visible, room, stored as u32);
    }

    fn give_back(&mut self, queue: usize, ready: Time, unit: Unit, bytes: u32) {
        match unit.due {
            Due::Chain(due) => {
                self.effects.complete(ready, due, bytes);
            }
            Due::Ring(taken) => {
                let status = bytes << 16 | DONE;
                let word = dec2114x::Descriptor::new(taken.words()).done(status);
                let ring = self.rings.as_mut().and_then(|rings| rings.get_mut(queue));
                if let Some(write_back) = ring.and_then(|ring| ring.write_back(taken, word)) {
                    self.effects.write_back(ready, write_back);
                }
            }
        }
    }

    fn forget(&mut self) {
        self.effects.on_host_reset();
        self.reading = None;
        self.rings.iter_mut().flatten().for_each(DescriptorRing::stop);
        for unit in self.units.iter_mut().flat_map(std::mem::take) {
            match unit.due {
                Due::Chain(due) => due.void(),
                Due::Ring(taken) => taken.void(),
            }
        }
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Nic for Loopback {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.effects.interface.enter(node);
        self.effects.on_input(&input);
        match input {
            Input::Descriptor(chain) => {
                let (known, due) = self.effects.take_chain(now, &chain);
                let Descriptor { queue, readable, writable, .. } = chain;
                let ranges = if queue == DescriptorQueue::Transmit { readable } else { writable };
                self.units[queue as usize].push_back(Unit { ranges, known, due: Due::Chain(due) });
            }
            Input::PollDemand { queue } => {
                self.effects.counters.demands += 1;
                self.rings.iter_mut().for_each(|rings| rings[queue as usize].demand());
            }
            Input::DmaData { token, bytes, is_whole } => self.on_data(now, token, bytes, is_whole),
            Input::HostReset => self.forget(),
            _ => {}
        }
        self.go_on(now);
        self.effects.interface.leave(node);
    }

    fn memory_named_by(&self, _: &[u8]) -> HostRanges {
        HostRanges::new()
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.effects.poll()
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        self.rings.is_none().then(|| MOST - self.units[queue as usize].len())
    }

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }

    fn work_done(&self) -> u64 {
        self.effects.spent()
    }
}

impl Observed for Loopback {
    fn delivered(&self, _: u32) -> u64 {
        0
    }

    /// The number of poll demands, as no other counter of the trait fits.
    fn unordered(&self) -> u64 {
        self.effects.counters.demands
    }

    fn ledger(&self) -> &Ledger {
        self.effects.interface.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.effects.interface.ledger_mut()
    }

    /// Counts broken rings as refused.
    fn statistics(&self, shell: &ShellCounts) -> Statistics {
        let refused = self.effects.counters.faults.len() as u64;
        Statistics { refused, ..self.effects.counters.card.statistics(shell) }
    }
}
