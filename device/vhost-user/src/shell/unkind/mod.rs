//! What a card's shell does that the manual allows and kind hardware seldom does: answers, events and interrupts that come late,
//! together or in another order, a doorbell word that changes all the time, slots that are left for a later look. What a model's own
//! effects are subject to stands in [`niclab_model::nic::unkind`].
//!
//! Whatever is kept back is bound to come: after so many things that anybody did ([`Card::mind`], a tick for each), or when nobody has
//! done anything for [`patience::QUIET`]. Counts decide, and wall time where nothing happens alone; but for answers just before the
//! limit and the magic word, whose limits are of wall time themselves. What is kept is bounded: a reply for each request that is
//! under way, of which a driver has no more than its queue has descriptors, and one promise of an interrupt for each queue.

pub mod looks;
pub mod patience;

use std::time::{Duration, Instant};

use niclab_abi::{QUEUE_CONTROL, QUEUE_EVENT};
use niclab_model::nic::ReplyBytes;
use niclab_model::nic::unkind::{Dice, Kind, Unkind};
use vhost_user_backend::VringT;

use super::card::Card;
use super::world::World;
use crate::config::CONTROL_TIMEOUT_MS;
use crate::vring;

/// What is left of the time limit of requests where an answer is as late as it can be: a driver's clock began before the card took the
/// request, and its processor may be away for long before it sees the answer.
pub const MARGIN_MS: u32 = 2_000;

/// How late an answer just before the limit is.
const AT_LIMIT: Duration = Duration::from_millis((CONTROL_TIMEOUT_MS - MARGIN_MS) as u64);

/// Most answers of a card just before the limit: each takes seconds.
const MAX_AT_LIMIT: u32 = 2;

/// Ticks for which something is kept back, at the most.
const MAX_TICKS: u32 = 8;

/// How late the magic word is: mostly, in steps of [`MAGIC_STEP`], and at the latest.
const MAGIC_WAYS: u32 = 32;
const MAGIC_STEP: Duration = Duration::from_millis(1);
const MAGIC_LATEST: Duration = Duration::from_millis(1_000);

/// When something is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After so many ticks.
    Ticks(u32),
    /// At an instant of wall time.
    At(Instant),
}

/// An answer that is kept back.
#[derive(Debug)]
struct KeptReply {
    token: u64,
    bytes: ReplyBytes,
    when: When,
}

/// What an unkind card keeps back, and how it goes on.
#[derive(Debug)]
pub struct Manners {
    dice: Dice,
    /// In the order of their requests.
    replies: Vec<KeptReply>,
    /// Answers just before the limit that there may be yet.
    at_limit: u32,
    /// Ticks until events are handed out; none are kept back where it is zero.
    events: u32,
    /// Ticks until the interrupt is raised that control and event queue are owed; zero: none is.
    owed: [u32; 2],
    /// When the magic word is published.
    magic: Option<Instant>,
    /// How it goes on looking at pages.
    looks: looks::Looks,
}

/// The queues that are owed interrupts.
const OWED_QUEUES: [u32; 2] = [QUEUE_CONTROL, QUEUE_EVENT];

impl Manners {
    /// Those of the card of node `node`.
    pub fn new(seed: u64, node: u16) -> Self {
        Self {
            dice: Dice::new(seed, node),
            replies: Vec::new(),
            at_limit: MAX_AT_LIMIT,
            events: 0,
            owed: [0; 2],
            magic: None,
            looks: looks::Looks::default(),
        }
    }

