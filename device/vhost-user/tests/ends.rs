//! A cluster in this process ends with the value that holds it, without leaving a thread or a file descriptor. The test
//! is a program of its own, so that no other test opens descriptors at the same time.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use niclab_device::lab::{Lab, connect_ports};

/// Time limit of any step: far longer than a step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Names of this process's threads, and number of its open descriptors.
fn held() -> (Vec<String>, usize) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between the two steps.
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let mut names: Vec<String> = tasks.filter_map(|task| name(task.unwrap())).collect();
    names.sort();
    // Each count includes the descriptor of the folder that is being read.
    (names, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

fn run_a_cluster() {
    let lab = Lab::new(3, |_| ()).unwrap();
    let guests = [0, 1].map(|node| lab.guest(node).unwrap());
    let ethernet = [1, 2].map(|node| lab.ethernet(node, 0).unwrap());
    let [mut from, mut to] = connect_ports([&guests[0], &guests[1]], 8).unwrap();
    assert!(from.try_launch(&[1], [2, 3], 0));
    from.announce();
    let begin = Instant::now();
    while to.try_receive().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "no message");
        std::thread::yield_now();
    }
    drop(ethernet);
}

#[test]
fn cluster_leaves_no_thread_and_no_descriptor() {
    // The first cluster creates what the process keeps, such as the handler of vanished pages.
    run_a_cluster();
    let begin = Instant::now();
    let before = held();
    for _ in 0..4 {
        run_a_cluster();
    }
    // Threads that only wait for the end of a connection end shortly after it.
    while held() != before {
        assert!(begin.elapsed() < TIMEOUT, "before: {before:?}; now: {:?}", held());
        std::thread::yield_now();
    }
}
