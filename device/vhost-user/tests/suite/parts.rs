//! Lock domains: the results are the same with domains as with all nodes locked. Where domains meet, no message is lost
//! or delivered twice, and no deadlock occurs.

use crate::common::{Stop, TIMEOUT, lab_with, until};
use niclab_abi::bar::SLOTS;
use niclab_abi::config::FEATURE_SLICES;
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::{Lab, connect_ports};
use niclab_device::monitor::answer;
use niclab_device::shell::observers;
use niclab_device::shell::wait;
use niclab_model::models::MODELS;
use niclab_model::nic::registry::Model;
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::watch::{WatchRequest, WatchSubject};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 4;

/// Both ends of a route between two nodes.
struct NodePair {
    nodes: [usize; 2],
    ends: [GuestPort; 2],
    /// Number of messages posted at each end, and received there.
    launched: [u64; 2],
    received: [u64; 2],
}

impl NodePair {
    fn new(guests: &[Arc<ClusterGuest>], nodes: [usize; 2]) -> Self {
        let ends = connect_ports(nodes.map(|node| &guests[node]), 64).unwrap();
        Self { nodes, ends, launched: [0; 2], received: [0; 2] }
    }

    fn launch(&mut self, end: usize) -> bool {
        let number = self.launched[end];
        let is_launched = self.ends[end].try_launch(&[number, !number], [number, end as u64], 0);
        self.launched[end] += u64::from(is_launched);
        is_launched
    }

    /// Receives the messages that have arrived at this end, and checks that they are in order and unique.
    fn receive(&mut self, end: usize) {
        while let Some(message) = self.ends[end].try_receive() {
            let number = self.received[end];
            assert_eq!(message.tag(), [number, 1 - end as u64]);
            assert_eq!(message.payload()[..2], [number, !number]);
            self.received[end] += 1;
            self.ends[end].release_lazily();
        }
    }
}

/// A lab with these cards and a guest on each node, which the test polls.
fn polled(model: &'static Model) -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = lab_with(NODES as u16, |config| {
        config.nodes.iter_mut().for_each(|node| node.nic.model = model.into());
    });
    let guests = (0..NODES).map(|node| lab.guest(node).unwrap()).collect();
    (0..NODES).for_each(|node| wait::start_polling(lab.daemon().shell(), node));
    (lab, guests)
}

fn stats(lab: &Lab) -> DaemonStats {
    match answer(lab.daemon().shell(), &Request::Stats) {
        Answer::Stats(stats) => DaemonStats { wall_uptime_ns: 0, ..stats },
        other => panic!("{other:?}"),
    }
}

/// Models whose cards have slices.
fn models() -> impl Iterator<Item = &'static Model> {
    MODELS.iter().copied().filter(|model| model.has(FEATURE_SLICES))
}

/// A step of one thread at a node.
#[derive(Clone, Copy, Debug)]
enum Step {
    Launch(usize, usize),
    Look(usize),
    Receive(usize),
    /// Locks all nodes.
    Stats,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..NODES, 1..20_usize).prop_map(|(node, count)| Step::Launch(node, count)),
        6 => (0..NODES).prop_map(Step::Look),
        3 => (0..NODES).prop_map(Step::Receive),
        1 => Just(Step::Stats),
    ]
}

/// A port on each node, which sends to the next node. A host's ports have no order among them except that of polls.
fn ring(guests: &[Arc<ClusterGuest>]) -> Vec<GuestPort> {
    let ports: Vec<_> = guests.iter().map(|guest| GuestPort::open(guest, 64).unwrap()).collect();
    for node in 0..NODES {
        let (here, next) = (&ports[node], &ports[(node + 1) % NODES]);
        next.authorize(here.guest().config().node, here.number(), 32).unwrap();
        here.route(next.guest().config().node, next.number()).unwrap();
    }
    ports
}

