//! What ran out on the host when a process was killed or could not be started.
//!
//! Neither an exit status nor `EAGAIN` says so. But the kernel counts both in the control group of the process:
//! processes that it killed because memory ran out, and forks that it refused (Documentation/admin-guide/cgroup-v2.rst:
//! `memory.events`, `pids.events`; cgroup-v1/memory.rst: `memory.oom_control`). niclab reads the counters before a
//! cluster starts and again when something fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1 << 20;

/// Without a limit, version 1 writes this number of bytes or a little less.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The kernel's text for `EAGAIN` and for `ENOMEM`, in messages of niclab, QEMU and the daemon alike.
const NO_PROCESS: &str = "Resource temporarily unavailable";
const NO_ADDRESSES: &str = "Cannot allocate memory";

/// The text in messages about a process that the kernel killed.
const KILLED: &str = "signal 9";

/// The kernel's counters at one time.
#[derive(Clone, Debug, Default)]
pub struct HostCounters {
    /// The path of `/proc`.
    proc: PathBuf,
    /// Processes of the control group that were killed because memory ran out.
    group_kills: u64,
    /// The same for the whole host.
    host_kills: u64,
    /// Processes and threads that the control group or one above it refused.
    refused_forks: u64,
}

impl HostCounters {
    /// Reads the counters. A counter that this host does not have stays zero.
    #[must_use]
    pub fn read() -> Self {
        Self::read_in(Path::new("/proc"))
    }

    fn read_in(proc: &Path) -> Self {
        let (memory, pids) = (chain(proc, "memory"), chain(proc, "pids"));
        let kills = memory.first().map(|group| {
            let events = group.counter("memory.events", "oom_kill");
            events.or_else(|| group.counter("memory.oom_control", "oom_kill")).unwrap_or_default()
        });
        Self {
            proc: proc.to_owned(),
            group_kills: kills.unwrap_or_default(),
            host_kills: counter(&proc.join("vmstat"), "oom_kill").unwrap_or_default(),
            refused_forks: pids.iter().filter_map(|group| group.counter("pids.events", "max")).sum(),
        }
    }

    /// What ran out since these counters were read, and how to get more of it. `evidence` is the message of the failed
    /// program or of the kernel.
    #[must_use]
    pub fn what_ran_out(&self, evidence: &str) -> Option<String> {
        let now = Self::read_in(&self.proc);
        if now.group_kills > self.group_kills {
            return Some(self.memory_text());
        }
        if now.refused_forks > self.refused_forks {
            return Some(self.forks_text());
        }
        // This counter includes other control groups, whose limits do not apply here. So it explains only a kill.
        if now.host_kills > self.host_kills && evidence.contains(KILLED) {
            return Some(
                "the kernel killed processes of this host because memory ran out (`dmesg` names them); boot fewer \
                 nodes, or lower `memory_mib`"
                    .to_owned(),
            );
        }
        if evidence.contains(NO_PROCESS) { self.user_text() } else { address_space_text(evidence) }
    }

    fn memory_text(&self) -> String {
        let groups = chain(&self.proc, "memory");
        let limit = |group: &Group| {
            let text = group.read("memory.max").or_else(|| group.read("memory.limit_in_bytes"))?;
            text.trim().parse().ok().filter(|bytes: &u64| *bytes < NO_LIMIT_BYTES)
        };
        match lowest(&groups, limit) {
            Some((group, bytes)) => format!(
                "the kernel killed a process because memory ran out: the control group {} may have {} MiB; raise its \
                 limit, boot fewer nodes, or lower `memory_mib`",
                group.name,
                bytes / MIB
            ),
            None => {
                "the kernel killed a process because the host's memory ran out; boot fewer nodes, or lower \
                     `memory_mib`"
                    .to_owned()
            }
        }
    }

    fn forks_text(&self) -> String {
        let groups = chain(&self.proc, "pids");
        let limit = |group: &Group| group.read("pids.max")?.trim().parse().ok();
        match lowest(&groups, limit) {
            Some((group, count)) => format!(
                "no more processes and threads can start: the control group {} may have {count} (pids.max); raise that \
                 limit, or boot fewer nodes",
                group.name
            ),
            None => "the control group cannot start more processes and threads (pids.max); raise that limit, or boot \
                     fewer nodes"
                .to_owned(),
        }
    }

