//! The C interface of NICs with channels: the paper's calls (GRIM, section 5.4). It shares helpers, codes and handles
//! with the parent module.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::region::niclab_region;
use super::{Failure, call, deadline, exclusive, give, niclab_device, place, policy_of, shared, take_back};
use crate::grim::{ExposedPart, FIRST_HANDLER, Message, Node, Options, SendQueue, Short};
use crate::{Address, Batching as _, Deadline};

/// Any free ports.
pub const GRIM_ANY_PORT: u32 = 0xffff_ffff;
/// grim_register_handler(): the keeper of the handler list chooses the number.
pub const GRIM_ANY_NUMBER: u32 = 0;
/// Handlers below this number are predefined.
pub const GRIM_FIRST_HANDLER: u32 = 32;
/// Maximum bytes of a message's payload.
pub const GRIM_MAX_BULK_BYTES: u64 = 49_152;

const _: () = assert!(GRIM_FIRST_HANDLER == FIRST_HANDLER);

/// The channels of a program, with its handlers.
#[allow(non_camel_case_types)]
pub struct grim(pub Node);

/// The queue by which a running handler sends.
#[allow(non_camel_case_types)]
pub struct grim_queue(());

/// A message, as passed to a handler.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct grim_message {
    /// Its payload, in place; null if it is empty. It may be overwritten once the handler has returned.
    pub payload: *const c_void,
    /// Bytes of the payload.
    pub bytes: u64,
    /// Number of the handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Node that sent it.
    pub source_node: u32,
    /// The sender's channel: its port.
    pub source_port: u32,
    /// The port that received it.
    pub target_port: u32,
}

/// A handler. It sends with grim_queue_short() and grim_queue_bulk(). It must not call other functions of the library
/// with the handle that is polled.
#[allow(non_camel_case_types)]
pub type grim_handler = Option<
    unsafe extern "C" fn(send_queue: *mut grim_queue, message: *const grim_message, user: *mut c_void),
>;

/// The value that a program registered with its handler.
struct User(*mut c_void);

// SAFETY: the library only passes the pointer back. A program that moves the handle to another thread moves the
// pointer's object too (a handle is used by one thread at a time).
unsafe impl Send for User {}

/// Enables the library for a program: opens `channels` logical channels, from port `first_port` on, or on any ports for
/// GRIM_ANY_PORT. The channel at port `keeper_port` of node `keeper_node` keeps the list of all handlers. It must be
/// the same for all programs of the cluster.
///
/// # Safety
///
/// `device` must be null or from niclab_open, `result` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_enable(
    device: *const niclab_device,
    first_port: u32,
    channels: u32,
    keeper_node: u32,
    keeper_port: u32,
    result: *mut *mut grim,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let device = unsafe { shared(device)? };
        let options = Options {
            channels,
            first_port: (first_port != GRIM_ANY_PORT).then_some(first_port),
            keeper: Address { node: keeper_node, port: keeper_port },
            ..Options::default()
        };
        let enabled = Node::enable(&device.0, &options)?;
        // SAFETY: the caller guarantees this.
        unsafe { give(result, grim(enabled)) }
    })
}

/// Closes the channels. Messages that have not left are discarded (see grim_flush()). Null is ignored.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_disable(handle: *mut grim) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(handle) }
}

/// Sets how calls wait: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_set_wait_policy(handle: *mut grim, policy: c_int) -> c_int {
    call(|| {
        let policy = policy_of(policy)?;
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(handle)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Registers a handler, at any time. With GRIM_ANY_NUMBER it gets its number in grim_synch_handlers().
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `name` null or a string. `handler` is called with `user` by calls of the
/// handle until it is disabled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_register_handler(
    handle: *mut grim,
    name: *const c_char,
    number: u32,
    handler: grim_handler,
    user: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (own, name) = unsafe { (exclusive(handle)?, text(name)?) };
        let handler = handler.ok_or(Failure::value(c"the handler is null"))?;
        let user = User(user);
        let run = move |send_queue: &mut SendQueue, message: &Message<'_>| {
            // Capture the whole value, not only its field.
            let user = &user;
            let send_queue = std::ptr::from_mut(send_queue).cast::<grim_queue>();
            let message = c_message(message);
            // SAFETY: the caller guarantees that the handler may be called. `send_queue` and the message are valid
            // during the call, and nothing else uses them.
            unsafe { handler(send_queue, &raw const message, user.0) };
        };
        match number {
            GRIM_ANY_NUMBER => own.0.register_handler(name, run)?,
            number => own.0.register_numbered(name, number, run)?,
        }
        Ok(())
    })
}

