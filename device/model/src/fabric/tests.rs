use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::batch::{BatchFrame, BatchLength};
use super::ethernet::{BROADCAST, Header, Mac, mac_of_node};
use super::*;
use crate::random::Chance;

const NS: u64 = 1_000;

/// 8 Gb/s: one byte per nanosecond. No framing, so that lengths are times.
const PLAIN: LinkConfig = LinkConfig {
    bandwidth_bits_per_s: 8_000_000_000,
    latency: Span::from_ns(100),
    mtu_bytes: 1_500,
    framing_bytes: 0,
    min_frame_bytes: 0,
    gap_bytes: 0,
    queue_frames: 0,
};

fn fabric(link: LinkConfig, forwarding: Forwarding, seed: u64) -> Fabric {
    let links = vec![link; 4];
    Fabric::new(&FabricConfig { links, forwarding, switch_fall_through: Span::from_ns(90), seed }).unwrap()
}

fn frame(destination: Mac, source: Mac, bytes: usize) -> Vec<u8> {
    let mut frame = Header { destination, source, ether_type: 0x0800 }.emit().to_vec();
    frame.resize(bytes, 0x55);
    frame
}

fn unicast(from: u16, to: u16, bytes: usize) -> Vec<u8> {
    frame(mac_of_node(to), mac_of_node(from), bytes)
}

fn send(fabric: &mut Fabric, now_ns: u64, from: u16, frame: &[u8]) -> Vec<Delivery> {
    let mut deliveries = Deliveries::new();
    fabric.forward(Time::from_ps(now_ns * NS), from, frame, None, &mut deliveries);
    deliveries.into_vec()
}

fn receivers(deliveries: &[Delivery]) -> Vec<u16> {
    deliveries.iter().map(|delivery| delivery.to).collect()
}

#[test]
fn idle_route_costs_serialization_fall_through_and_latencies() {
    for (forwarding, expected_ns) in [
        (Forwarding::CutThrough, 100 + 90 + 200 + 100),
        (Forwarding::StoreAndForward, 200 + 100 + 90 + 200 + 100),
    ] {
        let mut fabric = fabric(PLAIN, forwarding, 0);
        let deliveries = send(&mut fabric, 0, 0, &unicast(0, 2, 200));
        let at = Time::from_ps(expected_ns * NS);
        let head = Time::from_ps((expected_ns - 200) * NS);
        assert_eq!(deliveries, [Delivery { to: 2, head, at, corrupt: None }], "{forwarding:?}");
        assert_eq!(fabric.ledger().line(Transaction::Serialization).count, 2);
        assert_eq!(fabric.ledger().line(Transaction::SwitchFallThrough).price_ps, 90 * NS);
    }
}

#[test]
fn a_tag_extends_the_longest_frame_by_its_own_bytes() {
    for (tags, longest) in
        [(&[][..], 1_514), (&[0x8100], 1_518), (&[0x88a8, 0x8100], 1_522), (&[0x8100; 4], 1_522)]
    {
        let tagged = |bytes: usize| {
            let mut frame = unicast(0, 2, bytes);
            for (place, tag) in tags.iter().enumerate() {
                frame[12 + 4 * place..14 + 4 * place].copy_from_slice(&u16::to_be_bytes(*tag));
            }
            frame
        };
        let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
        for (bytes, is_carried) in [(longest, true), (longest + 1, false)] {
            let in_batch = fabric.switching.batch_route(&mut fabric.ports.own, 0, (&*tagged(bytes)).into());
            assert_eq!(in_batch, is_carried.then_some(2), "{bytes} bytes with {} tags", tags.len());
            let deliveries = send(&mut fabric, 0, 0, &tagged(bytes));
            assert_eq!(receivers(&deliveries), if is_carried { vec![2] } else { vec![] }, "{bytes} bytes");
        }
        assert_eq!(fabric.counters(0).unwrap().dropped_long, 1);
        assert_eq!(
            fabric.counters(2).unwrap().dropped_long,
            0,
            "the second link carries what the first does"
        );
    }
}

