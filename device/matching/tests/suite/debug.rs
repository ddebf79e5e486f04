//! `niclab-match debug` with scripts: its replies, and that only the end of input or `quit` ends it.

use std::fs;
use std::path::Path;

use crate::support::{folder, on_files, text};

/// The debugger's replies to a script. Each entry is the text after one prompt.
fn session(options: &[&str], script: &str) -> Vec<String> {
    let folder = folder();
    let output = on_files(folder.path(), "debug", options, script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).split("(match) ").map(str::to_owned).collect()
}

fn holds(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part}: {said}");
    }
}

#[test]
fn step_shows_each_cycle() {
    let said = session(&["--command", "step 2"], "step 3\nregisters\nfifos\n");
    holds(&said[0], &["program built-in, 44 words; 3 items, 3 headers", "next: cycle 0, word 0: "]);
    holds(
        &said[1],
        &[
            "step 2\n",
            "cycle 0 ",
            "issues 0: flag_tests = add r0, (REMOTE + MAXIMUM) << 16",
            "header 0 begins",
            "sends 0x5",
        ],
    );
    let fifth = said[2].split("cycle 4 ").nth(1).unwrap();
    holds(
        fifth,
        &[
            "issues 4 header: match_bits = in | ones = nor r0, r0",
            "unit takes 0x5",
            "t1 (match_bits): 0x0 -> 0x5",
            "r14 (ones): 0x0 -> 0xffffffffffffffff",
        ],
    );
    holds(fifth, &["next: cycle 5, word 5 header+1"]);
    // Changes by the last command are marked; changes by the command before it are not.
    holds(
        &said[3],
        &[
            "r14 0xffffffffffffffff * ones",
            "r12 0x0020004000180000   flag_tests",
            "t1 0x0000000000000005 * match_bits",
        ],
    );
    assert!(!said[3].contains("r12 0x0020004000180000 *"), "{}", said[3]);
    holds(&said[4], &["input, 4 of 16:\n    0x100090001\n    0x40\n", "output, 0:"]);
    assert_eq!(said.len(), 5, "the debugger ends at the end of input");
}

#[test]
fn breakpoints_stop_at_words_and_events() {
    let script = "break fast\ncontinue\nlist\nbreak on verdict\nc\nc\npredicates\ndelete 1\nbreak\ndelete\n\
                  break on outcome\nc\nresults\nbreak at 13\nbreak on header\nc\nmanager\n";
    let said = session(&["--keep"], script);
    holds(&said[1], &["breakpoint 1: word 19 fast"]);
    // The word is in the delay slot of the branch that sends 'failed' for the first item.
    holds(
        &said[2],
        &["breakpoint 1, before cycle 19\n", "word 19 fast, branches to item in 2 words: threshold = in |"],
    );
    holds(&said[3], &[">     0  match 0x6 ", "      2  match 0x5 ignore 0x0 node 1 process any"]);
    // The verdict is sent in cycle 18 and received three cycles later.
    holds(&said[5], &["breakpoint 2, before cycle 22"]);
    // A breakpoint stops each time that its word is reached.
    holds(&said[6], &["breakpoint 1, before cycle 26"]);
    holds(&said[7], &["  p0 1\n", "  p7 1 * ids_differ\n", " p12 1\n"]);
    assert_eq!(said[9], "break\nbreakpoint 2: on verdict\n");
    assert_eq!(said[10], "delete\nno breakpoints\n");
    holds(&said[12], &["breakpoint 3, before cycle "]);
    holds(&said[13], &["       0        2                    0                   64        56         3"]);
    holds(&said[16], &["breakpoint 5, before cycle "]);
    holds(
        &said[17],
        &["1 of 3 headers wait", "header 1, since cycle 56: match 0x5 node 1 process 9 Put length 64"],
    );
}

