//! A Match card as a program sees it: commands in, events and memory out. Cards on one wire that takes no time.

use niclab_abi::FromBytes;
use niclab_abi::control::*;
use niclab_abi::event::{CAUSE_ARMED, CAUSE_FIRMWARE, CAUSE_MESSAGE};
use niclab_abi::firmware::*;
use niclab_abi::matching::*;
use niclab_abi::receive::REFUSED_COMMAND;
use niclab_abi::region::*;
use niclab_isa::{Alu, Bits, Branch, Copy, Half, Input as InputSlot, Word, image};
use niclab_model::models::matching::program;
use niclab_model::nic::{HostRange, Input, Nic, Observed, PageStore};
use niclab_model::platform::ledger::Transaction;
use niclab_model::time::Time;

use crate::support::matching::{
    Cluster, PORTS_ADDRESS, PUT_ENTRY, Posted, Transfer, pattern, region_request,
};
use crate::support::{bare_request, request};

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
fn a_put_is_stored_at_its_entry_and_reported_at_both_ends() {
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
    assert!(cluster.hosts.iter().all(|host| host.nic.poll_timeout().is_none()), "no card has a deadline");
}

#[test]
fn puts_of_all_sizes_arrive_complete() {
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
fn a_get_returns_the_data_of_the_entry() {
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
fn unexpected_messages_match_entries_appended_later() {
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
    // The entry takes two messages at once and has room for a third.
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

#[test]
fn invalid_requests_are_refused_with_the_right_status() {
    let mut cluster = Cluster::with(2, |config| config.regions_per_port = 2);
    cluster.open(0);
    let open = |port, slices, slices_address, status_address, fifo_words| {
        let open = PortOpen { port, slices, slices_address, status_address, fifo_words, flags: 0 };
        request(OP_PORT_OPEN, &open)
    };
    let name = |region, extents| RegionName { port: 0, region, extents, reserved: 0 };
    let firmware = |bytes, reserved| request(OP_FIRMWARE_LOAD, &FirmwareLoad { address: A, bytes, reserved });
    let spill = |address, bytes| request(OP_SPILL_OPEN, &SpillOpen { address, bytes });
    let mut many = region_request(0, &[(A, 8)]);
    many[12] = 129;
    for (request, expected) in [
        (bare_request(OP_PING), STATUS_OK),
        (bare_request(99), STATUS_BAD_OPERATION),
        (request(OP_ROUTE, &Route::default()), STATUS_BAD_OPERATION),
        (vec![1, 0, 0], STATUS_BAD_LENGTH),
        (open(1, 12, A, A, 0), STATUS_BAD_VALUE),
        (open(1, 8, A, A, 1), STATUS_BAD_VALUE),
        (open(1, 8, A + 4, A, 0), STATUS_BAD_ADDRESS),
        (open(1, 8, A, A + 64, 0), STATUS_BAD_ADDRESS),
        (open(1, 8, A, 0u64.wrapping_sub(4096), 0), STATUS_BAD_ADDRESS),
        (open(8, 8, A, A, 0), STATUS_BAD_PORT),
        (open(0, 8, A, A, 0), STATUS_PORT_BUSY),
        (region_request(1, &[(A, 8)]), STATUS_BAD_PORT),
        (region_request(0, &[(A, 0)]), STATUS_BAD_VALUE),
        (region_request(0, &[]), STATUS_BAD_VALUE),
        (region_request(0, &[(u64::MAX, 8)]), STATUS_BAD_VALUE),
        (many, STATUS_BAD_VALUE),
        (region_request(0, &[(A, 8)])[..40].to_vec(), STATUS_BAD_LENGTH),
        (region_request(0, &[(A, 8)]), STATUS_OK),
        (region_request(0, &[(A, 8)]), STATUS_OK),
        (region_request(0, &[(A, 8)]), STATUS_NO_SPACE),
        (request(OP_REGION_CLOSE, &name(1 << 16, 1)), STATUS_BAD_VALUE),
        (request(OP_REGION_CLOSE, &name(2 << 16, 0)), STATUS_NOT_FOUND),
        (request(OP_REGION_CLOSE, &name(1 << 16, 0)), STATUS_OK),
        (request(OP_REGION_CLOSE, &name(1 << 16, 0)), STATUS_NOT_FOUND),
        (spill(A + 8, 64), STATUS_BAD_ADDRESS),
        (spill(A, 65), STATUS_BAD_VALUE),
        (spill(A, 64), STATUS_OK),
        (spill(A, 64), STATUS_PORT_BUSY),
        (firmware(0, 1), STATUS_BAD_VALUE),
        (firmware(0, 0), STATUS_OK),
        (firmware(100, 0), STATUS_FIRMWARE_IMAGE),
        (firmware(u32::MAX, 0), STATUS_FIRMWARE_SIZE),
        (bare_request(OP_RESET), STATUS_OK),
        (spill(A, 64), STATUS_OK),
        (request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 }), STATUS_BAD_PORT),
    ] {
        assert_eq!(cluster.control(0, &request).0, expected, "{request:?}");
    }
}

#[test]
fn refused_commands_report_their_reason_and_do_nothing() {
    let (mut cluster, from, _) = pair();
    let whole = Transfer { node: 1, region: from, bytes: 0x1_0000, user: 4, ..Transfer::default() };
    for (transfer, expected) in [
        (Transfer { region: from ^ 1, ..whole }, RESULT_BAD_REGION),
        (Transfer { region: from + (1 << 16), ..whole }, RESULT_BAD_REGION),
        (Transfer { offset: 1, ..whole }, RESULT_BAD_RANGE),
        (Transfer { offset: u64::MAX, ..whole }, RESULT_BAD_RANGE),
        (Transfer { node: 2, ..whole }, RESULT_NO_TARGET),
        (Transfer { counter: 33, ..whole }, RESULT_BAD_VALUE),
    ] {
        cluster.put(0, 0, 0, &transfer);
        let event = cluster.event(0, 0).unwrap();
        assert_eq!((event.kind, event.result, event.words.user), (EVENT_REFUSED, expected, 4));
    }
    cluster.launch(0, 0, 77, [0; 10]);
    assert_eq!(cluster.kinds(0, 0), [(EVENT_REFUSED, RESULT_BAD_COMMAND)]);
    cluster.append(
        0,
        0,
        PUT_ENTRY,
        &Posted { region: from, offset: 1, bytes: 0x1_0000, ..Posted::default() },
    );
    cluster.launch(0, 0, COMMAND_UNLINK, [8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(cluster.kinds(0, 0), [(EVENT_REFUSED, RESULT_BAD_RANGE), (EVENT_UNLINKED, RESULT_NOT_FOUND)]);
    let statistics = cluster.statistics(0);
    assert_eq!((statistics["commands_refused"], statistics["entries"], cluster.frames), (8, 0, 0));
    // The status line has the posts, the refusals and the last reason.
    let line: Vec<u8> = cluster.read(0, PORTS_ADDRESS, 48).to_vec();
    assert_eq!((line[0], line[40], line[32]), (8, 8, REFUSED_COMMAND as u8));
}

#[test]
fn unmatched_puts_and_gets_are_reported_to_the_initiator() {
    let (mut cluster, from, to) = pair();
    let put = Transfer { node: 1, region: from, bytes: 9, ..Transfer::default() };
    cluster.put(0, 0, COMMAND_ACK, &put);
    cluster.put(0, 0, COMMAND_ACK, &Transfer { port: 1, ..put });
    cluster.get(0, 0, 0, &Transfer { port: 1, ..put });
    cluster.put(0, 0, 0, &put);
    cluster.settle();
    let expected =
        [(EVENT_ACK, RESULT_NO_MATCH), (EVENT_ACK, RESULT_NO_TARGET), (EVENT_REPLY, RESULT_NO_TARGET)];
    assert_eq!(cluster.kinds(0, 0), expected);
    assert_eq!(cluster.statistics(1)["unmatched"], 4, "two of them at a port that is not open");
    // A put of no bytes needs no region.
    cluster.append(1, 0, PUT_ENTRY, &Posted::default());
    cluster.put(0, 0, COMMAND_ACK, &Transfer { node: 1, ..Transfer::default() });
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_OK)]);
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_OK), (EVENT_UNLINKED, RESULT_OK)]);
    let _ = to;
}

