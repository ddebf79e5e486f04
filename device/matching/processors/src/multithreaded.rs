//! The multithreaded processor of the paper's table 3: 1, 2 or 16 simple cores, each with several contexts.
//!
//! A core issues one instruction a cycle, in order, from its next context with a ready instruction. A context waits for
//! operands, for instructions that its cache does not hold, for a lock, and after a taken branch; other contexts issue
//! in the meantime. Threads without a context wait until they are swapped in. All cores share the width of memory.
//!
//! Decisions that the paper leaves open favour this machine, and are documented where they are made. Locks are in
//! hardware and cost one instruction, a waiting context takes no issue slots, and swapping does not delay other
//! contexts. Locks can be words of the items instead ([`Locks`]), and caches can be coherent
//! ([`MultithreadedConfig::coherent`]).
//!
//! Constants: as the embedded processor's.

use std::collections::VecDeque;

use crate::cache::{Cache, CacheConfig, MemoryBus};
use crate::coherence::DataCaches;
use crate::instruction::{Instruction, Scoreboard};
use crate::interpreter::{Access, AccessKind, Executed, Thread};
use crate::layout::{CODE, Placement};
use crate::memory::ProcessorMemory;
use crate::program::{Locks, Program};
use crate::{ConfigError, Observer, SimulationError};

/// The parameters of table 3 and section 5.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultithreadedConfig {
    /// Cores.
    pub cores: usize,
    /// Hardware contexts of each core.
    pub contexts_per_core: usize,
    /// Data cache of each core.
    pub data_cache: CacheConfig,
    /// Instruction cache of each core.
    pub instruction_cache: CacheConfig,
    /// Latency to the first part of a line, in cycles.
    pub memory_latency_cycles: u64,
    /// Width of memory, shared by all cores.
    pub memory_bits_per_cycle: u32,
    /// Time of a spawn, for parent and child.
    pub spawn_cycles: u64,
    /// Time of swapping a thread into a context.
    pub swap_cycles: u64,
    /// A core swaps threads in at every multiple of this number of cycles, and whenever none of its contexts is active.
    pub swap_interval_cycles: u64,
    /// Time from taking a free lock to the thread's next instruction. The paper: "exceptionally fast"; one cycle.
    pub lock_cycles: u64,
    /// Cycles after a taken branch in which a context issues nothing. The paper does not say. Two cycles correspond to
    /// a pipeline of five stages without prediction that resolves branches in its third stage.
    pub taken_branch_cycles: u64,
    /// Whether a thread that waits for a lock spins, and so takes issue slots from the core's other contexts. Otherwise
    /// it sleeps until the lock is free, which is the default. The paper does not say.
    ///
    /// Only for [`Locks::Beside`]: a thread that waits for a full/empty bit sleeps, and a thread that reserves spins.
    pub waiting_spins: bool,
    /// Layout of the benchmark's data, and the way in which headers arrive.
    pub placement: Placement,
    /// Kind of locks.
    pub locks: Locks,
    /// Whether data caches are coherent: they invalidate one another.
    pub coherent: bool,
    /// Core on which a spawned thread starts.
    pub spawning: Spawning,
}

/// Core on which a spawned thread takes a free context. The paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spawning {
    /// The core with the most free contexts.
    Far,
    /// The core that spawned it, or the next core after that with a free context.
    Near,
}

impl MultithreadedConfig {
    fn with(cores: usize, contexts_per_core: usize, cache_kib: u32, memory_bits_per_cycle: u32) -> Self {
        let cache = CacheConfig { size_bytes: cache_kib * 1024, ways: 64, line_bytes: 32, hit_cycles: 1 };
        Self {
            cores,
            contexts_per_core,
            data_cache: cache,
            instruction_cache: cache,
            memory_latency_cycles: 10,
            memory_bits_per_cycle,
            spawn_cycles: 2,
            swap_cycles: 10,
            swap_interval_cycles: 1024,
            lock_cycles: 1,
            taken_branch_cycles: 2,
            waiting_spins: false,
            placement: Placement::Packed,
            locks: Locks::Beside,
            coherent: false,
            spawning: Spawning::Far,
        }
    }

