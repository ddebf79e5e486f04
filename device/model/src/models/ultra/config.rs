//! Parameters of an ULTRA card.

use alloc::sync::Arc;

use niclab_abi::receive;
use thiserror::Error;

use crate::models::ultra::wire::MAX_WORDS;
use crate::parts::fifo;
use crate::platform::profile::{Passing, Profile};
use crate::time::Span;

/// Ports (section 3.1: "up to eight independent ULTRA ports").
pub const PORTS: usize = fifo::QUEUES;

/// What the completer does with a packet whose sender is not authorized. Section 3.2 allows either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unauthorized {
    /// Discard and count it.
    #[default]
    Discard,
    /// Discard and count it, and raise a system interrupt.
    Interrupt,
}

/// What keeps a sender from overrunning a receive queue. All cards of a cluster must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// Credits, end to end.
    #[default]
    Credit,
    /// Nothing: a packet that finds no free slice is discarded and counted.
    None,
}

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
    /// A queue cannot hold a packet.
    #[error("port {port} has {words} words of FIFO; give it 0, which closes it, or at least {MAX_WORDS}")]
    FifoShare {
        /// The port.
        port: usize,
        /// Its words.
        words: u16,
    },
    /// The queues do not fit the RAM.
    #[error("the ports' FIFO queues take {words} words of a RAM of {ram_words}; make them smaller")]
    FifoRam {
        /// Sum of the queues.
        words: u32,
        /// Words of the RAM.
        ram_words: u16,
    },
    /// The receive queue's limit is not a power of two in range.
    #[error(
        "a receive queue of at most {slices} slices: give a power of two from {} to {}",
        receive::MIN_SLICES,
        receive::MAX_SLICES
    )]
    MaxSlices {
        /// The requested number of slices.
        slices: u32,
    },
    /// The authorization table has no entries, or too many.
    #[error("{entries} authorization entries a port: give 1 to {}", Config::MAX_AUTHORIZATIONS)]
    Authorizations {
        /// The requested number of entries.
        entries: u16,
    },
    /// The probe timer would expire without end, or its waits would shrink.
    #[error(
        "the credit probe waits {first} at first and {most} at most: give a first wait of at least 1 ps, and a \
         longest wait that is not shorter"
    )]
    CreditProbe {
        /// The first wait.
        first: Span,
        /// The longest wait.
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
    /// Words of each FIFO RAM (section 3.1: 1 KB).
    pub fifo_ram_words: u16,
    /// Words of the requester's FIFO RAM for a port that requests no number. With 0 such a port cannot be opened.
    pub requester_fifo_words: [u16; PORTS],
    /// Words of the completer's FIFO RAM for a port. With 0 the port cannot be opened.
    pub completer_fifo_words: [u16; PORTS],
    /// Maximum number of slices of a receive queue.
    pub max_slices: u32,
    /// Entries of a port's authorization table ("several", section 3.2).
    pub authorizations: u16,
    /// What happens to packets without authorization.
    pub unauthorized: Unauthorized,
    /// What keeps senders from overrunning a receiver.
    pub flow_control: FlowControl,
    /// How long a port with packets and no credit waits before it requests credit again, in case the answer was lost.
    pub credit_probe_first: Span,
    /// The wait doubles each time, up to this one.
    pub credit_probe_most: Span,
    /// When a machine forwards words to the next one; `None` uses the platform profile's.
    pub passing: Option<Passing>,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Words of the paper's FIFO RAM: 1 KB (section 3.1).
    pub const FIFO_RAM_WORDS: u16 = 128;
    /// Maximum number of entries of a port's authorization table. Revoked entries that wait for their slices count. The
    /// completer searches the entries one by one for a packet's sender. Ours: a bound.
    pub const MAX_AUTHORIZATIONS: u16 = 256;

    /// A card as in the paper, with its RAM shared equally.
    pub fn new(node: u16, nodes: u32, profile: impl Into<Arc<Profile>>) -> Self {
        const EQUAL_SHARE: u16 = Config::FIFO_RAM_WORDS / PORTS as u16;
        Self {
            node,
            nodes,
            fifo_ram_words: Self::FIFO_RAM_WORDS,
            requester_fifo_words: [EQUAL_SHARE; PORTS],
            completer_fifo_words: [EQUAL_SHARE; PORTS],
            max_slices: receive::MAX_SLICES,
            // Section 3.2: "several" partners. Assumed: the number.
            authorizations: 16,
            unauthorized: Unauthorized::Discard,
            flow_control: FlowControl::Credit,
            // Ours: the paper has no credits.
            credit_probe_first: Span::from_ns(100_000),
            // Ours: the paper has no credits.
            credit_probe_most: Span::from_ns(100_000_000),
            passing: None,
            profile: profile.into(),
        }
    }

    /// When a machine of this card forwards words to the next one.
    pub fn passing(&self) -> Passing {
        self.passing.unwrap_or(self.profile.ni.passing)
    }

    /// Checks that the parameters are valid.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if u32::from(self.node) >= self.nodes {
            return Err(ConfigError::Node { node: self.node, nodes: self.nodes });
        }
        self.check_fifo(&self.requester_fifo_words)?;
        self.check_fifo(&self.completer_fifo_words)?;
        let slices = self.max_slices;
        if !slices.is_power_of_two() || !(receive::MIN_SLICES..=receive::MAX_SLICES).contains(&slices) {
            return Err(ConfigError::MaxSlices { slices });
        }
        let entries = self.authorizations;
        if !(1..=Self::MAX_AUTHORIZATIONS).contains(&entries) {
            return Err(ConfigError::Authorizations { entries });
        }
        let (first, most) = (self.credit_probe_first, self.credit_probe_most);
        if first == Span::ZERO || first > most {
            return Err(ConfigError::CreditProbe { first, most });
        }
        Ok(())
    }

    fn check_fifo(&self, shares: &[u16; PORTS]) -> Result<(), ConfigError> {
        for (port, &words) in shares.iter().enumerate() {
            if words != 0 && usize::from(words) < MAX_WORDS {
                return Err(ConfigError::FifoShare { port, words });
            }
        }
        let words = shares.iter().copied().map(u32::from).sum();
        if words > u32::from(self.fifo_ram_words) {
            return Err(ConfigError::FifoRam { words, ram_words: self.fifo_ram_words });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_configurations_are_refused() {
        let good = Config::new(1, 2, Profile::ultra_200mhz_htx());
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(refused(|c| c.node = 2), ConfigError::Node { node: 2, nodes: 2 });
        assert_eq!(refused(|c| c.requester_fifo_words[3] = 9), ConfigError::FifoShare { port: 3, words: 9 });
        assert_eq!(
            refused(|c| c.completer_fifo_words[3] = 17),
            ConfigError::FifoRam { words: 129, ram_words: 128 }
        );
        assert_eq!(refused(|c| c.max_slices = 12), ConfigError::MaxSlices { slices: 12 });
        assert_eq!(refused(|c| c.authorizations = 0), ConfigError::Authorizations { entries: 0 });
        assert!(matches!(refused(|c| c.credit_probe_first = Span::ZERO), ConfigError::CreditProbe { .. }));
    }
}
