//! A program outside the simulator: its script over its ports, without waiting.
//!
//! A simulated host does the same operations in the same order, each at its instant of model time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::AtomicU64;

use niclab_port::{Fault, Queue, Requester, Turn, Turns};

use crate::{FlowId, Listener, Mark, Memory, Outgoing, PortPlan, Read, Script, Transport};

/// The ports of a program, as the program reaches them.
pub trait Ports {
    /// The memory of one port.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The memory of a port, in the order in which the ports were opened.
    fn memory(&mut self, place: usize) -> Self::Memory<'_>;

    /// Notifies the device of a store to a page, if it wants notifications.
    fn announce(&mut self);

    /// The completer page of the port that was opened first, which carries the lockstep grants.
    fn completer(&self) -> &[AtomicU64];
}

/// The result of a poll for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTurn {
    /// Another program has the grant.
    Waits,
    /// The program did its operation.
    Taken,
    /// Nothing is in flight, and no program has an operation to do.
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
    /// Model time, in lockstep only.
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
    /// Adds a port that was just opened for this plan, with a receive queue of `records`. Call it before any partner
    /// may send to the port, because it sets when the queue reports released records.
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

    /// The region of a port is registered as `region`, and its partners may send to it. Returns the control requests
    /// that the card must execute next, each with its body.
    pub fn begin(&mut self, place: usize, region: u32) -> Vec<(u32, Vec<u8>)> {
        let Some(port) = self.ports.get_mut(place) else { return Vec::new() };
        port.transport.begin(region);
        port.transport.requests()
    }

    /// Runs this script from now on.
    pub fn perform(&mut self, script: Script) {
        self.script = script;
        self.script.begin(0);
    }

    /// Runs this script from now on in lockstep: all nodes' programs begin together.
    pub fn perform_in_turns(&mut self, script: Script, ports: &mut impl Ports) {
        self.script = script;
        self.now_ps = None;
        self.turns.begin(ports.completer());
        ports.announce();
    }

    /// Does one operation, if the program has a grant.
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

    /// Whether the script has sent all its messages and no command waits to be posted.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.script.unsent() == 0 && self.ports.iter().all(|port| !port.transport.has_launches())
    }

    /// Does one operation: reads a record, posts a waiting command, or sends. Returns false if there is none to do.
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

    /// Posts the oldest waiting command of a port, if a slot is free.
    fn launch(&mut self, place: usize, ports: &mut impl Ports) -> Result<bool, Fault> {
        let Open { transport, requester, queue } = &mut self.ports[place];
        let mut memory = ports.memory(place);
        let is_launched =
            requester.has_slot(&memory)? && transport.launch(requester, &mut memory, queue.received());
        drop(memory);
        // In lockstep, the end of the operation is announced instead.
        if is_launched && self.now_ps.is_none() {
            ports.announce();
        }
        Ok(is_launched)
    }

    /// What the script wants to send next, if nothing blocks it.
    fn next(&mut self, ports: &mut impl Ports) -> Option<Outgoing> {
        let Self { ports: open, senders, script, .. } = self;
        // `is_blocked` is a `Fn`, but needs the ports mutably.
        let shared = RefCell::new(&mut *ports);
        let is_blocked = |flow| {
            let port = senders.get(&flow).and_then(|place| Some((*place, open.get(*place)?)));
            let Some((place, Open { transport, requester, .. })) = port else { return true };
            let mut ports = shared.borrow_mut();
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
