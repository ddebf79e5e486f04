//! Compares a run of `niclab bench` with an earlier one, from its JSON: both values of each figure, and their ratio.
//!
//! Only counts can be judged this way. Wall times depend on the machine, and the two runs may be on different machines.

use std::path::{Path, PathBuf};

use niclab_cluster::output::table;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    figure::{Clock, Figure, digits},
    report::{BENCH_VERSION, BenchReport},
};

/// Why an earlier report cannot be used.
#[derive(Debug, Error)]
pub enum EarlierError {
    /// The file cannot be read.
    #[error("--baseline {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no report.
    #[error("--baseline {}: {error}; give a file that `niclab bench --json` printed", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// The report is of another version.
    #[error(
        "--baseline {}: it is of version {found}, but this niclab compares version {BENCH_VERSION}; measure again",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// The required parts of an earlier [`BenchReport`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Earlier {
    version: u32,
    sections: Vec<EarlierSection>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct EarlierSection {
    section: String,
    figures: Vec<Figure>,
}

/// A figure in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The section.
    pub section: &'static str,
    /// The figure's name.
    pub name: String,
    /// The figure in words.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// Its clock.
    pub clock: Clock,
    /// Its median in the earlier run.
    pub before: f64,
    /// Its median now; `None` if it was not measured.
    pub now: Option<f64>,
    /// Now over before.
    pub ratio: Option<f64>,
}

/// A report with its changes since an earlier one, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Beside<'a> {
    /// The report.
    #[serde(flatten)]
    pub report: &'a BenchReport,
    /// The changes; `None` without a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<&'a [Change]>,
}

impl Earlier {
    /// Reads a report that `niclab bench --json` printed.
    ///
    /// # Errors
    /// [`EarlierError`].
    pub fn read(path: &Path) -> Result<Self, EarlierError> {
        let owned = || path.to_owned();
        let text =
            std::fs::read_to_string(path).map_err(|error| EarlierError::Read { path: owned(), error })?;
        let earlier: Self =
            serde_json::from_str(&text).map_err(|error| EarlierError::Format { path: owned(), error })?;
        match earlier.version {
            BENCH_VERSION => Ok(earlier),
            found => Err(EarlierError::Version { path: owned(), found }),
        }
    }

    /// The changes of all earlier figures whose section was measured now, too.
    #[must_use]
    pub fn changes(&self, now: &BenchReport) -> Vec<Change> {
        let mut changes = Vec::new();
        for section in &now.sections {
            let name = section.section.name;
            for earlier in self.sections.iter().filter(|earlier| earlier.section == name) {
                changes.extend(earlier.figures.iter().map(|before| {
                    let figure = section.figures.iter().find(|figure| figure.name == before.name);
                    Change::of(name, before, figure)
                }));
            }
        }
        changes
    }
}

impl Change {
    fn of(section: &'static str, before: &Figure, now: Option<&Figure>) -> Self {
        Self {
            section,
            name: before.name.clone(),
            what: before.what.clone(),
            unit: before.unit.clone(),
            clock: before.clock,
            before: before.median,
            now: now.map(|now| now.median),
            ratio: now.map(|now| now.median / before.median),
        }
    }

    /// Whether this is a count that is missing now, or has grown by more than the fraction `most`: 0.05 for 5 %.
    #[must_use]
    pub fn has_grown_by(&self, most: f64) -> bool {
        // A missing ratio, or one that is not a number, counts as growth.
        let is_as_before = self.now == Some(self.before);
        self.clock == Clock::None && !is_as_before && !self.ratio.is_some_and(|ratio| ratio <= 1.0 + most)
    }
}

/// The changes as a table.
#[must_use]
pub fn text(changes: &[Change]) -> String {
    let heading = ["figure", "before", "now", "unit", "clock", "now over before"].map(str::to_owned).to_vec();
    let shown = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
    let rows = changes.iter().map(|change| {
        vec![
            change.what.clone(),
            digits(change.before),
            shown(change.now, digits),
            change.unit.clone(),
            change.clock.name().to_owned(),
            shown(change.ratio, |ratio| format!("{ratio:.3}")),
        ]
    });
    table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Machine, SectionReport};

    fn report(figures: Vec<Figure>) -> BenchReport {
        let section = SectionReport {
            section: crate::SECTIONS[0],
            what: "",
            wall_s: 1.0,
            others_cores: None,
            figures,
            details: None,
            left_out: Vec::new(),
            failure: None,
        };
        BenchReport::new(Machine { processor: String::new(), cores: 2 }, None, vec![section])
    }

    fn figure(name: &str, clock: Clock, value: f64) -> Figure {
        Figure::new(name, name, clock, "u", vec![value])
    }

    fn changes(before: Vec<Figure>, now: Vec<Figure>) -> Vec<Change> {
        let text = serde_json::to_string(&report(before)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("earlier.json");
        std::fs::write(&path, text).unwrap();
        Earlier::read(&path).unwrap().changes(&report(now))
    }

    #[test]
    fn grown_or_missing_counts_are_found_but_not_times() {
        let before = vec![
            figure("same", Clock::None, 100.0),
            figure("grew", Clock::None, 100.0),
            figure("gone", Clock::None, 100.0),
            figure("slow", Clock::Wall, 100.0),
            figure("none", Clock::None, 0.0),
        ];
        let now = vec![
            figure("same", Clock::None, 105.0),
            figure("grew", Clock::None, 106.0),
            figure("slow", Clock::Wall, 900.0),
            figure("new", Clock::None, 1.0),
            figure("none", Clock::None, 0.0),
        ];
        let changes = changes(before, now);
        let found: Vec<&str> =
            changes.iter().filter(|change| change.has_grown_by(0.05)).map(|change| &*change.name).collect();
        assert_eq!(found, ["grew", "gone"]);
        let text = text(&changes);
        assert!(text.contains("1.060") && text.contains("9.000") && !text.contains("new"), "{text}");
    }

    #[test]
    fn invalid_baseline_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        assert!(Earlier::read(&path).unwrap_err().to_string().contains("b.json"));
        std::fs::write(&path, "{}").unwrap();
        let said = Earlier::read(&path).unwrap_err().to_string();
        assert!(said.contains("niclab bench --json"), "{said}");
        std::fs::write(&path, r#"{"version": 99, "sections": []}"#).unwrap();
        let said = Earlier::read(&path).unwrap_err().to_string();
        assert!(said.contains("of version 99"), "{said}");
    }
}
