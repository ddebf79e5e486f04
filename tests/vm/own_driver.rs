//! The user's own drivers: built for the guests' kernel and loaded instead of niclab's; and the errors of drivers that
//! fail.

use std::path::{Path, PathBuf};

use niclab_harness::{Niclab, Outcome};

/// A driver of docs/driver/DRIVER.md.
fn example_for(card: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../guest-driver/examples")
        .join(card)
        .canonicalize()
        .expect("the example is in the tree")
}

/// The example for ULTRA.
fn example() -> PathBuf {
    example_for("ultra")
}

/// The value of an option that gives this driver to one node only.
pub fn example_on(node: &str) -> String {
    format!("{node}={}", example().display())
}

/// A folder with a module that runs `init` when it is loaded.
fn module(init: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = format!(
        "#include <linux/module.h>\n#include <linux/panic.h>\n#include <linux/delay.h>\nstatic int __init \
            own_init(void)\n{{\n\t{init}\n\treturn 0;\n}}\n\
         module_init(own_init);\nMODULE_LICENSE(\"GPL\");\n"
    );
    std::fs::write(folder.path().join("own.c"), source).expect("a file can be written");
    std::fs::write(folder.path().join("Makefile"), "obj-m := own.o\n").expect("a file can be written");
    folder
}

/// A run with such a module, which must fail and leave nothing.
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
fn your_own_driver_passes_messages_and_replaces_niclabs() {
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

/// Sends one message of each length with different contents for each node, in both directions at once. `$1` is the
/// maximum length; if there are few lengths, the script repeats them.
const BOTH_WAYS: &str = r#"
rounds=$((1 + 500 / $1)) round=0
while [ $round -lt $rounds ]; do
    (
        message= length=0
        while [ $length -lt $1 ]; do
            length=$((length + 1)) message=$message$(((length + NICLAB_RANK) % 10))
            printf %s "$message" >/dev/example || exit
        done
        echo sent >/tmp/sent
    ) &
    timeout 300 dd if=/dev/example bs=2048 count=$1 of=/tmp/got 2>/tmp/said || exit
    wait
    rm /tmp/sent || exit
    grep -q "^0+$1 records in" /tmp/said || exit
    message= length=0
    : >/tmp/wanted
    while [ $length -lt $1 ]; do
        length=$((length + 1)) message=$message$(((length + 1 - NICLAB_RANK) % 10))
        printf %s "$message" >>/tmp/wanted
    done
    cmp /tmp/got /tmp/wanted || exit
    round=$((round + 1))
done
message=$message.
printf %s "$message" 2>/dev/null >/dev/example && exit 1
echo all lengths"#;

/// Finds the card and unbinds it while a reader sleeps and a file is open. Both get only errors, also after the driver
/// is bound again. The module stays loaded as long as the file is open.
const UNBOUND: &str = r#"
for device in /sys/bus/virtio/devices/*; do
    [ "$(cat "$device/device")" = 0x0026 ] && break
done
drivers=/sys/bus/virtio/drivers/example
exec 3<>/dev/example
timeout 60 dd if=/dev/example bs=2048 count=1 2>/tmp/said 3>&- &
sleep 1
kill -0 $! || exit
echo "${device##*/}" >$drivers/unbind || exit
wait $! && exit 1
grep "No such device" /tmp/said || exit
[ ! -e /dev/example ] || exit
gone() {
    dd bs=2048 count=1 <&3 2>/tmp/said && exit 1
    grep -q "No such device" /tmp/said || exit
    echo x 2>/dev/null >&3 && exit 1
    rmmod example 2>/dev/null && exit 1
    return 0
}
gone
echo "${device##*/}" >$drivers/bind && [ -e /dev/example ] || exit
gone
echo unbound and bound"#;

/// Two guests whose cards are driven by one of the examples.
struct Pair {
    niclab: Niclab,
}

impl Pair {
    fn exec(&self, node: &str, script: &str, arguments: &[&str]) -> Outcome {
        self.niclab.run(["exec", node, "--", "sh", "-c", script, "sh"].iter().chain(arguments)).success()
    }

