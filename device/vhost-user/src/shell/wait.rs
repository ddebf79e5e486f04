//! When to sleep until a doorbell, and when to poll pages.
//!
//! Polling spares guests their doorbells, each of which is an exit from the virtual machine, but it costs a core. With
//! fewer cores than the guests and the poller keep busy it costs milliseconds instead: two guests and a poller on two
//! cores were measured at 4 to 8 ms a round trip, and at 8 to 23 us with a device that sleeps.

use std::time::{Duration, Instant};

use niclab_spec::WaitPolicy;

use super::Shell;
use super::card::Card;
use super::node::Nodes;
use super::world::cluster::Served;
use super::world::{Found, World};

/// Longest stretch of polling before the thread looks at the guest's other queues.
const STRETCH: Duration = Duration::from_micros(200);

/// Looks at a node's pages after one doorbell, each of at most a turn: a guest that launches on and on keeps others
/// from the world.
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
    /// The policy that was asked for, on a host with `cores` cores and a cluster of `nodes` nodes. Adaptive polling
    /// wants a core for each guest and one for its poller; where there are fewer, it would take from the guests what it
    /// gives.
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
    /// Looks at the pages of `node`, because a doorbell was rung. What is launched meanwhile needs none: each is an
    /// exit from the virtual machine.
    pub fn serve_doorbell(&self, node: usize) -> Found {
        // Whoever waits for the world has something to do there: a thread that polls, or has more to do, would take it
        // again at once, and again, before the other one has woken up.
        self.serve(node, answer_doorbell, |found| found.work == 0 || found.more)
    }

    /// Has a node looked at, with those that it sends to or, where that cannot be, with all. `is_for_others`: whether
    /// whoever waits for them has them first.
    #[inline]
    fn serve(
        &self,
        node: usize,
        look: fn(&mut World<'_>, usize) -> Found,
        is_for_others: fn(Found) -> bool,
    ) -> Found {
        let mut found = Found::default();
        let whole = self.cluster().serve_in_part(node, |part| {
            let now = look(part, node);
            found = found.and(now);
            if now.work > 0 {
                self.quiet().arm(part.is_waiting());
            }
            Served { is_idle: now.work == 0, is_for_others: is_for_others(found) }
        });
        let Some(mut world) = whole else { return found };
        let now = look(&mut world, node);
        found = found.and(now);
        if now.work > 0 {
            self.did(&mut world);
        }
        self.cluster().open(&world);
        if is_for_others(found) {
            world.give_back();
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
        want_doorbell(&mut self.cluster().alone(node), node, false);
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
        let look = |world: &mut World<'_>, node| {
            let found = world.serve_pages(node);
            let is_cut = world.is_cut();
            // A part that was cut looks again, with more nodes.
            if let Some(card) = world.nodes.card_mut(node).filter(|_| !is_cut) {
                card.counts.polls += 1;
            }
            found
        };
        self.serve(node, look, |found| found.more)
    }

    /// Asks for doorbells again, and looks once more at what was stored before a guest could see that. True when there
    /// was something: then it is too early to sleep.
    fn sleep(&self, node: usize) -> bool {
        want_doorbell(&mut self.cluster().alone(node), node, true);
        self.poll_once(node).work > 0
    }

    /// Asks for doorbells: nobody polls from now on.
    pub fn stop_polling(&self, node: usize) {
        want_doorbell(&mut self.cluster().alone(node), node, true);
    }

    /// Says that no doorbell is needed: whoever calls this polls, by [`Shell::poll_once`].
    pub fn start_polling(&self, node: usize) {
        want_doorbell(&mut self.cluster().alone(node), node, false);
    }
}

/// Looks at the pages of `node`, because a doorbell was rung.
fn answer_doorbell(world: &mut World<'_>, node: usize) -> Found {
    if world.nodes.card(node).is_some_and(|card| card.stands_still()) {
        return Found::default();
    }
    if let Some(found) = world.answer_doorbell_adversarially(node) {
        return found;
    }
    let is_polled = world.nodes.card(node).is_some_and(Card::is_polled);
    if is_polled || world.is_in_lockstep() {
        // No doorbell is needed as it is. A program that takes turns launches once in each, and every look finds its
        // turn: there is nothing to spare, and no last look.
        world.serve_pages(node)
    } else {
        look_on(world, node)
    }
}

/// Looks at the pages of `node` as long as programs have launched meanwhile, which need no doorbell for it.
fn look_on(world: &mut World<'_>, node: usize) -> Found {
    let mut found = Found::default();
    for looks in 0..MAX_LOOKS {
        if let Some(card) = world.nodes.card_mut(node) {
            // What is there at the first look was rung for.
            card.spare_doorbell(looks > 0);
        }
        let look = world.serve_pages(node);
        found = found.and(look);
        want_doorbell(&mut world.nodes, node, true);
        // Behind the barrier in this: at what was stored before a guest could see that.
        if look.more || !world.has_news(node) {
            return found;
        }
    }
    Found { more: true, ..found }
}

