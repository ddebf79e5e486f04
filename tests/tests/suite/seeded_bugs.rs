//! The seeded bugs of components (`tests/seeded_bugs`) apply: each one's text occurs once, and every component has a
//! bug.

use std::path::Path;

use crate::seeded_bug_table::{FOLDER, all};

/// Files that are no components, and code whose bugs are tested in other components.
const NONE: [&str; 3] = ["mod", "edges", "per_node"];

#[test]
fn every_component_has_an_applicable_seeded_bug() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    for fault in all() {
        let source = std::fs::read_to_string(folder.join(fault.component).with_extension("rs")).unwrap();
        let places = source.matches(fault.sound).count();
        assert_eq!(
            places, 1,
            "{}, {}: its text must occur once in the source: fix tests/seeded_bugs/table.rs",
            fault.component, fault.name
        );
        assert!(
            !source.contains(fault.broken),
            "{}: the bug {} is in the source",
            fault.component,
            fault.name
        );
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let has_fault = all().any(|fault| fault.component == name);
        assert!(has_fault || NONE.contains(&name), "{name} has no bug in tests/seeded_bugs/table.rs");
    }
}
