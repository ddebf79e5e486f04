//! A Debian root file system with the user's packages, as one read-only image for all nodes.
//!
//! Packages are installed as by Debian's installer: the essential ones are unpacked, then dpkg in the new root installs
//! all over them. Without root, this happens in a user namespace with a single user; `fakeroot` then remembers each
//! file's owner until the image is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::apt::{Apt, Package, SUITE};
use crate::cache::{Key, KeyBuilder, remove_all};
use crate::command::{host_command, stream, tree_command};
use crate::error::{At, ImageError};
use crate::module::MODULE;
use crate::sandbox::Sandbox;
use crate::tree::Tree;
use crate::unpack::unpack;

/// Change it if the code below builds something else. (The script is hashed, too.)
const RECIPE: &str = "disk 1";

pub(crate) const KIND: &str = "disk";

/// The file in the artefact. erofs without compression: guests share the host's page cache, and emulated guests
/// decompress slowly.
pub(crate) const FILE: &str = "root.erofs";

/// Packages of every image: a small Debian with the usual network commands.
const BASE: [&str; 5] = ["kmod", "iproute2", "iputils-ping", "procps", "netbase"];

/// apt's pattern for the essential packages.
const ESSENTIAL: &str = "?essential";

/// Packages that are unpacked outside of the root, for use during the build.
const HELPERS: [&str; 2] = ["fakeroot", "libfakeroot"];

const INSTALL_SCRIPT: &str = include_str!("../guest/install");

/// Folder in the new root for the script's files; it is not part of the image.
const WORK: &str = ".niclab";

pub(crate) fn key(tree: &Tree, packages: &[String]) -> Key {
    let mut packages = packages.to_vec();
    packages.sort();
    packages.dedup();
    let key = KeyBuilder::new(RECIPE).text(SUITE).text(INSTALL_SCRIPT).text(&tree.kernel_release);
    packages.iter().fold(key, |key, name| key.text(name)).finish()
}

/// Rejects invalid package names (Debian policy, section 5.6.7): apt would take them for an option, a pattern, a file,
/// or the removal of a package.
pub(crate) fn check_name(name: &str) -> Result<(), ImageError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    // apt reads a trailing minus as "remove", unless a package has that name, and no package has.
    if name.len() >= 2 && starts_well && name.chars().all(good) && !name.ends_with('-') {
        return Ok(());
    }
    Err(ImageError::BadPackageName { name: name.to_owned() })
}

/// The inputs of an image.
pub(crate) struct Recipe<'a> {
    pub apt: &'a Apt,
    pub tree: &'a Tree,
    /// The driver's module. The image contains it for `depmod`; at boot, the initramfs replaces it with its own, which
    /// may be newer.
    pub module: &'a Path,
    pub packages: &'a [String],
}

/// Receives a line about the progress.
type Detail<'a> = &'a (dyn Fn(&str) + Sync);

