//! The unpacked guest kernel, which a guest boots directly.
//!
//! The BIOS enters a packed kernel (bzImage) in real mode, and the kernel unpacks itself, which is a large part of the
//! boot of an emulated processor. niclab unpacks it once; QEMU then loads it as an ELF file and enters it at the
//! address in its PVH note. Sources: Linux, Documentation/arch/x86/boot.rst; Xen's "x86/HVM direct boot ABI".

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, U32};

use crate::cache::{Cache, CacheLock, Key, KeyBuilder};
use crate::error::{At, ImageError};
use crate::progress::Progress;
use crate::tree::Tree;

/// Change it if the code below builds something else.
const RECIPE: &str = "vmlinux 1";

pub(crate) const KIND: &str = "kernel";

/// The file in the artefact.
pub(crate) const FILE: &str = "kernel";

/// `XEN_ELFNOTE_PHYS32_ENTRY`: the note with the 32-bit entry address.
const PVH_ENTRY_NOTE: u32 = 18;

/// Offsets in the header of a packed kernel.
mod header {
    /// Number of sectors of real-mode code after the first one; 0 means 4.
    pub const SETUP_SECTORS: usize = 0x1f1;
    /// "HdrS".
    pub const MAGIC: usize = 0x202;
    /// Version of the boot protocol; the payload has a field since 2.08.
    pub const VERSION: usize = 0x206;
    /// The payload's offset from the protected-mode code.
    pub const PAYLOAD_OFFSET: usize = 0x248;
    /// The payload's length, including its last four bytes, which are the unpacked length.
    pub const PAYLOAD_BYTES: usize = 0x24c;
}

/// Why a kernel cannot be booted unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Unpackable {
    #[error("it is not a packed kernel with a header of boot protocol 2.08 or later")]
    Header,
    #[error("its payload is outside of the file")]
    Payload,
    #[error("it is not compressed by zstd, or damaged: {0}")]
    Zstd(String),
    #[error("its content is not an ELF file with a PVH note")]
    NoPvhNote,
}

pub(crate) fn key(tree: &Tree) -> Key {
    KeyBuilder::new(RECIPE).text(&tree.id.to_string()).text(&tree.kernel_release).finish()
}

/// The kernel for `-kernel`, made if needed. If it cannot be unpacked, the packed kernel is used, with a message.
pub(crate) fn ensure(
    cache: &Cache,
    lock: &CacheLock,
    tree: &Tree,
    progress: &dyn Progress,
) -> Result<PathBuf, ImageError> {
    let folder = cache.artefact(lock, KIND, &key(tree), |staging| {
        let packed_path = tree.packed_kernel();
        let packed = fs::read(&packed_path).at("read", &packed_path)?;
        let kernel = unpack(&packed).unwrap_or_else(|why| {
            let path = packed_path.display();
            progress
                .note(&format!("guests boot the packed kernel {path}, which takes seconds longer: {why}"));
            packed
        });
        write(&staging.join(FILE), &kernel)
    })?;
    Ok(folder.join(FILE))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    fs::write(path, bytes).at("write", path)
}

/// The ELF file in a packed kernel.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, Unpackable> {
    // The last four bytes are the unpacked length for the boot code.
    let payload = payload(packed)?.split_last_chunk::<4>().ok_or(Unpackable::Payload)?.0;
    let zstd = |error: &dyn std::fmt::Display| Unpackable::Zstd(error.to_string());
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(payload).map_err(|error| zstd(&error))?;
    let mut kernel = Vec::new();
    decoder.read_to_end(&mut kernel).map_err(|error| zstd(&error))?;
    if has_pvh_note(&kernel) { Ok(kernel) } else { Err(Unpackable::NoPvhNote) }
}

