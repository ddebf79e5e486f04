//! One command: its processes, its streams, and the host's room for its output.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Child, Stdio},
};

use niclab_agent::{
    Exec, ExitStatus, Refusal, ToHost, WindowSize,
    message::{DATA_BYTES, WINDOW_BYTES},
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal},
    pty::OpenptFlags,
    termios::Winsize,
};

use crate::node::Node;

/// The maximum output of an exited command that a terminal still holds.
const TERMINAL_BUFFER_BYTES: u64 = 64 * 1024;

/// End of transmission: a terminal ends its input at this byte.
const EOT: u8 = 4;

/// One of a command's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Explains why a program was not found: a path of the host has no meaning in the guest.
fn remedy(program: &str, error: &io::Error, folder: Option<&Path>, shared: Option<&str>) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return String::new();
    }
    if folder.unwrap_or(Path::new("")).join(program).exists() {
        return "; the file exists, but the interpreter or dynamic loader that it names does not".to_owned();
    }
    let seen = match shared {
        Some(folder) => format!(
            "of the host's folders, guests see only the one in which the cluster was started, {folder}"
        ),
        None => {
            "guests see none of the host's folders (--no-share, or a folder that cannot be shared)".to_owned()
        }
    };
    let other = if program.contains('/') { "" } else { "; --packages puts Debian packages into the guests" };
    format!("; {seen}{other}")
}

/// What a step sends to the host.
#[derive(Debug)]
pub enum Step {
    /// This message.
    Say(ToHost),
    /// Nothing.
    Nothing,
}

struct Output {
    stream: Stream,
    fd: OwnedFd,
    /// Once the command has exited: the output that it wrote and the agent has not read. A background process may keep
    /// the stream open and write more; the agent does not wait for that.
    left_bytes: Option<u64>,
}

/// A running command, or an exited one that still has output to send.
pub struct Command {
    child: Child,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    terminal: Option<OwnedFd>,
    input: Option<OwnedFd>,
    pending_input: VecDeque<u8>,
    input_ends: bool,
    outputs: Vec<Output>,
    /// Bytes of output that the host has room for.
    credit_bytes: u32,
}

impl Command {
    /// Starts a command on this node. The host has room for `credit_bytes` of output.
    pub fn start(exec: &Exec, node: &Node, credit_bytes: u32) -> Result<Self, Refusal> {
        let Some((program, arguments)) = exec.argv.split_first() else {
            return Err(Refusal { message: "no command is given".to_owned(), code: 126 });
        };
        let folder = match &exec.cwd {
            Some(cwd) if !Path::new(cwd).is_dir() => {
                let message = format!(
                    "the guest has no folder {cwd}: of the host's folders, guests see at most the one in which the \
                     cluster was started"
                );
                return Err(Refusal { message, code: 126 });
            }
            Some(cwd) => Some(Path::new(cwd)),
            None => node.folder(),
        };
        let refuse = |error: io::Error| Refusal {
            message: format!(
                "cannot run `{program}`: {error}{}",
                remedy(program, &error, folder, node.shared_folder())
            ),
            code: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
        };
        let mut command = std::process::Command::new(program);
        command.args(arguments).envs(node.env()).envs(&exec.env);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        match exec.terminal {
            Some(size) => Self::start_with_terminal(command, size, credit_bytes),
            None => Self::start_with_pipes(command, credit_bytes),
        }
        .map_err(refuse)
    }