impl Recipe<'_> {
    /// Builds the image in `staging`.
    pub fn build(&self, staging: &Path, detail: Detail<'_>) -> Result<(), ImageError> {
        let sandbox = Sandbox::detect(&self.tree.path)?;
        let root = staging.join("root");
        self.prepare(&root, detail)?;
        self.add_modules(&root)?;
        install(sandbox, &root, detail)?;
        detail("writing the image");
        let mut mkfs = tree_command(&self.tree.path, "usr/bin/mkfs.erofs");
        mkfs.args(["--quiet", "--tar=f"]).arg(staging.join(FILE)).arg(root.join(WORK).join("root.tar"));
        stream(&mut mkfs, |_| ())?.ok("writing the guest image", "mkfs.erofs")?;
        remove_all(&root)
    }

    /// Downloads the packages, and unpacks those that dpkg needs to run.
    fn prepare(&self, root: &Path, detail: Detail<'_>) -> Result<(), ImageError> {
        let resolve = |names: &[String]| Ok::<_, ImageError>(BTreeSet::from_iter(self.apt.resolve(names)?));
        let mut wanted = vec![ESSENTIAL.to_owned()];
        let essential = resolve(&wanted)?;
        wanted.extend(BASE.map(str::to_owned));
        wanted.extend(self.packages.iter().cloned());
        let guest = resolve(&wanted)?;
        wanted.extend(HELPERS.map(str::to_owned));
        let all = self.apt.resolve(&wanted)?;
        let files = self.apt.download("the guest image is", &wanted, &all, detail)?;

        let select = |of: &dyn Fn(&Package) -> bool| -> Vec<PathBuf> {
            all.iter().zip(&files).filter(|(p, _)| of(p)).map(|(_, file)| file.clone()).collect()
        };
        let first = select(&|p| essential.contains(p));
        let helpers = root.join(WORK).join("helpers");
        for folder in [&helpers, &root.join(WORK).join("packages"), &root.join("proc"), &root.join("dev/shm")]
        {
            fs::create_dir_all(folder).at("create", folder)?;
        }
        unpack(&first, root, detail)?;
        unpack(&select(&|p| HELPERS.contains(&p.name.as_str())), &helpers, detail)?;

        let write = |name: &str, text: &str| {
            let path = root.join(WORK).join(name);
            fs::write(&path, text).at("write", &path)
        };
        write("essential", &file_names(&first))?;
        write("others", &file_names(&select(&|p| guest.contains(p) && !essential.contains(p))))?;
        write("install", INSTALL_SCRIPT)?;
        write("release", &self.tree.kernel_release)?;
        // Linked, not moved, so that a build after an interruption need not download them again.
        files.iter().try_for_each(|file| link_into(file, &root.join(WORK).join("packages")))
    }

    /// Adds the guest kernel's modules, so that `modprobe` finds other drivers to compare with.
    fn add_modules(&self, root: &Path) -> Result<(), ImageError> {
        let target = root.join("usr/lib/modules");
        fs::create_dir_all(&target).at("create", &target)?;
        let mut copy = host_command("cp");
        copy.args(["-a", "--reflink=auto", "--"]).arg(self.tree.modules()).arg(&target);
        stream(&mut copy, |_| ())?.ok("copying the kernel's modules", "cp")?;
        let extra = target.join(&self.tree.kernel_release).join("extra");
        fs::create_dir_all(&extra).at("create", &extra)?;
        fs::copy(self.module, extra.join(MODULE)).map(drop).at("copy", self.module)
    }
}

/// Runs the root's own dpkg to install the packages in `root`.
fn install(sandbox: Sandbox, root: &Path, detail: Detail<'_>) -> Result<(), ImageError> {
    let mode = if sandbox.has_all_users() { "real" } else { "fake" };
    let mut script = sandbox.enter(root, &["sh", "/.niclab/install", mode]);
    stream(&mut script, |line| detail(line))?.ok("installing the packages", "dpkg")
}

fn link_into(file: &Path, folder: &Path) -> Result<(), ImageError> {
    fs::hard_link(file, folder.join(file.file_name().unwrap_or_default())).at("link", file)
}

fn file_names(files: &[PathBuf]) -> String {
    files.iter().filter_map(|file| file.file_name()?.to_str()).map(|name| format!("{name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn real_package_names_pass() {
        for name in ["iperf3", "openmpi-bin", "libstdc++6", "g++", "python3.13", "0ad"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_with_another_meaning_for_apt_are_refused() {
        for name in
            ["", "a", "-y", "--purge", "systemd-", "?essential", "./x.deb", "a/b", "a=1", "a b", "A1", "~i"]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_accepted_name_is_an_option_or_a_path(name in "[ -~]{0,12}") {
            if check_name(&name).is_ok() {
                prop_assert!(!name.starts_with('-') && !name.ends_with('-'));
                prop_assert!(!name.contains(['/', '=', '?', '*', ' ', '~', ':']));
            }
        }
    }
}
