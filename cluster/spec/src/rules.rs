//! Whether cards check that drivers follow the rules of the device programmer's manual, and what happens if a driver
//! breaks one. [`niclab_abi::rules`] has the rules.

pub use niclab_abi::rules::{Check, Rule, SECTIONS, all, rule, section_title};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::nearest;

/// What happens when a driver or a program breaks a rule of the device programmer's manual (docs/reference/RULES.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleChecking {
    /// The cards check no rules, so the checks cost no time.
    #[default]
    Off,
    /// The report lists the broken rules.
    Report,
    /// As `report`, and the exit code of the run is 1 if a rule was broken.
    Fail,
    /// As `fail`, and niclab stops the guest that broke the rule at once, so that `niclab debug` shows the place.
    Stop,
}

impl RuleChecking {
    /// All modes with their names in cluster files and on the command line.
    pub const ALL: [(&'static str, Self); 4] =
        [("off", Self::Off), ("report", Self::Report), ("fail", Self::Fail), ("stop", Self::Stop)];

    /// The mode with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, checking)| *checking)
    }

    /// Whether cards check the rules.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether a broken rule makes the run fail.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::Stop)
    }
}

/// The name of the rule that the user probably meant by a misspelled name.
#[must_use]
pub fn nearest_rule(misspelled: &str) -> Option<&'static str> {
    let names: Vec<&'static str> = all().map(|rule| rule.name).collect();
    nearest(misspelled, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modes_match_their_json_form() {
        for (name, checking) in RuleChecking::ALL {
            assert_eq!(serde_json::to_string(&checking).unwrap(), format!("\"{name}\""));
            assert_eq!(RuleChecking::named(name), Some(checking));
        }
        assert_eq!(RuleChecking::named("none"), None);
        assert!(!RuleChecking::default().is_on() && !RuleChecking::Report.is_failure());
    }

    #[test]
    fn misspelled_name_finds_its_rule() {
        assert_eq!(nearest_rule("launch-dorbell"), Some("launch-doorbell"));
        assert_eq!(nearest_rule("xyzzy"), None);
    }
}
