//! The folder into which everything is built.
//!
//! ```text
//! $NICLAB_CACHE/                     or $XDG_CACHE_HOME/niclab, or ~/.cache/niclab
//!   v1/                              one folder per layout version; other versions are never changed
//!     lock                           held during a build
//!     debug-kernel-lock              held during the build of a debug kernel, which other builds do not wait for
//!     apt/                           the private apt's state
//!     tree/KEY/  module/KEY/  initramfs/KEY/  disk/KEY/   and artefacts of other packages ([`Cache::derive`])
//! ```
//!
//! An artefact's key is a hash of all its inputs. niclab builds the artefact in a sibling folder, syncs it, marks it
//! and then renames it. So an artefact with its final name and mark is complete, even after an interruption.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fmt, io, process};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};
use sha2::{Digest, Sha256};

use crate::error::{At, ImageError};
use crate::progress::Progress;

/// Version of the folder layout. Raise it if an older niclab could misread the folder, or a newer one an old folder.
pub(crate) const LAYOUT: &str = "v1";

/// File that marks a complete artefact; its content is the artefact's key.
const MARK: &str = ".complete";

/// Prefix of a folder in which an artefact is being built.
const STAGING_PREFIX: &str = ".building-";

/// The cache, which finds and builds artefacts.
#[derive(Debug, Clone)]
pub struct Cache {
    base: PathBuf,
}

