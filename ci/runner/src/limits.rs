//! Decides when a command hangs. Sans-IO: samples in, a verdict out.
//!
//! A machine may be slow and busy with other work, so wall time alone says little. A blocked command uses no processor
//! time; a command in an endless loop uses much of it. Both are measured since the last progress. A limit on wall time
//! catches commands that wake up now and then without progress.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A process tree counts as blocked if it uses less than 1 / `BLOCKED_SHARE` of the window as processor time.
const BLOCKED_SHARE: u32 = 50;

/// How long a command may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall time during which it may use almost no processor time.
    pub blocked: Duration,
    /// Processor time of all its threads and children together.
    pub processor: Duration,
    /// Wall time, in any state.
    pub wall: Duration,
}

/// The state of a command at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Wall time since the beginning.
    pub at: Duration,
    /// Processor time of the tree since its beginning.
    pub processor: Duration,
    /// Whether a thread runs or waits for a processor. On a busy machine the wait may be long, and is no hang.
    pub is_runnable: bool,
    /// Increases with each progress.
    pub progress: usize,
}

/// How a command hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// It used almost no processor time for this time.
    Blocked(Duration),
    /// It used this processor time.
    Busy(Duration),
    /// It used some processor time, without progress, for this wall time.
    Slow(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked(time) => {
                write!(f, "blocked for {} s, almost without processor time", time.as_secs())
            }
            Self::Busy(time) => write!(f, "busy for {} s of processor time without progress", time.as_secs()),
            Self::Slow(time) => write!(f, "without progress for {} s of wall time", time.as_secs()),
        }
    }
}

/// Checks samples until one of them shows a hang.
#[derive(Debug)]
pub struct Detector {
    limits: Limits,
    /// The sample of the last progress.
    origin: Sample,
    /// The samples since then, no older than the window of [`Limits::blocked`].
    window: VecDeque<Sample>,
}

impl Detector {
    /// The state before the first sample.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, origin: Sample::default(), window: VecDeque::from([Sample::default()]) }
    }

    /// Takes the next sample, in order of time.
    pub fn look(&mut self, sample: Sample) -> Option<Hang> {
        if sample.progress != self.origin.progress {
            self.origin = sample;
            self.window.clear();
        }
        self.window.push_back(sample);
        if let Some(first) = self.blocked_since() {
            let blocked = sample.at.saturating_sub(first.at);
            if sample.processor.saturating_sub(first.processor) < blocked / BLOCKED_SHARE
                && !self.is_starved()
            {
                return Some(Hang::Blocked(blocked));
            }
        }
        let busy = sample.processor.saturating_sub(self.origin.processor);
        if busy >= self.limits.processor {
            return Some(Hang::Busy(busy));
        }
        let slow = sample.at.saturating_sub(self.origin.at);
        (slow >= self.limits.wall).then_some(Hang::Slow(slow))
    }

    /// The youngest sample that is at least as old as the window. Drops older ones.
    fn blocked_since(&mut self) -> Option<Sample> {
        let now = self.window.back()?.at;
        let is_old = |sample: &Sample| now.saturating_sub(sample.at) >= self.limits.blocked;
        while self.window.get(1).is_some_and(is_old) {
            self.window.pop_front();
        }
        self.window.front().copied().filter(is_old)
    }

    /// Whether the command waits for a processor: in most samples of the window a thread could run.
    fn is_starved(&self) -> bool {
        2 * self.window.iter().filter(|sample| sample.is_runnable).count() > self.window.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        blocked: Duration::from_secs(300),
        processor: Duration::from_secs(1200),
        wall: Duration::from_secs(2400),
    };

    /// The first hang, and its second, of a command that uses `millis` of processor time in each second.
    fn hang(
        millis: impl Fn(u64) -> u64,
        is_runnable: impl Fn(u64) -> bool,
        progress: impl Fn(u64) -> usize,
    ) -> Option<(u64, Hang)> {
        let mut detector = Detector::new(LIMITS);
        let mut processor = Duration::ZERO;
        (1..10_000).find_map(|second| {
            processor += Duration::from_millis(millis(second));
            let sample = Sample {
                at: Duration::from_secs(second),
                processor,
                is_runnable: is_runnable(second),
                progress: progress(second),
            };
            detector.look(sample).map(|hang| (second, hang))
        })
    }

    #[test]
    fn endless_sleep_counts_as_blocked() {
        let (second, hang) = hang(|_| 0, |_| false, |_| 0).expect("it hangs");
        assert_eq!((second, hang), (300, Hang::Blocked(Duration::from_secs(300))));
    }

    #[test]
    fn slow_polling_counts_as_blocked() {
        // It computes first, and then some samples see a wake-up.
        let (second, hang) = hang(
            |second| if second < 50 { 900 } else { 10 },
            |second| second < 50 || second % 10 == 0,
            |_| 0,
        )
        .expect("it hangs");
        assert!((345..=365).contains(&second) && matches!(hang, Hang::Blocked(_)), "{second} {hang}");
    }

    #[test]
    fn endless_loop_counts_as_busy() {
        assert_eq!(hang(|_| 2000, |_| true, |_| 0), Some((600, Hang::Busy(Duration::from_secs(1200)))));
    }

    #[test]
    fn little_work_without_progress_ends_at_the_wall_limit() {
        assert_eq!(hang(|_| 100, |_| false, |_| 0), Some((2400, Hang::Slow(Duration::from_secs(2400)))));
    }

    #[test]
    fn waiting_for_a_processor_is_not_blocked() {
        let (second, _) = hang(|_| 1, |_| true, |_| 0).expect("at the wall");
        assert_eq!(second, 2400);
    }

    #[test]
    fn progress_restarts_all_limits() {
        assert_eq!(hang(|_| 0, |_| false, |second| second as usize / 299), None);
        assert_eq!(hang(|_| 2000, |_| true, |second| second as usize / 599), None);
        let (second, _) = hang(|_| 0, |_| false, |second| second.min(1000) as usize / 100).expect("later");
        assert_eq!(second, 1300);
    }
}
