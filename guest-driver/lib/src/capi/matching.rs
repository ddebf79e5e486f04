//! The C interface of the Match NIC. It shares helpers, codes and handles with the parent module.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::region::{allocate, niclab_region, range, register};
use super::{
    Failure, NICLAB_ANY_PORT, call, deadline, exclusive, give, niclab_device, options_of, place, policy_of,
    shared, take_back,
};
use crate::matching::{
    Append, Command, Event, EventKind, Get, Handle, Outcome, Port, Put, Region, Target, Unlink,
};
use crate::{Address, Batching as _};

/// Source of a match entry: any node.
pub const NICLAB_MATCH_ANY: u32 = u32::MAX;
/// No counter.
pub const NICLAB_MATCH_NO_COUNTER: u32 = u32::MAX;
/// Threshold of a match entry: any number of operations.
pub const NICLAB_MATCH_PERSISTENT: u32 = u32::MAX;

/// Flag of a put: the receiving NIC interrupts its host.
pub const NICLAB_MATCH_INTERRUPT: u32 = 1;
/// Flag of a put: the event NICLAB_MATCH_ACKNOWLEDGED reports its result.
pub const NICLAB_MATCH_ACK: u32 = 2;
/// Flag of a put: the event NICLAB_MATCH_SENT reports when the memory may be reused.
pub const NICLAB_MATCH_NOTIFY: u32 = 4;
/// Flag of a put, a get and an entry: successes are counted, without events.
pub const NICLAB_MATCH_COUNT_ONLY: u32 = 8;
/// Flag of an entry: accepts puts.
pub const NICLAB_MATCH_PUTS: u32 = 16;
/// Flag of an entry: accepts gets.
pub const NICLAB_MATCH_GETS: u32 = 32;
/// Flag of an entry: the initiator chooses the offset.
pub const NICLAB_MATCH_REMOTE_OFFSET: u32 = 64;
/// Flag of an entry: it is unlinked once fewer than min_free bytes are left. No effect with NICLAB_MATCH_TRUNCATE.
pub const NICLAB_MATCH_MIN_FREE: u32 = 128;
/// Flag of an entry: truncates messages that are too long.
pub const NICLAB_MATCH_TRUNCATE: u32 = 256;
/// Flag of an entry: appends it to the overflow list.
pub const NICLAB_MATCH_OVERFLOW: u32 = 512;
/// Flag of an entry: no event when the NIC unlinks it.
pub const NICLAB_MATCH_NO_UNLINK_EVENT: u32 = 1024;

/// Event: a message was stored in a posted entry.
pub const NICLAB_MATCH_PUT: u32 = 1;
/// Event: a message was stored in an overflow entry.
pub const NICLAB_MATCH_UNEXPECTED: u32 = 2;
/// Event: a new entry has claimed an earlier message; it is in the overflow entry's memory.
pub const NICLAB_MATCH_CLAIMED: u32 = 3;
/// Event: a get has read an entry.
pub const NICLAB_MATCH_GET: u32 = 4;
/// Event: all of a put has left the memory.
pub const NICLAB_MATCH_SENT: u32 = 5;
/// Event: a put was stored at the receiver, or failed.
pub const NICLAB_MATCH_ACKNOWLEDGED: u32 = 6;
/// Event: the data of a get was stored, or the get failed.
pub const NICLAB_MATCH_REPLY: u32 = 7;
/// Event: an entry is not linked any more.
pub const NICLAB_MATCH_UNLINKED: u32 = 8;
/// Event: a command was refused.
pub const NICLAB_MATCH_REFUSED: u32 = 9;

/// An open port of a Match NIC.
#[allow(non_camel_case_types)]
pub struct niclab_match_port(pub Port);

