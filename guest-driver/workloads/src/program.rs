//! A program that goes on by itself: its script over its ports, without waiting.
//!
//! A simulated host does the same operations in the same order, each at its instant of model time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::AtomicU64;

use niclab_port::{Fault, Queue, Requester, Turn, Turns};

use crate::{FlowId, Listener, Mark, Memory, Outgoing, PortPlan, Read, Script, Transport};

/// The ports of a program, as it reaches them.
pub trait Ports {
    /// The memory of one.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The memory of a port, in the order in which the ports were opened.
    fn memory(&mut self, place: usize) -> Self::Memory<'_>;

    /// A page was stored to: the device is told, if it wants to be.
    fn announce(&mut self);

    /// The completer page of the port that was opened first, over which the program takes turns.
    fn completer(&self) -> &[AtomicU64];
}

/// What became of a look for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTurn {
    /// It is another's.
    Waits,
    /// It did what it could.
    Taken,
    /// Nothing is under way, and nobody has anything to do.
    Over,
}

/// An open port of a program.
struct Open<T: Transport> {
    transport: T,
    requester: Requester,
    queue: Queue<T::Records>,
}

/// A program and its ports.
pub struct Program<T: Transport> {
    ports: Vec<Open<T>>,
    /// The place in `ports` of the one that sends over each flow.
    senders: BTreeMap<FlowId, usize>,
    script: Script,
    /// Messages sent over each flow.
    sent: BTreeMap<FlowId, u64>,
    /// Messages received.
    received: u64,
    turns: Turns,
    /// Model time, where the program takes turns.
    now_ps: Option<u64>,
}

impl<T: Transport> Default for Program<T> {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            senders: BTreeMap::new(),
            script: Script::idle(),
            sent: BTreeMap::new(),
            received: 0,
            turns: Turns::default(),
            now_ps: None,
        }
    }
}

impl<T: Transport> Program<T> {
    /// Takes a port over that is just open for this, with a receive queue of `records`, before anybody may send to it:
    /// it is told when records are released.
    pub fn open(&mut self, plan: &PortPlan, transport: T, records: u32, ports: &mut impl Ports) {
        let mut queue = Queue::new(records, 0);
        let mut memory = ports.memory(self.ports.len());
        queue.set_release_interval(transport.release_interval(records), &mut memory);
        if let Some(credits) = transport.credits(records) {
            queue.narrow_release_interval(credits, &mut memory);
        }
        drop(memory);
        self.senders.extend(plan.sends.iter().map(|(flow, _)| (*flow, self.ports.len())));
        self.ports.push(Open { transport, requester: Requester::new(0), queue });
    }

    /// The region of a port is registered by this name, and its partners may send to it. Returns what the card is then
    /// asked for: control requests, each with its body.
    pub fn begin(&mut self, place: usize, region: u32) -> Vec<(u32, Vec<u8>)> {
        let Some(port) = self.ports.get_mut(place) else { return Vec::new() };
        port.transport.begin(region);
        port.transport.requests()
    }

    /// Performs this from now on.
    pub fn perform(&mut self, script: Script) {
        self.script = script;
        self.script.begin(0);
    }

    /// Performs this from now on, in turns: all nodes' programs begin together.
    pub fn perform_in_turns(&mut self, script: Script, ports: &mut impl Ports) {
        self.script = script;
        self.now_ps = None;
        self.turns.begin(ports.completer());
        ports.announce();
    }

    /// Does one operation, if it is its turn.
    ///
    /// # Errors
    /// [`Fault`] of the device.
    pub fn take_turn(
        &mut self,
        ports: &mut impl Ports,
        listener: &mut impl Listener,
    ) -> Result<InTurn, Fault> {
        match self.turns.poll(ports.completer()) {
            None => Ok(InTurn::Waits),
            Some(Turn::Over) => {
                self.now_ps = None;
                Ok(InTurn::Over)
            }
            Some(Turn::Now { model_ps }) => {
                if self.now_ps.replace(model_ps).is_none() {
                    self.script.begin(model_ps);
                }
                let acted = self.step(ports, listener)?;
                let wake_ps = if acted { None } else { self.next(ports).map(|next| next.not_before_ps) };
                self.turns.end(ports.completer(), acted, wake_ps);
                ports.announce();
                Ok(InTurn::Taken)
            }
        }
    }

    /// Messages received so far.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Whether it has sent all that it has to, and owes nothing to others.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.script.unsent() == 0 && self.ports.iter().all(|port| !port.transport.has_launches())
    }

    /// Does one operation: reads a record, launches what is owed, or sends. False when there is none to do.
    ///
    /// # Errors
    /// [`Fault`] of the device.
    pub fn step(&mut self, ports: &mut impl Ports, listener: &mut impl Listener) -> Result<bool, Fault> {
        for place in 0..self.ports.len() {
            if self.read(place, ports, listener) {
                return Ok(true);
            }
        }
        for place in 0..self.ports.len() {
            if self.ports[place].transport.has_launches() && self.launch(place, ports)? {
                return Ok(true);
            }
        }
        self.send(ports)
    }

    fn read(&mut self, place: usize, ports: &mut impl Ports, listener: &mut impl Listener) -> bool {
        let Open { transport, queue, .. } = &mut self.ports[place];
        let released = queue.released();
        let mut memory = ports.memory(place);
        let Some(read) = transport.read(queue, &mut memory, listener) else { return false };
        drop(memory);
        if queue.released() != released && self.now_ps.is_none() {
            ports.announce();
        }
        if read == Read::Message {
            self.received += 1;
            self.script.on_received();
        }
        true
    }

    /// Launches what waits longest at a port, if a slot is free.
    fn launch(&mut self, place: usize, ports: &mut impl Ports) -> Result<bool, Fault> {
        let Open { transport, requester, queue } = &mut self.ports[place];
        let mut memory = ports.memory(place);
        let is_launched =
            requester.has_slot(&memory)? && transport.launch(requester, &mut memory, queue.received());
        drop(memory);
        // In turns, the end of the turn is announced.
        if is_launched && self.now_ps.is_none() {
            ports.announce();
        }
        Ok(is_launched)
    }

    /// What the script wants to send next, if nothing blocks it.
    fn next(&mut self, ports: &mut impl Ports) -> Option<Outgoing> {
        let Self { ports: open, senders, script, .. } = self;
        // The script only asks; whoever answers needs the memory all the same.
        let asked = RefCell::new(&mut *ports);
        let is_blocked = |flow| {
            let port = senders.get(&flow).and_then(|place| Some((*place, open.get(*place)?)));
            let Some((place, Open { transport, requester, .. })) = port else { return true };
            let mut ports = asked.borrow_mut();
            let memory = ports.memory(place);
            !requester.would_have_slot(&memory) || transport.is_blocked(&memory)
        };
        script.next(is_blocked)
    }

    fn send(&mut self, ports: &mut impl Ports) -> Result<bool, Fault> {
        let now_ps = self.now_ps.unwrap_or(u64::MAX);
        let due = self.next(ports).filter(|next| next.not_before_ps <= now_ps);
        let Some(next) = due else { return Ok(false) };
        let Self { ports: open, senders, script, sent, .. } = self;
        let Some(&place) = senders.get(&next.flow) else { return Ok(false) };
        let number = sent.entry(next.flow).or_default();
        *number += 1;
        let mark = Mark { flow: next.flow, bytes: next.bytes, number: *number };
        open[place].transport.send(&mark, next.interrupts, &mut ports.memory(place));
        script.on_sent(next.flow);
        self.launch(place, ports)?;
        Ok(true)
    }
}