#[test]
fn ledger_of_a_node_has_the_cost_of_its_frames_and_link() {
    let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
    let _ = send(&mut fabric, 0, 0, &unicast(0, 2, 200));
    let _ = send(&mut fabric, 0, 2, &unicast(2, 1, 100));
    let parts: Vec<_> = fabric
        .ledgers_mut()
        .map(|ledger| {
            [Transaction::Serialization, Transaction::SwitchFallThrough].map(|c| ledger.line(c).bytes)
        })
        .collect();
    assert_eq!(parts, [[200, 200], [100, 0], [200 + 100, 100], [0, 0]]);
    let sum = fabric.ledger();
    assert_eq!((sum.line(Transaction::Serialization).bytes, sum.total().count), (600, 6));
}

#[test]
fn slow_source_holds_every_link_until_its_last_byte() {
    for (forwarding, last_ns) in [
        (Forwarding::CutThrough, 1_000 + 100 + 90 + 100),
        (Forwarding::StoreAndForward, 1_000 + 100 + 90 + 200 + 100),
    ] {
        let mut fabric = fabric(PLAIN, forwarding, 0);
        let at = |ns: u64| Time::from_ps(ns * NS);
        let mut deliveries = Deliveries::new();
        // 200 bytes; the last is ready after a microsecond.
        let ready = Passage { head: Time::ZERO, tail: at(1_000) };
        fabric.forward(ready, 0, &*unicast(0, 2, 200), None, &mut deliveries);
        assert_eq!(deliveries[0].at, at(last_ns), "{forwarding:?}");
        let first_ns = if forwarding == Forwarding::CutThrough { 100 + 90 + 100 } else { last_ns - 200 };
        assert_eq!(deliveries[0].head, at(first_ns), "{forwarding:?}");
        // The frame holds the sender's link, and in cut-through the receiver's.
        let behind = send(&mut fabric, 0, 0, &unicast(0, 3, 200));
        let through_ns = if forwarding == Forwarding::CutThrough { 0 } else { 200 };
        assert_eq!(behind[0].at, at(1_000 + 200 + 100 + 90 + through_ns + 100), "{forwarding:?}");
        let from_other = send(&mut fabric, 0, 1, &unicast(1, 2, 200));
        assert_eq!(from_other[0].at, at(last_ns + 200), "{forwarding:?}");
    }
}

#[test]
fn fast_link_after_a_slow_one_never_runs_dry() {
    let slow = LinkConfig { bandwidth_bits_per_s: 800_000_000, ..PLAIN };
    let links = vec![slow, PLAIN];
    let config =
        FabricConfig { links, forwarding: Forwarding::CutThrough, switch_fall_through: Span::ZERO, seed: 0 };
    let mut fabric = Fabric::new(&config).unwrap();
    let deliveries = send(&mut fabric, 0, 0, &unicast(0, 1, 200));
    assert_eq!(deliveries[0].at.as_ps(), (2_000 + 100 + 100) * NS);
}

#[test]
fn ethernet_framing_takes_its_time() {
    let mut fabric = fabric(LinkConfig::ethernet(8_000_000_000), Forwarding::StoreAndForward, 0);
    let first = send(&mut fabric, 0, 0, &unicast(0, 1, 20))[0].at;
    let second = send(&mut fabric, 0, 0, &unicast(0, 1, 20))[0].at;
    // At least 60 bytes and 12 of framing, on two links; then 12 of gap between frames.
    assert_eq!(first.as_ps(), (2 * 72 + 90) * NS);
    assert_eq!(second.since(first).as_ps(), 84 * NS);
}

