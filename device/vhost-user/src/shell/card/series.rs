//! Launches that a card takes together, and messages that come to it so ([`niclab_model::nic::series`]).

use niclab_model::nic::series::{Member, Series, Way};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::Time;

use super::{Card, violation};

impl Card {
    /// Whether the card sends and takes series: its driver is held to no rules, by which each store is looked at, and
    /// it never goes on by itself.
    #[inline]
    pub fn takes_series(&self) -> bool {
        self.rules.is_none() && self.went_on == Time::ZERO
    }

    /// Takes launches that ask for the same by `way` out of their page. False when none is taken: where the program
    /// told something by a register before one of them, that comes before it.
    #[inline]
    pub fn take_series(&mut self, code: u32, way: Way, series: &mut Series) -> bool {
        let port = way.port;
        series.begin(way);
        let in_order = self.pages.copy_series(code, self.nic.delivered(port) as u32, series);
        // Behind the launches: what was stored before one of them is seen.
        if series.is_empty() || self.pages.has_registers(port) {
            return false;
        }
        let count = series.len() as u64;
        self.pages.pass_over(port, series.len());
        if let Some(launches) = self.counts.launches.get_mut(port as usize) {
            *launches += count;
        }
        self.counts.doorbells_spared += if self.is_polled { count } else { 0 };
        self.counts.unordered += if self.open_ports == 1 { count - in_order } else { count };
        true
    }

    /// Feeds them to the model: as [`Card::store`] does with each.
    #[inline]
    pub fn launch_series(&mut self, series: &mut Series, bus: &mut NodeBus) {
        if let Some(nic) = self.nic.in_series() {
            nic.launch(series, bus);
        }
        self.acts_at(series.fed);
        let count = series.len() as u64;
        self.counts.fast_path += count;
        self.counts.batched += count;
        self.counts.traffic.sent_frames += count;
        self.counts.traffic.sent_bytes += count * series.way.bytes as u64;
    }

    /// Feeds what has come of a series to the model, and does the stores.
    #[inline]
    pub fn arrive_series<'s>(&mut self, series: &'s mut Series, bus: &mut NodeBus, latest: &mut Time) {
        if let Some(last) = series.runs.done().last() {
            // The links keep the order: what is true of the last is true of those before it, but that they are counted,
            // too.
            let (before, bytes) = (series.len() as u64 - 1, series.way.bytes);
            self.note_arrival(last.last().passage.tail, bytes, series.last);
            self.counts.traffic.received_frames += before;
            self.counts.traffic.received_bytes += before * bytes as u64;
        }
        if let Some(nic) = self.nic.in_series() {
            nic.arrive(series, bus);
        }
        *latest = series.runs.done().iter().map(|run| run.last().at).fold(*latest, Ord::max);
        self.counts.extrapolated += series.carried_on() as u64;
        let Self { memory, counts, is_running, .. } = self;
        if *is_running {
            let words = |member: &'s Member| member.words.get(..series.stored_words).unwrap_or_default();
            let stores = series.members().iter().map(|member| (member.address, words(member)));
            for _ in 0..memory.store_all(stores) {
                violation(&mut counts.violations, "dma_outside_memory");
            }
        }
    }
}
