//! How much of the machine other processes used during a measurement; wall times cannot be judged without this.

use std::fs;

/// Processor time since the host booted, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// All cores together, busy or idle.
    total: u64,
    /// All cores together, busy, including the time of other virtual machines on the same hardware.
    busy: u64,
    /// This process and its children that have ended.
    own: u64,
}

impl ProcessorTime {
    /// The times until now; `None` if the kernel does not report them.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Average number of cores that other processes kept busy since `earlier`, on a host with `cores` cores. Children
    /// that were started since then must have ended.
    #[must_use]
    pub fn others_since(&self, earlier: &Self, cores: usize) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)?;
        let busy = self.busy.saturating_sub(earlier.busy);
        // The two files are read at slightly different times, so own time may be a tick ahead.
        let others = busy.saturating_sub(self.own.saturating_sub(earlier.own));
        Some(others as f64 / total as f64 * cores as f64)
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        // `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq, steal; then guest time, which user contains.
        let all = machine.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let all: Vec<u64> = all.map(number_or_zero).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *all.first_chunk::<8>()?;
        let busy = user + nice + system + irq + softirq + steal;
        // `proc_pid_stat(5)`: the first field after the name (which may contain any character) and the state is field
        // 4. Fields 14 to 17 are the times of the process and of its children.
        let fields: Vec<u64> =
            process.rsplit_once(')')?.1.split_whitespace().skip(1).map(number_or_zero).collect();
        let own = fields.get(10..14)?.iter().sum();
        Some(Self { total: busy + idle + iowait, busy, own })
    }
}

/// Some fields are negative, but none of those that are used.
fn number_or_zero(word: &str) -> u64 {
    word.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 10 20 300 400 20 0 1 0 99 1000 50";

    #[test]
    fn busy_time_of_other_processes_is_counted() {
        let at = |machine: &str, process: &str| ProcessorTime::parse(machine, process).unwrap();
        let before = at("cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1 1\n", PROCESS);
        assert_eq!(before, ProcessorTime { total: 1200, busy: 200, own: 730 });
        // 200 ticks on two cores: 40 idle, 60 ours and 100 of others, 30 of them stolen.
        let process = PROCESS.replace(" 300 400 ", " 330 430 ");
        let after = at("cpu  200 0 130 1030 10 0 0 30 0 0\n", &process);
        assert_eq!(after.others_since(&before, 2), Some(1.0));
        assert_eq!(before.others_since(&before, 2), None);
    }

    #[test]
    fn this_host_reports_processor_times() {
        let now = ProcessorTime::now().unwrap();
        assert!(now.total > 0 && now.busy <= now.total);
    }
}
