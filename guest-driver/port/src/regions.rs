//! Registering memory with a device.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Deref;

use niclab_abi::region::{
    Extent, MAX_EXTENTS, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen, RegionOpened,
};
use niclab_abi::{FromBytes, ToBytes};

/// Registers memory that consists of several extents, with as many requests as necessary. `ask` sends an operation with
/// its body, and returns the body of the answer. Returns the region's name; `None` if the answer is too short for one.
///
/// # Errors
/// Those of `ask`.
pub fn open_region<R: Deref<Target = [u8]>, E>(
    port: u32,
    extents: &[Extent],
    mut ask: impl FnMut(u32, Vec<u8>) -> Result<R, E>,
) -> Result<Option<u32>, E> {
    let bytes = extents.iter().fold(0, |sum: u64, extent| sum.wrapping_add(extent.bytes));
    let (first, rest) = extents.split_at(extents.len().min(MAX_EXTENTS as usize));
    let open = RegionOpen { port, extents: first.len() as u32, bytes, reserved: 0 };
    let opened = ask(OP_REGION_OPEN, body(&open, first))?;
    let Some(RegionOpened { region, .. }) = RegionOpened::from_bytes(&opened) else { return Ok(None) };
    for more in rest.chunks(MAX_EXTENTS as usize) {
        let name = RegionName { port, region, extents: more.len() as u32, reserved: 0 };
        ask(OP_REGION_EXTEND, body(&name, more))?;
    }
    Ok(Some(region))
}

fn body<T: ToBytes>(head: &T, extents: &[Extent]) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES + extents.len() * Extent::BYTES];
    let (place, rest) = bytes.split_at_mut(T::BYTES);
    head.to_bytes(place);
    for (place, extent) in rest.chunks_exact_mut(Extent::BYTES).zip(extents) {
        extent.to_bytes(place);
    }
    bytes
}
