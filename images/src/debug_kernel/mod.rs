//! The guest debug kernel, which checks drivers. It has the same release as the guests' usual kernel, but is built from
//! Debian's source package with the kernel's own debugging tools.
//!
//! niclab builds it once, with the suite's compiler in a separate package tree. It stays in the cache with all files
//! that modules are built against. `kernel = "debug"` means the debug kernel that was requested last.

mod build;
mod config;
mod tool;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, CacheLock, Key, KeyBuilder};
use crate::error::{At, ImageError};
use crate::progress::{Progress, step};
use crate::tree::{DEBUG_KERNEL_MAKE, Tree};
use crate::{Builder, Request, open_apt};

pub use tool::DebugTool;

pub(crate) const KIND: &str = "debug-kernel";

/// Number of kernels to keep: the current one and the one before it.
const KEPT: usize = 2;

/// The lock for building one.
const LOCK: &str = "debug-kernel-lock";

/// File next to the kernels, with the folder's name of the current one.
const CURRENT: &str = "current";

/// Files in a finished kernel: its tools, one per line; the package tree that it belongs to; its release.
const DEBUG_TOOLS: &str = "niclab-debug-tools";
const OF_TREE: &str = "niclab-of-tree";
const RELEASE: &str = "niclab-release";

/// The kernel as QEMU boots it, with its symbols.
const VMLINUX: &str = "boot/vmlinux";

/// The command that builds one, for messages.
pub(crate) const COMMAND: &str = "niclab kernel build";

/// A complete debug kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugKernel {
    /// Its folder.
    pub folder: PathBuf,
    /// Its release.
    pub release: String,
    /// Its debugging tools.
    pub tools: Vec<DebugTool>,
    /// Duration of the build, if it was built now.
    #[serde(skip)]
    pub built_in: Option<Duration>,
}

/// Builds the kernel with these tools, unless it is in the cache, and makes it the current one. Uses only the mirror
/// and the offline flag of `request`.
///
/// # Errors
/// When tools exclude each other, or the kernel cannot be built.
pub fn build_kernel(
    cache: &Cache,
    tools: &[DebugTool],
    request: &Request,
    progress: &dyn Progress,
) -> Result<DebugKernel, ImageError> {
    let mut tools = tools.to_vec();
    tools.sort_unstable();
    tools.dedup();
    if tools.contains(&DebugTool::Kasan) && tools.contains(&DebugTool::Kcsan) {
        return Err(ImageError::Watchers { one: DebugTool::Kasan.name(), other: DebugTool::Kcsan.name() });
    }
    let lock = cache.lock_named(LOCK, progress)?;
    let mut builder = Builder::new(cache, request, progress)?;
    let tree = builder.tree()?;
    let key = key(&tree, &tools);
    let (folder, built_in) = match cache.find(KIND, &key) {
        Some(folder) => (folder, None),
        None => {
            let begin = Instant::now();
            let name = "debug kernel";
            let folder = step(progress, name, || {
                let detail = |line: &str| progress.detail(name, line);
                cache.artefact(&lock, KIND, &key, |staging| {
                    let apt = open_apt(&mut builder.apt, cache, request, "the kernel's source is", &detail)?;
                    build::fetch(apt, &tree, staging, &detail)?;
                    builder.clean()?;
                    // Other builds continue while the compiler runs.
                    drop(builder);
                    build::compile(&tree, &tools, staging, &detail)
                })
            })?;
            cache.prune(&lock, KIND, KEPT)?;
            (folder, Some(begin.elapsed()))
        }
    };
    use_from_now_on(cache, &lock, &key)?;
    Ok(DebugKernel { built_in, ..open(&folder)? })
}

/// The kernel that `kernel = "debug"` means.
///
/// # Errors
/// When none was built, or its release is not that of the guests' usual kernel; the message names the command.
pub fn current_kernel(cache: &Cache) -> Result<DebugKernel, ImageError> {
    let missing = |why: &'static str| ImageError::NoDebugKernel { why, command: COMMAND };
    let named = fs::read_to_string(cache.root().join(KIND).join(CURRENT)).unwrap_or_default();
    let is_named = |path: &PathBuf| path.file_name().is_some_and(|name| name == named.trim());
    let folder = cache.list(KIND).into_iter().find(is_named);
    let folder = folder.ok_or_else(|| missing("none has been built yet"))?;
    let of = text(&folder, OF_TREE)?;
    // Without a package tree, there is no other release to compare with.
    if let Some(path) = cache.find(Tree::KIND, &Tree::key())
        && Tree::open(&path)?.id.to_string() != of
    {
        return Err(missing("the one in the cache is of another release than the guests' own kernel"));
    }
    open(&folder)
}

impl DebugKernel {
    /// The tree that modules and images are made from: the kernel's own build tree, with QEMU's version of `packages`.
    pub(crate) fn tree(&self, packages: &Tree) -> Tree {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        Tree {
            path: self.folder.clone(),
            id: KeyBuilder::new(KIND).text(&name).finish(),
            kernel_release: self.release.clone(),
            qemu_version: packages.qemu_version.clone(),
            make_args: &DEBUG_KERNEL_MAKE,
        }
    }

    /// The file for `-kernel`.
    #[must_use]
    pub fn vmlinux(&self) -> PathBuf {
        self.folder.join(VMLINUX)
    }
}

fn open(folder: &Path) -> Result<DebugKernel, ImageError> {
    let listed = text(folder, DEBUG_TOOLS)?;
    // A newer niclab may have added tools that this one does not know; they still work.
    let tools = listed.lines().filter_map(|name| DebugTool::named(name).ok()).collect();
    Ok(DebugKernel { folder: folder.to_owned(), release: text(folder, RELEASE)?, tools, built_in: None })
}

fn text(folder: &Path, name: &str) -> Result<String, ImageError> {
    let path = folder.join(name);
    Ok(fs::read_to_string(&path).at("read", &path)?.trim().to_owned())
}

fn key(tree: &Tree, tools: &[DebugTool]) -> Key {
    let key = KeyBuilder::new(build::RECIPE).text(&tree.id.to_string()).text(config::BASE);
    let key = build::PACKAGES.iter().fold(key, |key, name| key.text(name));
    tools.iter().fold(key, |key, tool| key.text(tool.name()).text(tool.config())).finish()
}

fn use_from_now_on(cache: &Cache, _lock: &CacheLock, key: &Key) -> Result<(), ImageError> {
    let path = cache.root().join(KIND).join(CURRENT);
    let new = path.with_extension("new");
    fs::write(&new, format!("{key}\n")).at("write", &new)?;
    fs::rename(&new, &path).at("write", &path)
}
