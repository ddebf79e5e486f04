//! The reports of a kernel's debug tools on a console, one finding each.
//!
//! The guest controls its console, and may write anything to it. So lines, findings and the text kept of each are
//! bounded. Text that looks like a report counts as one; this affects only the verdict on that guest.

use std::io::{BufRead, Read};

use niclab_spec::report::KernelFinding;

use crate::guests::panic::without_stamp;

/// Maximum number of findings of a node. An error in a loop would otherwise fill the launcher's memory.
pub const MAX_FINDINGS: usize = 64;

/// Maximum number of lines, and bytes of a line, of one finding. A KASAN report with its three call traces has about
/// 100 lines.
const MAX_LINES: usize = 160;
const MAX_LINE_BYTES: usize = 512;

/// Within this many lines after its first, a report may repeat its kind.
const NAMED_WITHIN: usize = 6;

/// Maximum number of bytes read of a console. If a guest floods it, the first findings suffice.
const MAX_CONSOLE_BYTES: u64 = 64 << 20;

/// How reports begin, their kind, and how they end. The first match counts.
const REPORTS: [(&str, &str, End); 29] = [
    ("BUG: KASAN: ", "kasan", End::Border),
    ("BUG: KCSAN: ", "kcsan", End::Border),
    ("UBSAN: ", "ubsan", End::Trace),
    ("WARNING: possible circular locking dependency detected", "lockdep", End::Task),
    ("WARNING: possible recursive locking detected", "lockdep", End::Task),
    ("WARNING: possible irq lock inversion dependency detected", "lockdep", End::Task),
    ("WARNING: inconsistent lock state", "lockdep", End::Task),
    ("WARNING: bad unlock balance detected", "lockdep", End::Task),
    ("WARNING: lock held when returning to user space", "lockdep", End::Task),
    ("WARNING: held lock freed", "lockdep", End::Task),
    ("WARNING: suspicious RCU usage", "lockdep", End::Task),
    ("WARNING: Nested lock was not taken", "lockdep", End::Task),
    ("[ BUG: Invalid wait context ]", "lockdep", End::Task),
    ("-safe -> ", "lockdep", End::Task),
    ("INFO: trying to register non-static key", "lockdep", End::Task),
    ("BUG: sleeping function called from invalid context", "atomic-sleep", End::Task),
    ("BUG: scheduling while atomic", "atomic-sleep", End::Task),
    ("DMA-API: ", "dma-debug", End::Trace),
    ("ODEBUG: ", "debug-objects", End::Trace),
    ("list_add corruption", "list", End::Trace),
    ("list_del corruption", "list", End::Trace),
    ("refcount_t: ", "refcount", End::Trace),
    ("BUG: Bad page", "page", End::Task),
    ("BUG: kernel NULL pointer dereference", "oops", End::Trace),
    ("BUG: unable to handle ", "oops", End::Trace),
    ("Oops: ", "oops", End::Trace),
    ("kernel BUG at ", "bug", End::Trace),
    ("WARNING: CPU: ", "warning", End::Trace),
    ("BUG ", "slub", End::Task),
];

/// Messages of the debug tools at boot, which are no reports.
const NO_REPORTS: [&str; 2] = ["DMA-API: preallocated", "DMA-API: debugging enabled"];

/// The last line of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A line of equals signs.
    Border,
    /// `---[ end trace ... ]---`.
    Trace,
    /// The end of a call trace.
    Task,
}

impl End {
    fn is_at(self, line: &str) -> bool {
        match self {
            Self::Border => is_border(line),
            Self::Trace => line.starts_with("---[ end trace"),
            Self::Task => line.trim() == "</TASK>",
        }
    }
}

fn is_border(line: &str) -> bool {
    line.len() > 8 && line.bytes().all(|byte| byte == b'=')
}

/// A line that frames a report, and ends an open report before it.
fn is_frame(line: &str) -> bool {
    is_border(line) || line.starts_with("------------[ cut here ]")
}

