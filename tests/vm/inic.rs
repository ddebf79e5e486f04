//! INIC cards in real guests: another assembly under running programs, from the host and from within a guest.

use std::time::Duration;

use niclab_tests::{Niclab, eventually};

/// What is loaded, in turns. Both deliver every message, in order: so a stream wants it.
const ASSEMBLIES: [&str; 2] = ["selective_repeat", "conf4"];

/// How often another is loaded, if `NICLAB_SWAPS` does not say it.
const SWAPS: usize = 100;

/// Streams one after the other, for as long as the first node finds no `stop` in the shared folder. It says there of each that it
/// begins, so that both end together.
const STREAMS: [&str; 2] = [
    "stream=0
    while [ ! -e stop ]; do
        stream=$((stream + 1))
        touch stream.$stream
        niclab-perf stream -s 4000 --iterations 20000 --warmup 0 || exit 11
    done
    touch over",
    "stream=1
    while :; do
        until [ -e stream.$stream ] || [ -e over ]; do sleep 0.05; done
        [ -e stream.$stream ] || exit 0
        niclab-perf stream -s 4000 --iterations 20000 --warmup 0 || exit 12
        stream=$((stream + 1))
    done",
];

#[test]
fn assemblies_are_handed_over_under_a_running_program() {
    let swaps =
        std::env::var("NICLAB_SWAPS").map_or(SWAPS, |count| count.parse().expect("a number of swaps"));
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "inic", "--nodes", "2"]).success();
    let [mut sender, receiver] =
        [0, 1].map(|rank| niclab.start(["exec", &format!("node{rank}"), "--", "sh", "-c", STREAMS[rank]]));
    let is_begun = || niclab.folder().join("stream.1").exists();
    assert!(eventually(Duration::from_secs(20), is_begun), "no stream begins");
    for load in 0..swaps {
        assert!(sender.is_running(), "after {load} loads");
        let loaded = niclab.run(["inic", "load", ASSEMBLIES[load % ASSEMBLIES.len()]]).success();
        assert!(loaded.stdout.contains("ms of model time"), "{loaded}");
    }
    std::fs::write(niclab.folder().join("stop"), "").expect("the shared folder");
    for program in [sender, receiver] {
        program.finish(Duration::from_secs(120)).success();
    }
    for node in ["node0", "node1"] {
        let counters = "cd /sys/class/niclab/niclab0/statistics && echo $(cat hand_overs) of $(cat unreachable incomplete other_assembly)";
        let counted = niclab.run(["exec", node, "--", "sh", "-c", counters]).success();
        assert_eq!(counted.stdout.trim(), format!("{swaps} of 0 0 0"));
    }
    let refused = niclab.run(["inic", "load", "--node", "node7", "--", "conf3"]);
    assert!(refused.code() != 0 && refused.stderr.contains("node0, node1"), "{refused}");
    niclab.run(["down"]).success();
}

/// A driver whose card drains alone: the guests agree by themselves, each after its program has ended.
#[test]
fn a_guest_loads_an_assembly_through_the_kernels_firmware_loader() {
    let niclab = Niclab::new();
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/../firmware/inic/assemblies/conf2.inic");
    std::fs::copy(bundled, niclab.folder().join("two.inic")).expect("an image");
    std::fs::write(niclab.folder().join("bad.inic"), "no image").expect("a file");
    let script = "mkdir -p /lib/firmware/niclab && cp two.inic bad.inic /lib/firmware/niclab/ || exit 10
        card=/sys/class/niclab/niclab0
        grep '^other 0 ' $card/firmware || exit 11
        echo bad.inic >$card/firmware && exit 12
        dmesg | grep 'no image of' || exit 13
        echo two.inic >$card/firmware || exit 14
        grep '^two.inic ' $card/firmware || exit 15
        [ $(cat $card/causes/handed_over) = 1 ] && [ $(cat $card/statistics/hand_overs) = 1 ] || exit 16
        niclab-perf pingpong -s 4000 --iterations 200 || exit 17
        [ $(cat $card/statistics/other_assembly) = 0 ] || exit 18";
    niclab.run(["run", "--nic", "inic", "--", "sh", "-c", script]).success();
}
