//! The package tree: QEMU, the guest kernel with its headers and compiler, and the tools to make images. The packages
//! are unpacked into one folder and never installed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::apt::{Apt, Package, SUITE};
use crate::cache::{Key, KeyBuilder};
use crate::command::{library_dir, loader, output, stream, tree_command};
use crate::error::{At, ImageError};
use crate::unpack::unpack;

/// Change it if the code below builds something else.
const RECIPE: &str = "tree 1";

/// The requested packages; apt adds their dependencies (about 150 packages, 230 MB).
const PACKAGES: [&str; 9] = [
    "qemu-system-x86",
    "linux-image-amd64",
    "linux-headers-amd64",
    "make",
    "dash",
    "kmod",
    "busybox-static",
    "libstdc++6",
    "erofs-utils",
];

/// QEMU's device for niclab's cluster function, available since QEMU 11.1.
const CLUSTER_DEVICE: &str = "vhost-user-test-device-pci";

/// Programs that the kernel's build calls, taken from busybox because their packages are too large.
const FROM_BUSYBOX: [&str; 6] = ["sed", "awk", "grep", "find", "xargs", "cmp"];

/// Files that niclab writes into a finished tree.
const MANIFEST: &str = "niclab-manifest";
const QEMU_VERSION: &str = "niclab-qemu-version";

/// make's arguments for modules of a debug kernel: coverage, and debugging information. A kernel without the first two
/// options ignores them.
pub(crate) const DEBUG_KERNEL_MAKE: [&str; 3] = ["GCOV_PROFILE=y", "KCOV_INSTRUMENT=y", "KCFLAGS=-g"];

/// How to start the tree's QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QemuCommand {
    /// The tree's dynamic loader.
    pub program: PathBuf,
    /// Arguments before QEMU's own: the library path, QEMU itself, and its firmware folders.
    pub leading_args: Vec<OsString>,
}

impl QemuCommand {
    /// A command to which the caller adds QEMU's own arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args);
        command
    }
}

/// A complete package tree, or the tree in which a debug kernel was built, with everything that its modules and images
/// are made from.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub path: PathBuf,
    /// Changes with any package's version.
    pub id: Key,
    pub kernel_release: String,
    /// Such as `11.1.3`.
    pub qemu_version: String,
    /// make's arguments for modules of its kernel.
    pub make_args: &'static [&'static str],
}

impl Tree {
    pub const KIND: &str = "tree";

    /// The tree's key in the cache. It does not contain the packages' versions, so that a second run finds the tree
    /// without a mirror. [`Tree::id`] does, for everything that is made from the tree.
    pub fn key() -> Key {
        PACKAGES.iter().fold(KeyBuilder::new(RECIPE).text(SUITE), |key, name| key.text(name)).finish()
    }

    /// Reads a finished tree's own files.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let read = |name: &str| {
            let file = path.join(name);
            fs::read_to_string(&file).at("read", &file)
        };
        Ok(Self {
            id: KeyBuilder::new(RECIPE).text(&read(MANIFEST)?).finish(),
            kernel_release: kernel_release(path)?,
            qemu_version: read(QEMU_VERSION)?.trim().to_owned(),
            path: path.to_owned(),
            make_args: &[],
        })
    }

    /// The version of a package in the tree.
    pub fn version_of(&self, package: &str) -> Result<Option<String>, ImageError> {
        let file = self.path.join(MANIFEST);
        let list = fs::read_to_string(&file).at("read", &file)?;
        let mut packages = list.lines().filter_map(|line| line.split_once(' '));
        let found = packages.find(|(name, _)| *name == package);
        Ok(found.and_then(|(_, rest)| Some(rest.split_once(' ')?.0.to_owned())))
    }

    /// The path of the kernel's headers within the tree.
    pub fn headers(&self) -> String {
        format!("/usr/lib/modules/{}/build", self.kernel_release)
    }

    /// The guest kernel as in its package.
    pub fn packed_kernel(&self) -> PathBuf {
        self.path.join("boot").join(format!("vmlinuz-{}", self.kernel_release))
    }

    /// The folder of the kernel's modules.
    pub fn modules(&self) -> PathBuf {
        self.path.join("usr/lib/modules").join(&self.kernel_release)
    }

    /// A program of the tree that needs no libraries.
    pub fn busybox(&self) -> PathBuf {
        self.path.join("usr/bin/busybox")
    }

    /// How to start QEMU.
    pub fn qemu(&self) -> QemuCommand {
        qemu(&self.path)
    }
}

fn qemu(tree: &Path) -> QemuCommand {
    let mut leading_args: Vec<OsString> = vec![
        "--library-path".into(),
        library_dir(tree).into(),
        "--argv0".into(),
        "qemu-system-x86_64".into(),
        tree.join("usr/bin/qemu-system-x86_64").into(),
    ];
    // QEMU's built-in firmware path is absolute and would use the host's firmware.
    for folder in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        leading_args.extend(["-L".into(), tree.join(folder).into()]);
    }
    QemuCommand { program: loader(tree), leading_args }
}

