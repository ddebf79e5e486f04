//! The instructions of the simulated processors: the part of 32-bit PowerPC that the match function needs, reads of a
//! FIFO, and instructions of the multithreaded processor for threads and locks.
//!
//! The model keeps only the parts of the architecture on which timing depends: registers, one condition field, carry
//! and link register. Mnemonics are PowerPC's, so that a listing can be compared with a compiler's.
//!
//! Constants: ours, names of registers.

/// A general register, r0 to r31.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register(u8);

/// The register r`number`.
///
/// # Panics If `number` is not below 32, which is a mistake in a program of this crate.
pub const fn r(number: u8) -> Register {
    assert!(number < 32, "PowerPC has 32 general registers");
    Register(number)
}

impl Register {
    /// Its index in a register file.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    const fn name(self) -> Name {
        Name(self.0)
    }
}

/// An operand that an instruction may wait for: a general register, the condition field, carry or the link register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name(u8);

impl Name {
    /// Number of names: the size of a scoreboard.
    pub const COUNT: usize = 35;
    const CONDITION: Self = Self(32);
    const LINK: Self = Self(33);
    const CARRY: Self = Self(34);

    /// Its index in a scoreboard, below [`Name::COUNT`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The condition of a branch, after a compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Condition {
    Equal,
    NotEqual,
    Greater,
}

/// An instruction's number in its program. Its address is four times this number, relative to the code.
pub type Target = usize;

/// One instruction. Operands in the order of the assembler: destination, then sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// `lwz`: a 32-bit word.
    LoadWord(Register, i16, Register),
    /// `lhz`: a 16-bit half word, zero-extended.
    LoadHalf(Register, i16, Register),
    /// `stw`: a 32-bit word; the first operand is its source.
    StoreWord(Register, i16, Register),
    /// `li`.
    LoadImmediate(Register, i16),
    /// `lis`: the upper half, the lower half zero.
    LoadUpper(Register, u16),
    /// `ori`.
    OrImmediate(Register, Register, u16),
    /// `addi`.
    AddImmediate(Register, Register, i16),
    /// `mr`.
    Move(Register, Register),
    /// `xor`.
    Xor(Register, Register, Register),
    /// `and`.
    And(Register, Register, Register),
    /// `or.`: also compares its result with zero.
    OrRecord(Register, Register, Register),
    /// `andi.`: also compares its result with zero.
    AndImmediateRecord(Register, Register, u16),
    /// `subfc d,a,b`: d = b - a, and the carry.
    SubtractFromCarrying(Register, Register, Register),
    /// `subfe d,a,b`: d = b - a - borrow.
    SubtractFromExtended(Register, Register, Register),
    /// `cmpwi`: signed.
    CompareImmediate(Register, i16),
    /// `cmplwi`: unsigned.
    CompareLogicalImmediate(Register, u16),
    /// `cmplw`: unsigned.
    CompareLogical(Register, Register),
    /// `beq`, `bne`, `bgt`.
    BranchIf(Condition, Target),
    /// `b`.
    Branch(Target),
    /// `bl`.
    Call(Target),
    /// `blr`.
    Return,
    /// Ends the program of an embedded processor, or a thread.
    Halt,
    /// `lwz` of the status of the FIFO at the address: not zero while a header waits. Not cached.
    FifoStatus(Register, Register),
    /// `lwz` of the data of the FIFO at the address. The load takes the FIFO's next word, so it is not cached, and
    /// loads of the FIFO are requested in order.
    FifoTake(Register, Register),
    /// Multithreaded: takes the lock of the list's first item, in the order in which threads were spawned.
    Enter(Register),
    /// Multithreaded: takes the lock of the item at the address.
    Lock(Register),
    /// Multithreaded: releases the lock of the item at the address.
    Unlock(Register),
    /// Multithreaded: takes the lock of the item at the address by the full/empty bit of the word at an offset in it.
    TakeFull(i16, Register),
    /// Multithreaded: releases that lock.
    LeaveFull(i16, Register),
    /// `lwarx`: a word, and the reservation of its line.
    LoadReserved(Register, Register),
    /// `stwcx.`: stores the first operand if the reservation is still held, and sets `equal` if it stored. A successful
    /// store takes a lock: these programs reserve nothing else.
    StoreConditional(Register, Register),
    /// `stw` of a lock's word, which releases the lock.
    StoreRelease(Register, i16, Register),
    /// Multithreaded: a new thread at the target with a copy of all registers.
    Spawn(Target),
    /// Multithreaded: waits until all threads that this one spawned have halted.
    Join,
}

