//! A new seed for adversarial cards while guests run.

use niclab_device::shell::adversarial;
use niclab_device::shell::service::queues;
use std::time::Instant;

use niclab_abi::control::OP_PING;
use niclab_device::monitor::answer;
use niclab_device::shell::adversary::Tick;
use niclab_spec::monitor::{Answer, Request};

use super::{Desk, LONG, PLACES, SEED, fates, fates_at};
use crate::common::stats;

fn set_seed(desk: &Desk, nodes: &[&str], seed: u64) -> Answer {
    let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
    answer(desk.shell(), &Request::SetAdversarialSeed { nodes, seed })
}

#[test]
fn new_seed_gives_the_fates_of_a_card_started_with_it() {
    let desk = Desk::new();
    desk.guest.offer_event_buffers(32).unwrap();
    adversarial::make_adversarial(&mut desk.shell().lock_all(), 0, SEED);
    let before = fates_at(&desk, &mut desk.shell().lock_all(), true);
    for seed in [SEED + 1, SEED] {
        assert_eq!(set_seed(&desk, &["node0"], seed), Answer::Done);
        let after = fates_at(&desk, &mut desk.shell().lock_all(), false);
        assert_eq!(after, fates(seed, false), "the number of replies just before the limit, too");
        assert_eq!(after == before, seed == SEED);
    }
}

/// Sends requests with one seed. Returns the number of replies at once, after each of eight activities, and at the end.
fn answers(desk: &Desk, seed: u64, is_changed: bool) -> Vec<usize> {
    assert_eq!(set_seed(desk, &["node0"], seed), Answer::Done);
    let before = Instant::now();
    let mut locked = desk.shell().lock_all();
    for place in 0..PLACES {
        desk.ask(place, OP_PING);
    }
    while queues::serve_control(&mut locked, 0) {}
    drop(locked);
    if is_changed {
        assert_eq!(set_seed(desk, &["node0"], !seed), Answer::Done);
    }
    let mut locked = desk.shell().lock_all();
    let answered = || std::iter::from_fn(|| desk.answer()).count();
    let mut answers = vec![answered()];
    for _ in 0..8 {
        adversarial::tick(&mut locked, Tick::Activity, Some(before));
        answers.push(answered());
    }
    adversarial::tick(&mut locked, Tick::Idle, Some(Instant::now() + LONG));
    answers.push(answered());
    answers
}

#[test]
fn delayed_replies_keep_their_times_after_a_reseed() {
    let desk = Desk::new();
    adversarial::make_adversarial(&mut desk.shell().lock_all(), 0, SEED);
    let mut kept = 0;
    for seed in 0..32 {
        let without = answers(&desk, seed, false);
        assert_eq!(answers(&desk, seed, true), without, "seed {seed}");
        assert_eq!(
            without.iter().sum::<usize>(),
            PLACES as usize,
            "each request has its answer, by seed {seed}"
        );
        kept += PLACES as usize - without[0];
    }
    assert!(kept > 32, "{kept}");
}

fn kind(node: &str) -> String {
    format!(
        "the card of node `{node}` is not adversarial, and cannot become so while it runs: start the cluster with \
         `--adversarial 8`, or with `adversarial = 8` in its file"
    )
}

#[test]
fn reseed_needs_adversarial_cards_and_changes_all_or_none() {
    let desk = Desk::new();
    assert_eq!(set_seed(&desk, &["node0"], 8), Answer::Error { message: kind("node0") });
    adversarial::make_adversarial(&mut desk.shell().lock_all(), 0, SEED);
    assert_eq!(set_seed(&desk, &[], 8), Answer::Error { message: kind("node1") });
    assert_eq!(
        (stats(&desk.lab, 0).adversarial_seed, stats(&desk.lab, 0).adversarial_reseeds),
        (Some(SEED), 0)
    );
    let Answer::Error { message } = set_seed(&desk, &["node7"], 8) else { panic!("node7 exists") };
    assert!(message.contains("there is no node `node7`; the nodes are node0, node1"), "{message}");
    adversarial::make_adversarial(&mut desk.shell().lock_all(), 1, SEED);
    assert_eq!(set_seed(&desk, &[], 8), Answer::Done);
    assert_eq!(set_seed(&desk, &["node1"], 9), Answer::Done);
    let seeds = |node| (stats(&desk.lab, node).adversarial_seed, stats(&desk.lab, node).adversarial_reseeds);
    assert_eq!((seeds(0), seeds(1)), ((Some(8), 1), (Some(9), 2)));
}
