//! Reads the output of a test binary of Rust's own harness, in its usual form. Sans-IO: bytes in, results out.
//!
//! With several threads, the harness prints a test's line when the test has ended. With one thread, it prints the
//! line's beginning before the test runs:
//!
//! ```text
//! running 2 tests
//! test a::works ... ok
//! test b::breaks - should panic ... FAILED
//! ...
//! test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
//! ```

/// What the output has reported so far.
#[derive(Debug, Default)]
pub struct Output {
    /// Whether lines of tests that passed or were ignored are left out.
    is_condensed: bool,
    line: Vec<u8>,
    /// The number of bytes of `line` that were passed on.
    shown: usize,
    /// The last complete line.
    last: String,
    ended: Vec<String>,
    begun: Option<String>,
    passed: usize,
    failed: usize,
    ignored: usize,
    is_harness: bool,
    is_closed: bool,
}

impl Output {
    /// The state before the first output.
    #[must_use]
    pub fn new(is_condensed: bool) -> Self {
        Self { is_condensed, ..Self::default() }
    }

    /// Takes the next output, and appends to `show` the part that is to be shown.
    pub fn feed(&mut self, bytes: &[u8], show: &mut Vec<u8>) {
        for &byte in bytes {
            self.line.push(byte);
            if byte == b'\n' {
                let is_shown = self.end_line();
                if is_shown || !self.is_condensed {
                    show.extend(&self.line[self.shown..]);
                }
                self.line.clear();
                self.shown = 0;
            }
        }
        if !self.is_condensed {
            show.extend(&self.line[self.shown..]);
            self.shown = self.line.len();
        }
    }

    /// Ends the output. Appends the rest of the last line to `show`.
    pub fn finish(&mut self, show: &mut Vec<u8>) {
        if !self.line.is_empty() {
            self.end_line();
            show.extend(&self.line[self.shown..]);
            show.push(b'\n');
            self.line.clear();
        }
    }

    /// The number of tests that have ended, for [`crate::limits::Sample::progress`].
    #[must_use]
    pub fn progress(&self) -> usize {
        self.ended.len()
    }

    /// Whether a harness has begun and has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_harness && !self.is_closed
    }

    /// The tests of `all` that run now, if the harness runs `threads` at once. It starts them in the order of its list.
    #[must_use]
    pub fn running(&self, all: &[String], threads: usize) -> Vec<String> {
        if threads == 1 {
            let partial = begun(&String::from_utf8_lossy(&self.line)).map(|(name, _)| name.to_owned());
            return partial
                .or_else(|| self.begun.clone())
                .into_iter()
                .filter(|name| all.contains(name))
                .collect();
        }
        let is_left = |name: &&String| !self.ended.contains(name);
        all.iter().filter(is_left).take(threads).cloned().collect()
    }

    /// A closing line in the harness's form, for a run that was ended while `hung` tests ran.
    #[must_use]
    pub fn closing_line(&self, hung: usize) -> String {
        let Self { passed, ignored, .. } = self;
        let failed = self.failed + hung.max(1);
        format!(
            "test result: FAILED. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered \
                out; ended by niclab-runner"
        )
    }

    /// Takes a complete line. Returns whether a condensed output shows it.
    fn end_line(&mut self) -> bool {
        let line = String::from_utf8_lossy(&self.line).trim_end_matches(['\r', '\n']).to_owned();
        self.is_harness |=
            line.starts_with("running ") && (line.ends_with(" test") || line.ends_with(" tests"));
        let is_result = line.starts_with("test result: ");
        if is_result || line == "failures:" {
            self.end_begun();
            self.is_closed |= is_result;
            return true;
        }
        let Some((name, result)) = begun(&line) else {
            self.last = line;
            return true;
        };
        self.end_begun();
        let (name, result) = (name.to_owned(), result.to_owned());
        self.last.clear();
        if is_end(&result) {
            self.end(name, &result);
            return result == "FAILED";
        }
        self.begun = Some(name);
        self.last = result;
        true
    }

    /// Ends the test that began last. Its result is at the end of its own output.
    fn end_begun(&mut self) {
        if let Some(name) = self.begun.take() {
            let result = if self.last.ends_with("FAILED") { "FAILED" } else { "ok" };
            self.end(name, result);
        }
    }

    fn end(&mut self, name: String, result: &str) {
        match result {
            "ok" => self.passed += 1,
            "FAILED" => self.failed += 1,
            _ => self.ignored += 1,
        }
        self.ended.push(name);
    }
}

/// The name of the test that a line is about, and the rest of the line. A name is a path without a space.
fn begun(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    (!name.contains(' ')).then_some((name, rest))
}

