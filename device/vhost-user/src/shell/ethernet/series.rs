//! Equal frames that one guest has queued one behind the other, taken, priced and delivered together.
//!
//! A series is frames of one buffer each, of one length, with the same two headers, to one function. What is said of the first
//! is true of all of them: whom it concerns, which offloads it has, which way it goes, what each crossing costs. Their instants, sums
//! and counts are the ones that they have one by one ([`Sender::send`]), where goes whatever is no series: frames of which
//! each has a fate of its own, is watched, or waits.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::series::SeriesFrame;
use niclab_model::platform::trace_tag::TraceTag;
use smallvec::SmallVec;
use vm_memory::{VolatileMemory, VolatileSlice};

use super::sending::Sender;
use super::{PortState, Receivers};
use crate::ethernet::frame::{Frame, MAX_FRAME_BYTES, link_header_of};
use crate::ethernet::header::{ETHERNET_BYTES, HEADER_BYTES, LinkHeader, Offload};
use crate::memory::DmaMemory;
use crate::ring::{Buffer, Burst, Single, Singles};
use crate::shell::turn::{FRAME_NS, Turn, frame_ns};

/// Most frames of a series: two of a driver's bursts.
pub(super) const MAX_FRAMES: usize = 64;

/// Where a burst's frames are collected; kept from one series to the next.
#[derive(Default)]
pub(super) struct Collected<'m> {
    singles: Singles,
    pieces: SmallVec<[VolatileSlice<'m>; MAX_FRAMES]>,
    frames: SmallVec<[SeriesFrame; MAX_FRAMES]>,
    /// What came last was no series: whatever is next is looked at by itself.
    is_alone: bool,
}

/// A frame in one buffer.
struct Plain<'m> {
    header: [u8; HEADER_BYTES],
    ethernet: LinkHeader,
    piece: VolatileSlice<'m>,
}

impl<'m> Plain<'m> {
    /// None of what is no frame, or has its headers elsewhere.
    #[inline]
    fn parse(memory: &'m DmaMemory, single: &Single) -> Option<Self> {
        let Buffer { address, bytes, writable: false } = single.buffer else { return None };
        let bytes = bytes as usize;
        if !(HEADER_BYTES + ETHERNET_BYTES..=HEADER_BYTES + MAX_FRAME_BYTES).contains(&bytes) {
            return None;
        }
        let slice = memory.slice(address, bytes).ok()?;
        let header = slice.get_ref::<[u8; HEADER_BYTES]>(0).ok()?.load();
        let piece = slice.offset(HEADER_BYTES).ok()?;
        Some(Self { header, ethernet: link_header_of(&piece), piece })
    }

    /// Whether all that is known of one is true of the other.
    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        self.piece.len() == other.piece.len()
            && self.ethernet == other.ethernet
            && self.header == other.header
    }
}

