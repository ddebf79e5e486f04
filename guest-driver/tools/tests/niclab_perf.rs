//! The program as a user runs it: two processes over TCP on the loopback, and its messages without a NIC.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A TCP port that is free at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address").port()
}

fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niclab-perf"));
    for name in ["NICLAB_RANK", "NICLAB_SIZE", "NICLAB_ADDRESSES"] {
        command.env_remove(name);
    }
    command.args(arguments.split_whitespace());
    command
}

fn start(rank: u32, port: u16, arguments: &str) -> Child {
    let transport = if arguments.contains("--transport") { "" } else { " --transport tcp" };
    program(&format!("{arguments}{transport}"))
        .args(["--timeout", "20", "--tcp-port", &port.to_string()])
        .env("NICLAB_RANK", rank.to_string())
        .env("NICLAB_SIZE", "2")
        .env("NICLAB_ADDRESSES", "127.0.0.1,127.0.0.1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program")
}

/// Runs both ranks. Returns the output of rank 0 and of rank 1.
fn run_pair(arguments: [&str; 2]) -> [Output; 2] {
    let port = free_port();
    let children = [1, 0].map(|rank| start(rank, port, arguments[rank as usize]));
    let [one, zero] = children.map(|child| child.wait_with_output().expect("an exit"));
    [zero, one]
}

/// The JSON document of a run that must succeed.
fn document(arguments: &str) -> Value {
    let [zero, one] = run_pair([arguments; 2]);
    for output in [&zero, &one] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(one.stdout.is_empty(), "only the lower rank reports");
    serde_json::from_slice(&zero.stdout).expect("valid JSON")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_swept_pingpong_reports_each_size() {
    let document = document("pingpong --all --iterations 50 --warmup 5 --json");
    assert_eq!((&document["version"], &document["clock"]), (&Value::from(1), &Value::from("wall")));
    let rows = document["sections"][0]["rows"].as_array().expect("rows");
    let sizes: Vec<_> = rows.iter().map(|row| row["payload_bytes"].as_u64().expect("bytes")).collect();
    assert_eq!(sizes, [8, 16, 32, 64]);
    for row in rows {
        let latency = |key: &str| row["round_trip"][key].as_u64().expect("a latency");
        assert!(latency("min_wall_ns") > 0);
        assert!(latency("min_wall_ns") <= latency("p50_wall_ns"));
        assert!(latency("p999_wall_ns") <= latency("max_wall_ns"));
    }
}

#[test]
fn a_stream_of_large_messages_arrives() {
    for poll in ["spin", "block", "adaptive"] {
        let document = document(&format!("stream --size 100000 -n 200 -w 3 --poll {poll} --json"));
        let row = &document["sections"][0]["rows"][0];
        assert!(row["payload_bytes_per_s_wall"].as_f64().expect("a rate") > 0.0);
        assert_eq!(row["round_trip"], Value::Null);
    }
}

#[test]
fn arrived_and_lost_datagrams_add_up_to_those_sent() {
    let document = document("stream --transport udp --size 1392 -n 2000 -w 20 --json");
    assert_eq!(document["transport"], "udp");
    let row = &document["sections"][0]["rows"][0];
    let number = |key: &str| row[key].as_f64().expect("a number");
    let came = number("messages_per_s_wall") * number("elapsed_wall_ns") / 1e9;
    assert_eq!(came.round() + number("lost_datagrams"), 2000.0);
    let [zero, _] = run_pair(["stream --transport udp -n 100"; 2]);
    let text = String::from_utf8_lossy(&zero.stdout);
    assert!(text.contains("stream, udp") && text.contains("lost datagrams: "), "{text}{}", stderr(&zero));
}

#[test]
fn options_that_datagrams_do_not_support_are_refused() {
    for (arguments, part) in [
        ("pingpong", "niclab-perf stream"),
        ("demo", "niclab-perf stream"),
        ("stream --size 1393", "1392"),
        ("stream --poll spin", "drop --poll"),
        ("stream --notify", "no message flags"),
    ] {
        let output = program(&format!("{arguments} --transport udp --rank 0")).output().expect("the program");
        assert!(!output.status.success() && stderr(&output).contains(part), "{}", stderr(&output));
    }
}

/// Both ends fill the sockets' buffers at the same time. An end that only sent would block forever.
#[test]
fn both_ends_send_at_once_without_locking_up() {
    let document = document("rate --size 65536 -n 500 -w 0 --json");
    assert!(document["sections"][0]["rows"][0]["messages_per_s_wall"].as_f64().expect("a rate") > 0.0);
}

#[test]
fn demo_table_names_the_clock() {
    let [zero, _] = run_pair(["demo"; 2]);
    let text = String::from_utf8_lossy(&zero.stdout);
    assert!(zero.status.success() && text.contains("wall time"), "{text}{}", stderr(&zero));
    assert!(
        text.contains("pingpong, tcp") && text.contains("stream, tcp") && text.contains("p99.9 us"),
        "{text}"
    );
}

#[test]
fn ends_with_different_plans_fail_with_a_mismatch() {
    let [zero, one] = run_pair(["pingpong --size 8", "pingpong --size 64"]);
    assert!(!zero.status.success() && !one.status.success());
    assert!(
        [&zero, &one].iter().any(|output| stderr(output).contains("another benchmark")),
        "{}",
        stderr(&zero)
    );
}

#[test]
fn without_a_nic_the_device_and_the_fix_are_named() {
    let output = program("pingpong --device /dev/niclab-absent").output().expect("the program");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("/dev/niclab-absent") && text.contains("modprobe niclab"), "{text}");
}

