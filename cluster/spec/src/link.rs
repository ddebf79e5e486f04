//! One node's link to the switch, and its faults.

use niclab_model::{
    fabric,
    random::{Chance, Rarity},
    time::Span,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Defines the faults of a link. Each row has a fault's key, its type, its heading in tables, and the conversion of its
/// value to a field of the model. For a new fault, add a row here. Also add that field, with its effect, to
/// `niclab_model::fabric::faults::Faults`.
macro_rules! link_faults {
    ($(
        $(#[doc = $doc:literal])+
        $(#[schemars($($schema:tt)*)])?
        $name:ident: $type:ident, $heading:literal, $convert:expr => $model:ident;
    )+) => {
        /// Faults of a link, in both directions.
        ///
        /// The probabilities apply to each frame. The cluster's seed decides which frames they affect, so a run can be
        /// repeated (docs/use/FAULTS.md).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Faults {
            $($(#[doc = $doc])+ $(#[schemars($($schema)*)])? pub $name: $type,)+
        }

        /// Changes to the faults of a link. A fault without a value here keeps the value that it has.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct FaultsChange {
            $(
                #[doc = concat!("See [`Faults::", stringify!($name), "`].")]
                #[serde(skip_serializing_if = "Option::is_none")]
                $(#[schemars($($schema)*)])?
                pub $name: Option<$type>,
            )+
        }

        impl Faults {
            /// Every fault, in the order in which tables and help show them.
            pub const TABLE: &[LinkFault] = &[$(LinkFault {
                key: stringify!($name),
                help: concat!($($doc),+),
                heading: $heading,
                value: |faults| faults.$name.into(),
                set: |change, value| change.$name = <$type>::from_value(value),
            },)+];

            /// Returns these faults with `change` applied.
            #[must_use]
            pub fn changed(&self, change: &FaultsChange) -> Self {
                Self { $($name: change.$name.unwrap_or(self.$name),)+ }
            }

            /// Converts these faults to the model's type.
            #[must_use]
            pub fn to_model(&self) -> fabric::faults::Faults {
                fabric::faults::Faults { $($model: $convert(self.$name),)+ ..fabric::faults::Faults::NONE }
            }
        }

        impl FaultsChange {
            /// The change that sets every fault to its value in `faults`.
            #[must_use]
            pub const fn to(faults: &Faults) -> Self {
                Self { $($name: Some(faults.$name),)+ }
            }
        }
    };
}

link_faults! {
    /// Probability that a frame is lost.
    #[schemars(range(min = 0.0, max = 1.0))]
    loss: f64, "loss", Chance::from_probability => loss;
    /// Probability that a frame arrives twice.
    #[schemars(range(min = 0.0, max = 1.0))]
    duplicate: f64, "duplicate", Chance::from_probability => duplicate;
    /// Probability that a frame is delayed so that later frames overtake it.
    #[schemars(range(min = 0.0, max = 1.0))]
    reorder: f64, "reorder", Chance::from_probability => reorder;
    /// Probability that one bit of a frame is flipped.
    #[schemars(range(min = 0.0, max = 1.0))]
    corrupt: f64, "corrupt", Chance::from_probability => corrupt;
    /// Bit error rate: the probability that a bit is wrong, such as 1e-10. Long frames are damaged more often than
    /// short ones. At most one bit of a frame is flipped.
    #[schemars(range(min = 0.0, max = 1.0))]
    bit_errors: f64, "bit errors", Rarity::from_probability => bit_errors;
    /// Model time added to each frame, in nanoseconds.
    delay_ns: u64, "delay, model ns", Span::from_ns => delay;
    /// The link is cut: no frame passes, and the guest's Ethernet function has no carrier.
    partition: bool, "link", core::convert::identity => partition;
}

/// One fault of a link: a row of [`Faults::TABLE`].
#[derive(Debug)]
pub struct LinkFault {
    /// Its key in cluster files and monitor requests.
    pub key: &'static str,
    /// What it does, for help texts.
    pub help: &'static str,
    /// The heading of its column in tables.
    pub heading: &'static str,
    /// Reads its value from the faults of a link.
    pub value: fn(&Faults) -> FaultValue,
    /// Sets its value in a change. With a value of the wrong type, the change does not affect the fault.
    pub set: fn(&mut FaultsChange, FaultValue),
}

/// The value of a link fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultValue {
    /// From 0 to 1.
    Probability(f64),
    /// Model time in nanoseconds, at most [`Faults::MAX_DELAY_NS`].
    DelayNs(u64),
    /// On or off.
    Switch(bool),
}

/// Conversion between the types of link faults and [`FaultValue`].
trait FromValue: Sized {
    fn from_value(value: FaultValue) -> Option<Self>;
}

macro_rules! fault_types {
    ($($type:ident: $kind:ident),+) => {$(
        impl From<$type> for FaultValue {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }

        impl FromValue for $type {
            fn from_value(value: FaultValue) -> Option<Self> {
                match value {
                    FaultValue::$kind(value) => Some(value),
                    _ => None,
                }
            }
        }
    )+};
}

fault_types!(f64: Probability, u64: DelayNs, bool: Switch);

/// An invalid fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum FaultError {
    /// Not a probability.
    #[error(
        "`{name}` is {value}, which is not a probability; give a number from 0 to 1, such as 0.01 for one frame in a \
         hundred"
    )]
    NotAProbability {
        /// The key of the fault.
        name: &'static str,
        /// The given value.
        value: f64,
    },
    /// The delay exceeds [`Faults::MAX_DELAY_NS`].
    #[error("`delay_ns` is {delay_ns}, which is longer than a second; give at most {}", Faults::MAX_DELAY_NS)]
    DelayTooLong {
        /// The given value.
        delay_ns: u64,
    },
}

