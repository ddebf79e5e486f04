//! `niclab inic`: assemblies are checked, drawn and built; messages name line, component, port and fix.

use std::fs;

use crate::support::niclab;

const CONF4: &str = include_str!("../../../../firmware/inic/assemblies/conf4.toml");
const IMAGE: &[u8] = include_bytes!("../../../../firmware/inic/assemblies/conf4.inic");

#[test]
fn source_builds_the_bundled_image() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("own.toml"), CONF4).unwrap();
    let built = niclab.run(["inic", "build", "own.toml"]);
    assert_eq!((built.code(), built.stderr.as_str()), (0, ""));
    assert_eq!(fs::read(folder.join("own.inic")).unwrap(), IMAGE);
    assert_eq!(niclab.run(["inic", "build", "own.toml", "-o", "other"]).code(), 0);
    assert_eq!(fs::read(folder.join("other")).unwrap(), IMAGE);
    // niclab never overwrites the source with the image.
    let same = niclab.run(["inic", "build", "own.inic"]);
    assert_eq!(same.code(), 125);
    assert!(same.stderr.contains("the same file"), "{}", same.stderr);

    let checked = niclab.run(["inic", "check", "own.toml", "own.inic"]);
    assert_eq!(checked.code(), 0);
    let line = "every message arrives, none twice, in order; 2650 flip-flops, 3933 look-up tables";
    assert_eq!(checked.stdout, format!("own.toml: {line}\nown.inic: {line}\n"));

    let [by_name, by_source, by_image] =
        ["conf4", "own.toml", "own.inic"].map(|file| niclab.run(["inic", "show", file]).stdout);
    assert!(by_name.contains("B: flow control") && by_name.contains("31.35 %"), "{by_name}");
    assert_eq!((&by_name, &by_name), (&by_source, &by_image));
}

#[test]
fn every_error_is_shown_with_line_and_fix() {
    let niclab = niclab();
    let folder = niclab.folder();
    let bad = CONF4.replace("timer.expiries = \"genp.expiries\"\n", "").replace("limit = 32", "limit = 15");
    fs::write(folder.join("bad.toml"), bad).unwrap();
    fs::write(folder.join("good.toml"), CONF4).unwrap();
    let refused = niclab.run(["inic", "check", "bad.toml", "good.toml"]);
    let complaint = &refused.stderr;
    assert_eq!(refused.code(), 1, "{complaint}");
    for part in [
        "bad.toml:14:31: error: `genp`: outstanding_limit is 15, less than twice the threshold of `build_acks`, 8",
        "fix: raise outstanding_limit to 16 or more",
        "bad.toml:14:1: error: `genp.expiries` is not connected",
        "bad.toml:16:1: error: `timer.expiries` is not connected",
        "fix: connect it to timer.expiries",
        "niclab: bad.toml: the assembly was refused",
    ] {
        assert!(complaint.contains(part), "no {part}:\n{complaint}");
    }
    assert!(refused.stdout.starts_with("good.toml: every"), "the other files are checked, too");
    assert_eq!(niclab.run(["inic", "build", "bad.toml"]).code(), 1);
    assert!(!folder.join("bad.inic").exists());
    assert_eq!(niclab.run(["inic", "show", "bad.toml"]).code(), 1);
}

#[test]
fn files_without_an_assembly_are_named() {
    let niclab = niclab();
    let folder = niclab.folder();
    let missing = niclab.run(["inic", "show", "conf5"]);
    assert_eq!(missing.code(), 125);
    for part in ["conf5", "conf1, conf2", "selective_repeat"] {
        assert!(missing.stderr.contains(part), "{}", missing.stderr);
    }
    let mut damaged = IMAGE.to_vec();
    damaged[100] ^= 1;
    let headless = b"nicparts\x01\0\0\0".to_vec();
    for (bytes, part) in [
        (damaged, "it is damaged"),
        (IMAGE[..200].to_vec(), "cut off"),
        (headless, "cut off"),
        (vec![0xff, 0xfe], "neither TOML nor the image"),
        (b"nicmatch".to_vec(), "error: "),
    ] {
        fs::write(folder.join("x"), bytes).unwrap();
        let refused = niclab.run(["inic", "check", "x"]);
        let complaint = &refused.stderr;
        assert_eq!(refused.code(), 1, "{part}: {complaint}");
        assert!(complaint.contains("x:") && complaint.contains(part), "no {part}: {complaint}");
        assert!(refused.stdout.is_empty());
    }
}
