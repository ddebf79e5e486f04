//! A Debian root file system with the packages a user asked for, as one read-only image for all nodes.
//!
//! Packages are installed as Debian's installer does it: the essential ones are unpacked, then dpkg, running inside
//! the new root, installs everything over them. Without root this happens in a user namespace that knows a single
//! user; `fakeroot` then remembers who should own which file until the image is written.

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

/// Change it when the code below changes what is built. (The script is hashed itself.)
const RECIPE: &str = "disk 1";

pub(crate) const KIND: &str = "disk";

/// The file within the artefact. erofs without compression: guests share the host's page cache, and emulated
/// guests decompress slowly.
pub(crate) const FILE: &str = "root.erofs";

/// What every such image has besides what is asked for: a small Debian in which the usual network commands work.
const BASE: [&str; 5] = ["kmod", "iproute2", "iputils-ping", "procps", "netbase"];

/// apt's pattern for the packages that no Debian is without.
const ESSENTIAL: &str = "?essential";

/// Packages that are unpacked beside the root to be used while it is made.
const HELPERS: [&str; 2] = ["fakeroot", "libfakeroot"];

const INSTALL_SCRIPT: &str = include_str!("../guest/install");

/// Folder in the new root for what the script needs; not in the image.
const WORK: &str = ".niclab";

pub(crate) fn key(tree: &Tree, packages: &[String]) -> Key {
    let mut packages = packages.to_vec();
    packages.sort();
    packages.dedup();
    let key = KeyBuilder::new(RECIPE).text(SUITE).text(INSTALL_SCRIPT).text(&tree.kernel_release);
    packages.iter().fold(key, |key, name| key.text(name)).finish()
}

/// Refuses what is no package name (Debian policy, section 5.6.7): apt would take it for an option, a pattern, a
/// file, or the wish to remove a package.
pub(crate) fn check_name(name: &str) -> Result<(), ImageError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    // apt reads a trailing minus as "remove", unless a package has that very name; none has.
    if name.len() >= 2 && starts_well && name.chars().all(good) && !name.ends_with('-') {
        return Ok(());
    }
    Err(ImageError::BadPackageName { name: name.to_owned() })
}

/// All that an image is made from.
pub(crate) struct Recipe<'a> {
    pub apt: &'a Apt,
    pub tree: &'a Tree,
    /// The driver's module. It goes into the image for `depmod` to list; at boot the initramfs puts its own, which
    /// may be newer, in its place.
    pub module: &'a Path,
    pub packages: &'a [String],
}

/// Receives a line on what is being done.
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

    /// Fetches the packages and unpacks those without which dpkg could not run.
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
        // Linked, not moved: an interrupted build need not fetch them again.
        files.iter().try_for_each(|file| link_into(file, &root.join(WORK).join("packages")))
    }

    /// The guest kernel's modules, so that `modprobe` finds what a user wants to compare with.
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

/// Has the packages installed in `root` by its own dpkg.
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
    fn what_apt_would_read_otherwise_is_refused() {
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