#[test]
fn a_full_event_queue_refuses_messages_and_blocks_commands() {
    let mut cluster = Cluster::new(2);
    cluster.open(0);
    cluster.open_with(1, 8);
    let from = cluster.register(0, 0, &[(A, 4_096)]);
    let to = cluster.register(1, 0, &[(B, 4_096)]);
    let entry = Posted { region: to, bytes: 64, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY, &entry);
    let put = Transfer { node: 1, region: from, bytes: 1, ..Transfer::default() };
    for _ in 0..9 {
        cluster.put(0, 0, COMMAND_ACK, &put);
        cluster.settle();
    }
    let results: Vec<u32> = cluster.kinds(0, 0).into_iter().map(|(_, result)| result).collect();
    assert_eq!(results, [[RESULT_OK; 7].as_slice(), &[RESULT_NO_ROOM; 2]].concat());
    assert_eq!(cluster.statistics(1)["refused_for_room"], 2);
    assert!(!cluster.hosts[1].nic.accepts_store(0), "the queue has room for only one event");
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_OK); 7]);
    cluster.release(1, 0);
    assert!(cluster.hosts[1].nic.accepts_store(0));
}

#[test]
fn an_append_waits_for_room_in_the_event_queue() {
    let mut cluster = Cluster::new(2);
    cluster.open(0);
    cluster.open_with(1, 8);
    let from = cluster.register(0, 0, &[(A, 4_096)]);
    let to = cluster.register(1, 0, &[(B, 4_096)]);
    let entry = Posted { region: to, bytes: 4_096, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_OVERFLOW, &entry);
    let put = Transfer { node: 1, region: from, bytes: 1, ..Transfer::default() };
    let mut told = Vec::new();
    for number in 0..10 {
        cluster.put(0, 0, 0, &Transfer { header_data: number, ..put });
        cluster.settle();
        told.extend(cluster.kinds(1, 0));
        cluster.release(1, 0);
    }
    assert_eq!(told, [(EVENT_PUT_UNEXPECTED, RESULT_OK); 10]);
    cluster.append(1, 0, PUT_ENTRY, &Posted { threshold: 11, ..entry });
    assert!(!cluster.hosts[1].nic.accepts_store(0), "the append is in progress");
    // A message that arrives during the append finds no room.
    cluster.put(0, 0, COMMAND_ACK, &Transfer { header_data: 10, ..put });
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_NO_ROOM)]);
    let mut numbers = Vec::new();
    while let Some(event) = cluster.event(1, 0) {
        assert_eq!(event.kind, EVENT_PUT_OVERFLOW);
        numbers.push(event.words.header_data);
        cluster.release(1, 0);
    }
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    assert!(cluster.hosts[1].nic.accepts_store(0));
    assert_eq!(cluster.statistics(1)["entries"], 2, "the entry has one operation left");
}

