//! No machine exceeds the limits of its tables in a cycle, and threads keep the order of messages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use niclab_processors::benchmark::Processor;
use niclab_processors::comparison::Machines;
use niclab_processors::embedded::EmbeddedConfig;
use niclab_processors::layout::{self, Header, Item, PUT, flag};
use niclab_processors::multithreaded::{MultithreadedConfig, Spawning, ThreadNumber};
use niclab_processors::program::Locks;
use niclab_processors::{Machine, Observer, Occupancy, RunError, run};

fn list(items: u32) -> Vec<Item> {
    (0..items)
        .map(|index| Item {
            match_bits: u64::from(index),
            dont_ignore: u64::MAX,
            nid: 0,
            pid: 7,
            flags: flag::VALID | flag::PUTS,
            threshold: 1,
            length: 4096,
            local_offset: 0,
            max_size: 0,
        })
        .collect()
}

/// Runs two passes to the end of a list, the second one with warm caches.
fn observe(machine: Machine, items: u32, observer: &mut impl Observer) {
    let mut memory = layout::memory(&list(items), machine.placement()).expect("a short list");
    let mut processor = Processor::new(machine).expect("a possible machine");
    let header =
        Header { match_bits: u64::from(items - 1), pid: 7, operation: PUT, length: 8, remote_offset: 0 };
    for _ in 0..2 {
        processor.pass(&mut memory, &header, 1_000_000, observer).expect("a pass that ends");
    }
}

#[derive(Default)]
struct Maxima {
    issued: usize,
    committed: usize,
    alus: usize,
    ports: usize,
    ruu: usize,
    lsq: usize,
}

impl Observer for Maxima {
    fn on_cycle(&mut self, now: &Occupancy) {
        self.issued = self.issued.max(now.issued);
        self.committed = self.committed.max(now.committed);
        self.alus = self.alus.max(now.alus);
        self.ports = self.ports.max(now.ports);
        self.ruu = self.ruu.max(now.ruu);
        self.lsq = self.lsq.max(now.lsq);
    }
}

#[test]
fn the_embedded_processor_reaches_but_keeps_its_limits() {
    let config = EmbeddedConfig::default();
    let mut maxima = Maxima::default();
    observe(Machine::Embedded(config), 30, &mut maxima);
    assert_eq!(
        (maxima.issued, maxima.committed, maxima.alus, maxima.ports, maxima.lsq),
        (config.issue_width, config.commit_width, config.integer_alus, config.memory_ports, config.lsq)
    );
    // The program has enough loads to fill the LSQ before the RUU.
    assert!(maxima.ruu <= config.ruu && maxima.ruu > config.lsq, "{}", maxima.ruu);
    let mut maxima = Maxima::default();
    observe(Machine::Embedded(EmbeddedConfig { lsq: 64, ..config }), 30, &mut maxima);
    assert_eq!(maxima.ruu, config.ruu);
}

#[derive(Default)]
struct Slots {
    cycle: u64,
    cores: BTreeSet<usize>,
    threads: BTreeSet<ThreadNumber>,
    max_cores: usize,
    path_free_from: u64,
}

impl Observer for Slots {
    fn on_issue(&mut self, cycle: u64, core: usize, thread: ThreadNumber) {
        if cycle != self.cycle {
            *self = Self {
                cycle,
                max_cores: self.max_cores,
                path_free_from: self.path_free_from,
                ..Self::default()
            };
        }
        assert!(self.cores.insert(core), "core {core} issues twice in cycle {cycle}");
        assert!(self.threads.insert(thread), "thread {thread} is in two places in cycle {cycle}");
        self.max_cores = self.max_cores.max(self.cores.len());
    }

    fn on_transfer(&mut self, cycles: Range<u64>, bytes: u32) {
        assert!(cycles.start >= self.path_free_from, "two transfers at once");
        assert!((cycles.end - cycles.start) * 32 >= u64::from(bytes), "more than 256 bits in a cycle");
        self.path_free_from = cycles.end;
    }
}

