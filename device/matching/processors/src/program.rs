//! The programs: the paper's `match()` (figure 1) and its benchmark (figure 5), as a compiler of that time would
//! compile them for 32-bit PowerPC.
//!
//! They are written by hand in the style of an optimising gcc 3.3 (the paper names 3.3.3 and no level of optimisation):
//!
//! * Blocks are in the order of the source; failing tests branch forward to the end of the loop. There are no branch
//!   hints.
//! * 64-bit values are in pairs of registers.
//! * Across the loop, registers keep no value that a store through a pointer of the same type might change. So the
//!   program
//!   reads the header again for every item.
//! * `md_valid()` and similar functions test bits of one half word that stays in a register.
//! * A block is copied as gcc does it: four words are loaded into four registers, then stored.
//!
//! Constants: ours, which register holds what.

use thiserror::Error;

use crate::instruction::Condition::{self, Equal, Greater, NotEqual};
use crate::instruction::Instruction::{self, *};
use crate::instruction::{Operands, Register, Target, r};
use crate::layout::{self, ItemFields, Placement, flag, header};

/// A program with a missing label: a mistake in this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a branch uses label {0}, which is not bound; bind it in the program")]
pub struct UnboundLabel(usize);

/// Instructions; execution begins at the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Instructions with their operands.
    instructions: Vec<(Instruction, Operands)>,
}

impl Program {
    /// A program of instructions whose targets are their numbers.
    pub fn new(instructions: Vec<Instruction>) -> Self {
        let with_operands = |instruction: Instruction| (instruction, instruction.operands());
        Self { instructions: instructions.into_iter().map(with_operands).collect() }
    }

    /// The instruction with this number, and its operands.
    pub fn get(&self, at: Target) -> Option<&(Instruction, Operands)> {
        self.instructions.get(at)
    }
}

/// The number of a label. Branches have it as their target until the program is finished.
#[derive(Clone, Copy)]
struct Label(usize);

struct Builder {
    item: &'static ItemFields,
    instructions: Vec<Instruction>,
    labels: Vec<Option<Target>>,
}

