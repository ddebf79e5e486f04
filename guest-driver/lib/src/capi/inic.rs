//! The C interface of NICs that post messages. Helpers, codes and handles are those of the module above.

use std::ffi::{c_int, c_void};

use super::region::{allocate, niclab_region, range, register};
use super::{
    Failure, NICLAB_ANY_PORT, call, deadline, exclusive, give, niclab_device, options_of, place, policy_of,
    shared, take_back,
};
use crate::Error;
use crate::posts::{
    Barrier, Command, Element, Event, Kind, Multicast, Operator, Outcome, Port, Receive, Reduce, Rules, Send,
};

/// Event: the card has all data of a message, and needs its memory no more.
pub const NICLAB_INIC_SENT: u32 = 1;
/// Event: a message is in the memory that was posted for it.
pub const NICLAB_INIC_RECEIVED: u32 = 2;
/// Event: a command was refused.
pub const NICLAB_INIC_REFUSED: u32 = 3;
/// Event: a message was not delivered, and the card has given up.
pub const NICLAB_INIC_FAILED: u32 = 4;
/// Event: a barrier, a multicast or a reduction is over; the result says whether it is done.
pub const NICLAB_INIC_DONE: u32 = 5;

/// A reduction's operator: the sum. Integers wrap.
pub const NICLAB_INIC_SUM: u32 = 1;
/// The least.
pub const NICLAB_INIC_MIN: u32 = 2;
/// The greatest.
pub const NICLAB_INIC_MAX: u32 = 3;

/// A reduction's values: int32_t.
pub const NICLAB_INIC_SIGNED_32: u32 = 1;
/// int64_t.
pub const NICLAB_INIC_SIGNED_64: u32 = 2;
/// uint32_t.
pub const NICLAB_INIC_UNSIGNED_32: u32 = 3;
/// uint64_t.
pub const NICLAB_INIC_UNSIGNED_64: u32 = 4;
/// double.
pub const NICLAB_INIC_DOUBLE: u32 = 5;

/// niclab_inic_set_rules: messages of any node.
pub const NICLAB_INIC_ANY_NODE: u32 = 0xffff_ffff;

/// The open port of a NIC that posts messages.
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
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Number of the message among those between both nodes, from 1; 0 where the card does not count them.
    pub message: u64,
    /// Node that sent what was received; of NICLAB_INIC_DONE the group; else the node that it was for.
    pub node: u32,
    /// NICLAB_INIC_SENT and the others.
    pub kind: u32,
    /// 0: done; 1: done, but cut; anything else: not done, niclab_inic_result_text() says why.
    pub result: u32,
}

/// What a result of an event means, in English; never null. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_inic_result_text(result: u32) -> *const std::ffi::c_char {
    let text = match Outcome::from_number(result) {
        Outcome::Done => c"done",
        Outcome::Truncated => c"the message was cut",
        Outcome::BadRegion => c"the region is not registered any more",
        Outcome::BadRange => c"the bytes are not all in the region",
        Outcome::BadValue => c"a value of the command is out of its range",
        Outcome::BadCommand => c"the device does not know the command",
        Outcome::NoTarget => c"there is no such node",
        Outcome::Unreachable => c"the other card does not answer",
        Outcome::Incomplete => c"parts of the message were lost",
        Outcome::HandedOver => c"the card was given another program",
        Outcome::NoGroup => c"there is no such group here",
        Outcome::NotReliable => c"the card's protocol loses messages",
        Outcome::Left => c"a member of the group has left it",
        Outcome::Unalike => c"members have asked for different things",
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
pub unsafe extern "C" fn niclab_inic_open(
    device: *const niclab_device,
    number: u32,
    events: u32,
    port: *mut *mut niclab_inic_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller says that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, events))?;
        // SAFETY: the caller says so.
        unsafe { give(port, niclab_inic_port(opened)) }
    })
}

/// Closes a port, as soon as its regions are released too. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_close(port: *mut niclab_inic_port) {
    // SAFETY: the caller says that it is a handle of ours, used for the last time.
    unsafe { take_back(port) }
}

/// The port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open; null has the number NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_number(port: *const niclab_inic_port) -> u32 {
    // SAFETY: the caller says that it is null or valid.
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
        // SAFETY: the caller says that it is null or valid.
        unsafe { exclusive(port)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Allocates and registers at least `bytes` of memory, zeros all of them. niclab_region_memory() says where they are.
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
/// `port` must be null or from niclab_inic_open, `region` null or valid for a store, `memory` null or valid for reads
/// and writes of `bytes` as long as said above. What the NIC may write, the program reads after its event only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_register(
    port: *const niclab_inic_port,
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

/// Sends `bytes` of a region from `offset` on to `node`: a multiple of 4, and not 0. With `tells`, NICLAB_INIC_SENT
/// tells when the memory may be used again. Waits for room up to `timeout_us`; 0 does not wait, and fails with
/// NICLAB_ERROR_AGAIN.
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
        // SAFETY: the caller says that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let send = Send::new(node, region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if tells { send.tell_sent() } else { send }, timeout_us)
    })
}

