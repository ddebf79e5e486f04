//! First-level caches and memory.
//!
//! A cache is set-associative with least-recently-used replacement. It writes back, allocates on writes, and does not
//! block: a line in flight has a cycle from which it can be used, and other accesses proceed. Data that the network
//! writes is invalidated in all caches ([`Cache::invalidate`]). [`crate::coherence`] keeps the caches of several cores
//! coherent.

use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

use crate::Observer;

/// A cache that cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "a cache of {size_bytes} bytes cannot have {ways} ways of {line_bytes}-byte lines; size, ways and line must be \
     powers of two, and a line at least 4 bytes"
)]
pub struct CacheError {
    size_bytes: u32,
    ways: u32,
    line_bytes: u32,
}

/// A memory with an impossible width.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("memory must move at least 8 bits a cycle, in whole bytes; the configuration has {bits_per_cycle}")]
pub struct BandwidthError {
    bits_per_cycle: u32,
}

/// The shape of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Size of its data, in bytes.
    pub size_bytes: u32,
    /// Lines of a set.
    pub ways: u32,
    /// Size of a line. Neither table of the paper has it: 32 bytes as in the PowerPC 440, whose 32 KB with 64 ways the
    /// paper's table 2 repeats.
    pub line_bytes: u32,
    /// Time from access to data on a hit.
    pub hit_cycles: u64,
}

/// Memory: the latency of a line's first part, and the bytes of each cycle. All caches of a machine share it.
#[derive(Clone, Debug)]
pub struct MemoryBus {
    latency_cycles: u64,
    bytes_per_cycle: u64,
    free_from: u64,
}

impl MemoryBus {
    /// An idle memory.
    ///
    /// # Errors The width is impossible.
    pub fn new(latency_cycles: u64, bits_per_cycle: u32) -> Result<Self, BandwidthError> {
        if bits_per_cycle == 0 || !bits_per_cycle.is_multiple_of(8) {
            return Err(BandwidthError { bits_per_cycle });
        }
        Ok(Self { latency_cycles, bytes_per_cycle: u64::from(bits_per_cycle / 8), free_from: 0 })
    }

    /// Occupies the data path for a transfer whose first part could move at `earliest`, in the order of requests.
    /// Returns the cycle of its last part.
    fn occupy(&mut self, earliest: u64, bytes: u32, observer: &mut impl Observer) -> u64 {
        let first = earliest.max(self.free_from);
        let cycles = u64::from(bytes).div_ceil(self.bytes_per_cycle);
        self.free_from = first + cycles;
        observer.on_transfer(first..self.free_from, bytes);
        self.free_from - 1
    }

    /// Requests a line or uncached data at `now`. Returns the cycle in which it is complete.
    pub(crate) fn read(&mut self, now: u64, bytes: u32, observer: &mut impl Observer) -> u64 {
        self.occupy(now + self.latency_cycles, bytes, observer)
    }

    /// Broadcasts an invalidation at `now`, which carries no data and takes one cycle of the path. Returns the cycle in
    /// which the other caches have received it: their latency is that of memory.
    pub(crate) fn announce(&mut self, now: u64, observer: &mut impl Observer) -> u64 {
        self.occupy(now + self.latency_cycles, 1, observer)
    }

    /// Writes a line back. Only later transfers wait for it, because it occupies the data path.
    fn write(&mut self, now: u64, bytes: u32, observer: &mut impl Observer) {
        self.occupy(now, bytes, observer);
    }
}

#[derive(Clone, Debug)]
struct Line {
    number: u32,
    dirty: bool,
    /// Cycle in which its data has arrived.
    ready: u64,
}

/// Counts of a cache since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Accesses to a line that was present or in flight.
    pub hits: u64,
    /// Accesses to a line that had to be requested.
    pub misses: u64,
    /// Evictions of changed lines.
    pub write_backs: u64,
}

/// The result of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accessed {
    /// Cycle from which its data can be used.
    pub ready: u64,
    /// The line that was evicted for it.
    pub left: Option<u32>,
}

/// One first-level cache. It tracks the lines that are present; [`crate::memory`] has their contents.
#[derive(Clone, Debug)]
pub struct Cache {
    config: CacheConfig,
    /// Lines of each set, most recently used first.
    sets: Vec<VecDeque<Line>>,
    counts: CacheCounts,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// The shape is impossible.
    pub fn new(config: CacheConfig) -> Result<Self, CacheError> {
        let CacheConfig { size_bytes, ways, line_bytes, .. } = config;
        let powers = [size_bytes, ways, line_bytes].iter().all(|value| value.is_power_of_two());
        let set_bytes = ways.checked_mul(line_bytes).filter(|bytes| *bytes <= size_bytes);
        match set_bytes {
            Some(set_bytes) if powers && line_bytes >= 4 => {
                let sets = (size_bytes / set_bytes) as usize;
                Ok(Self { config, sets: vec![VecDeque::new(); sets], counts: CacheCounts::default() })
            }
            _ => Err(CacheError { size_bytes, ways, line_bytes }),
        }
    }

