//! Unpacking packages into a folder, without installing them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::command::{host_command, stream};
use crate::error::{At, ImageError};

/// Documentation and translations, which nothing here reads.
const LEFT_OUT: [&str; 7] = [
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/lintian/*",
    "./usr/share/bash-completion/*",
    "./usr/share/i18n/locales/*",
];

/// Folders that Debian has had below `/usr` since its merge. `base-files` would make these links.
pub(crate) const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// One pipe per package. The fixed umask keeps modes the same whoever builds.
const SCRIPT: &str = r#"umask 022; deb=$1; root=$2; shift 2
dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --no-same-owner --no-same-permissions --keep-directory-symlink "$@""#;

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
                // The others stop at their next package.
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

fn unpack_one(package: &Path, root: &Path) -> Result<(), ImageError> {
    let mut command = host_command("sh");
    command.args(["-c", SCRIPT, "unpack"]).arg(package).arg(root);
    command.args(LEFT_OUT.map(|path| format!("--exclude={path}")));
    stream(&mut command, |_| ())?.ok(&format!("unpacking {}", package.display()), "dpkg-deb | tar")
}
