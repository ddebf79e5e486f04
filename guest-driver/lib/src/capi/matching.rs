//! The C interface of the Match NIC. Helpers, codes and handles are those of the module above.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::region::{allocate, niclab_region, range, register};
use super::{
    Failure, NICLAB_ANY_PORT, call, deadline, exclusive, give, niclab_device, options_of, place, policy_of,
    shared, take_back,
};
use crate::Address;
use crate::lists::{Append, Command, Event, Get, Handle, Kind, Outcome, Port, Put, Region, Target, Unlink};

/// Source of a match entry: any node.
pub const NICLAB_MATCH_ANY: u32 = u32::MAX;
/// No counter.
pub const NICLAB_MATCH_NO_COUNTER: u32 = u32::MAX;
/// Threshold of a match entry: takes any number of operations.
pub const NICLAB_MATCH_PERSISTENT: u32 = u32::MAX;

/// Flag of a put: the receiving NIC interrupts its host.
pub const NICLAB_MATCH_INTERRUPT: u32 = 1;
/// Flag of a put: NICLAB_MATCH_ACKNOWLEDGED tells what became of it.
pub const NICLAB_MATCH_ACK: u32 = 2;
/// Flag of a put: NICLAB_MATCH_SENT tells when the memory may be used again.
pub const NICLAB_MATCH_NOTIFY: u32 = 4;
/// Flag of a put, a get and an entry: successes are counted and not told by events.
pub const NICLAB_MATCH_COUNT_ONLY: u32 = 8;
/// Flag of an entry: answers puts.
pub const NICLAB_MATCH_PUTS: u32 = 16;
/// Flag of an entry: answers gets.
pub const NICLAB_MATCH_GETS: u32 = 32;
/// Flag of an entry: the initiator says the offset.
pub const NICLAB_MATCH_REMOTE_OFFSET: u32 = 64;
/// Flag of an entry: is unlinked once fewer than min_free bytes are left; with NICLAB_MATCH_TRUNCATE it says nothing.
pub const NICLAB_MATCH_MIN_FREE: u32 = 128;
/// Flag of an entry: cuts messages that are too long.
pub const NICLAB_MATCH_TRUNCATE: u32 = 256;
/// Flag of an entry: for the overflow list.
pub const NICLAB_MATCH_OVERFLOW: u32 = 512;
/// Flag of an entry: no event when it unlinks itself.
pub const NICLAB_MATCH_NO_UNLINK_EVENT: u32 = 1024;

/// Event: a message was stored in a posted entry.
pub const NICLAB_MATCH_PUT: u32 = 1;
/// Event: a message was stored in an overflow entry.
pub const NICLAB_MATCH_UNEXPECTED: u32 = 2;
/// Event: an entry just appended takes a message that had come before; it is in the overflow entry's memory.
pub const NICLAB_MATCH_CLAIMED: u32 = 3;
/// Event: a get has read an entry.
pub const NICLAB_MATCH_GET: u32 = 4;
/// Event: all of a put has left the memory.
pub const NICLAB_MATCH_SENT: u32 = 5;
/// Event: a put was stored at the receiver, or was not.
pub const NICLAB_MATCH_ACKNOWLEDGED: u32 = 6;
/// Event: what a get asked for was stored, or could not be had.
pub const NICLAB_MATCH_REPLY: u32 = 7;
/// Event: an entry is not linked any more.
pub const NICLAB_MATCH_UNLINKED: u32 = 8;
/// Event: a command was refused.
pub const NICLAB_MATCH_REFUSED: u32 = 9;

/// An open port of a Match NIC.
#[allow(non_camel_case_types)]
pub struct niclab_match_port(pub Port);

