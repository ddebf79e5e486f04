//! The speed at which this computer simulates the match unit: cycles of model time for each second of processor time.
//! Processor time is wall time without the core's time for other programs.
//!
//! Constants: ours.

use std::fmt;
use std::time::Duration;

use niclab_model::models::matching::fifo::Fifos;
use niclab_model::models::matching::list_manager::Timing;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::benchmark::LISTS;
use crate::match_unit::{self, MatchUnitError};

/// Processor time of one measurement.
const ROUND: Duration = Duration::from_millis(200);
/// Minimum number of cycles between two readings of the clock.
const BATCH_CYCLES: u64 = 100_000;

/// The rate of one configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Length of the list that the list manager streams; None for the unit alone.
    pub items: Option<u32>,
    /// Cycles of the match unit for each second of processor time, in each round.
    pub model_cycles_per_processor_s: Vec<f64>,
    /// Share of these cycles that the automaton simulated: for the unit alone by its nodes, otherwise by steps from
    /// entity to entity.
    pub automated_share: f64,
}

/// The rates of all configurations, measured in interleaved rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// The rates; the unit alone comes first.
    pub rates: Vec<Rate>,
}

impl Rates {
    /// Measures all configurations in `rounds` rounds.
    ///
    /// # Errors A benchmark of the match unit fails.
    pub fn measure(rounds: u32) -> Result<Self, MatchUnitError> {
        let ways = std::iter::once(None).chain([1].into_iter().chain(LISTS).map(Some));
        let empty = |items| Rate { items, model_cycles_per_processor_s: Vec::new(), automated_share: 0.0 };
        let mut rates: Vec<Rate> = ways.map(empty).collect();
        for _ in 0..rounds {
            for rate in &mut rates {
                let (measured, share) = rate.items.map_or_else(alone, with_list)?;
                rate.model_cycles_per_processor_s.push(measured);
                rate.automated_share += share / f64::from(rounds);
            }
        }
        Ok(Self { rates })
    }
}

/// Feeds the unit a word a cycle. Returns cycles a second, and the automaton's share of them.
fn alone() -> Result<(f64, f64), MatchUnitError> {
    let (mut unit, words) = (match_unit::unit()?, match_unit::stream());
    let mut fifos = Fifos::new(Timing::default().fifo_words);
    let mut feed = words.as_slice();
    let rate = per_second(|| {
        let begin = unit.cycles();
        while unit.cycles() < begin + BATCH_CYCLES {
            let now = unit.cycles();
            while fifos.take_output(now).is_some() {}
            if feed.is_empty() {
                feed = &words;
            }
            let burst = unit.run(&mut fifos, feed, now, BATCH_CYCLES);
            feed = feed.get(burst.sent..).unwrap_or_default();
        }
        Ok(unit.cycles() - begin)
    })?;
    Ok((rate, unit.automated() as f64 / unit.cycles() as f64))
}

/// Measures the unit with a list, at whose end all headers match. Returns the same as [`alone`].
fn with_list(items: u32) -> Result<(f64, f64), MatchUnitError> {
    let mut manager = match_unit::machine(items, Timing::default())?;
    let rate = per_second(|| {
        let begin = manager.cycle();
        while manager.cycle() < begin + BATCH_CYCLES {
            match_unit::pass(&mut manager, items - 1)?;
        }
        Ok(manager.cycle() - begin)
    })?;
    Ok((rate, manager.walked() as f64 / manager.cycle() as f64))
}

/// Runs the match unit on a list of `items` for at least `cycles` cycles of model time. Returns their number.
///
/// # Errors A benchmark of the match unit fails.
pub fn work(items: u32, cycles: u64) -> Result<u64, MatchUnitError> {
    let items = items.max(1);
    let mut manager = match_unit::machine(items, Timing::default())?;
    while manager.cycle() < cycles {
        match_unit::pass(&mut manager, items - 1)?;
    }
    Ok(manager.cycle())
}

/// Repeats `cycles`, which returns its model cycles, until [`ROUND`] is over. Returns the model cycles per second.
fn per_second(mut cycles: impl FnMut() -> Result<u64, MatchUnitError>) -> Result<f64, MatchUnitError> {
    let (begin, mut sum) = (processor_time(), 0);
    loop {
        sum += cycles()?;
        let took = processor_time().saturating_sub(begin);
        if took >= ROUND {
            return Ok(sum as f64 / took.as_secs_f64());
        }
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "million cycles of the match unit for each second of processor time, by round, and the automaton's share \
             of them"
        )?;
        for rate in &self.rates {
            match rate.items {
                None => write!(f, "{:<32}", "the unit alone")?,
                Some(items) => write!(f, "{:<32}", format!("with the list manager, {items} items"))?,
            }
            for rate in &rate.model_cycles_per_processor_s {
                write!(f, "{:>8.1}", rate / 1e6)?;
            }
            writeln!(f, "{:>8.1} %", 100.0 * rate.automated_share)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_measured_in_every_round() {
        let Rates { rates } = Rates::measure(2).unwrap();
        assert_eq!(rates.len(), 2 + LISTS.len());
        assert!(rates.iter().all(|rate| rate.model_cycles_per_processor_s.len() == 2));
        assert!(rates.iter().all(|rate| rate.automated_share > 0.95), "{rates:?}");
        assert!(rates.iter().flat_map(|rate| &rate.model_cycles_per_processor_s).all(|rate| *rate > 0.0));
    }
}
