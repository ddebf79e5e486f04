//! Firmware reloads of all cards together while they run. Each begins when it is due and the previous ones are
//! complete.

use std::collections::VecDeque;

use niclab_model::nic::firmware_reload::Progress;
use niclab_model::time::{Span, Time};
use niclab_spec::sim::SimFirmwareReload;

/// Pending firmware reloads, and the one in progress.
#[derive(Debug, Default)]
pub struct FirmwareReloads {
    waiting: VecDeque<SimFirmwareReload>,
    /// How many of the waiting ones are due.
    due: usize,
    is_loading: bool,
    epoch: u16,
}

impl FirmwareReloads {
    /// These reloads, in this order.
    #[must_use]
    pub fn new(waiting: &[SimFirmwareReload]) -> Self {
        Self { waiting: waiting.iter().cloned().collect(), ..Self::default() }
    }

    /// The time of each reload, if the measured part begins at `begin`.
    pub fn times(&self, begin: Time) -> Vec<Time> {
        self.waiting.iter().map(|it| begin + Span::from_ps(it.model_time_ps)).collect()
    }

    /// The next reload is due.
    pub const fn on_time(&mut self) {
        self.due += 1;
    }

    /// Begins the next reload if possible. Returns its image and epoch.
    pub fn begin(&mut self) -> Option<(Vec<u8>, u16)> {
        if self.is_loading || self.due == 0 {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.due -= 1;
        self.is_loading = true;
        self.epoch = self.epoch.wrapping_add(1);
        Some((next.image, self.epoch))
    }

    /// Whether a reload is in progress.
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// Advances the reload by the progress of all cards. Returns whether all cards must switch now.
    pub fn go_on(
        &mut self,
        is_network_empty: bool,
        progress: impl Iterator<Item = Progress> + Clone,
    ) -> bool {
        if progress.clone().all(|it| it == Progress::Runs) {
            self.is_loading = false;
        }
        is_network_empty && self.is_loading && progress.clone().all(|it| it == Progress::Drained)
    }
}
