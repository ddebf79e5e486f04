//! ULTRA between several nodes: random programs and random faults, with checkers outside of the model.
//!
//! Each case is one seed, which proptest prints when it fails and which replays it.

use niclab_model::fabric::faults::Faults;
use niclab_model::models::ultra::config::FlowControl;
use niclab_model::random::Chance;
use proptest::prelude::*;

use crate::support::simulation::{End, Rules, Simulation};

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
fn connect_at_random(simulation: &mut Simulation) -> Vec<(End, End)> {
    let nodes = simulation.nodes.len();
    let ends: Vec<End> = (0..2 * nodes).map(|i| simulation.open(i % nodes).expect("a free port")).collect();
    let mut pairs = Vec::new();
    for &from in &ends {
        let to = ends[simulation.below(ends.len())];
        let credits = 1 + simulation.below(2) as u32;
        if simulation.below(2) == 0 {
            assert!(simulation.route(from, to));
            assert!(simulation.authorize(to, from, credits));
        } else {
            assert!(simulation.authorize(to, from, credits));
            assert!(simulation.route(from, to));
        }
        pairs.push((from, to));
    }
    pairs
}

/// Checks that every connection carries any number of messages once the faults have ended.
fn check_connections_work(simulation: &mut Simulation, pairs: &[(End, End)]) {
    for &(from, _) in pairs {
        let (_, received) = simulation.totals();
        for _ in 0..40 {
            if !simulation.launch(from) {
                simulation.settle();
                assert!(simulation.launch(from), "{from:?} is stuck");
            }
        }
        simulation.settle();
        assert_eq!(simulation.totals().1, received + 40, "of {from:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_faults_all_messages_arrive_once_and_in_order(seed: u64) {
        let mut simulation = Simulation::new(seed, QUIET);
        let pairs = connect_at_random(&mut simulation);
        (0..STEPS).for_each(|_| simulation.step());
        simulation.settle();
        prop_assert!(simulation.totals().0 > 20);
        prop_assert_eq!(simulation.incomplete().len(), 0);
        simulation.check_exact_counts();
        check_connections_work(&mut simulation, &pairs);
        prop_assert_eq!(simulation.count(|c| c.card.damaged + c.card.malformed + c.card.overruns), 0);
        prop_assert_eq!(simulation.count(|c| c.stale + c.late + c.missing), 0);
        prop_assert_eq!(simulation.count(|c| c.unauthorized + c.card.refused + c.card.control_refused), 0);
        prop_assert_eq!(simulation.count(|c| c.card.messages_sent), simulation.count(|c| c.card.messages_received));
    }

    #[test]
    fn faults_lose_messages_but_neither_order_nor_credit(seed: u64) {
        let mut simulation = Simulation::new(seed, Rules { faults: trouble(), ..QUIET });
        let pairs = connect_at_random(&mut simulation);
        (0..STEPS).for_each(|_| simulation.step());
        simulation.settle();
        let (sent, received) = simulation.totals();
        prop_assert!(received <= sent);
        prop_assert_eq!(simulation.count(|c| c.card.overruns), 0);
        check_connections_work(&mut simulation, &pairs);
    }

    #[test]
    fn ports_routes_and_authorizations_may_change_at_any_time(seed: u64) {
        change_at_any_time(seed);
    }

    #[test]
    fn faults_and_changes_of_ports_at_the_same_time(seed: u64) {
        let mut simulation = Simulation::new(seed, Rules { is_restless: true, faults: trouble(), ..QUIET });
        connect_at_random(&mut simulation);
        (0..STEPS).for_each(|_| simulation.step());
        simulation.settle();
        start_over_and_check(&mut simulation);
    }

    #[test]
    fn without_flow_control_order_holds_and_overruns_are_counted(seed: u64) {
        let rules = Rules { flow_control: FlowControl::None, slices: 8, ..QUIET };
        let mut simulation = Simulation::new(seed, rules);
        connect_at_random(&mut simulation);
        (0..STEPS).for_each(|_| simulation.step());
        simulation.settle();
        let (sent, received) = simulation.totals();
        prop_assert_eq!(sent as u64, received as u64 + simulation.count(|c| c.card.overruns));
        prop_assert_eq!(simulation.count(|c| c.flow_sent), 0);
    }
}

/// With this seed, the announcement of a revoked account arrives after the next account was opened.
#[test]
fn credit_of_a_revoked_account_does_not_block_the_next() {
    change_at_any_time(12_592_891_652_025_264_607);
}

fn change_at_any_time(seed: u64) {
    let mut simulation = Simulation::new(seed, Rules { is_restless: true, ..QUIET });
    connect_at_random(&mut simulation);
    (0..STEPS).for_each(|_| simulation.step());
    simulation.settle();
    assert_eq!(simulation.count(|c| c.card.damaged + c.card.malformed + c.missing), 0);
    start_over_and_check(&mut simulation);
}

/// Closes all ports, opens new ones, and checks that these work. No packet may be left in a port whose receiver accepts
/// it.
fn start_over_and_check(simulation: &mut Simulation) {
    let ends: Vec<(End, bool)> =
        simulation.ends().into_iter().map(|end| (end, simulation.is_connected(end))).collect();
    for (end, is_connected) in ends {
        let before = simulation.count(|c| c.card.discarded_at_close);
        simulation.close(end);
        assert!(
            !is_connected || simulation.count(|c| c.card.discarded_at_close) == before,
            "{end:?} was stuck"
        );
    }
    simulation.settle();
    let pairs = connect_at_random(simulation);
    simulation.settle();
    check_connections_work(simulation, &pairs);
}
