//! The engine stage by stage, for tests, written only from section 4 of the paper and `docs/use/match/MACHINE.md`.
//!
//! A word reads its operands in its first cycle, operates in the second, and writes in the third (section 4.1). Ports
//! and paths are as the paper describes them, and nothing hides their errors:
//!
//! * **Input FIFO unit**: it writes in the word's first cycle, through ports that are read before they are written
//!   (section 4.2.1). So a word does not see the input that it takes, but the next word does.
//! * **All other writes** are in the third cycle, through ports that are written before they are read. The word issued
//!   two cycles later reads them out of the register file. The word issued one cycle later has read too early, and gets
//!   them by forwarding (section 4.1, the dashed lines of Figure 3) when it operates.
//! * **Predicates** are read in the second cycle, and written before they are read (section 4.2.4).
//! * **A branch** reads its predicate in its second cycle and is resolved in its third. So it has two delay slots,
//!   whose own branches are invalid if it is taken (section 4.2.5).
//! * **An empty FIFO** invalidates the word that needs input and holds the program counter. Issued words continue. A
//!   branch waits, so that both its delay slots are issued (section 4.2.5).
//!
//! If the text has two readings, its "strict ordering semantics" decide (section 4.1: the operations of a word are
//! independent, and "their results are available for use by the next instruction"):
//!
//! * A word takes input into a register that the previous word is about to write. The older result would reach the
//!   register file one cycle after the newer input, and is not written. Nevertheless the taking word itself reads the
//!   older result.
//! * A branch that waits has read its predicate before. It does not see its own word's comparisons, however long it
//!   waits.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use niclab_isa::word::ByteSource;
use niclab_isa::{Alu, AluOp, Combine, Half, Ternary, Word};

/// Faults that tests seed, to check that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An older result is written over newer input.
    OldOverNew,
    /// The ALU's result is not forwarded to the ALU.
    NoForwarding,
    /// A copied word is not forwarded to the ternary unit.
    NoTernaryForwarding,
    /// Ports of the input FIFO are written before they are read.
    InputFirst,
    /// The other ports are read before they are written.
    ReadFirst,
    /// Predicates are read before they are written.
    PredicatesReadFirst,
    /// A branch reads its predicate when it is resolved.
    LateBranch,
    /// A branch does not wait for input.
    HastyBranch,
    /// Branches in delay slots take effect.
    SlotBranches,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::OldOverNew,
        Self::NoForwarding,
        Self::NoTernaryForwarding,
        Self::InputFirst,
        Self::ReadFirst,
        Self::PredicatesReadFirst,
        Self::LateBranch,
        Self::HastyBranch,
        Self::SlotBranches,
    ];
}

/// The operands that a word has read in its first cycle, for its second.
#[derive(Clone, Copy, Debug)]
struct Reading {
    word: Word,
    /// The ALU's `a` and `b`, and the word to copy.
    alu: [u64; 3],
    /// `match0`, `match1` and mask.
    ternary: [u64; 3],
    /// A previous branch has invalidated its branch.
    is_killed: bool,
}

/// The results of a word's second cycle, for its third.
#[derive(Clone, Copy, Debug, Default)]
struct Writing {
    /// Register and value.
    alu: Option<(usize, u64)>,
    ternary: Option<(usize, u64)>,
    output: Option<u64>,
    /// Results of comparisons: the predicate, how the result is combined with it, and the result.
    compared: [(usize, Option<(Combine, bool)>); 8],
    /// What the predicate unit has read: row of the truth table, table, destination.
    functions: [(usize, u32, usize); 2],
    /// The register file does not get these results, because a newer word has taken input into their registers.
    drops_alu: bool,
    drops_ternary: bool,
}

/// A pending branch.
#[derive(Clone, Copy, Debug)]
struct Pending {
    target: usize,
    /// Delay slots that were not issued yet.
    slots: usize,
    /// Only with [`Fault::LateBranch`]: predicate and sense, which are read at the end.
    late: Option<(usize, bool)>,
}