    /// Sends a message in each direction.
    fn passes(&self, text: &str) {
        for (from, to) in [("node0", "node1"), ("node1", "node0")] {
            let read = ["timeout", "60", "dd", "if=/dev/example", "bs=2048", "count=1"];
            let reader = self.niclab.start(["exec", to, "--"].iter().chain(&read));
            self.exec(from, "printf '%s' \"$1\" >/dev/example", &[text]);
            let read = reader.finish().success();
            assert_eq!(read.stdout.trim(), text, "from {from} to {to}");
        }
    }

    /// The third of five messages never becomes visible: the reader gets an error for it, and continues with the next.
    fn survives_a_message_that_never_becomes_visible(&self) {
        self.niclab.run(["fault", "node1", "--device", "stale_at=[3]"]).success();
        let read = "for i in 1 2 3 4 5; do timeout 60 dd if=/dev/example bs=2048 count=1 2>/tmp/said || echo \
            lost; done";
        let reader = self.niclab.start(["exec", "node1", "--", "sh", "-c", read]);
        self.exec("node0", "for i in 1 2 3 4 5; do echo $i >/dev/example; done", &[]);
        let read = reader.finish().success();
        let lines: Vec<&str> = read.stdout.lines().map(|line| line.trim_start_matches("node1 | ")).collect();
        assert_eq!(lines, ["1", "2", "lost", "4", "5"], "{read}");
        self.niclab.run(["fault", "node1", "--heal"]).success();
    }
}

/// Tests what an example must survive: messages of all lengths in both directions at once, a killed reader, an unbound
/// card with a sleeping reader and an open file, and a module reloaded on one node and then on the other.
fn example_holds(card: &str, most_bytes: &str) {
    let pair = Pair { niclab: Niclab::new() };
    let driver = example_for(card).display().to_string();
    let options = ["--nic", card, "--nodes", "2", "--driver", &driver];
    let plan = pair.niclab.run(["plan", "--json"].iter().chain(&options)).success().json();
    let module = plan["nodes"][0]["driver"]["module"]["file"].as_str().expect("the built module");
    std::fs::copy(module, pair.niclab.folder().join("example.ko")).expect("the guests see this folder");
    pair.niclab.run(["up"].iter().chain(&options)).success();

    let both = ["node0", "node1"]
        .map(|node| pair.niclab.start(["exec", node, "--", "sh", "-c", BOTH_WAYS, "sh", most_bytes]));
    for node in both {
        let outcome = node.finish().success();
        assert!(outcome.stdout.contains("all lengths"), "{outcome}");
    }
    let killed = "dd if=/dev/example bs=2048 count=1 & sleep 1; kill -9 $!; wait $!; [ $? = 137 ]";
    pair.exec("node1", killed, &[]);
    pair.passes("after a reader was killed");
    for node in ["node1", "node0", "node1"] {
        let outcome = pair.exec(node, UNBOUND, &[]);
        assert!(outcome.stdout.contains("unbound and bound"), "{outcome}");
        pair.passes(&format!("after {node}'s rebinding"));
    }
    for node in ["node0", "node1", "node1"] {
        pair.exec(
            node,
            "rmmod example && [ ! -e /dev/example ] && insmod example.ko && [ -e /dev/example ]",
            &[],
        );
        pair.passes(&format!("after {node}'s reload"));
    }
    pair.survives_a_message_that_never_becomes_visible();
    for node in ["node0", "node1"] {
        let said = pair.exec(node, "dmesg", &[]).stdout;
        assert!(!said.contains("WARNING:") && !said.contains("BUG:") && !said.contains("refused"), "{said}");
    }
    pair.niclab.run(["down"]).success();
}

#[test]
fn the_ultra_example_survives_kills_rebinding_and_reloads() {
    example_holds("ultra", "64");
}

#[test]
fn the_descriptor_ring_example_survives_the_same() {
    // An Ethernet frame of 1,514 bytes, less its header, the header of active ports, and the check sequence.
    example_holds("gamma", "1488");
}

#[test]
fn the_match_example_survives_the_same() {
    example_holds("match", "1024");
}