impl Cache {
    /// The user's cache: `NICLAB_CACHE`, or `$XDG_CACHE_HOME/niclab`, or `~/.cache/niclab`. Does not create it.
    ///
    /// # Errors
    /// [`ImageError::NoCacheFolder`] if no variable names a folder; an I/O error if the working folder is gone.
    pub fn locate() -> Result<Self, ImageError> {
        let folder = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = folder("NICLAB_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|dir| dir.join("niclab")))
            .or_else(|| folder("HOME").map(|dir| dir.join(".cache/niclab")))
            .ok_or(ImageError::NoCacheFolder)?;
        Self::at(&base)
    }

    /// A cache in this folder.
    ///
    /// # Errors
    /// An I/O error if `base` is relative and the working folder is gone.
    pub fn at(base: &Path) -> Result<Self, ImageError> {
        // The path must be absolute, because apt and QEMU run in other folders.
        Ok(Self { base: std::path::absolute(base).at("find", base)? })
    }

    /// The folder of this layout version.
    pub fn root(&self) -> PathBuf {
        self.base.join(LAYOUT)
    }

    /// Folders of other layout versions, made by an older or newer niclab. niclab never changes them; the user may
    /// remove them.
    pub fn other_layouts(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.base) else { return Vec::new() };
        let is_layout =
            |name: &str| name != LAYOUT && name.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
        let mut found: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_layout))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// Checks whether a run can use the cache: it belongs to the user or can be made, it is writable, and programs can
    /// be started from it. Creates nothing. Returns the free bytes.
    ///
    /// # Errors
    /// [`ImageError`] with the problem and its fix.
    pub fn check(&self) -> Result<u64, ImageError> {
        let root = self.root();
        let is_there = fs::symlink_metadata(&root).is_ok();
        if is_there {
            check_owner(&root)?;
        }
        let place = root.ancestors().find(|path| path.exists()).unwrap_or(&root);
        let unwritable =
            |errno: Errno| ImageError::UnwritableCache { path: place.to_owned(), source: errno.into() };
        access(place, AccessFlags::W_OK | AccessFlags::X_OK).map_err(unwritable)?;
        check_exec(&root, place)?;
        let about = statvfs(place).map_err(io::Error::from).at("examine", place)?;
        Ok(about.blocks_available() * about.fragment_size())
    }

    /// The path of an artefact, if it is complete.
    pub(crate) fn find(&self, kind: &str, key: &Key) -> Option<PathBuf> {
        let path = self.root().join(kind).join(&key.0);
        is_whole(&path, key).then_some(path)
    }

    /// The complete artefacts of a kind.
    pub(crate) fn list(&self, kind: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.root().join(kind)) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .flatten()
            .filter(|entry| {
                entry.file_name().to_str().is_some_and(|n| is_whole(&entry.path(), &Key(n.into())))
            })
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// Removes all but the `keep` newest artefacts of a kind that is cheap to rebuild.
    pub(crate) fn prune(&self, _lock: &CacheLock, kind: &str, keep: usize) -> Result<(), ImageError> {
        let built = |path: &PathBuf| fs::metadata(path.join(MARK)).and_then(|mark| mark.modified()).ok();
        let mut found = self.list(kind);
        found.sort_by_key(|path| std::cmp::Reverse(built(path)));
        found.iter().skip(keep).try_for_each(|path| remove_all(path))
    }

    /// The path of an artefact that [`Cache::derive`] built, if it is complete.
    pub fn find_derived(&self, kind: &str, key: &Key) -> Option<PathBuf> {
        self.find(kind, key)
    }

    /// The number of complete artefacts of a kind that [`Cache::derive`] built.
    pub fn count_derived(&self, kind: &str) -> usize {
        self.list(kind).len()
    }

    /// The path of the artefact of this kind and key, whether or not it exists.
    pub fn derived_path(&self, kind: &str, key: &Key) -> PathBuf {
        self.root().join(kind).join(&key.0)
    }

    /// Finds an artefact of another package, or has `build` build it in the given folder, once even if several
    /// processes want it at the same time. Besides it, the `keep` newest of its kind stay. If `is_good` rejects an
    /// artefact, it is rebuilt.
    ///
    /// # Errors
    /// Those of `build`; [`ImageError`] when the cache cannot be used.
    pub fn derive<E: From<ImageError>>(
        &self,
        kind: &str,
        key: &Key,
        keep: usize,
        progress: &dyn Progress,
        is_good: impl FnOnce(&Path) -> bool,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let lock = self.lock(progress)?;
        if let Some(path) = self.find(kind, key) {
            if is_good(&path) {
                return Ok(path);
            }
            remove_all(&path)?;
        }
        let path = self.artefact(&lock, kind, key, build)?;
        self.prune(&lock, kind, keep)?;
        Ok(path)
    }

    /// Waits until no other niclab builds in this cache. The lock is released when the value is dropped or the process
    /// ends.
    pub(crate) fn lock(&self, progress: &dyn Progress) -> Result<CacheLock, ImageError> {
        self.lock_named("lock", progress)
    }

    /// A separate lock for artefacts that take so long that other builds should not wait for them. If a process takes
    /// both locks, it takes this one first.
    pub(crate) fn lock_named(&self, name: &str, progress: &dyn Progress) -> Result<CacheLock, ImageError> {
        let root = self.root();
        fs::create_dir_all(&root).at("create", &root)?;
        protect(&root)?;
        let path = root.join(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.at("open", &path)?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((busy, Errno::EWOULDBLOCK)) => {
                file = busy;
                let mut owner = String::new();
                let _ = (&file).take(32).read_to_string(&mut owner);
                let owner = owner.trim();
                progress.note(&format!("process {owner} is building in {}; waiting for it", root.display()));
                Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| lock_error(&path, e))?
            }
            Err((_, error)) => return Err(lock_error(&path, error)),
        };
        let mut lock = CacheLock { lock };
        lock.write_owner().at("write", &path)?;
        Ok(lock)
    }

    /// The artefact of this key. If it is missing, `build` builds it in the given folder.
    pub(crate) fn artefact<E: From<ImageError>>(
        &self,
        _lock: &CacheLock,
        kind: &str,
        key: &Key,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.find(kind, key) {
            return Ok(path);
        }
        let folder = self.root().join(kind);
        fs::create_dir_all(&folder).at("create", &folder)?;
        remove_staging(&folder)?;
        let staging = folder.join(format!("{STAGING_PREFIX}{key}"));
        // Not writable by other users with any umask.
        DirBuilder::new().mode(0o700).create(&staging).at("create", &staging)?;
        *unfinished() = Some(staging.clone());
        if let Err(error) = build(&staging) {
            // A signal ends the build's programs, and then this process by [`abandon`], which waits for this lock until
            // a large folder is removed. A killed build leaves its folder to the next build.
            let mut unfinished = unfinished();
            let _ = fs::remove_dir_all(&staging);
            *unfinished = None;
            return Err(error);
        }
        *unfinished() = None;
        let path = folder.join(&key.0);
        // A folder without its mark is damaged, or was not made by niclab.
        remove_all(&path)?;
        publish(&staging, &path, key)?;
        Ok(path)
    }
}

