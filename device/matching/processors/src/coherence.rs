//! The data caches of several cores, which are either independent or coherent.
//!
//! With coherent caches, a changed line is in only one cache. Before a core writes, all other caches drop the line. The
//! invalidation goes over the shared path and takes memory's latency, unless no other cache has the line. A core that
//! reads a line that another core has changed gets it over the same path, once the other core has it; memory gets it,
//! too.
//!
//! The paper says that cores have their own caches (table 3), but not how these are kept coherent. It has only the
//! latencies of memory and of the first level.
//!
//! The model knows the holders of each line exactly and at once. A real machine learns them from snoops, some of which
//! are spurious.
//!
//! Constants: ours.

use std::ops::Range;

use thiserror::Error;

use crate::Observer;
use crate::cache::{Cache, CacheConfig, CacheError, MemoryBus};

/// Maximum number of coherent cores: one bit of a word for each.
pub const MAX_COHERENT_CORES: usize = 64;

/// Too many cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{cores} cores cannot be kept coherent; choose at most {MAX_COHERENT_CORES}")]
pub struct TooManyCores {
    cores: usize,
}

/// One cache for each core.
#[derive(Clone, Debug)]
pub struct DataCaches {
    caches: Vec<Cache>,
    /// For coherent caches: the cores that have each line, as a bit mask.
    holders: Option<Vec<u64>>,
    invalidations: u64,
}

impl DataCaches {
    /// Empty independent caches, one for each core.
    ///
    /// # Errors
    /// The shape is impossible.
    pub fn apart(cores: usize, shape: CacheConfig) -> Result<Self, CacheError> {
        Ok(Self { caches: vec![Cache::new(shape)?; cores], holders: None, invalidations: 0 })
    }

    /// Makes empty caches coherent.
    ///
    /// # Errors Too many cores.
    pub fn coherent(self) -> Result<Self, TooManyCores> {
        let cores = self.caches.len();
        if cores > MAX_COHERENT_CORES {
            return Err(TooManyCores { cores });
        }
        Ok(Self { holders: Some(Vec::new()), ..self })
    }

    /// The cache of a core.
    pub fn cache(&self, core: usize) -> Option<&Cache> {
        self.caches.get(core)
    }

    /// Number of lines that a cache dropped because another core wrote them.
    pub fn invalidations(&self) -> u64 {
        self.invalidations
    }

    /// Drops the lines of a range of addresses in all caches, because another device has written their memory.
    pub fn invalidate(&mut self, addresses: Range<u32>) {
        for cache in &mut self.caches {
            cache.invalidate(addresses.clone());
        }
        let (Some(holders), Some(cache)) = (&mut self.holders, self.caches.first()) else { return };
        let lines = cache.line_of(addresses.start)..=cache.line_of(addresses.end.saturating_sub(1));
        for line in lines.filter(|_| !addresses.is_empty()) {
            if let Some(mask) = holders.get_mut(line as usize) {
                *mask = 0;
            }
        }
    }

