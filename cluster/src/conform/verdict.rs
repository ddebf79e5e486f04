//! What became of the cases, as data: what a table and a JSON document are made from.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use super::{
    case::Kind,
    traffic::{Moment, Traffic},
};

/// The version of [`Conformance`].
pub const CONFORMANCE_VERSION: u32 = 2;

/// What named something that a driver did wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Named {
    /// A rule of the device programmer's manual, which the device saw broken.
    Rule {
        /// The node whose driver broke it.
        node: String,
        /// Its name: `niclab rules NAME` explains it.
        rule: String,
        /// How often.
        count: u64,
        /// What was seen, the first time.
        said: String,
    },
    /// Something that a kernel found which watches.
    Kernel {
        /// The node.
        node: String,
        /// Which of its tools.
        kind: String,
        /// The kernel's own first words.
        what: String,
        /// The function of the driver in which that was.
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<String>,
        /// All that the kernel said.
        said: String,
        /// The first and the last of the seeds in which that was, where it was looked for behind several of them
        /// together.
        #[serde(skip_serializing_if = "Option::is_none")]
        seeds: Option<[u64; 2]>,
    },
    /// A panic or oops of a guest's kernel.
    Panic {
        /// The node.
        node: String,
        /// The kernel's own first words.
        reason: String,
        /// Where in the driver that was, innermost first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        places: Vec<String>,
        /// The kernel's report with its call trace.
        said: String,
    },
    /// Something did not come to its end in its time.
    Hang {
        /// What.
        what: String,
    },
    /// The command ended with an error.
    Exit {
        /// The node.
        node: String,
        /// Its code.
        code: u8,
        /// The last that it said.
        said: String,
    },
    /// The driver could not be loaded, unbound or the like.
    Step {
        /// What was to be done.
        step: String,
        /// What the guest said.
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
    /// The same, of which it is only known that it was in one of these seeds.
    #[must_use]
    pub fn in_seeds(mut self, first: u64, last: u64) -> Self {
        if let Self::Kernel { seeds, .. } = &mut self {
            *seeds = (first < last).then_some([first, last]);
        }
        self
    }

    /// Whether it is not known in which of several seeds it was.
    #[must_use]
    pub const fn is_of_several_seeds(&self) -> bool {
        matches!(self, Self::Kernel { seeds: Some(_), .. })
    }

    /// What a reader wants to see of it, beside its name.
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

    /// The lines that a table shows: the last that was said; of a panic its places, else the beginning of the kernel's
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

/// What became of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What was done.
    pub case: Kind,
    /// The seed of all that was drawn.
    pub seed: u64,
    /// Whether the guests' kernel was the one that watches, where that of other cases is not.
    pub debug_kernel: bool,
    /// Whether nothing was found.
    pub passed: bool,
    /// What named what was found, the sharpest first.
    pub named: Vec<Named>,
    /// Whether that is because the driver used a value of the device that was out of its range.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub believed_device: bool,
    /// What a reader should know, though nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the case could not be carried out: then it is neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// The folder in which the consoles of all nodes are kept, where something was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consoles: Option<PathBuf>,
    /// Why the case tried nothing, though nothing was found: then it is neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_exercised: Option<String>,
    /// What the cards of all nodes did meanwhile.
    pub traffic: Traffic,
    /// The moments at which something was done to the driver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Wall time that it took, in seconds.
    pub wall_s: f64,
    /// How often each kind of adversarial behaviour happened meanwhile, at all nodes together, where several seeds have one boot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub adversarial: BTreeMap<String, u64>,
    /// The seed with which its cluster was booted, where that was another: those from there on were before it in the
    /// same boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted_with: Option<u64>,
    /// The command line that repeats it.
    pub repeat: String,
    /// The same with the seeds that were before it in the same boot, which it may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_boot: Option<String>,
}

/// What became of all of them.
#[derive(Clone, Debug, Serialize)]
pub struct Conformance {
    /// [`CONFORMANCE_VERSION`].
    pub version: u32,
    /// The NIC model.
    pub nic: String,
    /// The driver, as it was named; niclab's own where none was.
    pub driver: String,
    /// The cases, in the order in which they ran.
    pub cases: Vec<Verdict>,
    /// The signal that ended it before all cases had run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by_signal: Option<i32>,
}

impl Verdict {
    /// The case as a reader calls it.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.case.name();
        if self.debug_kernel { format!("{name}, debug kernel") } else { name }
    }
}

impl Conformance {
    /// How many cases failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.named.is_empty()).count()
    }

    /// How many tried nothing.
    #[must_use]
    pub fn not_exercised(&self) -> usize {
        self.cases.iter().filter(|case| case.not_exercised.is_some()).count()
    }

    /// How many could not be carried out.
    #[must_use]
    pub fn not_run(&self) -> usize {
        self.cases.iter().filter(|case| case.not_run.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_for_behind_several_seeds_says_which() {
        let (node, kind, what) = ("node0".to_owned(), "kmemleak".to_owned(), "w".to_owned());
        let function = Some("probe".to_owned());
        let leak = Named::Kernel { node, kind, what, function, said: String::new(), seeds: None };
        assert_eq!(leak.clone().in_seeds(4, 4), leak, "of one");
        let of_several = leak.in_seeds(4, 9);
        assert_eq!(of_several.to_string(), "kmemleak in probe on node0, in seeds 4 to 9");
        assert!(of_several.is_of_several_seeds());
    }
}
