//! Drivers of the user's own: an out-of-tree module, built against the guest's kernel, or a finished module.
//!
//! The compiler's messages are shown unchanged, but with the user's paths.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cache::{Cache, Key, KeyBuilder, remove_all};
use crate::command::{stream, tree_command};
use crate::debug_kernel::current_kernel;
use crate::error::{At, ImageError};
use crate::module::{self, DRIVER, keep_notes};
use crate::own_kernel::{ModuleTreeError, OwnKernel};
use crate::progress::{Progress, step};
use crate::sandbox::Sandbox;
use crate::tree::Tree;

/// Change it if the code below builds something else.
const RECIPE: &str = "driver 2";
/// The kind of artefact in the cache.
const KIND: &str = "driver";
/// Number of built drivers to keep, enough for those that users currently edit.
const KEPT: usize = 16;

/// Path of a driver's source during the build, in its debugging information.
pub const BUILT_AT: &str = "/driver-build";

/// Folder in the package tree for the build. Cleared before and after.
pub(crate) const BUILD: &str = "driver-build";
/// Folder next to it, with the headers for all drivers.
const INCLUDE: &str = "driver-include";
/// Path of the headers during the build.
pub(crate) const INCLUDED_AT: &str = "/driver-include";
/// The C header of the device's interface.
pub(crate) const ABI: &str = "niclab_abi.h";

/// The module in an artefact, without and with debugging information.
const MODULE: &str = "module.ko";
const WITH_DEBUG: &str = "module.ko.debug";
/// File with the module's name.
const NAME: &str = "name";
/// File with the compiler's commands, one per line, with the paths of the build.
const COMMANDS: &str = "commands";

/// Folders in the artefact during a build against the user's own kernel: the source, and the headers.
const OWN_BUILD: &str = "build";
const OWN_INCLUDE: &str = "include";

/// A driver's source has few files; more files mean that the user gave a wrong folder, such as a home folder.
const MAX_FILES: usize = 2_000;
const MAX_FILE_BYTES: u64 = 8 << 20;
const MAX_BYTES: u64 = 64 << 20;
const MAX_DEPTH: usize = 8;
/// Maximum size of a module that is sent to a guest.
const MAX_MODULE_BYTES: u64 = 64 << 20;
/// Maximum number of the compiler's lines to show.
const MAX_LINES: usize = 200;

/// Why a user's driver is not available.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The build of any artefact fails.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The path is neither a folder nor a file.
    #[error("there is neither a folder nor a file {}; give a folder with a Makefile, or a module \
             NAME.ko", .0.display())]
    Absent(PathBuf),
    /// The folder has no file for the kernel's build system.
    #[error("{} has neither a Makefile nor a Kbuild; for NAME.c, one with the line `obj-m := NAME.o` is \
             enough", .0.display())]
    NoMakefile(PathBuf),
    /// The folder has more than a driver's source.
    #[error("{} has {what}, which is too much for a driver's source; give the folder of the driver \
             only", path.display())]
    TooMuch {
        /// The folder.
        path: PathBuf,
        /// The excess.
        what: String,
    },
    /// The compiler reports errors.
    #[error("{} does not build:\n{output}", path.display())]
    Build {
        /// The folder.
        path: PathBuf,
        /// The compiler's messages, with the user's paths.
        output: String,
    },
    /// The build gives no module, or several.
    #[error("{} builds {found}, but must build exactly one module: one name in obj-m", path.display())]
    NotOne {
        /// What was built.
        path: PathBuf,
        /// What there is.
        found: String,
    },
    /// The file is no module.
    #[error("{} is not a kernel module: {why}", path.display())]
    NoModule {
        /// The file.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// The user's own kernel has no tree to build against.
    #[error(transparent)]
    Tree(#[from] ModuleTreeError),
    /// The module is for another kernel.
    #[error(
        "{} was built for kernel {of}, but the guests run {wanted}; give the folder of its source, so that niclab \
         builds it",
        path.display()
    )]
    OtherKernel {
        /// The file.
        path: PathBuf,
        /// The module's kernel.
        of: String,
        /// The guests' kernel.
        wanted: String,
    },
}

/// A driver that guests can load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverModule {
    /// The module's name in the kernel's list.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The file with debugging information, if there is any.
    pub with_debug: Option<PathBuf>,
    /// The folder of its source, if niclab built it.
    pub source: Option<PathBuf>,
    /// Modules that it needs.
    pub depends: Vec<String>,
}

