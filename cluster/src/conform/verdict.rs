//! The results of the cases, as data for the table and the JSON document.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use super::{
    case::Kind,
    traffic::{Moment, Traffic},
};

/// The version of [`Conformance`].
pub const CONFORMANCE_VERSION: u32 = 2;

/// One finding about a driver, by the check that found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Named {
    /// A rule of the device programmer's manual; the device saw that it was broken.
    Rule {
        /// The node whose driver broke it.
        node: String,
        /// Its name: `niclab rules NAME` explains it.
        rule: String,
        /// How often.
        count: u64,
        /// The first observation.
        said: String,
    },
    /// A finding of a debug kernel.
    Kernel {
        /// The node.
        node: String,
        /// The kernel's debug tool that found it.
        kind: String,
        /// The first line of the kernel's report.
        what: String,
        /// The driver's function in the report.
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<String>,
        /// The kernel's whole report.
        said: String,
        /// The first and the last seed to which the finding may belong, if one query covered several seeds.
        #[serde(skip_serializing_if = "Option::is_none")]
        seeds: Option<[u64; 2]>,
    },
    /// A panic or oops of a guest's kernel.
    Panic {
        /// The node.
        node: String,
        /// The kernel's first line.
        reason: String,
        /// The places in the driver, innermost first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        places: Vec<String>,
        /// The kernel's report with its call trace.
        said: String,
    },
    /// A program or a step did not end in time.
    Hang {
        /// What hangs.
        what: String,
    },
    /// The command ended with an error.
    Exit {
        /// The node.
        node: String,
        /// Its code.
        code: u8,
        /// The end of its output.
        said: String,
    },
    /// A step failed, such as loading or unbinding the driver.
    Step {
        /// The step.
        step: String,
        /// The output in the guest.
        said: String,
    },
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { node, rule, count, .. } => write!(f, "rule {rule} on {node}, {count} times"),
            Self::Kernel { node, kind, function, seeds, .. } => {
                let place = function.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
                let seeds =
                    seeds.map_or_else(String::new, |[first, last]| format!(", in seeds {first} to {last}"));
                write!(f, "{kind}{place} on {node}{seeds}")
            }
            Self::Panic { node, reason, .. } => write!(f, "panic on {node}: {reason}"),
            Self::Hang { what } => write!(f, "hang: {what}"),
            Self::Exit { node, code, .. } => write!(f, "exit code {code} on {node}"),
            Self::Step { step, .. } => write!(f, "{step} failed"),
        }
    }
}

impl Named {
    /// The same finding, known to belong to one of these seeds.
    #[must_use]
    pub fn in_seeds(mut self, first: u64, last: u64) -> Self {
        if let Self::Kernel { seeds, .. } = &mut self {
            *seeds = (first < last).then_some([first, last]);
        }
        self
    }

    /// Whether the finding belongs to one of several seeds.
    #[must_use]
    pub const fn is_of_several_seeds(&self) -> bool {
        matches!(self, Self::Kernel { seeds: Some(_), .. })
    }

    /// The details of the finding.
    #[must_use]
    pub fn said(&self) -> &str {
        match self {
            Self::Rule { said, .. }
            | Self::Kernel { said, .. }
            | Self::Panic { said, .. }
            | Self::Exit { said, .. }
            | Self::Step { said, .. } => said,
            Self::Hang { .. } => "",
        }
    }

    /// The lines that a table shows: the end of the details; of a panic its places, else the beginning of the kernel's
    /// report.
    #[must_use]
    pub fn shown(&self, lines: usize) -> Vec<&str> {
        match self {
            Self::Panic { places, .. } if !places.is_empty() => {
                places.iter().map(String::as_str).take(lines).collect()
            }
            Self::Panic { said, .. } => said.lines().take(lines).collect(),
            _ => {
                let all: Vec<&str> = self.said().lines().collect();
                all.get(all.len().saturating_sub(lines)..).unwrap_or_default().to_vec()
            }
        }
    }
}

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The case.
    pub case: Kind,
    /// The random seed.
    pub seed: u64,
    /// Whether the guests ran the debug kernel, while other cases did not.
    pub debug_kernel: bool,
    /// Whether the case passed: no finding, and it ran and was exercised.
    pub passed: bool,
    /// The findings, most specific first.
    pub named: Vec<Named>,
    /// Whether the findings come from an invalid value of the device that the driver trusted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub believed_device: bool,
    /// A note for the reader, although no check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the case could not be run; it is then neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// The folder with the consoles of all nodes, if there was a finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consoles: Option<PathBuf>,
    /// Why the case exercised nothing; it is then neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_exercised: Option<String>,
    /// What the cards of all nodes did during the case.
    pub traffic: Traffic,
    /// The moments at which the case disturbed the driver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Wall time that it took, in seconds.
    pub wall_s: f64,
    /// How often each kind of adversarial behaviour happened during the case, over all nodes, if several seeds share
    /// one boot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub adversarial: BTreeMap<String, u64>,
    /// The seed with which the cluster was booted, if it was another one: the seeds from it on ran before in the same
    /// boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted_with: Option<u64>,
    /// The command line that repeats the case.
    pub repeat: String,
    /// The command line that also repeats the earlier seeds of the same boot, which the finding may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_boot: Option<String>,
}

/// The results of all cases.
#[derive(Clone, Debug, Serialize)]
pub struct Conformance {
    /// [`CONFORMANCE_VERSION`].
    pub version: u32,
    /// The NIC model.
    pub nic: String,
    /// The driver, as the user named it; niclab's own by default.
    pub driver: String,
    /// The cases, in the order in which they ran.
    pub cases: Vec<Verdict>,
    /// The signal that ended the run before all cases had run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by_signal: Option<i32>,
}

impl Verdict {
    /// The case's name in tables.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.case.name();
        if self.debug_kernel { format!("{name}, debug kernel") } else { name }
    }
}

impl Conformance {
    /// The number of failed cases.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.named.is_empty()).count()
    }

    /// The number of cases that exercised nothing.
    #[must_use]
    pub fn not_exercised(&self) -> usize {
        self.cases.iter().filter(|case| case.not_exercised.is_some()).count()
    }

    /// The number of cases that could not be run.
    #[must_use]
    pub fn not_run(&self) -> usize {
        self.cases.iter().filter(|case| case.not_run.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_of_several_seeds_names_their_range() {
        let (node, kind, what) = ("node0".to_owned(), "kmemleak".to_owned(), "w".to_owned());
        let function = Some("probe".to_owned());
        let leak = Named::Kernel { node, kind, what, function, said: String::new(), seeds: None };
        assert_eq!(leak.clone().in_seeds(4, 4), leak, "of one");
        let of_several = leak.in_seeds(4, 9);
        assert_eq!(of_several.to_string(), "kmemleak in probe on node0, in seeds 4 to 9");
        assert!(of_several.is_of_several_seeds());
    }
}