#[test]
fn count_only_operations_raise_counters_and_interrupt() {
    let (mut cluster, from, to) = pair();
    let entry =
        Posted { region: to, bytes: 64, threshold: THRESHOLD_INFINITE, counter: 4, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_REMOTE_OFFSET | COMMAND_COUNT_ONLY, &entry);
    cluster.launch(1, 0, COMMAND_ARM_COUNTER, [3, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let put = Transfer { node: 1, region: from, bytes: 8, counter: 32, ..Transfer::default() };
    for count in 1..=3 {
        cluster.put(0, 0, COMMAND_ACK | COMMAND_COUNT_ONLY, &put);
        cluster.settle();
        assert_eq!((cluster.counter(1, 0, 3), cluster.counter(0, 0, 31)), ((0, count), (0, count)));
        assert_eq!(cluster.hosts[1].interrupts.len(), usize::from(count >= 2), "once, at the second");
    }
    assert_eq!(cluster.hosts[1].interrupts, [(CAUSE_ARMED, 0)]);
    cluster.put(0, 0, COMMAND_ACK | COMMAND_COUNT_ONLY, &Transfer { match_bits: 1, ..put });
    cluster.settle();
    assert_eq!(cluster.counter(0, 0, 31), (1, 3));
    assert_eq!((cluster.kinds(1, 0), cluster.kinds(0, 0)), (vec![], vec![(EVENT_ACK, RESULT_NO_MATCH)]));
    cluster.launch(1, 0, COMMAND_ARM_COUNTER, [3, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(cluster.hosts[1].interrupts.len(), 2, "at once, because the counter is already three");
}

#[test]
fn entries_beyond_card_memory_spill_and_still_match() {
    let mut cluster = Cluster::with(2, |config| config.match_entries = 2);
    cluster.open(0);
    cluster.open(1);
    let to = cluster.register(1, 0, &[(B, 4_096)]);
    let entry =
        |number| Posted { match_bits: number, user: number, region: to, bytes: 64, ..Posted::default() };
    let (full, nothing) = ((EVENT_REFUSED, RESULT_LIST_FULL), vec![]);
    (0..3).for_each(|number| cluster.append(1, 0, PUT_ENTRY, &entry(number)));
    assert_eq!(cluster.kinds(1, 0), [full]);
    let spill = 0x3_0000;
    let request = request(OP_SPILL_OPEN, &SpillOpen { address: spill, bytes: 2 * 64 });
    assert_eq!(cluster.control(1, &request).0, STATUS_OK);
    (2..4).for_each(|number| cluster.append(1, 0, PUT_ENTRY, &entry(number)));
    assert_eq!(cluster.kinds(1, 0), nothing);
    cluster.append(1, 0, PUT_ENTRY, &entry(4));
    assert_eq!(cluster.kinds(1, 0), [full]);
    assert_eq!(cluster.read(1, spill + 64, 8), 3_u64.to_le_bytes());
    // The guest overwrites the spill area; the card must not trust it.
    cluster.write(1, spill, &[0xff; 128]);
    let before = cluster.hosts[1].nic.ledger().line(Transaction::DescriptorFetch);
    cluster.put(0, 0, 0, &Transfer { match_bits: 3, node: 1, ..Transfer::default() });
    cluster.settle();
    assert_eq!(cluster.event(1, 0).unwrap().words.user, 3);
    let after = cluster.hosts[1].nic.ledger().line(Transaction::DescriptorFetch);
    assert_eq!((after.bytes - before.bytes, cluster.statistics(1)["spill_reads"]), (128, 2));
    let statistics = cluster.statistics(1);
    assert_eq!(
        (statistics["entries"], statistics["entries_spilled"], statistics["entries_traversed"]),
        (3, 1, 4)
    );
    // Another entry gets its slot.
    cluster.append(1, 0, PUT_ENTRY, &entry(5));
    assert_eq!(cluster.statistics(1)["entries_spilled"], 2);
    assert_eq!(cluster.read(1, spill + 64, 8), 5_u64.to_le_bytes());
}

#[test]
fn invalid_firmware_images_are_refused_with_the_reason() {
    let (mut cluster, _, _) = pair();
    let image = program::PORTALS;
    let words = (image.len() - 24) as u32 / 24;
    let load = |cluster: &mut Cluster, bytes: &[u8]| {
        cluster.write(1, A, bytes);
        let load = FirmwareLoad { address: A, bytes: bytes.len() as u32, reserved: 0 };
        let (status, body) = cluster.control(1, &request(OP_FIRMWARE_LOAD, &load));
        (status, FirmwareLoaded::from_bytes(&body))
    };
    let checksum = u32::from_le_bytes(image[16..20].try_into().unwrap());
    let loaded = (STATUS_OK, Some(FirmwareLoaded { words, checksum }));
    assert_eq!(load(&mut cluster, image), loaded);
    assert_eq!(load(&mut cluster, &[]), loaded, "the built-in program is the same");
    let spoiled = |at: usize| {
        let mut image = image.to_vec();
        image[at] ^= 0x10;
        image
    };
    assert_eq!(load(&mut cluster, &spoiled(0)), (STATUS_FIRMWARE_IMAGE, None));
    assert_eq!(load(&mut cluster, &image[..image.len() - 1]), (STATUS_FIRMWARE_IMAGE, None));
    assert_eq!(load(&mut cluster, &spoiled(8)), (STATUS_FIRMWARE_VERSION, None));
    assert_eq!(load(&mut cluster, &spoiled(100)), (STATUS_FIRMWARE_CHECKSUM, None));
    let far = Word {
        branch: Branch { target: Bits::truncated(9), sense: true, ..Branch::default() },
        ..Word::default()
    };
    assert_eq!(load(&mut cluster, &image::write(&[far])), (STATUS_FIRMWARE_WORD, None));
    assert_eq!(load(&mut cluster, &image::write(&[Word::default(); 8_193])), (STATUS_FIRMWARE_SIZE, None));
}

#[test]
fn a_misbehaving_program_is_replaced_and_nothing_is_lost() {
    let forever = Word { branch: Branch { sense: true, ..Branch::default() }, ..Word::default() };
    let out = Copy { output: true, ..Copy::default() };
    let shouts = Word { copy: out, ..forever };
    // A program that takes the header and one word of the first item, and answers that the item takes 9,999 bytes.
    let constant = |value| Alu {
        dest: Bits::truncated(1),
        half: Half::Lower,
        immediate: Bits::truncated(value),
        ..Alu::default()
    };
    let says = Word { copy: Copy { source: Bits::truncated(1), ..out }, ..Word::default() };
    let takes = Word { input: InputSlot { take: true, ..InputSlot::default() }, ..Word::default() };
    let mut lies = vec![takes; 9];
    for value in [1, 0, 9_999] {
        lies.extend([Word { alu: constant(value), ..Word::default() }, says]);
    }
    for program in [&[forever][..], &[Word::default()], &[shouts, shouts, shouts], &lies] {
        let (mut cluster, from, to) = pair();
        cluster.write(1, A, &image::write(program));
        let bytes = image::write(program).len() as u32;
        let load = request(OP_FIRMWARE_LOAD, &FirmwareLoad { address: A, bytes, reserved: 0 });
        assert_eq!(cluster.control(1, &load).0, STATUS_OK);
        (0..2).for_each(|_| {
            cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 64, ..Posted::default() });
        });
        let put = Transfer { node: 1, region: from, bytes: 64, ..Transfer::default() };
        cluster.put(0, 0, COMMAND_ACK, &put);
        cluster.settle();
        assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_OK)]);
        assert_eq!(cluster.hosts[1].interrupts, [(CAUSE_FIRMWARE, 0)]);
        cluster.put(0, 0, COMMAND_ACK, &put);
        cluster.settle();
        assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_OK)]);
        assert_eq!(cluster.statistics(1)["firmware_fallbacks"], 1);
        assert_eq!(cluster.hosts[1].interrupts.len(), 1);
    }
}

