//! The script `niclab` of a source tree. It reports what it waits for, and does not wait for commands that need no
//! build.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use niclab_harness::{Outcome, Started};
use rustix::fs::{FlockOperation, flock};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../niclab");

/// A target folder with a fake niclab that prints its arguments. The returned file holds cargo's lock while it is open.
fn target_of_another_cargo(folder: &Path) -> fs::File {
    let release = folder.join("release");
    fs::create_dir_all(&release).unwrap();
    let program = release.join("niclab");
    fs::write(&program, "#!/bin/sh\necho \"built: $*\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let lock = fs::File::create(release.join(".cargo-lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

fn script(target: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(SCRIPT);
    command.args(arguments).env("CARGO_TARGET_DIR", target).stdin(std::process::Stdio::null());
    command
}

#[test]
fn command_that_needs_no_build_neither_waits_nor_needs_cargo() {
    let folder = tempfile::tempdir().unwrap();
    let _lock = target_of_another_cargo(folder.path());
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/usr/bin/dirname", bin.join("dirname")).unwrap();
    for arguments in [&["--help"][..], &["-v", "down", "--all"], &["inspect"], &["logs"], &["run", "--help"]]
    {
        let outcome = Outcome::of(script(folder.path(), arguments).env("PATH", &bin)).success();
        assert_eq!(outcome.stdout, format!("built: {}\n", arguments.join(" ")));
        assert_eq!(outcome.stderr, "");
    }
    let outcome = Outcome::of(script(folder.path(), &["run"]).env("PATH", &bin));
    assert!(outcome.code() == 1 && outcome.stderr.contains("cargo is missing"), "{outcome}");
}

#[test]
fn command_that_needs_a_build_shows_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let lock = target_of_another_cargo(folder.path());
    // A fake cargo that waits for the lock as the real one does, and then has nothing to build.
    let cargo = folder.path().join("bin/cargo");
    fs::create_dir(folder.path().join("bin")).unwrap();
    let text = "#!/bin/sh\necho '    Blocking waiting for file lock on artifact directory' >&2\n\
                flock \"$CARGO_TARGET_DIR/release/.cargo-lock\" true\n\
                echo '    Finished `release` profile in 1 s' >&2\n";
    fs::write(&cargo, text).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = script(folder.path(), &["run", "--", "--help"]);
    command.env("PATH", path);
    let mut started = Started::new(command);
    started.wait_for_line("Blocking waiting for file lock");
    drop(lock);
    let outcome = started.finish();
    assert_eq!(outcome.stdout, "built: run -- --help\n");
    assert!(!outcome.stderr.contains("Finished"), "{outcome}");
}

#[test]
fn build_that_fails_ends_the_script() {
    let folder = tempfile::tempdir().unwrap();
    drop(target_of_another_cargo(folder.path()));
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("cargo"), "#!/bin/sh\necho 'error: no' >&2\nexit 101\n").unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = script(folder.path(), &["run"]);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let outcome = Outcome::of(&mut command);
    assert!(
        outcome.code() == 1 && outcome.stdout.is_empty() && outcome.stderr.contains("error: no"),
        "{outcome}"
    );
}
