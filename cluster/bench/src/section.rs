//! A part of `niclab bench`.

use anyhow::Result;
use niclab_cluster::host::runtime::RuntimeRoot;
use serde::{Serialize, Serializer};

use crate::{Measured, Options};

/// A part of `bench`.
#[derive(Clone, Copy, Debug)]
pub struct BenchSection {
    /// Its name, as `--only` takes it.
    pub name: &'static str,
    /// What it measures, for the help.
    pub help: &'static str,
    /// What it measures, as the heading of its figures.
    pub what: &'static str,
    /// Whether it boots guests.
    pub boots_guests: bool,
    /// Measures it.
    pub measure: fn(&Options, &RuntimeRoot) -> Result<Measured>,
}

/// Sections are equal if their names are.
impl PartialEq for BenchSection {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Serialize for BenchSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