#[test]
fn stages_are_shown_by_cycle() {
    let folder = folder();
    // The second word waits for the header's first word.
    fs::write(
        folder.path().join("take.nma"),
        "start: r1 = add r0, 1\nr2 = in\nr3 = in\nstop: br stop\nnop\nnop\n",
    )
    .unwrap();
    let output =
        on_files(folder.path(), "debug", &["--program", "take.nma"], "step 6\npipeline 6\npipeline 1\n");
    let said = text(&output.stdout);
    let rows: Vec<Vec<&str>> = said
        .split("(match) pipeline 6\n")
        .nth(1)
        .unwrap()
        .lines()
        .skip(1)
        .take(6)
        .map(|row| row.split_whitespace().collect())
        .collect();
    // The first word of the header is sent in cycle 0 and can be taken from cycle 1 on.
    assert_eq!(rows[0], ["0", "start", "-", "-"]);
    assert_eq!(rows[1], ["1", "start+1", "start", "-"]);
    assert_eq!(rows[2], ["2", "start+2", "start+1", "start"]);
    assert_eq!(rows[5], ["5", "stop+2", "stop+1", "stop"]);
    assert_eq!(said.split("(match) pipeline 1\n").nth(1).unwrap().lines().count(), 2);

    fs::write(folder.path().join("wait.nma"), "start: r2 = in\nr3 = in\nstop: br stop\nnop\nnop\n").unwrap();
    let output = on_files(folder.path(), "debug", &["--program", "wait.nma"], "step 3\npipeline\n");
    let said = text(&output.stdout);
    let rows: Vec<Vec<&str>> = said
        .split("(match) pipeline\n")
        .nth(1)
        .unwrap()
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [
            vec!["0", "start", "(waits)", "-", "-"],
            vec!["1", "start", "-", "-"],
            vec!["2", "start+1", "start", "-"]
        ]
    );
    holds(&said, &["cycle 0      waits at 0 start"]);
}

#[test]
fn a_breakpoint_stops_once_at_a_waiting_word() {
    let folder = folder();
    // Header and two items are 24 words; the list manager sends no more before the first verdict.
    fs::write(folder.path().join("drain.nma"), "in\n".repeat(40)).unwrap();
    let options = ["--program", "drain.nma", "--watchdog", "60"];
    let output = on_files(folder.path(), "debug", &options, "break 24\ncontinue\nstep\ncontinue\n");
    let said: Vec<String> = text(&output.stdout).split("(match) ").map(str::to_owned).collect();
    holds(&said[2], &["breakpoint 1, before cycle 25\n"]);
    holds(&said[3], &["waits at 24", "next: cycle 26, word 24"]);
    holds(&said[4], &["did not finish a header within 60 cycles"]);
}

#[test]
fn invalid_commands_do_not_end_the_debugger() {
    let script = "fly\nstep one\nbreak nowhere\nbreak 44\ndelete 7\nprogram 99\nr\n\nstep 10001\n\u{7f}\nresults\n\
                  quit\nstep\n";
    let said = session(&[], script);
    for (entry, part) in [
        (1, "error: no command is called `fly`"),
        (2, "error: `one` is not what `step` takes"),
        (3, "error: the program has no word `nowhere`; it has words 0 to 43, and header, next, item"),
        (4, "error: the program has no word `44`"),
        (5, "error: there is no breakpoint 7"),
        (6, "error: the program has no word `99`"),
        (7, "registers, results, restart"),
        (9, "continue 10001"),
        (10, "error: no command"),
        (11, "traversed"),
    ] {
        assert!(said[entry].contains(part), "no {part}: {}", said[entry]);
    }
    assert_eq!(said.last().unwrap(), "quit\n", "nothing is executed after quit");
}

#[test]
fn a_stopped_program_can_be_inspected() {
    let folder = folder();
    fs::write(folder.path().join("end.nma"), "r1 = add r0, 7\nout = copy r1\nin\n").unwrap();
    let output = on_files(
        folder.path(),
        "debug",
        &["--program", "end.nma"],
        "c\nregisters\nstep\nrestart\npipeline\nstep 2\n",
    );
    let said: Vec<String> = text(&output.stdout).split("(match) ").map(str::to_owned).collect();
    assert_eq!(output.status.code(), Some(0), "not stopped since `restart`");
    holds(&said[1], &["the program was stopped: header 0: the program ran past its end, at word 3", "fix: "]);
    holds(&said[1], &["next: nothing; the program's last word is 2"]);
    holds(&said[2], &["r1 0x0000000000000007 *"]);
    holds(&said[3], &["the program was stopped"]);
    holds(&said[4], &["next: cycle 0, word 0: "]);
    assert_eq!(said[5].lines().count(), 2, "no cycle of the first attempt: {}", said[5]);
    holds(&said[6], &["r1: 0x0 -> 0x7", "unit sends 0x7"]);

    fs::write(folder.path().join("loop.nma"), "again: br again\nnop\nnop\n").unwrap();
    let output = on_files(folder.path(), "debug", &["--program", "loop.nma", "--watchdog", "90"], "c\nc\n");
    holds(&text(&output.stdout), &["did not finish a header within 90 cycles", "--watchdog"]);
}

