//! How fast this computer simulates the match unit: cycles of model time for each second that a core works on it. That
//! is wall time less what other programs take of the core meanwhile.
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
/// Looks at the clock are this many cycles apart, at least.
const BATCH_CYCLES: u64 = 100_000;

/// One way to run the unit.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// The unit alone, or the length of the list that its list manager streams.
    pub items: Option<u32>,
    /// Cycles of the match unit for each second of processor time, in each round.
    pub model_cycles_per_processor_s: Vec<f64>,
    /// How much of all these cycles went by the automaton: of the unit alone by its nodes, else by steps from entity to
    /// entity.
    pub automated_share: f64,
}

/// All ways, measured in turns.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// The unit alone first.
    pub rates: Vec<Rate>,
}

impl Rates {
    /// Measures, in so many rounds.
    ///
    /// # Errors
    /// When the unit does not work.
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

/// The unit is fed a word a cycle. Cycles a second, and the share of them that were the automaton's.
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

/// All headers match at the end of the list.
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

/// Has the match unit pass a list of `items` until it has worked for so many cycles of model time, and says for how
/// many.
///
/// # Errors
/// When the unit does not work.
pub fn work(items: u32, cycles: u64) -> Result<u64, MatchUnitError> {
    let items = items.max(1);
    let mut manager = match_unit::machine(items, Timing::default())?;
    while manager.cycle() < cycles {
        match_unit::pass(&mut manager, items - 1)?;
    }
    Ok(manager.cycle())
}

/// Repeats what takes some cycles until [`ROUND`] is over.
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

/// What this thread has had of a core so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "million cycles of the match unit for each second of a core's time, round by round, and how many of a hundred were the \
             automaton's"
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
    fn every_way_is_measured_in_every_round() {
        let Rates { rates } = Rates::measure(2).unwrap();
        assert_eq!(rates.len(), 2 + LISTS.len());
        assert!(rates.iter().all(|rate| rate.model_cycles_per_processor_s.len() == 2));
        assert!(rates.iter().all(|rate| rate.automated_share > 0.95), "{rates:?}");
        assert!(rates.iter().flat_map(|rate| &rate.model_cycles_per_processor_s).all(|rate| *rate > 0.0));
    }
}
