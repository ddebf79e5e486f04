//! ULTRA between several nodes: random programs and random faults, with checkers outside of the model.
//!
//! Each case is one seed, which proptest prints when it fails and which replays it.

use niclab_model::fabric::faults::Faults;
use niclab_model::models::ultra::config::FlowControl;
use niclab_model::random::Chance;
use proptest::prelude::*;

use crate::support::world::{End, Rules, World};

const STEPS: usize = 1_500;

const QUIET: Rules = Rules {
    nodes: 3,
    slices: 16,
    flow_control: FlowControl::Credit,
    faults: Faults::NONE,
    is_restless: false,
};

fn trouble() -> Faults {
    let some = Chance::from_probability(0.1);
    Faults { loss: some, duplicate: some, corrupt: some, reorder: some, ..Faults::NONE }
}

/// Opens two ports on each node and connects each to another at random: routes before authorizations or after.
fn connect_at_random(world: &mut World) -> Vec<(End, End)> {
    let nodes = world.nodes.len();
    let ends: Vec<End> = (0..2 * nodes).map(|i| world.open(i % nodes).expect("a free port")).collect();
    let mut pairs = Vec::new();
    for &from in &ends {
        let to = ends[world.below(ends.len())];
        let credits = 1 + world.below(2) as u32;
        if world.below(2) == 0 {
            assert!(world.route(from, to));
            assert!(world.authorize(to, from, credits));
        } else {
            assert!(world.authorize(to, from, credits));
            assert!(world.route(from, to));
        }
        pairs.push((from, to));
    }
    pairs
}

/// Checks that every connection carries any number of messages once the faults have ended.
fn check_connections_work(world: &mut World, pairs: &[(End, End)]) {
    for &(from, _) in pairs {
        let (_, received) = world.totals();
        for _ in 0..40 {
            if !world.launch(from) {
                world.settle();
                assert!(world.launch(from), "{from:?} is stuck");
            }
        }
        world.settle();
        assert_eq!(world.totals().1, received + 40, "of {from:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_faults_all_messages_arrive_once_and_in_order(seed: u64) {
        let mut world = World::new(seed, QUIET);
        let pairs = connect_at_random(&mut world);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        prop_assert!(world.totals().0 > 20);
        prop_assert_eq!(world.incomplete().len(), 0);
        world.check_exact_counts();
        check_connections_work(&mut world, &pairs);
        prop_assert_eq!(world.count(|c| c.card.damaged + c.card.malformed + c.card.overruns), 0);
        prop_assert_eq!(world.count(|c| c.stale + c.late + c.missing), 0);
        prop_assert_eq!(world.count(|c| c.unauthorized + c.card.refused + c.card.control_refused), 0);
        prop_assert_eq!(world.count(|c| c.card.messages_sent), world.count(|c| c.card.messages_received));
    }

    #[test]
    fn faults_lose_messages_but_neither_order_nor_credit(seed: u64) {
        let mut world = World::new(seed, Rules { faults: trouble(), ..QUIET });
        let pairs = connect_at_random(&mut world);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        let (sent, received) = world.totals();
        prop_assert!(received <= sent);
        prop_assert_eq!(world.count(|c| c.card.overruns), 0);
        check_connections_work(&mut world, &pairs);
    }

    #[test]
    fn ports_routes_and_authorizations_may_change_at_any_time(seed: u64) {
        change_at_any_time(seed);
    }

    #[test]
    fn faults_and_changes_of_ports_at_the_same_time(seed: u64) {
        let mut world = World::new(seed, Rules { is_restless: true, faults: trouble(), ..QUIET });
        connect_at_random(&mut world);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        start_over_and_check(&mut world);
    }

    #[test]
    fn without_flow_control_order_holds_and_overruns_are_counted(seed: u64) {
        let rules = Rules { flow_control: FlowControl::None, slices: 8, ..QUIET };
        let mut world = World::new(seed, rules);
        connect_at_random(&mut world);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        let (sent, received) = world.totals();
        prop_assert_eq!(sent as u64, received as u64 + world.count(|c| c.card.overruns));
        prop_assert_eq!(world.count(|c| c.flow_sent), 0);
    }
}

/// With this seed, the announcement of a revoked account arrives after the next account was opened.
#[test]
fn credit_of_a_revoked_account_does_not_block_the_next() {
    change_at_any_time(12_592_891_652_025_264_607);
}

fn change_at_any_time(seed: u64) {
    let mut world = World::new(seed, Rules { is_restless: true, ..QUIET });
    connect_at_random(&mut world);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    assert_eq!(world.count(|c| c.card.damaged + c.card.malformed + c.missing), 0);
    start_over_and_check(&mut world);
}

/// Closes all ports, opens new ones, and checks that these work. No packet may be left in a port whose receiver accepts
/// it.
fn start_over_and_check(world: &mut World) {
    let ends: Vec<(End, bool)> = world.ends().into_iter().map(|end| (end, world.is_connected(end))).collect();
    for (end, is_connected) in ends {
        let before = world.count(|c| c.card.discarded_at_close);
        world.close(end);
        assert!(!is_connected || world.count(|c| c.card.discarded_at_close) == before, "{end:?} was stuck");
    }
    world.settle();
    let pairs = connect_at_random(world);
    world.settle();
    check_connections_work(world, &pairs);
}
