//! Images of assemblies: the output of `niclab inic build`, which the kernel's firmware loader passes on, and the card
//! loads.
//!
//! All numbers are little-endian. Header of [`HEADER_BYTES`]: magic (8 bytes), version (4), components (2),
//! connections (2), check sequence (4), zero (4). Then each component: kind, bytes of its name, number of values, zero
//! (1 byte each), the name, and 4 bytes for each value. Then each connection: component and port of its output,
//! component and port of its input (1 byte each), depth (2), zero (2). The check sequence is CRC-32 (ISO-HDLC, as in
//! Ethernet and zip) of all bytes before and after it.

use alloc::vec::Vec;

use crc::{CRC_32_ISO_HDLC, Crc, Table};
use thiserror::Error;

use crate::assembly::{Assembly, End, MAX_COMPONENTS, MAX_CONNECTIONS, PartError};
use crate::kinds::Kind;

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"nicparts";

/// The version of the format, and of the table of kinds, that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes before the components.
pub const HEADER_BYTES: usize = 24;

/// Offset of the check sequence.
const CHECK_AT: usize = 16;

static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// Why bytes are not an image.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It is another file.
    #[error("this is not the image of an assembly: it does not begin with `nicparts`")]
    Magic,
    /// It is shorter than its header states.
    #[error("the image of {found} bytes was cut off: it needs {needed} or more; build it again")]
    Truncated {
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// It is longer than its header states.
    #[error("{extra} bytes follow the image's last connection; build it again")]
    Excess {
        /// Surplus bytes.
        extra: usize,
    },
    /// It has another format version.
    #[error("the image has version {found}, but this build reads {FORMAT_VERSION}; build it again")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is damaged.
    #[error(
        "the image's check sequence is {found:#010x}, but its bytes give {expected:#010x}: it is damaged"
    )]
    Check {
        /// The check sequence found.
        found: u32,
        /// The check sequence expected.
        expected: u32,
    },
    /// A reserved byte is not zero.
    #[error("the image's byte {at} is reserved and must be zero; build it again")]
    Reserved {
        /// Its offset.
        at: usize,
    },
    /// It exceeds the limits of an assembly.
    #[error(
        "the image has {components} components and {connections} connections, but a card takes at most \
         {MAX_COMPONENTS} and {MAX_CONNECTIONS}"
    )]
    Size {
        /// Components.
        components: usize,
        /// Connections.
        connections: usize,
    },
    /// The kind of a component is unknown.
    #[error("component {component} has the unknown kind {code}")]
    Kind {
        /// Its index.
        component: usize,
        /// Its kind.
        code: u8,
    },
    /// The number of a component's values differs from the number of its kind's parameters.
    #[error("component {component} has {found} values, but its kind has {needed} parameters")]
    Values {
        /// Its index.
        component: usize,
        /// Values found.
        found: usize,
        /// Parameters of the kind.
        needed: usize,
    },
    /// A name is not text.
    #[error("the name of component {component} is not UTF-8 text")]
    Name {
        /// Its index.
        component: usize,
    },
    /// A component or a connection is invalid in any assembly.
    #[error("{what} {place}: {error}")]
    Part {
        /// Component or connection.
        what: &'static str,
        /// Its index.
        place: usize,
        /// The reason.
        #[source]
        error: PartError,
    },
}

