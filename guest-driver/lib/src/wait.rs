//! How a call waits: its time limit, its policy, and its check for a dead device.

use std::time::{Duration, Instant};

use crate::{Backing, Error};

/// Polls between two clock reads, which can cost microseconds in an emulated guest.
const LOOKS_PER_CLOCK: u32 = 1024;

/// Interval at which a wait without progress checks whether the device is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time that counts between two clock reads. A waiting thread reads the clock at least every
/// [`CHECK_INTERVAL`]. If more time has passed, the thread did not run: a debugger or the host stopped it, and perhaps
/// its peer and the device too.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// What a thread does while there is no message to receive, or no room to send. Times are wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Polls continuously: fastest, as long as every polling thread has a core of its own.
    Spin,
    /// Sleeps at once: a receiver until an interrupt, a sender for [`WaitPolicy::SENDER_SLEEP`] at a time.
    Block,
    /// Polls for the given time, then sleeps like [`WaitPolicy::Block`].
    Adaptive {
        /// How long to poll before the first sleep.
        spin: Duration,
    },
}

impl WaitPolicy {
    /// [`WaitPolicy::Adaptive`] with 100 us: more than a round trip between two emulated guests (8 to 23 us, measured).
    pub const ADAPTIVE: Self = Self::Adaptive { spin: Duration::from_micros(100) };

    /// Sleep of a sender whose page is full: no interrupt reports room in the page.
    pub const SENDER_SLEEP: Duration = Duration::from_micros(50);
}

/// Time limit of a wait. A `Duration` counts from the moment at which the call finds that it must wait, so calls that
/// need not wait never read the clock. While the thread is stopped, at most one second counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// No limit, as long as the device is alive.
    Never,
    /// This long after the wait began.
    After(Duration),
    /// At this instant.
    At(Instant),
}

impl From<Duration> for Deadline {
    fn from(duration: Duration) -> Self {
        Self::After(duration)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self::At(instant)
    }
}

/// Time since a port's last progress. It outlives single calls, so that a loop of short waits detects a dead device
/// too.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    since: Option<Instant>,
}

impl Quiet {
    /// Records progress.
    #[inline]
    pub(crate) fn on_progress(&mut self) {
        self.since = None;
    }

    /// Checks whether the device is alive if a check is due. Returns the time until the next check.
    fn check(&mut self, now: Instant, backing: &dyn Backing) -> Result<Duration, Error> {
        let quiet = now.saturating_duration_since(*self.since.get_or_insert(now));
        if quiet < CHECK_INTERVAL {
            return Ok(CHECK_INTERVAL - quiet);
        }
        backing.check()?;
        self.since = Some(now);
        Ok(CHECK_INTERVAL)
    }
}

/// What to do after a poll that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again.
    Look,
    /// Sleep at most this long, then poll again.
    Sleep(Duration),
}

/// One wait, from its first poll on.
#[derive(Debug)]
pub(crate) struct Wait {
    operation: &'static str,
    policy: WaitPolicy,
    deadline: Deadline,
    looks: u32,
    clock: Option<WaitClock>,
}

/// The clock of a wait.
#[derive(Debug)]
pub(crate) struct WaitClock {
    pub(crate) began: Instant,
    last: Instant,
    /// Time that counts, see [`LONGEST_STEP`].
    counted: Duration,
    limit: Duration,
}

impl WaitClock {
    pub(crate) fn start(now: Instant, deadline: Deadline) -> Self {
        let limit = match deadline {
            Deadline::Never => Duration::MAX,
            Deadline::After(limit) => limit,
            Deadline::At(instant) => instant.saturating_duration_since(now),
        };
        Self { began: now, last: now, counted: Duration::ZERO, limit }
    }

    /// Counts the time since the last reading. Returns the remaining time.
    pub(crate) fn advance(&mut self, now: Instant) -> Duration {
        self.counted += now.saturating_duration_since(self.last).min(LONGEST_STEP);
        self.last = now;
        self.limit.saturating_sub(self.counted)
    }
}