/// Loads `program`, and appends an entry whose match bits differ from those of an unexpected message. Returns the
/// events.
fn claimed_by(program: &[Word]) -> (Cluster, Vec<(u32, u32)>) {
    let (mut cluster, from, to) = pair();
    let any = Posted { region: to, bytes: 64, ignore_bits: u64::MAX, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_OVERFLOW, &any);
    let put = Transfer {
        node: 1,
        region: from,
        bytes: 64,
        match_bits: 5,
        portal: any.portal,
        ..Transfer::default()
    };
    cluster.put(0, 0, 0, &put);
    cluster.settle();
    while cluster.event(1, 0).is_some() {}
    let image = image::write(program);
    cluster.write(1, A, &image);
    let load =
        request(OP_FIRMWARE_LOAD, &FirmwareLoad { address: A, bytes: image.len() as u32, reserved: 0 });
    assert_eq!(cluster.control(1, &load).0, STATUS_OK);
    cluster.append(1, 0, PUT_ENTRY, &Posted { match_bits: 6, ignore_bits: 0, ..any });
    cluster.settle();
    let kinds = cluster.kinds(1, 0);
    (cluster, kinds)
}

#[test]
fn the_program_decides_on_unexpected_messages_too() {
    let portals = program::portals().unwrap();
    let (mut cluster, kinds) = claimed_by(&portals);
    assert_eq!((cluster.statistics(1)["claimed"], &kinds[..]), (0, &[][..]), "the bits differ");
    // The second word that runs for every item compares the match bits. Here it compares them with themselves.
    let mut bitless = portals;
    let ternary = &mut bitless[14].ternary;
    ternary.match0 = ternary.match1;
    let (mut cluster, kinds) = claimed_by(&bitless);
    assert_eq!(cluster.statistics(1)["claimed"], 1);
    assert_eq!(kinds, [(EVENT_PUT_OVERFLOW, RESULT_OK), (EVENT_UNLINKED, RESULT_OK)]);
    // A program that does not end is replaced.
    let forever = Word { branch: Branch { sense: true, ..Branch::default() }, ..Word::default() };
    let (mut cluster, kinds) = claimed_by(&[forever]);
    assert_eq!(cluster.statistics(1)["firmware_fallbacks"], 1);
    assert_eq!(cluster.hosts[1].interrupts, [(CAUSE_FIRMWARE, 0)]);
    assert_eq!((cluster.statistics(1)["claimed"], &kinds[..]), (0, &[][..]));
}

