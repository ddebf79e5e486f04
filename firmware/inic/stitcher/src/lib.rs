//! Assemblies of protocol components as TOML: [`read`] makes one of a source, or says what is wrong with it, where, and
//! how to fix it; [`open`] takes images as well; [`show`] draws one.
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

/// What the card is called whose assemblies these are.
pub const CARD: &str = "inic";

/// How files with images end.
pub const IMAGE_EXTENSION: &str = "inic";
