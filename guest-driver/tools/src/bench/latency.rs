//! The distribution of samples.

use serde::Serialize;

use crate::Failure;

/// Memory for the times of `samples` round trips, one word each.
///
/// # Errors
/// [`Failure::Usage`] if the guest's memory cannot hold them.
pub fn room_for(samples: u64) -> Result<Vec<u64>, Failure> {
    let mut room = Vec::new();
    let is_there = usize::try_from(samples).is_ok_and(|samples| room.try_reserve_exact(samples).is_ok());
    let refused = || format!("no memory for the times of {samples} round trips, 8 bytes each: request fewer");
    is_there.then_some(room).ok_or_else(|| Failure::Usage(refused()))
}

/// Percentiles of round trips, in nanoseconds of wall time. The p-th percentile is the smallest sample that at least p
/// percent of the samples do not exceed (nearest rank), so it is always a measured sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Smallest.
    pub min_wall_ns: u64,
    /// Median.
    pub p50_wall_ns: u64,
    /// 90 %.
    pub p90_wall_ns: u64,
    /// 99 %.
    pub p99_wall_ns: u64,
    /// 99.9 %.
    pub p999_wall_ns: u64,
    /// Largest.
    pub max_wall_ns: u64,
}

impl Latency {
    /// Sorts `samples` and computes their percentiles; `None` if there are none.
    pub fn of(samples: &mut [u64]) -> Option<Self> {
        samples.sort_unstable();
        let rank = |per_mille: usize| {
            let rank = (samples.len() * per_mille).div_ceil(1000).max(1);
            samples.get(rank - 1).copied()
        };
        Some(Self {
            min_wall_ns: *samples.first()?,
            p50_wall_ns: rank(500)?,
            p90_wall_ns: rank(900)?,
            p99_wall_ns: rank(990)?,
            p999_wall_ns: rank(999)?,
            max_wall_ns: *samples.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_samples_than_memory_holds_are_refused() {
        assert!(room_for(1_000).expect("8,000 bytes").capacity() >= 1_000);
        let refused = room_for(u64::MAX / 16).expect_err("more than any memory").to_string();
        assert!(refused.contains("of 1152921504606846975 round trips"), "{refused}");
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut samples: Vec<u64> = (1..=1000).rev().collect();
        let latency = Latency::of(&mut samples).expect("samples");
        assert_eq!(
            latency,
            Latency {
                min_wall_ns: 1,
                p50_wall_ns: 500,
                p90_wall_ns: 900,
                p99_wall_ns: 990,
                p999_wall_ns: 999,
                max_wall_ns: 1000,
            }
        );
        let one = Latency::of(&mut [7]).expect("a sample");
        assert_eq!((one.min_wall_ns, one.p50_wall_ns, one.p999_wall_ns, one.max_wall_ns), (7, 7, 7, 7));
        assert_eq!(Latency::of(&mut []), None);
    }
}
