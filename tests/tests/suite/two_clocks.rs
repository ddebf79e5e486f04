//! The model time of a live run depends on its programs, not on the wall-clock order of their operations. The tests
//! compare a live shell in this process with the simulator. The live shell's guests are threads that pause at random.

use niclab_abi::config::{FEATURE_LISTS, FEATURE_RINGS};
use niclab_device::lab::{Lab, connect_ports};
use niclab_spec::monitor::Request;
use niclab_spec::{NicModel, SimConfig, Value, Workload, WorkloadKind};

use crate::stage::{Pace, ask, assert_same, config, live};

fn workload(kind: WorkloadKind, count: u64, message_bytes: u32) -> Workload {
    Workload { count, message_bytes, ..Workload::new(kind) }
}

/// A cluster of two cards of the default model.
fn two_cards(workload: &Workload) -> SimConfig {
    config(NicModel::default(), 2, workload)
}

/// As [`two_cards`], after `change` has changed the configuration.
fn two_cards_with(workload: &Workload, change: impl FnOnce(&mut SimConfig)) -> SimConfig {
    let mut config = two_cards(workload);
    change(&mut config);
    config
}

#[test]
fn a_race_makes_the_model_time_an_estimate() {
    let lab = Lab::new(2, |_| ()).unwrap();
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = connect_ports([&guests[0], &guests[1]], 64).unwrap();
    let before = ask(&lab, &Request::BeginMeasurement);
    assert!(a.try_launch(&[1], [0, 0], 0) && b.try_launch(&[2], [0, 0], 0), "both programs send at once");
    let since = ask(&lab, &Request::Stats).since(&before);
    let raced: u64 = since.nodes.iter().map(|node| node.unordered).sum();
    assert_eq!(raced, 1, "one program posted while a message stored for it was still unread");
    let why = since.model.why_estimate.unwrap();
    assert!(!since.model.is_exact && why.contains("order of operations"), "{why}");
}

#[test]
fn ping_pong_takes_the_simulated_model_time_on_every_model() {
    // On cards with descriptor rings, the guest's driver implements the ports, so programs need real guests.
    for model in NicModel::all().filter(|model| !model.has(FEATURE_RINGS)) {
        let workload = Workload { warmup: 30, ..workload(WorkloadKind::PingPong, 200, 16) };
        assert_same(&config(model, 2, &workload), None, 0..10, Pace::Free);
    }
}

#[test]
fn warm_up_that_ends_between_releases_keeps_the_model_time() {
    // Programs release slices 64 at a time, so the measured part begins with 13 unreleased slices.
    assert_same(
        &two_cards(&Workload { warmup: 77, ..workload(WorkloadKind::PingPong, 300, 64) }),
        None,
        20..25,
        Pace::Free,
    );
}

#[test]
fn stream_takes_the_simulated_model_time() {
    assert_same(&two_cards(&workload(WorkloadKind::Stream, 2_000, 16)), None, 0..10, Pace::Free);
}

/// On cards with lists, the receiver posts entries while messages arrive, and the sender waits for a counter. Without
/// lockstep, wall time decides between which messages an entry is posted, and the card does not see when the sender
/// reads the counter. In lockstep, the order of these operations is fixed.
#[test]
fn stream_over_lists_is_exact_only_in_lockstep() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_LISTS)) {
        let config = config(model, 2, &workload(WorkloadKind::Stream, 200, 16));
        assert_same(&config, None, 0..10, Pace::Turns);
        assert!(live(&config, None, 0, Pace::Free).model.why_estimate.is_some(), "{}", model.name);
    }
}

#[test]
fn stream_waiting_for_credit_takes_the_simulated_model_time() {
    let slow_receiver = |config: &mut SimConfig| config.profile.host.receive_ps.value = 1_500_000;
    for slices in [8, 16, 64] {
        let workload = Workload { slices, ..workload(WorkloadKind::Stream, 500, 64) };
        assert_same(&two_cards_with(&workload, slow_receiver), None, 0..10, Pace::Free);
    }
    // The card's FIFO holds more packets than the requester page has slots, and the program sees freed slots late.
    let deep_fifo = |config: &mut SimConfig| {
        slow_receiver(config);
        let words = Value::Numbers(vec![128, 0, 0, 0, 0, 0, 0, 0]);
        let cards = config.nodes.iter_mut();
        cards.for_each(|node| node.nic.set("fifo_words_per_port", words.clone()).unwrap());
        config.profile.bus.dma_write.latency_ps.value = 20_000_000;
    };
    for slices in [8, 64] {
        let workload = Workload { slices, ..workload(WorkloadKind::Stream, 500, 8) };
        assert_same(&two_cards_with(&workload, deep_fifo), None, 0..10, Pace::Free);
    }
    // With 256 slices, the sender waits for credit longer than the card's first credit probe. The simulated card then
    // requests the credit again. Wall time decides whether a live card does so, so the model time is an estimate.
    let raced =
        live(&two_cards_with(&workload(WorkloadKind::Stream, 500, 8), deep_fifo), None, 0, Pace::Free);
    assert!(raced.nodes[0].unordered > 0 && !raced.model.is_exact, "{raced:?}");
}

#[test]
fn half_duplex_bus_keeps_the_model_time() {
    let half_duplex = |config: &mut SimConfig| config.profile.bus.directions.value = 1;
    assert_same(
        &two_cards_with(&workload(WorkloadKind::PingPong, 200, 16), half_duplex),
        None,
        0..5,
        Pace::Free,
    );
    assert_same(
        &two_cards_with(&workload(WorkloadKind::Stream, 1_000, 64), half_duplex),
        None,
        0..5,
        Pace::Free,
    );
}
