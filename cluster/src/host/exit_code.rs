//! The exit codes of `niclab`, besides those of the commands that it runs.

/// The code for a failure of niclab itself, distinct from most commands' codes. Docker uses the same.
pub const OWN_FAILURE: u8 = 125;

/// The exit code of a program that a signal ended.
#[must_use]
pub const fn of_signal(signal: i32) -> i32 {
    128 + signal
}
