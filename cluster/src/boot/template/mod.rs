//! Templates: one guest boots until just before it would get its card, and is stopped and saved. Nodes are restored
//! from copies of it.
//!
//! A template has no card, no name and no host folder. A restored guest gets its card by hot plug, and everything else
//! from its agent, as a booted guest does. So model time begins with the card, and no state of a NIC is ever saved.
//!
//! The cache stores a template under a hash of all its inputs ([`Recipe`]). Concurrent runs make it only once. The
//! launcher verifies it before each use, and rebuilds it if it is damaged or owned by another user.

mod build;
mod memory;
mod saved;

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use niclab_images::{Cache, Progress};
use rustix::fs::CWD;

pub use self::{
    build::TemplateError,
    memory::GuestMemory,
    saved::{Damage, Saved},
};
use crate::{
    host::own,
    plan::recipe::{KIND, Recipe},
};

/// Maximum number of cached templates: a few memory sizes and sets of packages, each with and without a shared folder.
const KEPT: usize = 16;

impl Recipe {
    /// Makes the template, unless a valid one exists.
    ///
    /// # Errors
    /// [`TemplateError`]; a failed attempt leaves no files.
    pub fn ensure(&self, cache: &Cache, progress: &dyn Progress) -> Result<(), TemplateError> {
        let key = self.key();
        if let Some(folder) = cache.find_derived(KIND, &key) {
            match self.verify(&folder) {
                Ok(()) => return Ok(()),
                Err(damage) => progress.note(&format!("{} is rebuilt: {damage}", folder.display())),
            }
        }
        let is_good = |folder: &Path| self.verify(folder).is_ok();
        let make = |staging: &Path| build::build(self, staging, progress);
        cache.derive(KIND, &key, KEPT, progress, is_good, make).map(drop)
    }

    fn verify(&self, folder: &Path) -> Result<(), Damage> {
        Saved::open(folder, self.memory_bytes())?.verify()
    }

    fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }
}

/// The number of templates in the cache. They are verified only when they are used.
#[must_use]
pub fn count(cache: &Cache) -> usize {
    cache.count_derived(KIND)
}

/// Begins a node's console with the console output of its template.
///
/// # Errors
/// If the file cannot be written. A template without a console adds nothing.
pub fn begin_console(template: &Path, console: &Path) -> io::Result<()> {
    let text = fs::read(template.join(saved::CONSOLE)).unwrap_or_default();
    own::create_file(&CWD, console)?.write_all(&text)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::*;
    use crate::{host::process::ProcessPlan, notes::Notes};

    /// A recipe whose QEMU is a shell that runs `script`.
    fn recipe(script: &str) -> Recipe {
        let args = vec!["-c".to_owned(), script.to_owned()];
        Recipe {
            timeout_factor: 1,
            inputs: vec!["test".to_owned()],
            memory_mib: 1,
            has_share: false,
            qemu: ProcessPlan { program: "/bin/sh".into(), args, env: BTreeMap::new(), log: PathBuf::new() },
        }
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        (folder, cache)
    }

    /// The cache entries next to intact templates.
    fn left(cache: &Cache, recipe: &Recipe) -> Vec<PathBuf> {
        let folder = recipe.folder(cache);
        let entries = fs::read_dir(folder.parent().unwrap()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| *path != folder).collect()
    }

    #[test]
    fn guest_that_does_not_come_up_is_an_error_and_leaves_no_files() {
        let (_folder, cache) = cache();
        let recipe = recipe("echo it has no such machine >&2; exit 1");
        let error = recipe.ensure(&cache, &Notes::default()).unwrap_err().to_string();
        assert!(error.contains("did not come up") && error.contains("no such machine"), "{error}");
        assert!(!recipe.folder(&cache).exists());
        assert!(left(&cache, &recipe).is_empty(), "{:?}", left(&cache, &recipe));
    }

    #[test]
    fn intact_template_is_used_and_damaged_one_is_rebuilt() {
        let (_folder, cache) = cache();
        let recipe = recipe("exit 1");
        let put = |staging: &Path| {
            saved::tests::template_in(staging);
            Ok::<_, TemplateError>(())
        };
        cache.derive(KIND, &recipe.key(), KEPT, &Notes::default(), |_| true, put).unwrap();
        let notes = Notes::default();
        recipe.ensure(&cache, &notes).unwrap();
        assert!(notes.0.lock().unwrap().is_empty());

        fs::write(recipe.folder(&cache).join(crate::plan::recipe::STATE), "").unwrap();
        assert!(matches!(recipe.ensure(&cache, &notes), Err(TemplateError::Guest { .. })));
        let said = notes.0.lock().unwrap().join("\n");
        assert!(said.contains("is rebuilt: its file state is damaged"), "{said}");
        assert!(!recipe.folder(&cache).exists(), "what is damaged is gone");
    }
}
