//! The protocol of `shell/world/cluster.rs` alone, under a scheduler that tries orders of threads: nobody waits in a
//! circle, nothing is lost, done twice or overtaken, and whoever has all nodes sees all that was done. Each rule of it
//! is left out once, and that is found.
//!
//! By shuttle (<https://docs.rs/shuttle>), whose orders are drawn, and not by loom, which tries all of them: three
//! threads that take up to five locks each, several times, have more than can be tried.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, Mutex, MutexGuard};
use shuttle::thread;

const NODES: usize = 3;
/// Messages of each node.
const COUNT: u32 = 3;
/// Orders of threads that are tried.
const ORDERS: usize = 3_000;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Who has a node waits for one before it.
    Order,
    /// What is under way between others is not kept off from.
    KeepingOff,
    /// Whether there may be parts is asked before a node is had, and not after.
    AskingAgain,
    /// Who takes all nodes takes over what was left.
    TakingOver,
}

#[derive(Default)]
struct Node {
    launched_to: [u32; NODES],
    unsent: VecDeque<(usize, u32)>,
    /// The next message that is due from each node.
    next_from: [u32; NODES],
    left_by: Option<usize>,
}

struct Cluster {
    nodes: Vec<Mutex<Node>>,
    /// What the part that began at a node left under way.
    left: Vec<Mutex<VecDeque<(usize, u32)>>>,
    common: Mutex<()>,
    is_open: AtomicBool,
    /// Somebody has all nodes: what only its holder may see.
    is_whole: AtomicBool,
    without: Without,
}

type Here<'a> = Vec<(usize, MutexGuard<'a, Node>)>;

fn node<'a, 'b>(here: &'a mut Here<'b>, number: usize) -> Option<&'a mut Node> {
    here.iter_mut().find(|(here, _)| *here == number).map(|(_, node)| &mut **node)
}

impl Cluster {
    fn new(without: Without) -> Self {
        let nodes = (0..NODES).map(|_| Mutex::default()).collect();
        let (is_open, is_whole) = (AtomicBool::new(true), AtomicBool::new(false));
        let left = (0..NODES).map(|_| Mutex::default()).collect();
        Self { nodes, left, common: Mutex::new(()), is_open, is_whole, without }
    }

