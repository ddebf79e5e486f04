//! The nodes, each behind its lock, and what they share behind another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_model::fabric::{Fabric, Port};
use niclab_model::nic::registry::AnyNic;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use parking_lot::{Mutex, MutexGuard};

use super::{Common, World};
use crate::shell::card::Card;
use crate::shell::ethernet::Ethernet;
use crate::shell::network::Network;
use crate::shell::node::{Node, Nodes, Slot};
use crate::shell::pages::Pages;

/// All nodes and their network, to be held in parts or as a whole.
pub struct Cluster {
    slots: Vec<Slot>,
    common: Mutex<Common>,
}

impl Cluster {
    /// These cards on one platform, with nobody connected and no faults.
    pub fn new(cards: Vec<(AnyNic, Pages, u32)>, profile: &Arc<Profile>, fabric: Fabric, seed: u64) -> Self {
        let (links, switching) = fabric.into_parts();
        let ethernet = Ethernet::new(cards.len(), profile);
        let network = Network::new(switching, cards.len());
        let node = |((nic, pages, ports), port): ((AnyNic, Pages, u32), Port)| {
            Slot::new(Node { card: Card::new(nic, pages, ports), bus: NodeBus::default(), port })
        };
        Self {
            slots: cards.into_iter().zip(links).map(node).collect(),
            common: Mutex::new(Common::new(ethernet, network, seed)),
        }
    }

    /// How many nodes there are.
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All of it, for as long as the result lives.
    #[inline]
    pub fn world(&self) -> World<'_> {
        let common = self.common.lock();
        World { nodes: Nodes::all(&self.slots), common }
    }

    /// All of it, if it is to be had within so long.
    pub fn try_world(&self, patience: Duration) -> Option<World<'_>> {
        let until = Instant::now() + patience;
        let common = self.common.try_lock_until(until)?;
        Some(World { nodes: Nodes::all_until(&self.slots, until)?, common })
    }
}

impl World<'_> {
    /// Lets others have it who wait.
    pub fn bump(&mut self) {
        let Self { nodes, common } = self;
        nodes.bump_all(|| MutexGuard::bump(common));
    }

    /// Gives it back, to whoever waits for it. Who has more to do, or polls, would take it again at once, before the other one has
    /// woken up.
    pub fn give_back(mut self) {
        self.nodes.give_back();
        MutexGuard::unlock_fair(self.common);
    }
}
