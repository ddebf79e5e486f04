//! The timers of an ULTRA card, in model time.

use crate::time::Time;
use crate::ultra::config::PORTS;

/// One value for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A port has packets and no credit: ask for it again, in case request or answer was lost.
    CreditProbe,
}

impl Timer {
    const ALL: [Self; 1] = [Self::CreditProbe];
}

/// The deadline of each timer of each port.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    deadlines: [[Option<Time>; PORTS]; Timer::ALL.len()],
    next: Option<Time>,
}

impl Timers {
    /// The earliest deadline.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether the timer runs.
    pub fn is_running(&self, timer: Timer, port: usize) -> bool {
        self.deadlines[timer as usize].get(port).is_some_and(Option::is_some)
    }

    /// Starts the timer, or gives it another deadline.
    pub fn start(&mut self, timer: Timer, port: usize, deadline: Time) {
        self.set(timer, port, Some(deadline));
    }

    /// Stops the timer.
    pub fn stop(&mut self, timer: Timer, port: usize) {
        if self.is_running(timer, port) {
            self.set(timer, port, None);
        }
    }

    /// Stops one timer whose deadline has come, and says which.
    pub fn take_expired(&mut self, now: Time) -> Option<(Timer, usize)> {
        self.next.filter(|&next| next <= now)?;
        for timer in Timer::ALL {
            let of_ports = &self.deadlines[timer as usize];
            let is_due = |deadline: &Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
            if let Some(port) = of_ports.iter().position(is_due) {
                self.stop(timer, port);
                return Some((timer, port));
            }
        }
        None
    }

    fn set(&mut self, timer: Timer, port: usize, deadline: Option<Time>) {
        if let Some(place) = self.deadlines[timer as usize].get_mut(port) {
            *place = deadline;
            self.next = self.deadlines.iter().flatten().flatten().min().copied();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_the_next() {
        let at = Time::from_ps;
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.start(Timer::CreditProbe, 3, at(20));
        timers.start(Timer::CreditProbe, 5, at(10));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.take_expired(at(9)), None);
        assert_eq!(timers.take_expired(at(15)), Some((Timer::CreditProbe, 5)));
        assert_eq!(timers.take_expired(at(15)), None);
        assert_eq!(timers.next(), Some(at(20)));
        timers.stop(Timer::CreditProbe, 3);
        assert_eq!(timers.next(), None);
    }
}
