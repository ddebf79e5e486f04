//! Frames that are of no model's protocol: they go to the Ethernet function of their node, to a MAC endpoint of its
//! card, or to both, as their address says ([`FrameClass`]).
//!
//! A node's Ethernet function receives the broadcasts of the node's MAC endpoints, and they receive its broadcasts,
//! without crossing the link: the switch sends a broadcast only to other nodes. Unicast frames between the two cross
//! the switch and come back.

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Passage;

use crate::shell::locks::LockedNodes;

/// Delivers such a frame of a model to the Ethernet function of `to`, if it is addressed. Returns whether the card's
/// MAC endpoints get it as well.
#[cold]
pub fn deliver(
    locked: &mut LockedNodes<'_>,
    to: usize,
    passage: Passage,
    frame: &SharedFrame,
    message: Option<TraceTag>,
    class: FrameClass,
) -> bool {
    let node = to as u16;
    let is_for_host = class.is_for_host(node);
    let is_for_endpoints = class.is_for_mac_endpoints(node)
        && locked.nodes.card(to).is_some_and(|card| card.nic.has_mac_endpoints());
    if is_for_host {
        let spent = locked.common.ethernet.receive(to, passage.tail, frame, message, &mut locked.nodes);
        locked.common.budget.spend(spent);
    }
    if !is_for_host && !is_for_endpoints {
        locked.common.ethernet.drop_frame(to);
    }
    is_for_endpoints
}
