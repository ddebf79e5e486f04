//! Errors for users if images cannot be built. Uses the host's apt, but no network.

use std::net::TcpListener;
use std::path::Path;
use std::{fs, io};

use niclab_images::{Cache, ImageError, Images, Request, Silent, ensure, survey};

fn run(cache: &Path, request: &Request) -> Result<Images, ImageError> {
    ensure(&Cache::at(cache)?, request, &Silent)
}

/// A mirror at a port of this machine without a listener.
fn unreachable_mirror() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(format!("http://{}/debian", listener.local_addr()?))
}

#[test]
fn offline_error_names_the_missing_part_and_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { offline: true, ..Request::default() };
    let message = run(dir.path(), &request).unwrap_err().to_string();
    assert!(message.starts_with("the package tree is not in the cache"), "{message}");
    assert!(message.contains(&dir.path().display().to_string()), "{message}");
    assert!(message.ends_with("run once without --offline"), "{message}");
}

#[test]
fn unreachable_mirror_is_named_and_leaves_no_artefact() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = unreachable_mirror().unwrap();
    let request = Request { mirror: Some(mirror.clone()), ..Request::default() };
    let error = run(dir.path(), &request).unwrap_err();
    assert!(matches!(&error, ImageError::Fetch { mirror: m, .. } if *m == mirror), "{error}");
    let message = error.to_string();
    assert!(message.contains("--mirror URL") && message.contains("the package tree"), "{message}");
    let found = survey(&Cache::at(dir.path()).unwrap());
    assert_eq!((found.qemu_version, found.kernel_release, found.module), (None, None, false));
}

#[test]
fn an_old_layout_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("v0/tree/abc");
    fs::create_dir_all(&old).unwrap();
    let request = Request { offline: true, ..Request::default() };
    assert!(matches!(run(dir.path(), &request), Err(ImageError::Offline { .. })));
    assert!(old.exists());
    assert_eq!(survey(&Cache::at(dir.path()).unwrap()).other_layouts, [dir.path().join("v0")]);
}

#[test]
fn invalid_requests_are_refused_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let refused = [
        (
            Request { packages: vec!["--purge".into()], ..Request::default() },
            "`--purge` is not a package name",
        ),
        (
            Request { kernel: Some("/nonexistent/vmlinuz".into()), ..Request::default() },
            "/nonexistent/vmlinuz",
        ),
        (
            Request { image: Some("/x.img".into()), packages: vec!["iperf3".into()], ..Request::default() },
            "exclude each other",
        ),
    ];
    for (request, expected) in refused {
        let message = run(dir.path(), &request).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
