//! Which images exist and which are missing, for a report to the user. Builds nothing and uses no network.

use std::path::PathBuf;

use serde::Serialize;

use crate::apt::Mirror;
use crate::cache::Cache;
use crate::command::{HOST_TOOLS, find_tool};
use crate::tree::Tree;
use crate::{disk, initramfs, module};

/// The state of the cache, and of the host's programs that fill it.
#[derive(Debug, Clone, Serialize)]
pub struct Survey {
    /// The cache's folder.
    pub cache: PathBuf,
    /// The free bytes, or why a run cannot use the cache.
    pub cache_free_bytes: Result<u64, String>,
    /// Folders of other versions of niclab next to it.
    pub other_layouts: Vec<PathBuf>,
    /// Version of the QEMU in the cache, if there is one.
    pub qemu_version: Option<String>,
    /// Release of the guest kernel in the cache, if there is one.
    pub kernel_release: Option<String>,
    /// Whether this niclab's kernel module is built for that kernel.
    pub module: bool,
    /// Number of initramfs files in the cache, one for each set of guest tools.
    pub initramfs_count: usize,
    /// Number of disk images with packages in the cache, one for each set of packages.
    pub disk_count: usize,
    /// The mirror that a build would use, or why there is none.
    pub mirror: Result<String, String>,
    /// Programs that a build needs.
    pub tools: Vec<HostTool>,
}

/// A program of the host.
#[derive(Debug, Clone, Serialize)]
pub struct HostTool {
    /// Its name.
    pub name: &'static str,
    /// Its path, if it exists.
    pub path: Option<PathBuf>,
    /// Its Debian package.
    pub package: &'static str,
}

/// Surveys the cache and the host, without changes.
pub fn survey(cache: &Cache) -> Survey {
    let tree = cache.find(Tree::KIND, &Tree::key()).and_then(|path| Tree::open(&path).ok());
    let has_module = |tree: &Tree| cache.find(module::KIND, &module::key(tree, module::DRIVER)).is_some();
    Survey {
        cache: cache.root(),
        cache_free_bytes: cache.check().map_err(|error| error.to_string()),
        other_layouts: cache.other_layouts(),
        module: tree.as_ref().is_some_and(has_module),
        initramfs_count: cache.list(initramfs::KIND).len(),
        disk_count: cache.list(disk::KIND).len(),
        mirror: Mirror::find(None).map(|mirror| mirror.uri).map_err(|error| error.to_string()),
        tools: HOST_TOOLS
            .into_iter()
            .map(|(name, package)| HostTool { name, path: find_tool(name), package })
            .collect(),
        qemu_version: tree.as_ref().map(|tree| tree.qemu_version.clone()),
        kernel_release: tree.map(|tree| tree.kernel_release),
    }
}
