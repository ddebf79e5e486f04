//! Output of commands that need no cluster: help, schema, and errors with their location and fix.

use std::{fs, process::Command};

use niclab_harness::{Outcome, in_mount_namespace};

use crate::support::niclab;

/// The error of `niclab run` for a cluster file.
fn complaint(file: &str) -> String {
    let niclab = niclab();
    fs::write(niclab.folder().join("c.toml"), file).unwrap();
    let output = niclab.run(["run", "--cluster", "c.toml"]);
    assert_eq!(output.code(), 125);
    assert!(output.stdout.is_empty());
    output.stderr
}

#[test]
fn help_lists_every_subcommand_and_shows_examples() {
    let help = niclab().run(["--help"]).stdout;
    for word in [
        "run",
        "up",
        "inspect",
        "exec",
        "shell",
        "logs",
        "down",
        "plan",
        "doctor",
        "bench",
        "report",
        "asm",
        "disasm",
        "schema",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("supervise"));
    assert!(niclab().run(["run", "--help"]).stdout.contains("NICLAB_RANK"));
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let output = niclab().run(["run", "--node", "2"]);
    assert_eq!(output.code(), 2);
    assert!(output.stderr.contains("--nodes"));
}

#[test]
fn cluster_beyond_the_limit_of_open_files_is_refused() {
    let niclab = niclab();
    let run = niclab.command(["run", "--nodes", "28", "--", "true"]);
    let environment = run.get_envs().filter_map(|(name, value)| Some((name, value?)));
    // The launcher cannot raise a hard limit.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 1000; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
    let output = Outcome::of(limited.envs(environment).current_dir(niclab.folder()));
    assert_eq!(output.code(), 125);
    let says = ["28 nodes needs up to 1296 open files", "hard limit is 1000", "enough for 21 nodes"];
    assert!(says.iter().all(|part| output.stderr.contains(part)), "{}", output.stderr);
}

#[test]
fn the_schema_is_json_and_refuses_unknown_keys() {
    let schema = niclab().run(["schema"]).json();
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"]["nodes"]["maximum"] == 4096);
    assert!(schema["properties"]["memory_mib"]["description"].is_string());
}

#[test]
fn invalid_cluster_file_is_refused_with_line_key_and_fix() {
    let unknown = complaint("nodes = 2\n\nmemory = 512\n");
    assert!(unknown.contains("c.toml:3:1: `memory`") && unknown.contains("`memory_mib`?"), "{unknown}");
    let impossible = complaint("[[node]]\nmemory_mib = 8\n");
    assert!(
        impossible.contains("c.toml:2:1: `node[0].memory_mib`") && impossible.contains("fix:"),
        "{impossible}"
    );
    assert!(complaint("nodes = = 2").contains("c.toml:1:9"));
    let no_table = complaint("nic = \"inic\"\n");
    assert!(no_table.contains("c.toml:1:7: `nic`") && no_table.contains("`nic = { model = "), "{no_table}");
}

#[test]
fn a_missing_cluster_file_is_named() {
    let output = niclab().run(["run", "--cluster", "/no/such.toml"]);
    assert!(output.stderr.contains("/no/such.toml"));
    assert_eq!(output.stderr.matches("No such file").count(), 1, "{}", output.stderr);
}

