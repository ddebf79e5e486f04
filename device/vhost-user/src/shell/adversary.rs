//! The adversary state of one card: what it delays, and its random choices. [`super::adversarial`] applies it.

use std::time::{Duration, Instant};

use niclab_abi::{QUEUE_CONTROL, QUEUE_EVENT};
use niclab_model::nic::ReplyBytes;
use niclab_model::nic::adversarial::{AdversarialKind, Sampler};

/// The delay of a reply that comes just before the time limit of requests. The rest of the limit is [`MARGIN_MS`]: the
/// driver's clock starts before the card takes the request, and its processor may be preempted before it sees the
/// reply.
pub const AT_LIMIT_MS: u32 = 3_000;

/// See [`AT_LIMIT_MS`].
pub const MARGIN_MS: u32 = 2_000;

/// Maximum of a card's replies just before the limit, for one seed: each takes seconds.
const MAX_AT_LIMIT: u32 = 2;

/// Maximum delay in ticks.
const MAX_TICKS: u32 = 8;

/// Of [`MAX_TICKS`] late replies, this many come so late that a driver whose timeout is shorter than specified gives
/// up.
const IMPATIENT: u32 = 2;
const IMPATIENT_AFTER: Duration = Duration::from_millis(150);

/// The delay of the magic word: one of this many values. Each is a multiple of [`MAGIC_STEP`], but the last one is
/// [`MAGIC_LATEST`].
const MAGIC_WAYS: u32 = 32;
const MAGIC_STEP: Duration = Duration::from_millis(1);
const MAGIC_LATEST: Duration = Duration::from_millis(1_000);

/// When something delayed is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After this many ticks.
    Ticks(u32),
    /// At an instant of wall time.
    At(Instant),
}

/// A delayed reply.
#[derive(Debug)]
pub struct KeptReply {
    /// The token of its request.
    pub(super) token: u64,
    /// The reply.
    pub(super) bytes: ReplyBytes,
    /// When it is due.
    pub(super) when: When,
}

/// What an adversarial card delays, and its random choices.
#[derive(Debug)]
pub struct AdversaryState {
    pub(super) sampler: Sampler,
    /// Delayed replies, in the order of their requests.
    pub(super) replies: Vec<KeptReply>,
    /// How many replies may still come just before the limit.
    at_limit: u32,
    /// Ticks until events are delivered. Zero: no events are delayed.
    pub(super) events: u32,
    /// Ticks until the delayed interrupt of each of [`OWED_QUEUES`] is raised. Zero: none is delayed.
    pub(super) owed: [u32; 2],
    /// When the magic word is published.
    pub(super) magic: Option<Instant>,
    /// The card's polls of its pages.
    pub(super) polls: Polls,
}

/// The queues whose interrupts the card delays.
pub const OWED_QUEUES: [u32; 2] = [QUEUE_CONTROL, QUEUE_EVENT];

impl AdversaryState {
    /// The state of the card of node `node`.
    pub fn new(seed: u64, node: u16) -> Self {
        Self {
            sampler: Sampler::new(seed, node),
            replies: Vec::new(),
            at_limit: MAX_AT_LIMIT,
            events: 0,
            owed: [0; 2],
            magic: None,
            polls: Polls::default(),
        }
    }

    /// Samples from this seed from now on, like a new state. Again `MAX_AT_LIMIT` replies may come just before the
    /// limit. What is delayed keeps its due time.
    pub fn reseed(&mut self, seed: u64) {
        self.sampler.reseed(seed);
        self.at_limit = MAX_AT_LIMIT;
    }

