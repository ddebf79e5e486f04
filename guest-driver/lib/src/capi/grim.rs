//! The C interface of NICs with channels: the paper's calls (GRIM, section 5.4). Helpers, codes and handles are those
//! of the module above.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::region::niclab_region;
use super::{Failure, call, deadline, exclusive, give, niclab_device, place, policy_of, shared, take_back};
use crate::channels::{FIRST_HANDLER, Message, Node, Options, Place, SendQueue, Short};
use crate::{Address, Deadline};

/// Any free ports.
pub const GRIM_ANY_PORT: u32 = 0xffff_ffff;
/// grim_register_handler(): the keeper chooses the number.
pub const GRIM_ANY_NUMBER: u32 = 0;
/// Handlers below this number are predefined.
pub const GRIM_FIRST_HANDLER: u32 = 32;
/// Most bytes of the payload of a message.
pub const GRIM_MAX_BULK_BYTES: u64 = 49_152;

const _: () = assert!(GRIM_FIRST_HANDLER == FIRST_HANDLER);

/// The channels of a program, with its handlers.
#[allow(non_camel_case_types)]
pub struct grim(pub Node);

/// What a handler sends by, while it runs.
#[allow(non_camel_case_types)]
pub struct grim_queue(());

/// A message, as a handler sees it.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct grim_message {
    /// Its payload, in place; null without any. It is overwritten once the handler has returned.
    pub payload: *const c_void,
    /// Bytes of the payload.
    pub bytes: u64,
    /// Number of the handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Node that sent it.
    pub source_node: u32,
    /// Its channel: the port.
    pub source_port: u32,
    /// The port that it came to.
    pub target_port: u32,
}

/// A handler. It sends by grim_queue_short() and grim_queue_bulk(), and must not call anything else of the library
/// with the handle that is polled.
#[allow(non_camel_case_types)]
pub type grim_handler = Option<
    unsafe extern "C" fn(send_queue: *mut grim_queue, message: *const grim_message, user: *mut c_void),
>;

/// What a program gave with its handler.
struct User(*mut c_void);

// SAFETY: the pointer is only handed back; whoever moves the handle to another thread moves what it means (a handle is
// used by one thread at a time).
unsafe impl Send for User {}

/// Enables the library for a program: opens `channels` logical channels, from `first_port` on or any for GRIM_ANY_PORT.
/// The list of all handlers is kept by the channel of port `keeper_port` on `keeper_node`, the same for all programs of
/// the cluster.
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
        // SAFETY: the caller says that it is null or valid.
        let device = unsafe { shared(device)? };
        let options = Options {
            channels,
            first_port: (first_port != GRIM_ANY_PORT).then_some(first_port),
            keeper: Address { node: keeper_node, port: keeper_port },
            ..Options::default()
        };
        let enabled = Node::enable(&device.0, &options)?;
        // SAFETY: the caller says so.
        unsafe { give(result, grim(enabled)) }
    })
}

/// Closes the channels: what has not left is taken back (grim_flush). Null is ignored.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_disable(handle: *mut grim) {
    // SAFETY: the caller says that it is a handle of ours, used for the last time.
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
        // SAFETY: the caller says that it is null or valid.
        unsafe { exclusive(handle)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Registers a handler, at any time. With GRIM_ANY_NUMBER it has a number once grim_synch_handlers() has returned.
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
        // SAFETY: the caller says that both are null or valid.
        let (own, name) = unsafe { (exclusive(handle)?, text(name)?) };
        let handler = handler.ok_or(Failure::value(c"the handler is null"))?;
        let user = User(user);
        let run = move |send_queue: &mut SendQueue, message: &Message<'_>| {
            // The whole of it, not its field alone.
            let user = &user;
            let send_queue = std::ptr::from_mut(send_queue).cast::<grim_queue>();
            let message = c_message(message);
            // SAFETY: the caller says that it may be called; send_queue and message are valid meanwhile, and nobody else
            // uses them.
            unsafe { handler(send_queue, &raw const message, user.0) };
        };
        match number {
            GRIM_ANY_NUMBER => own.0.register_handler(name, run)?,
            number => own.0.register_numbered(name, number, run)?,
        }
        Ok(())
    })
}

/// Makes the handlers that are registered part of the cluster's list, and waits until they are, up to `timeout_us`. The
/// program that keeps the list must poll. Names that could not be merged are in niclab_last_error().
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_synch_handlers(handle: *mut grim, timeout_us: i64) -> c_int {
    // SAFETY: the caller says that it is null or valid.
    call(|| Ok(unsafe { exclusive(handle)? }.0.synch_handlers(limit(timeout_us))?))
}

/// The number of a handler. Waits up to `timeout_us` until it is part of the list; 0 does not wait, and fails with
/// NICLAB_ERROR_AGAIN.
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
        // SAFETY: the caller says that both are null or valid.
        let (own, name) = unsafe { (exclusive(handle)?, text(name)?) };
        let number = place(number)?;
        let found = match deadline(timeout_us) {
            Some(deadline) => own.0.wait_for_handler(name, deadline)?,
            None => own.0.handler_by_name(name).ok_or(Failure::again(c"no handler of this name is known"))?,
        };
        // SAFETY: not null, and the caller says that it is valid for a store then.
        unsafe { number.write(found) };
        Ok(())
    })
}

