//! Writes a cpio archive in the "newc" format of a Linux initramfs.
//!
//! Format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. A member has a 110-byte header of
//! hexadecimal numbers, its name with a zero byte, and its data; name and data are padded to four bytes.

use std::collections::BTreeSet;
use std::io::{self, Write};

const MAGIC: &str = "070701";
const HEADER_BYTES: usize = 110;
const TRAILER: &str = "TRAILER!!!";

const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_SYMLINK: u32 = 0o120_000;
const TYPE_CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive while it is written. All members belong to root and have no date, so the same content gives the same
/// bytes. Parent folders are added automatically.
pub(crate) struct Archive<W> {
    out: W,
    next_inode: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out, next_inode: 1, folders: BTreeSet::new() }
    }

    /// A folder; `mode` has the permission bits.
    pub fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.parents(path)?;
        if self.folders.insert(path.to_owned()) {
            self.member(path, TYPE_DIRECTORY | mode, (0, 0), &[])?;
        }
        Ok(())
    }

    /// A regular file.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.member(path, TYPE_FILE | mode, (0, 0), data)
    }

    /// A symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parents(path)?;
        self.member(path, TYPE_SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    /// A character device.
    pub fn character_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> io::Result<()> {
        self.parents(path)?;
        self.member(path, TYPE_CHARACTER_DEVICE | mode, (major, minor), &[])
    }

    /// Ends the archive and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.next_inode = 0;
        self.member(TRAILER, 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) if !self.folders.contains(parent) => self.directory(parent, 0o755),
            _ => Ok(()),
        }
    }

    fn member(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        let too_big = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: over 4 GiB"));
        let size = u32::try_from(data.len()).map_err(too_big)?;
        let name_size = u32::try_from(path.len() + 1).map_err(too_big)?;
        let (uid, gid, links, time, checksum) = (0, 0, 1, 0, 0);
        let fields = [
            self.next_inode,
            mode,
            uid,
            gid,
            links,
            time,
            size,
            0,
            0,
            device.0,
            device.1,
            name_size,
            checksum,
        ];
        self.next_inode += 1;
        self.out.write_all(MAGIC.as_bytes())?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(HEADER_BYTES + path.len() + 1)?;
        self.out.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        let zeros = [0; 3];
        self.out.write_all(zeros.get(..written.next_multiple_of(4) - written).unwrap_or_default())
    }
}

#[cfg(test)]
pub(crate) mod reader {
    use super::TRAILER;

    /// A reader that is written from the format's description, independently of the writer.
    pub(crate) fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut members = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let number = |i: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * i..14 + 8 * i]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = &bytes[110..110 + name_size];
            assert_eq!(name.last(), Some(&0));
            let name = std::str::from_utf8(&name[..name_size - 1]).unwrap().to_owned();
            let data_at = (110 + name_size).next_multiple_of(4);
            let data = bytes[data_at..data_at + size].to_vec();
            bytes = &bytes[(data_at + size).next_multiple_of(4)..];
            if name == TRAILER {
                assert!(bytes.is_empty());
                return members;
            }
            members.push((name, mode, data));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::reader::read;
    use super::*;

    #[test]
    fn parents_come_first_and_once() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b/c", 0o755, b"hello").unwrap();
        archive.symlink("a/b/l", "c").unwrap();
        archive.directory("a/b", 0o700).unwrap();
        archive.character_device("dev/null", 0o666, 1, 3).unwrap();
        let members = read(&archive.finish().unwrap());
        let names: Vec<&str> = members.iter().map(|(n, ..)| n.as_str()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/b/l", "dev", "dev/null"]);
        assert_eq!(members[2], ("a/b/c".into(), 0o100_755, b"hello".to_vec()));
        assert_eq!(members[3], ("a/b/l".into(), 0o120_777, b"c".to_vec()));
        assert_eq!(members[5].1, 0o020_666);
    }

    proptest! {
        #[test]
        fn every_file_reads_back(
            files in prop::collection::btree_map("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..40), 0..12)
        ) {
            let mut archive = Archive::new(Vec::new());
            for (name, data) in &files {
                archive.file(name, 0o644, data).unwrap();
            }
            let bytes = archive.finish().unwrap();
            prop_assert_eq!(bytes.len() % 4, 0);
            let expected: Vec<_> = files.into_iter().map(|(n, d)| (n, 0o100_644, d)).collect();
            prop_assert_eq!(read(&bytes), expected);
        }
    }
}
