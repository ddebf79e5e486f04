//! Rules of the device programmer's manual in guests: niclab's own driver and programs keep them, and a broken rule is
//! reported by name.

use std::path::{Path, PathBuf};

use niclab_harness::{Niclab, Outcome};

/// The driver of docs/driver/DRIVER.md with one change in its source.
fn example_but(from: &str, to: &str) -> tempfile::TempDir {
    let example: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/examples/ultra");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let read = |name| std::fs::read_to_string(example.join(name)).expect("the example is in the tree");
    let source = read("example.c");
    assert_eq!(source.matches(from).count(), 1, "{from}");
    std::fs::write(folder.path().join("example.c"), source.replace(from, to)).expect("a file can be written");
    for name in ["Makefile", "card.h"] {
        std::fs::write(folder.path().join(name), read(name)).expect("a file can be written");
    }
    folder
}

/// A run in which node 0 sends two messages with this driver.
fn send(driver: &Path, options: &[&str]) -> Outcome {
    let niclab = Niclab::new();
    let script = "[ $NICLAB_RANK = 1 ] || { printf one >/dev/example; printf two >/dev/example; }";
    let driver = driver.display().to_string();
    let run = ["run", "--driver", &driver];
    niclab.run(run.iter().chain(options).chain(&["--", "sh", "-c", script]))
}

#[test]
fn the_own_driver_and_its_programs_keep_the_rules_on_every_card() {
    for model in ["ultra", "mailbox", "match", "grim", "inic", "gamma"] {
        let niclab = Niclab::new();
        let outcome = niclab.run(["run", "--nic", model, "--rules", "fail"]).success();
        assert!(!outcome.stderr.contains("broken rule"), "{model}: {outcome}");
    }
}

#[test]
fn the_driver_of_the_manual_keeps_the_rules() {
    let folder = example_but("Section 5, steps 5 and 6.", "Section 5, steps 5 and 6.");
    let outcome = send(folder.path(), &["--rules", "fail"]).success();
    assert!(!outcome.stderr.contains("broken rule"), "{outcome}");
}

#[test]
fn a_driver_that_never_rings_is_reported_and_fails_the_run() {
    let folder = example_but("sizeof(u64));\n\tring_if_wanted(&e->card);", "sizeof(u64));");
    let outcome = send(folder.path(), &["--rules", "fail"]);
    assert_eq!(outcome.code(), 1, "{outcome}");
    let line = "node0, port 0: broken rule launch-doorbell (DEVICE.md, chapter 5)";
    assert!(outcome.stderr.contains(line), "{outcome}");
    assert!(!outcome.stderr.contains("node1, port"), "{outcome}");
    let outcome = send(folder.path(), &["--rules", "report", "--report", "json"]).success();
    assert!(outcome.stdout.contains("\"launch-doorbell\": 1"), "{outcome}");
}