/// Posts `bytes` of a region from `offset` on, a multiple of 4 and not 0, for one message from whichever node. With
/// `interrupts`, the NIC interrupts once the event of the message is there. Waits for room as niclab_inic_send does.
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
        // SAFETY: the caller says that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let receive = Receive::new(region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if interrupts { receive.interrupt() } else { receive }, timeout_us)
    })
}

/// Changes when the NIC interrupts, beside receives that ask for it: for so many bytes that came; `at_end` of a message
/// for those that are pooled; for each message of so many bytes or more; of `node`, or NICLAB_INIC_ANY_NODE. 0 turns a
/// rule off.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { shared(port)? };
        port.0.set_rules(&Rules { chunk_bytes, at_end, min_message_bytes, source })?;
        Ok(())
    })
}

/// Makes a group of `count` nodes, this one among them, in the same order at every member. Without nodes drops it.
///
/// # Safety
///
/// `port` must be null or from niclab_inic_open, `nodes` valid for reads of `count` numbers, or null where there are
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_inic_group(
    port: *const niclab_inic_port,
    group: u32,
    nodes: *const u32,
    count: u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { shared(port)? };
        if nodes.is_null() || count == 0 {
            port.0.drop_group(group)?;
        } else {
            // SAFETY: not null, and the caller says that so many can be read.
            port.0.make_group(group, unsafe { std::slice::from_raw_parts(nodes, count as usize) })?;
        }
        Ok(())
    })
}

/// Waits for all members of a group: NICLAB_INIC_DONE tells that all have come. With `interrupts`, the NIC interrupts
/// then. Waits for room as niclab_inic_send does.
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
        // SAFETY: the caller says that it is null or valid.
        let port = unsafe { exclusive(port)? };
        let barrier = Barrier::new(group).user(user);
        launch(port, &if interrupts { barrier.interrupt() } else { barrier }, timeout_us)
    })
}

/// Sends `bytes` of a region from `offset` on to all other members of a group, each of which must have posted room:
/// NICLAB_INIC_DONE tells that all have it. Otherwise as niclab_inic_barrier.
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
        // SAFETY: the caller says that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let multicast = Multicast::new(group, region.0.span(range(offset, bytes)?)?).user(user);
        launch(port, &if interrupts { multicast.interrupt() } else { multicast }, timeout_us)
    })
}

/// Combines `bytes` of values of a region from `offset` on with those of all other members, by NICLAB_INIC_SUM and the
/// others: NICLAB_INIC_DONE tells that the result stands in their place. Otherwise as niclab_inic_barrier.
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
        // SAFETY: the caller says that both are null or valid.
        let (port, region) = unsafe { (exclusive(port)?, shared(region)?) };
        let reduce = Reduce::new(group, region.0.span(range(offset, bytes)?)?, operator, element).user(user);
        launch(port, &if interrupts { reduce.interrupt() } else { reduce }, timeout_us)
    })
}

/// What a number from 1 on names.
fn named<T: Copy, const COUNT: usize>(
    number: u32,
    all: [T; COUNT],
    what: &'static str,
) -> Result<T, Failure> {
    let found = (number as usize).checked_sub(1).and_then(|place| all.get(place).copied());
    let range = format!("1 to {COUNT}");
    found.ok_or_else(|| Error::BadValue { what, value: number.into(), range }.into())
}

/// Receives an event; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
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

fn launch(port: &mut niclab_inic_port, command: &impl Command, timeout_us: i64) -> Result<(), Failure> {
    match deadline(timeout_us) {
        Some(deadline) => port.0.launch(command, deadline).map(drop)?,
        None => drop(port.0.try_launch(command)?.ok_or(Failure::again(c"the page is full"))?),
    }
    Ok(())
}

fn c_event(event: &Event) -> niclab_inic_event {
    let kind = match event.kind {
        Kind::Sent => NICLAB_INIC_SENT,
        Kind::Received => NICLAB_INIC_RECEIVED,
        Kind::Refused => NICLAB_INIC_REFUSED,
        Kind::Failed => NICLAB_INIC_FAILED,
        Kind::Done => NICLAB_INIC_DONE,
    };
    let &Event { user, bytes, moved_bytes, message, node, outcome, .. } = event;
    niclab_inic_event { user, bytes, moved_bytes, message, node, kind, result: outcome.number() }
}
