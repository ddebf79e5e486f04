//! The figures of the ULTRA paper, section 4: requester and completer connected to each other, without bus and network.

use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::{Input, Nic, Output};
use niclab_model::platform::profile::{NiPrices, Passing, Profile};
use niclab_model::time::Time;

use crate::support::{authorize_request, control, open_port, route_request, store};

const BASE: u64 = 0x1000;
const SLICES: u32 = 4096;

/// The paper's NIC with a host and a bus that cost nothing. What remains is the paper's "at the NIC".
fn at_the_nic(of: Profile) -> Profile {
    let ni: NiPrices = of.ni;
    Profile { ni, ..Profile::default() }
}

/// A card with a route to another card that authorized it. All frames of the set-up are delivered.
fn connected_pair(profile: &Profile) -> [Alone<Ultra>; 2] {
    let profile = at_the_nic(profile.clone());
    let mut nics = [0, 1].map(|node| Alone::new(Ultra::new(Config::new(node, 2, profile.clone())).unwrap()));
    let [requester, completer] = &mut nics;
    assert_eq!(open_port(requester, 8, BASE, 128), 0);
    assert_eq!(open_port(completer, SLICES, BASE, 128), 0);
    control(completer, Time::ZERO, &authorize_request(0, 0, 0, SLICES));
    let (_, _, frames) = control(requester, Time::ZERO, &route_request(0, 1, 0));
    for frame in carry(frames, completer) {
        let Output::Frame { at, frame, message, .. } = frame else {
            panic!("the completer announces a credit limit")
        };
        requester.handle(at, Input::Frame { head: at, frame: &frame, message });
    }
    nics
}

/// Delivers frames to a card over a link that takes no time. Returns the card's outputs.
fn carry(outputs: impl IntoIterator<Item = Output>, to: &mut Alone<Ultra>) -> Vec<Output> {
    for output in outputs {
        if let Output::Frame { at, tail, frame, message } = output {
            to.handle(tail, Input::Frame { head: at, frame: &frame, message });
        }
    }
    drain(to)
}

fn drain(nic: &mut Alone<Ultra>) -> Vec<Output> {
    std::iter::from_fn(|| nic.poll_output()).collect()
}

/// Times at which the slices of `count` packets of `payload_words` were stored, in picoseconds after `begin`. All
/// packets are posted at `begin`.
fn stored_at_ps(profile: &Profile, payload_words: usize, count: usize, begin: Time) -> Vec<u64> {
    let [mut requester, mut completer] = connected_pair(profile);
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

/// A time long after the set-up, when all machines are idle.
const LATER: Time = Time::from_ps(1_000_000_000);

fn latency_ps(profile: &Profile, payload_words: usize) -> u64 {
    stored_at_ps(profile, payload_words, 1, LATER)[0]
}

/// The cycles were fitted to these two latencies and the two bandwidths below. So these tests check that the fit is
/// still in place; they prove nothing about the paper's card.
#[test]
fn the_fitted_cycles_give_115_and_380_ns() {
    let fitted = Profile::ultra_200mhz_htx_fitted();
    assert_within_1_percent(latency_ps(&fitted, 0) as f64, 115_000.0);
    assert_within_1_percent(latency_ps(&fitted, 8) as f64, 380_000.0);
}

/// Latency derived from the states, counted here state by state, for a packet that meets no other packet. The paper has
/// 23 and 76 cycles.
#[test]
fn cut_through_takes_the_states_that_do_not_overlap() {
    const CYCLE_PS: u64 = 5_000;
    let profile = Profile::ultra_200mhz_htx();
    for payload_words in 0..=8_u64 {
        let words = payload_words + 2;
        // Offset and first word; look-up and routing frame; routing frame again, header, authorization and first word;
        // memories and first word; the other words, one per cycle; the status word.
        let cycles = 2 + 2 + 4 + 2 + (words - 1) + 1;
        assert_eq!(latency_ps(&profile, payload_words as usize), cycles * CYCLE_PS, "{words} words");
        let mut whole = profile.clone();
        whole.ni.passing = Passing::StoreAndForward;
        // Every state of every machine; each word passes four machines.
        let cycles = (1 + 1) + (3 + 1) + (3 + 1) + (1 + 1) + 4 * words;
        assert_eq!(
            latency_ps(&whole, payload_words as usize),
            cycles * CYCLE_PS,
            "{words} words, store and forward"
        );
    }
}

#[test]
fn the_cards_parameter_overrides_the_platform() {
    for (platform, own, expected) in [
        (Passing::CutThrough, None, Passing::CutThrough),
        (Passing::StoreAndForward, None, Passing::StoreAndForward),
        (Passing::CutThrough, Some(Passing::StoreAndForward), Passing::StoreAndForward),
        (Passing::StoreAndForward, Some(Passing::CutThrough), Passing::CutThrough),
    ] {
        let mut profile = Profile::ultra_200mhz_htx();
        profile.ni.passing = platform;
        let config = Config { passing: own, ..Config::new(0, 2, profile) };
        assert_eq!(config.passing(), expected);
    }
}

fn megabytes_per_s(payload_words: usize) -> f64 {
    const COUNT: usize = 2_000;
    let stored = stored_at_ps(&Profile::ultra_200mhz_htx_fitted(), payload_words, COUNT, LATER);
    let steady_ps = (stored[COUNT - 1] - stored[COUNT / 2]) as f64;
    let bytes = ((payload_words + 2) * 8 * (COUNT - 1 - COUNT / 2)) as f64;
    bytes * 1e6 / steady_ps
}

#[test]
fn the_fitted_cycles_give_325_megabytes_per_s_at_16_bytes() {
    assert_within_1_percent(megabytes_per_s(0), 325.0);
}

#[test]
fn the_fitted_cycles_exceed_700_mb_per_s_at_80_bytes() {
    let found = megabytes_per_s(8);
    assert!((700.0..770.0).contains(&found), "found {found}");
}

#[test]
fn a_full_fifo_holds_the_host() {
    const COUNT: u64 = 100;
    let [mut requester, _] = connected_pair(&Profile::ultra_200mhz_htx_fitted());
    for _ in 0..COUNT {
        requester.handle(LATER, Input::PageStore(store(0, &[7; 8], [8, 9], 0)));
        drain(&mut requester);
    }
    // 128 words hold 12 packets of 10; TX takes 21.85 cycles for each.
    let held_ns = requester.host_clock().since(LATER).as_ps() / 1_000;
    let transmit_ns = |packets: u64| packets * 109;
    assert!((transmit_ns(COUNT - 14)..transmit_ns(COUNT - 11)).contains(&held_ns), "held for {held_ns} ns");
}
