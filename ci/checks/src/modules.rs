//! Finds which files of a crate refer to each other. Reads the modules with `syn`, and follows every path in them to
//! the file that defines its item. A re-export is followed to its origin, so it is no import itself.
//!
//! Code that is compiled only for tests is left out: a test may import any file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// The maximum number of re-exports that a path is followed through.
const MAX_REEXPORTS: usize = 16;

/// A path as the source has it, without its generic arguments.
type Segments = Vec<String>;

/// A crate's modules. The first one is its root.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
}

#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// The names that `use` imports, with their paths.
    names: BTreeMap<String, Segments>,
    /// The paths of `use path::*`.
    globs: Vec<Segments>,
    /// Every path in its code.
    references: Vec<Segments>,
}

impl Modules {
    /// Reads the crate whose root is `file`.
    ///
    /// If a module's file is missing or is not valid Rust.
    #[must_use]
    pub fn read(file: &Path) -> Self {
        let mut modules = Self::default();
        modules.read_file(file, &folder_of(file), None);
        modules
    }

    /// Pairs of files: the first refers to the second.
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

    /// The crate's files.
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

    /// Reads a module whose submodules are in `folder`.
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
                        // The attribute's path is relative to the file's own folder. Inside an inline module it is
                        // relative to the folder of that module's submodules.
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

    /// The module that defines the item `path`, seen from module `number`. `None` if the item belongs to another crate.
    fn resolve(&self, number: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let module = &self.modules[number];
        let start = match first.as_str() {
            "crate" => 0,
            "self" => number,
            "super" => self.modules[number].parent?,
            name => match module.children.get(name) {
                Some(&child) => child,
                // The `use` itself is an import already, so only the rest of the path can be a new one.
                None => self.resolve(
                    number,
                    module.names.get(name).filter(|_| depth < MAX_REEXPORTS)?,
                    depth + 1,
                )?,
            },
        };
        Some(self.descend(start, rest, depth))
    }

    /// The module that defines the item `path` below module `number`.
    fn descend(&self, number: usize, path: &[String], depth: usize) -> usize {
        let Some((name, rest)) = path.split_first() else { return number };
        if name == "super" {
            return self.modules[number].parent.map_or(number, |parent| self.descend(parent, rest, depth));
        }
        self.lookup(number, name, depth).map_or(number, |inner| self.descend(inner, rest, depth))
    }

    /// The module that `name` is or comes from, if module `number` does not define it itself.
    fn lookup(&self, number: usize, name: &str, depth: usize) -> Option<usize> {
        let module = &self.modules[number];
        if let Some(&child) = module.children.get(name) {
            return Some(child);
        }
        if depth >= MAX_REEXPORTS {
            return None;
        }
        if let Some(path) = module.names.get(name) {
            // `use self::name` and names of other crates lead to no other module.
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

/// Calls `found` with each name that a `use` imports (`None` for `*`) and its complete path.
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

/// Collects the paths of code, also in the arguments of macros.
#[derive(Default)]
struct Paths {
    found: Vec<Segments>,
}

impl Paths {
    /// Macro arguments need not parse as Rust, so every token sequence that looks like a path counts as one.
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
    // `pub(super)` and `pub(in path)` set visibility and import nothing.
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

/// Whether code with these attributes is compiled only for tests.
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