    fn start_with_pipes(mut command: std::process::Command, credit_bytes: u32) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        own_session(&mut command, false);
        let mut child = command.spawn()?;
        let input = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(|fd| (Stream::Stdout, OwnedFd::from(fd)));
        let stderr = child.stderr.take().map(|fd| (Stream::Stderr, OwnedFd::from(fd)));
        Self::new(child, None, input, [stdout, stderr].into_iter().flatten().collect(), credit_bytes)
    }

    fn start_with_terminal(
        mut command: std::process::Command,
        size: WindowSize,
        credit_bytes: u32,
    ) -> io::Result<Self> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::termios::tcsetwinsize(&master, winsize(size))?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        own_session(&mut command, true);
        let child = command.spawn()?;
        // `command` holds copies of the terminal's other end. While they are open, the agent cannot detect that it
        // closed.
        drop(command);
        let (input, output) = (master.try_clone()?, master.try_clone()?);
        Self::new(child, Some(master), Some(input), vec![(Stream::Stdout, output)], credit_bytes)
    }

    fn new(
        mut child: Child,
        terminal: Option<OwnedFd>,
        input: Option<OwnedFd>,
        outputs: Vec<(Stream, OwnedFd)>,
        credit_bytes: u32,
    ) -> io::Result<Self> {
        let prepare = || {
            for fd in input.iter().chain(outputs.iter().map(|(_, fd)| fd)) {
                rustix::io::ioctl_fionbio(fd, true)?;
            }
            rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        };
        let pidfd = match prepare() {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let outputs =
            outputs.into_iter().map(|(stream, fd)| Output { stream, fd, left_bytes: None }).collect();
        Ok(Self {
            child,
            pidfd,
            status: None,
            terminal,
            input,
            pending_input: VecDeque::new(),
            input_ends: false,
            outputs,
            credit_bytes,
        })
    }

    /// The outputs to poll: those of a running command whose host has room.
    pub fn readable_outputs(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let wanted = self.status.is_none() && self.credit_bytes > 0;
        self.outputs.iter().filter(move |_| wanted).map(|output| (output.stream, output.fd.as_fd()))
    }

    /// The standard input, if bytes wait for it.
    pub fn writable_input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|_| !self.pending_input.is_empty()).map(AsFd::as_fd)
    }

    /// The descriptor that becomes readable when the command exits.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.status.is_none().then(|| self.pidfd.as_fd())
    }

    /// Whether the command exited. Its output may still have to be sent.
    pub fn has_exited(&self) -> bool {
        self.status.is_some()
    }

    /// An output of an exited command that can be read now.
    pub fn drainable_output(&self) -> Option<Stream> {
        let wanted = self.has_exited() && self.credit_bytes > 0;
        self.outputs.first().filter(|_| wanted).map(|output| output.stream)
    }

    /// The exit status, once the agent has read all output.
    pub fn final_status(&self) -> Option<ExitStatus> {
        self.status.filter(|_| self.outputs.is_empty())
    }

    /// Reads once from an output.
    pub fn read_output(&mut self, stream: Stream) -> Step {
        let Some(index) = self.outputs.iter().position(|output| output.stream == stream) else {
            return Step::Nothing;
        };
        let output = &mut self.outputs[index];
        let mut buffer = [0; DATA_BYTES];
        let left = output.left_bytes.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let room = buffer.len().min(self.credit_bytes as usize).min(left);
        match rustix::io::read(&output.fd, &mut buffer[..room]) {
            Ok(0) => {}
            Ok(n) => {
                if let Some(left) = &mut output.left_bytes {
                    *left -= n as u64;
                }
                self.credit_bytes -= u32::try_from(n).unwrap_or(self.credit_bytes);
                let bytes = buffer[..n].to_vec();
                return Step::Say(match stream {
                    Stream::Stdout => ToHost::Stdout(bytes),
                    Stream::Stderr => ToHost::Stderr(bytes),
                });
            }
            Err(Errno::INTR) => return Step::Nothing,
            Err(Errno::AGAIN) if self.status.is_none() => return Step::Nothing,
            // An exited command has no output left, or (EIO) all processes closed the terminal.
            Err(_) => {}
        }
        self.outputs.remove(index);
        Step::Nothing
    }

    /// Takes bytes for the standard input.
    pub fn give_input(&mut self, bytes: &[u8]) -> Step {
        if self.input.is_none() {
            return credit(bytes.len());
        }
        if self.pending_input.len() + bytes.len() > WINDOW_BYTES as usize {
            // Only a host that ignores its window causes this. Without the limit it could fill the guest's memory.
            eprintln!(
                "niclab-agent: a command received more input than its window allows; the agent kills it"
            );
            self.signal(Signal::KILL.as_raw());
            return Step::Nothing;
        }
        self.pending_input.extend(bytes);
        self.write_input()
    }

    /// Writes once to the standard input.
    pub fn write_input(&mut self) -> Step {
        let Some(fd) = &self.input else { return Step::Nothing };
        let written = match rustix::io::write(fd, self.pending_input.as_slices().0) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Step::Nothing,
            // The command closed its input. The agent discards the rest and returns its credit.
            Err(_) => {
                self.input = None;
                self.pending_input.len()
            }
        };
        self.pending_input.drain(..written);
        self.close_finished_input();
        credit(written)
    }

    /// Ends the standard input after the pending bytes.
    pub fn end_input(&mut self) -> Step {
        self.input_ends = true;
        if self.terminal.is_some() && self.input.is_some() {
            self.pending_input.push_back(EOT);
            return self.write_input();
        }
        self.close_finished_input();
        Step::Nothing
    }

    fn close_finished_input(&mut self) {
        if self.input_ends && self.pending_input.is_empty() && self.terminal.is_none() {
            self.input = None;
        }
    }

    /// The host has room for more output.
    pub fn add_credit(&mut self, bytes: u32) {
        self.credit_bytes = self.credit_bytes.saturating_add(bytes).min(WINDOW_BYTES);
    }

    /// Sends a signal to the command's process group.
    pub fn signal(&mut self, signal: i32) {
        if self.status.is_none()
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            // The group exists until its leader is reaped.
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// Changes the terminal's size.
    pub fn resize(&mut self, size: WindowSize) {
        if let Some(terminal) = &self.terminal {
            // The kernel refuses this only for descriptors that are not terminals.
            let _ = rustix::termios::tcsetwinsize(terminal, winsize(size));
        }
    }

    /// Records the exit status. Until this returns, no other process can get the pid.
    pub fn reap(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        self.status = Some(match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => ExitStatus::Signal(signal.unwrap_or(0)),
        });
        let is_terminal = self.terminal.is_some();
        for output in &mut self.outputs {
            output.left_bytes = Some(if is_terminal {
                TERMINAL_BUFFER_BYTES
            } else {
                rustix::io::ioctl_fionread(&output.fd).unwrap_or(0)
            });
        }
        self.outputs.retain(|output| output.left_bytes != Some(0));
    }

    /// Ends the command and everything in its process group, and waits for it.
    pub fn kill(mut self) {
        if self.status.is_none() {
            self.signal(Signal::KILL.as_raw());
            // Cannot fail: the child belongs to the agent and has not been reaped.
            let _ = self.child.wait();
        }
    }
}

