//! The report of one run of `niclab bench`, as tables for users and as JSON for programs.

use std::{fs, thread};

use niclab_cluster::{output::table, plan::Plan};
use serde::Serialize;
use serde_json::Value;

use super::figure::{Figure, digits};
use crate::BenchSection;

/// The version of [`BenchReport`]; it is increased when a key changes its meaning or is removed.
pub const BENCH_VERSION: u32 = 1;

/// One run of `niclab bench`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// [`BENCH_VERSION`].
    pub version: u32,
    /// The program that wrote the report: `niclab bench`.
    pub tool: &'static str,
    /// The host.
    pub machine: Machine,
    /// The platform of the guests; `None` if no section boots guests.
    pub guests: Option<GuestPlatform>,
    /// The results of the sections.
    pub sections: Vec<SectionReport>,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's model name.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
}

/// The platform of the guests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestPlatform {
    /// QEMU's accelerator, such as `kvm` or `tcg`.
    pub accelerator: String,
    /// Why this accelerator was used.
    pub accelerator_reason: String,
    /// QEMU's version.
    pub qemu_version: String,
    /// Release of the guest kernel.
    pub kernel_release: String,
}

/// The result of one section.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SectionReport {
    /// The section; JSON has its name in `--only`.
    pub section: BenchSection,
    /// What the section measures.
    pub what: &'static str,
    /// Wall time that the section took.
    pub wall_s: f64,
    /// Average number of cores that other processes kept busy during the section, which lengthens wall times. `None` if
    /// unknown.
    pub others_cores: Option<f64>,
    /// The measured figures.
    pub figures: Vec<Figure>,
    /// The JSON output of the programs that the section ran.
    pub details: Option<Value>,
    /// Measurements that were omitted because a program is not installed, each with the reason.
    pub left_out: Vec<String>,
    /// Why the section failed.
    pub failure: Option<String>,
}

impl Machine {
    /// This host.
    #[must_use]
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            processor: processor.unwrap_or("unknown processor").trim().to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl GuestPlatform {
    /// The platform of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            accelerator: plan.accelerator.name().to_owned(),
            accelerator_reason: plan.accelerator.reason.clone(),
            qemu_version: plan.qemu_version.clone(),
            kernel_release: plan.kernel_release.clone(),
        }
    }
}

impl BenchReport {
    /// A report of this version.
    #[must_use]
    pub fn new(machine: Machine, guests: Option<GuestPlatform>, sections: Vec<SectionReport>) -> Self {
        Self { version: BENCH_VERSION, tool: "niclab bench", machine, guests, sections }
    }

    /// Whether every section was measured. A missed goal does not count as a failure.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.sections.iter().all(|section| section.failure.is_none())
    }

    /// The report as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let Machine { processor, cores } = &self.machine;
        let mut text = format!("host: {cores} cores of {processor}\n");
        if let Some(guests) = &self.guests {
            text += &format!(
                "guests: QEMU {}, kernel {}, accelerator {} ({})\n",
                guests.qemu_version, guests.kernel_release, guests.accelerator, guests.accelerator_reason
            );
        }
        text += "clock: wall is the time that this machine took; model is the time that the modelled hardware would \
                 have taken\n";
        text += "median, min, max: over all rounds; a ratio is computed in each round\n";
        for section in &self.sections {
            text += &section.text();
        }
        text += &self.summary();
        text
    }

    fn summary(&self) -> String {
        let figures = || self.sections.iter().flat_map(|section| &section.figures);
        let goals = figures().filter(|figure| figure.goal.is_some()).count();
        let missed: Vec<&str> = figures()
            .filter(|figure| figure.reached == Some(false))
            .map(|figure| figure.what.as_str())
            .collect();
        let mut text = format!("\ngoals: {} of {goals} reached\n", goals - missed.len());
        for what in missed {
            text += &format!("not reached: {what}\n");
        }
        for section in self.sections.iter().filter(|section| section.failure.is_some()) {
            text += &format!("not measured: {}\n", section.what);
        }
        text
    }
}

impl SectionReport {
    fn text(&self) -> String {
        let others = self.others_cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2}"));
        let mut text = format!("\n{}\n", self.what);
        text += &format!(
            "took {:.0} s; cores that other processes kept busy during this time: {others}\n",
            self.wall_s
        );
        if let Some(failure) = &self.failure {
            return text + &format!("could not be measured: {failure}\n");
        }
        let heading = ["figure", "median", "min", "max", "unit", "clock", "goal", "reached"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.figures.iter().map(row));
        text += &table(&rows);
        for left_out in &self.left_out {
            text += &format!("omitted: {left_out}\n");
        }
        text
    }
}

fn row(figure: &Figure) -> Vec<String> {
    let reached = match figure.reached {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    vec![
        figure.what.clone(),
        digits(figure.median),
        digits(figure.min),
        digits(figure.max),
        figure.unit.clone(),
        figure.clock.name().to_owned(),
        figure.goal.map_or_else(String::new, super::figure::Goal::text),
        reached.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Clock, Goal};

    fn report() -> BenchReport {
        let figure = |what: &str, value: f64, goal: Goal| {
            Figure::new("key", what, Clock::Wall, "us", vec![value]).with_goal(goal)
        };
        let section = |section, figures, failure| SectionReport {
            section,
            what: "two guests",
            wall_s: 1.0,
            others_cores: Some(0.25),
            figures,
            details: Some(serde_json::json!({"kept": "as it is"})),
            left_out: vec!["testpmd: none".to_owned()],
            failure,
        };
        let machine = Machine { processor: "P".into(), cores: 2 };
        let figures =
            vec![figure("fast enough", 1.0, Goal::Below(2.0)), figure("too slow", 3.0, Goal::Below(2.0))];
        let sections = vec![
            section(crate::SECTIONS[0], figures, None),
            section(crate::SECTIONS[2], Vec::new(), Some("it broke".into())),
        ];
        BenchReport::new(machine, None, sections)
    }

    #[test]
    fn missed_goals_and_failures_are_listed_separately() {
        let text = report().text();
        assert!(
            text.contains("goals: 1 of 2 reached\nnot reached: too slow\nnot measured: two guests\n"),
            "{text}"
        );
        assert!(text.contains("could not be measured: it broke"), "{text}");
        assert!(text.contains("kept busy during this time: 0.25\n"), "{text}");
        let line = text.lines().find(|line| line.starts_with("too slow")).unwrap();
        assert!(line.contains("wall") && line.contains("< 2") && line.ends_with("NO"), "{line}");
    }

    #[test]
    fn only_a_failed_measurement_makes_a_run_incomplete() {
        let mut report = report();
        assert!(!report.is_complete());
        report.sections.pop();
        assert!(report.is_complete(), "a missed goal does not make a run incomplete");
    }

    #[test]
    fn json_has_a_version_and_the_clock_of_every_figure() {
        let value = serde_json::to_value(report()).unwrap();
        assert_eq!(value["version"], BENCH_VERSION);
        assert_eq!(value["sections"][0]["section"], "guests");
        assert_eq!(value["sections"][0]["details"]["kept"], "as it is");
        let figure = &value["sections"][0]["figures"][1];
        assert_eq!((&figure["clock"], &figure["reached"]), (&"wall".into(), &false.into()));
        assert_eq!(figure["goal"]["below"], 2.0);
    }
}