impl Assembly {
    /// Its image.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut image = Vec::from(MAGIC);
        image.extend(FORMAT_VERSION.to_le_bytes());
        // The limits of an assembly fit these widths.
        image.extend((self.components().len() as u16).to_le_bytes());
        image.extend((self.connections().len() as u16).to_le_bytes());
        image.extend([0; HEADER_BYTES - CHECK_AT]);
        for component in self.components() {
            let (name, values) = (component.name(), component.values());
            image.extend([component.kind().code(), name.len() as u8, values.len() as u8, 0]);
            image.extend(name.bytes());
            values.iter().for_each(|value| image.extend(value.to_le_bytes()));
        }
        for connection in self.connections() {
            for end in [connection.from, connection.to] {
                image.extend([end.component as u8, end.port as u8]);
            }
            image.extend(connection.depth.to_le_bytes());
            image.extend([0; 2]);
        }
        let check = check_sequence(&image);
        image[CHECK_AT..CHECK_AT + 4].copy_from_slice(&check.to_le_bytes());
        image
    }

    /// The assembly of an image. The caller must still check it.
    ///
    /// # Errors
    /// [`ImageError`] names the fault.
    pub fn decode(image: &[u8]) -> Result<Self, ImageError> {
        if !image.starts_with(&MAGIC[..image.len().min(MAGIC.len())]) {
            return Err(ImageError::Magic);
        }
        let mut reader = Reader { image, at: MAGIC.len() };
        if image.len() < HEADER_BYTES {
            return Err(ImageError::Truncated { found: image.len(), needed: HEADER_BYTES });
        }
        let found = reader.number()?;
        if found != FORMAT_VERSION {
            return Err(ImageError::Version { found });
        }
        let (components, connections) = (usize::from(reader.half()?), usize::from(reader.half()?));
        if components > MAX_COMPONENTS || connections > MAX_CONNECTIONS {
            return Err(ImageError::Size { components, connections });
        }
        let (found, expected) = (reader.number()?, check_sequence(image));
        (0..4).try_for_each(|_| reader.zero())?;
        let mut assembly = Self::default();
        for place in 0..components {
            component(&mut reader, &mut assembly, place)?;
        }
        for place in 0..connections {
            connection(&mut reader, &mut assembly, place)?;
        }
        if reader.at < image.len() {
            return Err(ImageError::Excess { extra: image.len() - reader.at });
        }
        // Checked last, so that a truncated image is reported as truncated.
        if found != expected {
            return Err(ImageError::Check { found, expected });
        }
        Ok(assembly)
    }

    /// The assembly's identifier in frames: 16 bits of the image's check sequence.
    #[must_use]
    pub fn id(&self) -> u16 {
        let image = self.encode();
        u16::from_le_bytes([image[CHECK_AT], image[CHECK_AT + 1]])
    }
}

fn component(reader: &mut Reader<'_>, assembly: &mut Assembly, place: usize) -> Result<(), ImageError> {
    let code = reader.byte()?;
    let (name_bytes, found) = (usize::from(reader.byte()?), usize::from(reader.byte()?));
    reader.zero()?;
    let kind = Kind::of_code(code).ok_or(ImageError::Kind { component: place, code })?;
    let name = core::str::from_utf8(reader.bytes(name_bytes)?);
    let name = name.map_err(|_| ImageError::Name { component: place })?;
    let part = |error| ImageError::Part { what: "component", place, error };
    assembly.add(name, kind).map_err(part)?;
    let parameters = kind.row().parameters;
    if found != parameters.len() {
        return Err(ImageError::Values { component: place, found, needed: parameters.len() });
    }
    for setting in parameters {
        assembly.set_at(place, setting.parameter, reader.number()?).map_err(part)?;
    }
    Ok(())
}

fn connection(reader: &mut Reader<'_>, assembly: &mut Assembly, place: usize) -> Result<(), ImageError> {
    let mut end = || Ok(End { component: reader.byte()?.into(), port: reader.byte()?.into() });
    let (from, to) = (end()?, end()?);
    let depth = reader.half()?;
    reader.zero()?;
    reader.zero()?;
    assembly.connect(from, to, depth).map_err(|error| ImageError::Part { what: "connection", place, error })
}

/// A reader of an image, which never reads past its end.
struct Reader<'a> {
    image: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, number: usize) -> Result<&'a [u8], ImageError> {
        let needed = self.at + number;
        let found = self.image.len();
        let bytes = self.image.get(self.at..needed).ok_or(ImageError::Truncated { found, needed })?;
        self.at = needed;
        Ok(bytes)
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], ImageError> {
        let mut array = [0; BYTES];
        array.copy_from_slice(self.bytes(BYTES)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, ImageError> {
        self.array().map(u8::from_le_bytes)
    }

    fn half(&mut self) -> Result<u16, ImageError> {
        self.array().map(u16::from_le_bytes)
    }

    fn number(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn zero(&mut self) -> Result<(), ImageError> {
        let at = self.at;
        if self.byte()? == 0 { Ok(()) } else { Err(ImageError::Reserved { at }) }
    }
}

fn check_sequence(image: &[u8]) -> u32 {
    let mut digest = CRC.digest();
    digest.update(image.get(..CHECK_AT).unwrap_or(image));
    digest.update(image.get(CHECK_AT + 4..).unwrap_or_default());
    digest.finalize()
}
