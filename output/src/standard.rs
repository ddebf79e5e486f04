//! Standard output and standard error, whose readers may close them at any time.

use std::fmt::Arguments;
use std::io::{self, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code if the reader of standard output has closed it: a shell's code for SIGPIPE.
pub const READER_GONE: u8 = 128 + 13;

/// Whether a write to standard output failed because its reader has closed it.
static IS_GONE: AtomicBool = AtomicBool::new(false);

/// Standard output, locked. It remembers whether its reader has closed it.
///
/// SIGPIPE stays ignored, as in the Rust runtime: these programs also write to sockets, and the launcher must shut its
/// cluster down before it ends. So a closed pipe is an error like any other, and only `main` suppresses its message.
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

/// Prints a text so that it ends with exactly one line feed, and flushes it.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "{}", text.trim_end_matches('\n'))?;
    out.flush()
}

/// Whether the reader of standard output has closed it.
#[must_use]
pub fn reader_is_gone() -> bool {
    IS_GONE.load(Ordering::Relaxed)
}

/// The exit code of `main`: [`READER_GONE`], without a message, if the reader of standard output has closed it.
/// Otherwise the code, or for an error the code that `report` returns after it printed the error.
pub fn exit_code<E>(result: Result<u8, E>, report: impl FnOnce(E) -> u8) -> u8 {
    if reader_is_gone() {
        return READER_GONE;
    }
    result.unwrap_or_else(report)
}

/// Writes to standard error. A closed standard error must not stop the work; `std`'s macros would panic.
pub fn to_stderr(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// As `std`'s macro, but does not panic if the reader of standard error has closed it.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::to_stderr(::std::format_args!($($text)*)) };
}

/// As `std`'s macro, but does not panic if the reader of standard error has closed it.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}
