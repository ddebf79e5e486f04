//! The sections of `niclab bench`: each is one group of measurements, which the command line selects by name.

use anyhow::Result;
use niclab_cluster::host::runtime::RuntimeRoot;
use serde::{Serialize, Serializer};

use crate::{Measured, Options};

/// One section of `niclab bench`. Sections are constants, listed in `lib.rs` and in `models/`.
#[derive(Clone, Copy, Debug)]
pub struct BenchSection {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What it measures, for the command's help; begins with a capital letter.
    pub help: &'static str,
    /// What it measures, as the heading of its figures and in progress messages; begins with a small letter.
    pub what: &'static str,
    /// Whether it boots guests. If a selected section does, `niclab bench` builds what guests need before it measures.
    pub boots_guests: bool,
    /// Runs its measurements.
    pub measure: fn(&Options, &RuntimeRoot) -> Result<Measured>,
}

/// Sections are compared by name, because comparing function pointers gives no reliable result.
impl PartialEq for BenchSection {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A report contains only the section's name.
impl Serialize for BenchSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
