//! Sends at most one packet in each interval, without bursts after idle intervals (section 4.9; designed there, not
//! built). The packet's own time determines when it may leave, so the component needs no timer.

use crate::models::inic::circuit::{Component, Io};
use crate::time::{Span, Time};

pub(in crate::models::inic) struct RateControl {
    interval: Span,
    free_at: Time,
}

impl RateControl {
    pub(in crate::models::inic) const fn new(interval: Span) -> Self {
        Self { interval, free_at: Time::ZERO }
    }
}

impl Component for RateControl {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(0) {
            return false;
        }
        let Some((at, packet)) = io.take(0) else { return false };
        let goes = io.work(at, 0).max(self.free_at);
        self.free_at = goes + self.interval;
        io.put(0, goes, packet);
        true
    }
}