#[test]
fn a_guest_is_stopped_when_it_breaks_a_rule() {
    let folder = example_but("\te->launched++;", "\te->launched += 2;");
    let outcome = send(folder.path(), &["--rules", "stop", "--timeout", "10"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("node0 broke the rule launch-number and is stopped there"), "{outcome}");
}

/// The same driver with a function that releases slices that were never stored, and then loops. No interrupt leads out
/// of it, however late the guest is stopped.
fn culprit() -> tempfile::TempDir {
    let function = "static noinline void release_what_never_came(struct example *e)\n{\n\tlocal_irq_disable();\n\
                    \tstore_register(e, offsetof(struct niclab_completer_page, released), 1000);\n\
                    \tfor (;;)\n\t\tcpu_relax();\n}\n\n";
    let write = "static ssize_t example_write(";
    let folder = example_but(write, &format!("{function}{write}"));
    let source = folder.path().join("example.c");
    let text = std::fs::read_to_string(&source).expect("it was written");
    let tag = "\twords[NICLAB_PAYLOAD_WORDS] = bytes;\n";
    assert_eq!(text.matches(tag).count(), 1, "the text to change must occur once in the example");
    let text = text.replace(tag, &format!("{tag}\trelease_what_never_came(e);\n"));
    std::fs::write(source, text).expect("a file can be written");
    folder
}

#[test]
fn broken_rule_names_function_file_and_line_of_the_driver() {
    let niclab = Niclab::new();
    let folder = culprit();
    let driver = format!("node0={}", folder.path().display());
    let run =
        ["run", "--rules", "stop", "--driver", &driver, "--driver", &crate::own_driver::example_on("node1")];
    let write = "[ $NICLAB_RANK = 1 ] || echo hello >/dev/example; sleep 1000";
    let mut run = niclab.start(run.iter().chain(&["--", "sh", "-c", write]));
    let message = run.wait_for_line("node0 broke the rule release-number and is stopped there");
    let line = run.wait_for_line("broken rule release-number");
    // When it is stopped, the processor may be between two lines of the function, in inlined code, or still in the
    // kernel's function that rings the doorbell for it.
    let is_there = line.contains("stopped a moment later, processor 0 near release_what_never_came+0x");
    let rings = "called perhaps near release_what_never_came+0x";
    assert!(is_there || line.contains(rings), "{line}");
    assert!(line.contains(&format!("{}/example.c:", folder.path().display())), "{line}");
    // The message's command works, although the guest is stopped and a run answers no requests.
    let name = message.split("`niclab debug --name ").nth(1).and_then(|rest| rest.split(' ').next());
    let debug = ["debug", "--name", name.expect("the command to continue with"), "node0", "--", "-batch"];
    let symbol = if is_there { "info symbol $pc" } else { "info symbol release_what_never_came" };
    let debugged = niclab.run(debug.iter().chain(&["-ex", symbol]));
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("gdb").is_file()) {
        let debugged = debugged.success();
        assert!(debugged.stdout.contains("release_what_never_came"), "{debugged}");
    } else {
        assert!(debugged.stderr.contains("install the package gdb"), "{debugged}");
    }
    run.signal(libc::SIGINT);
    assert_eq!(run.finish().code(), 130);
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

/// niclab's own driver with one mistake: one buffer of the event queue is too short. Programs do not notice it.
fn own_driver_with_a_short_buffer() -> tempfile::TempDir {
    let own: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/kernel");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let entries =
        std::fs::read_dir(own).expect("the driver is in the tree").map(|entry| entry.expect("an entry"));
    for entry in entries.filter(|entry| entry.path().is_file()) {
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a file can be copied");
    }
    let path = folder.path().join("niclab_event.c");
    let source = std::fs::read_to_string(&path).expect("the file is part of the driver");
    let sound = "sg_init_one(&in, event, sizeof(*event));";
    assert_eq!(source.matches(sound).count(), 1, "the text to change must occur once in the driver");
    let broken = "sg_init_one(&in, event, event == nic->events ? 8 : sizeof(*event));";
    std::fs::write(path, source.replace(sound, broken)).expect("a file can be written");
    folder
}

#[test]
fn a_scenario_fails_only_for_the_rule_that_its_guests_break() {
    let (niclab, driver) = (Niclab::new(), own_driver_with_a_short_buffer());
    let scenario = format!(
        "mode = \"live\"\n[cluster]\nnodes = 2\ndriver = \"{}\"\n[workload]\nkind = \"ping-pong\"\ncount = 20\n\
         warmup = 5\ninterrupt_every = 1\n[[budget]]\nwhat = \"violations\"\nexact = 0\n",
        driver.path().display()
    );
    std::fs::write(niclab.folder().join("short.toml"), scenario).expect("a scenario");
    niclab.run(["check", "short.toml"]).success();
    let outcome = niclab.run(["check", "--rules", "fail", "short.toml"]);
    assert_eq!(outcome.code(), 1, "{outcome}");
    for line in [
        "short.toml: BROKEN",
        "live: rules of node0: expected none broken, found event-buffer-size",
        "broken rule event-buffer-size (DEVICE.md, chapter 2)",
    ] {
        assert!(outcome.stdout.contains(line), "{line}: {outcome}");
    }
    assert!(!outcome.stdout.contains("violations"), "{outcome}");
}
