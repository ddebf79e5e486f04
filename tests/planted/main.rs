//! Each fault that is planted in a component of INIC is found. Builds the simulator and the model's tests once for each, in a
//! copy of what is committed: an hour of one core. `cargo test -p niclab-tests --features planted --test planted`; with
//! `NICLAB_PLANTED` only those whose component or name contains it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod table;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use table::{FAULTS, FOLDER, Fault, Finder, MOST_SEEDS};

/// Seeds of one run of the simulator: most faults are found in the first.
const SEEDS_AT_ONCE: u32 = 50;

/// A copy of the sources that are committed, with a target folder of its own that is kept.
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

    fn cargo(&self, arguments: &[&str]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).args(["--locked", "--quiet"]).current_dir(&self.0);
        cargo.env("CARGO_TARGET_DIR", self.0.join("../target")).env("RUST_BACKTRACE", "0").output().unwrap()
    }

    /// The first seed that finds what is broken.
    fn swarm(&self) -> Option<u32> {
        let built = self.cargo(&["build", "-p", "niclab-sim", "--bin", "niclab-sim"]);
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let program = self.0.join("../target/debug/niclab-sim");
        (1..=MOST_SEEDS).step_by(SEEDS_AT_ONCE as usize).find_map(|first| {
            let mut swarm = Command::new(&program);
            swarm.args([
                "--nic",
                "inic",
                "--swarm",
                &SEEDS_AT_ONCE.to_string(),
                "--seed",
                &first.to_string(),
            ]);
            let found = String::from_utf8(swarm.output().unwrap().stdout).unwrap();
            let seed =
                found.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(':')?.0.parse().ok());
            assert!(seed.is_some() || found.contains(" 0 failed"), "{found}");
            seed
        })
    }

    /// Whether tests of the model fail, though they were built.
    fn fails(&self, tests: &str) -> bool {
        let model = ["test", "-p", "niclab-model", "--test", "suite"];
        let built = self.cargo(&[&model[..], &["--no-run"]].concat());
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        !self.cargo(&[&model[..], &[tests]].concat()).status.success()
    }

    /// What found a fault.
    fn find(&self, fault: &Fault) -> Option<String> {
        let path = self.0.join(FOLDER).join(fault.component).with_extension("rs");
        let sound = fs::read_to_string(&path).unwrap();
        fs::write(&path, sound.replacen(fault.sound, fault.broken, 1)).unwrap();
        let found = match fault.finder {
            Finder::Swarm => self.swarm().map(|seed| format!("seed {seed}")),
            Finder::Tests(tests) => self.fails(tests).then(|| format!("tests of {tests}")),
        };
        fs::write(&path, sound).unwrap();
        found
    }
}

#[test]
fn each_fault_that_is_planted_in_a_component_is_found() {
    let only = env::var("NICLAB_PLANTED").unwrap_or_default();
    let copy = Copy::new();
    let wanted = |fault: &&Fault| fault.component.contains(&only) || fault.name.contains(&only);
    let mut missed = Vec::new();
    for fault in FAULTS.iter().filter(wanted) {
        let found = copy.find(fault);
        println!("{}: {}: {}", fault.component, fault.name, found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(fault.name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
