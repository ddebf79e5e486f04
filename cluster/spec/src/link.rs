//! One node's link to the switch, and what may go wrong on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What goes wrong on a link, in both directions.
///
/// Probabilities are drawn per frame from the cluster's seed, so a run can be repeated.
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
    /// Probability that a frame is overtaken by the next one.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reorder: f64,
    /// Model time added to each frame, in nanoseconds.
    pub delay_ns: u64,
    /// The link is cut: carrier is lost and no frame passes.
    pub partition: bool,
}

impl Faults {
    /// The probabilities with the names of their keys.
    #[must_use]
    pub fn probabilities(&self) -> [(&'static str, f64); 4] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("reorder", self.reorder),
        ]
    }

    /// Whether every probability is one.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.probabilities().iter().all(|(_, p)| (0.0..=1.0).contains(p))
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
    /// Smallest MTU: a full ULTRA packet with its headers fits.
    pub const MIN_MTU_BYTES: u32 = 256;
    /// Largest MTU: the usual jumbo frame.
    pub const MAX_MTU_BYTES: u32 = 9000;
    /// MTU where none is given.
    pub const DEFAULT_MTU_BYTES: u32 = 1500;
    /// Queue depth where none is given.
    pub const DEFAULT_QUEUE_FRAMES: u32 = 65_536;
}