/// A put or a get. Set unused fields to zero, and `counter` to NICLAB_MATCH_NO_COUNTER if unused.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_match_transfer {
    /// Registered memory.
    pub region: *const niclab_region,
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Match bits.
    pub match_bits: u64,
    /// A word for the receiver's event.
    pub header_data: u64,
    /// A word that the events of this command return.
    pub user: u64,
    /// Offset in the entry's memory, if the entry has NICLAB_MATCH_REMOTE_OFFSET.
    pub remote_offset: u64,
    /// Target node.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// Portal of the target port.
    pub portal: u32,
    /// Counter for results.
    pub counter: u32,
    /// NICLAB_MATCH_ flags.
    pub flags: u32,
}

/// A match entry to append.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_match_entry {
    /// Registered memory.
    pub region: *const niclab_region,
    /// Offset of the entry's memory in the region.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Match bits.
    pub match_bits: u64,
    /// Match bits to ignore.
    pub ignore_bits: u64,
    /// A word that the events of this entry return.
    pub user: u64,
    /// Minimum number of free bytes, with NICLAB_MATCH_MIN_FREE.
    pub min_free: u64,
    /// The portal.
    pub portal: u32,
    /// Only accept messages from this node, or NICLAB_MATCH_ANY.
    pub source_node: u32,
    /// Only accept messages from this port, or NICLAB_MATCH_ANY.
    pub source_port: u32,
    /// Operations after which it is unlinked, or NICLAB_MATCH_PERSISTENT.
    pub threshold: u32,
    /// Counter for its operations.
    pub counter: u32,
    /// NICLAB_MATCH_ flags.
    pub flags: u32,
}

/// An event.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_match_event {
    /// User value of the entry, or of the command.
    pub user: u64,
    /// Match bits of the message.
    pub match_bits: u64,
    /// Header data of the put.
    pub header_data: u64,
    /// Bytes that the initiator requested.
    pub requested_bytes: u64,
    /// Bytes transferred.
    pub moved_bytes: u64,
    /// Offset of the first byte in the memory of the entry, the overflow entry, or the command.
    pub offset: u64,
    /// With NICLAB_MATCH_CLAIMED: the user value of the overflow entry.
    pub overflow_user: u64,
    /// With NICLAB_MATCH_CLAIMED: the handle of the overflow entry.
    pub overflow_handle: u32,
    /// Kind of event: NICLAB_MATCH_PUT and so on.
    pub kind: u32,
    /// 0: done; 1: done, but truncated; other values: failed, see niclab_match_result_text().
    pub result: u32,
    /// Handle of the entry or the command.
    pub handle: u32,
    /// Node that sent the message.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// The portal.
    pub portal: u32,
}

/// Returns an English text for the result of an event; never null, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_match_result_text(result: u32) -> *const std::ffi::c_char {
    let text = match Outcome::from_number(result) {
        Outcome::Done => c"done",
        Outcome::Truncated => c"the message was truncated",
        Outcome::NoMatch => c"no entry of the target matched",
        Outcome::NoRoom => c"the target had no room, or its program does not read its events",
        Outcome::NoTarget => c"the target port is not open",
        Outcome::BadRegion => c"the region is no longer registered",
        Outcome::BadRange => c"the bytes exceed the region",
        Outcome::BadValue => c"a value of the command is out of its range",
        Outcome::BadCommand => c"the device does not know the command",
        Outcome::NotFound => c"the entry is no longer linked",
        Outcome::ListFull => c"the card or the portal has no room for another match entry",
        Outcome::Other(_) => c"a result that this library does not know",
    };
    text.as_ptr()
}

/// Opens port `number`, or any free port for NICLAB_ANY_PORT, with a queue of `events` events (a power of two from 8
/// on; 0 for 256).
///
/// # Safety
///
/// `device` must be null or from niclab_open, `port` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_open(
    device: *const niclab_device,
    number: u32,
    events: u32,
    port: *mut *mut niclab_match_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, events))?;
        // SAFETY: the caller guarantees this.
        unsafe { give(port, niclab_match_port(opened)) }
    })
}

/// Closes a port once its regions are released too. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_close(port: *mut niclab_match_port) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(port) }
}

/// Returns the port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open; for null the number is NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_number(port: *const niclab_match_port) -> u32 {
    // SAFETY: the caller guarantees that it is null or valid.
    unsafe { port.as_ref() }.map_or(NICLAB_ANY_PORT, |port| port.0.address().port)
}

/// Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_set_wait_policy(port: *mut niclab_match_port, policy: c_int) -> c_int {
    call(|| {
        let policy = policy_of(policy)?;
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Allocates and registers at least `bytes` bytes of zeroed memory. niclab_region_memory() returns its address.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `region` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_allocate(
    port: *const niclab_match_port,
    bytes: u64,
    region: *mut *mut niclab_region,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { shared(port)? };
        // SAFETY: the caller guarantees this.
        unsafe { allocate(&port.0, bytes, region) }
    })
}

/// Registers memory of the program. Its address and its length must be multiples of 8. The program must not free it
/// before niclab_region_release(), nor afterwards if the device was gone by then (NICLAB_ERROR_GONE).
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `region` null or valid for a store, `memory` null or valid for reads
/// and writes of `bytes` bytes for as long as stated above. The program reads memory that the NIC writes only after its
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_register(
    port: *const niclab_match_port,
    memory: *mut c_void,
    bytes: u64,
    region: *mut *mut niclab_region,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { shared(port)? };
        // SAFETY: the caller guarantees this.
        unsafe { register(&port.0, memory, bytes, region) }
    })
}

/// Begins a batch: until the matching niclab_match_end_batch(), messages and releases share doorbells, each of which is
/// an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
/// or flushes. A call that never waits does not ring it. Batches may be nested.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_begin_batch(port: *mut niclab_match_port) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.begin_batch();
        Ok(())
    })
}

/// Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_end_batch(port: *mut niclab_match_port) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.end_batch();
        Ok(())
    })
}

/// Appends a match entry and stores its handle in `handle`, unless that is null. Waits for room up to `timeout_us`;
/// with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `entry` null or valid with its region, `handle` null or valid for a
/// store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_append(
    port: *mut niclab_match_port,
    entry: *const niclab_match_entry,
    handle: *mut u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid, and the region with the entry.
        let (port, entry) = unsafe { (exclusive(port)?, shared(entry)?) };
        // SAFETY: as above.
        let region = unsafe { shared(entry.region)? };
        let append = append_of(entry, &region.0)?;
        // SAFETY: the caller guarantees this.
        unsafe { launch(port, &append, handle, timeout_us) }
    })
}

/// Unlinks an entry: the event NICLAB_MATCH_UNLINKED confirms it. Waits for room as niclab_match_append() does.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_unlink(
    port: *mut niclab_match_port,
    entry: u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let unlink = Unlink(Handle::from_number(entry));
        // SAFETY: null is allowed for the handle.
        unsafe { launch(port, &unlink, std::ptr::null_mut(), timeout_us) }
    })
}

/// Puts bytes into the first matching entry of a portal. Waits for room as niclab_match_append() does.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `put` null or valid with its region, `handle` null or valid for a
/// store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_put(
    port: *mut niclab_match_port,
    put: *const niclab_match_transfer,
    handle: *mut u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid, and the region with the transfer.
        let (port, transfer) = unsafe { (exclusive(port)?, shared(put)?) };
        // SAFETY: as above.
        let region = unsafe { shared(transfer.region)? };
        let put = put_of(transfer, &region.0)?;
        // SAFETY: the caller guarantees this.
        unsafe { launch(port, &put, handle, timeout_us) }
    })
}

/// Gets bytes from the first matching entry of a portal: the event NICLAB_MATCH_REPLY reports when they are stored.
/// Waits for room as niclab_match_append() does.
///
/// # Safety
///
/// As niclab_match_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_get(
    port: *mut niclab_match_port,
    get: *const niclab_match_transfer,
    handle: *mut u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid, and the region with the transfer.
        let (port, transfer) = unsafe { (exclusive(port)?, shared(get)?) };
        // SAFETY: as above.
        let region = unsafe { shared(transfer.region)? };
        let get = get_of(transfer, &region.0)?;
        // SAFETY: the caller guarantees this.
        unsafe { launch(port, &get, handle, timeout_us) }
    })
}

