//! When something hangs. Sans-IO: samples in, a verdict out.
//!
//! A machine may be slow and busy with other things, so that wall time alone says little. What makes no progress and is
//! blocked uses no processor; what goes round in circles uses much of it. Both are measured from the last progress on.
//! The wall time is the last resort, for what wakes up now and then without getting anywhere.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Of the time of a window, below which a process tree counts as blocked: 1 / this.
const BLOCKED_SHARE: u32 = 50;

/// How long something may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall time for which it may do next to nothing.
    pub blocked: Duration,
    /// Processor time that it may use, all threads and children together.
    pub processor: Duration,
    /// Wall time, whatever it does.
    pub wall: Duration,
}

/// What it looks like at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Wall time since the beginning.
    pub at: Duration,
    /// Processor time of the tree since its beginning.
    pub processor: Duration,
    /// Whether a thread runs or waits for a processor: on a busy machine that may take long, and is no hang.
    pub is_runnable: bool,
    /// Counts up at each progress.
    pub progress: usize,
}

/// What it does instead of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// Next to nothing, for so long.
    Blocked(Duration),
    /// It computes, and took so much processor time.
    Busy(Duration),
    /// A little of this and that, for so long.
    Slow(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked(time) => write!(f, "blocked for {} s, without using the processor", time.as_secs()),
            Self::Busy(time) => write!(f, "busy for {} s of processor time without an end", time.as_secs()),
            Self::Slow(time) => write!(f, "without an end for {} s", time.as_secs()),
        }
    }
}

/// Looks at samples until one of them shows a hang.
#[derive(Debug)]
pub struct Detector {
    limits: Limits,
    /// At the last progress.
    origin: Sample,
    /// Since then, and not longer ago than the window of [`Limits::blocked`].
    window: VecDeque<Sample>,
}

impl Detector {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, origin: Sample::default(), window: VecDeque::from([Sample::default()]) }
    }

    /// Takes a sample; samples come in the order of their time.
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

    /// The youngest sample that is as old as the window, if one is; older ones are forgotten.
    fn blocked_since(&mut self) -> Option<Sample> {
        let now = self.window.back()?.at;
        let is_old = |sample: &Sample| now.saturating_sub(sample.at) >= self.limits.blocked;
        while self.window.get(1).is_some_and(is_old) {
            self.window.pop_front();
        }
        self.window.front().copied().filter(is_old)
    }

    /// Whether a processor is what it waits for: in most samples of the window a thread could run.
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

    /// The first hang of something that takes so much of a second's processor time, each second; and when.
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
    fn what_sleeps_for_ever_is_blocked() {
        let (second, hang) = hang(|_| 0, |_| false, |_| 0).expect("it hangs");
        assert_eq!((second, hang), (300, Hang::Blocked(Duration::from_secs(300))));
    }

    #[test]
    fn what_looks_now_and_then_whether_it_may_go_on_is_blocked() {
        // Some wake-ups are seen, and it computed before.
        let (second, hang) = hang(
            |second| if second < 50 { 900 } else { 10 },
            |second| second < 50 || second % 10 == 0,
            |_| 0,
        )
        .expect("it hangs");
        assert!((345..=365).contains(&second) && matches!(hang, Hang::Blocked(_)), "{second} {hang}");
    }

    #[test]
    fn what_goes_round_in_circles_is_busy() {
        assert_eq!(hang(|_| 2000, |_| true, |_| 0), Some((600, Hang::Busy(Duration::from_secs(1200)))));
    }

    #[test]
    fn what_does_a_little_of_everything_ends_at_the_wall() {
        assert_eq!(hang(|_| 100, |_| false, |_| 0), Some((2400, Hang::Slow(Duration::from_secs(2400)))));
    }

    #[test]
    fn what_waits_for_a_processor_is_not_blocked() {
        let (second, _) = hang(|_| 1, |_| true, |_| 0).expect("at the wall");
        assert_eq!(second, 2400);
    }

    #[test]
    fn progress_starts_all_over() {
        assert_eq!(hang(|_| 0, |_| false, |second| second as usize / 299), None);
        assert_eq!(hang(|_| 2000, |_| true, |second| second as usize / 599), None);
        let (second, _) = hang(|_| 0, |_| false, |second| second.min(1000) as usize / 100).expect("later");
        assert_eq!(second, 1300);
    }
}
