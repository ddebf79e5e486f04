//! Cards that take another program together, while guests go on: all begin, and when all are drained and no frame is
//! under way, all switch.

use niclab_model::nic::hand_over::{HandOver, Progress, Switch};
use niclab_model::time::{Span, Time};
use thiserror::Error;

use super::World;
use crate::shell::turn::Turn;

/// Cards do not take a program.
#[derive(Debug, Error)]
pub enum LoadError {
    /// What the card of a node says.
    #[error("node {node}: {error}")]
    Card {
        /// The node's number.
        node: usize,
        /// Why.
        error: String,
    },
    /// The order in which programs take turns follows from the program of the cards.
    #[error("programs take turns; load before they begin, or after they have ended")]
    Turns,
    /// Others are being loaded.
    #[error("the cards are taking another program already; wait until it runs")]
    Busy,
}

/// Cards that are taking a program.
#[derive(Debug)]
pub struct Loading {
    nodes: Vec<usize>,
    begin: Time,
    /// All cards have begun.
    has_begun: bool,
}

impl World<'_> {
    /// Gives the cards of these nodes another program.
    ///
    /// # Errors
    /// [`LoadError`]; then all go on with the program before.
    pub fn load(&mut self, nodes: &[usize], image: &[u8]) -> Result<(), LoadError> {
        if self.is_in_lockstep() {
            return Err(LoadError::Turns);
        }
        let of = |node: &usize| self.nodes.card(*node);
        let runs = nodes.iter().filter_map(of).all(|card| card.nic.progress() == Progress::Runs);
        if self.common.loading.is_some() || !runs {
            return Err(LoadError::Busy);
        }
        let epoch =
            nodes.iter().filter_map(of).map(|card| card.nic.epoch()).max().unwrap_or(0).wrapping_add(1);
        let begin = self.model_time();
        let step = HandOver::Begin { image, switch: Switch::Told { epoch } };
        self.common.loading = Some(Loading { nodes: nodes.to_vec(), begin, has_begun: false });
        for (place, &node) in nodes.iter().enumerate() {
            self.common.turn = Turn::WHOLE;
            let Some((card, bus)) = self.node(node) else { continue };
            if let Err(error) = card.nic.hand_over(begin, step, bus) {
                self.common.loading = None;
                self.step_all(&nodes[..place], HandOver::Cancel);
                return Err(LoadError::Card { node, error: error.to_string() });
            }
            self.carry_out(node);
            // Each card checks the image, which takes long: others need not wait for all of them.
            self.bump();
        }
        if let Some(loading) = &mut self.common.loading {
            loading.has_begun = true;
        }
        self.common.acts += 1;
        self.common.turn = Turn::WHOLE;
        self.settle(0);
        Ok(())
    }

    /// Goes on with cards that are taking a program. How long that took in model time, once it runs on all.
    pub fn go_on_loading(&mut self) -> Option<Span> {
        let loading = self.common.loading.take_if(|loading| loading.has_begun)?;
        let is = |world: &Self, progress| {
            let mut cards = loading.nodes.iter().filter_map(|node| world.nodes.card(*node));
            cards.all(|card| card.nic.progress() == progress)
        };
        if !self.has_pending() && is(self, Progress::Drained) {
            self.step_all(&loading.nodes, HandOver::Switch);
        }
        if is(self, Progress::Runs) {
            return Some(self.model_time().since(loading.begin));
        }
        self.common.loading = Some(loading);
        None
    }

    /// Whether cards are taking a program.
    pub fn is_loading(&self) -> bool {
        self.common.loading.is_some()
    }

    /// Tells these cards a step, and carries out what follows.
    fn step_all(&mut self, nodes: &[usize], step: HandOver<'_>) {
        let now = self.model_time();
        self.common.turn = Turn::WHOLE;
        for &node in nodes {
            let Some((card, bus)) = self.node(node) else { continue };
            // A step that goes on is refused by none.
            let _ = card.nic.hand_over(now, step, bus);
            self.carry_out(node);
        }
        self.common.acts += 1;
        self.settle(0);
    }
}
