//! Nodes that need not boot: one guest is booted to just before its card is there, stopped and saved; a node is a copy
//! of it.
//!
//! What is saved has no card, no name and no host folder. A restored guest gets its card as a hot plug, and everything
//! else as a guest that booted: from its agent. So model time begins with the card, and no state of a NIC is ever
//! saved.
//!
//! A template lies in the cache under a hash of all that it was made from ([`Recipe`]). It is made once, however many
//! want it, and looked through before each use: one that is damaged, or somebody else's, is made again.

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

/// How many are kept: for a few sizes of memory and sets of packages, each with and without a shared folder.
const KEPT: usize = 16;

impl Recipe {
    /// Makes the template, unless it is there and whole.
    ///
    /// # Errors
    /// [`TemplateError`]; nothing is left of what was begun.
    pub fn ensure(&self, cache: &Cache, progress: &dyn Progress) -> Result<(), TemplateError> {
        let key = self.key();
        if let Some(folder) = cache.find_derived(KIND, &key) {
            match self.verify(&folder) {
                Ok(()) => return Ok(()),
                Err(damage) => progress.note(&format!("{} is made anew: {damage}", folder.display())),
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

/// How many templates the cache has. Whether they are whole is looked at when they are used.
#[must_use]
pub fn count(cache: &Cache) -> usize {
    cache.count_derived(KIND)
}

/// Begins a node's console with what its template had written to it.
///
/// # Errors
/// When the file cannot be written. A template without a console has nothing to begin with.
pub fn begin_console(template: &Path, console: &Path) -> io::Result<()> {
    let text = fs::read(template.join(saved::CONSOLE)).unwrap_or_default();
    own::create_file(&CWD, console)?.write_all(&text)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf, sync::Mutex, time::Duration};

    use super::*;
    use crate::host::process::ProcessPlan;

    /// Keeps what is said.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Progress for Notes {
        fn started(&self, _: &str) {}
        fn detail(&self, _: &str, _: &str) {}
        fn done(&self, _: &str, _: Duration) {}
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    /// A recipe whose QEMU is a shell that does this.
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

    /// What stands in the cache beside whole templates.
    fn left(cache: &Cache, recipe: &Recipe) -> Vec<PathBuf> {
        let folder = recipe.folder(cache);
        let entries = fs::read_dir(folder.parent().unwrap()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| *path != folder).collect()
    }

    #[test]
    fn a_guest_that_does_not_come_up_is_an_error_and_leaves_nothing() {
        let (_folder, cache) = cache();
        let recipe = recipe("echo it has no such machine >&2; exit 1");
        let error = recipe.ensure(&cache, &Notes::default()).unwrap_err().to_string();
        assert!(error.contains("did not come up") && error.contains("no such machine"), "{error}");
        assert!(!recipe.folder(&cache).exists());
        assert!(left(&cache, &recipe).is_empty(), "{:?}", left(&cache, &recipe));
    }

    #[test]
    fn a_whole_template_is_used_and_a_damaged_one_is_made_anew_and_not_used() {
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
        assert!(said.contains("is made anew: its file state is damaged"), "{said}");
        assert!(!recipe.folder(&cache).exists(), "what is damaged is gone");
    }
}
