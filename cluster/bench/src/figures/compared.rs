//! A paper's number next to the model's: the origin of the model's number, and the verdict.
//!
//! If a constant was fitted to a number, the number proves nothing, so its verdict is never "holds". Instead, a note
//! gives the constant and its effect on the other numbers. If the model's number is known to differ from the paper's,
//! the row declares the difference with its reason. A declared difference that does not occur is an error, too.

use niclab_cluster::output::table;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

/// The origin of a model's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// From the mechanism, and from constants that a source gives.
    Emergent,
    /// This constant was chosen to reproduce the number.
    Fitted(&'static str),
    /// The number depends on this constant, which was fitted to another number.
    Follows(&'static str),
    /// The number depends on this constant, which no source gives and which was not fitted to a number of the paper.
    Assumed(&'static str),
    /// The number is an input from the paper, or built in; this says which.
    Given(&'static str),
}

/// A paper's statement about a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Published {
    /// The number is this, or about this. The model's agrees if it differs by at most `within`.
    Number {
        /// The paper's number.
        value: f64,
        /// The allowed difference, in the same unit.
        within: f64,
    },
    /// The number is less than this.
    Below(f64),
    /// The number is more than this.
    Above(f64),
    /// The number is between these two.
    Between(f64, f64),
    /// A statement in words, with which the model agrees or not.
    Words {
        /// The paper's words.
        said: String,
        /// Whether the model agrees.
        agrees: bool,
    },
}

impl Published {
    /// This number, with an allowed difference of 1 %.
    #[must_use]
    pub fn number(value: f64) -> Self {
        Self::within_percent(value, 1.0)
    }

    /// This number, with an allowed difference in percent.
    #[must_use]
    pub fn within_percent(value: f64, percent: f64) -> Self {
        Self::Number { value, within: (value * percent / 100.0).abs() }
    }

    /// Words, and whether the model agrees with them.
    #[must_use]
    pub fn words(said: &str, agrees: bool) -> Self {
        Self::Words { said: said.to_owned(), agrees }
    }

    fn agrees_with(&self, ours: f64) -> bool {
        match self {
            // A little more than the bound allows for rounding errors of binary fractions.
            Self::Number { value, within } => (ours - value).abs() <= within * (1.0 + 1e-9),
            Self::Below(bound) => ours < *bound,
            Self::Above(bound) => ours > *bound,
            Self::Between(least, most) => (*least..=*most).contains(&ours),
            Self::Words { agrees, .. } => *agrees,
        }
    }

    fn text(&self, decimals: usize) -> String {
        match self {
            Self::Number { value, .. } => trimmed(*value, decimals),
            Self::Below(bound) => format!("below {}", trimmed(*bound, decimals)),
            Self::Above(bound) => format!("above {}", trimmed(*bound, decimals)),
            Self::Between(least, most) => {
                format!("{} to {}", trimmed(*least, decimals), trimmed(*most, decimals))
            }
            Self::Words { said, .. } => said.clone(),
        }
    }

    /// The number to compute the difference from.
    const fn value(&self) -> Option<f64> {
        match self {
            Self::Number { value, .. } | Self::Below(value) | Self::Above(value) => Some(*value),
            Self::Between(..) | Self::Words { .. } => None,
        }
    }
}

/// A number with this number of decimals, without trailing zeros.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The model agrees with the paper, and no constant was fitted to this number.
    Holds,
    /// A constant was fitted to the number, so agreement proves nothing.
    Fitted,
    /// The number is an input, so agreement proves nothing.
    Given,
    /// The numbers differ, as declared.
    KnownDifference,
    /// The numbers differ, but no difference is declared.
    DoesNotHold,
    /// The number was fitted or given, but differs from the paper's.
    Lost,
    /// A difference is declared, but the numbers agree.
    HoldsAfterAll,
}

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fitted | Self::Given => "-",
            Self::KnownDifference => "differs: see below",
            Self::DoesNotHold => "does not hold",
            Self::Lost => "is not what it was fitted to",
            Self::HoldsAfterAll => "holds, against what is declared",
        }
    }
}

/// A paper's number next to the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Section or figure of the paper.
    pub place: &'static str,
    /// The quantity.
    pub what: String,
    /// The unit of both numbers; may be empty.
    pub unit: &'static str,
    /// The paper's statement.
    pub published: Published,
    /// The model's number; a time is model time. `None` if only words are compared.
    pub ours: Option<f64>,
    /// Number of decimals to show.
    pub decimals: usize,
    /// The origin of the model's number.
    pub provenance: Provenance,
    /// The reason for a known difference.
    pub known_difference: Option<String>,
}

