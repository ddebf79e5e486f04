//! Builds the private QEMU tree, guest kernel, module and guest images into a cache.
//!
//! A launcher needs only [`ensure`], which builds the missing parts and returns all paths. This needs no root, installs
//! nothing on the host, and needs no network once everything is built. [`Cache`] describes the folder's layout, and why
//! an incomplete part is never taken for a complete one.
//!
//! The parts, in the order of their build:
//!
//! | part | made from | module |
//! |---|---|---|
//! | package tree | the host's Debian mirror, through a private apt | [`apt`], `tree` |
//! | kernel, unpacked | the tree's kernel | `vmlinux` |
//! | kernel module | its source, embedded in this program | `module`, `sandbox` |
//! | initramfs | the tree, the module, the caller's tools | `initramfs`, `cpio` |
//! | a driver of the user's own | its source | `driver` |
//! | root disk, if the user wants packages | the mirror again | `disk` |
//! | a debug kernel, if the user wants one | Debian's source package | `debug_kernel` |

pub mod apt;
mod cache;
mod command;
mod coverage;
mod cpio;
mod debug_kernel;
mod disk;
mod driver;
mod error;
mod export;
mod initramfs;
mod kernel;
mod module;
mod own_kernel;
mod progress;
mod sandbox;
mod survey;
mod symbols;
mod tree;
mod unpack;
mod vmlinux;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::apt::{Apt, Mirror};
use crate::cache::CacheLock;
use crate::progress::step;
use crate::tree::Tree;

pub use crate::cache::{Cache, Key, KeyBuilder, abandon};
pub use crate::coverage::{Counted, CoverageError, FileCoverage, coverage};
pub use crate::debug_kernel::{DebugKernel, DebugTool, build_kernel, current_kernel};
pub use crate::driver::{BUILT_AT, DriverError, DriverKernel, DriverModule, ensure_driver, is_driver_source};
pub use crate::error::ImageError;
pub use crate::export::export_driver;
pub use crate::own_kernel::{ModuleTreeError, OwnKernel, OwnKernelError};
pub use crate::progress::{Progress, Silent, Terminal};
pub use crate::survey::{HostTool, Survey, survey};
pub use crate::symbols::{LoadedModule, SourceLocation, locations};
pub use crate::tree::QemuCommand;

/// The contents of guests.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Debian packages; if there are any, guests get a Debian root file system with them.
    pub packages: Vec<String>,
    /// Package mirror; default: the one of the host's apt configuration.
    pub mirror: Option<String>,
    /// Use no network; fail if something is missing.
    pub offline: bool,
    /// The user's own kernel, booted without changes. The user provides its modules.
    pub kernel: Option<PathBuf>,
    /// Guests run the debug kernel, which must be built.
    pub is_debug_kernel: bool,
    /// The user's own root file system (a raw image of erofs, squashfs or ext4), used unchanged and read-only.
    pub image: Option<PathBuf>,
    /// Guests may have disks in addition to the root's.
    pub has_disks: bool,
    /// Static programs to put into the guest's `/usr/bin`, such as the agent.
    pub tools: Vec<PathBuf>,
}

impl Request {
    fn may_have_disks(&self) -> bool {
        self.has_disks || self.image.is_some() || !self.packages.is_empty()
    }

    fn initramfs<'a>(
        &'a self,
        tree: &'a Tree,
        module: &'a Path,
        module_key: &'a Key,
    ) -> initramfs::Inputs<'a> {
        let has_disks = self.may_have_disks();
        initramfs::Inputs { tree, module, module_key, tools: &self.tools, has_disks }
    }
}

/// Everything needed to boot a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Images {
    /// How to start QEMU.
    pub qemu: QemuCommand,
    /// Such as `11.1.3`.
    pub qemu_version: String,
    /// The file for `-kernel`: unpacked, so that QEMU enters it without a BIOS, unless it is the user's own.
    pub kernel: PathBuf,
    /// niclab's kernel as in its package: it unpacks itself, after a BIOS.
    pub packed_kernel: PathBuf,
    /// Release of the kernel that the module was built for. A user's own kernel may have another.
    pub kernel_release: String,
    /// The file for `-initrd`.
    pub initramfs: PathBuf,
    /// Read-only disk with the root file system, to be attached with serial `niclab-root`; `None`: the initramfs is the
    /// root.
    pub root_disk: Option<PathBuf>,
    /// The debug kernel, if it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug_kernel: Option<DebugKernel>,
    /// niclab's driver as guests load it, with its debugging information.
    #[serde(skip)]
    pub driver: Option<DriverModule>,
}

/// Returns the paths of all images for a cluster of guests, and first builds the missing ones.
///
/// If everything is in the cache, this takes milliseconds and no lock. Builds are serialized between processes.
///
/// # Errors
/// When a part cannot be built; the message has the fix.
pub fn ensure(cache: &Cache, request: &Request, progress: &dyn Progress) -> Result<Images, ImageError> {
    check(request)?;
    match found(cache, request)? {
        Some(images) => Ok(images),
        None => Builder::new(cache, request, progress)?.run(),
    }
}

