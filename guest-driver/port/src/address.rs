//! Addresses of messages.

/// A port of the cluster network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The node, from 0.
    pub node: u32,
    /// Its port, from 0.
    pub port: u32,
}

impl core::fmt::Display for Address {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "node {} port {}", self.node, self.port)
    }
}