fn want_doorbell(nodes: &mut Nodes<'_>, node: usize, is_wanted: bool) {
    if let Some(card) = nodes.card_mut(node) {
        card.want_doorbell(is_wanted);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use niclab_abi::PAGE_BYTES;
    use niclab_abi::bar::{
        DOORBELL_SPARED, DOORBELL_WANTED, INFO_DOORBELL_OFFSET, SLOT_LAUNCH_WORD, SLOT_WORDS, launch_word,
        slot_of,
    };
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::nic::windows::PAGES_OF_PORTS;
    use niclab_model::nic::{HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
    use niclab_model::platform::ledger::Ledger;
    use niclab_model::platform::node_bus::NodeBus;
    use niclab_model::time::{Span, Time};

    use super::*;
    use crate::shell::pages::Pages;
    use crate::shell::world::cluster::Cluster;

    /// A card whose program launches again while its last launch is looked at, and which takes that at the next look
    /// only.
    struct Eager {
        bar: File,
        requester_page: u32,
        /// Launches that its program makes in all.
        most: u32,
        launched: u32,
        /// What the doorbell's word says whenever it launches.
        words: Arc<Mutex<Vec<u64>>>,
        asked: AtomicU32,
        ledger: Ledger,
    }

    impl Eager {
        fn launch(&mut self) {
            self.launched += 1;
            let slot = slot_of(self.launched) as usize * SLOT_WORDS + SLOT_LAUNCH_WORD;
            let place = u64::from(self.requester_page) * PAGE_BYTES + 8 * slot as u64;
            self.bar.write_all_at(&launch_word(64, self.launched).to_le_bytes(), place).unwrap();
            self.words.lock().unwrap().push(doorbell(&self.bar));
        }
    }

    fn doorbell(bar: &File) -> u64 {
        let mut word = [0; 8];
        bar.read_exact_at(&mut word, INFO_DOORBELL_OFFSET).unwrap();
        u64::from_le_bytes(word)
    }

    impl Nic for Eager {
        fn handle(&mut self, _: Time, input: Input<'_>, _: &mut NodeBus) {
            if matches!(input, Input::PageStore(_)) && self.launched < self.most {
                self.launch();
            }
        }

        /// A look asks before it takes a slot, before the next one, and once more at its end; then it is asked whether
        /// there is news.
        fn accepts_store(&self, _: u32) -> bool {
            matches!(self.asked.fetch_add(1, Ordering::Relaxed) % 4, 0 | 3)
        }

        fn memory_named_by(&self, _: &[u8]) -> HostRanges {
            HostRanges::new()
        }

        fn poll_output(&mut self) -> Option<Output> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn is_open(&self, port: u32) -> bool {
            port == 0
        }
    }

    impl Observed for Eager {
        fn delivered(&self, _: u32) -> u64 {
            0
        }

        fn unordered(&self) -> u64 {
            0
        }

        fn ledger(&self) -> &Ledger {
            &self.ledger
        }

        fn ledger_mut(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn statistics(&self, _: &ShellCounts) -> Statistics {
            Statistics::default()
        }
    }

    #[test]
    fn polling_needs_cores_or_a_plain_word() {
        let choose = |wanted, cores| Policy::choose(wanted, 20, cores, 2);
        assert_eq!(choose(WaitPolicy::Adaptive, 2), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 4), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 5), Policy::Adaptive(Duration::from_micros(20)));
        assert_eq!(choose(WaitPolicy::Poll, 1), Policy::Poll);
        assert_eq!(choose(WaitPolicy::Block, 64), Policy::Block);
    }

    /// What serving the doorbell of such a program finds, what it had seen, and how many launches were spared theirs.
    fn serve(most: u32) -> (Found, Vec<u64>, u64) {
        let fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(1_000_000_000)],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        let words = Arc::default();
        let nic = Eager {
            bar: pages.file().try_clone().unwrap(),
            requester_page: pages.requester_page(0),
            most,
            launched: 1,
            words: Arc::clone(&words),
            asked: AtomicU32::new(0),
            ledger: Ledger::default(),
        };
        let bar = pages.file().try_clone().unwrap();
        let cluster = Cluster::new(vec![(Box::new(nic), pages, 1)], &Arc::default(), fabric.unwrap(), 1);
        let shell = Shell::new(cluster, Vec::new());
        shell.world().nodes[0].card.follow_ports();
        bar.write_all_at(&launch_word(64, 1).to_le_bytes(), launch_place(&shell.world())).unwrap();
        let found = shell.serve_doorbell(0);
        assert_eq!(doorbell(&bar), DOORBELL_WANTED, "nobody looks any more");
        let seen = words.lock().unwrap().clone();
        let spared = shell.world().nodes[0].card.counts.doorbells_spared;
        (found, seen, spared)
    }

    fn launch_place(world: &World<'_>) -> u64 {
        let page = u64::from(world.nodes[0].card.pages.requester_page(0)) * PAGE_BYTES;
        page + 8 * (slot_of(1) as usize * SLOT_WORDS + SLOT_LAUNCH_WORD) as u64
    }

    #[test]
    fn what_is_launched_while_the_device_looks_needs_no_doorbell_and_is_found() {
        let (found, seen, spared) = serve(3);
        assert_eq!((found, spared), (Found { work: 3, more: false }, 2));
        assert_eq!(seen, [DOORBELL_SPARED; 2]);
    }

    #[test]
    fn a_program_that_launches_on_and_on_is_left_for_others() {
        let (found, ..) = serve(u32::MAX);
        assert_eq!(found, Found { work: MAX_LOOKS, more: true });
    }
}
