//! Assemblies of protocol components as TOML: [`read`] reads a source, or reports its faults with place and fix;
//! [`open()`] also reads images; [`show()`] draws an assembly.
//!
//! docs/use/ASSEMBLIES.md describes the language.

mod open;
mod reader;
mod show;
mod text;

pub use niclab_components as components;
pub use open::{Refused, open};
pub use reader::read;
pub use show::{show, summary};

/// The name of the card for which these assemblies are.
pub const CARD: &str = "inic";

/// File extension of images.
pub const IMAGE_EXTENSION: &str = "inic";
