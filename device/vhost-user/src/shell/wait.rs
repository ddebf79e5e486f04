//! When a thread sleeps until a doorbell, and when it polls pages.
//!
//! Polling saves guests their doorbells, each of which is an exit from the virtual machine, but it needs a core. With
//! too few cores it costs milliseconds: two guests and a poller on two cores took 4 to 8 ms for a round trip, and 8 to
//! 23 us with a device that sleeps.

use std::time::{Duration, Instant};

use niclab_spec::WaitPolicy;

use super::Shell;
use super::cluster::Served;
use super::idle::deadlines;
use super::locks::LockedNodes;
use super::node::Nodes;
use super::service::{Found, adversarial, has_new_posts, serve_pages};

/// Maximum wall time of polling before the thread serves the guest's other queues.
const STRETCH: Duration = Duration::from_micros(200);

/// Maximum of polls after one doorbell, each of at most one budget: a guest that posts without end delays others.
const MAX_POLLS: u32 = 4;

/// What a node's thread does after a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Sleep until the next one.
    Block,
    /// Poll for this long after the last activity, then sleep.
    Adaptive(Duration),
    /// Poll all the time.
    Poll,
}

impl Policy {
    /// The requested policy, on a host with `cores` cores and a cluster of `nodes` nodes. Adaptive polling needs a core
    /// for each guest and one for its poller. With fewer cores it would take the guests' time.
    pub fn choose(wanted: WaitPolicy, poll_for_us: u32, cores: usize, nodes: usize) -> Self {
        match wanted {
            WaitPolicy::Block => Self::Block,
            WaitPolicy::Poll => Self::Poll,
            WaitPolicy::Adaptive if poll_for_us == 0 || cores <= 2 * nodes => Self::Block,
            WaitPolicy::Adaptive => Self::Adaptive(Duration::from_micros(poll_for_us.into())),
        }
    }
}

/// Serves the pages of `node` after a doorbell. Posts meanwhile need no doorbell, which would be an exit from the
/// virtual machine.
pub fn serve_doorbell(shell: &Shell, node: usize) -> Found {
    // A thread that polls again would otherwise lock the nodes again and again before a waiting one wakes up.
    serve(shell, node, answer_doorbell, |found| found.work == 0 || found.more)
}

/// Serves a node in its lock domain or, where that is not possible, with all nodes locked. `is_for_others`: whether
/// waiting threads get the nodes first.
#[inline]
fn serve(
    shell: &Shell,
    node: usize,
    poll: fn(&mut LockedNodes<'_>, usize) -> Found,
    is_for_others: fn(Found) -> bool,
) -> Found {
    let mut found = Found::default();
    let all = shell.cluster().serve_in_domain(node, |domain| {
        let now = poll(domain, node);
        found = found.and(now);
        if now.work > 0 {
            shell.idle().arm(deadlines::is_waiting(domain));
        }
        Served { is_idle: now.work == 0, is_for_others: is_for_others(found) }
    });
    let Some(mut locked) = all else { return found };
    let now = poll(&mut locked, node);
    found = found.and(now);
    if now.work > 0 {
        shell.after_activity(&mut locked);
    }
    shell.cluster().open(&locked);
    if is_for_others(found) {
        locked.unlock_fair();
    }
    found
}

/// Polls the pages of `node` as its policy says. True when the caller must return without a doorbell.
pub fn poll(shell: &Shell, node: usize) -> bool {
    let Some(policy) = shell.nodes().get(node).map(|info| info.policy) else { return false };
    let window = match policy {
        Policy::Block => return false,
        Policy::Adaptive(window) => Some(window),
        Policy::Poll => None,
    };
    start_polling(shell, node);
    let begin = Instant::now();
    let mut last_work = begin;
    loop {
        let found = poll_once(shell, node);
        let now = Instant::now();
        if found.work > 0 {
            last_work = now;
        } else if window.is_some_and(|window| now - last_work >= window) {
            return sleep(shell, node);
        }
        if now - begin >= STRETCH {
            // Notifications stay disabled: the caller returns at once.
            return true;
        }
        std::hint::spin_loop();
    }
}

/// Polls the pages of `node` once, without a doorbell.
#[inline]
pub fn poll_once(shell: &Shell, node: usize) -> Found {
    let poll = |locked: &mut LockedNodes<'_>, node| {
        let found = serve_pages(locked, node);
        let is_repeated = locked.needs_more_locks();
        if let Some(card) = locked.nodes.card_mut(node).filter(|_| !is_repeated) {
            card.counts.polls += 1;
        }
        found
    };
    serve(shell, node, poll, |found| found.more)
}

/// Enables doorbells, and polls once more for posts that a guest stored before it could see that. True when there were
/// some: then it is too early to sleep.
fn sleep(shell: &Shell, node: usize) -> bool {
    stop_polling(shell, node);
    poll_once(shell, node).work > 0
}

/// Enables doorbells: no thread polls from now on.
pub fn stop_polling(shell: &Shell, node: usize) {
    want_doorbell(&mut shell.cluster().lock_one(node), node, true);
}

/// Suppresses doorbells: the caller polls with [`poll_once`].
pub fn start_polling(shell: &Shell, node: usize) {
    want_doorbell(&mut shell.cluster().lock_one(node), node, false);
}

