//! The C interface of NICs that post messages. It shares helpers, codes and handles with the parent module.

use std::ffi::{c_int, c_void};

use super::region::{allocate, niclab_region, range, register};
use super::{
    Failure, NICLAB_ANY_PORT, call, deadline, exclusive, give, niclab_device, options_of, place, policy_of,
    shared, take_back,
};
use crate::inic::{
    Barrier, Command, Element, Event, EventKind, Multicast, Operator, Outcome, Port, Receive, Reduce, Rules,
    Send,
};
use crate::{Batching as _, Error};

/// Event: the card has read a message completely; its memory may be reused.
pub const NICLAB_INIC_SENT: u32 = 1;
/// Event: a message was stored in posted memory.
pub const NICLAB_INIC_RECEIVED: u32 = 2;
/// Event: a command was refused.
pub const NICLAB_INIC_REFUSED: u32 = 3;
/// Event: a message was not delivered, and the card does not try again.
pub const NICLAB_INIC_FAILED: u32 = 4;
/// Event: a barrier, a multicast or a reduction has ended; the result shows whether it succeeded.
pub const NICLAB_INIC_DONE: u32 = 5;

/// Operator of a reduction: sum. Integers wrap.
pub const NICLAB_INIC_SUM: u32 = 1;
/// Operator of a reduction: minimum.
pub const NICLAB_INIC_MIN: u32 = 2;
/// Operator of a reduction: maximum.
pub const NICLAB_INIC_MAX: u32 = 3;

/// Values of a reduction: int32_t.
pub const NICLAB_INIC_SIGNED_32: u32 = 1;
/// Values of a reduction: int64_t.
pub const NICLAB_INIC_SIGNED_64: u32 = 2;
/// Values of a reduction: uint32_t.
pub const NICLAB_INIC_UNSIGNED_32: u32 = 3;
/// Values of a reduction: uint64_t.
pub const NICLAB_INIC_UNSIGNED_64: u32 = 4;
/// Values of a reduction: double.
pub const NICLAB_INIC_DOUBLE: u32 = 5;

/// Node for niclab_inic_set_rules(): messages from any node.
pub const NICLAB_INIC_ANY_NODE: u32 = 0xffff_ffff;

/// An open port of an INIC NIC.
#[allow(non_camel_case_types)]
pub struct niclab_inic_port(pub Port);

/// An event.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_inic_event {
    /// User value of the command.
    pub user: u64,
    /// Bytes of the message.
    pub bytes: u64,
    /// Bytes transferred.
    pub moved_bytes: u64,
    /// Number of the message among those from its sender to its receiver, from 1; 0 if the card does not count them.
    pub message: u64,
    /// Received message: source node. NICLAB_INIC_DONE: the group. Otherwise: target node.
    pub node: u32,
    /// Kind of event: NICLAB_INIC_SENT and so on.
    pub kind: u32,
    /// 0: done; 1: done, but truncated; other values: failed, see niclab_inic_result_text().
    pub result: u32,
}

/// Returns an English text for the result of an event; never null, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_inic_result_text(result: u32) -> *const std::ffi::c_char {
    let text = match Outcome::from_number(result) {
        Outcome::Done => c"done",
        Outcome::Truncated => c"the message was truncated",
        Outcome::BadRegion => c"the region is no longer registered",
        Outcome::BadRange => c"the bytes exceed the region",
        Outcome::BadValue => c"a value of the command is out of its range",
        Outcome::BadCommand => c"the device does not know the command",
        Outcome::NoTarget => c"there is no such node",
        Outcome::Unreachable => c"the other card does not answer",
        Outcome::Incomplete => c"parts of the message were lost",
        Outcome::HandedOver => c"the card loaded another program",
        Outcome::NoGroup => c"this node has no such group",
        Outcome::NotReliable => c"the card's protocol loses messages",
        Outcome::Left => c"a member of the group has left it",
        Outcome::Unalike => c"members have posted different operations",
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
pub unsafe extern "C" fn niclab_inic_open(
    device: *const niclab_device,
    number: u32,
    events: u32,
    port: *mut *mut niclab_inic_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, events))?;
        // SAFETY: the caller guarantees this.
        unsafe { give(port, niclab_inic_port(opened)) }
    })
}

