//! The C interface: opaque handles, negative error codes, no panic across the boundary.
//!
//! The header `include/niclab.h` is generated from this module (`cargo run -p niclab-user --example header`), and a
//! test compares the committed copy with it. The comments here become those of the header, so they use C terms.
//!
//! Use a handle in one thread at a time. Timeouts are microseconds of wall time; a negative timeout waits as long as
//! the device lives.

pub mod gamma;
pub mod grim;
pub mod inic;
pub mod matching;
pub mod region;

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

use crate::slices::{Flags, Message, PAYLOAD_WORDS, Port, PortOptions};
use crate::{Address, Batching as _, Deadline, Device, Error, WaitPolicy};

/// Success.
pub const NICLAB_OK: c_int = 0;
/// The device does not exist, cannot be opened, or is not a niclab NIC.
pub const NICLAB_ERROR_NO_DEVICE: c_int = -1;
/// Device and library do not match: another ABI version, or the NIC lacks the requested feature.
pub const NICLAB_ERROR_MISMATCH: c_int = -2;
/// The port is in use.
pub const NICLAB_ERROR_BUSY: c_int = -3;
/// A value is out of its range, or a pointer is null.
pub const NICLAB_ERROR_VALUE: c_int = -4;
/// The driver or the device refused the operation.
pub const NICLAB_ERROR_REFUSED: c_int = -5;
/// Nothing arrived before the timeout.
pub const NICLAB_ERROR_TIMEOUT: c_int = -6;
/// The device is gone: close the handles.
pub const NICLAB_ERROR_GONE: c_int = -7;
/// Try again later: no room in the page, or no message.
pub const NICLAB_ERROR_AGAIN: c_int = -8;
/// A fault of the device, its driver or this library.
pub const NICLAB_ERROR_INTERNAL: c_int = -9;

/// Message flag: the sender's status reports when the message has left.
pub const NICLAB_NOTIFY: u32 = 1;
/// Message flag: the receiving NIC interrupts its host.
pub const NICLAB_INTERRUPT: u32 = 2;
/// Message flag: the receiving NIC sends an acknowledgement once the message is stored.
pub const NICLAB_ACKNOWLEDGE: u32 = 4;

/// Any free port.
pub const NICLAB_ANY_PORT: u32 = u32::MAX;

/// Wait policy: poll continuously.
pub const NICLAB_SPIN: c_int = 0;
/// Wait policy: sleep until an interrupt.
pub const NICLAB_BLOCK: c_int = 1;
/// Wait policy: poll for 100 microseconds, then sleep. The default policy of a port.
pub const NICLAB_ADAPTIVE: c_int = 2;

/// A NIC.
#[allow(non_camel_case_types)]
pub struct niclab_device(Device);

/// An open port of an ULTRA NIC.
#[allow(non_camel_case_types)]
pub struct niclab_ultra_port(Port);

/// Properties of a NIC.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_info {
    /// This node's number, from 0.
    pub node: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Ports that can be open at a time.
    pub ports: u32,
    /// Maximum number of slices of a port's receive queue.
    pub max_slices: u32,
}

/// A received message.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct niclab_message {
    /// The payload; only the first `words` words are valid.
    pub payload: [u64; 8],
    /// The tag.
    pub tag: [u64; 2],
    /// Payload words, 0 to 8.
    pub words: u32,
    /// NICLAB_INTERRUPT and NICLAB_ACKNOWLEDGE as the sender set them.
    pub flags: u32,
    /// Node that sent it.
    pub source_node: u32,
    /// Its port.
    pub source_port: u32,
}

