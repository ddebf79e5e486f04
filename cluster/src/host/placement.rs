//! Keeps the daemon's doorbell threads on the cores of the guests that ring their doorbells.
//!
//! If cores are scarce, both guests of a ping-pong spin, and a doorbell's thread must preempt one of them. On the core
//! of the ringing guest it begins as soon as the guest has rung. On another core, an inter-processor interrupt comes
//! first, which takes more than 10 us on a host that is itself a virtual machine. A round trip took 11.4 us with both
//! threads on their guests' cores, and 34 us with both on other cores. The kernel's scheduler has no reason to prefer
//! either, so this thread sets the affinity. Guests are not bound; the daemon's threads follow them.

use std::{
    fs,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use niclab_spec::daemon::doorbell_thread_name;
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use super::threads::{VIRTUAL_PROCESSOR, threads};

/// Interval at which the guests' cores are read. Guests move rarely, and reading takes microseconds.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Placement {
    /// Closing it ends the thread.
    _stop: Sender<()>,
}

impl Placement {
    /// Begins to follow the guests with these pids, by rank. Returns `None` on a host with cores to spare, where the
    /// scheduler does better alone.
    #[must_use]
    pub fn follow(guests: &[u32], daemon: u32) -> Option<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // As in the daemon's wait policy: a core for each guest and one for its poller.
        if cores == 1 || cores > 2 * guests.len() {
            return None;
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let mut pairs: Vec<Follower> = (guests.iter().enumerate())
            .map(|(rank, &guest)| Follower { rank, guest, daemon, found: None, cores: Vec::new() })
            .collect();
        thread::spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for follower in &mut pairs {
                    follower.step();
                }
            }
        });
        Some(Self { _stop: stop })
    }
}

/// One guest, and the daemon's thread that follows it.
#[derive(Debug)]
struct Follower {
    rank: usize,
    guest: u32,
    daemon: u32,
    /// The status files of the guest's virtual processors, and the daemon's thread.
    found: Option<(Vec<PathBuf>, Pid)>,
    /// The cores to which the thread is bound; empty if it is not bound.
    cores: Vec<usize>,
}

impl Follower {
    fn step(&mut self) {
        if self.found.is_none() {
            self.found = self.find();
        }
        let Some((vcpus, thread)) = &self.found else { return };
        let core =
            |stat: &PathBuf| core_of(&fs::read_to_string(stat).ok()?).filter(|core| *core < CpuSet::MAX_CPU);
        let cores: Vec<usize> = vcpus.iter().filter_map(core).collect();
        if cores == self.cores {
            return;
        }
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        // Fails if the thread or the guest has ended; others may replace them.
        match sched_setaffinity(Some(*thread), &set) {
            Ok(()) => self.cores = cores,
            Err(_) => self.found = None,
        }
    }

    fn find(&self) -> Option<(Vec<PathBuf>, Pid)> {
        let vcpus = threads(self.guest, |name| name.starts_with(VIRTUAL_PROCESSOR));
        let own_name = doorbell_thread_name(self.rank);
        let thread = threads(self.daemon, |name| name == own_name).into_iter().next()?;
        let id = thread.file_name()?.to_str()?.parse().ok()?;
        Some((vcpus.iter().map(|vcpu| vcpu.join("stat")).collect(), Pid::from_raw(id)?))
    }
}

/// The core on which a thread ran last: field 39 of `proc_pid_stat(5)`. The name may contain anything; after it, the
/// first field is the state, field 3.
fn core_of(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_is_found_for_any_thread_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        assert_eq!(core_of(&format!("7 (CPU 0) (x) R {}", fields.join(" "))), Some(39));
        assert_eq!(core_of("7 (short) R 1"), None);
    }
}
