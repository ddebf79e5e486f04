//! What an adversarial card keeps back, and what it draws: [`super::adversarial`] has it happen.

use std::time::{Duration, Instant};

use niclab_abi::{QUEUE_CONTROL, QUEUE_EVENT};
use niclab_model::nic::ReplyBytes;
use niclab_model::nic::adversarial::{Kind, Sampler};

/// How late an answer is that comes just before the limit of requests. What is left of that, `MARGIN_MS`, is for a
/// driver whose clock began before the card took the request, and whose processor may be away for long before it sees
/// the answer.
pub const AT_LIMIT_MS: u32 = 3_000;

/// See [`AT_LIMIT_MS`].
pub const MARGIN_MS: u32 = 2_000;

/// Most answers of a card just before the limit, by one seed: each takes seconds.
const MAX_AT_LIMIT: u32 = 2;

/// Ticks for which something is kept back, at the most.
const MAX_TICKS: u32 = 8;

/// Of late answers that many in [`MAX_TICKS`] come so late that a driver which has less patience than it must have
/// gives up.
const IMPATIENT: u32 = 2;
const IMPATIENT_AFTER: Duration = Duration::from_millis(150);

/// How late the magic word is: mostly, in steps of [`MAGIC_STEP`], and at the latest.
const MAGIC_WAYS: u32 = 32;
const MAGIC_STEP: Duration = Duration::from_millis(1);
const MAGIC_LATEST: Duration = Duration::from_millis(1_000);

/// When something is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After so many ticks.
    Ticks(u32),
    /// At an instant of wall time.
    At(Instant),
}

/// An answer that is kept back.
#[derive(Debug)]
pub struct KeptReply {
    /// Of its request.
    pub(super) token: u64,
    /// The answer.
    pub(super) bytes: ReplyBytes,
    /// When it is given.
    pub(super) when: When,
}

/// What an adversarial card keeps back, and how it goes on.
#[derive(Debug)]
pub struct AdversaryState {
    pub(super) sampler: Sampler,
    /// In the order of their requests.
    pub(super) replies: Vec<KeptReply>,
    /// Answers just before the limit that there may be yet.
    at_limit: u32,
    /// Ticks until events are handed out; none are kept back where it is zero.
    pub(super) events: u32,
    /// Ticks until the interrupt is raised that control and event queue are owed; zero: none is.
    pub(super) owed: [u32; 2],
    /// When the magic word is published.
    pub(super) magic: Option<Instant>,
    /// Its polls of pages.
    pub(super) polls: Polls,
}

/// The queues that are owed interrupts.
pub const OWED_QUEUES: [u32; 2] = [QUEUE_CONTROL, QUEUE_EVENT];

impl AdversaryState {
    /// Those of the card of node `node`.
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

    /// Draws by this seed from here on, as new adversary do; that many answers may again come just before the limit. What
    /// is kept back stays so, for as long as was drawn for it.
    pub fn reseed(&mut self, seed: u64) {
        self.sampler.reseed(seed);
        self.at_limit = MAX_AT_LIMIT;
    }