/// The findings on a console, in order, without their source lines.
pub fn findings(console: impl Read) -> Vec<KernelFinding> {
    let mut reader = std::io::BufReader::new(console.take(MAX_CONSOLE_BYTES));
    let mut found = Found::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        // The console of a running guest is read up to its current end.
        match reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(_) => found.line(&cleaned(&bytes)),
        }
        if found.done.len() >= MAX_FINDINGS {
            break;
        }
    }
    found.close();
    found.done
}

/// A line without the kernel's time stamp, and without control characters.
fn cleaned(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    without_stamp(text.trim_end()).to_owned()
}

#[derive(Default)]
struct Found {
    done: Vec<KernelFinding>,
    open: Option<(KernelFinding, End, usize)>,
}

impl Found {
    fn line(&mut self, line: &str) {
        let report = REPORTS.iter().find(|(begin, ..)| line.contains(begin));
        let report = report.filter(|_| !NO_REPORTS.iter().any(|other| line.starts_with(other)));
        match (&mut self.open, report) {
            // Within a report that already named its kind: the line with its place, or with the exception number.
            (Some((_, _, lines)), Some((_, "warning" | "oops", _))) if *lines < NAMED_WITHIN => {
                self.keep(line)
            }
            (_, Some((begin, kind, end))) if is_beginning(line, begin) => {
                self.close();
                let finding = KernelFinding {
                    kind: (*kind).to_owned(),
                    title: title(line),
                    count: 1,
                    ..KernelFinding::default()
                };
                self.open = Some((finding, *end, 0));
                self.keep(line);
            }
            (Some((_, end, lines)), _) if end.is_at(line) && *lines > 1 => {
                let is_kept = *end != End::Border;
                if is_kept {
                    self.keep(line);
                }
                self.close();
            }
            (Some((_, end, lines)), _) if *end != End::Task && is_frame(line) && *lines > 1 => self.close(),
            _ => self.keep(line),
        }
    }

