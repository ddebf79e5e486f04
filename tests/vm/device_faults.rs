//! A faulty NIC, as programs in guests see it.

use niclab_harness::Niclab;

/// Late completions and lost interrupts only cost time. A slice that is never written is an error that names it, and
/// the other end's wait ends, too.
#[test]
fn programs_recover_from_device_faults_or_name_them() {
    let niclab = Niclab::new();
    let file = niclab.folder().join("faulty.toml");
    let faults = "stale_at = [4000]\ndelay = 0.02\nlost_interrupt_at = [1, 5]\n";
    let cluster =
        format!("[[node]]\nname = \"sound\"\n[[node]]\nname = \"faulty\"\n[node.device_faults]\n{faults}");
    std::fs::write(file, cluster).expect("a cluster file");
    let script = "niclab-perf pingpong --poll block --iterations 300 --timeout 10 && echo recovered
        exec niclab-perf stream --iterations 20000 --timeout 4";
    let outcome =
        niclab.run(["run", "--cluster", "faulty.toml", "--report", "json", "--", "sh", "-c", script]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    // The report repeats the last lines of a program that fails.
    assert_eq!(outcome.stderr.matches("recovered").count(), 2, "{outcome}");
    assert!(said.contains("port 0: 1 slice(s) from number"), "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());

    let report = outcome.json();
    let [sound, faulty] = [&report["nodes"][0], &report["nodes"][1]];
    assert!(sound["device_faults"].is_null(), "{outcome}");
    let faults = &faulty["device_faults"];
    assert_eq!((&faults["stale"], &faults["lost_interrupt"]), (&1.into(), &2.into()), "{outcome}");
    assert!(faults["delay"].as_u64() > Some(0), "{outcome}");
    let log = faulty["device_fault_log"].as_array().expect("a log");
    let stale = log.iter().find(|fault| fault["fault"] == "stale").expect("the stale slice");
    assert_eq!((&stale["opportunity"], &stale["message_from"]), (&4000.into(), &0.into()), "{outcome}");
}
