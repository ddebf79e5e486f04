//! `niclab driver build`, and `niclab driver watch`, which repeats a run at each change of the driver's source.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use niclab_cluster::{
    boot::prepare,
    host::{exit_code, process::die_with_owner, signals},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::arguments::{DriverBuildArgs, RunArgs};

/// How long the source must be unchanged before the next run: programs may write several files, or one file in pieces.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Maximum number of watched folders, and their maximum depth: enough for a driver's source, and a guard against a path
/// that names a whole file system.
const MAX_FOLDERS: usize = 1_000;
const MAX_DEPTH: usize = 8;

/// Buffer for one read of the kernel's change events.
const CHANGES_BYTES: usize = 16 * 1024;

/// Builds a driver and writes the module and its files.
///
/// # Errors
/// When it does not build; the message has the compiler's output.
pub fn build(args: &DriverBuildArgs) -> Result<u8> {
    let DriverBuildArgs { driver, output, kernel, mirror, offline } = args;
    let written = prepare::build_driver(driver, kernel.as_deref(), mirror.clone(), *offline, output)?;
    written.iter().for_each(|path| eprintln!("niclab: wrote {}", path.display()));
    Ok(0)
}

/// Repeats runs until a signal ends it; the code is that of the signal.
///
/// # Errors
/// When no driver is named, or its source cannot be watched.
pub fn watch(args: &RunArgs) -> Result<u8> {
    let cluster = prepare::cluster(&args.cluster)?;
    let paths: BTreeSet<PathBuf> =
        cluster.nodes.into_iter().filter_map(|node| Some(node.driver?.path)).collect();
    if paths.is_empty() {
        bail!("there is no driver to watch: name one with --driver FOLDER, or `driver` in the cluster file");
    }
    let own = env::current_exe().context("cannot find this program")?;
    let words = words_of_run(env::args_os());
    let signals = signal_pipe()?;
    loop {
        // Before the run, so that no change is missed.
        let changes = Changes::of(&paths)?;
        let begin = Instant::now();
        let mut run = Command::new(&own);
        run.arg("run").args(&words);
        die_with_owner(&mut run);
        let mut run = run.spawn().context("cannot start the run")?;
        let process = pidfd_open(Pid::from_child(&run), PidfdFlags::empty())?;
        match wait(&changes, &signals, Some(&process))? {
            Woken::Signal(signal) => return end(&mut run, signal),
            Woken::Changed => {
                end_run(&mut run)?;
                eprintln!("niclab: the source has changed");
            }
            Woken::Ended => {
                let ended = run.wait()?;
                eprintln!(
                    "niclab: {}, {:.1} s; waiting for a change",
                    how(ended),
                    begin.elapsed().as_secs_f64()
                );
                if let Woken::Signal(signal) = wait(&changes, &signals, None)? {
                    return Ok(exit_code::of_signal(signal) as u8);
                }
            }
        }
        changes.settle()?;
    }
}

/// The words after `driver watch`, which are the arguments of `run`.
fn words_of_run(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    words.skip_while(|word| word != "watch").skip(1).collect()
}

fn how(ended: ExitStatus) -> String {
    match ended.code() {
        Some(code) => format!("exit code {code}"),
        None => format!("signal {}", ended.signal().unwrap_or_default()),
    }
}

/// The reading end of a pipe that gets each signal's number from now on.
fn signal_pipe() -> Result<OwnedFd> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    signals::tell(move |signal| {
        // The reader may have exited already.
        let _ = (&writer).write_all(&[signal as u8]);
    });
    Ok(reader.into())
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Signal(i32),
    Changed,
    Ended,
}

/// Waits for a signal, a change, or the end of a process.
fn wait(changes: &Changes, signals: &OwnedFd, process: Option<&OwnedFd>) -> Result<Woken> {
    loop {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN), PollFd::new(&changes.inotify, PollFlags::IN)];
        fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if is_ready[0] {
            let mut number = [0];
            rustix::io::read(signals, &mut number)?;
            return Ok(Woken::Signal(number[0].into()));
        }
        if is_ready.get(2) == Some(&true) {
            return Ok(Woken::Ended);
        }
        if changes.read()? {
            return Ok(Woken::Changed);
        }
    }
}