#[test]
fn tcp_without_a_rank_names_the_rank_variable() {
    let output = program("pingpong --transport tcp").output().expect("the program");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("NICLAB_RANK"), "{}", stderr(&output));
}

#[test]
fn a_payload_that_no_slice_carries_is_refused() {
    for size in ["65", "72", "12"] {
        let output = program("pingpong --transport ultra --size").arg(size).output().expect("the program");
        assert!(!output.status.success() && stderr(&output).contains(size), "{}", stderr(&output));
    }
}

#[test]
fn transports_without_matching_refuse_its_options() {
    for option in ["--depth=3", "--match-on=host"] {
        let output = program("pingpong --transport tcp --rank 0").arg(option).output().expect("the program");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("--transport match"), "{}", stderr(&output));
    }
}

/// The error for this workload if there is no NIC.
fn refusal(workload: &str) -> String {
    let path = std::env::temp_dir().join(format!("niclab-perf-workload-{}.json", std::process::id()));
    std::fs::write(&path, workload).expect("a file");
    let output =
        program("workload --device /dev/niclab-absent --spec").arg(&path).output().expect("the program");
    std::fs::remove_file(&path).expect("the file");
    assert_eq!(output.status.code(), Some(1));
    stderr(&output)
}

#[test]
fn a_workload_is_read_strictly_before_there_is_a_nic() {
    let good = r#"{"pattern": {"random": 2}, "message_bytes": 16, "count": 7, "warmup": 0, "interrupt_every": 0,
        "slices": 64, "receive": "posted", "seed": 1, "ports": [[0, 1], [0, 1], [2, 3]],
        "sends_to_many": false, "entries": 0, "unexpected_messages": 0,
        "payload_bytes": 0, "first_segment_bytes": 0,
        "promise": {"is_delivered": true, "is_once": true, "is_in_order": true}}"#;
    assert!(refusal(good).contains("/dev/niclab-absent"), "{}", refusal(good));
    let replay = r#"{"replay": [[0, 0, 0, 3, 0, 8, false]]}"#;
    for (from, to, part) in [
        ("\"seed\": 1", "\"sead\": 1", "unknown field `sead`"),
        ("\"seed\": 1, ", "", "missing field `seed`"),
        ("\"random\"", "\"randomm\"", "unknown variant `randomm`"),
        ("\"random\": 2", "\"random\": 3", "partners is 3: give 1 to 2"),
        ("{\"random\": 2}", "\"all-to-all\"", ""),
        ("{\"random\": 2}", "{\"incast\": 3}", "rank is 3: give 0 to 2"),
        ("{\"random\": 2}", replay, "not between ports of these nodes"),
        ("\"count\": 7", "\"count\": 0", "`count` is 0"),
        ("\"count\": 7", "\"count\": 1e30", "invalid type"),
        ("\"slices\": 64", "\"slices\": 65", "power of two"),
        ("16", "4294967295", "`message_bytes` is 4294967295"),
        ("[[0, 1], [0, 1], [2, 3]]", "[[0]]", "`ports`, one list for each node, is 1"),
        ("[2, 3]", "[]", "`ports` is 0"),
    ] {
        let text = refusal(&good.replacen(from, to, 1));
        assert!(text.contains(part) && text.contains("workload") != part.is_empty(), "{to}: {text}");
    }
    let output = program("workload --spec /niclab-absent").output().expect("the program");
    assert!(stderr(&output).contains("/niclab-absent"), "{}", stderr(&output));
}

#[test]
fn a_rank_without_a_neighbour_exits_successfully() {
    let output = program("stream --transport tcp --rank 2 --ranks 3").output().expect("the program");
    assert!(output.status.success() && stderr(&output).contains("no neighbour"), "{}", stderr(&output));
}