/// Runs these steps. Returns the daemon's counts with the messages that programs received, and the activity in domains.
fn take(model: &'static Model, steps: &[Step], is_watched: bool) -> (String, u64) {
    let (lab, guests) = polled(model);
    let mut ports = ring(&guests);
    let (mut launched, mut received) = ([0_u64; NODES], Vec::new());
    let shell = lab.daemon().shell();
    let request =
        WatchRequest { subject: WatchSubject::Capture, links: Vec::new(), messages: None, live: false };
    // An observer sees all nodes in one order, so there are no domains.
    let watch = is_watched.then(|| observers::begin(shell, &request).unwrap());
    // The first poll locks all nodes, because the set-up did.
    wait::poll_once(shell, 0);
    let before = shell.cluster().activity_of_domains();
    for step in steps {
        match *step {
            Step::Launch(node, count) => {
                let launches =
                    (0..count).map(|_| ports[node].try_launch(&[launched[node]], [7, node as u64], 0));
                launched[node] += launches.filter(|is_launched| *is_launched).count() as u64;
            }
            Step::Look(node) => {
                wait::poll_once(shell, node);
            }
            Step::Receive(node) => {
                while let Some(message) = ports[node].try_receive() {
                    received.push((node, message.tag(), message.payload()[0]));
                    ports[node].release_lazily();
                }
            }
            Step::Stats => {
                stats(&lab);
            }
        }
    }
    (0..2 * NODES).for_each(|node| {
        wait::poll_once(shell, node % NODES);
    });
    let in_parts = shell.cluster().activity_of_domains() - before;
    let mut counted = stats(&lab);
    // With an observer, every frame is encoded.
    counted.nodes.iter_mut().for_each(|node| node.shortcuts.clear());
    let counted = format!("{counted:?} {received:?}");
    if let Some(watch) = watch {
        observers::end(shell, &watch);
    }
    (counted, in_parts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn domains_give_the_same_results_as_all_nodes_locked(steps in prop::collection::vec(step(), 1..120)) {
        for model in models() {
            let (parts, in_parts) = take(model, &steps, false);
            let (whole, none) = take(model, &steps, true);
            prop_assert_eq!(none, 0, "{} was watched", model.name);
            prop_assert_eq!(&parts, &whole, "{}", model.name);
            // A request for statistics polls all nodes.
            let is_any = steps.iter().any(|step| matches!(step, Step::Launch(..)))
                && !steps.iter().any(|step| matches!(step, Step::Stats));
            prop_assert!(!is_any || in_parts > 0, "{}: no activity in domains", model.name);
        }
    }
}

/// Each node's thread posts at both of its ends and polls its node, until all messages have arrived.
fn run_ring(lab: &Lab, guests: &[Arc<ClusterGuest>], count: u64, also: impl Fn() + Sync) {
    let shell = lab.daemon().shell();
    let pairs: Vec<_> = (0..NODES)
        .map(|node| parking_lot::Mutex::new(NodePair::new(guests, [node, (node + 1) % NODES])))
        .collect();
    let is_over = AtomicBool::new(false);
    let finished = AtomicU64::new(0);
    let is_done = |pair: &NodePair| pair.received == [count; 2];
    std::thread::scope(|scope| {
        let _stop = Stop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                also();
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..NODES)
            .map(|node| {
                let (pairs, finished) = (&pairs, &finished);
                scope.spawn(move || {
                    let begin = Instant::now();
                    let mine = [(node, 0), ((node + NODES - 1) % NODES, 1)];
                    let mut was_done = false;
                    while finished.load(Ordering::Relaxed) < NODES as u64 {
                        for (pair, end) in mine {
                            let mut pair = pairs[pair].lock();
                            while pair.launched[end] < count && pair.launch(end) {}
                            pair.receive(end);
                        }
                        wait::poll_once(shell, node);
                        if !was_done
                            && mine.iter().all(|(pair, end)| pairs[*pair].lock().received[*end] == count)
                        {
                            was_done = true;
                            finished.fetch_add(1, Ordering::Relaxed);
                        }
                        assert!(begin.elapsed() < TIMEOUT, "node {node} waits for ever");
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(pairs.iter().all(|pair| is_done(&pair.lock())));
}

#[test]
fn meeting_domains_lose_no_message_and_do_not_deadlock() {
    const COUNT: u64 = 3_000;
    for model in models() {
        let (lab, guests) = polled(model);
        let shell = lab.daemon().shell();
        // Another thread locks all nodes in between.
        run_ring(&lab, &guests, COUNT, || {
            stats(&lab);
        });
        until("an empty network", || {
            (0..NODES).all(|node| !wait::poll_once(shell, node).more)
                && !shell.lock_all().common.network.frames.is_moving()
        });
        let stats = stats(&lab);
        for node in &stats.nodes {
            assert_eq!(
                (node.messages_sent, node.messages_received),
                (2 * COUNT, 2 * COUNT),
                "{}",
                model.name
            );
            let launches: u64 = node.ports.iter().map(|port| port.launches).sum();
            assert_eq!(launches, 2 * COUNT);
            assert_eq!(node.violations.values().sum::<u64>(), 0, "{:?}", node.violations);
        }
        let sent: u64 = stats.nodes.iter().map(|node| node.cluster.sent_frames).sum();
        let received: u64 = stats.nodes.iter().map(|node| node.cluster.received_frames).sum();
        assert_eq!((sent, sent), (received, stats.fabric.frames_in));
        assert!(shell.cluster().activity_of_domains() > COUNT, "{}", shell.cluster().activity_of_domains());
    }
}

#[test]
fn disjoint_pairs_do_not_lock_other_nodes() {
    const COUNT: u64 = 20_000;
    for model in models() {
        let (lab, guests) = polled(model);
        let shell = lab.daemon().shell();
        let pairs = [[0, 1], [3, 2]].map(|nodes| NodePair::new(&guests, nodes));
        (0..NODES).for_each(|node| {
            wait::poll_once(shell, node);
        });
        let (before, in_parts) = (shell.lock_all().common.lock_counts, shell.cluster().activity_of_domains());
        std::thread::scope(|scope| {
            for mut pair in pairs {
                scope.spawn(move || {
                    let begin = Instant::now();
                    while pair.received[1] < COUNT {
                        while pair.launched[0] < COUNT && pair.launch(0) {}
                        wait::poll_once(shell, pair.nodes[0]);
                        pair.receive(1);
                        wait::poll_once(shell, pair.nodes[1]);
                        assert!(begin.elapsed() < TIMEOUT);
                    }
                });
            }
        });
        let (in_parts, after) =
            (shell.cluster().activity_of_domains() - in_parts, shell.lock_all().common.lock_counts);
        let [ended, looks, met] =
            [after.ended_domains - before.ended_domains, after.polls - before.polls, after.met - before.met];
        assert_eq!(met, 0, "{}", model.name);
        // How often all nodes are locked for other reasons depends on wall time: a thread that lost its core lets
        // deadlines pass. The two requests above lock all nodes, too. After each of these, one poll locks all nodes,
        // and the next ones use domains again.
        assert!(
            looks <= ended,
            "{}: {looks} polls locked all nodes, after {ended} other locks of all nodes",
            model.name
        );
        // Maximum activity of one poll: the slots of a page, their arrivals, and answers.
        let most = looks * u64::from(SLOTS) * 4;
        assert!(
            in_parts + most >= 4 * COUNT,
            "{}: {in_parts} in domains, {looks} polls with all nodes locked",
            model.name
        );
    }
}

#[test]
fn frame_to_a_locked_node_is_deferred_and_arrives() {
    for model in models() {
        let (lab, guests) = polled(model);
        let shell = lab.daemon().shell();
        let mut pair = NodePair::new(&guests, [1, 0]);
        (0..NODES).for_each(|node| {
            wait::poll_once(shell, node);
        });
        assert!(pair.launch(0));
        let other = shell.cluster().lock_one(0);
        std::thread::scope(|scope| {
            scope.spawn(|| wait::poll_once(shell, 1));
            until("a deferred frame", || !shell.cluster().lock_one(1)[1].unsent.is_empty());
            drop(other);
        });
        pair.receive(1);
        assert_eq!(pair.received, [0, 1], "{}", model.name);
    }
}

#[test]
fn poll_after_a_global_lock_takes_only_its_own_node() {
    for model in models() {
        let (lab, _guests) = polled(model);
        let shell = lab.daemon().shell();
        let locked = shell.lock_all();
        let before = locked.common.lock_counts.polls;
        std::thread::scope(|scope| {
            scope.spawn(|| wait::poll_once(shell, 0));
            // The thread most likely waits by then. If it does not, it finds domains allowed at once.
            std::thread::sleep(Duration::from_millis(50));
            shell.cluster().open(&locked);
            drop(locked);
        });
        assert_eq!(shell.lock_all().common.lock_counts.polls, before, "{}", model.name);
    }
}