#[test]
fn cores_and_memory_keep_their_limits_per_cycle() {
    let config = MultithreadedConfig::sixteen_cores();
    // A cache of four lines, so that memory is busy.
    let small = niclab_processors::cache::CacheConfig { size_bytes: 128, ways: 4, ..config.data_cache };
    let mut slots = Slots::default();
    observe(Machine::Multithreaded(MultithreadedConfig { data_cache: small, ..config }), 100, &mut slots);
    assert!(slots.max_cores > 10, "cores issue in the same cycle: {}", slots.max_cores);
}

/// The positions of threads in the list.
#[derive(Default)]
struct Order {
    holders: BTreeMap<u32, ThreadNumber>,
    /// The last thread to take each item's lock.
    last: BTreeMap<u32, ThreadNumber>,
    /// The cycle in which each lock was released.
    given_back: BTreeMap<u32, u64>,
    locks: usize,
}

impl Observer for Order {
    fn on_lock(&mut self, cycle: u64, thread: ThreadNumber, address: u32) {
        // Thread 0 takes the first item's lock in memory for the thread that it spawns next.
        let thread = match thread {
            0 => self.last.get(&address).copied().unwrap_or(0) % 64 + 1,
            thread => thread,
        };
        let other = self.holders.insert(address, thread);
        assert_eq!(other, None, "two threads at item {address:#x} in cycle {cycle}");
        let given_back = self.given_back.get(&address);
        assert!(given_back.is_none_or(|then| *then < cycle), "a lock is released and taken in cycle {cycle}");
        let before = self.last.insert(address, thread);
        // Every thread goes to the end of the list, so each item sees all threads, in order and pass by pass.
        assert_eq!(before.unwrap_or(0) % 64 + 1, thread, "a thread was passed at item {address:#x}");
        self.locks += 1;
    }

    fn on_unlock(&mut self, cycle: u64, thread: ThreadNumber, address: u32) {
        self.given_back.insert(address, cycle);
        assert_eq!(self.holders.remove(&address), Some(thread), "a lock is released by its holder");
    }
}

#[test]
fn threads_do_not_pass_each_other_or_share_an_item() {
    let from_memory = Machines::from_memory().multithreaded;
    let [_, two, sixteen] = from_memory;
    let mut configs = vec![
        MultithreadedConfig::one_core(),
        MultithreadedConfig::two_cores(),
        MultithreadedConfig::sixteen_cores(),
        MultithreadedConfig { waiting_spins: true, ..MultithreadedConfig::sixteen_cores() },
        // Fewer contexts than threads, with frequent swaps.
        MultithreadedConfig { swap_interval_cycles: 7, ..MultithreadedConfig::two_cores() },
        MultithreadedConfig { contexts_per_core: 2, ..MultithreadedConfig::two_cores() },
        MultithreadedConfig { contexts_per_core: 2, swap_interval_cycles: 7, ..two },
        MultithreadedConfig { spawning: Spawning::Far, ..sixteen },
    ];
    configs.extend(from_memory);
    configs.extend(from_memory.map(|config| MultithreadedConfig { locks: Locks::Reserved, ..config }));
    for config in configs {
        let mut order = Order::default();
        observe(Machine::Multithreaded(config), 20, &mut order);
        assert_eq!(order.locks, 2 * 64 * 20);
        assert!(order.holders.is_empty(), "a lock was not released");
    }
}

#[test]
fn the_same_run_takes_the_same_cycles() {
    for machine in [
        Machine::Embedded(EmbeddedConfig::default()),
        Machine::Multithreaded(MultithreadedConfig::sixteen_cores()),
        Machine::Multithreaded(Machines::from_memory().multithreaded[2]),
    ] {
        assert_eq!(run(machine, 30), run(machine, 30));
    }
}

#[test]
fn passes_go_from_the_first_item_to_the_last() {
    let passes = run(Machine::Embedded(EmbeddedConfig::default()), 30).unwrap();
    let traversed: Vec<u32> = passes.iter().map(|pass| pass.items_traversed).collect();
    assert_eq!(traversed, [30, 1, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30]);
    assert_eq!(passes[0].percent, None);
    assert!(passes[0].model_cycles > passes[11].model_cycles, "the first pass fills the caches");
}

#[test]
fn lists_of_invalid_length_are_refused() {
    let machine = Machine::Embedded(EmbeddedConfig::default());
    for items in [0, 4097, u32::MAX] {
        assert_eq!(run(machine, items), Err(RunError::ListLength { items }));
    }
}