impl Faults {
    /// Maximum delay, in nanoseconds.
    pub const MAX_DELAY_NS: u64 = 1_000_000_000;

    /// The key and value of each fault that is a probability.
    pub fn probabilities(&self) -> impl Iterator<Item = (&'static str, f64)> {
        Self::TABLE.iter().filter_map(|fault| match (fault.value)(self) {
            FaultValue::Probability(probability) => Some((fault.key, probability)),
            FaultValue::DelayNs(_) | FaultValue::Switch(_) => None,
        })
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`FaultError`] for the first invalid value.
    pub fn check(&self) -> Result<(), FaultError> {
        let invalid = self.probabilities().find(|(_, p)| !(0.0..=1.0).contains(p));
        if let Some((name, value)) = invalid {
            return Err(FaultError::NotAProbability { name, value });
        }
        match self.delay_ns {
            0..=Self::MAX_DELAY_NS => Ok(()),
            delay_ns => Err(FaultError::DelayTooLong { delay_ns }),
        }
    }
}

/// One node's link to the switch, with all defaults applied.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Serialization rate in model time, in bits per second.
    pub bandwidth_bits_per_s: u64,
    /// Propagation time in model time, in nanoseconds.
    pub latency_ns: u64,
    /// Largest Ethernet payload, in bytes.
    pub mtu_bytes: u32,
    /// Maximum number of frames that wait in the switch's output queue for this link.
    pub queue_frames: u32,
    /// Faults of the link.
    pub faults: Faults,
}

impl LinkConfig {
    /// Minimum MTU: one cache line of payload with its headers fits.
    pub const MIN_MTU_BYTES: u32 = 256;
    /// Maximum MTU: the usual size of jumbo frames.
    pub const MAX_MTU_BYTES: u32 = 9000;
    /// Default MTU.
    pub const DEFAULT_MTU_BYTES: u32 = 1500;
    /// Default queue depth.
    pub const DEFAULT_QUEUE_FRAMES: u32 = 65_536;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_keeps_faults_without_a_new_value() {
        let before = Faults { loss: 0.25, duplicate: 0.5, delay_ns: 7, partition: true, ..Faults::default() };
        assert_eq!(before.changed(&FaultsChange::default()), before);
        let change = FaultsChange { duplicate: Some(0.0), partition: Some(false), ..FaultsChange::default() };
        let after = Faults { duplicate: 0.0, partition: false, ..before };
        assert_eq!(before.changed(&change), after);
    }

    #[test]
    fn bit_error_rate_is_set_and_checked_like_other_faults() {
        let change = FaultsChange { bit_errors: Some(1e-10), ..FaultsChange::default() };
        let noisy = Faults::default().changed(&change);
        assert_eq!((noisy.bit_errors, noisy.check()), (1e-10, Ok(())));
        let error = Faults { bit_errors: 1.5, ..noisy }.check().unwrap_err().to_string();
        assert!(error.contains("`bit_errors` is 1.5"), "{error}");
    }

    #[test]
    fn invalid_probability_or_delay_is_named_with_its_range() {
        for value in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            let error = Faults { reorder: value, ..Faults::default() }.check().unwrap_err().to_string();
            assert!(error.contains("`reorder`") && error.contains("0 to 1"), "{error}");
        }
        let late = Faults { delay_ns: Faults::MAX_DELAY_NS + 1, ..Faults::default() };
        assert!(late.check().unwrap_err().to_string().contains("at most 1000000000"));
        assert_eq!(Faults { loss: 1.0, delay_ns: Faults::MAX_DELAY_NS, ..Faults::default() }.check(), Ok(()));
    }

    #[test]
    fn each_key_sets_its_own_fault_of_the_model() {
        let none = fabric::faults::Faults::NONE;
        let chance = Chance::from_probability(0.25);
        let expected = [
            ("loss", fabric::faults::Faults { loss: chance, ..none }),
            ("duplicate", fabric::faults::Faults { duplicate: chance, ..none }),
            ("reorder", fabric::faults::Faults { reorder: chance, ..none }),
            ("corrupt", fabric::faults::Faults { corrupt: chance, ..none }),
            ("bit_errors", fabric::faults::Faults { bit_errors: Rarity::from_probability(0.25), ..none }),
            ("delay_ns", fabric::faults::Faults { delay: Span::from_ns(7), ..none }),
            ("partition", fabric::faults::Faults { partition: true, ..none }),
        ];
        assert_eq!(Faults::TABLE.len(), expected.len());
        for fault in Faults::TABLE {
            let value = match (fault.value)(&Faults::default()) {
                FaultValue::Probability(_) => FaultValue::Probability(0.25),
                FaultValue::DelayNs(_) => FaultValue::DelayNs(7),
                FaultValue::Switch(_) => FaultValue::Switch(true),
            };
            let mut change = FaultsChange::default();
            (fault.set)(&mut change, value);
            let faults = Faults::default().changed(&change);
            assert_eq!((fault.value)(&faults), value, "{}", fault.key);
            let (_, model) = expected.iter().find(|(key, _)| *key == fault.key).expect("a row for each key");
            assert_eq!(faults.to_model(), *model, "{}", fault.key);
        }
    }
}
