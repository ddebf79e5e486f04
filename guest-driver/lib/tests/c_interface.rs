//! The C interface: the committed header is current, and the C example compiles, links and runs.

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn committed_header_is_current() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut parts: Vec<_> = std::fs::read_dir(root.join("src/capi"))
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .expect("the parts");
    parts.sort();
    let first = cbindgen::Builder::new().with_config(config).with_src(root.join("src/capi.rs"));
    let bindings = parts.into_iter().fold(first, cbindgen::Builder::with_src).generate().expect("a header");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let committed = std::fs::read(root.join("include/niclab.h")).expect("the committed header");
    assert!(
        committed == header,
        "include/niclab.h is stale: cargo run -p niclab-user --example header > guest-driver/lib/include/niclab.h"
    );
}

/// Builds the static library in the target folder of this test; `cargo test` alone leaves it under a hashed name.
fn static_library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    let cargo = std::env::var_os("CARGO").expect("a test runs under cargo");
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--offline", "--package", "niclab-user", "--lib", "--target-dir"])
        .arg(target)
        .current_dir(ROOT)
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/libniclab_user.a")
}

#[test]
fn the_examples_compile_link_and_name_a_missing_device() {
    let out = output_folder();
    let make = Command::new("make")
        .arg("-C")
        .arg(Path::new(ROOT).join("examples"))
        .arg(format!("LIBRARY={}", static_library().display()))
        .arg(format!("OUT={}", out.display()))
        .output()
        .expect("make");
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));

    for example in [
        "ultra_pingpong",
        "match_exchange",
        "inic_collective",
        "grim_handlers",
        "grim_bridge",
        "gamma_pingpong",
    ] {
        let run = Command::new(out.join(example)).arg("/dev/niclab-absent").output().expect("the example");
        let text = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{text}");
        assert!(text.contains("no such niclab NIC") && text.contains("/dev/niclab-absent"), "{text}");
    }
    std::fs::remove_dir_all(&out).expect("clean up");
}

fn output_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("niclab-c-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}
