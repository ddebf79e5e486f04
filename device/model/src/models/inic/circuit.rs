//! Components joined by FIFOs: an assembly on the card.
//!
//! A component takes tokens from its inputs, works on them for as long as the platform's profile says, and puts tokens
//! into its outputs. Each FIFO has a fixed depth. A component whose output is full waits until a token is taken. The
//! circuit processes all consequences of an input at once, as far as the FIFOs allow. A token that is taken at a later
//! instant of model time occupies its slot until then. In an idle circuit all remaining work waits for host data, for a
//! slot, or for a deadline.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use niclab_components::assembly::MAX_COMPONENTS;
use smallvec::SmallVec;

use crate::models::inic::card::Card;
use crate::models::inic::token::Token;
use crate::nic::FrameBytes;
use crate::parts::host_interface::Machine;
use crate::time::Time;

/// Max steps of components for one input. Remaining steps follow at the same instant of model time. A window of
/// four-byte packets of a long message takes millions of steps. (Attack: a guest chooses both lengths.) Ours: a bound,
/// some hundred microseconds of the shell's time.
const MAX_STEPS: u32 = 1_024;

/// Work of a step, for [`crate::nic::Nic::work_done`]. Ours: how work is counted.
const STEP_WORK: u64 = 12;

// `Circuit::ready` has one bit for each component.
const _: () = assert!(MAX_COMPONENTS <= u64::BITS as usize);

