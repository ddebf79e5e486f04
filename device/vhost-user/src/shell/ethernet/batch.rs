//! Batches of consecutive, equal frames of one guest, which are taken, priced and delivered together.
//!
//! The frames of a batch have one buffer each, one length, the same two headers, and one receiving function. So they
//! have the same class, offloads, route, and price of each transaction. Instants, sums and counts are the same as one
//! by one ([`Sender::send`]). Frames that a fault may hit, that an observer sees, or that wait, go one by one.

use niclab_model::fabric::batch::{BatchFrame, BatchLength};
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::platform::trace_tag::TraceTag;
use smallvec::SmallVec;

use super::sending::Sender;
use super::{PortState, Receivers};
use crate::ethernet::frame::{Frame, MAX_FRAME_BYTES, Opened, head_of};
use crate::ethernet::header::{ETHERNET_BYTES, HEADER_BYTES, LinkHeader, Offload};
use crate::ethernet::receive::Pieces;
use crate::memory::DmaMemory;
use crate::ring::{Buffer, Burst, Single, Singles};
use crate::shell::budget::{Budget, FRAME_NS, frame_ns};

/// Max frames of a batch: two of a driver's bursts.
pub(super) const MAX_FRAMES: usize = 64;

/// The collected frames of a burst; reused for each batch.
#[derive(Default)]
pub(super) struct Collected<'m> {
    singles: Singles,
    /// The bytes of each frame after the Ethernet header, which is the same for all.
    pieces: Pieces<'m>,
    frames: SmallVec<[BatchFrame; MAX_FRAMES]>,
    /// The last chain started no batch: the next attempt takes one chain only.
    is_alone: bool,
}

/// A frame in one buffer.
struct Plain<'m>(Opened<'m>);

impl<'m> Plain<'m> {
    /// None if the buffer does not hold a whole frame with its headers.
    #[inline]
    fn parse(memory: &'m DmaMemory, single: &Single) -> Option<Self> {
        let Buffer { address, bytes, writable: false } = single.buffer else { return None };
        let bytes = bytes as usize;
        if !(HEADER_BYTES + ETHERNET_BYTES..=HEADER_BYTES + MAX_FRAME_BYTES).contains(&bytes) {
            return None;
        }
        Opened::read(memory.unread(address, bytes).ok()?).map(Self)
    }

    /// Bytes of the frame.
    #[inline]
    fn frame_bytes(&self) -> usize {
        self.0.head().len() + self.0.rest.bytes()
    }

    /// Whether this frame has this virtio-net header, and all that the batch has in common.
    #[inline]
    fn is_like(&self, header: &[u8; HEADER_BYTES], common: &Common) -> bool {
        self.frame_bytes() == common.frame_bytes && self.0.link == common.link && self.0.header == *header
    }
}

/// What all frames of a batch have in common.
struct Common {
    to: usize,
    offload: Offload,
    link: LinkHeader,
    frame_bytes: usize,
}

