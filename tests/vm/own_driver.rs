//! Drivers of the user's own: built for the guests' kernel, loaded instead of niclab's, and what is said of those that are no good.

use std::path::{Path, PathBuf};

use niclab_tests::{Niclab, Outcome};

/// The driver of docs/DRIVER.md.
fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../guest-driver/examples/ultra")
        .canonicalize()
        .expect("the example is in the tree")
}

/// A folder with a module whose start does `init`.
fn module(init: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = format!(
        "#include <linux/module.h>\n#include <linux/panic.h>\n#include <linux/delay.h>\nstatic int __init own_init(void)\n{{\n\t{init}\n\treturn 0;\n}}\n\
         module_init(own_init);\nMODULE_LICENSE(\"GPL\");\n"
    );
    std::fs::write(folder.path().join("own.c"), source).expect("a file can be written");
    std::fs::write(folder.path().join("Makefile"), "obj-m := own.o\n").expect("a file can be written");
    folder
}

/// A run with such a module, which must fail and leave nothing behind.
fn refused(init: &str, options: &[&str]) -> Outcome {
    let niclab = Niclab::new();
    let folder = module(init);
    let driver = folder.path().display().to_string();
    let run = ["run", "--nodes", "1", "--driver", &driver];
    let outcome = niclab.run(run.iter().chain(options).chain(&["--", "true"]));
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
    outcome
}

#[test]
fn a_driver_of_your_own_passes_messages_and_ours_is_not_there() {
    let niclab = Niclab::new();
    let script = "set -e
        [ ! -e /sys/module/niclab ]
        [ $(cat /sys/module/example/parameters/peer) = $((1 - NICLAB_RANK)) ]
        if [ $NICLAB_RANK = 0 ]; then
            for i in $(seq 200); do printf \"message $i\" >/dev/example; done
        else
            for i in $(seq 200); do [ \"$(dd if=/dev/example bs=64 count=1 2>/dev/null)\" = \"message $i\" ]; done
            echo all of them
        fi";
    let driver = example().display().to_string();
    let outcome = niclab.run(["run", "--driver", &driver, "--", "sh", "-c", script]).success();
    assert!(outcome.stdout.contains("all of them"), "{outcome}");
}

#[test]
fn each_node_has_the_driver_and_the_parameters_that_it_is_given() {
    let niclab = Niclab::new();
    let driver = format!("node1={}", example().display());
    let script = "if [ $NICLAB_RANK = 0 ]; then [ -e /sys/module/niclab -a ! -e /sys/module/example ]; else \
                  [ ! -e /sys/module/niclab ] && [ $(cat /sys/module/example/parameters/peer) = 0 ]; fi";
    let run = ["run", "--driver", &driver, "--driver-args", "peer=0", "--", "sh", "-c", script];
    niclab.run(run).success();
}

#[test]
fn a_driver_that_does_not_compile_is_shown_as_the_compiler_does_with_the_users_path() {
    let outcome = refused("int x = nothing_of_this_name;", &[]);
    assert!(outcome.stderr.contains("/own.c:6:"), "{outcome}");
    assert!(outcome.stderr.contains("nothing_of_this_name"), "{outcome}");
    assert!(!outcome.stderr.contains("driver-build"), "{outcome}");
}

#[test]
fn a_driver_that_never_takes_the_card_is_told_so_with_what_it_said() {
    let outcome = refused("pr_err(\"own: of no use\\n\");", &[]);
    assert!(outcome.stderr.contains("has not taken the card"), "{outcome}");
    assert!(outcome.stderr.contains("own: of no use"), "{outcome}");
    let outcome = refused("return -EIO;", &[]);
    assert!(outcome.stderr.contains("your driver own is not in use"), "{outcome}");
}

#[test]
fn a_driver_that_panics_or_hangs_as_it_is_loaded_ends_the_cluster_in_time() {
    let outcome = refused("panic(\"own: no way\");", &[]);
    assert!(outcome.stderr.contains("Kernel panic") && outcome.stderr.contains("own: no way"), "{outcome}");
    assert!(outcome.stderr.contains("own_init at ") && outcome.stderr.contains("/own.c:6"), "{outcome}");
    // A kernel would go on after this one without insmod.
    let outcome = refused("*(volatile int *)8 = 1;", &[]);
    assert!(outcome.stderr.contains("own_init at ") && outcome.stderr.contains("/own.c:6"), "{outcome}");
    let outcome = refused("for (;;) msleep(1000);", &["--boot-timeout", "20"]);
    assert!(outcome.stderr.contains("your driver own is being loaded"), "{outcome}");
}

#[test]
fn a_debugger_knows_the_drivers_functions_at_their_addresses_and_the_guest_goes_on_behind_it() {
    let niclab = Niclab::new();
    let driver = example().display().to_string();
    niclab.run(["up", "--driver", &driver]).success();
    let commands =
        ["-batch", "-ex", "info symbol example_write", "-ex", "info line example_write", "-ex", "detach"];
    let debugged = niclab.run(["debug", "node0", "--"].iter().chain(&commands));
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("gdb").is_file()) {
        let debugged = debugged.success();
        assert!(debugged.stdout.contains("example_write in section .text"), "{debugged}");
        assert!(debugged.stdout.contains("example.c"), "{debugged}");
    } else {
        assert!(debugged.stderr.contains("install the package gdb"), "{debugged}");
    }
    niclab.run(["exec", "node0", "--", "true"]).success();
    niclab.run(["down"]).success();
}

#[test]
fn a_watched_driver_is_built_and_run_again_when_its_source_changes() {
    let niclab = Niclab::new();
    let folder = tempfile::tempdir().unwrap();
    for name in ["Makefile", "example.c"] {
        std::fs::copy(example().join(name), folder.path().join(name)).unwrap();
    }
    let driver = folder.path().display().to_string();
    let script = "dmesg | grep -o 'talks to node .*' | sed \"s/^/$NICLAB_NODE /\"";
    let mut watch = niclab.start(["driver", "watch", "--driver", &driver, "--", "sh", "-c", script]);
    watch.wait_for_line("talks to node 0");
    watch.wait_for_line("waiting for a change");
    let source = std::fs::read_to_string(folder.path().join("example.c")).unwrap();
    std::fs::write(
        folder.path().join("example.c"),
        source.replace("talks to node %d", "talks to node %d now"),
    )
    .unwrap();
    watch.wait_for_line("talks to node 0 now");
    watch.wait_for_line("waiting for a change");
    watch.signal(libc::SIGINT);
    assert_eq!(watch.finish().code(), 130);
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}