impl Sender<'_, '_, '_> {
    /// Sends what is next in `burst` as series, as far as the turn goes and there are some. False when the next chain is none: it is
    /// left in the queue.
    #[inline]
    pub(super) fn send_series<'m>(
        &mut self,
        memory: &'m DmaMemory,
        burst: &mut Burst<'_>,
        turn: &mut Turn,
        collected: &mut Collected<'m>,
    ) -> bool {
        let most = if std::mem::take(&mut collected.is_alone) { 1 } else { MAX_FRAMES };
        burst.take_singles(&mut collected.singles, most);
        let mut sent = 0;
        while !turn.is_over() {
            let Some((to, offload)) = self.collect(memory, sent, *turn, collected) else { break };
            let Collected { singles, pieces, frames, .. } = &mut *collected;
            let count = pieces.len();
            self.price_series(to, pieces, frames);
            self.receivers.deliver_series(to, &offload, pieces, frames);
            let heads = singles.iter().skip(sent).take(count).map(|single| (single.head, 0));
            burst.push_used_all(heads);
            self.sent_as_series += count as u64;
            turn.spend(FRAME_NS * count as u32);
            turn.spend(self.receivers.take_spent());
            sent += count;
        }
        burst.give_back(collected.singles.len() - sent);
        collected.is_alone = sent == 0;
        sent > 0
    }

    /// Collects the series that begins behind the first `sent` chains, as long as the turn lets it be. Where it goes.
    #[inline]
    fn collect<'m>(
        &mut self,
        memory: &'m DmaMemory,
        sent: usize,
        turn: Turn,
        collected: &mut Collected<'m>,
    ) -> Option<(usize, Offload)> {
        let Collected { singles, pieces, .. } = collected;
        let mut rest = singles.iter().skip(sent);
        let first = Plain::parse(memory, rest.next()?)?;
        let way = self.series_way(&first)?;
        pieces.clear();
        pieces.push(first.piece);
        // What one takes out of a turn by itself: taken, priced, delivered.
        let each = 2 * FRAME_NS + 2 * frame_ns(first.piece.len());
        let mut spent = each;
        for single in rest {
            if !turn.has_more_than(spent) {
                break;
            }
            let Some(next) = Plain::parse(memory, single).filter(|next| next.is_like(&first)) else { break };
            pieces.push(next.piece);
            spent = spent.saturating_add(each);
        }
        Some(way)
    }

    /// Where frames like this one go as a series. None where they do not.
    fn series_way(&mut self, first: &Plain<'_>) -> Option<(usize, Offload)> {
        let bytes = first.piece.len();
        let offload = Offload::decode(&first.header, bytes).ok()?;
        let is_plain = offload.segmentation.is_none()
            && self.negotiated.sends(&offload)
            && Concern::of(&first.ethernet) == Concern::Host
            && !self.network.is_any_faulty()
            && !self.network.taps().is_any()
            && self.held.is_empty();
        let is_kept = |state: &PortState| state.nic.ledger().is_recording();
        if !self.takes_series || !is_plain || self.receivers.states.get(self.node).is_none_or(is_kept) {
            return None;
        }
        let nodes = &mut *self.receivers.nodes;
        let to = usize::from(self.network.series_way(nodes, self.node as u16, &first.ethernet, bytes)?);
        let receives = self.receivers.functions.get(to)?.negotiated.receives(&offload);
        let state = self.receivers.states.get(to)?;
        (receives && state.backlog.is_empty() && !is_kept(state)).then_some((to, offload))
    }

    /// Prices the series that was collected, from the sender's software to the receiver's.
    #[inline]
    fn price_series(
        &mut self,
        to: usize,
        pieces: &[VolatileSlice<'_>],
        frames: &mut SmallVec<[SeriesFrame; MAX_FRAMES]>,
    ) {
        let bytes = pieces.first().map_or(0, VolatileSlice::len);
        let count = pieces.len() as u64;
        frames.clear();
        frames.resize(pieces.len(), SeriesFrame::default());
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
    fn deliver_series<'m>(
        &mut self,
        to: usize,
        offload: &Offload,
        pieces: &mut SmallVec<[VolatileSlice<'m>; MAX_FRAMES]>,
        frames: &[SeriesFrame],
    ) {
        let mut fates = frames.iter();
        pieces.retain(|_| fates.next().is_some_and(|frame| frame.at.is_some()));
        let bytes = pieces.first().map_or(0, VolatileSlice::len);
        // Nothing waits for the guest: else this would be no series.
        let put = self.receiver(to).map_or(0, |receiver| receiver.put_all(offload, pieces));
        if let Some(state) = self.states.get_mut(to) {
            state.traffic.received_frames += put as u64;
            state.traffic.received_bytes += (put * bytes) as u64;
        }
        let each = FRAME_NS + frame_ns(bytes);
        self.spent_ns = self.spent_ns.saturating_add(each.saturating_mul(put as u32));
        for piece in pieces.iter().skip(put) {
            self.deliver(to, offload, &Frame::from_piece(*piece));
        }
    }
}
