//! One unit: its program, its state, and its activity in a cycle.

use niclab_asm::Register;
use niclab_isa::{PREDICATES, REGISTERS};
use niclab_model::models::matching::list_manager::inspect::Travelling;
use niclab_model::models::matching::unit::{OUTPUT_CYCLES, Unit};

use crate::firmware::Firmware;

/// A unit's state between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitView {
    /// The ALU's registers.
    pub alu: [u64; REGISTERS],
    /// The ternary unit's registers.
    pub ternary: [u64; REGISTERS],
    /// The predicates.
    pub predicates: [bool; PREDICATES],
    /// The address of the next word.
    pub pc: usize,
    /// Target of a taken branch, and the number of words before it takes effect.
    pub taken: Option<(usize, usize)>,
    /// The input FIFO, next word first.
    pub input: Vec<u64>,
    /// Words in flight from the unit, oldest first.
    pub output: Vec<Travelling>,
}

impl UnitView {
    pub(super) fn new(unit: &Unit, input: Vec<u64>, output: Vec<Travelling>) -> Self {
        Self {
            alu: *unit.alu(),
            ternary: *unit.ternary(),
            predicates: unit.predicates(),
            pc: unit.pc(),
            taken: unit.taken(),
            input,
            output,
        }
    }

    /// The value of a register or a predicate; zero for one that the unit does not have.
    #[must_use]
    pub fn get(&self, register: Register) -> u64 {
        match register {
            Register::Alu(number) => self.alu.get(number).copied().unwrap_or(0),
            Register::Ternary(number) => self.ternary.get(number).copied().unwrap_or(0),
            Register::Predicate(number) => self.predicates.get(number).copied().unwrap_or(false).into(),
        }
    }
}

/// Activity of a unit in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCycle {
    /// The words in the three stages.
    pub stages: Stages,
    /// The word that it took from its input FIFO.
    pub took: Option<u64>,
    /// The word that it appended to its output FIFO.
    pub appended: Option<u64>,
    /// The word that entered its input FIFO.
    pub fed: Option<u64>,
    /// The word that its receiver got: the unit appended it [`OUTPUT_CYCLES`] earlier.
    pub heard: Option<u64>,
}

/// Addresses of words, by stage. A word that waits leaves the following stage empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The word that is issued, or waits for input.
    pub read: Option<usize>,
    /// Whether that word waits.
    pub waits: bool,
    /// The word that executes.
    pub execute: Option<usize>,
    /// The word that writes.
    pub write: Option<usize>,
}

/// A unit's program, and the words in its stages.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub firmware: Firmware,
    stages: Stages,
}

impl Pipeline {
    pub fn new(firmware: Firmware) -> Self {
        Self { firmware, stages: Stages::default() }
    }

    /// The unit's activity in cycle `number`. `is_issued` is false if its word waited.
    pub fn cycle(&mut self, number: u64, before: &UnitView, after: &UnitView, is_issued: bool) -> UnitCycle {
        let takes = self.firmware.words().get(before.pc).is_some_and(|word| word.input.take);
        let took = before.input.first().copied().filter(|_| takes && is_issued);
        let is_fed = after.input.len() + usize::from(took.is_some()) > before.input.len();
        // A word appended in this cycle is the last one, recognized by its time.
        let appended = after.output.last().filter(|word| word.from_cycle == number + OUTPUT_CYCLES);
        let heard = before.output.first().filter(|word| word.from_cycle <= number);
        self.stages = Stages {
            read: Some(before.pc),
            waits: !is_issued,
            execute: self.stages.read.filter(|_| !self.stages.waits),
            write: self.stages.execute,
        };
        UnitCycle {
            stages: self.stages,
            took,
            appended: appended.map(|word| word.word),
            fed: after.input.last().copied().filter(|_| is_fed),
            heard: heard.map(|word| word.word),
        }
    }
}