impl DriverModule {
    /// The compiler's commands, one per line, if niclab built the driver from source.
    pub(crate) fn commands(&self) -> Option<String> {
        fs::read_to_string(self.file.with_file_name(COMMANDS)).ok().filter(|_| self.source.is_some())
    }
}

/// niclab's own driver in this folder.
pub(crate) fn own(folder: &Path) -> DriverModule {
    DriverModule {
        name: module::MODULE.trim_end_matches(".ko").to_owned(),
        file: folder.join(module::MODULE),
        with_debug: Some(folder.join(module::WITH_DEBUG)).filter(|path| path.is_file()),
        source: Some(module::SOURCE.into()),
        depends: Vec::new(),
    }
}

/// The kernel that a driver is for.
#[derive(Clone, Copy, Debug)]
pub enum DriverKernel<'a> {
    /// The guests' usual kernel.
    Stock,
    /// The debug kernel that `niclab kernel build` makes.
    Debug,
    /// A kernel of the user's own.
    Own(&'a OwnKernel),
}

/// The driver at `path`: a finished module, or a module built from a folder with source, unless it is in the cache.
/// Needs the package tree, and the driver's kernel.
///
/// # Errors
/// [`DriverError`].
pub fn ensure_driver(
    cache: &Cache,
    path: &Path,
    kernel: DriverKernel<'_>,
    progress: &dyn Progress,
) -> Result<DriverModule, DriverError> {
    let tree = cache.find(Tree::KIND, &Tree::key());
    let tree = tree.ok_or_else(|| ImageError::BrokenTree { tree: cache.root(), what: "package tree".into() });
    let mut tree = Tree::open(&tree?)?;
    if let DriverKernel::Debug = kernel {
        tree = current_kernel(cache)?.tree(&tree);
    }
    let own = match kernel {
        DriverKernel::Own(own) => Some(own),
        DriverKernel::Stock | DriverKernel::Debug => None,
    };
    // A user's own kernel of unknown release accepts or rejects any module itself.
    let release = own.map_or(Some(&tree.kernel_release), |own| own.release.as_ref());
    let release = release.map(String::as_str);
    if path.is_file() {
        return read(path, release);
    }
    if !path.is_dir() {
        return Err(DriverError::Absent(path.to_owned()));
    }
    let sources = Sources::collect(path)?;
    let own_tree = own.map(OwnKernel::module_tree).transpose()?;
    let key = match own_tree {
        Some(own_tree) => sources.key_on(own_tree)?,
        None => sources.key(&tree),
    };
    let folder = match cache.find_derived(KIND, &key) {
        Some(folder) => folder,
        None => step(progress, "your driver", || {
            cache.derive(
                KIND,
                &key,
                KEPT,
                progress,
                |_| true,
                |staging| match own_tree {
                    Some(own_tree) => build_on(own_tree, &tree, &sources, staging, progress),
                    None => build(&tree, &sources, staging, progress),
                },
            )
        })?,
    };
    let mut driver = read(&folder.join(MODULE), release)?;
    driver.name = fs::read_to_string(folder.join(NAME)).at("read", &folder.join(NAME))?.trim().to_owned();
    driver.with_debug = Some(folder.join(WITH_DEBUG));
    driver.source = Some(path.to_owned());
    Ok(driver)
}

/// The source in a folder, read once, so that the hashed source is the source that is built.
struct Sources {
    path: PathBuf,
    /// Content by path within the folder.
    files: Vec<(PathBuf, Vec<u8>)>,
    bytes: u64,
}

impl Sources {
    fn collect(path: &Path) -> Result<Self, DriverError> {
        if !["Makefile", "Kbuild"].iter().any(|name| path.join(name).is_file()) {
            return Err(DriverError::NoMakefile(path.to_owned()));
        }
        let mut sources = Self { path: path.to_owned(), files: Vec::new(), bytes: 0 };
        sources.add(Path::new(""), 0)?;
        sources.files.sort();
        Ok(sources)
    }