    /// Table 3's first column.
    pub fn one_core() -> Self {
        Self::with(1, 8, 32, 128)
    }

    /// Table 3's second column.
    pub fn two_cores() -> Self {
        Self::with(2, 8, 16, 128)
    }

    /// Table 3's third column.
    pub fn sixteen_cores() -> Self {
        Self::with(16, 4, 16, 256)
    }
}

/// A thread's number, in the order of spawning; 0 is the first thread.
pub type ThreadNumber = usize;

/// A multithreaded processor. Its caches keep their contents between runs.
#[derive(Clone, Debug)]
pub struct Multithreaded {
    config: MultithreadedConfig,
    cores: Vec<Core>,
    data_caches: DataCaches,
    bus: MemoryBus,
    now: u64,
}

#[derive(Clone, Debug)]
struct Core {
    instruction_cache: Cache,
    contexts: Vec<Option<ThreadNumber>>,
    /// The context that the next cycle tries first.
    turn: usize,
}

impl Multithreaded {
    /// A processor with cold caches.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn new(config: MultithreadedConfig) -> Result<Self, ConfigError> {
        ConfigError::check([
            ("number of cores", config.cores),
            ("number of contexts", config.contexts_per_core),
            ("swap interval", config.swap_interval_cycles as usize),
            ("time of a lock", config.lock_cycles as usize),
        ])?;
        let core = Core {
            instruction_cache: Cache::new(config.instruction_cache)?,
            contexts: vec![None; config.contexts_per_core],
            turn: 0,
        };
        let bus = MemoryBus::new(config.memory_latency_cycles, config.memory_bits_per_cycle)?;
        let apart = DataCaches::apart(config.cores, config.data_cache)?;
        let data_caches = if config.coherent { apart.coherent()? } else { apart };
        Ok(Self { config, cores: vec![core; config.cores], data_caches, bus, now: 0 })
    }

    /// The data caches of all cores.
    pub fn data_caches(&self) -> &DataCaches {
        &self.data_caches
    }

    /// The data caches of all cores, mutable.
    pub fn data_caches_mut(&mut self) -> &mut DataCaches {
        &mut self.data_caches
    }

    /// Runs a program, its first thread on the first context, until that thread halts. Returns the cycles.
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
        for context in self.cores.iter_mut().flat_map(|core| &mut core.contexts) {
            *context = None;
        }
        let threads = Threads::new(ThreadState::new(Thread::new(), self.now, program)?);
        let mut run = Run { program, memory, observer, threads };
        self.place(0, 0);
        while !run.threads.halted {
            if self.now - start >= limit {
                return Err(SimulationError::TooLong { cycles: limit });
            }
            let mut idle = true;
            for core in 0..self.cores.len() {
                idle &= !self.swap_in(core, &mut run);
                idle &= !self.issue(core, &mut run)?;
            }
            self.now = if idle { self.next_event(&run.threads) } else { self.now + 1 };
        }
        Ok(self.now - start)
    }

    /// The next cycle in which a core may be active, after an idle one. Waiting threads wait for memory, for a time,
    /// for a swap, or for another thread, which waits itself.
    fn next_event(&self, threads: &Threads) -> u64 {
        let contexts = self.cores.iter().flat_map(|core| &core.contexts).flatten();
        let ready = contexts.map(|thread| {
            let state = &threads.all[*thread];
            state.next_issue.max(state.operands_ready)
        });
        let swap = (self.now + 1).next_multiple_of(self.config.swap_interval_cycles);
        let next = ready.filter(|at| *at > self.now).chain([swap]).min();
        // Without such an event, a lock released in the previous cycle becomes free in this one.
        next.unwrap_or(self.now + 1)
    }

    /// Gives a thread a context. Returns whether one was free.
    fn place(&mut self, thread: ThreadNumber, spawner: usize) -> bool {
        let free = |core: &Core| core.contexts.iter().filter(|context| context.is_none()).count();
        let core = match self.config.spawning {
            // The first core among equals.
            Spawning::Far => self.cores.iter_mut().rev().max_by_key(|core| free(core)),
            Spawning::Near => {
                let (before, from) = self.cores.split_at_mut(spawner);
                from.iter_mut().chain(before).find(|core| free(core) > 0)
            }
        };
        let Some(core) = core else { return false };
        match core.contexts.iter_mut().find(|context| context.is_none()) {
            Some(context) => {
                *context = Some(thread);
                true
            }
            None => false,
        }
    }

    /// Fills a core's free contexts with waiting threads, at the swap interval or if no context is active. Returns
    /// whether a thread was swapped in.
    ///
    /// Threads keep their context: no thread may pass another, so exchanging a thread for a later one never helps.
    fn swap_in<O: Observer>(&mut self, core: usize, run: &mut Run<O>) -> bool {
        if run.threads.waiting.is_empty() || self.cores[core].contexts.iter().all(Option::is_some) {
            return false;
        }
        let mut threads = self.cores[core].contexts.iter().flatten();
        if !self.now.is_multiple_of(self.config.swap_interval_cycles)
            && threads.any(|thread| run.threads.is_active(*thread, self.now))
        {
            return false;
        }
        let mut ready = self.now;
        for context in self.cores[core].contexts.iter_mut().filter(|context| context.is_none()) {
            let Some(thread) = run.threads.waiting.pop_front() else { break };
            ready += self.config.swap_cycles;
            run.threads.all[thread].next_issue = ready;
            *context = Some(thread);
        }
        true
    }

    /// Issues an instruction of the first context with a ready one, beginning at the core's turn. A spinning context
    /// uses the slot to try its lock. Returns whether a context issued, spun or requested an instruction.
    fn issue<O: Observer>(&mut self, core: usize, run: &mut Run<O>) -> Result<bool, SimulationError> {
        let mut asked = false;
        let contexts = self.config.contexts_per_core;
        for offset in 0..contexts {
            let mut context = self.cores[core].turn + offset;
            if context >= contexts {
                context -= contexts;
            }
            let Some(thread) = self.cores[core].contexts[context] else { continue };
            if run.threads.is_ready(thread, self.now) {
                if !self.fetch(core, thread, run) {
                    asked = true;
                    continue;
                }
            } else if self.config.waiting_spins && run.threads.awaits_lock(thread, self.now) {
                self.cores[core].turn = (context + 1) % contexts;
                return Ok(true);
            } else {
                continue;
            }
            run.observer.on_issue(self.now, core, thread);
            self.cores[core].turn = (context + 1) % contexts;
            self.execute(core, context, thread, run)?;
            return Ok(true);
        }
        Ok(asked)
    }

    /// Whether a thread's next instruction is in the core's cache. Requests it if it is not.
    fn fetch<O: Observer>(&mut self, core: usize, thread: ThreadNumber, run: &mut Run<O>) -> bool {
        let state = &mut run.threads.all[thread];
        let address = CODE + 4 * state.thread.at() as u32;
        let hit = self.config.instruction_cache.hit_cycles;
        let cache = &mut self.cores[core].instruction_cache;
        let ready = cache.access(self.now, address, false, &mut self.bus, run.observer);
        if ready > self.now + hit {
            state.next_issue = ready - hit;
        }
        ready <= self.now + hit
    }

    fn execute<O: Observer>(
        &mut self,
        core: usize,
        context: usize,
        thread: ThreadNumber,
        run: &mut Run<O>,
    ) -> Result<(), SimulationError> {
        let now = self.now;
        let state = &mut run.threads.all[thread];
        let executed = state.thread.step(run.program, run.memory)?;
        state.next_issue = now + 1;
        let mut ready = now + 1;
        if let Some(access) = executed.access {
            let bus = &mut self.bus;
            ready = match access.kind {
                AccessKind::Uncached => bus.read(now, WORD_BYTES, run.observer),
                _ => self.data_caches.access(core, now, access.address, access.changes(), bus, run.observer),
            };
        }
        for name in executed.operands.destinations() {
            state.ready.set(name, ready);
        }
        if executed.is_taken() {
            state.next_issue += self.config.taken_branch_cycles;
        }
        match executed.instruction {
            Instruction::Spawn(target) => {
                state.next_issue = now + self.config.spawn_cycles;
                let child = state.thread.spawned(target);
                self.spawn(child, core, run)?;
            }
            Instruction::Halt => {
                self.cores[core].contexts[context] = None;
                run.threads.running -= 1;
                run.threads.halted = thread == 0;
            }
            Instruction::Lock(_) | Instruction::Enter(_) => state.next_issue = now + self.config.lock_cycles,
            // The thread has the item once it has the line.
            Instruction::TakeFull(..) => state.next_issue = ready.max(now + self.config.lock_cycles),
            _ => {}
        }
        if executed.instruction != Instruction::Halt {
            run.threads.all[thread].look_ahead(run.program)?;
        }
        run.note_locks(thread, &executed, now);
        if self.config.locks == Locks::Reserved
            && let Some(access) = executed.access.filter(Access::changes)
        {
            run.break_reservations(thread, access.address, self.config.data_cache.line_bytes);
        }
        Ok(())
    }

    /// Starts a thread in a free context, or has it wait for one. Threads that already wait go first: a later thread
    /// would take a context and wait for them there.
    fn spawn<O: Observer>(
        &mut self,
        child: Thread,
        spawner: usize,
        run: &mut Run<O>,
    ) -> Result<(), SimulationError> {
        let number = run.threads.all.len();
        run.threads.all.push(ThreadState::new(child, self.now + self.config.spawn_cycles, run.program)?);
        run.threads.running += 1;
        if !run.threads.waiting.is_empty() || !self.place(number, spawner) {
            run.threads.waiting.push_back(number);
        }
        Ok(())
    }
}

