//! Sends frames from one guest's transmit queue over the network to their receivers.

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::fabric::{Deliveries, Delivery};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;

use super::{Arrival, Held, MAX_HELD_FRAMES, Receivers};
use crate::ethernet::Negotiated;
use crate::ethernet::frame::Frame;
use crate::ethernet::header::{HEADER_BYTES, LinkHeader, Offload};
use crate::ethernet::offload::{Headers, MAX_HEADER_BYTES, MAX_SEGMENTS, complete_checksum, segment};
use crate::memory::DmaMemory;
use crate::shell::budget::frame_ns;
use crate::shell::network::Network;

/// One guest's burst of frames.
pub(super) struct Sender<'a, 'b, 'n> {
    pub(super) node: usize,
    pub(super) negotiated: Negotiated,
    pub(super) network: &'b mut Network,
    pub(super) receivers: Receivers<'a, 'n>,
    pub(super) held: &'b mut Vec<Held>,
    pub(super) deliveries: &'b mut Deliveries,
    pub(super) latest_sent: &'b mut Time,
    /// The class of the current frame.
    pub(super) class: FrameClass,
    /// Doorbells of this burst that are not yet priced. Each belongs to one of the next frames.
    pub(super) doorbells: u64,
    /// Equal frames may go in batches.
    pub(super) takes_batches: bool,
    /// Frames that went in batches.
    pub(super) batched: u64,
}

