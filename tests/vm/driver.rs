//! The kernel driver in a real guest: its own test program, and reloads, kills and reboots.

use niclab_harness::{Niclab, eventually, put_selftest};
use niclab_spec::NicModel;

use crate::template::IS_RESTORED;

#[test]
fn the_drivers_own_tests_pass_on_every_card() {
    for model in NicModel::names() {
        let niclab = Niclab::new();
        put_selftest(&niclab);
        let run = ["run", "--nic", model, "--nodes", "1", "--", "./niclab-selftest"];
        let outcome = niclab.run(run).success();
        // A card with descriptor rings opens no ports, so most tests are skipped.
        let passed = outcome.stdout.matches("| ok ").count() - outcome.stdout.matches("# SKIP").count();
        assert!(passed > 10 && !outcome.stdout.contains("| not ok "), "{model}: {passed} passed\n{outcome}");
        println!("{model}: {passed} passed");
    }
}

#[test]
fn reloaded_driver_passes_messages_again() {
    let niclab = Niclab::new();
    let script = "niclab-perf pingpong -s 16 -n 50 && rmmod niclab && [ ! -e /dev/niclab0 ] && modprobe niclab \
                  && niclab-perf pingpong -s 16 -n 50";
    niclab.run(["run", "--", "sh", "-c", script]).success();
}

#[test]
fn a_killed_program_frees_its_port() {
    let niclab = Niclab::new();
    // Without a peer this program waits, with its port open and the card's pages mapped. The peer starts when the
    // program is gone.
    let script = "
        if [ $NICLAB_RANK = 0 ]; then
            niclab-perf pingpong -n 1000000 & program=$!
            until grep -q /dev/niclab0 /proc/$program/maps; do sleep 0.05; done
            kill -9 $program; wait $program
            [ $? = 137 ] && touch killed || exit 11
        else
            until [ -e killed ]; do sleep 0.05; done
        fi
        niclab-perf pingpong -s 16 -n 50";
    niclab.run(["run", "--", "sh", "-c", script]).success();
}

#[test]
fn a_guest_that_reboots_finds_its_nic_again() {
    let niclab = Niclab::new();
    // Without this option a reset ends QEMU, and with it the cluster.
    std::fs::write(niclab.folder().join("c.toml"), "qemu_args = [\"-action\", \"reboot=reset\"]\n")
        .expect("a cluster file");
    niclab.run(["up", "--cluster", "c.toml"]).success();
    let restored = niclab.run(["exec", "node0", "--", "sh", "-c", IS_RESTORED]);
    assert_eq!(restored.code(), 0, "the node is restored from a template\n{restored}");
    let boot_id = || niclab.run(["exec", "node0", "--", "cat", "/proc/sys/kernel/random/boot_id"]);
    let before = boot_id().success().stdout;
    let reset = niclab.run(["exec", "node0", "--", "sh", "-c", "echo b >/proc/sysrq-trigger; sleep 60"]);
    assert_ne!(reset.code(), 0, "the command cannot outlive its guest\n{reset}");
    let is_back = || boot_id().stdout.trim().len() == before.trim().len() && boot_id().stdout != before;
    assert!(eventually(is_back), "{}", boot_id());
    let said = niclab.run(["exec", "node0", "--", "sh", "-c", "echo rank $NICLAB_RANK of $(hostname)"]);
    assert_eq!(said.success().stdout, "rank 0 of node0\n", "it is the same node after the reboot");

    let perf = ["--", "niclab-perf", "pingpong", "-s", "16", "-n", "50", "--timeout", "60"];
    let peer = niclab.start(["exec", "node1"].iter().chain(&perf));
    niclab.run(["exec", "node0"].iter().chain(&perf)).success();
    peer.finish().success();
    niclab.run(["down"]).success();
}
