//! The sandbox that the daemon enters before it listens. It limits the damage if a front end or guest takes over the
//! daemon.
//!
//! The sandbox has two layers, each as far as the running kernel supports it. Landlock: the process can open, make or
//! remove no file except sockets in the daemon's folders; no network; no signals to other processes. Seccomp: only
//! the system calls that serving needs, with the arguments that it needs. Others fail as if the kernel did not have
//! them, which C libraries handle. Both layers last as long as the process, and hold for all threads that it starts.
//!
//! A panic's back trace names no functions in the sandbox, because that would open files. Its message has the source
//! line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::notification;

/// The state of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// It is complete.
    Whole,
    /// The kernel supports a part of it.
    Part(String),
    /// It is missing, for this reason.
    None(String),
}

/// The state of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Landlock.
    pub files: Layer,
    /// Seccomp.
    pub calls: Layer,
}

impl Sandbox {
    /// Whether both layers are complete.
    pub fn is_whole(&self) -> bool {
        self.files == Layer::Whole && self.calls == Layer::Whole
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = |layer: &Layer, whole: &str| match layer {
            Layer::Whole => whole.to_owned(),
            Layer::Part(what) => format!("{whole}, in part ({what})"),
            Layer::None(why) => format!("not ({whole}): {why}"),
        };
        let files = layer(&self.files, "landlock: no files, no network, no signals");
        let calls = layer(&self.calls, "seccomp: only the system calls that serving needs");
        write!(f, "{files}; {calls}")
    }
}

/// Puts this thread, and all threads that it starts from now on, into the sandbox, as far as the kernel supports it.
/// Sockets can still be made and removed in `folders`. The caller must do everything else before.
pub fn enter(folders: &[PathBuf]) -> Sandbox {
    notification::prepare();
    let files = match restrict_files(folders) {
        Ok(status) => files_layer(&status),
        Err(error) => Layer::None(error.to_string()),
    };
    // Seccomp comes last, because it forbids the system calls of Landlock.
    let calls = restrict_calls().map_or_else(|error| Layer::None(error.to_string()), |()| Layer::Whole);
    Sandbox { files, calls }
}

/// The folders in which `paths` lie, each once.
pub fn folders_of<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let parent = |path: &Path| match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_owned(),
        None => path.to_owned(),
    };
    let folders: std::collections::BTreeSet<PathBuf> = paths.map(parent).collect();
    folders.into_iter().collect()
}

fn restrict_files(folders: &[PathBuf]) -> Result<RestrictionStatus, RulesetError> {
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    for folder in folders {
        // If a folder is missing, making its socket fails later with an error that names it.
        if let Ok(folder) = PathFd::new(folder) {
            ruleset = ruleset.add_rule(PathBeneath::new(folder, sockets))?;
        }
    }
    ruleset.restrict_self()
}

fn files_layer(status: &RestrictionStatus) -> Layer {
    match (&status.ruleset, &status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Layer::Whole,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Layer::Part(format!("the kernel has version {effective_abi} of 6"))
        }
        (RulesetStatus::PartiallyEnforced, _) => Layer::Part("the kernel has an older version".to_owned()),
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Layer::None("it is not enabled; boot with lsm=landlock,... to have it".to_owned())
        }
        (RulesetStatus::NotEnforced, _) => {
            Layer::None("the kernel has no Landlock; Linux 5.13 and later have it".to_owned())
        }
    }
}

