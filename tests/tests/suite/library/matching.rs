//! The library for ports of the Match NIC: each documented property, on the daemon's own model of the card.

use std::sync::Arc;

use niclab_port::matching::Part;
use niclab_user::matching::{
    Append, Count, Event, EventKind, Get, Handle, Outcome, Port, Put, Region, Target, Unlink,
};
use niclab_user::{Address, Error, SharedMemory, WaitPolicy};

use super::{Cluster, SHORT, TIMEOUT, node, pages, until};

/// A handle that belongs to no entry.
fn no_entry() -> Handle {
    Handle::from_number(u32::MAX)
}

/// Two nodes, each with an open port and a region of one page.
struct Pair {
    ports: [Port; 2],
    regions: [Region; 2],
    cluster: Cluster,
}

impl Pair {
    fn new() -> Self {
        let cluster = Cluster::new(2, "match", |_| {});
        let ports = [0, 1].map(|node| Port::from_parts(cluster.open(node, 16)).expect("a port"));
        let regions = [0, 1].map(|node: usize| ports[node].allocate(4096).expect("a region"));
        Self { ports, regions, cluster }
    }

    fn event(&mut self, node: usize) -> Event {
        self.ports[node].event(TIMEOUT).expect("an event")
    }

    /// Asserts that no event is pending at this node.
    fn assert_no_event(&mut self, node: usize) {
        assert_eq!(self.pending_events(node), []);
    }

    /// Returns the pending events of this node. To find the last one, posts an unlink of no entry: the card reports its
    /// result after all earlier events.
    fn pending_events(&mut self, node: usize) -> Vec<Event> {
        self.ports[node].launch(&Unlink(no_entry()), TIMEOUT).expect("posted");
        let mut events = Vec::new();
        loop {
            let event = self.event(node);
            if (event.kind, event.handle) == (EventKind::Unlinked, no_entry()) {
                return events;
            }
            events.push(event);
        }
    }
}

/// A portal of node 1.
fn portal(number: u32) -> Target {
    Target { port: node(1), portal: number }
}

#[test]
fn a_put_is_stored_in_the_posted_entry_and_reported() {
    let mut pair = Pair::new();
    let entry = Append::put(3, pair.regions[1].span(100..200).expect("inside the region"))
        .match_bits(0xab00, 0xff)
        .source_node(0)
        .user(17);
    let handle = pair.ports[1].launch(&entry, TIMEOUT).expect("posted");
    pair.regions[0].write(8, b"hello, portal").expect("inside the region");
    let put = Put::new(portal(3), pair.regions[0].span(8..21).expect("inside the region"))
        .match_bits(0xab42)
        .header_data(99)
        .user(5)
        .sent()
        .ack();
    pair.cluster.settle(1);
    let command = pair.ports[0].launch(&put, TIMEOUT).expect("posted");

    let expected = Event {
        kind: EventKind::Put,
        outcome: Outcome::Done,
        handle,
        user: 17,
        initiator: node(0),
        portal: 3,
        match_bits: 0xab42,
        header_data: 99,
        requested_bytes: 13,
        moved_bytes: 13,
        offset: 0,
    };
    assert_eq!(pair.event(1), expected);
    let mut text = [0; 13];
    pair.regions[1].read(100, &mut text).expect("inside the region");
    assert_eq!(&text, b"hello, portal");
    assert_eq!(pair.event(1).kind, EventKind::Unlinked);
    let (sent, acknowledged) = (pair.event(0), pair.event(0));
    assert_eq!((sent.kind, sent.handle, sent.user), (EventKind::Sent, command, 5));
    assert_eq!((acknowledged.kind, acknowledged.outcome), (EventKind::Acknowledged, Outcome::Done));
    pair.assert_no_event(0);
    pair.assert_no_event(1);
}

#[test]
fn an_unmatched_put_is_reported_to_its_initiator() {
    let mut pair = Pair::new();
    let put = Put::new(portal(0), pair.regions[0].all()).ack();
    pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    assert_eq!(pair.event(0).outcome, Outcome::NoMatch);
    let nowhere = Target { port: node(7), portal: 0 };
    pair.ports[0].launch(&Put::new(nowhere, pair.regions[0].all()).ack(), TIMEOUT).expect("posted");
    assert_eq!(pair.event(0).outcome, Outcome::NoTarget);
    pair.assert_no_event(1);
}

#[test]
fn an_unexpected_message_is_claimed_from_the_overflow_entry() {
    let mut pair = Pair::new();
    let overflow =
        Append::put(0, pair.regions[1].all()).match_bits(0, u64::MAX).overflow().persistent().user(1);
    let overflow = pair.ports[1].launch(&overflow, TIMEOUT).expect("posted");
    pair.cluster.settle(1);
    let put = Put::new(portal(0), pair.regions[0].span(0..16).expect("inside the region")).match_bits(4);
    pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    assert_eq!(pair.event(1).kind, EventKind::Unexpected);

    let entry = Append::put(0, pair.regions[1].span(0..64).expect("inside the region"))
        .match_bits(4, 0)
        .no_unlink_event();
    let handle = pair.ports[1].launch(&entry, TIMEOUT).expect("posted");
    let claimed = pair.event(1);
    assert_eq!(claimed.kind, EventKind::Claimed { overflow, overflow_user: 1 });
    assert_eq!((claimed.handle, claimed.moved_bytes), (handle, 16));
    pair.assert_no_event(1);
}

