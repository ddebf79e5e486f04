//! The guest kernel's modules and their dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{At, ImageError};

/// `depmod`'s results for a kernel's modules.
#[derive(Debug)]
pub(crate) struct ModuleIndex {
    release: String,
    path: PathBuf,
    /// Module name -> its file and the files of its dependencies, relative to the modules' folder.
    modules: BTreeMap<String, (String, Vec<String>)>,
    builtin: BTreeSet<String>,
}

impl ModuleIndex {
    /// Reads `modules.dep` and `modules.builtin` of a kernel's modules folder.
    pub fn read(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join("modules.dep");
        let dependencies = fs::read_to_string(&path).at("read", &path)?;
        let builtin_path = folder.join("modules.builtin");
        let builtin = fs::read_to_string(&builtin_path).at("read", &builtin_path)?;
        let release = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self::parse(release, path, &dependencies, &builtin))
    }

    /// `dependencies` has lines of the form `FILE: FILE...`, with direct and indirect dependencies of the first file.
    fn parse(release: String, path: PathBuf, dependencies: &str, builtin: &str) -> Self {
        let modules = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(file, needs)| {
                let needs = needs.split_whitespace().map(str::to_owned).collect();
                (module_name(file), (file.to_owned(), needs))
            })
            .collect();
        let builtin = builtin.lines().map(module_name).collect();
        Self { release, path, modules, builtin }
    }

    /// The files of these modules and of their dependencies, each file after its dependencies.
    pub fn closure(&self, names: &[&str]) -> Result<Vec<String>, ImageError> {
        let mut order = Vec::new();
        let mut visited = BTreeSet::new();
        for name in names {
            self.visit(&name.replace('-', "_"), &mut visited, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        visited: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<(), ImageError> {
        // `visited` also ends a cycle, which depmod would have refused.
        if self.builtin.contains(name) || !visited.insert(name.to_owned()) {
            return Ok(());
        }
        let (file, needs) = self.modules.get(name).ok_or_else(|| ImageError::NoKernelModule {
            release: self.release.clone(),
            module: name.to_owned(),
            index: self.path.clone(),
        })?;
        for need in needs {
            self.visit(&module_name(need), visited, order)?;
        }
        order.push(file.clone());
        Ok(())
    }

    /// The lines of `modules.dep` for these files, in a folder that has only them, uncompressed and without subfolders.
    pub fn flat_dependencies(&self, files: &[String]) -> String {
        let mut text = String::new();
        for file in files {
            text.push_str(&flat_file(file));
            text.push(':');
            for need in
                self.modules.get(&module_name(file)).map(|(_, needs)| needs.as_slice()).unwrap_or_default()
            {
                text.push(' ');
                text.push_str(&flat_file(need));
            }
            text.push('\n');
        }
        text
    }
}

/// `kernel/net/9p/9pnet-virtio.ko.xz` -> `9pnet_virtio`, the kernel's name for the module.
fn module_name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file).trim();
    base.split(".ko").next().unwrap_or(base).replace('-', "_")
}

/// `kernel/net/9p/9pnet.ko.xz` -> `9pnet.ko`.
pub(crate) fn flat_file(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    format!("{}.ko", base.split(".ko").next().unwrap_or(base))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(dependencies: &str, builtin: &str) -> ModuleIndex {
        ModuleIndex::parse("6.12-test".into(), "modules.dep".into(), dependencies, builtin)
    }

    const NINE_P: &str = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                          kernel/net/9p/9pnet.ko.xz:\nkernel/fs/netfs/netfs.ko.xz:\n\
                          kernel/drivers/net/virtio-net.ko.xz: kernel/net/core/failover.ko.xz\n\
                          kernel/net/core/failover.ko.xz:\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let files = index(NINE_P, "").closure(&["9p", "virtio_net", "9pnet"]).unwrap();
        let names: Vec<String> = files.iter().map(|f| module_name(f)).collect();
        assert_eq!(names, ["9pnet", "netfs", "9p", "failover", "virtio_net"]);
    }

    #[test]
    fn builtin_modules_need_no_file() {
        let index = index(NINE_P, "kernel/drivers/char/virtio_console.ko\n");
        assert!(index.closure(&["virtio-console"]).unwrap().is_empty());
    }

    #[test]
    fn an_unknown_module_is_named() {
        let message = index(NINE_P, "").closure(&["nonesuch"]).unwrap_err().to_string();
        assert!(message.contains("6.12-test") && message.contains("nonesuch"), "{message}");
    }

    #[test]
    fn the_flat_index_has_flat_uncompressed_names() {
        let index = index(NINE_P, "");
        let files = index.closure(&["9p"]).unwrap();
        assert_eq!(index.flat_dependencies(&files), "9pnet.ko:\nnetfs.ko:\n9p.ko: 9pnet.ko netfs.ko\n");
    }

    proptest! {
        /// In any dependency graph without cycles, each module comes after its dependencies.
        #[test]
        fn order_respects_every_dependency(edges in prop::collection::vec((0usize..12, 0usize..12), 0..40)) {
            let needs = |n: usize| edges.iter().filter(move |(a, b)| *a == n && b < a).map(|(_, b)| *b);
            let mut text = String::new();
            for n in 0..12 {
                text += &format!("k/m{n}.ko.xz:");
                for need in needs(n) {
                    text += &format!(" k/m{need}.ko.xz");
                }
                text += "\n";
            }
            let order = index(&text, "").closure(&["m11", "m10", "m9", "m5"]).unwrap();
            let place = |n: usize| order.iter().position(|f| *f == format!("k/m{n}.ko.xz"));
            for n in 0..12 {
                if let Some(at) = place(n) {
                    for need in needs(n) {
                        prop_assert!(place(need).is_some_and(|p| p < at));
                    }
                }
            }
        }
    }
}
