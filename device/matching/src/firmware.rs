//! The program that the unit executes.

use std::io;
use std::path::{Path, PathBuf};

use niclab_asm::{Program, Register, assemble, lines};
use niclab_isa::image::{self, ImageError};
use niclab_isa::{MAX_WORDS, Word};
use niclab_source::render;
use thiserror::Error;

/// The source of the built-in program, for its labels. The units' image has the same words.
const PORTALS: &str = include_str!("../../../firmware/matching/programs/portals.nma");

/// The source of the built-in program that keeps a list.
const QUEUE: &str = include_str!("../../../firmware/matching/programs/queue.nma");

/// A program cannot be executed.
#[derive(Debug, Error)]
pub enum FirmwareError {
    /// The file cannot be read.
    #[error("cannot read the program {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The image is invalid.
    #[error("{}: {error}", file.display())]
    Image {
        /// The file.
        file: PathBuf,
        /// The fault.
        #[source]
        error: ImageError,
    },
    /// The source has errors.
    #[error("{complaints}{}: {error}", file.display())]
    Source {
        /// The file.
        file: PathBuf,
        /// The errors, each with its line.
        complaints: String,
        /// The number of errors.
        #[source]
        error: niclab_source::Rejected,
    },
    /// The file is neither an image nor a source.
    #[error(
        "{} is neither a firmware image nor a source\n  fix: write a source as described in \
         docs/use/match/MACHINE.md; `niclab asm FILE.nma -o FILE.nmi` assembles it to an image",
        .0.display()
    )]
    Neither(PathBuf),
}

/// A program with the names of its words and registers.
#[derive(Clone, Debug)]
pub struct Firmware {
    name: String,
    program: Program,
    lines: Vec<String>,
    warnings: String,
}

impl Firmware {
    /// The program in this file, an image or a source; without a file, the built-in program.
    ///
    /// # Errors
    /// [`FirmwareError`].
    pub fn load(file: Option<&Path>) -> Result<Self, FirmwareError> {
        let Some(file) = file else { return Self::built_in("portals.nma", PORTALS) };
        Self::read(file)
    }

    /// The program in this file; without a file, the built-in program that keeps a list.
    ///
    /// # Errors
    /// [`FirmwareError`].
    pub fn load_queue(file: Option<&Path>) -> Result<Self, FirmwareError> {
        file.map_or_else(|| Self::built_in("queue.nma", QUEUE), Self::read)
    }

    fn read(file: &Path) -> Result<Self, FirmwareError> {
        let bytes =
            std::fs::read(file).map_err(|error| FirmwareError::Read { file: file.to_owned(), error })?;
        let is_image = bytes.starts_with(&image::MAGIC) || file.extension().is_some_and(|end| end == "nmi");
        if is_image {
            let words = image::read(&bytes, MAX_WORDS);
            let words = words.map_err(|error| FirmwareError::Image { file: file.to_owned(), error })?;
            return Ok(Self::new(file.display().to_string(), Program::of_words(words)));
        }
        let source = String::from_utf8(bytes).ok().filter(|source| !source.contains('\0'));
        let source = source.ok_or_else(|| FirmwareError::Neither(file.to_owned()))?;
        let firmware = Self::new(file.display().to_string(), from_source(file, &source)?);
        let Program { warnings, more_warnings, .. } = &firmware.program;
        let warnings = render(warnings, *more_warnings, &firmware.name, &source);
        Ok(Self { warnings, ..firmware })
    }

    fn built_in(name: &str, source: &str) -> Result<Self, FirmwareError> {
        Ok(Self::new("built-in".to_owned(), from_source(Path::new(name), source)?))
    }

    fn new(name: String, program: Program) -> Self {
        // Words of a source are shown with the source's names, words of an image with the machine's names.
        let lines = if program.texts.is_empty() { lines(&program) } else { program.texts.clone() };
        Self { name, program, lines, warnings: String::new() }
    }

    /// The assembler's warnings as text for the user; empty for an image.
    #[must_use]
    pub fn warnings(&self) -> &str {
        &self.warnings
    }

    /// The source's names of registers and predicates.
    #[must_use]
    pub fn names(&self) -> &[(String, Register)] {
        &self.program.names
    }

