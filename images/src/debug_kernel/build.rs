//! Builds the kernel: packages, configuration, compilation, and the files that modules are built against.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::thread;

use super::{DEBUG_TOOLS, DebugTool, OF_TREE, RELEASE, VMLINUX, config};
use crate::apt::Apt;
use crate::cache::remove_all;
use crate::command::stream;
use crate::error::{At, ImageError};
use crate::sandbox::Sandbox;
use crate::tree::{Tree, link_tools};
use crate::unpack::unpack;

/// Change it if the code below builds something else.
pub(super) const RECIPE: &str = "debug 3";

/// Packages that the build needs, and those that guests need later: busybox and the C and C++ libraries.
pub(super) const PACKAGES: [&str; 20] = [
    "gcc-14",
    "make",
    "flex",
    "bison",
    "bc",
    "libelf-dev",
    "libc6-dev",
    "libstdc++6",
    "xz-utils",
    "kmod",
    "dash",
    "coreutils",
    "sed",
    "grep",
    "mawk",
    "findutils",
    "diffutils",
    "gzip",
    "tar",
    "busybox-static",
];

/// Paths in the tree during the build: the source, the output, and the options.
const SOURCE: &str = "kernel-source";
const OUTPUT: &str = "kernel-build";
const OPTIONS: &str = "kernel.config";
/// The exported symbols, which a build of modules checks.
const SYMBOLS: &str = "Module.symvers";

/// QEMU enters a kernel by PVH, without a BIOS. Such a kernel runs these files before KASAN has shadow memory
/// (`xen_prepare_pvh`, and `memcmp` for it). If they had checks, the kernel would end there without a message.
const BEFORE_KASAN: [&str; 2] = ["KASAN_SANITIZE_enlighten.o=n", "KASAN_SANITIZE_string.o=n"];

/// Maximum number of the compiler's lines to show.
const MAX_LINES: usize = 60;

type Detail<'a> = &'a (dyn Fn(&str) + Sync);

/// Unpacks the source and the tools into `root`.
pub(super) fn fetch(apt: &Apt, tree: &Tree, root: &Path, detail: Detail<'_>) -> Result<(), ImageError> {
    let source = source_package(tree)?;
    let packages: Vec<String> = PACKAGES.map(str::to_owned).into_iter().chain([source.asked()]).collect();
    let resolved = apt.resolve(&packages).map_err(|error| source.newer(tree, error))?;
    let files = apt.download("the kernel's source is", &packages, &resolved, detail)?;
    unpack(&files, root, detail)?;
    link_tools(root, &[("gcc", "gcc-14"), ("sh", "dash"), ("awk", "mawk")])
}

/// Builds the kernel from the files of [`fetch`].
pub(super) fn compile(
    tree: &Tree,
    tools: &[DebugTool],
    root: &Path,
    detail: Detail<'_>,
) -> Result<(), ImageError> {
    let source = source_package(tree)?;
    let kernel = Kernel { root, sandbox: Sandbox::detect(root)?, detail };
    kernel.unpack(&source)?;
    kernel.configure(&config::wanted(tools))?;
    kernel.compile()?;
    let release = kernel.keep()?;
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, text).at("write", &path)
    };
    write(RELEASE, &release)?;
    write(OF_TREE, &tree.id.to_string())?;
    write(DEBUG_TOOLS, &tools.iter().fold(String::new(), |text, tool| format!("{text}{tool}\n")))
}

/// Debian's package with the source of the guests' kernel version.
#[derive(Debug, PartialEq, Eq)]
struct SourcePackage {
    /// Such as `linux-source-6.12`.
    name: String,
    version: String,
}

impl SourcePackage {
    fn of(release: &str, version: &str) -> Self {
        let series: Vec<&str> = release.split('.').take(2).collect();
        Self { name: format!("linux-source-{}", series.join(".")), version: version.to_owned() }
    }

    fn asked(&self) -> String {
        format!("{}={}", self.name, self.version)
    }

    /// The error if the mirror no longer has the kernel version of the package tree.
    fn newer(&self, tree: &Tree, error: ImageError) -> ImageError {
        match error {
            ImageError::Packages { output, .. } => {
                ImageError::KernelSource { source_package: self.asked(), tree: tree.path.clone(), output }
            }
            error => error,
        }
    }
}

fn source_package(tree: &Tree) -> Result<SourcePackage, ImageError> {
    let image = format!("linux-image-{}", tree.kernel_release);
    let version = tree.version_of(&image)?.ok_or_else(|| ImageError::BrokenTree {
        tree: tree.path.clone(),
        what: format!("package {image} in its list"),
    })?;
    Ok(SourcePackage::of(&tree.kernel_release, &version))
}

/// A kernel during its build.
struct Kernel<'a> {
    root: &'a Path,
    sandbox: Sandbox,
    detail: Detail<'a>,
}