/// The artefact that this process is building. There is only one, because builds are serialized.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<PathBuf>> {
    // No code panics while it holds the lock.
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the incomplete build of this process; call it before a signal ends the process.
pub fn abandon() {
    if let Some(staging) = unfinished().take() {
        // The next build removes what this cannot remove.
        let _ = fs::remove_dir_all(staging);
    }
}

/// Proof that no other process builds.
#[derive(Debug)]
pub(crate) struct CacheLock {
    lock: Flock<File>,
}

impl CacheLock {
    /// Writes this process's id for waiting processes.
    fn write_owner(&mut self) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        writeln!(self.lock, "{}", process::id())
    }
}

/// Protects the cache from other users. niclab removes whole folders in it, so it must belong to the user.
fn protect(root: &Path) -> Result<(), ImageError> {
    check_owner(root)?;
    check_exec(root, root)?;
    // By descriptor, so that a link that replaced the folder meanwhile is not followed.
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY).bits();
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(root).at("open", root)?;
    // Disk images contain the nodes' ssh keys.
    folder.set_permissions(fs::Permissions::from_mode(0o700)).at("protect", root)
}

fn check_owner(root: &Path) -> Result<(), ImageError> {
    let about = fs::symlink_metadata(root).at("examine", root)?;
    if !about.is_dir() || about.uid() != nix::unistd::getuid().as_raw() {
        return Err(ImageError::ForeignCache(root.to_owned()));
    }
    Ok(())
}

/// Checks whether programs can be started. `place` is on the cache's file system; the cache may not exist yet.
fn check_exec(root: &Path, place: &Path) -> Result<(), ImageError> {
    let about = statvfs(place).map_err(io::Error::from).at("examine", place)?;
    if about.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(ImageError::NoExecCache(root.to_owned()));
    }
    Ok(())
}

fn lock_error(path: &Path, errno: Errno) -> ImageError {
    ImageError::Io { action: "lock", path: path.to_owned(), source: errno.into() }
}

fn is_whole(path: &Path, key: &Key) -> bool {
    fs::read_to_string(path.join(MARK)).is_ok_and(|mark| mark.trim() == key.0)
}

/// Syncs a finished folder, marks it, and gives it its final name.
fn publish(staging: &Path, path: &Path, key: &Key) -> Result<(), ImageError> {
    let folder = File::open(staging).at("open", staging)?;
    // After a power cut, the mark must not exist without the data.
    nix::unistd::syncfs(&folder).map_err(io::Error::from).at("sync", staging)?;
    let mark = staging.join(MARK);
    let mut file = File::create(&mark).at("create", &mark)?;
    writeln!(file, "{key}").at("write", &mark)?;
    file.sync_all().at("sync", &mark)?;
    folder.sync_all().at("sync", staging)?;
    fs::rename(staging, path).at("rename", staging)?;
    let parent = path.parent().unwrap_or(path);
    File::open(parent).and_then(|dir| dir.sync_all()).at("sync", parent)
}