/// A component: one function of a protocol (section 4).
pub(super) trait Component: Send {
    /// Takes the next token at its inputs. Returns whether the component did anything.
    fn step(&mut self, io: &mut Io<'_>) -> bool;

    /// Whether the component can have deadlines.
    fn is_timed(&self) -> bool {
        false
    }

    /// Whether it reads the host's memory.
    fn is_reader(&self) -> bool {
        false
    }

    /// Accepts the data of a read. Returns whether the read belongs to this component.
    fn on_data(&mut self, io: &mut Io<'_>, token: u64, bytes: &mut FrameBytes, is_whole: bool) -> bool {
        let _ = (io, token, bytes, is_whole);
        false
    }

    /// The component's next deadline.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// The host's port is closed: drops data for its program, and data from it that is not yet sent.
    fn on_close(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// The card loads another assembly: ends all remaining work here.
    fn on_firmware_reload(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// Whether the component has no pending work, of its own or of others.
    fn is_idle(&self) -> bool {
        true
    }

    /// Changes a parameter while it runs. Returns whether it has one of this name.
    fn set(&mut self, parameter: &str, value: u64) -> bool {
        let _ = (parameter, value);
        false
    }
}

/// A FIFO between two components.
#[derive(Debug)]
struct Fifo {
    depth: usize,
    tokens: VecDeque<(Time, Token)>,
    /// Times at which the last tokens were taken, at most as many as the FIFO's depth.
    taken: VecDeque<Time>,
    /// Length of the rising run at the end of these times.
    rising: usize,
    /// The latest time at which any token was taken.
    latest: Time,
    /// The source component waits for a free slot.
    is_awaited: bool,
    from: usize,
    to: usize,
}

impl Fifo {
    fn new(depth: usize, from: usize, to: usize) -> Self {
        Self {
            depth,
            tokens: VecDeque::new(),
            taken: VecDeque::new(),
            rising: 0,
            latest: Time::ZERO,
            is_awaited: false,
            from,
            to,
        }
    }

    /// Whether the FIFO is full at `now`: tokens that are not taken and tokens that are taken later both occupy slots.
    #[inline]
    fn is_full(&self, now: Time) -> bool {
        if self.tokens.len() < self.depth && self.latest <= now {
            return false;
        }
        self.is_full_of_later(now)
    }

    fn is_full_of_later(&self, now: Time) -> bool {
        let Some(free) = self.depth.checked_sub(self.tokens.len()).filter(|free| *free > 0) else {
            return true;
        };
        let Some(first) = self.taken.len().checked_sub(free) else { return false };
        // The times usually rise, so that one of them decides for all.
        if self.rising == self.taken.len() {
            return self.taken.get(first).is_some_and(|taken| *taken > now);
        }
        self.taken.iter().filter(|taken| **taken > now).count() >= free
    }

    /// The first instant after `now` at which a slot becomes free, if known.
    fn free_after(&self, now: Time) -> Option<Time> {
        self.taken.iter().copied().filter(|taken| *taken > now).min()
    }

    fn take(&mut self, at: Time) {
        if self.taken.len() == self.depth {
            self.taken.pop_front();
        }
        self.latest = self.latest.max(at);
        let rises = self.taken.back().is_none_or(|last| *last <= at);
        self.taken.push_back(at);
        self.rising = if rises { (self.rising + 1).min(self.taken.len()) } else { 1 };
    }
}

/// FIFOs of a port, by index.
type Places = SmallVec<[usize; 2]>;

/// A component's connections and machine.
#[derive(Debug)]
struct Wiring {
    /// FIFOs of each input.
    inputs: SmallVec<[Places; 4]>,
    /// FIFOs of each output: a token goes into all of them.
    outputs: SmallVec<[Places; 4]>,
    machine: Machine,
}

/// A circuit.
pub(super) struct Circuit {
    components: Vec<Box<dyn Component>>,
    wiring: Vec<Wiring>,
    fifos: Vec<Fifo>,
    /// A bit for each component that may have something to do.
    ready: u64,
    /// When a slot that a component waits for becomes free.
    place_at: Option<Time>,
    /// When components continue that had more steps than one input may cause.
    resume_at: Option<Time>,
    /// Components that may have deadlines, and those that read the host's memory.
    timed: Vec<usize>,
    readers: Vec<usize>,
}

/// A component's ports, and the card, while the component acts.
pub(super) struct Io<'a> {
    pub(super) card: &'a mut Card,
    /// The instant of the input that is processed.
    pub(super) now: Time,
    wiring: &'a mut Wiring,
    fifos: &'a mut [Fifo],
    ready: &'a mut u64,
    place_at: &'a mut Option<Time>,
}

impl Io<'_> {
    /// Whether an input with one FIFO has a token.
    #[inline]
    pub(super) fn has(&self, input: usize) -> bool {
        self.peek(input).is_some()
    }

    /// The next token of an input with one FIFO.
    #[inline]
    pub(super) fn peek(&self, input: usize) -> Option<&(Time, Token)> {
        let fifo = *self.wiring.inputs.get(input)?.first()?;
        self.fifos.get(fifo)?.tokens.front()
    }

    /// Takes the next token of an input with one FIFO, with the instant when the token is ready.
    #[inline]
    pub(super) fn take(&mut self, input: usize) -> Option<(Time, Token)> {
        self.take_from(input, 0)
    }

    /// Takes the next token of one of an input's FIFOs.
    fn take_from(&mut self, input: usize, place: usize) -> Option<(Time, Token)> {
        let fifo = *self.wiring.inputs.get(input)?.get(place)?;
        let fifo = self.fifos.get_mut(fifo)?;
        let (at, token) = fifo.tokens.pop_front()?;
        fifo.take(at.max(self.wiring.machine.idle_at()));
        if core::mem::take(&mut fifo.is_awaited) {
            *self.ready |= 1 << fifo.from;
        }
        Some((at, token))
    }

    /// Takes one token of each FIFO of an input, if each has one.
    pub(super) fn take_all(&mut self, input: usize) -> Option<SmallVec<[(Time, Token); 2]>> {
        let fifos = self.wiring.inputs.get(input)?;
        let are_there =
            fifos.iter().all(|fifo| self.fifos.get(*fifo).is_some_and(|fifo| !fifo.tokens.is_empty()));
        if !are_there {
            return None;
        }
        (0..fifos.len()).map(|place| self.take_from(input, place)).collect()
    }

    /// Whether all FIFOs of an output have room. A component checks this before it produces a token. If a FIFO is
    /// full, the component runs again once it has room.
    pub(super) fn has_room(&mut self, output: usize) -> bool {
        let fifos = self.wiring.outputs.get(output).map_or(&[][..], SmallVec::as_slice);
        for fifo in fifos {
            let Some(fifo) = self.fifos.get_mut(*fifo) else { continue };
            if fifo.is_full(self.now) {
                fifo.is_awaited = true;
                let free = fifo.free_after(self.now);
                *self.place_at = match (*self.place_at, free) {
                    (Some(known), Some(free)) => Some(known.min(free)),
                    (known, free) => known.or(free),
                };
                return false;
            }
        }
        true
    }

    /// Puts a token into an output that has room.
    pub(super) fn put(&mut self, output: usize, at: Time, token: Token) {
        let Some((last, others)) = self.wiring.outputs.get(output).and_then(|fifos| fifos.split_last())
        else {
            return;
        };
        for fifo in others {
            put_into(self.fifos, *fifo, at, token.clone(), self.ready);
        }
        put_into(self.fifos, *last, at, token, self.ready);
    }

    /// Charges the component's machine for `bytes`. Returns the end.
    pub(super) fn work(&mut self, at: Time, bytes: usize) -> Time {
        self.card.effects.interface.work(&mut self.wiring.machine, at, bytes as u64).end
    }
}

fn put_into(fifos: &mut [Fifo], index: usize, at: Time, token: Token, ready: &mut u64) {
    let Some(fifo) = fifos.get_mut(index) else { return };
    fifo.tokens.push_back((at, token));
    *ready |= 1 << fifo.to;
}

/// The parts of a circuit: components with their machines, and connections.
pub(super) struct Plan {
    pub(super) components: Vec<(Box<dyn Component>, Machine, Ports)>,
    pub(super) connections: Vec<Connection>,
}

/// Number of ports of a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// An output, an input, and the maximum number of tokens between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) from: (usize, usize),
    pub(super) to: (usize, usize),
    pub(super) depth: usize,
}

