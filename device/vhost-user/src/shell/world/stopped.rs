//! Devices that their front end stops and starts ([`crate::shell::card::stopped`]).

use niclab_model::fabric::Delivery;

use super::World;
use crate::shell::card::Card;
use crate::shell::card::stopped::{HeldFrame, Stopped};
use crate::shell::lent::Carried;
use crate::shell::turn::Turn;

impl World<'_> {
    /// The front end of `node` stops the device: its card stands still until [`World::start_device`] or
    /// [`World::host_reset`]. False when the driver has not used the device yet, so that there is nothing to keep.
    pub fn stop_device(&mut self, node: usize) -> bool {
        let Some(card) = self.nodes.card_mut(node) else { return false };
        if card.stopped.is_some() {
            return true;
        }
        if !card.is_running {
            return false;
        }
        // After a driver's reset the memory of its ports is its own again, and this is the last moment before it.
        card.check_memory();
        card.is_running = false;
        card.stopped = Some(Box::default());
        self.common.acts += 1;
        true
    }

    /// The device of `node` continues where it stopped. What arrived meanwhile may still be in flight: see
    /// [`World::go_on`].
    pub fn start_device(&mut self, node: usize) {
        let Some(card) = self.nodes.card_mut(node) else { return };
        let Some(stopped) = card.stopped.take() else { return };
        card.is_running = true;
        self.common.acts += 1;
        self.common.turn = Turn::WHOLE;
        self.release(node, *stopped);
        self.settle(node);
        self.serve_stalled();
        self.serve_lockstep(node);
    }

    /// Sends the frames that were held for `node` on their last step.
    pub(super) fn release(&mut self, node: usize, stopped: Stopped) {
        let (frames, dropped) = stopped.into_frames();
        if dropped > 0 {
            log::warn!(
                "node {node}: its device was stopped; {dropped} frames found no room and were dropped"
            );
        }
        for HeldFrame { passage, frame, message, concern } in frames {
            let delivery = Delivery { to: node as u16, head: passage.head, at: passage.tail, corrupt: None };
            self.common.network.bring(&delivery, Carried::Whole(frame), message, concern);
        }
    }

    /// Whether a device is stopped.
    pub(super) fn has_stopped_device(&self) -> bool {
        self.nodes.cards().any(|(_, card)| card.stands_still())
    }

    /// Whether the model time of the card of `node` waits: its device is stopped, or frames that it sent are held for
    /// one that is. Deadlines would otherwise give messages up that only a debugger delays. A guest that resets its
    /// device without [`niclab_abi::control::OP_RESET`], and never starts it again, delays those alone that send to it.
    pub(super) fn time_waits(&self, node: usize, card: &Card) -> bool {
        let holds = |other: &Card| other.stopped.as_ref().is_some_and(|stopped| stopped.holds_from(node));
        card.stands_still() || self.nodes.cards().any(|(_, other)| holds(other))
    }
}