    /// How often each kind happened here.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        self.sampler.counts()
    }

    /// Whether `kind` happens at this opportunity; it is counted then.
    pub fn happens(&mut self, kind: Kind) -> bool {
        self.draw(kind, 1).is_some()
    }

    pub(super) fn draw(&mut self, kind: Kind, choices: u32) -> Option<u32> {
        let drawn = self.sampler.draw(kind, choices);
        if drawn.is_some() {
            self.sampler.count(kind);
        }
        drawn
    }

    /// One of `count` things that wait in line: the first, but where it is another one's turn.
    pub fn pick(&mut self, kind: Kind, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        self.draw(kind, count as u32 - 1).map_or(0, |choice| 1 + choice as usize)
    }

    /// An event was raised; `is_merged` says that others of its cause and port wait. Whether it is kept back.
    pub fn keeps_event(&mut self, is_merged: bool) -> bool {
        if self.events > 0 && is_merged {
            self.sampler.count(Kind::EventMerged);
        }
        if let Some(ticks) = self.draw(Kind::EventLate, MAX_TICKS) {
            self.events = self.events.max(1 + ticks);
        }
        self.events > 0
    }

    /// Whether events are kept back.
    pub const fn has_kept_events(&self) -> bool {
        self.events > 0
    }

    /// Something was given back in `queue`. Whether the interrupt for it is left to a later one.
    pub fn leaves_interrupt(&mut self, queue: u32) -> bool {
        let drawn = self.draw(Kind::InterruptShared, MAX_TICKS);
        let place = OWED_QUEUES.iter().position(|of| *of == queue);
        let owed = place.and_then(|place| self.owed.get_mut(place));
        match (owed, drawn) {
            (Some(owed), Some(ticks)) => {
                *owed = if *owed == 0 { 1 + ticks } else { *owed };
                true
            }
            (Some(owed), None) => {
                // This one is for those before it as well.
                *owed = 0;
                false
            }
            (None, _) => false,
        }
    }

    /// When a request is answered; none: at once.
    pub(super) fn reply_when(&mut self) -> Option<When> {
        if self.at_limit > 0 && self.sampler.draw(Kind::ReplyAtLimit, 1).is_some() {
            self.sampler.count(Kind::ReplyAtLimit);
            self.at_limit -= 1;
            return Some(When::At(Instant::now() + Duration::from_millis(AT_LIMIT_MS.into())));
        }
        if let Some(ticks) = self.draw(Kind::ReplyLate, MAX_TICKS) {
            let is_long = ticks >= MAX_TICKS - IMPATIENT;
            return Some(if is_long {
                When::At(Instant::now() + IMPATIENT_AFTER)
            } else {
                When::Ticks(1 + ticks)
            });
        }
        if !self.replies.is_empty() {
            self.sampler.count(Kind::ReplyReordered);
        }
        None
    }

    /// The BAR stands in the guest's address space. Whether its magic word is to wait.
    pub fn keeps_magic(&mut self) -> bool {
        self.magic = self.draw(Kind::MagicLate, MAGIC_WAYS).map(|way| {
            let is_latest = way + 1 == MAGIC_WAYS;
            Instant::now() + if is_latest { MAGIC_LATEST } else { MAGIC_STEP * (1 + way) }
        });
        self.magic.is_some()
    }

    /// Whether `kind` is to happen at this opportunity. Whoever has it happen says so by [`AdversaryState::count`].
    pub fn draws(&mut self, kind: Kind) -> bool {
        self.sampler.draw(kind, 1).is_some()
    }

    /// `kind` happened.
    pub const fn count(&mut self, kind: Kind) {
        self.sampler.count(kind);
    }

    /// The BAR stands nowhere: no magic word is to be published.
    pub const fn drop_magic(&mut self) {
        self.magic = None;
    }

    /// Whether something is kept back.
    pub(super) fn is_keeping(&self) -> bool {
        !self.replies.is_empty() || self.events > 0 || self.owed != [0; 2] || self.magic.is_some()
    }

    /// The host is gone or starts anew: nobody waits for anything any more, but for what the next driver waits for.
    pub fn forget(&mut self) {
        self.replies.clear();
        (self.events, self.owed) = (0, [0; 2]);
        self.polls = Polls::default();
    }
}

/// What has happened that things which are kept back have waited for.
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
    /// What is left of so many ticks.
    pub(super) const fn from(self, ticks: u32) -> u32 {
        match self {
            Self::Activity => ticks.saturating_sub(1),
            Self::Idle => 0,
            Self::Time => ticks,
        }
    }
}

/// Polls of a card after a doorbell.
#[derive(Debug, Default)]
pub struct Polls {
    /// Polls left before it sleeps.
    pub(super) left: u32,
    /// It has polled since the doorbell.
    pub(super) is_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_answers_are_later_than_the_impatient_wait_and_most_are_not() {
        let mut adversary = AdversaryState::new(1, 0);
        // Those just before the limit are others.
        adversary.at_limit = 0;
        let begin = Instant::now();
        let late: Vec<When> = (0..1_000).filter_map(|_| adversary.reply_when()).collect();
        let long = late.iter().filter(|when| matches!(when, When::At(at) if *at >= begin + IMPATIENT_AFTER));
        let long = long.count();
        assert!(late.len() > 100 && late.len() < 500, "{} late", late.len());
        assert!(long > late.len() / 8 && long < late.len() / 2, "{long} of {}", late.len());
    }
}
