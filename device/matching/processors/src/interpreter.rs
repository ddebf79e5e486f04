//! The effects of instructions. Timing models have a [`Thread`] execute its next instruction when they can take it.
//! They get the dynamic stream: operation, operands, address and the actual direction of branches.

use thiserror::Error;

use crate::instruction::{Condition, Instruction, Operands, Register, Target};
use crate::layout;
use crate::memory::{OutsideMemory, ProcessorMemory};
use crate::program::Program;

/// A fault of a program. All of these are mistakes in a program or its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ExecutionError {
    /// A load or store outside memory.
    #[error("instruction {at}: {source}")]
    Memory {
        /// The instruction's number.
        at: Target,
        /// The access.
        source: OutsideMemory,
    },
    /// Execution ran past the end of the program.
    #[error("there is no instruction {at}; end every path with a halt")]
    NoInstruction {
        /// The requested number.
        at: Target,
    },
}

/// A memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Its first byte.
    pub address: u32,
    /// Its kind.
    pub kind: AccessKind,
}

/// Kind of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// A read.
    Load,
    /// A write.
    Store,
    /// A read that bypasses the caches, in the order of such reads.
    Uncached,
    /// An atomic read and write of a lock's word.
    Exchange,
}

impl Access {
    /// Whether it is a plain store.
    pub fn is_store(&self) -> bool {
        self.kind == AccessKind::Store
    }

    /// Whether it changes the line.
    pub fn changes(&self) -> bool {
        matches!(self.kind, AccessKind::Store | AccessKind::Exchange)
    }
}

/// One executed instruction of the dynamic stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// Its number in the program.
    pub at: Target,
    /// The instruction.
    pub instruction: Instruction,
    /// Its operands.
    pub operands: Operands,
    /// Its memory access.
    pub access: Option<Access>,
    /// The instruction that follows it.
    pub next: Target,
}

impl Executed {
    /// Whether a branch led elsewhere than to the next instruction in memory.
    pub fn is_taken(&self) -> bool {
        self.instruction.is_branch() && self.next != self.at + 1
    }
}

/// The result of comparing two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Less,
    Equal,
    Greater,
}

impl Order {
    fn of<T: Ord>(a: T, b: T) -> Self {
        match a.cmp(&b) {
            std::cmp::Ordering::Less => Self::Less,
            std::cmp::Ordering::Equal => Self::Equal,
            std::cmp::Ordering::Greater => Self::Greater,
        }
    }

    /// The result of a record form: a signed comparison with zero.
    fn of_result(value: u32) -> Self {
        Self::of(value.cast_signed(), 0)
    }
}

/// The registers of one thread of execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    registers: [u32; 32],
    order: Order,
    carry: bool,
    link: Target,
    at: Target,
    /// The word whose line is reserved.
    reservation: Option<u32>,
}

impl Thread {
    /// A thread with zeroed registers, at the first instruction.
    pub fn new() -> Self {
        Self { registers: [0; 32], order: Order::Equal, carry: false, link: 0, at: 0, reservation: None }
    }

    /// The thread of a spawn: a copy of this one, at the target.
    pub fn spawned(&self, at: Target) -> Self {
        Self { at, reservation: None, ..self.clone() }
    }

    /// The word whose line is reserved.
    pub fn reservation(&self) -> Option<u32> {
        self.reservation
    }

    /// Cancels the reservation, because another thread has written the line.
    pub fn lose_reservation(&mut self) {
        self.reservation = None;
    }

    /// The number of the next instruction.
    pub fn at(&self) -> Target {
        self.at
    }

    /// The value of a register.
    pub fn register(&self, register: Register) -> u32 {
        self.registers[register.index()]
    }

    fn set(&mut self, register: Register, value: u32) {
        self.registers[register.index()] = value;
    }

    fn address(&self, base: Register, offset: i16) -> u32 {
        self.register(base).wrapping_add_signed(i32::from(offset))
    }

