//! A workload over active ports: each message takes a system call, and the program has no page or record of the card in
//! its memory. A message consists of the tag and then the payload.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use niclab_user::Address;
use niclab_user::gamma::{Message, Port, PortOptions};
use niclab_workloads::inic::TAG_BYTES;
use niclab_workloads::{End, FlowId, Listener as _, Mark, Outgoing, Script, Verifier};

use super::{LOOKS_BEFORE_NAPS, NAP, NAPS_PER_CHECK, Performs, Stage, out_of_step};
use crate::Failure;
use crate::gamma::Places;

/// Maximum receive memory of a port, and the minimum number of receive buffers.
const RECEIVE_BYTES: usize = 8 << 20;
const MIN_BUFFERS: usize = 16;

/// An open port.
struct Open {
    port: Port,
    places: Places,
}

/// A program and its ports.
pub(super) struct Performer {
    ports: Vec<Open>,
    /// For each flow, the index of the sending port and the target.
    flows: BTreeMap<FlowId, (usize, Address)>,
    sent: BTreeMap<FlowId, u64>,
    verifier: Verifier,
    timeout: Duration,
    received: u64,
    /// Index of the port that is polled first.
    turn: usize,
}

impl Performer {
    /// Opens the ports of a node.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub(super) fn open(stage: &Stage<'_>) -> Result<Self, Failure> {
        let &Stage { device, workload, plan, rank, timeout } = stage;
        let (mut ports, mut flows) = (Vec::new(), BTreeMap::new());
        let bytes = TAG_BYTES as usize + workload.message_bytes as usize;
        let place_bytes = bytes.next_multiple_of(64);
        for plan in plan.ports_of(workload, rank, false) {
            let buffers = (RECEIVE_BYTES / place_bytes).clamp(MIN_BUFFERS, workload.slices as usize);
            let options =
                PortOptions::default().port(plan.number).buffers(buffers as u32, place_bytes as u32);
            flows.extend(plan.sends.iter().map(|(flow, to)| (*flow, (ports.len(), address(*to)))));
            ports.push(Open { port: Port::open(device, options)?, places: Places::new(place_bytes)? });
        }
        let verifier = Verifier::new(plan.flows.clone(), workload.promise);
        Ok(Self { ports, flows, sent: BTreeMap::new(), verifier, timeout, received: 0, turn: 0 })
    }

    /// Receives a message, or sends one. Returns whether it did.
    fn step(&mut self, script: &mut Script) -> Result<bool, Failure> {
        for _ in 0..self.ports.len() {
            let place = self.turn % self.ports.len();
            self.turn = place + 1;
            let Self { ports, verifier, .. } = self;
            let port = &mut ports[place].port;
            let at = end(port.address());
            if port.try_receive(|message| accept(at, message, verifier))?.is_some() {
                self.received += 1;
                script.on_received();
                return Ok(true);
            }
        }
        let flows = &self.flows;
        match script.next(|flow| !flows.contains_key(&flow)) {
            Some(next) if self.send(&next)? => {
                script.on_sent(next.flow);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Sends a message, if the window allows it now.
    fn send(&mut self, outgoing: &Outgoing) -> Result<bool, Failure> {
        let Some((place, to)) = self.flows.get(&outgoing.flow).copied() else { return Ok(false) };
        let sent = self.sent.entry(outgoing.flow).or_default();
        let mark = Mark { flow: outgoing.flow, bytes: outgoing.bytes, number: *sent + 1 };
        let tag: Vec<u8> = mark.tag().into_iter().flat_map(u64::to_le_bytes).collect();
        let payload = mark.payload().flat_map(u64::to_le_bytes).take(mark.bytes as usize);
        let payload: Vec<u8> = payload.collect();
        let Open { port, places } = &mut self.ports[place];
        let is_sent = places.try_send(port, to, [&tag, &payload], self.timeout)?;
        *sent += u64::from(is_sent);
        Ok(is_sent)
    }

    /// Fails if the program has made no progress since `since` for longer than its timeout.
    fn check(&self, since: Instant, due: u64) -> Result<(), Failure> {
        if since.elapsed() > self.timeout {
            return Err(out_of_step(format!("no more messages after {} of {due}", self.received)));
        }
        Ok(())
    }
}

impl Performs for Performer {
    fn perform(
        &mut self,
        mut script: Script,
        expected: u64,
        on_message: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        let due = self.received + expected;
        let (mut looks, mut quiet) = (0_u32, None);
        script.begin(0);
        while script.unsent() > 0 || self.received < due {
            let before = self.received;
            let has_moved = self.step(&mut script)?;
            if let Some(wrong) = self.verifier.take_wrong() {
                return Err(out_of_step(wrong));
            }
            if self.received > before {
                on_message();
            }
            if has_moved {
                (looks, quiet) = (0, None);
                continue;
            }
            looks = looks.saturating_add(1);
            if looks < LOOKS_BEFORE_NAPS {
                std::hint::spin_loop();
                continue;
            }
            thread::sleep(NAP);
            if looks.is_multiple_of(NAPS_PER_CHECK) {
                self.check(*quiet.get_or_insert_with(Instant::now), due)?;
            }
        }
        // All messages must have left before this end reports that its part is over.
        self.ports.iter_mut().try_for_each(|open| open.port.flush(self.timeout))?;
        Ok(())
    }
}

/// Checks a received message.
fn accept(at: End, message: &Message<'_>, verifier: &mut Verifier) {
    let mut bytes = vec![0; message.bytes()];
    message.read(0, &mut bytes);
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
        u64::from_le_bytes(word)
    });
    let tag = [words.next().unwrap_or_default(), words.next().unwrap_or_default()];
    verifier.on_message(at, end(message.source()), &Mark::from_tag(tag), words);
}

fn end(address: Address) -> End {
    End { node: address.node as u16, port: address.port as u16 }
}

fn address(end: End) -> Address {
    Address { node: end.node.into(), port: end.port.into() }
}
