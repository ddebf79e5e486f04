//! Firmware images: the assembler's output, which the kernel's firmware loader passes on, and the device loads.
//!
//! All numbers are little-endian. Header of [`HEADER_BYTES`]: magic (8 bytes), format version (4), number of words
//! (4), check sequence (4), zero (4). Then [`WORD_BYTES`] for each word. The check sequence is CRC-32 (ISO-HDLC, as in
//! Ethernet and zip) of all bytes before and after it.
//!
//! Constants: ours, the image's format.

use alloc::vec::Vec;

use crc::{CRC_32_ISO_HDLC, Crc, Table};
use thiserror::Error;

use crate::MAX_WORDS;
use crate::word::{DecodeError, Word};

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"nicmatch";

/// The version of the format, and of the instruction set, that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes before the words.
pub const HEADER_BYTES: usize = 24;

/// Bytes of a word: its 164 bits and zeros.
pub const WORD_BYTES: usize = 24;

/// Offset of the check sequence.
const CHECK_AT: usize = 16;

/// Offset of the bytes that must be zero.
const RESERVED_AT: usize = 20;

static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// Why bytes are not an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It is shorter than its header states, or than any header.
    #[error("the image has {found} bytes and needs {needed}: it was cut off; assemble it again")]
    Truncated {
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// It is longer than its header states.
    #[error("{extra} bytes follow the image's last word; assemble it again")]
    Excess {
        /// Surplus bytes.
        extra: usize,
    },
    /// It is another file.
    #[error("this is not match unit firmware: it does not begin with `nicmatch`")]
    Magic,
    /// It has another format version.
    #[error("the image has version {found}, but this build reads {FORMAT_VERSION}; assemble it again")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is damaged.
    #[error(
        "the image's check sequence is {found:#010x}, but its bytes give {expected:#010x}: it is damaged; \
         assemble it again"
    )]
    Check {
        /// The check sequence found.
        found: u32,
        /// The check sequence expected.
        expected: u32,
    },
    /// The reserved part of the header is not zero.
    #[error("the image's reserved bytes, 20 to 23, are {found:#x} but must be zero; assemble it again")]
    Reserved {
        /// Their value.
        found: u32,
    },
    /// It has no words, or too many.
    #[error("the program has {found} words, but the unit holds 1 to {most}")]
    Words {
        /// Words found.
        found: usize,
        /// Maximum words.
        most: usize,
    },
    /// A word is invalid.
    #[error("word {address}: {error}")]
    Word {
        /// Its address.
        address: usize,
        /// The reason.
        #[source]
        error: DecodeError,
    },
    /// A branch target is not in the program.
    #[error("word {address} branches to {target}, past the program's {words} words")]
    Target {
        /// The branch's address.
        address: usize,
        /// Its target.
        target: usize,
        /// Words of the program.
        words: usize,
    },
}

/// The image of a program.
#[must_use]
pub fn write(program: &[Word]) -> Vec<u8> {
    let mut image = Vec::with_capacity(HEADER_BYTES + program.len() * WORD_BYTES);
    image.extend(MAGIC);
    image.extend(FORMAT_VERSION.to_le_bytes());
    image.extend((program.len() as u32).to_le_bytes());
    image.extend([0; HEADER_BYTES - CHECK_AT]);
    for word in program {
        word.encode().iter().for_each(|part| image.extend(part.to_le_bytes()));
    }
    let check = check_sequence(&image);
    image[CHECK_AT..CHECK_AT + 4].copy_from_slice(&check.to_le_bytes());
    image
}

/// The number of words of an image, and its check sequence; `None` without a complete header.
#[must_use]
pub fn inspect(image: &[u8]) -> Option<(usize, u32)> {
    let words = image.len().checked_sub(HEADER_BYTES)? / WORD_BYTES;
    Some((words, little_endian(image.get(CHECK_AT..CHECK_AT + 4)?)))
}

/// The program of an image, with at most `most` words.
///
/// # Errors
/// [`ImageError`] names the fault; no part of a bad image may be executed.
pub fn read(image: &[u8], most: usize) -> Result<Vec<Word>, ImageError> {
    let header = image.get(..HEADER_BYTES);
    if !image.starts_with(&MAGIC[..image.len().min(MAGIC.len())]) {
        return Err(ImageError::Magic);
    }
    let header = header.ok_or(ImageError::Truncated { found: image.len(), needed: HEADER_BYTES })?;
    let number = |at: usize| header.get(at..at + 4).map_or(0, little_endian);
    if number(8) != FORMAT_VERSION {
        return Err(ImageError::Version { found: number(8) });
    }
    let words = number(12) as usize;
    let most = most.min(MAX_WORDS);
    if !(1..=most).contains(&words) {
        return Err(ImageError::Words { found: words, most });
    }
    let needed = HEADER_BYTES + words * WORD_BYTES;
    if image.len() < needed {
        return Err(ImageError::Truncated { found: image.len(), needed });
    }
    if image.len() > needed {
        return Err(ImageError::Excess { extra: image.len() - needed });
    }
    let (found, expected) = (number(CHECK_AT), check_sequence(image));
    if found != expected {
        return Err(ImageError::Check { found, expected });
    }
    if number(RESERVED_AT) != 0 {
        return Err(ImageError::Reserved { found: number(RESERVED_AT) });
    }
    let (encoded, _) = image[HEADER_BYTES..].as_chunks::<WORD_BYTES>();
    let decoded = encoded.iter().enumerate().map(|(address, bytes)| {
        Word::decode(parts(bytes)).map_err(|error| ImageError::Word { address, error })
    });
    let program: Vec<Word> = decoded.collect::<Result<_, _>>()?;
    check_targets(&program)?;
    Ok(program)
}