fn payload(packed: &[u8]) -> Result<&[u8], Unpackable> {
    let word =
        |offset: usize| packed.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let version = packed.get(header::VERSION..).and_then(|bytes| bytes.first_chunk());
    let is_header = packed.get(header::MAGIC..).is_some_and(|bytes| bytes.starts_with(b"HdrS"));
    if !is_header || version.is_none_or(|bytes| u16::from_le_bytes(*bytes) < 0x208) {
        return Err(Unpackable::Header);
    }
    let sectors = packed.get(header::SETUP_SECTORS).map_or(0, |sectors| usize::from(*sectors));
    let protected = 512 * (1 + if sectors == 0 { 4 } else { sectors });
    let (offset, bytes) =
        word(header::PAYLOAD_OFFSET).zip(word(header::PAYLOAD_BYTES)).ok_or(Unpackable::Header)?;
    let begin = protected + offset;
    packed.get(begin..begin + bytes).ok_or(Unpackable::Payload)
}

/// Whether `kernel` is an ELF file with an entry address for a boot without a BIOS.
fn has_pvh_note(kernel: &[u8]) -> bool {
    let find = || -> object::Result<bool> {
        let elf = FileHeader64::<LittleEndian>::parse(kernel)?;
        let endian = elf.endian()?;
        for segment in elf.program_headers(endian, kernel)?.iter().filter(|s| s.p_type(endian) == PT_NOTE) {
            let Some(mut notes) = segment.notes(endian, kernel)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == b"Xen" && note.n_type(endian) == PVH_ENTRY_NOTE {
                    return Ok(note.desc().len() >= size_of::<U32<LittleEndian>>());
                }
            }
        }
        Ok(false)
    };
    find().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// An ELF file with one segment: a note of this owner and kind.
    fn elf(owner: &[u8; 4], kind: u32) -> Vec<u8> {
        let halves = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let longs = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let entry = 0x100_0000;
        [
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
            // An x86-64 executable with one program header of 56 bytes, directly after this header.
            [halves(&[2, 62]), words(&[1]), longs(&[entry.into(), 64, 0]), words(&[0])].concat(),
            halves(&[64, 56, 1, 0, 0, 0]),
            [words(&[PT_NOTE, 4]), longs(&[120, 0, 0, 20, 20, 4])].concat(),
            [words(&[4, 4, kind]), owner.to_vec(), words(&[entry])].concat(),
        ]
        .concat()
    }

    fn packed(payload: &[u8], version: u16, sectors: u8) -> Vec<u8> {
        let protected = 512 * (1 + if sectors == 0 { 4 } else { usize::from(sectors) });
        let mut file = vec![0; protected + 16];
        file[header::SETUP_SECTORS] = sectors;
        file[header::MAGIC..header::MAGIC + 4].copy_from_slice(b"HdrS");
        file[header::VERSION..header::VERSION + 2].copy_from_slice(&version.to_le_bytes());
        file[header::PAYLOAD_OFFSET..header::PAYLOAD_OFFSET + 4].copy_from_slice(&16_u32.to_le_bytes());
        let bytes = payload.len() as u32 + 4;
        file[header::PAYLOAD_BYTES..header::PAYLOAD_BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
        file.extend(payload);
        file.extend([0; 4]);
        file
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    #[test]
    fn a_packed_kernel_is_unpacked() {
        let kernel = elf(b"Xen\0", PVH_ENTRY_NOTE);
        for sectors in [0, 39] {
            assert_eq!(unpack(&packed(&zstd(&kernel), 0x20f, sectors)).unwrap(), kernel);
        }
    }

    #[test]
    fn kernels_without_direct_boot_are_rejected() {
        let kernel = zstd(&elf(b"Xen\0", PVH_ENTRY_NOTE));
        assert_eq!(unpack(b"short"), Err(Unpackable::Header));
        assert_eq!(unpack(&packed(&kernel, 0x207, 4)), Err(Unpackable::Header));
        let whole = packed(&kernel, 0x20f, 4);
        assert_eq!(unpack(&whole[..whole.len() - 1]), Err(Unpackable::Payload));
        assert!(matches!(unpack(&packed(b"\xfd7zXZ\0 and so on", 0x20f, 4)), Err(Unpackable::Zstd(_))));
        for other in [zstd(b"text"), zstd(&elf(b"GNU\0", PVH_ENTRY_NOTE)), zstd(&elf(b"Xen\0", 17))] {
            assert_eq!(unpack(&packed(&other, 0x20f, 4)), Err(Unpackable::NoPvhNote));
        }
    }
}