/// Bytes of one read from a FIFO.
const WORD_BYTES: u32 = 4;

/// A thread and its state in an in-order core.
struct ThreadState {
    thread: Thread,
    /// Cycle from which each register can be read.
    ready: Scoreboard<u64>,
    /// First cycle in which the next instruction can be issued.
    next_issue: u64,
    /// The next instruction.
    next: Instruction,
    /// Cycle from which all its operands are ready. Only the thread itself changes it.
    operands_ready: u64,
}

impl ThreadState {
    fn new(thread: Thread, next_issue: u64, program: &Program) -> Result<Self, SimulationError> {
        let mut state = Self {
            thread,
            ready: Scoreboard::new(0),
            next_issue,
            next: Instruction::Halt,
            operands_ready: 0,
        };
        state.look_ahead(program)?;
        Ok(state)
    }

    fn look_ahead(&mut self, program: &Program) -> Result<(), SimulationError> {
        let (next, operands) = self.thread.peek(program)?;
        self.next = *next;
        self.operands_ready = 0;
        for name in operands.sources() {
            self.operands_ready = self.operands_ready.max(self.ready.get(name));
        }
        for name in operands.destinations() {
            self.operands_ready = self.operands_ready.max(self.ready.get(name));
        }
        Ok(())
    }
}

