//! Destinations of ports, and authorizations of senders: control requests of cards whose ports have one destination
//! and several senders.

use niclab_abi::control::{Authorize, OP_AUTHORIZE, OP_REVOKE, OP_ROUTE, Revoke, Route};

use crate::nic::{Address, HostRanges};
use crate::parts::control::{ControlError, OwnOperation, whole};

impl Address {
    /// The port that a request names, on any node of the cluster including the card's own.
    ///
    /// # Errors
    /// [`ControlError::BadValue`] if there is no such node, or no such port on it.
    pub fn named(node: u32, port: u32, nodes: u32, ports: usize) -> Result<Self, ControlError> {
        let node = u16::try_from(node).ok().filter(|node| u32::from(*node) < nodes);
        let port = u8::try_from(port).ok().filter(|port| usize::from(*port) < ports);
        match (node, port) {
            (Some(node), Some(port)) => Ok(Self { node, port }),
            _ => Err(ControlError::BadValue),
        }
    }
}

/// A request of valid length.
#[derive(Debug)]
pub enum Operation {
    /// Sets the destination of a port.
    Route(Route),
    /// Allows a remote port to send to a port.
    Authorize(Authorize),
    /// Withdraws an authorization.
    Revoke(Revoke),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_ROUTE => whole(body).map(Self::Route),
            OP_AUTHORIZE => whole(body).map(Self::Authorize),
            OP_REVOKE => whole(body).map(Self::Revoke),
            _ => Err(ControlError::BadOperation),
        }
    }

    fn memory(&self) -> HostRanges {
        HostRanges::new()
    }
}
