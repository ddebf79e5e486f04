//! Finds out from a guest's console why its kernel panicked.
//!
//! The guest controls its console, and may write anything to it. Callers read a bounded end of it. Text that looks like
//! a panic counts as one; this affects only the message about that guest.

/// The prefix of a panic's line (Linux, `kernel/panic.c`).
const PANIC: &str = "Kernel panic - not syncing: ";

/// The last line of a kernel that panicked.
const PANIC_END: &str = "---[ end Kernel panic";

/// The last line of a call trace that belongs to an oops or a warning.
const TRACE_END: &str = "---[ end trace";

/// Panics that follow from the oops before them (Linux, `arch/x86/kernel/dumpstack.c` and `kernel/exit.c`).
const PANICS_OF_OOPSES: [&str; 3] = ["Fatal exception", "Aiee, killing", "Attempted to kill"];

/// The first words of an oops on x86 (Linux, `arch/x86/mm/fault.c`, `arch/x86/kernel/traps.c` and `lib/bug.c`).
const OOPSES: [&str; 10] = [
    "BUG: kernel NULL pointer dereference",
    "BUG: unable to handle ",
    "BUG: TASK stack guard page was hit",
    "Oops: ",
    "kernel BUG at ",
    "general protection fault",
    "stack segment: ",
    "invalid opcode: ",
    "divide error: ",
    "traps: PANIC: ",
];

/// The first words of other reports, after which a kernel panics if configured so: `panic_on_warn set ...`.
const REPORTS: [&str; 3] = ["BUG: ", "WARNING: ", "UBSAN: "];

/// The end of such a panic's line.
const AS_CONFIGURED: &str = " set ...";

/// Maximum number of lines of a report before the panic, and after its first line. An oops with registers, trace and
/// code takes about 60.
const MAX_REPORT_LINES: usize = 100;

/// An oops names itself again within this many lines: `BUG: ...` and, after the page tables, `Oops: ...`.
const SAME_OOPS_LINES: usize = 12;

/// Maximum number of lines of a panic without a report: its own call trace.
const MAX_PANIC_LINES: usize = 40;

/// A panic of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The kernel's first line: of the oops if one led to the panic, else of the panic.
    pub reason: String,
    /// The report with its call trace, to the panic's own line.
    pub text: String,
}

/// The last panic on a console; `None` if the kernel did not panic.
#[must_use]
pub fn panic_of(console: &str) -> Option<Panic> {
    let lines: Vec<&str> = console.lines().map(without_stamp).collect();
    let at = lines.iter().rposition(|line| line.contains(PANIC))?;
    let (before, after) = lines.split_at(at);
    let said = after.first()?.split_once(PANIC)?.1;
    let Some(begin) = report_before(before, said) else {
        let is_end = |line: &&&str| line.starts_with(PANIC_END);
        let kept: Vec<&str> =
            after.iter().take(MAX_PANIC_LINES).take_while(|line| !is_end(line)).copied().collect();
        return Some(Panic { reason: said.to_owned(), text: kept.join("\n") });
    };
    let report = before.get(begin..).unwrap_or_default();
    let text = report.iter().chain(after.first()).copied().collect::<Vec<_>>().join("\n");
    Some(Panic { reason: reason_of(report), text })
}

/// Whether the console has an oops that is not yet followed by a panic.
#[must_use]
pub fn is_oops_open(console: &str) -> bool {
    let lines = || console.lines().map(without_stamp);
    let last = |is_it: &dyn Fn(&str) -> bool| lines().enumerate().filter(|(_, line)| is_it(line)).last();
    let oops = last(&|line| is_oops(line));
    let panic = last(&|line| line.contains(PANIC));
    oops.is_some_and(|(at, _)| panic.is_none_or(|(panicked_at, _)| panicked_at < at))
}

/// The last line in which the kernel names a process that it killed because memory ran out (Linux, `mm/oom_kill.c`).
#[must_use]
pub fn out_of_memory_kill(console: &str) -> Option<&str> {
    const KILLED: &str = "ut of memory: Killed process ";
    console.lines().map(without_stamp).rfind(|line| line.contains(KILLED))
}

/// The first line of the report that led to the panic with these words.
fn report_before(before: &[&str], said: &str) -> Option<usize> {
    let is_report = |line: &str| REPORTS.iter().any(|begin| line.starts_with(begin));
    let is_any = |line: &str| is_oops(line) || said.contains(AS_CONFIGURED) && is_report(line);
    let mut begin = before.iter().rposition(|line| is_any(line))?;
    let is_of_oops = PANICS_OF_OOPSES.iter().any(|words| said.starts_with(words));
    let is_over = before.get(begin..)?.iter().any(|line| line.starts_with(TRACE_END));
    if before.len() - begin > MAX_REPORT_LINES || is_over && !is_of_oops {
        return None;
    }
    // Go back to the first line of the same report.
    while let Some(earlier) =
        before.get(..begin).and_then(|lines| lines.iter().rposition(|line| is_any(line)))
    {
        let is_other = before.get(earlier..begin)?.iter().any(|line| line.starts_with(TRACE_END));
        if is_other || begin - earlier > SAME_OOPS_LINES {
            break;
        }
        begin = earlier;
    }
    Some(begin)
}