impl Circuit {
    /// Connects components. The assembly was checked, so connections name existing ports.
    pub(super) fn new(plan: Plan) -> Self {
        let Plan { components, connections } = plan;
        let (mut boxes, mut wiring) = (Vec::new(), Vec::new());
        for (component, machine, ports) in components {
            boxes.push(component);
            wiring.push(Wiring {
                inputs: (0..ports.inputs).map(|_| Places::new()).collect(),
                outputs: (0..ports.outputs).map(|_| Places::new()).collect(),
                machine,
            });
        }
        let mut fifos = Vec::new();
        for Connection { from, to, depth } in connections {
            let index = fifos.len();
            let output = wiring.get_mut(from.0).and_then(|wiring| wiring.outputs.get_mut(from.1));
            output.into_iter().for_each(|output| output.push(index));
            let input = wiring.get_mut(to.0).and_then(|wiring| wiring.inputs.get_mut(to.1));
            input.into_iter().for_each(|input| input.push(index));
            // A connection of depth zero still holds one token of its source until the other end takes it.
            fifos.push(Fifo::new(depth.max(1), from.0, to.0));
        }
        let those = |which: fn(&dyn Component) -> bool| -> Vec<usize> {
            let indexed = boxes.iter().map(Box::as_ref).enumerate();
            indexed.filter(|(_, component)| which(*component)).map(|(index, _)| index).collect()
        };
        let (timed, readers) = (those(|it| it.is_timed()), those(|it| it.is_reader()));
        Self { components: boxes, wiring, fifos, ready: 0, place_at: None, resume_at: None, timed, readers }
    }

    /// Runs a function on one component, and then all consequences.
    fn act<R>(
        &mut self,
        index: usize,
        now: Time,
        card: &mut Card,
        act: impl FnOnce(&mut dyn Component, &mut Io<'_>) -> R,
    ) -> Option<R> {
        let (Some(component), Some(wiring)) = (self.components.get_mut(index), self.wiring.get_mut(index))
        else {
            return None;
        };
        let Self { fifos, ready, place_at, .. } = self;
        let mut io = Io { card, now, wiring, fifos, ready, place_at };
        Some(act(component.as_mut(), &mut io))
    }

    /// Puts a token into the output of an edge component, and processes the consequences.
    pub(super) fn inject(&mut self, index: usize, now: Time, at: Time, token: Token, card: &mut Card) {
        self.act(index, now, card, |_, io| io.put(0, at, token));
        self.run_until_idle(now, card);
    }

    /// Lets a component re-check the condition that it waits for.
    pub(super) fn wake(&mut self, index: usize, now: Time, card: &mut Card) {
        self.ready |= 1_u64.checked_shl(index as u32).unwrap_or(0);
        self.run_until_idle(now, card);
    }

    /// Lets all components check their deadlines.
    pub(super) fn on_timeout(&mut self, now: Time, card: &mut Card) {
        for index in &self.timed {
            let deadline = self.components.get(*index).and_then(|component| component.deadline());
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.ready |= 1 << index;
            }
        }
        if self.place_at.is_some_and(|place_at| place_at <= now) {
            self.place_at = None;
            self.ready |= u64::MAX >> (u64::BITS as usize - self.components.len().max(1));
        }
        self.run_until_idle(now, card);
    }

