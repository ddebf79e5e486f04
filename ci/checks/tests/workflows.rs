//! Workflows of GitHub Actions, of this repository and in examples: each file is YAML, and each script parses.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use niclab_checks::{repository, sources};
use yaml_rust2::{Yaml, YamlLoader};

/// The scripts of a workflow: the values of all keys `run` that are texts.
fn scripts(node: &Yaml, found: &mut Vec<String>) {
    match node {
        Yaml::Hash(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str()) {
                    (Some("run"), Some(script)) => found.push(script.to_owned()),
                    _ => scripts(value, found),
                }
            }
        }
        Yaml::Array(items) => items.iter().for_each(|item| scripts(item, found)),
        _ => {}
    }
}

/// What bash says about a script that does not parse.
fn fault(script: &str) -> Option<String> {
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("bash did not start: {error}"));
    bash.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("bash reads its input");
    let output = bash.wait_with_output().expect("bash ends");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn workflows_and_their_scripts_parse() {
    let (mut found, mut checked) = (Vec::new(), 0);
    for file in sources().iter().filter(|file| file.extension().is_some_and(|extension| extension == "yml")) {
        let name = file.display();
        let text =
            fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut all = Vec::new();
        match YamlLoader::load_from_str(&text) {
            Ok(documents) => documents.iter().for_each(|document| scripts(document, &mut all)),
            Err(error) => found.push(format!("{name}: {error}")),
        }
        checked += all.len();
        found.extend(all.iter().filter_map(|script| fault(script)).map(|fault| format!("{name}: {fault}")));
    }
    assert!(checked > 5, "only {checked} scripts were found");
    assert!(found.is_empty(), "invalid workflows:\n  {}", found.join("\n  "));
}

#[test]
fn scripts_are_found_and_checked() {
    let text = "on: push\njobs:\n  a:\n    defaults: { run: { shell: bash } }\n    steps:\n      - run: |\n          \
        if true; then\n          echo a\n      - run: echo b\n";
    let mut found = Vec::new();
    scripts(&YamlLoader::load_from_str(text).expect("YAML")[0], &mut found);
    assert_eq!(found, ["if true; then\necho a\n", "echo b"]);
    assert!(fault(&found[0]).is_some_and(|fault| fault.contains("end of file")));
    assert_eq!(fault(&found[1]), None);
}