    /// The limits without a counter: the user's, and the host's.
    fn user_text(&self) -> Option<String> {
        let number = |file: &str| {
            fs::read_to_string(self.proc.join("sys/kernel").join(file)).ok()?.trim().parse().ok()
        };
        let hosts = number("threads-max").into_iter().chain(number("pid_max")).min();
        let users = getrlimit(Resource::Nproc).current;
        match (users, hosts) {
            (Some(users), hosts) if hosts.is_none_or(|hosts| users < hosts) => Some(format!(
                "no more processes and threads can start: this user may have {users} (`ulimit -u`); raise that limit, \
                 or boot fewer nodes"
            )),
            (_, Some(hosts)) => Some(format!(
                "no more processes and threads can start: this host may have {hosts} (sysctl kernel.threads-max, \
                 kernel.pid_max); raise that limit, or boot fewer nodes"
            )),
            (_, None) => None,
        }
    }
}

/// The text for a limited address space, which the kernel reports with `ENOMEM`.
fn address_space_text(evidence: &str) -> Option<String> {
    let bytes = getrlimit(Resource::As).current.filter(|_| evidence.contains(NO_ADDRESSES))?;
    Some(format!(
        "a process may have {} MiB of address space (`ulimit -v`), which must include a guest's memory; raise that \
         limit, or lower `memory_mib`",
        bytes / MIB
    ))
}

/// The group with the lowest limit, which is the effective one.
fn lowest(groups: &[Group], limit: impl Fn(&Group) -> Option<u64>) -> Option<(&Group, u64)> {
    groups.iter().filter_map(|group| Some((group, limit(group)?))).min_by_key(|(_, limit)| *limit)
}

/// A control group of one controller.
#[derive(Debug)]
struct Group {
    /// The group's name for users.
    name: String,
    folder: PathBuf,
}

impl Group {
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    fn counter(&self, file: &str, key: &str) -> Option<u64> {
        counter(&self.folder.join(file), key)
    }
}

/// The value of a key in a file with one key and value per line.
fn counter(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// This process's control group for a controller, and all groups above it.
fn chain(proc: &Path, controller: &str) -> Vec<Group> {
    let read = |file: &str| fs::read_to_string(proc.join("self").join(file)).unwrap_or_default();
    let (groups, mounts) = (read("cgroup"), read("mountinfo"));
    // A line of version 1, `4:memory:/a/b`, takes precedence over one of version 2, `0::/a/b`: if both are mounted,
    // version 1 has the controller.
    let mut lines: Vec<[&str; 3]> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            Some([fields.next()?, fields.next()?, fields.next()?])
        })
        .filter(|[_, controllers, _]| controllers.is_empty() || has(controllers, controller))
        .collect();
    lines.sort_by_key(|[_, controllers, _]| controllers.is_empty());
    let Some(&[_, controllers, path]) = lines.first() else { return Vec::new() };
    let wanted = (!controllers.is_empty()).then_some(controller);
    let Some(mount) = mounts.lines().find_map(|line| Mount::parse(line, wanted)) else { return Vec::new() };
    // In a container the mount may show only a part of the tree.
    let below = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or_default();
    let own = mount.point.join(below.trim_start_matches('/'));
    let folders = own.ancestors().take_while(|folder| folder.starts_with(&mount.point));
    let name = |folder: &Path| format!("/{}", folder.strip_prefix(&mount.point).unwrap_or(folder).display());
    folders.map(|folder| Group { name: name(folder), folder: folder.to_owned() }).collect()
}

fn has(list: &str, word: &str) -> bool {
    list.split(',').any(|entry| entry == word)
}

/// The mount point of a hierarchy of control groups.
struct Mount {
    point: PathBuf,
    root: String,
}