/// Why system calls are not restricted.
#[derive(Debug, thiserror::Error)]
#[error("seccomp filters are not available on this kernel or processor: {0}")]
struct NoFilter(#[from] seccompiler::Error);

impl From<seccompiler::BackendError> for NoFilter {
    fn from(error: seccompiler::BackendError) -> Self {
        Self(error.into())
    }
}

fn restrict_calls() -> Result<(), NoFilter> {
    let filter = SeccompFilter::new(
        rules()?,
        // ENOSYS, because C libraries try new system calls first, and then fall back on older ones. So they replace
        // `clone3`, whose flags a filter cannot see, by `clone`, whose flags it can.
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// System calls that are allowed with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // Connections and their sockets.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_unlinkat,
    // Descriptors that the process has or receives.
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_preadv2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // Waiting and notifying.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_io_getevents,
    libc::SYS_io_submit,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads, signals, time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_setitimer,
    libc::SYS_sigaltstack,
    libc::SYS_umask,
];

/// Older forms of allowed system calls, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_alarm,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];

/// Older forms of allowed system calls, which newer processors do not have.
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[libc::SYS_accept];

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, NoFilter> {
    let is = |argument, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let has = |argument, mask: u64, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), value)
    };
    let (thread, execute) = (libc::CLONE_THREAD as u64, libc::PROT_EXEC as u64);
    let own = u64::from(std::process::id());
    let commands =
        [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL].map(|c| c as u64);
    let mut conditions = vec![
        // No network sockets.
        (libc::SYS_socket, is(0, libc::AF_UNIX as u64)?),
        // Threads, but no processes.
        (libc::SYS_clone, has(0, thread, thread)?),
        // No new executable code.
        (libc::SYS_mmap, has(2, execute, 0)?),
        (libc::SYS_mprotect, has(2, execute, 0)?),
        (libc::SYS_ioctl, is(1, libc::FIONBIO)?),
        (libc::SYS_prctl, is(0, libc::PR_SET_NAME as u64)?),
        // Files can be made private, but not public.
        (libc::SYS_fchmodat, is(2, 0o600)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, is(1, 0o600)?),
        (libc::SYS_kill, is(0, own)?),
        (libc::SYS_tgkill, is(0, own)?),
    ];
    for command in commands {
        conditions.push((libc::SYS_fcntl, is(1, command)?));
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_OLD).map(|call| (*call, Vec::new())).collect();
    for (call, condition) in conditions {
        rules.entry(call).or_default().push(SeccompRule::new(vec![condition])?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::net::{TcpStream, UdpSocket};
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// Runs `outcomes` in a child in the sandbox. Returns a number whose bit N is set if outcome N is false.
    fn in_sandbox(folder: &Path, outcomes: impl FnOnce(&Sandbox) -> Vec<bool>) -> i32 {
        // SAFETY: the child runs nothing of other threads: it allocates, which the C library's fork keeps intact,
        // makes plain system calls and ends by `_exit`.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let sandbox = enter(&[folder.to_owned()]);
                let wrong = outcomes(&sandbox).into_iter().enumerate().map(|(bit, so)| i32::from(!so) << bit);
                // SAFETY: ends the child and runs no handlers of its parent.
                unsafe { libc::_exit(wrong.sum()) }
            }
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, code) => code,
                other => panic!("{other:?}"),
            },
        }
    }

    fn is_refused<T>(result: io::Result<T>) -> bool {
        let refusals = [libc::EACCES, libc::EPERM, libc::ENOSYS].map(Some);
        result.is_err_and(|error| refusals.contains(&error.raw_os_error()))
    }

    #[test]
    fn sandbox_refuses_files_network_processes_and_signals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let parent = nix::unistd::Pid::this();
        let wrong = in_sandbox(folder.path(), |sandbox| {
            vec![
                sandbox.calls == Layer::Whole,
                is_refused(File::open(&path)),
                is_refused(File::create(folder.path().join("new"))),
                is_refused(TcpStream::connect("127.0.0.1:9")),
                is_refused(UdpSocket::bind("127.0.0.1:0")),
                is_refused(std::process::Command::new("/bin/true").spawn()),
                nix::sys::signal::kill(parent, None).is_err(),
            ]
        });
        assert_eq!(wrong, 0, "{wrong:#b}: see the list above");
    }

    #[test]
    fn sandbox_allows_unix_sockets_threads_and_own_signals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let wrong = in_sandbox(folder.path(), |_| {
            let listener = UnixListener::bind(&path);
            let connected = UnixStream::connect(&path);
            vec![
                listener.as_ref().is_ok_and(|listener| listener.accept().is_ok()),
                connected.is_ok_and(|stream| stream.set_nonblocking(true).is_ok()),
                std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok()),
                std::fs::remove_file(&path).is_ok(),
                nix::sys::signal::kill(nix::unistd::Pid::this(), None).is_ok(),
            ]
        });
        assert_eq!(wrong, 0, "{wrong:#b}: see the list above");
    }

    #[test]
    fn sockets_can_be_made_only_in_the_given_folders() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let elsewhere = other.path().join("socket");
        let wrong = in_sandbox(folder.path(), |sandbox| {
            let has_landlock = !matches!(sandbox.files, Layer::None(_));
            vec![is_refused(UnixListener::bind(&elsewhere)) == has_landlock]
        });
        assert_eq!(wrong, 0);
    }

    #[test]
    fn text_names_a_partial_or_missing_landlock() {
        let status = |ruleset, landlock| files_layer(&with(ruleset, landlock));
        // Only the crate can make a status. So this takes one that restricts nothing, and sets its fields.
        fn with(ruleset: RulesetStatus, landlock: LandlockStatus) -> RestrictionStatus {
            let nothing = std::thread::spawn(|| {
                let empty = Ruleset::default().handle_access(AccessFs::Execute)?.create()?;
                empty.restrict_self()
            });
            let mut made = nothing.join().unwrap().unwrap();
            (made.ruleset, made.landlock) = (ruleset, landlock);
            made
        }
        let available = LandlockStatus::Available { effective_abi: ABI::V2, kernel_abi: None };
        assert_eq!(status(RulesetStatus::FullyEnforced, available), Layer::Whole);
        let part =
            Sandbox { files: status(RulesetStatus::PartiallyEnforced, available), calls: Layer::Whole };
        assert!(part.to_string().contains("version 2 of 6") && !part.is_whole(), "{part}");
        for landlock in [LandlockStatus::NotEnabled, LandlockStatus::NotImplemented] {
            let none = Sandbox { files: status(RulesetStatus::NotEnforced, landlock), calls: Layer::Whole };
            assert!(none.to_string().starts_with("not (landlock") && !none.is_whole(), "{none}");
        }
    }

    #[test]
    fn folders_are_named_once() {
        let paths = ["/a/b", "/a/c", "d"].map(Path::new);
        assert_eq!(folders_of(paths.into_iter()), ["/a", "."].map(PathBuf::from));
    }
}
