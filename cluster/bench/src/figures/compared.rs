//! A paper's number beside ours: where ours comes from, and what may be said of it.
//!
//! A number that a constant was chosen for proves nothing, so it is never said to hold: it is said what was chosen, and
//! what that leaves on the numbers which it was not chosen for. A number that is known to be another than the paper's
//! is declared so, with the reason; if it comes to agree, the declaration is wrong, and that is found too.

use niclab_cluster::output::table;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

/// Where a number of ours comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// From the mechanism, and from constants that a source gives.
    Emergent,
    /// A constant was chosen so that it is what it is: which.
    Fitted(&'static str),
    /// From a fit to another number: of which constant.
    Follows(&'static str),
    /// From a constant that no source gives, and that was chosen for no number of the paper: which.
    Assumed(&'static str),
    /// Taken from the paper as it stands there, or built to be it: what was.
    Given(&'static str),
}

/// What a paper says of a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Published {
    /// It is this, or about this: ours is the same if it is no farther off than `within`.
    Number {
        /// The paper's number.
        value: f64,
        /// How far off counts as the same, in the same unit.
        within: f64,
    },
    /// It is less.
    Below(f64),
    /// It is more.
    Above(f64),
    /// It lies between these.
    Between(f64, f64),
    /// Words stand for it, and ours agrees with them or not.
    Words {
        /// As the paper has them.
        said: String,
        /// Whether ours is so.
        agrees: bool,
    },
}

impl Published {
    /// This number, of which ours may miss a hundredth.
    #[must_use]
    pub fn number(value: f64) -> Self {
        Self::within_percent(value, 1.0)
    }

    /// This number, of which ours may miss so many hundredths.
    #[must_use]
    pub fn within_percent(value: f64, percent: f64) -> Self {
        Self::Number { value, within: (value * percent / 100.0).abs() }
    }

    /// Words, and whether ours agrees with them.
    #[must_use]
    pub fn words(said: &str, agrees: bool) -> Self {
        Self::Words { said: said.to_owned(), agrees }
    }

    fn agrees_with(&self, ours: f64) -> bool {
        match self {
            // A little more than the bound: neither number has a last binary digit that means something.
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

    /// What ours is held against as a number.
    const fn value(&self) -> Option<f64> {
        match self {
            Self::Number { value, .. } | Self::Below(value) | Self::Above(value) => Some(*value),
            Self::Between(..) | Self::Words { .. } => None,
        }
    }
}

/// With so many decimals, but no zeros at their end.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// What may be said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ours agrees with the paper, and nothing was chosen for it.
    Holds,
    /// A constant was chosen for it: it proves nothing.
    Fitted,
    /// It was taken from the paper or built to be so: it proves nothing.
    Given,
    /// It is another number, as is declared.
    KnownDifference,
    /// It is another number, and nobody declared it.
    DoesNotHold,
    /// It was fitted or given, and is another number all the same.
    Lost,
    /// It is declared to be another number, and is not.
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

/// A number of a paper beside ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Where the paper says it.
    pub place: &'static str,
    /// What is counted or measured.
    pub what: String,
    /// Of both numbers; empty where there is none.
    pub unit: &'static str,
    /// What the paper says.
    pub published: Published,
    /// What it is here, in model time where it is a time; none where only a direction is compared.
    pub ours: Option<f64>,
    /// How many digits are shown behind the point.
    pub decimals: usize,
    /// Where ours comes from.
    pub provenance: Provenance,
    /// Why ours is another number, where it is known to be.
    pub known_difference: Option<String>,
}

impl Compared {
    /// A row without number of ours, emergent as long as nothing else is said.
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

    /// With our number, of which so many digits behind the point are shown.
    #[must_use]
    pub fn ours(self, value: f64, decimals: usize) -> Self {
        Self { ours: Some(value), decimals, ..self }
    }

    /// `constant` was chosen for it.
    #[must_use]
    pub fn fitted(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Fitted(constant), ..self }
    }

    /// It follows from a choice of `constant` for another row.
    #[must_use]
    pub fn follows(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Follows(constant), ..self }
    }

    /// It rests on `constant`, which no source gives, and which was chosen for no number of the paper.
    #[must_use]
    pub fn assumed(self, constant: &'static str) -> Self {
        Self { provenance: Provenance::Assumed(constant), ..self }
    }

    /// It was taken from the paper, or built to be so.
    #[must_use]
    pub fn given(self, what: &'static str) -> Self {
        Self { provenance: Provenance::Given(what), ..self }
    }

    /// It is known to be another number, because of this.
    #[must_use]
    pub fn differs(self, reason: impl Into<String>) -> Self {
        Self { known_difference: Some(reason.into()), ..self }
    }

    /// What may be said of it. A number that is none agrees with nothing.
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

    /// Whether the row is as its author says.
    #[must_use]
    pub fn is_as_declared(&self) -> bool {
        !matches!(self.verdict(), Verdict::DoesNotHold | Verdict::Lost | Verdict::HoldsAfterAll)
    }

    /// How far ours is from the paper's number: in hundredths of it, or in points where both are percentages.
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

/// With its verdict, for programs.
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

/// Whether every row is as its author says.
#[must_use]
pub fn are_as_declared(rows: &[Compared]) -> bool {
    rows.iter().all(Compared::is_as_declared)
}

const HEADING: [&str; 7] = ["", "unit", "paper", "here", "difference", "ours is", ""];

fn cells(rows: &[Compared]) -> Vec<Vec<String>> {
    let heading = HEADING.map(str::to_owned).to_vec();
    std::iter::once(heading).chain(rows.iter().map(Compared::cells)).collect()
}

/// A table for terminals, what the fits leave, and why numbers differ.
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

/// The same as Markdown.
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

/// What each fit was made for, and what it leaves on the rows that follow from it; what rests on assumptions; and how
/// many of all rows that nothing was chosen for hold.
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

/// The rows that `constant` was chosen for.
fn purpose(rows: &[Compared], constant: &str) -> String {
    let is_for = |row: &&Compared| matches!(row.provenance, Provenance::Fitted(by) if by == constant);
    let rows: Vec<&str> = rows.iter().filter(is_for).map(|row| row.what.as_str()).collect();
    if rows.is_empty() { String::new() } else { format!(", to: {}", rows.join("; ")) }
}

/// What `constant` leaves on the rows that rest on it.
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

/// The longest line of a note in text.
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
    fn a_number_that_a_constant_was_chosen_for_never_holds() {
        let fitted = row(Published::number(115.0)).ours(115.0, 0).fitted("send_ps");
        assert_eq!((fitted.verdict(), fitted.is_as_declared()), (Verdict::Fitted, true));
        assert!(!text(std::slice::from_ref(&fitted)).contains("holds"));
        // A fit that is a fit no more is found.
        let lost = fitted.ours(117.0, 0);
        assert_eq!((lost.verdict(), lost.is_as_declared()), (Verdict::Lost, false));
        let given = row(Published::number(44.0)).ours(44.0, 0).given("the program");
        assert_eq!(given.verdict(), Verdict::Given);
    }

    #[test]
    fn what_nothing_was_chosen_for_holds_on_its_side_or_within_its_bound() {
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
        assert_eq!(row(Published::number(1.0)).verdict(), Verdict::DoesNotHold, "no number of ours");
        assert_eq!(row(Published::words("more", true)).verdict(), Verdict::Holds);
    }

    #[test]
    fn a_declared_difference_must_be_one() {
        let differs = row(Published::number(20.0)).differs("no mechanism");
        let known = differs.clone().ours(6.0, 1);
        assert_eq!((known.verdict(), known.is_as_declared()), (Verdict::KnownDifference, true));
        assert!(text(&[known]).contains("* latency: no mechanism.\n"));
        let after_all = differs.ours(20.1, 1);
        assert_eq!((after_all.verdict(), after_all.is_as_declared()), (Verdict::HoldsAfterAll, false));
    }

    #[test]
    fn a_fit_says_what_it_leaves() {
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
    fn percentages_differ_by_points_and_others_by_hundredths() {
        let percent = Compared::new("", "share", "%", Published::Number { value: 19.0, within: 0.5 });
        assert_eq!(percent.ours(18.75, 2).difference().as_deref(), Some("-0.25 points"));
        assert_eq!(row(Published::number(115.0)).ours(115.0, 1).difference().as_deref(), Some("none"));
        assert_eq!(row(Published::words("more", true)).ours(1.0, 1).difference(), None);
    }

    #[test]
    fn a_long_note_goes_on_below_its_beginning() {
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
