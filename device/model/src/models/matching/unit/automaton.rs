//! A timing automaton. It finds out once what the engine does between two branches, and then does it at once.
//!
//! [`At`] is the state that decides how cycles pass: the next word, a pending branch, the waiting words, the words that
//! are fed, and the cycles that may pass. From a given state, cycles are the same each time for any data, up to the
//! next word whose branch or output depends on a predicate. So a [`Node`] has their sum. It leads to another node for
//! each class of data: whether the branch is taken and the output written. Nodes are made when they are first reached.
//! Of the data, the engine's own function computes only what a later branch or output can depend on ([`liveness`]). The
//! automaton knows nothing about a program's purpose.
//!
//! If no node can be made, the engine continues word by word. At the start of each node its state is right, except for
//! registers that are not read any more.

mod formula;
mod liveness;
mod micro;
mod path;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use niclab_isa::{DELAY_SLOTS, REGISTERS};

pub use self::formula::Expected;
use self::formula::PLACES as VALUES;
use self::liveness::Liveness;
use self::micro::{Micro, of_word, perform};
pub use self::path::Path;
use self::path::Track;
use super::operation::{Operation, active};
use super::{Burst, Control, Registers};
use crate::models::matching::fifo::{Fifos, MAX_WORDS, OUTPUT_CYCLES};

/// Maximum number of nodes. Attack: a program that consists of branches, fed such that each of them comes in another
/// state, would fill this machine's memory. Cycles without a node are executed word by word. The built-in program and
/// its list manager need fewer than a hundred. Ours: a bound.
const MAX_NODES: usize = 1 << 10;
/// Maximum number of data operations in all nodes, and in one of them, each of whose words has eight slots. Ours:
/// bounds, for the same reason.
const MAX_MICROS: usize = 1 << 12;
/// Ours: a bound, see above.
const MAX_MICROS_EACH: usize = 8 * LONGEST as usize;
/// Maximum number of words of a program; a longer one is executed word by word. Attack: the registers that each word
/// reads are computed again each time that a program is loaded and used. Ours: a bound.
const MAX_PROGRAM_WORDS: usize = 1 << 10;
/// Slots of the table of nodes: a power of two, and half of them stay free.
const PLACES: usize = 2 * MAX_NODES;

/// This number of cycles or more may pass; the exact number has no influence. Ours: how a state is kept.
const PLENTY: u8 = 64;
/// Maximum number of cycles of a node. With those that an output still takes, they are fewer than [`PLENTY`]. Ours: a
/// bound.
const LONGEST: u8 = 32;
/// Maximum number of words of a feed, which is part of a node's key. Ours: a bound.
const MAX_FEED: usize = 62;

/// The state that decides how cycles pass, until data decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    pc: u16,
    /// Zero if there is no delay.
    target: u16,
    delay: u8,
    /// Words in the input FIFO, and words that will enter it.
    waiting: u8,
    feed: u8,
    /// Number of cycles that may pass, or [`PLENTY`].
    most: u8,
    /// The class of the data for the next word, if it is known: whether its branch is taken, and its output written.
    class: Option<u8>,
}

impl At {
    /// The complete state as one number.
    fn key(&self) -> u64 {
        let class = self.class.map_or(0, |class| u64::from(class) + 1);
        [
            (self.target.into(), 14),
            (self.delay.into(), 2),
            (self.waiting.into(), 7),
            (self.feed.into(), 6),
            (self.most.into(), 7),
            (class, 3),
        ]
        .into_iter()
        .fold(self.pc.into(), |key, (value, bits): (u64, u32)| key << bits | value)
    }
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the end of the burst.
    Burst,
    /// With another node, which these two predicates select.
    Class([u8; 2]),
    /// With the same node for any data.
    Goes,
    /// The unit waits for the rest of the burst, and nothing enters.
    Waits,
    /// There is no next word.
    RanOut,
}

const NOWHERE: u32 = u32::MAX;

/// Cycles that pass in the same way each time.
#[derive(Clone, Debug)]
struct Node {
    from: At,
    micros: Range<u32>,
    cycles: u8,
    sent: u8,
    takes: u8,
    issued: u8,
    end: End,
    /// The state at its end.
    after: At,
    /// The next node for each class, if it is known.
    next: [u32; 4],
}