    fn add(&mut self, below: &Path, depth: usize) -> Result<(), DriverError> {
        let too_much = |what: String| DriverError::TooMuch { path: self.path.clone(), what };
        if depth > MAX_DEPTH {
            return Err(too_much(format!("folders {MAX_DEPTH} deep")));
        }
        let folder = self.path.join(below);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).at("list", &folder)? {
            let entry = entry.at("list", &folder)?;
            found.push((below.join(entry.file_name()), entry.path()));
        }
        for (name, path) in found {
            // Some editors use dangling links as marks.
            if name.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                continue;
            }
            // Follows links, because a driver may share files with another.
            let about = match fs::metadata(&path) {
                // An editor may have removed a temporary file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_driver_source(&name) => continue,
                about => about.at("examine", &path)?,
            };
            if about.is_dir() {
                self.add(&name, depth + 1)?;
            } else if about.is_file() && is_driver_source(&name) {
                if about.len() > MAX_FILE_BYTES {
                    let what = format!("a file {} of {} bytes", name.display(), about.len());
                    return Err(DriverError::TooMuch { path: self.path.clone(), what });
                }
                self.bytes += about.len();
                if self.bytes > MAX_BYTES {
                    let what = format!("more than {MAX_BYTES} bytes of source");
                    return Err(DriverError::TooMuch { path: self.path.clone(), what });
                }
                self.files.push((name, fs::read(&path).at("read", &path)?));
                if self.files.len() > MAX_FILES {
                    let what = format!("more than {MAX_FILES} files");
                    return Err(DriverError::TooMuch { path: self.path.clone(), what });
                }
            }
        }
        Ok(())
    }

    fn key(&self, tree: &Tree) -> Key {
        self.finish(KeyBuilder::new(RECIPE).text(&tree.id.to_string()).text(&tree.kernel_release))
    }

    /// The key of a build against the user's own kernel tree, in the state of its last build.
    fn key_on(&self, tree: &Path) -> Result<Key, ImageError> {
        let mut key = KeyBuilder::new(RECIPE).bytes(tree.as_os_str().as_encoded_bytes());
        for name in [".config", "Module.symvers", "include/config/kernel.release"] {
            let path = tree.join(name);
            key = key.bytes(&fs::read(&path).at("read", &path)?);
        }
        Ok(self.finish(key))
    }

    fn finish(&self, key: KeyBuilder) -> Key {
        let key = key.bytes(abi());
        // File names may not be valid text, so their bytes are hashed.
        let files = self
            .files
            .iter()
            .fold(key, |key, (name, content)| key.bytes(name.as_os_str().as_encoded_bytes()).bytes(content));
        files.finish()
    }
}

impl Sources {
    /// Writes the source into `folder` and the headers into `include`; both are new folders.
    fn write(&self, folder: &Path, include: &Path) -> Result<(), ImageError> {
        for made in [folder, include] {
            remove_all(made)?;
            fs::create_dir(made).at("create", made)?;
        }
        let header = include.join(ABI);
        fs::write(&header, abi()).at("write", &header)?;
        for (name, content) in &self.files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).at("create", parent)?;
            }
            fs::write(&path, content).at("write", &path)?;
        }
        Ok(())
    }
}

/// Whether the kernel's build system may read this file. The build system writes products into the same folder.
#[must_use]
pub fn is_driver_source(name: &Path) -> bool {
    let text = name.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let extension = name.extension().map(|extension| extension.to_string_lossy()).unwrap_or_default();
    let is_build = text.starts_with("Makefile") || text.starts_with("Kbuild");
    !text.starts_with('.')
        && !text.ends_with(".mod.c")
        && (is_build || ["c", "h", "S", "inc", "mk", "rs"].contains(&extension.as_ref()))
}

pub(crate) fn abi() -> &'static [u8] {
    DRIVER.iter().find(|(name, _)| *name == ABI).map_or(&[], |(_, content)| content)
}

fn build(tree: &Tree, sources: &Sources, staging: &Path, progress: &dyn Progress) -> Result<(), DriverError> {
    let (folder, include) = (tree.path.join(BUILD), tree.path.join(INCLUDE));
    sources.write(&folder, &include)?;
    let result = make(tree, sources, &folder, progress)
        .and_then(|()| keep(tree, sources, [&folder, &include], staging));
    remove_all(&folder)?;
    remove_all(&include)?;
    result
}