impl Wait {
    pub(crate) fn new(operation: &'static str, policy: WaitPolicy, deadline: Deadline) -> Self {
        Self { operation, policy, deadline, looks: 0, clock: None }
    }

    /// Called after each poll that found nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`].
    #[inline]
    pub(crate) fn next(&mut self, quiet: &mut Quiet, backing: &dyn Backing) -> Result<Next, Error> {
        self.looks = self.looks.wrapping_add(1);
        if self.policy != WaitPolicy::Block && !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            std::hint::spin_loop();
            return Ok(Next::Look);
        }
        self.look_at_clock(quiet, backing)
    }

    #[cold]
    fn look_at_clock(&mut self, quiet: &mut Quiet, backing: &dyn Backing) -> Result<Next, Error> {
        let now = Instant::now();
        let clock = self.clock.get_or_insert_with(|| WaitClock::start(now, self.deadline));
        let left = clock.advance(now);
        let waited = now.saturating_duration_since(clock.began);
        let until_check = quiet.check(now, backing)?;
        if left.is_zero() {
            return Err(Error::TimedOut { device: backing.name().into(), operation: self.operation, waited });
        }
        Ok(match self.policy {
            WaitPolicy::Spin => Next::Look,
            WaitPolicy::Adaptive { spin } if waited < spin => Next::Look,
            WaitPolicy::Adaptive { .. } | WaitPolicy::Block => Next::Sleep(left.min(until_check)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, SharedMemory};

    /// A device that is alive and does nothing.
    struct Idle;

    impl Backing for Idle {
        fn name(&self) -> &str {
            "idle"
        }

        fn ring(&self) {}

        fn wait_interrupts(&self, _: Duration) -> Result<u64, Error> {
            Ok(0)
        }

        fn check(&self) -> Result<(), Error> {
            Ok(())
        }

        fn route(&self, _: Address) -> Result<(), Error> {
            Ok(())
        }

        fn authorize(&self, _: Address, _: u32) -> Result<(), Error> {
            Ok(())
        }

        fn revoke(&self, _: Address) -> Result<(), Error> {
            Ok(())
        }

        fn register(&self, _: &SharedMemory) -> Result<u32, Error> {
            Ok(0)
        }

        fn deregister(&self, _: u32) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn wait_of_a_thread_that_slept_too_long_continues() {
        let limit = LONGEST_STEP + Duration::from_millis(100);
        let mut wait = Wait::new("wait", WaitPolicy::Block, limit.into());
        let mut quiet = Quiet::default();
        assert!(matches!(wait.next(&mut quiet, &Idle), Ok(Next::Sleep(_))));
        // Even if the thread sleeps longer, one second counts.
        std::thread::sleep(limit);
        assert!(matches!(wait.next(&mut quiet, &Idle), Ok(Next::Sleep(_))));
        std::thread::sleep(Duration::from_millis(100));
        assert!(
            matches!(wait.next(&mut quiet, &Idle), Err(Error::TimedOut { waited, .. }) if waited > limit)
        );
    }

    #[test]
    fn stopped_thread_does_not_time_out() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut clock = WaitClock::start(began, Deadline::After(Duration::from_secs(3)));
        assert_eq!(clock.advance(at(1)), Duration::from_secs(2));
        assert_eq!(clock.advance(at(181)), Duration::from_secs(1), "three minutes count as one second");
        assert_eq!(clock.advance(at(182)), Duration::ZERO);
    }

    #[test]
    fn deadline_that_has_passed_leaves_no_time() {
        let now = Instant::now();
        assert_eq!(WaitClock::start(now, Deadline::At(now)).advance(now), Duration::ZERO);
        assert_eq!(WaitClock::start(now, Deadline::Never).advance(now), Duration::MAX);
    }
}
