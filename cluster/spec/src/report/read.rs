//! Reads a report from a file with unknown contents.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::error::Category;

use super::{LedgerEntry, REPORT_VERSION, Report, parts, sum_of};
use crate::{FileLocation, Problem, SpecError, renamed::rename_counts};

/// The fix for a file that is no complete report.
const MAKE_AGAIN: &str = "write it again with `niclab run --report json --report-file FILE` or `niclab sim`";

/// The keys that show whether this version can read the rest.
#[derive(Deserialize)]
struct Header {
    version: Option<u64>,
    niclab_version: Option<String>,
    cluster: Option<serde::de::IgnoredAny>,
}

impl Report {
    /// Reads a report from a file.
    ///
    /// # Errors
    /// [`SpecError`] with line and fix: the file cannot be read, is truncated, is of another version, is no report, or
    /// its total is not the sum of its parts.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text =
            fs::read_to_string(path).map_err(|error| SpecError::Read { path: path.to_owned(), error })?;
        Self::from_json(&path.display().to_string(), &text)
    }

    /// Reads a report from a text; errors name `file`.
    ///
    /// # Errors
    /// As [`Self::read`], without errors of the file itself.
    pub fn from_json(file: &str, text: &str) -> Result<Self, SpecError> {
        let invalid = |problem| SpecError::Invalid(vec![problem]);
        let header: Header = serde_json::from_str(text).map_err(|error| invalid(broken(file, &error)))?;
        if let Some(problem) = wrong_version(file, text, &header) {
            return Err(invalid(problem));
        }
        let mut report: Self = serde_json::from_str(text).map_err(|error| invalid(broken(file, &error)))?;
        for node in &mut report.nodes {
            rename_counts(&mut node.nic_counts);
            rename_counts(&mut node.device_faults);
            rename_counts(&mut node.shortcuts);
        }
        match report.wrong_total() {
            Some(what) => Err(invalid(Problem {
                location: Some(location_of_key(file, text, "total")),
                key: "total".to_owned(),
                what,
                remedy: format!("the file was changed or damaged; {MAKE_AGAIN}"),
            })),
            None => Ok(report),
        }
    }

    /// The error if [`Self::total`] is not the sum of its parts: the kind of transaction, and both numbers.
    fn wrong_total(&self) -> Option<String> {
        let expected = sum_of(parts(&self.nodes, &self.fabric));
        if expected == self.total {
            return None;
        }
        let nothing = LedgerEntry::default();
        let find = |entries: &[LedgerEntry], transaction: &str| {
            entries.iter().find(|entry| entry.transaction == transaction).unwrap_or(&nothing).clone()
        };
        let mut kinds = expected.iter().chain(&self.total).map(|entry| entry.transaction.as_str());
        let kind = kinds.find(|kind| find(&expected, kind) != find(&self.total, kind));
        Some(match kind {
            None => "its kinds of transactions are not sorted, or one occurs twice".to_owned(),
            Some(kind) => format!(
                "it is not the sum of its parts: of `{kind}` the parts hold {}, and the total {}",
                amounts(&find(&expected, kind)),
                amounts(&find(&self.total, kind))
            ),
        })
    }
}

fn amounts(entry: &LedgerEntry) -> String {
    let LedgerEntry { count, bytes, model_price_ps, model_waited_ps, .. } = entry;
    format!("{count} transactions, {bytes} bytes, {model_price_ps} ps, {model_waited_ps} ps waited")
}

fn wrong_version(file: &str, text: &str, header: &Header) -> Option<Problem> {
    let (what, remedy) = match (header.version, &header.cluster) {
        (Some(version), Some(_)) if version == u64::from(REPORT_VERSION) => return None,
        (Some(version), Some(_)) => {
            let writer = match &header.niclab_version {
                Some(writer) => format!("niclab {writer}"),
                None => "the niclab that wrote it".to_owned(),
            };
            let age = if version > u64::from(REPORT_VERSION) { "a newer" } else { "an older" };
            (
                format!(
                    "it is a report of version {version}, {age} one; this niclab reads version {REPORT_VERSION}"
                ),
                format!("read it with {writer}, or write it again with this niclab"),
            )
        }
        _ => ("it is JSON, but no niclab report".to_owned(), MAKE_AGAIN.to_owned()),
    };
    let key = if header.version.is_some() { "version" } else { "" };
    Some(Problem { location: Some(location_of_key(file, text, key)), key: key.to_owned(), what, remedy })
}

/// A problem with the text as JSON, or with the type of a value.
fn broken(file: &str, error: &serde_json::Error) -> Problem {
    let mut message = error.to_string();
    // `location` has this already.
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    let (what, remedy) = match error.classify() {
        Category::Eof => (
            "the file ends in the middle of the report".to_owned(),
            format!("the program that wrote or copied it was interrupted; {MAKE_AGAIN}"),
        ),
        Category::Data => (format!("it is no niclab report: {message}"), MAKE_AGAIN.to_owned()),
        Category::Syntax | Category::Io => {
            (format!("it is no JSON, and so no niclab report: {message}"), MAKE_AGAIN.to_owned())
        }
    };
    let location =
        FileLocation { file: file.to_owned(), line: error.line().max(1), column: error.column().max(1) };
    Problem { location: Some(location), key: String::new(), what, remedy }
}