impl Compared {
    /// A row without a number of the model; its provenance is emergent until another one is set.
    #[must_use]
    pub fn new(
        place: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        published: Published,
    ) -> Self {
        Self {
            place,
            what: what.into(),
            unit,
            published,
            ours: None,
            decimals: 0,
            provenance: Provenance::Emergent,
            known_difference: None,
        }
    }

    /// Sets the model's number, with the number of decimals to show.
    #[must_use]
    pub fn ours(self, value: f64, decimals: usize) -> Self {
        Self { ours: Some(value), decimals, ..self }
    }

    /// Sets the provenance: `constant` was fitted to this number.
    #[must_use]
    pub fn fitted(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Fitted(constant), ..self }
    }

    /// Sets the provenance: the number depends on `constant`, which was fitted to another row.
    #[must_use]
    pub fn follows(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Follows(constant), ..self }
    }

    /// Sets the provenance: the number depends on `constant`, which no source gives and which was not fitted.
    #[must_use]
    pub fn assumed(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Assumed(constant), ..self }
    }

    /// Sets the provenance: the number is an input.
    #[must_use]
    pub fn given(self, what: &'static str) -> Self {
        Self { provenance: Provenance::Given(what), ..self }
    }

    /// Declares a difference with its reason.
    #[must_use]
    pub fn differs(self, reason: impl Into<String>) -> Self {
        Self { known_difference: Some(reason.into()), ..self }
    }

    /// The verdict. NaN agrees with nothing.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let agrees = match (&self.published, self.ours) {
            (Published::Words { agrees, .. }, None) => *agrees,
            (published, ours) => ours.is_some_and(|ours| published.agrees_with(ours)),
        };
        match (&self.provenance, &self.known_difference, agrees) {
            (Provenance::Fitted(_), None, true) => Verdict::Fitted,
            (Provenance::Given(_), None, true) => Verdict::Given,
            (Provenance::Fitted(_) | Provenance::Given(_), None, false) => Verdict::Lost,
            (_, None, true) => Verdict::Holds,
            (_, None, false) => Verdict::DoesNotHold,
            (_, Some(_), true) => Verdict::HoldsAfterAll,
            (_, Some(_), false) => Verdict::KnownDifference,
        }
    }

    /// Whether the verdict is the declared one.
    #[must_use]
    pub fn is_as_declared(&self) -> bool {
        !matches!(self.verdict(), Verdict::DoesNotHold | Verdict::Lost | Verdict::HoldsAfterAll)
    }

    /// The difference to the paper's number: in percent of it, or in percentage points if both are percentages.
    fn difference(&self) -> Option<String> {
        let (ours, paper) = (self.ours?, self.published.value()?);
        let (difference, unit, decimals) = match self.unit {
            "%" => (ours - paper, " points", 2),
            _ => ((ours / paper - 1.0) * 100.0, " %", 1),
        };
        let text = format!("{difference:+.decimals$}");
        let is_none = text.chars().all(|character| "+-0.".contains(character));
        Some(if is_none { "none".to_owned() } else { text + unit })
    }

    fn whence(&self) -> String {
        match &self.provenance {
            Provenance::Emergent => "emergent".to_owned(),
            Provenance::Fitted(constant) => format!("fitted: {constant}"),
            Provenance::Follows(constant) => format!("from a fit: {constant}"),
            Provenance::Assumed(constant) => format!("from an assumption: {constant}"),
            Provenance::Given(what) => format!("given: {what}"),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.what.clone(),
            self.unit.to_owned(),
            self.published.text(self.decimals.max(4)),
            self.ours.map_or_else(|| "-".to_owned(), |ours| format!("{ours:.*}", self.decimals)),
            self.difference().unwrap_or_else(|| "-".to_owned()),
            self.whence(),
            self.verdict().text().to_owned(),
        ]
    }
}

/// For JSON, with the verdict.
impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Compared", 8)?;
        row.serialize_field("place", self.place)?;
        row.serialize_field("what", &self.what)?;
        row.serialize_field("unit", self.unit)?;
        row.serialize_field("published", &self.published)?;
        row.serialize_field("ours", &self.ours)?;
        row.serialize_field("provenance", &self.provenance)?;
        row.serialize_field("known_difference", &self.known_difference)?;
        row.serialize_field("verdict", &self.verdict())?;
        row.end()
    }
}

