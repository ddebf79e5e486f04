//! Whether cards look for broken rules while guests run. What the rules are is [`niclab_abi::rules`], from the device
//! programmer's manual.

pub use niclab_abi::rules::{Check, Rule, SECTIONS, all, rule, section_title};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::nearest;

/// What is done where a driver or a program breaks a rule of the device programmer's manual (docs/reference/RULES.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleChecking {
    /// Nobody looks, and nothing is slower.
    #[default]
    Off,
    /// The report names it.
    Report,
    /// As `report`, and the run's exit code is 1.
    Fail,
    /// As `fail`, and the guest of the node that broke it is stopped at once, for `niclab debug`.
    Stop,
}

impl RuleChecking {
    /// All of them, by the names that users write.
    pub const ALL: [(&'static str, Self); 4] =
        [("off", Self::Off), ("report", Self::Report), ("fail", Self::Fail), ("stop", Self::Stop)];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, checking)| *checking)
    }

    /// Whether anybody looks.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether a run in which a rule was broken has failed.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::Stop)
    }
}

/// The name of the rule that a wrong name was probably meant to be.
#[must_use]
pub fn nearest_rule(wrong: &str) -> Option<&'static str> {
    let names: Vec<&'static str> = all().map(|rule| rule.name).collect();
    nearest(wrong, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_file() {
        for (name, checking) in RuleChecking::ALL {
            assert_eq!(serde_json::to_string(&checking).unwrap(), format!("\"{name}\""));
            assert_eq!(RuleChecking::named(name), Some(checking));
        }
        assert_eq!(RuleChecking::named("none"), None);
        assert!(!RuleChecking::default().is_on() && !RuleChecking::Report.is_failure());
    }

    #[test]
    fn a_slip_finds_its_rule() {
        assert_eq!(nearest_rule("launch-dorbell"), Some("launch-doorbell"));
        assert_eq!(nearest_rule("xyzzy"), None);
    }
}
