//! Which channel sends next: round robin over the channels. The weight of a channel is its number of consecutive
//! frames. The processor polls one channel after the other, in a loop while it has no other task (section 6.1, figure
//! 6).

use crate::time::{Span, Time};

/// The processor's polling position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    channels: usize,
    /// Time to poll one channel.
    look: Span,
    /// The channel that sent last.
    last: usize,
    /// Consecutive frames that it may still send.
    left: u32,
}

/// A ready channel that the processor found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) channel: usize,
    /// Channels that the processor polled to find it.
    pub(super) looked_at: u32,
}

impl Schedule {
    /// A schedule of `channels` channels.
    pub(super) const fn new(channels: usize, look: Span) -> Self {
        // The search begins with channel 0.
        Self { channels, look, last: channels.saturating_sub(1), left: 0 }
    }

    /// Restarts with the first channel.
    pub(super) const fn restart(&mut self) {
        *self = Self::new(self.channels, self.look);
    }

    /// Time to poll `looked_at` channels.
    pub(super) const fn span(&self, looked_at: u32) -> Span {
        self.look.times(looked_at as u64)
    }

    /// Finds the next channel with data to send, which `ready` returns with its time. The processor has polled since
    /// `idle_since`. `weight` returns the consecutive frames of a channel.
    pub(super) fn find(
        &mut self,
        idle_since: Time,
        ready: impl Fn(usize) -> Option<Time>,
        weight: impl Fn(usize) -> u32,
    ) -> Option<Found> {
        if self.left > 0 && ready(self.last).is_some_and(|ready| ready <= idle_since) {
            self.left -= 1;
            return Some(Found { channel: self.last, looked_at: 0 });
        }
        let (distance, since) = (1..=self.channels)
            .find_map(|distance| Some((distance, ready((self.last + distance) % self.channels)?)))?;
        let channel = (self.last + distance) % self.channels;
        // The idle processor polled in a loop. The idle time determines its present position.
        let idle = since.max(idle_since).since(idle_since).as_ps();
        let rounds = idle.checked_div(self.look.as_ps()).unwrap_or(0) % self.channels as u64;
        let ahead = (distance + self.channels - 1 - rounds as usize) % self.channels;
        self.last = channel;
        self.left = weight(channel).saturating_sub(1);
        Some(Found { channel, looked_at: ahead as u32 + 1 })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const LOOK: Span = Span::from_ns(10);

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    #[test]
    fn ready_channels_share_the_processor_by_weight() {
        let mut schedule = Schedule::new(4, LOOK);
        let served: Vec<_> = (0..12)
            .map(|_| {
                let ready = |channel| [0, 1, 3].contains(&channel).then_some(Time::ZERO);
                schedule.find(at(5), ready, |channel| [1, 3, 1, 2][channel]).unwrap()
            })
            .map(|found| (found.channel, found.looked_at))
            .collect();
        let round = [(0, 1), (1, 1), (1, 0), (1, 0), (3, 2), (3, 0)];
        assert_eq!(served, [round, round].concat());
    }

    #[test]
    fn ready_channel_waits_until_the_processor_polls_it() {
        let found = |channels, ready_at| {
            let mut schedule = Schedule::new(channels, LOOK);
            let ready = |channel| (channel == 0).then_some(at(ready_at));
            schedule.find(at(0), ready, |_| 1).unwrap().looked_at
        };
        assert_eq!([0, 9, 10, 15, 20, 39, 40].map(|ready| found(4, ready)), [1, 1, 4, 4, 3, 2, 1]);
        assert_eq!(found(1, 12_345), 1, "with one channel, each poll is of that channel");
        let sum = |channels: usize| (0..640).map(|ready| found(channels, 10 * ready)).sum::<u32>();
        assert_eq!([sum(1), sum(4), sum(64)].map(|sum| 2 * sum / 640), [2, 5, 65], "(n + 1) / 2 on average");
    }

    #[test]
    fn search_without_ready_channel_finds_none() {
        let mut schedule = Schedule::new(8, LOOK);
        assert_eq!(schedule.find(at(3), |_| None, |_| 1), None);
        let mut free = Schedule::new(8, Span::ZERO);
        assert_eq!(free.find(at(3), |channel| (channel == 5).then_some(at(9)), |_| 1).unwrap().channel, 5);
    }
}
