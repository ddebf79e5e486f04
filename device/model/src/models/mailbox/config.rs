//! Parameters of a Mailbox card.
//!
//! Constants: ours.

use alloc::sync::Arc;

use thiserror::Error;

use crate::platform::profile::Profile;
use crate::time::Span;

/// Ports of a card.
pub const PORTS: usize = 8;

/// Most remote ports that may send to one port: each letter's sender is looked up among them one by one.
pub const MAX_PARTNERS: usize = 256;

/// The longest that a letter waits for its acknowledgement, as that doubles, unless it waits longer from the first. It
/// is as long as the credit probes of ULTRA: even a slow link carries a letter and an acknowledgement for every partner
/// in it, so that what is sent again does not fill the link for ever.
pub const LONGEST_WAIT: Span = Span::from_ns(100_000_000);

/// A card that there cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It stands on no node of the cluster.
    #[error("node {node} is not one of the cluster's {nodes} nodes, which are numbered from 0")]
    Node {
        /// This node.
        node: u16,
        /// Nodes of the cluster.
        nodes: u32,
    },
    /// The timer would never rest.
    #[error("a letter waits 0 ps for its acknowledgement: give at least 1 ps")]
    Wait,
}

/// Parameters of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node's number.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// How long a letter waits for its acknowledgement before it goes again. Doubles each time, up to [`LONGEST_WAIT`].
    pub first_wait: Span,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Checks that there can be such a card.
    ///
    /// # Errors
    /// Names the first parameter that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        if u32::from(self.node) >= self.nodes {
            return Err(ConfigError::Node { node: self.node, nodes: self.nodes });
        }
        if self.first_wait == Span::ZERO { Err(ConfigError::Wait) } else { Ok(()) }
    }
}
