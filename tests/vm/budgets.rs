//! Budgets on any command, on the command line and in scenarios; and how a command's failure is shown.

use std::fs;
use std::path::Path;
use std::process::Command;

use niclab_harness::{Niclab, Outcome, build_c_examples, release_folder};

const PING_PONG: [&str; 7] = ["--", "niclab-perf", "pingpong", "-s", "16", "-n", "100"];

#[test]
fn budgets_judge_any_command() {
    let niclab = Niclab::new();
    let run = |budget: &str| {
        let options = ["run", "--report-file", "r.json", "--budget", "messages>=200", "--budget", budget];
        niclab.run([&options[..], &PING_PONG].concat())
    };
    let held = run("node0:interrupts/received<=0").success();
    assert!(held.stderr.contains("2 of 2 budgets held"), "{held}");
    let broken = run("node0:pio_write/sent<=0.5");
    assert_eq!(broken.code(), 1, "{broken}");
    let said = "broken budget: pio_write per sent message of node0: expected at most 0.5, found ";
    assert!(broken.stderr.contains(said) && broken.stderr.contains("    node0, pio_write: "), "{broken}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(niclab.folder().join("r.json")).unwrap()).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let of_budget = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap()["held"].clone();
    assert_eq!(of_budget("budget: messages"), true, "{report:#}");
    assert_eq!(of_budget("budget: pio_write per sent message of node0"), false, "{report:#}");
    assert_eq!(report["exit_code"], 1);
}

/// Two ULTRA nodes whose links lose every frame, with this workload.
fn lossy_scenario(niclab: &Niclab, workload: &str) -> Outcome {
    let cluster = "[cluster]\nnodes = 2\nlink = [{ faults = { loss = 1 } }]\n";
    let text = format!("mode = \"live\"\n{cluster}[workload]\n{workload}\n");
    fs::write(niclab.folder().join("s.toml"), text).expect("a scenario");
    niclab.run(["check", "s.toml", "--junit", "j.xml"])
}

#[test]
fn lost_messages_fail_a_live_run() {
    let niclab = Niclab::new();
    let program = "kind = \"program\"\ncommand = [\"niclab-perf\", \"pingpong\"]\ntimeout_s = 20";
    for workload in ["kind = \"ping-pong\"\ncount = 10", program] {
        let checked = lossy_scenario(&niclab, workload);
        assert_eq!(checked.code(), 1, "{checked}");
        assert!(checked.stdout.contains("warning: the links of node0, node1 lose"), "{checked}");
    }
    let checked = lossy_scenario(&niclab, "kind = \"stream\"\ncount = 10");
    assert!(checked.stdout.contains("live: lost_messages: expected exactly 0, found "), "{checked}");
    assert!(checked.stdout.contains("link event lost: "), "{checked}");
    let junit = fs::read_to_string(niclab.folder().join("j.xml")).unwrap();
    assert!(junit.contains("name=\"live: lost_messages\"") && junit.contains("failures=\"1\""), "{junit}");
}

/// Checks a scenario with this command of the node's shell, and more lines.
fn program(niclab: &Niclab, script: &str, more: &str) -> Outcome {
    let text = format!(
        "mode = \"live\"\n[workload]\nkind = \"program\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n\
         environment = {{ GREETING = \"hello\" }}\n{more}\n"
    );
    fs::write(niclab.folder().join("s.toml"), text).expect("a scenario");
    niclab.run(["check", "s.toml", "--junit", "j.xml"])
}

#[test]
fn program_scenario_is_judged_by_its_budgets() {
    let niclab = Niclab::new();
    let script = "test $GREETING = hello && niclab-perf pingpong -s 16 -n 100";
    let budget = |limit: &str| format!("[[budget]]\nwhat = \"messages\"\nnode = \"node1\"\n{limit}");
    program(&niclab, script, &budget("at_least = 100")).success();
    let broken = program(&niclab, script, &budget("at_most = 50"));
    assert_eq!(broken.code(), 1, "{broken}");
    assert!(broken.stdout.contains("live: messages of node1: expected at most 50, found "), "{broken}");
}

#[test]
fn working_folder_of_a_program_scenario_is_shared() {
    let niclab = Niclab::new();
    let folder = niclab.folder().join("work");
    fs::create_dir(&folder).unwrap();
    program(&niclab, "echo written >from-$NICLAB_NODE", "folder = \"work\"").success();
    assert_eq!(fs::read_to_string(folder.join("from-node1")).unwrap(), "written\n");
    let refused = program(&niclab, "true", "folder = \"missing\"");
    assert!(refused.code() == 2 && refused.stdout.contains("correct `folder` of [workload]"), "{refused}");
}

#[test]
fn failed_program_names_node_signal_and_last_output() {
    let niclab = Niclab::new();
    let crash = program(&niclab, "echo round 7; [ $NICLAB_RANK = 0 ] || kill -SEGV $$", "");
    assert_eq!(crash.code(), 1, "{crash}");
    let said = "command of node1: expected code 0, found killed by signal 11 (SIGSEGV)";
    assert!(crash.stdout.contains(said) && crash.stdout.contains("    output: round 7"), "{crash}");
    let junit = fs::read_to_string(niclab.folder().join("j.xml")).unwrap();
    assert!(junit.contains("killed by signal 11") && junit.contains("output: round 7"), "{junit}");
    let late = program(&niclab, "[ $NICLAB_RANK = 0 ] || sleep 1000", "timeout_s = 2");
    assert_eq!(late.code(), 3, "{late}");
    assert!(late.stdout.contains("had not ended after 2 s (timeout_s) on node1"), "{late}");
}

#[test]
fn time_out_of_a_run_names_the_node_and_writes_a_report() {
    let niclab = Niclab::new();
    let script = "[ $NICLAB_RANK = 0 ] || { echo begun; exec sleep 1000; }";
    let late = niclab.run(["run", "--timeout", "2", "--report-file", "r.json", "--", "sh", "-c", script]);
    assert_eq!(late.code(), 125, "{late}");
    assert!(late.stderr.contains("node1: the command failed: had not ended after 2 s (--timeout)"), "{late}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(niclab.folder().join("r.json")).unwrap()).unwrap();
    assert_eq!(report["nodes"][0]["exit_code"], 0, "{report:#}");
    assert_eq!(report["nodes"][1]["error"], "had not ended after 2 s (--timeout)", "{report:#}");
    assert_eq!(report["nodes"][1]["output"][0], "begun", "{report:#}");
}

#[test]
fn panic_of_a_node_is_in_the_report() {
    let niclab = Niclab::new();
    let script = "[ $NICLAB_RANK = 1 ] && echo c > /proc/sysrq-trigger; sleep 1000";
    let ended = niclab.run(["run", "--report-file", "r.json", "--", "sh", "-c", script]);
    assert_eq!(ended.code(), 125, "{ended}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(niclab.folder().join("r.json")).unwrap()).unwrap();
    let error = |rank: usize| report["nodes"][rank]["error"].as_str().unwrap().to_owned();
    assert!(error(1).contains("the kernel of node1 panicked"), "{report:#}");
    assert_eq!(error(0), "the cluster ended before the command");
    assert!(!report["nodes"][1]["console"].as_array().unwrap().is_empty(), "{report:#}");
}

#[test]
fn program_is_compared_with_another_command_in_one_boot() {
    let niclab = Niclab::new();
    let ratio =
        |limit: u32| format!("[[ratio]]\nbaseline.command = [\"sleep\", \"0.5\"]\nat_least = {limit}\n");
    let held = program(&niclab, "sleep 0.1", &ratio(2));
    assert_eq!(held.code(), 0, "{held}");
    let broken = program(&niclab, "sleep 0.1", &ratio(100));
    assert_eq!(broken.code(), 1, "{broken}");
    let said = "live: wall time of `sleep 0.5` divided by that of the program: expected at least 100";
    assert!(broken.stdout.contains(said), "{broken}");
}

/// docs/use/CI.md: the same budgets on a program in C, before and after each message interrupts its receiver.
#[test]
fn c_program_of_the_ci_page_turns_green_and_red() {
    let niclab = Niclab::new();
    build_c_examples(&niclab);
    let budgets =
        ["--budget", "messages>=2000", "--budget", "interrupts==0", "--budget", "doorbells/sent<=1.1"];
    let run = |program: &str| niclab.run([&["run"], &budgets[..], &["--", program]].concat());
    run("./ultra_pingpong").success();
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/lib");
    let source = fs::read_to_string(library.join("examples/ultra_pingpong.c")).unwrap();
    let planted = source.replace("send(port, round, 0)", "send(port, round, NICLAB_INTERRUPT)");
    assert_ne!(planted, source, "the page's regression");
    fs::write(niclab.folder().join("red.c"), planted).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(library.join("include")).args(["-O2", "-static", "-o", "red", "red.c"]);
    compiler.arg(release_folder().join("libniclab_user.a")).args(["-lpthread", "-ldl", "-lm"]);
    assert!(compiler.current_dir(niclab.folder()).status().unwrap().success());
    let red = run("./red");
    assert_eq!(red.code(), 1, "{red}");
    assert!(red.stderr.contains("broken budget: interrupts: expected exactly 0, found "), "{red}");
    assert!(red.stderr.contains("    node1, page of port 0, cause message: "), "{red}");
}