#[test]
fn the_end_is_reported_for_every_later_command() {
    let said = session(&[], "continue\nstep\nresults\n");
    holds(&said[1], &["every header has its outcome, after "]);
    holds(&said[2], &["every header has its outcome, after "]);
    holds(&said[3], &["    none"]);
}

/// The debugger's replies to a script on the folder's files, and its exit code.
fn scripted(folder: &Path, options: &[&str], script: &str) -> (Vec<String>, Option<i32>) {
    let output = on_files(folder, "debug", options, script);
    let said = text(&output.stdout).split("(match) ").map(str::to_owned).collect();
    (said, output.status.code())
}

#[test]
fn the_exit_code_reports_a_stopped_program() {
    let folder = folder();
    fs::write(folder.path().join("end.nma"), "r1 = add r0, 7\nout = copy r1\nin\n").unwrap();
    let code = |script| scripted(folder.path(), &["--program", "end.nma"], script).1;
    assert_eq!(code("continue\nquit\n"), Some(1));
    assert_eq!(code("step\nquit\n"), Some(0), "not yet");
    assert_eq!(code("continue\nrestart\nstep\n"), Some(0), "not since then");
    assert_eq!(scripted(folder.path(), &[], "continue\n").1, Some(0));
}

#[test]
fn names_of_the_source_are_shown_and_take_breakpoints() {
    let folder = folder();
    let source = ".reg sum r3\n.reg total r3\n.reg bits t2\n.pred done p11\n\
                  again: sum = add total, 1 # counts\ndone = eq sum, 2 | br again\nbits = copy sum\nnop\n";
    fs::write(folder.path().join("names.nma"), source).unwrap();
    let script = "break on done\ncontinue\nbreak on t2\ncontinue\nstep 4\nregisters\npredicates\nbreak on r0x\n\
                  program again\ndelete\nbreak on total\ncontinue\n";
    let (said, code) = scripted(folder.path(), &["--program", "names.nma"], script);
    assert_eq!(code, Some(0));
    holds(&said[1], &["breakpoint 1: on a change of p11 (done)\n"]);
    // The loop takes four cycles. The second sum is written in cycle 4 and compared in cycle 5, the third in cycle 9.
    holds(
        &said[2],
        &["breakpoint 1, before cycle 6\n", "next: cycle 6, word 2 again+2", "bits = copy sum\n"],
    );
    holds(&said[4], &["breakpoint 2, before cycle 7\n"]);
    holds(
        &said[5],
        &["cycle 8 ", "sum = add total, 1\n", "r3 (sum, total): 0x2 -> 0x3\n", "p11 (done): 1 -> 0\n"],
    );
    holds(&said[6], &["r3 0x0000000000000003 * sum, total", "t2 0x0000000000000002   bits\n"]);
    holds(&said[7], &[" p11 0 * done\n"]);
    holds(
        &said[8],
        &["error: `r0x` is not an event, register or predicate", "p0 to p15, and sum, total, bits, done"],
    );
    holds(&said[9], &["again:\n", "     0  sum = add total, 1\n"]);
    holds(&said[11], &["on a change of r3 (sum, total)"]);
    holds(&said[12], &["breakpoint 3, before cycle 13\n"]);

    // An image has neither labels nor names of a source.
    let program = niclab_asm::assemble(source).unwrap();
    fs::write(folder.path().join("names.nmi"), niclab_isa::image::write(&program.words)).unwrap();
    let (said, _) = scripted(folder.path(), &["--program", "names.nmi"], "break on done\nbreak on r3\nc\n");
    holds(&said[1], &["error: `done` is not an event", "no other names"]);
    holds(&said[3], &["breakpoint 1, before cycle 1\n", "word 1: p11 = eq r3, 2 | br word0"]);
}