#[test]
fn frames_with_their_own_routing_omit_the_ethernet_header() {
    // The byte after the header is the port; 9 and above means no routing.
    let routing = |frame: &[u8]| frame.get(HEADER_BYTES).map(|&port| port.into()).filter(|&port| port < 9);
    let config = |links| FabricConfig {
        links,
        forwarding: Forwarding::StoreAndForward,
        switch_fall_through: Span::from_ns(90),
        seed: 0,
    };
    let mut fabric =
        Fabric::new(&config(vec![LinkConfig::native(8_000_000_000); 4])).unwrap().routed_by(Some(routing));
    let to = |port: u8| {
        let mut frame = unicast(0, 2, 24);
        frame[HEADER_BYTES] = port;
        frame
    };
    let routed = send(&mut fabric, 0, 0, &to(3));
    assert_eq!((receivers(&routed), routed[0].at.as_ps()), (vec![3], (2 * 10 + 90) * NS), "not to port 2");
    let behind = send(&mut fabric, 0, 0, &to(1));
    assert_eq!(behind[0].at.as_ps(), (10 + 2 * 10 + 90) * NS, "without a gap");
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &to(8))), [0; 0], "there is no such port");
    let ordinary = send(&mut fabric, 1_000, 0, &to(0x55));
    assert_eq!((receivers(&ordinary), ordinary[0].at.as_ps()), (vec![2], (1_000 + 2 * 24 + 90) * NS));
    assert_eq!(fabric.counters(3).unwrap().bytes_out, 10);

    // Faults cannot damage the header, which is not on the wire.
    let corrupt = Faults { corrupt: Chance::ALWAYS, ..Faults::NONE };
    (0..4).for_each(|port| assert!(fabric.set_faults(port, corrupt)));
    for number in 0..500 {
        let bit = send(&mut fabric, 10_000 + number * 100, 0, &to(3))[0].corrupt.unwrap();
        assert!((8 * HEADER_BYTES as u32..8 * 24).contains(&bit), "bit {bit}");
    }
}

#[test]
fn frames_to_one_node_queue_and_the_last_are_dropped() {
    let mut fabric = fabric(LinkConfig { queue_frames: 2, ..PLAIN }, Forwarding::StoreAndForward, 0);
    let arrivals: Vec<_> = (0..2)
        .flat_map(|_| [0, 1, 2])
        .flat_map(|from| send(&mut fabric, 0, from, &unicast(from, 3, 200)))
        .collect();
    let at_ns: Vec<_> = arrivals.iter().map(|delivery| delivery.at.as_ps() / NS).collect();
    // Three frames reach the switch together: one leaves, two wait. When the next three arrive, one slot is free.
    assert_eq!(at_ns, [690, 890, 1_090, 1_290]);
    assert_eq!(fabric.counters(3).unwrap().dropped_queue, 2);
    assert_eq!(fabric.counters(3).unwrap().frames_out, 4);
}

#[test]
fn addresses_are_known_or_learned() {
    let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
    let learned = [0x02, 9, 9, 9, 9, 9];
    let deliveries = send(&mut fabric, 0, 0, &frame(learned, mac_of_node(0), 60));
    assert_eq!(receivers(&deliveries), [1, 2, 3], "unknown: to all others");
    send(&mut fabric, 0, 2, &frame(BROADCAST, learned, 60));
    let deliveries = send(&mut fabric, 0, 0, &frame(learned, mac_of_node(0), 60));
    assert_eq!(receivers(&deliveries), [2], "learned");
    let deliveries = send(&mut fabric, 0, 1, &frame(BROADCAST, mac_of_node(1), 60));
    assert_eq!(receivers(&deliveries), [0, 2, 3]);
    let deliveries = send(&mut fabric, 0, 1, &frame([0x01, 0, 0x5e, 0, 0, 1], mac_of_node(1), 60));
    assert_eq!(receivers(&deliveries), [0, 2, 3], "multicast");
}

#[test]
fn card_cannot_take_the_address_of_another() {
    let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
    send(&mut fabric, 0, 1, &frame(BROADCAST, mac_of_node(2), 60));
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &unicast(0, 2, 60))), [2]);
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &unicast(0, 0, 60))), [0], "to itself");
}

#[test]
fn invented_source_addresses_do_not_grow_the_table() {
    let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
    for i in 0..2_000_u32 {
        let [a, b, c, d] = i.to_be_bytes();
        send(&mut fabric, 0, 1, &frame(mac_of_node(0), [0x06, 0, a, b, c, d], 60));
    }
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &frame([0x06, 0, 0, 0, 0, 1], mac_of_node(0), 60))), [1]);
    let last = [0x06, 0, 0, 0, 7, 207];
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &frame(last, mac_of_node(0), 60))), [1, 2, 3]);
}

