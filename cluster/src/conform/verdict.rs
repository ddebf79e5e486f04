//! What became of the cases, as data: what a table and a JSON document are made from.

use std::fmt;

use serde::Serialize;

use super::case::Kind;

/// The version of [`Conformance`].
pub const CONFORMANCE_VERSION: u32 = 1;

/// What named something that a driver did wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Named {
    /// A panic or oops of a guest's kernel.
    Panic {
        /// The node.
        node: String,
        /// The kernel's own words, and where in the driver that was.
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
            Self::Panic { node, .. } => write!(f, "panic on {node}"),
            Self::Hang { what } => write!(f, "hang: {what}"),
            Self::Exit { node, code, .. } => write!(f, "exit code {code} on {node}"),
            Self::Step { step, .. } => write!(f, "{step} failed"),
        }
    }
}

impl Named {
    /// What a reader wants to see of it, beside its name.
    #[must_use]
    pub fn said(&self) -> &str {
        match self {
            Self::Panic { said, .. } | Self::Exit { said, .. } | Self::Step { said, .. } => said,
            Self::Hang { .. } => "",
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
    /// Whether nothing was found.
    pub passed: bool,
    /// What named what was found, the sharpest first.
    pub named: Vec<Named>,
    /// What a reader should know, though nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why the case could not be carried out: then it is neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// Wall time that it took, in seconds.
    pub wall_s: f64,
    /// The command line that repeats it.
    pub repeat: String,
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

impl Conformance {
    /// How many cases failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.passed && case.not_run.is_none()).count()
    }

    /// How many could not be carried out.
    #[must_use]
    pub fn not_run(&self) -> usize {
        self.cases.iter().filter(|case| case.not_run.is_some()).count()
    }
}