impl Builder {
    fn new(placement: Placement) -> Self {
        Self { item: placement.item(), instructions: Vec::new(), labels: Vec::new() }
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    fn emit(&mut self, instructions: &[Instruction]) {
        self.instructions.extend_from_slice(instructions);
    }

    fn branch_if(&mut self, condition: Condition, label: Label) {
        self.emit(&[BranchIf(condition, label.0)]);
    }

    fn branch(&mut self, label: Label) {
        self.emit(&[Branch(label.0)]);
    }

    /// Replaces labels by instruction numbers.
    fn finish(mut self) -> Result<Program, UnboundLabel> {
        for instruction in &mut self.instructions {
            if let BranchIf(_, target) | Branch(target) | Call(target) | Spawn(target) = instruction {
                *target = self.labels.get(*target).copied().flatten().ok_or(UnboundLabel(*target))?;
            }
        }
        Ok(Program::new(self.instructions))
    }
}

// Arguments of match(), in the registers of PowerPC's calling convention.
const CURRENT: Register = r(3);
const HEADER: Register = r(4);
const SOURCE_NID: Register = r(5);
const OFFSET: Register = r(6);
const LENGTH: Register = r(7);
// Kept by the benchmark across calls.
const BUFFER: Register = r(27);
const LIST: Register = r(28);
const RESULT: Register = r(29);
const QUEUE: Register = r(30);
const COUNT: Register = r(31);
// Scratch. Pairs are high word, low word.
const FLAGS: Register = r(8);
const MD_LENGTH: (Register, Register) = (r(9), r(10));
const REMAIN: (Register, Register) = (r(11), r(12));
const SCRATCH: Register = r(0);

/// Figure 5's inner loop for one processor: gets a header and matches it, 64 times.
///
/// # Errors A mistake in this module.
pub fn embedded(placement: Placement) -> Result<Program, UnboundLabel> {
    let mut builder = Builder::new(placement);
    let (next_header, search) = (builder.label(), builder.label());
    benchmark(&mut builder, placement, next_header, |builder| {
        builder.emit(&[Call(search.0), StoreWord(r(3), 12, RESULT)]);
    });
    builder.emit(&[Halt]);
    get_next_header(&mut builder, next_header, placement);
    match_function(&mut builder, search, None);
    builder.finish()
}

/// Figure 5's inner loop for the multithreaded processor: a new thread for each header, and locks on the items.
///
/// # Errors
/// A mistake in this module.
pub fn multithreaded(placement: Placement, locks: Locks) -> Result<Program, UnboundLabel> {
    let mut builder = Builder::new(placement);
    let (next_header, search, thread) = (builder.label(), builder.label(), builder.label());
    benchmark(&mut builder, placement, next_header, |builder| {
        if locks != Locks::Beside {
            // Each thread is spawned with the first item's lock. So threads reach this item in the order of their
            // headers.
            locks.take(builder, CURRENT);
        }
        builder.emit(&[Spawn(thread.0)]);
    });
    builder.emit(&[Join, Halt]);
    builder.bind(thread);
    builder.emit(&[Call(search.0), StoreWord(r(3), 12, RESULT), Halt]);
    get_next_header(&mut builder, next_header, placement);
    match_function(&mut builder, search, Some(locks));
    builder.finish()
}

/// The loop around `invoke`. The registers then have the arguments of `match()`.
fn benchmark(
    builder: &mut Builder,
    placement: Placement,
    next_header: Label,
    invoke: impl FnOnce(&mut Builder),
) {
    let kept = [
        (LIST, layout::LIST),
        (RESULT, layout::RESULTS),
        (QUEUE, layout::QUEUE),
        (BUFFER, layout::HEADER_RING),
    ];
    let needed = match placement {
        Placement::Packed => &kept[..3],
        Placement::InMemory => &kept[..],
    };
    for (register, address) in needed {
        let (upper, lower) = ((address >> 16) as u16, (address & 0xffff) as u16);
        builder.emit(&[LoadUpper(*register, upper), OrImmediate(*register, *register, lower)]);
    }
    builder.emit(&[LoadImmediate(COUNT, layout::HEADERS as i16)]);
    let again = builder.label();
    builder.bind(again);
    builder.emit(&[
        Call(next_header.0),
        Move(HEADER, r(3)),
        Move(CURRENT, LIST),
        LoadImmediate(SOURCE_NID, 0),
        Move(OFFSET, RESULT),
        AddImmediate(LENGTH, RESULT, 8),
    ]);
    invoke(builder);
    builder.emit(&[
        AddImmediate(RESULT, RESULT, layout::RESULT_BYTES as i16),
        AddImmediate(COUNT, COUNT, -1),
        CompareImmediate(COUNT, 0),
    ]);
    builder.branch_if(NotEqual, again);
}

/// `getNextHeader()`, which the paper calls but does not show: waits until the queue holds a header, and returns its
/// address. `match()` is the first to read a header in memory. A header in a FIFO is copied to memory, after the
/// previous header, since 64 headers may be in progress.
fn get_next_header(builder: &mut Builder, entry: Label, placement: Placement) {
    builder.bind(entry);
    if placement == Placement::InMemory {
        builder.emit(&[FifoStatus(r(9), QUEUE), CompareImmediate(r(9), 0)]);
        builder.branch_if(Equal, entry);
        builder.emit(&[Move(r(3), BUFFER)]);
        for four in (0..layout::HEADER_BYTES as i16).step_by(16) {
            let words = [(r(9), four), (r(10), four + 4), (r(11), four + 8), (r(12), four + 12)];
            builder.emit(&words.map(|(register, _)| FifoTake(register, QUEUE)));
            builder.emit(&words.map(|(register, offset)| StoreWord(register, offset, r(3))));
        }
        builder.emit(&[AddImmediate(BUFFER, BUFFER, layout::HEADER_BYTES as i16), Return]);
        return;
    }
    builder.emit(&[LoadWord(r(3), 0, QUEUE), LoadWord(r(9), 4, QUEUE), CompareLogical(r(3), r(9))]);
    builder.branch_if(Equal, entry);
    builder.emit(&[AddImmediate(r(9), r(3), layout::HEADER_BYTES as i16), StoreWord(r(9), 0, QUEUE), Return]);
}

/// The locks that the paper added to `match()` for the multithreaded processor. A thread holds the lock of its current
/// item, and releases it once it has the next item's lock. So no thread passes another, and no two threads read the
/// same item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    /// Hardware locks apart from memory, one for each item, taken by an instruction of one cycle. Threads get the first
    /// item's lock in the order of spawning.
    Beside,
    /// A word of the item with a full/empty bit. A waiting thread sleeps.
    FullEmpty,
    /// A word of the item, taken by load-reserve and store-conditional. A waiting thread loads it repeatedly.
    Reserved,
}

impl Locks {
    /// Takes the lock of the item at a register's address. Registers 10 to 12 may be changed.
    fn take(self, builder: &mut Builder, at: Register) {
        let lock = builder.item.lock;
        match self {
            Self::Beside => builder.emit(&[Lock(at)]),
            Self::FullEmpty => builder.emit(&[TakeFull(lock, at)]),
            Self::Reserved => {
                let again = builder.label();
                builder.emit(&[AddImmediate(r(10), at, lock), LoadImmediate(r(12), 0)]);
                builder.bind(again);
                builder.emit(&[LoadReserved(r(11), r(10)), CompareImmediate(r(11), 0)]);
                builder.branch_if(Equal, again);
                builder.emit(&[StoreConditional(r(12), r(10))]);
                builder.branch_if(NotEqual, again);
            }
        }
    }