thread_local! {
    /// Text of the last error of this thread.
    static LAST_ERROR: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Returns a short English text for an error code; never null, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_strerror(error: c_int) -> *const c_char {
    let text: &'static CStr = match error {
        NICLAB_OK => c"done",
        NICLAB_ERROR_NO_DEVICE => c"no such niclab NIC",
        NICLAB_ERROR_MISMATCH => c"device and library do not match",
        NICLAB_ERROR_BUSY => c"the port is in use",
        NICLAB_ERROR_VALUE => c"a value is out of its range",
        NICLAB_ERROR_REFUSED => c"refused by the driver or the device",
        NICLAB_ERROR_TIMEOUT => c"nothing arrived before the timeout",
        NICLAB_ERROR_GONE => c"the device is gone",
        NICLAB_ERROR_AGAIN => c"not possible now, try again",
        NICLAB_ERROR_INTERNAL => c"a fault of the device, its driver or the library",
        _ => c"not an error code of niclab",
    };
    text.as_ptr()
}

/// Returns the full text of this thread's last error: the device, the operation and the fix. Never null; valid until
/// this thread's next call of this library.
#[unsafe(no_mangle)]
pub extern "C" fn niclab_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Opens the NIC of the character device `path`, or the first NIC if `path` is null.
///
/// # Safety
///
/// `path` must be null or a C string, `device` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_open(path: *const c_char, device: *mut *mut niclab_device) -> c_int {
    call(|| {
        let opened = if path.is_null() {
            Device::open_first()?
        } else {
            // SAFETY: the caller guarantees that it is a string when it is not null.
            let path = unsafe { CStr::from_ptr(path) };
            Device::open(OsStr::from_bytes(path.to_bytes()))?
        };
        // SAFETY: the caller guarantees this.
        unsafe { give(device, niclab_device(opened)) }
    })
}

/// Closes a NIC; its ports stay open. Null is ignored.
///
/// # Safety
///
/// `device` must be null or from niclab_open, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_close(device: *mut niclab_device) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(device) }
}

/// Reads the properties of the NIC.
///
/// # Safety
///
/// `device` must be null or from niclab_open, `info` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_get_info(device: *const niclab_device, info: *mut niclab_info) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let found = unsafe { shared(device)? }.0.info();
        let value = niclab_info {
            node: found.node,
            nodes: found.nodes,
            ports: found.ports,
            max_slices: found.max_slices,
        };
        // SAFETY: not null, and the caller guarantees that it is valid for a store then.
        unsafe { place(info)?.write(value) };
        Ok(())
    })
}

/// Opens port `number`, or any free port for NICLAB_ANY_PORT, with a receive queue of `slices` slices (a power of two
/// from 8 on; 0 for 256).
///
/// # Safety
///
/// `device` must be null or from niclab_open, `port` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_open(
    device: *const niclab_device,
    number: u32,
    slices: u32,
    port: *mut *mut niclab_ultra_port,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let device = unsafe { shared(device)? };
        let opened = Port::open(&device.0, options_of(number, slices))?;
        // SAFETY: the caller guarantees this.
        unsafe { give(port, niclab_ultra_port(opened)) }
    })
}

/// Closes a port. Messages that have not left are discarded. Null is ignored.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_close(port: *mut niclab_ultra_port) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(port) }
}

/// Returns the port's number.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open; for null the number is NICLAB_ANY_PORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_number(port: *const niclab_ultra_port) -> u32 {
    // SAFETY: the caller guarantees that it is null or valid.
    unsafe { port.as_ref() }.map_or(NICLAB_ANY_PORT, |port| port.0.address().port)
}

/// Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_set_wait_policy(port: *mut niclab_ultra_port, policy: c_int) -> c_int {
    call(|| {
        let policy = policy_of(policy)?;
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.set_wait_policy(policy);
        Ok(())
    })
}

/// Sets where the port sends.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_route(
    port: *mut niclab_ultra_port,
    node: u32,
    node_port: u32,
) -> c_int {
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(port)? }.0.route(Address { node, port: node_port })?))
}

/// Authorizes a port of another node to send to this port, and reserves `credits` slices for it.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_authorize(
    port: *mut niclab_ultra_port,
    node: u32,
    node_port: u32,
    credits: u32,
) -> c_int {
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(port)? }.0.authorize(Address { node, port: node_port }, credits)?))
}

