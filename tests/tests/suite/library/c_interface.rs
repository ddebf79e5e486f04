//! The C interface of ports whose card matches messages, on the card itself.

use std::sync::Arc;

use niclab_user::capi::matching::*;
use niclab_user::capi::region::*;
use niclab_user::capi::{NICLAB_ANY_PORT, NICLAB_ERROR_AGAIN, NICLAB_ERROR_VALUE, NICLAB_OK};
use niclab_user::matching::Port;

use super::{Cluster, TIMEOUT, pages};

/// The timeout of calls that wait.
const TIMEOUT_US: i64 = TIMEOUT.as_micros() as i64;

fn entry(region: *const niclab_region) -> niclab_match_entry {
    niclab_match_entry {
        region,
        offset: 8,
        bytes: 64,
        match_bits: 0x1200,
        ignore_bits: 0xff,
        user: 5,
        min_free: 0,
        portal: 1,
        source_node: 0,
        source_port: NICLAB_MATCH_ANY,
        threshold: 1,
        counter: 2,
        flags: NICLAB_MATCH_PUTS | NICLAB_MATCH_NO_UNLINK_EVENT,
    }
}

fn transfer(region: *const niclab_region) -> niclab_match_transfer {
    niclab_match_transfer {
        region,
        offset: 0,
        bytes: 16,
        match_bits: 0x1234,
        header_data: 77,
        user: 6,
        remote_offset: 0,
        node: 1,
        port: 0,
        portal: 1,
        counter: NICLAB_MATCH_NO_COUNTER,
        flags: NICLAB_MATCH_ACK,
    }
}

fn no_event() -> niclab_match_event {
    // SAFETY: all fields of the event are integers.
    unsafe { std::mem::zeroed() }
}

/// Two nodes, and a port of each.
fn cluster() -> (Cluster, [niclab_match_port; 2]) {
    let cluster = Cluster::new(2, "match", |_| {});
    let ports = [0, 1].map(|node| Port::from_parts(cluster.open(node, 16)).expect("a port"));
    (cluster, ports.map(niclab_match_port))
}

#[test]
fn a_message_goes_from_memory_to_memory() {
    let (cluster, mut ports) = cluster();
    let guest = Arc::clone(&cluster.guests[1]);
    let held = Arc::strong_count(&guest);
    let mut regions = [std::ptr::null_mut(); 2];
    // In this process a device accesses only the guest's memory.
    let own = pages(&guest, 128);
    let (mut handle, mut event, mut successes) = (0, no_event(), 0);
    // SAFETY: the handles are valid, `own` is shared integers and outlives its region, and all pointers are valid for a
    // store.
    unsafe {
        let [near, far] = &mut ports;
        assert_eq!(niclab_match_allocate(near, 100, &raw mut regions[0]), NICLAB_OK);
        assert_eq!(niclab_region_bytes(regions[0]), 4096);
        let memory = own.as_ptr().cast_mut().cast();
        assert_eq!(niclab_match_register(far, memory, 128, &raw mut regions[1]), NICLAB_OK);
        assert_eq!(niclab_match_append(far, &entry(regions[1]), &raw mut handle, 0), NICLAB_OK);
        cluster.settle(1);
        niclab_region_memory(regions[0]).cast::<u64>().write(0xabcd);
        assert_eq!(niclab_match_put(near, &transfer(regions[0]), std::ptr::null_mut(), 0), NICLAB_OK);

        assert_eq!(niclab_match_next_event(far, &raw mut event, TIMEOUT_US), NICLAB_OK);
        assert_eq!((event.kind, event.result, event.handle), (NICLAB_MATCH_PUT, 0, handle));
        assert_eq!((event.user, event.header_data, event.moved_bytes), (5, 77, 16));
        assert_eq!(niclab_match_next_event(far, &raw mut event, 0), NICLAB_ERROR_AGAIN);
        assert_eq!(niclab_region_memory(regions[1]).cast::<u64>().add(1).read(), 0xabcd);
        let none = std::ptr::null_mut();
        assert_eq!(niclab_match_counter(far, 2, 1, &raw mut successes, none, TIMEOUT_US), NICLAB_OK);
        assert_eq!(successes, 1);
        assert_eq!(niclab_match_next_event(near, &raw mut event, TIMEOUT_US), NICLAB_OK);
        assert_eq!((event.kind, event.user), (NICLAB_MATCH_ACKNOWLEDGED, 6));
        for region in regions {
            niclab_region_release(region);
        }
    }
    // Memory whose deregistration failed would never be freed.
    assert_eq!(Arc::strong_count(&guest), held);
}

#[test]
fn invalid_arguments_are_refused_before_the_post() {
    let (_cluster, mut ports) = cluster();
    let port = &mut ports[0];
    let mut region = std::ptr::null_mut();
    let null = std::ptr::null();
    let no_handle = std::ptr::null_mut();
    let mut place = std::ptr::null_mut();
    let mut words = [0_u64; 2];
    let odd = words.as_mut_ptr().cast::<u8>().wrapping_add(4).cast();
    // SAFETY: the handles are valid or null; refused memory is not used.
    unsafe {
        assert_eq!(niclab_match_allocate(port, 8, &raw mut region), NICLAB_OK);
        for wrong in [
            niclab_match_transfer { flags: NICLAB_MATCH_PUTS, ..transfer(region) },
            niclab_match_transfer { bytes: 5000, ..transfer(region) },
            niclab_match_transfer { offset: u64::MAX, ..transfer(region) },
            niclab_match_transfer { counter: 32, ..transfer(region) },
            transfer(null),
        ] {
            assert_eq!(niclab_match_put(port, &wrong, no_handle, 0), NICLAB_ERROR_VALUE);
            assert_eq!(niclab_match_get(port, &wrong, no_handle, 0), NICLAB_ERROR_VALUE);
        }
        let wrong = niclab_match_entry { flags: NICLAB_MATCH_TRUNCATE, ..entry(region) };
        assert_eq!(niclab_match_append(port, &wrong, no_handle, 0), NICLAB_ERROR_VALUE);
        assert_eq!(niclab_match_append(port, std::ptr::null(), no_handle, 0), NICLAB_ERROR_VALUE);
        assert_eq!(niclab_match_register(port, odd, 8, &raw mut place), NICLAB_ERROR_VALUE);
        assert_eq!(niclab_match_register(port, std::ptr::null_mut(), 8, &raw mut place), NICLAB_ERROR_VALUE);
        assert!(place.is_null());
        assert_eq!(niclab_match_number(std::ptr::null()), NICLAB_ANY_PORT);
        niclab_region_release(region);
        niclab_region_release(std::ptr::null_mut());
        niclab_match_close(std::ptr::null_mut());
    }
    assert_eq!(port.0.commands().launched(), 0);
}
