//! Protocol components, and assemblies of them ("A Configurable Network Protocol for Cluster Based Communications using
//! Modular Hardware Primitives on an Intelligent NIC", sections 3 and 4): what a card is programmed with.
//!
//! * [`kinds`]: the components there are, in one table;
//! * [`assembly`]: components and connections as plain data;
//! * [`check`]: whether an assembly makes sense, and what it promises; only a [`Checked`] one is built;
//! * [`image`]: the binary form, which cards load;
//! * [`bundled`]: images that are at hand;
//! * [`recipe`]: assemblies by what they are to do.
//!
//! docs/use/ASSEMBLIES.md is the prose of this crate.

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
