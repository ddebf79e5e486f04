//! Memory registered for a port, in the C interface. It shares helpers and codes with the parent module.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Failure, give, take_back};
use crate::Memory;
use crate::commanded::{Event, Port};
use crate::region::Region;

/// Memory registered for a port.
#[allow(non_camel_case_types)]
pub struct niclab_region(pub(super) Region);

/// Deregisters memory. After the call the NIC does not access it any more. Match entries that use it are unlinked
/// without events. Null is ignored.
///
/// # Safety
///
/// `region` must be null or from this library, and must not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_release(region: *mut niclab_region) {
    // SAFETY: the caller guarantees that it is a handle of this library, used for the last time.
    unsafe { take_back(region) }
}

/// Returns the address of a region's memory; null for null.
///
/// # Safety
///
/// `region` must be null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_memory(region: *const niclab_region) -> *mut c_void {
    // SAFETY: the caller guarantees that it is null or valid.
    let words = unsafe { region.as_ref() }.map(|region| region.0.memory().words().as_ptr());
    words.map_or(std::ptr::null_mut(), |first| first.cast::<c_void>().cast_mut())
}

/// Returns the number of bytes of a region; 0 for null.
///
/// # Safety
///
/// `region` must be null or from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niclab_region_bytes(region: *const niclab_region) -> u64 {
    // SAFETY: the caller guarantees that it is null or valid.
    unsafe { region.as_ref() }.map_or(0, |region| region.0.bytes() as u64)
}

/// Allocates and registers `bytes` bytes of zeroed memory.
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
    let found = port.allocate(bytes)?;
    // SAFETY: the caller guarantees this.
    unsafe { give(region, niclab_region(found)) }
}

/// Registers memory of the program.
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
        return Err(Failure::value(c"memory must begin at a multiple of 8 and have a multiple of 8 bytes"));
    };
    // SAFETY: it is aligned, and the caller guarantees that it is valid until the region is released, which drops
    // `Memory`.
    let memory = unsafe { Memory::from_raw(first, words, Arc::new(())) };
    let found = port.register(memory)?;
    // SAFETY: the caller guarantees this.
    unsafe { give(region, niclab_region(found)) }
}

/// The range of `bytes` bytes from `offset` on.
pub(super) fn range(offset: u64, bytes: u64) -> Result<Range<usize>, Failure> {
    let end = offset.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
    match (usize::try_from(offset), end) {
        (Ok(begin), Some(end)) => Ok(begin..end),
        _ => Err(Failure::value(c"the offset or the number of bytes exceeds the address space")),
    }
}