#[test]
fn appending_and_unlinking_take_cycles_of_the_unit() {
    let (mut cluster, _, to) = pair();
    let entry = Posted { region: to, bytes: 64, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY, &entry);
    cluster.settle();
    assert_eq!(cluster.statistics(1)["unit_cycles"], 2 + 8, "two links, and an item's words");
    cluster.launch(1, 0, COMMAND_UNLINK, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    cluster.settle();
    assert_eq!(cluster.statistics(1)["unit_cycles"], 10 + 3, "three links");
}

/// A put of 64 KB in flight: five frames are delivered and the rest of the first window is on the wire. After `end` no
/// card may access the ports' regions.
fn interrupted(flags: u32, end: impl Fn(&mut Cluster, u32, u32)) -> Cluster {
    let (mut cluster, from, to) = pair();
    cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 0x1_0000, ..Posted::default() });
    cluster.put(0, 0, flags, &Transfer { node: 1, region: from, bytes: 0x1_0000, ..Transfer::default() });
    for _ in 0..5 {
        let flying = cluster.wire.pop_front().unwrap();
        cluster.deliver(&flying);
    }
    end(&mut cluster, from, to);
    for host in &mut cluster.hosts {
        host.given = Some(vec![HostRange { address: PORTS_ADDRESS, bytes: 0x10_0000 }]);
    }
    cluster
}