/// The location of a key of the report itself: its first occurrence, or the last one of the total. The start of the
/// file if it is missing.
fn location_of_key(file: &str, text: &str, key: &str) -> FileLocation {
    let quoted = format!("\"{key}\"");
    let offset = if key == "total" { text.rfind(&quoted) } else { text.find(&quoted) };
    let before = text.get(..offset.unwrap_or(0)).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    FileLocation {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::tests::sample;

    fn complaint(text: &str) -> String {
        match Report::from_json("r.json", text) {
            Ok(report) => panic!("{report:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn report_is_the_same_after_writing_and_reading() {
        let folder = std::env::temp_dir().join(format!("niclab-report-{}", std::process::id()));
        fs::write(&folder, sample().to_json()).unwrap();
        let read = Report::read(&folder);
        fs::remove_file(&folder).unwrap();
        assert_eq!(read.unwrap(), sample());
        let error = Report::read(Path::new("/no/such.json")).unwrap_err().to_string();
        assert!(error.contains("cannot read /no/such.json"), "{error}");
    }

    #[test]
    fn report_with_old_names_is_read() {
        let mut report = sample();
        let node = &mut report.nodes[0];
        node.adversarial = [("event_late".to_owned(), 3)].into();
        (node.adversarial_seed, node.adversarial_reseeds) = (Some(7), 2);
        node.kernel_debug_tools = vec!["kasan".to_owned()];
        node.nic_counts.insert("duplicated".to_owned(), 4);
        node.device_faults.insert("duplicated_interrupt".to_owned(), 5);
        for (number, shortcut) in (6..).zip(["batched", "borrowed", "ethernet_batched"]) {
            node.shortcuts.insert(shortcut.to_owned(), number);
        }
        let text = report.to_json();
        let old = text
            .replace("\"adversarial", "\"unkind")
            .replace("\"duplicated", "\"doubled")
            .replace("\"kernel_debug_tools\"", "\"kernel_watchers\"")
            .replace("\"batched\"", "\"message_series\"")
            .replace("\"borrowed\"", "\"lent\"")
            .replace("\"ethernet_batched\"", "\"ethernet_series\"");
        assert_ne!(old, text);
        assert_eq!(Report::from_json("r.json", &old).unwrap(), report);
    }

    #[test]
    fn report_truncated_anywhere_is_reported_as_truncated() {
        let text = sample().to_json();
        for end in (0..text.trim_end().len()).step_by(7) {
            let error = complaint(&text[..end]);
            assert!(error.contains("ends in the middle") && error.contains("fix: "), "{end}: {error}");
        }
        let half = &text[..text.find("\"nodes\"").unwrap()];
        let line = half.matches('\n').count() + 1;
        assert!(complaint(half).starts_with(&format!("r.json:{line}:")), "{}", complaint(half));
    }

    #[test]
    fn report_of_another_version_names_its_niclab() {
        let newer = sample().to_json().replacen("\"version\": 2", "\"version\": 3", 1);
        let error = complaint(&newer);
        assert!(
            error.starts_with("r.json:2:3: `version`: it is a report of version 3, a newer one"),
            "{error}"
        );
        assert!(error.contains("read it with niclab 0.0.1"), "{error}");
        let older = complaint("{\n \"version\": 1, \"cluster\": \"c\", \"device\": null}");
        assert!(
            older.contains("version 1, an older one") && older.contains("the niclab that wrote it"),
            "{older}"
        );
        let changed = complaint("{\"version\": 3, \"cluster\": {\"a\": []}, \"nodes\": 7}");
        assert!(changed.contains("version 3"), "other changes do not matter: {changed}");
    }

    #[test]
    fn other_files_are_refused_as_no_report() {
        for other in ["{}", "{\"version\": 1, \"tool\": \"niclab-perf\", \"cluster_size\": 2}"] {
            assert!(complaint(other).contains("it is JSON, but no niclab report"), "{}", complaint(other));
        }
        for other in ["nodes = 2\n", "<html>", "[1, 2]", "7", "\u{0}\u{1}"] {
            assert!(complaint(other).contains("no niclab report"), "{}", complaint(other));
            assert!(complaint(other).starts_with("r.json:1:"), "{}", complaint(other));
        }
        let deep = "[".repeat(100_000);
        assert!(complaint(&deep).contains("no niclab report"));
    }

    #[test]
    fn wrong_type_is_reported_with_its_line() {
        let text = sample().to_json().replacen("\"doorbells\": 11", "\"doorbells\": -11", 1);
        let line = text[..text.find("-11").unwrap()].matches('\n').count() + 1;
        let error = complaint(&text);
        assert!(error.starts_with(&format!("r.json:{line}:")) && error.contains("-11"), "{error}");
    }

    #[test]
    fn wrong_total_is_refused() {
        let mut report = sample();
        report.total[0].count += 1;
        let error = complaint(&report.to_json());
        assert!(error.contains("`total`: it is not the sum of its parts: of `device_to_device`"), "{error}");
        let text = report.to_json();
        let line = text[..text.rfind("\"total\"").unwrap()].matches('\n').count() + 1;
        assert!(error.starts_with(&format!("r.json:{line}:")), "{error}");
        report = sample();
        report.total.reverse();
        assert!(complaint(&report.to_json()).contains("not sorted"));
    }

    proptest! {
        #[test]
        fn damaged_report_is_read_or_refused_with_its_file_name(
            damage in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n]{0,3}"), 1..4),
        ) {
            let mut text = sample().to_json();
            for (place, by) in &damage {
                let at = place.index(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    text.replace_range(at..=at, by);
                }
            }
            match Report::from_json("r.json", &text) {
                Ok(report) => prop_assert_eq!(report.wrong_total(), None),
                Err(error) => {
                    let error = error.to_string();
                    prop_assert!(error.starts_with("r.json:") && error.contains("fix: "), "{}", error);
                }
            }
        }
    }

    #[test]
    fn unknown_keys_are_skipped() {
        let text =
            sample().to_json().replacen("\"version\": 2,", "\"version\": 2, \"later\": {\"x\": [1]},", 1);
        assert_eq!(Report::from_json("r.json", &text).unwrap(), sample());
    }
}
