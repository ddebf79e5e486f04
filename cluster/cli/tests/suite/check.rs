//! `niclab check` and `niclab sim` from the command line, in the simulator.

use std::{fs, path::Path};

use crate::support::niclab;

/// A ping-pong of 100 round trips in the simulator, with this budget.
fn scenario(folder: &Path, budget: &str) -> String {
    let path = folder.join("s.toml");
    let text = format!("[workload]\nkind = \"ping-pong\"\ncount = 100\ninterrupt_every = 10\n\n{budget}\n");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn broken_budget_names_its_cause() {
    let niclab = niclab();
    let good = scenario(niclab.folder(), "[[budget]]\nwhat = \"interrupts\"\nexact = 20");
    niclab.run(["check", &good]).success();

    let junit = niclab.folder().join("j.xml");
    let broken =
        scenario(niclab.folder(), "[[budget]]\nwhat = \"interrupts\"\nnode = \"node1\"\nat_most = 9");
    let checked = niclab.run(["check", &broken, "--junit", junit.to_str().unwrap()]);
    assert_eq!(checked.code(), 1, "{checked}");
    let said = checked.to_string();
    assert!(said.contains("interrupts of node1: expected at most 9, found 10"), "{said}");
    assert!(said.contains("node1, page of port 0, cause message: 10"), "{said}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("failures=\"1\"") && xml.contains("expected at most 9, found 10"), "{xml}");
}

#[test]
fn invalid_scenario_is_refused_with_its_line() {
    let niclab = niclab();
    let wrong = scenario(niclab.folder(), "[[budget]]\nwhat = \"interupts\"\nexact = 20");
    for command in ["check", "sim"] {
        let refused = niclab.run([command, &wrong]);
        assert_eq!(refused.code(), 2, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("s.toml:7:1") && said.contains("did you mean `interrupts`?"), "{said}");
    }
}

#[test]
fn the_same_file_and_seed_give_the_same_bytes() {
    let niclab = niclab();
    let path = scenario(niclab.folder(), "");
    let run = || niclab.run(["sim", &path, "--seed", "7", "--report", "json"]).success();
    let (first, second) = (run(), run());
    assert_eq!(first.stdout, second.stdout);
    assert!(first.stdout.contains("\"seed\": 7"), "{first}");
}

#[test]
fn timeline_and_capture_are_complete_or_absent() {
    let niclab = niclab();
    let folder = niclab.folder();
    let (trace, capture) = (folder.join("t.json"), folder.join("c.pcapng"));
    let path = scenario(folder, "");
    let options = ["--trace", trace.to_str().unwrap(), "--capture", capture.to_str().unwrap()];
    let run = |path: &str| niclab.run([&["sim", path][..], &options].concat());
    let refused = run(&replay(folder, "{\"niclab_recording\": 2, \"nodes\": 2}\n"));
    assert_eq!(refused.code(), 2, "{refused}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 3, "only two scenarios and a recording");

    run(&path).success();
    let timeline: serde_json::Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    assert_eq!(timeline["otherData"]["stages_lost"], 0);
    assert!(fs::read(capture).unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
}

/// A replay of a recording with this text.
fn replay(folder: &Path, recording: &str) -> String {
    fs::write(folder.join("run.jsonl"), recording).unwrap();
    let path = folder.join("replay.toml");
    fs::write(&path, "[workload]\nkind = \"replay\"\nrecording = \"run.jsonl\"\n").unwrap();
    path.display().to_string()
}

#[test]
fn invalid_recording_is_refused_with_line_and_fix() {
    let niclab = niclab();
    for (text, part) in [
        (
            "{\"niclab_recording\": 1, \"nodes\": 2}\n",
            "run.jsonl:1: a recording of version 1, and this build",
        ),
        (
            "{\"niclab_recording\": 2, \"nodes\": 2}\n{\"model_time_ps\": 7, \"no",
            "run.jsonl:2: the recording is cut off",
        ),
    ] {
        let path = replay(niclab.folder(), text);
        for command in ["sim", "check"] {
            let refused = niclab.run([command, &path]);
            let said = refused.to_string();
            assert!(
                refused.code() == 2 && said.contains(part) && said.contains("again"),
                "{command}: {said}"
            );
        }
    }
}

#[test]
fn invalid_budget_of_a_run_is_refused_before_any_boot() {
    let niclab = niclab();
    for (budget, part) in [
        ("interupts<=16", "character 1: there is no quantity `interupts`\n  fix: did you mean `interrupts`?"),
        ("interrupts", "character 11: there is no `<=`"),
        ("node7:interrupts<=16", "character 1: there is no node `node7`"),
    ] {
        let refused = niclab.run(["run", "--budget", budget, "--", "true"]);
        assert!(refused.code() == 2 && refused.stderr.contains(part), "{refused}");
        assert!(!refused.stderr.contains("starting"), "{refused}");
    }
}

#[test]
fn junit_case_keeps_its_name_when_limit_and_value_change() {
    let niclab = niclab();
    let junit = niclab.folder().join("j.xml");
    let cases = |limit: &str, code: i32| {
        let budget =
            format!("[[budget]]\nwhat = \"interrupts\"\nper = \"sent\"\nnode = \"node1\"\nat_most = {limit}");
        let path = scenario(niclab.folder(), &budget);
        let checked = niclab.run(["check", &path, "--junit", junit.to_str().unwrap()]);
        assert_eq!(checked.code(), code, "{checked}");
        fs::read_to_string(&junit).unwrap()
    };
    let name = "name=\"sim: interrupts per sent message of node1\"";
    for (limit, code, value) in
        [("0.1", 0, "value=\"0.100000 (10 in 100 sent messages)\""), ("0.09", 1, "value=\"at most 0.09\"")]
    {
        let xml = cases(limit, code);
        assert!(xml.contains(name) && xml.contains(value), "{xml}");
    }
}

#[test]
fn loss_without_a_budget_about_delivery_is_warned_about() {
    let niclab = niclab();
    let path = niclab.folder().join("s.toml");
    let text = "[cluster]\nlink = [{ faults = { loss = 0.5 } }]\n[workload]\nkind = \"stream\"\ncount = 20\n";
    fs::write(&path, text).unwrap();
    let checked = niclab.run(["check", path.to_str().unwrap()]);
    assert!(checked.stdout.contains("warning: the links of node0, node1 lose or damage frames"), "{checked}");
    fs::write(&path, format!("{text}[[budget]]\nwhat = \"lost_messages\"\nexact = 0\n")).unwrap();
    let checked = niclab.run(["check", path.to_str().unwrap()]);
    assert!(checked.code() == 1 && !checked.stdout.contains("warning"), "{checked}");
    assert!(checked.stdout.contains("lost_messages: expected exactly 0, found "), "{checked}");
}

#[test]
fn program_is_refused_by_the_simulator() {
    let niclab = niclab();
    let path = niclab.folder().join("p.toml");
    let text = "[workload]\nkind = \"program\"\ncommand = [\"./x\"]\n";
    for (mode, command, part) in [
        ("", "check", "use mode = \"live\""),
        ("mode = \"both\"\n", "check", "use mode = \"live\""),
        ("mode = \"live\"\n", "sim", "use `niclab check`"),
    ] {
        fs::write(&path, format!("{mode}{text}")).unwrap();
        let refused = niclab.run([command, path.to_str().unwrap()]);
        assert!(refused.code() == 2 && refused.to_string().contains(part), "{refused}");
    }
}
