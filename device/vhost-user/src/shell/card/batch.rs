//! Equal posts that a card takes together, and messages that arrive together ([`niclab_model::nic::series`]).

use niclab_model::nic::series::{Member, Series, Way};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::Time;

use super::{Card, violation};

/// Whether the card sends and takes batches: its driver is not held to rules, which see each store, and its model never
/// continues by itself.
#[inline]
pub fn is_supported(card: &Card) -> bool {
    card.host.rule_check.rules.is_none() && card.order.is_driven()
}

/// Takes equal posts of a route out of their page. False when none is taken. A register that the program stored before
/// one of them precedes it.
#[inline]
pub fn take(card: &mut Card, code: u32, way: Way, series: &mut Series) -> bool {
    let port = way.port;
    series.begin(way);
    let in_order = card.host.pages.copy_series(code, card.nic.delivered(port) as u32, series);
    // After the posts, so that a register stored before one of them is seen.
    if series.is_empty() || card.host.pages.has_registers(port) {
        return false;
    }
    let count = series.len() as u64;
    card.host.pages.pass_over(port, series.len());
    if let Some(launches) = card.counts.launches.get_mut(port as usize) {
        *launches += count;
    }
    card.counts.doorbells_spared += if card.host.is_polled() { count } else { 0 };
    card.order.race_decided += if card.has_one_port() { count - in_order } else { count };
    true
}

/// Feeds the posts to the model, as [`Card::store`] does with each.
#[inline]
pub fn post(card: &mut Card, series: &mut Series, bus: &mut NodeBus) {
    if let Some(nic) = card.nic.in_series() {
        nic.launch(series, bus);
    }
    card.order.acts_at(series.fed);
    let count = series.len() as u64;
    card.counts.fast_path += count;
    card.counts.batched += count;
    card.counts.traffic.sent_frames += count;
    card.counts.traffic.sent_bytes += count * series.way.bytes as u64;
}

/// Feeds the packets of a batch to the model, and applies its stores.
#[inline]
pub fn receive<'s>(card: &mut Card, series: &'s mut Series, bus: &mut NodeBus, latest: &mut Time) {
    if let Some(last) = series.runs.done().last() {
        // The links keep the order, so the last packet stands for all but in the counts.
        card.order.receives(last.last().passage.tail, series.last);
        card.counts.traffic.received_frames += series.len() as u64;
        card.counts.traffic.received_bytes += (series.len() * series.way.bytes) as u64;
    }
    if let Some(nic) = card.nic.in_series() {
        nic.arrive(series, bus);
    }
    *latest = series.runs.done().iter().map(|run| run.last().at).fold(*latest, Ord::max);
    card.counts.extrapolated += series.extrapolated() as u64;
    let host = &mut card.host;
    if host.state.is_running {
        let words = |member: &'s Member| member.words.get(..series.stored_words).unwrap_or_default();
        let stores = series.members().iter().map(|member| (member.address, words(member)));
        for _ in 0..host.memory.store_all(stores) {
            violation(&mut host.violations, "dma_outside_memory");
        }
    }
}