/// Cycle from which each lock is free, by word address; 0 for a lock that was never taken.
#[derive(Default)]
struct LockTimes(Vec<u64>);

impl LockTimes {
    fn free_from(&self, address: u32) -> u64 {
        self.0.get(address as usize / 4).copied().unwrap_or(0)
    }

    /// Sets the cycle from which a lock is free. The address is that of an item, of which there are at most
    /// [`crate::benchmark::MAX_ITEMS`], so the vector stays bounded.
    fn set(&mut self, address: u32, free_from: u64) {
        let word = address as usize / 4;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] = free_from;
    }
}

struct Threads {
    all: Vec<ThreadState>,
    /// Threads without a context, in order.
    waiting: VecDeque<ThreadNumber>,
    /// Number of threads that have not halted, including the first one.
    running: usize,
    /// Number of threads that have entered the list. The first of them is thread 1: thread 0 spawns them.
    entered: usize,
    locks: LockTimes,
    halted: bool,
}

impl Threads {
    fn new(first: ThreadState) -> Self {
        Self {
            all: vec![first],
            waiting: VecDeque::new(),
            running: 1,
            entered: 0,
            locks: LockTimes::default(),
            halted: false,
        }
    }

    /// Whether a thread does not wait for other threads. A thread that waits for memory is active.
    fn is_active(&self, thread: ThreadNumber, now: u64) -> bool {
        let state = &self.all[thread];
        let is_free = |register| self.locks.free_from(state.thread.register(register)) <= now;
        match state.next {
            Instruction::Enter(register) => self.entered + 1 == thread && is_free(register),
            Instruction::Lock(register) | Instruction::TakeFull(_, register) => is_free(register),
            Instruction::Join => self.running == 1,
            _ => true,
        }
    }

