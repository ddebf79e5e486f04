//! Errors while images are built.
//!
//! Each message has the cause, the place and the fix. Most readers have never seen this program before, and have a
//! machine unlike the developers'.

use std::io;
use std::path::{Path, PathBuf};

/// Why images are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Only x86-64 Linux hosts are supported.
    #[error(
        "niclab builds its guests from amd64 packages and runs on x86-64 Linux only; this is {arch} {os}"
    )]
    UnsupportedHost {
        /// Architecture of this program.
        arch: &'static str,
        /// Operating system of this program.
        os: &'static str,
    },

    /// A program of the host that the build needs is missing.
    #[error(
        "`{tool}` is needed to build the images and is not in PATH; it is part of the package `{package}`"
    )]
    ToolMissing {
        /// The program.
        tool: &'static str,
        /// Its Debian package.
        package: &'static str,
    },

    /// The environment names no folder for the cache.
    #[error(
        "no folder for the cache: neither NICLAB_CACHE, XDG_CACHE_HOME nor HOME is set; set NICLAB_CACHE"
    )]
    NoCacheFolder,

    /// The cache's folder belongs to another user.
    #[error(
        "the cache {} is a link or belongs to another user, so niclab builds and removes nothing there; set \
         NICLAB_CACHE to a folder of your own, or to the link's target",
        .0.display()
    )]
    ForeignCache(PathBuf),

    /// Programs cannot be started from the cache.
    #[error(
        "the cache {} is on a file system that is mounted noexec, so QEMU cannot be started from it; set NICLAB_CACHE \
         to a folder on another file system, or mount this one without noexec",
        .0.display()
    )]
    NoExecCache(PathBuf),

    /// The cache is not writable.
    #[error("cannot write to the cache or its parent folder {}: {source}; set NICLAB_CACHE to a folder of your \
             own", path.display())]
    UnwritableCache {
        /// The cache's folder, or the nearest existing parent folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The host's apt configuration has no Debian mirror.
    #[error(
        "no Debian mirror found in the host's apt configuration ({searched}); give one with --mirror URL, \
         for example your site's address that ends in /debian"
    )]
    NoMirror {
        /// The files that were read.
        searched: String,
    },

    /// The mirror is not an address.
    #[error("`{mirror}` is not a package mirror; give an address such as http://HOST/debian")]
    BadMirror {
        /// The given mirror.
        mirror: String,
    },

    /// The host does not have the keys of Debian's archive.
    #[error(
        "the keys of Debian's archive are not at {}; install the package `debian-archive-keyring`, so that \
         downloads can be verified",
        path.display()
    )]
    NoKeyring {
        /// The expected path.
        path: PathBuf,
    },

    /// A part is missing, and the network is forbidden.
    #[error("{what} not in the cache {}, and --offline was given; run once without --offline", cache.display())]
    Offline {
        /// What is missing.
        what: String,
        /// The cache's folder.
        cache: PathBuf,
    },

    /// The mirror is unreachable, or lacks a file that it lists.
    #[error(
        "{what} not in the cache {}, and fetching from {mirror} failed; check the network, or give another mirror \
         with --mirror URL. apt said:\n{output}",
        cache.display()
    )]
    Fetch {
        /// What is missing.
        what: String,
        /// The mirror's address.
        mirror: String,
        /// The cache's folder.
        cache: PathBuf,
        /// Last lines of apt's output.
        output: String,
    },

    /// apt cannot find or combine the packages.
    #[error(
        "apt cannot install these packages from Debian {suite}: {packages}; check the names. apt said:\n{output}"
    )]
    Packages {
        /// The Debian release.
        suite: &'static str,
        /// The packages.
        packages: String,
        /// Last lines of apt's output.
        output: String,
    },

    /// Two tools exclude each other.
    #[error("{one} and {other} exclude each other in a kernel; remove one of them from --with")]
    Watchers {
        /// The first tool.
        one: &'static str,
        /// The second tool.
        other: &'static str,
    },

    /// No debug kernel is available.
    #[error(
        "there is no debug kernel: {why}; `{command}` builds it, which takes minutes and is needed only once"
    )]
    NoDebugKernel {
        /// Why.
        why: &'static str,
        /// The command that builds one.
        command: &'static str,
    },

    /// The mirror has the source of another kernel version than the guests'.
    #[error(
        "{source_package}, the source of the guests' kernel, is not available; if the mirror has a newer one, remove \
         {} and run again, which fetches the newer kernel for guests, too. apt said:\n\
         {output}",
        tree.display()
    )]
    KernelSource {
        /// The package, and its version.
        source_package: String,
        /// The package tree.
        tree: PathBuf,
        /// Last lines of apt's output.
        output: String,
    },

    /// The kernel's configuration tool dropped options.
    #[error(
        "this kernel's source does not accept these options of niclab's configuration: {0}; this is a bug in niclab"
    )]
    KernelOptions(String),

    /// A program failed.
    #[error("{what} failed: {program} {status}; its last lines:\n{output}")]
    Command {
        /// The purpose of the command.
        what: String,
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// Last lines of its output.
        output: String,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempt, a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// QEMU starts, but lacks a required device.
    #[error("the QEMU in {} ({version}) has no device `{device}`; niclab needs QEMU 11.1 or later", tree.display())]
    QemuTooOld {
        /// The package tree.
        tree: PathBuf,
        /// The reported version.
        version: String,
        /// The missing device.
        device: &'static str,
    },

    /// The package tree is incomplete.
    #[error("the package tree {} has no {what}; remove that folder and run again", tree.display())]
    BrokenTree {
        /// The package tree.
        tree: PathBuf,
        /// What is missing.
        what: String,
    },

    /// The system offers no way to change the root folder for a build.
    #[error(
        "a build inside the package tree must change the root folder, which this system denies: {reason}. Either \
         allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, and on hosts with \
         AppArmor `sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or run niclab once as root with the \
         same NICLAB_CACHE"
    )]
    NoSandbox {
        /// The errors of all attempts.
        reason: String,
    },

    /// This program was built without the module's source.
    #[error(
        "this niclab was built without the source of its kernel module (guest-driver/kernel); rebuild it"
    )]
    NoModuleSource,

    /// The kernel has no such module.
    #[error("the kernel {release} has neither a module nor a built-in `{module}` (see {})", index.display())]
    NoKernelModule {
        /// Kernel release.
        release: String,
        /// The missing module.
        module: String,
        /// The file with all modules.
        index: PathBuf,
    },

    /// apt would read this package name as something else.
    #[error("`{name}` is not a package name; use lower-case letters, digits, `+`, `-` and `.`")]
    BadPackageName {
        /// The given name.
        name: String,
    },

    /// The request has a user's own image and packages.
    #[error("an image of your own ({}) and `packages` exclude each other; omit one of them", image.display())]
    ImageAndPackages {
        /// The given image.
        image: PathBuf,
    },

    /// A file that the user named does not exist.
    #[error("the {what} {} does not exist or is not a file", path.display())]
    NoSuchFile {
        /// Its purpose.
        what: &'static str,
        /// The given path.
        path: PathBuf,
    },

    /// A tool for the guest has no file name.
    #[error("the guest tool {} has no usable file name", path.display())]
    BadTool {
        /// The given path.
        path: PathBuf,
    },
}

/// Adds the path to an I/O error.
pub(crate) trait At<T> {
    /// `action` is a verb: "read", "create".
    fn at(self, action: &'static str, path: &Path) -> Result<T, ImageError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { action, path: path.to_owned(), source })
    }
}