/// What to put or get. All zeros but for what is wanted; counter NICLAB_MATCH_NO_COUNTER where none is.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_match_transfer {
    /// Registered memory.
    pub region: *const niclab_region,
    /// Where in it the bytes begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// Match bits.
    pub match_bits: u64,
    /// A word for the receiver's event.
    pub header_data: u64,
    /// A word that comes back with the events of this command.
    pub user: u64,
    /// Where in the entry's memory, if the entry leaves that to the initiator.
    pub remote_offset: u64,
    /// Target node.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// The portal of that.
    pub portal: u32,
    /// Counter for what is told.
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
    /// Where in it the entry's memory begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Match bits.
    pub match_bits: u64,
    /// Bits of them that are not compared.
    pub ignore_bits: u64,
    /// A word that comes back with the events of this entry.
    pub user: u64,
    /// With NICLAB_MATCH_MIN_FREE.
    pub min_free: u64,
    /// The portal.
    pub portal: u32,
    /// Node that it takes messages of, or NICLAB_MATCH_ANY.
    pub source_node: u32,
    /// Port that it takes messages of, or NICLAB_MATCH_ANY.
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
    /// Bytes that the initiator asked for.
    pub requested_bytes: u64,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Offset of the first in the memory of the entry, of the overflow entry, or of the command.
    pub offset: u64,
    /// With NICLAB_MATCH_CLAIMED: the user value of the overflow entry.
    pub overflow_user: u64,
    /// With NICLAB_MATCH_CLAIMED: the handle of the overflow entry.
    pub overflow_handle: u32,
    /// NICLAB_MATCH_PUT and the others.
    pub kind: u32,
    /// 0: done; 1: done, but cut; anything else: not done, niclab_match_result_text() says why.
    pub result: u32,
    /// The entry, or the command.
    pub handle: u32,
    /// Node that sent the message.
    pub node: u32,
    /// Its port.
    pub port: u32,
    /// The portal.
    pub portal: u32,
}

/// What a result of an event means, in English; never null. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_match_result_text(result: u32) -> *const std::ffi::c_char {
    let text = match Outcome::from_number(result) {
        Outcome::Done => c"done",
        Outcome::Truncated => c"the message was cut",
        Outcome::NoMatch => c"no entry of the target matched",
        Outcome::NoRoom => c"the target had no room, or its program does not read its events",
        Outcome::NoTarget => c"the target port is not open",
        Outcome::BadRegion => c"the region is not registered any more",
        Outcome::BadRange => c"the bytes are not all in the region",
        Outcome::BadValue => c"a value of the command is out of its range",
        Outcome::BadCommand => c"the device does not know the command",
        Outcome::NotFound => c"the entry is not linked any more",
        Outcome::ListFull => c"the card or the portal is full of match entries",
        Outcome::Other(_) => c"a result that this library does not know",
    };
    text.as_ptr()
}

/// Opens port `number`, or any free one for NICLAB_ANY_PORT, with a queue of `events` (a power of two from 8 on; 0 for
/// 256).
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
        // SAFETY: the caller says that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, events))?;
        // SAFETY: the caller says so.
        unsafe { give(port, niclab_match_port(opened)) }
    })
}

/// Closes a port, as soon as its regions are released too. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_close(port: *mut niclab_match_port) {
    // SAFETY: the caller says that it is a handle of ours, used for the last time.
    unsafe { take_back(port) }
}

/// The port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_match_open; null has the number NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_number(port: *const niclab_match_port) -> u32 {
    // SAFETY: the caller says that it is null or valid.
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
        // SAFETY: the caller says that it is null or valid.
        unsafe { exclusive(port)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Allocates and registers at least `bytes` of memory, zeros all of them. niclab_region_memory() says where they are.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { shared(port)? };
        // SAFETY: the caller says so.
        unsafe { allocate(&port.0, bytes, region) }
    })
}

/// Registers memory of the program: it begins at a multiple of 8 and has a multiple of 8 bytes. It must not be freed
/// before niclab_region_release(), nor after it if the device is gone meanwhile (NICLAB_ERROR_GONE).
///
/// # Safety
///
/// `port` must be null or from niclab_match_open, `region` null or valid for a store, `memory` null or valid for reads
/// and writes of `bytes` as long as said above. What the NIC may write, the program reads after its event only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_match_register(
    port: *const niclab_match_port,
    memory: *mut c_void,
    bytes: u64,
    region: *mut *mut niclab_region,
) -> c_int {
    call(|| {
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { shared(port)? };
        // SAFETY: the caller says so.
        unsafe { register(&port.0, memory, bytes, region) }
    })
}

/// Appends a match entry; its handle goes to `handle`, unless that is null. Waits for room up to `timeout_us`; 0 does
/// not wait, and fails with NICLAB_ERROR_AGAIN.
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
        // SAFETY: the caller says that both are null or valid, and the region with the entry.
        let (port, entry) = unsafe { (exclusive(port)?, shared(entry)?) };
        // SAFETY: as above.
        let region = unsafe { shared(entry.region)? };
        let append = append_of(entry, &region.0)?;
        // SAFETY: the caller says so.
        unsafe { launch(port, &append, handle, timeout_us) }
    })
}

