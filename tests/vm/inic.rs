//! INIC cards in real guests: another assembly under running programs, from the host and from within a guest.

use std::time::Duration;

use niclab_tests::Niclab;

/// What is loaded, in turns. All of them deliver every message.
const ASSEMBLIES: [&str; 3] = ["selective_repeat", "conf4", "conf3"];

#[test]
fn assemblies_are_handed_over_under_a_running_program() {
    let niclab = Niclab::new();
    let run = ["run", "--nic", "inic", "--report", "json", "--", "niclab-perf", "stream"];
    let options = ["-s", "4000", "--iterations", "20000", "--warmup", "0"];
    let mut run = niclab.start(run.iter().chain(&options));
    let (mut loads, mut refused) = (0, 0);
    while run.is_running() {
        let loaded = niclab.run(["inic", "load", ASSEMBLIES[loads % ASSEMBLIES.len()]]);
        if loaded.code() == 0 {
            assert!(loaded.stdout.contains("ms of model time"), "{loaded}");
            loads += 1;
        } else {
            // Before the cluster is up, and after.
            refused += 1;
        }
    }
    let outcome = run.finish(Duration::from_secs(120)).success();
    assert!(loads >= 20, "{loads} loads, {refused} refused\n{outcome}");
    for node in outcome.json()["nodes"].as_array().expect("nodes") {
        let count = |name: &str| node["nic_counts"][name].as_u64().unwrap_or(0);
        assert!(count("hand_overs") > 0 && count("hand_overs") <= loads as u64, "{outcome}");
        assert_eq!(
            (count("unreachable"), count("incomplete"), count("other_assembly")),
            (0, 0, 0),
            "{outcome}"
        );
    }
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
