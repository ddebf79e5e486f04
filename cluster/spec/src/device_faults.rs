//! Faults of a node's NIC, for the test of drivers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Faults of a NIC's cluster function, for every model: forbidden behaviour towards host memory and in interrupts.
///
/// Each fault has a probability, which the cluster's seed decides at each opportunity. A key of the same name with
/// `_at` lists opportunities at which the fault certainly occurs. Each fault counts its own opportunities, from 1 since
/// the NIC was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceFaults {
    /// Probability that a completion arrives without its last word: memory has the data, but the old ownership and
    /// status. A write of counts (a status line) is omitted completely. Opportunities: completions and writes of
    /// counts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stale: f64,
    /// Opportunities at which `stale` certainly occurs.
    pub stale_at: Vec<u64>,
    /// Probability that the data of a write is truncated, although its completion reports success. Opportunities:
    /// writes with data.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub short: f64,
    /// Opportunities at which `short` certainly occurs.
    pub short_at: Vec<u64>,
    /// Probability that one status bit of a completion is flipped. Opportunities: completions.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub bad_status: f64,
    /// Opportunities at which `bad_status` certainly occurs.
    pub bad_status_at: Vec<u64>,
    /// Probability that a completion is late by `delay_ns`, together with everything after it. Opportunities:
    /// completions and writes of counts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub delay: f64,
    /// Opportunities at which `delay` certainly occurs.
    pub delay_at: Vec<u64>,
    /// Delay of a late completion in model time, in nanoseconds.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub delay_ns: u64,
    /// Probability that an interrupt is not raised. Opportunities: interrupts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lost_interrupt: f64,
    /// Opportunities at which `lost_interrupt` certainly occurs.
    pub lost_interrupt_at: Vec<u64>,
    /// Probability that an interrupt is raised twice. Opportunities: interrupts.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(alias = "doubled_interrupt")]
    pub duplicated_interrupt: f64,
    /// Opportunities at which `duplicated_interrupt` certainly occurs.
    #[serde(alias = "doubled_interrupt_at")]
    pub duplicated_interrupt_at: Vec<u64>,
    /// Probability that a length, index, handle or count that the NIC gives its host is out of its range.
    /// Opportunities: completions, writes of counts, events, answers and their used lengths, if they contain such a
    /// value.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub invalid_value: f64,
    /// Opportunities at which `invalid_value` certainly occurs.
    pub invalid_value_at: Vec<u64>,
}

impl Default for DeviceFaults {
    fn default() -> Self {
        Self {
            stale: 0.0,
            stale_at: Vec::new(),
            short: 0.0,
            short_at: Vec::new(),
            bad_status: 0.0,
            bad_status_at: Vec::new(),
            delay: 0.0,
            delay_at: Vec::new(),
            delay_ns: Self::DEFAULT_DELAY_NS,
            lost_interrupt: 0.0,
            lost_interrupt_at: Vec::new(),
            duplicated_interrupt: 0.0,
            duplicated_interrupt_at: Vec::new(),
            invalid_value: 0.0,
            invalid_value_at: Vec::new(),
        }
    }
}

/// New values of single keys of [`DeviceFaults`], by key.
pub type DeviceFaultsChange = serde_json::Map<String, serde_json::Value>;

/// The frequency of one fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFaultRate<'a> {
    /// The key of the fault's probability; with `_at` the key of its list.
    pub key: &'static str,
    /// Probability at each opportunity.
    pub chance: f64,
    /// Opportunities at which the fault certainly occurs.
    pub at: &'a [u64],
}

/// An invalid value of [`DeviceFaults`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFaultProblem {
    /// The key, within the table.
    pub key: String,
    /// What is wrong, with the value.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

impl DeviceFaults {
    /// Default delay of a late completion: longer than a round trip, and shorter than a guest's timeout.
    pub const DEFAULT_DELAY_NS: u64 = 10_000;
    /// Longest delay: a second.
    pub const MAX_DELAY_NS: u64 = 1_000_000_000;
    /// Maximum number of entries of a list: enough for a search by hand, and few enough for one request.
    pub const MAX_AT: usize = 64;

