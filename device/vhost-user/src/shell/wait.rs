//! When to sleep until a doorbell, and when to poll pages.
//!
//! Polling spares guests their doorbells, each of which is an exit from the virtual machine, but it costs a core. With
//! fewer cores than the guests and the poller keep busy it costs milliseconds instead: two guests and a poller on two
//! cores were measured at 4 to 8 ms a round trip, and at 8 to 23 us with a device that sleeps.

use std::time::{Duration, Instant};

use niclab_spec::WaitPolicy;
use parking_lot::MutexGuard;

use super::Shell;
use super::world::{Found, World};

/// Longest stretch of polling before the thread looks at the guest's other queues.
const STRETCH: Duration = Duration::from_micros(200);

/// Looks at a node's pages after one doorbell, each of at most a turn: a guest that launches on and on keeps others from the world.
const MAX_LOOKS: u32 = 4;

/// What a node's thread does after a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Sleep until the next one.
    Block,
    /// Poll for so long after the last activity, then sleep.
    Adaptive(Duration),
    /// Poll on.
    Poll,
}

impl Policy {
    /// The policy that was asked for, on a host with `cores` cores and a cluster of `nodes` nodes. Adaptive polling wants
    /// a core for each guest and one for its poller; where there are fewer, it would take from the guests what it gives.
    pub fn choose(wanted: WaitPolicy, poll_for_us: u32, cores: usize, nodes: usize) -> Self {
        match wanted {
            WaitPolicy::Block => Self::Block,
            WaitPolicy::Poll => Self::Poll,
            WaitPolicy::Adaptive if poll_for_us == 0 || cores <= 2 * nodes => Self::Block,
            WaitPolicy::Adaptive => Self::Adaptive(Duration::from_micros(poll_for_us.into())),
        }
    }
}

impl Shell {
    /// Looks at the pages of `node`, because a doorbell was rung. What is launched meanwhile needs none: each is an exit from the
    /// virtual machine.
    pub fn serve_doorbell(&self, node: usize) -> Found {
        let mut world = self.world();
        let found = if world.is_in_lockstep() {
            // A program launches once in a turn, and every look finds its turn: there is nothing to spare, and no last look.
            world.serve_pages(node)
        } else {
            look_on(&mut world, node)
        };
        if found.work > 0 {
            self.did(&mut world);
        }
        if found.work == 0 || found.more {
            // Whoever waits for the world has something to do there: a thread that polls, or has more to do, would take it
            // again at once, and again, before the other one has woken up.
            MutexGuard::unlock_fair(world);
        }
        found
    }

    /// Polls the pages of `node` as its policy says. True when there is a reason to come back without a doorbell.
    pub fn poll(&self, node: usize) -> bool {
        let Some(policy) = self.nodes().get(node).map(|info| info.policy) else { return false };
        let window = match policy {
            Policy::Block => return false,
            Policy::Adaptive(window) => Some(window),
            Policy::Poll => None,
        };
        want_doorbell(&mut self.world(), node, false);
        let begin = Instant::now();
        let mut last_work = begin;
        loop {
            let found = self.poll_once(node);
            let now = Instant::now();
            if found.work > 0 {
                last_work = now;
            } else if window.is_some_and(|window| now - last_work >= window) {
                return self.sleep(node);
            }
            if now - begin >= STRETCH {
                // The word stays "spared": the caller comes back at once.
                return true;
            }
            std::hint::spin_loop();
        }
    }

    /// One look at the pages of `node` that no doorbell asked for.
    #[inline]
    pub fn poll_once(&self, node: usize) -> Found {
        let mut world = self.world();
        let found = world.serve_pages(node);
        if let Some(card) = world.cards.get_mut(node) {
            card.counts.polls += 1;
        }
        if found.work > 0 {
            self.did(&mut world);
        }
        if found.more {
            MutexGuard::unlock_fair(world);
        }
        found
    }

    /// Asks for doorbells again, and looks once more at what was stored before a guest could see that. True when there
    /// was something: then it is too early to sleep.
    fn sleep(&self, node: usize) -> bool {
        want_doorbell(&mut self.world(), node, true);
        self.poll_once(node).work > 0
    }

    /// Asks for doorbells: nobody polls from now on.
    pub fn stop_polling(&self, node: usize) {
        want_doorbell(&mut self.world(), node, true);
    }

    /// Says that no doorbell is needed: whoever calls this polls, by [`Shell::poll_once`].
    pub fn start_polling(&self, node: usize) {
        want_doorbell(&mut self.world(), node, false);
    }
}

/// Looks at the pages of `node` as long as programs have launched meanwhile, which need no doorbell for it.
fn look_on(world: &mut World, node: usize) -> Found {
    let mut found = Found::default();
    for looks in 0..MAX_LOOKS {
        if let Some(card) = world.cards.get_mut(node) {
            // What is there at the first look was rung for.
            card.spare_doorbell(looks > 0);
        }
        let look = world.serve_pages(node);
        found = Found { work: found.work + look.work, more: look.more };
        want_doorbell(world, node, true);
        // Behind the barrier in this: at what was stored before a guest could see that.
        if look.more || !world.has_news(node) {
            return found;
        }
    }
    Found { more: true, ..found }
}

fn want_doorbell(world: &mut World, node: usize, is_wanted: bool) {
    if let Some(card) = world.cards.get_mut(node) {
        card.want_doorbell(is_wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_needs_cores_or_a_plain_word() {
        let choose = |wanted, cores| Policy::choose(wanted, 20, cores, 2);
        assert_eq!(choose(WaitPolicy::Adaptive, 2), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 4), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 5), Policy::Adaptive(Duration::from_micros(20)));
        assert_eq!(choose(WaitPolicy::Poll, 1), Policy::Poll);
        assert_eq!(choose(WaitPolicy::Block, 64), Policy::Block);
    }
}
