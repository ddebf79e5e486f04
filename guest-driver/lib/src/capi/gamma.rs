//! The C interface of active ports (GAMMA). It shares helpers, codes and handles with the parent module.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::grim::slice;
use super::{
    Failure, NICLAB_ANY_PORT, call, exclusive, give, niclab_device, place, policy_of, shared, take_back,
};
use crate::Address;
use crate::gamma::{Message, Port, PortOptions};

/// An active port.
#[allow(non_camel_case_types)]
pub struct gamma_port {
    port: Port,
    /// Copy of the message that the handler is called for.
    seen: Vec<u8>,
    is_in_batch: bool,
}

/// A message, as passed to a handler.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct gamma_message {
    /// Its bytes, valid until the handler returns; null if it is empty.
    pub data: *const c_void,
    /// Number of bytes.
    pub bytes: u64,
    /// Its number among the port's messages and errors, from 1.
    pub number: u64,
    /// Node that sent it.
    pub source_node: u32,
    /// Its port.
    pub source_port: u32,
}

/// A receiver handler. It runs in the process that owns the port, while the process polls.
#[allow(non_camel_case_types)]
pub type gamma_handler = Option<unsafe extern "C" fn(message: *const gamma_message, user: *mut c_void)>;

/// Opens active port `port`, or any free one for NICLAB_ANY_PORT, with `buffers` receive buffers, each for one message
/// of at most `buffer_bytes` bytes. `policy` is a wait policy.
///
/// # Safety
///
/// `device` must be null or from niclab_open, `result` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_open(
    device: *const niclab_device,
    port: u32,
    buffers: u32,
    buffer_bytes: u32,
    policy: c_int,
    result: *mut *mut gamma_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let device = unsafe { shared(device)? };
        place(result)?;
        let options = PortOptions::default().buffers(buffers, buffer_bytes).policy(policy_of(policy)?);
        let options = if port == NICLAB_ANY_PORT { options } else { options.port(port) };
        let port = Port::open(&device.0, options)?;
        // SAFETY: the caller guarantees this.
        unsafe { give(result, gamma_port { port, seen: Vec::new(), is_in_batch: false }) }
    })
}

/// Closes the port. Messages for it are dropped. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from gamma_open, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_close(port: *mut gamma_port) {
    // SAFETY: the caller guarantees this.
    unsafe { take_back(port) }
}

/// Begins a batch: until gamma_end_batch(), messages share notifications of the card, and gamma_send() need not wait
/// until its message has left. Its data must not change before gamma_end_batch() returns. Batches cannot be nested.
///
/// # Safety
///
/// `port` must be null or from gamma_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_begin_batch(port: *mut gamma_port) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.is_in_batch = true;
        Ok(())
    })
}

/// Ends a batch: notifies the card, and waits up to `timeout_us` until all messages have left.
///
/// # Safety
///
/// `port` must be null or from gamma_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_end_batch(port: *mut gamma_port, timeout_us: i64) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let own = unsafe { exclusive(port)? };
        own.is_in_batch = false;
        Ok(own.port.flush(limit(timeout_us))?)
    })
}

/// Sends a message from the program's memory to an active port of another node, and returns once the message has left;
/// in a batch, perhaps sooner. Waits up to `timeout_us` while the window does not allow it.
///
/// # Safety
///
/// `port` must be null or from gamma_open, `data` null or valid for reads of `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_send(
    port: *mut gamma_port,
    node: u32,
    target_port: u32,
    data: *const c_void,
    bytes: u64,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let own = unsafe { exclusive(port)? };
        // SAFETY: the caller guarantees this.
        let message = unsafe { slice(data, bytes)? };
        let (target, limit) = (Address { node, port: target_port }, limit(timeout_us));
        if own.is_in_batch && own.port.try_post(target, message, limit)? {
            return Ok(());
        }
        Ok(own.port.send(target, message, limit)?)
    })
}

/// Calls the handler for all received messages, or waits for the first up to `timeout_us`; with 0 it does not wait.
/// Stores the number of messages in `handled`, unless that is null. An error reports a loss; the port remains usable.
///
/// # Safety
///
/// `port` must be null or from gamma_open, `handler` null or a function that takes `user`, `handled` null or valid for
/// a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_poll(
    port: *mut gamma_port,
    handler: gamma_handler,
    user: *mut c_void,
    handled: *mut u64,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let gamma_port { port, seen, .. } = unsafe { exclusive(port)? };
        let handler = handler.ok_or(Failure::value(c"the handler is null"))?;
        let mut run = |message: &Message<'_>| {
            seen.resize(message.bytes(), 0);
            message.read(0, seen);
            let Address { node: source_node, port: source_port } = message.source();
            let data = if seen.is_empty() { std::ptr::null() } else { seen.as_ptr().cast() };
            let (bytes, number) = (seen.len() as u64, message.number());
            let message = gamma_message { data, bytes, number, source_node, source_port };
            // SAFETY: the caller guarantees that it takes a message and `user`; the message lives during the call.
            unsafe { handler(&raw const message, user) };
        };
        let mut count = 0;
        if timeout_us != 0 {
            port.receive(limit(timeout_us), &mut run)?;
            count = 1;
        }
        count += port.poll(run)?;
        if let Ok(handled) = place(handled) {
            // SAFETY: not null, and the caller guarantees that it is valid for a store then.
            unsafe { handled.write(count) };
        }
        Ok(())
    })
}

/// A time limit; a negative timeout has none.
fn limit(timeout_us: i64) -> Duration {
    u64::try_from(timeout_us).map_or(Duration::MAX, Duration::from_micros)
}
