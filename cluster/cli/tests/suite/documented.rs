//! Runs the cheap commands that the documentation shows, exactly as documented.

use std::path::Path;

use niclab_harness::documented;

use crate::support::niclab;

/// Whether the command needs no cluster, no built figure and no file of the reader's own.
fn is_cheap(words: &[&str]) -> bool {
    match words {
        ["schema" | "rules", ..] | ["profile", "list" | "show", ..] => !words.contains(&"NAME"),
        ["sim", "--swarm", ..] => true,
        ["check", scenarios @ ..] => scenarios == ["ci/scenarios/mailbox-pingpong.toml"],
        ["inic", "show" | "check", ..] => false,
        [_, .., "--help"] => true,
        _ => false,
    }
}

#[test]
fn cheap_documented_commands_run() {
    let niclab = niclab();
    let mut run: Vec<String> = Vec::new();
    for command in documented("niclab") {
        let mut words: Vec<&str> = command.words.iter().skip(1).map(String::as_str).collect();
        if !is_cheap(&words) || run.contains(&command.text) {
            continue;
        }
        // The documented swarm sizes would take minutes.
        if let ["sim", "--swarm", count, ..] = &mut words[..] {
            *count = "3";
        }
        let mut started = niclab.command(&words);
        started.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        let outcome = niclab_harness::Outcome::of(&mut started);
        // `profile show` needs a name, which a page may omit.
        let is_mention = outcome.status.code() == Some(2) && outcome.stderr.contains("required arguments");
        assert!(outcome.status.success() || is_mention, "{}: {words:?}\n{outcome}", command.place);
        run.push(command.text);
    }
    assert!(run.len() >= 10, "only {run:?}");
}