#[test]
fn dropped_frames_are_counted_by_cause() {
    let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 0);
    assert!(send(&mut fabric, 0, 0, &[0; 13]).is_empty());
    assert!(send(&mut fabric, 0, 0, &unicast(0, 1, 1_515)).is_empty());
    assert!(fabric.set_link_up(1, false) && !fabric.is_link_up(1));
    assert!(send(&mut fabric, 0, 0, &unicast(0, 1, 60)).is_empty());
    assert!(fabric.set_link_up(1, true));
    assert!(fabric.set_faults(0, Faults { partition: true, ..Faults::NONE }));
    assert!(send(&mut fabric, 0, 0, &unicast(0, 1, 60)).is_empty());
    assert!(send(&mut fabric, 0, 2, &unicast(2, 0, 60)).is_empty());
    let counters = *fabric.counters(0).unwrap();
    assert_eq!((counters.dropped_short, counters.dropped_long, counters.dropped_down), (1, 1, 2));
    assert_eq!(fabric.counters(1).unwrap().dropped_down, 1);
    assert!(fabric.set_faults(0, Faults::NONE));
    assert_eq!(receivers(&send(&mut fabric, 0, 0, &unicast(0, 1, 60))), [1]);
    assert!(!fabric.set_link_up(4, false) && !fabric.set_faults(4, Faults::NONE));
    assert!(send(&mut fabric, 0, 4, &unicast(0, 1, 60)).is_empty());
    assert!(fabric.counters(4).is_none());
}

#[test]
fn each_fault_has_its_effect_and_its_counter() {
    let always = Chance::ALWAYS;
    let with = |faults: Faults| {
        let mut fabric = fabric(PLAIN, Forwarding::CutThrough, 7);
        fabric.set_faults(0, faults);
        let deliveries = send(&mut fabric, 0, 0, &unicast(0, 1, 60));
        (deliveries, *fabric.counters(0).unwrap())
    };
    let (plain, _) = with(Faults::NONE);
    let (lost, counters) = with(Faults { loss: always, ..Faults::NONE });
    assert_eq!((lost.len(), counters.dropped_lost), (0, 1));
    let (duplicated, counters) = with(Faults { duplicate: always, ..Faults::NONE });
    assert_eq!((receivers(&duplicated), counters.duplicated), (vec![1, 1], 1));
    let (corrupted, counters) = with(Faults { corrupt: always, ..Faults::NONE });
    assert!(corrupted[0].corrupt.is_some_and(|bit| bit < 480) && counters.corrupted == 1);
    let (late, counters) = with(Faults { reorder: always, ..Faults::NONE });
    assert_eq!((late[0].at.since(plain[0].at), counters.reordered), (Faults::NONE.reorder_delay, 1));
    let (delayed, _) = with(Faults { delay: Span::from_ns(5), ..Faults::NONE });
    assert_eq!(delayed[0].at.since(plain[0].at), Span::from_ns(5));
}

#[test]
fn a_link_without_bandwidth_is_refused() {
    let links = vec![PLAIN, LinkConfig { bandwidth_bits_per_s: 0, ..PLAIN }];
    let config =
        FabricConfig { links, forwarding: Forwarding::CutThrough, switch_fall_through: Span::ZERO, seed: 0 };
    assert_eq!(Fabric::new(&config).err(), Some(LinkError::NoBandwidth { port: 1 }));
}

const TROUBLE: f64 = 0.2;

fn trouble() -> Faults {
    let some = Chance::from_probability(TROUBLE);
    Faults { loss: some, duplicate: some, corrupt: some, reorder: some, ..Faults::NONE }
}

fn afflict_all(fabric: &mut Fabric) {
    for port in fabric.ports() {
        assert!(fabric.set_faults(port, trouble()));
    }
}

