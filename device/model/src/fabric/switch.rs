//! The switch: which port leads to an address.

use alloc::collections::BTreeMap;

use crate::fabric::ethernet::{Frame, Mac, is_group, station_of_mac};

/// Where a frame leaves the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlet {
    /// At one port, be it the one that it came from: a card may send to itself.
    Port(u16),
    /// At all but the one that it came from.
    AllOthers,
}

/// Address table. The addresses of cards and of nodes' stations are known from the start and cannot be taken; others (a
/// bridge in a guest, a changed address) are learned from what they send.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    ports: usize,
    learned: BTreeMap<Mac, u16>,
}

/// Most learned addresses. A guest that invents senders fills the table and then has its frames flooded; it cannot make
/// it grow.
const MAX_LEARNED: usize = 1_024;

impl Switch {
    pub(super) fn new(ports: usize) -> Self {
        Self { ports, learned: BTreeMap::new() }
    }

    /// Learns where the sender is, and says where the frame goes.
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

    /// Where a frame from card to card goes, of which there is nothing to learn.
    #[inline]
    pub(super) fn known_way(&self, frame: &Frame<'_>) -> Option<u16> {
        self.card_port(&frame.source())?;
        self.card_port(&frame.destination())
    }

    pub(super) fn has_learned(&self) -> bool {
        !self.learned.is_empty()
    }

    fn card_port(&self, mac: &Mac) -> Option<u16> {
        station_of_mac(mac).map(|(node, _)| node).filter(|&node| usize::from(node) < self.ports)
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