    /// Its counts.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// The set of a line. The number of sets is a power of two.
    fn set(&mut self, number: u32) -> &mut VecDeque<Line> {
        let mask = self.sets.len() - 1;
        &mut self.sets[number as usize & mask]
    }

    /// Uses the line of an address at `now`. Returns the cycle from which its data can be used.
    pub fn access(
        &mut self,
        now: u64,
        address: u32,
        is_store: bool,
        bus: &mut MemoryBus,
        observer: &mut impl Observer,
    ) -> u64 {
        self.access_line(now, self.line_of(address), is_store, bus, observer).ready
    }

    /// The number of an address's line.
    pub(crate) fn line_of(&self, address: u32) -> u32 {
        address / self.config.line_bytes
    }

    /// Like [`Cache::access`], with the number of a line. Also returns the line that was evicted.
    pub(crate) fn access_line(
        &mut self,
        now: u64,
        number: u32,
        is_store: bool,
        bus: &mut MemoryBus,
        observer: &mut impl Observer,
    ) -> Accessed {
        let CacheConfig { ways, line_bytes, hit_cycles, .. } = self.config;
        let mut left = None;
        let set = self.set(number);
        // Optimization: the most recently used line is often used next, and stays in front.
        if let Some(line) = set.front_mut().filter(|line| line.number == number) {
            line.dirty |= is_store;
            let ready = line.ready.max(now + hit_cycles);
            self.counts.hits += 1;
            return Accessed { ready, left };
        }
        let line = match set.iter().position(|line| line.number == number).and_then(|at| set.remove(at)) {
            Some(line) => {
                set.push_front(Line { dirty: line.dirty || is_store, ..line.clone() });
                self.counts.hits += 1;
                line
            }
            None => {
                let evicted = if set.len() == ways as usize { set.pop_back() } else { None };
                let line = Line { number, dirty: is_store, ready: bus.read(now, line_bytes, observer) };
                set.push_front(line.clone());
                self.counts.misses += 1;
                left = evicted.as_ref().map(|line| line.number);
                if evicted.is_some_and(|line| line.dirty) {
                    self.counts.write_backs += 1;
                    bus.write(now, line_bytes, observer);
                }
                line
            }
        };
        Accessed { ready: line.ready.max(now + hit_cycles), left }
    }

    /// Cycle in which a line's data has arrived, if the cache has the line and has changed it.
    pub(crate) fn changed_line(&self, number: u32) -> Option<u64> {
        let set = self.sets.get(number as usize & (self.sets.len() - 1))?;
        set.iter().find(|line| line.number == number && line.dirty).map(|line| line.ready)
    }

    /// Marks a line as unchanged, because memory has its data.
    pub(crate) fn clean_line(&mut self, number: u32) {
        for line in self.set(number).iter_mut().filter(|line| line.number == number) {
            line.dirty = false;
        }
    }

    /// Blocks a present line until `ready`.
    pub(crate) fn hold_line(&mut self, number: u32, ready: u64) {
        for line in self.set(number).iter_mut().filter(|line| line.number == number) {
            line.ready = line.ready.max(ready);
        }
    }

    /// Drops a line, because another cache now has it exclusively. Changes in this cache are lost.
    pub(crate) fn drop_line(&mut self, number: u32) {
        self.set(number).retain(|line| line.number != number);
    }