/// A word on the path through a node.
struct Passed {
    pc: u16,
    take: u8,
    cycle: u8,
    class: u8,
}

impl Passed {
    /// Whether the word writes to the output is known, so its predicate is not needed.
    const fn settle(&self, operation: &mut Operation) {
        if operation.copy_output {
            operation.copy_predicate = 0;
            if self.class & 2 == 0 {
                operation.active &= !active::COPY;
            }
        }
    }
}

/// The executed part of a burst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub burst: Option<Burst>,
    pub cycles: u64,
    pub sent: usize,
    pub issued: u64,
}

/// The nodes of a program.
#[derive(Clone, Debug)]
pub(super) struct Automaton {
    /// The size of the input FIFO, in words, for which the nodes are valid.
    fifo_words: usize,
    liveness: Liveness,
    nodes: Vec<Node>,
    micros: Vec<Micro>,
    /// Keys and their nodes.
    places: Box<[(u64, u32)]>,
    /// The recording of a path, if there is one.
    track: Option<Track>,
    /// Registers and predicates during the execution of paths, and computed values.
    values: [u64; VALUES],
}

impl Automaton {
    /// An automaton without nodes; `None` if the program is too long.
    pub fn new(program: &[Operation], fifo_words: usize) -> Option<Self> {
        (program.len() <= MAX_PROGRAM_WORDS).then(|| Self {
            fifo_words,
            liveness: Liveness::new(program),
            nodes: Vec::new(),
            micros: Vec::new(),
            places: vec![(0, NOWHERE); PLACES].into(),
            track: None,
            values: [0; VALUES],
        })
    }

    /// The size of the input FIFO, in words, for which the nodes are valid.
    pub const fn fifo_words(&self) -> usize {
        self.fifo_words
    }

    /// Begins to record a path.
    pub fn track(&mut self) {
        self.track = Some(Track::default());
    }

    /// Ends the recording, because the following cycles are not executed by nodes.
    pub const fn lose_track(&mut self) {
        if let Some(track) = &mut self.track {
            track.lose();
        }
    }

    /// The path recorded since [`Self::track()`], if it is complete and wrote these words.
    pub fn tracked(&mut self, program: &[Operation], written: &[Expected]) -> Option<Path> {
        let track = self.track.take()?;
        self.path(program, track, written)
    }

    /// Begins the execution of paths from this state.
    #[inline]
    pub fn begin_ways(&mut self, registers: &Registers, control: &Control) {
        self.values[..REGISTERS].copy_from_slice(&registers.alu);
        self.values[REGISTERS..2 * REGISTERS].copy_from_slice(&registers.ternary);
        self.values[2 * REGISTERS] = control.predicates.into();
    }

    /// Ends the execution of paths, and writes their result to this state.
    #[inline]
    pub fn end_ways(&self, registers: &mut Registers, control: &mut Control) {
        registers.alu.copy_from_slice(&self.values[..REGISTERS]);
        registers.ternary.copy_from_slice(&self.values[REGISTERS..2 * REGISTERS]);
        control.predicates = self.values[2 * REGISTERS] as u16;
    }

    /// Executes a path. Returns those written words that may have any value. `None`, without any effect, if the data is
    /// of another class, or if these words are not right.
    #[inline(always)]
    pub fn go(
        &mut self,
        path: &Path,
        fifos: &Fifos,
        is_right: impl FnOnce([u64; 2]) -> bool,
    ) -> Option<[u64; 2]> {
        let (left, values) = (fifos.left(), &mut self.values);
        if !path.formula.evaluate(values, |take| fifos.place(left.wrapping_add(take.into()))) {
            return None;
        }
        let written = path.formula.written(values);
        if !is_right(written) {
            return None;
        }
        path.formula.leave(values);
        Some(written)
    }