    /// Every fault with its rate.
    #[must_use]
    pub fn rates(&self) -> [DeviceFaultRate<'_>; 7] {
        let rate = |key, chance, at| DeviceFaultRate { key, chance, at };
        [
            rate("stale", self.stale, &self.stale_at),
            rate("short", self.short, &self.short_at),
            rate("bad_status", self.bad_status, &self.bad_status_at),
            rate("delay", self.delay, &self.delay_at),
            rate("lost_interrupt", self.lost_interrupt, &self.lost_interrupt_at),
            rate("duplicated_interrupt", self.duplicated_interrupt, &self.duplicated_interrupt_at),
            rate("invalid_value", self.invalid_value, &self.invalid_value_at),
        ]
    }

    /// Whether no fault is enabled.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rates().iter().all(|rate| rate.chance == 0.0 && rate.at.is_empty())
    }

    /// A copy of these faults with some values changed.
    ///
    /// # Errors
    /// The first key of `change` that does not exist or whose value is invalid, and why.
    pub fn changed(&self, change: &DeviceFaultsChange) -> Result<Self, String> {
        let mut faults = self.clone();
        for (key, value) in change {
            let failed = |error: serde_json::Error| format!("`{key}`: {error}");
            let mut whole = serde_json::to_value(&faults).map_err(failed)?;
            if let Some(whole) = whole.as_object_mut() {
                whole.insert(key.clone(), value.clone());
            }
            faults = serde_json::from_value(whole).map_err(failed)?;
        }
        Ok(faults)
    }

    /// All invalid values.
    #[must_use]
    pub fn problems(&self) -> Vec<DeviceFaultProblem> {
        let mut problems = Vec::new();
        let mut report = |key: String, what: String, remedy: &str| {
            problems.push(DeviceFaultProblem { key, what, remedy: remedy.to_owned() });
        };
        for DeviceFaultRate { key, chance, at } in self.rates() {
            if !(0.0..=1.0).contains(&chance) {
                let what = format!("{chance} is not a probability");
                report(key.to_owned(), what, "use 0.0 (never) to 1.0 (always)");
            }
            if at.contains(&0) {
                let what = "opportunity 0 does not exist".to_owned();
                report(
                    format!("{key}_at"),
                    what,
                    "count from 1, the first opportunity since the NIC was made",
                );
            }
            if at.len() > Self::MAX_AT {
                let what = format!("{} entries are more than the maximum, {}", at.len(), Self::MAX_AT);
                report(format!("{key}_at"), what, "list fewer, or use a probability");
            }
        }
        if !(1..=Self::MAX_DELAY_NS).contains(&self.delay_ns) {
            let what = format!("a delay of {} ns is out of range", self.delay_ns);
            report("delay_ns".to_owned(), what, "use 1 to 1000000000; omit it if no completion is late");
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_has_no_faults() {
        let none: DeviceFaults = toml::from_str("").unwrap();
        assert!(none.is_none() && none.problems().is_empty());
        let one: DeviceFaults = toml::from_str("short_at = [3]").unwrap();
        assert!(!one.is_none());
    }

    #[test]
    fn impossible_values_are_named_with_a_fix() {
        let keys = |text: &str| -> Vec<String> {
            let faults: DeviceFaults = toml::from_str(text).unwrap();
            let problems = faults.problems();
            assert!(problems.iter().all(|problem| !problem.what.is_empty() && !problem.remedy.is_empty()));
            problems.into_iter().map(|problem| problem.key).collect()
        };
        assert_eq!(keys("stale = 1.5\nshort = nan"), ["stale", "short"]);
        assert_eq!(keys("lost_interrupt_at = [1, 0]"), ["lost_interrupt_at"]);
        assert_eq!(keys("delay = 0.5\ndelay_ns = 0"), ["delay_ns"]);
        assert_eq!(keys("delay_ns = 1000000001"), ["delay_ns"]);
        assert_eq!(keys(&format!("stale_at = {:?}", vec![7; 65])), ["stale_at"]);
    }

    #[test]
    fn change_keeps_the_other_faults() {
        let before = DeviceFaults { stale: 0.5, short_at: vec![3], ..DeviceFaults::default() };
        let change = |key: &str, value| [(key.to_owned(), value)].into_iter().collect::<DeviceFaultsChange>();
        let expected = DeviceFaults { stale: 0.25, ..before.clone() };
        assert_eq!(before.changed(&change("stale", 0.25.into())), Ok(expected));
        assert!(before.changed(&change("stall", 1.into())).unwrap_err().contains("stall"));
        assert!(before.changed(&change("stale_at", 1.into())).unwrap_err().contains("stale_at"));
    }

    #[test]
    fn a_misspelt_fault_is_refused() {
        assert!(toml::from_str::<DeviceFaults>("stall = 0.5").is_err());
    }
}
