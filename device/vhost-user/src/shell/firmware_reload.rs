//! Reloads the firmware of several cards together while guests run. All cards begin. When all are drained and no frame
//! is in flight, all switch.

use niclab_model::nic::firmware_reload::{FirmwareReloadStep, Progress, Switch};
use niclab_model::time::Span;
use thiserror::Error;

use super::budget::Budget;
use super::dispatch::{outputs, run_until_idle};
use super::locks::LockedNodes;
use super::locks::reload::Loading;

/// Cards do not load the firmware.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The card of a node refuses it.
    #[error("node {node}: {error}")]
    Card {
        /// The node's number.
        node: usize,
        /// Why.
        error: String,
    },
    /// The order of lockstep grants depends on the firmware.
    #[error("programs run in lockstep; load the firmware before they begin or after they end")]
    Lockstep,
    /// Another reload is not complete.
    #[error("the cards are loading firmware already; wait until it runs")]
    Busy,
}

/// Loads firmware into the cards of these nodes.
///
/// # Errors
/// [`LoadError`]; then all cards keep their firmware.
pub fn load(locked: &mut LockedNodes<'_>, nodes: &[usize], image: &[u8]) -> Result<(), LoadError> {
    if locked.is_in_lockstep() {
        return Err(LoadError::Lockstep);
    }
    let card = |node: &usize| locked.nodes.card(*node);
    let runs = nodes.iter().filter_map(card).all(|card| card.nic.progress() == Progress::Runs);
    if locked.common.loading.is_some() || !runs {
        return Err(LoadError::Busy);
    }
    let epoch = nodes.iter().filter_map(card).map(|card| card.nic.epoch()).max().unwrap_or(0).wrapping_add(1);
    let begin = locked.model_time();
    let step = FirmwareReloadStep::Begin { image, switch: Switch::Told { epoch } };
    locked.common.loading = Some(Loading { nodes: nodes.to_vec(), begin, has_begun: false });
    for (index, &node) in nodes.iter().enumerate() {
        locked.common.budget = Budget::FULL;
        let Some((card, bus)) = locked.nodes.card_and_bus(node) else { continue };
        if let Err(error) = card.nic.reload_firmware(begin, step, bus) {
            locked.common.loading = None;
            step_all(locked, &nodes[..index], FirmwareReloadStep::Cancel);
            return Err(LoadError::Card { node, error: error.to_string() });
        }
        outputs::drain(locked, node);
        // Each card checks the image, which takes long. Other threads need not wait for all of them.
        locked.bump();
    }
    if let Some(loading) = &mut locked.common.loading {
        loading.has_begun = true;
    }
    locked.common.activity += 1;
    locked.common.budget = Budget::FULL;
    run_until_idle(locked, 0);
    Ok(())
}

/// Resumes a reload. When the firmware runs on all cards, returns how long that took in model time.
pub fn resume(locked: &mut LockedNodes<'_>) -> Option<Span> {
    let loading = locked.common.loading.take_if(|loading| loading.has_begun)?;
    let all_are = |locked: &LockedNodes<'_>, progress| {
        let mut cards = loading.nodes.iter().filter_map(|node| locked.nodes.card(*node));
        cards.all(|card| card.nic.progress() == progress)
    };
    if !locked.has_pending() && all_are(locked, Progress::Drained) {
        step_all(locked, &loading.nodes, FirmwareReloadStep::Switch);
    }
    if all_are(locked, Progress::Runs) {
        return Some(locked.model_time().since(loading.begin));
    }
    locked.common.loading = Some(loading);
    None
}

/// Has these cards take a step.
fn step_all(locked: &mut LockedNodes<'_>, nodes: &[usize], step: FirmwareReloadStep<'_>) {
    let now = locked.model_time();
    locked.common.budget = Budget::FULL;
    for &node in nodes {
        let Some((card, bus)) = locked.nodes.card_and_bus(node) else { continue };
        // Only the first step can be refused.
        let _ = card.nic.reload_firmware(now, step, bus);
        outputs::drain(locked, node);
    }
    locked.common.activity += 1;
    run_until_idle(locked, 0);
}
