//! The kernel driver of the Match NIC in a real guest: registered memory, firmware, and all ways in which they are
//! released.

use niclab_harness::{Niclab, eventually, put_selftest};

use crate::template::IS_RESTORED;

/// A folder with a cluster file of Match NICs and the driver's test program.
fn cluster() -> Niclab {
    let niclab = Niclab::new();
    put_selftest(&niclab);
    let file = "qemu_args = [\"-action\", \"reboot=reset\"]\n[nic]\nmodel = \"match\"\n";
    std::fs::write(niclab.folder().join("match.toml"), file).expect("a cluster file");
    niclab
}

/// The number of pinned pages in the guest, as a shell expression.
const PINNED: &str = "$(cat /proc/sys/vm/stat_refresh; awk '/^nr_foll_pin_acquired/{a=$2} \
    /^nr_foll_pin_released/{r=$2} END{print a-r}' /proc/vmstat)";

#[test]
fn driver_unloads_only_after_a_killed_program_unpins() {
    let niclab = cluster();
    let script = format!(
        "before={PINNED}
        ./niclab-selftest hold >held & program=$!
        until grep -q 'holding 64' held; do sleep 0.1; done
        [ $(({PINNED} - before)) = 64 ] || exit 11
        rmmod niclab 2>/dev/null && exit 12
        kill -9 $program; wait $program
        [ {PINNED} = $before ] || exit 13
        rmmod niclab && [ ! -e /dev/niclab0 ] && modprobe niclab spill_kib=0 || exit 14
        ./niclab-selftest hold >held & program=$!
        until grep -q 'holding 64' held; do sleep 0.1; done
        kill -9 $program; wait $program
        [ {PINNED} = $before ] || exit 15
        dmesg | grep 'stay' && exit 16
        exit 0"
    );
    niclab.run(["run", "--cluster", "match.toml", "--nodes", "1", "--", "sh", "-c", &script]).success();
}

/// One node reboots by the kernel's own shutdown, which withdraws the regions from the device. The other node resets
/// without notice, at the same time.
#[test]
fn guest_that_reboots_with_posted_receives_finds_its_nic() {
    let niclab = cluster();
    niclab.run(["up", "--cluster", "match.toml", "--nodes", "2"]).success();
    let exec = |node: &str, script: &str| niclab.run(["exec", node, "--", "sh", "-c", script]);
    let boot_id = |node: &str| exec(node, "cat /proc/sys/kernel/random/boot_id");
    let ways = [("node0", "busybox reboot -f"), ("node1", "echo b >/proc/sysrq-trigger")];
    let begun = ways.map(|(node, way)| {
        let restored = exec(node, IS_RESTORED);
        assert_eq!(restored.code(), 0, "{node} is restored from a template\n{restored}");
        let before = boot_id(node).success().stdout;
        let script = format!(
            "./niclab-selftest hold >held-$NICLAB_NODE &
            until grep -q 'holding 64' held-$NICLAB_NODE; do sleep 0.1; done; {way}; sleep 60"
        );
        (node, way, before, niclab.start(["exec", node, "--", "sh", "-c", &script]))
    });
    for (node, way, before, reset) in begun {
        let reset = reset.finish();
        assert_ne!(reset.code(), 0, "the command cannot outlive its guest\n{reset}");
        let is_back = || {
            let now = boot_id(node).stdout;
            now.trim().len() == before.trim().len() && now != before
        };
        assert!(eventually(is_back), "{way}: {}", boot_id(node));
    }
    for (node, ..) in ways {
        niclab.run(["exec", node, "--", "./niclab-selftest"]).success();
    }
    niclab.run(["down"]).success();
}

#[test]
fn memory_that_a_dead_device_may_write_to_stays_pinned() {
    let niclab = cluster();
    let script = "./niclab-selftest death && dmesg | grep 'pages of a program stay pinned' && echo reported";
    let mut run = niclab.start(["run", "--cluster", "match.toml", "--nodes", "1", "--", "sh", "-c", script]);
    run.wait_for_line("waiting for the device to die");
    niclab.signal_processes("niclab-device", libc::SIGSTOP);
    run.wait_for_line("reported");
    niclab.signal_processes("niclab-device", libc::SIGCONT);
    run.signal(libc::SIGTERM);
    run.finish();
}

/// If a program answers no header, the card replaces it with its built-in program, which takes the message. No message
/// is lost, and the guest's log, causes and counters report the replacement.
#[test]
fn an_endless_program_is_replaced_and_reported_to_the_guest() {
    let niclab = cluster();
    std::fs::write(niclab.folder().join("endless.nma"), "loop: br loop\n        nop\n        nop\n")
        .expect("a source");
    niclab.run(["asm", "endless.nma"]).success();
    let script = "cp endless.nmi /lib/firmware/niclab/ && cd /sys/class/niclab/niclab0 || exit 11
        grep '^builtin 44 ' firmware || exit 12
        echo endless.nmi >firmware && grep '^endless.nmi 3 ' firmware || exit 13
        \"$OLDPWD/niclab-selftest\" put | grep '# 1 passed, 0 failed' || exit 14
        grep '^builtin 44 ' firmware || exit 15
        [ $(cat causes/firmware) = 1 ] && [ $(cat statistics/firmware_fallbacks) = 1 ] || exit 16
        dmesg | grep 'firmware misbehaved'";
    niclab.run(["run", "--cluster", "match.toml", "--nodes", "1", "--", "sh", "-c", script]).success();
}