/// Builds against the user's own kernel tree, with the host's make and the tree's configured compiler.
fn build_on(
    own_tree: &Path,
    tree: &Tree,
    sources: &Sources,
    staging: &Path,
    progress: &dyn Progress,
) -> Result<(), DriverError> {
    let (folder, include) = (staging.join(OWN_BUILD), staging.join(OWN_INCLUDE));
    sources.write(&folder, &include)?;
    let config = own_tree.join(".config");
    let config = fs::read_to_string(&config).at("read", &config)?;
    let mut make = Command::new("make");
    make.arg(jobs()).arg("-C").arg(own_tree).arg(format!("M={}", folder.display()));
    make.arg(format!("KCPPFLAGS=-I{}", include.display()));
    // Debugging information has the same source path as other builds, which niclab maps to the user's path.
    make.arg(format!("KCFLAGS=-g -ffile-prefix-map={}={BUILT_AT}", folder.display()));
    make.args(config.lines().any(|line| line == "CONFIG_CC_IS_CLANG=y").then_some("LLVM=1")).arg("modules");
    run_make(&mut make, &folder.display().to_string(), sources, progress)?;
    keep(tree, sources, [&folder, &include], staging)?;
    remove_all(&folder)?;
    Ok(remove_all(&include)?)
}

fn jobs() -> String {
    format!("-j{}", thread::available_parallelism().map_or(1, usize::from))
}

fn make(tree: &Tree, sources: &Sources, folder: &Path, progress: &dyn Progress) -> Result<(), DriverError> {
    let headers = tree.headers();
    let jobs = jobs();
    let (module, include) = (format!("M=/{BUILD}"), format!("KCPPFLAGS=-I/{INCLUDE}"));
    let program =
        [&["make", &jobs, "-C", &headers, &module, &include], tree.make_args, &["modules"]].concat();
    let sandbox = Sandbox::detect(&tree.path)?;
    debug_assert!(folder.starts_with(&tree.path));
    run_make(&mut sandbox.enter(&tree.path, &program), BUILT_AT, sources, progress)
}

/// Runs make, which finds the source at `built_at`.
fn run_make(
    make: &mut Command,
    built_at: &str,
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<(), DriverError> {
    let mut said = VecDeque::new();
    let end = stream(make, |line| {
        // Also the progress of a slow build shows the user's paths.
        let line = users(line, built_at, &sources.path);
        progress.detail("your driver", line.trim());
        if is_the_compilers(&line) {
            said.push_back(line);
        }
        // The cause of a failed build is at the end.
        if said.len() > MAX_LINES {
            said.pop_front();
        }
    })?;
    let output = said.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    });
    if !end.success {
        return Err(DriverError::Build { path: sources.path.clone(), output });
    }
    // Shows warnings even if the build succeeds.
    said.iter().filter(|line| line.contains("warning:")).for_each(|line| progress.note(line));
    Ok(())
}

/// A line of the build's output with the user's path.
fn users(line: &str, built_at: &str, path: &Path) -> String {
    line.trim_end().replace(built_at, &path.display().to_string())
}

/// Whether a line is about the source, not about make's progress.
fn is_the_compilers(line: &str) -> bool {
    let word = line.trim_start();
    let is_progress = [
        "CC ",
        "LD ",
        "AR ",
        "MODPOST ",
        "BTF ",
        "make: Entering",
        "make: Leaving",
        "make[1]: Entering",
        "make[1]: Leaving",
    ];
    let is_progress = is_progress.iter().any(|begin| word.starts_with(begin));
    !is_progress && !word.is_empty() && !word.starts_with("Skipping BTF generation")
}

/// Copies the built module into the artefact.
fn keep(
    tree: &Tree,
    sources: &Sources,
    [folder, include]: [&Path; 2],
    staging: &Path,
) -> Result<(), DriverError> {
    let mut modules = Vec::new();
    for entry in fs::read_dir(folder).at("list", folder)? {
        let path = entry.at("list", folder)?.path();
        modules.extend(path.extension().is_some_and(|extension| extension == "ko").then_some(path));
    }
    let [module] = modules.as_slice() else {
        let mut names: Vec<String> = modules
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        let found = if names.is_empty() { "no module".to_owned() } else { names.join(", ") };
        return Err(DriverError::NotOne { path: sources.path.clone(), found });
    };
    keep_notes(folder, staging)?;
    let with_debug = staging.join(WITH_DEBUG);
    fs::copy(module, &with_debug).at("copy", module)?;
    let mut strip = tree_command(&tree.path, "usr/bin/strip");
    strip.arg("--strip-debug").arg("-o").arg(staging.join(MODULE)).arg(&with_debug);
    stream(&mut strip, |_| ())?.ok("stripping your driver", "strip")?;
    let name = module.file_stem().map(|name| name.to_string_lossy().replace('-', "_")).unwrap_or_default();
    fs::write(staging.join(NAME), name).at("write", staging)?;
    let commands = staging.join(COMMANDS);
    Ok(fs::write(&commands, compile_commands(folder, include)?).at("write", &commands)?)
}

