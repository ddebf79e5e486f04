//! `niclab asm` and `niclab disasm`: files, exit codes, and messages with line and fix.

use std::{fs, os::unix::fs::symlink};

use crate::support::niclab;

const PROGRAM: &str = "\
# Sends every word back.
again:  r1 = in
        out = copy r1 | br again
        nop
        nop
";

#[test]
fn image_disassembles_to_source_of_the_same_image() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("echo.nma"), PROGRAM).unwrap();
    let assembled = niclab.run(["asm", "echo.nma", "--listing"]);
    assert_eq!((assembled.code(), assembled.stderr.as_str()), (0, ""));
    let listing = assembled.stdout;
    assert!(listing.contains("again:") && listing.contains("out = copy r1 | br again"), "{listing}");

    let disassembled = niclab.run(["disasm", "echo.nmi"]);
    assert_eq!(disassembled.code(), 0);
    fs::write(folder.join("again.nma"), &disassembled.stdout).unwrap();
    assert_eq!(niclab.run(["asm", "again.nma", "-o", "other.nmi"]).code(), 0);
    let image = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(image("echo.nmi"), image("other.nmi"));
    let bits = niclab.run(["disasm", "echo.nmi", "--listing"]);
    assert!(bits.stdout.contains("    1  "), "{}", bits.stdout);
}

#[test]
fn source_with_errors_shows_fixes_and_writes_nothing() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("bad.nma"), PROGRAM.replace("br again", "br agian | r0 = in")).unwrap();
    let refused = niclab.run(["asm", "bad.nma"]);
    assert_eq!(refused.code(), 1);
    let complaint = &refused.stderr;
    for part in ["bad.nma:3:28: error: ", "`again`?", "^^^^^", "bad.nma:3:36: error: ", "2 errors"] {
        assert!(complaint.contains(part), "no {part}: {complaint}");
    }
    assert!(refused.stdout.is_empty() && !folder.join("bad.nmi").exists());
}

#[test]
fn warnings_are_shown_and_can_be_denied() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("loop.nma"), "nop\n").unwrap();
    let denied = niclab.run(["asm", "loop.nma", "--deny-warnings"]);
    assert_eq!(denied.code(), 1);
    assert!(!folder.join("loop.nmi").exists());
    let warned = niclab.run(["asm", "loop.nma"]);
    assert_eq!(warned.code(), 0);
    assert!(warned.stderr.contains("warning[falls_through]"), "{}", warned.stderr);
    assert!(folder.join("loop.nmi").exists());
}

#[test]
fn unusable_files_are_named() {
    let niclab = niclab();
    let folder = niclab.folder();
    let missing = niclab.run(["asm", "none.nma"]);
    assert_eq!(missing.code(), 125);
    assert!(missing.stderr.contains("cannot read none.nma"), "{}", missing.stderr);
    fs::write(folder.join("echo.nma"), PROGRAM).unwrap();
    let same = niclab.run(["asm", "echo.nma", "-o", "echo.nma"]);
    assert_eq!(same.code(), 125);
    assert!(same.stderr.contains("fix: "), "{}", same.stderr);
    assert_eq!(fs::read_to_string(folder.join("echo.nma")).unwrap(), PROGRAM);

    assert_eq!(niclab.run(["asm", "echo.nma"]).code(), 0);
    let mut image = fs::read(folder.join("echo.nmi")).unwrap();
    image[40] ^= 1;
    fs::write(folder.join("echo.nmi"), &image).unwrap();
    let damaged = niclab.run(["disasm", "echo.nmi"]);
    assert_eq!(damaged.code(), 1);
    assert!(damaged.stderr.contains("echo.nmi: the image's check sequence"), "{}", damaged.stderr);
    assert!(damaged.stdout.is_empty());
}

#[test]
fn image_replaces_regular_files_only_and_never_the_source() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("s.nma"), PROGRAM).unwrap();
    symlink("s.nma", folder.join("soft.nmi")).unwrap();
    fs::hard_link(folder.join("s.nma"), folder.join("hard.nmi")).unwrap();
    symlink("/dev/null", folder.join("null.nmi")).unwrap();
    for (image, part) in [
        ("./s.nma", "the same file"),
        ("soft.nmi", "the same file"),
        ("hard.nmi", "the same file"),
        ("-", "standard output"),
        (".", "neither a regular file"),
    ] {
        let refused = niclab.run(["asm", "s.nma", "-o", image]);
        let complaint = &refused.stderr;
        assert_eq!(refused.code(), 125, "{image}: {complaint}");
        assert!(complaint.contains(part) && complaint.contains("fix: "), "{image}: {complaint}");
    }
    assert_eq!(fs::read_to_string(folder.join("s.nma")).unwrap(), PROGRAM);
    // A device is written in place.
    niclab.run(["asm", "s.nma", "-o", "null.nmi"]).success();
    assert!(fs::symlink_metadata(folder.join("null.nmi")).unwrap().is_symlink());
    // Without -o, niclab derives the image's name from the source's; here both are the same file.
    fs::write(folder.join("own.nmi"), PROGRAM).unwrap();
    assert_eq!(niclab.run(["asm", "own.nmi"]).code(), 125);
    assert_eq!(fs::read_to_string(folder.join("own.nmi")).unwrap(), PROGRAM);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 5, "no temporary file remains");
}

#[test]
fn output_for_many_errors_is_bounded() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("bad.nma"), "r1 = wrong\n".repeat(40_000)).unwrap();
    let refused = niclab.run(["asm", "bad.nma"]);
    let complaint = &refused.stderr;
    assert_eq!(refused.code(), 1);
    assert!(
        complaint.contains("bad.nma: and 39951 more") && complaint.contains("has 40001 errors"),
        "{complaint}"
    );
    fs::write(folder.join("bars.nma"), format!("nop{}\n", "|".repeat(100_000))).unwrap();
    let refused = niclab.run(["asm", "bars.nma"]);
    assert!(refused.stderr.contains("bars.nma: and 99950 more"));
    assert!(
        complaint.len() + refused.stderr.len() < 60_000,
        "{} bytes",
        complaint.len() + refused.stderr.len()
    );
}
