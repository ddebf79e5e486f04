//! Parameters of a Mailbox card.
//!
//! Constants: ours.

use alloc::sync::Arc;

use thiserror::Error;

use crate::platform::profile::Profile;
use crate::time::Span;

/// Ports of a card.
pub const PORTS: usize = 8;

/// Maximum number of remote ports that may send to one port. The card searches them one by one for each letter's
/// sender.
pub const MAX_PARTNERS: usize = 256;

/// Upper bound of a letter's wait for its acknowledgement, which doubles with each repetition. A longer first wait
/// stays as it is. The bound equals that of ULTRA's credit probes. Even a slow link carries a letter and an
/// acknowledgement of every partner in this time, so repeated letters do not fill the link for ever.
pub const LONGEST_WAIT: Span = Span::from_ns(100_000_000);

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
    /// With a wait of zero the timer would expire without end.
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
    /// How long a letter waits for its acknowledgement before the card sends it again. The wait doubles each time, up
    /// to [`LONGEST_WAIT`].
    pub first_wait: Span,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Checks that the parameters are valid.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        if u32::from(self.node) >= self.nodes {
            return Err(ConfigError::Node { node: self.node, nodes: self.nodes });
        }
        if self.first_wait == Span::ZERO { Err(ConfigError::Wait) } else { Ok(()) }
    }
}