/// Adds the registered handlers to the cluster's list, and waits for that up to `timeout_us`. The program that keeps
/// the list must poll. niclab_last_error() names handlers that could not be merged.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_synch_handlers(handle: *mut grim, timeout_us: i64) -> c_int {
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(handle)? }.0.synch_handlers(limit(timeout_us))?))
}

/// Returns the number of a handler. Waits up to `timeout_us` until it is in the list; with 0 it does not wait, but
/// fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `name` null or a string, `number` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_get_handler_by_name(
    handle: *mut grim,
    name: *const c_char,
    number: *mut u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (own, name) = unsafe { (exclusive(handle)?, text(name)?) };
        let number = place(number)?;
        let found = match deadline(timeout_us) {
            Some(deadline) => own.0.wait_for_handler(name, deadline)?,
            None => own
                .0
                .handler_by_name(name)
                .ok_or(Failure::again(c"no handler of this name is in the list yet"))?,
        };
        // SAFETY: not null, and the caller guarantees that it is valid for a store then.
        unsafe { number.write(found) };
        Ok(())
    })
}

/// Begins a batch: until the matching grim_end_batch(), messages and releases share doorbells, each of which is an
/// exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
/// or flushes. A call that never waits does not ring it. Batches may be nested.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_begin_batch(handle: *mut grim) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(handle)? }.0.begin_batch();
        Ok(())
    })
}

/// Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_end_batch(handle: *mut grim) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(handle)? }.0.end_batch();
        Ok(())
    })
}

/// Sends four integers for a handler of the endpoint at `node` and `port`, through channel `channel`, counted from 0.
/// Waits for room up to `timeout_us`, and runs handlers while it waits.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `arguments` null or valid for four integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_send_short(
    handle: *mut grim,
    channel: u32,
    node: u32,
    port: u32,
    handler: u32,
    arguments: *const u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (own, short) = unsafe { (exclusive(handle)?, short(node, port, handler, arguments)?) };
        Ok(own.0.send_short(channel as usize, short, limit(timeout_us))?)
    })
}

/// As grim_send_short(), with a payload of up to GRIM_MAX_BULK_BYTES. The payload may be reused after the call.
///
/// # Safety
///
/// As grim_send_short; `payload` must be null or valid for reads of `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_send_bulk(
    handle: *mut grim,
    channel: u32,
    node: u32,
    port: u32,
    handler: u32,
    arguments: *const u32,
    payload: *const c_void,
    bytes: u64,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that all are null or valid.
        let (own, short) = unsafe { (exclusive(handle)?, short(node, port, handler, arguments)?) };
        // SAFETY: the caller guarantees this.
        let payload = unsafe { slice(payload, bytes)? };
        Ok(own.0.send_bulk(channel as usize, short, payload, limit(timeout_us))?)
    })
}

/// Copies `bytes` bytes, without a limit, to `offset` of the region that the program at `node` and `port` exposed by
/// this name. That program is not notified; a later message on the same channel arrives after the bytes and can notify
/// it. Waits as grim_send_short() does.
///
/// # Safety
///
/// As grim_send_bulk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_send_memory(
    handle: *mut grim,
    channel: u32,
    node: u32,
    port: u32,
    region: u32,
    offset: u64,
    memory: *const c_void,
    bytes: u64,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (own, memory) = unsafe { (exclusive(handle)?, slice(memory, bytes)?) };
        let exposed = ExposedPart { target: Address { node, port }, region, offset };
        Ok(own.0.send_memory(channel as usize, &exposed, memory, limit(timeout_us))?)
    })
}

/// Runs the handlers of all received messages, or waits for the first up to `timeout_us`; with 0 it does not wait.
/// Stores the number of messages in `handled`, unless that is null. An error reports a problem since the last call; the
/// channels remain usable.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `handled` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_poll(handle: *mut grim, handled: *mut u32, timeout_us: i64) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let own = unsafe { exclusive(handle)? };
        let count = match deadline(timeout_us) {
            Some(deadline) => own.0.wait(deadline)?,
            None => own.0.poll()?,
        };
        if let Ok(handled) = place(handled) {
            // SAFETY: not null, and the caller guarantees that it is valid for a store then.
            unsafe { handled.write(count) };
        }
        Ok(())
    })
}

