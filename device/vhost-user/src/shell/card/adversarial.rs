//! Replies, events and interrupts that an adversarial card delays.

use std::time::Instant;

use niclab_model::nic::ReplyBytes;
use niclab_model::nic::adversarial::Kind;
use vhost_user_backend::VringT;

use super::Card;
use crate::shell::adversary::{KeptReply, OWED_QUEUES, Tick, When};
use crate::vring;

impl Card {
    /// Replies to a request. An adversarial card may delay the reply.
    pub fn reply(&mut self, token: u64, bytes: &[u8]) {
        if let Some(adversary) = &mut self.adversary
            && let Some(when) = adversary.reply_when()
        {
            return adversary.replies.push(KeptReply { token, bytes: ReplyBytes::from_slice(bytes), when });
        }
        self.reply_now(token, bytes);
    }

    /// Releases delayed replies, events and interrupts that are due.
    pub fn tick(&mut self, tick: Tick, now: Option<Instant>) {
        let Some(adversary) = &mut self.adversary else { return };
        let is_past = |at: &Instant| now.is_some_and(|now| *at <= now);
        let mut due = Vec::new();
        for mut kept in std::mem::take(&mut adversary.replies) {
            let is_due = match &mut kept.when {
                When::Ticks(ticks) => {
                    *ticks = tick.from(*ticks);
                    *ticks == 0
                }
                When::At(at) => is_past(at),
            };
            if is_due { due.push(kept) } else { adversary.replies.push(kept) }
        }
        if let Some(first) = adversary.replies.first() {
            let overtaking = due.iter().filter(|kept| kept.token > first.token).count();
            (0..overtaking).for_each(|_| adversary.dice.count(Kind::ReplyReordered));
        }
        let had_events = adversary.events > 0;
        adversary.events = tick.from(adversary.events);
        let has_events = had_events && adversary.events == 0;
        let owed = adversary.owed;
        adversary.owed = owed.map(|ticks| tick.from(ticks));
        let is_owed = [0, 1].map(|queue| owed[queue] > 0 && adversary.owed[queue] == 0);
        if adversary.magic.as_ref().is_some_and(is_past) {
            adversary.magic = None;
            self.pages.publish();
        }
        due.into_iter().for_each(|kept| self.reply_now(kept.token, &kept.bytes));
        if has_events {
            self.deliver_events();
        }
        let owed = OWED_QUEUES.into_iter().zip(is_owed).filter(|(_, is_owed)| *is_owed);
        owed.for_each(|(queue, _)| self.interrupt(queue));
    }

    /// Raises the interrupt of a queue, even if the queue has nothing new.
    fn interrupt(&self, queue: u32) {
        if let Some(vring) = self.vrings.get(queue as usize).filter(|_| self.is_running) {
            vring::interrupt(&vring.get_ref());
        }
    }

    /// Sometimes raises a spurious interrupt, after the queue's own.
    pub fn raise_spurious(&mut self, queue: u32) {
        if self.adversary.as_mut().is_some_and(|adversary| adversary.happens(Kind::InterruptSpurious)) {
            self.interrupt(queue);
        }
    }
}