#[test]
fn with_a_queue_program_both_units_are_shown() {
    let folder = folder();
    let script = "unit\nbreak on header\nbreak on outcome\ncontinue\nmanager\nlist\nbreak success\ncontinue\nstep\n\
                  unit match\nfifos\nmanager\nbreak flush\ncontinue\npipeline 1\nunit queue\ndelete\n\
                  break on count\ncontinue\nlist\ncontinue\nresults\n";
    let (said, code) = scripted(folder.path(), &["--queue-program"], script);
    assert_eq!(code, Some(0));
    holds(
        &said[0],
        &[
            "program built-in, 44 words; list kept by program built-in, 104 words; ",
            "of unit queue: command = add",
        ],
    );
    holds(&said[1], &["unit queue, program built-in\n"]);
    // 17 cycles, plus 50 for each of three items.
    holds(&said[4], &["breakpoint 1, before cycle 168\n"]);
    holds(
        &said[5],
        &["2 of 3 headers wait\n", "is at a request; 0 changes wait", "header 0, since cycle 167: match 0x5"],
    );
    holds(
        &said[6],
        &[
            "      0  slot 1  match 0x6",
            "      2  slot 3  match 0x5 ignore 0x0 node 1 process any length 100 offset 0",
        ],
    );
    holds(&said[7], &["breakpoint 3: word 44 success of unit queue"]);
    holds(&said[8], &["breakpoint 3, before cycle 227\n"]);
    holds(
        &said[9],
        &[
            "cycle 227    issues 44 success: offset = in | slot = sub event, 1",
            "unit takes 0x0",
            "hardware sends 0x0",
        ],
    );
    holds(&said[10], &["unit match, program built-in\n", "of unit match: match_bits = in"]);
    holds(&said[11], &["input, 0 of 16:\n", "output, 1:\n    0x2, heard in cycle 228\n"]);
    holds(&said[12], &["2 items judged; awaits done of item 2\n"]);
    holds(&said[13], &["flush of unit match\n"]);
    // The first header's outcome is known 97 cycles after its beginning.
    holds(&said[14], &["breakpoint 1, before cycle 264\n"]);
    holds(&said[15], &["header (waits)"]);
    // The third item matches its second message, and is used up.
    holds(&said[19], &["breakpoint 5, before cycle "]);
    holds(&said[20], &["      2  slot 3  match 0x5 ignore 0x0 node 1 process any length 100 offset 100"]);
    assert!(said[22].contains("    none ") && !said[22].contains("stopped"), "{}", said[22]);

    let (said, code) = scripted(folder.path(), &[], "unit queue\nunit\nunit match\n");
    assert_eq!(code, Some(0));
    holds(&said[1], &["error: there is no unit `queue`", "--queue-program"]);
    holds(&said[3], &["unit match, program built-in\n"]);
}

#[test]
fn the_manuals_session_is_the_output() {
    let manual = include_str!("../../../../docs/use/match/RUNNING.md");
    let example =
        |name: &str| manual.split_once(&format!("```json {name}\n")).unwrap().1.split_once("```").unwrap().0;
    let folder = folder();
    fs::write(folder.path().join("list.json"), example("list")).unwrap();
    fs::write(folder.path().join("headers.json"), example("headers")).unwrap();
    let shown = manual.split_once("    (match) break fast\n").unwrap().1.split_once("\n\n").unwrap().0;
    let session: String = format!("    (match) break fast\n{shown}\n")
        .lines()
        .map(|line| line[4..].to_owned() + "\n")
        .collect();
    let script: String = session
        .lines()
        .filter_map(|line| line.strip_prefix("(match) "))
        .map(|line| line.to_owned() + "\n")
        .collect();
    let output = on_files(folder.path(), "debug", &[], &script);
    let said = text(&output.stdout);
    assert_eq!(said.split_once("(match) ").unwrap().1, session.strip_prefix("(match) ").unwrap());
}
