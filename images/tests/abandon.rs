//! A build that is abandoned. This test is a program of its own, because a process abandons all its builds.

use std::fs;

use niclab_images::{Cache, ImageError, KeyBuilder, Silent, abandon};

#[test]
fn incomplete_builds_are_removed_and_complete_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let build = |text: &str, gives_up: bool| {
        let key = KeyBuilder::new("test").text(text).finish();
        let built = cache.derive(
            "kind",
            &key,
            9,
            &Silent,
            |_| true,
            |staging| {
                fs::write(staging.join("file"), text).unwrap();
                if gives_up {
                    abandon();
                    assert!(!staging.exists());
                    return Err(ImageError::NoModuleSource);
                }
                Ok(())
            },
        );
        (cache.derived_path("kind", &key), built)
    };
    let (whole, built) = build("whole", false);
    built.unwrap();
    abandon();
    assert!(whole.join("file").exists());
    assert!(build("half", true).1.is_err());
    let left: Vec<_> =
        fs::read_dir(whole.parent().unwrap()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, [whole]);
}
