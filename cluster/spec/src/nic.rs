//! Which NIC a node has, and its parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The NIC models that this build knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NicModel {
    /// ULTRA: requester and completer, one I/O cycle per message.
    #[default]
    Ultra,
    /// Match: posted receives that a microcoded unit compares with what arrives.
    Match,
}

impl NicModel {
    /// The name that the cluster file and the command line use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ultra => "ultra",
            Self::Match => "match",
        }
    }

    /// The platform profile that the model's paper measured on.
    #[must_use]
    pub const fn default_profile(self) -> &'static str {
        match self {
            Self::Ultra => "htx-200mhz",
            Self::Match => "match-500mhz",
        }
    }

    /// All models, for messages and completions.
    pub const ALL: &'static [Self] = &[Self::Ultra, Self::Match];
}

/// How the daemon waits for work. This costs wall time only; model time does not see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitPolicy {
    /// Block on the doorbell; after activity poll for `poll_for_us`, and spare the guests their doorbells meanwhile.
    #[default]
    Adaptive,
    /// Always poll. Wants a core of its own, and one for each vCPU that polls.
    Poll,
    /// Always block on the doorbell.
    Block,
}

/// A node's NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NicConfig {
    /// The model.
    pub model: NicModel,
    /// How the daemon waits for this NIC's work.
    pub wait: WaitPolicy,
    /// How long the adaptive policy polls after the last activity, in microseconds of wall time.
    #[schemars(range(max = 1_000_000))]
    pub poll_for_us: u32,
    /// Parameters of the ULTRA model.
    pub ultra: UltraParameters,
    /// Parameters of the Match model.
    #[serde(rename = "match")]
    pub matching: MatchParameters,
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            model: NicModel::default(),
            wait: WaitPolicy::default(),
            poll_for_us: 50,
            ultra: UltraParameters::default(),
            matching: MatchParameters::default(),
        }
    }
}

/// What the completer does with a packet from a partner that its port did not authorize.
///
/// Source: ULTRA paper, section 3.2 (either is allowed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unauthorized {
    /// Count it and drop it.
    #[default]
    Discard,
    /// Count it, drop it, and raise a system interrupt.
    Interrupt,
}

/// What keeps a sender from overrunning a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowControl {
    /// The sender holds a credit for each free slice of the receiver.
    #[default]
    Credit,
    /// Nothing: a packet that finds no free slice is counted and dropped.
    None,
}

/// Parameters of the ULTRA model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UltraParameters {
    /// How the requester's FIFO RAM is split: words of 64 bits for each of the eight ports. Each is 0 (port unused)
    /// or at least 10 (one full packet), and all together at most 128 (1 KiB, ULTRA paper section 3.1).
    pub fifo_words_per_port: [u16; 8],
    /// The same for the completer's FIFO RAM.
    pub completer_fifo_words_per_port: [u16; 8],
    /// Partners that one port can authorize.
    #[schemars(range(min = 1, max = 256))]
    pub authorized_partners_per_port: u16,
    /// What happens to a packet of an unauthorized partner.
    pub unauthorized: Unauthorized,
    /// What keeps senders from overrunning a receive queue.
    pub flow_control: FlowControl,
}

impl UltraParameters {
    /// The FIFO RAM in words of 64 bits: 1 KiB. Source: ULTRA paper, section 3.1.
    pub const FIFO_RAM_WORDS: u16 = 128;
    /// The largest packet in words of 64 bits: one cache line and the 128-bit tag. Source: section 4.
    pub const MAX_PACKET_WORDS: u16 = 10;
    /// The most partners that the authorization table can hold for one port.
    pub const MAX_PARTNERS: u16 = 256;
}

impl Default for UltraParameters {
    fn default() -> Self {
        Self {
            fifo_words_per_port: [16; 8],
            completer_fifo_words_per_port: [16; 8],
            authorized_partners_per_port: 16,
            unauthorized: Unauthorized::default(),
            flow_control: FlowControl::default(),
        }
    }
}

/// Parameters of the Match model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MatchParameters {
    /// Match entries that fit into device memory, 64 bytes each. Further ones lie in the spill area, in host memory, and
    /// are read from there whenever a list is traversed.
    #[schemars(range(min = 16, max = 8_192))]
    pub match_entries: u32,
    /// The longest message, in bytes.
    #[schemars(range(min = 64, max = 1_073_741_824))]
    pub max_message_bytes: u64,
    /// Frames that may be under way to one node before the first of them is acknowledged.
    #[schemars(range(min = 1, max = 1024))]
    pub window_frames: u32,
    /// Unexpected messages of one port that may wait for a receive.
    #[schemars(range(min = 1, max = 65_536))]
    pub unexpected_messages: u32,
    /// How long a frame waits for its acknowledgement before it goes again, in microseconds of model time. Doubles with
    /// each time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub retransmit_us: u32,
}

impl MatchParameters {
    /// Each parameter's key, value, and the least and the most that it can be.
    pub(crate) fn ranges(&self) -> [(&'static str, u64, core::ops::RangeInclusive<u64>); 5] {
        [
            // As many as a card can have in all: MAX_ENTRIES of its interface.
            ("match_entries", self.match_entries.into(), 16..=8_192),
            ("max_message_bytes", self.max_message_bytes, 64..=1 << 30),
            ("window_frames", self.window_frames.into(), 1..=1_024),
            ("unexpected_messages", self.unexpected_messages.into(), 1..=65_536),
            ("retransmit_us", self.retransmit_us.into(), 1..=1_000_000),
        ]
    }
}

impl Default for MatchParameters {
    fn default() -> Self {
        Self {
            match_entries: 1024,
            max_message_bytes: 16 << 20,
            window_frames: 32,
            unexpected_messages: 1024,
            retransmit_us: 100,
        }
    }
}