#[test]
fn closing_the_source_region_ends_a_put_at_both_ends() {
    let mut cluster = interrupted(COMMAND_ACK | COMMAND_SENT, |cluster, from, _| {
        assert_eq!(cluster.deregister(0, 0, from), STATUS_OK);
    });
    assert_eq!(cluster.kinds(0, 0), [(EVENT_SENT, RESULT_BAD_REGION), (EVENT_ACK, RESULT_BAD_REGION)]);
    // The target's region is still open.
    cluster.hosts[1].given = None;
    cluster.settle();
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_BAD_REGION), (EVENT_UNLINKED, RESULT_OK)]);
    assert_eq!(cluster.kinds(0, 0), []);
    assert!(cluster.hosts.iter().all(|host| host.nic.poll_timeout().is_none()));
}

#[test]
fn closing_the_target_region_ends_a_put_at_both_ends() {
    let mut cluster = interrupted(COMMAND_ACK, |cluster, _, to| {
        assert_eq!(cluster.deregister(1, 0, to), STATUS_OK);
        assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_BAD_REGION)]);
    });
    cluster.hosts[0].given = None;
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_BAD_REGION)]);
    assert_eq!((cluster.kinds(1, 0), cluster.statistics(1)["entries"]), (vec![], 0));
}

#[test]
fn ports_can_close_during_incoming_and_outgoing_messages() {
    let close = |cluster: &mut Cluster, node: usize| {
        let close = request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 });
        assert_eq!(cluster.control(node, &close).0, STATUS_OK);
    };
    let mut cluster = interrupted(COMMAND_ACK, |cluster, _, _| close(cluster, 1));
    cluster.hosts[0].given = None;
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_NO_TARGET)]);
    let mut cluster = interrupted(COMMAND_ACK, |cluster, _, _| close(cluster, 0));
    cluster.hosts[1].given = None;
    cluster.settle();
    assert_eq!(cluster.kinds(1, 0), [(EVENT_PUT, RESULT_BAD_REGION), (EVENT_UNLINKED, RESULT_OK)]);
    // The next program on that port is not affected, and can use all commands.
    for host in &mut cluster.hosts {
        host.given = None;
    }
    assert_eq!(cluster.open(0), 0);
    let to = cluster.register(1, 0, &[(B, 64)]);
    cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 64, ..Posted::default() });
    cluster.put(0, 0, COMMAND_ACK, &Transfer { node: 1, ..Transfer::default() });
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_OK)]);
}

