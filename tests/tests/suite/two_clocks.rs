//! A live run's model time follows from its programs, and not from the wall-clock order of their operations. A live
//! shell in this process, with guests as threads that pause at random, is compared with the simulator.

use niclab_abi::config::{FEATURE_LISTS, FEATURE_RINGS};
use niclab_device::lab::{Lab, connect_ports};
use niclab_spec::monitor::Request;
use niclab_spec::{NicModel, SimConfig, Value, Workload, WorkloadKind};

use crate::stage::{Pace, ask, assert_same, config, live};

fn workload(kind: WorkloadKind, count: u64, message_bytes: u32) -> Workload {
    Workload { count, message_bytes, ..Workload::new(kind) }
}

/// Two cards of the default model.
fn two(workload: &Workload) -> SimConfig {
    config(NicModel::default(), 2, workload)
}

/// The same, with a changed configuration.
fn two_on(workload: &Workload, change: impl FnOnce(&mut SimConfig)) -> SimConfig {
    let mut config = two(workload);
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
    assert_eq!(raced, 1, "one message was posted before the other's message was stored");
    let why = since.model.why_estimate.unwrap();
    assert!(!since.model.is_exact && why.contains("order of operations"), "{why}");
}

#[test]
fn every_models_ping_pong_takes_the_simulators_model_time() {
    // On models with descriptor rings, ports are the driver's, so programs run in guests only.
    for model in NicModel::all().filter(|model| !model.has(FEATURE_RINGS)) {
        let workload = Workload { warmup: 30, ..workload(WorkloadKind::PingPong, 200, 16) };
        assert_same(&config(model, 2, &workload), None, 0..10, Pace::Free);
    }
}

#[test]
fn a_warm_up_between_two_releases_keeps_the_model_time() {
    assert_same(
        &two(&Workload { warmup: 77, ..workload(WorkloadKind::PingPong, 300, 64) }),
        None,
        20..25,
        Pace::Free,
    );
}

#[test]
fn a_stream_takes_the_simulators_model_time() {
    assert_same(&two(&workload(WorkloadKind::Stream, 2_000, 16)), None, 0..10, Pace::Free);
}

/// On cards with lists, the receiver posts entries between messages, and the sender waits for a counter. Without
/// lockstep, wall time decides between which messages this happens, and the card does not see when the sender read the
/// counter. In lockstep the order is fixed.
#[test]
fn a_stream_over_lists_is_exact_only_in_lockstep() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_LISTS)) {
        let config = config(model, 2, &workload(WorkloadKind::Stream, 200, 16));
        assert_same(&config, None, 0..10, Pace::Turns);
        assert!(live(&config, None, 0, Pace::Free).model.why_estimate.is_some(), "{}", model.name);
    }
}

#[test]
fn a_stream_waiting_for_credit_takes_the_simulators_model_time() {
    let slow = |config: &mut SimConfig| config.profile.host.receive_ps.value = 1_500_000;
    for slices in [8, 16, 64] {
        let workload = Workload { slices, ..workload(WorkloadKind::Stream, 500, 64) };
        assert_same(&two_on(&workload, slow), None, 0..10, Pace::Free);
    }
    // More packets wait in the card than a page has slots, and the program sees free slots late.
    let deep = |config: &mut SimConfig| {
        slow(config);
        let words = Value::Numbers(vec![128, 0, 0, 0, 0, 0, 0, 0]);
        let cards = config.nodes.iter_mut();
        cards.for_each(|node| node.nic.set("fifo_words_per_port", words.clone()).unwrap());
        config.profile.bus.dma_write.latency_ps.value = 20_000_000;
    };
    for slices in [8, 64] {
        let workload = Workload { slices, ..workload(WorkloadKind::Stream, 500, 8) };
        assert_same(&two_on(&workload, deep), None, 0..10, Pace::Free);
    }
    // The wait for credit is so long that the simulated card requests credit. A live card does not know how long the
    // wait is.
    let raced = live(&two_on(&workload(WorkloadKind::Stream, 500, 8), deep), None, 0, Pace::Free);
    assert!(raced.nodes[0].unordered > 0 && !raced.model.is_exact, "{raced:?}");
}

#[test]
fn a_half_duplex_bus_keeps_the_model_time() {
    let half = |config: &mut SimConfig| config.profile.bus.directions.value = 1;
    assert_same(&two_on(&workload(WorkloadKind::PingPong, 200, 16), half), None, 0..5, Pace::Free);
    assert_same(&two_on(&workload(WorkloadKind::Stream, 1_000, 64), half), None, 0..5, Pace::Free);
}
