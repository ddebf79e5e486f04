//! What may go wrong in a node's NIC itself, for those who write drivers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What goes wrong in a NIC's cluster function, whatever its model: what it does to host memory and interrupts that it
/// must not.
///
/// Each fault has a probability, drawn from the cluster's seed at each of its opportunities, and under the same name
/// with `_at` a list of the opportunities at which it happens for certain. Opportunities are counted from 1 since the
/// NIC was made, for each fault by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceFaults {
    /// Probability that a completion arrives without its last word: data in memory, ownership and status as before. A
    /// write of counts (a status line) is left out whole. Opportunities: completions and writes of counts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stale: f64,
    /// Opportunities at which `stale` happens for certain.
    pub stale_at: Vec<u64>,
    /// Probability that the data of a write ends early, while its completion says that all is well. Opportunities:
    /// writes with data.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub short: f64,
    /// Opportunities at which `short` happens for certain.
    pub short_at: Vec<u64>,
    /// Probability that one status bit of a completion is flipped. Opportunities: completions.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub bad_status: f64,
    /// Opportunities at which `bad_status` happens for certain.
    pub bad_status_at: Vec<u64>,
    /// Probability that a completion is late by `delay_ns`, and with it all that comes after it. Opportunities:
    /// completions and writes of counts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub delay: f64,
    /// Opportunities at which `delay` happens for certain.
    pub delay_at: Vec<u64>,
    /// Model time by which a late completion is late, in nanoseconds.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub delay_ns: u64,
    /// Probability that an interrupt is not raised. Opportunities: interrupts.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lost_interrupt: f64,
    /// Opportunities at which `lost_interrupt` happens for certain.
    pub lost_interrupt_at: Vec<u64>,
    /// Probability that an interrupt is raised twice. Opportunities: interrupts.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(alias = "doubled_interrupt")]
    pub duplicated_interrupt: f64,
    /// Opportunities at which `duplicated_interrupt` happens for certain.
    #[serde(alias = "doubled_interrupt_at")]
    pub duplicated_interrupt_at: Vec<u64>,
    /// Probability that a length, index, handle or count that the NIC gives its host is out of its range.
    /// Opportunities: completions, writes of counts, events, answers and their used lengths, as far as such a value
    /// stands in them.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub invalid_value: f64,
    /// Opportunities at which `invalid_value` happens for certain.
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

/// How often one fault happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFaultRate<'a> {
    /// The key of its probability, and with `_at` that of its list.
    pub key: &'static str,
    /// Probability at each opportunity.
    pub chance: f64,
    /// Opportunities at which it happens for certain.
    pub at: &'a [u64],
}

/// A value of [`DeviceFaults`] that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFaultProblem {
    /// The key, seen from the table.
    pub key: String,
    /// What is wrong, with the value.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

impl DeviceFaults {
    /// How late a completion is where nothing else is said: longer than a round trip, and shorter than a guest's
    /// patience.
    pub const DEFAULT_DELAY_NS: u64 = 10_000;
    /// Longest delay: a second.
    pub const MAX_DELAY_NS: u64 = 1_000_000_000;
    /// Most entries of a list: what a driver's author looks for by hand, and what fits into a request.
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

    /// Whether nothing ever goes wrong.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rates().iter().all(|rate| rate.chance == 0.0 && rate.at.is_empty())
    }

    /// These faults with some values changed.
    ///
    /// # Errors
    /// The first key of `change` that does not exist or does not take its value, and why.
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

    /// Every value that cannot be.
    #[must_use]
    pub fn problems(&self) -> Vec<DeviceFaultProblem> {
        let mut problems = Vec::new();
        let mut report = |key: String, what: String, remedy: &str| {
            problems.push(DeviceFaultProblem { key, what, remedy: remedy.to_owned() });
        };
        for DeviceFaultRate { key, chance, at } in self.rates() {
            if !(0.0..=1.0).contains(&chance) {
                let what = format!("{chance} is no probability");
                report(key.to_owned(), what, "use 0.0 (never) to 1.0 (always)");
            }
            if at.contains(&0) {
                let what = "there is no opportunity 0".to_owned();
                report(format!("{key}_at"), what, "count from 1, the first since the NIC was made");
            }
            if at.len() > Self::MAX_AT {
                let what = format!("{} entries are more than {}", at.len(), Self::MAX_AT);
                report(format!("{key}_at"), what, "list fewer, or use a probability");
            }
        }
        if !(1..=Self::MAX_DELAY_NS).contains(&self.delay_ns) {
            let what = format!("a delay of {} ns is impossible", self.delay_ns);
            report("delay_ns".to_owned(), what, "use 1 to 1000000000; without late completions leave it out");
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_wrong_where_nothing_is_said() {
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
    fn change_keeps_what_it_does_not_name() {
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
