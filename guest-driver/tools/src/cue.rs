//! Cues: barriers at which a coordinated benchmark waits until its coordinator (`niclab check`) answers.
//!
//! Between two cues the program sends only the benchmark's messages: no hello or goodbye messages, and no control
//! requests. So the coordinator measures exactly the benchmark's messages.

use std::io::{self, BufRead};

use crate::Failure;

/// The start of a line that announces a cue. The name of the cue follows.
pub const PREFIX: &str = "niclab-perf: cue ";

/// This end can receive its peer's messages.
pub const CONNECTED: &str = "connected";
/// This end has completed the warm-up.
pub const WARM: &str = "warm";
/// This end has completed the measured part.
pub const MEASURED: &str = "measured";

/// Prints the cue to standard error, and waits for the coordinator's answer: one line of standard input, with any
/// content.
///
/// # Errors
///
/// [`Failure::NotCoordinated`] if standard input ends; [`Failure::Write`] if reading or writing fails.
pub fn wait(cue: &'static str) -> Result<(), Failure> {
    wait_with(cue, &mut io::stderr().lock(), &mut io::stdin().lock())
}

fn wait_with(cue: &'static str, out: &mut impl io::Write, answers: &mut impl BufRead) -> Result<(), Failure> {
    writeln!(out, "{PREFIX}{cue}")?;
    out.flush()?;
    let mut line = String::new();
    if answers.read_line(&mut line)? == 0 {
        return Err(Failure::NotCoordinated { cue });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cue_prints_one_line_and_waits_for_one_answer() {
        let mut answers = io::Cursor::new("go\ngo\n");
        let mut printed = Vec::new();
        for cue in [CONNECTED, WARM] {
            wait_with(cue, &mut printed, &mut answers).expect("the coordinator answered");
        }
        assert_eq!(printed, b"niclab-perf: cue connected\nniclab-perf: cue warm\n");
        let error = wait_with(MEASURED, &mut printed, &mut answers).expect_err("the answers have ended");
        assert!(error.to_string().contains("`measured`"), "{error}");
    }
}
