//! Work that a turn leaves to later turns.
//!
//! A card that reads memory goes on with what it read, and reads again: a guest that posts a message of 16 MiB in
//! packets of four bytes, or walks a ring without end, has its card read millions of times without a frame or a
//! deadline in between. Each read is a step that the turn pays for. A read for which the turn has nothing left is
//! deferred, with all that its card wants done after it, and the next turn begins there. So what a card has pending
//! counts against the turns of those who serve it, and a connection, a reset or a request to the monitor waits for one
//! turn at most.

use niclab_model::nic::{Input, Output};
use niclab_model::time::{EndOfTime, Time};

use super::World;
use crate::shell::node::Node;

impl World<'_> {
    /// Whether this output waits for another turn. What came with a frame whose data is lent is stored before the frame
    /// is gone.
    #[inline]
    pub(super) fn is_for_another_turn(&self, output: &Output, is_lent: bool) -> bool {
        // Programs in lockstep have each read at its instant of model time, and wait for one another anyway.
        self.common.turn.is_over()
            && !is_lent
            && !self.is_in_lockstep()
            && matches!(output, Output::DmaRead { .. } | Output::WindowRead { .. })
    }

    /// Defers an output, before all else that its card wants done. In a part that was cut, frames that were set aside
    /// come before.
    #[cold]
    pub(super) fn defer(&mut self, node: usize, output: Output) {
        let is_cut = self.common.cut.is_some();
        if let Some(node) = self.nodes.get_mut(node) {
            if is_cut { node.unsent.push_back(output) } else { node.unsent.push_front(output) }
        }
    }

    /// A node whose card has deferred outputs, and does not stand still.
    #[inline]
    pub(super) fn next_deferred(&self) -> Option<usize> {
        let is_due = |node: &Node| !node.unsent.is_empty() && !node.card.stands_still();
        self.nodes.iter().find_map(|(number, node)| is_due(node).then_some(number))
    }

    /// Whether anything is left to do for which nobody waits: frames in flight, or work that a turn left to the next
    /// one.
    pub fn has_pending(&self) -> bool {
        self.common.network.is_moving() || self.common.is_owing
    }

    /// Answers the deferred reads of a node whose host is gone: its memory is not read any more. A model ends the
    /// message of a read that fails, and begins as many more as its ports have messages.
    pub(super) fn fail_deferred_reads(&mut self, node: usize) {
        if self.nodes.get(node).is_none_or(|node| node.unsent.is_empty()) {
            return;
        }
        while let Some(output) = self.next_output(node) {
            let (at, token, bytes) = match output {
                Output::DmaRead { at, token, into, .. } | Output::WindowRead { at, token, into, .. } => {
                    (at, token, into)
                }
                other => {
                    if let Some((ready, frame, message)) = self.perform(node, other, None) {
                        self.common.network.keep(&mut self.nodes, ready, node as u16, frame, message);
                    }
                    continue;
                }
            };
            if let Some((card, bus)) = self.node(node) {
                card.nic.handle(at, Input::DmaData { token, bytes, is_whole: false }, bus);
            }
        }
    }

    /// Notes when model time has reached its end: what follows could not be exact, so the cluster ends with the error.
    #[inline]
    pub(super) fn check_time(&mut self) {
        let latest = self.common.latest.max(self.common.network.latest());
        if latest > Time::LIMIT {
            self.end_time(latest);
        }
    }

    /// Model time has reached its end at this instant.
    #[cold]
    pub(super) fn end_time(&mut self, at: Time) {
        self.common.time_limit.reach(EndOfTime { at });
    }
}