    /// Executes a burst as far as there are nodes; see [`super::Unit::run`].
    pub fn run(
        &mut self,
        (program, registers, control): (&[Operation], &mut Registers, &mut Control),
        fifos: &mut Fifos,
        feed: &[u64],
        now: u64,
        most: u64,
    ) -> Part {
        let most = fifos.output_at().map_or(most, |at| most.min(at.saturating_sub(now)));
        let mut part = Part::default();
        if feed.len() > MAX_FEED || most == 0 {
            return part;
        }
        let at = At {
            pc: control.pc as u16,
            target: if control.delay == 0 { 0 } else { control.target },
            delay: control.delay,
            waiting: fifos.waiting() as u8,
            feed: feed.len() as u8,
            most: most.min(PLENTY.into()) as u8,
            class: None,
        };
        let mut number = self.find(program, at);
        while let Some(node) = self.nodes.get(number as usize) {
            if node.from.most == PLENTY && most - part.cycles < PLENTY.into() {
                break;
            }
            let left = fifos.left();
            for word in feed.get(part.sent..).unwrap_or_default().iter().take(node.sent.into()) {
                fifos.push(*word);
            }
            let micros = self.micros.get(node.micros.start as usize..node.micros.end as usize);
            let begin = now + part.cycles;
            let mut written = ([(0, 0); OUTPUT_CYCLES as usize + 1], 0);
            perform(
                micros.unwrap_or_default(),
                registers,
                &mut control.predicates,
                |take| fifos.place(left.wrapping_add(take.into())),
                |cycle, word| {
                    written.0[written.1 % written.0.len()] = (begin + u64::from(cycle), word);
                    written.1 += 1;
                },
            );
            for (cycle, word) in written.0.iter().take(written.1) {
                fifos.write(*cycle, *word);
            }
            fifos.leave(node.takes.into());
            part.cycles += u64::from(node.cycles);
            part.sent += usize::from(node.sent);
            part.issued += u64::from(node.issued);
            (control.pc, control.target, control.delay) =
                (node.after.pc.into(), node.after.target, node.after.delay);
            let class = match node.end {
                End::Class([branch, output]) => {
                    let has = |number: u8| (control.predicates >> number & 1) as u8;
                    Some(has(branch) | has(output) << 1)
                }
                End::Goes => None,
                end => {
                    if end == End::Waits {
                        part.cycles = most;
                    }
                    let ran_out = end == End::RanOut;
                    if let Some(track) = &mut self.track {
                        track.pass(number, None);
                    }
                    part.burst = Some(Burst { cycles: part.cycles, sent: part.sent, ran_out });
                    break;
                }
            };
            if let Some(track) = &mut self.track {
                track.pass(number, class);
            }
            number = self.next(program, number, class);
        }
        part
    }

