//! Time limits that stand still while the machine does.
//!
//! A host pauses a virtual machine, or a debugger stops niclab: wall time passes, and no guest runs. A limit in wall
//! time would then end a healthy cluster. So a thread reads the clock several times a second. Where more than
//! [`LONGEST_STEP`] passes between two readings, the machine or niclab stood still, and no more than that counts.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of the readings.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time that counts between two readings. Ours: ten times the interval, so that a busy machine changes nothing.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Wall time without the times in which nothing ran.
struct RunningTime {
    read: Instant,
    stood: Duration,
}

impl RunningTime {
    /// A reading at `now`. The time without standstills is earlier by [`RunningTime::stood`].
    fn read(&mut self, now: Instant) -> Instant {
        self.stood += now.saturating_duration_since(self.read).saturating_sub(LONGEST_STEP);
        self.read = now;
        now.checked_sub(self.stood).unwrap_or(now)
    }

    /// The reading of now, and the thread that reads regularly.
    fn now() -> Instant {
        static CLOCK: OnceLock<Mutex<RunningTime>> = OnceLock::new();
        fn lock(clock: &Mutex<RunningTime>) -> MutexGuard<'_, RunningTime> {
            clock.lock().unwrap_or_else(PoisonError::into_inner)
        }
        let clock = CLOCK.get_or_init(|| {
            let started = thread::Builder::new().name("deadlines".to_owned()).spawn(|| {
                loop {
                    thread::sleep(INTERVAL);
                    Self::now();
                }
            });
            // Without the thread, a limit may also exclude a wait of more than a second.
            started.err().into_iter().for_each(|error| log::warn!("no thread for time limits: {error}"));
            Mutex::new(RunningTime { read: Instant::now(), stood: Duration::ZERO })
        });
        lock(clock).read(Instant::now())
    }
}

/// The end of a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// This long from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(RunningTime::now() + limit)
    }

    /// The time until then.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(RunningTime::now())
    }

    /// Whether the time is over.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Waits for a message until then.
    ///
    /// # Errors
    /// As [`Receiver::recv_timeout`].
    pub fn receive<T>(self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        loop {
            match receiver.recv_timeout(self.left()) {
                Err(RecvTimeoutError::Timeout) if !self.is_over() => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn standstill_counts_for_one_step() {
        let begin = Instant::now();
        let mut clock = RunningTime { read: begin, stood: Duration::ZERO };
        let mut after = |wall_ms: u64| clock.read(begin + Duration::from_millis(wall_ms)) - begin;
        assert_eq!(after(100), Duration::from_millis(100));
        assert_eq!(after(1_000), Duration::from_secs(1), "a busy machine");
        assert_eq!(after(300_000), Duration::from_secs(2), "a machine that stood still");
        assert_eq!(after(300_100), Duration::from_millis(2_100));
    }

    #[test]
    fn receiver_waits_until_the_deadline() {
        let (sender, receiver) = mpsc::channel();
        let deadline = Deadline::after(Duration::from_millis(30));
        assert_eq!(deadline.receive(&receiver), Err(RecvTimeoutError::Timeout));
        assert!(deadline.is_over());
        sender.send(7).unwrap();
        assert_eq!(Deadline::after(Duration::from_secs(3600)).receive(&receiver), Ok(7));
        drop(sender);
        let gone = Deadline::after(Duration::from_secs(3600)).receive(&receiver);
        assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
    }
}