proptest! {
    #[test]
    fn faults_of_a_seed_do_not_depend_on_other_traffic(
        seed: u64,
        others in prop::collection::vec(any::<bool>(), 50),
    ) {
        let run = |with_others: bool| {
            let mut fabric = fabric(PLAIN, Forwarding::CutThrough, seed);
            afflict_all(&mut fabric);
            let mut seen = Vec::new();
            for (i, other) in others.iter().enumerate() {
                if with_others && *other {
                    send(&mut fabric, i as u64 * 10_000, 2, &unicast(2, 3, 100));
                }
                seen.push(send(&mut fabric, i as u64 * 10_000, 0, &unicast(0, 1, 100)));
            }
            seen
        };
        prop_assert_eq!(run(false), run(true));
    }

    #[test]
    fn fate_of_a_frame_does_not_depend_on_faults_of_others(
        seed: u64,
        changes in prop::collection::vec(0..4_u8, 50),
    ) {
        let run = |with_changes: bool| {
            let mut fabric = fabric(PLAIN, Forwarding::CutThrough, seed);
            let mut seen = Vec::new();
            for (i, change) in changes.iter().enumerate() {
                let in_force = match change {
                    1 if with_changes => Faults::NONE,
                    2 if with_changes => Faults { partition: true, ..trouble() },
                    3 if with_changes => Faults { loss: Chance::ALWAYS, ..trouble() },
                    _ => trouble(),
                };
                // Only the last link: frames that an earlier link drops are not counted here.
                assert!(fabric.set_faults(1, in_force));
                let delivered = send(&mut fabric, i as u64 * 10_000, 0, &unicast(0, 1, 100));
                seen.push((*change == 0).then_some(delivered));
            }
            seen
        };
        prop_assert_eq!(run(true), run(false));
    }

    #[test]
    fn every_frame_is_delivered_or_counted(
        seed: u64,
        sends in prop::collection::vec((0..4_u16, 0..4_u16, 14..1_600_usize, 0..50_000_u64), 0..100),
    ) {
        let mut fabric = fabric(LinkConfig { queue_frames: 3, ..PLAIN }, Forwarding::CutThrough, seed);
        afflict_all(&mut fabric);
        let mut delivered = 0;
        for (from, to, bytes, now_ns) in &sends {
            let deliveries = send(&mut fabric, *now_ns, *from, &unicast(*from, *to, *bytes));
            prop_assert!(deliveries.iter().all(|delivery| {
                delivery.to == *to
                    && delivery.at > Time::from_ps(now_ns * NS)
                    && delivery.corrupt.is_none_or(|bit| bit < *bytes as u32 * 8)
            }), "{:?}", deliveries);
            delivered += deliveries.len() as u64;
        }
        let counters: Vec<_> = (0..4).map(|port| *fabric.counters(port).unwrap()).collect();
        let sum = |of: fn(&PortCounters) -> u64| counters.iter().map(of).sum::<u64>();
        let dropped = sum(|c| c.dropped_lost + c.dropped_queue + c.dropped_long);
        prop_assert_eq!(delivered + dropped, sends.len() as u64 + sum(|c| c.duplicated));
        prop_assert_eq!(delivered, sum(|c| c.frames_out));
    }
}

fn link() -> impl Strategy<Value = LinkConfig> {
    let wire = (1_000_000_000..20_000_000_000_u64, 0..300_u64, 60..2_000_u32);
    (wire, 0..20_u32, 0..80_u32, 0..20_u32, 0..4_u32).prop_map(
        |(wire, framing_bytes, min_frame_bytes, gap_bytes, queue_frames)| {
            let (bandwidth_bits_per_s, latency_ns, mtu_bytes) = wire;
            let latency = Span::from_ns(latency_ns);
            LinkConfig {
                bandwidth_bits_per_s,
                latency,
                mtu_bytes,
                framing_bytes,
                min_frame_bytes,
                gap_bytes,
                queue_frames,
            }
        },
    )
}

