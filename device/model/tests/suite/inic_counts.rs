//! Mistakes of INIC components that cost only time: this file counts the packets of a long message between two cards.

use std::sync::Arc;

use niclab_abi::inic::{POST_EVENT_RECEIVED, POST_OK};
use niclab_model::models::inic::counters::Counters;
use niclab_model::models::inic::descriptor::{MODEL, config};
use niclab_model::nic::registry::{CardContext, Value, Values};
use niclab_model::platform::profile::Profile;
use niclab_model::time::Time;

use crate::support::inic::{Faults, Wire};

const PACKET: u64 = 400;
const PACKETS: u64 = 1_000;
const BYTES: u64 = PACKET * PACKETS;

/// Counters of the sender and of the receiver, and the time until the message arrived.
fn sent(assembly: &str, faults: Faults) -> ([Counters; 2], Time) {
    let values = Values::defaults(&MODEL)
        .with("assembly", Value::Word(assembly.into()))
        .with("packet_bytes", Value::Number(PACKET));
    let profile = Arc::new(Profile::default());
    let card = |node| {
        let context = CardContext { node, nodes: 2, mtu_bytes: 1_500, profile: profile.clone() };
        config(&values, context).unwrap()
    };
    let mut wire = Wire::new(5, faults, card, 2);
    assert!(wire.receive(1, 0, 0, 0, BYTES) && wire.send(0, 0, 1, 0, BYTES, BYTES));
    let told = loop {
        if let Some(told) = wire.event(1) {
            break told;
        }
        assert!(wire.step(), "{assembly}: the message arrives");
    };
    assert_eq!((told.kind, told.result), (POST_EVENT_RECEIVED, POST_OK));
    let took = wire.now;
    while wire.step() {}
    ([0, 1].map(|node| *wire.hosts[node].nic.counters()), took)
}

const LOSSY: Faults = Faults { lost: 20, duplicated: 0, damaged: 0, late: 0 };

#[test]
fn packets_missing_from_a_mask_are_resent_before_a_timeout() {
    for assembly in ["conf2", "conf3", "selective_repeat"] {
        let ([sender, _], _) = sent(assembly, LOSSY);
        // About 20 packets were lost. Each is resent once or twice. The timer serves only the last packets of a window.
        assert!((15..60).contains(&sender.retransmissions), "{assembly}: {sender:#?}");
        assert!(sender.timeouts <= 10, "{assembly}: {sender:#?}");
    }
}

#[test]
fn only_go_back_n_resends_the_packets_after_a_lost_one() {
    let again = |assembly| sent(assembly, LOSSY).0[0].retransmissions;
    let (selective, go_back_n) = (again("selective_repeat"), again("conf4"));
    assert!(go_back_n > 4 * selective, "{go_back_n} {selective}");
}

#[test]
fn acknowledgements_are_forced_at_the_packet_threshold() {
    for assembly in ["conf2", "conf3", "conf4", "selective_repeat"] {
        let ([sender, receiver], _) = sent(assembly, Faults::default());
        assert_eq!((sender.timeouts, sender.retransmissions), (0, 0), "{assembly}");
        // One for each 9 packets, which exceed the threshold of 8, and one at the end.
        let forced = receiver.card.acknowledgements_sent;
        assert_eq!(forced, PACKETS.div_ceil(9), "{assembly}");
    }
}

#[test]
fn one_packet_leaves_in_each_interval() {
    let ([sender, _], took) = sent("rate_controlled", Faults::default());
    assert_eq!(sender.retransmissions, 0);
    let least = 50_000_000 * (PACKETS - 1);
    assert!((least..least + 500_000_000).contains(&took.as_ps()), "{took:?}");
}
