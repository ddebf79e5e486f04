//! A shard of a switch's ports: the ports of the nodes that one thread simulates, or all ports.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::fabric::link::{Link, LinkConfig};
use crate::fabric::{PortCounters, Ports, SwitchPort};
use crate::platform::ledger::Ledger;

/// A shard of ports.
pub(super) struct Stretch {
    /// The number of the first port.
    first: usize,
    pub(super) own: Vec<SwitchPort>,
    /// Ports of the whole switch.
    count: usize,
    /// Stand-ins for ports of other shards: one for each kind of link, read only for its speed. `kinds` has the kind
    /// of each port.
    elsewhere: Vec<SwitchPort>,
    kinds: Arc<[u16]>,
}

impl Stretch {
    /// All ports.
    pub(super) fn whole(own: Vec<SwitchPort>) -> Self {
        Self { first: 0, count: own.len(), own, elsewhere: Vec::new(), kinds: Arc::default() }
    }

    /// Shards of `ports_each` ports. No port remains here.
    pub(super) fn divide(&mut self, ports_each: usize) -> Vec<Self> {
        let mut kinds: Vec<LinkConfig> = Vec::new();
        let of_ports = self.own.iter().map(|port| {
            let config = port.link.config();
            let place = kinds.iter().position(|kind| kind == config).unwrap_or_else(|| {
                kinds.push(*config);
                kinds.len() - 1
            });
            place as u16
        });
        let of_ports: Arc<[u16]> = of_ports.collect();
        let mut ports = core::mem::take(&mut self.own).into_iter();
        let firsts = (0..self.count).step_by(ports_each.max(1));
        let stretch = |first| Self {
            first,
            own: ports.by_ref().take(ports_each.max(1)).collect(),
            count: self.count,
            elsewhere: kinds.iter().filter_map(idle).collect(),
            kinds: Arc::clone(&of_ports),
        };
        firsts.map(stretch).collect()
    }
}

/// An idle port with such a link.
fn idle(config: &LinkConfig) -> Option<SwitchPort> {
    let link = Link::new(0, *config, 0).ok()?;
    Some(SwitchPort { link, counters: PortCounters::default(), ledger: Ledger::default() })
}

impl Ports for Stretch {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn port(&mut self, number: u16) -> Option<&mut SwitchPort> {
        let number = usize::from(number);
        let place = number.wrapping_sub(self.first);
        if place < self.own.len() {
            return self.own.get_mut(place);
        }
        self.elsewhere.get_mut(usize::from(*self.kinds.get(number)?))
    }
}
