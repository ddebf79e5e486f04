//! INIC cards in real guests: assemblies are loaded under running programs, from the host and from within a guest.

use niclab_harness::{Niclab, eventually};

/// The assemblies that are loaded alternately. Both deliver every message in order, as the stream requires.
const ASSEMBLIES: [&str; 2] = ["selective_repeat", "conf4"];

/// The number of loads, unless `NICLAB_SWAPS` gives it.
const SWAPS: usize = 20;

/// The receiver fails if a message is out of order or altered. The stream has too many messages to end by itself.
const STREAM: [&str; 9] =
    ["--", "niclab-perf", "stream", "-s", "4000", "--warmup", "0", "--iterations", "100000000"];

#[test]
fn assemblies_are_loaded_under_a_running_program() {
    let swaps =
        std::env::var("NICLAB_SWAPS").map_or(SWAPS, |count| count.parse().expect("a number of swaps"));
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "inic", "--nodes", "2"]).success();
    let counter = |node: &str, names: &str| {
        let command = format!("cd /sys/class/niclab/niclab0/statistics && echo $(cat {names})");
        niclab.run(["exec", node, "--", "sh", "-c", &command]).success().stdout.trim().to_owned()
    };
    let received = || counter("node1", "bytes_received").parse::<u64>().expect("a count");
    let [mut sender, mut receiver] =
        ["node0", "node1"].map(|node| niclab.start([&["exec", node][..], &STREAM].concat()));
    assert!(eventually(|| received() > 1_000_000), "the stream did not begin");
    for load in 0..swaps {
        let loaded = niclab.run(["inic", "load", ASSEMBLIES[load % ASSEMBLIES.len()]]).success();
        assert!(loaded.stdout.contains("ms of model time"), "{loaded}");
        if !sender.is_running() || !receiver.is_running() {
            let [sender, receiver] = [sender, receiver].map(|program| program.finish());
            panic!("the stream ended after {load} loads\n{sender}\n{receiver}");
        }
    }
    let before = received();
    assert!(eventually(|| received() > before), "the stream stopped");
    for node in ["node0", "node1"] {
        assert_eq!(counter(node, "hand_overs"), swaps.to_string());
        assert_eq!(counter(node, "unreachable incomplete other_assembly"), "0 0 0");
    }
    // After the checks, because a killed sender leaves an incomplete message.
    for node in ["node0", "node1"] {
        // The receiver may have ended by itself, because its sender is gone.
        niclab.run(["exec", node, "--", "sh", "-c", "killall niclab-perf; true"]).success();
    }
    drop((sender, receiver));
    let refused = niclab.run(["inic", "load", "--node", "node7", "--", "conf3"]);
    assert!(refused.code() != 0 && refused.stderr.contains("node0, node1"), "{refused}");
    niclab.run(["down"]).success();
}

/// Each guest loads the assembly by itself after its program has ended; its card drains on its own.
#[test]
fn guest_loads_an_assembly_with_the_kernels_firmware_loader() {
    let niclab = Niclab::new();
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/../firmware/inic/assemblies/conf2.inic");
    std::fs::copy(bundled, niclab.folder().join("two.inic")).expect("an image");
    std::fs::write(niclab.folder().join("bad.inic"), "no image").expect("a file");
    let script = "mkdir -p /lib/firmware/niclab && cp two.inic bad.inic /lib/firmware/niclab/ || exit 10
        card=/sys/class/niclab/niclab0
        grep '^other 0 ' $card/firmware || exit 11
        echo bad.inic >$card/firmware && exit 12
        dmesg | grep 'not an image of' || exit 13
        echo two.inic >$card/firmware || exit 14
        grep '^two.inic ' $card/firmware || exit 15
        [ $(cat $card/causes/handed_over) = 1 ] && [ $(cat $card/statistics/hand_overs) = 1 ] || exit 16
        # One guest may greet the other before the other's card has the new assembly. The first ping-pong ends that.
        niclab-perf pingpong -s 4000 --iterations 200 || exit 17
        before=$(cat $card/statistics/other_assembly)
        niclab-perf pingpong -s 4000 --iterations 200 || exit 18
        [ $(cat $card/statistics/other_assembly) = $before ] || exit 19";
    niclab.run(["run", "--nic", "inic", "--", "sh", "-c", script]).success();
}