/// The names that an instruction reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operands {
    /// The base register of a memory address.
    pub base: Option<Name>,
    /// Other names that it reads; for a store the data.
    pub reads: [Option<Name>; 3],
    /// Names that it writes.
    pub writes: [Option<Name>; 2],
}

impl Operands {
    fn of(reads: &[Name], writes: &[Name]) -> Self {
        let mut operands = Self::default();
        for (slot, name) in operands.reads.iter_mut().zip(reads) {
            *slot = Some(*name);
        }
        for (slot, name) in operands.writes.iter_mut().zip(writes) {
            *slot = Some(*name);
        }
        operands
    }

    fn at(mut self, base: Register) -> Self {
        self.base = Some(base.name());
        self
    }

    /// All names that it reads, including the base.
    pub fn sources(&self) -> impl Iterator<Item = Name> {
        self.base.into_iter().chain(self.reads.into_iter().flatten())
    }

    /// All names that it writes.
    pub fn destinations(&self) -> impl Iterator<Item = Name> {
        self.writes.into_iter().flatten()
    }
}

impl Instruction {
    /// The names that it reads and writes.
    pub fn operands(self) -> Operands {
        use Instruction::*;
        const CONDITION: Name = Name::CONDITION;
        const CARRY: Name = Name::CARRY;
        match self {
            LoadWord(d, _, base)
            | LoadHalf(d, _, base)
            | FifoStatus(d, base)
            | FifoTake(d, base)
            | LoadReserved(d, base) => Operands::of(&[], &[d.name()]).at(base),
            StoreWord(s, _, base) | StoreRelease(s, _, base) => Operands::of(&[s.name()], &[]).at(base),
            StoreConditional(s, base) => Operands::of(&[s.name()], &[CONDITION]).at(base),
            TakeFull(_, base) | LeaveFull(_, base) => Operands::default().at(base),
            LoadImmediate(d, _) | LoadUpper(d, _) => Operands::of(&[], &[d.name()]),
            OrImmediate(d, a, _) | AddImmediate(d, a, _) | Move(d, a) => {
                Operands::of(&[a.name()], &[d.name()])
            }
            Xor(d, a, b) | And(d, a, b) => Operands::of(&[a.name(), b.name()], &[d.name()]),
            OrRecord(d, a, b) => Operands::of(&[a.name(), b.name()], &[d.name(), CONDITION]),
            AndImmediateRecord(d, a, _) => Operands::of(&[a.name()], &[d.name(), CONDITION]),
            SubtractFromCarrying(d, a, b) => Operands::of(&[a.name(), b.name()], &[d.name(), CARRY]),
            SubtractFromExtended(d, a, b) => Operands::of(&[a.name(), b.name(), CARRY], &[d.name(), CARRY]),
            CompareImmediate(a, _) | CompareLogicalImmediate(a, _) => Operands::of(&[a.name()], &[CONDITION]),
            CompareLogical(a, b) => Operands::of(&[a.name(), b.name()], &[CONDITION]),
            BranchIf(..) => Operands::of(&[CONDITION], &[]),
            Call(_) => Operands::of(&[], &[Name::LINK]),
            Return => Operands::of(&[Name::LINK], &[]),
            Enter(a) | Lock(a) | Unlock(a) => Operands::of(&[a.name()], &[]),
            Branch(_) | Halt | Spawn(_) | Join => Operands::default(),
        }
    }

    /// Whether execution may continue elsewhere than at the next instruction.
    pub const fn is_branch(self) -> bool {
        use Instruction::*;
        matches!(self, BranchIf(..) | Branch(_) | Call(_) | Return)
    }
}

/// An entry for each name: the last instruction that will write it or, for an in-order core, the cycle in which it is
/// ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scoreboard<T> {
    entries: [T; Name::COUNT],
}

impl<T: Copy> Scoreboard<T> {
    /// A scoreboard with the same entry for every name.
    pub fn new(initial: T) -> Self {
        Self { entries: [initial; Name::COUNT] }
    }

    /// The entry of a name.
    pub fn get(&self, name: Name) -> T {
        self.entries[name.index()]
    }

    /// Sets the entry of a name.
    pub fn set(&mut self, name: Name, value: T) {
        self.entries[name.index()] = value;
    }
}
