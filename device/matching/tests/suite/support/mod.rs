//! Input files for `niclab-match`, and a function that runs it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Two items that fail, and one that matches two messages of up to 100 bytes in total.
pub const LIST: &str = r#"[
    {"match_bits": 6, "length": 10},
    {"match_bits": 5, "node": 3, "length": 10},
    {"match_bits": "0x5", "node": 1, "process": "any", "length": 100, "threshold": 2,
     "flags": ["valid", "put", "truncate"]}
]"#;

/// Three messages that match the third item.
pub const HEADERS: &str = r#"[
    {"match_bits": 5, "node": 1, "process": 9, "length": 64},
    {"match_bits": 5, "node": 1, "process": 9, "operation": "put", "length": 64},
    {"match_bits": 5, "node": 1, "process": 9, "length": 64}
]"#;

/// A folder with [`LIST`] and [`HEADERS`].
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("list.json"), LIST).unwrap();
    fs::write(folder.path().join("headers.json"), HEADERS).unwrap();
    folder
}

/// Runs a subcommand on the folder's files, with this on standard input.
pub fn on_files(folder: &Path, subcommand: &str, options: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_niclab-match"))
        .args([subcommand, "--list", "list.json", "--headers", "headers.json"])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The write fails if the program refuses its arguments and reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