/// Closes a port once its regions are released too. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_close(port: *mut niclab_inic_port) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(port) }
}

/// Returns the port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open; for null the number is NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_number(port: *const niclab_inic_port) -> u32 {
    // SAFETY: the caller guarantees that it is null or valid.
    unsafe { port.as_ref() }.map_or(NICLAB_ANY_PORT, |port| port.0.address().port)
}

/// Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_set_wait_policy(port: *mut niclab_inic_port, policy: c_int) -> c_int {
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
/// `port` must be null or from niclab_inic_open, `region` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_allocate(
    port: *const niclab_inic_port,
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
/// `port` must be null or from niclab_inic_open, `region` null or valid for a store, `memory` null or valid for reads
/// and writes of `bytes` bytes for as long as stated above. The program reads memory that the NIC writes only after its
/// event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_register(
    port: *const niclab_inic_port,
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

/// Begins a batch: until the matching niclab_inic_end_batch(), messages and releases share doorbells, each of which is
/// an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
/// or flushes. A call that never waits does not ring it. Batches may be nested.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_begin_batch(port: *mut niclab_inic_port) -> c_int {
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
/// `port` must be null or from niclab_inic_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_end_batch(port: *mut niclab_inic_port) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.end_batch();
        Ok(())
    })
}

/// Sends `bytes` bytes of a region from `offset` on to `node`; a multiple of 4, and not 0. With `tells`, the event
/// NICLAB_INIC_SENT reports when the memory may be reused. Waits for room up to `timeout_us`; with 0 it does not wait,
/// but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, `region` null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_send(
    port: *mut niclab_inic_port,
    node: u32,
    region: *const niclab_region,
    offset: u64,
    bytes: u64,
    user: u64,
    tells: bool,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let send = Send::new(node, region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if tells { send.tell_sent() } else { send }, timeout_us)
    })
}

/// Posts `bytes` bytes of a region from `offset` on, a multiple of 4 and not 0, for one message from any node. With
/// `interrupts`, the NIC interrupts when the message's event is stored. Waits for room as niclab_inic_send() does.
///
/// # Safety
///
/// As niclab_inic_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_receive(
    port: *mut niclab_inic_port,
    region: *const niclab_region,
    offset: u64,
    bytes: u64,
    user: u64,
    interrupts: bool,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let receive = Receive::new(region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if interrupts { receive.interrupt() } else { receive }, timeout_us)
    })
}

/// Sets the rules by which the NIC interrupts, in addition to receives that request it. `chunk_bytes`: an interrupt for
/// each such number of bytes received. `at_end`: at the end of a message, for bytes below that number.
/// `min_message_bytes`: an interrupt for each message of at least this length. `node`: messages of this node only, or
/// NICLAB_INIC_ANY_NODE. 0 disables a rule.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_set_rules(
    port: *const niclab_inic_port,
    chunk_bytes: u64,
    at_end: bool,
    min_message_bytes: u64,
    node: u32,
) -> c_int {
    call(|| {
        let source = (node != NICLAB_INIC_ANY_NODE).then_some(node);
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { shared(port)? };
        port.0.set_rules(&Rules { chunk_bytes, at_end, min_message_bytes, source })?;
        Ok(())
    })
}

/// Creates a group of `count` nodes including this one, in the same order at every member. Without nodes, removes it.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, `nodes` valid for reads of `count` numbers, or null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_group(
    port: *const niclab_inic_port,
    group: u32,
    nodes: *const u32,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { shared(port)? };
        if nodes.is_null() || count == 0 {
            port.0.drop_group(group)?;
        } else {
            // SAFETY: not null, and the caller guarantees that `count` numbers can be read.
            port.0.make_group(group, unsafe { std::slice::from_raw_parts(nodes, count as usize) })?;
        }
        Ok(())
    })
}