impl Mount {
    /// Parses a line of `proc_pid_mountinfo(5)`: number, parent, device, root, mount point, options, ..., `-`, type,
    /// source, options. `controller` is for version 1; `None` means version 2.
    fn parse(line: &str, controller: Option<&str>) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_wanted = match (kind.next()?, controller) {
            ("cgroup2", None) => true,
            ("cgroup", Some(controller)) => has(kind.nth(1)?, controller),
            _ => false,
        };
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?.to_owned(), place.next()?.into());
        is_wanted.then_some(Self { point, root })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose files are in a folder. niclab is in its group `/jobs/niclab`.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new(cgroup: &str, mounts: &str) -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            let text = mounts.replace('@', host.0.path().to_str().unwrap());
            host.write("self/cgroup", cgroup);
            host.write("self/mountinfo", &text);
            host
        }

        fn v2() -> Self {
            Self::new("0::/jobs/niclab\n", "31 23 0:28 / @/cg rw,relatime shared:4 - cgroup2 cgroup2 rw\n")
        }

        fn v1() -> Self {
            Self::new(
                "9:name=systemd:/\n4:memory:/jobs/niclab\n3:cpu,pids:/jobs/niclab\n0::/\n",
                "31 23 0:28 / @/none rw - cgroup2 cgroup2 rw\n32 23 0:29 / @/cg rw - cgroup cgroup rw,memory\n\
                 33 23 0:30 / @/pids rw - cgroup cgroup rw,cpu,pids\n",
            )
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn counters(&self) -> HostCounters {
            HostCounters::read_in(self.0.path())
        }
    }

    #[test]
    fn oom_kill_in_the_group_names_the_group_with_the_limit() {
        let host = Host::v2();
        host.write("cg/jobs/niclab/memory.events", "low 0\nmax 7\noom 0\noom_kill 2\noom_group_kill 0\n");
        host.write("cg/jobs/niclab/memory.max", "max\n");
        host.write("cg/jobs/memory.max", "536870912\n");
        let before = host.counters();
        assert_eq!(before.what_ran_out("signal 9"), None, "earlier kills do not count");
        host.write("cg/jobs/niclab/memory.events", "low 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 0\n");
        let text = before.what_ran_out("signal 9").unwrap();
        assert!(text.contains("memory ran out: the control group /jobs may have 512 MiB"), "{text}");
    }

    #[test]
    fn refused_fork_names_pids_max() {
        let host = Host::v2();
        host.write("cg/jobs/niclab/pids.events", "max 0\n");
        host.write("cg/jobs/niclab/pids.max", "100\n");
        host.write("cg/jobs/pids.max", "4000\n");
        let before = host.counters();
        host.write("cg/jobs/niclab/pids.events", "max 1\n");
        let text = before.what_ran_out("").unwrap();
        assert!(text.contains("/jobs/niclab may have 100 (pids.max)"), "{text}");
    }

    #[test]
    fn limits_of_version_1_are_read_where_both_are_mounted() {
        let host = Host::v1();
        host.write("cg/jobs/niclab/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
        host.write("cg/jobs/niclab/memory.limit_in_bytes", "268435456\n");
        host.write("cg/memory.limit_in_bytes", "9223372036854771712\n");
        host.write("pids/jobs/niclab/pids.events", "max 4\n");
        host.write("pids/jobs/niclab/pids.max", "20\n");
        let before = host.counters();
        host.write("pids/jobs/niclab/pids.events", "max 5\n");
        assert!(before.what_ran_out("").unwrap().contains("may have 20 (pids.max)"));
        host.write("cg/jobs/niclab/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        assert!(before.what_ran_out("").unwrap().contains("/jobs/niclab may have 256 MiB"));
    }

    #[test]
    fn kill_outside_the_group_explains_a_killed_process_alone() {
        let host = Host::new("", "");
        host.write("vmstat", "nr_free_pages 5\noom_kill 3\n");
        let before = host.counters();
        host.write("vmstat", "nr_free_pages 5\noom_kill 4\n");
        let text = before.what_ran_out("QEMU of node0 ended (signal 9)").unwrap();
        assert!(text.contains("processes of this host because memory ran out"), "{text}");
        assert_eq!(before.what_ran_out("QEMU of node0 ended (exit code 1)"), None);
    }

    #[test]
    fn refused_process_without_a_counter_names_its_limit() {
        let host = Host::new("", "");
        host.write("sys/kernel/threads-max", "77\n");
        host.write("sys/kernel/pid_max", "4194304\n");
        let text =
            host.counters().what_ran_out("cannot start x: Resource temporarily unavailable (os error 11)");
        let text = text.unwrap();
        let is_users = getrlimit(Resource::Nproc).current.is_some_and(|limit| limit < 77);
        assert!(text.contains(if is_users { "`ulimit -u`" } else { "this host may have 77" }), "{text}");
        assert_eq!(host.counters().what_ran_out("no such file"), None);
    }

    #[test]
    fn part_of_the_tree_that_a_container_sees_is_enough() {
        let host =
            Host::new("0::/docker/abc/niclab\n", "31 23 0:28 /docker/abc @/cg rw - cgroup2 cgroup2 rw\n");
        let names: Vec<String> = chain(host.0.path(), "memory").into_iter().map(|group| group.name).collect();
        assert_eq!(names, ["/niclab", "/"]);
    }
}
