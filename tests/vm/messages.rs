//! Messages between guests: through requester pages, into posted receives, and through the Ethernet function.

use niclab_harness::{Niclab, Outcome};
use serde_json::Value;

fn sum(counts: &Value) -> u64 {
    counts.as_object().map_or(0, |map| map.values().filter_map(Value::as_u64).sum())
}

#[test]
fn the_demonstration_passes_messages_and_reports() {
    let niclab = Niclab::new();
    let text = niclab.run(["run"]).success();
    for word in ["pingpong", "stream", "doorbells", "wall time", "model time", "passed", "--report text"] {
        assert!(text.stdout.contains(word), "the summary contains {word:?}\n{text}");
    }
    assert!(text.stdout.trim().lines().count() <= 15, "{text}");
}

#[test]
fn the_demonstration_runs_on_match_cards() {
    let niclab = Niclab::new();
    let text = niclab.run(["run", "--nic", "match", "--report", "text"]).success();
    for word in ["pingpong", "stream", "match"] {
        assert!(text.stdout.contains(word), "the report contains {word:?}\n{text}");
    }
}

#[test]
fn counts_of_a_ping_pong_are_exact() {
    exact_counts("ultra");
    exact_counts("match");
}

fn exact_counts(nic: &str) {
    let niclab = Niclab::new();
    let outcome = report(&niclab, nic, "pingpong -s 16 --iterations 1000 --warmup 0");
    let report = outcome.json();
    for node in report["nodes"].as_array().expect("nodes") {
        assert!(node["messages_sent"].as_u64() >= Some(1000), "{outcome}");
        assert_eq!(sum(&node["violations"]), 0, "{outcome}");
    }
    let nodes = report["nodes"].as_array().into_iter().flatten();
    // Programs greet each other before both can receive. ULTRA keeps a greeting until it may be sent; Match counts it
    // as unmatched.
    let unheard: u64 = nodes.filter_map(|node| node["nic_counts"]["unmatched"].as_u64()).sum();
    let sent: u64 = messages(&report, "messages_sent");
    assert_eq!(sent, messages(&report, "messages_received") + unheard, "no message is lost\n{outcome}");
    assert!(report["model"]["time_ps"].as_u64() > Some(0), "{outcome}");
}

fn messages(report: &Value, key: &str) -> u64 {
    report["nodes"].as_array().into_iter().flatten().filter_map(|node| node[key].as_u64()).sum()
}

/// Runs `niclab-perf` on both nodes with cards of model `nic`; the report is JSON.
fn report(niclab: &Niclab, nic: &str, arguments: &str) -> Outcome {
    let command = format!("exec niclab-perf {arguments}");
    niclab.run(["run", "--nic", nic, "--report", "json", "--", "sh", "-c", &command]).success()
}

#[test]
fn without_flags_no_interrupt_is_raised() {
    interrupts("ultra", "--interrupt-every 0 --iterations 200");
    interrupts("match", "--interrupt-every 0 --iterations 200");
}

#[test]
fn interrupts_follow_the_flag_exactly() {
    interrupts("ultra", "--interrupt-every 1 --iterations 100");
    interrupts("ultra", "--interrupt-every 5 --iterations 103");
    interrupts("match", "--interrupt-every 5 --iterations 103");
}

/// `niclab-perf interrupts` compares the device's count with the guest's own /proc/interrupts and with the formula. The
/// report compares them again from both sides, without the program.
fn interrupts(nic: &str, arguments: &str) {
    let niclab = Niclab::new();
    let outcome = report(&niclab, nic, &format!("interrupts {arguments}"));
    let report = outcome.json();
    for node in report["nodes"].as_array().expect("nodes") {
        let of_cluster = |(cause, _): &(&String, &Value)| !cause.starts_with("ethernet_");
        let raised = node["interrupts"].as_object().into_iter().flatten().filter(of_cluster);
        let raised: u64 = raised.filter_map(|(_, count)| count.as_u64()).sum();
        assert_eq!(node["guest_interrupts"]["cluster"].as_u64(), Some(raised), "{outcome}");
        let of_pages = node["ports"].as_array().into_iter().flatten().map(|port| sum(&port["interrupts"]));
        assert_eq!(of_pages.sum::<u64>(), raised, "{outcome}");
    }
    let check = &report["checks"][0];
    assert_eq!((&check["name"], &check["held"]), (&"guest-interrupts".into(), &true.into()), "{outcome}");
}

/// Device memory has room for 1,024 entries; the driver provides room for 4,096 more.
#[test]
fn lists_longer_than_the_cards_memory_continue_in_the_hosts() {
    let niclab = Niclab::new();
    let outcome = report(&niclab, "match", "pingpong -s 64 --iterations 20 --warmup 0 --depth 1100");
    for node in outcome.json()["nodes"].as_array().expect("nodes") {
        let counts = &node["nic_counts"];
        assert!(counts["spill_reads"].as_u64() > Some(20 * 76), "{outcome}");
        assert!(counts["entries_traversed"].as_u64() > Some(20 * 1100), "{outcome}");
    }
}

#[test]
fn firmware_is_replaced_under_traffic() {
    let niclab = Niclab::new();
    let script = "
        firmware=/sys/class/niclab/niclab0/firmware
        niclab-perf pingpong -s 16 --iterations 2000 & program=$! loads=0
        while kill -0 $program 2>/dev/null; do
            echo portals.nmi >$firmware || exit 21
            loads=$((loads + 1))
        done
        wait $program || exit 22
        [ $loads -ge 10 ] || exit 23
        grep portals.nmi $firmware || exit 24";
    let outcome =
        niclab.run(["run", "--nic", "match", "--report", "json", "--", "sh", "-c", script]).success();
    for node in outcome.json()["nodes"].as_array().expect("nodes") {
        assert!(node["nic_counts"]["expected"].as_u64() >= Some(2000), "{outcome}");
        assert_eq!(node["nic_counts"].get("firmware_fallbacks"), None, "{outcome}");
    }
}