    fn reach<'a>(&'a self, here: &mut Here<'a>, number: usize) -> bool {
        if here.iter().any(|(other, _)| *other == number) {
            return true;
        }
        let is_last = here.iter().all(|(other, _)| *other < number);
        let had = if is_last || self.without == Without::Order {
            Some(self.nodes[number].lock().unwrap())
        } else {
            self.nodes[number].try_lock().ok()
        };
        let had = had.filter(|node| node.left_by.is_none() || self.without == Without::KeepingOff);
        let is_had = had.is_some();
        here.extend(had.map(|node| (number, node)));
        here.sort_by_key(|(number, _)| *number);
        is_had
    }

    /// Sends what `from` has to send. The node that is not to be had, if there is one.
    fn send<'a>(&'a self, here: &mut Here<'a>, from: usize) -> Option<usize> {
        while let Some((to, number)) = node(here, from)?.unsent.pop_front() {
            if !self.reach(here, to) {
                node(here, from)?.unsent.push_front((to, number));
                return Some(to);
            }
            let next = &mut node(here, to)?.next_from[from];
            assert_eq!(*next, number, "lost, twice or overtaken");
            *next += 1;
        }
        None
    }

    /// What the part that begins at a node left under way is the node's again.
    fn take_over(&self, here: &mut Here<'_>, number: usize) {
        let Some(node) = node(here, number).filter(|node| node.left_by == Some(number)) else { return };
        let newer = std::mem::take(&mut node.unsent);
        node.unsent.extend(self.left[number].lock().unwrap().drain(..).chain(newer));
    }

    /// One look at a node, which launches.
    fn serve(&self, number: usize) {
        let mut with = vec![number];
        let mut has_launched = false;
        for _ in 0..3 {
            let is_open = self.is_open.load(Ordering::SeqCst);
            let mut here: Here<'_> =
                with.iter().map(|node| (*node, self.nodes[*node].lock().unwrap())).collect();
            let is_open = if self.without == Without::AskingAgain {
                is_open
            } else {
                self.is_open.load(Ordering::SeqCst)
            };
            if !is_open {
                // Whoever has all nodes may have parts again.
                drop(here);
                drop(self.common.lock().unwrap());
                continue;
            }
            if here.iter().any(|(_, node)| node.left_by.is_some_and(|part| part != number)) {
                break;
            }
            assert!(!self.is_whole.load(Ordering::SeqCst), "somebody has all nodes");
            self.take_over(&mut here, number);
            here.iter_mut().for_each(|(_, node)| node.left_by = None);
            if !has_launched {
                launch(&mut here, number);
                has_launched = true;
            }
            let Some(wanted) = self.send(&mut here, number) else { return };
            here.iter_mut().for_each(|(_, node)| node.left_by = Some(number));
            let unsent = node(&mut here, number).map(|node| std::mem::take(&mut node.unsent));
            self.left[number].lock().unwrap().extend(unsent.into_iter().flatten());
            with = here.iter().map(|(number, _)| *number).chain([wanted]).collect();
            with.sort_unstable();
        }
        self.whole(|here| {
            if !has_launched {
                launch(here, number);
            }
            assert_eq!(self.send(here, number), None);
        });
    }

    /// All nodes, and parts again afterwards.
    fn whole<'a>(&'a self, act: impl FnOnce(&mut Here<'a>)) {
        let _common = self.common.lock().unwrap();
        let mut here: Here<'a> = (0..NODES).map(|node| (node, self.nodes[node].lock().unwrap())).collect();
        self.is_open.store(false, Ordering::SeqCst);
        if self.without != Without::TakingOver {
            (0..NODES).for_each(|number| self.take_over(&mut here, number));
            here.iter_mut().for_each(|(_, node)| node.left_by = None);
            (0..NODES).for_each(|number| assert_eq!(self.send(&mut here, number), None));
        }
        self.is_whole.store(true, Ordering::SeqCst);
        // Whoever looks from outside gives the locks back in the middle, for others that need all of it.
        drop(std::mem::take(&mut here));
        here = (0..NODES).map(|node| (node, self.nodes[node].lock().unwrap())).collect();
        let launched: u32 = here.iter().flat_map(|(_, node)| node.launched_to).sum();
        let received: u32 = here.iter().flat_map(|(_, node)| node.next_from).sum();
        assert_eq!(launched, received, "whoever has all nodes sees all");
        act(&mut here);
        self.is_whole.store(false, Ordering::SeqCst);
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// The program of a node has launched a message to each of the others.
fn launch(here: &mut Here<'_>, number: usize) {
    let from = node(here, number).expect("the node that is served");
    for to in (1..NODES).map(|far| (number + far) % NODES) {
        from.unsent.push_back((to, from.launched_to[to]));
        from.launched_to[to] += 1;
    }
}

/// Three nodes, each with a thread, and somebody who asks for all of it.
fn ring(without: Without) {
    let cluster = Arc::new(Cluster::new(without));
    let node = |number: usize| {
        let cluster = Arc::clone(&cluster);
        thread::spawn(move || (0..COUNT).for_each(|_| cluster.serve(number)))
    };
    let threads: Vec<_> = (0..NODES).map(node).collect();
    cluster.whole(|_| ());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    cluster.whole(|here| {
        let received: u32 = here.iter().flat_map(|(_, node)| node.next_from).sum();
        assert_eq!(received, (NODES * (NODES - 1)) as u32 * COUNT);
    });
}

#[test]
fn nothing_is_lost_and_nobody_waits_in_a_circle() {
    shuttle::check_random(|| ring(Without::Nothing), ORDERS);
    shuttle::check_pct(|| ring(Without::Nothing), ORDERS, 3);
}

#[test]
fn each_rule_is_needed() {
    for without in [Without::Order, Without::KeepingOff, Without::AskingAgain, Without::TakingOver] {
        let found = std::panic::catch_unwind(|| shuttle::check_random(move || ring(without), ORDERS));
        assert!(found.is_err(), "without {without:?} all goes well");
    }
}
