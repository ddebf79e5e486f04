//! A program that goes on by itself: its script over its ports, without waiting.
//!
//! A simulated host does the same operations in the same order, each at its instant of model time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use niclab_port::{Fault, Queue, Requester};

use crate::{FlowId, Listener, Mark, Memory, Read, Script, Transport};

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
    script: Script,
    /// Messages sent over each flow.
    sent: BTreeMap<FlowId, u64>,
    /// Messages received.
    received: u64,
}

impl<T: Transport> Default for Program<T> {
    fn default() -> Self {
        Self { ports: Vec::new(), script: Script::idle(), sent: BTreeMap::new(), received: 0 }
    }
}

impl<T: Transport> Program<T> {
    /// Takes a port over that is just open, with a receive queue of `records`, before anybody may send to it: it is told
    /// when records are released.
    pub fn open(&mut self, transport: T, records: u32, ports: &mut impl Ports) {
        let mut queue = Queue::new(records, 0);
        let mut memory = ports.memory(self.ports.len());
        queue.set_release_interval(transport.release_interval(records), &mut memory);
        if let Some(credits) = transport.credits(records) {
            queue.narrow_release_interval(credits, &mut memory);
        }
        drop(memory);
        self.ports.push(Open { transport, requester: Requester::new(0), queue });
    }

    /// The region of a port is registered by this name, and its partners may send to it.
    pub fn begin(&mut self, place: usize, region: u32) {
        self.ports.iter_mut().skip(place).take(1).for_each(|port| port.transport.begin(region));
    }

    /// Performs this from now on.
    pub fn perform(&mut self, script: Script) {
        self.script = script;
        self.script.begin(0);
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
        if queue.released() != released {
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
        if is_launched {
            ports.announce();
        }
        Ok(is_launched)
    }

    fn send(&mut self, ports: &mut impl Ports) -> Result<bool, Fault> {
        let Self { ports: open, script, sent, .. } = self;
        let place_of = |flow| open.iter().position(|port| port.transport.sends() == Some(flow));
        // The script only asks; whoever answers needs the memory all the same.
        let asked = RefCell::new(&mut *ports);
        let is_blocked = |flow| {
            let port = place_of(flow).and_then(|place| Some((place, open.get(place)?)));
            let Some((place, Open { transport, requester, .. })) = port else { return true };
            let mut ports = asked.borrow_mut();
            let memory = ports.memory(place);
            !requester.would_have_slot(&memory) || transport.is_blocked(&memory)
        };
        let Some(next) = script.next(is_blocked) else { return Ok(false) };
        let Some(place) = place_of(next.flow) else { return Ok(false) };
        let number = sent.entry(next.flow).or_default();
        *number += 1;
        let mark = Mark { flow: next.flow, bytes: next.bytes, number: *number };
        open[place].transport.send(&mark, next.interrupts, &mut ports.memory(place));
        script.on_sent(next.flow);
        self.launch(place, ports)?;
        Ok(true)
    }
}
