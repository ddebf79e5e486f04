//! A template's folder: which file contains what, and how it is verified.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::CWD;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::memory::{GuestMemory, Layout, crc32};
use crate::{
    host::own::{self, Found},
    plan::recipe::STATE,
};

/// The version of the folder's format.
const VERSION: u32 = 1;

/// The pages of memory that are not zero.
pub const MEMORY: &str = "memory";
/// The guest's console output.
pub const CONSOLE: &str = "console";
/// Sizes and checksums of the other files: [`Contents`].
const CONTENTS: &str = "template.json";

/// Upper bound on the size of any page list.
const MAX_CONTENTS_BYTES: u64 = 64 << 20;

/// Sizes and checksums of a template's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    /// [`VERSION`].
    version: u32,
    memory: Layout,
    state_bytes: u64,
    state_crc32: u32,
}

/// Why a template is rejected.
#[derive(Debug, Error)]
pub enum Damage {
    /// The folder belongs to another user, or others can write to it.
    #[error("its folder cannot be trusted: {0}")]
    Foreign(#[from] own::Foreign),
    /// There is no folder.
    #[error("its folder does not exist")]
    Absent,
    /// The folder cannot be opened.
    #[error("its folder cannot be opened: {0}")]
    Folder(#[source] io::Error),
    /// A file is missing, a link, or owned by another user.
    #[error("its file {0} is missing, or is not a regular file of yours")]
    Missing(&'static str),
    /// A file cannot be read.
    #[error("its file {0} cannot be read: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The list of contents is invalid.
    #[error("its list of contents, template.json, is invalid: {0}")]
    Contents(String),
    /// It has another version.
    #[error("it has version {0}, but this niclab uses version {VERSION}")]
    Version(u32),
    /// A file does not have its recorded size or checksum.
    #[error("its file {0} is damaged")]
    Changed(&'static str),
    /// The memory cannot be copied.
    #[error("its memory cannot be copied: {0}")]
    Copy(#[source] io::Error),
}

/// An intact template.
#[derive(Debug)]
pub struct Saved {
    contents: Contents,
    memory: File,
    state: File,
}

impl Saved {
    /// Opens a template whose files have their recorded sizes.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn open(folder: &Path, memory_bytes: u64) -> Result<Self, Damage> {
        let opened = match own::open_path(folder) {
            Ok(Found::Ours(opened)) => opened,
            Ok(Found::Foreign(why)) => return Err(why.into()),
            Ok(Found::Nothing) => return Err(Damage::Absent),
            Err(error) => return Err(Damage::Folder(error)),
        };
        let open = |name: &'static str| match own::open_file(&opened, name) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(Damage::Missing(name)),
            Err(error) => Err(Damage::Io(name, error)),
        };
        let mut text = Vec::new();
        let read = open(CONTENTS)?.take(MAX_CONTENTS_BYTES).read_to_end(&mut text);
        read.map_err(|error| Damage::Io(CONTENTS, error))?;
        let contents = parse(&text)?;
        if contents.memory.bytes != memory_bytes || !contents.memory.is_valid() {
            return Err(Damage::Contents("its memory has another size, or pages outside of it".to_owned()));
        }
        let (memory, state) = (open(MEMORY)?, open(STATE)?);
        for (name, file, bytes) in
            [(MEMORY, &memory, contents.memory.saved_bytes()), (STATE, &state, contents.state_bytes)]
        {
            let about = file.metadata().map_err(|error| Damage::Io(name, error))?;
            if about.len() != bytes {
                return Err(Damage::Changed(name));
            }
        }
        Ok(Self { contents, memory, state })
    }

    /// Verifies the checksums of all files.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn verify(&self) -> Result<(), Damage> {
        for (name, file, sum) in [
            (MEMORY, &self.memory, self.contents.memory.crc32),
            (STATE, &self.state, self.contents.state_crc32),
        ] {
            if crc32(file).map_err(|error| Damage::Io(name, error))? != sum {
                return Err(Damage::Changed(name));
            }
        }
        Ok(())
    }

    /// Writes the memory and the list of contents, next to the state that QEMU wrote.
    ///
    /// # Errors
    /// An I/O error, such as a full disk.
    pub fn write(folder: &Path, memory: &GuestMemory) -> io::Result<()> {
        let file = own::create_file(&CWD, &folder.join(MEMORY))?;
        // The memory is written page by page.
        let mut file = io::BufWriter::with_capacity(1 << 20, file);
        let layout = memory.save(&mut file)?;
        file.flush()?;
        let state = File::open(folder.join(STATE))?;
        let (state_bytes, state_crc32) = (state.metadata()?.len(), crc32(&state)?);
        let contents = Contents { version: VERSION, memory: layout, state_bytes, state_crc32 };
        let mut file = own::create_file(&CWD, &folder.join(CONTENTS))?;
        file.write_all(&serde_json::to_vec(&contents)?)
    }

    /// A copy of the memory, for one node.
    ///
    /// # Errors
    /// [`Damage::Copy`] if it cannot be read, or the host is out of memory.
    pub fn memory(&self) -> Result<GuestMemory, Damage> {
        GuestMemory::load(&self.contents.memory, &self.memory).map_err(Damage::Copy)
    }
}

fn parse(text: &[u8]) -> Result<Contents, Damage> {
    /// The field that every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let not_understood = |error: serde_json::Error| Damage::Contents(error.to_string());
    match serde_json::from_slice::<Versioned>(text).map_err(not_understood)?.version {
        VERSION => serde_json::from_slice(text).map_err(not_understood),
        other => Err(Damage::Version(other)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    /// Bytes of the memory of [`template_in`].
    pub const BYTES: u64 = 1 << 20;

    /// A template with a few pages of memory.
    pub fn template_in(folder: &Path) {
        fs::write(folder.join(STATE), "everything but memory").unwrap();
        let memory = GuestMemory::zeroed(BYTES).unwrap();
        let file = File::from(memory.descriptor().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], 12_288).unwrap();
        Saved::write(folder, &memory).unwrap();
    }

    fn verify(folder: &Path) -> Result<(), Damage> {
        Saved::open(folder, BYTES)?.verify()
    }

    #[test]
    fn opened_template_has_the_saved_memory() {
        let folder = tempfile::tempdir().unwrap();
        template_in(folder.path());
        let saved = Saved::open(folder.path(), BYTES).unwrap();
        saved.verify().unwrap();
        assert_eq!(saved.contents.memory.saved_bytes(), 2 * 4096);
        let memory = File::from(saved.memory().unwrap().descriptor().unwrap());
        let mut bytes = vec![0; 16_384];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, 8192).unwrap();
        assert!(bytes[..4096] == [0; 4096] && bytes[4096..9096] == [7; 5000] && bytes[9096..] == [0; 7288]);
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        type Harm = fn(&Path);
        let harms: [(&str, Harm); 12] = [
            ("memory is missing", |folder| fs::remove_file(folder.join(MEMORY)).unwrap()),
            ("state is missing", |folder| fs::remove_file(folder.join(STATE)).unwrap()),
            ("template.json is missing", |folder| fs::remove_file(folder.join(CONTENTS)).unwrap()),
            ("memory is damaged", |folder| {
                File::options().write(true).open(folder.join(MEMORY)).unwrap().set_len(4096).unwrap();
            }),
            ("memory is damaged", |folder| {
                let file = File::options().write(true).open(folder.join(MEMORY)).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[1], 4999).unwrap();
            }),
            ("state is damaged", |folder| fs::write(folder.join(STATE), "everything but memorY").unwrap()),
            ("state is damaged", |folder| fs::write(folder.join(STATE), "").unwrap()),
            ("contents", |folder| fs::write(folder.join(CONTENTS), "{\"version\":1").unwrap()),
            ("version 2", |folder| fs::write(folder.join(CONTENTS), "{\"version\":2,\"new\":[]}").unwrap()),
            ("contents", |folder| {
                let text = fs::read_to_string(folder.join(CONTENTS)).unwrap();
                fs::write(folder.join(CONTENTS), text.replace("\"page\":3", "\"page\":300")).unwrap();
            }),
            ("memory is missing, or is not a regular file of yours", |folder| {
                fs::rename(folder.join(MEMORY), folder.join("elsewhere")).unwrap();
                symlink("elsewhere", folder.join(MEMORY)).unwrap();
            }),
            ("others can write", |folder| {
                fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
            }),
        ];
        for (words, harm) in harms {
            let folder = tempfile::tempdir().unwrap();
            template_in(folder.path());
            verify(folder.path()).unwrap();
            harm(folder.path());
            let damage = verify(folder.path()).expect_err(words).to_string();
            assert!(damage.contains(words), "{words}: {damage}");
        }
        let folder = tempfile::tempdir().unwrap();
        template_in(folder.path());
        assert!(Saved::open(folder.path(), BYTES + 4096).is_err(), "of another memory");
    }
}