    /// Releases the current item's lock. Registers 10 to 12 may be changed.
    fn give_back(self, builder: &mut Builder) {
        let lock = builder.item.lock;
        match self {
            Self::Beside => builder.emit(&[Unlock(CURRENT)]),
            Self::FullEmpty => builder.emit(&[LeaveFull(lock, CURRENT)]),
            Self::Reserved => builder.emit(&[LoadImmediate(r(12), 1), StoreRelease(r(12), lock, CURRENT)]),
        }
    }
}

fn match_function(builder: &mut Builder, entry: Label, locks: Option<Locks>) {
    let (top, next, none) = (builder.label(), builder.label(), builder.label());
    builder.bind(entry);
    builder.emit(&[CompareImmediate(CURRENT, 0)]);
    builder.branch_if(Equal, none);
    if locks == Some(Locks::Beside) {
        builder.emit(&[Enter(CURRENT)]);
    }
    builder.bind(top);
    match_bits(builder, next);
    match_ids(builder, next);
    match_state(builder, next);
    match_operation(builder, next);
    effective_offset(builder);
    remaining_space(builder, next);
    receive_length(builder, next, locks);

    builder.bind(next);
    match locks {
        None => {
            builder.emit(&[LoadWord(CURRENT, builder.item.next, CURRENT), CompareImmediate(CURRENT, 0)]);
            builder.branch_if(NotEqual, top);
        }
        Some(locks) => {
            let last = builder.label();
            builder.emit(&[LoadWord(r(9), builder.item.next, CURRENT), CompareImmediate(r(9), 0)]);
            builder.branch_if(Equal, last);
            locks.take(builder, r(9));
            locks.give_back(builder);
            builder.emit(&[Move(CURRENT, r(9))]);
            builder.branch(top);
            builder.bind(last);
            locks.give_back(builder);
        }
    }
    builder.bind(none);
    builder.emit(&[LoadImmediate(r(3), 0), Return]);
}

/// Lines 10 and 11.
fn match_bits(builder: &mut Builder, next: Label) {
    builder.emit(&[
        LoadWord(r(9), builder.item.match_bits, CURRENT),
        LoadWord(r(10), builder.item.match_bits + 4, CURRENT),
        LoadWord(r(11), header::MATCH_BITS, HEADER),
        LoadWord(r(12), header::MATCH_BITS + 4, HEADER),
        Xor(r(9), r(9), r(11)),
        Xor(r(10), r(10), r(12)),
        LoadWord(r(11), builder.item.dont_ignore, CURRENT),
        LoadWord(r(12), builder.item.dont_ignore + 4, CURRENT),
        And(r(9), r(9), r(11)),
        And(r(10), r(10), r(12)),
        OrRecord(r(9), r(9), r(10)),
    ]);
    builder.branch_if(NotEqual, next);
}

/// Lines 13 to 15.
fn match_ids(builder: &mut Builder, next: Label) {
    let (pid, done) = (builder.label(), builder.label());
    builder.emit(&[LoadWord(r(9), builder.item.nid, CURRENT), CompareImmediate(r(9), -1)]);
    builder.branch_if(Equal, pid);
    builder.emit(&[CompareLogical(r(9), SOURCE_NID)]);
    builder.branch_if(NotEqual, next);
    builder.bind(pid);
    builder
        .emit(&[LoadHalf(r(9), builder.item.pid, CURRENT), CompareLogicalImmediate(r(9), layout::ANY_PID)]);
    builder.branch_if(Equal, done);
    builder.emit(&[LoadHalf(SCRATCH, header::PID, HEADER), CompareLogical(r(9), SCRATCH)]);
    builder.branch_if(NotEqual, next);
    builder.bind(done);
}

/// Lines 17 and 18.
fn match_state(builder: &mut Builder, next: Label) {
    builder.emit(&[
        LoadHalf(FLAGS, builder.item.flags, CURRENT),
        AndImmediateRecord(SCRATCH, FLAGS, flag::VALID),
    ]);
    builder.branch_if(Equal, next);
    builder.emit(&[LoadWord(SCRATCH, builder.item.threshold, CURRENT), CompareImmediate(SCRATCH, 0)]);
    builder.branch_if(Equal, next);
}

