//! Output of commands: niclab opens output files before it works, leaves devices, FIFOs and links in place, and copes
//! with a closed standard output.

use std::{
    fs,
    io::Read,
    os::unix::fs::{FileTypeExt, symlink},
    path::Path,
    process::Stdio,
    thread,
};

use niclab_harness::Niclab;
use niclab_output::READER_GONE;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::niclab;

/// A ping-pong in the simulator whose budget breaks.
fn broken_scenario(niclab: &Niclab) {
    let budget = "[[budget]]\nwhat = \"interrupts\"\nexact = 7\n";
    let text = format!("mode = \"sim\"\n[workload]\nkind = \"ping-pong\"\ncount = 10\n{budget}");
    fs::write(niclab.folder().join("x.toml"), text).unwrap();
}

#[test]
fn missing_folder_is_named_before_anything_is_run() {
    let niclab = niclab();
    broken_scenario(&niclab);
    for (arguments, files) in [
        (
            &["check", "x.toml", "--junit", "no/j.xml", "--html", "no/j.html"][..],
            &["no/j.xml", "no/j.html"][..],
        ),
        (
            &["sim", "x.toml", "--html", "no/r.html", "--trace", "no/t", "--capture", "no/c"],
            &["no/r.html", "no/t", "no/c"],
        ),
        (
            &["run", "--report-file", "no/r", "--html", "no/h", "--record", "no/m", "--capture", "no/c"],
            &["no/r", "no/h", "no/m", "no/c"],
        ),
        (&["run", "--coverage", "no/l"], &["no/l"]),
        (&["report", "x.json", "--html", "no/r.html"], &["no/r.html"]),
        (&["figures", "match", "--svg", "no/f.svg"], &["no/f.svg"]),
    ] {
        let refused = niclab.run(arguments);
        assert_eq!(refused.code(), 125, "{refused}");
        for file in files {
            assert!(refused.stderr.contains(&format!("cannot write {file}: ")), "{file}: {refused}");
        }
        assert_eq!(refused.stdout, "", "{refused}");
    }
}

#[test]
fn outputs_that_lead_to_one_file_or_to_an_input_are_refused() {
    let niclab = niclab();
    broken_scenario(&niclab);
    for (arguments, part) in [
        (&["sim", "x.toml", "--trace", "a", "--capture", "./a"][..], "named for two outputs"),
        (&["sim", "x.toml", "--report-file", "x.toml"], "are the same file"),
        (&["check", "x.toml", "--junit", "x.toml"], "are the same file"),
        (&["report", "x.toml", "--html", "x.toml"], "are the same file"),
        (&["sim", "x.toml", "--capture", "-"], "standard output"),
    ] {
        let refused = niclab.run(arguments);
        assert!(refused.code() == 125 && refused.stderr.contains(part), "{refused}");
    }
    assert_eq!(fs::read_dir(niclab.folder()).unwrap().count(), 1);
}

#[test]
fn full_device_keeps_verdict_and_exit_code() {
    let niclab = niclab();
    broken_scenario(&niclab);
    let checked = niclab.run(["check", "x.toml", "--junit", "/dev/full"]);
    assert_eq!(checked.code(), 1, "{checked}");
    assert!(checked.stdout.contains("x.toml: BROKEN"), "{checked}");
    assert!(checked.stderr.contains("cannot write /dev/full"), "{checked}");
    let simulated = niclab.run(["sim", "x.toml", "--report-file", "/dev/full"]);
    assert_eq!(simulated.code(), 125, "{simulated}");
    assert!(simulated.stdout.contains("model time"), "{simulated}");
}

/// Makes a FIFO, and reads all that is written to it.
fn fifo(path: &Path) -> thread::JoinHandle<Vec<u8>> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let path = path.to_owned();
    thread::spawn(move || fs::read(path).unwrap())
}

#[test]
fn device_fifo_and_link_stay_and_are_written() {
    let niclab = niclab();
    broken_scenario(&niclab);
    let path = |name: &str| niclab.folder().join(name);
    symlink("/dev/null", path("null")).unwrap();
    symlink("report.json", path("link")).unwrap();
    fs::write(path("report.json"), "old").unwrap();
    let capture = fifo(&path("pipe"));
    niclab.run(["sim", "x.toml", "--trace", "null", "--capture", "pipe", "--report-file", "link"]).success();
    assert!(capture.join().unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    assert!(fs::symlink_metadata(path("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_link(path("null")).unwrap(), Path::new("/dev/null"));
    assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("report.json"));
    assert!(fs::read_to_string(path("report.json")).unwrap().contains("\"checks\""));
}

#[test]
fn reader_that_leaves_a_fifo_ends_the_simulation_quietly() {
    let niclab = niclab();
    let text = "[workload]\nkind = \"ping-pong\"\ncount = 20000\n";
    fs::write(niclab.folder().join("x.toml"), text).unwrap();
    let path = niclab.folder().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = thread::spawn(move || fs::File::open(path).unwrap().read_exact(&mut [0; 4]).unwrap());
    let ended = niclab.run(["sim", "x.toml", "--capture", "pipe"]);
    reader.join().unwrap();
    assert_eq!(ended.code(), i32::from(READER_GONE), "{ended}");
    // Another test's cargo may hold the package cache while this one checks whether the simulator is built.
    let mut messages = ended.stderr.lines().filter(|line| !line.contains("another cargo is at work"));
    assert!(ended.stdout.is_empty() && !messages.any(|line| line.contains("niclab: ")), "{ended}");
}

/// Runs a command whose standard output has no reader.
fn unread(niclab: &Niclab, arguments: &[&str]) -> (i32, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = niclab.command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn closed_pipe_ends_every_printing_command_quietly() {
    let niclab = niclab();
    broken_scenario(&niclab);
    for arguments in [
        &["schema", "--markdown"][..],
        &["rules"],
        &["profile", "list"],
        &["sim", "x.toml"],
        &["sim", "--swarm", "2"],
        &["check", "x.toml"],
        &["doctor"],
        &["plan", "--offline"],
        &["match", "schema", "list"],
        &["inic", "show", "conf1"],
    ] {
        let (code, said) = unread(&niclab, arguments);
        let is_quiet = !said.contains("roken pipe") && !said.contains("panicked");
        // `plan` may fail before it prints, if nothing is cached.
        let is_refused = arguments[0] == "plan" && code == 125;
        assert!(is_quiet && (code == i32::from(READER_GONE) || is_refused), "{arguments:?}: {code}\n{said}");
    }
}

#[test]
fn closed_standard_error_does_not_end_a_command() {
    let niclab = niclab();
    broken_scenario(&niclab);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // This command writes to standard error.
    let output = niclab.command(["sim", "no.toml"]).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