/// Builds the parts that contain no tools: packages, kernel and module. [`ensure`] then finds them in the cache, so the
/// tools can be built in the meantime.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_base(cache: &Cache, request: &Request, progress: &dyn Progress) -> Result<(), ImageError> {
    check(request)?;
    if found_base(cache, request)?.is_none() {
        let mut builder = Builder::new(cache, request, progress)?;
        builder.base()?;
        builder.clean()?;
    }
    Ok(())
}

fn check(request: &Request) -> Result<(), ImageError> {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    if (arch, os) != ("x86_64", "linux") {
        return Err(ImageError::UnsupportedHost { arch, os });
    }
    if let (Some(image), false) = (&request.image, request.packages.is_empty()) {
        return Err(ImageError::ImageAndPackages { image: image.clone() });
    }
    let own = [("kernel", &request.kernel), ("image", &request.image)];
    for (what, path) in own {
        if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
            return Err(ImageError::NoSuchFile { what, path: path.clone() });
        }
    }
    request.packages.iter().try_for_each(|name| disk::check_name(name))
}

/// The images if all of them are in the cache.
fn found(cache: &Cache, request: &Request) -> Result<Option<Images>, ImageError> {
    let Some(base) = found_base(cache, request)? else { return Ok(None) };
    let Base { kernel: Kernel { tree, .. }, module, module_key, .. } = &base;
    let file = module.join(module::MODULE);
    let inputs = request.initramfs(tree, &file, module_key);
    let Some(initramfs) = cache.find(initramfs::KIND, &inputs.key()?) else { return Ok(None) };
    let disk = if request.packages.is_empty() {
        None
    } else {
        let Some(disk) = cache.find(disk::KIND, &disk::key(tree, &request.packages)) else { return Ok(None) };
        Some(disk.join(disk::FILE))
    };
    Ok(Some(base.images(request, initramfs.join(initramfs::FILE), disk)))
}

/// The parts without tools if all of them are in the cache.
fn found_base(cache: &Cache, request: &Request) -> Result<Option<Base>, ImageError> {
    let Some(path) = cache.find(Tree::KIND, &Tree::key()) else { return Ok(None) };
    let packages = Tree::open(&path)?;
    let Some(kernel) = find_kernel(cache, request, &packages)? else { return Ok(None) };
    let module_key = module::key(&kernel.tree, module::DRIVER);
    let module = cache.find(module::KIND, &module_key);
    Ok(module.map(|module| Base { packages, kernel, module, module_key }))
}

/// The guests' kernel, with the tree that its modules are built against.
struct Kernel {
    file: PathBuf,
    tree: Tree,
    debug_kernel: Option<DebugKernel>,
}

impl Kernel {
    fn stock(file: PathBuf, packages: &Tree) -> Self {
        Self { file, tree: packages.clone(), debug_kernel: None }
    }

    fn debug_kernel(cache: &Cache, packages: &Tree) -> Result<Self, ImageError> {
        let kernel = current_kernel(cache)?;
        Ok(Self { file: kernel.vmlinux(), tree: kernel.tree(packages), debug_kernel: Some(kernel) })
    }
}

/// The kernel, if it is in the cache. A debug kernel must be.
fn find_kernel(cache: &Cache, request: &Request, packages: &Tree) -> Result<Option<Kernel>, ImageError> {
    if request.is_debug_kernel {
        return Kernel::debug_kernel(cache, packages).map(Some);
    }
    let folder = cache.find(vmlinux::KIND, &vmlinux::key(packages));
    Ok(folder.map(|folder| Kernel::stock(folder.join(vmlinux::FILE), packages)))
}

/// The parts that contain no tools.
struct Base {
    packages: Tree,
    kernel: Kernel,
    /// The folder of niclab's driver.
    module: PathBuf,
    module_key: Key,
}

impl Base {
    fn images(self, request: &Request, initramfs: PathBuf, disk: Option<PathBuf>) -> Images {
        let Self { packages, kernel, module, .. } = self;
        Images {
            qemu: packages.qemu(),
            qemu_version: packages.qemu_version.clone(),
            kernel: request.kernel.clone().unwrap_or(kernel.file),
            packed_kernel: packages.packed_kernel(),
            kernel_release: kernel.tree.kernel_release,
            initramfs,
            root_disk: disk.or_else(|| request.image.clone()),
            driver: Some(driver::own(&module)),
            debug_kernel: kernel.debug_kernel,
        }
    }
}

/// A run that builds parts.
struct Builder<'a> {
    cache: &'a Cache,
    request: &'a Request,
    progress: &'a dyn Progress,
    lock: CacheLock,
    /// Opened by the first part that needs packages.
    apt: Option<Apt>,
}