#[test]
fn closing_the_source_region_of_a_get_is_answered() {
    let (mut cluster, from, to) = pair();
    cluster.append(1, 0, ENTRY_GET, &Posted { region: to, bytes: 0x1_0000, ..Posted::default() });
    cluster.get(0, 0, 0, &Transfer { node: 1, region: from, bytes: 0x1_0000, ..Transfer::default() });
    for _ in 0..3 {
        let flying = cluster.wire.pop_front().unwrap();
        cluster.deliver(&flying);
    }
    assert_eq!(cluster.deregister(1, 0, to), STATUS_OK);
    assert_eq!(cluster.kinds(1, 0), [(EVENT_GET, RESULT_BAD_REGION)]);
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [(EVENT_REPLY, RESULT_BAD_REGION)]);
    assert!(cluster.hosts.iter().all(|host| host.nic.poll_timeout().is_none()));
}

#[test]
fn a_lost_frame_is_resent_before_its_memory_is_returned() {
    let (mut cluster, from, to) = pair();
    cluster.write(0, A, &pattern(1, 64));
    cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 64, ..Posted::default() });
    cluster.put(0, 0, COMMAND_SENT, &Transfer { node: 1, region: from, bytes: 64, ..Transfer::default() });
    cluster.wire.clear();
    assert_eq!(cluster.kinds(0, 0), []);
    let at = cluster.hosts[0].nic.poll_timeout().unwrap();
    cluster.hosts[0].nic.handle(at, Input::Timeout);
    cluster.carry(0);
    cluster.settle();
    assert_eq!(cluster.read(1, B, 64), pattern(1, 64));
    assert_eq!(cluster.kinds(0, 0), [(EVENT_SENT, RESULT_OK)]);
    assert_eq!(cluster.statistics(0)["retransmissions"], 1);
    assert_eq!(cluster.hosts[0].nic.poll_timeout(), None);
}

#[test]
fn no_memory_is_accessed_after_a_reset() {
    let (mut cluster, from, to) = pair();
    cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 64, ..Posted::default() });
    let words = Transfer { node: 1, region: from, bytes: 64, ..Transfer::default() }.words();
    let nic = &mut cluster.hosts[0].nic;
    nic.handle(Time::ZERO, Input::PageStore(PageStore { port: 0, code: COMMAND_PUT, words }));
    nic.handle(Time::ZERO, Input::HostReset);
    assert_eq!(nic.poll_output(), None, "the card drops even its pending reads");
    assert!(!nic.is_open(0) && !nic.accepts_store(0));
    // The link keeps working: an empty frame takes the sequence number of the dropped one.
    let at = nic.poll_timeout().unwrap();
    nic.handle(at, Input::Timeout);
    cluster.carry(0);
    cluster.settle();
    assert_eq!((cluster.kinds(1, 0), cluster.hosts[0].nic.poll_timeout()), (vec![], None));
}