    /// How often each kind happened here.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        self.dice.counts()
    }

    /// Whether `kind` happens at this opportunity; it is counted then.
    pub fn happens(&mut self, kind: Kind) -> bool {
        self.draw(kind, 1).is_some()
    }

    fn draw(&mut self, kind: Kind, choices: u32) -> Option<u32> {
        let drawn = self.dice.draw(kind, choices);
        if drawn.is_some() {
            self.dice.count(kind);
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
            self.dice.count(Kind::EventMerged);
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
    fn reply_when(&mut self) -> Option<When> {
        if self.at_limit > 0 && self.dice.draw(Kind::ReplyAtLimit, 1).is_some() {
            self.dice.count(Kind::ReplyAtLimit);
            self.at_limit -= 1;
            return Some(When::At(Instant::now() + AT_LIMIT));
        }
        if let Some(ticks) = self.draw(Kind::ReplyLate, MAX_TICKS) {
            return Some(When::Ticks(1 + ticks));
        }
        if !self.replies.is_empty() {
            self.dice.count(Kind::ReplyReordered);
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

    /// Whether `kind` is to happen at this opportunity. Whoever has it happen says so by [`Manners::count`].
    pub fn draws(&mut self, kind: Kind) -> bool {
        self.dice.draw(kind, 1).is_some()
    }

    /// `kind` happened.
    pub const fn count(&mut self, kind: Kind) {
        self.dice.count(kind);
    }

    /// The BAR stands nowhere: no magic word is to be published.
    pub const fn drop_magic(&mut self) {
        self.magic = None;
    }

    /// Whether something is kept back.
    fn is_keeping(&self) -> bool {
        !self.replies.is_empty() || self.events > 0 || self.owed != [0; 2] || self.magic.is_some()
    }

    /// The host is gone or starts anew: nobody waits for anything any more, but for what the next driver waits for.
    pub fn forget(&mut self) {
        self.replies.clear();
        (self.events, self.owed) = (0, [0; 2]);
        self.looks = looks::Looks::default();
    }
}

/// What has happened that things which are kept back have waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Somebody has done something.
    Act,
    /// Nobody has done anything for a while.
    Quiet,
    /// Wall time has passed.
    Time,
}

impl Tick {
    /// What is left of so many ticks.
    const fn from(self, ticks: u32) -> u32 {
        match self {
            Self::Act => ticks.saturating_sub(1),
            Self::Quiet => 0,
            Self::Time => ticks,
        }
    }
}

impl Card {
    /// Answers a request, now or later.
    pub fn reply(&mut self, token: u64, bytes: &[u8]) {
        if let Some(manners) = &mut self.manners
            && let Some(when) = manners.reply_when()
        {
            return manners.replies.push(KeptReply { token, bytes: ReplyBytes::from_slice(bytes), when });
        }
        self.reply_now(token, bytes);
    }

    /// Goes on with what is kept back.
    fn mind(&mut self, tick: Tick, now: Option<Instant>) {
        let Some(manners) = &mut self.manners else { return };
        let is_past = |at: &Instant| now.is_some_and(|now| *at <= now);
        let mut due = Vec::new();
        for mut kept in std::mem::take(&mut manners.replies) {
            let is_due = match &mut kept.when {
                When::Ticks(ticks) => {
                    *ticks = tick.from(*ticks);
                    *ticks == 0
                }
                When::At(at) => is_past(at),
            };
            if is_due { due.push(kept) } else { manners.replies.push(kept) }
        }
        if let Some(first) = manners.replies.first() {
            let overtaking = due.iter().filter(|kept| kept.token > first.token).count();
            (0..overtaking).for_each(|_| manners.dice.count(Kind::ReplyReordered));
        }
        let had_events = manners.events > 0;
        manners.events = tick.from(manners.events);
        let has_events = had_events && manners.events == 0;
        let owed = manners.owed;
        manners.owed = owed.map(|ticks| tick.from(ticks));
        let is_owed = [0, 1].map(|place| owed[place] > 0 && manners.owed[place] == 0);
        if manners.magic.as_ref().is_some_and(is_past) {
            manners.magic = None;
            self.pages.publish();
        }
        due.into_iter().for_each(|kept| self.reply_now(kept.token, &kept.bytes));
        if has_events {
            self.deliver_events();
        }
        let owed = OWED_QUEUES.into_iter().zip(is_owed).filter(|(_, is_owed)| *is_owed);
        owed.for_each(|(queue, _)| self.interrupt(queue));
    }

    /// Raises a queue's interrupt, whether or not there is anything to tell.
    fn interrupt(&self, queue: u32) {
        if let Some(vring) = self.vrings.get(queue as usize).filter(|_| self.is_running) {
            vring::interrupt(&vring.get_ref());
        }
    }

    /// Something was told by this queue. Calls once more at times, with nothing to tell.
    pub fn call_in_vain(&mut self, queue: u32) {
        if self.manners.as_mut().is_some_and(|manners| manners.happens(Kind::InterruptSpurious)) {
            self.interrupt(queue);
        }
    }
}

impl World<'_> {
    /// Has the card of `node` be unkind from now on.
    pub fn be_unkind(&mut self, node: usize, seed: u64) {
        let Some(card) = self.nodes.card_mut(node) else { return };
        let (manners, unkind) = (Manners::new(seed, node as u16), Unkind::new(seed, node as u16));
        card.be_unkind(manners, unkind);
        self.common.is_unkind = true;
    }

    /// Whether some card is unkind.
    pub fn is_unkind(&self) -> bool {
        self.common.is_unkind
    }

    /// A request of `node` was taken. Whether its card leaves the others for a later turn.
    pub(super) fn leaves_requests(&mut self, node: usize) -> bool {
        let card = self.nodes.card_mut(node).filter(|card| card.manners.is_some());
        let Some(card) = card.filter(|card| card.has_request()) else { return false };
        card.manners.as_mut().is_some_and(|manners| manners.happens(Kind::RequestsOneByOne))
    }

    /// Goes on with what cards keep back.
    pub fn mind(&mut self, tick: Tick, now: Option<Instant>) {
        if self.common.is_unkind {
            self.nodes.iter_mut().for_each(|(_, node)| node.card.mind(tick, now));
        }
    }

    /// Whether a card keeps something back, itself or in its model.
    fn is_keeping(&self) -> bool {
        let is_keeping = |card: &Card| {
            card.manners.as_ref().is_some_and(|manners| manners.is_keeping())
                || card.nic.unkind().is_some_and(|unkind| unkind.due().is_some())
        };
        self.nodes.cards().any(|(_, card)| is_keeping(card))
    }
}
