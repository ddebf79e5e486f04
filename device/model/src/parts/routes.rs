//! Where ports send, and who may send to them: the control requests of cards whose ports have one target and several
//! partners.

use niclab_abi::control::{Authorize, OP_AUTHORIZE, OP_REVOKE, OP_ROUTE, Revoke, Route};

use crate::nic::{Address, HostRanges};
use crate::parts::control::{ControlError, OwnOperation, whole};

impl Address {
    /// The port that a request names: of any node of the cluster, the card's own included.
    ///
    /// # Errors
    /// [`ControlError::BadValue`] when there is no such node, or no such port on it.
    pub fn named(node: u32, port: u32, nodes: u32, ports: usize) -> Result<Self, ControlError> {
        let node = u16::try_from(node).ok().filter(|node| u32::from(*node) < nodes);
        let port = u8::try_from(port).ok().filter(|port| usize::from(*port) < ports);
        match (node, port) {
            (Some(node), Some(port)) => Ok(Self { node, port }),
            _ => Err(ControlError::BadValue),
        }
    }
}

/// A request whose length is right.
#[derive(Debug)]
pub enum Operation {
    /// Sets where a port sends.
    Route(Route),
    /// Lets a remote port send to a port.
    Authorize(Authorize),
    /// Takes that back.
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