impl Kernel<'_> {
    fn unpack(&self, source: &SourcePackage) -> Result<(), ImageError> {
        (self.detail)("unpacking the kernel's source");
        let packed = format!("usr/src/{}.tar.xz", source.name);
        let folder = self.root.join(SOURCE);
        fs::create_dir(&folder).at("create", &folder)?;
        let (archive, into) = (format!("/{packed}"), format!("/{SOURCE}"));
        let program =
            ["tar", "-x", "-J", "--no-same-owner", "--strip-components=1", "-f", &archive, "-C", &into];
        let mut tar = self.sandbox.enter(self.root, &program);
        stream(&mut tar, |_| ())?.ok("unpacking the kernel's source", "tar")?;
        let packed = self.root.join(packed);
        fs::remove_file(&packed).at("remove", &packed)
    }

    fn configure(&self, wanted: &str) -> Result<(), ImageError> {
        (self.detail)("configuring the kernel");
        let (options, output) = (self.root.join(OPTIONS), self.root.join(OUTPUT));
        fs::write(&options, wanted).at("write", &options)?;
        fs::create_dir(&output).at("create", &output)?;
        let (into, all) = (format!("O=/{OUTPUT}"), format!("KCONFIG_ALLCONFIG=/{OPTIONS}"));
        self.make(&["-s", "-C", &format!("/{SOURCE}"), &into, &all, "allnoconfig"])?;
        let config = output.join(".config");
        let config = fs::read_to_string(&config).at("read", &config)?;
        let dropped = config::dropped(wanted, &config);
        if dropped.is_empty() { Ok(()) } else { Err(ImageError::KernelOptions(dropped.join(", "))) }
    }

    fn compile(&self) -> Result<(), ImageError> {
        let jobs = format!("-j{}", thread::available_parallelism().map_or(1, usize::from));
        // Keeps user, host and time of the build out of all files.
        let same = ["KBUILD_BUILD_USER=niclab", "KBUILD_BUILD_HOST=niclab", "KBUILD_BUILD_TIMESTAMP=@0"];
        let target = format!("/{OUTPUT}");
        let arguments =
            [&["-C", &target, &jobs], same.as_slice(), &BEFORE_KASAN, &["vmlinux", "modules_prepare"]];
        self.make(&arguments.concat())
    }

    /// Moves the files that are needed later to their final paths, and removes the rest. Returns the kernel's release.
    fn keep(&self) -> Result<String, ImageError> {
        (self.detail)("keeping what modules are built against");
        let output = self.root.join(OUTPUT);
        // A kernel without modules of its own has no other symbols.
        let (from, to) = (output.join("vmlinux.symvers"), output.join(SYMBOLS));
        fs::copy(&from, &to).at("copy", &from)?;
        let release_file = output.join("include/config/kernel.release");
        let release = fs::read_to_string(&release_file).at("read", &release_file)?.trim().to_owned();
        let modules = self.root.join("usr/lib/modules").join(&release);
        fs::create_dir_all(&modules).at("create", &modules)?;
        // The kernel's own list of the files that a build of modules reads, as in its packages for other distributions.
        let headers = format!("/usr/lib/modules/{release}/build");
        let script =
            "KBUILD_RUN_COMMAND=+$(srctree)/scripts/package/install-extmod-build ".to_owned() + &headers;
        self.make(&["-s", "-C", &format!("/{OUTPUT}"), &script, "run-command"])?;
        let headers = self.root.join(headers.trim_start_matches('/'));
        for file in [".config", SYMBOLS] {
            let (from, to) = (output.join(file), headers.join(file));
            fs::copy(&from, &to).at("copy", &from)?;
        }
        let (from, to) = (output.join("modules.builtin"), modules.join("modules.builtin"));
        fs::rename(&from, &to).at("move", &from)?;
        let dependencies = modules.join("modules.dep");
        // The kernel has no modules.
        fs::write(&dependencies, "").at("write", &dependencies)?;
        let (from, to) = (output.join("vmlinux"), self.root.join(VMLINUX));
        let boot = self.root.join("boot");
        fs::create_dir_all(&boot).at("create", &boot)?;
        fs::rename(&from, &to).at("move", &from)?;
        [SOURCE, OUTPUT].iter().try_for_each(|folder| remove_all(&self.root.join(folder)))?;
        Ok(release)
    }

    /// Runs make in the tree. If it fails, the error has the compiler's messages from anywhere in the output.
    fn make(&self, arguments: &[&str]) -> Result<(), ImageError> {
        let program = [&["make"], arguments].concat();
        let mut make = self.sandbox.enter(self.root, &program);
        let (mut said, mut done) = (VecDeque::new(), 0_u32);
        let end = stream(&mut make, |line| {
            if let Some(step) = step_of(line) {
                done += 1;
                (self.detail)(&format!("{done}: {step}"));
            } else if !line.trim().is_empty() {
                said.push_back(line.to_owned());
            }
            if said.len() > MAX_LINES {
                said.pop_front();
            }
        })?;
        if end.success {
            return Ok(());
        }
        let output = Vec::from(said).join("\n");
        Err(ImageError::Command {
            what: "building the debug kernel".to_owned(),
            program: "make".to_owned(),
            status: end.status,
            output,
        })
    }
}

/// The file in a progress line of the kernel's build, such as `  CC      kernel/fork.o`.
fn step_of(line: &str) -> Option<&str> {
    let (verb, what) = line.strip_prefix("  ")?.split_once(' ')?;
    let is_verb =
        !verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_uppercase() || b"[]0-9_".contains(&byte));
    is_verb.then(|| what.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_package_matches_the_guests_kernel() {
        let source = SourcePackage::of("6.12.117+deb13-amd64", "6.12.117-1");
        assert_eq!(source.asked(), "linux-source-6.12=6.12.117-1");
    }

    #[test]
    fn make_progress_differs_from_compiler_messages() {
        assert_eq!(step_of("  CC      kernel/fork.o"), Some("kernel/fork.o"));
        assert_eq!(step_of("  HOSTCC  scripts/basic/fixdep"), Some("scripts/basic/fixdep"));
        for words in
            ["kernel/fork.c:3:5: error: expected ';'", "    3 |  int x", "make: *** [Makefile:1] Error 2"]
        {
            assert_eq!(step_of(words), None, "{words}");
        }
    }
}
