//! Every kind of workload on every model, live: the messages are those of the plan, and the counts are the simulator's.
//! In lockstep the model time is the simulator's, too.

use niclab_abi::config::{FEATURE_CHANNELS, FEATURE_COLLECTIVES, FEATURE_LISTS, FEATURE_RINGS};
use niclab_spec::report::NodeFigures;
use niclab_spec::{NicModel, Receive, Workload, WorkloadKind};

use crate::stage::{Pace, assert_same, config, live, simulated};

/// Three nodes: with ports that change their route, an interrupt, and a node that only receives.
const RECORDING: &str = r#"{"niclab_recording": 2, "nodes": 3}
{"model_time_ps": 0, "node": 0, "port": 0, "to": 1, "to_port": 0, "bytes": 16}
{"model_time_ps": 500, "node": 1, "port": 0, "to": 2, "to_port": 0, "bytes": 8, "interrupt": true}
{"model_time_ps": 900, "node": 0, "port": 1, "to": 2, "to_port": 1, "bytes": 64}
{"model_time_ps": 900, "node": 0, "port": 0, "to": 1, "to_port": 0, "bytes": 0}
{"model_time_ps": 7000, "node": 0, "port": 1, "to": 1, "to_port": 1, "bytes": 24, "interrupt": true}
{"messages": 5}
"#;

fn workload(kind: WorkloadKind) -> Workload {
    let recording = (kind == WorkloadKind::Replay).then(|| "recording".into());
    Workload { count: 60, warmup: 10, interrupt_every: 7, slices: 64, recording, ..Workload::new(kind) }
}

/// The counts of a node that do not depend on the order of events. Cards with lists return credit in separate messages
/// without payload, if no other message can carry it.
fn of_node(node: &NodeFigures, model: NicModel) -> (u64, u64, Option<(u64, u64)>) {
    let messages = (!model.has(FEATURE_LISTS)).then_some((node.messages_sent, node.messages_received));
    (node.bytes_sent, node.bytes_received, messages)
}

fn agrees(model: NicModel, workload: &Workload, seed: u64) {
    let is_replay = workload.kind == WorkloadKind::Replay;
    let config = config(model, if is_replay { 3 } else { 4 }, workload);
    let recording = is_replay.then_some(RECORDING);
    assert_same(&config, recording, seed..seed + 2, Pace::Turns);
    let (expected, found) = (simulated(&config, recording), live(&config, recording, seed, Pace::Free));
    for (expected, found) in expected.nodes.iter().zip(&found.nodes) {
        let what = format!("{} {}, {}", model.name, workload.kind.name(), expected.name);
        assert_eq!(of_node(found, model), of_node(expected, model), "{what}");
        assert_eq!(found.interrupts, expected.interrupts, "{what}");
        let is_receiving = workload.kind != WorkloadKind::Incast || expected.name == "node0";
        assert!(!is_receiving || is_replay || found.messages_received > 0, "{what}");
    }
}

#[test]
fn every_workload_of_every_model_arrives_complete_live() {
    // On models with descriptor rings, ports are the driver's, so programs run in guests only.
    for model in NicModel::all().filter(|model| !model.has(FEATURE_RINGS)) {
        let between_programs = (0..)
            .zip(WorkloadKind::ALL)
            .filter(|(_, kind)| !matches!(kind, WorkloadKind::Reduce | WorkloadKind::Echo));
        for (seed, kind) in between_programs {
            agrees(model, &workload(kind), seed);
        }
    }
}

/// Every program verifies the sums that it requests. Only counts are compared: messages that set up the groups may
/// still be in flight in wall time when the measured part begins, so a live run's model time is an estimate.
#[test]
fn live_groups_interrupt_as_simulated_ones() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_COLLECTIVES)) {
        for (message_bytes, pace) in [(0, Pace::Free), (8, Pace::Turns), (4000, Pace::Free)] {
            let config = config(model, 4, &Workload { message_bytes, ..workload(WorkloadKind::Reduce) });
            let (expected, found) = (simulated(&config, None), live(&config, None, 3, pace));
            for (expected, found) in expected.nodes.iter().zip(&found.nodes) {
                // Every seventh of sixty sums interrupts the node that requested it; no other interrupt occurs.
                assert_eq!(found.interrupts, expected.interrupts);
                assert_eq!(found.interrupts.values().sum::<u64>(), 8);
            }
        }
    }
}

/// A peer device on the bus of the NIC sends messages back without the host.
#[test]
fn live_peripherals_answer_as_simulated_ones() {
    let mut found_any = false;
    for model in NicModel::all() {
        let parameters = model.descriptor().parameters.iter().map(|parameter| parameter.key);
        for key in parameters.filter(|key| key.ends_with("_card_channel")) {
            for message_bytes in [0, 1_000] {
                let workload = Workload { message_bytes, ..workload(WorkloadKind::Echo) };
                let mut config = config(model, 3, &workload);
                config.nodes[1].nic.set(key, niclab_spec::Value::Number(7)).expect("a channel");
                assert_same(&config, None, 0..2, Pace::Turns);
                let report = simulated(&config, None);
                let received = report.nodes.iter().map(|node| node.messages_received);
                assert_eq!(received.collect::<Vec<_>>(), [60, 120, 60], "{key}");
                found_any = true;
            }
        }
    }
    assert!(found_any, "no model has a peripheral");
}

#[test]
fn a_node_without_a_partner_delays_no_other_node() {
    for pace in [Pace::Free, Pace::Turns] {
        assert_same(&config(NicModel::default(), 3, &workload(WorkloadKind::PingPong)), None, 0..2, pace);
    }
}

#[test]
fn unexpected_and_fetched_messages_arrive_live_as_simulated() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_LISTS)) {
        for receive in [Receive::Unexpected, Receive::Get] {
            for kind in [WorkloadKind::AllToAll, WorkloadKind::Incast, WorkloadKind::Random] {
                agrees(model, &Workload { receive, message_bytes: 100, ..workload(kind) }, 7);
            }
        }
    }
}

#[test]
fn messages_to_exposed_memory_arrive_live_as_simulated() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_CHANNELS)) {
        for message_bytes in [0, 100, 5_000] {
            let memory =
                Workload { message_bytes, receive: Receive::Exposed, ..workload(WorkloadKind::PingPong) };
            agrees(model, &memory, 7);
            let counts = &simulated(&config(model, 4, &memory), None).nodes[1].nic_counts;
            // The first node of a pair does not yet know the other's memory, so its first message is a bulk message.
            let expected = if message_bytes == 0 { 0 } else { 60 };
            assert_eq!(counts.get("memory_received").copied().unwrap_or(0), expected, "{counts:?}");
        }
    }
}
