//! The programs of `firmware/matching/programs` and their images, which devices are built with.

use std::path::{Path, PathBuf};

use niclab_isa::{MAX_WORDS, image};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs")
}

#[test]
fn each_image_equals_its_assembled_source() {
    let mut sources = 0;
    for entry in std::fs::read_dir(folder()).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "nma") {
            continue;
        }
        sources += 1;
        let name = path.display();
        let source = std::fs::read_to_string(&path).expect("a source");
        let program = niclab_asm::assemble(&source).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(program.warnings.is_empty(), "{name}: {:?}", program.warnings);
        let golden = std::fs::read(path.with_extension("nmi")).expect("its image");
        let is_golden = image::write(&program.words) == golden;
        assert!(is_golden, "{name} has changed: assemble it with `niclab asm`, and look at the difference");
        assert_eq!(image::read(&golden, MAX_WORDS).as_deref(), Ok(program.words.as_slice()));
    }
    assert!(sources > 0, "no source in {}", folder().display());
}

#[test]
fn portals_keeps_to_the_papers_budget() {
    let source = std::fs::read_to_string(folder().join("portals.nma")).expect("the source");
    let program = niclab_asm::assemble(&source).expect("it assembles");
    let at = |name: &str| {
        let label = program.labels.iter().find(|(label, _)| label == name);
        label.unwrap_or_else(|| panic!("no label {name}")).1
    };
    let starts = [0, at("header"), at("item"), at("fast"), at("slow"), at("flush"), program.words.len()];
    let lengths: Vec<usize> = starts.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(lengths, [4, 9, 6, 7, 10, 8], "Table 1");
}