#[test]
fn invalid_seed_is_refused_with_the_valid_range() {
    for arguments in [
        ["run", "--adversarial", "x"],
        ["up", "--adversarial", "-1"],
        ["check", "--adversarial", "1.5"],
        ["sim", "--adversarial", "18446744073709551616"],
        ["sim", "--seed", "seven"],
    ] {
        let output = niclab().run(arguments);
        assert_eq!(output.code(), 2, "{arguments:?}");
        let said = output.stderr;
        assert!(
            said.contains(arguments[1]) && said.contains("a whole number from 0 to"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn invalid_option_value_is_refused_with_the_options_name() {
    assert!(niclab().run(["run", "--nodes", "65"]).stderr.contains("`--nodes`"));
    for (arguments, part) in [
        (["trace", "--messages", "0"], "0 is not in 1.."),
        (["record", "--for", "0"], "more than 0"),
        (["capture", "--for", "nan"], "more than 0"),
    ] {
        let output = niclab().run(arguments);
        assert_eq!(output.code(), 2, "{arguments:?}");
        assert!(output.stderr.contains(part), "{}", output.stderr);
    }
}

#[test]
fn commands_without_a_cluster_suggest_niclab_up() {
    for arguments in [
        &["inspect"][..],
        &["exec", "node0", "--", "true"],
        &["logs", "node0"],
        &["down"],
        &["shell", "x"],
        &["trace"],
        &["capture", "node0"],
        &["record"],
    ] {
        let output = niclab().run(arguments);
        assert_eq!(output.code(), 125, "{arguments:?}");
        assert!(output.stderr.contains("`niclab up`"), "{}", output.stderr);
    }
}

#[test]
fn doctor_prints_json() {
    let json = niclab().run(["doctor", "--json"]).json();
    assert_eq!(json["version"], 1);
    let checks = json["checks"].as_array().unwrap();
    let found = |what: &str| checks.iter().find(|check| check["what"] == what).unwrap();
    assert_eq!(found("QEMU")["state"], "will-be-built", "the cache is empty");
    assert!(found("accelerator")["found"].as_str().unwrap().contains(": "), "it says why");
}

/// The exit code of `niclab doctor`, and its row for the cache. A script changes the cache folder first.
fn doctor_on_cache(script: &str) -> (i32, serde_json::Value) {
    let niclab = niclab();
    let cache = niclab.folder().join("cache");
    fs::create_dir_all(cache.join("v1")).unwrap();
    let script = format!("{script} || exit 99; shift; exec \"$@\"");
    let command = niclab.command(["doctor", "--json"]);
    let outcome = Outcome::of(&mut in_mount_namespace(&script, &cache, &command));
    let checks = outcome.json()["checks"].as_array().unwrap().clone();
    let found = |what: &str| checks.iter().find(|check| check["what"] == what).unwrap().clone();
    let cache = found("cache");
    // If the cache is unusable, a run cannot build anything there.
    let is_usable = cache["state"] == "good";
    assert_eq!(found("QEMU")["state"], if is_usable { "will-be-built" } else { "missing" });
    (outcome.code(), cache)
}

#[test]
fn doctor_shows_the_free_space_of_a_good_cache() {
    let (_, cache) = doctor_on_cache("true");
    assert_eq!(cache["state"], "good", "{cache}");
    assert!(cache["found"].as_str().unwrap().ends_with(" GiB free"), "{cache}");
}

#[test]
fn doctor_names_noexec_of_the_caches_file_system() {
    let (code, cache) = doctor_on_cache("mount -t tmpfs -o noexec,mode=700 none \"$1\"");
    let found = cache["found"].as_str().unwrap();
    assert!(found.contains("mounted noexec") && found.contains("NICLAB_CACHE"), "{cache}");
    assert_eq!((code, &cache["state"]), (1, &"missing".into()));
}

#[test]
fn doctor_names_a_cache_that_cannot_be_written_to() {
    let (code, cache) = doctor_on_cache("mount -t tmpfs -o ro,mode=700 none \"$1\"");
    assert!(cache["found"].as_str().unwrap().contains("cannot write to"), "{cache}");
    assert_eq!((code, &cache["state"]), (1, &"missing".into()));
}

#[test]
fn doctor_names_a_cache_of_another_user() {
    // Only root could make another user's folder here; niclab refuses a link in the same way.
    let (code, cache) = doctor_on_cache("rmdir \"$1/v1\" && ln -s / \"$1/v1\"");
    assert!(cache["found"].as_str().unwrap().contains("belongs to another user"), "{cache}");
    assert_eq!((code, &cache["state"]), (1, &"missing".into()));
}

/// A report without nodes, whose total is the sum of its ledgers.
const REPORT: &str = r#"{
  "version": 2, "niclab_version": "0.1.0", "mode": "sim", "cluster": "c", "seed": 1, "profile": "p", "nic": ["ultra"],
  "model": {
    "time_ps": 5, "is_exact": true, "bandwidth_bytes_per_s": 0, "messages_per_s": 0,
    "latency": {"count": 0, "min_ps": 0, "p50_ps": 0, "p90_ps": 0, "p99_ps": 0, "p999_ps": 0, "max_ps": 0, "sum_ps": 0}
  },
  "nodes": [],
  "fabric": {
    "frames_in": 1, "bytes_in": 64, "frames_out": 1, "bytes_out": 64,
    "ledger": [{"crossing": "serialization", "count": 2, "bytes": 128, "model_price_ps": 5, "model_waited_ps": 0}]
  },
  "total": [{"crossing": "serialization", "count": 2, "bytes": 128, "model_price_ps": 5, "model_waited_ps": 0}],
  "checks": []
}"#;

/// `niclab report` with these files and arguments.
fn report(files: &[&str], arguments: &[&str]) -> Outcome {
    let niclab = niclab();
    let mut all = vec!["report".to_owned()];
    for (number, text) in files.iter().enumerate() {
        let name = format!("{number}.json");
        fs::write(niclab.folder().join(&name), text).unwrap();
        all.push(name);
    }
    niclab.run(all.iter().map(String::as_str).chain(arguments.iter().copied()))
}

#[test]
fn a_report_is_shown_and_two_are_compared() {
    let one = report(&[REPORT], &[]);
    assert_eq!(one.code(), 0, "{}", one.stderr);
    assert!(one.stdout.contains("cluster c: sim, 0 nodes"), "{}", one.stdout);
    let slower = REPORT.replace("\"time_ps\": 5", "\"time_ps\": 8");
    let two = report(&[REPORT, &slower], &[]).stdout;
    assert!(two.contains("difference") && two.contains("+0.000003  +60.00"), "{two}");
    let json = report(&[REPORT, &slower], &["--json"]);
    let json = json.json();
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["name"] == "time").unwrap();
    assert_eq!((&row["section"], &row["difference"]), (&"model-time".into(), &3.into()), "{row}");
    let same = report(&[REPORT], &["--json"]).json();
    assert_eq!(same, serde_json::from_str::<serde_json::Value>(REPORT).unwrap());
}

#[test]
fn invalid_report_is_refused_with_file_line_and_fix() {
    let truncated = REPORT.split_at(REPORT.find("\"fabric\"").unwrap()).0;
    let older = REPORT.replace("\"version\": 2", "\"version\": 1");
    let wrong = REPORT.replacen("\"count\": 2", "\"count\": 3", 1);
    for (file, place, what) in [
        (truncated, "1.json:8:", "ends in the middle"),
        (&older, "1.json:2:3: `version`", "version 1, an older one"),
        (&wrong, "1.json:12:3: `total`", "`serialization`"),
        ("nodes = 2\n", "1.json:1:", "no niclab report"),
        ("{}", "1.json:1:1: ", "no niclab report"),
    ] {
        let output = report(&[REPORT, file], &[]);
        let complaint = &output.stderr;
        assert_eq!(output.code(), 125, "{complaint}");
        assert!(output.stdout.is_empty(), "niclab compares nothing if a file is invalid");
        for word in [place, what, "fix: "] {
            assert!(complaint.contains(word), "no {word}: {complaint}");
        }
    }
    let missing = niclab().run(["report", "/no/such.json"]);
    assert!(missing.stderr.contains("cannot read /no/such.json"), "{}", missing.stderr);
}