/// Removes the folders of interrupted builds. The caller holds the lock.
fn remove_staging(folder: &Path) -> Result<(), ImageError> {
    for entry in fs::read_dir(folder).at("list", folder)? {
        let entry = entry.at("list", folder)?;
        if entry.file_name().to_string_lossy().starts_with(STAGING_PREFIX) {
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder and its contents, if it exists.
pub(crate) fn remove_all(path: &Path) -> Result<(), ImageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", path),
        _ => Ok(()),
    }
}

/// A hash of all inputs of an artefact; also the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Collects the inputs of an artefact into its [`Key`].
pub struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// `recipe` names the code that builds the artefact; change the name if the code produces something else.
    pub fn new(recipe: &str) -> Self {
        Self(Sha256::new()).text(recipe)
    }

    /// Adds an input. Lengths are hashed, too, so moving a byte from one input to the next changes the key.
    pub fn bytes(mut self, input: &[u8]) -> Self {
        self.0.update((input.len() as u64).to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds a text.
    pub fn text(self, input: &str) -> Self {
        self.bytes(input.as_bytes())
    }

    /// Adds a file's content.
    ///
    /// # Errors
    /// An I/O error when it cannot be read.
    pub fn file(self, path: &Path) -> Result<Self, ImageError> {
        Ok(self.bytes(&fs::read(path).at("read", path)?))
    }

    /// The first 128 bits are enough, because no attacker chooses inputs of a user's own cache.
    pub fn finish(self) -> Key {
        let digest = self.0.finalize();
        Key(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::progress::Silent;

    #[test]
    fn cache_that_is_a_link_is_refused_and_its_target_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join(LAYOUT)).unwrap();
        let refused = Cache::at(dir.path()).unwrap().lock(&Silent).unwrap_err();
        assert!(matches!(refused, ImageError::ForeignCache(_)), "{refused}");
        assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn check_accepts_a_cache_that_is_there_and_one_that_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Cache::at(&dir.path().join("not/yet")).unwrap().check().unwrap() > 0);
        assert!(!dir.path().join("not").exists(), "check creates nothing");
        drop(Cache::at(dir.path()).unwrap().lock(&Silent).unwrap());
        assert!(Cache::at(dir.path()).unwrap().check().is_ok());
    }

    #[test]
    fn check_refuses_a_cache_of_another_owner_or_that_is_a_link() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", dir.path().join(LAYOUT)).unwrap();
        let refused = Cache::at(dir.path()).unwrap().check().unwrap_err();
        assert!(matches!(refused, ImageError::ForeignCache(_)), "{refused}");
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // Root can change a folder's owner; other users use a folder of root.
        let is_given = std::os::unix::fs::chown(dir.path(), Some(12_345), None).is_ok();
        let foreign = if is_given { dir.path() } else { Path::new("/") };
        assert!(matches!(check_owner(foreign), Err(ImageError::ForeignCache(_))));
    }

    fn key(text: &str) -> Key {
        KeyBuilder::new("test").text(text).finish()
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        (dir, cache)
    }

    fn fill(dir: &Path) -> Result<(), ImageError> {
        fs::write(dir.join("data"), "whole").at("write", dir)
    }

    #[test]
    fn built_once_then_found() {
        let (_dir, cache) = cache();
        let lock = cache.lock(&Silent).unwrap();
        let first = cache.artefact(&lock, "tree", &key("a"), fill).unwrap();
        let never = |_: &Path| -> Result<(), ImageError> { panic!("built twice") };
        let second = cache.artefact(&lock, "tree", &key("a"), never).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(first.join("data")).unwrap(), "whole");
        assert_eq!(cache.list("tree"), [second]);
    }

    #[test]
    fn a_failed_build_is_not_found_and_the_next_starts_clean() {
        let (_dir, cache) = cache();
        let lock = cache.lock(&Silent).unwrap();
        let failed = cache.artefact(&lock, "tree", &key("a"), |dir| {
            fs::write(dir.join("half"), "").unwrap();
            Err(ImageError::NoModuleSource)
        });
        assert!(failed.is_err());
        assert_eq!(
            fs::read_dir(cache.root().join("tree")).unwrap().count(),
            0,
            "the failed build's folder is removed"
        );
        assert_eq!(cache.find("tree", &key("a")), None);
        let path = cache.artefact(&lock, "tree", &key("a"), fill).unwrap();
        assert!(!path.join("half").exists());
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "the interrupted build's folder is removed");
    }

    /// The states after a kill or a power cut: each must be rebuilt.
    #[test]
    fn build_killed_at_any_step_is_not_complete() {
        for state in ["staging", "named without mark", "mark of another key", "empty mark"] {
            let (_dir, cache) = cache();
            let kind = cache.root().join("tree");
            let name = match state {
                "staging" => format!("{STAGING_PREFIX}{}", key("a")),
                _ => key("a").to_string(),
            };
            fs::create_dir_all(kind.join(&name)).unwrap();
            fs::write(kind.join(&name).join("half"), "").unwrap();
            match state {
                "mark of another key" => fs::write(kind.join(&name).join(MARK), key("b").0).unwrap(),
                "empty mark" => fs::write(kind.join(&name).join(MARK), "").unwrap(),
                _ => (),
            }
            assert_eq!(cache.find("tree", &key("a")), None, "{state}");
            assert!(cache.list("tree").is_empty(), "{state}");
            let lock = cache.lock(&Silent).unwrap();
            let path = cache.artefact(&lock, "tree", &key("a"), fill).unwrap();
            assert!(path.join("data").exists() && !path.join("half").exists(), "{state}");
        }
    }

    #[test]
    fn another_layout_is_recognised_and_left_alone() {
        let (dir, cache) = cache();
        fs::create_dir_all(dir.path().join("v0/tree")).unwrap();
        fs::create_dir_all(dir.path().join("various")).unwrap();
        assert_eq!(cache.other_layouts(), [dir.path().join("v0")]);
        let lock = cache.lock(&Silent).unwrap();
        cache.artefact(&lock, "tree", &key("a"), fill).unwrap();
        assert!(dir.path().join("v0/tree").exists());
    }

    #[test]
    fn the_newest_artefacts_are_kept() {
        let (_dir, cache) = cache();
        let lock = cache.lock(&Silent).unwrap();
        let built: Vec<PathBuf> =
            ["a", "b", "c"].iter().map(|k| cache.artefact(&lock, "tree", &key(k), fill).unwrap()).collect();
        for (age_s, path) in (0..).zip(built.iter().rev()) {
            let mark = File::options().append(true).open(path.join(MARK)).unwrap();
            mark.set_modified(std::time::SystemTime::now() - Duration::from_secs(age_s)).unwrap();
        }
        cache.prune(&lock, "tree", 2).unwrap();
        let left: Vec<bool> = built.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [false, true, true]);
    }

    /// Sends each note to a channel, so that a test can wait for it.
    struct Notes(Mutex<Sender<String>>);

    impl Progress for Notes {
        fn started(&self, _: &str) {}
        fn detail(&self, _: &str, _: &str) {}
        fn done(&self, _: &str, _: Duration) {}
        fn note(&self, text: &str) {
            self.0.lock().unwrap().send(text.to_owned()).unwrap();
        }
    }

    #[test]
    fn second_builder_waits_and_names_the_first() {
        let (_dir, cache) = cache();
        let first = cache.lock(&Silent).unwrap();
        let (send, notes) = channel();
        let second = {
            let cache = cache.clone();
            std::thread::spawn(move || cache.lock(&Notes(Mutex::new(send))).map(drop))
        };
        let note = notes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(note.contains(&format!("process {} is building", process::id())), "{note}");
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    }

    #[test]
    fn boundaries_of_inputs_change_the_key() {
        let ab_c = KeyBuilder::new("r").text("ab").text("c").finish();
        let a_bc = KeyBuilder::new("r").text("a").text("bc").finish();
        assert_ne!(ab_c, a_bc);
    }
}