/// Receives an event. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `event` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_next_event(
    port: *mut niclab_match_port,
    event: *mut niclab_match_event,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { exclusive(port)? };
        // Checked first: an event received without a place to store it would be lost.
        let event = place(event)?;
        let received = match deadline(timeout_us) {
            Some(deadline) => port.0.event(deadline)?,
            None => port.0.try_event().ok_or(Failure::again(c"there is no event"))?,
        };
        // SAFETY: not null, and the caller guarantees that it is valid for a store then.
        unsafe { event.write(c_event(&received)) };
        Ok(())
    })
}

/// Reads a counter. Waits up to `timeout_us` until it has `successes` successes or another failure; with 0 it does not
/// wait. Stores each result at its pointer, unless that is null.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `found` and `failures` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_counter(
    port: *mut niclab_match_port,
    counter: u32,
    successes: u64,
    found: *mut u64,
    failures: *mut u64,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let count = match deadline(timeout_us) {
            Some(deadline) => port.0.commands().wait_counter(counter, successes, deadline)?,
            None => port.0.counter(counter)?,
        };
        for (place, value) in [(found, count.successes), (failures, count.failures)] {
            if let Some(place) = NonNull::new(place) {
                // SAFETY: not null, and the caller guarantees that it is valid for a store then.
                unsafe { place.write(value) };
            }
        }
        Ok(())
    })
}

/// Posts a command, and stores its handle.
///
/// # Safety
///
/// `handle` must be null or valid for a store.
unsafe fn launch(
    port: &mut niclab_match_port,
    command: &impl Command,
    handle: *mut u32,
    timeout_us: i64,
) -> Result<(), Failure> {
    let launched = match deadline(timeout_us) {
        Some(deadline) => port.0.launch(command, deadline)?,
        None => port.0.try_launch(command)?.ok_or(Failure::again(c"the page is full"))?,
    };
    if let Some(handle) = NonNull::new(handle) {
        // SAFETY: not null, and the caller guarantees that it is valid for a store then.
        unsafe { handle.write(launched.number()) };
    }
    Ok(())
}

/// A flag, and its effect on a command.
type Flag<T> = (u32, fn(T) -> T);

/// Applies the flags in `bits`; fails if one is not in `known`.
fn apply<T>(bits: u32, known: &[Flag<T>], command: T) -> Result<T, Failure> {
    if bits & !known.iter().fold(0, |all, (flag, _)| all | flag) != 0 {
        return Err(Failure::value(c"unknown flags for this command: use those that niclab.h names for it"));
    }
    let set = known.iter().filter(|(flag, _)| bits & flag != 0);
    Ok(set.fold(command, |command, (_, change)| change(command)))
}

fn target_of(transfer: &niclab_match_transfer) -> Target {
    let port = Address { node: transfer.node, port: transfer.port };
    Target { port, portal: transfer.portal }
}

fn put_of<'a>(transfer: &niclab_match_transfer, region: &'a Region) -> Result<Put<'a>, Failure> {
    let span = region.span(range(transfer.offset, transfer.bytes)?)?;
    let mut put = Put::new(target_of(transfer), span)
        .match_bits(transfer.match_bits)
        .header_data(transfer.header_data)
        .user(transfer.user)
        .remote_offset(transfer.remote_offset);
    if transfer.counter != NICLAB_MATCH_NO_COUNTER {
        put = put.counter(transfer.counter);
    }
    let known: [Flag<Put<'a>>; 4] = [
        (NICLAB_MATCH_INTERRUPT, Put::interrupt),
        (NICLAB_MATCH_ACK, Put::ack),
        (NICLAB_MATCH_NOTIFY, Put::sent),
        (NICLAB_MATCH_COUNT_ONLY, Put::count_only),
    ];
    apply(transfer.flags, &known, put)
}