fn credit(bytes: usize) -> Step {
    match u32::try_from(bytes) {
        Ok(0) | Err(_) => Step::Nothing,
        Ok(bytes) => Step::Say(ToHost::Credit(bytes)),
    }
}

fn winsize(size: WindowSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Gives the command its own session, which dies with the agent, and its standard input as controlling terminal.
fn own_session(command: &mut std::process::Command, with_terminal: bool) {
    let prepare = move || {
        rustix::process::setsid()?;
        // The agent's parent may ignore these signals, as shells do for background jobs. The command would inherit
        // that, and the terminal's keys would have no effect.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: the default disposition runs no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if with_terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only system calls; it allocates nothing and takes no lock. The
    // agent has one main thread, which lives as long as the agent, so the death signal means the agent's death.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_a_missing_program_names_the_shared_folder() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let text = remedy("/some/where/prog", &missing, None, Some("/home/me"));
        assert!(text.ends_with("the one in which the cluster was started, /home/me"), "{text}");
        assert!(remedy("./prog", &missing, None, None).contains("guests see none of the host's folders"));
        assert!(remedy("prog", &missing, None, Some("/home/me")).contains("/home/me; --packages"));
        assert!(remedy("/etc/passwd", &missing, None, None).contains("dynamic loader"));
        assert!(remedy("./passwd", &missing, Some(Path::new("/etc")), None).contains("dynamic loader"));
        assert_eq!(remedy("/etc/passwd", &io::ErrorKind::PermissionDenied.into(), None, None), "");
    }
}