    /// How often each kind happened on this card.
    pub fn counts(&self) -> impl Iterator<Item = (AdversarialKind, u64)> + '_ {
        self.sampler.counts()
    }

    /// Whether `kind` happens at this opportunity. Counts it if so.
    pub fn happens(&mut self, kind: AdversarialKind) -> bool {
        self.draw(kind, 1).is_some()
    }

    pub(super) fn draw(&mut self, kind: AdversarialKind, choices: u32) -> Option<u32> {
        let drawn = self.sampler.draw(kind, choices);
        if drawn.is_some() {
            self.sampler.count(kind);
        }
        drawn
    }

    /// The index of one of `count` waiting entries: usually the first.
    pub fn pick(&mut self, kind: AdversarialKind, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        self.draw(kind, count as u32 - 1).map_or(0, |choice| 1 + choice as usize)
    }

    /// Whether an event that was raised now is delayed. `is_merged`: others of its cause and port already wait.
    pub fn keeps_event(&mut self, is_merged: bool) -> bool {
        if self.events > 0 && is_merged {
            self.sampler.count(AdversarialKind::EventMerged);
        }
        if let Some(ticks) = self.draw(AdversarialKind::EventLate, MAX_TICKS) {
            self.events = self.events.max(1 + ticks);
        }
        self.events > 0
    }

    /// Whether events are delayed.
    pub const fn has_kept_events(&self) -> bool {
        self.events > 0
    }

    /// Whether the interrupt for a buffer returned in `queue` is omitted, because a later interrupt covers it.
    pub fn leaves_interrupt(&mut self, queue: u32) -> bool {
        let drawn = self.draw(AdversarialKind::InterruptShared, MAX_TICKS);
        let place = OWED_QUEUES.iter().position(|of| *of == queue);
        let owed = place.and_then(|place| self.owed.get_mut(place));
        match (owed, drawn) {
            (Some(owed), Some(ticks)) => {
                *owed = if *owed == 0 { 1 + ticks } else { *owed };
                true
            }
            (Some(owed), None) => {
                // This interrupt covers the omitted ones as well.
                *owed = 0;
                false
            }
            (None, _) => false,
        }
    }

    /// When the reply to a request is due. `None`: at once.
    pub(super) fn reply_when(&mut self) -> Option<When> {
        if self.at_limit > 0 && self.sampler.draw(AdversarialKind::ReplyAtLimit, 1).is_some() {
            self.sampler.count(AdversarialKind::ReplyAtLimit);
            self.at_limit -= 1;
            return Some(When::At(Instant::now() + Duration::from_millis(AT_LIMIT_MS.into())));
        }
        if let Some(ticks) = self.draw(AdversarialKind::ReplyLate, MAX_TICKS) {
            let is_long = ticks >= MAX_TICKS - IMPATIENT;
            return Some(if is_long {
                When::At(Instant::now() + IMPATIENT_AFTER)
            } else {
                When::Ticks(1 + ticks)
            });
        }
        if !self.replies.is_empty() {
            self.sampler.count(AdversarialKind::ReplyReordered);
        }
        None
    }

    /// Whether the magic word of a BAR that was mapped now is delayed.
    pub fn keeps_magic(&mut self) -> bool {
        self.magic = self.draw(AdversarialKind::MagicLate, MAGIC_WAYS).map(|way| {
            let is_latest = way + 1 == MAGIC_WAYS;
            Instant::now() + if is_latest { MAGIC_LATEST } else { MAGIC_STEP * (1 + way) }
        });
        self.magic.is_some()
    }

    /// Whether `kind` is to happen at this opportunity. The caller reports to [`AdversaryState::count`] if it happened.
    pub fn draws(&mut self, kind: AdversarialKind) -> bool {
        self.sampler.draw(kind, 1).is_some()
    }

    /// Counts that `kind` happened.
    pub const fn count(&mut self, kind: AdversarialKind) {
        self.sampler.count(kind);
    }

    /// Publishes no magic word, because the BAR is no longer mapped.
    pub const fn drop_magic(&mut self) {
        self.magic = None;
    }

    /// Whether anything is delayed.
    pub(super) fn is_keeping(&self) -> bool {
        !self.replies.is_empty() || self.events > 0 || self.owed != [0; 2] || self.magic.is_some()
    }

    /// Drops what is delayed, because the host is gone or restarts. The next driver still waits for the magic word.
    pub fn forget(&mut self) {
        self.replies.clear();
        (self.events, self.owed) = (0, [0; 2]);
        self.polls = Polls::default();
    }
}

/// What makes delayed things due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A thread was active.
    Activity,
    /// No thread was active for a while.
    Idle,
    /// Wall time has passed.
    Time,
}

impl Tick {
    /// How many of `ticks` are left afterwards.
    pub(super) const fn from(self, ticks: u32) -> u32 {
        match self {
            Self::Activity => ticks.saturating_sub(1),
            Self::Idle => 0,
            Self::Time => ticks,
        }
    }
}

/// The polls of a card after a doorbell.
#[derive(Debug, Default)]
pub struct Polls {
    /// Polls left before the card sleeps.
    pub(super) left: u32,
    /// The card has polled since the doorbell.
    pub(super) is_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_late_replies_exceed_a_short_driver_timeout() {
        let mut adversary = AdversaryState::new(1, 0);
        // Without replies just before the limit.
        adversary.at_limit = 0;
        let begin = Instant::now();
        let late: Vec<When> = (0..1_000).filter_map(|_| adversary.reply_when()).collect();
        let long = late.iter().filter(|when| matches!(when, When::At(at) if *at >= begin + IMPATIENT_AFTER));
        let long = long.count();
        assert!(late.len() > 100 && late.len() < 500, "{} late", late.len());
        assert!(long > late.len() / 8 && long < late.len() / 2, "{long} of {}", late.len());
    }
}