/// The result of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// A word was issued; true if it took input.
    Issued(bool),
    /// The word waits for input.
    Waited,
    /// There is no next word.
    RanOut,
}

/// The engine.
#[derive(Clone, Debug)]
pub struct Staged {
    program: Vec<Word>,
    fault: Option<Fault>,
    pub pc: usize,
    pub alu: [u64; 16],
    pub ternary: [u64; 16],
    pub predicates: [bool; 16],
    reading: Option<Reading>,
    writing: Option<Writing>,
    pending: Option<Pending>,
    /// Words in the order in which they were written, each with its cycle.
    pub output: VecDeque<(u64, u64)>,
    cycle: u64,
}

impl Staged {
    pub fn new(program: &[Word], fault: Option<Fault>) -> Self {
        let mut predicates = [false; 16];
        predicates[0] = true;
        let mut ternary = [0; 16];
        ternary[0] = u64::MAX;
        Self {
            program: program.to_vec(),
            fault,
            pc: 0,
            alu: [0; 16],
            ternary,
            predicates,
            reading: None,
            writing: None,
            pending: None,
            output: VecDeque::new(),
            cycle: 0,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Executes one cycle. `front` is the first word of the input FIFO.
    pub fn cycle(&mut self, front: Option<u64>) -> Cycle {
        let Some(word) = self.program.get(self.pc).copied() else { return Cycle::RanOut };
        let is_issued = !word.input.take || front.is_some();
        let (before, written) = (self.clone(), self.writing.take());
        if let Some(writing) = &written {
            self.write(writing);
        }
        let read = self.reading.take();
        let results = read.map(|reading| {
            let predicates =
                if self.has(Fault::PredicatesReadFirst) { before.predicates } else { self.predicates };
            self.operate(&reading, written.as_ref(), &predicates)
        });
        self.writing = results;
        if is_issued {
            let files = if self.has(Fault::ReadFirst) { &before } else { &*self };
            let (alu, ternary) = (files.alu, files.ternary);
            self.issue(word, front, alu, ternary);
        }
        self.go_on(is_issued);
        self.cycle += 1;
        if is_issued { Cycle::Issued(word.input.take) } else { Cycle::Waited }
    }

    /// Completes the words in the pipeline, and issues none.
    pub fn drained(&self) -> Self {
        let mut drained = self.clone();
        for _ in 0..2 {
            let written = drained.writing.take();
            if let Some(writing) = &written {
                drained.write(writing);
            }
            let predicates = drained.predicates;
            let read = drained.reading.take();
            drained.writing = read.map(|reading| drained.operate(&reading, written.as_ref(), &predicates));
        }
        let last = drained.writing.take();
        last.iter().for_each(|writing| drained.write(writing));
        drained
    }

    /// The third cycle of a word.
    fn write(&mut self, writing: &Writing) {
        let keeps_old = self.has(Fault::OldOverNew);
        if let Some((register, value)) = writing.alu.filter(|_| keeps_old || !writing.drops_alu) {
            self.alu[register] = value;
        }
        if let Some((register, value)) = writing.ternary.filter(|_| keeps_old || !writing.drops_ternary) {
            self.ternary[register] = value;
        }
        if let Some(word) = writing.output {
            self.output.push_back((self.cycle, word));
        }
        for (predicate, result) in writing.compared {
            let Some((combine, result)) = result else { continue };
            let old = self.predicates[predicate];
            self.predicates[predicate] = match combine {
                Combine::Overwrite => result,
                Combine::And => old && result,
                Combine::Or => old || result,
            };
        }
        for (place, table, dest) in writing.functions {
            if dest != 0 {
                self.predicates[dest] = table >> place & 1 == 1;
            }
        }
    }

    /// The second cycle of a word. `ahead` is the word issued one cycle earlier, if there was one. What it writes now
    /// was not read.
    fn operate(&mut self, reading: &Reading, ahead: Option<&Writing>, predicates: &[bool; 16]) -> Writing {
        let word = &reading.word;
        let forwarded = |old: u64, from: Option<(usize, u64)>, register: usize| match from {
            Some((written, value)) if written == register => value,
            _ => old,
        };
        let alu_result = ahead.and_then(|ahead| ahead.alu).filter(|_| !self.has(Fault::NoForwarding));
        let copied = ahead.and_then(|ahead| ahead.ternary).filter(|_| !self.has(Fault::NoTernaryForwarding));
        let alu_registers = [word.alu.a, word.alu.b, word.copy.source].map(index);
        let ternary_registers = [word.ternary.match0, word.ternary.match1, word.ternary.mask].map(index);
        let [a, b, source] =
            core::array::from_fn(|place| forwarded(reading.alu[place], alu_result, alu_registers[place]));
        let [match0, match1, mask] =
            core::array::from_fn(|place| forwarded(reading.ternary[place], copied, ternary_registers[place]));
        let mut writing = Writing::default();
        let b = with_immediate(&word.alu, b);
        if word.alu.op.is_compare() {
            let lanes = compare(&word.alu, a, b);
            for (lane, result) in lanes.into_iter().enumerate() {
                let is_written = word.alu.lanes.get() >> lane & 1 == 1;
                writing.compared[lane] = (8 + lane, is_written.then_some((word.alu.combine, result)));
            }
        } else if index(word.alu.dest) != 0 && predicates[index(word.alu.predicate)] {
            writing.alu = Some((index(word.alu.dest), arithmetic(&word.alu, a, b)));
        }
        let lanes = matches(&word.ternary, match0, match1, mask);
        for (lane, result) in lanes.into_iter().enumerate() {
            let is_written = word.ternary.lanes.get() >> lane & 1 == 1;
            writing.compared[4 + lane] = (12 + lane, is_written.then_some((word.ternary.combine, result)));
        }
        if predicates[index(word.copy.predicate)] {
            let ternary = index(word.copy.ternary);
            writing.ternary = (ternary != 0).then_some((ternary, source));
            writing.output = word.copy.output.then_some(source);
        }
        let unit = &word.predicate;
        let place = |a: usize, b: usize| 2 * usize::from(predicates[a]) + usize::from(predicates[b]);
        writing.functions = [
            (place(index(unit.a0), index(unit.b0)), unit.function0.get(), index(unit.dest0)),
            (place(index(unit.a1), index(unit.b1)), unit.function1.get(), index(unit.dest1)),
        ];
        let (predicate, sense) = (index(word.branch.predicate), word.branch.sense);
        let is_late = self.has(Fault::LateBranch);
        if !reading.is_killed && (is_late || predicates[predicate] == sense) && self.pending.is_none() {
            let target = word.branch.target.get() as usize;
            let late = is_late.then_some((predicate, sense));
            self.pending = Some(Pending { target, slots: 2, late });
        }
        writing
    }

    /// The first cycle of a word, with the register files that it reads.
    fn issue(&mut self, word: Word, front: Option<u64>, mut alu: [u64; 16], mut ternary: [u64; 16]) {
        let taken = front.filter(|_| word.input.take);
        let (to_alu, to_ternary) = (index(word.input.alu), index(word.input.ternary));
        if let Some(input) = taken {
            let lanes = permuted(input, word.input.permute.get());
            for (file, register, value) in
                [(&mut self.alu, to_alu, input), (&mut self.ternary, to_ternary, lanes)]
            {
                if register != 0 {
                    file[register] = value;
                }
            }
            // The previous word operates now, so it would write its result after the newer input.
            if let Some(older) = &mut self.writing {
                older.drops_alu |= older.alu.is_some_and(|(register, _)| register == to_alu);
                older.drops_ternary |= older.ternary.is_some_and(|(register, _)| register == to_ternary);
            }
        }
        if self.has(Fault::InputFirst) {
            (alu, ternary) = (self.alu, self.ternary);
        }
        let is_killed = self.pending.is_some() && !self.has(Fault::SlotBranches);
        self.reading = Some(Reading {
            word,
            alu: [word.alu.a, word.alu.b, word.copy.source].map(|register| alu[index(register)]),
            ternary: [word.ternary.match0, word.ternary.match1, word.ternary.mask]
                .map(|register| ternary[index(register)]),
            is_killed,
        });
    }

    /// Advances the program counter, or sets it to the target of a branch whose delay slots were issued.
    fn go_on(&mut self, is_issued: bool) {
        if !is_issued && !self.has(Fault::HastyBranch) {
            return;
        }
        self.pc += usize::from(is_issued);
        if let Some(pending) = &mut self.pending {
            pending.slots -= 1;
            if pending.slots == 0 {
                let is_taken = pending.late.is_none_or(|(place, sense)| self.predicates[place] == sense);
                if is_taken {
                    self.pc = pending.target;
                }
                self.pending = None;
            }
        }
    }
}

fn index<const N: u32>(register: niclab_isa::Bits<N>) -> usize {
    register.get() as usize
}

fn with_immediate(alu: &Alu, b: u64) -> u64 {
    let immediate = u64::from(alu.immediate.get());
    match alu.half {
        Half::None => b,
        Half::Lower => b >> 32 << 32 | immediate,
        Half::Upper => b << 32 >> 32 | immediate << 32,
    }
}

/// Lowest bit and width of the group of each lane.
fn groups(join: u32) -> [(u32, u32); 4] {
    core::array::from_fn(|lane| {
        let lane = lane as u32;
        let first = (0..=lane).rev().take_while(|&at| at == lane || join >> at & 1 == 1).last().unwrap();
        let last = (lane..4).take_while(|&at| at == lane || join >> (at - 1) & 1 == 1).last().unwrap();
        (16 * first, 16 * (last - first + 1))
    })
}

fn part(value: u64, (shift, width): (u32, u32)) -> u64 {
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    value >> shift & mask
}

fn arithmetic(alu: &Alu, a: u64, b: u64) -> u64 {
    match alu.op {
        AluOp::And => a & b,
        AluOp::Or => a | b,
        AluOp::Xor => a ^ b,
        AluOp::Nor => !(a | b),
        AluOp::Permute => {
            let bytes = alu.byte_sources().map(|source| match source {
                ByteSource::Zero => 0,
                ByteSource::A(byte) => a.to_le_bytes()[usize::from(byte)],
                ByteSource::B(byte) => b.to_le_bytes()[usize::from(byte)],
            });
            u64::from_le_bytes(bytes)
        }
        _ => groups(alu.join.get()).into_iter().fold(0, |sum, group| {
            let (x, y) = (part(a, group), part(b, group));
            let of_group = if alu.op == AluOp::Add { x.wrapping_add(y) } else { x.wrapping_sub(y) };
            sum | part(of_group, (0, group.1)) << group.0
        }),
    }
}

fn compare(alu: &Alu, a: u64, b: u64) -> [bool; 4] {
    groups(alu.join.get()).map(|group| {
        let order = part(a, group).cmp(&part(b, group));
        match alu.op {
            AluOp::Equal => order.is_eq(),
            AluOp::NotEqual => order.is_ne(),
            AluOp::Less => order.is_lt(),
            AluOp::LessOrEqual => order.is_le(),
            AluOp::Greater => order.is_gt(),
            _ => order.is_ge(),
        }
    })
}

fn matches(ternary: &Ternary, match0: u64, match1: u64, mask: u64) -> [bool; 4] {
    let compared = if ternary.ignore { !mask } else { mask };
    groups(ternary.join.get()).map(|group| part((match0 ^ match1) & compared, group) == 0)
}

/// Each lane of the result is the lane of the input that two bits select.
fn permuted(input: u64, lanes: u32) -> u64 {
    (0..4).fold(0, |value, lane| {
        let from = lanes >> (2 * lane) & 3;
        value | (input >> (16 * from) & 0xffff) << (16 * lane)
    })
}