/// Revokes the authorization of a port of another node.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_revoke(
    port: *mut niclab_ultra_port,
    node: u32,
    node_port: u32,
) -> c_int {
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(port)? }.0.revoke(Address { node, port: node_port })?))
}

/// Begins a batch: until the matching niclab_ultra_end_batch(), messages and releases share doorbells, each of which is
/// an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
/// or flushes. A call that never waits does not ring it. Batches may be nested.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_begin_batch(port: *mut niclab_ultra_port) -> c_int {
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
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_end_batch(port: *mut niclab_ultra_port) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        unsafe { exclusive(port)? }.0.end_batch();
        Ok(())
    })
}

/// Sends `words` (0 to 8) words of payload and a tag of two words. Flags are NICLAB_NOTIFY, NICLAB_INTERRUPT and
/// NICLAB_ACKNOWLEDGE. Waits for room up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open, `payload` valid for `words` words or `words` zero, `tag` null or
/// valid for two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_send(
    port: *mut niclab_ultra_port,
    payload: *const u64,
    words: u32,
    tag: *const u64,
    flags: u32,
    timeout_us: i64,
) -> c_int {
    call(|| {
        let flags = flags_of(flags)?;
        if words as usize > PAYLOAD_WORDS {
            return Err(Failure::value(c"a payload has at most 8 words"));
        }
        if words > 0 && payload.is_null() {
            return Err(Failure::value(c"the payload is null"));
        }
        let payload = match words {
            0 => &[],
            // SAFETY: the caller guarantees that it is valid for `words` words, and it was checked not to be null.
            _ => unsafe { slice::from_raw_parts(payload, words as usize) },
        };
        // SAFETY: the caller guarantees that both are null or valid; an array of two words has the layout of two words.
        let (port, tag) = unsafe { (exclusive(port)?, shared(tag.cast::<[u64; 2]>())?) };
        match deadline(timeout_us) {
            Some(deadline) => port.0.send(payload, *tag, flags, deadline).map(drop)?,
            None => drop(port.0.try_send(payload, *tag, flags)?.ok_or(Failure::again(c"the page is full"))?),
        }
        Ok(())
    })
}

/// Receives a message. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open, `message` null or valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_receive(
    port: *mut niclab_ultra_port,
    message: *mut niclab_message,
    timeout_us: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller guarantees that it is null or valid.
        let port = unsafe { exclusive(port)? };
        // Checked first: a message received without a place to store it would be lost.
        let message = place(message)?;
        let received = match deadline(timeout_us) {
            Some(deadline) => port.0.receive(deadline)?,
            None => port.0.try_receive().ok_or(Failure::again(c"there is no message"))?,
        };
        // SAFETY: not null, and the caller guarantees that it is valid for a store then.
        unsafe { message.write(c_message(&received)) };
        Ok(())
    })
}

/// Waits up to `timeout_us` until all messages sent so far have left. The last one must carry NICLAB_NOTIFY or
/// NICLAB_ACKNOWLEDGE.
///
/// # Safety
///
/// `port` must be null or from niclab_ultra_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_ultra_flush(port: *mut niclab_ultra_port, timeout_us: i64) -> c_int {
    let deadline = deadline(timeout_us).unwrap_or(Deadline::After(Duration::ZERO));
    // SAFETY: the caller guarantees that it is null or valid.
    call(|| Ok(unsafe { exclusive(port)? }.0.flush(deadline)?))
}

/// An error code and its text. Texts of calls that fail repeatedly while a program polls are static, not allocated.
struct Failure {
    code: c_int,
    text: Cow<'static, CStr>,
}

impl Failure {
    fn value(text: &'static CStr) -> Self {
        Self { code: NICLAB_ERROR_VALUE, text: Cow::Borrowed(text) }
    }

