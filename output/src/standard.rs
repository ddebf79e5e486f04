//! Standard output and standard error, whose readers may go away at any time.

use std::fmt::Arguments;
use std::io::{self, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program whose reader is gone: what a shell reports of one that SIGPIPE ended.
pub const READER_GONE: u8 = 128 + 13;

/// A write to standard output failed because nobody can read it any more.
static IS_GONE: AtomicBool = AtomicBool::new(false);

/// Standard output, locked. It remembers when its reader is gone.
///
/// SIGPIPE stays ignored, as the Rust runtime has it: these programs also write to sockets, and the launcher must take
/// its cluster down before it ends. So a closed pipe is an error that travels up like any other, and `main` alone keeps
/// it quiet.
#[derive(Debug)]
pub struct StandardOutput(StdoutLock<'static>);

/// Locks standard output.
#[must_use]
pub fn stdout() -> StandardOutput {
    StandardOutput(io::stdout().lock())
}

impl StandardOutput {
    fn note<T>(result: io::Result<T>) -> io::Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            IS_GONE.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::note(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::note(self.0.flush())
    }
}

/// Prints a text, so that it ends with exactly one line feed, and flushes it.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "{}", text.trim_end_matches('\n'))?;
    out.flush()
}

/// Whether the reader of standard output is gone.
#[must_use]
pub fn reader_is_gone() -> bool {
    IS_GONE.load(Ordering::Relaxed)
}

/// The exit code of `main`: [`READER_GONE`] when the reader of standard output is gone, and no message; else the code,
/// and for an error the code that `report` gives after it told the user.
pub fn exit_code<E>(result: Result<u8, E>, report: impl FnOnce(E) -> u8) -> u8 {
    if reader_is_gone() {
        return READER_GONE;
    }
    result.unwrap_or_else(report)
}

/// Writes to standard error. A reader that is gone is no reason to stop the work; `std`'s macros would panic.
pub fn to_stderr(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// As `std`'s macro, but it does not panic when the reader of standard error is gone.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::to_stderr(::std::format_args!($($text)*)) };
}

/// As `std`'s macro, but it does not panic when the reader of standard error is gone.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}
