//! The results of the conformance cases, as data for the table and the JSON document.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use super::{
    case::CaseKind,
    traffic::{Moment, Traffic},
};

/// The version of the JSON form of [`Conformance`].
pub const CONFORMANCE_VERSION: u32 = 2;

/// A finding about a driver. The variant is the check that found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Named {
    /// The driver broke a rule of the device programmer's manual, and the device detected it.
    Rule {
        /// The node whose driver broke the rule.
        node: String,
        /// The rule's name: `niclab rules NAME` explains it.
        rule: String,
        /// How often the driver broke the rule.
        count: u64,
        /// What the device saw when the driver first broke the rule, and where in the guest.
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
        /// The innermost function of the driver in the report's call trace, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<String>,
        /// The kernel's whole report.
        said: String,
        /// The first and the last seed that may have caused the finding. Only if the launcher queried the guest once
        /// for several seeds.
        #[serde(skip_serializing_if = "Option::is_none")]
        seeds: Option<[u64; 2]>,
    },
    /// A panic or oops of a guest's kernel.
    Panic {
        /// The node.
        node: String,
        /// The first line of the kernel's report.
        reason: String,
        /// The source lines of the driver in the call trace, innermost first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        places: Vec<String>,
        /// The kernel's report with its call trace.
        said: String,
    },
    /// A program or a step did not end in time.
    Hang {
        /// The program or step.
        what: String,
    },
    /// The command ended with an exit code other than 0.
    Exit {
        /// The node.
        node: String,
        /// The exit code.
        code: u8,
        /// The end of the command's output.
        said: String,
    },
    /// A step failed, such as loading or unbinding the driver.
    Step {
        /// The step.
        step: String,
        /// The output of the step in the guest, or the guest's console.
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
    /// Adds to a debug kernel's finding that one of the seeds from `first` to `last` caused it. Does nothing for one
    /// seed, which the verdict names anyway.
    #[must_use]
    pub fn in_seeds(mut self, first: u64, last: u64) -> Self {
        if let Self::Kernel { seeds, .. } = &mut self {
            *seeds = (first < last).then_some([first, last]);
        }
        self
    }

    /// Whether it is not known which of several seeds caused the finding.
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

    /// At most `lines` lines of the details, for a table. A panic shows the source lines of the driver, or if there are
    /// none, the beginning of the kernel's report. Other findings show the end of the details.
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
    pub case: CaseKind,
    /// The random seed.
    pub seed: u64,
    /// Whether this case ran on a debug kernel, although the other cases ran on the cluster's own kernel.
    pub debug_kernel: bool,
    /// Whether the case passed: it could be run, the cards did something in it, and no check found anything.
    pub passed: bool,
    /// The findings, most specific first.
    pub named: Vec<Named>,
    /// Whether there are findings because the driver trusted an invalid value from the device.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub believed_device: bool,
    /// A note about a case in which no check failed.
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
    /// Wall time that the case took, in seconds.
    pub wall_s: f64,
    /// How often the cards of all nodes showed each kind of adversarial behaviour during the case. Empty unless several
    /// seeds share one boot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub adversarial: BTreeMap<String, u64>,
    /// The first seed of this boot, if it is not [`Verdict::seed`]. The seeds from that one on ran in the same boot
    /// before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted_with: Option<u64>,
    /// The command line that repeats the case.
    pub repeat: String,
    /// The command line that also repeats the earlier seeds of the same boot. The finding may depend on them.
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
    /// The number of the signal that ended the run before all cases had run.
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
        assert_eq!(leak.clone().in_seeds(4, 4), leak, "one seed");
        let of_several = leak.in_seeds(4, 9);
        assert_eq!(of_several.to_string(), "kmemleak in probe on node0, in seeds 4 to 9");
        assert!(of_several.is_of_several_seeds());
    }
}
