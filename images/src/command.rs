//! Runs programs of the host and of the package tree.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::error::ImageError;

/// Number of output lines in an error message.
const TAIL_LINES: usize = 25;

/// Maximum length of a line in bytes, which limits the memory for a program's output.
const LINE_BYTES: u64 = 8 * 1024;

/// Programs of the host that are used, each with its Debian package.
pub(crate) const HOST_TOOLS: [(&str, &str); 8] = [
    ("apt-get", "apt"),
    ("apt-config", "apt"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("sh", "dash"),
    ("mount", "mount"),
    ("chroot", "coreutils"),
    ("unshare", "util-linux"),
];

/// The search path for tools: the user's, and the system folders that a user's path may lack (`chroot` is in
/// `/usr/sbin`).
pub(crate) fn tool_path() -> OsString {
    let own = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&own).chain(system)).unwrap_or(own)
}

/// The path of a program of the host.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    env::split_paths(&tool_path()).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Fails, with the fix, if a program of the host is missing.
pub(crate) fn require_tools() -> Result<(), ImageError> {
    match HOST_TOOLS.into_iter().find(|(tool, _)| find_tool(tool).is_none()) {
        Some((tool, package)) => Err(ImageError::ToolMissing { tool, package }),
        None => Ok(()),
    }
}

/// A command of the host with the C locale, without input, and with the system folders in its search path.
pub(crate) fn host_command(program: &str) -> Command {
    let mut command = Command::new(find_tool(program).unwrap_or_else(|| program.into()));
    command.env("PATH", tool_path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// The search path of `shell` scripts inside a package tree or a guest.
pub(crate) const GUEST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A dynamically linked program of a package tree, started through the tree's own loader.
pub(crate) fn tree_command(tree: &Path, program: &str) -> Command {
    let mut command = Command::new(loader(tree));
    let name = program.rsplit('/').next().unwrap_or(program);
    command.arg("--library-path").arg(library_dir(tree)).arg("--argv0").arg(name).arg(tree.join(program));
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

/// A tree's dynamic loader.
pub(crate) fn loader(tree: &Path) -> PathBuf {
    library_dir(tree).join("ld-linux-x86-64.so.2")
}

/// A tree's shared libraries.
pub(crate) fn library_dir(tree: &Path) -> PathBuf {
    tree.join("usr/lib/x86_64-linux-gnu")
}

/// How a program ended.
pub(crate) struct Finished {
    /// Whether it returned 0.
    pub success: bool,
    /// In words, such as "exit status: 100".
    pub status: String,
    /// The last lines of its output on both streams.
    pub tail: String,
}

impl Finished {
    /// An error that names the attempt, unless the program succeeded.
    pub fn ok(self, what: &str, program: &str) -> Result<(), ImageError> {
        if self.success {
            return Ok(());
        }
        Err(ImageError::Command {
            what: what.to_owned(),
            program: program.to_owned(),
            status: self.status,
            output: self.tail,
        })
    }
}

/// Runs a program to its end; reads both streams together, line by line.
pub(crate) fn stream(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<Finished, ImageError> {
    let program = command.get_program().to_owned();
    let fail = |source| ImageError::Io { action: "run", path: PathBuf::from(&program), source };
    let (reader, writer) = std::io::pipe().map_err(fail)?;
    let second = writer.try_clone().map_err(fail)?;
    let mut child = dies_with_us(command.stdout(writer).stderr(second)).spawn().map_err(fail)?;
    // `command` holds the write ends, which would keep the reader from seeing the end.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut tail = VecDeque::new();
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let count = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes).map_err(fail)?;
        if count == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        on_line(&line);
        tail.push_back(line);
        if tail.len() > TAIL_LINES {
            tail.pop_front();
        }
    }
    let status = child.wait().map_err(fail)?;
    Ok(Finished { success: status.success(), status: status.to_string(), tail: Vec::from(tail).join("\n") })
}

/// Makes the kernel kill the program when the thread that started it ends. Otherwise the program could survive this
/// process and write into what the next niclab builds.
pub(crate) fn dies_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only async-signal-safe functions are allowed; this is one system call with constant
    // arguments, which takes no lock and allocates no memory.
    unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)) }
}

/// Runs a program that must succeed and returns its standard output.
pub(crate) fn output(command: &mut Command, what: &str) -> Result<Vec<u8>, ImageError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let result = command.output().map_err(|source| ImageError::Io {
        action: "run",
        path: PathBuf::from(&program),
        source,
    })?;
    if result.status.success() {
        return Ok(result.stdout);
    }
    let text = String::from_utf8_lossy(&result.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let output = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n");
    Err(ImageError::Command { what: what.to_owned(), program, status: result.status.to_string(), output })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = host_command("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn both_streams_are_read_and_a_failure_has_the_tail() {
        let mut lines = Vec::new();
        let end = stream(&mut sh("echo one; echo two >&2; exit 3"), |l| lines.push(l.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two"]);
        let message = end.ok("a test", "sh").unwrap_err().to_string();
        assert!(message.contains("a test failed: sh exit status: 3") && message.contains("two"), "{message}");
    }

    #[test]
    fn only_the_tail_of_much_output_is_kept() {
        let end =
            stream(&mut sh("i=0; while [ $i -lt 200 ]; do echo l$i; i=$((i+1)); done"), |_| ()).unwrap();
        assert!(end.tail.starts_with("l175") && end.tail.ends_with("l199"), "{}", end.tail);
    }

    #[test]
    fn missing_program_is_named() {
        let error = stream(&mut Command::new("/nonexistent/program"), |_| ()).err().unwrap();
        assert!(error.to_string().contains("cannot run /nonexistent/program"), "{error}");
    }
}