    /// Drops the lines of a range of addresses, because another device has written their memory. Changes in this cache
    /// are lost.
    pub fn invalidate(&mut self, addresses: Range<u32>) {
        let line_bytes = self.config.line_bytes;
        for set in &mut self.sets {
            set.retain(|line| {
                let first = line.number * line_bytes;
                first + (line_bytes - 1) < addresses.start || first >= addresses.end
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: CacheConfig = CacheConfig { size_bytes: 256, ways: 4, line_bytes: 16, hit_cycles: 1 };

    fn bus() -> MemoryBus {
        MemoryBus::new(10, 128).unwrap()
    }

    #[test]
    fn a_miss_takes_latency_and_width_and_a_hit_one_cycle() {
        let (mut cache, mut bus) = (Cache::new(CacheConfig { line_bytes: 32, ..SHAPE }).unwrap(), bus());
        assert_eq!(
            cache.access(100, 64, false, &mut bus, &mut ()),
            111,
            "10 cycles to the first half of 32 bytes"
        );
        assert_eq!(cache.access(102, 68, false, &mut bus, &mut ()), 111, "the line is in flight");
        assert_eq!(cache.access(200, 95, false, &mut bus, &mut ()), 201);
        assert_eq!(cache.counts(), CacheCounts { hits: 2, misses: 1, write_backs: 0 });
    }

    #[test]
    fn misses_share_the_width_of_memory() {
        let (mut cache, mut bus) = (Cache::new(CacheConfig { line_bytes: 32, ..SHAPE }).unwrap(), bus());
        let ready: Vec<u64> =
            (0..3).map(|line| cache.access(0, line * 32, false, &mut bus, &mut ())).collect();
        assert_eq!(ready, [11, 13, 15]);
    }

    #[test]
    fn a_changed_line_is_written_back_when_it_leaves() {
        let (mut cache, mut bus) = (Cache::new(SHAPE).unwrap(), bus());
        cache.access(0, 0, true, &mut bus, &mut ());
        for line in 1..=4 {
            cache.access(100, line * 64, false, &mut bus, &mut ());
        }
        assert_eq!(cache.counts(), CacheCounts { hits: 0, misses: 5, write_backs: 1 });
    }

    #[test]
    fn data_written_by_the_network_is_invalidated() {
        let (mut cache, mut bus) = (Cache::new(SHAPE).unwrap(), bus());
        for line in 0..4 {
            cache.access(0, line * 16, false, &mut bus, &mut ());
        }
        cache.invalidate(20..33);
        for line in 0..4 {
            cache.access(100, line * 16, false, &mut bus, &mut ());
        }
        assert_eq!(cache.counts(), CacheCounts { hits: 2, misses: 6, write_backs: 0 });
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for shape in [
            CacheConfig { ways: 0, ..SHAPE },
            CacheConfig { ways: 32, ..SHAPE },
            CacheConfig { line_bytes: 24, ..SHAPE },
            CacheConfig { line_bytes: 2, ..SHAPE },
            CacheConfig { size_bytes: 0, ..SHAPE },
            CacheConfig { ways: 1 << 31, line_bytes: 1 << 31, ..SHAPE },
        ] {
            assert!(Cache::new(shape).is_err(), "{shape:?}");
        }
        assert!(MemoryBus::new(10, 0).is_err());
        assert!(MemoryBus::new(10, 4).is_err());
    }

    proptest! {
        /// Compares the cache with a plain list per set, most recent first.
        #[test]
        fn replacement_is_least_recently_used(accesses in prop::collection::vec((0u32..1024, any::<bool>()), 1..300)) {
            let (mut cache, mut bus) = (Cache::new(SHAPE).unwrap(), bus());
            let mut plain: Vec<Vec<u32>> = vec![Vec::new(); 4];
            for (address, is_store) in accesses {
                let line = address / 16;
                let set = &mut plain[(line % 4) as usize];
                let hit = set.contains(&line);
                set.retain(|other| *other != line);
                set.insert(0, line);
                set.truncate(4);
                let before = cache.counts();
                cache.access(0, address, is_store, &mut bus, &mut ());
                prop_assert_eq!(cache.counts().hits - before.hits, u64::from(hit));
                prop_assert_eq!(cache.counts().misses - before.misses, u64::from(!hit));
            }
        }

        /// Transfers on the data path do not overlap, and none is faster than memory's latency.
        #[test]
        fn bandwidth_is_never_exceeded(
            width in prop::sample::select(vec![8u32, 64, 128, 256]),
            requests in prop::collection::vec((0u64..5, 0u32..4096), 1..100),
        ) {
            struct Transfers(Vec<(Range<u64>, u32)>);
            impl Observer for Transfers {
                fn on_transfer(&mut self, cycles: Range<u64>, bytes: u32) {
                    self.0.push((cycles, bytes));
                }
            }
            let (mut cache, mut bus) = (Cache::new(SHAPE).unwrap(), MemoryBus::new(10, width).unwrap());
            let (mut now, mut seen) = (0, Transfers(Vec::new()));
            for (pause, address) in requests {
                now += pause;
                let ready = cache.access(now, address, false, &mut bus, &mut seen);
                prop_assert!(ready > now);
            }
            let mut end = 0;
            for (cycles, bytes) in seen.0 {
                prop_assert!(cycles.start >= end);
                prop_assert!((cycles.end - cycles.start) * u64::from(width) >= u64::from(bytes) * 8);
                end = cycles.end;
            }
        }
    }
}
