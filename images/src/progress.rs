//! Progress of a build for the user.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Receives the progress of a build. Calls may come from several threads.
pub trait Progress: Send + Sync {
    /// A step begins, such as "package tree".
    fn started(&self, step: &str);
    /// A detail within the step; there are many per step.
    fn detail(&self, step: &str, detail: &str);
    /// The step succeeded after `elapsed` of wall time.
    fn done(&self, step: &str, elapsed: Duration);
    /// A message that is not part of a step.
    fn note(&self, text: &str);
}

/// Prints nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn started(&self, _: &str) {}
    fn detail(&self, _: &str, _: &str) {}
    fn done(&self, _: &str, _: Duration) {}
    fn note(&self, _: &str) {}
}

/// Short lines on standard error. On a terminal, details overwrite each other in place; in a log, one is printed every
/// few seconds, to show progress without flooding.
#[derive(Debug)]
pub struct Terminal {
    in_place: bool,
    last_detail: Mutex<Option<Instant>>,
}

/// Wall time between details when standard error is a file or a pipe.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum columns of a detail; longer ones are cut, because a wrapped line cannot be overwritten.
const DETAIL_COLUMNS: usize = 76;

impl Terminal {
    /// Writes to standard error.
    pub fn new() -> Self {
        Self { in_place: std::io::stderr().is_terminal(), last_detail: Mutex::new(None) }
    }

    /// An error here must not stop the build.
    fn print(&self, text: std::fmt::Arguments<'_>) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_fmt(text);
        let _ = stderr.flush();
    }

    /// In a log, whether the next detail is due.
    fn detail_is_due(&self) -> bool {
        let Ok(mut last) = self.last_detail.lock() else { return false };
        let due = last.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Terminal {
    fn started(&self, step: &str) {
        if let Ok(mut last) = self.last_detail.lock() {
            *last = Some(Instant::now());
        }
        self.print(format_args!("niclab: {step} ...\n"));
    }

    fn detail(&self, step: &str, detail: &str) {
        let line: String = format!("  {step}: {detail}").chars().take(DETAIL_COLUMNS).collect();
        if self.in_place {
            self.print(format_args!("\r\x1b[K{line}"));
        } else if self.detail_is_due() {
            self.print(format_args!("{line}\n"));
        }
    }

    fn done(&self, step: &str, elapsed: Duration) {
        let clear = if self.in_place { "\r\x1b[K" } else { "" };
        self.print(format_args!("{clear}niclab: {step}: done in {:.1} s\n", elapsed.as_secs_f64()));
    }

    fn note(&self, text: &str) {
        let clear = if self.in_place { "\r\x1b[K" } else { "" };
        self.print(format_args!("{clear}niclab: {text}\n"));
    }
}

/// Runs `work` as a step.
pub(crate) fn step<T, E>(
    progress: &dyn Progress,
    name: &str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begin = Instant::now();
    progress.started(name);
    let result = work()?;
    progress.done(name, begin.elapsed());
    Ok(result)
}