    /// A core reads or changes the line of an address at `now`; a change needs the line exclusively. Returns the cycle
    /// from which the core can use the line.
    pub fn access(
        &mut self,
        core: usize,
        now: u64,
        address: u32,
        changes: bool,
        bus: &mut MemoryBus,
        observer: &mut impl Observer,
    ) -> u64 {
        let Some(holders) = &mut self.holders else {
            return self.caches[core].access(now, address, changes, bus, observer);
        };
        let number = self.caches[core].line_of(address);
        let (line, own) = (number as usize, 1_u64 << core);
        if holders.len() <= line {
            holders.resize(line + 1, 0);
        }
        let others = holders[line] & !own;
        let mut from = now;
        if others != 0 && (changes || holders[line] & own == 0) {
            // A changed line is in only one cache, and can leave it once it has arrived there.
            if others.is_power_of_two() {
                let other = &mut self.caches[others.trailing_zeros() as usize];
                if let Some(ready) = other.changed_line(number) {
                    from = from.max(ready);
                    other.clean_line(number);
                }
            }
        }
        if changes && others != 0 {
            for (other, cache) in self.caches.iter_mut().enumerate() {
                if others & 1 << other != 0 {
                    cache.drop_line(number);
                }
            }
            self.invalidations += u64::from(others.count_ones());
            if holders[line] & own != 0 {
                let heard = bus.announce(now, observer);
                self.caches[core].hold_line(number, heard);
            }
            holders[line] &= own;
        }
        holders[line] |= own;
        let accessed = self.caches[core].access_line(from, number, changes, bus, observer);
        if let Some(mask) = accessed.left.and_then(|left| holders.get_mut(left as usize)) {
            *mask &= !own;
        }
        accessed.ready
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::CacheCounts;

    const SHAPE: CacheConfig = CacheConfig { size_bytes: 256, ways: 4, line_bytes: 32, hit_cycles: 1 };

    fn coherent(cores: usize) -> (DataCaches, MemoryBus) {
        let caches = DataCaches::apart(cores, SHAPE).unwrap().coherent().unwrap();
        (caches, MemoryBus::new(10, 128).unwrap())
    }

    #[test]
    fn a_write_invalidates_all_other_copies_of_its_line() {
        let (mut caches, mut bus) = coherent(3);
        let mut at = |core, now, changes| caches.access(core, now, 64, changes, &mut bus, &mut ());
        assert_eq!((at(0, 0, false), at(1, 100, false)), (11, 111), "both read it from memory");
        assert_eq!(at(0, 200, true), 210, "the other core drops it: 10 cycles, and no line moves");
        assert_eq!(at(0, 300, true), 301, "no other core has it");
        assert_eq!(at(1, 400, false), 411, "from the other core, as from memory");
        assert_eq!((at(0, 500, false), at(1, 500, false)), (501, 501), "both cores have it");
        assert_eq!(at(2, 600, true), 611, "a line from memory, and both other cores drop theirs");
        assert_eq!(at(0, 700, true), 711);
        assert_eq!(caches.invalidations(), 4);
    }

    #[test]
    fn a_changed_line_moves_on_once_it_has_arrived() {
        let (mut caches, mut bus) = coherent(2);
        assert_eq!(caches.access(0, 0, 64, true, &mut bus, &mut ()), 11);
        // The request comes while the line is in flight to the first core, which then supplies it.
        assert_eq!(caches.access(1, 1, 64, false, &mut bus, &mut ()), 11 + 11);
    }

    #[test]
    fn independent_caches_do_not_affect_each_other() {
        let (mut caches, mut bus) = (DataCaches::apart(2, SHAPE).unwrap(), MemoryBus::new(10, 128).unwrap());
        for now in [0, 100] {
            for core in 0..2 {
                caches.access(core, now, 64, true, &mut bus, &mut ());
            }
        }
        let expected = CacheCounts { hits: 1, misses: 1, write_backs: 0 };
        assert!((0..2).all(|core| caches.cache(core).unwrap().counts() == expected));
    }

    #[test]
    fn more_cores_than_bits_are_refused() {
        let caches = |cores| DataCaches::apart(cores, SHAPE).unwrap().coherent();
        assert!(caches(64).is_ok());
        assert_eq!(caches(65).unwrap_err().cores, 65);
    }

    /// The plain model: the lines in each core's cache, newest first in each set, and the write that each line has.
    #[derive(Default)]
    struct Plain {
        /// Lines by core and set.
        sets: BTreeMap<(usize, u32), Vec<Copied>>,
        /// The last write of each line. `memory` has the last write that memory has.
        last: BTreeMap<u32, u64>,
        memory: BTreeMap<u32, u64>,
    }

    /// A line in a cache.
    #[derive(Clone, Copy)]
    struct Copied {
        line: u32,
        /// The write whose data it has.
        write: u64,
        /// Whether memory lacks that write.
        changed: bool,
    }

    /// Sets of [`SHAPE`].
    const SETS: u32 = 2;

    impl Plain {
        /// Returns whether the line was present, and the number of other caches that dropped it.
        fn access(&mut self, cores: usize, core: usize, line: u32, write: Option<u64>) -> (bool, u64) {
            let set = line % SETS;
            let (has, mut lost) = (self.seen(core, line).is_some(), 0);
            for other in (0..cores).filter(|other| *other != core) {
                let entries = self.sets.entry((other, set)).or_default();
                let Some(at) = entries.iter().position(|entry| entry.line == line) else { continue };
                if entries[at].changed && (write.is_some() || !has) {
                    self.memory.insert(line, entries[at].write);
                    entries[at].changed = false;
                }
                if write.is_some() {
                    entries.remove(at);
                    lost += 1;
                }
            }
            let entries = self.sets.entry((core, set)).or_default();
            let mut entry = match entries.iter().position(|entry| entry.line == line) {
                Some(at) => entries.remove(at),
                None => Copied { line, write: self.memory.get(&line).copied().unwrap_or(0), changed: false },
            };
            if let Some(write) = write {
                entry = Copied { line, write, changed: true };
                self.last.insert(line, write);
            }
            entries.insert(0, entry);
            if entries.len() > 4
                && let Some(gone) = entries.pop()
                && gone.changed
            {
                self.memory.insert(gone.line, gone.write);
            }
            (has, lost)
        }

        /// The write whose data a core's copy has.
        fn seen(&self, core: usize, line: u32) -> Option<u64> {
            let entries = self.sets.get(&(core, line % SETS))?;
            entries.iter().find(|entry| entry.line == line).map(|entry| entry.write)
        }
    }

    proptest! {
        /// Hits, misses, write-backs and invalidations equal those of the plain model, in which a core always reads the
        /// last write. A changed line is in only one cache.
        #[test]
        fn no_core_reads_stale_data(
            accesses in prop::collection::vec((0usize..3, 0u32..14, any::<bool>(), 0u64..4), 1..300),
        ) {
            let (mut caches, mut bus) = coherent(3);
            let (mut plain, mut now) = (Plain::default(), 0);
            for (number, (core, line, changes, pause)) in (1..).zip(accesses) {
                now += pause;
                let before = caches.cache(core).unwrap().counts();
                let invalidations = caches.invalidations();
                let ready = caches.access(core, now, line * 32 + 5, changes, &mut bus, &mut ());
                let (hit, lost) = plain.access(3, core, line, changes.then_some(number));
                let after = caches.cache(core).unwrap().counts();
                prop_assert_eq!(plain.seen(core, line), plain.last.get(&line).copied().or(Some(0)));
                prop_assert_eq!(after.hits - before.hits, u64::from(hit));
                prop_assert_eq!(after.misses - before.misses, u64::from(!hit));
                prop_assert_eq!(caches.invalidations() - invalidations, lost);
                // No transfer over the path is faster than memory.
                prop_assert!(ready > now && ((hit && lost == 0) || ready >= now + 10));
                for line in 0..14 {
                    let changed = (0..3).filter(|core| caches.cache(*core).unwrap().changed_line(line).is_some());
                    let holders = (0..3).filter(|core| plain.seen(*core, line).is_some()).count();
                    let changed = changed.count();
                    prop_assert!(changed == 0 || (changed == 1 && holders == 1));
                }
            }
        }
    }
}
