//! Launches of one port that ask for the same, carried together: the short way, for as many at a time as there are
//! ([`niclab_model::nic::series`]).
//!
//! Both models, both links and the turn are asked first how many there may be. Then so many are taken out of the page,
//! all through the sender's model, all over the links, and all into the receiver's model and memory: nothing comes back
//! to the sender before its host looks at its memory again, so that this order is not to be told from one by one.
//! Whatever cannot be so is taken by itself, and goes the short way or the general one.

use niclab_model::nic::series::Way;

use super::World;
use crate::shell::node::Node;
use crate::shell::turn::{LAUNCH_NS, WORK_UNIT_NS, frame_ns};
use crate::shell::world::Common;

/// Most that a message takes out of a turn beside slot and frame: work that its two cards say they do. Ours: several
/// times what they say.
const WORK_NS: u32 = 1_000;

impl World<'_> {
    /// Takes the next launches of a port as a series, `most` at the most, where they can be one. `is_way_clear` is what
    /// [`World::is_way_clear`] said, where it was asked. Returns how many were taken.
    #[inline]
    pub(in crate::shell::world) fn take_series(
        &mut self,
        node: usize,
        port: u32,
        most: u32,
        is_way_clear: &mut Option<bool>,
    ) -> u32 {
        let Some(card) = self.nodes.card(node).filter(|card| card.takes_series()) else { return 0 };
        let Some(code) = card.pages.launched_code(port) else { return 0 };
        if !*is_way_clear.get_or_insert_with(|| self.is_way_clear()) {
            return 0;
        }
        let Some(way) = self.way_of_series(node, (port, code), most) else { return 0 };
        let Self { nodes, common } = self;
        let common = &mut **common;
        let Some((sender, receiver)) = nodes.pair(node, way.to.into()) else { return 0 };
        if !sender.card.take_series(code, way, &mut common.series) {
            return 0;
        }
        carry(sender, receiver, common);
        common.series.len() as u32
    }

    /// The way of the next launches, and how many all who are concerned take as a series.
    #[inline]
    fn way_of_series(&mut self, node: usize, (port, code): (u32, u32), most: u32) -> Option<Way> {
        if self.common.cut.is_some() || !self.common.network.is_idle() {
            return None;
        }
        let sender = self.nodes.get_mut(node).filter(|sender| sender.unsent.is_empty())?;
        let mut way = sender.card.nic.in_series()?.way(port, code)?;
        let to = usize::from(way.to);
        // The first of them has it join in any case.
        if self.common.is_part && !self.has_joined(to) {
            return None;
        }
        let (sender, receiver) = self.nodes.pair(node, to)?;
        let is_stopped = receiver.card.stands_still();
        if !receiver.unsent.is_empty() || is_stopped || !receiver.card.takes_series() {
            return None;
        }
        let passing = self.common.network.packets_in_batch(&sender.port, &receiver.port, &way);
        let received = receiver.card.nic.in_series()?.most(&way);
        let in_turn = self.common.turn.operations(LAUNCH_NS + frame_ns(way.bytes) + WORK_NS);
        way.most = way.most.min(most as usize).min(passing).min(received).min(in_turn);
        (way.most > 0).then_some(way)
    }
}

/// Carries the launches that were taken from one card to the other.
#[inline]
fn carry(sender: &mut Node, receiver: &mut Node, common: &mut Common) {
    let Common { series, network, turn, latest, acts, .. } = common;
    sender.card.launch_series(series, &mut sender.bus);
    let heads = series.runs.done().iter().map(|run| run.last().passage.head);
    *latest = heads.fold(*latest, Ord::max);
    while sender.card.inline_write(latest) {}
    network.pass_series(&mut sender.port, &mut receiver.port, series);
    receiver.card.arrive_series(series, &mut receiver.bus, latest);
    let (count, bytes) = (series.len() as u32, series.way.bytes);
    let work = sender.card.take_work() + receiver.card.take_work();
    debug_assert!(
        work * WORK_UNIT_NS <= u64::from(WORK_NS * count),
        "the turn could have been over before the last one"
    );
    turn.spend((LAUNCH_NS + frame_ns(bytes)) * count);
    turn.spend_work(work);
    *acts += u64::from(count);
}