/// Checks that every branch that can be taken leads into the program.
///
/// # Errors
/// [`ImageError::Target`].
pub fn check_targets(program: &[Word]) -> Result<(), ImageError> {
    for (address, word) in program.iter().enumerate() {
        let target = word.branch.target.index();
        if !word.branch.is_never() && target >= program.len() {
            return Err(ImageError::Target { address, target, words: program.len() });
        }
    }
    Ok(())
}

fn parts(bytes: &[u8; WORD_BYTES]) -> [u64; 3] {
    let (parts, _) = bytes.as_chunks::<8>();
    let mut words = [0; 3];
    words.iter_mut().zip(parts).for_each(|(word, part)| *word = u64::from_le_bytes(*part));
    words
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn check_sequence(image: &[u8]) -> u32 {
    let mut digest = CRC.digest();
    digest.update(image.get(..CHECK_AT).unwrap_or(image));
    digest.update(image.get(CHECK_AT + 4..).unwrap_or_default());
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::bits::Bits;
    use crate::word::Branch;

    fn program(words: usize) -> Vec<Word> {
        let word = |address| {
            let target = Bits::truncated(address as u32);
            Word { branch: Branch { sense: true, target, ..Branch::default() }, ..Word::default() }
        };
        (0..words).map(word).collect()
    }

    #[test]
    fn image_faults_are_named() {
        let good = write(&program(3));
        assert_eq!(read(&good, 3), Ok(program(3)));
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut image = good.clone();
            change(&mut image);
            read(&image, 3).unwrap_err()
        };
        assert_eq!(changed(&|image| image[0] = b'N'), ImageError::Magic);
        assert_eq!(changed(&|image| image[8] = 2), ImageError::Version { found: 2 });
        assert_eq!(changed(&|image| image[12] = 4), ImageError::Words { found: 4, most: 3 });
        assert!(matches!(
            changed(&|image| image.truncate(95)),
            ImageError::Truncated { found: 95, needed: 96 }
        ));
        assert_eq!(changed(&|image| image.truncate(5)), ImageError::Truncated { found: 5, needed: 24 });
        assert_eq!(changed(&|image| image.push(0)), ImageError::Excess { extra: 1 });
        assert!(matches!(changed(&|image| image[30] ^= 1), ImageError::Check { .. }));
        assert_eq!(read(&[], 3), Err(ImageError::Truncated { found: 0, needed: 24 }));
        assert_eq!(read(&write(&[]), 3), Err(ImageError::Words { found: 0, most: 3 }));
        let error = read(&write(&program(3)[1..]), 3).unwrap_err();
        assert_eq!(error, ImageError::Target { address: 1, target: 2, words: 2 });
    }

    /// An image with one byte changed and a matching check sequence.
    fn resealed(at: usize, byte: u8) -> Vec<u8> {
        let mut image = write(&vec![Word::default(); 2]);
        image[at] = byte;
        let check = check_sequence(&image);
        image[CHECK_AT..CHECK_AT + 4].copy_from_slice(&check.to_le_bytes());
        image
    }

    #[test]
    fn reserved_bytes_are_zero() {
        assert!(read(&resealed(RESERVED_AT, 0), 2).is_ok());
        for (at, found) in [(20, 1), (21, 0x100), (22, 0x1_0000), (23, 0x100_0000)] {
            assert_eq!(read(&resealed(at, 1), 2), Err(ImageError::Reserved { found }));
        }
    }

    #[test]
    fn an_undefined_word_is_named_with_its_address() {
        let image = resealed(HEADER_BYTES + WORD_BYTES + 23, 1);
        let error = read(&image, 2).unwrap_err();
        assert_eq!(error, ImageError::Word { address: 1, error: DecodeError::TooWide });
        assert!(error.to_string().starts_with("word 1: "), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            flip: prop::sample::Index,
        ) {
            let _ = read(&bytes, 16);
            let mut image = write(&program(4));
            let place = flip.index(image.len() * 8);
            image[place / 8] ^= 1 << (place % 8);
            prop_assert!(read(&image, 16).is_err(), "bit {}", place);
        }
    }
}
