//! Threads of a process, from `/proc`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The prefix of the names of QEMU's virtual processor threads: `CPU 0/TCG`, `CPU 0/KVM`.
pub const VIRTUAL_PROCESSOR: &str = "CPU ";

/// The folders in `/proc` of a process's threads whose names are wanted.
#[must_use]
pub fn threads(pid: u32, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let name = |thread: &Path| fs::read_to_string(thread.join("comm")).unwrap_or_default();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|thread| is_wanted(name(thread).trim_end())).collect()
}

/// How long threads used cores so far, and how often they slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Wall time on a core.
    pub wall_ran_ns: u64,
    /// Wall time in which they were runnable but did not run.
    pub wall_queued_ns: u64,
    /// How often they waited, and were woken.
    pub sleeps: u64,
}

impl Usage {
    /// The sum over all threads of a process whose names are wanted. A thread that ends during the reading counts as
    /// zero.
    ///
    /// # Errors
    /// If the kernel keeps no such statistics (it was built without `CONFIG_SCHED_INFO`), or there is no such process.
    pub fn of(pid: u32, is_wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        // Every process has a thread with this number.
        fs::metadata(format!("/proc/{pid}/task/{pid}/schedstat"))?;
        let mut sum = Self::default();
        for thread in threads(pid, is_wanted) {
            let read = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
            let usage = Self::parse(&read("schedstat"), &read("status")).unwrap_or_default();
            sum = sum.plus(&usage);
        }
        Ok(sum)
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            wall_ran_ns: self.wall_ran_ns + other.wall_ran_ns,
            wall_queued_ns: self.wall_queued_ns + other.wall_queued_ns,
            sleeps: self.sleeps + other.sleeps,
        }
    }

    /// The difference to `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            wall_ran_ns: self.wall_ran_ns.saturating_sub(earlier.wall_ran_ns),
            wall_queued_ns: self.wall_queued_ns.saturating_sub(earlier.wall_queued_ns),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
        }
    }

    /// `schedstat` has the time on a core, the time in the queue, and the number of time slices (the kernel's
    /// Documentation/scheduler/sched-stats.rst); `status` is described in `proc_pid_status(5)`.
    fn parse(schedstat: &str, status: &str) -> Option<Self> {
        let mut times = schedstat.split_whitespace().map(str::parse);
        let (ran, queued) = (times.next()?.ok()?, times.next()?.ok()?);
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Self { wall_ran_ns: ran, wall_queued_ns: queued, sleeps: sleeps.trim().parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn threads_are_found_by_name_and_their_sleeps_counted() {
        let (ready, is_ready) = mpsc::channel();
        let (next, may_go_on) = mpsc::channel::<()>();
        let named = thread::Builder::new().name("CPU 0/TEST".into()).spawn(move || {
            ready.send(()).unwrap();
            while may_go_on.recv().is_ok() {
                ready.send(()).unwrap();
            }
        });
        is_ready.recv().unwrap();
        let own = std::process::id();
        assert_eq!(threads(own, |name| name == "CPU 0/TEST").len(), 1);
        let usage = || Usage::of(own, |name| name == "CPU 0/TEST").unwrap();
        let before = usage();
        // The thread sleeps until the next message. This takes several tries, because a message may arrive before it
        // waits.
        while usage().since(&before).sleeps < 3 {
            next.send(()).unwrap();
            is_ready.recv().unwrap();
        }
        assert!(usage().since(&before).wall_ran_ns > 0);
        drop(next);
        named.unwrap().join().unwrap();
        assert!(Usage::of(u32::MAX, |_| true).is_err());
    }

    #[test]
    fn kernel_statistics_are_parsed() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        let usage = Usage { wall_ran_ns: 5, wall_queued_ns: 6, sleeps: 150 };
        assert_eq!(Usage::parse("5 6 7\n", status), Some(usage));
        assert_eq!(Usage::parse("", status), None);
    }
}