/// Whether every row has its declared verdict.
#[must_use]
pub fn are_as_declared(rows: &[Compared]) -> bool {
    rows.iter().all(Compared::is_as_declared)
}

const HEADING: [&str; 7] = ["", "unit", "paper", "here", "difference", "ours is", ""];

fn cells(rows: &[Compared]) -> Vec<Vec<String>> {
    let heading = HEADING.map(str::to_owned).to_vec();
    std::iter::once(heading).chain(rows.iter().map(Compared::cells)).collect()
}

/// A table for terminals, with notes on fits and on differences.
#[must_use]
pub fn text(rows: &[Compared]) -> String {
    let mut text = table(&cells(rows));
    let notes: Vec<String> = fits(rows).into_iter().chain(differences(rows)).collect();
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text += &wrapped(&note);
    }
    text
}

/// The same table in Markdown.
#[must_use]
pub fn markdown(rows: &[Compared]) -> String {
    let mut text = String::new();
    let places = std::iter::once("where").chain(rows.iter().map(|row| row.place));
    for (index, (place, row)) in places.zip(cells(rows)).enumerate() {
        text += &format!("| {place} | {} |\n", row.join(" | "));
        if index == 0 {
            text += &format!("|---{}|\n", "|---".repeat(row.len()));
        }
    }
    let notes: Vec<String> = fits(rows).into_iter().chain(differences(rows)).collect();
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text += &format!("* {note}\n");
    }
    text
}

/// The notes: the purpose of each fit and the rows that depend on it, the rows that depend on each assumption, and how
/// many of the rows without fitted constants hold.
fn fits(rows: &[Compared]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut seen: Vec<&'static str> = Vec::new();
    for row in rows {
        let (constant, kind) = match row.provenance {
            Provenance::Fitted(constant) | Provenance::Follows(constant) => (constant, "Fitted"),
            Provenance::Assumed(constant) => (constant, "Assumed"),
            Provenance::Emergent | Provenance::Given(_) => continue,
        };
        if !seen.contains(&constant) {
            seen.push(constant);
            notes.push(format!("{kind}: {constant}{}. {}.", purpose(rows, constant), rest(rows, constant)));
        }
    }
    let judged =
        || rows.iter().filter(|row| !matches!(row.provenance, Provenance::Fitted(_) | Provenance::Given(_)));
    let held = judged().filter(|row| row.verdict() == Verdict::Holds).count();
    if judged().count() > 0 {
        notes.push(format!("Rows for which nothing was chosen: {}, of which {held} hold.", judged().count()));
    }
    notes
}

/// The rows that `constant` was fitted to.
fn purpose(rows: &[Compared], constant: &str) -> String {
    let is_for = |row: &&Compared| matches!(row.provenance, Provenance::Fitted(by) if by == constant);
    let rows: Vec<&str> = rows.iter().filter(is_for).map(|row| row.what.as_str()).collect();
    if rows.is_empty() { String::new() } else { format!(", to: {}", rows.join("; ")) }
}

/// The differences of the other rows that depend on `constant`.
fn rest(rows: &[Compared], constant: &str) -> String {
    let rests = |row: &&Compared| match row.provenance {
        Provenance::Follows(by) | Provenance::Assumed(by) => by == constant,
        _ => false,
    };
    let shown = |row: &Compared| {
        let difference = row.difference().unwrap_or_else(|| row.verdict().text().to_owned());
        format!("{}: {difference}", row.what)
    };
    let left: Vec<String> = rows.iter().filter(rests).map(shown).collect();
    if left.is_empty() {
        "No row here follows from it".to_owned()
    } else {
        format!("What that leaves: {}", left.join("; "))
    }
}

fn differences(rows: &[Compared]) -> impl Iterator<Item = String> {
    rows.iter().filter_map(|row| Some(format!("{}: {}.", row.what, row.known_difference.as_ref()?)))
}

/// Maximum line length of a note.
const LINE: usize = 120;