/// Waits for all members of a group: the event NICLAB_INIC_DONE reports that all have reached the barrier. With
/// `interrupts`, the NIC then interrupts. Waits for room as niclab_inic_send() does.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_barrier(
    port: *mut niclab_inic_port,
    group: u32,
    user: u64,
    interrupts: bool,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let barrier = Barrier::new(group).user(user);
        launch(port, &if interrupts { barrier.interrupt() } else { barrier }, timeout_us)
    })
}

/// Sends `bytes` bytes of a region from `offset` on to all other members of a group, each of which must have posted
/// memory. The event NICLAB_INIC_DONE reports that all have received it. Otherwise as niclab_inic_barrier().
///
/// # Safety
///
/// As niclab_inic_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_multicast(
    port: *mut niclab_inic_port,
    group: u32,
    region: *const niclab_region,
    offset: u64,
    bytes: u64,
    user: u64,
    interrupts: bool,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let multicast = Multicast::new(group, region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if interrupts { multicast.interrupt() } else { multicast }, timeout_us)
    })
}

/// Combines `bytes` bytes of values of a region from `offset` on with those of all other members, by NICLAB_INIC_SUM,
/// NICLAB_INIC_MIN or NICLAB_INIC_MAX. The event NICLAB_INIC_DONE reports that the result has replaced the values.
/// Otherwise as niclab_inic_barrier().
///
/// # Safety
///
/// As niclab_inic_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_reduce(
    port: *mut niclab_inic_port,
    group: u32,
    region: *const niclab_region,
    offset: u64,
    bytes: u64,
    operator: u32,
    element: u32,
    user: u64,
    interrupts: bool,
    timeout_us: i64,
) -> c_int {
    call(|| {
        let operator = named(operator, [Operator::Sum, Operator::Min, Operator::Max], "operator")?;
        let elements =
            [Element::Signed32, Element::Signed64, Element::Unsigned32, Element::Unsigned64, Element::Double];
        let element = named(element, elements, "kind of values")?;
        // SAFETY: the caller guarantees that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let reduce = Reduce::new(group, region.0.span(range(offset, bytes)?)?, operator, element).user(user);
        launch(port, &if interrupts { reduce.interrupt() } else { reduce }, timeout_us)
    })
}

/// The value with this number, counted from 1.
fn named<T: Copy, const COUNT: usize>(
    number: u32,
    all: [T; COUNT],
    what: &'static str,
) -> Result<T, Failure> {
    let found = (number as usize).checked_sub(1).and_then(|place| all.get(place).copied());
    let range = format!("1 to {COUNT}");
    found.ok_or_else(|| Error::BadValue { what, value: number.into(), range }.into())
}

/// Receives an event. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, `event` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_next_event(
    port: *mut niclab_inic_port,
    event: *mut niclab_inic_event,
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

fn launch(port: &mut niclab_inic_port, command: &impl Command, timeout_us: i64) -> Result<(), Failure> {
    match deadline(timeout_us) {
        Some(deadline) => port.0.launch(command, deadline).map(drop)?,
        None => drop(port.0.try_launch(command)?.ok_or(Failure::again(c"the page is full"))?),
    }
    Ok(())
}

fn c_event(event: &Event) -> niclab_inic_event {
    let kind = match event.kind {
        EventKind::Sent => NICLAB_INIC_SENT,
        EventKind::Received => NICLAB_INIC_RECEIVED,
        EventKind::Refused => NICLAB_INIC_REFUSED,
        EventKind::Failed => NICLAB_INIC_FAILED,
        EventKind::Done => NICLAB_INIC_DONE,
    };
    let &Event { user, bytes, moved_bytes, message, node, outcome, .. } = event;
    niclab_inic_event { user, bytes, moved_bytes, message, node, kind, result: outcome.number() }
}
