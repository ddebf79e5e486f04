//! The embedded processor of the paper's table 2: out of order, two instructions wide, like a PowerPC 440 in
//! SimpleScalar.
//!
//! Modelled on SimpleScalar's `sim-outorder` in the version that the paper used, that of the Structural Simulation
//! Toolkit (`ssb_sim-outorder.cc`): the oldest ready operation is issued first, and a store passes through completion.
//! The order within a cycle is commit, completion, issue, dispatch, fetch.
//!
//! A register update unit (RUU) renames and holds instructions until they commit in order. A load or store also takes
//! an entry in the load and store queue (LSQ), and two issue slots: one for its address on an ALU, one for its access.
//! Fetching stops for the cycle after a taken branch. After a mispredicted branch it stops until the branch has been
//! executed, plus a penalty.
//!
//! Departures: instructions of a wrong path are not executed (they would take RUU entries and, rarely, cache lines). A
//! branch whose target is not yet known costs as much as a misprediction, instead of slightly less. Both concern a few
//! cycles for each header. The multiplier of table 2 is missing because no instruction multiplies.
//!
//! Constants: a FIFO is read in words of a 32-bit processor, which the paper names (section 5: a PPC 440).

use std::collections::VecDeque;

use crate::cache::{Cache, CacheConfig, MemoryBus};
use crate::instruction::{Instruction, Name, Scoreboard};
use crate::interpreter::{Access, AccessKind, Executed, Thread};
use crate::layout::{CODE, Placement};
use crate::memory::ProcessorMemory;
use crate::predictor::{Prediction, Predictor};
use crate::program::Program;
use crate::{ConfigError, Observer, Occupancy, SimulationError};

/// The parameters of table 2, and those of SimpleScalar that it leaves at their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmbeddedConfig {
    /// Instructions fetched and decoded a cycle.
    pub fetch_width: usize,
    /// Operations issued a cycle.
    pub issue_width: usize,
    /// Instructions committed a cycle.
    pub commit_width: usize,
    /// Entries in the register update unit.
    pub ruu: usize,
    /// Entries in the load and store queue.
    pub lsq: usize,
    /// Integer ALUs. They also compute addresses and resolve branches.
    pub integer_alus: usize,
    /// Number of loads that access memory and stores that commit in one cycle.
    pub memory_ports: usize,
    /// Data cache.
    pub data_cache: CacheConfig,
    /// Instruction cache.
    pub instruction_cache: CacheConfig,
    /// Latency to the first part of a line, in cycles.
    pub memory_latency_cycles: u64,
    /// Width of memory.
    pub memory_bits_per_cycle: u32,
    /// Entries between fetch and decode. Not in the paper: SimpleScalar's default.
    pub fetch_queue: usize,
    /// Time from the execution of a mispredicted branch to the next fetch. Not in the paper: SimpleScalar's default.
    pub misprediction_cycles: u64,
    /// Branch prediction. Not in the paper: SimpleScalar's default is bimodal.
    pub prediction: Prediction,
    /// Layout of the benchmark's data, and the way in which headers arrive.
    pub placement: Placement,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        let cache = CacheConfig { size_bytes: 32 * 1024, ways: 64, line_bytes: 32, hit_cycles: 1 };
        Self {
            fetch_width: 2,
            issue_width: 2,
            commit_width: 3,
            ruu: 16,
            lsq: 4,
            integer_alus: 2,
            memory_ports: 1,
            data_cache: cache,
            instruction_cache: cache,
            memory_latency_cycles: 10,
            memory_bits_per_cycle: 128,
            fetch_queue: 4,
            misprediction_cycles: 3,
            prediction: Prediction::Bimodal,
            placement: Placement::Packed,
        }
    }
}

/// An embedded processor. Its caches and its predictor keep their state between runs.
#[derive(Clone, Debug)]
pub struct Embedded {
    config: EmbeddedConfig,
    data_cache: Cache,
    instruction_cache: Cache,
    bus: MemoryBus,
    predictor: Predictor,
    now: u64,
}

