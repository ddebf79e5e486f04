//! How a program in a guest failed, for messages and reports: its exit code or signal, the kernel's messages, and the
//! end of its own output.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use niclab_agent::ExitStatus;

use super::panic::{out_of_memory_kill, without_stamp};

/// Names of signals that end programs, by their numbers on x86 (`signal(7)`).
const SIGNALS: [(i32, &str); 17] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

/// A shell adds the signal's number to this code for a program that a signal killed.
const SHELL_SIGNAL_CODE: u8 = 128;

/// Maximum number of lines of a console or of a program's output that are shown and reported.
const MAX_LINES: usize = 10;

/// Bytes at the end of a console or of a program's output that are kept. A guest may write without end.
const MAX_BYTES: u64 = 64 * 1024;

/// A position on a console: its end when a program began.
#[derive(Clone, Debug)]
pub struct ConsoleMark {
    console: PathBuf,
    begin: u64,
}

/// How a program failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramFailure {
    /// Its exit code or signal, and the kernel's reason.
    pub how: String,
    /// The last lines on the guest's console while the program ran, without time stamps.
    pub console: Vec<String>,
}

impl ConsoleMark {
    /// The current end of the console.
    #[must_use]
    pub fn now(console: &Path) -> Self {
        // A missing console counts as empty.
        let begin = console.metadata().map_or(0, |about| about.len());
        Self { console: console.to_owned(), begin }
    }

    /// How a program failed that began at this mark and ended with `status`; `None` if it succeeded.
    #[must_use]
    pub fn failure(&self, status: ExitStatus) -> Option<ProgramFailure> {
        Some(self.failed(end_text(status)?))
    }

    /// The failure of a program that began at this mark. `end`: how it ended.
    #[must_use]
    pub fn failed(&self, end: String) -> ProgramFailure {
        let said = self.text().unwrap_or_default();
        let how = match out_of_memory_kill(&said) {
            Some(kill) => format!("{end}; the guest ran out of memory: {kill}"),
            None => end,
        };
        let lines: Vec<&str> = said.lines().map(without_stamp).filter(|line| !line.is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(MAX_LINES)..).unwrap_or_default();
        ProgramFailure { how, console: last.iter().map(|&line| line.to_owned()).collect() }
    }

    fn text(&self) -> io::Result<String> {
        let mut file = File::open(&self.console)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.begin.max(length.saturating_sub(MAX_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(printable(&text))
    }
}

/// The end of a program's standard output and standard error, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLines {
    bytes: Vec<u8>,
}

impl LastLines {
    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        // Removes rarely, so that a program with much output does not move these bytes at each write.
        let most = MAX_BYTES as usize;
        if self.bytes.len() > 2 * most {
            self.bytes.drain(..self.bytes.len() - most);
        }
    }

    /// The last lines, without control characters.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = printable(&String::from_utf8_lossy(&self.bytes));
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(MAX_LINES)..).unwrap_or_default();
        last.iter().map(|&line| line.to_owned()).collect()
    }
}

/// The text without control characters: a guest must not control the user's terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// The text of a program's exit code or signal; `None` for success.
fn end_text(status: ExitStatus) -> Option<String> {
    let name = |number: i32| SIGNALS.iter().find(|(signal, _)| *signal == number).map(|(_, name)| *name);
    match status {
        ExitStatus::Code(0) => None,
        ExitStatus::Signal(number) => {
            let name = name(number).map_or_else(String::new, |name| format!(" ({name})"));
            Some(format!("killed by signal {number}{name}"))
        }
        ExitStatus::Code(code) => {
            let signal = code.checked_sub(SHELL_SIGNAL_CODE).map(i32::from);
            let of_shell = signal.and_then(|number| Some((number, name(number)?))).map_or_else(
                String::new,
                |(number, name)| {
                    format!(": a shell's code for a program that was killed by signal {number} ({name})")
                },
            );
            Some(format!("exit code {code}{of_shell}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn codes_and_signals_are_named_and_success_is_silent() {
        let text = |status| end_text(status).unwrap_or_default();
        assert_eq!(text(ExitStatus::Code(0)), "");
        assert_eq!(text(ExitStatus::Code(3)), "exit code 3");
        assert_eq!(text(ExitStatus::Signal(11)), "killed by signal 11 (SIGSEGV)");
        assert_eq!(text(ExitStatus::Signal(40)), "killed by signal 40");
        assert!(text(ExitStatus::Code(139)).ends_with("killed by signal 11 (SIGSEGV)"), "of a shell");
        assert_eq!(text(ExitStatus::Code(255)), "exit code 255");
    }

    #[test]
    fn last_lines_are_few_printable_and_bounded() {
        let mut last = LastLines::default();
        last.push(b"first\n\x1b[31mred\r\n");
        assert_eq!(last.lines(), ["first", "[31mred"]);
        (0..100_000).for_each(|number| last.push(format!("line {number}\n").as_bytes()));
        let lines = last.lines();
        assert_eq!((lines.len(), lines[MAX_LINES - 1].as_str()), (MAX_LINES, "line 99999"));
        assert!(last.bytes.len() <= 2 * MAX_BYTES as usize);
    }

    #[test]
    fn failure_has_the_console_since_the_program_began() {
        let mut console = tempfile::NamedTempFile::new().unwrap();
        console.write_all(b"[    1.0] Out of memory: Killed process 7 (before)\n").unwrap();
        let mark = ConsoleMark::now(console.path());
        assert_eq!(mark.failure(ExitStatus::Code(0)), None);
        let nothing = ProgramFailure { how: "exit code 3".into(), console: Vec::new() };
        assert_eq!(mark.failure(ExitStatus::Code(3)), Some(nothing), "what was before is not shown");
        let kill = "Out of memory: Killed process 81 (hog) total-vm:900000kB, anon-rss:400000kB";
        write!(
            console,
            "[    9.1] \x1b[2Jhog invoked oom-killer\r\n{}[    9.2] {kill}\n",
            "[    9.1] x\n".repeat(20)
        )
        .unwrap();
        let failure = mark.failure(ExitStatus::Signal(9)).unwrap();
        assert_eq!(failure.how, format!("killed by signal 9 (SIGKILL); the guest ran out of memory: {kill}"));
        assert_eq!(
            (failure.console.len(), failure.console.last().map(String::as_str)),
            (MAX_LINES, Some(kill))
        );
    }
}