    /// Whether a thread waits only for a lock.
    fn awaits_lock(&self, thread: ThreadNumber, now: u64) -> bool {
        let state = &self.all[thread];
        now >= state.next_issue
            && matches!(state.next, Instruction::Lock(_) | Instruction::Enter(_))
            && !self.is_active(thread, now)
    }

    /// Whether a thread's next instruction can be issued, if the instruction cache has it.
    fn is_ready(&self, thread: ThreadNumber, now: u64) -> bool {
        let state = &self.all[thread];
        state.next_issue.max(state.operands_ready) <= now && self.is_active(thread, now)
    }
}

/// One run's program, contents of memory and threads.
struct Run<'a, O> {
    program: &'a Program,
    memory: &'a mut ProcessorMemory,
    observer: &'a mut O,
    threads: Threads,
}

impl<O: Observer> Run<'_, O> {
    /// Records the locks that an executed instruction took or released.
    fn note_locks(&mut self, thread: ThreadNumber, executed: &Executed, now: u64) {
        let register = |register| self.threads.all[thread].thread.register(register);
        match executed.instruction {
            Instruction::Lock(at) | Instruction::Enter(at) | Instruction::TakeFull(_, at) => {
                let address = register(at);
                if matches!(executed.instruction, Instruction::Enter(_)) {
                    self.threads.entered += 1;
                }
                self.threads.locks.set(address, u64::MAX);
                self.observer.on_lock(now, thread, address);
            }
            Instruction::Unlock(at) | Instruction::LeaveFull(_, at) => {
                let address = register(at);
                self.threads.locks.set(address, now + 1);
                self.observer.on_unlock(now, thread, address);
            }
            // These locks are words in memory, so `locks` does not have them.
            Instruction::StoreConditional(..) => {
                if let Some(access) = executed.access {
                    self.observer.on_lock(now, thread, access.address);
                }
            }
            Instruction::StoreRelease(..) => {
                if let Some(access) = executed.access {
                    self.observer.on_unlock(now, thread, access.address);
                }
            }
            _ => {}
        }
    }

    /// Cancels the reservations of all other threads in a line.
    fn break_reservations(&mut self, writer: ThreadNumber, written: u32, line_bytes: u32) {
        let line = written / line_bytes;
        for (thread, state) in self.threads.all.iter_mut().enumerate() {
            let reserved = state.thread.reservation();
            if thread != writer && reserved.is_some_and(|address| address / line_bytes == line) {
                state.thread.lose_reservation();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::instruction::Condition::{Equal, NotEqual};
    use crate::instruction::Instruction::*;
    use crate::instruction::r;

    fn warm_cycles(config: MultithreadedConfig, instructions: &[Instruction]) -> u64 {
        let program = Program::new(instructions.to_vec());
        let (mut processor, mut memory) = (Multithreaded::new(config).unwrap(), ProcessorMemory::new(4096));
        processor.run(&program, &mut memory, 100_000, &mut ()).unwrap();
        processor.run(&program, &mut memory, 100_000, &mut ()).unwrap()
    }

    fn one_core() -> MultithreadedConfig {
        MultithreadedConfig::one_core()
    }

    #[test]
    fn a_thread_issues_once_a_cycle_and_waits_after_a_taken_branch() {
        let chain = [[AddImmediate(r(3), r(3), 1); 20].as_slice(), &[Halt]].concat();
        assert_eq!(warm_cycles(one_core(), &chain), 21);
        assert_eq!(
            warm_cycles(one_core(), &[Branch(1), Branch(2), Halt]),
            3,
            "a branch to the next instruction counts as not taken"
        );
        assert_eq!(warm_cycles(one_core(), &[Branch(2), Halt, Halt]), 4);
    }

    #[test]
    fn an_operand_from_memory_stalls_at_its_first_use() {
        let cycles = |last| {
            let program =
                Program::new(vec![LoadWord(r(3), 64, r(4)), AddImmediate(r(5), r(5), 1), last, Halt]);
            let (mut processor, mut memory) =
                (Multithreaded::new(one_core()).unwrap(), ProcessorMemory::new(4096));
            processor.run(&program, &mut memory, 1000, &mut ()).unwrap();
            processor.data_caches_mut().invalidate(0..4096);
            processor.run(&program, &mut memory, 1000, &mut ()).unwrap()
        };
        assert_eq!(cycles(AddImmediate(r(5), r(5), 1)), 4, "no instruction waits");
        // 10 cycles to the first half of the line, 1 to the second; then the use and the halt.
        assert_eq!(cycles(AddImmediate(r(5), r(3), 1)), 13);
    }

    /// Threads that each count to 40, in parallel.
    fn counting(threads: usize) -> Vec<Instruction> {
        let child = threads + 2;
        let mut program = vec![Spawn(child); threads];
        program.extend([Join, Halt]);
        program.extend([AddImmediate(r(3), r(3), 1); 40]);
        program.push(Halt);
        program
    }

    #[test]
    fn threads_share_a_core_or_run_on_their_own_cores() {
        let spawns = one_core().spawn_cycles;
        let alone = warm_cycles(one_core(), &counting(1));
        assert_eq!(alone, spawns + 41 + 2, "spawn, 41 instructions, join, halt");
        let shared = warm_cycles(one_core(), &counting(4));
        assert!((4 * 41..4 * 41 + 20).contains(&shared), "{shared}: one issue slot for four");
        let spread = warm_cycles(MultithreadedConfig::sixteen_cores(), &counting(4));
        assert_eq!(spread, 4 * spawns + 41 + 2, "all threads in parallel");
    }

    #[test]
    fn threads_without_a_context_are_swapped_in() {
        let narrow = MultithreadedConfig { contexts_per_core: 2, ..one_core() };
        // The first thread keeps a context. Each of the others takes the second context once its predecessor has ended.
        let (two, three) = (warm_cycles(narrow, &counting(2)), warm_cycles(narrow, &counting(3)));
        // The third spawn takes an issue slot from the first child.
        assert_eq!(three - two, 1 + narrow.swap_cycles + 41);
        let slow = MultithreadedConfig { swap_cycles: 100, ..narrow };
        assert_eq!(warm_cycles(slow, &counting(3)) - three, 2 * 90);
    }

    #[test]
    fn an_active_context_delays_swapping_to_the_interval() {
        // The first thread does not wait. The second child is swapped in at the interval, or after the first child's
        // end.
        let program = |busy: usize| {
            let child = busy + 4;
            let mut program = vec![Spawn(child), Spawn(child)];
            program.extend(vec![AddImmediate(r(3), r(3), 1); busy]);
            program.extend([Join, Halt]);
            program.extend([AddImmediate(r(3), r(3), 1); 40]);
            program.push(Halt);
            program
        };
        let narrow = MultithreadedConfig { contexts_per_core: 2, ..one_core() };
        let never = MultithreadedConfig { swap_interval_cycles: 1 << 40, ..narrow };
        let often = MultithreadedConfig { swap_interval_cycles: 64, ..narrow };
        assert!(warm_cycles(often, &program(500)) < warm_cycles(never, &program(500)));
    }

    #[test]
    fn a_lock_is_held_by_one() {
        // Two threads hold the same lock, or different locks, for 40 instructions each.
        let program = |second: i16| {
            let mut program = vec![
                LoadImmediate(r(4), 64),
                Spawn(5),
                LoadImmediate(r(4), second),
                Spawn(5),
                Branch(48),
                Lock(r(4)),
            ];
            program.extend([AddImmediate(r(3), r(3), 1); 40]);
            program.extend([Unlock(r(4)), Halt, Join, Halt]);
            program
        };
        let sixteen = MultithreadedConfig::sixteen_cores();
        let (same, different) = (warm_cycles(sixteen, &program(64)), warm_cycles(sixteen, &program(128)));
        assert!(same > different + 30, "{same} and {different}");
    }

    #[test]
    fn threads_that_spin_take_slots_from_their_neighbours() {
        let program = {
            let mut program = vec![LoadImmediate(r(4), 64)];
            program.extend([Spawn(7); 4]);
            program.extend([Join, Halt, Enter(r(4))]);
            program.extend([AddImmediate(r(3), r(3), 1); 40]);
            program.extend([Unlock(r(4)), Halt]);
            program
        };
        let asleep = warm_cycles(one_core(), &program);
        let spinning = warm_cycles(MultithreadedConfig { waiting_spins: true, ..one_core() }, &program);
        assert!(spinning > 2 * asleep, "{spinning} and {asleep}");
    }

    /// The core on which each thread has issued.
    #[derive(Default)]
    struct Cores(BTreeMap<ThreadNumber, usize>);

    impl Observer for Cores {
        fn on_issue(&mut self, _cycle: u64, core: usize, thread: ThreadNumber) {
            let before = self.0.insert(thread, core);
            assert!(before.is_none_or(|before| before == core), "thread {thread} went to another core");
        }
    }

    #[test]
    fn a_thread_starts_near_or_far() {
        let cores = |spawning, threads| {
            let config = MultithreadedConfig { spawning, ..MultithreadedConfig::sixteen_cores() };
            let (mut processor, mut seen) = (Multithreaded::new(config).unwrap(), Cores::default());
            let program = Program::new(counting(threads));
            processor.run(&program, &mut ProcessorMemory::new(4096), 10_000, &mut seen).unwrap();
            seen.0.into_values().collect::<Vec<_>>()
        };
        assert_eq!(
            cores(Spawning::Near, 5),
            [0, 0, 0, 0, 1, 1],
            "free contexts next to the first thread's are used first"
        );
        assert_eq!(cores(Spawning::Far, 5), [0, 1, 2, 3, 4, 5], "one core for each thread");
    }

    #[test]
    fn words_of_a_fifo_are_read_in_order_and_not_cached() {
        let program = Program::new(vec![
            FifoTake(r(3), r(10)),
            FifoTake(r(4), r(10)),
            FifoTake(r(5), r(10)),
            AddImmediate(r(6), r(5), 0),
            StoreWord(r(6), 256, r(10)),
            Halt,
        ]);
        let mut memory = ProcessorMemory::new(4096);
        let (mut processor, mut observer) = (Multithreaded::new(one_core()).unwrap(), ());
        for round in 0..2 {
            // The FIFO at 0 has its words at 64.
            memory.write(0, &64_u32.to_be_bytes()).unwrap();
            memory.write(72, &(77_u32 + round).to_be_bytes()).unwrap();
            let cycles = processor.run(&program, &mut memory, 1000, &mut observer).unwrap();
            assert_eq!(memory.word(256), Ok(77 + round));
            // The second run has the program in its cache: 2 cycles before the last read, 10 for it, three
            // instructions.
            assert!(round == 0 || cycles == 2 + 10 + 3, "{cycles}");
        }
        assert_eq!(processor.data_caches().cache(0).unwrap().counts().misses, 1, "the store");
    }

    /// Threads that each take a lock at 64, count to 40 and release the lock.
    fn holding(threads: usize, take: &[Instruction], give: &[Instruction]) -> Vec<Instruction> {
        let child = threads + 3;
        let mut program = vec![LoadImmediate(r(4), 64)];
        program.extend(vec![Spawn(child); threads]);
        program.extend([Join, Halt]);
        program.extend_from_slice(take);
        program.extend([AddImmediate(r(3), r(3), 1); 40]);
        program.extend_from_slice(give);
        program.push(Halt);
        program
    }

    #[test]
    fn a_lock_in_memory_costs_a_line_from_another_core() {
        let program = holding(3, &[TakeFull(0, r(4))], &[LeaveFull(0, r(4))]);
        let sixteen = MultithreadedConfig { locks: Locks::FullEmpty, ..MultithreadedConfig::sixteen_cores() };
        let coherent = MultithreadedConfig { coherent: true, ..sixteen };
        // The lock's line moves three times, first from the last thread of the previous run. Each move takes memory's
        // latency and the transfer of 256 bits, instead of a hit of one cycle.
        assert_eq!(warm_cycles(coherent, &program) - warm_cycles(sixteen, &program), 3 * 9);
        let near = MultithreadedConfig { spawning: Spawning::Near, ..coherent };
        let (mut processor, mut memory) = (Multithreaded::new(near).unwrap(), ProcessorMemory::new(4096));
        processor.run(&Program::new(program), &mut memory, 1000, &mut ()).unwrap();
        assert_eq!(processor.data_caches().invalidations(), 0, "all threads are on one core");
    }

    #[test]
    fn a_reservation_is_lost_if_another_thread_writes_the_line() {
        let spin = 7;
        let take = [
            LoadImmediate(r(12), 0),
            LoadReserved(r(11), r(4)),
            CompareImmediate(r(11), 0),
            BranchIf(Equal, spin),
            StoreConditional(r(12), r(4)),
            BranchIf(NotEqual, spin),
        ];
        // A count in memory, which would lose increments if two threads held the lock.
        let give = [
            LoadWord(r(5), 128, r(4)),
            AddImmediate(r(5), r(5), 1),
            StoreWord(r(5), 128, r(4)),
            LoadImmediate(r(11), 1),
            StoreRelease(r(11), 0, r(4)),
        ];
        let program = Program::new(holding(3, &take, &give));
        let config = MultithreadedConfig {
            locks: Locks::Reserved,
            coherent: true,
            ..MultithreadedConfig::sixteen_cores()
        };
        let mut memory = ProcessorMemory::new(4096);
        memory.write(64, &1_u32.to_be_bytes()).unwrap();
        let mut processor = Multithreaded::new(config).unwrap();
        for round in 1..=4 {
            processor.run(&program, &mut memory, 10_000, &mut ()).unwrap();
            assert_eq!(memory.word(192), Ok(3 * round));
        }
    }

    #[test]
    fn waiting_for_a_lock_forever_is_an_error() {
        let program = Program::new(vec![LoadImmediate(r(4), 64), Lock(r(4)), Lock(r(4)), Halt]);
        let (mut processor, mut memory) = (Multithreaded::new(one_core()).unwrap(), ProcessorMemory::new(16));
        assert_eq!(
            processor.run(&program, &mut memory, 500, &mut ()),
            Err(SimulationError::TooLong { cycles: 500 })
        );
    }
}
