//! Several reports side by side, and the difference of two. Counts, model time and wall time are separate.

use std::collections::BTreeMap;

use niclab_spec::{
    Report,
    report::{Histogram, LedgerEntry, NodeFigures},
};
use serde::Serialize;

use super::text::microseconds;
use crate::output::table;

/// The version of [`Comparison`] as JSON.
pub const COMPARISON_VERSION: u32 = 1;

/// Several reports, number by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// The compared files, as the user named them.
    pub files: Vec<String>,
    /// The properties of the runs: a row for each property, with the value of each file.
    pub properties: Vec<Property>,
    /// All numbers, in the order of the sections.
    pub rows: Vec<Row>,
}

/// A property of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Its value in each file.
    pub values: Vec<String>,
}

/// One number in every file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The kind of number.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// Its unit: `ps` (model time), `ns` (wall time), `bytes`, a rate per second, or none for a plain count.
    pub unit: Unit,
    /// Its value in each file; `None` if a file does not have it.
    pub values: Vec<Option<u64>>,
    /// The second value less the first, if there are two files and both have it.
    pub difference: Option<i128>,
}

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// An exact count.
    Counts,
    /// Model time.
    ModelTime,
    /// Wall time.
    WallTime,
}

impl Section {
    /// The kind in a column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counts => "count",
            Self::ModelTime => "model time",
            Self::WallTime => "wall time",
        }
    }
}

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// A plain count.
    #[serde(rename = "count")]
    Count,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// Picoseconds.
    #[serde(rename = "ps")]
    Picoseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// A rate per second.
    #[serde(rename = "per_s")]
    PerSecond,
    /// Bytes per second.
    #[serde(rename = "bytes_per_s")]
    BytesPerSecond,
}

/// A report's numbers, in their order.
#[derive(Default)]
struct Figures(Vec<(Section, String, Unit, u64)>);

impl Comparison {
    /// Compares reports. With `per_node` each node's counts have their own rows; otherwise only the sums do.
    #[must_use]
    pub fn new(reports: &[(String, Report)], per_node: bool) -> Self {
        let figures: Vec<Figures> = reports.iter().map(|(_, report)| Figures::of(report, per_node)).collect();
        Self {
            version: COMPARISON_VERSION,
            files: reports.iter().map(|(file, _)| file.clone()).collect(),
            properties: properties(reports),
            rows: rows(&figures),
        }
    }

    /// Keeps only the numbers that differ between two reports, and of these only counts and model time, because wall
    /// time always differs.
    #[must_use]
    pub fn changes(mut self) -> Self {
        self.rows.retain(|row| row.is_changed() && row.section != Section::WallTime);
        self
    }

    /// Formats the comparison as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let names = short_names(&self.files);
        let mut rows = vec![[vec!["run".to_owned()], names.clone()].concat()];
        rows.extend(
            self.properties
                .iter()
                .map(|property| [vec![property.name.to_owned()], property.values.clone()].concat()),
        );
        let mut text = table(&rows);
        for (section, heading) in [
            (Section::Counts, "counts"),
            (Section::ModelTime, "model time: what the modelled hardware would have taken"),
            (Section::WallTime, "wall time: what this host took"),
        ] {
            let of_section: Vec<&Row> = self.rows.iter().filter(|row| row.section == section).collect();
            if !of_section.is_empty() {
                text += &format!("\n{heading}\n");
                text += &self.section_table(&names, &of_section);
            }
        }
        text
    }

    fn section_table(&self, names: &[String], of_section: &[&Row]) -> String {
        let mut heading = [vec!["what".to_owned(), "unit".to_owned()], names.to_vec()].concat();
        let is_pair = names.len() == 2;
        if is_pair {
            heading.extend(["difference", "%"].map(str::to_owned));
        }
        let mut rows = vec![heading];
        for row in of_section {
            let shown =
                |value: &Option<u64>| value.map_or_else(|| "-".to_owned(), |value| row.unit.show(value));
            let mut cells = vec![row.name.clone(), row.unit.name().to_owned()];
            cells.extend(row.values.iter().map(shown));
            if is_pair {
                cells.push(row.shown_difference());
                cells.push(row.percent());
            }
            rows.push(cells);
        }
        table(&rows)
    }
}

