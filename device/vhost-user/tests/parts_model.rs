//! The protocol of `shell/cluster.rs` alone, under a scheduler that tries orders of threads. There is no deadlock; no
//! message is lost, delivered twice or overtaken; and a thread that locks all nodes sees all messages. Each rule of the
//! protocol is omitted once, and the test detects that.
//!
//! The scheduler is shuttle (<https://docs.rs/shuttle>), which tries random orders. Loom tries all orders, and these
//! are too many: three threads take up to five locks each, several times.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, Mutex, MutexGuard};
use shuttle::thread;

const NODES: usize = 3;
/// Number of messages of each node.
const COUNT: u32 = 3;
/// Number of thread orders that are tried.
const ORDERS: usize = 3_000;

/// A rule that is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A thread that holds a node's lock does not wait for a lower one.
    Order,
    /// A domain does not use nodes that another domain has marked.
    KeepingOff,
    /// A domain checks after the lock of its node, and not only before it, whether domains are allowed.
    AskingAgain,
    /// A thread that locks all nodes resumes the work that domains left.
    TakingOver,
}

#[derive(Default)]
struct Node {
    launched_to: [u32; NODES],
    unsent: VecDeque<(usize, u32)>,
    /// Number of the next message from each node.
    next_from: [u32; NODES],
    left_by: Option<usize>,
}

struct Cluster {
    nodes: Vec<Mutex<Node>>,
    /// Messages that the domain of a node left in flight.
    left: Vec<Mutex<VecDeque<(usize, u32)>>>,
    common: Mutex<()>,
    is_open: AtomicBool,
    /// Whether a thread has locked all nodes; only the holder of `common` may see this.
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

    /// Sends the messages of `from`. Returns the node whose lock is not available, if any.
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

    /// Returns the messages that a node's domain left in flight to the node.
    fn take_over(&self, here: &mut Here<'_>, number: usize) {
        let Some(node) = node(here, number).filter(|node| node.left_by == Some(number)) else { return };
        let newer = std::mem::take(&mut node.unsent);
        node.unsent.extend(self.left[number].lock().unwrap().drain(..).chain(newer));
    }

    /// Serves a node, which posts messages.
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
                // The thread that has locked all nodes may allow domains again.
                drop(here);
                drop(self.common.lock().unwrap());
                continue;
            }
            if here.iter().any(|(_, node)| node.left_by.is_some_and(|part| part != number)) {
                break;
            }
            assert!(!self.is_whole.load(Ordering::SeqCst), "another thread has locked all nodes");
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

    /// Locks all nodes, and allows domains again afterwards.
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
        // A thread that only inspects the state unlocks the nodes in between, for others that need all locks.
        drop(std::mem::take(&mut here));
        here = (0..NODES).map(|node| (node, self.nodes[node].lock().unwrap())).collect();
        let launched: u32 = here.iter().flat_map(|(_, node)| node.launched_to).sum();
        let received: u32 = here.iter().flat_map(|(_, node)| node.next_from).sum();
        assert_eq!(launched, received, "a thread that has locked all nodes sees all messages");
        act(&mut here);
        self.is_whole.store(false, Ordering::SeqCst);
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// The program of a node posts a message to each other node.
fn launch(here: &mut Here<'_>, number: usize) {
    let from = node(here, number).expect("the node that is served");
    for to in (1..NODES).map(|far| (number + far) % NODES) {
        from.unsent.push_back((to, from.launched_to[to]));
        from.launched_to[to] += 1;
    }
}

/// Three nodes, each with a thread, and a thread that locks all nodes.
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
fn no_message_is_lost_and_no_deadlock_occurs() {
    shuttle::check_random(|| ring(Without::Nothing), ORDERS);
    shuttle::check_pct(|| ring(Without::Nothing), ORDERS, 3);
}

#[test]
fn omitting_any_rule_is_detected() {
    for without in [Without::Order, Without::KeepingOff, Without::AskingAgain, Without::TakingOver] {
        let found = std::panic::catch_unwind(|| shuttle::check_random(move || ring(without), ORDERS));
        assert!(found.is_err(), "omitting {without:?} is not detected");
    }
}
