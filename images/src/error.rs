//! Everything that can go wrong while images are built.
//!
//! Each message names the thing, the place, and the fix, because most of them are read by somebody who has
//! never seen this program before and has a machine that differs from ours.

use std::io;
use std::path::{Path, PathBuf};

/// Why images are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Only x86-64 Linux hosts have been made to work.
    #[error(
        "niclab builds its guests from amd64 packages and runs on x86-64 Linux only; this is {arch} {os}"
    )]
    UnsupportedHost {
        /// Architecture of this program.
        arch: &'static str,
        /// Operating system of this program.
        os: &'static str,
    },

    /// A program of the host that is needed for building is not there.
    #[error(
        "`{tool}` is needed to build the images and is not in PATH; it is part of the package `{package}`"
    )]
    ToolMissing {
        /// Program looked for.
        tool: &'static str,
        /// Debian package that has it.
        package: &'static str,
    },

    /// No folder for the cache could be found.
    #[error(
        "no folder for the cache: neither NICLAB_CACHE, XDG_CACHE_HOME nor HOME is set; set NICLAB_CACHE"
    )]
    NoCacheFolder,

    /// Somebody else has the cache's folder.
    #[error(
        "the cache {} is a link or belongs to somebody else, so nothing is built or removed there; set NICLAB_CACHE to a folder of \
         your own, or to where the link leads",
        .0.display()
    )]
    ForeignCache(PathBuf),

    /// Programs cannot be started from the cache.
    #[error(
        "the cache {} is on a file system that is mounted noexec, so QEMU cannot be started from it; set NICLAB_CACHE to a folder \
         on another file system, or mount this one without noexec",
        .0.display()
    )]
    NoExecCache(PathBuf),

    /// Nothing can be built into the cache.
    #[error("cannot write to {}, where the cache is or would be: {source}; set NICLAB_CACHE to a folder of your own", path.display())]
    UnwritableCache {
        /// The cache's folder, or the nearest folder above that is there.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The host's apt configuration has no Debian mirror in it.
    #[error(
        "no Debian mirror found in the host's apt configuration ({searched}); name one with --mirror URL, \
         for instance the address your site uses, ending in /debian"
    )]
    NoMirror {
        /// Files looked at.
        searched: String,
    },

    /// A mirror is not an address.
    #[error("`{mirror}` is no package mirror: expected an address such as http://HOST/debian")]
    BadMirror {
        /// What was given.
        mirror: String,
    },

    /// The keys that sign Debian's archive are not on this host.
    #[error(
        "the keys of Debian's archive are not at {}; install the package `debian-archive-keyring`, so that \
         downloads can be verified",
        path.display()
    )]
    NoKeyring {
        /// Where they were expected.
        path: PathBuf,
    },

    /// Something is missing and we were told not to use the network.
    #[error("{what} not in the cache {}, and --offline was given; run once without --offline", cache.display())]
    Offline {
        /// What is missing.
        what: String,
        /// The cache's folder.
        cache: PathBuf,
    },

    /// The mirror could not be reached, or did not give what it lists.
    #[error(
        "{what} not in the cache {}, and fetching from {mirror} failed; check the network, or name another mirror \
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

    /// apt cannot find or combine the packages asked for.
    #[error(
        "the packages cannot be had from Debian {suite}: {packages}; check the names. apt said:\n{output}"
    )]
    Packages {
        /// The release looked in.
        suite: &'static str,
        /// The packages asked for.
        packages: String,
        /// Last lines of apt's output.
        output: String,
    },

    /// Two tools that no kernel has together.
    #[error("a kernel is built with {one} or with {other}, not with both; leave one of them out of --with")]
    Watchers {
        /// One.
        one: &'static str,
        /// The other.
        other: &'static str,
    },

    /// No debug kernel can be used.
    #[error("there is no debug kernel: {why}; `{command}` builds it, which takes a while and is done once")]
    NoDebugKernel {
        /// Why.
        why: &'static str,
        /// What builds one.
        command: &'static str,
    },

    /// The mirror has another kernel's source than the guests run.
    #[error(
        "{source_package}, the source of the guests' kernel, cannot be had; if the mirror has a newer one by now, remove {} and run \
         again, which fetches the newer kernel for guests as well. apt said:\n{output}",
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

    /// Options that the kernel's own tool did not take.
    #[error(
        "this kernel's source does not take what niclab's configuration says: {0}; this is a fault in niclab"
    )]
    KernelOptions(String),

    /// A program failed.
    #[error("{what} failed: {program} {status}; its last lines:\n{output}")]
    Command {
        /// What it was run for.
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
        /// What was tried, a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// QEMU started but cannot do what is needed.
    #[error("the QEMU in {} ({version}) has no device `{device}`; niclab needs QEMU 11.1 or later", tree.display())]
    QemuTooOld {
        /// The package tree.
        tree: PathBuf,
        /// What it says it is.
        version: String,
        /// The device it lacks.
        device: &'static str,
    },

    /// The package tree lacks something that it should have.
    #[error("the package tree {} has no {what}; remove that folder and run again", tree.display())]
    BrokenTree {
        /// The package tree.
        tree: PathBuf,
        /// What is missing.
        what: String,
    },

    /// No way to change the root folder for a build.
    #[error(
        "building inside the package tree needs a change of root, which this system denies: {reason}. Either \
         allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, and on hosts with \
         AppArmor `sysctl kernel.apparmor_restrict_unprivileged_userns=0`), or run niclab once as root with the \
         same NICLAB_CACHE"
    )]
    NoSandbox {
        /// What the attempts said.
        reason: String,
    },

    /// This program was built from a tree without the module's source.
    #[error(
        "this niclab was built without the source of its kernel module (guest-driver/kernel); rebuild it"
    )]
    NoModuleSource,

    /// The kernel has no such module.
    #[error("the kernel {release} has neither a module nor a built-in `{module}` (see {})", index.display())]
    NoKernelModule {
        /// Kernel release.
        release: String,
        /// Module looked for.
        module: String,
        /// File searched.
        index: PathBuf,
    },

    /// A package name that apt would read as something else.
    #[error("`{name}` is no package name; expected lower-case letters, digits, `+`, `-` and `.`")]
    BadPackageName {
        /// What was given.
        name: String,
    },

    /// Both a user's own image and packages for one were asked for.
    #[error("an image of your own ({}) and `packages` exclude each other; leave one out", image.display())]
    ImageAndPackages {
        /// The image given.
        image: PathBuf,
    },

    /// A file the user named is not there.
    #[error("the {what} {} is not there or no file", path.display())]
    NoSuchFile {
        /// What it was named as.
        what: &'static str,
        /// The path given.
        path: PathBuf,
    },

    /// A tool for the guest has no file name.
    #[error("the guest tool {} has no usable file name", path.display())]
    BadTool {
        /// What was given.
        path: PathBuf,
    },
}

/// Adds the place to an I/O error.
pub(crate) trait At<T> {
    /// `action` is a verb: "read", "create".
    fn at(self, action: &'static str, path: &Path) -> Result<T, ImageError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { action, path: path.to_owned(), source })
    }
}
