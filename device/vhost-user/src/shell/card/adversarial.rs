//! Replies, events and interrupts that an adversarial card delays.

use std::time::Instant;

use niclab_model::nic::adversarial::AdversarialKind;
use niclab_model::nic::fault_injector::FaultInjector;

use super::host_port::HostPort;
use crate::shell::adversary::{OWED_QUEUES, Tick, When};

/// Releases delayed replies, events and interrupts that are due.
pub fn tick(host: &mut HostPort, tick: Tick, now: Option<Instant>, mut injector: Option<&mut FaultInjector>) {
    let Some(adversary) = &mut host.adversary else { return };
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
        (0..overtaking).for_each(|_| adversary.sampler.count(AdversarialKind::ReplyReordered));
    }
    let had_events = adversary.events > 0;
    adversary.events = tick.from(adversary.events);
    let has_events = had_events && adversary.events == 0;
    let owed = adversary.owed;
    adversary.owed = owed.map(|ticks| tick.from(ticks));
    let is_owed = [0, 1].map(|queue| owed[queue] > 0 && adversary.owed[queue] == 0);
    if adversary.magic.as_ref().is_some_and(is_past) {
        adversary.magic = None;
        host.pages.publish();
    }
    due.into_iter().for_each(|kept| host.reply_now(kept.token, &kept.bytes, injector.as_deref_mut()));
    if has_events {
        host.deliver_events(injector);
    }
    let owed = OWED_QUEUES.into_iter().zip(is_owed).filter(|(_, is_owed)| *is_owed);
    owed.for_each(|(queue, _)| host.interrupt(queue));
}
