//! Timelines, captures and recordings of running clusters.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use niclab_harness::Niclab;
use serde_json::Value;

fn timeline(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Counts and prices of a node in a timeline, by kind of transaction.
fn sums(timeline: &Value, node: &str) -> BTreeMap<String, (u64, u64)> {
    let events = || timeline["traceEvents"].as_array().into_iter().flatten();
    let name = format!("{node} (model time)");
    let process =
        events().find(|event| event["name"] == "process_name" && event["args"]["name"] == name.as_str());
    let process = &process.expect("the node's process")["pid"];
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for event in events().filter(|event| event["ph"] == "X" && event["pid"] == *process) {
        let sum = sums.entry(event["name"].as_str().unwrap_or_default().to_owned()).or_default();
        sum.0 += event["args"]["count"].as_u64().unwrap_or_default();
        sum.1 += event["args"]["model_price_ps"].as_u64().unwrap_or_default();
    }
    sums
}

/// The number of interfaces and frames in a capture, whose blocks must be complete.
fn links_and_frames(path: &Path) -> (u32, u32) {
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut rest, mut links, mut frames) = (file.as_slice(), 0, 0);
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let [kind, length] =
            [&head[..4], &head[4..]].map(|word| word.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b)));
        let (block, after) = rest.split_at_checked(length as usize).expect("a complete block");
        assert!(block.ends_with(&length.to_le_bytes()), "a block ends with its length");
        links += u32::from(kind == 1);
        frames += u32::from(kind == 6);
        rest = after;
    }
    assert!(
        rest.is_empty() && file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]),
        "{} is no capture",
        path.display()
    );
    (links, frames)
}

/// Runs a scenario that replays a recording in the test's folder.
fn replay(niclab: &Niclab, recording: &str) -> Value {
    let scenario = format!("[workload]\nkind = \"replay\"\nrecording = \"{recording}\"\n");
    fs::write(niclab.folder().join("replay.toml"), scenario).expect("a scenario");
    niclab.run(["sim", "replay.toml", "--report", "json"]).success().json()
}

#[test]
fn a_run_writes_a_timeline_a_capture_and_a_recording() {
    let niclab = Niclab::new();
    let files = ["--trace", "t.json", "--capture", "c.pcapng", "--record", "r.jsonl"];
    let perf = ["--", "niclab-perf", "pingpong", "--iterations", "200"];
    let outcome = niclab.run([&["run", "--report", "json"][..], &files, &perf].concat()).success();
    let report = outcome.json();

    let timeline = timeline(&niclab.folder().join("t.json"));
    assert_eq!(timeline["otherData"]["stages_lost"], 0, "{outcome}");
    let mut sent = Vec::new();
    for node in report["nodes"].as_array().expect("nodes") {
        let entries = node["ledger"].as_array().into_iter().flatten();
        let number = |entry: &Value, key: &str| entry[key].as_u64().unwrap_or_default();
        let expected: BTreeMap<_, _> = entries
            .filter(|entry| number(entry, "count") > 0)
            .map(|entry| {
                let name = entry["crossing"].as_str().unwrap_or_default().to_owned();
                (name, (number(entry, "count"), number(entry, "model_price_ps")))
            })
            .collect();
        let name = node["name"].as_str().unwrap_or_default();
        assert_eq!(sums(&timeline, name), expected, "{name}: the timeline sums to the ledger\n{outcome}");
        sent.push(number(node, "messages_sent"));
    }

    let (links, frames) = links_and_frames(&niclab.folder().join("c.pcapng"));
    assert_eq!(links, 2);
    assert!(u64::from(frames) >= 2 * sent.iter().sum::<u64>(), "{frames} frames\n{outcome}");

    let replayed = replay(&niclab, "r.jsonl");
    let again: Vec<u64> = replayed["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| node["messages_sent"].as_u64())
        .collect();
    assert_eq!(again, sent, "the simulator sends what the run sent\n{outcome}");
}

#[test]
fn a_running_cluster_is_observed_until_ctrl_c_or_a_count() {
    let niclab = Niclab::new();
    niclab.run(["up"]).success();
    let ping = ["exec", "node0", "--", "ping", "-q", "-c", "3", "-i", "0.2", "node1"];

    let mut trace = niclab.start(["trace"]);
    trace.wait_for_line("Ctrl-C ends it");
    niclab.run(ping).success();
    assert!(!niclab.folder().join("trace.json").exists(), "the file appears only when it is complete");
    trace.signal(libc::SIGINT);
    let outcome = trace.finish().success();
    assert!(outcome.stderr.contains("trace.json: ") && outcome.stderr.contains("perfetto"), "{outcome}");
    let timeline = timeline(&niclab.folder().join("trace.json"));
    assert!(!sums(&timeline, "node0, Ethernet function").is_empty(), "{outcome}");

    let mut capture = niclab.start(["capture", "node1", "-o", "one.pcapng", "--messages", "4"]);
    capture.wait_for_line("Ctrl-C ends it");
    niclab.run(ping).success();
    capture.finish().success();
    let (links, frames) = links_and_frames(&niclab.folder().join("one.pcapng"));
    assert!(links == 1 && frames >= 4, "{links} links, {frames} frames");

    // A stream delivers frames before its end, and ends when its reader closes it.
    let mut live = niclab.command(["capture", "-o", "-"]).stdout(Stdio::piped()).spawn().expect("a capture");
    let mut stdout = live.stdout.take().expect("a pipe");
    let mut head = [0; 256];
    stdout.read_exact(&mut head).expect("section and interfaces");
    niclab.run(ping).success();
    let mut frames = [0; 256];
    stdout.read_exact(&mut frames).expect("frames");
    drop(stdout);
    assert!(live.wait().expect("an end").success());

    niclab.run(["record", "-o", "nothing.jsonl", "--for", "0.1"]).success();
    let text = fs::read_to_string(niclab.folder().join("nothing.jsonl")).expect("a recording");
    assert!(text.ends_with("{\"messages\":0}\n"), "{text}");

    let unknown = niclab.run(["capture", "node9"]);
    assert!(unknown.code() != 0 && unknown.stderr.contains("node0, node1"), "{unknown}");

    // The end of a cluster ends its observers, and their files are complete.
    let mut last = niclab.start(["trace", "-o", "last.json"]);
    last.wait_for_line("Ctrl-C ends it");
    niclab.run(["down"]).success();
    last.finish().success();
    assert!(niclab.folder().join("last.json").exists());
    let left: Vec<_> =
        fs::read_dir(niclab.folder()).expect("the folder").flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".niclab")), "{left:?}");
}
