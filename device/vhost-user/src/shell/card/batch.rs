//! Posts that a card takes together, and messages that arrive together ([`niclab_model::nic::batch`]).

use niclab_model::nic::batch::{Batch, BatchRoute, Member};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Passage, Time};

use super::{Card, violation};

/// Whether the card sends and takes batches: its driver is not held to rules, which see each store, and its model never
/// continues by itself.
#[inline]
pub fn is_supported(card: &Card) -> bool {
    card.host.rule_check.rules.is_none() && card.order.is_driven()
}

/// Takes the posts of a route out of their page. False when none is taken. A register that the program stored before
/// one of them precedes it.
#[inline]
pub fn take(card: &mut Card, code: u32, route: BatchRoute, batch: &mut Batch) -> bool {
    let port = route.port;
    batch.begin(route);
    let in_order = card.host.pages.copy_batch(code, card.nic.delivered(port) as u32, batch);
    // After the posts, so that a register stored before one of them is seen.
    if batch.is_empty() || card.host.pages.has_registers(port) {
        return false;
    }
    let count = batch.len() as u64;
    card.host.pages.pass_over(port, batch.len());
    if let Some(launches) = card.counts.launches.get_mut(port as usize) {
        *launches += count;
    }
    card.counts.doorbells_spared += if card.host.is_polled() { count } else { 0 };
    card.order.race_decided += if card.has_one_port() { count - in_order } else { count };
    true
}

/// Feeds the posts to the model, as [`Card::store`] does with each.
#[inline]
pub fn post(card: &mut Card, batch: &mut Batch, bus: &mut NodeBus) {
    if let Some(nic) = card.nic.batching() {
        nic.launch(batch, bus);
    }
    card.order.acts_at(batch.fed);
    let count = batch.len() as u64;
    card.counts.batched += count;
    card.counts.traffic.sent_frames += count;
    card.counts.traffic.sent_bytes += count * batch.route.length.bytes as u64;
}

/// Feeds the packets of a batch to the model, and applies its stores.
#[inline]
pub fn receive<'s>(card: &mut Card, batch: &'s mut Batch, bus: &mut NodeBus, latest: &mut Time) {
    if let Some(Passage { tail, .. }) = batch.frames().last().and_then(|last| last.passage) {
        // The links keep the order, so the last packet stands for all but in the counts.
        card.order.receives(tail, batch.last);
        card.counts.traffic.received_frames += batch.len() as u64;
        card.counts.traffic.received_bytes += (batch.len() * batch.route.length.bytes) as u64;
    }
    if let Some(nic) = card.nic.batching() {
        nic.receive(batch, bus);
    }
    *latest = batch.visible.max(*latest);
    let host = &mut card.host;
    if host.state.is_running {
        let words = |member: &'s Member| member.words.get(..batch.stored_words).unwrap_or_default();
        let stores = batch.members().iter().map(|member| (member.address, words(member)));
        for _ in 0..host.memory.store_all(stores) {
            violation(&mut host.violations, "dma_outside_memory");
        }
    }
}