#[test]
fn the_ledger_has_each_transaction_of_a_put_once() {
    let (mut cluster, from, to) = pair();
    let entry = Posted { region: to, bytes: 64, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_REMOTE_OFFSET, &entry);
    let put = Transfer { node: 1, region: from, bytes: 64, ..Transfer::default() };
    cluster.put(0, 0, 0, &put);
    cluster.settle();
    let lines = |cluster: &Cluster| {
        let of = |node: usize| {
            let ledger = cluster.hosts[node].nic.ledger();
            let kinds = [
                Transaction::HostSend,
                Transaction::PioWrite,
                Transaction::DmaRead,
                Transaction::NiCycles,
                Transaction::DmaWrite,
                Transaction::HostReceive,
            ];
            kinds.map(|kind| (ledger.line(kind).count, ledger.line(kind).bytes))
        };
        [of(0), of(1)]
    };
    let before = lines(&cluster);
    cluster.put(0, 0, 0, &put);
    cluster.settle();
    let after = lines(&cluster);
    let added = |node: usize, kind: usize| {
        (after[node][kind].0 - before[node][kind].0, after[node][kind].1 - before[node][kind].1)
    };
    // The command is one burst. The machines are Load, TX, and RX for the returning acknowledgement. They handle
    // command, head and data, and the acknowledgement's head.
    let sender: Vec<_> = (0..6).map(|kind| added(0, kind)).collect();
    let (head, acknowledgement) = (102, 38);
    let machines = (3, 80 + (head + 64) + acknowledgement);
    assert_eq!(sender, [(1, 80), (1, 80), (1, 64), machines, (0, 0), (0, 0)]);
    // The machines are RX, match unit, Store, and TX for the acknowledgement. The writes are data and event.
    let receiver: Vec<_> = (0..6).map(|kind| added(1, kind)).collect();
    let machines = (4, (head + 64) + 64 + acknowledgement);
    assert_eq!(receiver, [(0, 0), (0, 0), (0, 0), machines, (2, 64 + 88), (1, 88)]);
    assert_eq!(cluster.hosts[1].nic.ledger().latency().count(), 2);
}

#[test]
fn a_failed_read_ends_its_message_for_good() {
    // The first frame, one in the middle of the message, and the last.
    for failing in [0, 1, 2] {
        let (mut cluster, from, to) = pair();
        cluster.append(1, 0, PUT_ENTRY, &Posted { region: to, bytes: 4_000, ..Posted::default() });
        cluster.hosts[0].reads_until_failure = Some(failing);
        let put = Transfer { node: 1, region: from, bytes: 4_000, ..Transfer::default() };
        cluster.put(0, 0, COMMAND_SENT, &put);
        assert_eq!(cluster.kinds(0, 0), [(EVENT_SENT, RESULT_BAD_REGION)]);
        // All frames are lost, and the memory is readable again at the retransmission. The message must still fail.
        cluster.wire.clear();
        let at = cluster.hosts[0].nic.poll_timeout().unwrap();
        cluster.hosts[0].nic.handle(at, Input::Timeout);
        cluster.carry(0);
        cluster.settle();
        let told = cluster.kinds(1, 0);
        assert!(!told.contains(&(EVENT_PUT, RESULT_OK)), "frame {failing}: {told:?}");
        // The next message arrives.
        cluster.append(1, 0, PUT_ENTRY, &Posted { match_bits: 1, region: to, bytes: 8, ..Posted::default() });
        cluster.put(0, 0, COMMAND_ACK, &Transfer { match_bits: 1, bytes: 8, ..put });
        cluster.settle();
        assert_eq!(cluster.kinds(0, 0), [(EVENT_ACK, RESULT_OK)]);
        assert_eq!(cluster.hosts[0].nic.poll_timeout(), None);
    }
}

#[test]
fn the_number_of_unexpected_messages_is_limited() {
    let mut cluster = Cluster::with(2, |config| config.unexpected_messages = 2);
    cluster.open(0);
    cluster.open(1);
    let to = cluster.register(1, 0, &[(B, 64)]);
    let any = Posted { region: to, bytes: 64, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    cluster.append(1, 0, PUT_ENTRY | ENTRY_OVERFLOW, &any);
    let put = Transfer { node: 1, ..Transfer::default() };
    (0..3).for_each(|_| cluster.put(0, 0, COMMAND_ACK, &put));
    cluster.settle();
    let (stored, full) = ((EVENT_ACK, RESULT_OK), (EVENT_ACK, RESULT_NO_ROOM));
    assert_eq!(cluster.kinds(0, 0), [stored, stored, full]);
    assert_eq!(cluster.statistics(1)["refused_for_room"], 1);
    // Posted entries still take messages, and claimed messages make room.
    cluster.append(1, 0, PUT_ENTRY, &any);
    (0..3).for_each(|_| cluster.put(0, 0, COMMAND_ACK, &put));
    cluster.settle();
    assert_eq!(cluster.kinds(0, 0), [stored; 3]);
    assert_eq!(cluster.statistics(1)["claimed"], 2);
}