impl Embedded {
    /// A processor with cold caches.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn new(config: EmbeddedConfig) -> Result<Self, ConfigError> {
        ConfigError::check([
            ("fetch width", config.fetch_width),
            ("issue width", config.issue_width),
            ("commit width", config.commit_width),
            ("RUU size", config.ruu),
            ("LSQ size", config.lsq),
            ("number of integer ALUs", config.integer_alus),
            ("number of memory ports", config.memory_ports),
            ("fetch queue", config.fetch_queue),
        ])?;
        Ok(Self {
            config,
            data_cache: Cache::new(config.data_cache)?,
            instruction_cache: Cache::new(config.instruction_cache)?,
            bus: MemoryBus::new(config.memory_latency_cycles, config.memory_bits_per_cycle)?,
            predictor: Predictor::new(config.prediction),
            now: 0,
        })
    }

    /// The data cache.
    pub fn data_cache_mut(&mut self) -> &mut Cache {
        &mut self.data_cache
    }

    /// The instruction cache.
    pub fn instruction_cache(&self) -> &Cache {
        &self.instruction_cache
    }

    /// Runs a program from its first instruction until its halt has committed. Returns the cycles.
    ///
    /// # Errors The program has a fault, or does not end within `limit` cycles.
    pub fn run(
        &mut self,
        program: &Program,
        memory: &mut ProcessorMemory,
        limit: u64,
        observer: &mut impl Observer,
    ) -> Result<u64, SimulationError> {
        let start = self.now;
        let mut pipeline = Pipeline::new(self.now);
        while !pipeline.halted {
            if self.now - start == limit {
                return Err(SimulationError::TooLong { cycles: limit });
            }
            pipeline.slots = Slots::default();
            let committed = self.commit(&mut pipeline, observer);
            self.issue(&mut pipeline, observer);
            self.dispatch(&mut pipeline);
            self.fetch(&mut pipeline, program, memory, observer)?;
            observer.on_cycle(&Occupancy {
                cycle: self.now,
                issued: pipeline.slots.issued,
                committed,
                alus: pipeline.slots.alus,
                ports: pipeline.slots.ports,
                ruu: pipeline.ruu.len(),
                lsq: pipeline.lsq_used,
            });
            self.now += 1;
        }
        Ok(self.now - start)
    }

    /// Retires completed instructions in order. A store writes now, and needs a memory port.
    fn commit(&mut self, pipeline: &mut Pipeline, observer: &mut impl Observer) -> usize {
        let mut committed = 0;
        while committed < self.config.commit_width {
            // An instruction that completes in this cycle commits in the next one at the earliest.
            let Some(entry) =
                pipeline.ruu.front().filter(|entry| entry.result.is_some_and(|at| at < self.now))
            else {
                break;
            };
            if let Some(access) = entry.executed.access {
                if access.changes() {
                    if pipeline.slots.ports == self.config.memory_ports {
                        break;
                    }
                    pipeline.slots.ports += 1;
                    self.data_cache.access(self.now, access.address, true, &mut self.bus, observer);
                }
                pipeline.lsq_used -= 1;
            }
            let executed = entry.executed;
            if executed.instruction.is_branch() {
                self.predictor.learn(executed.at, executed.next);
            }
            pipeline.halted = executed.instruction == Instruction::Halt;
            pipeline.ruu.pop_front();
            pipeline.first += 1;
            committed += 1;
        }
        committed
    }

    /// Issues ready operations, oldest first.
    fn issue(&mut self, pipeline: &mut Pipeline, observer: &mut impl Observer) {
        for index in 0..pipeline.ruu.len() {
            if pipeline.slots.issued == self.config.issue_width {
                return;
            }
            match pipeline.ready(index, self.now) {
                Some(Work::Access { forwarded }) => self.issue_load(pipeline, index, forwarded, observer),
                Some(Work::StoreData) => {
                    // The store waits in the LSQ for its commit.
                    pipeline.ruu[index].result = Some(self.now + 1);
                    pipeline.slots.issued += 1;
                }
                Some(Work::Address) => self.issue_address(pipeline, index),
                Some(Work::Compute) => self.issue_compute(pipeline, index),
                None => {}
            }
        }
    }

    fn take_alu(&self, pipeline: &mut Pipeline) -> bool {
        let free = pipeline.slots.alus < self.config.integer_alus;
        if free {
            pipeline.slots.alus += 1;
            pipeline.slots.issued += 1;
        }
        free
    }

    fn issue_address(&self, pipeline: &mut Pipeline, index: usize) {
        if self.take_alu(pipeline) {
            pipeline.ruu[index].address = Some(self.now + 1);
        }
    }

    fn issue_compute(&self, pipeline: &mut Pipeline, index: usize) {
        if !self.take_alu(pipeline) {
            return;
        }
        let done = self.now + 1;
        pipeline.ruu[index].result = Some(done);
        if pipeline.ruu[index].mispredicted {
            pipeline.fetch = Fetch::From(done + self.config.misprediction_cycles);
        }
    }

    fn issue_load(
        &mut self,
        pipeline: &mut Pipeline,
        index: usize,
        forwarded: bool,
        observer: &mut impl Observer,
    ) {
        if pipeline.slots.ports == self.config.memory_ports {
            return;
        }
        let Some(access) = pipeline.ruu[index].executed.access else { return };
        pipeline.slots.ports += 1;
        pipeline.slots.issued += 1;
        let ready = if forwarded {
            self.now + 1
        } else if access.kind == AccessKind::Uncached {
            self.bus.read(self.now, WORD_BYTES, observer)
        } else {
            self.data_cache.access(self.now, access.address, false, &mut self.bus, observer)
        };
        pipeline.ruu[index].result = Some(ready);
    }

    /// Moves instructions from the fetch queue to RUU and LSQ. As in SimpleScalar, a full LSQ blocks all of them.
    fn dispatch(&self, pipeline: &mut Pipeline) {
        for _ in 0..self.config.fetch_width {
            if pipeline.ruu.len() == self.config.ruu || pipeline.lsq_used == self.config.lsq {
                return;
            }
            let Some(fetched) = pipeline.queue.pop_front() else { return };
            pipeline.enter(fetched);
        }
    }

    fn fetch(
        &mut self,
        pipeline: &mut Pipeline,
        program: &Program,
        memory: &mut ProcessorMemory,
        observer: &mut impl Observer,
    ) -> Result<(), SimulationError> {
        for _ in 0..self.config.fetch_width {
            match pipeline.fetch {
                Fetch::From(cycle) if cycle <= self.now => {}
                _ => return Ok(()),
            }
            if pipeline.queue.len() == self.config.fetch_queue {
                return Ok(());
            }
            let address = CODE + 4 * pipeline.thread.at() as u32;
            let hit = self.config.instruction_cache.hit_cycles;
            let ready = self.instruction_cache.access(self.now, address, false, &mut self.bus, observer);
            if ready > self.now + hit {
                pipeline.fetch = Fetch::From(ready - hit);
                return Ok(());
            }
            let executed = pipeline.thread.step(program, memory)?;
            let predicted = self.predictor.predict(executed.at, executed.instruction);
            let mispredicted = predicted != executed.next;
            pipeline.queue.push_back(Fetched { executed, mispredicted });
            if mispredicted || executed.instruction == Instruction::Halt {
                pipeline.fetch = Fetch::Held;
            }
            if predicted != executed.at + 1 {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Bytes of one read from a FIFO.
const WORD_BYTES: u32 = 4;

/// Slots used in one cycle.
#[derive(Clone, Copy, Default)]
struct Slots {
    issued: usize,
    alus: usize,
    ports: usize,
}

#[derive(Clone, Copy)]
enum Fetch {
    /// Fetching resumes in this cycle.
    From(u64),
    /// Fetching is stopped: after a mispredicted branch until it is executed, or forever after a halt.
    Held,
}

#[derive(Clone, Copy)]
struct Fetched {
    executed: Executed,
    mispredicted: bool,
}

/// The number of an instruction in the dynamic stream.
type Sequence = u64;

/// An entry of the RUU, and of the LSQ if the instruction accesses memory.
struct Entry {
    executed: Executed,
    mispredicted: bool,
    /// The instruction that computes the base of its address.
    base: Option<Sequence>,
    /// The instructions that compute its other operands.
    sources: [Option<Sequence>; 3],
    /// Cycle in which its address is known, once its computation is issued.
    address: Option<u64>,
    /// Cycle in which its result is known, once its computation is issued.
    result: Option<u64>,
}

/// Operation that an instruction in the RUU can issue next.
enum Work {
    Address,
    Access { forwarded: bool },
    StoreData,
    Compute,
}

/// The instructions in flight.
struct Pipeline {
    thread: Thread,
    fetch: Fetch,
    queue: VecDeque<Fetched>,
    ruu: VecDeque<Entry>,
    /// The number of the RUU's first instruction.
    first: Sequence,
    lsq_used: usize,
    /// The last instruction that writes each name.
    writers: Scoreboard<Option<Sequence>>,
    slots: Slots,
    halted: bool,
}

impl Pipeline {
    fn new(now: u64) -> Self {
        Self {
            thread: Thread::new(),
            fetch: Fetch::From(now),
            queue: VecDeque::new(),
            ruu: VecDeque::new(),
            first: 0,
            lsq_used: 0,
            writers: Scoreboard::new(None),
            slots: Slots::default(),
            halted: false,
        }
    }

    /// Enters an instruction in RUU and LSQ, and renames its operands.
    fn enter(&mut self, Fetched { executed, mispredicted }: Fetched) {
        let writer = |name: Option<Name>| name.and_then(|name| self.writers.get(name));
        let operands = executed.operands;
        let (base, sources) = (writer(operands.base), operands.reads.map(writer));
        let sequence = self.first + self.ruu.len() as Sequence;
        for name in operands.destinations() {
            self.writers.set(name, Some(sequence));
        }
        self.lsq_used += usize::from(executed.access.is_some());
        self.ruu.push_back(Entry { executed, mispredicted, base, sources, address: None, result: None });
    }

    /// Whether the result of an instruction can be used. Committed instructions are no longer in the RUU.
    fn is_known(&self, sequence: Option<Sequence>, now: u64) -> bool {
        let entry = sequence
            .and_then(|sequence| sequence.checked_sub(self.first))
            .and_then(|index| self.ruu.get(index as usize));
        entry.is_none_or(|entry| entry.result.is_some_and(|at| at <= now))
    }

    /// The operation that the instruction at `index` of the RUU can issue in this cycle.
    fn ready(&self, index: usize, now: u64) -> Option<Work> {
        let entry = &self.ruu[index];
        if entry.result.is_some() {
            return None;
        }
        let operands = entry.sources.iter().all(|source| self.is_known(*source, now));
        let Some(access) = entry.executed.access else {
            return operands.then_some(Work::Compute);
        };
        match entry.address {
            None => self.is_known(entry.base, now).then_some(Work::Address),
            Some(at) if at > now => None,
            Some(_) if access.changes() => operands.then_some(Work::StoreData),
            Some(_) => self.load_may_access(index, access, now),
        }
    }

    /// A load waits for the addresses of all earlier stores, and for the data of those to its own address, which the
    /// LSQ then forwards. Reads of a FIFO are requested in order.
    fn load_may_access(&self, index: usize, Access { address, kind }: Access, now: u64) -> Option<Work> {
        let mut forwarded = false;
        for earlier in self.ruu.iter().take(index) {
            let Some(before) = earlier.executed.access else { continue };
            if kind == AccessKind::Uncached && before.kind == kind && earlier.result.is_none() {
                return None;
            }
            if !before.changes() {
                continue;
            }
            if earlier.address.is_none_or(|at| at > now) {
                return None;
            }
            if before.address == address {
                if earlier.result.is_none_or(|at| at > now) {
                    return None;
                }
                forwarded = true;
            }
        }
        Some(Work::Access { forwarded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Condition::NotEqual;
    use crate::instruction::Instruction::*;
    use crate::instruction::r;

    /// Cycles of a program's second run: caches and predictor are warm.
    fn warm_cycles(config: EmbeddedConfig, instructions: &[Instruction]) -> u64 {
        let program = Program::new([instructions, &[Halt]].concat());
        let (mut processor, mut memory) = (Embedded::new(config).unwrap(), ProcessorMemory::new(4096));
        processor.run(&program, &mut memory, 10_000, &mut ()).unwrap();
        processor.run(&program, &mut memory, 10_000, &mut ()).unwrap()
    }

    fn cycles(instructions: &[Instruction]) -> u64 {
        warm_cycles(EmbeddedConfig::default(), instructions)
    }

    #[test]
    fn an_instruction_passes_five_stages() {
        assert_eq!(cycles(&[]), 5, "fetch, dispatch, issue, completion, commit");
    }

    #[test]
    fn two_independent_or_one_dependent_instruction_a_cycle() {
        let independent: Vec<Instruction> = (0..20).map(|n| LoadImmediate(r(n), 1)).collect();
        assert_eq!(cycles(&independent), 15);
        let chain = [AddImmediate(r(3), r(3), 1); 20];
        assert_eq!(cycles(&chain), 24);
    }

    #[test]
    fn a_load_takes_two_issue_slots_and_a_port() {
        let loads = |count| vec![LoadWord(r(3), 16, r(4)); count];
        assert_eq!(cycles(&loads(60)) - cycles(&loads(40)), 20);
        let wide =
            EmbeddedConfig { issue_width: 8, fetch_width: 8, lsq: 16, integer_alus: 8, ..Default::default() };
        assert_eq!(warm_cycles(wide, &loads(60)) - warm_cycles(wide, &loads(40)), 20, "one port");
        let ported = EmbeddedConfig { memory_ports: 2, ..wide };
        assert!(warm_cycles(ported, &loads(60)) - warm_cycles(ported, &loads(40)) < 20);
    }

    #[test]
    fn a_load_gets_its_data_a_cycle_after_its_address() {
        // Each load's address depends on the previous load: address, then access.
        let chase = |count| vec![LoadWord(r(3), 0, r(3)); count];
        assert_eq!(cycles(&chase(20)) - cycles(&chase(10)), 20);
    }

    #[test]
    fn a_load_takes_its_data_from_an_earlier_store() {
        let mut memory = ProcessorMemory::new(4096);
        let program = Program::new(vec![
            LoadImmediate(r(3), 77),
            StoreWord(r(3), 64, r(4)),
            LoadWord(r(5), 64, r(4)),
            StoreWord(r(5), 128, r(4)),
            Halt,
        ]);
        let mut processor = Embedded::new(EmbeddedConfig::default()).unwrap();
        processor.run(&program, &mut memory, 1000, &mut ()).unwrap();
        assert_eq!(memory.word(128), Ok(77));
        let counts = processor.data_cache_mut().counts();
        assert_eq!(
            (counts.hits, counts.misses),
            (0, 2),
            "the two stores; the load does not access the cache"
        );
    }

    #[test]
    fn words_of_a_fifo_are_requested_in_order() {
        // The FIFO at 0 has its words at 64, all zero. The first read's address depends on four loads; the others' is
        // known at once.
        let mut memory = ProcessorMemory::new(4096);
        let mut program = vec![LoadWord(r(6), 512, r(6)); 4];
        program.extend([FifoTake(r(3), r(6)), FifoTake(r(4), r(7)), FifoTake(r(5), r(7)), Halt]);
        let program = Program::new(program);
        let wide =
            EmbeddedConfig { issue_width: 8, fetch_width: 8, fetch_queue: 8, lsq: 16, ..Default::default() };
        #[derive(Default)]
        struct Reads(Vec<u64>);
        impl Observer for Reads {
            fn on_transfer(&mut self, cycles: std::ops::Range<u64>, bytes: u32) {
                if bytes == WORD_BYTES {
                    self.0.push(cycles.start);
                }
            }
        }
        let mut processor = Embedded::new(wide).unwrap();
        for _ in 0..2 {
            memory.write(0, &64_u32.to_be_bytes()).unwrap();
            let (mut reads, begin) = (Reads::default(), processor.now);
            processor.run(&program, &mut memory, 1000, &mut reads).unwrap();
            let Ok([first, second, third]) = <[u64; 3]>::try_from(reads.0) else { panic!("three reads") };
            assert_eq!(
                (second, third),
                (first + 1, first + 2),
                "consecutive requests that do not wait for the data"
            );
            // Fetch and dispatch, four loads of two cycles, the address, and memory's latency.
            assert!(first >= begin + 2 + 8 + 1 + 10);
        }
        let counts = processor.data_cache_mut().counts();
        assert_eq!(counts.misses, 1, "the loads' line");
    }

    #[test]
    fn a_load_waits_for_the_addresses_of_earlier_stores() {
        // Memory is all zero, so both stores have the same address. One of them knows it only after four loads.
        let program = |base| {
            let mut program = vec![LoadWord(r(6), 0, r(6)); 4];
            program.extend([StoreWord(r(3), 256, base), LoadWord(r(5), 64, r(4))]);
            program.extend([AddImmediate(r(5), r(5), 1); 9]);
            program
        };
        let wide =
            EmbeddedConfig { issue_width: 8, fetch_width: 8, fetch_queue: 8, lsq: 16, ..Default::default() };
        let (late, early) = (warm_cycles(wide, &program(r(6))), warm_cycles(wide, &program(r(4))));
        assert!(late >= early + 5, "{late} and {early}");
    }

    #[test]
    fn fetching_stops_after_a_taken_branch() {
        // Branch n goes to branch n + 1 and skips a halt.
        let program: Vec<Instruction> = (0..20).flat_map(|n| [Branch(2 * n + 2), Halt]).collect();
        assert_eq!(cycles(&program), 25, "one branch a cycle, though two could be issued");
    }

    #[test]
    fn a_wrong_prediction_costs_its_penalty() {
        // 40 iterations; the branch back is taken in all but the last one.
        let program = [
            LoadImmediate(r(3), 40),
            AddImmediate(r(3), r(3), -1),
            CompareImmediate(r(3), 0),
            BranchIf(NotEqual, 1),
        ];
        let at = |misprediction_cycles, prediction| {
            warm_cycles(EmbeddedConfig { misprediction_cycles, prediction, ..Default::default() }, &program)
        };
        assert_eq!(at(13, Prediction::NotTaken) - at(3, Prediction::NotTaken), 39 * 10);
        // The counter mispredicts twice: in the last iteration of both runs.
        assert_eq!(at(13, Prediction::Bimodal) - at(3, Prediction::Bimodal), 10);
        assert!(at(3, Prediction::Bimodal) < at(3, Prediction::NotTaken));
    }

    #[test]
    fn a_program_that_does_not_end_is_an_error() {
        let (mut processor, mut memory) =
            (Embedded::new(EmbeddedConfig::default()).unwrap(), ProcessorMemory::new(16));
        let circle = Program::new(vec![Branch(0)]);
        assert_eq!(
            processor.run(&circle, &mut memory, 500, &mut ()),
            Err(SimulationError::TooLong { cycles: 500 })
        );
        let outside = Program::new(vec![LoadWord(r(3), 64, r(4)), Halt]);
        assert!(matches!(
            processor.run(&outside, &mut memory, 500, &mut ()),
            Err(SimulationError::Execution(crate::interpreter::ExecutionError::Memory { at: 0, .. }))
        ));
    }

    #[test]
    fn the_error_names_the_missing_part() {
        let error = Embedded::new(EmbeddedConfig { lsq: 0, ..Default::default() }).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the LSQ size is 0; it must be at least 1");
    }
}