/// The report's first line, and the line with the exception number if that is another line.
fn reason_of(report: &[&str]) -> String {
    let Some((first, rest)) = report.split_first() else { return String::new() };
    // Linux 6.12 repeats the word in some: `Oops: Oops: 0002 [#1]`.
    let once = |line: &str| line.replace("Oops: Oops: ", "Oops: ");
    let exception = rest.iter().take(SAME_OOPS_LINES).find(|line| line.starts_with("Oops: "));
    match exception {
        Some(exception) if !first.starts_with("Oops: ") => format!("{first}; {}", once(exception)),
        _ => once(first),
    }
}

fn is_oops(line: &str) -> bool {
    OOPSES.iter().any(|begin| line.starts_with(begin))
}

/// A console's line without the kernel's time stamp.
#[must_use]
pub fn without_stamp(line: &str) -> &str {
    let stamped = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_stamp = |stamp: &str| stamp.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match stamped {
        Some((stamp, rest)) if is_stamp(stamp) => rest.strip_prefix(' ').unwrap_or(rest),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Consoles of Linux 6.12 guests, without the unreliable frames of the stack unwinder.
    const NULL_POINTER: &str = include_str!("panic/null-pointer.console");
    const DOUBLE_FREE: &str = include_str!("panic/double-free.console");

    #[test]
    fn oops_gives_reason_and_trace_of_the_panic_that_follows() {
        let panic = panic_of(NULL_POINTER).unwrap();
        let reason = "BUG: kernel NULL pointer dereference, address: 0000000000000008; \
            Oops: 0002 [#1] PREEMPT SMP NOPTI";
        assert_eq!(panic.reason, reason);
        assert!(panic.text.starts_with("BUG: kernel NULL pointer"), "{}", panic.text);
        assert!(panic.text.contains("planted_write+0x10f/0x1a0 [planted]"), "{}", panic.text);
        assert!(panic.text.ends_with("Kernel panic - not syncing: Fatal exception"), "{}", panic.text);
        let panic = panic_of(DOUBLE_FREE).unwrap();
        assert!(panic.reason.starts_with("kernel BUG at mm/slub.c:"), "{}", panic.reason);
        assert!(panic.reason.contains("; Oops: invalid opcode: 0000 [#1]"), "{}", panic.reason);
        assert!(panic.text.contains("planted_write+0xa3/0x1a0 [planted]"), "{}", panic.text);
    }

    #[test]
    fn last_panic_counts_and_older_reports_are_not_its_reason() {
        let again = [NULL_POINTER, "[    0.0] Linux version 6.12\n", DOUBLE_FREE].concat();
        assert_eq!(panic_of(&again), panic_of(DOUBLE_FREE));
        let oops = NULL_POINTER.split("Kernel panic").next().unwrap();
        let own = format!(
            "{oops}x\n[    9.0] Kernel panic - not syncing: own: no way\n[    9.0]  own_init+0x1/0x2 [own]\n"
        );
        let panic = panic_of(&own).unwrap();
        assert_eq!(panic.reason, "own: no way", "that oops did not panic");
        assert!(panic.text.ends_with("own_init+0x1/0x2 [own]"), "{}", panic.text);
        let warning = "[    1.0] WARNING: CPU: 0 PID: 1 at a.c:7 f+0x1/0x2 [own]\n\
                    [    1.0] Kernel panic - not syncing: kernel: \
                    panic_on_warn set ...\n";
        assert!(panic_of(warning).unwrap().reason.starts_with("WARNING: CPU: 0"));
        assert_eq!(panic_of("[    1.0] WARNING: CPU: 0\nall is well\n"), None);
    }

    #[test]
    fn panic_that_floods_the_console_is_kept_within_bounds() {
        let flood = format!("Kernel panic - not syncing: x\n{}", "a\n".repeat(100_000));
        assert_eq!(panic_of(&flood).unwrap().text.lines().count(), MAX_PANIC_LINES);
        let far = format!("Oops: 1\n{}Kernel panic - not syncing: Fatal exception\n", "a\n".repeat(100_000));
        assert_eq!(panic_of(&far).unwrap().reason, "Fatal exception");
    }

    #[test]
    fn oops_is_open_until_its_panic() {
        let (open, _) = NULL_POINTER.split_once("Kernel panic").unwrap();
        assert!(is_oops_open(open) && !is_oops_open(NULL_POINTER));
        assert!(is_oops_open(&[NULL_POINTER, open].concat()), "of the next boot");
        assert!(!is_oops_open("[    1.0] WARNING: CPU: 0 PID: 1 at a.c:7\n"));
    }

    #[test]
    fn process_that_was_killed_for_memory_is_found() {
        let killed = "Out of memory: Killed process 134 (tail) total-vm:176652kB, anon-rss:174464kB";
        let console = format!(
            "[   15.3] oom-kill:constraint=CONSTRAINT_NONE,task=tail\n[   15.4] {killed}\n[   15.5] x\n"
        );
        assert_eq!(out_of_memory_kill(&console), Some(killed));
        assert_eq!(out_of_memory_kill("all is well\n"), None);
    }
}