/// Sends four integers for a handler of the endpoint at `node` and `port`, through the channel of this number, from 0.
/// Waits for room up to `timeout_us`, and runs handlers meanwhile.
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
        // SAFETY: the caller says that both are null or valid.
        let (own, short) = unsafe { (exclusive(handle)?, short(node, port, handler, arguments)?) };
        Ok(own.0.send_short(channel as usize, short, limit(timeout_us))?)
    })
}

/// As grim_send_short(), with a payload of up to GRIM_MAX_BULK_BYTES. It may be used anew once this returns.
///
/// # Safety
///
/// As there; `payload` must be null or valid for reads of `bytes`.
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
        // SAFETY: the caller says that all are null or valid.
        let (own, short) = unsafe { (exclusive(handle)?, short(node, port, handler, arguments)?) };
        // SAFETY: the caller says so.
        let payload = unsafe { slice(payload, bytes)? };
        Ok(own.0.send_bulk(channel as usize, short, payload, limit(timeout_us))?)
    })
}

/// Copies `bytes`, of which there may be any number, to `offset` of a region that the program at `node` and `port` has
/// exposed by this name. It is not told: a message behind them, which comes behind them, may do that. Waits as
/// grim_send_short() does.
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
        // SAFETY: the caller says that both are null or valid.
        let (own, memory) = unsafe { (exclusive(handle)?, slice(memory, bytes)?) };
        let place = Place { target: Address { node, port }, region, offset };
        Ok(own.0.send_memory(channel as usize, &place, memory, limit(timeout_us))?)
    })
}

/// Runs the handlers of messages that are there, or waits for the first up to `timeout_us`; 0 does not wait. Says how
/// many there were where `handled` is not null. An error names what went wrong since the last call: nothing stops for
/// it.
///
/// # Safety
///
/// `handle` must be null or from grim_enable, `handled` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_poll(handle: *mut grim, handled: *mut u32, timeout_us: i64) -> c_int {
    call(|| {
        // SAFETY: the caller says that it is null or valid.
        let own = unsafe { exclusive(handle)? };
        let count = match deadline(timeout_us) {
            Some(deadline) => own.0.wait(deadline)?,
            None => own.0.poll()?,
        };
        if let Ok(handled) = place(handled) {
            // SAFETY: not null, and the caller says that it is valid for a store then.
            unsafe { handled.write(count) };
        }
        Ok(())
    })
}

/// Waits up to `timeout_us` until all that was sent has left, and runs handlers meanwhile.
///
/// # Safety
///
/// `handle` must be null or from grim_enable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grim_flush(handle: *mut grim, timeout_us: i64) -> c_int {
    // SAFETY: the caller says that it is null or valid.
    call(|| Ok(unsafe { exclusive(handle)? }.0.flush(limit(timeout_us))?))
}

/// Allocates and registers at least `bytes` of memory for a channel, zeros all of them, and lets memory messages write
/// into it. `name` is what those who write give. niclab_region_memory() says where it is, and niclab_region_release()
/// ends it.
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
        // SAFETY: the caller says that it is null or valid.
        let own = unsafe { exclusive(handle)? };
        let name = place(name)?;
        let bytes = usize::try_from(bytes).map_err(|_| Failure::value(c"so much memory has no address"))?;
        let sender = own.0.send_queue().sender(channel as usize)?;
        let found = sender.allocate(bytes)?;
        let exposed = sender.expose(&found, true)?;
        // SAFETY: the caller says so.
        unsafe {
            give(region, niclab_region(found))?;
            name.write(exposed);
        }
        Ok(())
    })
}

/// As grim_send_short(), from a handler: what finds no room waits, and there is a bound for that
/// (NICLAB_ERROR_REFUSED).
///
/// # Safety
///
/// `send_queue` must be null or what the handler was given, `arguments` null or valid for four integers.
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
        // SAFETY: the caller says that both are null or valid.
        let (send_queue, short) =
            unsafe { (exclusive(send_queue.cast::<SendQueue>())?, short(node, port, handler, arguments)?) };
        Ok(send_queue.send_short(channel as usize, short)?)
    })
}

/// As grim_send_bulk(), from a handler.
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
        // SAFETY: the caller says that all are null or valid.
        let (send_queue, short) =
            unsafe { (exclusive(send_queue.cast::<SendQueue>())?, short(node, port, handler, arguments)?) };
        // SAFETY: the caller says so.
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
    // SAFETY: the caller says so; an array of four lies as four do.
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
    // SAFETY: not null, and the caller says that it is a string then.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| Failure::value(c"the name is not UTF-8"))
}

/// # Safety
///
/// `first` must be null or valid for reads of `bytes`.
pub(super) unsafe fn slice<'a>(first: *const c_void, bytes: u64) -> Result<&'a [u8], Failure> {
    let bytes = usize::try_from(bytes).map_err(|_| Failure::value(c"so many bytes have no address"))?;
    match (bytes, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::value(c"the payload is null")),
        // SAFETY: not null, and the caller says that so many bytes can be read.
        _ => Ok(unsafe { std::slice::from_raw_parts(first.cast(), bytes) }),
    }
}