impl Row {
    /// Whether the values of two reports differ. A count that one of them lacks is 0 there.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        match self.values.as_slice() {
            [base, new] if self.section == Section::Counts => base.unwrap_or(0) != new.unwrap_or(0),
            [base, new] => base != new,
            _ => false,
        }
    }

    /// The difference with its sign, such as `+1`; `-` if there is none.
    pub(crate) fn shown_difference(&self) -> String {
        self.difference.map_or_else(|| "-".to_owned(), |by| self.unit.show_signed(by))
    }

    /// The difference in percent of the first value, such as `+1.25`.
    pub(crate) fn percent(&self) -> String {
        match (self.difference, self.values.first().copied().flatten()) {
            (Some(0), _) => "0.00".to_owned(),
            (Some(difference), Some(first)) if first > 0 => {
                // Values are below 2^64, so this stays far below 2^127.
                let hundredths = difference * 10_000 / i128::from(first);
                let sign = if difference < 0 { '-' } else { '+' };
                let size = hundredths.unsigned_abs();
                format!("{sign}{}.{:02}", size / 100, size % 100)
            }
            _ => "-".to_owned(),
        }
    }
}

impl Unit {
    /// The unit in which [`Self::show`] prints a value.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "bytes",
            Self::Picoseconds | Self::Nanoseconds => "us",
            Self::PerSecond => "/s",
            Self::BytesPerSecond => "bytes/s",
        }
    }

    /// Prints all digits.
    pub(crate) fn show(self, value: u64) -> String {
        match self {
            Self::Picoseconds => microseconds(value),
            Self::Nanoseconds => format!("{}.{:03}", value / 1000, value % 1000),
            Self::Count | Self::Bytes | Self::PerSecond | Self::BytesPerSecond => value.to_string(),
        }
    }

    fn show_signed(self, value: i128) -> String {
        // Both values fit into 64 bits, and so does their difference.
        let size = self.show(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
        match value {
            0 => size,
            1.. => format!("+{size}"),
            _ => format!("-{size}"),
        }
    }
}

