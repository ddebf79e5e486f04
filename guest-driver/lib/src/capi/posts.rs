//! The C interface of NICs that post messages. Helpers, codes and handles are those of the module above.

use std::ffi::{c_int, c_void};

use super::region::{allocate, niclab_region, range, register};
use super::{
    Failure, NICLAB_ANY_PORT, call, deadline, exclusive, give, niclab_device, options_of, place, policy_of,
    shared, take_back,
};
use crate::posts::{Command, Event, Kind, Outcome, Port, Receive, Send};

/// Event: the card has all data of a message, and needs its memory no more.
pub const NICLAB_POSTS_SENT: u32 = 1;
/// Event: a message is in the memory that was posted for it.
pub const NICLAB_POSTS_RECEIVED: u32 = 2;
/// Event: a command was refused.
pub const NICLAB_POSTS_REFUSED: u32 = 3;
/// Event: a message was not delivered, and the card has given up.
pub const NICLAB_POSTS_FAILED: u32 = 4;

/// The open port of a NIC that posts messages.
#[allow(non_camel_case_types)]
pub struct niclab_posts_port(pub Port);

/// An event.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_posts_event {
    /// User value of the command.
    pub user: u64,
    /// Bytes of the message.
    pub bytes: u64,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Number of the message among those between both nodes, from 1; 0 where the card does not count them.
    pub message: u64,
    /// Node that sent what was received, else the one that it was for.
    pub node: u32,
    /// NICLAB_POSTS_SENT and the others.
    pub kind: u32,
    /// 0: done; 1: done, but cut; anything else: not done, niclab_posts_result_text() says why.
    pub result: u32,
}

/// What a result of an event means, in English; never null. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_posts_result_text(result: u32) -> *const std::ffi::c_char {
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
        Outcome::HandedOver => c"the card was given another program before the message had arrived",
        Outcome::Other(_) => c"a result that this library does not know",
    };
    text.as_ptr()
}

/// Opens port `number`, or any free one for NICLAB_ANY_PORT, with a queue of `events` (a power of two from 8 on; 0 for 256).
///
/// # Safety
///
/// `device` must be null or from niclab_open, `port` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_open(
    device: *const niclab_device,
    number: u32,
    events: u32,
    port: *mut *mut niclab_posts_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller says that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, events))?;
        // SAFETY: the caller says so.
        unsafe { give(port, niclab_posts_port(opened)) }
    })
}

/// Closes a port, as soon as its regions are released too. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open, and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_close(port: *mut niclab_posts_port) {
    // SAFETY: the caller says that it is a handle of ours, used for the last time.
    unsafe { take_back(port) }
}

/// The port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open; null has the number NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_number(port: *const niclab_posts_port) -> u32 {
    // SAFETY: the caller says that it is null or valid.
    unsafe { port.as_ref() }.map_or(NICLAB_ANY_PORT, |port| port.0.address().port)
}

/// Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_set_wait_policy(port: *mut niclab_posts_port, policy: c_int) -> c_int {
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
/// `port` must be null or from niclab_posts_open, `region` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_allocate(
    port: *const niclab_posts_port,
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

/// Registers memory of the program: it begins at a multiple of 8 and has a multiple of 8 bytes. It must not be freed before
/// niclab_region_release(), nor after it if the device is gone meanwhile (NICLAB_ERROR_GONE).
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open, `region` null or valid for a store, `memory` null or valid for reads and
/// writes of `bytes` as long as said above. What the NIC may write, the program reads after its event only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_register(
    port: *const niclab_posts_port,
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

/// Sends `bytes` of a region from `offset` on to `node`: a multiple of 4, and not 0. With `tells`, NICLAB_POSTS_SENT tells when the
/// memory may be used again. Waits for room up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open, `region` null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_send(
    port: *mut niclab_posts_port,
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

/// Posts `bytes` of a region from `offset` on, a multiple of 4 and not 0, for one message from whichever node. With `interrupts`,
/// the NIC interrupts once the event of the message is there. Waits for room as niclab_posts_send does.
///
/// # Safety
///
/// As niclab_posts_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_receive(
    port: *mut niclab_posts_port,
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

/// Receives an event; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_posts_open, `event` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_posts_next_event(
    port: *mut niclab_posts_port,
    event: *mut niclab_posts_event,
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

fn launch(port: &mut niclab_posts_port, command: &impl Command, timeout_us: i64) -> Result<(), Failure> {
    match deadline(timeout_us) {
        Some(deadline) => port.0.launch(command, deadline).map(drop)?,
        None => drop(port.0.try_launch(command)?.ok_or(Failure::again(c"the page is full"))?),
    }
    Ok(())
}

fn c_event(event: &Event) -> niclab_posts_event {
    let kind = match event.kind {
        Kind::Sent => NICLAB_POSTS_SENT,
        Kind::Received => NICLAB_POSTS_RECEIVED,
        Kind::Refused => NICLAB_POSTS_REFUSED,
        Kind::Failed => NICLAB_POSTS_FAILED,
    };
    let &Event { user, bytes, moved_bytes, message, node, outcome, .. } = event;
    niclab_posts_event { user, bytes, moved_bytes, message, node, kind, result: outcome.number() }
}
