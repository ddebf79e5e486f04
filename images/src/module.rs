//! Builds the driver's kernel module against the guest kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::cache::{Cache, CacheLock, Key, KeyBuilder, remove_all};
use crate::command::{stream, tree_command};
use crate::error::{At, ImageError};
use crate::sandbox::Sandbox;
use crate::tree::Tree;

/// Change it if the code below builds something else.
const RECIPE: &str = "module 2";

/// The module's file.
pub(crate) const MODULE: &str = "niclab.ko";

/// Source files of a module: name and content.
pub(crate) type Sources<'a> = &'a [(&'a str, &'a [u8])];

/// The driver's source, embedded when this program was built.
pub(crate) const DRIVER: Sources<'static> = include!(concat!(env!("OUT_DIR"), "/module_sources.rs"));

/// The module with debugging information, for a debug kernel.
pub(crate) const WITH_DEBUG: &str = "niclab.ko.debug";

/// Folder in the package tree for the build. Cleared before and after.
pub(crate) const BUILD: &str = "build";

/// The source's path in niclab's repository, for messages.
pub(crate) const SOURCE: &str = "guest-driver/kernel";

pub(crate) const KIND: &str = "module";

pub(crate) fn key(tree: &Tree, sources: Sources<'_>) -> Key {
    let key = KeyBuilder::new(RECIPE).text(&tree.id.to_string()).text(&tree.kernel_release);
    sources.iter().fold(key, |key, (name, content)| key.text(name).bytes(content)).finish()
}

/// The module's folder, built if needed.
pub(crate) fn ensure(
    cache: &Cache,
    lock: &CacheLock,
    tree: &Tree,
    sources: Sources<'_>,
    detail: impl FnMut(&str),
) -> Result<PathBuf, ImageError> {
    let key = key(tree, sources);
    cache.artefact(lock, KIND, &key, |staging| build(tree, sources, staging, detail))
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
    let headers = tree.headers();
    let jobs = format!("-j{}", thread::available_parallelism().map_or(1, usize::from));
    let program = [&["make", &jobs, "-C", &headers, "M=/build"], tree.make_args, &["modules"]].concat();
    let sandbox = Sandbox::detect(&tree.path)?;
    let mut make = sandbox.enter(&tree.path, &program);
    stream(&mut make, |line| detail(line.trim()))?.ok("building the kernel module", "make")?;

    // Debian's kernels use debugging information, which is ten times the size of the code.
    let built = folder.join(MODULE);
    let mut strip = tree_command(&tree.path, "usr/bin/strip");
    strip.arg("--strip-debug").arg("-o").arg(staging.join(MODULE)).arg(&built);
    stream(&mut strip, |_| ())?.ok("stripping the kernel module", "strip")?;
    if !tree.make_args.is_empty() {
        let debug = staging.join(WITH_DEBUG);
        fs::rename(&built, &debug).at("move", &built)?;
        keep_notes(&folder, staging)?;
    }
    remove_all(&folder)
}

/// Folder next to a module, with the compiler's notes about its lines, at their paths of the build. They are needed to
/// read coverage counts.
pub(crate) const NOTES: &str = "notes";

/// Copies the notes next to the module, if the kernel's compiler writes any.
pub(crate) fn keep_notes(built: &Path, staging: &Path) -> Result<(), ImageError> {
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let folder = built.join(&below);
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            let entry = entry.at("list", &folder)?;
            let (name, path) = (below.join(entry.file_name()), entry.path());
            let kind = entry.file_type().at("look at", &path)?;
            if kind.is_dir() {
                folders.push(name);
            } else if kind.is_file() && name.extension().is_some_and(|extension| extension == "gcno") {
                let to = staging.join(NOTES).join(&name);
                let parent = to.parent().unwrap_or(staging);
                fs::create_dir_all(parent).at("create", parent)?;
                fs::copy(&path, &to).at("copy", &path)?;
            }
        }
    }
    Ok(())
}