    fn again(text: &'static CStr) -> Self {
        Self { code: NICLAB_ERROR_AGAIN, text: Cow::Borrowed(text) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::NoDevice { .. } | Error::Open { .. } | Error::NotNiclab { .. } => NICLAB_ERROR_NO_DEVICE,
            Error::AbiVersion { .. } | Error::MissingFeature { .. } => NICLAB_ERROR_MISMATCH,
            Error::PortBusy { .. } => NICLAB_ERROR_BUSY,
            Error::BadValue { .. } | Error::NothingReported { .. } | Error::Handlers { .. } => {
                NICLAB_ERROR_VALUE
            }
            Error::Refused { .. }
            | Error::Launch { .. }
            | Error::UnknownHandler { .. }
            | Error::SendQueueFull { .. }
            | Error::NoMemory { .. }
            | Error::Raised { .. }
            | Error::Transfer { .. } => NICLAB_ERROR_REFUSED,
            Error::TimedOut { .. } | Error::Stalled { .. } => NICLAB_ERROR_TIMEOUT,
            Error::DeviceGone { .. } => NICLAB_ERROR_GONE,
            Error::Inconsistent { .. } | Error::SlicesLost { .. } => NICLAB_ERROR_INTERNAL,
        };
        Self { code, text: Cow::Owned(CString::new(error.to_string()).unwrap_or_default()) }
    }
}

/// Runs a call of the interface. Its errors and panics become error codes.
fn call(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let fault = Failure {
        code: NICLAB_ERROR_INTERNAL,
        text: Cow::Borrowed(c"the library has a fault: please report it"),
    };
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(fault));
    match result {
        Ok(()) => NICLAB_OK,
        Err(Failure { code, text }) => {
            LAST_ERROR.with_borrow_mut(|last| *last = text);
            code
        }
    }
}

/// Options of a port with this number, and this many slices or events. For both, the library has defaults.
fn options_of(number: u32, slices: u32) -> PortOptions {
    let mut options = PortOptions::default();
    if number != NICLAB_ANY_PORT {
        options = options.port(number);
    }
    if slices != 0 {
        options = options.slices(slices);
    }
    options
}

fn policy_of(policy: c_int) -> Result<WaitPolicy, Failure> {
    match policy {
        NICLAB_SPIN => Ok(WaitPolicy::Spin),
        NICLAB_BLOCK => Ok(WaitPolicy::Block),
        NICLAB_ADAPTIVE => Ok(WaitPolicy::ADAPTIVE),
        _ => Err(Failure::value(c"the wait policy must be NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE")),
    }
}

fn flags_of(bits: u32) -> Result<Flags, Failure> {
    let known = [
        (NICLAB_NOTIFY, Flags::NOTIFY),
        (NICLAB_INTERRUPT, Flags::INTERRUPT),
        (NICLAB_ACKNOWLEDGE, Flags::ACKNOWLEDGE),
    ];
    if bits & !(NICLAB_NOTIFY | NICLAB_INTERRUPT | NICLAB_ACKNOWLEDGE) != 0 {
        return Err(Failure::value(
            c"unknown message flags: use NICLAB_NOTIFY, NICLAB_INTERRUPT, NICLAB_ACKNOWLEDGE",
        ));
    }
    Ok(known.iter().filter(|(bit, _)| bits & bit != 0).fold(Flags::NONE, |sum, &(_, flag)| sum | flag))
}

fn c_message(message: &Message) -> niclab_message {
    let mut payload = [0; PAYLOAD_WORDS];
    let words = message.payload();
    payload[..words.len()].copy_from_slice(words);
    let mut flags = 0;
    if message.flags().contains(Flags::INTERRUPT) {
        flags |= NICLAB_INTERRUPT;
    }
    if message.flags().contains(Flags::ACKNOWLEDGE) {
        flags |= NICLAB_ACKNOWLEDGE;
    }
    let source = message.source();
    niclab_message {
        payload,
        tag: message.tag(),
        words: words.len() as u32,
        flags,
        source_node: source.node,
        source_port: source.port,
    }
}