/// The compiler's commands, one per line. The kernel's build system keeps them in files `.NAME.o.cmd`.
fn compile_commands(folder: &Path, include: &Path) -> Result<String, ImageError> {
    let (built, included) = (folder.display().to_string(), include.display().to_string());
    let mut commands = Vec::new();
    for entry in fs::read_dir(folder).at("list", folder)? {
        let path = entry.at("list", folder)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // Skips files that the build system adds to each module: `NAME.mod.c`, `.module-common.c`.
        if !name.ends_with(".o.cmd") || name.ends_with(".mod.o.cmd") || name.starts_with("..") {
            continue;
        }
        let text = fs::read_to_string(&path).at("read", &path)?;
        let saved = text.lines().find(|line| line.starts_with("savedcmd_") && line.contains(" -c "));
        // After the compiler's command come tools that check the object file.
        let command = saved.and_then(|line| line.split_once(" := ")?.1.split(" ; ").next());
        commands.extend(command.map(|text| text.replace(&built, BUILT_AT).replace(&included, INCLUDED_AT)));
    }
    commands.sort();
    Ok(commands.iter().fold(String::new(), |text, command| text + command + "\n"))
}

/// Reads a module's metadata, and checks whether it is for this kernel.
fn read(path: &Path, kernel_release: Option<&str>) -> Result<DriverModule, DriverError> {
    let no_module = |why| DriverError::NoModule { path: path.to_owned(), why };
    let about = fs::metadata(path).at("look at", path)?;
    if about.len() > MAX_MODULE_BYTES {
        return Err(no_module("the file is too large"));
    }
    let content = fs::read(path).at("read", path)?;
    if !content.starts_with(b"\x7fELF") {
        return Err(no_module(
            "it is not an ELF file; give an uncompressed NAME.ko, or the folder of its source",
        ));
    }
    let said = elf_section(&content, ".modinfo").ok_or_else(|| no_module("it has no section .modinfo"))?;
    let magic =
        said_of(said, "vermagic").ok_or_else(|| no_module("it does not name its kernel (vermagic)"))?;
    let of = magic.split(' ').next().unwrap_or_default();
    if let Some(wanted) = kernel_release.filter(|release| of != *release) {
        let (of, wanted) = (of.to_owned(), wanted.to_owned());
        return Err(DriverError::OtherKernel { path: path.to_owned(), of, wanted });
    }
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().replace('-', "_")).unwrap_or_default();
    let depends = said_of(said, "depends").unwrap_or_default();
    let name = said_of(said, "name").unwrap_or_else(stem);
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(no_module("its name is invalid"));
    }
    Ok(DriverModule {
        name,
        file: path.to_owned(),
        with_debug: Some(path.to_owned()),
        source: None,
        depends: depends.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    })
}

