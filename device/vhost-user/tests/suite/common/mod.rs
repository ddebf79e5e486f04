//! A daemon in this process, and its guests.

pub mod endpoint_card;
pub mod late;
pub mod loopback;
pub mod process;
pub mod tcp;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::{Lab, connect_ports};
use niclab_device::monitor::answer;
use niclab_spec::daemon::DaemonConfig;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::report::NodeFigures;

/// Time limit of any step of a test: far longer than a step takes on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A daemon for `nodes` nodes.
pub fn lab(nodes: u16) -> Lab {
    lab_with(nodes, |_| ())
}

/// A daemon for `nodes` nodes whose configuration `change` changes.
pub fn lab_with(nodes: u16, change: impl FnOnce(&mut DaemonConfig)) -> Lab {
    let _ = env_logger::builder().is_test(true).try_init();
    Lab::new(nodes, change).unwrap()
}

/// Counters of `node`.
pub fn stats(lab: &Lab, node: usize) -> NodeFigures {
    match answer(lab.daemon().shell(), &Request::Stats) {
        Answer::Stats(mut stats) => stats.nodes.swap_remove(node),
        other => panic!("{other:?}"),
    }
}

/// Violations of `node` so far, by name.
pub fn violations(lab: &Lab, node: usize) -> BTreeMap<String, u64> {
    stats(lab, node).violations
}

/// Stops a thread that polls this flag, even if the test fails, so that a failing test does not wait for the thread.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `done` returns true.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::yield_now();
    }
}

/// A port on each of two guests, routed to each other and mutually authorized, with 64 slices each.
pub fn pair(guests: [&Arc<ClusterGuest>; 2]) -> [GuestPort; 2] {
    connect_ports(guests, 64).unwrap()
}

/// Sends `count` messages from one port to the other and checks each message.
pub fn stream(from: &mut GuestPort, to: &mut GuestPort, count: u64) {
    let (mut sent, mut received) = (0, 0);
    let begin = Instant::now();
    while received < count {
        while sent < count && from.try_launch(&[sent, !sent], [sent, 7], 0) {
            sent += 1;
        }
        from.announce();
        while let Some(message) = to.try_receive() {
            assert_eq!(message.tag(), [received, 7]);
            assert_eq!(message.payload()[..2], [received, !received]);
            received += 1;
            if to.release_lazily() {
                to.announce();
            }
        }
        assert!(begin.elapsed() < TIMEOUT, "sent {sent}, received {received}, {:?}", from.status_line());
        std::thread::yield_now();
    }
}

/// An ordinary Ethernet frame of `bytes` from one address to another.
pub fn frame(from: [u8; 6], to: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend(to);
    frame.extend(from);
    frame.extend([0x12, 0x34]);
    frame.extend((frame.len()..bytes).map(|index| index as u8));
    frame
}
