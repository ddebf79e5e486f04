//! Memory registered for a port, in the C interface. The parent module has the helpers and error codes.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Failure, give, take_back};
use crate::SharedMemory;
use crate::commanded::{Event, Port};
use crate::region::Region;

/// Memory registered for a port.
#[allow(non_camel_case_types)]
pub struct niclab_region(pub(super) Region);

/// Deregisters memory. The NIC does not access the memory after the call. It unlinks match entries that use the
/// memory, without an event. The call ignores a null pointer.
///
/// # Safety
///
/// `region` must be null or from this library, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_release(region: *mut niclab_region) {
    // SAFETY: the caller guarantees that `region` is null or a handle of this library, and does not use it again.
    unsafe { take_back(region) }
}

/// Returns the address of a region's memory, or null if `region` is null.
///
/// # Safety
///
/// `region` must be null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_memory(region: *const niclab_region) -> *mut c_void {
    // SAFETY: the caller guarantees that `region` is null or valid.
    let address = unsafe { region.as_ref() }.map(|region| region.0.memory().words().as_ptr());
    address.map_or(std::ptr::null_mut(), |address| address.cast::<c_void>().cast_mut())
}

/// Returns the size of a region in bytes, or 0 if `region` is null.
///
/// # Safety
///
/// `region` must be null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_bytes(region: *const niclab_region) -> u64 {
    // SAFETY: the caller guarantees that `region` is null or valid.
    unsafe { region.as_ref() }.map_or(0, |region| region.0.bytes() as u64)
}

/// Allocates and registers `bytes` bytes of zeroed memory. Stores the handle at `region`.
///
/// # Safety
///
/// `region` must be null or valid for a store.
pub(super) unsafe fn allocate<E: Event>(
    port: &Port<E>,
    bytes: u64,
    region: *mut *mut niclab_region,
) -> Result<(), Failure> {
    let bytes = usize::try_from(bytes)
        .map_err(|_| Failure::value(c"the number of bytes exceeds the address space"))?;
    let allocated = port.allocate(bytes)?;
    // SAFETY: the caller guarantees that `region` is null or valid for a store.
    unsafe { give(region, niclab_region(allocated)) }
}

/// Registers memory of the program. Stores the handle at `region`.
///
/// # Safety
///
/// `region` must be null or valid for a store, `memory` null or valid for reads and writes of `bytes` until the region
/// is released.
pub(super) unsafe fn register<E: Event>(
    port: &Port<E>,
    memory: *mut c_void,
    bytes: u64,
    region: *mut *mut niclab_region,
) -> Result<(), Failure> {
    let first = NonNull::new(memory.cast::<u64>()).filter(|first| first.is_aligned());
    let words = usize::try_from(bytes / 8).ok().filter(|_| bytes.is_multiple_of(8) && bytes > 0);
    let (Some(first), Some(words)) = (first, words) else {
        let what = c"the address and the number of bytes of the memory must be multiples of 8, and not 0";
        return Err(Failure::value(what));
    };
    // SAFETY: `first` is aligned. The caller guarantees that the memory is valid until the region is released, and the
    // release drops this `SharedMemory`.
    let memory = unsafe { SharedMemory::from_raw(first, words, Arc::new(())) };
    let registered = port.register(memory)?;
    // SAFETY: the caller guarantees that `region` is null or valid for a store.
    unsafe { give(region, niclab_region(registered)) }
}

/// The range of the `bytes` bytes that begin at `offset`.
pub(super) fn range(offset: u64, bytes: u64) -> Result<Range<usize>, Failure> {
    let end = offset.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
    match (usize::try_from(offset), end) {
        (Ok(begin), Some(end)) => Ok(begin..end),
        _ => Err(Failure::value(c"the offset or the number of bytes exceeds the address space")),
    }
}
