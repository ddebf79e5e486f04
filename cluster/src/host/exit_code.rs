//! The codes with which `niclab` ends, beside those of the commands that it runs.

/// The code of a niclab that failed itself, told apart from what commands end with. The same as Docker's.
pub const OWN_FAILURE: u8 = 125;

/// The code with which a program ends that a signal ended.
#[must_use]
pub const fn of_signal(signal: i32) -> i32 {
    128 + signal
}
