//! One node's link to the switch, and what may go wrong on it.

use niclab_model::{
    fabric,
    random::{Chance, Rarity},
    time::Span,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Defines the faults of a link, each in one place: its key, its type, its heading in tables, and what the model makes
/// of its value. A new fault is a row here, and a field and its effect in `niclab_model::fabric::faults::Faults`.
macro_rules! link_faults {
    ($(
        $(#[doc = $doc:literal])+
        $(#[schemars($($schema:tt)*)])?
        $name:ident: $type:ident, $heading:literal, $convert:expr => $model:ident;
    )+) => {
        /// What goes wrong on a link, in both directions.
        ///
        /// The probabilities apply per frame and are sampled from the cluster's seed, so a run can be repeated:
        /// docs/use/FAULTS.md has the details.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Faults {
            $($(#[doc = $doc])+ $(#[schemars($($schema)*)])? pub $name: $type,)+
        }

        /// A change of what goes wrong on a link. A fault that it does not name stays as it is.
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
            /// Every fault, in the order of tables and help.
            pub const TABLE: &[LinkFault] = &[$(LinkFault {
                key: stringify!($name),
                help: concat!($($doc),+),
                heading: $heading,
                value: |faults| faults.$name.into(),
                set: |change, value| change.$name = <$type>::from_value(value),
            },)+];

            /// These faults with a change.
            #[must_use]
            pub fn changed(&self, change: &FaultsChange) -> Self {
                Self { $($name: change.$name.unwrap_or(self.$name),)+ }
            }

            /// These faults as the model has them.
            #[must_use]
            pub fn to_model(&self) -> fabric::faults::Faults {
                fabric::faults::Faults { $($model: $convert(self.$name),)+ ..fabric::faults::Faults::NONE }
            }
        }

        impl FaultsChange {
            /// The change after which exactly `faults` are in force.
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
    /// Probability that a frame is overtaken by the next one.
    #[schemars(range(min = 0.0, max = 1.0))]
    reorder: f64, "reorder", Chance::from_probability => reorder;
    /// Probability that one bit of a frame is flipped.
    #[schemars(range(min = 0.0, max = 1.0))]
    corrupt: f64, "corrupt", Chance::from_probability => corrupt;
    /// Probability that a bit is wrong, for each bit of a frame, such as 1e-10: the longer a frame is, the more often
    /// one bit of it is flipped.
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
    /// What it does, in a sentence or two.
    pub help: &'static str,
    /// The heading of its column.
    pub heading: &'static str,
    /// Its value in the given faults.
    pub value: fn(&Faults) -> FaultValue,
    /// Has a change set it. A value of another type than the fault's leaves it unnamed.
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

/// Types of link faults.
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

    /// The probabilities with their keys.
    pub fn probabilities(&self) -> impl Iterator<Item = (&'static str, f64)> {
        Self::TABLE.iter().filter_map(|fault| match (fault.value)(self) {
            FaultValue::Probability(probability) => Some((fault.key, probability)),
            FaultValue::DelayNs(_) | FaultValue::Switch(_) => None,
        })
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// [`FaultError`] names the first.
    pub fn check(&self) -> Result<(), FaultError> {
        let wrong = self.probabilities().find(|(_, p)| !(0.0..=1.0).contains(p));
        if let Some((name, value)) = wrong {
            return Err(FaultError::NotAProbability { name, value });
        }
        match self.delay_ns {
            0..=Self::MAX_DELAY_NS => Ok(()),
            delay_ns => Err(FaultError::TooLate { delay_ns }),
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
