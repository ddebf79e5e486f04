//! Files that contain an assembly, as source or as image.

use std::fmt::Write as _;

use niclab_components::{Assembly, Checked, image};
use niclab_source::render;
use thiserror::Error;

use crate::reader::read;

/// Why a file contains no valid assembly: all faults, as the user sees them.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Refused(String);

/// The assembly in the bytes of a file; messages contain `file`.
///
/// # Errors
/// [`Refused`].
pub fn open(file: &str, bytes: &[u8]) -> Result<Checked, Refused> {
    if bytes.starts_with(&image::MAGIC) {
        return of_image(file, bytes);
    }
    let source = str::from_utf8(bytes).map_err(|_| {
        Refused(format!(
            "{file}: this is neither TOML nor the image of an assembly\n  fix: name another file\n"
        ))
    })?;
    read(source).map_err(|rejected| Refused(render(&rejected.diagnostics, rejected.more, file, source)))
}

fn of_image(file: &str, bytes: &[u8]) -> Result<Checked, Refused> {
    let assembly = Assembly::decode(bytes).map_err(|error| Refused(format!("{file}: {error}\n")))?;
    assembly.check().map_err(|faults| {
        let mut text = String::new();
        for fault in faults {
            let _ = writeln!(text, "{file}: error: {fault}\n  fix: {}", fault.problem.fix());
        }
        Refused(text)
    })
}