/// Unlinks an entry: NICLAB_MATCH_UNLINKED answers. Waits for room as niclab_match_append does.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let unlink = Unlink(Handle::from_number(entry));
        // SAFETY: there is no place for the handle.
        unsafe { launch(port, &unlink, std::ptr::null_mut(), timeout_us) }
    })
}

/// Puts bytes into the first entry of a portal that matches. Waits for room as niclab_match_append does.
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
        // SAFETY: the caller says that both are null or valid, and the region with the transfer.
        let (port, transfer) = unsafe { (exclusive(port)?, shared(put)?) };
        // SAFETY: as above.
        let region = unsafe { shared(transfer.region)? };
        let put = put_of(transfer, &region.0)?;
        // SAFETY: the caller says so.
        unsafe { launch(port, &put, handle, timeout_us) }
    })
}

/// Gets bytes from the first entry of a portal that matches: NICLAB_MATCH_REPLY tells when they are there. Waits for
/// room as niclab_match_append does.
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
        // SAFETY: the caller says that both are null or valid, and the region with the transfer.
        let (port, transfer) = unsafe { (exclusive(port)?, shared(get)?) };
        // SAFETY: as above.
        let region = unsafe { shared(transfer.region)? };
        let get = get_of(transfer, &region.0)?;
        // SAFETY: the caller says so.
        unsafe { launch(port, &get, handle, timeout_us) }
    })
}

/// Receives an event; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { exclusive(port)? };
        // Looked at first: an event received for nobody would be lost.
        let event = place(event)?;
        let received = match deadline(timeout_us) {
            Some(deadline) => port.0.event(deadline)?,
            None => port.0.try_event().ok_or(Failure::again(c"no event is there"))?,
        };
        // SAFETY: not null, and the caller says that it is valid for a store then.
        unsafe { event.write(c_event(&received)) };
        Ok(())
    })
}

/// Reads a counter; waits until it has `successes`, or another failure, up to `timeout_us`; 0 does not wait. Each
/// result goes where it is wanted, unless that is null.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let count = match deadline(timeout_us) {
            Some(deadline) => port.0.commands().wait_counter(counter, successes, deadline)?,
            None => port.0.counter(counter)?,
        };
        for (place, value) in [(found, count.successes), (failures, count.failures)] {
            if let Some(place) = NonNull::new(place) {
                // SAFETY: not null, and the caller says that it is valid for a store then.
                unsafe { place.write(value) };
            }
        }
        Ok(())
    })
}

/// Launches a command, and hands its handle out.
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
        // SAFETY: not null, and the caller says that it is valid for a store then.
        unsafe { handle.write(launched.number()) };
    }
    Ok(())
}

/// A flag, and what it changes of a command.
type Flag<T> = (u32, fn(T) -> T);

/// Applies the flags of `bits`; fails when one is none of `known`.
fn apply<T>(bits: u32, known: &[Flag<T>], command: T) -> Result<T, Failure> {
    if bits & !known.iter().fold(0, |all, (flag, _)| all | flag) != 0 {
        return Err(Failure::value(c"unknown flags for this command"));
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
            return Err(Failure::value(c"an entry answers NICLAB_MATCH_PUTS, NICLAB_MATCH_GETS or both"));
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
        Kind::Put => (NICLAB_MATCH_PUT, 0, 0),
        Kind::Unexpected => (NICLAB_MATCH_UNEXPECTED, 0, 0),
        Kind::Claimed { overflow, overflow_user } => (NICLAB_MATCH_CLAIMED, overflow.number(), overflow_user),
        Kind::Get => (NICLAB_MATCH_GET, 0, 0),
        Kind::Sent => (NICLAB_MATCH_SENT, 0, 0),
        Kind::Acknowledged => (NICLAB_MATCH_ACKNOWLEDGED, 0, 0),
        Kind::Reply => (NICLAB_MATCH_REPLY, 0, 0),
        Kind::Unlinked => (NICLAB_MATCH_UNLINKED, 0, 0),
        Kind::Refused => (NICLAB_MATCH_REFUSED, 0, 0),
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
