//! Faults that are planted in components (`tests/seeded_bugs`) can be: where each goes there is one place for it, and every
//! component has one.

use std::path::Path;

use crate::seeded_bug_table::{FOLDER, all};

/// Files beside the components, and what can go wrong only where others do.
const NONE: [&str; 3] = ["mod", "edges", "per_node"];

#[test]
fn every_component_has_an_applicable_seeded_bug() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    for fault in all() {
        let source = std::fs::read_to_string(folder.join(fault.component).with_extension("rs")).unwrap();
        let places = source.matches(fault.sound).count();
        assert_eq!(
            places, 1,
            "{}, {}: its place is gone: fix tests/seeded_bugs/table.rs",
            fault.component, fault.name
        );
        assert!(!source.contains(fault.broken), "{}: {} is there", fault.component, fault.name);
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let has_fault = all().any(|fault| fault.component == name);
        assert!(has_fault || NONE.contains(&name), "{name} has no fault in tests/seeded_bugs/table.rs");
    }
}
