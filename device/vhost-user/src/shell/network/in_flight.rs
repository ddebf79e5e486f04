//! Frames in flight, in the order of model time.

use niclab_model::fabric::Delivery;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;

use super::in_order::InOrder;
use crate::shell::card_frame::CardFrame;

/// A frame of a model in flight to a node.
#[derive(Debug)]
pub struct InFlight {
    /// When its last byte arrives.
    pub at: Time,
    /// When its first byte arrives.
    pub head: Time,
    /// Frames that arrive at the same instant keep the order in which they were sent.
    order: u64,
    /// The node.
    pub to: u16,
    /// The frame, with the bit error of a fault.
    pub frame: CardFrame,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// Whether it is for cards, Ethernet functions or MAC endpoints.
    pub class: FrameClass,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for InFlight {}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// All frames in flight.
#[derive(Debug, Default)]
pub struct FramesInFlight {
    moving: InOrder<InFlight>,
    /// Delayed by a fault until another frame overtakes them, or until the fabric is idle.
    held: Vec<InFlight>,
    /// The order of the latest frame at the previous [`FramesInFlight::release_starved`].
    seen: u64,
    order: u64,
    /// A frame in flight may borrow its payload.
    has_borrowed: bool,
}

impl FramesInFlight {
    /// Adds a frame. `is_held`: a fault delays it.
    pub fn push(
        &mut self,
        delivery: &Delivery,
        frame: CardFrame,
        message: Option<TraceTag>,
        class: FrameClass,
        is_held: bool,
    ) {
        let &Delivery { to, head, at, .. } = delivery;
        self.order += 1;
        self.has_borrowed |= matches!(frame, CardFrame::Borrowed(_));
        let next = InFlight { at, head, order: self.order, to, frame, message, class };
        if is_held {
            self.held.push(next);
        } else {
            self.moving.push(next);
        }
    }

    /// The next arrival in model time. A delayed frame follows the first one that overtook it.
    #[inline]
    pub fn pop(&mut self) -> Option<InFlight> {
        let next = self.moving.pop()?;
        if !self.held.is_empty() {
            let to = next.to;
            self.release(|held| held.to == to);
        }
        Some(next)
    }

    /// Whether frames are in flight that are not delayed.
    #[inline]
    pub fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Whether frames are delayed by a fault.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether no frame is in flight.
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.is_moving() && self.held.is_empty()
    }

    /// Copies all borrowed payload, so that frames stay in flight while other threads have the nodes.
    #[inline]
    pub fn own_all(&mut self) {
        if std::mem::take(&mut self.has_borrowed) {
            self.moving.for_each_mut(|InFlight { frame, .. }| {
                if let CardFrame::Borrowed(_) = frame {
                    *frame = CardFrame::Owned(frame.to_owned_frame());
                }
            });
        }
    }

    /// Lets all delayed frames arrive: the fabric was idle, so none overtook them. False when there are none.
    pub fn release_all(&mut self) -> bool {
        let any = !self.held.is_empty();
        self.release(|_| true);
        any
    }

    /// Lets the frames arrive that were delayed at the previous call already. False when there are none.
    pub fn release_starved(&mut self) -> bool {
        let seen = std::mem::replace(&mut self.seen, self.order);
        let is_starved = |held: &InFlight| held.order <= seen;
        let any = self.held.iter().any(is_starved);
        self.release(is_starved);
        any
    }

    fn release(&mut self, which: impl Fn(&InFlight) -> bool) {
        for held in std::mem::take(&mut self.held) {
            if which(&held) { self.moving.push(held) } else { self.held.push(held) }
        }
    }

    /// The numbers of delayed and of moving frames.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.held.len(), self.moving.len())
    }

    /// The next arrival, which releases no delayed frame.
    #[cfg(test)]
    pub fn pop_moving(&mut self) -> Option<InFlight> {
        self.moving.pop()
    }

    /// The delayed frames.
    #[cfg(test)]
    pub fn held(&self) -> &[InFlight] {
        &self.held
    }
}
