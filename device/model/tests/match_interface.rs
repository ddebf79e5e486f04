//! What a program sees of a Match card: commands in, events and memory out. Cards on one wire that takes no time.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use niclab_abi::event::CAUSE_MESSAGE;
use niclab_abi::matching::*;
use niclab_model::nic::Nic;

use support::matching::{Cluster, PUT_ENTRY, Posted, Transfer, pattern};

const A: u64 = 0x1_0000;
const B: u64 = 0x2_0000;

/// Two nodes with a port each, and 64 KB of memory registered on both.
fn pair() -> (Cluster, u32, u32) {
    let mut cluster = Cluster::new(2);
    assert_eq!((cluster.open(0), cluster.open(1)), (0, 0));
    let from = cluster.register(0, 0, &[(A, 0x1_0000)]);
    let to = cluster.register(1, 0, &[(B, 0x1_0000)]);
    (cluster, from, to)
}

#[test]
fn a_put_is_stored_where_the_entry_says_and_told_at_both_ends() {
    let (mut cluster, from, to) = pair();
    let data = pattern(1, 100);
    cluster.write(0, A + 10, &data);
    let entry = Posted { match_bits: 5, user: 77, region: to, offset: 32, bytes: 200, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY, &entry);
    let put = Transfer {
        match_bits: 5,
        header_data: 99,
        user: 66,
        node: 1,
        region: from,
        offset: 10,
        bytes: 100,
        ..Transfer::default()
    };
    cluster.put(0, 0, COMMAND_ACK | COMMAND_SENT | COMMAND_INTERRUPT, &put);
    cluster.settle();
    assert_eq!(cluster.read(1, B + 32, 100), data);
    let event = cluster.event(1, 0).unwrap();
    assert_eq!((event.kind, event.result, event.handle), (EVENT_PUT, RESULT_OK, 1));
    let words = event.words;
    assert_eq!((words.user, words.match_bits, words.header_data), (77, 5, 99));
    assert_eq!((words.requested_bytes, words.moved_bytes, words.offset), (100, 100, 0));
    let event = cluster.event(1, 0).unwrap();
    assert_eq!((event.kind, event.handle, event.words.user), (EVENT_UNLINKED, 1, 77));
    assert_eq!(cluster.event(1, 0), None);
    assert_eq!(cluster.hosts[1].interrupts, [(CAUSE_MESSAGE, 0)]);
    let [sent, ack] = [cluster.event(0, 0).unwrap(), cluster.event(0, 0).unwrap()];
    assert_eq!((sent.kind, sent.words.user, sent.words.moved_bytes), (EVENT_SENT, 66, 100));
    assert_eq!((ack.kind, ack.result, ack.words.moved_bytes), (EVENT_ACK, RESULT_OK, 100));
    assert!(cluster.hosts.iter().all(|host| host.nic.poll_timeout().is_none()), "all is quiet");
}

#[test]
fn puts_of_all_sizes_arrive_whole() {
    let (mut cluster, from, to) = pair();
    for bytes in [0, 1, 7, 8, 64, 1_411, 1_412, 1_413, 3_000, 0x1_0000] {
        let data = pattern(bytes, bytes as usize);
        cluster.write(0, A, &data);
        cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 0x1_0000, ..Posted::default() });
        cluster.put(0, 0, 0, &Transfer { node: 1, region: from, bytes, ..Transfer::default() });
        cluster.settle();
        assert_eq!(cluster.read(1, B, bytes as usize), data, "{bytes}");
        assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_OK), (EVENT_UNLINKED, RESULT_OK)]);
        cluster.release(1, 0);
    }
    assert_eq!(cluster.kinds(0, 0), []);
}

#[test]
fn a_get_brings_what_the_entry_has() {
    let (mut cluster, from, to) = pair();
    let data = pattern(3, 5_000);
    cluster.write(1, B + 100, &data);
    let entry = Posted { user: 9, region: to, offset: 100, bytes: 5_000, ..Posted::default() };
    cluster.append(1, 0, ENTRY_GET | ENTRY_TRUNCATE, &entry);
    let get = Transfer { user: 8, node: 1, region: from, bytes: 6_000, ..Transfer::default() };
    cluster.get(0, 0, 0, &get);
    cluster.settle();
    assert_eq!(cluster.read(0, A, 5_000), data);
    let reply = cluster.event(0, 0).unwrap();
    assert_eq!((reply.kind, reply.result, reply.words.moved_bytes), (EVENT_REPLY, RESULT_TRUNCATED, 5_000));
    assert_eq!(cluster.kinds(1, 0), [(EVENT_GET, RESULT_TRUNCATED), (EVENT_UNLINKED, RESULT_OK)]);
    cluster.get(0, 0, 0, &get);
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_REPLY, RESULT_NO_MATCH)]);
}

#[test]
fn what_nobody_expected_is_found_by_the_entry_that_comes_later() {
    let (mut cluster, from, to) = pair();
    let overflow = Posted {
        user: 1,
        ignore_bits: !0,
        region: to,
        bytes: 4_096,
        threshold: THRESHOLD_INFINITE,
        ..Posted::default()
    };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_OVERFLOW, &overflow);
    for tag in [5, 6, 5] {
        cluster.write(0, A, &pattern(tag, 50));
        cluster.put(
            0,
            0,
            0,
            &Transfer { match_bits: tag, node: 1, region: from, bytes: 50, ..Transfer::default() },
        );
        cluster.settle();
    }
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT_UNEXPECTED, RESULT_OK); 3]);
    cluster.append(
        1,
        0,
        PUT_ENTRY,
        &Posted { match_bits: 6, user: 2, region: to, bytes: 50, ..Posted::default() },
    );
    let event = cluster.event(1, 0).unwrap();
    assert_eq!((event.kind, event.words.user, event.words.overflow_user), (EVENT_PUT_OVERFLOW, 2, 1));
    assert_eq!((event.words.offset, event.words.overflow_handle, event.handle), (50, 1, 2));
    assert_eq!(cluster.read(1, B + event.words.offset, 50), pattern(6, 50));
    assert_eq!(cluster.kinds(1, 0), [(EVENT_UNLINKED, RESULT_OK)]);
    // Two at once, and a place for a third.
    cluster.append(
        1,
        0,
        PUT_ENTRY,
        &Posted { match_bits: 5, threshold: 3, region: to, bytes: 150, ..Posted::default() },
    );
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT_OVERFLOW, RESULT_OK); 2]);
    cluster.put(
        0,
        0,
        0,
        &Transfer { match_bits: 5, node: 1, region: from, bytes: 50, ..Transfer::default() },
    );
    cluster.settle();
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_OK), (EVENT_UNLINKED, RESULT_OK)]);
}