/// Waits up to `timeout_us` until all sent messages have left, and runs handlers while it waits.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_flush(handle: *mut grim, timeout_us: i64) -> c_int {
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(handle)? }.0.flush(limit(timeout_us))?))
}

/// Allocates and registers at least `bytes` bytes of zeroed memory for a channel, and lets memory messages write to it.
/// Senders address it by `name`. niclab_region_memory() returns its address, and niclab_region_release() frees it.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `region` and `name` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_expose(
    handle: *mut grim,
    channel: u32,
    bytes: u64,
    region: *mut *mut niclab_region,
    name: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let own = unsafe { exclusive(handle)? };
        let name = place(name)?;
        let bytes = usize::try_from(bytes)
            .map_err(|_| Failure::value(c"the number of bytes exceeds the address space"))?;
        let sender = own.0.send_queue().sender(channel as usize)?;
        let found = sender.allocate(bytes)?;
        let exposed = sender.expose(&found, true)?;
        // SAFETY: the caller guarantees this.
        unsafe {
            give(region, niclab_region(found))?;
            name.write(exposed);
        }
        Ok(())
    })
}

/// As grim_send_short(), for handlers. A message without room waits in a queue. If the queue is full, the call fails
/// with NICLAB_ERROR_REFUSED.
///
/// # Safety
///
/// `send_queue` must be null or the handler's argument, `arguments` null or valid for four integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_queue_short(
    send_queue: *mut grim_queue,
    channel: u32,
    node: u32,
    port: u32,
    handler: u32,
    arguments: *const u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that both are null or valid.
        let (send_queue, short) =
            unsafe { (exclusive(send_queue.cast::<SendQueue>())?, short(node, port, handler, arguments)?) };
        Ok(send_queue.send_short(channel as usize, short)?)
    })
}

/// As grim_send_bulk(), for handlers.
///
/// # Safety
///
/// As grim_queue_short; `payload` must be null or valid for reads of `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_queue_bulk(
    send_queue: *mut grim_queue,
    channel: u32,
    node: u32,
    port: u32,
    handler: u32,
    arguments: *const u32,
    payload: *const c_void,
    bytes: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that all are null or valid.
        let (send_queue, short) =
            unsafe { (exclusive(send_queue.cast::<SendQueue>())?, short(node, port, handler, arguments)?) };
        // SAFETY: the caller guarantees this.
        let payload = unsafe { slice(payload, bytes)? };
        Ok(send_queue.send_bulk(channel as usize, short, payload)?)
    })
}

fn c_message(message: &Message<'_>) -> grim_message {
    let words = message.payload.words();
    let payload = if message.payload.is_empty() { std::ptr::null() } else { words.as_ptr().cast::<c_void>() };
    grim_message {
        payload,
        bytes: message.payload.len() as u64,
        handler: message.handler,
        arguments: message.arguments,
        source_node: message.source.node,
        source_port: message.source.port,
        target_port: message.target.port,
    }
}

fn limit(timeout_us: i64) -> Deadline {
    deadline(timeout_us).unwrap_or(Deadline::After(std::time::Duration::ZERO))
}

/// # Safety
///
/// `arguments` must be null or valid for four integers.
unsafe fn short(node: u32, port: u32, handler: u32, arguments: *const u32) -> Result<Short, Failure> {
    // SAFETY: the caller guarantees this; an array of four integers has the layout of four integers.
    let arguments = unsafe { shared(arguments.cast::<[u32; 4]>())? };
    Ok(Short::new(Address { node, port }, handler).arguments(*arguments))
}

/// # Safety
///
/// `name` must be null or a string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    if name.is_null() {
        return Err(Failure::value(c"the name is null"));
    }
    // SAFETY: not null, and the caller guarantees that it is a string then.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| Failure::value(c"the name is not UTF-8"))
}

/// # Safety
///
/// `first` must be null or valid for reads of `bytes`.
pub(super) unsafe fn slice<'a>(first: *const c_void, bytes: u64) -> Result<&'a [u8], Failure> {
    let bytes = usize::try_from(bytes)
        .map_err(|_| Failure::value(c"the number of bytes exceeds the address space"))?;
    match (bytes, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::value(c"the payload is null")),
        // SAFETY: not null, and the caller guarantees that `bytes` bytes can be read.
        _ => Ok(unsafe { std::slice::from_raw_parts(first.cast(), bytes) }),
    }
}