/// Serves the pages of `node` after a doorbell.
fn answer_doorbell(locked: &mut LockedNodes<'_>, node: usize) -> Found {
    let Some(card) = locked.nodes.card_mut(node) else { return Found::default() };
    card.host.on_doorbell();
    if card.host.state.is_stopped() {
        return Found::default();
    }
    if let Some(found) = adversarial::serve_doorbell(locked, node) {
        return found;
    }
    let is_polled = locked.nodes.card(node).is_some_and(|card| card.host.is_polled());
    if is_polled || locked.is_in_lockstep() {
        // Doorbells are suppressed anyway. In lockstep a program posts once for each grant, and every poll finds that.
        serve_pages(locked, node)
    } else {
        serve_until_idle(locked, node)
    }
}

/// Serves the pages of `node` while programs post, with doorbells suppressed.
fn serve_until_idle(locked: &mut LockedNodes<'_>, node: usize) -> Found {
    let mut found = Found::default();
    for polls in 0..MAX_POLLS {
        if let Some(card) = locked.nodes.card_mut(node) {
            // The doorbell announced what the first poll finds.
            card.host.suppress_doorbell(polls > 0);
        }
        let now = serve_pages(locked, node);
        found = found.and(now);
        want_doorbell(&mut locked.nodes, node, true);
        // After the barrier in `want_doorbell`: for posts that a guest stored before it could see the word.
        if now.more || !has_new_posts(locked, node) {
            return found;
        }
    }
    Found { more: true, ..found }
}

fn want_doorbell(nodes: &mut Nodes<'_>, node: usize, is_wanted: bool) {
    if let Some(card) = nodes.card_mut(node) {
        card.host.want_doorbell(is_wanted);
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
        DOORBELL_SPARED, INFO_DOORBELL_OFFSET, SLOT_LAUNCH_WORD, SLOT_WORDS, launch_word, slot_of,
    };
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::nic::windows::PAGES_OF_PORTS;
    use niclab_model::nic::{HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
    use niclab_model::platform::ledger::Ledger;
    use niclab_model::platform::node_bus::NodeBus;
    use niclab_model::time::{Span, Time};

    use super::*;
    use crate::shell::cluster::Cluster;
    use crate::shell::pages::Pages;

    /// A card whose program posts again while the device handles its last post. The card accepts that post only at the
    /// next poll.
    struct Eager {
        bar: File,
        requester_page: u32,
        /// Number of posts that its program makes.
        max_posts: u32,
        launched: u32,
        /// The doorbell word at each post.
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
            if matches!(input, Input::PageStore(_)) && self.launched < self.max_posts {
                self.launch();
            }
        }

        /// A poll asks before it takes a slot, before the next slot, and once more at its end. Then the shell asks
        /// whether the page has new posts.
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
    fn adaptive_polling_needs_cores_and_poll_does_not() {
        let choose = |wanted, cores| Policy::choose(wanted, 20, cores, 2);
        assert_eq!(choose(WaitPolicy::Adaptive, 2), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 4), Policy::Block);
        assert_eq!(choose(WaitPolicy::Adaptive, 5), Policy::Adaptive(Duration::from_micros(20)));
        assert_eq!(choose(WaitPolicy::Poll, 1), Policy::Poll);
        assert_eq!(choose(WaitPolicy::Block, 64), Policy::Block);
    }

    /// Serves the doorbell of a program with `max_posts` posts. Returns what the polls found, the doorbell words that
    /// the program saw, and how many posts had their doorbell suppressed.
    fn serve(max_posts: u32) -> (Found, Vec<u64>, u64) {
        let fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(1_000_000_000)],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let pages = Pages::new(PAGES_OF_PORTS, 1).unwrap();
        let words = Arc::default();
        let nic = Eager {
            bar: pages.bar.file().try_clone().unwrap(),
            requester_page: pages.bar.requester_page(0),
            max_posts,
            launched: 1,
            words: Arc::clone(&words),
            asked: AtomicU32::new(0),
            ledger: Ledger::default(),
        };
        let bar = pages.bar.file().try_clone().unwrap();
        let cluster = Cluster::new(vec![(Box::new(nic), pages, 1)], &Arc::default(), fabric.unwrap(), 1);
        let shell = Shell::new(cluster, Vec::new());
        shell.lock_all().nodes[0].card.follow_ports();
        bar.write_all_at(&launch_word(64, 1).to_le_bytes(), launch_place(&shell.lock_all())).unwrap();
        let found = serve_doorbell(&shell, 0);
        assert!(doorbell(&bar) > 1, "no thread polls any more, and this is a new sleep");
        let seen = words.lock().unwrap().clone();
        let spared = shell.lock_all().nodes[0].card.counts.doorbells_spared;
        (found, seen, spared)
    }

    fn launch_place(locked: &LockedNodes<'_>) -> u64 {
        let page = u64::from(locked.nodes[0].card.host.pages.bar.requester_page(0)) * PAGE_BYTES;
        page + 8 * (slot_of(1) as usize * SLOT_WORDS + SLOT_LAUNCH_WORD) as u64
    }

    #[test]
    fn posts_during_a_poll_are_found_without_doorbell() {
        let (found, seen, spared) = serve(3);
        assert_eq!((found, spared), (Found { work: 3, more: false }, 2));
        assert_eq!(seen, [DOORBELL_SPARED; 2]);
    }

    #[test]
    fn endless_posts_are_polled_at_most_max_polls_times() {
        let (found, ..) = serve(u32::MAX);
        assert_eq!(found, Found { work: MAX_POLLS, more: true });
    }
}