/// Ends a run because of a signal. A terminal sends the signal to the run, too.
fn end(run: &mut Child, signal: i32) -> Result<u8> {
    end_run(run)?;
    Ok(exit_code::of_signal(signal) as u8)
}

/// Ends a run, and waits until it has shut its cluster down.
fn end_run(run: &mut Child) -> io::Result<()> {
    // The run may have ended in the meantime.
    let _ = kill_process(Pid::from_child(run), Signal::TERM);
    run.wait().map(drop)
}

/// Watches the source for changes.
struct Changes {
    inotify: OwnedFd,
}

impl Changes {
    /// Watches folders with all their subfolders; for a file, the folder that contains it.
    fn of(paths: &BTreeSet<PathBuf>) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let changes = Self { inotify };
        let mut left = MAX_FOLDERS;
        for path in paths {
            let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
            changes
                .add(folder, 0, &mut left)
                .with_context(|| format!("cannot watch {}", folder.display()))?;
        }
        Ok(changes)
    }

    fn add(&self, folder: &Path, depth: usize, left: &mut usize) -> Result<()> {
        *left = left.checked_sub(1).with_context(|| format!("there are more than {MAX_FOLDERS} folders"))?;
        let kinds = WatchFlags::CLOSE_WRITE | WatchFlags::MOVE | WatchFlags::CREATE | WatchFlags::DELETE;
        inotify::add_watch(&self.inotify, folder, kinds)?;
        if depth == MAX_DEPTH {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if entry.file_type()?.is_dir() && !is_hidden {
                self.add(&entry.path(), depth + 1, left)?;
            }
        }
        Ok(())
    }

    /// Reads all pending events. Returns whether any of them concerns a driver.
    fn read(&self) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); CHANGES_BYTES];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut any = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let is_folder = event.events().contains(ReadFlags::ISDIR);
                    any |= event.file_name().is_none_or(|name| is_source(name.to_bytes(), is_folder));
                }
                Err(Errno::AGAIN) => return Ok(any),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the source has not changed for [`QUIET`].
    fn settle(&self) -> Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut fds, Some(&QUIET)) {
                Ok(0) => return Ok(()),
                Ok(_) => self.read().map(drop)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether a change of this file or folder may change the build. Editors write temporary files into the same folder.
fn is_source(name: &[u8], is_folder: bool) -> bool {
    let name = String::from_utf8_lossy(name);
    let is_kept_aside = name.starts_with('.') || name.ends_with('~') || name.starts_with('#');
    // The run itself may write other files there.
    let is_read = || niclab_images::is_driver_source(Path::new(&*name)) || name.ends_with(".ko");
    !is_kept_aside && (is_folder || is_read())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_gets_the_words_after_watch() {
        let words =
            ["niclab", "-v", "driver", "watch", "--driver", "d", "--", "watch", "x"].map(OsString::from);
        assert_eq!(words_of_run(words.into_iter()), ["--driver", "d", "--", "watch", "x"]);
    }

    #[test]
    fn source_changes_wake_but_editors_temporary_files_do_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let changes = Changes::of(&[folder.path().to_owned()].into()).unwrap();
        assert!(!changes.read().unwrap());
        for other in [".a.c.swp", "a.c~", "a.o", "notes.txt", "log"] {
            fs::write(folder.path().join(other), "x").unwrap();
        }
        assert!(!changes.read().unwrap());
        fs::write(folder.path().join("sub/a.c"), "x").unwrap();
        let (signals, _writer) = io::pipe().unwrap();
        assert_eq!(wait(&changes, &signals.into(), None).unwrap(), Woken::Changed);
        changes.settle().unwrap();
        fs::rename(folder.path().join("a.o"), folder.path().join("Makefile")).unwrap();
        assert!(changes.read().unwrap());
    }

    #[test]
    fn signal_and_end_of_process_wake_differently() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Changes::of(&[folder.path().to_owned()].into()).unwrap();
        let (signals, mut writer) = io::pipe().unwrap();
        let signals = signals.into();
        let mut child = Command::new("true").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert_eq!(wait(&changes, &signals, Some(&process)).unwrap(), Woken::Ended);
        child.wait().unwrap();
        writer.write_all(&[15]).unwrap();
        assert_eq!(wait(&changes, &signals, None).unwrap(), Woken::Signal(15));
    }
}