#[test]
fn a_get_reads_the_entrys_memory() {
    let mut pair = Pair::new();
    pair.regions[1].write(40, &[7; 24]).expect("inside the region");
    let entry =
        Append::get(2, pair.regions[1].span(32..96).expect("inside the region")).remote_offset().persistent();
    pair.ports[1].launch(&entry, TIMEOUT).expect("posted");
    pair.cluster.settle(1);
    let get =
        Get::new(portal(2), pair.regions[0].span(0..24).expect("inside the region")).remote_offset(8).user(3);
    pair.ports[0].launch(&get, TIMEOUT).expect("posted");
    let reply = pair.event(0);
    assert_eq!((reply.kind, reply.user, reply.moved_bytes), (EventKind::Reply, 3, 24));
    let mut bytes = [0; 24];
    pair.regions[0].read(0, &mut bytes).expect("inside the region");
    assert_eq!(bytes, [7; 24]);
    let read = pair.event(1);
    assert_eq!((read.kind, read.offset), (EventKind::Get, 8));
}

#[test]
fn an_entry_is_unlinked_once() {
    let mut pair = Pair::new();
    let entry = Append::put(0, pair.regions[1].all()).persistent();
    let handle = pair.ports[1].launch(&entry, TIMEOUT).expect("posted");
    for outcome in [Outcome::Done, Outcome::NotFound] {
        pair.ports[1].launch(&Unlink(handle), TIMEOUT).expect("posted");
        let event = pair.event(1);
        assert_eq!((event.kind, event.handle, event.outcome), (EventKind::Unlinked, handle, outcome));
    }
}