impl<'a> Builder<'a> {
    fn new(cache: &'a Cache, request: &'a Request, progress: &'a dyn Progress) -> Result<Self, ImageError> {
        command::require_tools()?;
        let others = cache.other_layouts();
        if let Some(other) = others.first() {
            let (old, new) = (other.display(), cache.root());
            progress.note(&format!(
                "{old} was built by another version of niclab and is not used; building again in {}. Remove the \
                 old folder when you no longer need it",
                new.display()
            ));
        }
        Ok(Self { cache, request, progress, lock: cache.lock(progress)?, apt: None })
    }

    fn run(mut self) -> Result<Images, ImageError> {
        let base = self.base()?;
        let file = base.module.join(module::MODULE);
        let inputs = self.request.initramfs(&base.kernel.tree, &file, &base.module_key);
        let initramfs = initramfs::ensure(self.cache, &self.lock, &inputs)?;
        let disk = self.disk(&base.kernel.tree, &file)?;
        self.cache.prune(&self.lock, initramfs::KIND, initramfs::KEPT)?;
        self.cache.prune(&self.lock, module::KIND, initramfs::KEPT)?;
        self.cache.prune(&self.lock, vmlinux::KIND, 2)?;
        self.clean()?;
        Ok(base.images(self.request, initramfs, disk))
    }

    /// Builds the parts that contain no tools.
    fn base(&mut self) -> Result<Base, ImageError> {
        let packages = self.tree()?;
        let kernel = if self.request.is_debug_kernel {
            Kernel::debug_kernel(self.cache, &packages)?
        } else {
            let file = vmlinux::ensure(self.cache, &self.lock, &packages, self.progress)?;
            Kernel::stock(file, &packages)
        };
        let module_key = module::key(&kernel.tree, module::DRIVER);
        let module = match self.cache.find(module::KIND, &module_key) {
            Some(folder) => folder,
            None => step(self.progress, "kernel module", || {
                let detail = |line: &str| self.progress.detail("kernel module", line);
                module::ensure(self.cache, &self.lock, &kernel.tree, module::DRIVER, detail)
            })?,
        };
        Ok(Base { packages, kernel, module, module_key })
    }

    /// Removes downloaded packages, if there are any.
    fn clean(&self) -> Result<(), ImageError> {
        self.apt.as_ref().map_or(Ok(()), Apt::clean)
    }

    fn tree(&mut self) -> Result<Tree, ImageError> {
        let key = Tree::key();
        if let Some(path) = self.cache.find(Tree::KIND, &key) {
            return Tree::open(&path);
        }
        let name = "package tree (QEMU, guest kernel, compiler)";
        let path = step(self.progress, name, || {
            let apt = open_apt(&mut self.apt, self.cache, self.request, "the package tree is", &|line| {
                self.progress.detail(name, line);
            })?;
            self.cache.artefact(&self.lock, Tree::KIND, &key, |staging| {
                tree::build(apt, staging, &|line| self.progress.detail(name, line))
            })
        })?;
        Tree::open(&path)
    }

    fn disk(&mut self, tree: &Tree, module: &Path) -> Result<Option<PathBuf>, ImageError> {
        if self.request.packages.is_empty() {
            return Ok(None);
        }
        let key = disk::key(tree, &self.request.packages);
        if let Some(folder) = self.cache.find(disk::KIND, &key) {
            return Ok(Some(folder.join(disk::FILE)));
        }
        let name = "guest image with packages";
        let folder = step(self.progress, name, || {
            let detail = |line: &str| self.progress.detail(name, line);
            let apt = open_apt(&mut self.apt, self.cache, self.request, "the guest image is", &detail)?;
            let recipe = disk::Recipe { apt, tree, module, packages: &self.request.packages };
            self.cache.artefact(&self.lock, disk::KIND, &key, |staging| recipe.build(staging, &detail))
        })?;
        Ok(Some(folder.join(disk::FILE)))
    }
}

/// The private apt with fresh lists, or the error. `what` names the part that needs it.
fn open_apt<'a>(
    slot: &'a mut Option<Apt>,
    cache: &Cache,
    request: &Request,
    what: &str,
    detail: &dyn Fn(&str),
) -> Result<&'a Apt, ImageError> {
    match slot {
        Some(apt) => Ok(apt),
        none => {
            if request.offline {
                return Err(ImageError::Offline { what: what.to_owned(), cache: cache.root() });
            }
            let mirror = Mirror::find(request.mirror.as_deref())?;
            Ok(none.insert(Apt::open(&cache.root(), mirror, what, detail)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_with_a_root_disk_or_another_one_may_have_disks() {
        assert!(!Request::default().may_have_disks());
        for request in [
            Request { packages: vec!["iperf3".into()], ..Request::default() },
            Request { image: Some("root.erofs".into()), ..Request::default() },
            Request { has_disks: true, ..Request::default() },
        ] {
            assert!(request.may_have_disks(), "{request:?}");
        }
    }
}
