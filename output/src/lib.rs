//! All output of the project's programs.
//!
//! * [`OutputFile`] writes the files of commands. A regular file appears at its path when it is complete; a device or a
//!   FIFO is written in place. No other code renames a file over a user's path (`ci/checks/tests/outputs.rs`).
//! * [`stdout`] and [`print()`] write standard output. If its reader closes it, as in `niclab schema | head -1`, the
//!   program cleans up and ends without a message: [`exit_code`].
//! * [`eprintln!`] and [`eprint!`] write standard error, and continue if its reader has closed it.

mod file;
mod standard;

pub use file::{
    OutputError, OutputErrors, OutputFile, OutputWriter, Stdout, create_all, is_unread, probe_all,
};
pub use standard::{READER_GONE, StandardOutput, exit_code, print, reader_is_gone, stdout, to_stderr};
