//! Cues (barriers): a coordinated benchmark stops at each of them until its coordinator answers.
//!
//! Between two cues the program sends only the benchmark's messages: no greeting, no farewell and no control request.
//! So the coordinator can measure exactly these messages.

use std::io::{self, BufRead};

use crate::Failure;

/// How the line of a cue begins.
pub const PREFIX: &str = "niclab-perf: cue ";

/// The peer's messages can arrive.
pub const CONNECTED: &str = "connected";
/// The warm-up is over at this end.
pub const WARM: &str = "warm";
/// The measured part is over at this end.
pub const MEASURED: &str = "measured";

/// Prints the cue and waits for the coordinator's answer: one line, with any content.
///
/// # Errors
///
/// [`Failure::NotCoordinated`], or that of a stream.
pub fn wait(cue: &'static str) -> Result<(), Failure> {
    let mut error = io::stderr().lock();
    wait_over(cue, &mut error, &mut io::stdin().lock())
}

fn wait_over(cue: &'static str, out: &mut impl io::Write, answers: &mut impl BufRead) -> Result<(), Failure> {
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
    fn each_cue_takes_one_line() {
        let mut answers = io::Cursor::new("go\ngo\n");
        let mut said = Vec::new();
        for cue in [CONNECTED, WARM] {
            wait_over(cue, &mut said, &mut answers).expect("answered");
        }
        assert_eq!(said, b"niclab-perf: cue connected\nniclab-perf: cue warm\n");
        let error = wait_over(MEASURED, &mut said, &mut answers).expect_err("the end");
        assert!(error.to_string().contains("`measured`"), "{error}");
    }
}
