//! Drivers with one bug each: the changes apply to the present sources. Tests in guests check that the bugs are found.

#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../../drivers/table.rs"]
mod table;

use std::collections::BTreeSet;

use table::{Driver, Finder, VARIANTS};

#[test]
fn every_seeded_bug_applies_to_the_driver() {
    for variant in VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        variant.plant(folder.path()).unwrap();
        for edit in variant.edits {
            let planted = std::fs::read_to_string(folder.path().join(edit.file)).unwrap();
            assert!(planted.contains(edit.broken), "{}", variant.name);
            assert_ne!(edit.sound, edit.broken, "{}", variant.name);
        }
        assert!(folder.path().join("Makefile").is_file(), "{}", variant.name);
        assert!(!variant.class.is_empty() && !variant.driver.nic().is_empty());
    }
}

#[test]
fn at_least_20_driver_bugs_exist_and_at_most_two_are_not_found() {
    let names: BTreeSet<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    assert!(names.len() >= 20 && names.len() == VARIANTS.len());
    let beyond = VARIANTS.iter().filter(|variant| matches!(variant.finder, Finder::NotFound(_)));
    assert!(beyond.count() <= 2);
    for driver in [Driver::Ultra, Driver::Gamma, Driver::Ours] {
        assert!(VARIANTS.iter().any(|variant| variant.driver == driver), "{driver:?}");
    }
}