impl Sender<'_, '_, '_> {
    /// Sends the frame in `chain`.
    ///
    /// # Errors
    /// The name of the guest's violation.
    #[inline]
    pub(super) fn send(
        &mut self,
        memory: &DmaMemory,
        chain: &[crate::ring::Buffer],
    ) -> Result<(), &'static str> {
        let mut header = [0; HEADER_BYTES];
        let mut frame = Frame::from_chain(memory, chain, &mut header).map_err(|error| error.name())?;
        let offload = Offload::decode(&header, frame.bytes()).map_err(|_| "ethernet_offload")?;
        if !self.negotiated.sends(&offload) {
            return Err("ethernet_offload");
        }
        let ethernet = frame.link_header();
        self.class = FrameClass::of(&ethernet);
        if self.class == FrameClass::Card {
            // (The attack: with frames of a model's protocol, a guest sends in the name of any port of any node.)
            return Err("ethernet_forged_cluster_frame");
        }
        if let Some(state) = self.receivers.states.get_mut(self.node) {
            state.traffic.sent_frames += 1;
            state.traffic.sent_bytes += frame.bytes() as u64;
        }
        match (offload.checksum, offload.segmentation) {
            (Some(checksum), Some(segmentation)) => {
                frame.read_head(MAX_HEADER_BYTES);
                let headers = Headers::find(frame.head(), checksum, segmentation.family)
                    .map_err(|_| "ethernet_offload")?;
                if headers.segments(frame.bytes(), segmentation) > MAX_SEGMENTS {
                    return Err("ethernet_segments");
                }
                if self.network.is_any_faulty() || self.receivers.are_mac_endpoints(self.class) {
                    segment(&frame.into_vec(), checksum, segmentation, |wire| {
                        self.pass(&ethernet, &Offload::default(), Frame::from_bytes(wire));
                    })
                    .map_err(|_| "ethernet_offload")
                } else {
                    self.pass_train(&ethernet, &headers, &offload, frame);
                    Ok(())
                }
            }
            (Some(_), None) if self.receivers.are_mac_endpoints(self.class) => {
                let mut bytes = on_wire(&offload, frame.into_vec());
                self.pass(&ethernet, &Offload::default(), Frame::from_bytes(&mut bytes));
                Ok(())
            }
            _ => {
                self.pass(&ethernet, &offload, frame);
                Ok(())
            }
        }
    }

    /// Prices one frame of the wire, and advances the sender's clock. Afterwards `deliveries` has its receivers.
    /// Observers see the bytes `shown`. Returns when the frame was ready for the link, and its message.
    #[inline]
    fn price(
        &mut self,
        ethernet: &LinkHeader,
        bytes: usize,
        shown: Option<&[u8]>,
    ) -> Option<(Time, TraceTag)> {
        let Receivers { states, nodes, spent_ns, .. } = &mut self.receivers;
        *spent_ns = spent_ns.saturating_add(frame_ns(bytes));
        let (state, bus) = states.get_mut(self.node).zip(nodes.bus_mut(self.node))?;
        let now = bus.clock().max(*self.latest_sent);
        *self.latest_sent = now;
        let has_doorbell = self.doorbells > 0;
        self.doorbells = self.doorbells.saturating_sub(1);
        state.priced += 1;
        // The function does not know messages, so each frame on the wire is one.
        let message = TraceTag {
            node: self.node as u16,
            port: TraceTag::ETHERNET,
            number: state.priced,
            launched: now,
            bytes: bytes as u32,
        };
        state.nic.ledger_mut().attribute(Some(message));
        let ready = state.nic.transmit(now, bytes as u64, has_doorbell, bus);
        state.nic.ledger_mut().attribute(None);
        let (network, node, deliveries) = (&mut *self.network, self.node as u16, &mut *self.deliveries);
        match shown {
            Some(frame) => network.forward_shown(*nodes, ready, node, frame, Some(message), deliveries),
            None => network.forward(*nodes, ready, node, (ethernet, bytes), Some(message), deliveries),
        }
        for delivery in self.deliveries.iter() {
            // A frame that the receiver's controller drops, for its check sequence, costs the host nothing.
            if delivery.corrupt.is_none() && self.class.is_for_host(delivery.to) {
                self.receivers.price(delivery.to.into(), delivery.at, bytes, Some(message));
            }
        }
        Some((ready, message))
    }

    /// Sends one frame of the wire.
    #[inline]
    fn pass(&mut self, ethernet: &LinkHeader, offload: &Offload, frame: Frame<'_>) {
        let reordered = self.network.reordered(self.receivers.nodes);
        if self.network.observers.is_any() {
            let mut bytes = frame.into_vec();
            let shown = on_wire(offload, bytes.clone());
            let Some(priced) = self.price(ethernet, bytes.len(), Some(&shown)) else { return };
            return self.hand_out(priced, reordered, offload, Frame::from_bytes(&mut bytes));
        }
        let Some(priced) = self.price(ethernet, frame.bytes(), None) else { return };
        self.hand_out(priced, reordered, offload, frame);
    }

    /// Delivers a priced frame to all its receivers. `reordered`: frames that faults had delayed before it.
    #[inline]
    fn hand_out(
        &mut self,
        (ready, message): (Time, TraceTag),
        reordered: Option<u64>,
        offload: &Offload,
        frame: Frame<'_>,
    ) {
        let class = self.class;
        let is_held = reordered != self.network.reordered(self.receivers.nodes);
        let is_for_own_endpoints = class == FrameClass::All && self.receivers.has_mac_endpoints(self.node);
        if let &[Delivery { to, at, corrupt: None, .. }] = self.deliveries.as_slice()
            && !is_held
            && !is_for_own_endpoints
        {
            self.receivers.arrive(&Arrival { to: to.into(), at, class, message }, offload, frame);
            return self.overtake(to.into());
        }
        // The frame may have several readers.
        let mut bytes = frame.into_vec();
        for index in 0..self.deliveries.len() {
            let Some(delivery) = self.deliveries.get(index).copied() else { break };
            let arrival = Arrival { to: delivery.to.into(), at: delivery.at, class, message };
            if delivery.corrupt.is_some() {
                // The receiver's Ethernet controller drops a frame with a wrong check sequence.
                self.receivers.drop_frame(arrival.to);
            } else if is_held && self.held.len() < MAX_HELD_FRAMES {
                self.held.push(Held { arrival, offload: *offload, frame: bytes.clone() });
            } else {
                self.receivers.arrive(&arrival, offload, Frame::from_bytes(&mut bytes));
                self.overtake(arrival.to);
            }
        }
        if is_for_own_endpoints {
            // The node's own MAC endpoints receive its broadcast without crossing the link.
            let class = FrameClass::MacEndpoints(self.node as u16);
            let arrival = Arrival { to: self.node, at: ready, class, message };
            self.receivers.arrive(&arrival, offload, Frame::from_bytes(&mut bytes));
        }
    }

    /// Sends a long TCP frame, priced as the segments that the wire sees. Delivers it in one piece if all arrive.
    fn pass_train(&mut self, ethernet: &LinkHeader, headers: &Headers, offload: &Offload, frame: Frame<'_>) {
        if self.network.observers.is_any() {
            let mut bytes = frame.into_vec();
            let shown = segments(offload, &bytes);
            if self.price_train(ethernet, headers, offload, (bytes.len(), &shown)) {
                self.hand_out_train(offload, Frame::from_bytes(&mut bytes));
            }
        } else if self.price_train(ethernet, headers, offload, (frame.bytes(), &[])) {
            self.hand_out_train(offload, frame);
        }
    }

    /// Prices the segments of a long TCP frame of `bytes`. Observers see the segments `shown`. Returns whether all of
    /// them arrive.
    fn price_train(
        &mut self,
        ethernet: &LinkHeader,
        headers: &Headers,
        offload: &Offload,
        (bytes, shown): (usize, &[Vec<u8>]),
    ) -> bool {
        let size =
            offload.segmentation.map_or(1, |segmentation| usize::from(segmentation.payload_bytes).max(1));
        let mut left = bytes.saturating_sub(headers.bytes);
        let mut is_whole = true;
        let mut shown = shown.iter();
        while left > 0 {
            let payload = left.min(size);
            left -= payload;
            self.price(ethernet, headers.bytes + payload, shown.next().map(Vec::as_slice));
            is_whole &= !self.deliveries.is_empty();
        }
        is_whole
    }

    /// Delivers a long TCP frame to functions. For MAC endpoints, [`Sender::send`] cuts it into segments instead.
    fn hand_out_train(&mut self, offload: &Offload, frame: Frame<'_>) {
        if let &[Delivery { to, .. }] = self.deliveries.as_slice() {
            if self.class.is_for_host(to) {
                self.receivers.deliver(to.into(), offload, frame);
            }
            return;
        }
        let mut bytes = frame.into_vec();
        for index in 0..self.deliveries.len() {
            let Some(delivery) = self.deliveries.get(index).copied() else { break };
            if self.class.is_for_host(delivery.to) {
                self.receivers.deliver(delivery.to.into(), offload, Frame::from_bytes(&mut bytes));
            }
        }
    }

    /// A frame has arrived at `to`: the delayed frames that it overtook follow.
    #[inline]
    fn overtake(&mut self, to: usize) {
        if self.held.is_empty() {
            return;
        }
        for mut held in std::mem::take(self.held) {
            if held.arrival.to == to {
                let frame = Frame::from_bytes(&mut held.frame);
                self.receivers.arrive(&held.arrival, &held.offload, frame);
            } else {
                self.held.push(held);
            }
        }
    }
}

/// The bytes of a frame on the wire, with the checksum complete.
fn on_wire(offload: &Offload, mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(checksum) = offload.checksum {
        complete_checksum(&mut bytes, checksum);
    }
    bytes
}

/// The segments of a long TCP frame, as the wire sees them.
fn segments(offload: &Offload, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    if let (Some(checksum), Some(segmentation)) = (offload.checksum, offload.segmentation) {
        // Cannot fail: the sender has checked the headers.
        let _ = segment(frame, checksum, segmentation, |wire| segments.push(wire.to_vec()));
    }
    segments
}
