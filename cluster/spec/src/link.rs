//! One node's link to the switch, and what may go wrong on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What goes wrong on a link, in both directions.
///
/// Probabilities are drawn per frame from the cluster's seed, so a run can be repeated: docs/use/FAULTS.md says what that
/// means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Probability that a frame is lost.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub loss: f64,
    /// Probability that a frame arrives twice.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub duplicate: f64,
    /// Probability that one bit of a frame is flipped.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub corrupt: f64,
    /// Probability that a bit is wrong, for each bit of a frame: the longer a frame is, the more often one bit of it is
    /// flipped.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub bit_errors: f64,
    /// Probability that a frame is overtaken by the next one.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reorder: f64,
    /// Model time added to each frame, in nanoseconds.
    pub delay_ns: u64,
    /// The link is cut: no frame passes, and the guest's Ethernet function has no carrier.
    pub partition: bool,
}

/// A change of what goes wrong on a link; what is not named stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultsChange {
    /// See [`Faults::loss`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub loss: Option<f64>,
    /// See [`Faults::duplicate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub duplicate: Option<f64>,
    /// See [`Faults::corrupt`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub corrupt: Option<f64>,
    /// See [`Faults::bit_errors`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub bit_errors: Option<f64>,
    /// See [`Faults::reorder`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reorder: Option<f64>,
    /// See [`Faults::delay_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// See [`Faults::partition`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<bool>,
}

/// A fault that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum FaultError {
    /// Not a probability.
    #[error(
        "`{name}` is {value}, which is no probability; give a number from 0 to 1, such as 0.01 for one frame in a hundred"
    )]
    NotAProbability {
        /// The key of the fault.
        name: &'static str,
        /// What was given for it.
        value: f64,
    },
    /// Frames would be late for ever.
    #[error("`delay_ns` is {delay_ns}, which is longer than a second; give at most {}", Faults::MAX_DELAY_NS)]
    TooLate {
        /// What was given.
        delay_ns: u64,
    },
}

impl Faults {
    /// Largest delay, in nanoseconds.
    pub const MAX_DELAY_NS: u64 = 1_000_000_000;

    /// The probabilities with the names of their keys.
    #[must_use]
    pub fn probabilities(&self) -> [(&'static str, f64); 5] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("bit_errors", self.bit_errors),
            ("reorder", self.reorder),
        ]
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// [`FaultError`] names the first.
    pub fn check(&self) -> Result<(), FaultError> {
        let wrong = self.probabilities().into_iter().find(|(_, p)| !(0.0..=1.0).contains(p));
        if let Some((name, value)) = wrong {
            return Err(FaultError::NotAProbability { name, value });
        }
        match self.delay_ns {
            0..=Self::MAX_DELAY_NS => Ok(()),
            delay_ns => Err(FaultError::TooLate { delay_ns }),
        }
    }

    /// These faults with a change.
    #[must_use]
    pub fn changed(&self, change: &FaultsChange) -> Self {
        Self {
            loss: change.loss.unwrap_or(self.loss),
            duplicate: change.duplicate.unwrap_or(self.duplicate),
            corrupt: change.corrupt.unwrap_or(self.corrupt),
            bit_errors: change.bit_errors.unwrap_or(self.bit_errors),
            reorder: change.reorder.unwrap_or(self.reorder),
            delay_ns: change.delay_ns.unwrap_or(self.delay_ns),
            partition: change.partition.unwrap_or(self.partition),
        }
    }
}

/// One node's link to the switch, every value settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Serialization rate in model time, in bits per second.
    pub bandwidth_bits_per_s: u64,
    /// Propagation time in model time, in nanoseconds.
    pub latency_ns: u64,
    /// Largest Ethernet payload, in bytes.
    pub mtu_bytes: u32,
    /// Frames that may wait at the switch for this link.
    pub queue_frames: u32,
    /// What goes wrong.
    pub faults: Faults,
}

impl LinkConfig {
    /// Smallest MTU: a packet of one cache line with its headers fits.
    pub const MIN_MTU_BYTES: u32 = 256;
    /// Largest MTU: the usual jumbo frame.
    pub const MAX_MTU_BYTES: u32 = 9000;
    /// MTU where none is given.
    pub const DEFAULT_MTU_BYTES: u32 = 1500;
    /// Queue depth where none is given.
    pub const DEFAULT_QUEUE_FRAMES: u32 = 65_536;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let before = Faults { loss: 0.25, duplicate: 0.5, delay_ns: 7, partition: true, ..Faults::default() };
        assert_eq!(before.changed(&FaultsChange::default()), before);
        let change = FaultsChange { duplicate: Some(0.0), partition: Some(false), ..FaultsChange::default() };
        let after = Faults { duplicate: 0.0, partition: false, ..before };
        assert_eq!(before.changed(&change), after);
    }

    #[test]
    fn bit_errors_are_a_fault_like_others() {
        let change = FaultsChange { bit_errors: Some(1e-10), ..FaultsChange::default() };
        let noisy = Faults::default().changed(&change);
        assert_eq!((noisy.bit_errors, noisy.check()), (1e-10, Ok(())));
        let error = Faults { bit_errors: 1.5, ..noisy }.check().unwrap_err().to_string();
        assert!(error.contains("`bit_errors` is 1.5"), "{error}");
    }

    #[test]
    fn what_is_no_probability_is_named() {
        for value in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            let error = Faults { reorder: value, ..Faults::default() }.check().unwrap_err().to_string();
            assert!(error.contains("`reorder`") && error.contains("0 to 1"), "{error}");
        }
        let late = Faults { delay_ns: Faults::MAX_DELAY_NS + 1, ..Faults::default() };
        assert!(late.check().unwrap_err().to_string().contains("at most 1000000000"));
        assert_eq!(Faults { loss: 1.0, delay_ns: Faults::MAX_DELAY_NS, ..Faults::default() }.check(), Ok(()));
    }
}
