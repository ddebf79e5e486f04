//! Which file of a crate refers to which: its modules are read with `syn`, and every path in them is followed to the
//! file that defines what it names. A re-export is followed to its origin, so that it makes no import of its own.
//!
//! What is compiled for tests alone is left out: a test may look at whatever it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// Re-exports of re-exports are followed this far.
const MAX_REEXPORTS: usize = 16;

/// A path as it is written, without its generic arguments.
type Segments = Vec<String>;

/// A crate's modules, the first one its root.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
}

#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What `use` brings in under a name.
    names: BTreeMap<String, Segments>,
    /// Where `use path::*` takes names from.
    globs: Vec<Segments>,
    /// Every path that its code holds.
    references: Vec<Segments>,
}

impl Modules {
    /// Reads the crate whose root is `file`.
    ///
    /// # Panics
    /// When a module's file is missing or is no Rust.
    #[must_use]
    pub fn read(file: &Path) -> Self {
        let mut modules = Self::default();
        modules.read_file(file, &folder_of(file), None);
        modules
    }

    /// The pairs of files of which the first refers to the second.
    #[must_use]
    pub fn imports(&self) -> BTreeSet<(PathBuf, PathBuf)> {
        let mut imports = BTreeSet::new();
        for (number, module) in self.modules.iter().enumerate() {
            let targets = module.references.iter().chain(module.names.values()).chain(&module.globs);
            for target in targets.filter_map(|path| self.resolve(number, path, 0)) {
                let target = &self.modules[target].file;
                if *target != module.file {
                    imports.insert((module.file.clone(), target.clone()));
                }
            }
        }
        imports
    }

    /// The files that it is written in.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.modules.iter().map(|module| module.file.as_path())
    }

    /// Each file and the file that declares it.
    #[must_use]
    pub fn parents(&self) -> BTreeMap<PathBuf, PathBuf> {
        let of = |module: &Module| Some((module.file.clone(), self.modules[module.parent?].file.clone()));
        self.modules.iter().filter_map(of).filter(|(child, parent)| child != parent).collect()
    }

    fn read_file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, file, folder, parent)
    }

    /// Reads a module whose submodules lie in `folder`.
    fn read_items(&mut self, items: &[Item], file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let number = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        let mut paths = Paths::default();
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.unraw().to_string();
                    let inner = folder.join(&name);
                    let child = if let Some((_, items)) = &module.content {
                        self.read_items(items, file, &inner, Some(number))
                    } else if let Some(path) = path_attribute(&module.attrs) {
                        // It starts at the file's own folder; only in a block it starts at where that one's submodules
                        // lie.
                        let is_in_block = parent.is_some_and(|parent| self.modules[parent].file == file);
                        let file = if is_in_block { folder.join(path) } else { folder_of(file).join(path) };
                        self.read_file(&file, &folder_of(&file), Some(number))
                    } else {
                        let flat = folder.join(format!("{name}.rs"));
                        let file = if flat.is_file() { flat } else { inner.join("mod.rs") };
                        self.read_file(&file, &inner, Some(number))
                    };
                    self.modules[number].children.insert(name, child);
                }
                Item::Use(import) => {
                    let module = &mut self.modules[number];
                    flatten(&import.tree, &mut Vec::new(), &mut |name, path| match name {
                        Some(name) if name != "_" => drop(module.names.insert(name, path)),
                        Some(_) => module.references.push(path),
                        None => module.globs.push(path),
                    });
                }
                _ => paths.visit_item(item),
            }
        }
        self.modules[number].references.extend(paths.found);
        number
    }

    /// The module that defines what `path` names, as it is read in the module `number`; none if it is of another crate.
    fn resolve(&self, number: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let module = &self.modules[number];
        let start = match first.as_str() {
            "crate" => 0,
            "self" => number,
            "super" => self.modules[number].parent?,
            name => match module.children.get(name) {
                Some(&child) => child,
                // Brought in by `use`: only what follows the name can be new.
                None => self.resolve(
                    number,
                    module.names.get(name).filter(|_| depth < MAX_REEXPORTS)?,
                    depth + 1,
                )?,
            },
        };
        Some(self.descend(start, rest, depth))
    }

    /// The module that defines what `path` names below the module `number`.
    fn descend(&self, number: usize, path: &[String], depth: usize) -> usize {
        let Some((name, rest)) = path.split_first() else { return number };
        if name == "super" {
            return self.modules[number].parent.map_or(number, |parent| self.descend(parent, rest, depth));
        }
        self.lookup(number, name, depth).map_or(number, |inner| self.descend(inner, rest, depth))
    }

    /// The module that `name` is or comes from, where the module `number` does not define it itself.
    fn lookup(&self, number: usize, name: &str, depth: usize) -> Option<usize> {
        let module = &self.modules[number];
        if let Some(&child) = module.children.get(name) {
            return Some(child);
        }
        if depth >= MAX_REEXPORTS {
            return None;
        }
        if let Some(path) = module.names.get(name) {
            // `use self::name` or a name of another crate leads nowhere new.
            return self.resolve(number, path, depth + 1).filter(|&found| found != number);
        }
        let inner = |glob: &Segments| {
            let from = self.resolve(number, glob, depth + 1).filter(|&from| from != number)?;
            self.lookup(from, name, depth + 1)
        };
        module.globs.iter().find_map(inner)
    }
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

/// Calls `found` with each name that a `use` brings in (none for `*`) and its whole path.
fn flatten(tree: &UseTree, before: &mut Segments, found: &mut impl FnMut(Option<String>, Segments)) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.unraw().to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
        UseTree::Glob(_) => found(None, before.clone()),
        UseTree::Name(name) if name.ident == "self" => found(before.last().cloned(), before.clone()),
        UseTree::Name(name) => {
            let name = name.ident.unraw().to_string();
            found(Some(name.clone()), [before.as_slice(), &[name]].concat());
        }
        UseTree::Rename(rename) => {
            let mut path = before.clone();
            if rename.ident != "self" {
                path.push(rename.ident.unraw().to_string());
            }
            found(Some(rename.rename.unraw().to_string()), path);
        }
    }
}

/// Collects the paths of code, those in the arguments of macros too.
#[derive(Default)]
struct Paths {
    found: Vec<Segments>,
}

impl Paths {
    /// Macro arguments need not parse; what looks like a path there is taken for one.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.found.push(std::mem::take(&mut path));
                    }
                    path.push(ident.unraw().to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Punct(_) | TokenTree::Literal(_) => colons = 0,
                TokenTree::Group(group) => {
                    colons = 0;
                    self.scan(group.stream());
                }
            }
        }
        self.found.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        flatten(&import.tree, &mut Vec::new(), &mut |_, path| self.found.push(path));
    }
    // `pub(super)` and `pub(in path)` say who may import, and import nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect());
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// Whether code with these attributes is compiled for tests alone.
#[must_use]
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        condition == "test" || condition.replace(' ', "").starts_with("all(test")
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let syn::Expr::Lit(literal) = &attribute.meta.require_name_value().ok()?.value else { return None };
        let syn::Lit::Str(path) = &literal.lit else { return None };
        Some(path.value())
    })
}

/// The attributes of an item.
#[must_use]
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