proptest! {
    /// Includes frames whose head leaves before the tail is ready, as of cards that forward words as they come, and
    /// frames with routing of their own.
    #[test]
    fn batch_passes_as_its_frames_one_by_one(
        links in prop::collection::vec(link(), 3),
        (is_cut_through, is_routed) in any::<(bool, bool)>(),
        is_on in prop::bool::weighted(0.9),
        past in prop::collection::vec((0..3_u16, 0..3_u16, 0..9_000_u64, 14..2_200_usize), 0..8),
        bytes in 14..1_600_usize,
        steps in prop::collection::vec((0..1_500_u64, prop_oneof![2 => Just(0), 1 => 0..1_500_u64]), 0..70),
    ) {
        let forwarding = if is_cut_through { Forwarding::CutThrough } else { Forwarding::StoreAndForward };
        let config = FabricConfig { links, forwarding, switch_fall_through: Span::from_ns(90), seed: 5 };
        let [mut single, mut batch] = [(); 2].map(|()| Fabric::new(&config).unwrap());
        for fabric in [&mut single, &mut batch] {
            fabric.ledgers_mut().for_each(|ledger| ledger.set_on(is_on));
            for &(from, to, at_ns, bytes) in &past {
                send(fabric, at_ns, from, &unicast(from, to, bytes));
            }
            fabric.switching.routing = is_routed.then_some(|_| Some(1));
        }
        let (from, to) = (2, 1);
        let frame = unicast(from, to, bytes);
        let mut at = Time::from_ps(5_000 * NS);
        let ready = |&(step, longer): &(u64, u64)| {
            at += Span::from_ns(step);
            Passage { head: at, tail: at + Span::from_ns(longer) }
        };
        let readies: Vec<Passage> = steps.iter().map(ready).collect();
        let first = TraceTag { node: from, port: 0, number: 0, launched: Time::ZERO, bytes: 0 };
        let tag = |number: usize| TraceTag { number: number as u64, ..first };
        let Fabric { ports, switching } = &mut batch;
        let on_wire = if is_routed { bytes - HEADER_BYTES } else { bytes };
        let fits = config.links[2].mtu_bytes.min(config.links[1].mtu_bytes) as usize + HEADER_BYTES >= on_wire;
        let route = switching.batch_route(&mut ports.own, from, (&*frame).into());
        prop_assert_eq!(route, (fits && !is_routed).then_some(to), "frames with their own routing go alone");
        let [near, far] = ports.own.get_disjoint_mut([usize::from(from), usize::from(to)]).unwrap();
        let length = BatchLength { bytes, is_routed };
        let room = switching.batch_room(near, far, length);
        prop_assert!(fits || room == 0);
        if !fits || readies.is_empty() {
            return Ok(());
        }
        let frame_at = |&ready: &Passage| BatchFrame { launched: Time::ZERO, passage: Some(ready) };
        let mut frames: Vec<_> = readies.iter().map(frame_at).collect();
        switching.forward_batch((near, far), length, &mut frames, Some(tag(readies.len())));
        prop_assert!(frames.iter().take(room).all(|frame| frame.passage.is_some()), "there was room for {}", room);
        let mut deliveries = Deliveries::new();
        for (place, &ready) in readies.iter().enumerate() {
            deliveries.clear();
            single.forward(ready, from, &*frame, Some(tag(place + 1)), &mut deliveries);
            let passage = deliveries.first().map(|&Delivery { head, at: tail, .. }| Passage { head, tail });
            prop_assert_eq!(frames[place].passage, passage);
        }
        prop_assert_eq!(alloc::format!("{:?}", batch.all()), alloc::format!("{:?}", single.all()));
        prop_assert_eq!(alloc::format!("{:?}", batch.switching), alloc::format!("{:?}", single.switching));
    }
}

#[test]
fn frames_that_must_go_alone_form_no_batch() {
    let route = |fabric: &mut Fabric, from: u16, frame: &[u8]| {
        fabric.switching.batch_route(&mut fabric.ports.own, from, frame.into())
    };
    let plain = || fabric(PLAIN, Forwarding::CutThrough, 3);
    assert_eq!(route(&mut plain(), 0, &unicast(0, 2, 60)), Some(2));
    assert_eq!(route(&mut plain(), 0, &unicast(0, 0, 60)), None, "to itself");
    assert_eq!(route(&mut plain(), 0, &frame(BROADCAST, mac_of_node(0), 60)), None, "to all");
    assert_eq!(route(&mut plain(), 0, &unicast(0, 2, 1_515)), None, "too long");
    assert_eq!(route(&mut plain(), 0, &[0; HEADER_BYTES - 1]), None, "no header");
    type Change = fn(&mut Fabric, u16);
    let changes: [(&str, Change); 3] = [
        ("link down", |fabric, port| assert!(fabric.set_link_up(port, false))),
        ("delay", |fabric, port| {
            assert!(fabric.set_faults(port, Faults { delay: Span::from_ns(1), ..Faults::NONE }));
        }),
        ("stages kept", |fabric, port| fabric.ports.own[usize::from(port)].ledger_mut().record_stages(1)),
    ];
    for (what, change) in changes {
        for port in [0, 2] {
            let mut fabric = plain();
            change(&mut fabric, port);
            assert_eq!(route(&mut fabric, 0, &unicast(0, 2, 60)), None, "{what} at {port}");
        }
    }
}