#[test]
fn each_node_loads_the_given_driver_with_its_parameters() {
    let niclab = Niclab::new();
    let driver = example_on("node1");
    let script = "if [ $NICLAB_RANK = 0 ]; then [ -e /sys/module/niclab -a ! -e /sys/module/example ]; else \
                  [ ! -e /sys/module/niclab ] && [ $(cat /sys/module/example/parameters/peer) = 0 ]; fi";
    let run = ["run", "--driver", &driver, "--driver-args", "peer=0", "--", "sh", "-c", script];
    niclab.run(run).success();
}

#[test]
fn compiler_errors_of_a_driver_name_the_users_path() {
    let outcome = refused("int x = nothing_of_this_name;", &[]);
    assert!(outcome.stderr.contains("/own.c:6:"), "{outcome}");
    assert!(outcome.stderr.contains("nothing_of_this_name"), "{outcome}");
    assert!(!outcome.stderr.contains("driver-build"), "{outcome}");
}

#[test]
fn a_driver_that_does_not_bind_is_reported_with_its_output() {
    let outcome = refused("pr_err(\"own: of no use\\n\");", &[]);
    assert!(outcome.stderr.contains("loaded but not bound to the card"), "{outcome}");
    assert!(outcome.stderr.contains("own: of no use"), "{outcome}");
    let outcome = refused("return -EIO;", &[]);
    assert!(outcome.stderr.contains("your driver own did not load or bind to the card"), "{outcome}");
}

#[test]
fn driver_that_panics_or_hangs_on_load_ends_the_cluster() {
    let outcome = refused("panic(\"own: no way\");", &[]);
    assert!(outcome.stderr.contains("Kernel panic") && outcome.stderr.contains("own: no way"), "{outcome}");
    assert!(outcome.stderr.contains("own_init at ") && outcome.stderr.contains("/own.c:6"), "{outcome}");
    // By default a kernel kills insmod after this oops, and continues.
    let outcome = refused("*(volatile int *)8 = 1;", &[]);
    assert!(outcome.stderr.contains("own_init at ") && outcome.stderr.contains("/own.c:6"), "{outcome}");
    let outcome = refused("for (;;) msleep(1000);", &["--boot-timeout", "20"]);
    assert!(outcome.stderr.contains("your driver own is being loaded"), "{outcome}");
}

