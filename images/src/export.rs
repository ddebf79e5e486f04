//! Exports a built driver for the user: the module, the header of the device's interface, and the compiler's commands
//! for editors and other tools that read `compile_commands.json`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cache::Cache;
use crate::debug_kernel::current_kernel;
use crate::driver::{self, BUILT_AT, DriverKernel, DriverModule};
use crate::error::{At, ImageError};
use crate::tree::Tree;

/// The file that editors look for (Clang, "JSON Compilation Database Format Specification").
const COMPILE_COMMANDS: &str = "compile_commands.json";

/// The subfolder for the header.
const INCLUDE: &str = "include";

/// Writes the files of a driver into a folder, which is created if needed, and returns their paths. A module that was
/// not built from source has no commands.
///
/// When a file cannot be read or written.
/// A file cannot be read or written.
pub fn export_driver(
    cache: &Cache,
    driver: &DriverModule,
    kernel: DriverKernel<'_>,
    into: &Path,
) -> Result<Vec<PathBuf>, ImageError> {
    let include = into.join(INCLUDE);
    fs::create_dir_all(&include).at("create", &include)?;
    let mut written = Vec::new();
    let mut write = |path: PathBuf, content: &[u8]| {
        fs::write(&path, content).at("write", &path)?;
        written.push(path);
        Ok::<_, ImageError>(())
    };
    let read = |path: &Path| fs::read(path).at("read", path);
    write(into.join(format!("{}.ko", driver.name)), &read(&driver.file)?)?;
    if let Some(with_debug) = driver.with_debug.as_ref().filter(|path| **path != driver.file) {
        write(into.join(format!("{}.ko.debug", driver.name)), &read(with_debug)?)?;
    }
    write(include.join(driver::ABI), driver::abi())?;
    if let (Some(commands), Some(source)) = (driver.commands(), &driver.source) {
        let location = HeaderLocation::of(cache, kernel)?;
        let text = database(&commands, &location, source, &include);
        write(into.join(COMPILE_COMMANDS), text.as_bytes())?;
    }
    Ok(written)
}

/// The location of the kernel's headers.
struct HeaderLocation {
    /// The folder in which the compiler ran.
    directory: PathBuf,
    /// The root folder of the compiler; `None` if it ran on the host.
    root: Option<PathBuf>,
}

impl HeaderLocation {
    fn of(cache: &Cache, kernel: DriverKernel<'_>) -> Result<Self, ImageError> {
        if let DriverKernel::Own(own) = kernel {
            return Ok(Self { directory: own.tree.clone().unwrap_or_default(), root: None });
        }
        let missing = || ImageError::BrokenTree { tree: cache.root(), what: "package tree".into() };
        let mut tree = Tree::open(&cache.find(Tree::KIND, &Tree::key()).ok_or_else(missing)?)?;
        if let DriverKernel::Debug = kernel {
            tree = current_kernel(cache)?.tree(&tree);
        }
        let headers = tree.path.join(tree.headers().trim_start_matches('/'));
        // A link to an absolute path within the tree.
        let directory = match fs::read_link(&headers) {
            Ok(target) if target.is_absolute() => in_tree(&tree.path, &target),
            _ => headers,
        };
        Ok(Self { directory, root: Some(tree.path) })
    }

    /// A word of the command with the host's path.
    fn word(&self, word: &str) -> String {
        let Some(root) = &self.root else { return word.to_owned() };
        let at = word.find("/usr/").filter(|at| !word[..*at].contains('/'));
        at.map_or_else(|| word.to_owned(), |at| format!("{}{}{}", &word[..at], root.display(), &word[at..]))
    }
}

fn in_tree(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The commands in the editors' format. `source` and `include` are the user's folders.
fn database(commands: &str, location: &HeaderLocation, source: &Path, include: &Path) -> String {
    let entry = |command: &str| {
        let users = |word: &str| {
            let word = word.replace(BUILT_AT, &source.display().to_string());
            word.replace(driver::INCLUDED_AT, &include.display().to_string())
        };
        let words: Vec<String> = command.split_whitespace().map(|word| users(&location.word(word))).collect();
        let file = words.last().cloned().unwrap_or_default();
        json!({ "directory": location.directory, "file": file, "command": words.join(" ") })
    };
    let entries: Vec<_> = commands.lines().map(entry).collect();
    format!("{:#}\n", serde_json::Value::from(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "gcc-14 -Wp,-MMD,/driver-build/.a.o.d -nostdinc -I/usr/src/common/include \
                           -I./include/generated \
        -include /usr/src/common/include/linux/kconfig.h -I/driver-include -DKBUILD_MODNAME='\"a\"' -c -o \
        /driver-build/a.o \
        /driver-build/a.c";

    #[test]
    fn commands_name_the_users_source_and_the_headers_in_the_cache() {
        let location =
            HeaderLocation { directory: "/cache/tree/usr/src/x".into(), root: Some("/cache/tree".into()) };
        let text = database(COMMAND, &location, Path::new("/home/me/d"), Path::new("/home/me/out/include"));
        let entries: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entries[0]["file"], "/home/me/d/a.c");
        assert_eq!(entries[0]["directory"], "/cache/tree/usr/src/x");
        let command = entries[0]["command"].as_str().unwrap();
        for part in [
            " -I/cache/tree/usr/src/common/include ",
            " -I./include/generated ",
            " /cache/tree/usr/src/common/include/linux/kconfig.h ",
            " -I/home/me/out/include ",
            " -o /home/me/d/a.o ",
        ] {
            assert!(command.contains(part), "{part} in {command}");
        }
        let own = HeaderLocation { directory: "/linux".into(), root: None };
        assert!(
            database(COMMAND, &own, Path::new("/d"), Path::new("/i")).contains(" -I/usr/src/common/include ")
        );
    }
}
