//! The daemon's counts for a report: counters of a part of a run, latencies, ledgers, pages, exactness.

use crate::common::{TIMEOUT, frame, lab, pair, stats, stream, until};
use niclab_abi::bar::CODE_INTERRUPT;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::report::LedgerEntry;

pub fn ask(lab: &Lab, request: &Request) -> DaemonStats {
    match answer(lab.daemon().shell(), request) {
        Answer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn entry<'a>(ledger: &'a [LedgerEntry], transaction: &str) -> &'a LedgerEntry {
    let entry = ledger.iter().find(|entry| entry.transaction == transaction);
    entry.unwrap_or_else(|| panic!("no {transaction} in {ledger:?}"))
}

#[test]
fn measurement_counts_only_what_follows_its_begin() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 500);
    assert_eq!(ask(&lab, &Request::Stats).model.latency.count, 500);
    let before = ask(&lab, &Request::BeginMeasurement);
    let clocks: Vec<u64> = before.nodes.iter().map(|node| node.model_time_ps).collect();
    assert_eq!(clocks, [before.model.time_ps; 2], "all begin at the same time");
    assert_eq!(ask(&lab, &Request::Stats).model.latency.count, 0);
    stream(&mut a, &mut b, 300);
    let since = ask(&lab, &Request::Stats).since(&before);
    let [sender, receiver] = since.nodes.as_slice() else { panic!("{since:?}") };
    assert_eq!((sender.messages_sent, receiver.messages_received), (300, 300));
    let [page] = sender.ports.as_slice() else { panic!("{:?}", sender.ports) };
    assert_eq!((page.port, page.launches), (a.number(), 300));
    assert!(receiver.ports.is_empty(), "a page without posts and interrupts is not listed");
    assert_eq!(entry(&sender.ledger, "host_send").count, 300);
    assert_eq!(entry(&receiver.ledger, "host_receive").count, 300);
    assert!(entry(&since.fabric.ledger, "serialization").count >= 600, "both links of the route");
    assert_eq!(receiver.model_latency, since.model.latency, "only one node received");
    let latency = since.model.latency;
    assert!(latency.count == 300 && 0 < latency.min_ps && latency.min_ps <= latency.p50_ps, "{latency:?}");
    assert!(latency.p50_ps <= latency.p999_ps && latency.p999_ps <= latency.max_ps, "{latency:?}");
    assert!(latency.sum_ps >= 300 * latency.min_ps && latency.sum_ps <= 300 * latency.max_ps, "{latency:?}");
}

#[test]
fn fault_free_stream_takes_the_fast_path_and_is_counted_so() {
    // With 64 slices, a receiver releases sixteen at a time: one frame with credits for each burst.
    const BURST: u64 = 16;
    const MESSAGES: u64 = 480;
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let before = ask(&lab, &Request::Stats);
    for burst in 1..=MESSAGES / BURST {
        stream(&mut a, &mut b, BURST);
        // Messages that wait for a credit take the slow path, and their number depends on the host's threads. So no
        // message waits.
        until("credits of a burst", || stats(&lab, 1).cluster.sent_frames >= burst);
    }
    let since = ask(&lab, &Request::Stats).since(&before);
    let batched: u64 = since.nodes.iter().filter_map(|node| node.shortcuts.get("batched")).sum();
    assert!(batched * 10 >= MESSAGES * 9 && batched <= MESSAGES, "{batched} of {MESSAGES}");
}

#[test]
fn interrupts_are_counted_by_cause_and_by_page() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    guests[1].offer_event_buffers(64).unwrap();
    for index in 0..7_u64 {
        assert!(a.try_launch(&[index], [0, 0], CODE_INTERRUPT));
        a.announce();
        until("a message", || b.try_receive().is_some());
    }
    let node = ask(&lab, &Request::Stats).nodes.swap_remove(1);
    assert_eq!(node.interrupts.get("message"), Some(&7), "{:?}", node.interrupts);
    let [page] = node.ports.as_slice() else { panic!("{:?}", node.ports) };
    assert_eq!((page.port, page.launches), (b.number(), 0));
    assert_eq!(page.interrupts, [("message".to_owned(), 7)].into());
}

#[test]
fn ordinary_frames_have_a_separate_ledger() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, 0).unwrap();
    let mut to = lab.ethernet(1, 0).unwrap();
    let before = ask(&lab, &Request::BeginMeasurement);
    for _ in 0..3 {
        assert!(from.send(&frame(lab.mac(0), lab.mac(1), 1000)).unwrap());
        to.receive(TIMEOUT).unwrap();
    }
    let since = ask(&lab, &Request::Stats).since(&before);
    let [sender, receiver] = since.nodes.as_slice() else { panic!("{since:?}") };
    assert!(sender.ledger.is_empty() && receiver.ledger.is_empty(), "the modelled NIC has no transactions");
    assert_eq!(entry(&sender.ethernet_ledger, "dma_read").bytes, 3000);
    assert_eq!(entry(&receiver.ethernet_ledger, "dma_write").bytes, 3000);
    let latency = receiver.ethernet_model_latency;
    assert!(latency.count == 3 && latency.min_ps > 0, "{latency:?}");
    assert_eq!(receiver.model_latency.count, 0);
    assert!(!since.model.is_exact);
    let why = since.model.why_estimate.unwrap();
    assert!(why.contains("3 Ethernet frames"), "{why}");
}