#[test]
fn a_debugger_finds_the_drivers_functions_in_a_live_guest() {
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
fn source_change_rebuilds_and_reruns_a_watched_driver() {
    let niclab = Niclab::new();
    let folder = tempfile::tempdir().unwrap();
    for name in ["Makefile", "card.h", "example.c"] {
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

/// A driver that dereferences a null pointer or frees memory twice, on request.
fn planted() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("debug_kernel/planted");
    folder.canonicalize().expect("it is in the tree").display().to_string()
}

#[test]
fn panics_of_both_nodes_are_named_by_run_and_by_conform() {
    let niclab = Niclab::new();
    let driver = planted();
    let script = |fault: &str| format!("echo {fault} >/dev/planted");
    let outcome = niclab.run(["run", "--driver", &driver, "--", "sh", "-c", &script("null-pointer")]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("node0, node1: driver planted bound to the card"), "{outcome}");
    // On a busy machine the first panic may end the cluster before the other node panics.
    let reason = |node: &str| format!("the kernel of {node} panicked: BUG: kernel NULL pointer dereference");
    assert!(["node0", "node1"].iter().any(|node| outcome.stderr.contains(&reason(node))), "{outcome}");
    for node in ["node0", "node1"] {
        let console = niclab.runtime().join(".failed");
        let kept =
            std::fs::read_dir(&console).expect("consoles are kept").flatten().next().expect("a cluster");
        let console =
            std::fs::read_to_string(kept.path().join(format!("{node}.console"))).expect("a console");
        assert_eq!(console.contains("Kernel panic"), outcome.stderr.contains(&reason(node)), "{console}");
    }
    assert!(outcome.stderr.contains("; Oops: 0002 [#1]"), "{outcome}");
    assert!(
        outcome.stderr.contains("null_pointer at ") && outcome.stderr.contains("planted.c:"),
        "{outcome}"
    );

    let conform = ["conform", "--driver", &driver, "--case", "plain", "--json", "--", "sh", "-c"];
    let outcome = niclab.run(conform.iter().copied().chain([script("double-free").as_str()]));
    assert_eq!(outcome.code(), 1, "{outcome}");
    let case = outcome.json()["cases"][0].clone();
    let named = case["named"].as_array().expect("what was found");
    let text = |named: &serde_json::Value, key: &str| named[key].as_str().unwrap_or_default().to_owned();
    let is_panic = |named: &&serde_json::Value| {
        named["by"] == "panic"
            && text(named, "reason").starts_with("kernel BUG at mm/slub.c")
            && text(named, "said").contains("[planted]")
            && named["places"].to_string().contains("planted.c:")
    };
    assert!(named.iter().any(|named| is_panic(&named)), "{outcome}");
    assert!(named.iter().all(|named| named["by"] != "hang"), "{outcome}");
    assert!(Path::new(&text(&case, "consoles")).is_dir(), "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

/// A tree with all that niclab requires of a kernel's build tree. Its build of modules checks the source and copies
/// this module, which is built for the guests' own kernel.
fn kernel_tree(folder: &Path, kernel: &Path, release: &str, module: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    write(
        "Makefile",
        "modules:\n\ttest -f $(M)/example.c\n\tgrep -q NICLAB_VIRTIO_ID $(patsubst -I%,%,$(KCPPFLAGS))/niclab_abi.h\n\t\
         cp prebuilt.ko $(M)/example.ko\n",
    );
    write(".config", "CONFIG_CC_IS_GCC=y\n");
    write("Module.symvers", "");
    write("include/config/kernel.release", &format!("{release}\n"));
    write("arch/x86/boot/bzImage", "");
    std::fs::copy(kernel, folder.join("arch/x86/boot/bzImage")).expect("the kernel");
    std::fs::copy(module, folder.join("prebuilt.ko")).expect("the module");
}

#[test]
fn driver_is_built_against_the_tree_of_the_kernel_that_boots() {
    let niclab = Niclab::new();
    let driver = example().display().to_string();
    let built = niclab.run(["driver", "build", &driver, "-o", "out"]).success();
    assert!(built.stderr.contains("compile_commands.json"), "{built}");
    let out = niclab.folder().join("out");
    assert!(out.join("include/niclab_abi.h").is_file(), "{built}");
    let text = std::fs::read_to_string(out.join("compile_commands.json")).expect("the commands");
    let commands: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let entry = &commands.as_array().expect("a list")[0];
    assert!(entry["file"].as_str().is_some_and(|file| Path::new(file).is_file()), "{text}");
    let includes =
        entry["command"].as_str().expect("a command").split(' ').filter_map(|word| word.strip_prefix("-I/"));
    let includes: Vec<PathBuf> = includes.map(|path| Path::new("/").join(path)).collect();
    assert!(includes.len() > 2 && includes.iter().all(|path| path.is_dir()), "{text}");

    let plan = niclab.run(["plan", "--json"]).success().json();
    let path =
        |key: &str| PathBuf::from(plan[key].as_str().unwrap_or_else(|| panic!("no {key} in {plan:#}")));
    let release = plan["kernel_release"].as_str().expect("a release");
    let tree = niclab.folder().join("linux");
    kernel_tree(&tree, &path("packed_kernel"), release, &out.join("example.ko"));
    let kernel = tree.display().to_string();
    let run = ["run", "--kernel", &kernel, "--driver", &driver, "--", "test", "-e", "/dev/example"];
    let outcome = niclab.run(run).success();
    assert!(outcome.stderr.contains("node0, node1: driver example bound to the card"), "{outcome}");
    std::fs::remove_file(tree.join("Module.symvers")).expect("it is there");
    let outcome = niclab.run(run);
    assert!(
        outcome.stderr.contains("has no Module.symvers") && outcome.stderr.contains("run `make`"),
        "{outcome}"
    );
}