    /// The answer to a read.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        token: u64,
        mut bytes: FrameBytes,
        is_whole: bool,
        card: &mut Card,
    ) {
        for place in 0..self.readers.len() {
            let Some(&index) = self.readers.get(place) else { break };
            let is_its = self
                .act(index, now, card, |component, io| component.on_data(io, token, &mut bytes, is_whole));
            if is_its == Some(true) {
                self.ready |= 1 << index;
                break;
            }
        }
        self.run_until_idle(now, card);
    }

    /// The host's port is closed.
    pub(super) fn on_close(&mut self, now: Time, card: &mut Card) {
        for index in 0..self.components.len() {
            self.act(index, now, card, |component, io| component.on_close(io));
            self.ready |= 1 << index;
        }
        self.run_until_idle(now, card);
    }

    /// The card loads another assembly.
    pub(super) fn on_firmware_reload(&mut self, now: Time, card: &mut Card) {
        for index in 0..self.components.len() {
            self.act(index, now, card, |component, io| component.on_firmware_reload(io));
        }
    }

    /// Whether the circuit contains no token.
    pub(super) fn is_idle(&self) -> bool {
        self.fifos.iter().all(|fifo| fifo.tokens.is_empty()) && self.components.iter().all(|it| it.is_idle())
    }

    /// Changes a parameter of all components that have it. Returns whether any component has it.
    pub(super) fn set(&mut self, parameter: &str, value: u64) -> bool {
        self.components.iter_mut().map(|component| component.set(parameter, value)).filter(|has| *has).count()
            > 0
    }

    /// When components continue that wait for a slot, or that had more steps than one input may cause.
    pub(super) fn work_at(&self) -> Option<Time> {
        self.place_at.into_iter().chain(self.resume_at).min()
    }

    /// The next deadline of any component.
    pub(super) fn deadline(&self) -> Option<Time> {
        let timed = self.timed.iter().filter_map(|index| self.components.get(*index)?.deadline());
        timed.chain(self.work_at()).min()
    }

    /// Runs components until the circuit is idle, for at most [`MAX_STEPS`] steps. The rest is pending work, due at the
    /// same instant.
    fn run_until_idle(&mut self, now: Time, card: &mut Card) {
        let mut steps = 0;
        while self.ready != 0 && steps < MAX_STEPS {
            let index = self.ready.trailing_zeros() as usize;
            self.ready &= self.ready - 1;
            steps += 1;
            if self.act(index, now, card, |component, io| component.step(io)) == Some(true) {
                self.ready |= 1 << index;
            }
        }
        card.effects.spend(u64::from(steps) * STEP_WORK);
        self.resume_at = (self.ready != 0).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For any order of instants: a FIFO is full if tokens that are not taken, and tokens that are taken later,
        /// fill its depth.
        #[test]
        fn tokens_occupy_their_slots_until_they_are_taken(
            depth in 1_usize..6,
            waiting in 0_usize..7,
            taken in prop::collection::vec(0_u64..20, 0..12),
            now in 0_u64..20,
        ) {
            let mut fifo = Fifo::new(depth, 0, 0);
            fifo.tokens.extend((0..waiting).map(|_| (Time::ZERO, Token::Expiry(0))));
            taken.iter().for_each(|at| fifo.take(Time::from_ps(*at)));
            let last: Vec<u64> = taken.iter().rev().take(depth).copied().collect();
            let held = waiting + last.iter().filter(|at| **at > now).count();
            prop_assert_eq!(fifo.is_full(Time::from_ps(now)), held >= depth);
        }
    }
}
