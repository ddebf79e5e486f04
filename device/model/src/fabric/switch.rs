//! The switch's address table: which port leads to an address.

use alloc::collections::BTreeMap;

use crate::fabric::ethernet::{Frame, Mac, endpoint_of_mac, is_group};

/// The output of a frame at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlet {
    /// One port, possibly the frame's input port: a card may send to itself.
    Port(u16),
    /// All ports except the input port.
    AllOthers,
}

/// Address table. The addresses of cards and MAC endpoints are known from the start and fixed. The switch learns
/// others (a bridge in a guest, a changed address) from source addresses.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    ports: usize,
    learned: BTreeMap<Mac, u16>,
}

/// Max learned addresses. A guest that invents source addresses fills the table, and then the switch floods its
/// frames; the table does not grow.
const MAX_LEARNED: usize = 1_024;

impl Switch {
    pub(super) fn new(ports: usize) -> Self {
        Self { ports, learned: BTreeMap::new() }
    }

    /// Learns the sender's port, and returns the frame's output.
    #[inline]
    pub(super) fn outlet(&mut self, from: u16, frame: &Frame<'_>) -> Outlet {
        let source = frame.source();
        if self.card_port(&source).is_none() {
            self.learn(from, source);
        }
        let destination = frame.destination();
        if let Some(port) = self.card_port(&destination) {
            return Outlet::Port(port);
        }
        if is_group(&destination) {
            return Outlet::AllOthers;
        }
        self.learned.get(&destination).map_or(Outlet::AllOthers, |&port| Outlet::Port(port))
    }

    /// The output of a frame from card to card, from which the switch learns nothing.
    #[inline]
    pub(super) fn known_route(&self, frame: &Frame<'_>) -> Option<u16> {
        self.card_port(&frame.source())?;
        self.card_port(&frame.destination())
    }

    pub(super) fn has_learned(&self) -> bool {
        !self.learned.is_empty()
    }

    fn card_port(&self, mac: &Mac) -> Option<u16> {
        endpoint_of_mac(mac).map(|(node, _)| node).filter(|&node| usize::from(node) < self.ports)
    }

    fn learn(&mut self, from: u16, source: Mac) {
        if is_group(&source) {
            return;
        }
        if let Some(port) = self.learned.get_mut(&source) {
            *port = from;
        } else if self.learned.len() < MAX_LEARNED {
            self.learned.insert(source, from);
        }
    }
}