    /// The next instruction and its operands, without executing it.
    ///
    /// # Errors The program has no such instruction.
    pub fn peek<'a>(&self, program: &'a Program) -> Result<&'a (Instruction, Operands), ExecutionError> {
        program.get(self.at).ok_or(ExecutionError::NoInstruction { at: self.at })
    }

    /// Executes one instruction. Instructions for threads and hardware locks only advance the thread; the processor has
    /// their effect.
    ///
    /// # Errors The program has no such instruction, or it accesses an address outside of memory.
    pub fn step(
        &mut self,
        program: &Program,
        memory: &mut ProcessorMemory,
    ) -> Result<Executed, ExecutionError> {
        let (instruction, operands) = *self.peek(program)?;
        let at = self.at;
        let access =
            self.access(instruction, memory).map_err(|source| ExecutionError::Memory { at, source })?;
        if access.is_none() && !instruction.is_branch() {
            self.compute(instruction);
        }
        self.at = self.follow(instruction);
        Ok(Executed { at, instruction, operands, access, next: self.at })
    }

    /// Loads and stores.
    fn access(
        &mut self,
        instruction: Instruction,
        memory: &mut ProcessorMemory,
    ) -> Result<Option<Access>, OutsideMemory> {
        use Instruction::*;
        let (address, kind) = match instruction {
            LoadWord(d, offset, base) => {
                let address = self.address(base, offset);
                self.set(d, memory.word(address)?);
                (address, AccessKind::Load)
            }
            LoadHalf(d, offset, base) => {
                let address = self.address(base, offset);
                self.set(d, u32::from(memory.half(address)?));
                (address, AccessKind::Load)
            }
            StoreWord(s, offset, base) | StoreRelease(s, offset, base) => {
                let address = self.address(base, offset);
                memory.write(address, &self.register(s).to_be_bytes())?;
                (address, AccessKind::Store)
            }
            FifoStatus(d, base) => {
                let fifo = self.register(base);
                self.set(d, u32::from(layout::fifo_holds(memory, fifo)?));
                (fifo, AccessKind::Uncached)
            }
            FifoTake(d, base) => {
                let fifo = self.register(base);
                self.set(d, layout::fifo_take(memory, fifo)?);
                (fifo, AccessKind::Uncached)
            }
            // The bit is not in the word; the processor keeps it.
            TakeFull(offset, base) => (self.address(base, offset), AccessKind::Exchange),
            LeaveFull(offset, base) => (self.address(base, offset), AccessKind::Store),
            LoadReserved(d, base) => {
                let address = self.register(base);
                self.set(d, memory.word(address)?);
                self.reservation = Some(address);
                (address, AccessKind::Load)
            }
            StoreConditional(s, base) => {
                let address = self.register(base);
                let stands = self.reservation.take() == Some(address);
                self.order = if stands { Order::Equal } else { Order::Less };
                if !stands {
                    // A failed store needs no access to the line.
                    return Ok(None);
                }
                memory.write(address, &self.register(s).to_be_bytes())?;
                (address, AccessKind::Exchange)
            }
            _ => return Ok(None),
        };
        Ok(Some(Access { address, kind }))
    }

    /// Arithmetic, logic and compares.
    fn compute(&mut self, instruction: Instruction) {
        use Instruction::*;
        match instruction {
            LoadImmediate(d, value) => self.set(d, i32::from(value).cast_unsigned()),
            LoadUpper(d, value) => self.set(d, u32::from(value) << 16),
            OrImmediate(d, a, value) => self.set(d, self.register(a) | u32::from(value)),
            AddImmediate(d, a, value) => {
                self.set(d, self.register(a).wrapping_add_signed(i32::from(value)));
            }
            Move(d, a) => self.set(d, self.register(a)),
            Xor(d, a, b) => self.set(d, self.register(a) ^ self.register(b)),
            And(d, a, b) => self.set(d, self.register(a) & self.register(b)),
            OrRecord(d, a, b) => {
                let value = self.register(a) | self.register(b);
                self.set(d, value);
                self.order = Order::of_result(value);
            }
            AndImmediateRecord(d, a, mask) => {
                let value = self.register(a) & u32::from(mask);
                self.set(d, value);
                self.order = Order::of_result(value);
            }
            SubtractFromCarrying(d, a, b) => self.subtract(d, a, b, true),
            SubtractFromExtended(d, a, b) => self.subtract(d, a, b, self.carry),
            CompareImmediate(a, value) => {
                self.order = Order::of(self.register(a).cast_signed(), i32::from(value));
            }
            CompareLogicalImmediate(a, value) => {
                self.order = Order::of(self.register(a), u32::from(value));
            }
            CompareLogical(a, b) => self.order = Order::of(self.register(a), self.register(b)),
            _ => {}
        }
    }

    /// PowerPC subtracts by adding the complement and a carry, which is set if there is no borrow.
    fn subtract(&mut self, d: Register, a: Register, b: Register, carry: bool) {
        let sum = u64::from(!self.register(a)) + u64::from(self.register(b)) + u64::from(carry);
        self.set(d, sum as u32);
        self.carry = sum >> 32 != 0;
    }

    /// The number of the instruction that follows.
    fn follow(&mut self, instruction: Instruction) -> Target {
        use Instruction::*;
        let next = self.at + 1;
        match instruction {
            Branch(target) => target,
            BranchIf(condition, target) => {
                let taken = match condition {
                    Condition::Equal => self.order == Order::Equal,
                    Condition::NotEqual => self.order != Order::Equal,
                    Condition::Greater => self.order == Order::Greater,
                };
                if taken { target } else { next }
            }
            Call(target) => {
                self.link = next;
                target
            }
            Return => self.link,
            _ => next,
        }
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}
