//! Parameters of a Match card.

use alloc::sync::Arc;

use niclab_abi::matching::{MAX_ENTRIES, MAX_LIST_SIZE};
use niclab_abi::receive;
use niclab_isa::image::ImageError;
use thiserror::Error;

use crate::models::matching::wire::MIN_MTU_BYTES;
use crate::platform::profile::Profile;
use crate::time::Span;

/// Ports of a card, the same number as ULTRA's. Ours: the paper has one list.
pub const PORTS: usize = 8;

/// Why a card's configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The node number is not one of the cluster's.
    #[error("node {node} is not one of the cluster's {nodes} nodes, which are numbered from 0")]
    Node {
        /// This node.
        node: u16,
        /// Nodes of the cluster.
        nodes: u32,
    },
    /// Frames would have no room for data.
    #[error("an MTU of {mtu_bytes} bytes: give at least {MIN_MTU_BYTES}, a header and some data")]
    Mtu {
        /// The MTU.
        mtu_bytes: u32,
    },
    /// A parameter that must be at least 1 is zero.
    #[error("{parameter} is zero: give at least 1")]
    Zero {
        /// The parameter's name.
        parameter: &'static str,
    },
    /// The event queue's limit is not a power of two in range.
    #[error(
        "an event queue of at most {events} events: give a power of two from {} to {}",
        receive::MIN_SLICES,
        receive::MAX_SLICES
    )]
    MaxEvents {
        /// The requested number of events.
        events: u32,
    },
    /// The built-in program of this build is damaged.
    #[error("the built-in matching program is damaged: {0}")]
    Program(#[from] ImageError),
    /// The retransmission timer would expire without end, or its waits would shrink.
    #[error(
        "frames are sent again after {first} at first and {most} at most: give a first wait of at least 1 ps, \
         and a longest wait that is not shorter"
    )]
    Retransmission {
        /// First wait.
        first: Span,
        /// Longest wait.
        most: Span,
    },
}

/// Parameters of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node's number.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Bytes after the Ethernet header of a frame: the minimum over all links of the cluster.
    pub mtu_bytes: u32,
    /// Match entries that fit into the card's memory. Further entries are in the spill area, if the driver has provided
    /// one.
    pub match_entries: u32,
    /// Maximum number of match entries of the card, over all lists of all ports, in card memory and spill area.
    pub max_entries: u32,
    /// Maximum number of match entries of a portal, posted and overflow together. One header may be compared with all
    /// of them.
    pub max_list_size: u32,
    /// Maximum number of events in a port's queue.
    pub max_events: u32,
    /// Maximum number of registered regions of a port.
    pub regions_per_port: u32,
    /// Maximum number of ranges of host memory in all regions of a port. Adjacent ranges count as one.
    pub extents_per_port: u32,
    /// Maximum number of unexpected messages that the card remembers for each port.
    pub unexpected_messages: u32,
    /// Maximum length of a message, in bytes.
    pub max_message_bytes: u64,
    /// Maximum number of commands of a port in flight.
    pub commands_in_flight: u32,
    /// Words of the match unit's control store.
    pub control_store_words: u32,
    /// Maximum number of frames in flight to one other card.
    pub window_frames: u32,
    /// How long a frame may be unacknowledged before the card sends it again, in addition to the time that a window of
    /// frames takes.
    pub retransmit_first: Span,
    /// The wait doubles each time, up to this one.
    pub retransmit_most: Span,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// A card with the cluster file's defaults, on links with an MTU of 1,500 bytes.
    pub fn new(node: u16, nodes: u32, profile: impl Into<Arc<Profile>>) -> Self {
        Self {
            node,
            nodes,
            // IEEE 802.3: the longest frame that is not jumbo.
            mtu_bytes: 1_500,
            // Assumed: more than the paper's longest list (section 5).
            match_entries: 1_024,
            max_entries: MAX_ENTRIES,
            max_list_size: MAX_LIST_SIZE,
            max_events: receive::MAX_SLICES,
            // Ours: bounds.
            regions_per_port: 4_096,
            // Ours: a bound.
            extents_per_port: 1 << 18,
            // Assumed: the same number as entries.
            unexpected_messages: 1_024,
            // Ours: a bound.
            max_message_bytes: 16 << 20,
            // Ours: a bound.
            commands_in_flight: 64,
            control_store_words: niclab_isa::MAX_WORDS as u32,
            // Assumed: more than the frames of a round trip.
            window_frames: 32,
            // Assumed: many times a round trip.
            retransmit_first: Span::from_ns(100_000),
            // Assumed: short enough to notice that a link is up again.
            retransmit_most: Span::from_ns(100_000_000),
            profile: profile.into(),
        }
    }

    /// Checks that the parameters are valid.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if u32::from(self.node) >= self.nodes {
            return Err(ConfigError::Node { node: self.node, nodes: self.nodes });
        }
        if self.mtu_bytes < MIN_MTU_BYTES {
            return Err(ConfigError::Mtu { mtu_bytes: self.mtu_bytes });
        }
        let counts = [
            ("match_entries", self.match_entries),
            ("max_entries", self.max_entries),
            ("max_list_size", self.max_list_size),
            ("regions_per_port", self.regions_per_port),
            ("extents_per_port", self.extents_per_port),
            ("unexpected_messages", self.unexpected_messages),
            ("commands_in_flight", self.commands_in_flight),
            ("control_store_words", self.control_store_words),
            ("window_frames", self.window_frames),
        ];
        if let Some((parameter, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero { parameter });
        }
        let events = self.max_events;
        if !events.is_power_of_two() || !(receive::MIN_SLICES..=receive::MAX_SLICES).contains(&events) {
            return Err(ConfigError::MaxEvents { events });
        }
        let (first, most) = (self.retransmit_first, self.retransmit_most);
        if first == Span::ZERO || first > most {
            return Err(ConfigError::Retransmission { first, most });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_configurations_are_refused() {
        let good = Config::new(1, 2, Profile::default());
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(refused(|c| c.node = 2), ConfigError::Node { node: 2, nodes: 2 });
        assert_eq!(refused(|c| c.mtu_bytes = 255), ConfigError::Mtu { mtu_bytes: 255 });
        assert_eq!(refused(|c| c.match_entries = 0), ConfigError::Zero { parameter: "match_entries" });
        assert_eq!(refused(|c| c.max_events = 12), ConfigError::MaxEvents { events: 12 });
        assert!(matches!(refused(|c| c.retransmit_first = Span::ZERO), ConfigError::Retransmission { .. }));
    }
}
