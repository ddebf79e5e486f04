//! Folders of the user's own: opened without following links, removed by descriptor.
//!
//! A path may name something else at each use: another user can replace its target by a link between a check and the
//! use. So everything to be removed or written is opened first, checked through its descriptor, and emptied through it.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat, unlinkat},
    io::Errno,
};
use thiserror::Error;

/// Maximum depth of a cluster's folder, far more than niclab makes: it contains only files. Each level uses a
/// descriptor.
const MAX_DEPTH: u32 = 16;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a folder is not accepted as niclab's own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Foreign {
    /// A link, which is not followed, or a file.
    #[error("it is a link or a file, not a folder")]
    NotAFolder,
    /// Another user's.
    #[error("it belongs to user {0}")]
    Owner(u32),
    /// Other users can create or remove files there.
    #[error("its mode is {0:o}, so others can write to it")]
    Open(u32),
    /// niclab did not make it.
    #[error("it has no mark of niclab's, so niclab did not make it")]
    Unmarked,
}

/// The result of opening a path.
#[derive(Debug)]
pub enum Found<T> {
    /// Nothing.
    Nothing,
    /// An entry that is left alone.
    Foreign(Foreign),
    /// A folder of our own.
    Ours(T),
}

/// Opens a folder of our own by its path. Links above its last component are followed.
pub fn open_path(path: &Path) -> io::Result<Found<OwnedFd>> {
    let opened = openat(CWD, path, FOLDER, Mode::empty());
    classify(opened, || statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW))
}

/// Opens a folder of our own in `parent`; `name` is one component.
pub fn open_in(parent: &impl AsFd, name: &str) -> io::Result<Found<OwnedFd>> {
    let opened = openat(parent, name, FOLDER, Mode::empty());
    classify(opened, || statat(parent, name, AtFlags::SYMLINK_NOFOLLOW))
}

fn classify(
    opened: Result<OwnedFd, Errno>,
    stat: impl FnOnce() -> Result<Stat, Errno>,
) -> io::Result<Found<OwnedFd>> {
    match opened {
        Ok(folder) => {
            let about = fstat(&folder)?;
            let mode = about.st_mode & 0o7777;
            let uid = rustix::process::getuid().as_raw();
            Ok(if about.st_uid != uid {
                Found::Foreign(Foreign::Owner(about.st_uid))
            } else if mode & 0o022 != 0 {
                Found::Foreign(Foreign::Open(mode))
            } else {
                Found::Ours(folder)
            })
        }
        Err(Errno::NOENT) => Ok(Found::Nothing),
        // Linux's errors for a link, if a folder is to be opened without following links.
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(Found::Foreign(Foreign::NotAFolder)),
        Err(Errno::ACCESS) => match stat() {
            Ok(about) if about.st_uid != rustix::process::getuid().as_raw() => {
                Ok(Found::Foreign(Foreign::Owner(about.st_uid)))
            }
            _ => Err(Errno::ACCESS.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Opens a file of the user's own in `folder`, to read and write; `None` if it is missing, a link, a pipe or another
/// user's.
pub fn open_file(folder: &impl AsFd, name: &str) -> io::Result<Option<File>> {
    // `NONBLOCK`: opening a pipe must not wait for its other end.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let about = fstat(&file)?;
    let is_ours = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile
        && about.st_uid == rustix::process::getuid().as_raw();
    Ok(is_ours.then(|| file.into()))
}

/// Whether `folder` has an entry of this name.
pub fn is_there(folder: &impl AsFd, name: &str) -> bool {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Makes a file that only its owner can read, or empties an existing one. A link is not followed.
pub fn create_file(folder: &impl AsFd, name: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Whether the name in `parent` still refers to this folder.
pub fn is_still(parent: &impl AsFd, name: &str, folder: &impl AsFd) -> io::Result<bool> {
    let (there, here) = (statat(parent, name, AtFlags::SYMLINK_NOFOLLOW), fstat(folder)?);
    Ok(there.is_ok_and(|there| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)))
}

/// Removes all entries of a folder except the file `last`. Links are removed, not followed; mounts stay.
pub fn empty(folder: &impl AsFd, last: &str) -> io::Result<()> {
    empty_to(folder, Some(last), MAX_DEPTH)
}

fn empty_to(folder: &impl AsFd, last: Option<&str>, depth: u32) -> io::Result<()> {
    let device = fstat(folder)?.st_dev;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..")
            || last.is_some_and(|last| last.as_bytes() == name.to_bytes())
        {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => remove_inner(folder, name, device, depth)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn remove_inner(folder: &impl AsFd, name: &CStr, device: u64, depth: u32) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let inner = openat(folder, name, FOLDER, Mode::empty())?;
    if fstat(&inner)?.st_dev != device {
        return Err(Errno::XDEV.into());
    }
    empty_to(&inner, None, depth)?;
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}
