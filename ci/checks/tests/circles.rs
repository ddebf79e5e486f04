//! Files of a package import each other without circles. The check compares files of one folder, and sibling folders.
//! An import in a folder's file counts as the folder's import. A module and its own submodules may import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use niclab_checks::modules::Modules;
use niclab_checks::{packages, repository, sources};

/// A file and the files that declare it, from the crate's root on.
fn ancestry(file: &Path, parents: &BTreeMap<PathBuf, PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        std::iter::successors(Some(file.to_owned()), |file| parents.get(file).cloned()).collect();
    found.reverse();
    found
}

/// The imports between sibling files and folders. An import in a folder's file counts as the folder's import.
fn imports_side_by_side(modules: &Modules) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let parents = modules.parents();
    let mut imports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (from, to) in modules.imports() {
        let pairs = ancestry(&from, &parents).into_iter().zip(ancestry(&to, &parents));
        if let Some((from, to)) = pairs.into_iter().find(|(from, to)| from != to) {
            imports.entry(from).or_default().insert(to);
        }
    }
    imports
}

fn reachable<'a>(
    imports: &'a BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    from: &'a PathBuf,
) -> BTreeSet<&'a PathBuf> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(imports.get(file).into_iter().flatten().filter(|next| found.insert(*next)));
    }
    found
}

/// The sets of files that all import each other, directly or indirectly.
fn circles(imports: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> BTreeSet<BTreeSet<&PathBuf>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (file, reachable(imports, file))).collect();
    let circle_of = |file| {
        let others =
            reached[file].iter().filter(|other| reached.get(**other).is_some_and(|back| back.contains(file)));
        others.copied().collect::<BTreeSet<_>>()
    };
    reached.keys().map(|file| circle_of(*file)).filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let top = repository().canonicalize().expect("the repository is there");
    let mut failures = Vec::new();
    let mut seen = BTreeSet::new();
    for root in packages().into_iter().flat_map(|package| package.targets) {
        let modules = Modules::read(&root.src_path);
        seen.extend(modules.files().map(|file| file.strip_prefix(&top).unwrap_or(file).to_owned()));
        let imports = imports_side_by_side(&modules);
        for circle in circles(&imports) {
            let of = |file: &Path| file.strip_prefix(&top).unwrap_or(file).to_string_lossy().into_owned();
            for file in &circle {
                let to = imports[*file].iter().filter(|to| circle.contains(to)).map(|to| of(to));
                failures.push(format!("{} imports {}", of(file), to.collect::<Vec<_>>().join(", ")));
            }
        }
    }
    // A check that reads too few files would find nothing. The files that it does not read are tests.
    let is_rust = |file: &&PathBuf| file.extension().is_some_and(|found| found == "rs");
    let (read, all) = (seen.len(), sources().iter().filter(is_rust).count());
    assert!(read * 10 > all * 9, "only {read} of {all} files were read");
    assert!(failures.is_empty(), "circles of imports:\n  {}", failures.join("\n  "));
}

/// Writes a crate to its own folder and returns its root file.
fn written(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    folder.join(files[0].0)
}

#[test]
fn a_circle_is_found_through_folders_reexports_and_macros() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("circles");
    let found = |files: &[(&str, &str)]| {
        let _ = std::fs::remove_dir_all(&folder);
        let modules = Modules::read(&written(&folder, files));
        circles(&imports_side_by_side(&modules)).len()
    };
    let lib = ("lib.rs", "mod a; mod b; pub use b::B;");
    // Two files import each other, one through a re-export of their parent.
    assert_eq!(
        found(&[lib, ("a.rs", "pub struct A; fn f(_: crate::B) {}"), ("b.rs", "pub struct B(super::a::A);")]),
        1
    );
    // The same from a file in a folder, and in a macro's arguments.
    assert_eq!(
        found(&[
            lib,
            ("a/mod.rs", "mod inner; pub struct A;"),
            ("a/inner.rs", "use crate::*; fn f() { println!(\"{}\", crate::b::B(1)) }"),
            ("b.rs", "pub struct B(crate::a::A);"),
        ]),
        1
    );
    // These are no circles: an import in one direction, imports of tests, and those between a module and its own
    // submodule.
    assert_eq!(
        found(&[
            lib,
            ("a/mod.rs", "mod inner; pub use inner::A;"),
            ("a/inner.rs", "use super::super::a; pub struct A; #[cfg(test)] mod tests { use crate::B; }"),
            ("b.rs", "pub struct B(crate::a::A);"),
        ]),
        0
    );
}

#[test]
fn path_attributes_lead_to_the_compilers_file() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("paths");
    let _ = std::fs::remove_dir_all(&folder);
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "#[path = \"beside.rs\"] mod beside; mod block { #[path = \"within.rs\"] mod within; }"),
        ("beside.rs", "mod below;"),
        ("below.rs", ""),
        ("a/block/within.rs", ""),
        ("b/mod.rs", "#[path = \"../of_b.rs\"] mod of_b; mod block { #[path = \"within.rs\"] mod within; }"),
        ("of_b.rs", ""),
        ("b/block/within.rs", ""),
    ];
    let modules = Modules::read(&written(&folder, &files));
    let name = |file: &Path| {
        let file = file.canonicalize().expect("a file that is read");
        file.strip_prefix(folder.canonicalize().expect("a folder")).expect("of the crate").to_owned()
    };
    let found: BTreeSet<PathBuf> = modules.files().map(name).collect();
    assert_eq!(found, files.iter().map(|(name, _)| PathBuf::from(name)).collect());
}
