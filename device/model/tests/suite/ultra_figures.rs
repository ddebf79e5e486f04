//! The figures of the ULTRA paper, section 4: requester and completer connected to each other, without bus and network.

use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::{Input, Nic, Output};
use niclab_model::platform::profile::{NiPrices, Profile};
use niclab_model::time::Time;

use crate::support::{authorize_request, control, open_port, route_request, store};

const BASE: u64 = 0x1000;
const SLICES: u32 = 4096;

/// The paper's NIC with a host and a bus that cost nothing: what is left is "at the NIC".
fn at_the_nic() -> Profile {
    let ni: NiPrices = Profile::ultra_200mhz_htx().ni;
    Profile { ni, ..Profile::default() }
}

/// A card routed to another that authorized it; frames of the set-up are carried.
fn connected_pair() -> [Alone<Ultra>; 2] {
    let mut nics = [0, 1].map(|node| Alone::new(Ultra::new(Config::new(node, 2, at_the_nic())).unwrap()));
    let [requester, completer] = &mut nics;
    assert_eq!(open_port(requester, 8, BASE, 128), 0);
    assert_eq!(open_port(completer, SLICES, BASE, 128), 0);
    control(completer, Time::ZERO, &authorize_request(0, 0, 0, SLICES));
    let (_, _, frames) = control(requester, Time::ZERO, &route_request(0, 1, 0));
    for frame in carry(frames, completer) {
        let Output::Frame { at, frame, message, .. } = frame else { panic!("a limit is announced") };
        requester.handle(at, Input::Frame { head: at, frame: &frame, message });
    }
    nics
}

/// Gives frames to a card over a link that takes no time.
fn carry(outputs: impl IntoIterator<Item = Output>, to: &mut Alone<Ultra>) -> Vec<Output> {
    for output in outputs {
        if let Output::Frame { at, frame, message, .. } = output {
            to.handle(at, Input::Frame { head: at, frame: &frame, message });
        }
    }
    drain(to)
}

fn drain(nic: &mut Alone<Ultra>) -> Vec<Output> {
    std::iter::from_fn(|| nic.poll_output()).collect()
}

/// When the slices of `count` packets of `payload_words`, all launched at `begin`, were stored; picoseconds.
fn stored_at_ps(payload_words: usize, count: usize, begin: Time) -> Vec<u64> {
    let [mut requester, mut completer] = connected_pair();
    let mut stored = Vec::new();
    for _ in 0..count {
        assert!(requester.accepts_store(0));
        let burst = store(0, &vec![7; payload_words], [8, 9], 0);
        requester.handle(begin, Input::PageStore(burst));
        let outputs = drain(&mut requester);
        let slices = carry(outputs, &mut completer).into_iter().filter_map(|output| match output {
            Output::DmaWrite { at, .. } => Some(at.since(begin).as_ps()),
            _ => None,
        });
        stored.extend(slices);
    }
    assert_eq!(stored.len(), count);
    stored
}

fn assert_within_1_percent(found: f64, paper: f64) {
    assert!((found / paper - 1.0).abs() < 0.01, "found {found}, paper {paper}");
}

/// Long after the set-up, when all machines rest.
const LATER: Time = Time::from_ps(1_000_000_000);

#[test]
fn latency_of_2_words_is_115_ns() {
    assert_within_1_percent(stored_at_ps(0, 1, LATER)[0] as f64, 115_000.0);
}

#[test]
fn latency_of_10_words_is_380_ns() {
    assert_within_1_percent(stored_at_ps(8, 1, LATER)[0] as f64, 380_000.0);
}

fn megabytes_per_s(payload_words: usize) -> f64 {
    const COUNT: usize = 2_000;
    let stored = stored_at_ps(payload_words, COUNT, LATER);
    let steady_ps = (stored[COUNT - 1] - stored[COUNT / 2]) as f64;
    let bytes = ((payload_words + 2) * 8 * (COUNT - 1 - COUNT / 2)) as f64;
    bytes * 1e6 / steady_ps
}

#[test]
fn bandwidth_of_16_bytes_is_325_megabytes_per_s() {
    assert_within_1_percent(megabytes_per_s(0), 325.0);
}

#[test]
fn bandwidth_of_80_bytes_exceeds_700_megabytes_per_s() {
    let found = megabytes_per_s(8);
    assert!((700.0..770.0).contains(&found), "found {found}");
}

#[test]
fn a_full_fifo_holds_the_host() {
    const COUNT: u64 = 100;
    let [mut requester, _] = connected_pair();
    for _ in 0..COUNT {
        requester.handle(LATER, Input::PageStore(store(0, &[7; 8], [8, 9], 0)));
        drain(&mut requester);
    }
    // 128 words hold 12 packets of 10; TX takes 21.85 cycles for each.
    let held_ns = requester.host_clock().since(LATER).as_ps() / 1_000;
    let transmit_ns = |packets: u64| packets * 109;
    assert!((transmit_ns(COUNT - 14)..transmit_ns(COUNT - 11)).contains(&held_ns), "held for {held_ns} ns");
}
