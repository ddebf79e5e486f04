//! A driver that breaks a rule of the manual in a function that is known: who is named, and where.

use std::path::Path;

use niclab_tests::Niclab;

/// A copy of the example for ULTRA whose `release_what_never_came` releases slices that were never stored, and stays there for a while.
fn culprit() -> tempfile::TempDir {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/examples/ultra");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for name in ["Makefile", "card.h"] {
        std::fs::copy(example.join(name), folder.path().join(name)).expect("a file can be copied");
    }
    let source = std::fs::read_to_string(example.join("example.c")).expect("the example is in the tree");
    let function = "static noinline void release_what_never_came(struct example *e)\n{\n\tlong left = 3000000;\n\n\
                    \tstore_register(e, offsetof(struct niclab_completer_page, released), 1000);\n\
                    \twhile (left--)\n\t\tcpu_relax();\n}\n\n";
    let write = "static ssize_t example_write(";
    let tag = "\twords[NICLAB_PAYLOAD_WORDS] = bytes;\n";
    assert!(source.contains(write) && source.contains(tag), "the example is another by now");
    let broken = source
        .replace(write, &format!("{function}{write}"))
        .replace(tag, &format!("{tag}\trelease_what_never_came(e);\n"));
    std::fs::write(folder.path().join("example.c"), broken).expect("a file can be written");
    folder
}

#[test]
fn a_driver_that_breaks_a_rule_is_stopped_and_named_with_function_file_and_line() {
    let niclab = Niclab::new();
    let folder = culprit();
    let driver = format!("node0={}", folder.path().display());
    let run =
        ["run", "--rules", "stop", "--driver", &driver, "--driver", &crate::own_driver::example_on("node1")];
    let write = "[ $NICLAB_RANK = 1 ] || echo hello >/dev/example; sleep 1000";
    let mut run = niclab.start(run.iter().chain(&["--", "sh", "-c", write]));
    run.wait_for_line("node0 broke the rule release-number and is stopped there");
    let line = run.wait_for_line("broken rule release-number");
    // By then it may be on its way from one line of it to another, and in what the compiler put into it.
    assert!(line.contains("stopped a moment later, processor 0 near release_what_never_came+0x"), "{line}");
    assert!(line.contains(&format!("{}/example.c:", folder.path().display())), "{line}");
    run.signal(libc::SIGINT);
    assert_eq!(run.finish().code(), 130);
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}
