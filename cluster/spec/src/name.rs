//! The name of a cluster, which only its parser can make.
//!
//! The name becomes the name of a folder and a part of socket paths. Code that has a [`ClusterName`] need not check it.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The prefix of cluster names that `niclab run` chooses itself.
const RUN_PREFIX: &str = "run-";

/// The fix for an invalid name.
pub(crate) const LABEL_REMEDY: &str =
    "use a lower-case letter, then up to 31 lower-case letters, digits and hyphens, the last no hyphen";

/// Whether this is a host name that every resolver accepts. It is short enough to keep socket paths within the 108
/// bytes of `sun_path`.
pub(crate) fn is_label(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A cluster's name: 1 to 32 lower-case letters, digits and hyphens; the first is a letter, and the last is no hyphen.
/// So the name is one component of a path, and neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

/// The text is not a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a cluster name; {LABEL_REMEDY}")]
pub struct ClusterNameError(pub String);

impl ClusterName {
    /// The default name.
    pub const DEFAULT: &str = "niclab";

    /// The name that `niclab run` in this process gives a cluster without a name.
    #[must_use]
    pub fn of_run(pid: u32) -> Self {
        Self(format!("{RUN_PREFIX}{pid}"))
    }

    /// Whether `niclab run` may have chosen this name.
    #[must_use]
    pub fn is_of_run(&self) -> bool {
        self.0.starts_with(RUN_PREFIX)
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ClusterName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl FromStr for ClusterName {
    type Err = ClusterNameError;

    fn from_str(text: &str) -> Result<Self, ClusterNameError> {
        if is_label(text) { Ok(Self(text.to_owned())) } else { Err(ClusterNameError(text.to_owned())) }
    }
}

impl TryFrom<String> for ClusterName {
    type Error = ClusterNameError;

    fn try_from(text: String) -> Result<Self, ClusterNameError> {
        text.parse()
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for ClusterName {
    fn schema_name() -> Cow<'static, str> {
        "ClusterName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_with_path_syntax_is_not_a_name() {
        let long = "a".repeat(33);
        for text in [
            "", ".", "..", "../x", "/", "/etc", "a/b", "a\0", "A", "1a", "-a", "a-", "a.b", "a b", "ä", &long,
        ] {
            assert_eq!(text.parse::<ClusterName>(), Err(ClusterNameError(text.to_owned())));
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<ClusterName>(&json).is_err(), "{text}: not by way of JSON either");
        }
        for text in ["a", "niclab", "run-1", "a-b-9", &"a".repeat(32)] {
            assert_eq!(text.parse::<ClusterName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn names_that_niclab_chooses_are_valid() {
        for name in [ClusterName::default(), ClusterName::of_run(0), ClusterName::of_run(u32::MAX)] {
            assert_eq!(name.as_str().parse(), Ok(name.clone()));
        }
        assert!(ClusterName::of_run(7).is_of_run() && !ClusterName::default().is_of_run());
    }

    proptest! {
        #[test]
        fn a_name_is_one_component_of_a_path(text in "[a-z0-9./ -]{0,6}") {
            let Ok(name) = text.parse::<ClusterName>() else { return Ok(()) };
            let path = std::path::Path::new(name.as_str());
            prop_assert!(matches!(path.components().collect::<Vec<_>>()[..], [std::path::Component::Normal(_)]));
        }
    }
}
