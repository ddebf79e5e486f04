//! Building the driver's kernel module against the guest kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::cache::{Cache, CacheLock, Key, KeyBuilder, remove_all};
use crate::command::{stream, tree_command};
use crate::error::{At, ImageError};
use crate::sandbox::Sandbox;
use crate::tree::Tree;

/// Change it when the code below changes what is built.
const RECIPE: &str = "module 2";

/// The module's file.
pub(crate) const MODULE: &str = "niclab.ko";

/// Source files of a module: name and content.
pub(crate) type Sources<'a> = &'a [(&'a str, &'a [u8])];

/// The driver's source, embedded when this program was built.
pub(crate) const DRIVER: Sources<'static> = include!(concat!(env!("OUT_DIR"), "/module_sources.rs"));

/// Folder of the package tree in which it is built. Cleared before and after.
const BUILD: &str = "build";

pub(crate) const KIND: &str = "module";

pub(crate) fn key(tree: &Tree, sources: Sources<'_>) -> Key {
    let key = KeyBuilder::new(RECIPE).text(&tree.id.to_string()).text(&tree.kernel_release);
    sources.iter().fold(key, |key, (name, content)| key.text(name).bytes(content)).finish()
}

/// The module's file, built if need be.
pub(crate) fn ensure(
    cache: &Cache,
    lock: &CacheLock,
    tree: &Tree,
    sources: Sources<'_>,
    detail: impl FnMut(&str),
) -> Result<PathBuf, ImageError> {
    let key = key(tree, sources);
    let folder = cache.artefact(lock, KIND, &key, |staging| build(tree, sources, staging, detail))?;
    Ok(folder.join(MODULE))
}

fn build(
    tree: &Tree,
    sources: Sources<'_>,
    staging: &Path,
    mut detail: impl FnMut(&str),
) -> Result<(), ImageError> {
    if sources.is_empty() {
        return Err(ImageError::NoModuleSource);
    }
    let folder = tree.path.join(BUILD);
    remove_all(&folder)?;
    fs::create_dir(&folder).at("create", &folder)?;
    for (name, content) in sources {
        let path = folder.join(name);
        fs::write(&path, content).at("write", &path)?;
    }
    let headers = format!("/usr/lib/modules/{}/build", tree.kernel_release);
    let jobs = format!("-j{}", thread::available_parallelism().map_or(1, usize::from));
    let program = ["make", &jobs, "-C", &headers, "M=/build", "modules"];
    let sandbox = Sandbox::detect(&tree.path)?;
    let mut make = sandbox.enter(&tree.path, &program);
    stream(&mut make, |line| detail(line.trim()))?.ok("building the kernel module", "make")?;

    // Debian's kernels are built with debugging information, ten times the size of the code.
    let built = folder.join(MODULE);
    let mut strip = tree_command(&tree.path, "usr/bin/strip");
    strip.arg("--strip-debug").arg("-o").arg(staging.join(MODULE)).arg(&built);
    stream(&mut strip, |_| ())?.ok("stripping the kernel module", "strip")?;
    remove_all(&folder)
}