impl Sender<'_, '_, '_> {
    /// Sends the next frames of `burst` in batches, within the budget. False if the next chain starts no batch: the
    /// chain stays in the queue.
    #[inline]
    pub(super) fn send_batch<'m>(
        &mut self,
        memory: &'m DmaMemory,
        burst: &mut Burst<'_>,
        budget: &mut Budget,
        collected: &mut Collected<'m>,
    ) -> bool {
        let max = if std::mem::take(&mut collected.is_alone) { 1 } else { MAX_FRAMES };
        burst.take_singles(&mut collected.singles, max);
        let mut sent = 0;
        while !budget.is_spent() {
            let Some(common) = self.collect(memory, sent, *budget, collected) else { break };
            let Collected { singles, pieces, frames, .. } = &mut *collected;
            let count = pieces.len();
            self.price_batch(&common, count, frames);
            self.receivers.deliver_batch(&common, pieces, frames);
            let heads = singles.iter().skip(sent).take(count).map(|single| (single.head, 0));
            burst.push_used_all(heads);
            self.batched += count as u64;
            budget.spend(FRAME_NS * count as u32);
            budget.spend(self.receivers.take_spent());
            sent += count;
        }
        burst.give_back(collected.singles.len() - sent);
        collected.is_alone = sent == 0;
        sent > 0
    }

    /// Collects the batch that starts after the first `sent` chains, within the budget.
    #[inline]
    fn collect<'m>(
        &mut self,
        memory: &'m DmaMemory,
        sent: usize,
        budget: Budget,
        collected: &mut Collected<'m>,
    ) -> Option<Common> {
        let Collected { singles, pieces, .. } = collected;
        let mut rest = singles.iter().skip(sent);
        let first = Plain::parse(memory, rest.next()?)?;
        let (to, offload) = self.batch_route(&first)?;
        let frame_bytes = first.frame_bytes();
        let Plain(Opened { header, link, rest: piece }) = first;
        let common = Common { to, offload, link, frame_bytes };
        pieces.clear();
        pieces.push(piece);
        // What one frame spends from the budget: taken, priced, delivered.
        let each = 2 * FRAME_NS + 2 * frame_ns(frame_bytes);
        let mut spent = each;
        for single in rest {
            if !budget.has_more_than(spent) {
                break;
            }
            let next = Plain::parse(memory, single).filter(|next| next.is_like(&header, &common));
            let Some(Plain(next)) = next else { break };
            pieces.push(next.rest);
            spent = spent.saturating_add(each);
        }
        Some(common)
    }

    /// The node to which frames like this one go as a batch, and their offload. None if they go one by one.
    fn batch_route(&mut self, first: &Plain<'_>) -> Option<(usize, Offload)> {
        let bytes = first.frame_bytes();
        let Opened { header, link, .. } = &first.0;
        let offload = Offload::decode(header, bytes).ok()?;
        let is_plain = offload.segmentation.is_none()
            && self.negotiated.sends(&offload)
            && FrameClass::of(link) == FrameClass::Host
            && !self.network.is_any_faulty()
            && !self.network.observers.is_any()
            && self.held.is_empty();
        let is_kept = |state: &PortState| state.nic.ledger().is_recording();
        if !self.takes_batches || !is_plain || self.receivers.states.get(self.node).is_none_or(is_kept) {
            return None;
        }
        let nodes = &mut *self.receivers.nodes;
        let to = usize::from(self.network.batch_route(nodes, self.node as u16, link, bytes)?);
        let receives = self.receivers.functions.get(to)?.negotiated.receives(&offload);
        let state = self.receivers.states.get(to)?;
        let takes_now = state.backlogs.is_empty() && !state.is_stopped;
        let is_batch = receives && takes_now && !is_kept(state);
        // Frames for several pairs are steered one by one.
        (is_batch && self.receivers.receiving_pairs(to).is_single()).then_some((to, offload))
    }

    /// Prices the collected batch, from the sender's software to the receiver's.
    #[inline]
    fn price_batch(
        &mut self,
        &Common { to, frame_bytes: bytes, .. }: &Common,
        count: usize,
        frames: &mut SmallVec<[BatchFrame; MAX_FRAMES]>,
    ) {
        frames.clear();
        frames.resize(count, BatchFrame::default());
        let count = count as u64;
        let Receivers { functions, states, nodes, spent_ns, .. } = &mut self.receivers;
        *spent_ns = spent_ns.saturating_add(frame_ns(bytes).saturating_mul(count as u32));
        let Some((state, bus)) = states.get_mut(self.node).zip(nodes.bus_mut(self.node)) else { return };
        state.traffic.sent_frames += count;
        state.traffic.sent_bytes += count * bytes as u64;
        state.priced += count;
        state.nic.transmit_all(frames, bytes as u64, self.doorbells, self.latest_sent, bus);
        self.doorbells = self.doorbells.saturating_sub(count);
        state.nic.ledger_mut().attribute(None);
        let last = TraceTag {
            node: self.node as u16,
            port: TraceTag::ETHERNET,
            number: state.priced,
            launched: frames.last().map_or(*self.latest_sent, |last| last.launched),
            bytes: bytes as u32,
        };
        if let Some((from, to)) = nodes.pair(self.node, to) {
            let length = BatchLength { bytes, is_routed: false };
            self.network.forward_batch((&mut from.port, &mut to.port), length, frames, Some(last));
        }
        // Without a driver a frame costs the host nothing.
        let is_taken = functions.get(to).is_some_and(|function| !function.vrings.is_empty());
        if is_taken && let Some((state, bus)) = states.get_mut(to).zip(nodes.bus_mut(to)) {
            state.nic.receive_all(frames, bytes as u64, bus);
        }
    }
}

impl<'a> Receivers<'a, '_> {
    /// Delivers the frames of a batch that the network did not drop.
    #[inline]
    fn deliver_batch(&mut self, common: &Common, pieces: &mut Pieces<'_>, frames: &[BatchFrame]) {
        let &Common { to, ref offload, ref link, frame_bytes: bytes } = common;
        let mut fates = frames.iter();
        pieces.retain(|_| fates.next().is_some_and(|frame| frame.passage.is_some()));
        // A batch requires that no frame waits for the guest, and that the guest has turned on at most one pair.
        let put = match self.receiving_pairs(to).single() {
            Some(pair) => {
                self.receiver((to, pair)).map_or(0, |receiver| receiver.put_all(offload, link, pieces))
            }
            None => 0,
        };
        if let Some(state) = self.states.get_mut(to) {
            state.traffic.received_frames += put as u64;
            state.traffic.received_bytes += (put * bytes) as u64;
        }
        let each = FRAME_NS + frame_ns(bytes);
        self.spent_ns = self.spent_ns.saturating_add(each.saturating_mul(put as u32));
        for piece in pieces.drain(..) {
            self.deliver(to, offload, Frame::from_parts(head_of(link), piece));
        }
    }
}
