//! Programs that all cards take together while they run: each when its time has come and those before are over.

use std::collections::VecDeque;

use niclab_model::nic::hand_over::Progress;
use niclab_model::time::{Span, Time};
use niclab_spec::sim::SimHandOver;

/// What is to come, and what is under way.
#[derive(Debug, Default)]
pub struct HandOvers {
    waiting: VecDeque<SimHandOver>,
    /// How many of those that wait have had their time.
    due: usize,
    is_under_way: bool,
    epoch: u16,
}

impl HandOvers {
    /// These, in this order.
    #[must_use]
    pub fn new(waiting: &[SimHandOver]) -> Self {
        Self { waiting: waiting.iter().cloned().collect(), ..Self::default() }
    }

    /// When each has its time, where time begins at `begin`.
    pub fn times(&self, begin: Time) -> Vec<Time> {
        self.waiting.iter().map(|it| begin + Span::from_ps(it.model_time_ps)).collect()
    }

    /// The next one has its time.
    pub const fn on_time(&mut self) {
        self.due += 1;
    }

    /// The one that begins now, and its epoch.
    pub fn begin(&mut self) -> Option<(Vec<u8>, u16)> {
        if self.is_under_way || self.due == 0 {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.due -= 1;
        self.is_under_way = true;
        self.epoch = self.epoch.wrapping_add(1);
        Some((next.image, self.epoch))
    }

    /// Whether one is under way.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// What is done next, where cards have got so far: whether all switch.
    pub fn go_on(
        &mut self,
        is_network_empty: bool,
        progress: impl Iterator<Item = Progress> + Clone,
    ) -> bool {
        if progress.clone().all(|it| it == Progress::Runs) {
            self.is_under_way = false;
        }
        is_network_empty && self.is_under_way && progress.clone().all(|it| it == Progress::Drained)
    }
}