    /// All of the source's names for a register or a predicate.
    #[must_use]
    pub fn names_of(&self, register: Register) -> String {
        let own = self.names().iter().filter(|(_, named)| *named == register);
        own.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The register or predicate with this name, from the source or the machine.
    #[must_use]
    pub fn register(&self, name: &str) -> Option<Register> {
        let own = self.names().iter().find(|(own, _)| own == name).map(|(_, register)| *register);
        own.or_else(|| Register::named(name))
    }

    /// The file, or `built-in`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's words.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        &self.program.words
    }

    /// Labels with their addresses. An image has none.
    #[must_use]
    pub fn labels(&self) -> &[(String, usize)] {
        &self.program.labels
    }

    /// A word as a line of source; empty after the last word.
    #[must_use]
    pub fn line(&self, address: usize) -> &str {
        self.lines.get(address).map_or("", String::as_str)
    }

    /// The address of a label.
    #[must_use]
    pub fn address(&self, label: &str) -> Option<usize> {
        self.labels().iter().find(|(name, _)| name == label).map(|(_, address)| *address)
    }

    /// The location of a word: the label before it plus an offset; without a label, the address.
    #[must_use]
    pub fn place(&self, address: usize) -> String {
        let before = self.labels().iter().filter(|(_, labelled)| *labelled <= address);
        match before.max_by_key(|(_, labelled)| *labelled) {
            Some((name, labelled)) if *labelled == address => name.clone(),
            Some((name, labelled)) => format!("{name}+{}", address - labelled),
            None => address.to_string(),
        }
    }
}

fn from_source(file: &Path, source: &str) -> Result<Program, FirmwareError> {
    assemble(source).map_err(|error| {
        let name = file.display().to_string();
        let complaints = render(&error.diagnostics, error.more, &name, source);
        FirmwareError::Source { file: file.to_owned(), complaints, error }
    })
}

#[cfg(test)]
mod tests {
    use niclab_model::models::matching::program;

    use super::*;

    #[test]
    fn the_built_in_program_has_the_units_words_and_labels() {
        let firmware = Firmware::load(None).unwrap();
        assert_eq!(firmware.words(), program::portals().unwrap());
        assert_eq!(firmware.place(0), "0");
        let flush = firmware.address("flush").unwrap();
        assert_eq!(
            (firmware.place(flush).as_str(), firmware.place(flush + 2).as_str()),
            ("flush", "flush+2")
        );
        assert_eq!(firmware.line(flush + 1), "in");
    }

    #[test]
    fn images_and_sources_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let load = |name: &str, bytes: &[u8]| {
            let file = folder.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            Firmware::load(Some(&file)).map_err(|error| error.to_string())
        };
        assert_eq!(load("a.bin", program::PORTALS).unwrap().words().len(), 44);
        assert_eq!(load("a.txt", b"again: in | br again\nnop\nnop\n").unwrap().labels().len(), 1);
        let source = b".reg sum r3\nagain: sum = add  sum, 1 # more\nbr again\nnop\nnop\n";
        let firmware = load("a.txt", source).unwrap();
        assert_eq!((firmware.line(0), firmware.warnings()), ("sum = add sum, 1", ""));
        assert_eq!(firmware.register("sum"), firmware.register("r3"));
        assert_eq!(firmware.names_of(Register::Alu(3)), "sum");
        let warnings = load("a.txt", b"nop\n").unwrap().warnings().to_owned();
        assert!(warnings.contains("a.txt:1:1: warning[falls_through]"), "{warnings}");
        let error = load("a.nmi", b"in\n").unwrap_err();
        assert!(error.contains("a.nmi: this is not match unit firmware"), "{error}");
        let error = load("a.nma", b"inn\n").unwrap_err();
        assert!(error.contains("a.nma:1:1: error") && error.contains("an error"), "{error}");
        let error = load("a.nma", "inn\n".repeat(1_000).as_bytes()).unwrap_err();
        assert!(error.contains("and 950 more") && error.contains("1000 errors"), "{error}");
        let error = load("a.nma", b"\xff\x00").unwrap_err();
        assert!(error.contains("neither") && error.contains("niclab asm"), "{error}");
        let error = Firmware::load(Some(&folder.path().join("none"))).unwrap_err().to_string();
        assert!(error.contains("cannot read the program"), "{error}");
    }
}