fn is_end(result: &str) -> bool {
    matches!(result, "ok" | "FAILED") || result.starts_with("ignored")
}

/// The tests in a binary's answer to `--list`.
#[must_use]
pub fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The number of tests that the harness runs at once, if arguments or environment set it.
#[must_use]
pub fn threads(arguments: &[String], environment: Option<&str>) -> Option<usize> {
    let mut given = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--test-threads" {
            given = arguments.next().map(String::as_str);
        } else if let Some(number) = argument.strip_prefix("--test-threads=") {
            given = Some(number);
        }
    }
    given.or(environment)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shown text, and the state after it.
    fn shown(text: &str, is_condensed: bool) -> (String, Output) {
        let mut output = Output::new(is_condensed);
        let mut show = Vec::new();
        // Byte by byte: a pipe may divide the output anywhere.
        text.bytes().for_each(|byte| output.feed(&[byte], &mut show));
        (String::from_utf8(show).expect("text"), output)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    const HEAD: &str = "\nrunning 5 tests\n";

    #[test]
    fn condensed_output_shows_failed_tests_and_counts_the_others() {
        let text = format!(
            "{HEAD}test a ... ok\ntest b - should panic ... ok\ntest c ... ignored, later\ntest d ... FAILED\n"
        );
        let (show, output) = shown(&text, true);
        assert_eq!(show, format!("{HEAD}test d ... FAILED\n"));
        assert_eq!((output.progress(), output.is_open()), (4, true));
        assert_eq!(output.running(&names(&["a", "b", "c", "d", "e"]), 2), ["e"]);
        assert!(
            output
                .closing_line(1)
                .starts_with("test result: FAILED. 2 passed; 2 failed; 1 ignored; 0 measured;"),
            "{}",
            output.closing_line(1)
        );
        assert_eq!(shown(&text, false).0, text);
    }

    #[test]
    fn tests_run_in_the_order_of_the_list() {
        let (_, output) = shown(&format!("{HEAD}test b ... ok\n"), true);
        let all = names(&["a", "b", "c", "d", "e"]);
        assert_eq!(output.running(&all, 2), ["a", "c"]);
        // The harness writes the line of a test that has just ended in two parts.
        let (_, output) = shown(&format!("{HEAD}test b ... ok\ntest c ... "), true);
        assert_eq!(output.running(&all, 2), ["a", "c"]);
    }

    #[test]
    fn one_thread_names_its_test_before_it_runs() {
        let text =
            format!("{HEAD}test a ... said\nmore, and ok\ntest b ... word FAILED\ntest c ... and on\n");
        let (show, output) = shown(&text, false);
        assert_eq!(show, text);
        let all = names(&["a", "b", "c", "d"]);
        assert_eq!(output.running(&all, 1), ["c"]);
        assert_eq!((output.passed, output.failed), (1, 1));
        let (show, output) = shown(&format!("{text}ok\ntest d ... "), false);
        assert!(show.ends_with("test d ... "), "a line is shown as it comes");
        assert_eq!(output.running(&all, 1), ["d"]);
    }

    #[test]
    fn programs_that_print_test_lines_do_not_count() {
        let (_, output) =
            shown("running 2 tests\ntest a ... out: test x ... y\ntest of mine ... now\n", false);
        assert_eq!(output.running(&names(&["a", "b"]), 1), ["a"]);
    }

    #[test]
    fn only_a_harness_without_closing_line_is_open() {
        let closing = "\ntest result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished \
            in 0.01s\n";
        let (show, output) = shown(&format!("{HEAD}{closing}\n"), true);
        assert!(show.contains(closing) && !output.is_open());
        assert!(!shown("hello\nrunning late\n", true).1.is_open());
    }

    #[test]
    fn the_rest_of_an_unfinished_line_is_shown_once() {
        let mut output = Output::new(true);
        let mut show = Vec::new();
        output.feed(b"half a li", &mut show);
        output.finish(&mut show);
        output.finish(&mut show);
        assert_eq!(show, b"half a li\n");
    }

    #[test]
    fn lists_and_threads_are_read() {
        assert_eq!(listed("a::b: test\nc: benchmark\n\n2 tests, 1 benchmark\n"), ["a::b"]);
        assert_eq!(threads(&names(&["--test-threads=3"]), Some("5")), Some(3));
        assert_eq!(threads(&names(&["x", "--test-threads", "4"]), None), Some(4));
        assert_eq!(threads(&[], Some("5")), Some(5));
        assert_eq!(threads(&[], None), None);
    }
}
