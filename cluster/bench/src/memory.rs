//! Resident memory of a process, from `/proc`.

use std::{fs, io, path::PathBuf};

use thiserror::Error;

use super::figure::{Clock, Figure, Goal};

/// Maximum resident memory of a daemon with two nodes, without shared memory, in 10^6 bytes.
const DAEMON_GOAL: Goal = Goal::Below(40.0);

/// A process's memory cannot be read.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The process has ended, or belongs to another user.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The kernel is too old: Linux 4.5 introduced these lines.
    #[error("{} has no line {line}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The line.
        line: &'static str,
    },
}

/// Resident memory by kind, in bytes (`proc_pid_status(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Heap, stacks: `RssAnon`.
    pub anonymous_bytes: u64,
    /// Pages of its program and libraries: `RssFile`.
    pub file_bytes: u64,
    /// Shared memory: `RssShmem`. For a daemon this is guest memory that it has accessed, which QEMU uses anyway, and
    /// the pages of its BARs.
    pub shared_bytes: u64,
}

impl ResidentMemory {
    /// Reads the memory of a process.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn of(pid: u32) -> Result<Self, MemoryError> {
        let path = PathBuf::from(format!("/proc/{pid}/status"));
        let text =
            fs::read_to_string(&path).map_err(|error| MemoryError::Read { path: path.clone(), error })?;
        Self::parse(&text).map_err(|line| MemoryError::Missing { path, line })
    }

    /// The process's own memory, without shared memory.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.anonymous_bytes + self.file_bytes
    }

    fn parse(status: &str) -> Result<Self, &'static str> {
        let bytes = |key: &'static str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kib.map(|kib| kib * 1024).ok_or(key)
        };
        Ok(Self {
            anonymous_bytes: bytes("RssAnon")?,
            file_bytes: bytes("RssFile")?,
            shared_bytes: bytes("RssShmem")?,
        })
    }
}

/// The figures of a daemon with two nodes; `when` names the time of measurement. The goal is for its own memory.
#[must_use]
pub fn figures(memory: &ResidentMemory, when: &str) -> [Figure; 2] {
    let figure = |name: &str, what: &str, bytes: u64| {
        Figure::new(name, &format!("{what}, {when}"), Clock::None, "MB", vec![bytes as f64 / 1e6])
    };
    [
        figure("daemon_memory", "daemon's own memory (RssAnon + RssFile)", memory.own_bytes())
            .with_goal(DAEMON_GOAL),
        figure(
            "daemon_shared_memory",
            "guest memory accessed by the daemon, and BARs (RssShmem)",
            memory.shared_bytes,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_not_the_daemons_own() {
        let status = "Name:\tx\nVmRSS:\t  70000 kB\nRssAnon:\t    1000 kB\nRssFile:\t    3000 kB\nRssShmem:\t   66000 \
                      kB\n";
        let memory = ResidentMemory::parse(status).unwrap();
        assert_eq!((memory.own_bytes(), memory.shared_bytes), (4000 * 1024, 66000 * 1024));
        let [own, shared] = figures(&memory, "now");
        assert_eq!((own.reached, shared.reached), (Some(true), None));
        assert_eq!(ResidentMemory::parse("RssAnon:\t1 kB\n").unwrap_err(), "RssFile");
    }

    #[test]
    fn this_process_has_memory_of_its_own() {
        assert!(ResidentMemory::of(std::process::id()).unwrap().own_bytes() > 100_000);
        assert!(ResidentMemory::of(u32::MAX).is_err());
    }
}
