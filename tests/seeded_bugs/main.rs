//! Checks that each seeded bug in components of INIC, in GRIM and in GAMMA is found. It builds the simulator and the
//! tests of models and ports in a copy of the committed sources with all bugs, and runs them once for each bug.
//!
//! This takes half an hour:
//!
//! `cargo test -p niclab-tests --features seeded-bugs --test seeded-bugs -- --nocapture`
//!
//! `NICLAB_SEEDED` selects the bugs whose component or name contains it, or those of that model.

#![allow(clippy::unwrap_used, reason = "tests")]

mod table;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use table::{FOLDER, Fault, Finder, MAX_SEEDS};

/// Selects the active bug by its number in the table, from 1.
const WHICH: &str = "NICLAB_SEEDED_BUG";

/// The packages with seeded bugs.
const PACKAGES: [&str; 2] = ["device/model", "guest-driver/port"];

/// Code that is appended to these packages.
const PLANTED: &str = "
extern crate std as planted_std;
pub(crate) fn planted() -> usize {
    static WHICH: planted_std::sync::OnceLock<usize> = planted_std::sync::OnceLock::new();
    *WHICH.get_or_init(|| planted_std::env::var(\"NICLAB_SEEDED_BUG\").ok().and_then(|it| it.parse().ok()).unwrap_or(0))
}
";

/// The tests of models, and those of ports.
const MODEL: [&str; 4] = ["-p", "niclab-model", "--test", "suite"];
const PORT: [&str; 4] = ["-p", "niclab-port", "--lib", ""];

/// The seeds of one run of the simulator. Most bugs are found in the first run.
const SEEDS_AT_ONCE: u32 = 50;

/// A copy of the committed sources, with its own target folder, which is kept.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("planted/source");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let archive = Command::new("git").args(["archive", "HEAD"]).current_dir(&root).output().unwrap();
        assert!(archive.status.success(), "{}", String::from_utf8_lossy(&archive.stderr));
        let packed = target.join("planted/source.tar");
        fs::write(&packed, &archive.stdout).unwrap();
        let unpacked = Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(&folder).status().unwrap();
        assert!(unpacked.success());
        Self(folder)
    }

    /// Plants all bugs, and the function that returns the active one.
    fn plant(&self) {
        for (fault, number) in table::all().zip(1..) {
            let path = self.0.join(FOLDER).join(fault.component).with_extension("rs");
            let broken = fault.broken.replace("FAULT", &format!("(crate::planted() == {number})"));
            let source = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            assert_eq!(
                source.matches(fault.sound).count(),
                1,
                "{}: its text must occur once in the source",
                fault.name
            );
            // The active bug is not known at compile time, so no function can be const.
            let planted = source.replacen(fault.sound, &broken, 1).replace("const fn", "fn");
            fs::write(&path, planted).unwrap();
        }
        for package in PACKAGES {
            let root = self.0.join(package).join("src/lib.rs");
            fs::write(&root, fs::read_to_string(&root).unwrap() + PLANTED).unwrap();
        }
    }

    fn cargo(&self, arguments: &[&str]) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).args(["--locked", "--quiet"]).current_dir(&self.0);
        let built = cargo.env("CARGO_TARGET_DIR", self.0.join("../target")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }

    /// The first seed that finds a bug.
    fn swarm(&self, model: &str, number: usize, most: u32) -> Option<u32> {
        (1..=most).step_by(SEEDS_AT_ONCE as usize).find_map(|first| {
            let mut swarm = Command::new(self.0.join("../target/release/niclab-sim"));
            swarm.args(["--nic", model, "--swarm", &SEEDS_AT_ONCE.to_string(), "--seed", &first.to_string()]);
            let output = swarm.env(WHICH, number.to_string()).output().unwrap();
            let found = String::from_utf8(output.stdout).unwrap();
            let seed =
                found.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(':')?.0.parse().ok());
            assert!(
                seed.is_some() || found.contains(" 0 failed"),
                "{found}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            seed
        })
    }

    /// Whether these tests fail.
    fn fails(&self, number: usize, which: [&str; 4], tests: &str) -> bool {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .arg("test")
            .args(which.iter().filter(|word| !word.is_empty()))
            .args(["--locked", "--quiet", tests]);
        cargo.current_dir(&self.0).env("CARGO_TARGET_DIR", self.0.join("../target"));
        cargo.env(WHICH, number.to_string()).env("RUST_BACKTRACE", "0");
        !cargo.output().unwrap().status.success()
    }

    /// The seed or tests that found a bug.
    fn find(&self, number: usize, fault: &Fault) -> Option<String> {
        match fault.finder {
            Finder::Swarm => self.swarm(fault.model(), number, MAX_SEEDS).map(|seed| format!("seed {seed}")),
            Finder::Tests(tests) => self.fails(number, MODEL, tests).then(|| format!("tests of {tests}")),
            Finder::PortTests(tests) => self.fails(number, PORT, tests).then(|| format!("tests of {tests}")),
        }
    }
}

#[test]
fn each_seeded_bug_of_a_component_is_found() {
    let only = env::var("NICLAB_SEEDED").unwrap_or_default();
    let copy = Copy::new();
    copy.plant();
    copy.cargo(&["build", "--release", "-p", "niclab-sim", "--bin", "niclab-sim"]);
    copy.cargo(&["test", "-p", "niclab-model", "--test", "suite", "--no-run"]);
    copy.cargo(&["test", "-p", "niclab-port", "--lib", "--no-run"]);
    for (model, tests) in [("inic", "inic_co"), ("grim", "grim_"), ("gamma", "gamma::")] {
        assert!(!copy.fails(0, MODEL, tests), "without an active bug all tests pass");
        assert_eq!(copy.swarm(model, 0, SEEDS_AT_ONCE), None, "without an active bug all tests pass");
    }
    let wanted = |fault: &Fault| {
        fault.component.contains(&only) || fault.name.contains(&only) || fault.model() == only
    };
    let mut missed = Vec::new();
    for (fault, number) in table::all().zip(1..).filter(|(fault, _)| wanted(fault)) {
        let found = copy.find(number, fault);
        println!("{}: {}: {}", fault.component, fault.name, found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(fault.name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