    /// The node after one that ends with data of this class, or with any data.
    #[inline]
    fn next(&mut self, program: &[Operation], number: u32, class: Option<u8>) -> u32 {
        let Some(node) = self.nodes.get(number as usize) else { return NOWHERE };
        let place = usize::from(class.unwrap_or(0));
        if node.next[place] != NOWHERE {
            return node.next[place];
        }
        let next = self.find(program, At { class, ..node.after });
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.next[place] = next;
        }
        next
    }

    /// The node that begins in this state. Makes it if there is none.
    fn find(&mut self, program: &[Operation], at: At) -> u32 {
        let key = at.key();
        // Fibonacci hashing.
        let mut place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PLACES;
        loop {
            match self.places[place] {
                (_, NOWHERE) => break,
                (other, number) if other == key => return number,
                _ => place = (place + 1) % PLACES,
            }
        }
        if self.nodes.len() >= MAX_NODES || self.micros.len() + MAX_MICROS_EACH > MAX_MICROS {
            return NOWHERE;
        }
        let (node, passed) = self.pass(program, at);
        let number = self.nodes.len() as u32;
        self.nodes.push(node);
        self.places[place] = (key, number);
        self.need(program, number as usize, &passed);
        number
    }

    /// Passes cycles for as long as they depend on no data.
    fn pass(&self, program: &[Operation], from: At) -> (Node, Vec<Passed>) {
        let (mut at, mut passed, mut takes) = (from, Vec::new(), 0);
        let (mut cycles, mut sent) = (0_u8, 0_u8);
        // Counted from the node's start.
        let mut most = if from.most == PLENTY { u8::MAX } else { from.most };
        let end = loop {
            if cycles >= most {
                break End::Burst;
            }
            let operation = program.get(usize::from(at.pc));
            let needs_input = operation.is_some_and(|operation| operation.has(active::TAKE));
            let waits = needs_input && at.waiting == 0;
            let depends = operation.filter(|_| !waits).and_then(|operation| depends_on(operation, at.delay));
            let enters = usize::from(at.waiting) < self.fifo_words && at.feed > 0;
            // A node's words enter at once, before others leave. So the FIFO needs room for all of them.
            if cycles >= LONGEST || enters && usize::from(from.waiting + sent) >= MAX_WORDS {
                break End::Goes;
            }
            if let (Some(predicates), None) = (depends, at.class) {
                break End::Class(predicates);
            }
            if enters {
                (at.waiting, at.feed, sent) = (at.waiting + 1, at.feed - 1, sent + 1);
            }
            match operation {
                None => break End::RanOut,
                Some(_) if waits && from.feed == 0 && most == u8::MAX => break End::Waits,
                Some(_) if waits && from.feed == 0 => cycles = most,
                Some(_) if waits => cycles += 1,
                Some(operation) => {
                    // A word without a dependency counts as dependent on predicate 0, which is 1.
                    let class = at.class.take().unwrap_or(3);
                    passed.push(Passed { pc: at.pc, take: takes, cycle: cycles, class });
                    if needs_input {
                        (takes, at.waiting) = (takes + 1, at.waiting - 1);
                    }
                    if operation.has(active::COPY) && operation.copy_output && class & 2 != 0 {
                        most = most.min(cycles + OUTPUT_CYCLES as u8);
                    }
                    at.advance(operation, class & 1 != 0);
                    cycles += 1;
                }
            }
            if at.feed == 0 && from.feed > 0 {
                break End::Burst;
            }
        };
        at.most = if most == u8::MAX { PLENTY } else { most - cycles };
        let node = Node {
            from,
            micros: 0..0,
            cycles,
            sent,
            takes,
            issued: passed.len() as u8,
            end,
            after: at,
            next: [NOWHERE; 4],
        };
        (node, passed)
    }

    /// Keeps the operations of the passed words that are needed after them.
    fn need(&mut self, program: &[Operation], number: usize, passed: &[Passed]) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let At { pc, delay, target, .. } = node.after;
        let mut needed = self.liveness.from(program, pc.into(), delay, target);
        let mut words = Vec::new();
        for word in passed.iter().rev() {
            let Some(mut operation) = program.get(usize::from(word.pc)).copied() else { continue };
            word.settle(&mut operation);
            let (before, slots) = liveness::before(&operation, needed);
            operation.active = slots;
            words.push(of_word(&operation, needed, word.take, word.cycle));
            needed = before;
        }
        let first = self.micros.len() as u32;
        self.micros.extend(words.into_iter().rev().flatten());
        node.micros = first..self.micros.len() as u32;
    }

    /// The registers and predicates that are read from here on.
    #[cfg(any(test, debug_assertions))]
    pub fn kept(&self, program: &[Operation], registers: &Registers, control: &Control) -> Vec<u64> {
        let set = self.liveness.from(program, control.pc, control.delay, control.target);
        liveness::kept(set, registers, control.predicates)
    }
}

impl At {
    /// Advances to the next word, as [`Control::advance`].
    fn advance(&mut self, operation: &Operation, has_predicate: bool) {
        self.pc += 1;
        if self.delay != 0 {
            self.delay -= 1;
            if self.delay == 0 {
                (self.pc, self.target) = (self.target, 0);
            }
        } else if operation.has(active::BRANCH) && has_predicate == operation.branch_sense {
            (self.target, self.delay) = (operation.branch_target, DELAY_SLOTS as u8);
        }
    }
}

/// The predicates on which a word's branch and output depend; predicate 0 if they depend on none.
fn depends_on(operation: &Operation, delay: u8) -> Option<[u8; 2]> {
    let branches = delay == 0 && operation.has(active::BRANCH);
    let writes = operation.has(active::COPY) && operation.copy_output;
    let branch = if branches { operation.branch_predicate } else { 0 };
    let output = if writes { operation.copy_predicate } else { 0 };
    (branch | output != 0).then_some([branch, output])
}
