//! Firmware images: what the assembler writes, the kernel's firmware loader carries, and the device loads.
//!
//! All numbers are little-endian. Header of [`HEADER_BYTES`]: magic (8 bytes), format version (4), number of words (4),
//! check sequence (4), zero (4). Then [`WORD_BYTES`] for each word. The check sequence is CRC-32 (ISO-HDLC, as in
//! Ethernet and zip) of everything before it and everything behind it.
//!
//! Constants: ours, the image's format.

use alloc::vec::Vec;

use crc::{CRC_32_ISO_HDLC, Crc, Table};
use thiserror::Error;

use crate::MAX_WORDS;
use crate::word::{DecodeError, Word};

/// What an image begins with.
pub const MAGIC: [u8; 8] = *b"nicmatch";

/// The version of the format, and of the instruction set, that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes before the words.
pub const HEADER_BYTES: usize = 24;

/// Bytes of a word: its 164 bits and zeros.
pub const WORD_BYTES: usize = 24;

/// Place of the check sequence.
const CHECK_AT: usize = 16;

/// Place of what must be zero.
const RESERVED_AT: usize = 20;

static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// Why bytes are no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It is shorter than its header says, or than any header.
    #[error("the image has {found} bytes and needs {needed}: it was cut off; assemble it again")]
    Truncated {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there should be.
        needed: usize,
    },
    /// It is longer than its header says.
    #[error("{extra} bytes stand behind the image's last word")]
    Excess {
        /// How many.
        extra: usize,
    },
    /// It is something else.
    #[error("this is no match unit firmware: it does not begin with `nicmatch`")]
    Magic,
    /// It is of another build.
    #[error("the image is of version {found}, and this build reads {FORMAT_VERSION}; assemble it again")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It was damaged.
    #[error(
        "the image's check sequence is {found:#010x}, and its bytes give {expected:#010x}: it is damaged"
    )]
    Check {
        /// What it says.
        found: u32,
        /// What it should say.
        expected: u32,
    },
    /// The part of the header that is kept for later versions is not zero.
    #[error("the image's reserved bytes, 20 to 23, hold {found:#x} and must be zero; assemble it again")]
    Reserved {
        /// What they hold.
        found: u32,
    },
    /// There is nothing to execute, or too much.
    #[error("a program of {found} words; the unit holds 1 to {most}")]
    Words {
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// A word cannot be executed.
    #[error("word {address}: {error}")]
    Word {
        /// Where it stands.
        address: usize,
        /// Why not.
        #[source]
        error: DecodeError,
    },
    /// A branch leads out of the program.
    #[error("word {address} branches to {target}, behind the program's {words} words")]
    Target {
        /// Where the branch stands.
        address: usize,
        /// Where it leads.
        target: usize,
        /// How many words there are.
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

/// How many words an image of a program holds, and its check sequence; `None` where there is no header.
#[must_use]
pub fn inspect(image: &[u8]) -> Option<(usize, u32)> {
    let words = image.len().checked_sub(HEADER_BYTES)? / WORD_BYTES;
    Some((words, little_endian(image.get(CHECK_AT..CHECK_AT + 4)?)))
}

/// The program of an image, of `most` words at most.
///
/// # Errors
/// [`ImageError`] says what is wrong with it; nothing of a bad image is to be executed.
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

/// Whether every branch that can be taken leads into the program.
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
    fn what_is_wrong_with_an_image_is_named() {
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

    /// An image with one byte changed and the check sequence that belongs to it.
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
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), flip: prop::sample::Index) {
            let _ = read(&bytes, 16);
            let mut image = write(&program(4));
            let place = flip.index(image.len() * 8);
            image[place / 8] ^= 1 << (place % 8);
            prop_assert!(read(&image, 16).is_err(), "bit {}", place);
        }
    }
}