fn get_of<'a>(transfer: &niclab_match_transfer, region: &'a Region) -> Result<Get<'a>, Failure> {
    let span = region.span(range(transfer.offset, transfer.bytes)?)?;
    let mut get = Get::new(target_of(transfer), span)
        .match_bits(transfer.match_bits)
        .user(transfer.user)
        .remote_offset(transfer.remote_offset);
    if transfer.counter != NICLAB_MATCH_NO_COUNTER {
        get = get.counter(transfer.counter);
    }
    apply(transfer.flags, &[(NICLAB_MATCH_COUNT_ONLY, Get::count_only)], get)
}

fn append_of<'a>(entry: &niclab_match_entry, region: &'a Region) -> Result<Append<'a>, Failure> {
    let span = region.span(range(entry.offset, entry.bytes)?)?;
    let (puts, gets) = (entry.flags & NICLAB_MATCH_PUTS != 0, entry.flags & NICLAB_MATCH_GETS != 0);
    let append = match (puts, gets) {
        (true, true) => Append::both(entry.portal, span),
        (true, false) => Append::put(entry.portal, span),
        (false, true) => Append::get(entry.portal, span),
        (false, false) => {
            return Err(Failure::value(
                c"an entry needs the flag NICLAB_MATCH_PUTS, NICLAB_MATCH_GETS or both",
            ));
        }
    };
    let mut append = append.match_bits(entry.match_bits, entry.ignore_bits).user(entry.user);
    append = match entry.threshold {
        NICLAB_MATCH_PERSISTENT => append.persistent(),
        operations => append.threshold(operations),
    };
    if entry.source_node != NICLAB_MATCH_ANY {
        append = append.source_node(entry.source_node);
    }
    if entry.source_port != NICLAB_MATCH_ANY {
        append = append.source_port(entry.source_port);
    }
    if entry.counter != NICLAB_MATCH_NO_COUNTER {
        append = append.counter(entry.counter);
    }
    if entry.flags & NICLAB_MATCH_MIN_FREE != 0 {
        append = append.max_size(entry.min_free);
    }
    let known: [Flag<Append<'a>>; 5] = [
        (NICLAB_MATCH_COUNT_ONLY, Append::count_only),
        (NICLAB_MATCH_REMOTE_OFFSET, Append::remote_offset),
        (NICLAB_MATCH_TRUNCATE, Append::truncate),
        (NICLAB_MATCH_OVERFLOW, Append::overflow),
        (NICLAB_MATCH_NO_UNLINK_EVENT, Append::no_unlink_event),
    ];
    let done = NICLAB_MATCH_PUTS | NICLAB_MATCH_GETS | NICLAB_MATCH_MIN_FREE;
    apply(entry.flags & !done, &known, append)
}

fn c_event(event: &Event) -> niclab_match_event {
    let (kind, overflow_handle, overflow_user) = match event.kind {
        EventKind::Put => (NICLAB_MATCH_PUT, 0, 0),
        EventKind::Unexpected => (NICLAB_MATCH_UNEXPECTED, 0, 0),
        EventKind::Claimed { overflow, overflow_user } => {
            (NICLAB_MATCH_CLAIMED, overflow.number(), overflow_user)
        }
        EventKind::Get => (NICLAB_MATCH_GET, 0, 0),
        EventKind::Sent => (NICLAB_MATCH_SENT, 0, 0),
        EventKind::Acknowledged => (NICLAB_MATCH_ACKNOWLEDGED, 0, 0),
        EventKind::Reply => (NICLAB_MATCH_REPLY, 0, 0),
        EventKind::Unlinked => (NICLAB_MATCH_UNLINKED, 0, 0),
        EventKind::Refused => (NICLAB_MATCH_REFUSED, 0, 0),
    };
    niclab_match_event {
        user: event.user,
        match_bits: event.match_bits,
        header_data: event.header_data,
        requested_bytes: event.requested_bytes,
        moved_bytes: event.moved_bytes,
        offset: event.offset,
        overflow_user,
        overflow_handle,
        kind,
        result: event.outcome.number(),
        handle: event.handle.number(),
        node: event.initiator.node,
        port: event.initiator.port,
        portal: event.portal,
    }
}
