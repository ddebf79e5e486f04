//! Wireshark's capture engine reads a cluster live: through a pipe, and through the extcap program. `ci/dissector`
//! starts these tests.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "suite/support/mod.rs"]
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use niclab_cluster::host::runtime::RuntimeRoot;
use niclab_cluster::supervisor::control::PLAN;
use niclab_spec::monitor::Answer;
use niclab_spec::watch::{ChunkWriter, WatchSummary};

use support::{GOOD_DAEMON, name, niclab, plan};

const EXTCAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/niclab-extcap");

/// Sends this capture to every watch, and then nothing more until the watch ends.
fn serve(listener: UnixListener, capture: Vec<u8>) {
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let capture = capture.clone();
            thread::spawn(move || {
                let answer = |answer: &Answer| serde_json::to_string(answer).unwrap() + "\n";
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(answer(&Answer::Watching).as_bytes()).unwrap();
                let mut chunks = ChunkWriter::new(stream.try_clone().unwrap());
                chunks.write_all(&capture).and_then(|()| chunks.flush()).unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
                // The other end may be gone.
                let _ = chunks.end().and_then(|mut stream| {
                    stream.write_all(answer(&Answer::Watched(WatchSummary::default())).as_bytes())
                });
            });
        }
    });
}

fn tshark(root: &Path, extcaps: &Path) -> Command {
    let mut tshark = Command::new(std::env::var_os("NICLAB_TSHARK").unwrap_or_else(|| "tshark".into()));
    if let Some(folder) = std::env::var_os("NICLAB_TSHARK_LIBRARIES") {
        tshark.env("LD_LIBRARY_PATH", folder);
    }
    tshark.env("WIRESHARK_EXTCAP_DIR", extcaps).env("NICLAB_RUNTIME_DIR", root);
    tshark.env("NICLAB", env!("CARGO_BIN_EXE_niclab")).stdin(Stdio::null());
    tshark
}

#[test]
fn tshark_captures_a_cluster_live() {
    let place = niclab();
    let text = "[workload]\nkind = \"ping-pong\"\ncount = 10\n";
    fs::write(place.folder().join("x.toml"), text).unwrap();
    place.run(["sim", "x.toml", "--capture", "c.pcapng"]).success();
    let root = RuntimeRoot::at(place.runtime()).unwrap();
    let folder = root.claim(&name("lab")).unwrap();
    let plan = plan(root.path(), "lab", GOOD_DAEMON, &["good", "good"]);
    folder.write(PLAN, &serde_json::to_string(&plan).unwrap()).unwrap();
    serve(
        UnixListener::bind(&plan.monitor_socket).unwrap(),
        fs::read(place.folder().join("c.pcapng")).unwrap(),
    );

    // The daemon's end stays open, so tshark reads these frames during the capture.
    let fields = ["-n", "-l", "-c", "4", "-T", "fields", "-e", "frame.interface_name"];
    let lines = |output: &[u8]| String::from_utf8_lossy(output).lines().count();
    let extcaps = place.folder().join("extcap");
    fs::create_dir(&extcaps).unwrap();
    let mut capture =
        place.command(["capture", "--name", "lab", "-o", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut piped = tshark(root.path(), &extcaps);
    piped.args(["-i", "-"]).args(fields).stdin(capture.stdout.take().unwrap());
    let output = piped.output().unwrap();
    // `piped` holds the pipe's other end.
    drop(piped);
    assert!(output.status.success() && lines(&output.stdout) == 4, "{output:?}");
    assert!(capture.wait().unwrap().success());

    symlink(EXTCAP, extcaps.join("niclab-extcap")).unwrap();
    let listed = tshark(root.path(), &extcaps).arg("-D").output().unwrap();
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("niclab-lab (niclab cluster lab)"),
        "{listed:?}"
    );
    let captured = tshark(root.path(), &extcaps).args(["-i", "niclab-lab"]).args(fields).output().unwrap();
    assert!(captured.status.success() && lines(&captured.stdout) == 4, "{captured:?}");
}