#[test]
fn full_entry_is_unlinked_unless_truncating_or_remote_offset() {
    // Puts three messages of 64 bytes to an entry of 100 bytes, which is full when fewer than 60 bytes are left.
    // Returns the target's events.
    let events_of_three_puts = |change: fn(Append) -> Append| {
        let mut pair = Pair::new();
        let memory = pair.regions[1].span(0..100).expect("inside the region");
        let append = change(Append::put(0, memory).persistent().max_size(60));
        pair.ports[1].launch(&append, TIMEOUT).expect("posted");
        pair.cluster.settle(1);
        let region = pair.regions[0].clone();
        let put = Put::new(portal(0), region.span(0..64).expect("inside the region")).ack();
        for _ in 0..3 {
            pair.ports[0].launch(&put, TIMEOUT).expect("posted");
            pair.event(0);
        }
        let events = pair.pending_events(1).into_iter();
        events.map(|event| (event.kind, event.offset, event.moved_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(events_of_three_puts(|entry| entry), [(EventKind::Put, 0, 64), (EventKind::Unlinked, 0, 0)]);
    assert_eq!(
        events_of_three_puts(|entry| entry.truncate()),
        [(EventKind::Put, 0, 64), (EventKind::Put, 64, 36), (EventKind::Put, 100, 0)]
    );
    // If the initiator gives the offset, the bytes left depend on the message, so the entry stays linked.
    assert_eq!(events_of_three_puts(|entry| entry.remote_offset()), [(EventKind::Put, 0, 64); 3]);
}

#[test]
fn successes_are_counted_and_failures_reported() {
    let mut pair = Pair::new();
    let entry = Append::put(0, pair.regions[1].span(0..8).expect("inside the region"))
        .threshold(2)
        .remote_offset()
        .counter(31)
        .count_only()
        .no_unlink_event();
    pair.ports[1].launch(&entry, TIMEOUT).expect("posted");
    pair.cluster.settle(1);
    let put = Put::new(portal(0), pair.regions[0].span(0..8).expect("inside the region"))
        .counter(0)
        .ack()
        .count_only();
    for _ in 0..3 {
        pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    }
    assert_eq!(pair.event(0).outcome, Outcome::NoMatch);
    pair.assert_no_event(0);
    pair.assert_no_event(1);
    assert_eq!(pair.ports[0].counter(0).expect("a counter"), Count { successes: 2, failures: 1 });
    let commands = pair.ports[1].commands();
    assert_eq!(commands.wait_counter(31, 2, TIMEOUT).expect("the counter has this value").successes, 2);
    let error = commands.wait_counter(31, 3, SHORT).expect_err("no third put succeeds");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(commands.counter(32).is_err());
}

#[test]
fn a_counter_interrupts_a_sleeping_waiter() {
    let Pair { ports: [mut sender, mut receiver], regions, cluster } = Pair::new();
    receiver.set_wait_policy(WaitPolicy::Block);
    let entry = Append::put(0, regions[1].all()).persistent().counter(0).count_only();
    receiver.launch(&entry, TIMEOUT).expect("posted");
    cluster.settle(1);
    let put = Put::new(portal(0), regions[0].span(0..8).expect("inside the region"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || receiver.commands().wait_counter(0, 2, TIMEOUT));
        for _ in 0..2 {
            sender.launch(&put, TIMEOUT).expect("posted");
        }
        assert_eq!(waiting.join().expect("no panic").expect("both puts are counted").successes, 2);
    });
}

#[test]
fn a_region_of_another_port_is_refused_before_the_post() {
    let mut pair = Pair::new();
    let error = pair.ports[0]
        .launch(&Put::new(portal(0), pair.regions[1].all()), TIMEOUT)
        .expect_err("the region is of another port");
    assert!(error.to_string().contains("registered for"), "{error}");
    assert_eq!(pair.ports[0].commands().launched(), 0);
}

#[test]
fn a_refused_command_is_reported_only_by_its_event() {
    let mut pair = Pair::new();
    // The card sees the same when a region is closed after the library has checked the command.
    let closed = Part { region: u32::MAX, offset: 0, bytes: 8 };
    let put = niclab_port::matching::Put::new(portal(0), closed).user(9);
    pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    let event = pair.event(0);
    assert_eq!((event.kind, event.outcome, event.user), (EventKind::Refused, Outcome::BadRegion, 9));
    for _ in 0..100 {
        pair.ports[0]
            .launch(&Unlink(Handle::from_number(1)), TIMEOUT)
            .expect("the refusal is not reported again");
        assert_eq!(pair.event(0).kind, EventKind::Unlinked);
    }
}

#[test]
fn values_too_large_for_a_command_are_refused() {
    let mut pair = Pair::new();
    let span = pair.regions[0].span(0..8).expect("inside the region");
    let port = &mut pair.ports[0];
    let bad_node = Target { port: node(0xffff), portal: 0 };
    let bad_port = Target { port: Address { node: 1, port: 255 }, portal: 0 };
    for put in [Put::new(portal(8), span), Put::new(bad_node, span), Put::new(bad_port, span)] {
        assert!(matches!(port.try_launch(&put), Err(Error::BadValue { .. })), "{put:?}");
    }
    let append = Append::put(0, span);
    for append in [append.source_node(0xffff), append.source_port(255), append.counter(32)] {
        assert!(matches!(port.try_launch(&append), Err(Error::BadValue { .. })), "{append:?}");
    }
    assert!(pair.regions[0].span(0..4097).is_err());
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = pair.regions[0].span(8..0);
    assert!(reversed.is_err());
    assert!(pair.regions[0].write(4090, &[0; 7]).is_err());
}

#[test]
fn a_regions_last_clone_deregisters_it_and_its_entries() {
    let mut pair = Pair::new();
    let region = pair.ports[1].allocate(1).expect("a region");
    pair.ports[1].launch(&Append::put(0, region.all()).persistent(), TIMEOUT).expect("posted");
    pair.cluster.settle(1);
    let clone = region.clone();
    drop(region);
    let own = pair.regions[0].clone();
    let put = Put::new(portal(0), own.span(0..8).expect("inside the region")).ack();
    pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    assert_eq!(pair.event(0).outcome, Outcome::Done);
    drop(clone);
    pair.ports[0].launch(&put, TIMEOUT).expect("posted");
    assert_eq!(pair.event(0).outcome, Outcome::NoMatch);
}

#[test]
fn memory_is_not_freed_without_the_devices_confirmation() {
    let mut pair = Pair::new();
    let guest = Arc::clone(&pair.cluster.guests[0]);
    let owner = Arc::new(());
    let words = pages(&guest, 8);
    // SAFETY: the words are shared integers of the guest's memory, which lives until the end of this test.
    let memory = || unsafe {
        let keep = (Arc::clone(&owner), Arc::clone(&guest));
        SharedMemory::from_raw(std::ptr::NonNull::from(words).cast(), words.len(), Arc::new(keep))
    };
    drop(pair.ports[0].register(memory()).expect("a region"));
    assert_eq!(Arc::strong_count(&owner), 1, "the device has confirmed, so the memory is freed");
    let region = pair.ports[0].register(memory()).expect("a region");
    pair.cluster.end();
    drop(region);
    assert_eq!(
        Arc::strong_count(&owner),
        2,
        "the device has not confirmed and may still write, so the memory stays"
    );
}

#[test]
fn a_program_that_reads_no_events_blocks_its_own_commands() {
    let mut pair = Pair::new();
    let mut launched = 0;
    // Each unlink of no entry causes one event. The test reads none until the event queue and the page are full.
    until("the page stays full", || {
        while pair.ports[0].try_launch(&Unlink(no_entry())).expect("a valid status").is_some() {
            launched += 1;
        }
        pair.cluster.settle(0);
        let more = pair.ports[0].try_launch(&Unlink(no_entry())).expect("a valid status");
        launched += usize::from(more.is_some());
        assert!(launched < 1000, "the page never becomes full");
        more.is_none()
    });
    let error = pair.ports[0].launch(&Unlink(no_entry()), SHORT);
    assert!(matches!(error, Err(Error::TimedOut { .. })));
    for _ in 0..launched {
        assert_eq!(pair.event(0).outcome, Outcome::NotFound);
    }
    pair.assert_no_event(0);
}
