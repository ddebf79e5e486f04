//! First-level caches and the memory behind them.
//!
//! A cache is set-associative with least-recently-used replacement, writes back, allocates on writes, and does not
//! block: a line that is on its way has a cycle from which it can be used, and other accesses go on. What the network
//! writes is invalidated everywhere ([`Cache::invalidate`]); what cores know of each other's caches is the business of
//! [`crate::coherence`].

use std::collections::VecDeque;
use std::ops::Range;

use thiserror::Error;

use crate::Observer;

/// A cache that cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "no cache has {size_bytes} bytes in {ways} ways of {line_bytes}-byte lines; size, ways and line must be powers of \
     two, and a line at least 4 bytes"
)]
pub struct CacheError {
    size_bytes: u32,
    ways: u32,
    line_bytes: u32,
}

/// A memory with no latency or no width.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("memory must move at least 8 bits a cycle, in whole bytes; {bits_per_cycle} were asked for")]
pub struct BandwidthError {
    bits_per_cycle: u32,
}

/// The shape of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Its data, in bytes.
    pub size_bytes: u32,
    /// Lines of a set.
    pub ways: u32,
    /// The line. Neither table of the paper says: 32 bytes, as the PowerPC 440 has, whose 32 KB with 64 ways the
    /// paper's table 2 repeats.
    pub line_bytes: u32,
    /// From access to data on a hit.
    pub hit_cycles: u64,
}

/// Memory: how long the first part of a line takes, and how much comes each cycle. Shared by all caches of a machine.
#[derive(Clone, Debug)]
pub struct MemoryBus {
    latency_cycles: u64,
    bytes_per_cycle: u64,
    free_from: u64,
}

impl MemoryBus {
    /// An idle memory.
    ///
    /// # Errors
    /// It has no width.
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

    /// Asks for a line, or for what no cache keeps, at `now`; returns the cycle in which it is complete.
    pub(crate) fn read(&mut self, now: u64, bytes: u32, observer: &mut impl Observer) -> u64 {
        self.occupy(now + self.latency_cycles, bytes, observer)
    }

    /// Tells all others something at `now`, which carries no data and takes a cycle of the path. Returns the cycle in
    /// which they have heard it: they are as far away as memory.
    pub(crate) fn announce(&mut self, now: u64, observer: &mut impl Observer) -> u64 {
        self.occupy(now + self.latency_cycles, 1, observer)
    }

    /// Writes a line back; nobody waits for it but those who want the data path.
    fn write(&mut self, now: u64, bytes: u32, observer: &mut impl Observer) {
        self.occupy(now, bytes, observer);
    }
}

#[derive(Clone, Debug)]
struct Line {
    number: u32,
    dirty: bool,
    /// When its data has come.
    ready: u64,
}

/// What a cache has seen since it was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Accesses to a line that was there or on its way.
    pub hits: u64,
    /// Accesses to a line that had to be asked for.
    pub misses: u64,
    /// Changed lines that had to leave.
    pub write_backs: u64,
}

/// What an access came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accessed {
    /// From when its data can be used.
    pub ready: u64,
    /// The line that had to leave for it.
    pub left: Option<u32>,
}

/// One first-level cache. It holds no data, only which lines are there: contents are in [`crate::memory`].
#[derive(Clone, Debug)]
pub struct Cache {
    config: CacheConfig,
    /// Lines of each set, the one used last in front.
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

    /// What it has seen.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// The set of a line; there is a power of two of them.
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

    /// The same as [`Cache::access`] of a line by its number, and which line had to leave for it.
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
        // The line used last is often used next: it stays in front.
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

    /// If a line is here and changed: when its data has come.
    pub(crate) fn changed_line(&self, number: u32) -> Option<u64> {
        let set = self.sets.get(number as usize & (self.sets.len() - 1))?;
        set.iter().find(|line| line.number == number && line.dirty).map(|line| line.ready)
    }

    /// Memory has what was changed in a line, too.
    pub(crate) fn clean_line(&mut self, number: u32) {
        for line in self.set(number).iter_mut().filter(|line| line.number == number) {
            line.dirty = false;
        }
    }

    /// A line that is here cannot be used before `ready`.
    pub(crate) fn hold_line(&mut self, number: u32, ready: u64) {
        for line in self.set(number).iter_mut().filter(|line| line.number == number) {
            line.ready = line.ready.max(ready);
        }
    }

    /// Drops a line, because another cache has it for itself from now on. What was changed here is lost.
    pub(crate) fn drop_line(&mut self, number: u32) {
        self.set(number).retain(|line| line.number != number);
    }

    /// Drops the lines of a range of addresses, because something else has written their memory. What was changed
    /// here is lost.
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
        assert_eq!(cache.access(100, 64, false, &mut bus, &mut ()), 111, "10 to the first half of 32 bytes");
        assert_eq!(cache.access(102, 68, false, &mut bus, &mut ()), 111, "the line is on its way");
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
    fn what_the_network_wrote_is_not_in_the_cache() {
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
        /// Against a plain list per set, newest first.
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

        /// No two transfers on the data path at once, and none before memory's latency.
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
