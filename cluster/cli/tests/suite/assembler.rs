//! `niclab asm` and `niclab disasm`: files, exit codes, and messages that name the place and the mend.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

const PROGRAM: &str = "\
# Sends every word back.
again:  r1 = in
        out = copy r1 | br again
        nop
        nop
";

/// Runs niclab in `folder`.
fn niclab(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niclab")).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_image_disassembles_to_source_that_gives_the_same_image() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("echo.nma"), PROGRAM).unwrap();
    let assembled = niclab(folder, &["asm", "echo.nma", "--listing"]);
    assert_eq!((assembled.status.code(), text(&assembled.stderr).as_str()), (Some(0), ""));
    let listing = text(&assembled.stdout);
    assert!(listing.contains("again:") && listing.contains("out = copy r1 | br again"), "{listing}");

    let disassembled = niclab(folder, &["disasm", "echo.nmi"]);
    assert_eq!(disassembled.status.code(), Some(0));
    fs::write(folder.join("again.nma"), &disassembled.stdout).unwrap();
    assert_eq!(niclab(folder, &["asm", "again.nma", "-o", "other.nmi"]).status.code(), Some(0));
    let image = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(image("echo.nmi"), image("other.nmi"));
    let bits = niclab(folder, &["disasm", "echo.nmi", "--listing"]);
    assert!(text(&bits.stdout).contains("    1  "), "{}", text(&bits.stdout));
}

#[test]
fn a_refused_source_is_explained_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bad.nma"), PROGRAM.replace("br again", "br agian | r0 = in")).unwrap();
    let refused = niclab(folder, &["asm", "bad.nma"]);
    assert_eq!(refused.status.code(), Some(1));
    let complaint = text(&refused.stderr);
    for part in ["bad.nma:3:28: error: ", "`again`?", "^^^^^", "bad.nma:3:36: error: ", "2 errors"] {
        assert!(complaint.contains(part), "no {part}: {complaint}");
    }
    assert!(refused.stdout.is_empty() && !folder.join("bad.nmi").exists());
}

#[test]
fn warnings_are_shown_and_can_be_denied() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("loop.nma"), "nop\n").unwrap();
    let denied = niclab(folder, &["asm", "loop.nma", "--deny-warnings"]);
    assert_eq!(denied.status.code(), Some(1));
    assert!(!folder.join("loop.nmi").exists());
    let warned = niclab(folder, &["asm", "loop.nma"]);
    assert_eq!(warned.status.code(), Some(0));
    assert!(text(&warned.stderr).contains("warning[falls_through]"), "{}", text(&warned.stderr));
    assert!(folder.join("loop.nmi").exists());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let missing = niclab(folder, &["asm", "none.nma"]);
    assert_eq!(missing.status.code(), Some(125));
    assert!(text(&missing.stderr).contains("cannot read none.nma"), "{}", text(&missing.stderr));
    fs::write(folder.join("echo.nma"), PROGRAM).unwrap();
    let same = niclab(folder, &["asm", "echo.nma", "-o", "echo.nma"]);
    assert_eq!(same.status.code(), Some(125));
    assert!(text(&same.stderr).contains("mend: "), "{}", text(&same.stderr));
    assert_eq!(fs::read_to_string(folder.join("echo.nma")).unwrap(), PROGRAM);

    assert_eq!(niclab(folder, &["asm", "echo.nma"]).status.code(), Some(0));
    let mut image = fs::read(folder.join("echo.nmi")).unwrap();
    image[40] ^= 1;
    fs::write(folder.join("echo.nmi"), &image).unwrap();
    let damaged = niclab(folder, &["disasm", "echo.nmi"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(
        text(&damaged.stderr).contains("echo.nmi: the image's check sequence"),
        "{}",
        text(&damaged.stderr)
    );
    assert!(damaged.stdout.is_empty());
}

#[test]
fn an_image_replaces_regular_files_alone_and_never_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.nma"), PROGRAM).unwrap();
    symlink("s.nma", folder.join("soft.nmi")).unwrap();
    fs::hard_link(folder.join("s.nma"), folder.join("hard.nmi")).unwrap();
    symlink("/dev/null", folder.join("null.nmi")).unwrap();
    for (image, part) in [
        ("./s.nma", "one file"),
        ("soft.nmi", "one file"),
        ("hard.nmi", "one file"),
        ("null.nmi", "no regular file"),
        ("/dev/null", "no regular file"),
        (".", "no regular file"),
    ] {
        let refused = niclab(folder, &["asm", "s.nma", "-o", image]);
        let complaint = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{image}: {complaint}");
        assert!(complaint.contains(part) && complaint.contains("mend: "), "{image}: {complaint}");
    }
    assert_eq!(fs::read_to_string(folder.join("s.nma")).unwrap(), PROGRAM);
    assert!(fs::symlink_metadata(folder.join("null.nmi")).unwrap().is_symlink());
    // Without -o the image's name follows from the source's: that may be the source itself.
    fs::write(folder.join("own.nmi"), PROGRAM).unwrap();
    assert_eq!(niclab(folder, &["asm", "own.nmi"]).status.code(), Some(125));
    assert_eq!(fs::read_to_string(folder.join("own.nmi")).unwrap(), PROGRAM);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 5, "nothing is left behind");
}

#[test]
fn what_is_said_of_many_mistakes_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bad.nma"), "r1 = wrong\n".repeat(40_000)).unwrap();
    let refused = niclab(folder, &["asm", "bad.nma"]);
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        complaint.contains("bad.nma: and 39951 more") && complaint.contains("has 40001 errors"),
        "{complaint}"
    );
    fs::write(folder.join("bars.nma"), format!("nop{}\n", "|".repeat(100_000))).unwrap();
    let refused = niclab(folder, &["asm", "bars.nma"]);
    assert!(text(&refused.stderr).contains("bars.nma: and 99950 more"));
    assert!(
        complaint.len() + refused.stderr.len() < 60_000,
        "{} bytes",
        complaint.len() + refused.stderr.len()
    );
}
