//! Finds the process that owns a cluster, without a path.
//!
//! Programs that clean /tmp by age may have removed every file of the cluster's folder. The owner still holds the
//! folder's lock and has the mark open. `/proc` shows both: `fdinfo` lists the lock with the pid that took it
//! (proc_pid_fdinfo(5)), and `fd` opens the mark even after its name is gone.

use std::{
    fs::{self, File},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
};

use rustix::fs::fstat;

use super::says;
use crate::host::process::ProcessId;

/// The process that holds the lock of `folder`, and has a file open whose content is exactly `mark`.
pub fn holder_of(folder: &impl AsFd, mark: &str) -> Option<ProcessId> {
    let about = fstat(folder).ok()?;
    let own = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() == own).then_some(pid)
    });
    let is_holder = |&pid: &u32| {
        // A process that ends during the scan has no descriptors, so it does not match.
        let is_folder = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (about.st_dev, about.st_ino))
        };
        let is_locked = descriptors(pid).filter(is_folder).any(|path| is_lock_of(pid, &path));
        is_locked && descriptors(pid).any(|path| is_mark(&path, mark))
    };
    pids.into_iter().find(is_holder).and_then(ProcessId::of)
}

fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether the process itself took a lock by this descriptor. A child just after fork has the descriptor, too.
fn is_lock_of(pid: u32, descriptor: &std::path::Path) -> bool {
    let Some(number) = descriptor.file_name().and_then(|name| name.to_str()) else { return false };
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
    // lock:	1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| {
        let mut fields = lock.split_whitespace().skip(1);
        fields.next() == Some("FLOCK") && fields.nth(2).and_then(|pid| pid.parse().ok()) == Some(pid)
    })
}

/// Only a regular file is opened: opening a pipe would wait for its other end.
fn is_mark(descriptor: &std::path::Path, mark: &str) -> bool {
    let is_candidate = |about: &fs::Metadata| about.is_file() && about.len() == mark.len() as u64;
    fs::metadata(descriptor).is_ok_and(|about| is_candidate(&about))
        && File::open(descriptor).is_ok_and(|file| says(&file, mark))
}