/// The deadline of a timeout; `None` for a call that does not wait.
fn deadline(timeout_us: i64) -> Option<Deadline> {
    match u64::try_from(timeout_us) {
        Ok(0) => None,
        Ok(timeout_us) => Some(Deadline::After(Duration::from_micros(timeout_us))),
        Err(_) => Some(Deadline::Never),
    }
}

/// Stores a new handle at `place`.
///
/// # Safety
///
/// `place` must be null or valid for a store.
unsafe fn give<T>(place: *mut *mut T, value: T) -> Result<(), Failure> {
    let place = self::place(place)?;
    // SAFETY: not null, and the caller guarantees that it is valid then.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// The place for a result.
fn place<T>(pointer: *mut T) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer).ok_or(Failure::value(c"the pointer to the result is null"))
}

/// Frees the object of a handle.
///
/// # Safety
///
/// `handle` must be null or from [`give`], used for the last time.
unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // A drop that panics must not unwind into C. The error cannot be reported.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller guarantees that `give` made it from a box, and that it is not used any more.
            drop(unsafe { Box::from_raw(handle) });
        }));
    }
}

/// Borrows the object at `pointer`.
///
/// # Safety
///
/// `pointer` must be null or valid for reads during the call.
unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller guarantees this.
    unsafe { pointer.as_ref() }.ok_or(Failure::value(c"a pointer is null"))
}

/// Borrows the object at `pointer` mutably.
///
/// # Safety
///
/// `pointer` must be null or valid for reads and writes during the call, and not used by others during the call.
unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller guarantees this.
    unsafe { pointer.as_mut() }.ok_or(Failure::value(c"a pointer is null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the call returns a string that is valid until the next call of this thread.
        unsafe { CStr::from_ptr(niclab_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn null_pointers_are_refused_and_ignored() {
        let null = std::ptr::null_mut::<niclab_ultra_port>();
        let tag = [0; 2];
        // SAFETY: every handle may be null; the tag is valid.
        unsafe {
            assert_eq!(niclab_ultra_send(null, std::ptr::null(), 1, tag.as_ptr(), 0, 0), NICLAB_ERROR_VALUE);
            assert!(last_error().contains("payload is null"));
            assert_eq!(niclab_ultra_receive(null, std::ptr::null_mut(), 0), NICLAB_ERROR_VALUE);
            assert_eq!(niclab_get_info(std::ptr::null(), std::ptr::null_mut()), NICLAB_ERROR_VALUE);
            assert_eq!(niclab_ultra_number(null), NICLAB_ANY_PORT);
            niclab_ultra_close(null);
            niclab_close(std::ptr::null_mut());
        }
    }

    #[test]
    fn values_out_of_range_are_refused_before_the_handle_is_used() {
        let null = std::ptr::null_mut::<niclab_ultra_port>();
        let words = [0; 9];
        // SAFETY: both arrays are valid for the given lengths, and the handle is null.
        unsafe {
            assert_eq!(niclab_ultra_send(null, words.as_ptr(), 9, words.as_ptr(), 0, 0), NICLAB_ERROR_VALUE);
            assert!(last_error().contains("8 words"));
            assert_eq!(niclab_ultra_send(null, words.as_ptr(), 8, words.as_ptr(), 8, 0), NICLAB_ERROR_VALUE);
            assert!(last_error().contains("flags"));
        }
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(call(|| panic!("a fault")), NICLAB_ERROR_INTERNAL);
        assert!(last_error().contains("fault"));
    }

    #[test]
    fn the_error_for_a_missing_device_names_it() {
        let mut device = std::ptr::null_mut();
        // SAFETY: a string, and a place for the handle.
        let result = unsafe { niclab_open(c"/dev/niclab-absent".as_ptr(), &raw mut device) };
        assert_eq!(result, NICLAB_ERROR_NO_DEVICE);
        assert!(last_error().contains("/dev/niclab-absent") && device.is_null());
    }
}