/// Builds the tree in `root`.
pub(crate) fn build(apt: &Apt, root: &Path, detail: &(dyn Fn(&str) + Sync)) -> Result<(), ImageError> {
    let packages = PACKAGES.map(str::to_owned);
    let resolved = apt.resolve(&packages)?;
    let files = apt.download("the package tree is", &packages, &resolved, detail)?;
    unpack(&files, root, detail)?;
    detail("indexing the kernel's modules");
    complete(root)?;
    detail("checking QEMU");
    let version = check_qemu(root)?;
    let write = |name: &str, text: &str| {
        let file = root.join(name);
        fs::write(&file, text).at("write", &file)
    };
    write(QEMU_VERSION, &version)?;
    write(MANIFEST, &manifest(&resolved))
}

fn manifest(packages: &[Package]) -> String {
    packages.iter().map(|p| format!("{} {} {}\n", p.name, p.version, p.architecture)).collect()
}

/// Adds what the packages' installation scripts would add, as far as a build needs it.
fn complete(root: &Path) -> Result<(), ImageError> {
    let links = FROM_BUSYBOX.map(|name| (name, "busybox"));
    link_tools(root, &[links.as_slice(), &[("sh", "dash"), ("gcc", "gcc-14")]].concat())?;
    let release = kernel_release(root)?;
    let mut depmod = tree_command(root, "usr/sbin/depmod");
    depmod.arg("--basedir").arg(root).arg(&release);
    stream(&mut depmod, |_| ())?.ok("listing the kernel's modules", "depmod")
}

/// Adds the folders that all programs expect, and the names of programs that installation scripts would choose.
pub(crate) fn link_tools(root: &Path, links: &[(&str, &str)]) -> Result<(), ImageError> {
    for folder in ["proc", "dev", "tmp"] {
        let path = root.join(folder);
        fs::create_dir_all(&path).at("create", &path)?;
    }
    for (name, target) in links {
        let path = root.join("usr/bin").join(name);
        if fs::symlink_metadata(&path).is_err() {
            std::os::unix::fs::symlink(target, &path).at("create", &path)?;
        }
    }
    Ok(())
}

/// The release of the tree's only kernel.
fn kernel_release(root: &Path) -> Result<String, ImageError> {
    let folder = root.join("usr/lib/modules");
    let mut releases: Vec<String> = fs::read_dir(&folder)
        .at("list", &folder)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| root.join("boot").join(format!("vmlinuz-{name}")).is_file())
        .collect();
    releases.sort();
    releases.pop().ok_or_else(|| ImageError::BrokenTree { tree: root.to_owned(), what: "kernel".to_owned() })
}

/// Checks that QEMU starts and has the required device. Returns its version.
fn check_qemu(root: &Path) -> Result<String, ImageError> {
    let run = |args: &[&str]| -> Result<String, ImageError> {
        let out = output(qemu(root).command().args(args), "starting the package tree's QEMU")?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    };
    let version = qemu_version(&run(&["--version"])?);
    if !run(&["-device", "help"])?.contains(&format!("\"{CLUSTER_DEVICE}\"")) {
        return Err(ImageError::QemuTooOld { tree: root.to_owned(), version, device: CLUSTER_DEVICE });
    }
    Ok(version)
}

/// `QEMU emulator version 11.1.3 (Debian ...)` -> `11.1.3`.
fn qemu_version(text: &str) -> String {
    let mut words = text.split_whitespace().skip_while(|word| *word != "version").skip(1);
    words.next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_qemu() {
        assert_eq!(qemu_version("QEMU emulator version 11.1.3 (Debian 1:11.1.3)\nCopyright"), "11.1.3");
        assert_eq!(qemu_version(""), "unknown");
    }

    #[test]
    fn qemu_runs_through_the_trees_own_loader() {
        let command = qemu(Path::new("/t"));
        assert!(command.program.starts_with("/t"));
        let args: Vec<_> = command.leading_args.iter().map(|a| a.to_string_lossy()).collect();
        assert!(args.windows(2).any(|w| w == ["-L", "/t/usr/share/seabios"]), "{args:?}");
    }

    #[test]
    fn a_tree_without_a_kernel_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("usr/lib/modules/6.12-x")).unwrap();
        assert!(matches!(kernel_release(dir.path()), Err(ImageError::BrokenTree { .. })));
        fs::create_dir_all(dir.path().join("boot")).unwrap();
        fs::write(dir.path().join("boot/vmlinuz-6.12-x"), "").unwrap();
        assert_eq!(kernel_release(dir.path()).unwrap(), "6.12-x");
    }
}