    fn keep(&mut self, line: &str) {
        let Some((finding, _, lines)) = &mut self.open else { return };
        *lines += 1;
        if *lines <= MAX_LINES {
            finding.text += line;
            finding.text.push('\n');
        } else {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some((finding, ..)) = self.open.take() else { return };
        self.done.push(finding);
    }
}

/// Whether the text is at a position where a report begins: some reports have words before it, but none a call trace.
fn is_beginning(line: &str, begin: &str) -> bool {
    match begin {
        "-safe -> " => line.starts_with("WARNING: "),
        // `BUG kmalloc-64 (Tainted: ...): Poison overwritten`.
        "BUG " => line.starts_with(begin) && line.contains("): "),
        "DMA-API: " => line.starts_with(begin) && !line.contains("Mapped at"),
        _ => line.starts_with(begin),
    }
}

/// The first line without run-specific addresses, so that repeated reports compare equal.
fn title(line: &str) -> String {
    let words =
        line.split(' ').map(|word| if word.starts_with("0x") && word.len() > 10 { "0x..." } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KASAN: &str = "[   12.345678] ==================================================================\n\
        [   12.345700] BUG: KASAN: slab-use-after-free in planted_write+0x1a/0x30 [planted]\n\
        [   12.345800] Write of size 1 at addr ffff888005a3c400 by task sh/81\n\
        [   12.345900] \n\
        [   12.346000] Call Trace:\n\
        [   12.346100]  <TASK>\n\
        [   12.346200]  planted_write+0x1a/0x30 [planted]\n\
        [   12.346300]  </TASK>\n\
        [   12.346400] Allocated by task 81:\n\
        [   12.346500]  planted_open+0x1a/0x30 [planted]\n\
        [   12.346600] ==================================================================\n\
        [   12.346700] Disabling lock debugging due to kernel taint\n";

    const UBSAN: &str = "[    9.100000] ------------[ cut here ]------------\n\
        [    9.100100] UBSAN: shift-out-of-bounds in /driver-build/planted.c:61:9\n\
        [    9.100200] shift exponent 40 is too large for 32-bit type 'int'\n\
        [    9.100300] Call Trace:\n\
        [    9.100400]  <TASK>\n\
        [    9.100500]  planted_write+0x44/0x90 [planted]\n\
        [    9.100600]  </TASK>\n\
        [    9.100700] ---[ end trace ]---\n";

    const LOCKDEP: &str = "[    7.000000] ======================================================\n\
        [    7.000100] WARNING: possible circular locking dependency detected\n\
        [    7.000200] 6.12.117-debug #1 Tainted: G           O\n\
        [    7.000300] ------------------------------------------------------\n\
        [    7.000400] sh/90 is trying to acquire lock:\n\
        [    7.000500] ffffffffa0002a20 (first){+.+.}-{4:4}, at: planted_write+0x22/0x90 [planted]\n\
        [    7.000600] Call Trace:\n\
        [    7.000700]  <TASK>\n\
        [    7.000800]  planted_write+0x22/0x90 [planted]\n\
        [    7.000900]  </TASK>\n";

    const SLEEP: &str = "[    8.0] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585\n\
        [    8.1] in_atomic(): 1, irqs_disabled(): 0, non_block: 0, pid: 91, name: sh\n\
        [    8.2]  <TASK>\n\
        [    8.3]  planted_write+0x66/0x90 [planted]\n\
        [    8.4]  </TASK>\n";

    const WARNING: &str = "[    6.0] ------------[ cut here ]------------\n\
        [    6.1] refcount_t: underflow; use-after-free.\n\
        [    6.2] WARNING: CPU: 0 PID: 1 at lib/refcount.c:28 refcount_warn_saturate+0x10/0x20\n\
        [    6.3] ---[ end trace 0000000000000000 ]---\n\
        [    6.4] ------------[ cut here ]------------\n\
        [    6.5] WARNING: CPU: 0 PID: 1 at /driver-build/a.c:9 f+0x10/0x20 [planted]\n\
        [    6.6] ---[ end trace 0000000000000000 ]---\n";

    fn kinds(text: &str) -> Vec<String> {
        findings(text.as_bytes()).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn each_tools_report_is_one_finding_with_all_its_text() {
        let found = findings(KASAN.as_bytes());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].title, "BUG: KASAN: slab-use-after-free in planted_write+0x1a/0x30 [planted]");
        assert!(found[0].text.contains("Allocated by task 81:\n planted_open"), "{}", found[0].text);
        assert!(!found[0].text.contains("12.34") && !found[0].text.contains("==="), "{}", found[0].text);
        let all = [SLEEP, KASAN, UBSAN, LOCKDEP, WARNING].concat();
        assert_eq!(kinds(&all), ["atomic-sleep", "kasan", "ubsan", "lockdep", "refcount", "warning"]);
    }

    #[test]
    fn messages_of_a_healthy_kernel_are_no_findings() {
        let quiet = "[    0.1] kasan: KernelAddressSanitizer initialized\n\
            [    0.2] DMA-API: preallocated 65536 debug entries\n\
            [    0.2] DMA-API: debugging enabled by kernel config\n\
            [    0.3] Lock dependency validator: Copyright (c) 2006\n\
            [    0.4] kmemleak: Kernel memory leak detector initialized\n niclab: BUGs and WARNINGs welcome\n";
        assert!(kinds(quiet).is_empty(), "{:?}", findings(quiet.as_bytes()));
    }

    #[test]
    fn report_cut_short_by_another_is_kept() {
        let cut = KASAN.lines().take(4).collect::<Vec<_>>().join("\n") + "\n" + UBSAN;
        assert_eq!(kinds(&cut), ["kasan", "ubsan"]);
        assert_eq!(kinds(&KASAN[..300]), ["kasan"], "and one at the end of a console");
    }

    #[test]
    fn flooded_console_is_read_within_bounds() {
        let flood = SLEEP.repeat(10 * MAX_FINDINGS);
        assert_eq!(findings(flood.as_bytes()).len(), MAX_FINDINGS);
        let endless = format!("BUG: KASAN: x in y\n{}", "a".repeat(4 << 20));
        let found = findings(endless.as_bytes());
        assert!(found.len() == 1 && found[0].text.len() <= (MAX_LINES + 1) * (MAX_LINE_BYTES + 1));
        let orders = findings("BUG: KASAN: \x1b[2Jx\x07 in y\n".as_bytes());
        assert_eq!(orders[0].title, "BUG: KASAN: [2Jx in y");
    }
}