fn wrapped(note: &str) -> String {
    let mut text = String::from("*");
    let mut length = 1;
    for word in note.split(' ') {
        let width = word.chars().count();
        if length + 1 + width > LINE {
            text += "\n ";
            length = 1;
        }
        text.push(' ');
        text += word;
        length += 1 + width;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: Published) -> Compared {
        Compared::new("section 4", "latency", "ns", published)
    }

    #[test]
    fn fitted_number_never_holds() {
        let fitted = row(Published::number(115.0)).ours(115.0, 0).fitted("send_ps");
        assert_eq!((fitted.verdict(), fitted.is_as_declared()), (Verdict::Fitted, true));
        assert!(!text(std::slice::from_ref(&fitted)).contains("holds"));
        // A fit that no longer fits is detected.
        let lost = fitted.ours(117.0, 0);
        assert_eq!((lost.verdict(), lost.is_as_declared()), (Verdict::Lost, false));
        let given = row(Published::number(44.0)).ours(44.0, 0).given("the program");
        assert_eq!(given.verdict(), Verdict::Given);
    }

    #[test]
    fn unfitted_number_holds_within_its_bound() {
        for (published, ours, holds) in [
            (Published::number(100.0), 101.0, true),
            (Published::number(100.0), 98.9, false),
            (Published::Number { value: 6.0, within: 0.5 }, 6.4, true),
            (Published::Below(1_000.0), 1_000.0, false),
            (Published::Below(1_000.0), 999.0, true),
            (Published::Above(700.0), 700.0, false),
            (Published::Between(5.0, 40.0), 40.0, true),
            (Published::Between(5.0, 40.0), 44.0, false),
            (Published::words("more", true), 0.0, true),
            (Published::words("more", false), 9.0, false),
            (Published::number(100.0), f64::NAN, false),
        ] {
            let row = || row(published.clone());
            for row in [row(), row().follows("send_ps"), row().assumed("copy_ps")] {
                let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
                assert_eq!(row.ours(ours, 1).verdict(), verdict, "{published:?} {ours}");
            }
        }
        assert_eq!(row(Published::number(1.0)).verdict(), Verdict::DoesNotHold, "the model has no number");
        assert_eq!(row(Published::words("more", true)).verdict(), Verdict::Holds);
    }

    #[test]
    fn declared_difference_must_exist() {
        let differs = row(Published::number(20.0)).differs("no mechanism");
        let known = differs.clone().ours(6.0, 1);
        assert_eq!((known.verdict(), known.is_as_declared()), (Verdict::KnownDifference, true));
        assert!(text(&[known]).contains("* latency: no mechanism.\n"));
        let after_all = differs.ours(20.1, 1);
        assert_eq!((after_all.verdict(), after_all.is_as_declared()), (Verdict::HoldsAfterAll, false));
    }

    #[test]
    fn note_of_a_fit_lists_its_effects() {
        let rows = [
            row(Published::number(17.0)).ours(17.0, 2).fitted("send_ps"),
            row(Published::number(100.0)).ours(104.0, 2).follows("send_ps").differs("coarse"),
            row(Published::words("more", true)).follows("send_ps"),
            row(Published::number(50.0)).ours(50.0, 2),
            row(Published::Below(50.0)).ours(40.0, 2).assumed("copy_ps"),
        ];
        let notes = fits(&rows);
        assert_eq!(
            notes,
            [
                "Fitted: send_ps, to: latency. What that leaves: latency: +4.0 %; latency: holds.",
                "Assumed: copy_ps. What that leaves: latency: -20.0 %.",
                "Rows for which nothing was chosen: 4, of which 3 hold."
            ]
        );
        assert_eq!(fits(&rows[3..4]), ["Rows for which nothing was chosen: 1, of which 1 hold."]);
        assert_eq!(fits(&rows[..1])[0], "Fitted: send_ps, to: latency. No row here follows from it.");
    }

    #[test]
    fn percentages_differ_by_points_and_others_by_percent() {
        let percent = Compared::new("", "share", "%", Published::Number { value: 19.0, within: 0.5 });
        assert_eq!(percent.ours(18.75, 2).difference().as_deref(), Some("-0.25 points"));
        assert_eq!(row(Published::number(115.0)).ours(115.0, 1).difference().as_deref(), Some("none"));
        assert_eq!(row(Published::words("more", true)).ours(1.0, 1).difference(), None);
    }

    #[test]
    fn long_note_is_wrapped_with_indentation() {
        let note = "word ".repeat(40);
        let text = wrapped(note.trim());
        assert!(text.lines().all(|line| line.chars().count() <= LINE), "{text}");
        assert_eq!(text.matches("word").count(), 40);
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }

    #[test]
    fn markdown_has_a_row_for_each() {
        let rows = [row(Published::number(115.0)).ours(115.04, 1).fitted("send_ps")];
        assert!(
            markdown(&rows)
                .contains("| section 4 | latency | ns | 115 | 115.0 | none | fitted: send_ps | - |"),
            "{}",
            markdown(&rows)
        );
    }
}
