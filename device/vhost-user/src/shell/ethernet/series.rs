//! Equal frames that one guest has queued one behind the other, taken, priced and delivered together.
//!
//! A series is frames of one buffer each, of one length, with the same two headers, to one function. What is said of
//! the first is true of all of them: whom it concerns, which offloads it has, which way it goes, what each crossing
//! costs. Their instants, sums and counts are the ones that they have one by one ([`Sender::send`]), where goes
//! whatever is no series: frames of which each has a fate of its own, is watched, or waits.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::series::SeriesFrame;
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

/// Most frames of a series: two of a driver's bursts.
pub(super) const MAX_FRAMES: usize = 64;

/// Where a burst's frames are collected; kept from one series to the next.
#[derive(Default)]
pub(super) struct Collected<'m> {
    singles: Singles,
    /// What follows the Ethernet header, which all have.
    pieces: Pieces<'m>,
    frames: SmallVec<[SeriesFrame; MAX_FRAMES]>,
    /// What came last was no series: whatever is next is looked at by itself.
    is_alone: bool,
}

/// A frame in one buffer.
struct Plain<'m>(Opened<'m>);

impl<'m> Plain<'m> {
    /// None of what is no frame, or has its headers elsewhere.
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

    /// Whether all that is known of a frame with this header of virtio-net's is true of this one.
    #[inline]
    fn is_like(&self, header: &[u8; HEADER_BYTES], common: &Common) -> bool {
        self.frame_bytes() == common.frame_bytes && self.0.link == common.link && self.0.header == *header
    }
}

/// What is true of all frames of a series.
struct Common {
    to: usize,
    offload: Offload,
    link: LinkHeader,
    frame_bytes: usize,
}

impl Sender<'_, '_, '_> {
    /// Sends what is next in `burst` as series, as far as the turn goes and there are some. False when the next chain
    /// is none: it is left in the queue.
    #[inline]
    pub(super) fn send_series<'m>(
        &mut self,
        memory: &'m DmaMemory,
        burst: &mut Burst<'_>,
        budget: &mut Budget,
        collected: &mut Collected<'m>,
    ) -> bool {
        let most = if std::mem::take(&mut collected.is_alone) { 1 } else { MAX_FRAMES };
        burst.take_singles(&mut collected.singles, most);
        let mut sent = 0;
        while !budget.is_spent() {
            let Some(common) = self.collect(memory, sent, *budget, collected) else { break };
            let Collected { singles, pieces, frames, .. } = &mut *collected;
            let count = pieces.len();
            self.price_series(&common, count, frames);
            self.receivers.deliver_series(&common, pieces, frames);
            let heads = singles.iter().skip(sent).take(count).map(|single| (single.head, 0));
            burst.push_used_all(heads);
            self.sent_as_series += count as u64;
            budget.spend(FRAME_NS * count as u32);
            budget.spend(self.receivers.take_spent());
            sent += count;
        }
        burst.give_back(collected.singles.len() - sent);
        collected.is_alone = sent == 0;
        sent > 0
    }

    /// Collects the series that begins behind the first `sent` chains, as long as the turn lets it be.
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
        let (to, offload) = self.series_way(&first)?;
        let frame_bytes = first.frame_bytes();
        let Plain(Opened { header, link, rest: piece }) = first;
        let common = Common { to, offload, link, frame_bytes };
        pieces.clear();
        pieces.push(piece);
        // What one takes out of a turn by itself: taken, priced, delivered.
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

    /// Where frames like this one go as a series. None where they do not.
    fn series_way(&mut self, first: &Plain<'_>) -> Option<(usize, Offload)> {
        let bytes = first.frame_bytes();
        let Opened { header, link, .. } = &first.0;
        let offload = Offload::decode(header, bytes).ok()?;
        let is_plain = offload.segmentation.is_none()
            && self.negotiated.sends(&offload)
            && Concern::of(link) == Concern::Host
            && !self.network.is_any_faulty()
            && !self.network.taps.is_any()
            && self.held.is_empty();
        let is_kept = |state: &PortState| state.nic.ledger().is_recording();
        if !self.takes_series || !is_plain || self.receivers.states.get(self.node).is_none_or(is_kept) {
            return None;
        }
        let nodes = &mut *self.receivers.nodes;
        let to = usize::from(self.network.series_way(nodes, self.node as u16, link, bytes)?);
        let receives = self.receivers.functions.get(to)?.negotiated.receives(&offload);
        let state = self.receivers.states.get(to)?;
        let takes_now = state.backlogs.is_empty() && !state.is_stopped;
        let is_series = receives && takes_now && !is_kept(state);
        // Frames for several pairs are steered one by one.
        (is_series && self.receivers.receiving_pairs(to).is_single()).then_some((to, offload))
    }

    /// Prices the series that was collected, from the sender's software to the receiver's.
    #[inline]
    fn price_series(
        &mut self,
        &Common { to, frame_bytes: bytes, .. }: &Common,
        count: usize,
        frames: &mut SmallVec<[SeriesFrame; MAX_FRAMES]>,
    ) {
        frames.clear();
        frames.resize(count, SeriesFrame::default());
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
        self.network.forward_series(*nodes, (self.node as u16, to as u16), bytes, frames, Some(last));
        // What comes without a driver costs a host nothing.
        let is_taken = functions.get(to).is_some_and(|function| !function.vrings.is_empty());
        if is_taken && let Some((state, bus)) = states.get_mut(to).zip(nodes.bus_mut(to)) {
            state.nic.receive_all(frames, bytes as u64, bus);
        }
    }
}

impl<'a> Receivers<'a, '_> {
    /// Delivers the frames of a series that were not dropped on their way.
    #[inline]
    fn deliver_series(&mut self, common: &Common, pieces: &mut Pieces<'_>, frames: &[SeriesFrame]) {
        let &Common { to, ref offload, ref link, frame_bytes: bytes } = common;
        let mut fates = frames.iter();
        pieces.retain(|_| fates.next().is_some_and(|frame| frame.at.is_some()));
        // Nothing waits for the guest, which has turned on one pair at most: else this would be no series.
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
