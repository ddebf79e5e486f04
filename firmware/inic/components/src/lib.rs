//! Protocol components, and assemblies of them ("A Configurable Network Protocol for Cluster Based Communications
//! using Modular Hardware Primitives on an Intelligent NIC", sections 3 and 4): the firmware of an INIC card.
//!
//! * [`kinds`]: the table of components;
//! * [`assembly`]: components and connections as plain data;
//! * [`check`]: whether an assembly is valid, and what it promises; only a [`Checked`] one is built;
//! * [`image`]: the binary form, which cards load;
//! * [`bundled`]: images that are part of the build;
//! * [`recipe`]: assemblies by their desired properties.
//!
//! docs/use/ASSEMBLIES.md describes this crate in prose.

#![no_std]

extern crate alloc;

pub mod assembly;
pub mod bundled;
pub mod check;
pub mod image;
pub mod kinds;
mod paths;
pub mod recipe;

pub use assembly::{Assembly, Component, Connection, End, PartError};
pub use bundled::{BUNDLED, Bundled};
pub use check::{Checked, Fault, Promises};
pub use image::ImageError;
pub use kinds::{Block, Format, Kind, Parameter, Policy, PortType, Resources};
pub use recipe::{Flow, Recipe};
