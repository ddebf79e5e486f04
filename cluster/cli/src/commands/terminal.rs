//! The user's terminal, as the subcommands share it.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::{Result, bail};
use niclab_agent::{
    ToGuest, ToHost, WindowSize,
    message::{DATA_BYTES, WINDOW_BYTES},
};
use niclab_cluster::supervisor::control::{ControlError, RemoteCommand, RemoteInput};
pub use niclab_output::print;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::{consts::SIGWINCH, iterator::Signals};

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

/// The size of the user's terminal, or 24 x 80 if there is none.
#[must_use]
pub fn window_size() -> WindowSize {
    match tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 => WindowSize { rows: size.ws_row, columns: size.ws_col },
        _ => WindowSize { rows: 24, columns: 80 },
    }
}

/// The user's terminal in raw mode; dropping this restores the previous mode.
struct RawMode(Termios);

impl RawMode {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Bytes of input that the command can still take (the agent's flow control).
#[derive(Default)]
struct Window {
    used_bytes: Mutex<u32>,
    freed: Condvar,
}

impl Window {
    fn take(&self, bytes: u32) {
        let used = self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let has_no_room = |used: &mut u32| *used + bytes > WINDOW_BYTES;
        let mut used = self.freed.wait_while(used, has_no_room).unwrap_or_else(PoisonError::into_inner);
        *used += bytes;
    }

    fn give(&self, bytes: u32) {
        let mut used = self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(bytes);
        self.freed.notify_all();
    }
}

/// Connects a command with the user's standard streams until the command ends; returns its code. With `has_terminal`
/// the user's keys go to the command unprocessed.
///
/// # Errors
/// When the cluster ends before the command, or standard output is closed.
pub fn attach(mut command: RemoteCommand, has_terminal: bool) -> Result<u8> {
    let raw = (has_terminal && io::stdin().is_terminal()).then(RawMode::enter).transpose()?;
    if raw.is_some() {
        follow_size(command.input()?)?;
    }
    let window = Arc::new(Window::default());
    let (input, input_window) = (command.input()?, Arc::clone(&window));
    // This thread ends with the process: a blocked read of the user's keys cannot be cancelled.
    thread::spawn(move || send_input(input, &input_window));
    let mut control = command.input()?;
    let code = loop {
        let (bytes, is_error) = match command.receive() {
            Ok(ToHost::Stdout(bytes)) => (bytes, false),
            Ok(ToHost::Stderr(bytes)) => (bytes, true),
            Ok(ToHost::Credit(bytes)) => {
                window.give(bytes);
                continue;
            }
            Ok(ToHost::Exit(status)) => break status.shell_code(),
            Ok(ToHost::Refused(refusal)) => {
                drop(raw);
                eprintln!("niclab: {}", refusal.message);
                return Ok(refusal.code);
            }
            Ok(_) => continue,
            Err(ControlError::HungUp) => {
                drop(raw);
                bail!("the cluster ended while the command ran; `niclab inspect` shows why");
            }
            Err(error) => return Err(error.into()),
        };
        if is_error {
            io::stderr().write_all(&bytes)?;
        } else {
            let mut stdout = niclab_output::stdout();
            stdout.write_all(&bytes)?;
            stdout.flush()?;
        }
        // If the command has ended, its connection may be closed; output that it sent before is still read.
        let _ = control.send(ToGuest::Credit(u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
    };
    Ok(code)
}

fn send_input(mut input: RemoteInput, window: &Window) {
    let mut buffer = [0; DATA_BYTES];
    loop {
        let n = match io::stdin().lock().read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        window.take(u32::try_from(n).unwrap_or(u32::MAX));
        if input.send(ToGuest::Stdin(buffer[..n].to_vec())).is_err() {
            return;
        }
    }
    // The command may have ended in the meantime.
    let _ = input.send(ToGuest::StdinEnd);
}

fn follow_size(mut input: RemoteInput) -> io::Result<()> {
    let mut signals = Signals::new([SIGWINCH])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if input.send(ToGuest::Resize(window_size())).is_err() {
                return;
            }
        }
    });
    Ok(())
}
