//! The program `niclab-sim`: its exit codes and its output, which is the same each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use niclab_spec::report::Report;
use niclab_spec::{ClusterFile, SimConfig, Source, Workload, WorkloadKind};

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niclab-sim")).args(arguments).output().unwrap()
}

fn write(folder: &Path, workload: &Workload) -> String {
    let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
    let config = SimConfig::new(&cluster, "test", workload);
    let path = folder.join("sim.json");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn report_on_standard_output_equals_the_written_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), &Workload { count: 10, ..Workload::new(WorkloadKind::Stream) });
    let printed = program(&["--config", &config]);
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let report = Report::from_json("printed", &String::from_utf8(printed.stdout.clone()).unwrap()).unwrap();
    assert_eq!((report.cluster.as_str(), report.nodes[0].messages_sent), ("test", 10));
    let file = folder.path().join("report.json");
    let written = program(&["--config", &config, "--report", file.to_str().unwrap()]);
    assert!(written.stdout.is_empty());
    assert_eq!(std::fs::read(file).unwrap(), printed.stdout);
}

#[test]
fn invalid_input_ends_with_exit_code_2_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let bad = write(folder.path(), &Workload { message_bytes: 9, ..Workload::new(WorkloadKind::Stream) });
    let missing =
        Workload { recording: Some(folder.path().join("none.jsonl")), ..Workload::new(WorkloadKind::Replay) };
    for (path, part) in [(bad.as_str(), "multiples of 8"), ("/nowhere.json", "/nowhere.json")] {
        let output = program(&["--config", path]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(part), "{said}");
    }
    let config = write(folder.path(), &missing);
    let output = program(&["--config", &config]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.jsonl"));
}

#[test]
fn recording_is_replayed_on_the_recorded_ports() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.jsonl");
    let lines = [
        r#"{"niclab_recording": 2, "nodes": 2}"#,
        r#"{"model_time_ps": 0, "node": 0, "port": 5, "to": 1, "to_port": 3, "bytes": 16}"#,
        // The port was rerouted in the recorded run. In the simulator another port sends this message.
        r#"{"model_time_ps": 9, "node": 0, "port": 5, "to": 1, "to_port": 0, "bytes": 8}"#,
        r#"{"model_time_ps": 9, "node": 0, "port": 0, "to": 0, "to_port": 7, "bytes": 8, "interrupt": true}"#,
        r#"{"model_time_ps": 5000000, "node": 1, "port": 2, "to": 0, "bytes": 64, "interrupt": true}"#,
        r#"{"messages": 4}"#,
    ];
    std::fs::write(&recording, lines.join("\n")).unwrap();
    let workload = Workload { recording: Some(recording), ..Workload::new(WorkloadKind::Replay) };
    let output = program(&["--config", &write(folder.path(), &workload)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = Report::from_json("printed", &String::from_utf8(output.stdout).unwrap()).unwrap();
    let launches = |node: usize| {
        report.nodes[node].ports.iter().map(|p| (p.port, p.launches)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(launches(0), [(0, 1), (1, 1), (5, 1), (7, 0)].into());
    // Port 0 received, with an interrupt.
    assert_eq!(launches(1).get(&2), Some(&1));
    assert_eq!((report.nodes[0].messages_received, report.nodes[1].messages_received), (2, 2));
    assert_eq!(report.nodes[0].interrupts["message"], 2);
    assert!(report.model.time_ps > 5_000_000, "messages are sent no earlier than in the recording");
}

#[test]
fn swarm_output_does_not_depend_on_the_number_of_threads() {
    let run = |threads: &str| program(&["--swarm", "20", "--seed", "3", "--threads", threads]);
    let one = run("1");
    assert_eq!((one.status.code(), &one.stdout), (Some(0), &run("4").stdout));
    assert!(String::from_utf8_lossy(&one.stdout).contains("20 runs, 0 failed"));
}