/// A value in a module's section `.modinfo`, which has strings `key=value`, each followed by a zero byte.
fn said_of(section: &[u8], key: &str) -> Option<String> {
    let mut said = section.split(|byte| *byte == 0);
    let value = said.find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// A section of a 64-bit little-endian ELF file. The header has the position of the section table; one section has the
/// names of all.
fn elf_section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = file.get(at..at.checked_add(bytes)?)?;
        let value = field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    // `elf(5)`: e_shoff, e_shentsize, e_shnum, e_shstrndx; for a section sh_name, sh_offset and sh_size.
    let (table, bytes, count, names) = (number(40, 8)?, number(58, 2)?, number(60, 2)?, number(62, 2)?);
    let field = |section: usize, at: usize| table.checked_add(section.checked_mul(bytes)?)?.checked_add(at);
    let content = |section: usize| {
        let (offset, length) = (number(field(section, 24)?, 8)?, number(field(section, 32)?, 8)?);
        file.get(offset..offset.checked_add(length)?)
    };
    let names = content(names)?;
    let name_of =
        |section: usize| names.get(number(field(section, 0)?, 4)?..)?.split(|byte| *byte == 0).next();
    content((0..count).find(|section| name_of(*section) == Some(name.as_bytes()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_messages_are_shown_with_the_users_paths() {
        let path = Path::new("/home/me/driver");
        let line = users("/driver-build/a.c:3:5: error: expected ';'", BUILT_AT, path);
        assert_eq!(line, "/home/me/driver/a.c:3:5: error: expected ';'");
        assert!(is_the_compilers(&line) && is_the_compilers("    3 |  int x"));
        for progress in
            ["  CC [M]  a.o", "make: Entering directory '/usr/src/x'", "", "  MODPOST Module.symvers"]
        {
            assert!(!is_the_compilers(progress), "{progress}");
        }
    }

    /// Collects the details of a build.
    #[derive(Default)]
    struct Details(std::sync::Mutex<Vec<String>>);

    impl Progress for Details {
        fn started(&self, _: &str) {}

        fn detail(&self, _: &str, detail: &str) {
            self.0.lock().unwrap().push(detail.to_owned());
        }

        fn done(&self, _: &str, _: std::time::Duration) {}

        fn note(&self, _: &str) {}
    }

    #[test]
    fn progress_of_a_build_shows_the_users_paths() {
        let sources = Sources { path: "/home/me/driver".into(), files: Vec::new(), bytes: 0 };
        let mut make = Command::new("sh");
        make.args(["-c", "echo \"/driver-build/a.c: In function 'f':\"; exit 2"]);
        let details = Details::default();
        let error = run_make(&mut make, BUILT_AT, &sources, &details).unwrap_err().to_string();
        let shown = details.0.into_inner().unwrap();
        assert_eq!(shown, ["/home/me/driver/a.c: In function 'f':"]);
        assert!(error.contains("/home/me/driver/a.c"), "{error}");
    }

    /// A file with three sections: strings, module metadata, and section names.
    fn elf(strings: &str, said: &str) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..4].copy_from_slice(b"\x7fELF");
        let mut places = Vec::new();
        for content in ["", strings, said, "\0.rodata\0.modinfo\0.shstrtab\0"] {
            places.push((file.len() as u64, content.len() as u64));
            file.extend_from_slice(content.as_bytes());
        }
        let table = file.len() as u64;
        for (name, (offset, length)) in [0_u32, 1, 9, 18].into_iter().zip(places) {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&length.to_le_bytes());
            file.extend_from_slice(&header);
        }
        file[40..48].copy_from_slice(&table.to_le_bytes());
        for (at, value) in [(58, 64_u16), (60, 4), (62, 3)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    #[test]
    fn module_of_another_kernel_names_both_kernels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my-driver.ko");
        let said = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            read(&path, Some("6.12.1"))
        };
        let text = |content: &[u8]| said(content).unwrap_err().to_string();
        assert!(text(b"text").contains("not an ELF file"));
        assert!(text(b"\x7fELF").contains("no section .modinfo"));
        assert!(
            text(&elf("a string\0vermagic=6.12.1\0", "license=GPL\0")).contains("does not name its kernel")
        );
        let other = text(&elf("", "vermagic=5.10 SMP mod_unload \0"));
        assert!(other.contains("5.10") && other.contains("6.12.1"), "{other}");
        let module = elf("\0name=%s\n\0", "depends=virtio,xx\0name=my_driver\0vermagic=6.12.1 SMP \0");
        let good = said(&module).unwrap();
        assert_eq!(
            (good.name.as_str(), good.depends),
            ("my_driver", vec!["virtio".to_owned(), "xx".to_owned()])
        );
        assert_eq!(
            said(&elf("", "depends=\0vermagic=6.12.1\0")).unwrap().name,
            "my_driver",
            "the file's name"
        );
        assert!(text(&elf("", "name=../x\0vermagic=6.12.1\0")).contains("its name is invalid"));
        // A truncated file must not cause reads beyond its end.
        (0..module.len()).for_each(|length| drop(said(&module[..length])));
    }

    #[test]
    fn folder_without_a_driver_is_refused_before_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Sources::collect(path).err().map(|error| error.to_string());
        assert!(refused(folder.path()).unwrap().contains("obj-m"));
        fs::write(folder.path().join("Makefile"), "obj-m := a.o\n").unwrap();
        fs::write(folder.path().join("a.c"), "").unwrap();
        fs::write(folder.path().join("a.mod.c"), "").unwrap();
        fs::write(folder.path().join("a.ko"), "").unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/x.c"), "").unwrap();
        // An editor's mark for an unsaved file.
        std::os::unix::fs::symlink("me@host.7", folder.path().join(".#a.c")).unwrap();
        let names: Vec<PathBuf> =
            Sources::collect(folder.path()).unwrap().files.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [Path::new("Makefile"), Path::new("a.c")]);
        let mut deep = folder.path().to_owned();
        (0..=MAX_DEPTH).for_each(|_| deep.push("d"));
        fs::create_dir_all(deep).unwrap();
        assert!(refused(folder.path()).unwrap().contains("deep"));
    }
}