fn properties(reports: &[(String, Report)]) -> Vec<Property> {
    type Read = fn(&Report) -> String;
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let texts: [(&'static str, Read); 7] = [
        ("mode", |report| report.mode.name().to_owned()),
        ("cluster", |report| report.cluster.clone()),
        ("nodes", |report| report.nodes.len().to_string()),
        ("NIC", |report| report.nic.join(", ")),
        ("profile", |report| report.profile.clone()),
        ("seed", |report| report.seed.to_string()),
        ("niclab", |report| report.niclab_version.clone()),
    ];
    let of_all = |name, read: &dyn Fn(&Report) -> String| Property {
        name,
        values: reports.iter().map(|(_, report)| read(report)).collect(),
    };
    let mut properties: Vec<Property> = texts.iter().map(|(name, read)| of_all(name, read)).collect();
    properties.push(of_all("QEMU", &|report| optional(&report.qemu_version)));
    properties.push(of_all("kernel", &|report| optional(&report.kernel_release)));
    properties.push(of_all("accelerator", &|report| {
        report.accelerator.as_ref().map_or_else(|| "-".to_owned(), |accelerator| accelerator.name.clone())
    }));
    properties.push(of_all("model time is", &|report| {
        if report.model.is_exact { "exact" } else { "an estimate" }.to_owned()
    }));
    properties
}

/// File names without the folder, if all files are in the same one.
fn short_names(files: &[String]) -> Vec<String> {
    let folders = |file: &String| file.rfind('/').map_or(0, |slash| slash + 1);
    let first = files.first().map_or("", |file| &file[..folders(file)]);
    let is_shared = !first.is_empty() && files.iter().all(|file| file[..folders(file)] == *first);
    files.iter().map(|file| if is_shared { file[folders(file)..].to_owned() } else { file.clone() }).collect()
}

/// A row for each number that any report has, in the order of sections and of first appearance.
fn rows(figures: &[Figures]) -> Vec<Row> {
    let mut places: BTreeMap<(Section, &str), usize> = BTreeMap::new();
    let mut rows: Vec<Row> = Vec::new();
    for (file, figures) in figures.iter().enumerate() {
        let count = |rows: &Vec<Row>| rows.len();
        for (section, name, unit, value) in &figures.0 {
            let place = *places.entry((*section, name)).or_insert_with(|| {
                rows.push(Row {
                    section: *section,
                    name: name.clone(),
                    unit: *unit,
                    values: Vec::new(),
                    difference: None,
                });
                count(&rows) - 1
            });
            if let Some(row) = rows.get_mut(place) {
                row.values.resize(file, None);
                row.values.push(Some(*value));
            }
        }
    }
    for row in &mut rows {
        row.values.resize(figures.len(), None);
        if let [Some(first), Some(second)] = row.values.as_slice() {
            row.difference = Some(i128::from(*second) - i128::from(*first));
        }
    }
    rows.sort_by_key(|row| row.section);
    rows
}

impl Figures {
    fn of(report: &Report, per_node: bool) -> Self {
        let mut figures = Self::default();
        figures.nodes("", &report.nodes.iter().collect::<Vec<_>>());
        if per_node {
            for node in &report.nodes {
                figures.nodes(&format!("{} ", node.name), &[node]);
                figures.pages(node);
            }
        }
        figures.ledger("", &report.total);
        figures.time("time", report.model.time_ps);
        figures.latency("latency", &report.model.latency);
        figures.push(
            Section::ModelTime,
            "bandwidth".into(),
            Unit::BytesPerSecond,
            report.model.bandwidth_bytes_per_s,
        );
        figures.push(Section::ModelTime, "messages".into(), Unit::PerSecond, report.model.messages_per_s);
        if per_node {
            for node in &report.nodes {
                node.ledgers().for_each(|(name, ledger)| figures.ledger(&format!("{name} "), ledger));
                figures.latency(&format!("{} latency", node.name), &node.model_latency);
            }
            figures.ledger("fabric ", &report.fabric.ledger);
        }
        figures.wall(report);
        figures
    }

    fn push(&mut self, section: Section, name: String, unit: Unit, value: u64) {
        self.0.push((section, name, unit, value));
    }

    fn count(&mut self, name: String, value: u64) {
        self.push(Section::Counts, name, Unit::Count, value);
    }

    fn time(&mut self, name: &str, ps: u64) {
        self.push(Section::ModelTime, name.to_owned(), Unit::Picoseconds, ps);
    }

    /// The sums over these nodes.
    fn nodes(&mut self, prefix: &str, nodes: &[&NodeFigures]) {
        type Read = fn(&NodeFigures) -> u64;
        let counters: [(&str, Unit, Read); 13] = [
            ("messages sent", Unit::Count, |node| node.messages_sent),
            ("messages received", Unit::Count, |node| node.messages_received),
            ("message bytes sent", Unit::Bytes, |node| node.bytes_sent),
            ("message bytes received", Unit::Bytes, |node| node.bytes_received),
            ("Ethernet frames sent", Unit::Count, |node| node.ethernet.sent_frames),
            ("Ethernet frames received", Unit::Count, |node| node.ethernet.received_frames),
            ("Ethernet frames dropped", Unit::Count, |node| node.ethernet.dropped_frames),
            ("doorbells", Unit::Count, |node| node.doorbells),
            ("doorbells spared", Unit::Count, |node| node.spared_doorbells),
            ("polls", Unit::Count, |node| node.polls),
            ("interrupts suppressed", Unit::Count, |node| node.suppressed_interrupts),
            ("events merged", Unit::Count, |node| node.events_merged),
            ("control requests refused", Unit::Count, |node| node.control_refused),
        ];
        for (name, unit, read) in counters {
            let sum = nodes.iter().fold(0_u64, |sum, node| sum.wrapping_add(read(node)));
            self.push(Section::Counts, format!("{prefix}{name}"), unit, sum);
        }
        type ReadMap = fn(&NodeFigures) -> Option<&BTreeMap<String, u64>>;
        let maps: [(&str, ReadMap); 9] = [
            ("frames carried", |node| Some(&node.shortcuts)),
            ("interrupts", |node| Some(&node.interrupts)),
            ("/proc/interrupts", |node| node.guest_interrupts.as_ref()),
            ("NIC", |node| Some(&node.nic_counts)),
            ("violations", |node| Some(&node.violations)),
            ("link", |node| Some(&node.link_events)),
            ("device faults", |node| Some(&node.device_faults)),
            ("adversarial", |node| Some(&node.adversarial)),
            ("broken rules", |node| Some(&node.broken_rules)),
        ];
        for (what, read) in maps {
            let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
            for (name, count) in nodes.iter().filter_map(|node| read(node)).flatten() {
                let sum = sums.entry(name).or_insert(0);
                *sum = sum.wrapping_add(*count);
            }
            for (name, sum) in sums {
                self.count(format!("{prefix}{what}: {name}"), sum);
            }
        }
    }

    /// The counts of each page of a node's modelled NIC.
    fn pages(&mut self, node: &NodeFigures) {
        for port in &node.ports {
            let page = format!("{} page {}", node.name, port.port);
            self.count(format!("{page} launches"), port.launches);
            for (cause, count) in &port.interrupts {
                self.count(format!("{page} interrupts: {cause}"), *count);
            }
        }
    }

    fn ledger(&mut self, prefix: &str, ledger: &[LedgerEntry]) {
        for entry in ledger {
            let name = format!("{prefix}{}", entry.transaction);
            self.count(name.clone(), entry.count);
            self.push(Section::Counts, format!("{name} bytes"), Unit::Bytes, entry.bytes);
            self.time(&format!("{name} price"), entry.model_price_ps);
            self.time(&format!("{name} waited"), entry.model_waited_ps);
        }
    }

    fn latency(&mut self, name: &str, latency: &Histogram) {
        let points = [
            ("min", latency.min_ps),
            ("p50", latency.p50_ps),
            ("p90", latency.p90_ps),
            ("p99", latency.p99_ps),
            ("p99.9", latency.p999_ps),
            ("max", latency.max_ps),
        ];
        for (point, ps) in points.into_iter().filter(|_| latency.count > 0) {
            self.time(&format!("{name} {point}"), ps);
        }
    }

    fn wall(&mut self, report: &Report) {
        let Some(wall) = &report.wall else { return };
        let mut time = |name: String, ns| self.push(Section::WallTime, name, Unit::Nanoseconds, ns);
        time("boot".to_owned(), wall.boot_ns);
        time("commands".to_owned(), wall.commands_ns);
        for result in &wall.results {
            let name = format!(
                "{} {} {} {} bytes",
                result.node, result.benchmark, result.transport, result.payload_bytes
            );
            if let Some(trip) = result.round_trip {
                for (point, ns) in [("p50", trip.p50_ns), ("p99", trip.p99_ns), ("p99.9", trip.p999_ns)] {
                    self.push(Section::WallTime, format!("{name} round trip {point}"), Unit::Nanoseconds, ns);
                }
            }
            self.push(Section::WallTime, format!("{name} messages"), Unit::PerSecond, result.messages_per_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    fn pair() -> Comparison {
        let mut second = sample();
        second.seed = 8;
        second.nodes[0].doorbells = 22;
        second.nodes[0].ledger[0].model_price_ps = 750_000;
        second.nodes[0].interrupts.insert("control".to_owned(), 1);
        second.wall = None;
        second.add_up();
        Comparison::new(&[("a/x.json".to_owned(), sample()), ("a/y.json".to_owned(), second)], false)
    }

    fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
        comparison.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn two_reports_have_differences() {
        let comparison = pair();
        let doorbells = row(&comparison, "doorbells");
        assert_eq!(
            (doorbells.values.as_slice(), doorbells.difference),
            ([Some(11), Some(22)].as_slice(), Some(11))
        );
        assert_eq!(doorbells.percent(), "+100.00");
        let price = row(&comparison, "pio_write price");
        assert_eq!((price.section, price.difference), (Section::ModelTime, Some(-750_000)));
        assert_eq!(price.percent(), "-50.00");
        assert_eq!(row(&comparison, "messages sent").percent(), "0.00");
    }

    #[test]
    fn changes_are_the_counts_and_model_times_that_differ() {
        let changes = pair().changes();
        let names: Vec<&str> = changes.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["doorbells", "interrupts: control", "pio_write price"]);
    }

    #[test]
    fn number_that_one_report_lacks_is_shown_as_missing() {
        let comparison = pair();
        assert_eq!(row(&comparison, "interrupts: control").values, [None, Some(1)]);
        assert_eq!(row(&comparison, "boot").values, [Some(4_123_000_000), None]);
        assert_eq!(row(&comparison, "boot").percent(), "-");
        let text = comparison.text();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "run x.json y.json",
            "seed 7 8",
            "doorbells 11 22 +11 +100.00",
            "pio_write price us 1.500000 0.750000 -0.750000 -50.00",
            "boot us 4123000.000 - - -",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn model_and_wall_time_are_separate() {
        let comparison = pair();
        assert!(comparison.rows.is_sorted_by_key(|row| row.section));
        for row in &comparison.rows {
            let is_wall = row.section == Section::WallTime;
            assert!(row.unit != Unit::Nanoseconds || is_wall, "{row:?}");
            assert!(row.unit != Unit::Picoseconds || row.section == Section::ModelTime, "{row:?}");
        }
    }

    #[test]
    fn three_reports_are_compared_without_difference() {
        let reports = ["a", "b", "c"].map(|file| (file.to_owned(), sample()));
        let comparison = Comparison::new(&reports, true);
        assert_eq!(row(&comparison, "node0 doorbells").values, [Some(11); 3]);
        assert_eq!(row(&comparison, "node0 io-card device_to_device").values, [Some(1); 3]);
        assert_eq!(row(&comparison, "node0 page 3 interrupts: message").values, [Some(2); 3]);
        assert!(!comparison.text().contains("difference"));
        assert_eq!(row(&comparison, "doorbells").difference, None);
    }

    #[test]
    fn extreme_values_are_shown_with_all_digits() {
        let mut report = sample();
        report.nodes[0].polls = u64::MAX;
        let reports = [("a".to_owned(), report), ("b".to_owned(), sample())];
        let comparison = Comparison::new(&reports, false);
        assert_eq!(row(&comparison, "polls").difference, Some(-i128::from(u64::MAX)));
        assert!(comparison.text().contains("-18446744073709551615"));
    }
}
