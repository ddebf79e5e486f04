//! Passes stages, frames and messages from the shell to the watches.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use niclab_model::fabric::{Deliveries, Delivery, Ports, Switching, Transits, leave};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::ledger::StageRecord;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_observe::capture::arrivals;
use niclab_observe::timeline::Owner;
use niclab_observe::{Fate, Heading};

use super::{CapturedFrame, Entry, Share, Subject, Watch};

/// The observers of the network: all watches.
#[derive(Debug, Default)]
pub struct Observers {
    watches: Vec<Arc<Watch>>,
    /// The number of watches, including those that are over but not yet written.
    shares: Arc<AtomicUsize>,
}

impl Observers {
    /// Whether there is a watch.
    #[inline]
    pub const fn is_any(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Whether a watch observes stages.
    pub(crate) fn is_traced(&self) -> bool {
        self.watches.iter().any(|watch| watch.is_trace())
    }

    /// A new watch's share of [`super::MAX_WAITING_BYTES`].
    pub(crate) fn share(&self) -> Share {
        Share::of(&self.shares)
    }

    pub(crate) fn add(&mut self, watch: Arc<Watch>) {
        self.watches.push(watch);
    }

    pub(crate) fn remove(&mut self, watch: &Arc<Watch>) {
        self.watches.retain(|other| !Arc::ptr_eq(other, watch));
    }

    /// Ends all watches.
    pub(crate) fn clear(&mut self) {
        self.watches.drain(..).for_each(|watch| watch.end());
    }

    /// Ends the watches that have seen their maximum of messages.
    pub(crate) fn end_full(&self) {
        self.watches.iter().for_each(|watch| watch.end_if_full());
    }

    /// Passes on the stages of one ledger, and the number of further stages that the ledger dropped.
    pub(crate) fn on_stages(&self, owner: Owner, stages: &[StageRecord], lost: u64) {
        if stages.is_empty() && lost == 0 {
            return;
        }
        for watch in self.watches.iter().filter(|watch| watch.is_trace()) {
            watch.push(stages.iter().map(|stage| Entry::Stage(owner, *stage)));
            if lost > 0 {
                watch.state.lock().lose(0, lost);
            }
        }
    }

    /// Does what [`Switching::forward`] does, with the same result, and passes the frame on for both links.
    #[cold]
    pub fn forward(
        &self,
        (switching, ports): (&mut Switching, &mut impl Ports),
        ready: Passage,
        from: u16,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        let mut transits = Transits::new();
        switching.enter(ports, ready, from, frame, message, &mut transits);
        self.on_sent(ready.head, from, frame, message, transits.is_empty());
        for transit in transits {
            let before = deliveries.len();
            leave(ports, &transit, frame.len(), message, deliveries);
            let new = deliveries.get(before..).unwrap_or_default();
            self.on_forwarded(transit.ready, transit.to, frame, new);
        }
    }

    /// A node sends a frame to its link, which may drop it.
    pub fn on_sent(
        &self,
        at: Time,
        node: u16,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        is_dropped: bool,
    ) {
        let fate = if is_dropped { Fate::Dropped } else { Fate::Passed };
        for watch in &self.watches {
            if let Some(message) = &message {
                watch.on_message(message, frame);
            }
            if let Some(interface) = interface(watch, node) {
                let heading = Heading::ToSwitch;
                let frame = CapturedFrame { interface, heading, at, frame: frame.clone(), fate };
                watch.push([Entry::Frame(frame)]);
            }
        }
    }

    /// A frame leaves the switch at `at` for the link of `node`, where it arrives as `deliveries` say.
    pub fn on_forwarded(&self, at: Time, node: u16, frame: &SharedFrame, deliveries: &[Delivery]) {
        for watch in &self.watches {
            let Some(interface) = interface(watch, node) else { continue };
            let heading = Heading::ToNode;
            watch.push(arrivals(at, frame, deliveries).map(|(at, frame, fate)| {
                Entry::Frame(CapturedFrame { interface, heading, at, frame, fate })
            }));
        }
    }
}

/// The interface under which a watch captures the link of a node.
fn interface(watch: &Watch, node: u16) -> Option<u32> {
    let Subject::Capture { interfaces, .. } = &watch.subject else { return None };
    *interfaces.get(usize::from(node))?
}

#[cfg(test)]
mod tests {
    use niclab_model::fabric::ethernet::mac_of_node;
    use niclab_model::fabric::faults::Faults;
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding, SwitchPort};
    use niclab_model::nic::FrameBytes;
    use niclab_model::time::Span;
    use proptest::prelude::*;

    use super::*;

    fn fabric(seed: u64, faults: &Faults) -> (Vec<SwitchPort>, Switching) {
        let link = LinkConfig::ethernet(1_000_000_000);
        let fall_through = Span::from_ns(90);
        let (links, forwarding) = (vec![link; 3], Forwarding::CutThrough);
        let config = FabricConfig { links, forwarding, switch_fall_through: fall_through, seed };
        let mut fabric = Fabric::new(&config).unwrap();
        for node in 0..3 {
            assert!(fabric.set_faults(node, *faults));
        }
        fabric.into_parts()
    }

    proptest! {
        #[test]
        fn watches_do_not_change_deliveries_or_ledgers(
            seed: u64,
            chance in 0.0..0.5,
            sent in prop::collection::vec((0..3_u16, 0..4_u16, 14..200_usize, 0..500_u64), 0..60),
        ) {
            let faults = niclab_spec::Faults {
                loss: chance, duplicate: chance, corrupt: chance, reorder: chance, ..Default::default()
            };
            let faults = faults.to_model();
            let (mut plain, mut shown) = (fabric(seed, &faults), fabric(seed, &faults));
            let observers = Observers::default();
            let mut now = Time::ZERO;
            for (from, to, bytes, later_ns) in sent {
                now += Span::from_ns(later_ns);
                let mut frame = FrameBytes::from_elem(0, bytes);
                // Address 3 stands for broadcast.
                frame[..6].copy_from_slice(&if to < 3 { mac_of_node(to) } else { [0xff; 6] });
                frame[6..12].copy_from_slice(&mac_of_node(from));
                let frame = SharedFrame::from(frame);
                let (mut expected, mut found) = (Deliveries::new(), Deliveries::new());
                plain.1.forward(&mut plain.0, now, from, &frame, None, &mut expected);
                observers.forward((&mut shown.1, &mut shown.0), now.into(), from, &frame, None, &mut found);
                expected.sort_by_key(|delivery| (delivery.to, delivery.at));
                found.sort_by_key(|delivery| (delivery.to, delivery.at));
                prop_assert_eq!(expected, found);
            }
            for (plain, shown) in plain.0.iter().zip(&shown.0) {
                prop_assert_eq!(plain.ledger(), shown.ledger());
                prop_assert_eq!(plain.counters(), shown.counters());
            }
        }
    }
}