/// Lines 20 to 22.
fn match_operation(builder: &mut Builder, next: Label) {
    let (get, done) = (builder.label(), builder.label());
    builder
        .emit(&[LoadHalf(SCRATCH, header::OPERATION, HEADER), CompareLogicalImmediate(SCRATCH, layout::PUT)]);
    builder.branch_if(NotEqual, get);
    builder.emit(&[AndImmediateRecord(SCRATCH, FLAGS, flag::PUTS)]);
    builder.branch_if(Equal, next);
    builder.branch(done);
    builder.bind(get);
    builder.emit(&[CompareLogicalImmediate(SCRATCH, layout::GET)]);
    builder.branch_if(NotEqual, done);
    builder.emit(&[AndImmediateRecord(SCRATCH, FLAGS, flag::GETS)]);
    builder.branch_if(Equal, next);
    builder.bind(done);
}

/// Branches to a label by an unsigned comparison of 64-bit pairs, and falls through otherwise.
///
/// With `or_equal`, equal values branch as well.
fn branch_if_greater(
    builder: &mut Builder,
    (a, b): ((Register, Register), (Register, Register)),
    or_equal: bool,
    to: Label,
) {
    let done = builder.label();
    builder.emit(&[CompareLogical(a.0, b.0)]);
    builder.branch_if(Greater, to);
    builder.branch_if(NotEqual, done);
    builder.emit(&[CompareLogical(a.1, b.1)]);
    builder.branch_if(Greater, to);
    if or_equal {
        builder.branch_if(Equal, to);
    }
    builder.bind(done);
}

/// Lines 24 to 33; the offset stays in the pair `REMAIN`.
fn effective_offset(builder: &mut Builder) {
    let (clamp, implicit, done) = (builder.label(), builder.label(), builder.label());
    let store = [StoreWord(REMAIN.0, 0, OFFSET), StoreWord(REMAIN.1, 4, OFFSET)];
    builder.emit(&[
        LoadWord(MD_LENGTH.0, builder.item.length, CURRENT),
        LoadWord(MD_LENGTH.1, builder.item.length + 4, CURRENT),
        AndImmediateRecord(SCRATCH, FLAGS, flag::REMOTE_OFFSET),
    ]);
    builder.branch_if(Equal, implicit);
    builder.emit(&[
        LoadWord(REMAIN.0, header::REMOTE_OFFSET, HEADER),
        LoadWord(REMAIN.1, header::REMOTE_OFFSET + 4, HEADER),
    ]);
    builder.emit(&store);
    branch_if_greater(builder, (REMAIN, MD_LENGTH), true, clamp);
    builder.branch(done);
    builder.bind(clamp);
    builder.emit(&[Move(REMAIN.0, MD_LENGTH.0), Move(REMAIN.1, MD_LENGTH.1)]);
    builder.emit(&store);
    builder.branch(done);
    builder.bind(implicit);
    builder.emit(&[
        LoadWord(REMAIN.0, builder.item.local_offset, CURRENT),
        LoadWord(REMAIN.1, builder.item.local_offset + 4, CURRENT),
    ]);
    builder.emit(&store);
    builder.bind(done);
}

/// Lines 35 to 42.
fn remaining_space(builder: &mut Builder, next: Label) {
    let done = builder.label();
    builder.emit(&[
        SubtractFromCarrying(REMAIN.1, REMAIN.1, MD_LENGTH.1),
        SubtractFromExtended(REMAIN.0, REMAIN.0, MD_LENGTH.0),
        AndImmediateRecord(SCRATCH, FLAGS, flag::MAX_SIZE),
    ]);
    builder.branch_if(Equal, done);
    builder.emit(&[AndImmediateRecord(SCRATCH, FLAGS, flag::TRUNCATE)]);
    builder.branch_if(NotEqual, done);
    builder.emit(&[
        LoadWord(r(9), builder.item.max_size, CURRENT),
        LoadWord(r(10), builder.item.max_size + 4, CURRENT),
    ]);
    branch_if_greater(builder, ((r(9), r(10)), REMAIN), false, next);
    builder.bind(done);
}

/// Lines 44 to 50: the successful end of the match function.
fn receive_length(builder: &mut Builder, next: Label, locks: Option<Locks>) {
    let long = builder.label();
    builder.emit(&[LoadWord(r(9), header::LENGTH, HEADER), LoadWord(r(10), header::LENGTH + 4, HEADER)]);
    branch_if_greater(builder, ((r(9), r(10)), REMAIN), false, long);
    builder.emit(&[StoreWord(r(10), 0, LENGTH)]);
    if let Some(locks) = locks {
        locks.give_back(builder);
    }
    builder.emit(&[Return]);
    builder.bind(long);
    builder.emit(&[AndImmediateRecord(SCRATCH, FLAGS, flag::TRUNCATE)]);
    builder.branch_if(Equal, next);
    builder.emit(&[StoreWord(REMAIN.1, 0, LENGTH)]);
    if let Some(locks) = locks {
        locks.give_back(builder);
    }
    builder.emit(&[Return]);
}
