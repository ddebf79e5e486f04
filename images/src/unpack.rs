//! Unpacks packages into a folder, without installing them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::command::{dies_with_us, host_command, stream};
use crate::error::{At, ImageError};

/// Documentation and translations, which are not needed.
const LEFT_OUT: [&str; 7] = [
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/lintian/*",
    "./usr/share/bash-completion/*",
    "./usr/share/i18n/locales/*",
];

/// Folders that Debian has merged into `/usr`. `base-files` would make these links.
pub(crate) const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// The fixed umask makes modes independent of the user.
const TAR: &str =
    r#"umask 022; exec tar -x --no-same-owner --no-same-permissions --keep-directory-symlink "$@""#;

/// Unpacks `packages` into `root`, several at once.
pub(crate) fn unpack(
    packages: &[PathBuf],
    root: &Path,
    detail: impl Fn(&str) + Sync,
) -> Result<(), ImageError> {
    for folder in MERGED {
        let target = root.join("usr").join(folder);
        fs::create_dir_all(&target).at("create", &target)?;
        let link = root.join(folder);
        symlink(Path::new("usr").join(folder), &link).at("create", &link)?;
    }
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        while let Some(package) = packages.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = unpack_one(package, root) {
                // The other threads stop at their next package.
                next.store(packages.len(), Ordering::Relaxed);
                if let Ok(mut slot) = failure.lock() {
                    *slot = Some(error);
                }
            }
            let done = next.load(Ordering::Relaxed).min(packages.len());
            detail(&format!("unpacking {done} of {}", packages.len()));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    failure.into_inner().ok().flatten().map_or(Ok(()), Err)
}

/// dpkg-deb writes into tar. Both are direct children of this process, so neither survives it.
fn unpack_one(package: &Path, root: &Path) -> Result<(), ImageError> {
    let what = format!("unpacking {}", package.display());
    let (reader, writer) = std::io::pipe().at("unpack", package)?;
    let mut source = host_command("dpkg-deb");
    source.arg("--fsys-tarfile").arg(package).stdout(writer).stderr(Stdio::piped());
    let source_child = dies_with_us(&mut source).spawn().at("unpack", package)?;
    // `source` holds the write end, which would keep tar from seeing the end.
    drop(source);

    let mut tar = host_command("sh");
    tar.args(["-c", TAR, "tar", "-C"]).arg(root).args(LEFT_OUT.map(|path| format!("--exclude={path}")));
    let tar_end = stream(tar.stdin(reader), |_| ())?;
    let source_end = source_child.wait_with_output().at("unpack", package)?;
    if !source_end.status.success() {
        let output = String::from_utf8_lossy(&source_end.stderr).into_owned();
        let (program, status) = ("dpkg-deb".to_owned(), source_end.status.to_string());
        return Err(ImageError::Command { what, program, status, output });
    }
    tar_end.ok(&what, "tar")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::output;

    /// A package with the files given, made by the host's dpkg-deb.
    fn package(folder: &Path, name: &str, files: &[&str]) -> PathBuf {
        let root = folder.join(name);
        fs::create_dir_all(root.join("DEBIAN")).unwrap();
        let control =
            format!("Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n");
        fs::write(root.join("DEBIAN/control"), control).unwrap();
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let target = folder.join(format!("{name}.deb"));
        output(host_command("dpkg-deb").args(["--root-owner-group", "-b"]).arg(&root).arg(&target), "test")
            .unwrap();
        target
    }

    #[test]
    fn folders_are_merged_and_documentation_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let packages = [
            package(dir.path(), "one", &["lib/x", "usr/share/doc/one/readme"]),
            package(dir.path(), "two", &["usr/lib/y", "bin/z"]),
        ];
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        unpack(&packages, &root, |_| ()).unwrap();
        for file in ["usr/lib/x", "usr/lib/y", "usr/bin/z", "lib/x"] {
            assert!(root.join(file).is_file(), "{file}");
        }
        assert!(fs::symlink_metadata(root.join("lib")).unwrap().is_symlink());
        assert!(!root.join("usr/share/doc/one/readme").exists());
    }

    #[test]
    fn a_damaged_package_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let bad = dir.path().join("bad.deb");
        fs::write(&bad, "no package").unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let message = unpack(&[bad], &root, |_| ()).unwrap_err().to_string();
        assert!(message.contains("bad.deb failed"), "{message}");
    }
}
